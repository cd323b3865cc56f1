//! Objects by the rules of their types: which fields they have, how two of them differ, how one is merged into another.
//!
//! The rules of Kubernetes' structured merge apply: objects and maps are granular unless their type is atomic, lists
//! are atomic, sets, or maps by their keys.

use super::fields::{FieldSet, shown};
use crate::schema::model::{ListType, Model, ModelField, Presence, TypeId, ValueShape};
use rustc_hash::FxHashMap;
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

/// The fault of an entry of a list that has none of the keys of its list.
const WITHOUT_KEYS: &str = "associative list with keys has an element that omits key field";

/// The schema of a value.
#[derive(Debug, Clone, Copy)]
enum SchemaKind<'m> {
    /// A scalar, or a value that is owned as a whole.
    Leaf(&'m ValueShape),
    /// An object with known fields.
    Object(TypeId),
    /// An object with free keys.
    Map(&'m ValueShape),
    /// A list whose entries are unique scalars.
    Set(&'m ValueShape),
    /// A list whose entries are identified by keys.
    List(&'m [Box<str>], &'m ValueShape),
    /// A value without a type: objects are granular, lists atomic.
    Free,
}

/// The differences of two objects.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ObjectComparison {
    pub(crate) added: FieldSet,
    pub(crate) modified: FieldSet,
    pub(crate) removed: FieldSet,
}

/// A type and the model that holds it; without a type, objects are granular and lists atomic.
#[derive(Debug, Clone, Copy)]
pub struct Typed<'m> {
    pub model: &'m Model,
    pub root: Option<TypeId>,
}

impl<'m> Typed<'m> {
    fn root(&self) -> SchemaKind<'m> {
        self.root.map_or(SchemaKind::Free, SchemaKind::Object)
    }

    fn kind(&self, shape: &'m ValueShape, field: Option<&'m ModelField>) -> SchemaKind<'m> {
        let atomic = field.and_then(|f| f.atomic);
        match shape {
            ValueShape::Object(id) => {
                if atomic.unwrap_or(self.model.object_type(*id).atomic) {
                    SchemaKind::Leaf(shape)
                } else {
                    SchemaKind::Object(*id)
                }
            }
            ValueShape::Map(values) if atomic != Some(true) => SchemaKind::Map(values),
            ValueShape::List(items) => match field.map(|f| &f.list) {
                Some(ListType::Set) => SchemaKind::Set(items),
                Some(ListType::Map(keys)) => SchemaKind::List(keys, items),
                _ => SchemaKind::Leaf(shape),
            },
            ValueShape::Any => SchemaKind::Free,
            _ => SchemaKind::Leaf(shape),
        }
    }

    /// The kind of a member of an object; `None` when the type does not have it.
    fn member(&self, kind: SchemaKind<'m>, name: &str) -> Option<SchemaKind<'m>> {
        match kind {
            SchemaKind::Object(id) => {
                let object_type = self.model.object_type(id);
                match object_type.field(name) {
                    Some(field) => Some(self.kind(&field.shape, Some(field))),
                    None => object_type.open.then_some(SchemaKind::Free),
                }
            }
            SchemaKind::Map(values) => Some(self.kind(values, None)),
            _ => Some(SchemaKind::Free),
        }
    }

    /// The element of an entry of a list by its keys. Keys that the entry leaves out have their defaults.
    fn element(&self, keys: &[Box<str>], items: &ValueShape, entry: &Value) -> Option<String> {
        let mut found: BTreeMap<&str, Cow<'_, Value>> = BTreeMap::new();
        for key in keys {
            let field = items
                .object()
                .and_then(|id| self.model.object_type(id).field(key));
            let default = || match field {
                Some(field) if field.presence == Presence::AlwaysWritten => {
                    field.default.clone().or_else(|| field.zero())
                }
                field => field?.default.clone(),
            };
            let given = entry.get(&**key).filter(|v| !v.is_null());
            let given = given.map(Cow::Borrowed);
            if let Some(value) = given.or_else(|| default().map(Cow::Owned)) {
                found.insert(key, value);
            }
        }
        let text = serde_json::to_string(&found).ok()?;
        (!found.is_empty()).then(|| format!("k:{text}"))
    }

    fn elements(&self, kind: SchemaKind<'m>, list: &[Value]) -> Vec<Option<String>> {
        let element = |entry: &Value| match kind {
            SchemaKind::Set(_) => Some(format!("v:{entry}")),
            SchemaKind::List(keys, items) => self.element(keys, items, entry),
            _ => None,
        };
        list.iter().map(element).collect()
    }

    fn item(&self, kind: SchemaKind<'m>) -> SchemaKind<'m> {
        match kind {
            SchemaKind::List(_, items) | SchemaKind::Set(items) => self.kind(items, None),
            _ => SchemaKind::Free,
        }
    }

    /// The fields that an object sets.
    ///
    /// # Errors
    /// The first part that does not fit its type.
    pub fn field_set(&self, object: &Value) -> Result<FieldSet, String> {
        let mut faults = Vec::new();
        let set = self.set_of(self.root(), object, "", &mut faults);
        match faults.as_slice() {
            [] => Ok(set),
            [one] => Err(one.clone()),
            many => Err(format!("errors:\n  {}", many.join("\n  "))),
        }
    }

    fn set_of(
        &self,
        kind: SchemaKind<'m>,
        value: &Value,
        path: &str,
        faults: &mut Vec<String>,
    ) -> FieldSet {
        let mut set = FieldSet::default();
        match (kind, value) {
            (SchemaKind::Object(_) | SchemaKind::Map(_) | SchemaKind::Free, Value::Object(map)) => {
                for (name, value) in map {
                    let path = format!("{path}.{name}");
                    let Some(kind) = self.member(kind, name) else {
                        faults.push(format!("{path}: field not declared in schema"));
                        continue;
                    };
                    let mut child = self.set_of(kind, value, &path, faults);
                    child.member |= value.is_null() || value.as_object().is_some_and(Map::is_empty);
                    set.put(format!("f:{name}"), child);
                }
            }
            (SchemaKind::Set(_) | SchemaKind::List(..), Value::Array(list)) => {
                let mut seen = BTreeSet::new();
                for (i, (element, entry)) in
                    self.elements(kind, list).into_iter().zip(list).enumerate()
                {
                    let Some(element) = element else {
                        faults.push(format!("{path}: element {i}: {WITHOUT_KEYS}"));
                        continue;
                    };
                    let place = shown(&element);
                    let below = format!("{path}{place}");
                    let mut child = self.set_of(self.item(kind), entry, &below, faults);
                    child.member = true;
                    if !seen.insert(element.clone()) {
                        faults.push(format!("{path}: duplicate entries for key {place}"));
                    }
                    set.put(element, child);
                }
            }
            (
                SchemaKind::Object(_)
                | SchemaKind::Map(_)
                | SchemaKind::Set(_)
                | SchemaKind::List(..),
                Value::Null,
            ) => {}
            (SchemaKind::Object(_) | SchemaKind::Map(_), _) => {
                faults.push(format!("{path}: expected map, got &{{{}}}", go_text(value)));
            }
            (SchemaKind::Set(_) | SchemaKind::List(..), _) => {
                faults.push(format!(
                    "{path}: expected list, got &{{{}}}",
                    go_text(value)
                ));
            }
            (SchemaKind::Leaf(shape), value) => {
                self.check_leaf(shape, value, path, faults);
                set.member = true;
            }
            (SchemaKind::Free, _) => set.member = true,
        }
        set
    }

    /// Finds values of a wrong type in an atomic value.
    fn check_leaf(&self, shape: &ValueShape, value: &Value, path: &str, faults: &mut Vec<String>) {
        let expected = match (shape, value) {
            // Null is accepted for every type: it removes the field.
            (_, Value::Null) => return,
            (ValueShape::Object(id), Value::Object(map)) => {
                let object_type = self.model.object_type(*id);
                for (name, value) in map {
                    let path = format!("{path}.{name}");
                    match object_type.field(name) {
                        Some(field) => self.check_leaf(&field.shape, value, &path, faults),
                        None if object_type.open => {}
                        None => faults.push(format!("{path}: field not declared in schema")),
                    }
                }
                return;
            }
            (ValueShape::Map(values), Value::Object(map)) => {
                for (name, value) in map {
                    self.check_leaf(values, value, &format!("{path}.{name}"), faults);
                }
                return;
            }
            (ValueShape::List(items), Value::Array(list)) => {
                for (i, value) in list.iter().enumerate() {
                    self.check_leaf(items, value, &format!("{path}[{i}]"), faults);
                }
                return;
            }
            (ValueShape::Object(_) | ValueShape::Map(_), _) => {
                format!("map, got &{{{}}}", go_text(value))
            }
            (ValueShape::List(_), _) => format!("list, got &{{{}}}", go_text(value)),
            (ValueShape::Bool, _) if !value.is_boolean() => {
                format!("boolean, got &{{{}}}", go_text(value))
            }
            (ValueShape::Int32 | ValueShape::Int64 | ValueShape::Float, _)
                if !value.is_number() =>
            {
                format!("numeric (int or float), got {}", go_type(value))
            }
            (ValueShape::String | ValueShape::Bytes | ValueShape::Duration, _)
                if !value.is_string() =>
            {
                let value = go_text(value);
                format!("string, got &value.valueUnstructured{{Value:{value}}}")
            }
            (
                ValueShape::Quantity
                | ValueShape::IntOrString
                | ValueShape::Time
                | ValueShape::MicroTime,
                Value::Object(_) | Value::Array(_),
            ) => format!("any scalar, got &{{{}}}", go_text(value)),
            _ => return,
        };
        faults.push(format!("{path}: expected {expected}"));
    }

    /// The differences between a previous and a new object.
    pub(crate) fn compare(&self, old: &Value, new: &Value) -> ObjectComparison {
        let mut found = ObjectComparison::default();
        if old != new {
            self.compare_values(self.root(), Some(old), Some(new), &mut found);
        }
        found
    }

    /// Notes how two different values differ.
    fn compare_values<'v>(
        &self,
        kind: SchemaKind<'m>,
        old: Option<&'v Value>,
        new: Option<&'v Value>,
        found: &mut ObjectComparison,
    ) {
        let is_empty = |value: Option<&Value>| match value {
            None | Some(Value::Null) => true,
            Some(Value::Object(map)) => map.is_empty(),
            Some(Value::Array(list)) => list.is_empty(),
            Some(_) => false,
        };
        let is = |test: fn(&Value) -> bool| {
            [old, new]
                .into_iter()
                .flatten()
                .all(|v| v.is_null() || test(v))
        };
        let granular = match kind {
            SchemaKind::Leaf(_) => false,
            SchemaKind::Object(_) | SchemaKind::Map(_) | SchemaKind::Free => is(Value::is_object),
            SchemaKind::Set(_) | SchemaKind::List(..) => is(Value::is_array),
        };
        if !granular || (is_empty(old) && is_empty(new)) {
            match (old, new) {
                (None, _) => found.added.member = true,
                (_, None) => found.removed.member = true,
                _ => found.modified.member = true,
            }
            return;
        }
        if matches!(kind, SchemaKind::Set(_) | SchemaKind::List(..)) {
            self.compare_lists(kind, old, new, found);
        } else {
            let nothing = Map::new();
            let map = |value: Option<&'v Value>| value.and_then(Value::as_object);
            let (before, after) = (map(old).unwrap_or(&nothing), map(new).unwrap_or(&nothing));
            let gone = before.keys().filter(|name| !after.contains_key(*name));
            for name in after.keys().chain(gone) {
                let (old, new) = (before.get(name), after.get(name));
                if old != new {
                    let kind = self.member(kind, name).unwrap_or(SchemaKind::Free);
                    self.compare_below(kind, ["f:", name].concat(), old, new, found);
                }
            }
        }
        found.added.member |= old.is_none();
        found.removed.member |= new.is_none();
    }

    fn compare_lists<'v>(
        &self,
        kind: SchemaKind<'m>,
        old: Option<&'v Value>,
        new: Option<&'v Value>,
        found: &mut ObjectComparison,
    ) {
        let first = |list: Option<&[&'v Value]>| list.and_then(|list| list.first().copied());
        let (before, after) = (self.indexed(kind, old), self.indexed(kind, new));
        let is_gone = |element: &&String| !after.contains_key(*element);
        for element in after.keys().chain(before.keys().filter(is_gone)) {
            let old = before.get(element).map(Vec::as_slice);
            let new = after.get(element).map(Vec::as_slice);
            match (old, new) {
                // Duplicate entries are compared as one.
                (old, new) if old == new => {}
                (None | Some([_]), None | Some([_])) => {
                    let (old, new) = (first(old), first(new));
                    self.compare_below(self.item(kind), element.clone(), old, new, found);
                }
                (None, _) => found.added.put(element.as_str(), FieldSet::leaf()),
                (_, None) => found.removed.put(element.as_str(), FieldSet::leaf()),
                _ => found.modified.put(element.as_str(), FieldSet::leaf()),
            }
        }
    }

    /// The entries of a list by their elements.
    fn indexed<'v>(
        &self,
        kind: SchemaKind<'m>,
        list: Option<&'v Value>,
    ) -> BTreeMap<String, Vec<&'v Value>> {
        let list = list
            .and_then(Value::as_array)
            .map_or(&[][..], Vec::as_slice);
        let mut map: BTreeMap<String, Vec<&Value>> = BTreeMap::new();
        for (element, entry) in self.elements(kind, list).into_iter().zip(list) {
            map.entry(element.unwrap_or_default())
                .or_default()
                .push(entry);
        }
        map
    }

    fn compare_below(
        &self,
        kind: SchemaKind<'m>,
        element: String,
        old: Option<&Value>,
        new: Option<&Value>,
        found: &mut ObjectComparison,
    ) {
        let mut below = ObjectComparison::default();
        self.compare_values(kind, old, new, &mut below);
        if !below.modified.is_empty() {
            found.modified.put(element.as_str(), below.modified);
        }
        if !below.removed.is_empty() {
            found.removed.put(element.as_str(), below.removed);
        }
        found.added.put(element, below.added);
    }

    /// The paths of the set fields and the atomic values of an object.
    pub fn atomics(&self, object: &Value) -> Vec<String> {
        let mut found = Vec::new();
        self.find_atomics(self.root(), object, "", &mut found);
        found
    }

    fn find_atomics(
        &self,
        kind: SchemaKind<'m>,
        value: &Value,
        path: &str,
        found: &mut Vec<String>,
    ) {
        match (kind, value) {
            (SchemaKind::Leaf(_), Value::Object(_))
            | (SchemaKind::Leaf(_) | SchemaKind::Free, Value::Array(_)) => {
                found.push(path.to_owned());
            }
            (_, Value::Object(map)) => {
                for (name, value) in map {
                    if let Some(kind) = self.member(kind, name) {
                        self.find_atomics(kind, value, &format!("{path}.{name}"), found);
                    }
                }
            }
            (_, Value::Array(list)) => {
                for (i, value) in list.iter().enumerate() {
                    self.find_atomics(self.item(kind), value, &format!("{path}[{i}]"), found);
                }
            }
            _ => {}
        }
    }

    /// An object with the fields of a configuration.
    pub fn merge(&self, live: &Value, config: &Value) -> Value {
        self.merge_values(self.root(), live.clone(), config)
    }

    fn merge_values(&self, kind: SchemaKind<'m>, live: Value, config: &Value) -> Value {
        match (kind, live, config) {
            (
                SchemaKind::Object(_) | SchemaKind::Map(_) | SchemaKind::Free,
                Value::Object(mut live),
                Value::Object(config),
            ) => {
                for (name, value) in config {
                    let kind = self.member(kind, name).unwrap_or(SchemaKind::Free);
                    let before = live.remove(name).unwrap_or(Value::Null);
                    live.insert(name.clone(), self.merge_values(kind, before, value));
                }
                Value::Object(live)
            }
            (
                SchemaKind::Set(_) | SchemaKind::List(..),
                Value::Array(live),
                Value::Array(config),
            ) => Value::Array(self.merge_lists(kind, live, config)),
            // Null owns a map or list and removes none of the members of other managers.
            (
                SchemaKind::Object(_)
                | SchemaKind::Map(_)
                | SchemaKind::Set(_)
                | SchemaKind::List(..),
                live @ (Value::Object(_) | Value::Array(_)),
                Value::Null,
            ) => live,
            (_, _, config) => config.clone(),
        }
    }

    /// The entries of the configuration in its order; the others keep their place between them.
    fn merge_lists(&self, kind: SchemaKind<'m>, live: Vec<Value>, config: &[Value]) -> Vec<Value> {
        let config_elements = self.elements(kind, config);
        let wanted: BTreeSet<&Option<String>> = config_elements.iter().collect();
        let live_elements = self.elements(kind, &live);
        // The entries of each element that are not merged yet, in reverse order.
        let mut places: FxHashMap<&Option<String>, Vec<usize>> = FxHashMap::default();
        for (i, element) in live_elements.iter().enumerate().rev() {
            places.entry(element).or_default().push(i);
        }
        let mut live: Vec<Option<Value>> = live.into_iter().map(Some).collect();
        let mut next = 0;
        let mut merged = Vec::with_capacity(live.len() + config.len());
        for (element, entry) in config_elements.iter().zip(config) {
            // Entries that only the live object has stay before the entry that they preceded.
            while let (Some(element), Some(value)) = (live_elements.get(next), live.get_mut(next)) {
                if wanted.contains(element) && value.is_some() {
                    break;
                }
                merged.extend(value.take());
                next += 1;
            }
            let before = places.get_mut(element).and_then(Vec::pop);
            let before = before.and_then(|i| live.get_mut(i)?.take());
            merged.push(match before {
                Some(before) => self.merge_values(self.item(kind), before, entry),
                None => entry.clone(),
            });
        }
        merged.extend(live.into_iter().skip(next).flatten());
        merged
    }

    /// An object without the members of a set and all values below them.
    pub(crate) fn remove(&self, object: &mut Value, set: &FieldSet) {
        self.remove_below(self.root(), object, set);
    }

    fn remove_below(&self, kind: SchemaKind<'m>, value: &mut Value, set: &FieldSet) {
        match value {
            Value::Object(map) => map.retain(|name, value| match set.child(&format!("f:{name}")) {
                Some(below) if below.member => false,
                Some(below) => {
                    let kind = self.member(kind, name).unwrap_or(SchemaKind::Free);
                    self.remove_below(kind, value, below);
                    true
                }
                None => true,
            }),
            Value::Array(list) => {
                let mut elements = self.elements(kind, list).into_iter();
                list.retain_mut(|entry| {
                    let element = elements.next().flatten();
                    match element.and_then(|e| set.child(&e)) {
                        Some(below) if below.member => false,
                        Some(below) => {
                            self.remove_below(self.item(kind), entry, below);
                            true
                        }
                        None => true,
                    }
                });
            }
            _ => {}
        }
    }
}

/// The type of a value as Go prints it.
fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Object(_) => "map[string]interface {}",
        Value::Array(_) => "[]interface {}",
        Value::Bool(_) => "bool",
        Value::Number(_) => "int64",
        Value::String(_) | Value::Null => "string",
    }
}

/// A value as Go prints it.
fn go_text(value: &Value) -> String {
    match value {
        Value::Object(map) => {
            let mut fields: Vec<String> = map
                .iter()
                .map(|(name, value)| format!("{name}:{}", go_text(value)))
                .collect();
            fields.sort();
            format!("map[{}]", fields.join(" "))
        }
        Value::Array(list) => {
            let items: Vec<String> = list.iter().map(go_text).collect();
            format!("[{}]", items.join(" "))
        }
        Value::String(text) => text.clone(),
        Value::Null => "<nil>".to_owned(),
        other => other.to_string(),
    }
}
