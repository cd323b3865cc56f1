//! Server-side apply: the owners of the fields of an object, and the merge of an applied configuration.
//!
//! Ownership is stored in `metadata.managedFields`. An update becomes the owner of the fields that it changes. An
//! applied configuration owns the fields that it sets, conflicts with other owners of fields that it changes, and
//! removes fields that its manager applied before and no other manager owns. See KEP-555.

mod conflicts;
mod fields;
mod last_applied;
mod resource;
mod typed;

use crate::validation::errors::{json_text, struct_text};
use crate::view::{FieldView, meta, meta_mut};
pub use conflicts::{Conflict, conflict_message};
use conflicts::{LostFields, conflicts};
use fields::FieldSet;
pub use last_applied::renew_last_applied;
use rustc_hash::{FxHashMap, FxHashSet};
use serde_json::{Map, Value};
use std::borrow::Cow;
pub(crate) use typed::Typed;

/// At most 10 managers of updates have separate entries; older ones are merged.
const UPDATE_MANAGERS_MAX: usize = 10;
/// The only form of fields that entries have.
const FIELDS_TYPE: &str = "FieldsV1";
/// The manager of merged updates.
const ANCIENT: &str = "ancient-changes";
/// The manager of fields that were set before fields were tracked.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";
/// Fields without an owner.
const UNOWNED: [&[&str]; 11] = [
    &["f:apiVersion"],
    &["f:kind"],
    &["f:metadata", "f:name"],
    &["f:metadata", "f:namespace"],
    &["f:metadata", "f:creationTimestamp"],
    &["f:metadata", "f:selfLink"],
    &["f:metadata", "f:uid"],
    &["f:metadata", "f:clusterName"],
    &["f:metadata", "f:generation"],
    &["f:metadata", "f:managedFields"],
    &["f:metadata", "f:resourceVersion"],
];

/// The author of a change, and the changed part of an object.
#[derive(Debug, Clone, Copy)]
pub struct Author<'a> {
    /// The name of the manager.
    pub manager: &'a str,
    /// Group and version of the request.
    pub api_version: &'a str,
    /// The subresource, empty for the object itself.
    pub subresource: &'a str,
    /// The time of the request, RFC 3339 with seconds.
    pub now: &'a str,
    /// The fields that this part of the object does not write, such as `f:status`.
    pub reset: &'a [&'a [&'a str]],
}

impl Author<'_> {
    /// The time of an entry. Changes of a scale have none, as in kube-apiserver.
    fn time(&self) -> String {
        match self.subresource {
            "scale" => String::new(),
            _ => self.now.to_owned(),
        }
    }
}

/// The reason why a configuration was not applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApplyError {
    /// Other managers own fields that it would change.
    Conflicts(Vec<Conflict>),
    /// It does not fit the type of the object.
    Type(String),
}

/// One entry of `managedFields`.
#[derive(Debug, Clone)]
struct ManagerEntry {
    manager: String,
    applied: bool,
    api_version: String,
    subresource: String,
    time: String,
    set: OwnedFields,
}

/// The fields of an entry. Most writes change few fields of one entry; the text of the other entries is kept unchanged.
#[derive(Debug, Clone)]
enum OwnedFields {
    /// The text of a set that is not empty, as [`FieldSet::text`] writes it.
    Text(String),
    Set(FieldSet),
}

impl OwnedFields {
    fn is_empty(&self) -> bool {
        match self {
            Self::Text(_) => false,
            Self::Set(set) => set.is_empty(),
        }
    }

    fn set(&self) -> Cow<'_, FieldSet> {
        match self {
            Self::Text(text) => Cow::Owned(FieldSet::decode_text(text)),
            Self::Set(set) => Cow::Borrowed(set),
        }
    }

    fn set_mut(&mut self) -> &mut FieldSet {
        if let Self::Text(text) = self {
            *self = Self::Set(FieldSet::decode_text(text));
        }
        match self {
            Self::Set(set) => set,
            // It was made a set right above.
            Self::Text(_) => unreachable!("a set"),
        }
    }

    /// The number of members that it has in common with a set.
    fn common(&self, other: &FieldSet) -> usize {
        match self {
            Self::Text(text) => other.count_in(text),
            Self::Set(_) => None,
        }
        .unwrap_or_else(|| self.set().intersection(other).len())
    }

    fn subtract(&mut self, other: &FieldSet) {
        if self.common(other) > 0 {
            self.set_mut().subtract(other);
        }
    }

    fn add(&mut self, other: FieldSet) {
        if self.common(&other) < other.len() {
            self.set_mut().add(other);
        }
    }

    fn into_set(self) -> FieldSet {
        match self {
            Self::Text(text) => FieldSet::decode_text(&text),
            Self::Set(set) => set,
        }
    }

    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Text(one), Self::Text(other)) if one == other => true,
            (one, other) => one.set() == other.set(),
        }
    }

    fn into_text(self) -> String {
        match self {
            Self::Text(text) => text,
            Self::Set(set) => set.text(),
        }
    }
}

impl ManagerEntry {
    /// An entry as a client has written it.
    fn decode(value: &Value) -> Self {
        let set = FieldSet::decode(value.get("fieldsV1").unwrap_or(&Value::Null));
        Self::read(value, OwnedFields::Set(set))
    }

    /// An entry of a stored object.
    fn stored(value: &Value) -> Self {
        match value.get("fieldsV1") {
            Some(Value::String(text)) => Self::read(value, OwnedFields::Text(text.clone())),
            _ => Self::decode(value),
        }
    }

    fn read(value: &Value, set: OwnedFields) -> Self {
        let text = |field: &str| value.text(field).to_owned();
        Self {
            manager: text("manager"),
            applied: value.text("operation") == "Apply",
            api_version: text("apiVersion"),
            subresource: text("subresource"),
            time: text("time"),
            set,
        }
    }

    fn new(author: &Author<'_>, applied: bool, set: FieldSet) -> Self {
        Self {
            manager: author.manager.to_owned(),
            applied,
            api_version: author.api_version.to_owned(),
            subresource: author.subresource.to_owned(),
            time: author.time(),
            set: OwnedFields::Set(set),
        }
    }

    fn encode(self) -> Value {
        let operation = if self.applied { "Apply" } else { "Update" };
        let mut entry = Map::new();
        for (field, value) in [
            ("manager", self.manager),
            ("operation", operation.to_owned()),
            ("apiVersion", self.api_version),
            ("fieldsType", FIELDS_TYPE.to_owned()),
            ("fieldsV1", self.set.into_text()),
        ] {
            entry.insert(field.to_owned(), value.into());
        }
        for (field, value) in [("time", self.time), ("subresource", self.subresource)] {
            if !value.is_empty() {
                entry.insert(field.to_owned(), value.into());
            }
        }
        entry.into()
    }

    /// Returns whether this is the entry of an author. An applier has one entry for all versions.
    fn is_of(&self, author: &Author<'_>, applied: bool) -> bool {
        self.manager == author.manager
            && self.applied == applied
            && self.subresource == author.subresource
            && (applied || self.api_version == author.api_version)
    }

    /// The order of entries: appliers first, then by time.
    fn order(&self) -> impl Ord + '_ {
        (
            !self.applied,
            &self.time,
            &self.manager,
            &self.api_version,
            &self.subresource,
        )
    }

    /// Returns whether two entries are equal but for their times.
    fn differs_in_time_only(&self, other: &Self) -> bool {
        self.manager == other.manager
            && self.applied == other.applied
            && self.api_version == other.api_version
            && self.subresource == other.subresource
            && self.set.is_same(&other.set)
    }

    /// kube-apiserver's identifier of the manager, also its sort key.
    fn identity(&self) -> String {
        let operation = if self.applied { "Apply" } else { "Update" };
        let mut fields = vec![
            ("manager", json_text(self.manager.as_str())),
            ("operation", json_text(operation)),
        ];
        if !self.applied {
            fields.push(("apiVersion", json_text(self.api_version.as_str())));
        }
        if !self.subresource.is_empty() {
            fields.push(("subresource", json_text(self.subresource.as_str())));
        }
        struct_text(&fields)
    }

    /// The manager as conflicts name it to an author. A scale shows the version of `Scale`.
    fn shown(&self, author: &Author<'_>) -> String {
        let mut text = format!("{:?}", self.manager);
        if !self.subresource.is_empty() {
            text += &format!(" with subresource {:?}", self.subresource);
        }
        if !self.applied {
            let version = match author.subresource {
                "scale" => "autoscaling/v1",
                _ => &self.api_version,
            };
            text += &format!(" using {version}");
        }
        text
    }
}

/// `managedFields`.
fn managed(object: &Value) -> &[Value] {
    object.part("metadata").items("managedFields")
}

/// The entries of a stored object.
fn entries(object: &Value) -> Vec<ManagerEntry> {
    managed(object).iter().map(ManagerEntry::stored).collect()
}

/// The entries of a write. Entries that equal stored ones are not read.
fn given_entries(given: &[Value], old: &Value) -> Vec<ManagerEntry> {
    let known = managed(old).iter();
    let known: FxHashSet<&str> = known
        .filter_map(|known| known.get("fieldsV1")?.as_str())
        .collect();
    let is_known = |entry: &Value| {
        let set = entry.get("fieldsV1").and_then(Value::as_str);
        set.is_some_and(|set| known.contains(set))
    };
    let read = |entry: &Value| {
        if is_known(entry) {
            ManagerEntry::stored(entry)
        } else {
            ManagerEntry::decode(entry)
        }
    };
    given.iter().map(read).collect()
}

fn store(object: &mut Value, mut entries: Vec<ManagerEntry>) {
    entries.retain(|entry| !entry.set.is_empty());
    cap(&mut entries);
    entries.sort_by(|a, b| a.order().cmp(&b.order()));
    let meta = meta_mut(object);
    if entries.is_empty() {
        meta.remove("managedFields");
    } else {
        let list: Vec<Value> = entries.into_iter().map(ManagerEntry::encode).collect();
        meta.insert("managedFields".to_owned(), list.into());
    }
}

/// Merges the oldest entries of updates when there are too many.
fn cap(entries: &mut Vec<ManagerEntry>) {
    let mut updates = entries.iter().filter(|e| !e.applied).count();
    if updates <= UPDATE_MANAGERS_MAX {
        return;
    }
    let is_bucket = |e: &ManagerEntry| e.manager == ANCIENT && e.subresource.is_empty();
    // The buckets by their versions.
    let mut buckets: FxHashMap<String, usize> = FxHashMap::default();
    for (i, entry) in entries.iter().enumerate().filter(|(_, e)| is_bucket(e)) {
        buckets.entry(entry.api_version.clone()).or_insert(i);
    }
    let of_managers = entries.iter().enumerate();
    let of_managers = of_managers.filter(|(_, e)| !e.applied && e.manager != ANCIENT);
    let mut by_age: Vec<(String, usize)> = of_managers.map(|(i, e)| (e.time.clone(), i)).collect();
    by_age.sort();
    let mut kept: Vec<Option<ManagerEntry>> = entries.drain(..).map(Some).collect();
    for (_, i) in by_age {
        if updates <= UPDATE_MANAGERS_MAX {
            break;
        }
        let Some(oldest) = kept.get_mut(i).and_then(Option::take) else {
            continue;
        };
        let bucket = buckets.get(&oldest.api_version);
        match bucket.and_then(|bucket| kept.get_mut(*bucket)?.as_mut()) {
            Some(bucket) => {
                bucket.set.add(oldest.set.into_set());
                bucket.time = oldest.time;
                updates -= 1;
            }
            None => {
                // The first entry creates the bucket: the number of entries decreases from the second on.
                buckets.insert(oldest.api_version.clone(), kept.len());
                kept.push(Some(ManagerEntry {
                    manager: ANCIENT.to_owned(),
                    subresource: String::new(),
                    ..oldest
                }));
            }
        }
    }
    entries.extend(kept.into_iter().flatten());
}

fn owned(mut set: FieldSet, author: &Author<'_>) -> FieldSet {
    for path in UNOWNED.iter().chain(author.reset) {
        set.without(path);
    }
    // The metadata object itself has no owner.
    set.without_member("f:metadata");
    set
}

/// Updates the owners of an object's fields after a write that was not an apply. `old` is the object before, or an
/// empty one for a create.
pub fn after_update(typed: Typed<'_>, old: &Value, new: &mut Value, author: &Author<'_>) {
    let given = meta_mut(new).remove("managedFields");
    let given = given.as_ref().and_then(Value::as_array);
    let can_be_read = |entry: &Value| entry.get("fieldsType").is_some_and(|t| t == FIELDS_TYPE);
    // One empty entry clears the owners; a write that does not know the field keeps them.
    let mut managers: Vec<ManagerEntry> = match given.map(Vec::as_slice) {
        _ if !author.subresource.is_empty() => entries(old),
        Some([Value::Object(only)]) if only.is_empty() => Vec::new(),
        Some(list) if !list.is_empty() && list.iter().all(can_be_read) => given_entries(list, old),
        _ => entries(old),
    };
    let is_create = meta(old, "uid").is_empty();
    // An object whose owners were cleared stays without them until something is applied.
    if managers.is_empty() && !is_create {
        store(new, managers);
        return;
    }
    track(typed, old, new, &mut managers, author);
    store(new, managers);
}

fn track(
    typed: Typed<'_>,
    old: &Value,
    new: &Value,
    managers: &mut Vec<ManagerEntry>,
    author: &Author<'_>,
) {
    let found = typed.compare(old, new);
    let removed = owned(found.removed, author);
    let mut changed = found.modified;
    changed.add(found.added);
    let changed = owned(changed, author);
    for entry in managers.iter_mut() {
        entry.set.subtract(&changed);
        entry.set.subtract(&removed);
    }
    if changed.is_empty() {
        return;
    }
    match managers.iter_mut().find(|e| e.is_of(author, false)) {
        Some(entry) => {
            entry.set.add(changed);
            entry.time = author.time();
        }
        None => managers.push(ManagerEntry::new(author, false, changed)),
    }
}

/// Applies a configuration to an object. `live` is the `blank` object of the type when there is none.
///
/// # Errors
/// See [`ApplyError`].
pub fn apply(
    typed: Typed<'_>,
    live: &Value,
    blank: &Value,
    config: &Value,
    author: &Author<'_>,
    force: bool,
) -> Result<Value, ApplyError> {
    let mut managers = entries(live);
    if managers.is_empty() && !meta(live, "uid").is_empty() {
        let before = Author {
            manager: BEFORE_FIRST_APPLY,
            ..*author
        };
        let mut bare = live.clone();
        meta_mut(&mut bare).remove("managedFields");
        track(typed, blank, &bare, &mut managers, &before);
    }
    let given = typed.field_set(config).map_err(ApplyError::Type)?;
    let set = owned(given.clone(), author);
    let mut merged = typed.merge(live, config);
    let position = managers.iter().position(|e| e.is_of(author, true));
    let last = position.map(|i| managers.remove(i));
    if let Some(last) = &last {
        let mut owners = given;
        for entry in &managers {
            owners.add(entry.set.set().into_owned());
        }
        // The fields that this manager applied before, and neither it nor another manager owns now.
        let mut gone = last.set.set().into_owned().with_parents();
        gone.subtract(&owners.with_parents());
        typed.remove(&mut merged, &gone);
    }
    let found = typed.compare(live, &merged);
    let mut changed = found.modified;
    changed.add(found.added);
    let changed = owned(changed, author);
    let mut lost = Vec::new();
    for entry in &mut managers {
        lost.push(LostFields {
            identity: entry.identity(),
            owner: entry.shown(author),
            fields: entry.set.set().intersection(&changed),
        });
        entry.set.subtract(&changed);
        entry.set.subtract(&found.removed);
    }
    lost.retain(|lost| !lost.fields.is_empty());
    if !lost.is_empty() && !force {
        let continued = last_applied::unchanged_fields(typed, live, author);
        let conflicts = conflicts(lost, &continued.unwrap_or_default());
        if !conflicts.is_empty() {
            return Err(ApplyError::Conflicts(conflicts));
        }
    }
    let unchanged = changed.is_empty() && found.removed.is_empty();
    let mut entry = ManagerEntry::new(author, true, set);
    if unchanged {
        entry.time = last.map(|last| last.time).unwrap_or_default();
    }
    managers.push(entry);
    store(&mut merged, managers);
    Ok(merged)
}

/// Returns whether two objects are equal but for the times of their managed fields.
pub fn differ_in_times_only(one: &Value, other: &Value) -> bool {
    fn fields(object: &Value) -> impl Iterator<Item = (&String, &Value)> {
        let fields = object.as_object().into_iter().flatten();
        fields.filter(|(name, _)| *name != "metadata")
    }
    fn metadata(object: &Value) -> impl Iterator<Item = (&String, &Value)> {
        let fields = object.map("metadata");
        let fields = fields.into_iter().flatten();
        fields.filter(|(name, _)| *name != "managedFields")
    }
    let (before, after) = (managed(one), managed(other));
    let is_same = |(one, other): (&Value, &Value)| {
        ManagerEntry::stored(one).differs_in_time_only(&ManagerEntry::stored(other))
    };
    fields(one).eq(fields(other))
        && metadata(one).eq(metadata(other))
        && before.len() == after.len()
        && before.iter().zip(after).all(is_same)
}

#[cfg(test)]
mod tests;
