//! Sets of fields, as `metadata.managedFields` writes them (`FieldsV1`).
//!
//! A set is a tree of path elements. An element is written `f:NAME` (a field), `k:{…}` (an entry of a list by its
//! keys), `v:VALUE` (an entry of a set) or `i:N`. A node is a member of the set or only leads to members below it.

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry as Slot;
use std::fmt;

/// The element that makes a node with elements below it a member itself.
const ITSELF: &str = ".";

/// A node of a set and what is below it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FieldSet {
    /// Whether the node itself is a member.
    pub(crate) member: bool,
    children: BTreeMap<Box<str>, FieldSet>,
}

impl FieldSet {
    /// A member without anything below it.
    pub(crate) fn leaf() -> Self {
        Self {
            member: true,
            children: BTreeMap::new(),
        }
    }

    /// Returns whether nothing is a member.
    pub(crate) fn is_empty(&self) -> bool {
        !self.member && self.children.is_empty()
    }

    /// Adds a set below an element, unless it is empty.
    pub(crate) fn put(&mut self, element: impl Into<Box<str>>, child: Self) {
        if child.is_empty() {
            return;
        }
        match self.children.entry(element.into()) {
            Slot::Vacant(slot) => {
                slot.insert(child);
            }
            Slot::Occupied(slot) => slot.into_mut().add(child),
        }
    }

    /// The set below an element.
    pub(crate) fn child(&self, element: &str) -> Option<&Self> {
        self.children.get(element)
    }

    /// Reads the JSON form, or its text, as stored objects have it. What cannot be read is the empty set.
    pub(crate) fn decode(value: &Value) -> Self {
        let set = match value {
            Value::String(text) => serde_json::from_str(text),
            json => Self::deserialize(json),
        };
        let mut set: Self = set.unwrap_or_default();
        // The empty set has the form of a leaf.
        set.member &= !set.children.is_empty();
        set
    }

    /// Adds the members of the other set.
    pub(crate) fn add(&mut self, other: Self) {
        self.member |= other.member;
        for (element, child) in other.children {
            self.put(element, child);
        }
    }

    /// Removes the members that the other set has too.
    pub(crate) fn subtract(&mut self, other: &Self) {
        self.member &= !other.member;
        if other.children.is_empty() {
            return;
        }
        self.children.retain(|element, child| {
            if let Some(other) = other.children.get(element) {
                child.subtract(other);
            }
            !child.is_empty()
        });
    }

    /// The members that the other set has too.
    pub(crate) fn intersection(&self, other: &Self) -> Self {
        let mut set = Self {
            member: self.member && other.member,
            children: BTreeMap::new(),
        };
        for (element, child) in &self.children {
            if let Some(other) = other.children.get(element) {
                set.put(element.clone(), child.intersection(other));
            }
        }
        set
    }

    /// The set without a member and everything below it.
    pub(crate) fn without(&mut self, path: &[&str]) {
        let Some((first, rest)) = path.split_first() else {
            return;
        };
        if rest.is_empty() {
            self.children.remove(*first);
        } else if let Some(child) = self.children.get_mut(*first) {
            child.without(rest);
            if child.is_empty() {
                self.children.remove(*first);
            }
        }
    }

    /// Removes one element itself, and keeps the members below it.
    pub(crate) fn without_member(&mut self, element: &str) {
        if let Some(child) = self.children.get_mut(element) {
            child.member = false;
            if child.is_empty() {
                self.children.remove(element);
            }
        }
    }

    /// The set with every field that leads to a member as a member.
    pub(crate) fn with_parents(mut self) -> Self {
        self.add_parents();
        self
    }

    fn add_parents(&mut self) {
        for (element, child) in &mut self.children {
            child.add_parents();
            child.member |= element.starts_with("f:");
        }
    }

    /// The text of the JSON form.
    pub(crate) fn text(&self) -> String {
        // The keys are strings, so the set can be written.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// The members as paths, such as `.spec.containers[name="c"].image`.
    pub(crate) fn paths(&self) -> Vec<String> {
        let mut paths = Vec::new();
        self.collect("", &mut paths);
        paths
    }

    fn collect(&self, prefix: &str, paths: &mut Vec<String>) {
        if self.member {
            paths.push(prefix.to_owned());
        }
        for (element, child) in &self.children {
            child.collect(&format!("{prefix}{}", shown(element)), paths);
        }
    }
}

impl Serialize for FieldSet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        if self.member && !self.children.is_empty() {
            map.serialize_entry(ITSELF, &Self::default())?;
        }
        for (element, child) in &self.children {
            map.serialize_entry(element, child)?;
        }
        map.end()
    }
}

/// Anything but a map is the empty set.
impl<'de> Deserialize<'de> for FieldSet {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Form;
        impl<'de> Visitor<'de> for Form {
            type Value = FieldSet;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a set of fields")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<FieldSet, A::Error> {
                let mut set = FieldSet::leaf();
                let mut is_leaf = true;
                while let Some(element) = map.next_key::<Cow<'_, str>>()? {
                    if is_leaf {
                        // A set without elements but with braces is a leaf, which is a member; with elements, only
                        // `.` makes it one.
                        set.member = false;
                        is_leaf = false;
                    }
                    if element == ITSELF {
                        set.member = true;
                        map.next_value::<IgnoredAny>()?;
                    } else {
                        set.put(element, map.next_value()?);
                    }
                }
                Ok(set)
            }

            fn visit_unit<E>(self) -> Result<FieldSet, E> {
                Ok(FieldSet::default())
            }
        }
        deserializer.deserialize_any(Form)
    }
}

/// An element as conflicts print it.
pub(super) fn shown(element: &str) -> String {
    match element.split_once(':') {
        Some(("f", name)) => format!(".{name}"),
        Some(("k", keys)) => {
            let keys: Map<String, Value> = serde_json::from_str(keys).unwrap_or_default();
            let keys: Vec<String> = keys
                .iter()
                .map(|(key, value)| format!("{key}={value}"))
                .collect();
            format!("[{}]", keys.join(","))
        }
        Some(("v", value)) => format!("[={value}]"),
        Some((_, index)) => format!("[{index}]"),
        None => element.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn set(value: Value) -> FieldSet {
        let set = FieldSet::decode(&value);
        assert_eq!(FieldSet::decode(&value.to_string().into()), set);
        set
    }

    fn json(set: &FieldSet) -> Value {
        serde_json::from_str(&set.text()).expect("JSON")
    }

    #[test]
    fn sets_survive_their_json_form() {
        for value in [
            json!({}),
            json!({"f:a": {}}),
            json!({"f:a": {".": {}, "f:b": {}}, "f:c": {"k:{\"name\":\"x\"}": {".": {}, "f:name": {}}}}),
        ] {
            assert_eq!(json(&set(value.clone())), value);
        }
    }

    #[test]
    fn sets_are_combined_by_members() {
        let a = set(json!({"f:a": {".": {}, "f:b": {}}, "f:c": {}}));
        let b = set(json!({"f:a": {"f:b": {}, "f:d": {}}}));
        assert_eq!(json(&a.intersection(&b)), json!({"f:a": {"f:b": {}}}));
        let mut difference = a.clone();
        difference.subtract(&b);
        assert_eq!(json(&difference), json!({"f:a": {}, "f:c": {}}));
        let mut union = a.clone();
        union.add(b.clone());
        assert_eq!(
            json(&union),
            json!({"f:a": {".": {}, "f:b": {}, "f:d": {}}, "f:c": {}})
        );
        assert_eq!(
            json(&b.with_parents()),
            json!({"f:a": {".": {}, "f:b": {}, "f:d": {}}})
        );
        let mut c = a.clone();
        c.without(&["f:a", "f:b"]);
        assert_eq!(json(&c), json!({"f:a": {}, "f:c": {}}));
    }

    #[test]
    fn members_are_printed_as_paths() {
        let paths = set(json!({"f:spec": {"f:ports": {"k:{\"port\":80,\"protocol\":\"TCP\"}": {".": {}, "f:port": {}}},
            "f:finalizers": {"v:\"x\"": {}}}}))
        .paths();
        assert_eq!(
            paths,
            [
                ".spec.finalizers[=\"x\"]",
                ".spec.ports[port=80,protocol=\"TCP\"]",
                ".spec.ports[port=80,protocol=\"TCP\"].port",
            ]
        );
    }
}
