//! Reads the arguments of a plugin strictly, and reports every problem with its path.

use berth_framework::registry::ArgsError;
pub(crate) use berth_framework::registry::decode_args as decode;
use serde_json::{Map, Value};
use std::fmt::Display;

/// Collects the problems of arguments, so that all of them are reported at once.
#[derive(Debug, Default)]
pub(crate) struct Problems(Vec<(String, String)>);

impl Problems {
    /// The value at `path` cannot be used.
    pub(crate) fn invalid(
        &mut self,
        path: impl Into<String>,
        value: impl Display,
        why: impl Display,
    ) {
        self.0
            .push((path.into(), format!("Invalid value: {value}: {why}")));
    }

    /// The value at `path` does not parse; the error names the place below.
    pub(crate) fn unparsable(&mut self, path: impl Into<String>, error: impl Display) {
        self.0.push((path.into(), error.to_string()));
    }

    /// There must be a value at `path`.
    pub(crate) fn required(&mut self, path: impl Into<String>, why: impl Display) {
        self.0.push((path.into(), format!("Required value: {why}")));
    }

    /// There must be no value at `path`.
    pub(crate) fn forbidden(&mut self, path: impl Into<String>, why: impl Display) {
        self.0.push((path.into(), format!("Forbidden: {why}")));
    }

    /// The value at `path` is in the list already.
    pub(crate) fn duplicate(&mut self, path: impl Into<String>, value: impl Display) {
        self.0
            .push((path.into(), format!("Duplicate value: {value}")));
    }

    /// The value at `path` is none of the allowed ones.
    pub(crate) fn unsupported(&mut self, path: impl Into<String>, value: &str, supported: &[&str]) {
        let supported: Vec<String> = supported.iter().map(|s| format!("{s:?}")).collect();
        self.0.push((
            path.into(),
            format!(
                "Unsupported value: {value:?}: supported values: {}",
                supported.join(", ")
            ),
        ));
    }

    /// `value`, unless there are problems.
    pub(crate) fn or<T>(self, value: T) -> Result<T, ArgsError> {
        if self.0.is_empty() {
            Ok(value)
        } else {
            Err(ArgsError { problems: self.0 })
        }
    }
}

/// Sets a field that is not given.
pub(crate) fn set_default(
    fields: &mut Map<String, Value>,
    field: &str,
    value: impl FnOnce() -> Value,
) {
    if !fields.contains_key(field) {
        fields.insert(field.to_owned(), value());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;
    use serde_json::json;

    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(deny_unknown_fields)]
    struct Example {
        limit: Option<u8>,
    }

    #[test]
    fn arguments_are_read_strictly() {
        for (args, outcome) in [
            (Value::Null, Ok(Example { limit: None })),
            (json!({}), Ok(Example { limit: None })),
            (
                json!({"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "ExampleArgs", "limit": 3}),
                Ok(Example { limit: Some(3) }),
            ),
            (
                json!({"kind": "OtherArgs"}),
                Err("kind: is \"OtherArgs\", expected \"ExampleArgs\""),
            ),
            (json!([1]), Err(": ExampleArgs must be an object, not [1]")),
            (
                json!({"limt": 3}),
                Err(": cannot read ExampleArgs: unknown field `limt`, expected `limit`"),
            ),
        ] {
            let got = decode::<Example>(&args, "ExampleArgs").map_err(|e| e.to_string());
            assert_eq!(got, outcome.map_err(str::to_owned), "{args}");
        }
    }
}
