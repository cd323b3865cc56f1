//! Decoding of values to fields: strict, and with the path of every problem.
//!
//! Fields are read one by one instead of through a derived decoder, so that one bad field does not hide the next
//! and every problem can state its place.

use super::error::{Problems, show};
use berth_api::{GoDuration, GoDurationError};
use berth_profile::closest;

use serde_json::{Map, Value};

/// The number of characters of an unknown field that are compared with the known fields.
const COMPARED_CHARS_MAX: usize = 64;

/// The fault of a value, and the way out.
type Wrong = (String, Option<&'static str>);

/// A value that a field can have.
pub(super) trait Readable: Sized + Default + PartialEq {
    /// Reads it.
    fn read(value: &Value) -> Result<Self, Wrong>;
}

macro_rules! readable {
    ($($type:ty: $wanted:literal, $read:expr;)*) => {
        $(
            impl Readable for $type {
                fn read(value: &Value) -> Result<Self, Wrong> {
                    let read: fn(&Value) -> Option<Self> = $read;
                    read(value).ok_or_else(|| ($wanted.to_owned(), None))
                }
            }
        )*
    };
}

readable! {
    bool: "must be true or false", Value::as_bool;
    i64: "must be an integer", whole;
    i32: "must be an integer between -2147483648 and 2147483647", |value| i32::try_from(whole(value)?).ok();
    f32: "must be a number", |value| value.as_f64().map(|number| number as f32).filter(|n| n.is_finite());
    String: "must be a string", |value| value.as_str().map(str::to_owned);
}

/// A duration in Go's syntax.
impl Readable for GoDuration {
    fn read(value: &Value) -> Result<Self, Wrong> {
        let Some(text) = value.as_str() else {
            let wanted = "must be a duration with its unit in quotes, such as \"15s\"";
            return Err((wanted.to_owned(), None));
        };
        let hint = "write it as \"15s\", \"1m30s\" or \"500ms\"";
        text.parse()
            .map_err(|error: GoDurationError| (error.to_string(), Some(hint)))
    }
}

/// An object whose fields are taken individually; the remaining fields at the end are unknown.
///
/// A field with the value `null` counts as absent, as everywhere in Kubernetes.
pub(super) struct ConfigObject<'a> {
    path: String,
    fields: Option<&'a Map<String, Value>>,
    known: Vec<&'static str>,
    /// The list of problems.
    pub(super) problems: &'a Problems,
}

impl<'a> ConfigObject<'a> {
    /// Opens a value. A value that is no object is reported and read as an empty object.
    pub(super) fn open(value: &'a Value, path: String, problems: &'a Problems) -> Self {
        if !matches!(value, Value::Object(_) | Value::Null) {
            problems.invalid(&path, value.clone(), "must be an object");
        }
        Self {
            path,
            fields: value.as_object(),
            known: Vec::new(),
            problems,
        }
    }

    /// The path of a field.
    pub(super) fn path(&self, field: &str) -> String {
        if self.path.is_empty() {
            field.to_owned()
        } else {
            format!("{}.{field}", self.path)
        }
    }

    /// The unchanged value of a field.
    pub(super) fn get(&mut self, field: &'static str) -> Option<&'a Value> {
        self.known.push(field);
        self.fields?.get(field).filter(|value| !value.is_null())
    }

    /// The value of a field.
    pub(super) fn read<T: Readable>(&mut self, field: &'static str) -> Option<T> {
        let value = self.get(field)?;
        let read = T::read(value);
        read.map_err(|(why, hint)| {
            let message = format!("Invalid value: {}: {why}", show(value));
            self.problems.push(self.path(field), message, hint);
        })
        .ok()
    }

    /// The value of a field, by default zero or empty.
    pub(super) fn or_default<T: Readable>(&mut self, field: &'static str) -> T {
        self.read(field).unwrap_or_default()
    }

    /// The value of a field that counts as not given when it is zero or empty.
    pub(super) fn non_zero<T: Readable>(&mut self, field: &'static str, default: T) -> T {
        let given = self.read(field).filter(|given| *given != T::default());
        given.unwrap_or(default)
    }

    /// The objects of a list.
    pub(super) fn objects(&mut self, field: &'static str) -> Vec<Self> {
        let (problems, path) = (self.problems, self.path(field));
        let entries = match self.get(field) {
            Some(Value::Array(entries)) => entries.as_slice(),
            Some(value) => {
                problems.invalid(path, value.clone(), "must be a list");
                return Vec::new();
            }
            None => &[],
        };
        let entries = entries.iter().enumerate();
        entries
            .map(|(i, value)| Self::open(value, format!("{path}[{i}]"), problems))
            .collect()
    }

    /// An object below this one.
    pub(super) fn object(&mut self, field: &'static str) -> Option<Self> {
        let value = self.get(field)?;
        Some(Self::open(value, self.path(field), self.problems))
    }

    /// Reports every unread field.
    pub(super) fn close(self) {
        for field in self.fields.into_iter().flat_map(Map::keys) {
            if self.known.contains(&field.as_str()) {
                continue;
            }
            let start: String = field.chars().take(COMPARED_CHARS_MAX).collect();
            let hint = match closest(&start, self.known.iter().copied()) {
                Some(known) => format!("did you mean {known:?}?"),
                None => format!("known here: {}", self.known.join(", ")),
            };
            let shown = show(&field.as_str().into());
            let message = format!("strict decoding error: unknown field {shown}");
            let path = self.path(&start);
            self.problems.add_with_hint(path, message, hint);
        }
    }
}

/// A whole number, also one that is written with a point as `1.0`.
fn whole(value: &Value) -> Option<i64> {
    value.as_i64().or_else(|| {
        let number = value.as_f64()?;
        let exact = number.fract() == 0.0 && number.abs() < 9_007_199_254_740_992.0;
        exact.then_some(number as i64)
    })
}
