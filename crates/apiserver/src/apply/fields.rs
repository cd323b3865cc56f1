//! Sets of fields, as `metadata.managedFields` writes them (`FieldsV1`).
//!
//! A set is a tree of path elements. An element is written `f:NAME` (a field), `k:{…}` (an entry of a list by its
//! keys), `v:VALUE` (an entry of a set) or `i:N`. A node is a member of the set or only leads to members below it.

use serde_json::{Map, Value};
use std::collections::BTreeMap;

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
        if !child.is_empty() {
            let slot = self.children.entry(element.into()).or_default();
            *slot = slot.union(&child);
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

    /// The members of both sets.
    pub(crate) fn union(&self, other: &Self) -> Self {
        let mut set = self.clone();
        set.member |= other.member;
        for (element, child) in &other.children {
            let slot = set.children.entry(element.clone()).or_default();
            *slot = slot.union(child);
        }
        set
    }

    /// The members that the other set has too.
    pub(crate) fn intersection(&self, other: &Self) -> Self {
        self.filtered(other, |own, other| own && other)
    }

    /// The members that the other set does not have.
    pub(crate) fn difference(&self, other: &Self) -> Self {
        self.filtered(other, |own, other| own && !other)
    }

    fn filtered(&self, other: &Self, keep: fn(bool, bool) -> bool) -> Self {
        static NOTHING: FieldSet = FieldSet {
            member: false,
            children: BTreeMap::new(),
        };
        let mut set = Self {
            member: keep(self.member, other.member),
            children: BTreeMap::new(),
        };
        for (element, child) in &self.children {
            let other = other.children.get(element).unwrap_or(&NOTHING);
            let child = child.filtered(other, keep);
            if !child.is_empty() {
                set.children.insert(element.clone(), child);
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

    /// The set with every field that leads to a member as a member.
    pub(crate) fn with_parents(&self) -> Self {
        let mut set = self.clone();
        for (element, child) in &mut set.children {
            *child = child.with_parents();
            child.member |= element.starts_with("f:");
        }
        set
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
        assert_eq!(a.difference(&b).encode(), json!({"f:a": {}, "f:c": {}}));
        assert_eq!(
            a.union(&b).encode(),
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
