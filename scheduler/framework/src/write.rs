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

mod call_type;
#[cfg(test)]
mod tests;

pub use call_type::{
    CallType, Lane, Merge, MergeError, POD_BINDING, POD_DELETION, POD_STATUS_PATCH,
};

use crate::object_name::{ObjectKey, ObjectName};
use berth_api::{Object, ObjectMeta, Pod, RawJson, Str};
use serde_json::Value;
use std::fmt;
use std::sync::Arc;

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
                kind: call_type.kind(),
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
