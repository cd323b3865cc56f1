//! Values of an object and their counterparts in the object before a change (KEP-4008, ratcheting).
//!
//! Fields of objects and entries of maps correspond by name, and entries of a list of the type `map` by their keys. Entries
//! of other lists do not correspond. A value that equals its counterpart was not changed: its faults are accepted.

use crate::view::FieldView;
use serde_json::Value;
use std::collections::HashMap;
use std::fmt::Write as _;

/// A value with its counterpart before a change.
#[derive(Debug, Clone, Copy)]
pub(super) struct Counterpart<'a> {
    schema: &'a Value,
    value: &'a Value,
    old: &'a Value,
}

/// The entries of a list with their counterparts.
pub(super) struct Entries<'a> {
    items: &'a Value,
    list: &'a [Value],
    /// The entries before the change; `None` for lists whose entries do not correspond.
    old: Option<KeyedItems<'a>>,
}

/// The entries of a list of the type `map`, by their keys.
pub(super) struct KeyedItems<'a> {
    keys: Vec<&'a str>,
    by_key: HashMap<String, &'a Value>,
}

impl<'a> Counterpart<'a> {
    /// A value of a schema and its counterpart.
    pub(super) fn new(schema: &'a Value, value: &'a Value, old: &'a Value) -> Self {
        Self { schema, value, old }
    }

    /// A field or an entry of a map. A field that the schema does not have has no counterpart.
    pub(super) fn field(&self, name: &str) -> Option<Self> {
        let own = self.schema.part("properties").get(name);
        let schema = own.or_else(|| self.schema.field("additionalProperties"));
        Some(Self {
            schema: schema.filter(|schema| schema.is_object())?,
            value: self.value.as_object()?.get(name)?,
            old: self.old.as_object()?.get(name)?,
        })
    }

    /// The entries of a list.
    pub(super) fn entries(&self) -> Entries<'a> {
        let old = self.old.as_array();
        Entries {
            items: self.schema.part("items"),
            list: self.value.as_array().map_or(&[], Vec::as_slice),
            old: old.and_then(|old| KeyedItems::of(self.schema, old)),
        }
    }

    /// Returns whether the value was not changed. Lists of the type `map` are equal in any order. A field that the schema
    /// does not have makes values differ, as in kube-apiserver.
    pub(super) fn is_equal(&self) -> bool {
        match (self.value, self.old) {
            (Value::Array(list), Value::Array(old)) if list.len() == old.len() => {
                let entries = self.entries();
                if entries.old.is_none() {
                    return list == old;
                }
                let mut places = 0..list.len();
                places.all(|i| entries.at(i).is_some_and(|entry| entry.is_equal()))
            }
            (Value::Object(map), Value::Object(old)) if map.len() == old.len() => map
                .keys()
                .all(|name| self.field(name).is_some_and(|field| field.is_equal())),
            (Value::Array(_) | Value::Object(_), _) => false,
            (value, old) => value == old,
        }
    }
}

impl<'a> Entries<'a> {
    /// The entry with this index.
    pub(super) fn at(&self, index: usize) -> Option<Counterpart<'a>> {
        let value = self.list.get(index)?;
        let old = self.old.as_ref()?.get(value)?;
        Some(Counterpart::new(self.items, value, old))
    }
}

impl<'a> KeyedItems<'a> {
    /// The entries of a list; `None` for lists of other types. Of entries with the same keys, the first counts.
    pub(super) fn of(schema: &'a Value, list: &'a [Value]) -> Option<Self> {
        if schema.text("x-kubernetes-list-type") != "map" {
            return None;
        }
        let keys = schema.strings("x-kubernetes-list-map-keys");
        let mut by_key = HashMap::default();
        for item in list {
            if let Some(key) = key_of(&keys, item) {
                by_key.entry(key).or_insert(item);
            }
        }
        Some(Self { keys, by_key })
    }

    /// The entry with the keys of `item`.
    pub(super) fn get(&self, item: &Value) -> Option<&'a Value> {
        self.by_key.get(&key_of(&self.keys, item)?).copied()
    }
}

/// The keys of an entry as one text; `None` for an entry without one of them.
fn key_of(keys: &[&str], item: &Value) -> Option<String> {
    let mut text = String::new();
    for key in keys {
        match item.field(key)? {
            Value::Array(_) | Value::Object(_) => return None,
            scalar => write!(text, "{scalar}\0").ok()?,
        }
    }
    Some(text)
}

/// Whether the fault of a rule is only a warning: the value, or else the nearest enclosing value with a counterpart, is
/// unchanged.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ratchet<'a> {
    current: Option<Counterpart<'a>>,
    above: Option<Counterpart<'a>>,
    is_root: bool,
}

impl<'a> Ratchet<'a> {
    /// For a whole object.
    pub(super) fn of_object(current: Option<Counterpart<'a>>) -> Self {
        Self {
            current,
            above: None,
            is_root: true,
        }
    }

    /// For a field or an entry of a map.
    pub(super) fn field(&self, name: &str) -> Self {
        // Both objects have the version of the request, so changes of these fields cannot be seen.
        if self.is_root && matches!(name, "apiVersion" | "kind") {
            return Self {
                current: None,
                above: None,
                is_root: false,
            };
        }
        self.below(self.current.and_then(|current| current.field(name)))
    }

    /// The counterparts of the entries of a list.
    pub(super) fn entries(&self) -> Option<Entries<'a>> {
        self.current.map(|current| current.entries())
    }

    /// For a value within this one, with its counterpart.
    pub(super) fn below(&self, current: Option<Counterpart<'a>>) -> Self {
        Self {
            current,
            above: self.current.or(self.above),
            is_root: false,
        }
    }

    /// Returns whether the value was not changed.
    pub(super) fn is_equal(&self) -> bool {
        let nearest = self.current.or(self.above);
        nearest.is_some_and(|value| value.is_equal())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn is_equal(schema: &Value, value: &Value, old: &Value) -> bool {
        Counterpart::new(schema, value, old).is_equal()
    }

    #[test]
    fn values_are_equal_as_their_schemas_compare_them() {
        let text = json!({"type": "string"});
        let map = json!({
            "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k", "p"],
            "items": {"type": "object", "properties": {"k": text, "p": {"type": "integer"}, "v": text}},
        });
        let set = json!({"type": "array", "x-kubernetes-list-type": "set", "items": text});
        let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let (a, b) = (
            json!({"k": "a", "p": 1}),
            json!({"k": "b", "p": 1, "v": "x"}),
        );
        for (name, schema, value, old, expect) in [
            (
                "a keyed list in another order",
                &map,
                json!([a, b]),
                json!([b, a]),
                true,
            ),
            (
                "another value of a keyed entry",
                &map,
                json!([a, b]),
                json!([a, {"k": "b", "p": 1}]),
                false,
            ),
            (
                "another key",
                &map,
                json!([a]),
                json!([{"k": "a", "p": 2}]),
                false,
            ),
            (
                "an entry without a key",
                &map,
                json!([{"k": "a"}]),
                json!([{"k": "a"}]),
                false,
            ),
            ("fewer entries", &map, json!([a]), json!([a, b]), false),
            ("empty keyed lists", &map, json!([]), json!([]), true),
            (
                "the same set",
                &set,
                json!(["a", "b"]),
                json!(["a", "b"]),
                true,
            ),
            (
                "a set in another order",
                &set,
                json!(["a", "b"]),
                json!(["b", "a"]),
                false,
            ),
            (
                "fields that the schema has not",
                &open,
                json!({"x": 1}),
                json!({"x": 1}),
                false,
            ),
            (
                "an open object without fields",
                &open,
                json!({}),
                json!({}),
                true,
            ),
            ("nulls", &text, json!(null), json!(null), true),
            ("a null", &text, json!(null), json!("a"), false),
            ("another type", &text, json!({}), json!("a"), false),
        ] {
            assert_eq!(is_equal(schema, &value, &old), expect, "{name}");
        }
    }
}
