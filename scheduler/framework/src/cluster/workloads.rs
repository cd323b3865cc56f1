//! The objects whose selectors the default constraints of topology spread follow.

use super::{Namespaced, Services};
use berth_api::{Object, ReplicaSet, ReplicationController, StatefulSet};
use std::sync::Arc;

/// Services and the controllers of pods.
#[derive(Debug, Clone, Default)]
pub struct Workloads {
    services: Services,
    replication_controllers: Namespaced<ReplicationController>,
    replica_sets: Namespaced<ReplicaSet>,
    stateful_sets: Namespaced<StatefulSet>,
    version: u64,
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

    /// Changes whenever an object is added, removed, or has another selector than before.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Sets or removes an object, and returns whether its kind is kept here.
    pub(super) fn put(&mut self, object: &Object, is_there: bool) -> bool {
        let meta = object.metadata();
        let is_other = match object {
            Object::Service(service) => {
                let before = self.services.put(service, is_there);
                let after = is_there.then_some(service);
                is_other(before.as_ref(), after, |service| &service.spec.selector)
            }
            Object::ReplicationController(controller) => {
                let controllers = &mut self.replication_controllers;
                let before = controllers.put(meta, controller, is_there);
                let after = is_there.then_some(controller);
                is_other(before.as_ref(), after, |owner| &owner.spec.selector)
            }
            Object::ReplicaSet(set) => {
                let before = self.replica_sets.put(meta, set, is_there);
                let after = is_there.then_some(set);
                is_other(before.as_ref(), after, |set| &set.spec.selector)
            }
            Object::StatefulSet(set) => {
                let before = self.stateful_sets.put(meta, set, is_there);
                let after = is_there.then_some(set);
                is_other(before.as_ref(), after, |set| &set.spec.selector)
            }
            _ => return false,
        };
        self.version += u64::from(is_other);
        true
    }
}

/// Returns whether an object was added or removed, or has another selector.
fn is_other<T, S: PartialEq>(
    before: Option<&Arc<T>>,
    after: Option<&Arc<T>>,
    selector: impl Fn(&T) -> &S,
) -> bool {
    before.map(|object| selector(object)) != after.map(|object| selector(object))
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_api::Kind;

    #[test]
    fn the_version_follows_the_selectors() {
        let mut workloads = Workloads::default();
        for (kind, selectors) in [
            (Kind::Service, [r#"{"app":"a"}"#, r#"{"app":"b"}"#]),
            (
                Kind::ReplicationController,
                [r#"{"app":"a"}"#, r#"{"app":"b"}"#],
            ),
            (Kind::ReplicaSet, [r#"{"matchLabels":{"app":"a"}}"#, "{}"]),
            (Kind::StatefulSet, [r#"{"matchLabels":{"app":"a"}}"#, "{}"]),
        ] {
            let object = |selector: &str, version: u32| {
                let json = format!(
                    r#"{{"metadata":{{"name":"n","namespace":"s","resourceVersion":"{version}"}},
                    "spec":{{"selector":{selector}}}}}"#
                );
                kind.decode(json.as_bytes())
                    .unwrap_or_else(|e| panic!("{json}: {e}"))
            };
            let [first, second] = selectors;
            for (situation, object, is_there, changes) in [
                ("added", object(first, 1), true, 1),
                ("the same selector", object(first, 2), true, 0),
                ("another selector", object(second, 3), true, 1),
                ("deleted", object(second, 4), false, 1),
                ("deleted before", object(second, 4), false, 0),
            ] {
                let before = workloads.version();
                assert!(workloads.put(&object, is_there));
                assert_eq!(
                    workloads.version() - before,
                    changes,
                    "{kind:?}, {situation}"
                );
            }
        }
    }
}
