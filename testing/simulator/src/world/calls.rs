//! The actions of a scheduler: the API server's side of its calls.

use super::World;
use super::pods::set_condition;
use berth_api::{Pod, Str};
use std::sync::Arc;

/// The reason why the API refused a call, with the name in HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// 404: the object was deleted, or another one has its name.
    NotFound,
    /// 409: the pod has a node, is being deleted, or is gated; the object has another version.
    Conflict,
}

impl World {
    fn pod_of(&self, name: &str, uid: &str) -> Result<&Arc<Pod>, Refusal> {
        self.pods()
            .get(name)
            .filter(|pod| pod.uid().as_str() == uid)
            .ok_or(Refusal::NotFound)
    }

    /// The UID in a patch is a precondition.
    pub(super) fn same_pod(&self, name: &str, uid: &str) -> Result<(), Refusal> {
        match self.pods().get(name) {
            None => Err(Refusal::NotFound),
            Some(pod) if pod.uid().as_str() != uid => Err(Refusal::Conflict),
            Some(_) => Ok(()),
        }
    }

    /// Binds a pod to a node.
    ///
    /// # Errors
    /// As in the API server: the pod was deleted or replaced, is being deleted, is gated, or has a node.
    pub fn bind(&mut self, name: &str, uid: &str, node: &str) -> Result<(), Refusal> {
        let pod = self.pod_of(name, uid)?;
        if pod.is_terminating() || pod.is_assigned() || !pod.spec.scheduling_gates.is_empty() {
            return Err(Refusal::Conflict);
        }
        self.change_pod(name, |pod| {
            pod.spec.node_name = node.into();
            pod.status.nominated_node_name = Str::default();
            set_condition(pod, "PodScheduled", "True", "", "");
        });
        Ok(())
    }

    /// Sets a condition, the nominated node, or both.
    ///
    /// # Errors
    /// When the pod was deleted or replaced.
    pub fn patch_status(
        &mut self,
        name: &str,
        uid: &str,
        conditions: &[(&str, &str, &str, &str)],
        nominated_node: Option<&str>,
    ) -> Result<(), Refusal> {
        self.same_pod(name, uid)?;
        self.change_pod(name, |pod| {
            for (kind, status, reason, message) in conditions {
                set_condition(pod, kind, status, reason, message);
            }
            if let Some(node) = nominated_node {
                pod.status.nominated_node_name = node.into();
            }
        });
        Ok(())
    }

    /// Removes the condition of that type, whatever its reason, from this version of the pod.
    ///
    /// # Errors
    /// When the pod was deleted or replaced, or has another version.
    pub fn remove_condition(
        &mut self,
        name: &str,
        uid: &str,
        kind: &str,
        version: Option<&str>,
    ) -> Result<(), Refusal> {
        let pod = self.pod_of(name, uid)?;
        if version.is_some_and(|version| pod.metadata.resource_version != *version) {
            return Err(Refusal::Conflict);
        }
        self.change_pod(name, |pod| {
            pod.status.conditions.retain(|c| c.kind != kind);
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shapes::PodShape;

    #[test]
    fn bindings_are_rejected_as_by_the_api_server() {
        let mut world = World::default();
        world.create_pod("plain", PodShape::default().build());
        let gated = PodShape {
            gates: 1,
            ..PodShape::default()
        };
        world.create_pod("gated", gated.build());
        let uid = |world: &World, name: &str| world.pods()[name].uid().clone();
        let (plain, held) = (uid(&world, "plain"), uid(&world, "gated"));
        assert_eq!(world.bind("absent", "u", "n"), Err(Refusal::NotFound));
        assert_eq!(world.bind("plain", "other", "n"), Err(Refusal::NotFound));
        assert_eq!(world.bind("gated", &held, "n"), Err(Refusal::Conflict));
        assert_eq!(world.bind("plain", &plain, "n"), Ok(()));
        assert_eq!(world.bind("plain", &plain, "m"), Err(Refusal::Conflict));
        assert_eq!(world.pods()["plain"].spec.node_name, "n");
    }
}
