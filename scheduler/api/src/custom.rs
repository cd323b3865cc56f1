//! Custom resources: kinds that only plugins read, and whose changes they receive.

use crate::ObjectMeta;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use std::fmt;

/// A kind by its resource, written `plural.version.group`, such as `foos.v1.example.com`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CustomKind {
    /// The plural, as in the API's paths.
    pub plural: &'static str,
    /// The version.
    pub version: &'static str,
    /// The API group.
    pub group: &'static str,
}

/// A name is not written `plural.version.group`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no resource: write plural.version.group, such as \"foos.v1.example.com\"")]
pub struct NotAResource(pub String);

impl CustomKind {
    /// The kind of that resource.
    ///
    /// Its name is kept until the process exits: kinds are registered by plugins at the start, and are copied with
    /// every object.
    ///
    /// # Errors
    /// When the name has less than three parts, or an empty one.
    pub fn of(resource: &str) -> Result<Self, NotAResource> {
        let wrong = || NotAResource(resource.to_owned());
        let (plural, rest) = resource.split_once('.').ok_or_else(wrong)?;
        let (version, group) = rest.split_once('.').ok_or_else(wrong)?;
        if plural.is_empty() || version.is_empty() || group.split('.').any(str::is_empty) {
            return Err(wrong());
        }
        let kept = |text: &str| -> &'static str { Box::leak(text.into()) };
        Ok(Self {
            plural: kept(plural),
            version: kept(version),
            group: kept(group),
        })
    }
}

impl fmt::Display for CustomKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.plural, self.version, self.group)
    }
}

/// A complete object of such a kind. Only the plugin interprets it.
#[derive(Debug, Clone, PartialEq)]
pub struct CustomObject {
    /// Its kind.
    pub kind: CustomKind,
    /// Its metadata.
    pub metadata: ObjectMeta,
    /// The complete object, as the API has it.
    pub value: Value,
}

impl CustomObject {
    /// Decodes an object.
    ///
    /// # Errors
    /// When the input is malformed or the metadata have wrong types.
    pub(crate) fn decode<'de, D: Deserializer<'de>>(
        kind: CustomKind,
        input: D,
    ) -> Result<Self, D::Error> {
        let mut value = Value::deserialize(input)?;
        if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
        }
        let metadata = match value.get("metadata") {
            Some(metadata) => ObjectMeta::deserialize(metadata).map_err(D::Error::custom)?,
            None => ObjectMeta::default(),
        };
        Ok(Self {
            kind,
            metadata,
            value,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Kind, Object};

    #[test]
    fn a_resource_has_three_parts() {
        for (name, expected) in [
            ("foos.v1.example.com", Some(("foos", "v1", "example.com"))),
            ("bars.v1beta1.a.b.c", Some(("bars", "v1beta1", "a.b.c"))),
            ("foos.v1", None),
            ("foos", None),
            ("", None),
            (".v1.example.com", None),
            ("foos..example.com", None),
            ("foos.v1.", None),
            ("foos.v1.example..com", None),
        ] {
            let kind = CustomKind::of(name);
            let parts = kind.as_ref().ok().map(|k| (k.plural, k.version, k.group));
            assert_eq!(parts, expected, "{name:?}");
            match kind {
                Ok(kind) => {
                    assert_eq!(kind.to_string(), name);
                    assert_eq!(CustomKind::of(name), Ok(kind), "the same again");
                }
                Err(error) => assert!(error.to_string().starts_with(&format!("{name:?} is no"))),
            }
        }
    }

    #[test]
    fn a_custom_object_is_kept_whole() {
        let kind = CustomKind::of("foos.v1.example.com").unwrap();
        let json = br#"{"kind":"Foo","metadata":{"name":"f","namespace":"s","labels":{"a":"b"},"managedFields":[{}]},"spec":{"ready":true}}"#;
        let object = Kind::Custom(kind).decode(json).unwrap();
        assert_eq!(object.kind(), Kind::Custom(kind));
        assert_eq!(object.metadata().name, "f");
        let Object::Custom(custom) = &object else {
            panic!("{object:?}");
        };
        assert_eq!(custom.value["spec"]["ready"], true);
        assert_eq!(custom.value["metadata"].get("managedFields"), None);
        assert!(Kind::Custom(kind).decode(b"{").is_err());
        assert!(
            Kind::Custom(kind)
                .decode(br#"{"metadata":{"name":7}}"#)
                .is_err()
        );
    }
}
