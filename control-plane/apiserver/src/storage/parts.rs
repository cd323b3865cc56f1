//! Reading a few fields out of the JSON of an object without building the rest.

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::{Map, Value};
use std::fmt;

/// Fields of objects, as a tree.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Parts {
    /// The requested parts of each field; empty means the whole field.
    fields: Vec<(Box<str>, Parts)>,
}

impl Parts {
    /// The fields at these JSON pointers.
    pub fn at<'a>(pointers: impl IntoIterator<Item = &'a str>) -> Self {
        let mut root = Self::default();
        for pointer in pointers {
            let path: Vec<String> = pointer
                .split('/')
                .skip(1)
                .map(|field| field.replace("~1", "/").replace("~0", "~"))
                .collect();
            root.add(&path);
        }
        root
    }

    fn add(&mut self, path: &[String]) {
        let Some((first, rest)) = path.split_first() else {
            return;
        };
        let position = self.fields.iter().position(|(name, _)| **name == **first);
        match position.and_then(|i| self.fields.get_mut(i)) {
            // A field that was requested as a whole remains so.
            Some((_, below)) if below.fields.is_empty() => {}
            Some((_, below)) if rest.is_empty() => below.fields.clear(),
            Some((_, below)) => below.add(rest),
            None => {
                let mut below = Self::default();
                below.add(rest);
                self.fields.push((first.as_str().into(), below));
            }
        }
    }

    /// The object in a text of JSON, with these fields only.
    ///
    /// # Errors
    /// The text is not an object, or a field on the path to a part is not an object.
    pub fn read(&self, json: &[u8]) -> serde_json::Result<Value> {
        let mut parser = serde_json::Deserializer::from_slice(json);
        self.deserialize(&mut parser)
    }
}

impl<'de> DeserializeSeed<'de> for &Parts {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        if self.fields.is_empty() {
            serde::Deserialize::deserialize(deserializer)
        } else {
            deserializer.deserialize_map(self)
        }
    }
}

impl<'de> Visitor<'de> for &Parts {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(wanted) = entries.next_key_seed(WantedPart(self))? {
            match wanted {
                Some((name, below)) => {
                    map.insert(name.to_string(), entries.next_value_seed(below)?);
                }
                None => {
                    entries.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(Value::Object(map))
    }
}

/// Finds the part that a field is, if it is one.
struct WantedPart<'p>(&'p Parts);

impl<'de, 'p> DeserializeSeed<'de> for WantedPart<'p> {
    type Value = Option<&'p (Box<str>, Parts)>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'p> Visitor<'_> for WantedPart<'p> {
    type Value = Option<&'p (Box<str>, Parts)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a field")
    }

    fn visit_str<E>(self, name: &str) -> Result<Self::Value, E> {
        Ok(self.0.fields.iter().find(|(known, _)| **known == *name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn parts_are_read_and_the_rest_is_skipped() {
        let object = json!({
            "metadata": {"name": "a", "labels": {"app": "x", "a/b": "\u{1}"}, "annotations": {"labels": "y"}},
            "spec": {"nodeName": "n", "containers": [{"name": "c"}], "spec": {"nodeName": "no"}},
            "status": {"phase": "Running"},
        });
        let text = object.to_string();
        for pointers in [
            vec!["/metadata/labels"],
            vec!["/spec/nodeName", "/metadata/name", "/status/none"],
            vec!["/metadata/labels/a~1b", "/metadata"],
            vec!["/metadata", "/metadata/labels/a~1b"],
        ] {
            let read = Parts::at(pointers.iter().copied()).read(text.as_bytes());
            let read = read.expect("an object");
            for pointer in &pointers {
                assert_eq!(read.pointer(pointer), object.pointer(pointer), "{pointer}");
            }
            let is_part = |field| pointers.iter().any(|p| p.starts_with(field));
            for field in ["/metadata", "/spec", "/status"] {
                assert_eq!(read.pointer(field).is_some(), is_part(field), "{field}");
            }
            assert_eq!(read.pointer("/spec/containers"), None);
        }
        // A field on the path is not an object.
        let name = Parts::at(["/metadata/name/first"]);
        assert!(name.read(text.as_bytes()).is_err());
        assert!(name.read(b"{").is_err());
    }
}
