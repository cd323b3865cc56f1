//! Strategic merge patch: a merge patch whose lists merge by the rules of their type.
//!
//! Lists of objects with a merge key merge entry by entry, lists of scalars with the merge strategy are united,
//! every other list is replaced. Directives in the patch determine the rest:
//!
//! - `$patch: replace` in an object: take the patch as the whole object. In an entry of a list: the other
//!   entries are the whole list. `$patch: delete` in an object empties it, in an entry of a list it deletes the
//!   entries with the same key.
//! - `$deleteFromPrimitiveList/<field>`: these scalars leave the list.
//! - `$setElementOrder/<field>`: the order of the list; entries that are not in it stay relative to it.
//! - `$retainKeys`: every other member of the object is removed.
//!
//! Differs from upstream in one point: if several entries share the merge key (Service ports 53/TCP and 53/UDP merge by
//! `port`), the other keys of the list select the entry. Upstream takes the first and loses one.

use super::PatchError;
use super::json::type_name;
use crate::schema::model::{ListType, Model, ModelField, TypeId, ValueShape};
use rustc_hash::{FxHashMap, FxHashSet};
use serde_json::{Map, Value};

const PATCH: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const SET_ELEMENT_ORDER: &str = "$setElementOrder/";
const DELETE_FROM_PRIMITIVE_LIST: &str = "$deleteFromPrimitiveList/";

/// Applies a patch to an object of a type. Without a type no list merges.
pub(super) fn apply(
    kind: Option<(&Model, TypeId)>,
    current: Value,
    patch: Value,
) -> Result<Value, PatchError> {
    let Value::Object(patch) = patch else {
        return Err(malformed(format!(
            "a strategic merge patch must be an object, not {}",
            type_name(&patch)
        )));
    };
    let mut current = match current {
        Value::Object(current) => current,
        _ => Map::new(),
    };
    let shape = kind.map(|(_, id)| ValueShape::Object(id));
    let typed = match (kind, &shape) {
        (Some((model, _)), Some(shape)) => Some(Typed { model, shape }),
        _ => None,
    };
    merge_object(&mut current, patch, typed)?;
    Ok(Value::Object(current))
}

/// The schema of the present value.
#[derive(Clone, Copy)]
struct Typed<'m> {
    model: &'m Model,
    shape: &'m ValueShape,
}

impl<'m> Typed<'m> {
    /// A member of this object: its type and its rule.
    fn member(self, name: &str) -> (Option<Self>, Option<&'m ModelField>) {
        match self.shape {
            ValueShape::Object(id) => match self.model.object_type(*id).field(name) {
                Some(field) => (Some(self.with(&field.shape)), Some(field)),
                None => (None, None),
            },
            ValueShape::Map(values) => (Some(self.with(values)), None),
            shape if is_free(shape) => (Some(self), None),
            _ => (None, None),
        }
    }

    fn items(self) -> Option<Self> {
        match self.shape {
            ValueShape::List(items) => Some(self.with(items)),
            shape if is_free(shape) => Some(self),
            _ => None,
        }
    }

    fn with(self, shape: &'m ValueShape) -> Self {
        Self { shape, ..self }
    }

    /// Returns whether the value has no type below this place: a value like a directive is content then.
    fn is_free(self) -> bool {
        is_free(self.shape)
    }
}

fn is_free(shape: &ValueShape) -> bool {
    matches!(
        shape,
        ValueShape::Any | ValueShape::Raw | ValueShape::Fields | ValueShape::SchemaOr(_)
    )
}

fn member<'m>(typed: Option<Typed<'m>>, name: &str) -> (Option<Typed<'m>>, Option<&'m ModelField>) {
    typed.map_or((None, None), |t| t.member(name))
}

fn malformed(message: String) -> PatchError {
    PatchError::Malformed(message)
}

fn merge_object(
    original: &mut Map<String, Value>,
    mut patch: Map<String, Value>,
    typed: Option<Typed<'_>>,
) -> Result<(), PatchError> {
    if let Some(directive) = patch.remove(PATCH) {
        match directive.as_str() {
            Some("replace") => *original = plain_object(patch, typed),
            Some("delete") => original.clear(),
            _ => {
                return Err(malformed(format!(
                    "unknown patch type: {directive}; an object knows replace and delete"
                )));
            }
        }
        return Ok(());
    }
    // The keys are dropped before the merge, so that fields of the patch are kept.
    if let Some(keys) = patch.remove(RETAIN_KEYS) {
        retain_keys(original, &patch, keys)?;
    }
    order_lists(original, &mut patch, typed)?;
    for (key, value) in patch {
        if let Some(field) = key.strip_prefix(DELETE_FROM_PRIMITIVE_LIST) {
            delete_scalars(original, field, value)?;
            continue;
        }
        let (typed, rule) = member(typed, &key);
        let merged = match (original.remove(&key), value) {
            // Null deletes the field, which is removed already.
            (_, Value::Null) => continue,
            (Some(Value::Object(mut old)), Value::Object(new))
                if !rule.is_some_and(|r| r.patch.replace) =>
            {
                merge_object(&mut old, new, typed)?;
                Value::Object(old)
            }
            (Some(Value::Array(old)), Value::Array(new)) => {
                Value::Array(merge_list(old, new, rule, typed, &key)?)
            }
            // The deletion of an absent field has no effect.
            (None, Value::Object(new)) if is_deletion(&new) => continue,
            (_, new) => plain(new, typed),
        };
        original.insert(key, merged);
    }
    Ok(())
}

fn is_deletion(patch: &Map<String, Value>) -> bool {
    patch.get(PATCH).and_then(Value::as_str) == Some("delete")
}

/// Removes the members that `$retainKeys` does not name.
fn retain_keys(
    original: &mut Map<String, Value>,
    patch: &Map<String, Value>,
    keys: Value,
) -> Result<(), PatchError> {
    let bad = |what: String| malformed(format!("invalid patch format of retainKeys: {what}"));
    let Value::Array(keys) = &keys else {
        return Err(bad(format!("it must be a list, not {}", type_name(&keys))));
    };
    let keep: FxHashSet<&str> = keys.iter().filter_map(Value::as_str).collect();
    for (key, value) in patch {
        let is_directive =
            key.starts_with(DELETE_FROM_PRIMITIVE_LIST) || key.starts_with(SET_ELEMENT_ORDER);
        if !value.is_null() && !is_directive && !keep.contains(key.as_str()) {
            return Err(bad(format!(
                "the patch sets {key:?} and does not retain it"
            )));
        }
    }
    original.retain(|key, _| keep.contains(key.as_str()));
    Ok(())
}

/// Takes scalars out of a list.
fn delete_scalars(
    original: &mut Map<String, Value>,
    field: &str,
    deleted: Value,
) -> Result<(), PatchError> {
    let Value::Array(deleted) = deleted else {
        return Err(malformed(format!(
            "invalid patch format of primitive list: {DELETE_FROM_PRIMITIVE_LIST}{field} must be a list, not {}",
            type_name(&deleted)
        )));
    };
    if let Some(Value::Array(list)) = original.get_mut(field) {
        let deleted: FxHashSet<String> = deleted.iter().map(scalar_text).collect();
        list.retain(|value| !deleted.contains(&scalar_text(value)));
    }
    Ok(())
}

/// Merges the lists whose order the patch sets, in that order, and takes them out of the patch.
fn order_lists(
    original: &mut Map<String, Value>,
    patch: &mut Map<String, Value>,
    typed: Option<Typed<'_>>,
) -> Result<(), PatchError> {
    let directives: Vec<String> = patch
        .keys()
        .filter(|key| key.starts_with(SET_ELEMENT_ORDER))
        .cloned()
        .collect();
    for directive in directives {
        let bad = |what: String| {
            malformed(format!(
                "invalid patch format of setElementOrder list: {directive}: {what}"
            ))
        };
        let field = directive[SET_ELEMENT_ORDER.len()..].to_owned();
        let order = match patch.remove(&directive) {
            Some(Value::Array(order)) => order,
            Some(other) => {
                return Err(bad(format!("it must be a list, not {}", type_name(&other))));
            }
            None => continue,
        };
        if patch.get(&field).is_some_and(Value::is_null) {
            // Removed as a whole: no order is required.
            continue;
        }
        let (typed, rule) = member(typed, &field);
        let key = rule.and_then(|r| r.merge_key.as_deref());
        let mut order_keys = Vec::with_capacity(order.len());
        for entry in &order {
            order_keys.push(
                entry_key(entry, key)
                    .ok_or_else(|| bad(format!("an entry has no {}", key.unwrap_or("value"))))?,
            );
        }
        let new = match patch.remove(&field) {
            Some(Value::Array(new)) => Some(new),
            Some(other) => {
                return Err(malformed(format!(
                    "{field} must be a list, not {}, as its order is set",
                    type_name(&other)
                )));
            }
            None => None,
        };
        let old = match original.remove(&field) {
            Some(Value::Array(old)) => Some(old),
            _ => None,
        };
        let old_keys: Vec<Option<String>> = old
            .iter()
            .flatten()
            .map(|entry| entry_key(entry, key))
            .collect();
        if let Some(new) = &new {
            check_order(new, &order_keys, key).map_err(bad)?;
        }
        let merged = match (old, new) {
            (Some(old), Some(new)) => merge_list(old, new, rule, typed, &field)?,
            (Some(old), None) => old,
            (None, Some(new)) => plain_list(new, typed),
            (None, None) => continue,
        };
        let order_keys: Vec<Option<String>> = order_keys.into_iter().map(Some).collect();
        original.insert(
            field,
            Value::Array(in_order(merged, key, &order_keys, &old_keys)),
        );
    }
    Ok(())
}

/// The entries of the patch must be in the order that the patch sets.
fn check_order(patch: &[Value], order: &[String], key: Option<&str>) -> Result<(), String> {
    let mut order = order.iter();
    for entry in patch {
        if key.is_some() && entry.get(PATCH).is_some() {
            continue;
        }
        let Some(entry) = entry_key(entry, key) else {
            continue;
        };
        if !order.any(|next| *next == entry) {
            return Err(format!(
                "the order in the patch list doesn't match it at {entry:?}"
            ));
        }
    }
    Ok(())
}

fn merge_list(
    original: Vec<Value>,
    patch: Vec<Value>,
    rule: Option<&ModelField>,
    typed: Option<Typed<'_>>,
    field: &str,
) -> Result<Vec<Value>, PatchError> {
    match rule {
        Some(rule) if rule.patch.merge => match rule.merge_key.as_deref() {
            Some(key) => merge_entries(original, patch, rule, key, typed, field),
            None => Ok(merge_scalars(original, patch)),
        },
        _ => Ok(plain_list(patch, typed)),
    }
}

/// The union of two lists of scalars.
fn merge_scalars(original: Vec<Value>, patch: Vec<Value>) -> Vec<Value> {
    let keys = |list: &[Value]| -> Vec<Option<String>> {
        list.iter().map(|value| entry_key(value, None)).collect()
    };
    let (original_keys, patch_keys) = (keys(&original), keys(&patch));
    let mut seen = FxHashSet::default();
    let merged = original
        .into_iter()
        .chain(patch)
        .filter(|value| seen.insert(scalar_text(value)))
        .collect();
    in_order(merged, None, &patch_keys, &original_keys)
}

/// Merges a list of objects entry by entry.
fn merge_entries(
    mut original: Vec<Value>,
    patch: Vec<Value>,
    rule: &ModelField,
    key: &str,
    typed: Option<Typed<'_>>,
    field: &str,
) -> Result<Vec<Value>, PatchError> {
    let items = typed.and_then(Typed::items);
    let Directed {
        entries,
        deleted,
        replace,
    } = Directed::sort(patch, key, field)?;
    if replace {
        return Ok(entries
            .into_iter()
            .map(|entry| Value::Object(plain_object(entry, items)))
            .collect());
    }
    let identity = EntryIdentity::new(rule, key, items);
    let original_keys: Vec<Option<String>> = original
        .iter()
        .map(|entry| entry_key(entry, Some(key)))
        .collect();
    if !deleted.is_empty() {
        original.retain(|entry| {
            !entry_key(entry, Some(key)).is_some_and(|text| {
                deleted
                    .get(&text)
                    .is_some_and(|whom| whom.iter().any(|d| identity.may_mean(d, entry)))
            })
        });
    }

    let mut found: FxHashMap<String, Vec<usize>> = FxHashMap::default();
    for (i, entry) in original.iter().enumerate() {
        if let Some(text) = entry_key(entry, Some(key)) {
            found.entry(text).or_default().push(i);
        }
    }
    let mut wanted: FxHashMap<String, usize> = FxHashMap::default();
    let mut patch_keys = Vec::with_capacity(entries.len());
    for entry in &entries {
        let text = entry.get(key).map(scalar_text).unwrap_or_default();
        *wanted.entry(text.clone()).or_default() += 1;
        patch_keys.push(Some(text));
    }
    for (entry, text) in entries.into_iter().zip(&patch_keys) {
        let text = text.clone().unwrap_or_default();
        let candidates = found.get(&text).map(Vec::as_slice).unwrap_or_default();
        let ambiguous = candidates.len() > 1 || wanted.get(&text).is_some_and(|n| *n > 1);
        let target = if ambiguous {
            candidates.iter().copied().find(|i| {
                original
                    .get(*i)
                    .is_some_and(|o| identity.may_mean(&entry, o))
            })
        } else {
            candidates.first().copied()
        };
        match target.and_then(|i| original.get_mut(i)) {
            Some(Value::Object(target)) => merge_object(target, entry, items)?,
            _ => {
                found.entry(text).or_default().push(original.len());
                original.push(Value::Object(plain_object(entry, items)));
            }
        }
    }
    Ok(in_order(original, Some(key), &patch_keys, &original_keys))
}

/// A list of the patch, entries and directives apart.
struct Directed {
    /// The entries without a directive.
    entries: Vec<Map<String, Value>>,
    /// The entries to delete, by key.
    deleted: FxHashMap<String, Vec<Map<String, Value>>>,
    /// The entries are the whole list.
    replace: bool,
}

impl Directed {
    fn sort(patch: Vec<Value>, key: &str, field: &str) -> Result<Self, PatchError> {
        let mut sorted = Self {
            entries: Vec::with_capacity(patch.len()),
            deleted: FxHashMap::default(),
            replace: false,
        };
        for entry in patch {
            let Value::Object(mut entry) = entry else {
                return Err(PatchError::Unprocessable(format!(
                    "{field}: an entry must be an object, not {}",
                    type_name(&entry)
                )));
            };
            let no_key = || {
                PatchError::Unprocessable(format!(
                    "{field}: an entry does not contain declared merge key: {key}"
                ))
            };
            // Deletions are kept apart: they apply to the live list before the others are merged.
            match entry.remove(PATCH) {
                None if entry.contains_key(key) => sorted.entries.push(entry),
                None => return Err(no_key()),
                Some(directive) => match directive.as_str() {
                    Some("delete") => {
                        let text = entry.get(key).map(scalar_text).ok_or_else(no_key)?;
                        sorted.deleted.entry(text).or_default().push(entry);
                    }
                    Some("replace") => sorted.replace = true,
                    _ => {
                        return Err(malformed(format!(
                            "{field}: unknown patch type: {directive}; an entry knows replace and delete"
                        )));
                    }
                },
            }
        }
        Ok(sorted)
    }
}

/// The identity of list entries, beyond the merge key.
struct EntryIdentity<'m> {
    /// The other keys of the list, each with the default that applies when it is absent.
    others: Vec<(&'m str, Option<&'m str>)>,
}

impl<'m> EntryIdentity<'m> {
    fn new(rule: &'m ModelField, key: &str, items: Option<Typed<'m>>) -> Self {
        let keys: &[Box<str>] = match &rule.list {
            ListType::Map(keys) => keys,
            _ => &[],
        };
        let default_of = |name: &str| match items.map(|t| (t.model, t.shape)) {
            Some((model, ValueShape::Object(id))) => model
                .object_type(*id)
                .field(name)
                .and_then(|field| field.default.as_ref()?.as_str()),
            _ => None,
        };
        Self {
            others: keys
                .iter()
                .map(|name| &**name)
                .filter(|name| *name != key)
                .map(|name| (name, default_of(name)))
                .collect(),
        }
    }

    /// Returns whether an entry of a patch may refer to this entry: none of its keys contradicts it.
    fn may_mean(&self, patch: &Map<String, Value>, entry: &Value) -> bool {
        self.others.iter().all(|(name, default)| {
            let text = |value: Option<&Value>| match value {
                None | Some(Value::Null) => default.map(str::to_owned),
                Some(value) => Some(scalar_text(value)),
            };
            let given = patch.get(*name);
            given.is_none() || text(given) == text(entry.get(*name))
        })
    }
}

/// Orders a merged list: entries of the patch in the patch's order; the other entries keep their order and stay before
/// their former successors.
fn in_order(
    merged: Vec<Value>,
    key: Option<&str>,
    patch_order: &[Option<String>],
    old_order: &[Option<String>],
) -> Vec<Value> {
    let positions = |order: &[Option<String>]| {
        let mut positions: FxHashMap<String, usize> = FxHashMap::default();
        for (i, text) in order.iter().enumerate() {
            if let Some(text) = text {
                positions.entry(text.clone()).or_insert(i);
            }
        }
        positions
    };
    let (patch_positions, old_positions) = (positions(patch_order), positions(old_order));
    let mut named = Vec::new();
    let mut rest = Vec::new();
    for entry in merged {
        let text = entry_key(&entry, key).unwrap_or_default();
        let old = old_positions.get(&text).copied();
        match patch_positions.get(&text) {
            Some(position) => named.push((*position, old, entry)),
            None => rest.push((old, entry)),
        }
    }
    named.sort_by_key(|(position, ..)| *position);
    rest.sort_by_key(|(old, _)| old.unwrap_or(usize::MAX));

    let mut ordered = Vec::with_capacity(named.len() + rest.len());
    let mut rest = rest.into_iter().peekable();
    for (_, old, entry) in named {
        // An entry that only the live list has stays in front of the named entry that followed it.
        while let Some((_, before)) = rest
            .next_if(|(other, _)| matches!((other, old), (Some(other), Some(old)) if *other < old))
        {
            ordered.push(before);
        }
        ordered.push(entry);
    }
    ordered.extend(rest.map(|(_, entry)| entry));
    ordered
}

/// The identity of an entry of a list: its merge key, or without one the entry itself.
fn entry_key(entry: &Value, key: Option<&str>) -> Option<String> {
    match key {
        Some(key) => entry.get(key).map(scalar_text),
        None => Some(scalar_text(entry)),
    }
}

/// A scalar as text; keys are compared so, as 80 and "80" are one key.
fn scalar_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// A value of the patch where the object has none: without directives and without nulls.
fn plain(value: Value, typed: Option<Typed<'_>>) -> Value {
    match value {
        value if typed.is_some_and(Typed::is_free) => value,
        Value::Object(object) => Value::Object(plain_object(object, typed)),
        Value::Array(list) => Value::Array(plain_list(list, typed)),
        scalar => scalar,
    }
}

fn plain_object(object: Map<String, Value>, typed: Option<Typed<'_>>) -> Map<String, Value> {
    object
        .into_iter()
        .filter(|(key, value)| {
            let is_directive = key == PATCH
                || key == RETAIN_KEYS
                || key.starts_with(SET_ELEMENT_ORDER)
                || key.starts_with(DELETE_FROM_PRIMITIVE_LIST);
            !is_directive && !value.is_null() && !value.as_object().is_some_and(is_deletion)
        })
        .map(|(key, value)| {
            let (typed, _) = member(typed, &key);
            let value = plain(value, typed);
            (key, value)
        })
        .collect()
}

fn plain_list(list: Vec<Value>, typed: Option<Typed<'_>>) -> Vec<Value> {
    let items = typed.and_then(Typed::items);
    list.into_iter()
        .filter(|entry| entry.get(PATCH).is_none())
        .map(|entry| plain(entry, items))
        .collect()
}
