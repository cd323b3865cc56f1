//! Strict reading of decoded YAML: fields are read by name, and a field that was not read is an error.

use super::error::FileError;
use serde_json::{Map, Value};
use std::time::Duration;

/// The fields of one mapping, with the place of the mapping for messages.
#[derive(Debug)]
pub(super) struct MappingFields {
    place: String,
    map: Map<String, Value>,
    /// Every name that was read.
    known: Vec<&'static str>,
}

impl MappingFields {
    /// The fields of `value`.
    ///
    /// # Errors
    /// When it is no mapping.
    pub(super) fn of(place: impl Into<String>, value: Value) -> Result<Self, FileError> {
        let place = place.into();
        match value {
            Value::Object(map) => Ok(Self {
                place,
                map,
                known: Vec::new(),
            }),
            other => Err(wrong(&place, "a mapping", &other)),
        }
    }

    /// The place of this mapping.
    pub(super) fn place(&self) -> &str {
        &self.place
    }

    /// The place of a field.
    pub(super) fn at(&self, name: &str) -> String {
        format!("{}.{name}", self.place)
    }

    /// Takes a field. A null counts as absent.
    pub(super) fn take(&mut self, name: &'static str) -> Option<Value> {
        self.known.push(name);
        self.map.remove(name).filter(|value| !value.is_null())
    }

    fn typed<T>(
        &mut self,
        name: &'static str,
        expected: &str,
        read: impl FnOnce(&Value) -> Option<T>,
    ) -> Result<Option<T>, FileError> {
        let Some(value) = self.take(name) else {
            return Ok(None);
        };
        match read(&value) {
            Some(read) => Ok(Some(read)),
            None => Err(wrong(&self.at(name), expected, &value)),
        }
    }

    /// A text.
    pub(super) fn text(&mut self, name: &'static str) -> Result<Option<String>, FileError> {
        self.typed(name, "a string", |v| v.as_str().map(str::to_owned))
    }

    /// A text that must be given.
    pub(super) fn required_text(&mut self, name: &'static str) -> Result<String, FileError> {
        match self.text(name)? {
            Some(text) if !text.is_empty() => Ok(text),
            _ => Err(FileError::new(self.at(name), "must be set")),
        }
    }

    /// A number that is not negative.
    pub(super) fn count(&mut self, name: &'static str) -> Result<Option<usize>, FileError> {
        self.typed(name, "a number that is not negative", as_count)
    }

    /// A switch; absent is off.
    pub(super) fn flag(&mut self, name: &'static str) -> Result<bool, FileError> {
        Ok(self
            .typed(name, "true or false", Value::as_bool)?
            .unwrap_or(false))
    }

    /// A duration as Go writes it.
    pub(super) fn duration(&mut self, name: &'static str) -> Result<Option<Duration>, FileError> {
        match self.text(name)? {
            None => Ok(None),
            Some(text) => parse_duration(&self.at(name), &text).map(Some),
        }
    }

    /// A list of texts; absent is empty.
    pub(super) fn texts(&mut self, name: &'static str) -> Result<Vec<String>, FileError> {
        let read = |value: &Value| {
            value
                .as_array()?
                .iter()
                .map(|item| item.as_str().map(str::to_owned))
                .collect::<Option<Vec<_>>>()
        };
        Ok(self
            .typed(name, "a list of strings", read)?
            .unwrap_or_default())
    }

    /// A mapping of texts; absent is empty.
    pub(super) fn text_map(
        &mut self,
        name: &'static str,
    ) -> Result<Vec<(String, String)>, FileError> {
        let read = |value: &Value| {
            value
                .as_object()?
                .iter()
                .map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
                .collect::<Option<Vec<_>>>()
        };
        Ok(self
            .typed(name, "a mapping of strings", read)?
            .unwrap_or_default())
    }

    /// A list; absent is empty.
    pub(super) fn list(&mut self, name: &'static str) -> Result<Vec<Value>, FileError> {
        let read = |value: &Value| value.as_array().cloned();
        Ok(self.typed(name, "a list", read)?.unwrap_or_default())
    }

    /// A mapping; absent is none.
    pub(super) fn mapping(&mut self, name: &'static str) -> Result<Option<Self>, FileError> {
        match self.take(name) {
            None => Ok(None),
            Some(value) => Self::of(self.at(name), value).map(Some),
        }
    }

    /// A field that the format has and this runner does not support.
    ///
    /// # Errors
    /// When it is set.
    pub(super) fn unsupported(&mut self, name: &'static str) -> Result<(), FileError> {
        match self.take(name) {
            None => Ok(()),
            Some(_) => Err(FileError::new(
                self.at(name),
                "is not supported by berth perf; remove the field, or run this file with upstream's harness",
            )),
        }
    }

    /// The rest, as it is: for mappings whose keys are free.
    pub(super) fn rest(self) -> (String, Map<String, Value>) {
        (self.place, self.map)
    }

    /// Ends the mapping.
    ///
    /// # Errors
    /// When fields are left that nothing asked for.
    pub(super) fn finish(self) -> Result<(), FileError> {
        let Some(name) = self.map.keys().next() else {
            return Ok(());
        };
        let near = self
            .known
            .iter()
            .find(|known| known.eq_ignore_ascii_case(name))
            .or_else(|| self.known.iter().find(|known| is_near(known, name)));
        let hint = match near {
            Some(near) => format!("did you mean {near:?}?"),
            None => format!("the fields are {}", self.known.join(", ")),
        };
        Err(FileError::new(
            self.place,
            format!("unknown field {name:?}; {hint}"),
        ))
    }
}

/// A count: JSON has one type of number, so 10.0 is one too.
pub(super) fn as_count(value: &Value) -> Option<usize> {
    value
        .as_u64()
        .or_else(|| {
            let number = value.as_f64()?;
            (number >= 0.0 && number.fract() == 0.0 && number < 1e15).then_some(number as u64)
        })
        .and_then(|number| usize::try_from(number).ok())
}

/// The error about a value of another type.
pub(super) fn wrong(place: &str, expected: &str, found: &Value) -> FileError {
    let mut text = found.to_string();
    if text.len() > 80 {
        let cut = (0..=77).rev().find(|at| text.is_char_boundary(*at));
        text.truncate(cut.unwrap_or(0));
        text.push_str("...");
    }
    FileError::new(place, format!("expected {expected}, found {text}"))
}

/// A duration such as `10s`, `1m30s` or `500ms`.
///
/// # Errors
/// When it is none, or negative.
pub(super) fn parse_duration(place: &str, text: &str) -> Result<Duration, FileError> {
    let invalid = || {
        FileError::new(
            place,
            format!("invalid duration {text:?}; write it as in 10s, 1m30s or 500ms"),
        )
    };
    let parsed: berth_api::GoDuration = text.parse().map_err(|_| invalid())?;
    Ok(parsed.as_duration())
}

/// Returns whether two names differ by one or two letters only.
fn is_near(a: &str, b: &str) -> bool {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let changed = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()] <= 2
}
