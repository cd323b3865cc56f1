//! Classes of characters: `[a-z]`, `\d`, `[:alpha:]` and `\p{Greek}`.

use super::{RegexError, RegexPart, Translator, error, read_until};

/// About how many states a class of Unicode needs.
pub(super) const UNICODE_CLASS_SIZE: u64 = 300;
/// The names of the classes of POSIX.
const ASCII_CLASSES: [&str; 14] = [
    "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct",
    "space", "upper", "word", "xdigit",
];
const INVALID_RANGE: &str = "invalid character class range";
const UNCLOSED: &str = "missing closing ]";

impl<'p> Translator<'p> {
    /// A class of Unicode, whose backslash was read: the text for use inside of brackets.
    pub(super) fn unicode_class(&mut self, before: &'p str) -> Result<String, RegexError> {
        let problem = |rest: &str| Err(error(INVALID_RANGE, read_until(before, rest)));
        let mut negated = self.next() == Some('P');
        let mut name = if self.skip("{") {
            let Some(end) = self.rest.find('}') else {
                return Err(error(INVALID_RANGE, before));
            };
            let name = &self.rest[..end];
            self.rest = &self.rest[end + 1..];
            name
        } else {
            let Some(one) = self.rest.chars().next() else {
                return problem(self.rest);
            };
            let (name, rest) = self.rest.split_at(one.len_utf8());
            self.rest = rest;
            name
        };
        if let Some(opposite) = name.strip_prefix('^') {
            negated = !negated;
            name = opposite;
        }
        let Some((class, opposite)) = crate::functions::regex::unicode::class(name) else {
            return problem(self.rest);
        };
        Ok(if negated == opposite {
            class
        } else {
            format!("[^{class}]")
        })
    }

    pub(super) fn class(&mut self, before: &'p str) -> Result<RegexPart, RegexError> {
        let mut text = String::from("[");
        let mut size = 1;
        if self.skip("^") {
            text.push('^');
            size += 4;
        }
        let mut first = true;
        loop {
            if self.rest.is_empty() {
                return Err(error(UNCLOSED, before));
            }
            if !first && self.skip("]") {
                break;
            }
            first = false;
            if self.rest.starts_with("[:")
                && let Some(end) = self.rest.find(":]")
            {
                let name = &self.rest[..end + 2];
                if !is_ascii_class(name) {
                    return Err(error(INVALID_RANGE, name));
                }
                text.push_str(name);
                self.rest = &self.rest[end + 2..];
                continue;
            }
            if let Some(rest) = self.rest.strip_prefix('\\') {
                let letter = rest.chars().next();
                if matches!(letter, Some('p' | 'P')) {
                    let start = self.rest;
                    self.rest = rest;
                    text.push_str(&self.unicode_class(start)?);
                    size += UNICODE_CLASS_SIZE;
                    continue;
                }
                if let Some((ranges, negated)) = letter.and_then(perl_class) {
                    self.rest = &rest[1..];
                    text.push_str(&if negated {
                        format!("[{ranges}]")
                    } else {
                        ranges.to_owned()
                    });
                    size += perl_class_size(negated);
                    continue;
                }
            }
            let start = self.rest;
            let low = self.class_character(before)?;
            let mut high = low;
            if self.rest.starts_with('-') && !self.rest[1..].starts_with(']') && self.rest.len() > 1
            {
                self.rest = &self.rest[1..];
                high = self.class_character(before)?;
                if high < low {
                    return Err(error(INVALID_RANGE, read_until(start, self.rest)));
                }
            }
            let (low, high) = (u32::from(low), u32::from(high));
            text.push_str(&format!("\\x{{{low:x}}}-\\x{{{high:x}}}"));
            size += if high > 0x7f { 4 } else { 1 };
        }
        text.push(']');
        Ok(self.of_case(text, size))
    }

    fn class_character(&mut self, before: &'p str) -> Result<char, RegexError> {
        if self.rest.is_empty() {
            return Err(error(UNCLOSED, before));
        }
        let start = self.rest;
        if self.skip("\\") {
            return self.escaped_character(start);
        }
        self.next().ok_or_else(|| error(UNCLOSED, before))
    }
}

/// The ranges of `\d` and the like, for use inside of brackets, and whether they are negated.
pub(super) fn perl_class(letter: char) -> Option<(&'static str, bool)> {
    Some(match letter {
        'd' => ("0-9", false),
        'D' => ("^0-9", true),
        's' => ("\\t\\n\\x0c\\r\\x20", false),
        'S' => ("^\\t\\n\\x0c\\r\\x20", true),
        'w' => ("0-9A-Za-z_", false),
        'W' => ("^0-9A-Za-z_", true),
        _ => return None,
    })
}

/// About how many states such a class needs: outside of ASCII, characters have several bytes.
pub(super) fn perl_class_size(negated: bool) -> u64 {
    if negated { 8 } else { 1 }
}

/// Returns whether a text such as `[:alpha:]` or `[:^alpha:]` is a class of POSIX, for use inside of brackets.
fn is_ascii_class(text: &str) -> bool {
    let name = text
        .strip_prefix("[:")
        .and_then(|text| text.strip_suffix(":]"));
    name.is_some_and(|name| ASCII_CLASSES.contains(&name.strip_prefix('^').unwrap_or(name)))
}
