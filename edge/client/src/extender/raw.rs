//! Keeps objects as the API server sent them, for requests that contain whole objects.
//!
//! The scheduler keeps small types with only the fields that it reads, but extenders receive complete objects. This
//! module keeps the JSON of the objects that a request may contain: pending pods; all pods if an extender receives
//! complete victims; nodes if an extender does not cache nodes itself. Without such an extender it keeps nothing.

use super::ExtenderError;
use berth_api::{Kind, Object, Str};
use serde::Deserialize;
use serde_json::value::{RawValue, to_raw_value};
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};

/// The JSON of one object.
pub type ObjectJson = Arc<RawValue>;

/// The objects whose JSON is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WantedJson {
    /// Pods that wait for a node.
    pub pending_pods: bool,
    /// All pods.
    pub all_pods: bool,
    /// Nodes.
    pub nodes: bool,
}

impl WantedJson {
    /// The union of both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            pending_pods: self.pending_pods || other.pending_pods,
            all_pods: self.all_pods || other.all_pods,
            nodes: self.nodes || other.nodes,
        }
    }

    fn wants(self, object: &Object) -> bool {
        match object {
            Object::Pod(pod) => self.all_pods || (self.pending_pods && !pod.is_assigned()),
            Object::Node(_) => self.nodes,
            _ => false,
        }
    }
}

/// The JSON that is kept. The watch of the cluster stores it here before the scheduler receives the object.
#[derive(Debug, Default)]
pub struct RawObjects {
    wanted: WantedJson,
    /// By UID.
    pods: Mutex<HashMap<Str, ObjectJson>>,
    /// By name.
    nodes: Mutex<HashMap<Str, ObjectJson>>,
}

impl RawObjects {
    /// Keeps the objects that `wanted` selects.
    pub fn new(wanted: WantedJson) -> Self {
        Self {
            wanted,
            ..Self::default()
        }
    }

    /// The objects that are kept.
    pub fn wanted(&self) -> WantedJson {
        self.wanted
    }

    /// Returns whether the JSON of some objects of a kind is kept.
    pub fn keeps(&self, kind: Kind) -> bool {
        match kind {
            Kind::Pod => self.wanted.pending_pods || self.wanted.all_pods,
            Kind::Node => self.wanted.nodes,
            _ => false,
        }
    }

    /// The JSON of an object as it is to be kept; `None` when it is not. Managed fields are left out,
    /// as it is in kube-scheduler.
    pub fn of(&self, object: &Object, json: &[u8]) -> Option<ObjectJson> {
        self.wanted.wants(object).then(|| trimmed(json)).flatten()
    }

    /// All objects of a kind, each with its JSON if it is to be kept.
    pub fn replace<'a>(
        &self,
        kind: Kind,
        objects: impl Iterator<Item = (&'a Object, Option<&'a ObjectJson>)>,
    ) {
        let map = match kind {
            Kind::Pod => &self.pods,
            Kind::Node => &self.nodes,
            _ => return,
        };
        let kept = objects.filter_map(|(object, raw)| Some((key(object)?, raw?.clone())));
        *locked(map) = kept.collect();
    }

    /// An object is new, has changed, or was deleted: then without JSON.
    pub fn set(&self, object: &Object, raw: Option<ObjectJson>) {
        let map = match object {
            Object::Pod(_) => &self.pods,
            Object::Node(_) => &self.nodes,
            _ => return,
        };
        let Some(key) = key(object) else { return };
        match raw {
            Some(raw) => locked(map).insert(key, raw),
            None => locked(map).remove(&key),
        };
    }

    /// A pod, by UID.
    ///
    /// # Errors
    /// When it was deleted.
    pub fn pod(&self, uid: &str) -> Result<ObjectJson, ExtenderError> {
        let pod = locked(&self.pods).get(uid).cloned();
        pod.ok_or_else(|| ExtenderError::Gone(format!("pod with UID {uid}")))
    }

    /// Nodes, by name; deleted ones are left out.
    pub fn nodes(&self, names: &[Str]) -> Vec<ObjectJson> {
        let nodes = locked(&self.nodes);
        names
            .iter()
            .filter_map(|name| nodes.get(name).cloned())
            .collect()
    }

    /// The number of pods that and nodes are kept.
    #[cfg(test)]
    pub(super) fn counts(&self) -> (usize, usize) {
        (locked(&self.pods).len(), locked(&self.nodes).len())
    }
}

/// The key of an object.
fn key(object: &Object) -> Option<Str> {
    match object {
        Object::Pod(pod) => Some(pod.uid().clone()),
        Object::Node(node) => Some(node.metadata.name.clone()),
        _ => None,
    }
}

/// No holder of the lock can panic halfway through a change.
fn locked<T>(map: &Mutex<T>) -> MutexGuard<'_, T> {
    map.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// The JSON without `metadata.managedFields`; `None` if it is not an object.
fn trimmed(json: &[u8]) -> Option<ObjectJson> {
    type Fields<'a> = BTreeMap<Key<'a>, &'a RawValue>;
    #[derive(Deserialize, serde::Serialize, PartialEq, Eq, PartialOrd, Ord)]
    struct Key<'a>(#[serde(borrow)] Cow<'a, str>);

    let key = |name: &'static str| Key(Cow::Borrowed(name));
    let mut fields: Fields<'_> = serde_json::from_slice(json).ok()?;
    let metadata = match fields.get(&key("metadata")) {
        Some(metadata) => {
            let mut metadata: Fields<'_> = serde_json::from_str(metadata.get()).ok()?;
            metadata.remove(&key("managedFields"));
            Some(to_raw_value(&metadata).ok()?)
        }
        None => None,
    };
    if let Some(metadata) = &metadata {
        fields.insert(key("metadata"), metadata);
    }
    to_raw_value(&fields).ok().map(ObjectJson::from)
}
