//! The format `email`, as Go parses addresses of mails.

use super::split_where;
use crate::validation::names;

/// An address as in a header of a mail: `a@example.com` or `Name <a@example.com>`, with comments.
pub(super) fn is_email(text: &str) -> bool {
    let mut rest = MailText(text.trim_matches([' ', '\t']));
    if rest.skip_comments().is_none() {
        return false;
    }
    let mut plain = MailText(rest.0);
    if plain.address().is_some() && plain.skip_comments().is_some() && plain.0.is_empty() {
        return true;
    }
    // A name consists of words; dots are read as parts of them.
    while !rest.0.starts_with('<') {
        if rest.word(true).is_none() || rest.skip_comments().is_none() {
            return false;
        }
    }
    rest.take('<').is_some()
        && rest.skip_comments().is_some()
        && rest.address().is_some()
        && rest.take('>').is_some()
        && rest.skip_comments().is_some()
        && rest.0.is_empty()
}

/// The rest of an address of a mail.
struct MailText<'t>(&'t str);

impl MailText<'_> {
    fn take(&mut self, c: char) -> Option<()> {
        self.0 = self.0.strip_prefix(c)?;
        Some(())
    }

    /// White space and comments, which may be nested.
    fn skip_comments(&mut self) -> Option<()> {
        loop {
            self.0 = self.0.trim_start_matches([' ', '\t']);
            if !self.0.starts_with('(') {
                return Some(());
            }
            let (mut depth, mut end, mut is_escaped) = (0_usize, None, false);
            for (i, c) in self.0.char_indices() {
                match c {
                    _ if is_escaped => is_escaped = false,
                    '\\' => is_escaped = true,
                    '(' => depth += 1,
                    ')' => depth -= 1,
                    _ => {}
                }
                if depth == 0 {
                    end = Some(i + 1);
                    break;
                }
            }
            self.0 = self.0.get(end?..)?;
        }
    }

    /// An atom or a quoted text.
    fn word(&mut self, with_dots: bool) -> Option<()> {
        if let Some(quoted) = self.0.strip_prefix('"') {
            let (mut end, mut is_escaped) = (None, false);
            for (i, c) in quoted.char_indices() {
                match c {
                    _ if is_escaped => is_escaped = false,
                    '\\' => is_escaped = true,
                    '"' => {
                        end = Some(i);
                        break;
                    }
                    c if c.is_ascii_control() && c != '\t' => return None,
                    _ => {}
                }
            }
            self.0 = quoted.get(end? + 1..)?;
            return Some(());
        }
        let is_atom = |c: char| {
            c.is_ascii_alphanumeric() || !c.is_ascii() || "!#$%&'*+-/=?^_`{|}~".contains(c)
        };
        let (atom, rest) = split_where(self.0, |c| !(is_atom(c) || (with_dots && c == '.')));
        self.0 = rest;
        (!atom.is_empty()).then_some(())
    }

    /// The local part, `@` and the domain.
    fn address(&mut self) -> Option<()> {
        if self.0.starts_with('"') {
            self.word(false)?;
        } else {
            self.dotted()?;
        }
        self.take('@')?;
        match self.0.strip_prefix('[') {
            Some(literal) => {
                let (address, rest) = literal.split_once(']')?;
                names::parse_ip(address)?;
                self.0 = rest;
                Some(())
            }
            None => self.dotted(),
        }
    }

    /// Atoms with dots between them.
    fn dotted(&mut self) -> Option<()> {
        self.word(false)?;
        while self.0.starts_with('.') {
            self.take('.')?;
            self.word(false)?;
        }
        Some(())
    }
}
