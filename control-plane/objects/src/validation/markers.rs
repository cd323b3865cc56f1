//! Declarative validation: objects are checked by the markers that Kubernetes publishes with the fields of their types.
//!
//! Errors are in the order of declaration of the fields, and at most one of the markers that end the checks of a field
//! reports an error. Unchanged values of an update are not checked. The markers follow KEP-5073.

use super::errors::{ErrorPath, Errors, IS_IMMUTABLE, Shown};
use crate::schema::model::{ListType, Model, ModelField, ObjectType, TypeId, ValueShape};
use crate::view::is_zero;
use serde_json::Value;
use std::collections::{HashMap, HashSet};

static ABSENT: Value = Value::Null;
pub(super) const NOT_SET_LATER: &str = "field cannot be set once created";
pub(super) const NOT_CLEARED: &str = "field cannot be cleared once set";
const NOT_ADDED: &str = "item may not be added";
const NOT_REMOVED: &str = "item may not be removed";

/// Checks an object of a type, with its value before an update.
pub(super) fn validate(
    model: &Model,
    errors: &mut Errors,
    id: TypeId,
    value: &Value,
    old: Option<&Value>,
    path: &ErrorPath<'_>,
) {
    MarkerRun { model, errors }.object(id, value, old, path);
}

struct MarkerRun<'r> {
    model: &'r Model,
    errors: &'r mut Errors,
}

impl MarkerRun<'_> {
    fn object(&mut self, id: TypeId, value: &Value, old: Option<&Value>, path: &ErrorPath<'_>) {
        let object_type = self.model.object_type(id);
        #[cfg(test)]
        super::engine::note_visit(&object_type.name);
        self.union(object_type, value, old, path);
        self.dependencies(object_type, value, old, path);
        for field in declared(object_type) {
            let new = part(value, field);
            let before = old.map(|old| part(old, field));
            if before != Some(new) {
                self.field(field, new, before, &path.child(&field.name));
            }
        }
    }

    /// One of the members of a union is set.
    fn union(&mut self, of: &ObjectType, value: &Value, old: Option<&Value>, path: &ErrorPath<'_>) {
        let members: Vec<&ModelField> = declared(of)
            .into_iter()
            .filter(|field| field.is_marked("unionMember"))
            .collect();
        let set = |value: &Value| -> Vec<&str> {
            let set = members.iter().filter(|field| is_set(part(value, field)));
            set.map(|field| &*field.name).collect()
        };
        let chosen = set(value);
        if members.is_empty() || chosen.len() == 1 || old.is_some_and(|old| set(old) == chosen) {
            return;
        }
        let all: Vec<String> = members.iter().map(|f| format!("`{}`", f.name)).collect();
        let all = all.join(", ");
        if chosen.is_empty() {
            let detail = format!("must specify one of: {all}");
            self.errors.invalid(path, "", detail);
        } else {
            let shown = format!("{{{}}}", chosen.join(", "));
            let detail = format!("must specify exactly one of: {all}");
            self.errors.invalid(path, shown.as_str(), detail);
        }
    }

    /// Fields that others require are set with them.
    fn dependencies(
        &mut self,
        of: &ObjectType,
        value: &Value,
        old: Option<&Value>,
        path: &ErrorPath<'_>,
    ) {
        for field in declared(of) {
            let Some(required) = field.marker("dependentRequired") else {
                continue;
            };
            let state = |object: &Value| {
                let needed = object.get(required).unwrap_or(&ABSENT);
                (is_set(part(object, field)), is_set(needed))
            };
            if state(value) == (true, false) && old.map(state) != Some((true, false)) {
                let detail = format!("must be specified when `{}` is set", field.name);
                self.errors.required(&path.child(required), detail);
            }
        }
    }

    fn field(
        &mut self,
        field: &ModelField,
        value: &Value,
        old: Option<&Value>,
        path: &ErrorPath<'_>,
    ) {
        if let Some(old) = old
            && let Some(detail) = refused_change(field, value, old)
        {
            self.errors.invalid(path, Shown::null(), detail);
            return;
        }
        let found = self.errors.len();
        let items = value.as_array().map_or(0, Vec::len);
        if let Some(max) = field.marker("maxItems").and_then(|max| max.parse().ok()) {
            self.errors.check_at_most(path, items, max);
        }
        if self.errors.len() > found {
            return;
        }
        if let (Some(old), ValueShape::List(_)) = (old, &field.shape) {
            self.items_kept(field, value, old, path);
        }
        let is_absent = if field.pointer {
            value.is_null()
        } else {
            is_zero(Some(value))
        };
        match (&field.shape, is_absent) {
            (_, true) if field.is_marked("required") => self.errors.required(path, ""),
            // A Go struct that is not a pointer is always present.
            (ValueShape::Object(id), _) if !field.pointer => self.object(*id, value, old, path),
            (_, true) => {}
            (ValueShape::Object(id), false) => {
                let old = old.filter(|old| !old.is_null());
                self.object(*id, value, old, path);
            }
            (ValueShape::List(entries), false) => self.list(field, entries, value, old, path),
            (_, false) => self.scalar(field, value, path),
        }
    }

    /// The entries that an update may not add or remove.
    fn items_kept(&mut self, field: &ModelField, value: &Value, old: &Value, path: &ErrorPath<'_>) {
        let (new, before) = (entries(value), entries(old));
        if has_update(field, "NoAddItem") {
            let known = by_identity(field, before);
            for (i, entry) in new.iter().enumerate() {
                if !known.contains_key(&identity(field, entry)) {
                    self.errors
                        .invalid(&path.index(i), Shown::null(), NOT_ADDED);
                }
            }
        }
        if has_update(field, "NoRemoveItem") {
            let kept = by_identity(field, new);
            let gone = |entry: &&Value| !kept.contains_key(&identity(field, entry));
            for _ in before.iter().filter(gone) {
                self.errors.invalid(path, Shown::null(), NOT_REMOVED);
            }
        }
    }

    fn list(
        &mut self,
        field: &ModelField,
        shape: &ValueShape,
        value: &Value,
        old: Option<&Value>,
        path: &ErrorPath<'_>,
    ) {
        let (new, before) = (entries(value), old.map_or(&[][..], entries));
        if field.list != ListType::Atomic {
            let mut seen = HashSet::with_capacity(new.len());
            for (i, entry) in new.iter().enumerate() {
                if !seen.insert(identity(field, entry)) {
                    self.errors.duplicate(&path.index(i), entry);
                }
            }
        }
        let ValueShape::Object(id) = shape else {
            return;
        };
        let before = by_identity(field, before);
        for (i, entry) in new.iter().enumerate() {
            let old = before.get(&identity(field, entry)).copied();
            if old != Some(entry) {
                self.object(*id, entry, old, &path.index(i));
            }
        }
    }

    fn scalar(&mut self, field: &ModelField, value: &Value, path: &ErrorPath<'_>) {
        let bound = |name| field.marker(name).and_then(|v| v.parse::<i64>().ok());
        let number = value.as_i64().unwrap_or(0);
        if let Some(min) = bound("minimum").filter(|min| number < *min) {
            let detail = format!("must be greater than or equal to {min}");
            self.errors.invalid(path, number, detail);
        }
        if let Some(max) = bound("maximum").filter(|max| number > *max) {
            let detail = format!("must be less than or equal to {max}");
            self.errors.invalid(path, number, detail);
        }
        let text = value.as_str().unwrap_or("");
        let format = field.marker("format").map(|f| f.trim_start_matches("k8s-"));
        if let Some(format) = format.and_then(super::formats::find) {
            self.errors.each_invalid(path, text, format(text));
        }
        if !field.values.is_empty() && !field.values.iter().any(|known| **known == *text) {
            let known: Vec<&str> = field.values.iter().map(|known| &**known).collect();
            self.errors.not_supported(path, text, &known);
        }
    }
}

/// The reason why an update may not change a field so, if it may not.
fn refused_change(field: &ModelField, value: &Value, old: &Value) -> Option<&'static str> {
    match (is_set(old), is_set(value)) {
        _ if field.is_marked("immutable") => Some(IS_IMMUTABLE),
        (false, true) if has_update(field, "NoSet") => Some(NOT_SET_LATER),
        (true, false) if has_update(field, "NoUnset") => Some(NOT_CLEARED),
        _ => None,
    }
}

fn has_update(field: &ModelField, constraint: &str) -> bool {
    let mut updates = field
        .markers
        .iter()
        .filter_map(|m| m.strip_prefix("update="));
    updates.any(|update| update == constraint)
}

/// The fields in their order of declaration.
fn declared(object_type: &ObjectType) -> Vec<&ModelField> {
    let mut fields: Vec<&ModelField> = object_type.fields.iter().collect();
    fields.sort_by_key(|field| field.number);
    fields
}

fn part<'v>(object: &'v Value, field: &ModelField) -> &'v Value {
    object.get(&*field.name).unwrap_or(&ABSENT)
}

fn entries(list: &Value) -> &[Value] {
    list.as_array().map_or(&[], Vec::as_slice)
}

/// Returns whether a value counts as set: a list with entries, or any other value.
fn is_set(value: &Value) -> bool {
    match value {
        Value::Array(list) => !list.is_empty(),
        value => !value.is_null(),
    }
}

/// The part of an entry of a list that identifies it: its keys, or the entry itself.
fn identity<'l>(field: &ModelField, entry: &'l Value) -> Vec<Option<&'l Value>> {
    match &field.list {
        ListType::Map(keys) => keys.iter().map(|key| entry.get(&**key)).collect(),
        _ => vec![Some(entry)],
    }
}

/// The entries of a list, of equal ones the first.
fn by_identity<'l>(
    field: &ModelField,
    list: &'l [Value],
) -> HashMap<Vec<Option<&'l Value>>, &'l Value> {
    let mut found = HashMap::with_capacity(list.len());
    for entry in list {
        found.entry(identity(field, entry)).or_insert(entry);
    }
    found
}
