//! Conversion of Go's regular expressions to the syntax of the `regex` crate.
//!
//! The two differ: classes such as `\d` and `\b` are ASCII in Go; Go has `\Q…\E` and octal escapes, and refuses several
//! features of the crate: set operations, comments, look-around for words, more than 1000 repetitions.

mod class;

use class::{UNICODE_CLASS_SIZE, perl_class, perl_class_size};

/// The largest number in a repetition, also of repetitions inside of others.
const REPETITIONS_MAX: u32 = 1000;
/// The depth to which groups can be nested.
const DEPTH_MAX: u32 = 250;
/// About how many states an expression can have.
const SIZE_MAX: u64 = 200_000;
/// An expression in the other syntax.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Translated {
    pub(super) pattern: String,
    /// About how many states it has.
    pub(super) size: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Flags {
    ignore_case: bool,
    multi_line: bool,
    dot_matches_newline: bool,
    swap_greed: bool,
}

/// A part that can be repeated.
struct RegexPart {
    text: String,
    size: u64,
    /// The product of the repetitions in it.
    repetitions: u32,
}

impl RegexPart {
    fn extend(&mut self, parts: impl IntoIterator<Item = Self>) {
        for part in parts {
            self.text.push_str(&part.text);
            self.size = self.size.saturating_add(part.size);
            self.repetitions = self.repetitions.max(part.repetitions);
        }
    }
}

/// The number of times that a part is repeated.
struct Repetition {
    text: String,
    least: u32,
    most: Option<u32>,
}

/// Translates an expression.
///
/// # Errors
/// The fault, as Go reports it.
pub(super) fn translate(pattern: &str) -> Result<Translated, RegexError> {
    let mut translator = Translator {
        pattern,
        rest: pattern,
        flags: Flags::default(),
        depth: 0,
    };
    let part = translator.alternatives()?;
    if !translator.rest.is_empty() {
        return Err(error("unexpected )", pattern));
    }
    if part.size > SIZE_MAX {
        return Err(error("expression too large", pattern));
    }
    Ok(Translated {
        pattern: part.text,
        size: part.size,
    })
}

/// A regular expression cannot be used; the text is Go's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("error parsing regexp: {fault}: `{part}`")]
pub struct RegexError {
    fault: &'static str,
    /// The part of the expression.
    part: String,
}

pub(super) fn error(fault: &'static str, part: &str) -> RegexError {
    let part = part.to_owned();
    RegexError { fault, part }
}

/// The part of a text before its rest.
fn read_until<'p>(text: &'p str, rest: &str) -> &'p str {
    text.get(..text.len() - rest.len()).unwrap_or(text)
}

struct Translator<'p> {
    pattern: &'p str,
    rest: &'p str,
    flags: Flags,
    depth: u32,
}

impl<'p> Translator<'p> {
    fn next(&mut self) -> Option<char> {
        let next = self.rest.chars().next()?;
        self.rest = &self.rest[next.len_utf8()..];
        Some(next)
    }

    fn skip(&mut self, prefix: &str) -> bool {
        match self.rest.strip_prefix(prefix) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    /// Alternatives up to a closing bracket or the end.
    fn alternatives(&mut self) -> Result<RegexPart, RegexError> {
        let mut whole = RegexPart {
            text: String::new(),
            size: 1,
            repetitions: 1,
        };
        // The parts since the last bar: a repetition applies to the last one, also behind flags.
        let mut parts: Vec<RegexPart> = Vec::new();
        let size = |part: &RegexPart| part.size;
        let mut parts_size: u64 = 0;
        let mut last_repetition = None;
        loop {
            let before = self.rest;
            let mut repetition = None;
            match self.rest.chars().next() {
                None | Some(')') => {
                    whole.extend(parts);
                    return Ok(whole);
                }
                Some('|') => {
                    self.next();
                    whole.extend(parts.drain(..));
                    parts_size = 0;
                    whole.text.push('|');
                    whole.size += 1;
                }
                Some(_) => match self.repetition()? {
                    Some(bounds) => {
                        if let Some(last) = last_repetition {
                            let shown = read_until(last, self.rest);
                            return Err(error("invalid nested repetition operator", shown));
                        }
                        let shown = read_until(before, self.rest);
                        let Some(part) = parts.pop() else {
                            return Err(error("missing argument to repetition operator", shown));
                        };
                        parts_size = parts_size.saturating_sub(part.size);
                        parts.push(self.repeated(part, bounds, shown)?);
                        parts_size = parts_size.saturating_add(parts.last().map_or(0, size));
                        repetition = Some(before);
                    }
                    None => {
                        let known = parts.len();
                        self.part(&mut parts)?;
                        parts_size =
                            parts_size.saturating_add(parts[known..].iter().map(size).sum());
                    }
                },
            }
            last_repetition = repetition;
            if whole.size.saturating_add(parts_size) > SIZE_MAX {
                return Err(error("expression too large", self.pattern));
            }
        }
    }

    /// Adds a part without its repetition. Flags add no part, but apply to the following parts.
    fn part(&mut self, parts: &mut Vec<RegexPart>) -> Result<(), RegexError> {
        let before = self.rest;
        let Some(next) = self.next() else {
            return Ok(());
        };
        let flags = self.flags;
        let part = match next {
            '(' => match self.group(before)? {
                Some(part) => part,
                None => return Ok(()),
            },
            '[' => self.class(before)?,
            '.' if flags.dot_matches_newline => self.plain("(?s:.)", 4),
            '.' => self.plain("(?-s:.)", 4),
            '^' if flags.multi_line => self.plain("(?m:^)", 1),
            '^' => self.plain("\\A", 1),
            '$' if flags.multi_line => self.plain("(?m:$)", 1),
            '$' => self.plain("\\z", 1),
            // Between \Q and \E, characters have no meaning.
            '\\' if self.skip("Q") => {
                let end = self.rest.find("\\E");
                let quoted = &self.rest[..end.unwrap_or(self.rest.len())];
                self.rest = end.map_or("", |end| &self.rest[end + 2..]);
                parts.extend(quoted.chars().map(|one| self.literal(one)));
                return Ok(());
            }
            '\\' => self.escape(before)?,
            literal => self.literal(literal),
        };
        parts.push(part);
        Ok(())
    }

    fn plain(&self, text: &str, size: u64) -> RegexPart {
        RegexPart {
            text: text.to_owned(),
            size,
            repetitions: 1,
        }
    }

    fn literal(&self, character: char) -> RegexPart {
        let text = format!("\\x{{{:x}}}", u32::from(character));
        self.of_case(text, character.len_utf8() as u64)
    }

    /// A part whose letters match both cases if the flag is set.
    fn of_case(&self, text: String, size: u64) -> RegexPart {
        if self.flags.ignore_case {
            self.plain(&format!("(?i:{text})"), size)
        } else {
            self.plain(&text, size)
        }
    }

    /// Parses a repetition, if it is next.
    fn repetition(&mut self) -> Result<Option<Repetition>, RegexError> {
        let bounds = match self.rest.chars().next() {
            Some('*') => (0, None, 1),
            Some('+') => (1, None, 1),
            Some('?') => (0, Some(1), 1),
            _ => match read_repetition(self.rest) {
                None => return Ok(None),
                Some(Err(())) => {
                    let end = self.rest.find('}').map_or(self.rest.len(), |end| end + 1);
                    return Err(error("invalid repeat count", &self.rest[..end]));
                }
                Some(Ok(bounds)) => bounds,
            },
        };
        let (least, most, length) = bounds;
        let text = &self.rest[..length];
        self.rest = &self.rest[length..];
        let is_lazy = self.skip("?");
        let lazy = is_lazy != self.flags.swap_greed;
        Ok(Some(Repetition {
            text: format!("{text}{}", if lazy { "?" } else { "" }),
            least,
            most,
        }))
    }

    fn repeated(
        &self,
        part: RegexPart,
        of: Repetition,
        shown: &str,
    ) -> Result<RegexPart, RegexError> {
        let count = of.most.unwrap_or(of.least).max(1);
        let repetitions = match of.most {
            Some(0) => 1,
            _ => part.repetitions.saturating_mul(count),
        };
        if repetitions > REPETITIONS_MAX {
            return Err(error("invalid repeat count", shown));
        }
        Ok(RegexPart {
            text: format!("(?:{}){}", part.text, of.text),
            size: part.size.saturating_mul(count.into()).saturating_add(1),
            repetitions,
        })
    }

    fn group(&mut self, before: &'p str) -> Result<Option<RegexPart>, RegexError> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(error("expression nests too deeply", self.pattern));
        }
        let outer = self.flags;
        if self.skip("?") {
            if self.skip("P<") || self.skip("<") {
                self.group_name(before)?;
            } else if self.group_flags(before)? {
                self.depth -= 1;
                return Ok(None);
            }
        }
        let inner = self.alternatives()?;
        if !self.skip(")") {
            return Err(error("missing closing )", self.pattern));
        }
        self.flags = outer;
        self.depth -= 1;
        Ok(Some(RegexPart {
            text: format!("(?:{})", inner.text),
            ..inner
        }))
    }

    fn group_name(&mut self, before: &'p str) -> Result<(), RegexError> {
        let Some(end) = self.rest.find('>') else {
            return Err(error("invalid named capture", before));
        };
        let name = &self.rest[..end];
        let is_word = |character: char| character.is_ascii_alphanumeric() || character == '_';
        if name.is_empty() || !name.chars().all(is_word) {
            let shown = read_until(before, &self.rest[end + 1..]);
            return Err(error("invalid named capture", shown));
        }
        self.rest = &self.rest[end + 1..];
        Ok(())
    }

    /// The flags of a group. Returns whether they apply to the following parts instead.
    fn group_flags(&mut self, before: &'p str) -> Result<bool, RegexError> {
        let mut set = true;
        let mut any = false;
        loop {
            match self.next() {
                Some('i') => self.flags.ignore_case = set,
                Some('m') => self.flags.multi_line = set,
                Some('s') => self.flags.dot_matches_newline = set,
                Some('U') => self.flags.swap_greed = set,
                Some('-') if set => {
                    set = false;
                    any = false;
                    continue;
                }
                Some(':') if set || any => return Ok(false),
                Some(')') if set || any => return Ok(true),
                None => return Err(error("missing closing )", self.pattern)),
                Some(_) => {
                    let shown = read_until(before, self.rest);
                    return Err(error("invalid or unsupported Perl syntax", shown));
                }
            }
            any = true;
        }
    }

    fn escape(&mut self, before: &'p str) -> Result<RegexPart, RegexError> {
        let shown = |length: usize| {
            let end = before
                .char_indices()
                .nth(length)
                .map_or(before.len(), |(at, _)| at);
            &before[..end]
        };
        let Some(next) = self.rest.chars().next() else {
            return Err(error("trailing backslash at end of expression", ""));
        };
        let part = match next {
            'A' => Some(self.plain("\\A", 1)),
            'z' => Some(self.plain("\\z", 1)),
            'b' => Some(self.plain("(?-u:\\b)", 1)),
            'B' => Some(self.plain("(?-u:\\B)", 1)),
            'C' => return Err(error("invalid escape sequence", shown(2))),
            _ => perl_class(next).map(|(ranges, negated)| {
                self.of_case(format!("[{ranges}]"), perl_class_size(negated))
            }),
        };
        if let Some(part) = part {
            self.next();
            return Ok(part);
        }
        if matches!(next, 'p' | 'P') {
            let class = self.unicode_class(before)?;
            return Ok(self.of_case(format!("[{class}]"), UNICODE_CLASS_SIZE));
        }
        let character = self.escaped_character(before)?;
        Ok(self.literal(character))
    }

    /// The character of an escape whose backslash was read.
    fn escaped_character(&mut self, before: &'p str) -> Result<char, RegexError> {
        let invalid = |rest: &str| Err(error("invalid escape sequence", read_until(before, rest)));
        let Some(next) = self.next() else {
            return Err(error("trailing backslash at end of expression", ""));
        };
        match next {
            '1'..='7' if !self.rest.starts_with(|digit| ('0'..='7').contains(&digit)) => {
                invalid(self.rest)
            }
            '0'..='7' => {
                let mut value = u32::from(next) - u32::from('0');
                for _ in 0..2 {
                    let Some(digit) = self.rest.chars().next().and_then(|one| one.to_digit(8))
                    else {
                        break;
                    };
                    value = value * 8 + digit;
                    self.next();
                }
                char::from_u32(value).map_or_else(|| invalid(self.rest), Ok)
            }
            'x' => {
                let digits = if self.skip("{") {
                    let Some(end) = self.rest.find('}') else {
                        return invalid(self.rest);
                    };
                    let digits = &self.rest[..end];
                    self.rest = &self.rest[end + 1..];
                    digits
                } else {
                    let Some(digits) = self.rest.get(..2) else {
                        return invalid(self.rest);
                    };
                    self.rest = &self.rest[2..];
                    digits
                };
                let is_hex = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
                let value = u32::from_str_radix(digits, 16).ok().filter(|_| is_hex);
                match value.and_then(char::from_u32) {
                    Some(character) => Ok(character),
                    None => invalid(self.rest),
                }
            }
            'a' => Ok('\u{7}'),
            'f' => Ok('\u{c}'),
            'n' => Ok('\n'),
            'r' => Ok('\r'),
            't' => Ok('\t'),
            'v' => Ok('\u{b}'),
            other if other.is_ascii() && !other.is_ascii_alphanumeric() => Ok(other),
            _ => invalid(self.rest),
        }
    }
}

/// `{n}`, `{n,}` or `{n,m}` at the start of a text: the bounds and its length; an error if a bound is too large.
#[allow(clippy::type_complexity)]
fn read_repetition(text: &str) -> Option<Result<(u32, Option<u32>, usize), ()>> {
    let inner = text.strip_prefix('{')?;
    let end = inner.find('}')?;
    let (least, most) = match inner[..end].split_once(',') {
        Some((least, most)) => (least, Some(most)),
        None => (&inner[..end], None),
    };
    let is_number = |text: &str| {
        !text.is_empty()
            && text.bytes().all(|byte| byte.is_ascii_digit())
            && (text.len() == 1 || !text.starts_with('0'))
    };
    let is_bound = |text: &str| text.is_empty() || is_number(text);
    // Other text in braces is literal.
    if !is_number(least) || !most.is_none_or(is_bound) {
        return None;
    }
    let number = |text: &str| {
        let value = text.parse::<u32>().ok();
        value.filter(|value| *value <= REPETITIONS_MAX).ok_or(())
    };
    let bounds = || {
        let least = number(least)?;
        let most = match most {
            None => Some(least),
            Some("") => None,
            Some(most) => Some(number(most)?),
        };
        // Bounds in the wrong order are an error of Go's parser.
        match most {
            Some(most) if most < least => Err(()),
            most => Ok((least, most, end + 2)),
        }
    };
    Some(bounds())
}
