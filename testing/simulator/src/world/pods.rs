//! The actions of users, controllers and kubelets on pods.

use super::World;
use crate::shapes::{NAMESPACES, ZONE};
use berth_api::pod::{PodCondition, SchedulingGate};
use berth_api::{Labels, Object, Pod, Str, Time, Toleration};
use std::sync::Arc;

impl World {
    /// Creates a pod, unless the name exists. Sets its name, namespace, UID and version.
    pub fn create_pod(&mut self, name: &str, mut pod: Pod) -> bool {
        if self.pods().contains_key(name) {
            return false;
        }
        pod.metadata.name = name.into();
        if pod.metadata.namespace.is_empty() {
            pod.metadata.namespace = NAMESPACES[0].into();
        }
        self.store.create(&mut pod.metadata);
        pod.metadata.generation = Some(1);
        pod.status.phase = "Pending".into();
        if pod.is_assigned() {
            // Another client placed it, so its kubelet reports it.
            pod.status.phase = "Running".into();
            set_condition(&mut pod, "PodScheduled", "True", "", "");
        }
        if !pod.spec.scheduling_gates.is_empty() {
            let message = "Scheduling is blocked due to non-empty scheduling gates";
            set_condition(
                &mut pod,
                "PodScheduled",
                "False",
                "SchedulingGated",
                message,
            );
        }
        self.store.put(Object::Pod(Arc::new(pod)));
        true
    }

    /// Removes the gate of a pod at the index `gate` (modulo the number of gates).
    pub fn remove_gate(&mut self, name: &str, gate: usize) {
        self.change_pod(name, |pod| {
            let gates: &mut Vec<SchedulingGate> = &mut pod.spec.scheduling_gates;
            if !gates.is_empty() {
                gates.remove(gate % gates.len());
                pod.metadata.generation = pod.metadata.generation.map(|g| g + 1);
            }
        });
    }

    /// Restricts a gated pod to a zone. No other constraint on its nodes can change, and none at all after its gates
    /// were removed.
    pub fn tighten(&mut self, name: &str, zone: &str) {
        self.change_pod(name, |pod| {
            let is_free = pod.spec.node_selector.as_ref();
            let is_free = is_free.is_none_or(|selector| !selector.contains_key(ZONE));
            if !pod.spec.scheduling_gates.is_empty() && is_free {
                let selector = pod.spec.node_selector.clone().unwrap_or_default();
                pod.spec.node_selector = Some(Labels::with(&selector, ZONE, zone));
                pod.metadata.generation = pod.metadata.generation.map(|g| g + 1);
            }
        });
    }

    /// Changes a pod's labels.
    pub fn label_pod(&mut self, name: &str, key: &str, value: &str) {
        self.change_pod(name, |pod| {
            pod.metadata.labels = pod.metadata.labels.with(key, value);
        });
    }

    /// Takes a label off a pod.
    pub fn unlabel_pod(&mut self, name: &str, key: &str) {
        self.change_pod(name, |pod| {
            pod.metadata.labels = pod.metadata.labels.without(key);
        });
    }

    /// Adds a toleration to a pod.
    pub fn add_toleration(&mut self, name: &str, toleration: Toleration) {
        self.change_pod(name, |pod| {
            if !pod.spec.tolerations.contains(&toleration) {
                pod.spec.tolerations.push(toleration);
                pod.metadata.generation = pod.metadata.generation.map(|g| g + 1);
            }
        });
    }

    /// Marks a pod as being deleted; it is removed with its finalizers.
    pub fn terminate_pod(&mut self, name: &str, now: Time) {
        self.change_pod(name, |pod| {
            pod.metadata.deletion_timestamp.get_or_insert(now);
        });
    }

    /// Removes a pod. Returns whether it existed.
    pub fn delete_pod(&mut self, name: &str) -> bool {
        let Some(pod) = self.pods().get(name) else {
            return false;
        };
        let mut last = Pod::clone(pod);
        self.store.change(&mut last.metadata);
        self.store.remove(Object::Pod(Arc::new(last)));
        true
    }

    /// Marks a pod as completed.
    pub fn finish_pod(&mut self, name: &str) {
        self.change_pod(name, |pod| {
            if pod.is_assigned() {
                pod.status.phase = "Succeeded".into();
            }
        });
    }

    /// The kubelet of a pod's node rejects the pod for this reason, before it starts.
    pub fn reject_pod(&mut self, name: &str, reason: &str) -> bool {
        let pod = self.pods().get(name);
        let is_new = pod.is_some_and(|pod| pod.is_assigned() && !pod.is_terminal());
        if is_new {
            self.change_pod(name, |pod| {
                pod.status.phase = "Failed".into();
                pod.status.reason = reason.into();
            });
        }
        is_new
    }

    /// Removes the pods that are being deleted.
    pub fn reap(&mut self) {
        self.delete_pods(|_, pod| pod.is_terminating());
    }

    /// Moves a pod to another node, which no API does: for tests that plant bugs.
    pub fn move_pod(&mut self, name: &str, node: &str) {
        self.change_pod(name, |pod| {
            pod.spec.node_name = node.into();
            set_condition(pod, "PodScheduled", "True", "", "");
        });
    }

    pub(super) fn delete_pods(&mut self, which: impl Fn(&Self, &Pod) -> bool) {
        let names: Vec<Str> = self
            .pods()
            .values()
            .filter(|pod| which(self, pod))
            .map(|pod| pod.name().clone())
            .collect();
        for name in names {
            self.delete_pod(&name);
        }
    }

    pub(super) fn change_pod(&mut self, name: &str, change: impl FnOnce(&mut Pod)) {
        let Some(old) = self.pods().get(name) else {
            return;
        };
        let mut pod = Pod::clone(old);
        change(&mut pod);
        if pod != **old {
            self.store.change(&mut pod.metadata);
            self.store.put(Object::Pod(Arc::new(pod)));
        }
    }
}

pub(super) fn set_condition(pod: &mut Pod, kind: &str, status: &str, reason: &str, message: &str) {
    let condition = PodCondition {
        kind: kind.into(),
        status: status.into(),
        reason: reason.into(),
        message: message.into(),
        ..PodCondition::default()
    };
    match pod.status.conditions.iter_mut().find(|c| c.kind == kind) {
        Some(old) => *old = condition,
        None => pod.status.conditions.push(condition),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shapes::PodShape;

    #[test]
    fn the_node_selector_of_a_gated_pod_can_be_restricted_once() {
        let mut world = World::default();
        for (gates, zones, expected) in [
            (0, &["a"][..], None),
            (1, &["a"][..], Some("a")),
            (1, &["a", "b"][..], Some("a")),
        ] {
            let shape = PodShape {
                gates,
                ..PodShape::default()
            };
            world.create_pod("p", shape.build());
            zones.iter().for_each(|zone| world.tighten("p", zone));
            let selector = world.pods()["p"].spec.node_selector.clone();
            let zone = selector.as_ref().and_then(|selector| selector.get(ZONE));
            assert_eq!(zone, expected, "{gates} gates, {zones:?}");
            world.delete_pod("p");
        }
    }
}
