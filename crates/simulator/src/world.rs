//! A cluster's API as a scheduler meets it: objects, versions, watches that lag, calls that fail.
//!
//! The world knows nothing of the scheduler. It keeps the truth, and hands out what a watch would deliver.

use berth_api::pod::{PodCondition, SchedulingGate};
use berth_api::{Node, Pod, Str, Time, Toleration};
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;

/// A change of one object, as a watch delivers it.
#[derive(Debug, Clone, PartialEq)]
pub enum WatchEvent {
    /// A pod is new or has changed.
    PodApplied(Arc<Pod>),
    /// A pod is gone; its last state.
    PodDeleted(Arc<Pod>),
    /// A node is new or has changed.
    NodeApplied(Arc<Node>),
    /// A node is gone; its last state.
    NodeDeleted(Arc<Node>),
}

impl fmt::Display for WatchEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PodApplied(pod) => {
                write!(f, "pod {} ({})", pod.name(), pod.uid())?;
                if pod.is_assigned() {
                    write!(f, " on {}", pod.spec.node_name)?;
                }
                if !pod.status.nominated_node_name.is_empty() {
                    write!(f, " nominated to {}", pod.status.nominated_node_name)?;
                }
                if let Some(c) = pod.condition("PodScheduled") {
                    write!(f, " scheduled={} {}", c.status, c.reason)?;
                }
                Ok(())
            }
            Self::PodDeleted(pod) => write!(f, "pod {} ({}) is gone", pod.name(), pod.uid()),
            Self::NodeApplied(node) => write!(f, "node {}", node.name()),
            Self::NodeDeleted(node) => write!(f, "node {} is gone", node.name()),
        }
    }
}

/// Why the API refused a call. The names are those of HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// 404: the pod is gone, or another one has its name.
    NotFound,
    /// 409: the pod has a node, is being deleted, or is gated.
    Conflict,
}

/// The truth.
#[derive(Debug, Default)]
pub struct World {
    version: u64,
    uids: u64,
    pods: BTreeMap<Str, Arc<Pod>>,
    nodes: BTreeMap<Str, Arc<Node>>,
    pod_stream: VecDeque<WatchEvent>,
    node_stream: VecDeque<WatchEvent>,
    /// The last event of each watch, which may be delivered once more.
    last_pod_event: Option<WatchEvent>,
    last_node_event: Option<WatchEvent>,
}

/// The namespace of every pod of the world.
pub const NAMESPACE: &str = "default";

impl World {
    /// Pods by name.
    pub fn pods(&self) -> &BTreeMap<Str, Arc<Pod>> {
        &self.pods
    }

    /// Nodes by name.
    pub fn nodes(&self) -> &BTreeMap<Str, Arc<Node>> {
        &self.nodes
    }

    /// Counts the changes of the world.
    pub fn version(&self) -> u64 {
        self.version
    }

    fn next_version(&mut self) -> Str {
        self.version += 1;
        Str::from(self.version.to_string())
    }

    fn next_uid(&mut self) -> Str {
        self.uids += 1;
        Str::from(format!("uid-{}", self.uids))
    }

    // --- what users and controllers do ------------------------------------------------------------------

    /// Creates a pod, unless there is one of that name; name and namespace, identity and version are set here.
    pub fn create_pod(&mut self, name: &str, mut pod: Pod) -> bool {
        if self.pods.contains_key(name) {
            return false;
        }
        pod.metadata.name = name.into();
        pod.metadata.namespace = NAMESPACE.into();
        pod.metadata.uid = self.next_uid();
        pod.metadata.generation = Some(1);
        pod.status.phase = "Pending".into();
        if pod.is_assigned() {
            // Somebody else placed it: its kubelet says so.
            pod.status.phase = "Running".into();
            set_condition(&mut pod, "PodScheduled", "True", "", "");
        }
        if !pod.spec.scheduling_gates.is_empty() {
            pod.status.conditions.push(PodCondition {
                kind: "PodScheduled".into(),
                status: "False".into(),
                reason: "SchedulingGated".into(),
                message: "Scheduling is blocked due to non-empty scheduling gates".into(),
                ..PodCondition::default()
            });
        }
        self.put_pod(pod);
        true
    }

    /// Removes one gate of a pod: the one at `gate`, counted round.
    pub fn remove_gate(&mut self, name: &str, gate: usize) {
        self.change_pod(name, |pod| {
            let gates: &mut Vec<SchedulingGate> = &mut pod.spec.scheduling_gates;
            if !gates.is_empty() {
                gates.remove(gate % gates.len());
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

    /// Marks a pod as being deleted; it goes when whoever holds it lets it go.
    pub fn terminate_pod(&mut self, name: &str, now: Time) {
        self.change_pod(name, |pod| {
            pod.metadata.deletion_timestamp.get_or_insert(now);
        });
    }

    /// Removes a pod. Whether there was one.
    pub fn delete_pod(&mut self, name: &str) -> bool {
        let Some(pod) = self.pods.remove(name) else {
            return false;
        };
        let mut last = (*pod).clone();
        last.metadata.resource_version = self.next_version();
        self.pod_stream
            .push_back(WatchEvent::PodDeleted(Arc::new(last)));
        true
    }

    /// Lets a pod run to its end.
    pub fn finish_pod(&mut self, name: &str) {
        self.change_pod(name, |pod| {
            if pod.is_assigned() {
                pod.status.phase = "Succeeded".into();
            }
        });
    }

    /// The kubelets say of these pods on their nodes that they are scheduled, as kubelets do.
    pub fn kubelets_report(&mut self, which: impl Fn(&Pod) -> bool) {
        let theirs = self.pods.values().filter(|pod| {
            self.nodes.contains_key(&pod.spec.node_name)
                && which(pod)
                && pod
                    .condition("PodScheduled")
                    .is_none_or(|c| c.status != "True")
        });
        let names: Vec<Str> = theirs.map(|pod| pod.name().clone()).collect();
        for name in names {
            self.change_pod(&name, |pod| {
                set_condition(pod, "PodScheduled", "True", "", "")
            });
        }
    }

    /// Adds a node, unless there is one of that name.
    pub fn create_node(&mut self, node: Node) {
        if !self.nodes.contains_key(&node.metadata.name) {
            let mut node = node;
            node.metadata.uid = self.next_uid();
            self.put_node(node);
        }
    }

    /// Changes a node.
    pub fn change_node(&mut self, name: &str, change: impl FnOnce(&mut Node)) {
        if let Some(old) = self.nodes.get(name) {
            let mut node = (**old).clone();
            change(&mut node);
            self.put_node(node);
        }
    }

    fn put_node(&mut self, mut node: Node) {
        node.metadata.resource_version = self.next_version();
        let node = Arc::new(node);
        self.nodes.insert(node.name().clone(), node.clone());
        self.node_stream.push_back(WatchEvent::NodeApplied(node));
    }

    /// Removes a node. Its pods stay until the garbage collector finds them.
    pub fn delete_node(&mut self, name: &str) {
        if let Some(node) = self.nodes.remove(name) {
            let mut last = (*node).clone();
            last.metadata.resource_version = self.next_version();
            self.node_stream
                .push_back(WatchEvent::NodeDeleted(Arc::new(last)));
        }
    }

    /// Removes the pods whose node is gone.
    pub fn collect_garbage(&mut self) {
        self.delete_pods(|world, pod| {
            pod.is_assigned() && !world.nodes.contains_key(&pod.spec.node_name)
        });
    }

    /// Removes the pods that are being deleted.
    pub fn reap(&mut self) {
        self.delete_pods(|_, pod| pod.is_terminating());
    }

    fn delete_pods(&mut self, which: impl Fn(&Self, &Pod) -> bool) {
        let names: Vec<Str> = self
            .pods
            .values()
            .filter(|pod| which(self, pod))
            .map(|pod| pod.name().clone())
            .collect();
        for name in names {
            self.delete_pod(&name);
        }
    }

    fn change_pod(&mut self, name: &str, change: impl FnOnce(&mut Pod)) {
        let Some(old) = self.pods.get(name) else {
            return;
        };
        let mut pod = (**old).clone();
        change(&mut pod);
        if pod != **old {
            self.put_pod(pod);
        }
    }

    fn put_pod(&mut self, mut pod: Pod) {
        pod.metadata.resource_version = self.next_version();
        let pod = Arc::new(pod);
        self.pods.insert(pod.name().clone(), pod.clone());
        self.pod_stream.push_back(WatchEvent::PodApplied(pod));
    }

    // --- what a scheduler does -----------------------------------------------------------------------------

    fn pod_of(&self, name: &str, uid: &str) -> Result<&Arc<Pod>, Refusal> {
        self.pods
            .get(name)
            .filter(|pod| pod.uid().as_str() == uid)
            .ok_or(Refusal::NotFound)
    }

    /// The UID in a patch is a precondition.
    fn same_pod(&self, name: &str, uid: &str) -> Result<(), Refusal> {
        match self.pods.get(name) {
            None => Err(Refusal::NotFound),
            Some(pod) if pod.uid().as_str() != uid => Err(Refusal::Conflict),
            Some(_) => Ok(()),
        }
    }

    /// Gives a pod its node.
    ///
    /// # Errors
    /// As the API server: the pod is gone or another one, is being deleted, is gated, or has a node.
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
    /// When the pod is gone, or another one has its name.
    pub fn patch_status(
        &mut self,
        name: &str,
        uid: &str,
        condition: Option<(&str, &str, &str, &str)>,
        nominated_node: Option<&str>,
    ) -> Result<(), Refusal> {
        self.same_pod(name, uid)?;
        self.change_pod(name, |pod| {
            if let Some((kind, status, reason, message)) = condition {
                set_condition(pod, kind, status, reason, message);
            }
            if let Some(node) = nominated_node {
                pod.status.nominated_node_name = node.into();
            }
        });
        Ok(())
    }

    /// Removes a condition of that type and reason.
    ///
    /// # Errors
    /// When the pod is gone, or another one has its name.
    pub fn clear_condition(
        &mut self,
        name: &str,
        uid: &str,
        kind: &str,
        reason: &str,
    ) -> Result<(), Refusal> {
        self.same_pod(name, uid)?;
        self.change_pod(name, |pod| {
            pod.status
                .conditions
                .retain(|c| !(c.kind == kind && c.reason == reason));
        });
        Ok(())
    }

    // --- watches -------------------------------------------------------------------------------------------

    /// The next event of the pods' watch.
    pub fn next_pod_event(&mut self) -> Option<WatchEvent> {
        let event = self.pod_stream.pop_front()?;
        self.last_pod_event = Some(event.clone());
        Some(event)
    }

    /// The next event of the nodes' watch.
    pub fn next_node_event(&mut self) -> Option<WatchEvent> {
        let event = self.node_stream.pop_front()?;
        self.last_node_event = Some(event.clone());
        Some(event)
    }

    /// What the pods' watch delivered last, if nothing was listed since.
    pub fn last_pod_event(&self) -> Option<&WatchEvent> {
        self.last_pod_event.as_ref()
    }

    /// What the nodes' watch delivered last, if nothing was listed since.
    pub fn last_node_event(&self) -> Option<&WatchEvent> {
        self.last_node_event.as_ref()
    }

    /// How many events have not been delivered.
    pub fn undelivered(&self) -> usize {
        self.pod_stream.len() + self.node_stream.len()
    }

    /// How many events of one watch have not been delivered: that of the pods or that of the nodes.
    pub fn undelivered_of(&self, pods: bool) -> usize {
        let stream = if pods {
            &self.pod_stream
        } else {
            &self.node_stream
        };
        stream.len()
    }

    /// The pods' watch breaks: what was not delivered never will be, the present state is listed.
    pub fn relist_pods(&mut self) -> Vec<Arc<Pod>> {
        self.pod_stream.clear();
        self.last_pod_event = None;
        self.pods.values().cloned().collect()
    }

    /// The nodes' watch breaks.
    pub fn relist_nodes(&mut self) -> Vec<Arc<Node>> {
        self.node_stream.clear();
        self.last_node_event = None;
        self.nodes.values().cloned().collect()
    }
}

fn set_condition(pod: &mut Pod, kind: &str, status: &str, reason: &str, message: &str) {
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

    fn gated() -> Pod {
        let mut pod = Pod::default();
        pod.spec
            .scheduling_gates
            .push(SchedulingGate { name: "g".into() });
        pod
    }

    #[test]
    fn binding_is_refused_as_the_api_refuses_it() {
        let mut world = World::default();
        world.create_pod("plain", Pod::default());
        world.create_pod("gated", gated());
        let uid = |world: &World, name: &str| world.pods()[name].uid().clone();
        let (plain, held) = (uid(&world, "plain"), uid(&world, "gated"));
        assert_eq!(world.bind("absent", "u", "n"), Err(Refusal::NotFound));
        assert_eq!(world.bind("plain", "other", "n"), Err(Refusal::NotFound));
        assert_eq!(world.bind("gated", &held, "n"), Err(Refusal::Conflict));
        assert_eq!(world.bind("plain", &plain, "n"), Ok(()));
        assert_eq!(world.bind("plain", &plain, "m"), Err(Refusal::Conflict));
        assert_eq!(world.pods()["plain"].spec.node_name, "n");
    }

    #[test]
    fn a_watch_delivers_in_order_and_a_relist_the_present() {
        let mut world = World::default();
        world.create_pod("a", Pod::default());
        world.delete_pod("a");
        assert!(matches!(
            world.next_pod_event(),
            Some(WatchEvent::PodApplied(_))
        ));
        assert_eq!(world.relist_pods(), []);
        assert_eq!(world.undelivered(), 0);
    }
}
