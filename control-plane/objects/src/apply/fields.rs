//! Sets of fields, as `metadata.managedFields` writes them (`FieldsV1`).
//!
//! A set is a tree of path elements. An element is written `f:NAME` (a field), `k:{…}` (an entry of a list by its
//! keys), `v:VALUE` (an entry of a set) or `i:N`. A node is a member of the set or only leads to members below it.

use serde::de::{Deserialize, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry as Slot;
use std::fmt;

/// The element that marks a node with elements below it as a member.
const ITSELF: &str = ".";

/// A node of a set and its descendants.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FieldSet {
    /// Whether the node itself is a member.
    pub(crate) member: bool,
    children: BTreeMap<Box<str>, FieldSet>,
}

impl FieldSet {
    /// A member without members below it.
    pub(crate) fn leaf() -> Self {
        Self {
            member: true,
            children: BTreeMap::new(),
        }
    }

    /// Returns whether the set is empty.
    pub(crate) fn is_empty(&self) -> bool {
        !self.member && self.children.is_empty()
    }

    /// The number of members.
    pub(crate) fn len(&self) -> usize {
        let below: usize = self.children.values().map(Self::len).sum();
        usize::from(self.member) + below
    }

    /// The number of members that a set has too that was written by [`FieldSet::text`]: the parts of the text that this
    /// set does not lead to are skipped. `None` when it cannot be read.
    pub(crate) fn count_in(&self, text: &str) -> Option<usize> {
        let mut parser = serde_json::Deserializer::from_str(text);
        CommonMembers(self).deserialize(&mut parser).ok()
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

    /// Reads the JSON form, or its text, as in stored objects. An invalid value is read as the empty set.
    pub(crate) fn decode(value: &Value) -> Self {
        match value {
            Value::String(text) => Self::decode_text(text),
            json => Self::deserialize(json).unwrap_or_default().form(),
        }
    }

    /// Reads the text of the JSON form.
    pub(crate) fn decode_text(text: &str) -> Self {
        let set: Self = serde_json::from_str(text).unwrap_or_default();
        set.form()
    }

    /// The set as the outermost one: a leaf at this level is the empty set.
    fn form(mut self) -> Self {
        self.member &= !self.children.is_empty();
        self
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

    /// The set without a member and all members below it.
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

    /// The members as paths, such as `.spec.containers[name="c"].image`, in kube-apiserver's order: the members among
    /// the elements of a node precede all members below these elements.
    pub(crate) fn paths(&self) -> Vec<String> {
        let mut paths = Vec::new();
        self.collect("", &mut paths);
        paths
    }

    fn collect(&self, prefix: &str, paths: &mut Vec<String>) {
        let mut children: Vec<(ElementOrder<'_>, String, &Self)> = Vec::new();
        for (element, child) in &self.children {
            let path = format!("{prefix}{}", shown(element));
            children.push((ElementOrder::of(element), path, child));
        }
        children.sort_by(|(a, ..), (b, ..)| a.order(b));
        let members = children.iter().filter(|(.., child)| child.member);
        paths.extend(members.map(|(_, path, _)| path.clone()));
        for (_, path, child) in children {
            child.collect(&path, paths);
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

/// A value that is not a map is read as the empty set.
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

/// Counts the members that a set in its JSON form has in common with this one.
struct CommonMembers<'a>(&'a FieldSet);

impl<'de> DeserializeSeed<'de> for CommonMembers<'_> {
    type Value = usize;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<usize, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for CommonMembers<'_> {
    type Value = usize;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a set of fields")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<usize, A::Error> {
        let Self(set) = self;
        let mut found = 0;
        let mut is_leaf = true;
        while let Some(element) = map.next_key_seed(ElementOf(set))? {
            is_leaf = false;
            match element {
                KnownElement::Child(child) => found += map.next_value_seed(CommonMembers(child))?,
                KnownElement::Itself => {
                    found += usize::from(set.member);
                    map.next_value::<IgnoredAny>()?;
                }
                KnownElement::Other => _ = map.next_value::<IgnoredAny>()?,
            }
        }
        Ok(found + usize::from(is_leaf && set.member))
    }
}

/// An element of a set in its JSON form, as another set knows it.
enum KnownElement<'a> {
    Itself,
    Child(&'a FieldSet),
    Other,
}

/// Finds an element in a set, without a copy of its text.
struct ElementOf<'a>(&'a FieldSet);

impl<'de, 'a> DeserializeSeed<'de> for ElementOf<'a> {
    type Value = KnownElement<'a>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'a> Visitor<'_> for ElementOf<'a> {
    type Value = KnownElement<'a>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an element of a path")
    }

    fn visit_str<E>(self, element: &str) -> Result<Self::Value, E> {
        Ok(match self.0.children.get(element) {
            _ if element == ITSELF => KnownElement::Itself,
            Some(child) => KnownElement::Child(child),
            None => KnownElement::Other,
        })
    }
}

/// The place of an element among others: fields by name, then entries by the values of their keys, entries of sets by
/// value, and entries by index.
enum ElementOrder<'a> {
    Field(&'a str),
    Keys(Value),
    Member(Value),
    Index(Value),
}

impl<'a> ElementOrder<'a> {
    fn of(element: &'a str) -> Self {
        let value = |text: &str| serde_json::from_str(text).unwrap_or_default();
        match element.split_once(':') {
            Some(("f", name)) => Self::Field(name),
            Some(("k", keys)) => Self::Keys(value(keys)),
            Some(("v", member)) => Self::Member(value(member)),
            Some((_, index)) => Self::Index(value(index)),
            None => Self::Field(element),
        }
    }

    fn rank(&self) -> usize {
        match self {
            Self::Field(_) => 0,
            Self::Keys(_) => 1,
            Self::Member(_) => 2,
            Self::Index(_) => 3,
        }
    }

    fn order(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Field(one), Self::Field(other)) => one.cmp(other),
            (Self::Keys(one), Self::Keys(other))
            | (Self::Member(one), Self::Member(other))
            | (Self::Index(one), Self::Index(other)) => value_order(one, other),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

/// The order of values: numbers, strings, booleans, lists, objects by their sorted fields, null.
fn value_order(one: &Value, other: &Value) -> Ordering {
    fn rank(value: &Value) -> usize {
        match value {
            Value::Number(_) => 0,
            Value::String(_) => 1,
            Value::Bool(_) => 2,
            Value::Array(_) => 3,
            Value::Object(_) => 4,
            Value::Null => 5,
        }
    }
    fn sorted(map: &Map<String, Value>) -> Vec<(&String, &Value)> {
        let mut fields: Vec<_> = map.iter().collect();
        fields.sort_by_key(|(name, _)| *name);
        fields
    }
    fn first_difference(mut parts: impl Iterator<Item = Ordering>) -> Ordering {
        parts.find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
    }
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => match (one.as_i64(), other.as_i64()) {
            (Some(one), Some(other)) => one.cmp(&other),
            _ => one
                .as_f64()
                .partial_cmp(&other.as_f64())
                .unwrap_or(Ordering::Equal),
        },
        (Value::String(one), Value::String(other)) => one.cmp(other),
        (Value::Bool(one), Value::Bool(other)) => one.cmp(other),
        (Value::Array(one), Value::Array(other)) => {
            first_difference(one.iter().zip(other).map(|(a, b)| value_order(a, b)))
                .then(one.len().cmp(&other.len()))
        }
        (Value::Object(one), Value::Object(other)) => {
            let pairs = sorted(one).into_iter().zip(sorted(other));
            first_difference(pairs.map(|(a, b)| a.0.cmp(b.0).then_with(|| value_order(a.1, b.1))))
                .then(one.len().cmp(&other.len()))
        }
        _ => rank(one).cmp(&rank(other)),
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
    fn members_are_printed_as_paths_in_the_order_of_kube_apiserver() {
        let paths = set(json!({
            "f:metadata": {"f:labels": {".": {}, "f:a": {}}},
            "f:spec": {
                "f:finalizers": {"v:\"x\"": {}},
                "f:ports": {
                    "k:{\"port\":443,\"protocol\":\"TCP\"}": {".": {}, "f:port": {}},
                    "k:{\"port\":80,\"protocol\":\"UDP\"}": {".": {}},
                    "k:{\"port\":80,\"protocol\":\"TCP\"}": {".": {}, "f:port": {}, "f:name": {}},
                },
                "f:replicas": {},
            },
            "f:data": {},
        }))
        .paths();
        assert_eq!(
            paths,
            [
                ".data",
                ".metadata.labels",
                ".metadata.labels.a",
                ".spec.replicas",
                ".spec.finalizers[=\"x\"]",
                ".spec.ports[port=80,protocol=\"TCP\"]",
                ".spec.ports[port=80,protocol=\"UDP\"]",
                ".spec.ports[port=443,protocol=\"TCP\"]",
                ".spec.ports[port=80,protocol=\"TCP\"].name",
                ".spec.ports[port=80,protocol=\"TCP\"].port",
                ".spec.ports[port=443,protocol=\"TCP\"].port",
            ]
        );
    }

    #[test]
    fn common_members_are_counted_in_the_text() {
        let text = r#"{"f:a":{".":{},"f:b":{}},"f:c":{"k:{\"name\":\"x\"}":{".":{},"f:name":{}}},"f:d":{}}"#;
        for (other, expected) in [
            (json!({}), 0),
            (json!({"f:a": {"f:b": {}}}), 1),
            (json!({"f:a": {".": {}, "f:b": {}, "f:z": {}}}), 2),
            (json!({"f:a": {}, "f:c": {}}), 1),
            (
                json!({"f:c": {"k:{\"name\":\"x\"}": {".": {}, "f:name": {}}}, "f:d": {}}),
                3,
            ),
            (
                json!({"f:c": {"k:{\"name\":\"y\"}": {}}, "f:d": {"f:e": {}}}),
                0,
            ),
        ] {
            let other = set(other);
            assert_eq!(other.count_in(text), Some(expected), "{}", other.text());
            let both = FieldSet::decode_text(text).intersection(&other);
            assert_eq!(both.len(), expected, "{}", other.text());
        }
        assert_eq!(FieldSet::default().count_in("no JSON"), None);
    }
}
