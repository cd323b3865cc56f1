//! The state of the API server: the objects and, for each kind, every change in order.

use super::{Others, WatchEvent};
use berth_api::{Kind, Node, Object, ObjectMeta, Pod, Str};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The objects of the simulated API server.
#[derive(Debug, Default)]
pub struct Store {
    version: u64,
    uids: u64,
    /// By name, which is unique across namespaces.
    pods: BTreeMap<Str, Arc<Pod>>,
    nodes: BTreeMap<Str, Arc<Node>>,
    others: Others,
    logs: BTreeMap<Kind, Vec<WatchEvent>>,
}

impl Store {
    /// Pods by name.
    pub fn pods(&self) -> &BTreeMap<Str, Arc<Pod>> {
        &self.pods
    }

    /// Nodes by name.
    pub fn nodes(&self) -> &BTreeMap<Str, Arc<Node>> {
        &self.nodes
    }

    /// Everything that is neither pod nor node.
    pub fn others(&self) -> &Others {
        &self.others
    }

    pub(super) fn set_quota_waits(&mut self, waits: BTreeSet<Str>) {
        self.others.set_quota_waits(waits);
    }

    /// Counts the changes of the world.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Every change of the objects of a kind, in order.
    pub fn log(&self, kind: Kind) -> &[WatchEvent] {
        self.logs.get(&kind).map_or(&[], Vec::as_slice)
    }

    /// All objects of a kind.
    pub fn list(&self, kind: Kind) -> Vec<Object> {
        match kind {
            Kind::Pod => self.pods.values().cloned().map(Object::Pod).collect(),
            Kind::Node => self.nodes.values().cloned().map(Object::Node).collect(),
            kind => self.others.of_kind(kind).cloned().collect(),
        }
    }

    /// Identity and version of a new object.
    pub(super) fn create(&mut self, metadata: &mut ObjectMeta) {
        self.uids += 1;
        metadata.uid = Str::from(format!("uid-{}", self.uids));
        self.change(metadata);
    }

    /// The next version of an object.
    pub(super) fn change(&mut self, metadata: &mut ObjectMeta) {
        self.version += 1;
        metadata.resource_version = Str::from(self.version.to_string());
    }

    /// Stores an object, replacing the object of the same name.
    pub(super) fn put(&mut self, object: Object) {
        match &object {
            Object::Pod(pod) => drop(self.pods.insert(pod.name().clone(), pod.clone())),
            Object::Node(node) => drop(self.nodes.insert(node.name().clone(), node.clone())),
            other => self.others.put(other.clone()),
        }
        self.note(WatchEvent::Applied(object));
    }

    /// Removes an object, given its last state.
    pub(super) fn remove(&mut self, object: Object) {
        let name = &object.metadata().name;
        match &object {
            Object::Pod(_) => drop(self.pods.remove(name)),
            Object::Node(_) => drop(self.nodes.remove(name)),
            other => self.others.remove(other),
        }
        self.note(WatchEvent::Deleted(object));
    }

    fn note(&mut self, event: WatchEvent) {
        self.logs.entry(event.kind()).or_default().push(event);
    }
}
