//! Judges the actions of a scheduler from the view of the world.
//!
//! The checker keeps its own record of the inputs and decisions of the scheduler, and checks each decision against the
//! rules for the state that the scheduler knew at that moment. It receives decisions, calls and answers as plain values
//! and shares only the types of `berth-api` with the scheduler.

mod devices;
mod group_preemption;
mod groups;
mod preemption;
mod quotas;
mod reports;
mod rest;
mod violation;

pub use group_preemption::GroupPlan;
pub use preemption::Unplaced;
pub(crate) use quotas::QuotaSight;
pub use rest::{Foreign, Statuses, check_at_rest};
pub use violation::Violation;

use crate::rules::{DecidedDevices, Forbids, Scene, forbids, is_ours};
use crate::world::{Others, WatchEvent};
use berth_api::{Duration, Kind, Node, Object, Pod, Str, Time};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The longest time for which a scheduler excludes a node whose kubelet has rejected a pod: `excludeFor` in the profiles of
/// [`Subject::in_tree`](crate::Subject::in_tree).
const EXCLUSION_MAX: Duration = Duration::from_secs(15);

/// A decision that the API does not show yet, as far as the scheduler knows.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Placement {
    node: Str,
    binding: Binding,
}

/// The progress of the binding of a placed pod, as far as the scheduler can know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Binding {
    /// It has not been sent.
    Unsent,
    /// It was sent and has not been answered.
    UnderWay,
    /// The scheduler has received that the binding is in effect.
    StandsFor,
}

/// The inputs and decisions of a scheduler. See the [module](self).
#[derive(Debug, Default)]
pub struct Checker {
    /// By name, as last received.
    nodes: BTreeMap<Str, Arc<Node>>,
    /// By UID, as last received.
    pods: BTreeMap<Str, Arc<Pod>>,
    /// Everything else, as last received.
    others: Others,
    /// By UID.
    placed: BTreeMap<Str, Placement>,
    devices: DecidedDevices,
    /// By UID, the node on which the scheduler keeps resources free for a pod.
    nominated: BTreeMap<Str, Str>,
    /// By UID, the node of a failed placement that has been kept free for the pod since then.
    remains_after_failure: BTreeMap<Str, Str>,
    /// UIDs of pods that the scheduler deletes as victims, until it receives the deletion or ends the preemption.
    victims: BTreeSet<Str>,
    /// Since when pods are rejected by PreEnqueue.
    blocked: reports::BlockedSince,
    /// The times of the last evictions for these pods: while the victims are being evicted, PreEnqueue rejects the
    /// pods, too.
    making_room: reports::BlockedSince,
    /// The writes of statuses that the watch has not shown yet.
    sent: reports::Sent,
    quotas: quotas::QuotaChecks,
    /// The nodes whose kubelets recently rejected a pod, with the time. A scheduler may exclude them for similar pods.
    rejecting: BTreeMap<Str, Time>,
    decisions: u64,
}

impl Checker {
    /// Resets the checker for a new scheduler without any state, which replaces an exited one.
    pub fn restarted(&mut self) {
        let decisions = self.decisions;
        *self = Self {
            decisions,
            ..Self::default()
        };
    }

    /// The number of placements that were judged.
    pub fn decisions(&self) -> u64 {
        self.decisions
    }

    // --- inputs of the scheduler ----------------------------------------------------------------------------

    /// The scheduler receives a change.
    pub fn watched(&mut self, event: &WatchEvent, now: Time) {
        self.rejecting
            .retain(|_, at| now.since(*at) <= EXCLUSION_MAX);
        match event {
            WatchEvent::Applied(Object::Pod(pod)) => {
                self.reported_pod(pod, now);
                self.note_readiness(pod, now);
            }
            WatchEvent::Deleted(Object::Pod(pod)) => {
                self.pods.remove(pod.uid());
                self.placed.remove(pod.uid());
                self.blocked.remove(pod.uid());
                self.sent.remove(pod.uid());
            }
            WatchEvent::Applied(Object::Node(node)) => {
                self.nodes.insert(node.name().clone(), node.clone());
            }
            WatchEvent::Deleted(Object::Node(node)) => {
                self.nodes.remove(node.name());
            }
            WatchEvent::Applied(object) => self.others.put(object.clone()),
            WatchEvent::Deleted(object) => self.others.remove(object),
        }
        if matches!(event.kind(), Kind::Namespace | Kind::ResourceClaim) {
            self.note_all_readiness(now);
        }
    }

    fn reported_pod(&mut self, pod: &Arc<Pod>, now: Time) {
        let before = self.pods.get(pod.uid());
        if pod.status.phase == "Failed"
            && !pod.status.reason.is_empty()
            && before.is_none_or(|before| !before.is_terminal())
        {
            self.rejecting.insert(pod.spec.node_name.clone(), now);
        }
        if pod.is_terminating() {
            self.victims.remove(pod.uid());
        }
        let replaced = self
            .pods
            .values()
            .find(|other| other.name() == pod.name() && other.uid() != pod.uid());
        if let Some(uid) = replaced.map(|other| other.uid().clone()) {
            self.pods.remove(&uid);
            self.placed.remove(&uid);
            self.blocked.remove(&uid);
            self.sent.remove(&uid);
        }
        // From now on the API shows the node of the pod, or that it will never have one.
        if pod.is_assigned() || pod.is_terminal() || pod.is_terminating() {
            self.placed.remove(pod.uid());
        }
        self.pods.insert(pod.uid().clone(), pod.clone());
    }

    /// The scheduler receives a complete list of the objects of a kind.
    pub fn reported_all(&mut self, kind: Kind, objects: Vec<Object>, now: Time) {
        match kind {
            Kind::Pod => {
                self.pods.clear();
                for object in &objects {
                    if let Object::Pod(pod) = object {
                        self.reported_pod(pod, now);
                    }
                }
                let pods = &self.pods;
                self.placed.retain(|uid, _| pods.contains_key(uid));
            }
            Kind::Node => {
                let nodes = objects.into_iter().filter_map(|object| match object {
                    Object::Node(node) => Some((node.name().clone(), node)),
                    _ => None,
                });
                self.nodes = nodes.collect();
            }
            kind => self.others.replace(kind, objects),
        }
        if matches!(kind, Kind::Pod | Kind::Namespace | Kind::ResourceClaim) {
            self.note_all_readiness(now);
        }
    }

    /// The pods, as the scheduler has received them.
    pub(crate) fn all_pods(&self) -> impl Iterator<Item = &Arc<Pod>> {
        self.pods.values()
    }

    /// Everything that is neither pod nor node, as the scheduler has received it.
    pub(crate) fn others(&self) -> &Others {
        &self.others
    }

    /// The pods that wait for a node from the scheduler, as it has received it.
    pub fn waiting_pods(&self) -> impl Iterator<Item = &Arc<Pod>> {
        self.pods
            .values()
            .filter(|pod| !pod.is_assigned() && !pod.is_terminal() && is_ours(pod))
    }

    // --- actions of the scheduler --------------------------------------------------------------------------

    /// The node that the scheduler has chosen for a pod, if the choice was judged and is still valid.
    pub fn placement(&self, uid: &str) -> Option<&Str> {
        Some(&self.placed.get(uid)?.node)
    }

    /// The pods with a node that the API does not show yet.
    pub fn placed(&self) -> impl Iterator<Item = &Str> {
        self.placed.keys()
    }

    /// The scheduler has chosen a node for a pod.
    ///
    /// # Errors
    /// When the pod already has or is being bound to a node, is gated, or does not fit on the node.
    pub fn decided(&mut self, uid: &Str, node: &Str) -> Result<(), Violation> {
        self.decisions += 1;
        let Some(pod) = self.pods.get(uid) else {
            return Err(Violation::InconsistentState(format!(
                "a node is chosen for the unknown pod {uid}"
            )));
        };
        let name = pod.name().clone();
        let earlier = self
            .placed
            .get(uid)
            .filter(|p| p.binding != Binding::Unsent);
        let earlier = earlier.map(|p| &p.node);
        if let Some(first) = earlier.or(pod.is_assigned().then_some(&pod.spec.node_name)) {
            return Err(Violation::DoubleBind {
                pod: name,
                first: first.clone(),
                second: node.clone(),
            });
        }
        if !is_ours(pod) {
            return Err(Violation::ForeignPod { pod: name });
        }
        if !pod.spec.scheduling_gates.is_empty() {
            return Err(Violation::GateBypassed { pod: name });
        }
        let misplaced = |rule| Violation::Misplaced {
            pod: name.clone(),
            node: node.clone(),
            rule,
        };
        let Some(object) = self.nodes.get(node) else {
            return Err(misplaced("there is no such node"));
        };
        if let Some(rule) = self.broken_group_rule(pod, object) {
            return Err(misplaced(rule));
        }
        match forbids(&self.scene(), pod, object) {
            Some(Forbids::Rule(rule)) => return Err(misplaced(rule)),
            Some(Forbids::Lacks(resource)) => {
                return Err(Violation::Overcommit {
                    node: node.clone(),
                    pod: name,
                    resource,
                });
            }
            // The decisions about volumes are known to the scheduler alone.
            Some(Forbids::Unclear) | None => {}
        }
        let placement = Placement {
            node: node.clone(),
            binding: Binding::Unsent,
        };
        self.placed.insert(uid.clone(), placement);
        Ok(())
    }

    /// The scheduler has reverted a choice. It cannot revert a choice whose binding has been sent.
    pub fn gave_up(&mut self, uid: &str) {
        if self
            .placed
            .get(uid)
            .is_some_and(|p| p.binding == Binding::Unsent)
            && let Some(placement) = self.placed.remove(uid)
        {
            self.remains_after_failure
                .insert(uid.into(), placement.node);
        }
    }

    /// The scheduler sends the binding of a pod to a node.
    ///
    /// # Errors
    /// When the node is not the chosen one, or an earlier binding exists or is in progress. Without an earlier choice,
    /// the binding is the choice.
    pub fn bind_sent(&mut self, uid: &Str, node: &Str) -> Result<(), Violation> {
        // The scheduler knows that the pod is deleted or bound; the API will refuse.
        let lives =
            |pod: &Arc<Pod>| !pod.is_assigned() && !pod.is_terminal() && !pod.is_terminating();
        if !self.placed.contains_key(uid) && self.pods.get(uid).is_some_and(lives) {
            self.decided(uid, node)?;
        }
        let Some(placement) = self.placed.get_mut(uid) else {
            return Ok(());
        };
        if placement.node != *node || placement.binding != Binding::Unsent {
            return Err(Violation::DoubleBind {
                pod: self
                    .pods
                    .get(uid)
                    .map_or_else(|| uid.clone(), |pod| pod.name().clone()),
                first: placement.node.clone(),
                second: node.clone(),
            });
        }
        placement.binding = Binding::UnderWay;
        Ok(())
    }

    /// The scheduler receives the result of a binding. After a failure it may choose another node.
    pub fn bind_answered(&mut self, uid: &str, node: &Str, success: bool) {
        let Some(placement) = self.placed.get_mut(uid).filter(|p| p.node == *node) else {
            return;
        };
        placement.binding = if success {
            Binding::StandsFor
        } else {
            Binding::Unsent
        };
    }

    /// The nodes on which the scheduler keeps resources free, by the UID of the pod.
    pub fn keeps_free(&mut self, nominated: impl IntoIterator<Item = (Str, Str)>) {
        self.nominated = nominated.into_iter().collect();
        let nominated = &self.nominated;
        self.remains_after_failure
            .retain(|uid, node| nominated.get(uid) == Some(node));
    }

    /// The nodes that are kept free because the binding to them failed, by the UID of the pod.
    pub fn remains_after_failure(&self) -> &BTreeMap<Str, Str> {
        &self.remains_after_failure
    }

    /// Another attempt has determined the nodes that are kept free for these pods.
    pub fn tried(&mut self, uids: &[Str]) {
        for uid in uids {
            self.remains_after_failure.remove(uid);
        }
    }

    /// The cluster as the scheduler knows it: the received objects and its own decisions.
    fn scene(&self) -> Scene<'_> {
        let living = self.pods.values().filter(|pod| !pod.is_terminal());
        Scene {
            nodes: self.nodes.values().map(|node| &**node).collect(),
            placed: living
                .map(|pod| {
                    let chosen = self.placed.get(pod.uid()).map(|p| &p.node);
                    (&**pod, chosen.unwrap_or(&pod.spec.node_name).as_str())
                })
                .filter(|(_, node)| !node.is_empty())
                .collect(),
            others: &self.others,
            decided_devices: &self.devices,
        }
    }
}
