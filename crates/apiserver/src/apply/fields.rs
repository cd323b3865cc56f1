//! Sets of fields, as `metadata.managedFields` writes them (`FieldsV1`).
//!
//! A set is a tree of path elements. An element is written `f:NAME` (a field), `k:{…}` (an entry of a list by its
//! keys), `v:VALUE` (an entry of a set) or `i:N`. A node is a member of the set or only leads to members below it.

use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry as Slot;

/// Sets are nested no deeper; what is deeper in a request is left out.
const DEPTH_MAX: usize = 64;

/// A node of a set and what is below it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FieldSet {
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

    /// Whether nothing is a member.
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

    /// What is below an element.
    pub(crate) fn child(&self, element: &str) -> Option<&Self> {
        self.children.get(element)
    }

    /// Reads the JSON form.
    pub(crate) fn decode(value: &Value) -> Self {
        Self::decode_below(value, false, 0)
    }

    fn decode_below(value: &Value, leaf: bool, depth: usize) -> Self {
        let mut set = Self::default();
        let Some(map) = value.as_object().filter(|_| depth < DEPTH_MAX) else {
            return set;
        };
        set.member = leaf && map.is_empty();
        for (element, below) in map {
            if element == "." {
                set.member = true;
            } else {
                let child = Self::decode_below(below, true, depth + 1);
                set.put(element.as_str(), child);
            }
        }
        set
    }

    /// Writes the JSON form.
    pub(crate) fn encode(&self) -> Value {
        let mut map = Map::new();
        if self.member && !self.children.is_empty() {
            map.insert(".".to_owned(), Value::Object(Map::new()));
        }
        for (element, child) in &self.children {
            map.insert(element.to_string(), child.encode());
        }
        Value::Object(map)
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
        FieldSet::decode(&value)
    }

    #[test]
    fn sets_survive_their_json_form() {
        for value in [
            json!({}),
            json!({"f:a": {}}),
            json!({"f:a": {".": {}, "f:b": {}}, "f:c": {"k:{\"name\":\"x\"}": {".": {}, "f:name": {}}}}),
        ] {
            assert_eq!(set(value.clone()).encode(), value);
        }
    }

    #[test]
    fn sets_are_combined_by_members() {
        let a = set(json!({"f:a": {".": {}, "f:b": {}}, "f:c": {}}));
        let b = set(json!({"f:a": {"f:b": {}, "f:d": {}}}));
        assert_eq!(a.intersection(&b).encode(), json!({"f:a": {"f:b": {}}}));
        let mut difference = a.clone();
        difference.subtract(&b);
        assert_eq!(difference.encode(), json!({"f:a": {}, "f:c": {}}));
        let mut union = a.clone();
        union.add(b.clone());
        assert_eq!(
            union.encode(),
            json!({"f:a": {".": {}, "f:b": {}, "f:d": {}}, "f:c": {}})
        );
        assert_eq!(
            b.with_parents().encode(),
            json!({"f:a": {".": {}, "f:b": {}, "f:d": {}}})
        );
        let mut c = a.clone();
        c.without(&["f:a", "f:b"]);
        assert_eq!(c.encode(), json!({"f:a": {}, "f:c": {}}));
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
