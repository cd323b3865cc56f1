//! Field selectors: `spec.nodeName=n1,status.phase!=Failed`, as `?fieldSelector=` takes them.

use super::{Joined, SelectorError};
use crate::Str;
use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

/// One comparison of a field with a value.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FieldTerm {
    /// The field's path, as `spec.nodeName`.
    pub field: Str,
    /// Whether the field must differ from the value.
    pub negated: bool,
    /// The value. A field that is not set has the empty one.
    pub value: Str,
}

impl FieldTerm {
    /// Returns whether a field with this value is selected.
    pub fn matches(&self, value: &str) -> bool {
        (self.value == value) != self.negated
    }
}

/// Comparisons of fields. All must hold.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct FieldSelector(Vec<FieldTerm>);

impl FieldSelector {
    /// Matches whatever there is.
    pub const fn everything() -> Self {
        Self(Vec::new())
    }

    /// Returns whether this restricts nothing.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The comparisons.
    pub fn terms(&self) -> &[FieldTerm] {
        &self.0
    }

    /// The value that `field` must have, if the selector requires one.
    pub fn exact_value(&self, field: &str) -> Option<&Str> {
        self.0
            .iter()
            .find(|term| !term.negated && term.field == field)
            .map(|term| &term.value)
    }

    /// Returns whether the fields that `get` looks up are selected. An unset field is the empty text.
    pub fn matches_with<V: AsRef<str>>(&self, mut get: impl FnMut(&str) -> V) -> bool {
        self.0
            .iter()
            .all(|term| term.matches(get(&term.field).as_ref()))
    }

    /// Returns whether every field is one that `supported` knows.
    ///
    /// # Errors
    /// `field label not supported: …` for the first that is not.
    pub fn check_fields(&self, supported: impl Fn(&str) -> bool) -> Result<(), SelectorError> {
        match self.0.iter().find(|term| !supported(&term.field)) {
            None => Ok(()),
            Some(term) => Err(SelectorError(format!(
                "field label not supported: {}",
                term.field
            ))),
        }
    }
}

impl FromStr for FieldSelector {
    type Err = SelectorError;

    /// Parses `field=value`, `field==value` and `field!=value`, separated by commas; in values `\\`, `\,` and `\=`
    /// represent the characters themselves. The empty text selects everything.
    fn from_str(text: &str) -> Result<Self, SelectorError> {
        let mut parts = split_terms(text);
        parts.sort_unstable();
        let terms = parts
            .into_iter()
            .filter(|part| !part.is_empty())
            .map(|part| {
                let (field, negated, value) = split_term(part).ok_or_else(|| {
                    SelectorError(format!(
                        "invalid selector: '{text}'; can't understand '{part}'"
                    ))
                })?;
                Ok(FieldTerm {
                    field: Str::new(field),
                    negated,
                    value: Str::new(&unescape(value)?),
                })
            });
        terms.collect::<Result<_, _>>().map(Self)
    }
}

/// Splits at the commas that follow no backslash.
fn split_terms(text: &str) -> Vec<&str> {
    let mut escaped = false;
    text.split(|character| {
        let splits = character == ',' && !escaped;
        escaped = character == '\\' && !escaped;
        splits
    })
    .collect()
}

/// The field, whether it must differ, and the value, still escaped.
fn split_term(term: &str) -> Option<(&str, bool, &str)> {
    // Every operator ends with the first `=` or the one immediately after it.
    let at = term.find('=')?;
    let (field, rest) = (&term[..at], &term[at + 1..]);
    if let Some(field) = field.strip_suffix('!') {
        return Some((field, true, rest));
    }
    Some((field, false, rest.strip_prefix('=').unwrap_or(rest)))
}

fn unescape(value: &str) -> Result<Cow<'_, str>, SelectorError> {
    if !value.contains(['\\', ',', '=']) {
        return Ok(Cow::Borrowed(value));
    }
    let invalid_escape = |sequence: String| {
        SelectorError(format!(
            "invalid field selector: invalid escape sequence: {sequence}"
        ))
    };
    let mut plain = String::with_capacity(value.len());
    let mut characters = value.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => match characters.next() {
                Some(escaped @ ('\\' | ',' | '=')) => plain.push(escaped),
                other => {
                    let sequence = std::iter::once('\\').chain(other).collect();
                    return Err(invalid_escape(sequence));
                }
            },
            // The API shows the character as its number.
            ',' | '=' => {
                return Err(SelectorError(format!(
                    "invalid field selector: unescaped character in value: {}",
                    u32::from(character)
                )));
            }
            other => plain.push(other),
        }
    }
    Ok(Cow::Owned(plain))
}

impl fmt::Display for FieldTerm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}=", self.field, if self.negated { "!" } else { "" })?;
        for character in self.value.chars() {
            if matches!(character, '\\' | ',' | '=') {
                f.write_str("\\")?;
            }
            write!(f, "{character}")?;
        }
        Ok(())
    }
}

impl fmt::Display for FieldSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Joined(&self.0).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn selector(text: &str) -> FieldSelector {
        text.parse()
            .unwrap_or_else(|error| panic!("{text:?}: {error}"))
    }

    #[test]
    fn texts_are_read_and_printed_in_order() {
        for (text, printed) in [
            ("", ""),
            (",", ""),
            ("b=2,a=1", "a=1,b=2"),
            ("a==1", "a=1"),
            ("a!=1", "a!=1"),
            ("a=", "a="),
            ("=x", "=x"),
            ("a!b=c", "a!b=c"),
            (r"a=x\,y\=z\\", r"a=x\,y\=z\\"),
            (
                "status.phase!=Succeeded,status.phase!=Failed",
                "status.phase!=Failed,status.phase!=Succeeded",
            ),
        ] {
            assert_eq!(selector(text).to_string(), printed, "{text:?}");
        }
        assert_eq!(selector(r"a=x\,y").terms()[0].value, "x,y");
        assert!(selector("").is_empty());
    }

    #[test]
    fn bad_texts_are_refused_with_upstreams_words() {
        for (text, message) in [
            ("a=1,b", "invalid selector: 'a=1,b'; can't understand 'b'"),
            ("a!1", "invalid selector: 'a!1'; can't understand 'a!1'"),
            (
                r"a=\x",
                r"invalid field selector: invalid escape sequence: \x",
            ),
            (
                r"a=\",
                r"invalid field selector: invalid escape sequence: \",
            ),
            (
                "a=b=c",
                "invalid field selector: unescaped character in value: 61",
            ),
            (
                "a===c",
                "invalid field selector: unescaped character in value: 61",
            ),
        ] {
            let error = text.parse::<FieldSelector>().unwrap_err();
            assert_eq!(error.to_string(), message, "{text:?}");
        }
        let error = selector("spec.color=red,metadata.name=a")
            .check_fields(|field| field == "metadata.name")
            .unwrap_err();
        assert_eq!(error.to_string(), "field label not supported: spec.color");
    }

    #[test]
    fn fields_are_compared() {
        let get = |field: &str| match field {
            "spec.nodeName" => "n1".to_owned(),
            _ => String::new(),
        };
        for (text, expected) in [
            ("", true),
            ("spec.nodeName=n1", true),
            ("spec.nodeName!=n1", false),
            ("spec.nodeName=n2", false),
            ("spec.nodeName=n1,status.phase!=Failed", true),
            ("status.phase=", true),
            ("status.phase!=", false),
        ] {
            assert_eq!(selector(text).matches_with(get), expected, "{text:?}");
        }
        let exact = selector("a!=1,b=2");
        assert_eq!(exact.exact_value("b").map(Str::as_str), Some("2"));
        assert_eq!(exact.exact_value("a"), None);
    }

    proptest! {
        #[test]
        fn no_text_panics_and_what_is_read_can_be_printed(text in "\\PC*", likely in "[a-c.=!,\\\\]{0,20}") {
            for text in [text, likely] {
                if let Ok(read) = text.parse::<FieldSelector>() {
                    let printed = read.to_string();
                    let mut again = printed.parse::<FieldSelector>().unwrap();
                    let mut read = read;
                    again.0.sort();
                    read.0.sort();
                    prop_assert_eq!(again, read, "{} printed as {}", text, printed);
                }
            }
        }
    }
}
