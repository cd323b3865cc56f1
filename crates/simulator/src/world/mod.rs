//! A cluster's API as schedulers meet it: objects, versions, watches that lag, calls that fail.
//!
//! The world knows nothing of schedulers. It keeps the truth and, for each kind of object, every change in order;
//! [`Watches`] hand out what one scheduler's watches deliver.

mod calls;
mod devices;
mod objects;
mod pods;
mod storage;
mod watch;

pub use calls::Refusal;
pub use devices::Devices;
pub use objects::Others;
pub use watch::{WATCHED, WatchEvent, Watches};

use berth_api::{Kind, Node, Object, ObjectMeta, Pod, Str};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The truth.
#[derive(Debug, Default)]
pub struct World {
    version: u64,
    uids: u64,
    /// By name, which is unique across namespaces.
    pods: BTreeMap<Str, Arc<Pod>>,
    nodes: BTreeMap<Str, Arc<Node>>,
    others: Others,
    /// Every change there ever was, in order.
    logs: BTreeMap<Kind, Vec<WatchEvent>>,
}

impl World {
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

    fn note(&mut self, event: WatchEvent) {
        self.logs.entry(event.kind()).or_default().push(event);
    }

    /// Identity and version of a new object.
    fn create(&mut self, metadata: &mut ObjectMeta) {
        self.uids += 1;
        metadata.uid = Str::from(format!("uid-{}", self.uids));
        self.change(metadata);
    }

    fn change(&mut self, metadata: &mut ObjectMeta) {
        self.version += 1;
        metadata.resource_version = Str::from(self.version.to_string());
    }
}
