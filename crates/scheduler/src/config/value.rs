//! From text to values, and from values to fields: strictly, and with the path of whatever is wrong.
//!
//! Fields are read one by one instead of through a derived decoder, so that one bad field does not hide the next
//! and every problem can say where it is.

use super::error::{ConfigError, Problems, show};
use crate::profile::closest;
use berth_api::GoDuration;
use serde_json::{Map, Value};

/// A configuration may be so long.
const TEXT_BYTES_MAX: usize = 1024 * 1024;
/// Objects and lists may be nested so deep.
const DEPTH_MAX: usize = 64;
/// A document may hold so many values.
const VALUES_MAX: usize = 50_000;
/// Of an unknown field, so many characters are compared with the known ones.
const COMPARED_CHARS_MAX: usize = 64;

/// Parses one YAML document; JSON is YAML too. A field that occurs twice is refused.
pub(super) fn parse_text(text: &str) -> Result<Value, ConfigError> {
    let failed = |message: String, hint: Option<&str>| ConfigError {
        path: String::new(),
        message,
        hint: hint.map(str::to_owned),
    };
    if text.len() > TEXT_BYTES_MAX {
        let message = format!("the configuration is longer than {TEXT_BYTES_MAX} bytes");
        return Err(failed(message, None));
    }
    let options = serde_saphyr::options! {
        duplicate_keys: serde_saphyr::options::DuplicateKeyPolicy::Error,
        with_snippet: false,
        budget: serde_saphyr::budget! {
            max_depth: DEPTH_MAX,
            max_nodes: VALUES_MAX,
            max_events: 2 * VALUES_MAX,
            max_aliases: 1_000,
            max_anchors: 1_000,
            max_documents: 1,
            max_total_scalar_bytes: TEXT_BYTES_MAX,
            max_merge_keys: 1_000,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: VALUES_MAX,
        },
    };
    serde_saphyr::from_str_with_options::<Value>(text, options).map_err(|error| {
        failed(
            format!("strict decoding error: {error}"),
            Some("the configuration must be one YAML or JSON document"),
        )
    })
}

/// An object whose fields are taken one by one; what is left over at the end is unknown.
///
/// A field that is `null` counts as not there, as everywhere in Kubernetes.
pub(super) struct Object<'a> {
    path: String,
    fields: Option<&'a Map<String, Value>>,
    known: Vec<&'static str>,
}

impl<'a> Object<'a> {
    /// Opens a value. One that is no object is complained of and read as an empty one.
    pub(super) fn open(value: &'a Value, path: String, problems: &mut Problems) -> Self {
        if !matches!(value, Value::Object(_) | Value::Null) {
            problems.invalid(&path, value.clone(), "must be an object");
        }
        Self {
            path,
            fields: value.as_object(),
            known: Vec::new(),
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

    /// The value of a field.
    pub(super) fn get(&mut self, field: &'static str) -> Option<&'a Value> {
        self.known.push(field);
        self.fields?.get(field).filter(|value| !value.is_null())
    }

    fn typed<T>(
        &mut self,
        field: &'static str,
        wanted: &str,
        problems: &mut Problems,
        read: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Option<T> {
        let value = self.get(field)?;
        let read = read(value);
        if read.is_none() {
            problems.invalid(self.path(field), value.clone(), wanted);
        }
        read
    }

    /// `true` or `false`.
    pub(super) fn bool(&mut self, field: &'static str, problems: &mut Problems) -> Option<bool> {
        self.typed(field, "must be true or false", problems, Value::as_bool)
    }

    /// A whole number of 64 bits.
    pub(super) fn i64(&mut self, field: &'static str, problems: &mut Problems) -> Option<i64> {
        self.typed(field, "must be an integer", problems, whole)
    }

    /// A whole number of 32 bits.
    pub(super) fn i32(&mut self, field: &'static str, problems: &mut Problems) -> Option<i32> {
        let wanted = "must be an integer between -2147483648 and 2147483647";
        self.typed(field, wanted, problems, |value| {
            i32::try_from(whole(value)?).ok()
        })
    }

    /// A number of 32 bits.
    pub(super) fn f32(&mut self, field: &'static str, problems: &mut Problems) -> Option<f32> {
        self.typed(field, "must be a number", problems, |value| {
            let number = value.as_f64()? as f32;
            number.is_finite().then_some(number)
        })
    }

    /// A text.
    pub(super) fn string(
        &mut self,
        field: &'static str,
        problems: &mut Problems,
    ) -> Option<String> {
        self.typed(field, "must be a string", problems, |value| {
            value.as_str().map(str::to_owned)
        })
    }

    /// A duration in Go's syntax.
    pub(super) fn duration(
        &mut self,
        field: &'static str,
        problems: &mut Problems,
    ) -> Option<GoDuration> {
        let wanted = "must be a duration with its unit in quotes, such as \"15s\"";
        let text = self.typed(field, wanted, problems, Value::as_str)?;
        match text.parse() {
            Ok(duration) => Some(duration),
            Err(error) => {
                let shown = format!("Invalid value: {}: {error}", show(&text.into()));
                let hint = "write it as \"15s\", \"1m30s\" or \"500ms\"";
                problems.add_with_hint(self.path(field), shown, hint);
                None
            }
        }
    }

    /// The entries of a list, each with its path.
    pub(super) fn list(
        &mut self,
        field: &'static str,
        problems: &mut Problems,
    ) -> Vec<(String, &'a Value)> {
        let entries = self.typed(field, "must be a list", problems, Value::as_array);
        let path = self.path(field);
        entries
            .into_iter()
            .flatten()
            .enumerate()
            .map(|(i, value)| (format!("{path}[{i}]"), value))
            .collect()
    }

    /// The objects of a list.
    pub(super) fn objects(
        &mut self,
        field: &'static str,
        problems: &mut Problems,
    ) -> Vec<Object<'a>> {
        self.list(field, problems)
            .into_iter()
            .map(|(path, value)| Object::open(value, path, problems))
            .collect()
    }

    /// An object below this one.
    pub(super) fn object(
        &mut self,
        field: &'static str,
        problems: &mut Problems,
    ) -> Option<Object<'a>> {
        let value = self.get(field)?;
        Some(Object::open(value, self.path(field), problems))
    }

    /// Reports every field that was not read.
    pub(super) fn close(self, problems: &mut Problems) {
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
            problems.add_with_hint(self.path(&start), message, hint);
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
