//! Reads JSON as Go does: case-insensitive names of fields, and `null` as the zero value.

use std::borrow::Cow;

/// Defines a struct with this decoding. Unknown fields are skipped; the last of duplicate fields counts.
macro_rules! read_in_any_case {
    ($($(#[$of_struct:meta])* pub struct $name:ident {
        $($(#[$of_field:meta])* pub $field:ident: $type:ty = $key:literal,)*
    })*) => {$(
        $(#[$of_struct])*
        #[derive(Debug, Clone, PartialEq, Eq, Default)]
        pub struct $name {
            $($(#[$of_field])* pub $field: $type,)*
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Fields;
                impl<'de> serde::de::Visitor<'de> for Fields {
                    type Value = $name;

                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        f.write_str("an object")
                    }

                    fn visit_unit<E: serde::de::Error>(self) -> Result<$name, E> {
                        Ok($name::default())
                    }

                    fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<$name, A::Error> {
                        let mut read = $name::default();
                        while let Some(crate::extender::decode::FieldName(key)) = map.next_key()? {
                            $(if key.eq_ignore_ascii_case($key) {
                                let value: Option<$type> = map.next_value()?;
                                read.$field = value.unwrap_or_default();
                                continue;
                            })*
                            map.next_value::<serde::de::IgnoredAny>()?;
                        }
                        Ok(read)
                    }
                }
                deserializer.deserialize_any(Fields)
            }
        }
    )*};
}

pub(super) use read_in_any_case;

/// The name of a field.
#[derive(serde::Deserialize)]
pub(super) struct FieldName<'a>(#[serde(borrow)] pub(super) Cow<'a, str>);
