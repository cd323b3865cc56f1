//! The objects whose selectors the default constraints of topology spread follow.

use super::{Namespaced, Services};
use berth_api::{Object, ReplicaSet, ReplicationController, StatefulSet};

/// Services and the controllers of pods.
#[derive(Debug, Clone, Default)]
pub struct Workloads {
    services: Services,
    replication_controllers: Namespaced<ReplicationController>,
    replica_sets: Namespaced<ReplicaSet>,
    stateful_sets: Namespaced<StatefulSet>,
}

impl Workloads {
    /// Services.
    pub fn services(&self) -> &Services {
        &self.services
    }

    /// Replication controllers.
    pub fn replication_controllers(&self) -> &Namespaced<ReplicationController> {
        &self.replication_controllers
    }

    /// Replica sets.
    pub fn replica_sets(&self) -> &Namespaced<ReplicaSet> {
        &self.replica_sets
    }

    /// Stateful sets.
    pub fn stateful_sets(&self) -> &Namespaced<StatefulSet> {
        &self.stateful_sets
    }

    /// Sets or removes an object of one of the kinds, and returns whether it is of one.
    pub(super) fn put(&mut self, object: &Object, is_there: bool) -> bool {
        let meta = object.metadata();
        match object {
            Object::Service(service) => self.services.put(service, is_there),
            Object::ReplicationController(controller) => {
                let controllers = &mut self.replication_controllers;
                controllers.put(meta, controller, is_there);
            }
            Object::ReplicaSet(set) => drop(self.replica_sets.put(meta, set, is_there)),
            Object::StatefulSet(set) => drop(self.stateful_sets.put(meta, set, is_there)),
            _ => return false,
        }
        true
    }
}
