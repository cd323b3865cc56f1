//! The nominations of pods to nodes.
//!
//! A nomination is in memory first and in the pod's status later. Other pods are placed as if nominated pods were
//! already on their nodes.

use berth_api::volumes::claims;
use berth_api::{Pod, Str};
use berth_framework::nominated::NominatedPods;
use berth_framework::plugin::Nominating;
use berth_framework::{Cluster, PodInfo};
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::sync::Arc;

/// The number of stored changes for the components that follow the nominations.
const CHANGES_MAX: usize = 16 * 1024;

/// The nominations.
#[derive(Debug, Clone, Default)]
pub struct Nominator {
    by_node: FxHashMap<Str, Vec<Arc<PodInfo>>>,
    node_of: FxHashMap<Str, Str>,
    /// The nodes of the pods that use a claim, by its namespace and name; a node occurs once per use.
    by_claim: FxHashMap<(Str, Str), Vec<Str>>,
    /// The nodes of the last changes, and the number of the first change.
    changes: VecDeque<Str>,
    first_change: u64,
}

impl Nominator {
    /// The pods nominated to a node, in the order of their nomination.
    pub fn pods_on(&self, node: &str) -> &[Arc<PodInfo>] {
        self.by_node.get(node).map_or(&[], Vec::as_slice)
    }

    /// The nodes that have nominated pods, sorted by name.
    pub fn nodes(&self) -> impl Iterator<Item = &Str> {
        let mut nodes: Vec<&Str> = self.by_node.keys().collect();
        nodes.sort_unstable();
        nodes.into_iter()
    }

    /// Returns whether no pod is nominated.
    pub fn is_empty(&self) -> bool {
        self.by_node.is_empty()
    }

    /// The number of changes; increases with each change.
    pub fn changes_end(&self) -> u64 {
        self.first_change + self.changes.len() as u64
    }

    fn note_change(&mut self, node: Str) {
        if self.changes.len() >= CHANGES_MAX {
            self.changes.pop_front();
            self.first_change += 1;
        }
        self.changes.push_back(node);
    }

    /// The node that a pod is nominated to.
    pub fn node_of(&self, uid: &str) -> Option<&Str> {
        self.node_of.get(uid)
    }

    /// Nominates a pod: to the given node, or with [`Nominating::Keep`] to the node in its status. An empty node ends
    /// the nomination. A pod that `cluster` does not contain, or that has a node, is not nominated.
    pub fn add(&mut self, cluster: &Cluster, pod: &Arc<Pod>, nominating: &Nominating) {
        self.remove(pod.uid());
        let node = match nominating {
            Nominating::Set(node) => node,
            Nominating::Keep => &pod.status.nominated_node_name,
        };
        if node.is_empty() {
            return;
        }
        let is_pending = cluster
            .pods
            .get(pod.uid())
            .is_some_and(|known| !known.is_assigned());
        if is_pending {
            self.put(node.clone(), pod);
        }
    }

    /// Applies an update. A nomination that is in neither version of the pod's status is kept: the update
    /// precedes the scheduler's own write.
    pub(super) fn update(&mut self, cluster: &Cluster, old: &Pod, new: &Arc<Pod>) {
        let unsaid =
            old.status.nominated_node_name.is_empty() && new.status.nominated_node_name.is_empty();
        let nominating = match self.node_of.get(old.uid()) {
            Some(node) if unsaid => Nominating::Set(node.clone()),
            _ => Nominating::Keep,
        };
        self.remove(old.uid());
        self.add(cluster, new, &nominating);
    }

    /// Ends the nomination of a pod, if any.
    pub fn remove(&mut self, uid: &str) {
        let Some(node) = self.node_of.remove(uid) else {
            return;
        };
        self.note_change(node.clone());
        let Some(pods) = self.by_node.get_mut(&node) else {
            debug_assert!(false, "a nominated pod is on the list of its node");
            return;
        };
        let Some(at) = pods.iter().position(|info| info.pod.uid().as_str() == uid) else {
            return;
        };
        let info = pods.remove(at);
        if pods.is_empty() {
            self.by_node.remove(&node);
        }
        for claim in claims(&info.pod) {
            let key = (info.pod.namespace().clone(), claim.name);
            let Some(nodes) = self.by_claim.get_mut(&key) else {
                continue;
            };
            if let Some(at) = nodes.iter().position(|known| *known == node) {
                nodes.swap_remove(at);
            }
            if nodes.is_empty() {
                self.by_claim.remove(&key);
            }
        }
    }

    fn put(&mut self, node: Str, pod: &Arc<Pod>) {
        self.node_of.insert(pod.uid().clone(), node.clone());
        self.note_change(node.clone());
        for claim in claims(pod) {
            let key = (pod.namespace().clone(), claim.name);
            self.by_claim.entry(key).or_default().push(node.clone());
        }
        self.by_node
            .entry(node)
            .or_default()
            .push(Arc::new(PodInfo::new(pod.clone())));
    }
}

impl NominatedPods for Nominator {
    fn is_empty(&self) -> bool {
        Nominator::is_empty(self)
    }

    fn on_node(&self, node: &Str, each: &mut dyn FnMut(&Arc<PodInfo>)) {
        self.pods_on(node).iter().for_each(each);
    }

    fn node_of(&self, uid: &str) -> Option<&Str> {
        Nominator::node_of(self, uid)
    }

    fn changes_end(&self) -> u64 {
        Nominator::changes_end(self)
    }

    fn changed_since(&self, since: u64, each: &mut dyn FnMut(&Str)) -> bool {
        let skipped = since.checked_sub(self.first_change);
        let skipped = skipped.and_then(|skipped| usize::try_from(skipped).ok());
        let skipped = skipped.filter(|skipped| *skipped <= self.changes.len());
        if let Some(skipped) = skipped {
            self.changes.range(skipped..).for_each(each);
        }
        // Changes that are no longer stored are unknown.
        skipped.is_some()
    }

    fn with_claim(&self, namespace: &Str, name: &Str, each: &mut dyn FnMut(&Str)) {
        let key = (namespace.clone(), name.clone());
        let nodes = self.by_claim.get(&key).into_iter().flatten();
        nodes.for_each(each);
    }
}
