//! JSON that Berth copies and never reads.

use serde::de::{self, Deserialize, Deserializer, Visitor};
use serde::ser::{Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;
use std::fmt;
use std::sync::Arc;

/// The text of a JSON value, byte for byte as the API server sent it (`RawExtension`). API servers compare such fields
/// as bytes: a field that may not change must be written back with the same order of keys, numbers and white space.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct RawJson(Arc<str>);

impl RawJson {
    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The value; the text if it has none: API servers store texts that are nested too deep, or have half of a surrogate.
    pub fn value(&self) -> Value {
        serde_json::from_str(&self.0).unwrap_or_else(|_| self.as_str().into())
    }
}

/// `null`.
impl Default for RawJson {
    fn default() -> Self {
        Self("null".into())
    }
}

impl fmt::Debug for RawJson {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for RawJson {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match serde_json::from_str::<&RawValue>(&self.0) {
            Ok(json) => json.serialize(serializer),
            // A server that does not check the bytes can contain others.
            Err(_) => serializer.serialize_str(&self.0),
        }
    }
}

/// The decoder of protobuf knows the type by its name, and passes the bytes of the field as a string.
impl<'de> Deserialize<'de> for RawJson {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;

        impl<'de> Visitor<'de> for Text {
            type Value = RawJson;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON value")
            }

            fn visit_newtype_struct<D: Deserializer<'de>>(
                self,
                json: D,
            ) -> Result<Self::Value, D::Error> {
                let json = Box::<RawValue>::deserialize(json)?;
                Ok(RawJson(json.get().into()))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
                Ok(RawJson(text.into()))
            }
        }

        deserializer.deserialize_newtype_struct("RawJson", Text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Q-87a
    #[test]
    fn a_text_without_a_value_is_kept() {
        let deep = format!("{}1{}", "[".repeat(5_000), "]".repeat(5_000));
        for text in [&*deep, r#"{"a":"\ud800"}"#] {
            let raw: RawJson = serde_json::from_str(text).expect("JSON");
            assert_eq!(serde_json::to_string(&raw).expect("JSON"), text);
            assert_eq!(raw.value(), json!(text));
        }
        let raw: RawJson = serde_json::from_str("[1]").expect("JSON");
        assert_eq!(raw.value(), json!([1]));
    }

    #[test]
    fn the_text_is_kept() {
        for text in [
            r#"{"kind":"X","apiVersion":"example.com/v1"}"#,
            r#"{"a":1.0,"b":12345678901234567890123}"#,
            r#"{"a": "x<y"}"#,
            "{}",
            "null",
        ] {
            let raw: RawJson = serde_json::from_str(text).expect("JSON");
            assert_eq!(raw.as_str(), text);
            assert_eq!(serde_json::to_string(&raw).expect("JSON"), text);
        }
        let value = json!({"b": 1, "a": [true]});
        let raw: RawJson = serde_json::from_value(value.clone()).expect("JSON");
        assert_eq!(serde_json::to_value(&raw).expect("JSON"), value);
        assert_eq!(
            serde_json::to_value(RawJson::default()).expect("JSON"),
            Value::Null
        );
    }
}
