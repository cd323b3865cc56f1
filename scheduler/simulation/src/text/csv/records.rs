//! Records of CSV (RFC 4180), with the positions of their fields.

use super::super::TextError;

/// A record with the position of each field.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) line: u64,
    /// The text of each field with its column.
    pub(super) fields: Vec<(String, u64)>,
}

/// Splits a text into records. Empty lines and lines that begin with `#` are left out.
pub(super) struct Records<'t> {
    pub(super) rest: &'t str,
    pub(super) line: u64,
}

impl Records<'_> {
    /// The next record.
    ///
    /// # Errors
    /// When quotes are not closed.
    pub(super) fn next(&mut self) -> Result<Option<Record>, TextError> {
        loop {
            self.line += 1;
            if self.rest.is_empty() {
                return Ok(None);
            }
            let end = self.rest.find('\n').unwrap_or(self.rest.len());
            let line = self.rest[..end].trim();
            if !line.is_empty() && !line.starts_with('#') {
                return self.record().map(Some);
            }
            self.rest = self.rest.get(end + 1..).unwrap_or("");
        }
    }

    fn record(&mut self) -> Result<Record, TextError> {
        let (first, mut column) = (self.line, 1);
        let mut fields = Vec::new();
        loop {
            let (text, is_last) = if self.rest.starts_with('"') {
                self.quoted(column)?
            } else {
                let end = self.rest.find([',', '\n']).unwrap_or(self.rest.len());
                let text = self.rest[..end].trim_end_matches('\r').trim().to_owned();
                let is_last = !self.rest[end..].starts_with(',');
                let width = self.rest[..end].chars().count() as u64 + 1;
                self.rest = self.rest.get(end + 1..).unwrap_or("");
                fields.push((text, column));
                column += width;
                if is_last {
                    break;
                }
                continue;
            };
            let width = text.chars().count() as u64 + 3;
            fields.push((text, column));
            column += width;
            if is_last {
                break;
            }
        }
        Ok(Record {
            line: first,
            fields,
        })
    }

    /// A field in quotes, and whether it is the last one of its record.
    fn quoted(&mut self, column: u64) -> Result<(String, bool), TextError> {
        let error = |line: u64, message: &str| TextError {
            line,
            column,
            field: String::new(),
            message: message.to_owned(),
        };
        let first = self.line;
        let mut text = String::new();
        let mut chars = self.rest.char_indices().skip(1).peekable();
        let end = loop {
            match chars.next() {
                Some((_, '"')) if chars.peek().is_some_and(|(_, c)| *c == '"') => {
                    text.push('"');
                    chars.next();
                }
                Some((at, '"')) => break at + 1,
                Some((_, c)) => {
                    self.line += u64::from(c == '\n');
                    text.push(c);
                }
                None => {
                    return Err(error(
                        first,
                        "the quotes are not closed; add a \" at the end of the field",
                    ));
                }
            }
        };
        let rest = self.rest[end..].trim_start_matches([' ', '\r']);
        let is_last = match rest.chars().next() {
            Some(',') => false,
            None | Some('\n') => true,
            Some(_) => {
                let message =
                    "text follows the closing quotes; write \"\" for a quote within a field";
                return Err(error(self.line, message));
            }
        };
        self.rest = rest.get(1..).unwrap_or("");
        Ok((text, is_last))
    }
}
