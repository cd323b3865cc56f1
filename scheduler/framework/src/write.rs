//! Writes to API objects: the calls that plugins make, and the types of calls that they register (KEP-5229).
//!
//! A [`Write`] is a value: the object, the body, the version of the object for which it is valid, and the object as the
//! API shows it afterwards. Its [`CallType`] has the properties of all writes of a type that the dispatcher needs. A
//! plugin registers the types of its calls with
//! [`ExtensionsBuilder::calls`](crate::registry::ExtensionsBuilder::calls), passes writes to
//! [`Outbox::call`](crate::stage::Outbox::call), and receives their results as
//! [`WakeReason::Call`](crate::stage::WakeReason::Call).
//!
//! ```
//! use berth_api::Kind;
//! use berth_framework::write::{CallType, Merge, Write};
//! use serde_json::json;
//!
//! /// Annotations of nodes. Two that wait for one node become one request.
//! static NODE_NOTE: CallType = CallType::new("node_note", Kind::Node).merging(Merge::Patches);
//!
//! let body = json!({"metadata": {"annotations": {"example.com/warm-up": "requested"}}});
//! let write = Write::patch(&NODE_NOTE, "", "n1", body);
//! assert_eq!(write.call_type().name(), "node_note");
//! ```

use crate::call::{ObjectKey, ObjectName};
use berth_api::{Kind, Object, ObjectMeta, Pod, RawJson, Str};
use serde_json::Value;
use std::fmt;
use std::ptr;
use std::sync::Arc;

/// The lane of a call. Each lane has a share of the calls that may be in flight; higher lanes are sent first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Lane {
    /// Bindings.
    Binding,
    /// Evictions of preemption victims.
    Deletion,
    /// Writes of other objects: volumes, claims, and whatever plugins register.
    Write,
    /// Conditions and nominations of pods.
    Status,
}

impl Lane {
    /// All lanes, highest first.
    pub const ALL: [Self; 4] = [Self::Binding, Self::Deletion, Self::Write, Self::Status];
}

/// The reason why two writes cannot be merged into one call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MergeError {
    /// One of them is no merge patch.
    #[error("only merge patches can be merged")]
    NoPatch,
    /// They patch different subresources.
    #[error("one call cannot patch two subresources, {older:?} and {newer:?}")]
    Subresources {
        /// The subresource of the older write.
        older: &'static str,
        /// The subresource of the newer write.
        newer: &'static str,
    },
    /// Both are to be made, the older one first.
    #[error("both writes are made, one after the other")]
    Separate,
    /// The function of the type refuses them.
    #[error("{0}")]
    Refused(String),
}

impl From<&str> for MergeError {
    fn from(text: &str) -> Self {
        Self::Refused(text.to_owned())
    }
}

/// The handling of a waiting write when a newer one of its type is made for the same object. Two equal writes always
/// become one call with one result.
#[derive(Debug, Clone, Copy)]
pub enum Merge {
    /// The newer write replaces the older one.
    Replace,
    /// Both are merge patches and become one; where they set the same field, the newer one takes precedence.
    Patches,
    /// The function makes one write of the older and the newer one. After [`MergeError::Separate`], the newer write waits
    /// behind the older one; another error fails the newer write.
    With(fn(&Write, &Write) -> Result<Write, MergeError>),
}

/// A type of API calls. A plugin declares each of its types as a `static`.
#[derive(Debug, Clone, Copy)]
pub struct CallType {
    name: &'static str,
    kind: Kind,
    relevance: u8,
    lane: Lane,
    merge: Merge,
    holds_after: Option<fn(&Write, &Write) -> bool>,
}

/// `pod_status_patch`: conditions and nominated node of a pod.
pub static POD_STATUS_PATCH: CallType = CallType::of_pods("pod_status_patch", 1, Lane::Status);
/// `pod_binding`.
pub static POD_BINDING: CallType = CallType::of_pods("pod_binding", 2, Lane::Binding);
/// `pod_deletion`: evictions.
pub static POD_DELETION: CallType = CallType::of_pods("pod_deletion", 3, Lane::Deletion);

impl CallType {
    /// A type of writes to objects of a kind, with relevance 1 and [`Merge::Replace`]. `name` is the `call_type` label
    /// of the metrics, such as `resource_claim_update`.
    pub const fn new(name: &'static str, kind: Kind) -> Self {
        Self {
            name,
            kind,
            relevance: 1,
            lane: Lane::Write,
            merge: Merge::Replace,
            holds_after: None,
        }
    }

    const fn of_pods(name: &'static str, relevance: u8, lane: Lane) -> Self {
        Self {
            name,
            kind: Kind::Pod,
            relevance,
            lane,
            merge: Merge::Replace,
            holds_after: None,
        }
    }

    /// With another relevance. Of two calls about one object, the more relevant one takes precedence and the other is
    /// dropped. No two types of a kind have the same relevance; status patches, bindings and deletions of pods have 1,
    /// 2 and 3.
    #[must_use]
    pub const fn with_relevance(mut self, relevance: u8) -> Self {
        self.relevance = relevance;
        self
    }

    /// With another merge rule.
    #[must_use]
    pub const fn merging(mut self, merge: Merge) -> Self {
        self.merge = merge;
        self
    }

    /// Lets a write be valid for the version that an earlier write of the type creates, if the function returns true
    /// for the earlier and the later write. A waiting write is then sent for that version. Without it, the first of
    /// several writes for a version succeeds, and the others fail with a conflict.
    #[must_use]
    pub const fn holding_after(mut self, holds_after: fn(&Write, &Write) -> bool) -> Self {
        self.holds_after = Some(holds_after);
        self
    }

    /// The `call_type` label of the metrics.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The kind of the objects that such calls are about.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// See [`Self::with_relevance`].
    pub fn relevance(&self) -> u8 {
        self.relevance
    }

    /// The lane of calls of this type.
    pub fn lane(&self) -> Lane {
        self.lane
    }
}

/// Types are distinguished by name.
impl PartialEq for CallType {
    fn eq(&self, other: &Self) -> bool {
        ptr::eq(self, other) || self.name == other.name
    }
}

impl Eq for CallType {}

/// The effect of a write on its object.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Creates the object.
    Create(Value),
    /// Replaces the whole object. Only for kinds whose fields the plugin knows completely.
    Update(Value),
    /// Changes some fields by a JSON merge patch (RFC 7396): lists are replaced as a whole.
    Patch(Value),
    /// Changes some fields by a strategic merge patch: lists are merged by their keys. Not for custom resources.
    StrategicPatch(Value),
    /// Deletes the object.
    Delete,
}

type EffectFn = dyn Fn(&Object) -> Object + Send + Sync;

/// The object after the API shows a write: a function of the object that changes nothing when it is called
/// again.
#[derive(Clone)]
struct WriteEffect(Arc<EffectFn>);

impl fmt::Debug for WriteEffect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Effect")
    }
}

/// An edit of a placed pod that the API does not show yet ([`Outbox::count`](crate::stage::Outbox::count)).
#[derive(Clone)]
pub struct PodEdit(Arc<dyn Fn(&mut Pod) + Send + Sync>);

impl PodEdit {
    /// An edit by a function. The function must be idempotent: it is called again for each update of the pod.
    pub fn new(edit: impl Fn(&mut Pod) + Send + Sync + 'static) -> Self {
        Self(Arc::new(edit))
    }

    /// Edits a pod.
    pub fn apply(&self, pod: &mut Pod) {
        (self.0)(pod);
    }
}

impl fmt::Debug for PodEdit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PodEdit")
    }
}

/// A write to one API object.
#[derive(Debug, Clone)]
pub struct Write {
    call_type: &'static CallType,
    object: ObjectName,
    /// Empty: any object with the name.
    uid: Str,
    /// `None`: whatever its version.
    resource_version: Option<Str>,
    /// The version of the object for which the write is assumed; the write itself is for any version.
    assumed_of: Option<Str>,
    subresource: &'static str,
    action: Arc<Action>,
    effect: Option<WriteEffect>,
    created: Option<Object>,
    raw: Option<Arc<[RawField]>>,
}

/// A JSON pointer into the body of a write, and the text of the JSON in its place.
pub type RawField = (String, RawJson);

impl Write {
    /// A write to the object of that name; `namespace` is empty for cluster-scoped kinds, and `name` when the API
    /// server is to make one up for a new object.
    pub fn new(call_type: &'static CallType, namespace: &str, name: &str, action: Action) -> Self {
        Self {
            call_type,
            object: ObjectName {
                kind: call_type.kind,
                namespace: namespace.into(),
                name: name.into(),
            },
            uid: Str::default(),
            resource_version: None,
            assumed_of: None,
            subresource: "",
            action: Arc::new(action),
            effect: None,
            created: None,
            raw: None,
        }
    }

    /// A JSON merge patch of the object of that name; see [`Action::Patch`].
    pub fn patch(call_type: &'static CallType, namespace: &str, name: &str, body: Value) -> Self {
        Self::new(call_type, namespace, name, Action::Patch(body))
    }

    /// Holds for the object with this identity only, and not for another one of its name.
    #[must_use]
    pub fn of(mut self, metadata: &ObjectMeta) -> Self {
        self.uid = metadata.uid.clone();
        self
    }

    /// Applies to this version of the object only: if another client has changed the object since, the write fails with
    /// [`Conflict`](crate::call::CallErrorKind::Conflict), and the decision has to be made again.
    #[must_use]
    pub fn of_version(mut self, metadata: &ObjectMeta) -> Self {
        self.resource_version = Some(metadata.resource_version.clone());
        self.of(metadata)
    }

    /// Is assumed for this version of the object only, although the write applies to every version: a later version
    /// from the watch ends the assumption.
    #[must_use]
    pub fn assumed_of_version(mut self, metadata: &ObjectMeta) -> Self {
        self.assumed_of = Some(metadata.resource_version.clone());
        self.of(metadata)
    }

    /// Writes to a subresource, such as `status`.
    #[must_use]
    pub fn to_subresource(mut self, subresource: &'static str) -> Self {
        self.subresource = subresource;
        self
    }

    /// Computes the object once the write is made. With that, the scheduler can show it so before the API does
    /// ([`Outbox::assume`](crate::stage::Outbox::assume)), and can recognise that the object shows the write already:
    /// then the call is not needed. The function must change nothing of an object that it has changed before.
    #[must_use]
    pub fn seen_as(mut self, effect: impl Fn(&Object) -> Object + Send + Sync + 'static) -> Self {
        self.effect = Some(WriteEffect(Arc::new(effect)));
        self
    }

    /// States that the object need not exist yet, and how it looks when it is created. [`Self::seen_as`] applies to
    /// that.
    #[must_use]
    pub fn creating(mut self, object: Object) -> Self {
        self.created = Some(object);
        self
    }

    /// Keeps all bytes of the object that the patch does not change. An API server that applies a patch encodes the
    /// whole object again, and rejects the patch if it compares immutable fields as bytes (`RawExtension`, such as the
    /// parameters of device drivers). Berth therefore reads, changes and replaces the object. `fields` are such byte
    /// values in the body.
    #[must_use]
    pub fn keeping_bytes(mut self, fields: impl IntoIterator<Item = RawField>) -> Self {
        self.raw = Some(fields.into_iter().collect());
        self
    }

    /// The values in the body that are written byte for byte, for a write that keeps the remaining bytes
    /// ([`Self::keeping_bytes`]); `None` for other writes.
    pub fn raw_fields(&self) -> Option<&Arc<[RawField]>> {
        self.raw.as_ref()
    }

    /// The object as it looks when it is created, if it need not exist yet.
    pub fn created(&self) -> Option<&Object> {
        self.created.as_ref()
    }

    /// Its type.
    pub fn call_type(&self) -> &'static CallType {
        self.call_type
    }

    /// The object.
    pub fn object(&self) -> &ObjectName {
        &self.object
    }

    /// The identity that the object must have; empty for any.
    pub fn uid(&self) -> &Str {
        &self.uid
    }

    /// The version that the object must have; `None` for any.
    pub fn resource_version(&self) -> Option<&Str> {
        self.resource_version.as_ref()
    }

    /// The subresource; empty for the object itself.
    pub fn subresource(&self) -> &'static str {
        self.subresource
    }

    /// The action.
    pub fn action(&self) -> &Action {
        &self.action
    }

    /// The key of calls about the object: its identity, or its name where that is not known.
    pub fn key(&self) -> ObjectKey {
        let uid = if self.uid.is_empty() {
            // No identity has a slash.
            Str::from(format!("{}/{}", self.object.namespace, self.object.name))
        } else {
            self.uid.clone()
        };
        ObjectKey {
            kind: self.object.kind,
            uid,
        }
    }

    /// Returns whether this version of the object can be shown as if the write had been made: it is the right object,
    /// and not newer than the version that the write holds for.
    pub fn comes_after(&self, metadata: &ObjectMeta) -> bool {
        self.is_about(metadata)
            && self
                .resource_version
                .as_ref()
                .or(self.assumed_of.as_ref())
                .is_none_or(|version| !metadata.is_newer_than(version))
    }

    /// Returns whether the write can be assumed for this object: it is later than the object, and changes how the
    /// object looks. A write without a change creates no later version that could end the assumption.
    pub fn is_ahead_of(&self, object: &Object) -> bool {
        self.comes_after(object.metadata()) && !self.is_shown_by(object)
    }

    /// Returns whether this version of the object is later than the version of the write.
    pub fn is_outdated_by(&self, version: &str) -> bool {
        let holds_for = self.resource_version.as_deref();
        let version = ObjectMeta {
            resource_version: version.into(),
            ..ObjectMeta::default()
        };
        holds_for.is_some_and(|holds_for| version.is_newer_than(holds_for))
    }

    fn is_about(&self, metadata: &ObjectMeta) -> bool {
        self.uid.is_empty() || metadata.uid == self.uid
    }

    /// Returns whether the object contains the written values.
    pub fn is_shown_by(&self, object: &Object) -> bool {
        if !self.is_about(object.metadata()) {
            return false;
        }
        match (&self.effect, object, &*self.action) {
            (Some(effect), object, _) => (effect.0)(object) == *object,
            (None, Object::Custom(custom), Action::Patch(patch)) => contains(&custom.value, patch),
            (None, ..) => false,
        }
    }

    /// The object as it will look once the API shows the write. Without a function for that, the patch of a custom object is
    /// applied, and other objects are unchanged.
    #[must_use]
    pub fn applied_to(&self, object: &Object) -> Object {
        match (&self.effect, object, &*self.action) {
            (Some(effect), object, _) => (effect.0)(object),
            (None, Object::Custom(custom), Action::Patch(patch)) => {
                let mut patched = custom.clone();
                apply_patch(&mut Arc::make_mut(&mut patched).value, patch);
                Object::Custom(patched)
            }
            (None, ..) => object.clone(),
        }
    }

    /// This write for the version that an earlier write of its type has made, if it holds for that version; see
    /// [`CallType::holding_after`].
    pub fn for_version_of(&self, earlier: &Self, made: &Str) -> Option<Self> {
        let holds_after = self.call_type.holds_after?;
        let is_same = self.call_type == earlier.call_type
            && self.uid == earlier.uid
            && self.resource_version.is_some()
            && self.resource_version == earlier.resource_version;
        (is_same && holds_after(earlier, self)).then(|| Self {
            resource_version: Some(made.clone()),
            ..self.clone()
        })
    }

    /// Returns whether other writes may hold for the version that this one makes.
    pub fn may_be_followed(&self) -> bool {
        self.call_type.holds_after.is_some() && self.resource_version.is_some()
    }

    /// This write after an older one of its type that has not been sent.
    ///
    /// # Errors
    /// The reason why one call cannot do both.
    pub fn after(self, older: &Self) -> Result<Self, MergeError> {
        match self.call_type.merge {
            Merge::Replace => Ok(self),
            Merge::With(merge) => merge(older, &self),
            Merge::Patches => self.patched_after(older),
        }
    }

    fn patched_after(self, older: &Self) -> Result<Self, MergeError> {
        let (Action::Patch(first), Action::Patch(second)) = (&*older.action, &*self.action) else {
            return Err(MergeError::NoPatch);
        };
        if older.subresource != self.subresource {
            return Err(MergeError::Subresources {
                older: older.subresource,
                newer: self.subresource,
            });
        }
        let mut body = first.clone();
        merge_patches(&mut body, second);
        let effect = match (older.effect.clone(), self.effect.clone()) {
            (Some(first), Some(second)) => {
                let both = move |object: &Object| (second.0)(&(first.0)(object));
                Some(WriteEffect(Arc::new(both)))
            }
            // The state of one of them is unknown.
            _ => None,
        };
        Ok(Self {
            action: Arc::new(Action::Patch(body)),
            effect,
            ..self
        })
    }
}

/// The expected object after a write is not part of the request, so it is not compared.
impl PartialEq for Write {
    fn eq(&self, other: &Self) -> bool {
        self.call_type == other.call_type
            && self.object == other.object
            && self.uid == other.uid
            && self.resource_version == other.resource_version
            && self.subresource == other.subresource
            && self.action == other.action
            && self.raw == other.raw
    }
}

impl Eq for Write {}

/// Makes one merge patch of two: applying it is the same as applying first `patch`, then `newer` (RFC 7396).
fn merge_patches(patch: &mut Value, newer: &Value) {
    match (patch, newer) {
        (Value::Object(fields), Value::Object(newer)) => {
            for (name, value) in newer {
                match fields.get_mut(name) {
                    Some(field) if field.is_object() && value.is_object() => {
                        merge_patches(field, value);
                    }
                    _ => {
                        fields.insert(name.clone(), value.clone());
                    }
                }
            }
        }
        (patch, newer) => *patch = newer.clone(),
    }
}

/// Applies a merge patch (RFC 7386).
fn apply_patch(object: &mut Value, patch: &Value) {
    let Value::Object(fields) = patch else {
        *object = patch.clone();
        return;
    };
    if !object.is_object() {
        *object = Value::Object(serde_json::Map::new());
    }
    let Value::Object(object) = object else {
        return;
    };
    for (name, value) in fields {
        if value.is_null() {
            object.remove(name);
        } else {
            apply_patch(object.entry(name.clone()).or_insert(Value::Null), value);
        }
    }
}

/// Returns whether an object looks as if the merge patch had been applied to it.
fn contains(object: &Value, patch: &Value) -> bool {
    match patch {
        Value::Object(fields) => fields.iter().all(|(name, value)| match object.get(name) {
            Some(field) => contains(field, value),
            None => value.is_null(),
        }),
        value => object == value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::node;
    use berth_api::CustomKind;
    use serde_json::json;

    static NOTE: CallType = CallType::new("note", Kind::Node).merging(Merge::Patches);

    fn note(key: &'static str, value: &'static str) -> Write {
        let body = json!({"metadata": {"annotations": {key: value}}});
        Write::patch(&NOTE, "", "n", body).seen_as(move |object| match object {
            Object::Node(node) => {
                let mut node = berth_api::Node::clone(node);
                node.metadata.annotations = node.metadata.annotations.with(key, value);
                Object::Node(Arc::new(node))
            }
            other => other.clone(),
        })
    }

    /// D-7: two patches that wait become one, and the object looks as after both.
    #[test]
    fn patches_become_one() {
        for (older, newer, body) in [
            (note("a", "1"), note("b", "2"), json!({"a": "1", "b": "2"})),
            (note("a", "1"), note("a", "2"), json!({"a": "2"})),
        ] {
            let both = newer.clone().after(&older).expect("patches merge");
            let expected = json!({"metadata": {"annotations": body}});
            assert_eq!(both.action(), &Action::Patch(expected));
            let stored = node("n").object();
            let after = both.applied_to(&stored);
            assert_eq!(after, newer.applied_to(&older.applied_to(&stored)));
            assert!(both.is_shown_by(&after) && !both.is_shown_by(&stored));
        }
        let status = note("b", "2").to_subresource("status");
        let error = status.after(&note("a", "1")).unwrap_err();
        assert_eq!(
            error.to_string(),
            "one call cannot patch two subresources, \"\" and \"status\""
        );
        let gone = Write::new(&NOTE, "", "n", Action::Delete);
        assert!(gone.after(&note("a", "1")).is_err());
    }

    #[test]
    fn of_two_patches_the_newer_field_counts() {
        for (patch, newer, both) in [
            (
                json!({"a": {"b": 1}}),
                json!({"a": {"c": 2}}),
                json!({"a": {"b": 1, "c": 2}}),
            ),
            (
                json!({"a": {"b": 1}}),
                json!({"a": null}),
                json!({"a": null}),
            ),
            (
                json!({"a": null}),
                json!({"a": {"b": 1}}),
                json!({"a": {"b": 1}}),
            ),
            (json!({"a": [1, 2]}), json!({"a": [3]}), json!({"a": [3]})),
        ] {
            let mut merged = patch.clone();
            merge_patches(&mut merged, &newer);
            assert_eq!(merged, both, "{patch} then {newer}");
        }
    }

    /// D-8: objects that are kept whole show a patch by themselves.
    #[test]
    fn a_custom_object_shows_its_patch() {
        static KIND: CustomKind = CustomKind {
            plural: "racks",
            version: "v1",
            group: "example.com",
        };
        static RACK: CallType = CallType::new("rack", Kind::Custom(KIND));
        let object = |spec: Value| {
            let json = json!({"metadata": {"name": "r", "uid": "u"}, "spec": spec}).to_string();
            Kind::Custom(KIND).decode(json.as_bytes()).expect("a rack")
        };
        let write = Write::patch(&RACK, "", "r", json!({"spec": {"pods": 2, "note": null}}));
        for (spec, shown) in [
            (json!({"pods": 2}), true),
            (json!({"pods": 2, "other": true}), true),
            (json!({"pods": 3}), false),
            (json!({"pods": 2, "note": "x"}), false),
        ] {
            let stored = object(spec.clone());
            assert_eq!(write.is_shown_by(&stored), shown, "{spec}");
            let applied = write.applied_to(&stored);
            assert!(write.is_shown_by(&applied), "{spec}");
            let Object::Custom(applied) = applied else {
                panic!("{applied:?}");
            };
            let other = applied.value.pointer("/spec/other");
            assert_eq!(other, spec.get("other"), "only the patch changes {spec}");
        }
        let other = ObjectMeta {
            uid: "another".into(),
            ..ObjectMeta::default()
        };
        assert!(!write.of(&other).is_shown_by(&object(json!({"pods": 2}))));
    }

    /// PL-145: a newer update replaces the assumption, an older one does not.
    #[test]
    fn a_write_comes_after_the_version_that_it_holds_for() {
        let meta = |uid: &str, version: &str| ObjectMeta {
            uid: uid.into(),
            resource_version: version.into(),
            ..ObjectMeta::default()
        };
        let write = note("a", "1").of_version(&meta("u", "5"));
        for (uid, version, holds) in [
            ("u", "5", true),
            ("u", "4", true),
            ("u", "6", false),
            ("v", "5", false),
        ] {
            assert_eq!(
                write.comes_after(&meta(uid, version)),
                holds,
                "{uid} {version}"
            );
        }
        assert!(note("a", "1").comes_after(&meta("u", "9")), "any version");
        assert_eq!(write.key().uid, "u");
        assert_eq!(note("a", "1").key().uid, "/n", "its name stands for it");
    }
}
