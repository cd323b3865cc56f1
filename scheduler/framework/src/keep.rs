//! Answers that are kept between decisions. The cost of a decision then depends on the changes since the last similar
//! decision.
//!
//! Pods are created from templates, so most pods are equal in the fields that a plugin reads. A plugin that checks
//! nodes individually declares these fields in its [requirement](crate::requirement), or implements [`Keep`] itself:
//! its answers depend on a [`Fragment`] of the pod and on the node. The answers are kept, and computed again only for
//! changed nodes.
//!
//! A plugin whose answer about a node depends on the pods of other nodes, by the values of node labels, implements
//! [`Domains`] instead: it opens a [`Ledger`], its domain counts, for all pods with one fragment. The ledger receives
//! every pod that is added or removed, and sorts the nodes into **classes** with equal answers.
//!
//! A plugin that implements neither is called for every node each time. That is correct and slow.

use crate::plugin::Context;
use crate::pod_info::PodInfo;
use crate::state::CycleState;
use crate::status::Status;
use crate::table::{PodSignatures, Slot};
use smallvec::SmallVec;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// The part of a pod that a plugin reads, as bytes. Two pods with equal fragments get equal answers.
///
/// Any value that can be hashed can be written. The bytes of the hash input are kept, so that different values are
/// never equal.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Fragment {
    bytes: Vec<u8>,
}

impl Fragment {
    /// Appends a value.
    pub fn put<T: Hash + ?Sized>(&mut self, value: &T) {
        value.hash(self);
    }

    /// Everything written so far.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Removes everything written so far.
    pub fn clear(&mut self) {
        self.bytes.clear();
    }
}

impl Hasher for Fragment {
    fn write(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Not used: a fragment is compared whole.
    fn finish(&self) -> u64 {
        self.bytes.len() as u64
    }
}

/// The version of the cluster state that the fragments of a plugin depend on. It never decreases. While it is
/// unchanged, pods with one [key](crate::pod_info::TemplateKey) and without claims, volumes and a node have equal
/// fragments. `None` if that does not hold now: fragments are then written for each pod.
pub type FragmentVersion = fn(&Context<'_>) -> Option<u64>;

/// The version of fragments that depend on the pod and the feature gates alone.
pub fn constant(_: &Context<'_>) -> Option<u64> {
    Some(0)
}

/// Whether a plugin's answers about a pod may be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kept {
    /// They may not: they depend on more than the fragment and the node.
    Never,
    /// They hold for every pod with the same fragment.
    ByFragment,
    /// The same, and nodes with equal [amounts](crate::table::Columns::amounts) get equal answers. Scores are not normalised.
    ByAmounts,
}

/// Whether answers depend on cluster state outside the fragment and outside the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FollowOutcome {
    /// They do not, for any pod with the fragment.
    Nothing,
    /// They do, and that state has not changed since the last call.
    Same,
    /// They do, and the nodes whose answers may have changed were reported.
    Changes,
    /// They do, and it is unknown which answers have changed.
    Lost,
}

/// A plugin whose answers about a node depend on a fragment of the pod, on the node and on the node's pods.
///
/// This covers all of PreFilter, Filter, PreScore and Score: where answers are kept, PreFilter and PreScore run once
/// for all pods with one fragment (PreScore receives no nodes). They receive a pod without a UID that represents these
/// pods. The values that they write into the [`CycleState`] are absent in later extension points. A plugin that needs
/// them there must return [`Kept::Never`] for such pods, or compute them again.
pub trait Keep: Send + Sync + 'static {
    /// Writes the values that the answers about `pod` depend on, other than the node: parts of the pod's spec, and all
    /// values read from `cx` except the checked node.
    fn fragment(&self, cx: &Context<'_>, pod: &PodInfo, fragment: &mut Fragment) -> Kept;

    /// Tracks cluster state that many nodes share and that changes too often for the fragment. Adds to `changed` the
    /// nodes whose answers may differ from the last call. It is called after PreFilter, and before each reuse of kept
    /// answers. `state` was written by PreFilter.
    fn follow(
        &self,
        _cx: &Context<'_>,
        _state: &mut CycleState,
        _changed: &mut Vec<Slot>,
    ) -> FollowOutcome {
        FollowOutcome::Nothing
    }

    /// Returns whether answers depend on the pods of the node, or on pods that are nominated to it, and not on the node
    /// alone.
    fn reads_pods(&self) -> bool {
        true
    }

    /// Returns whether scores are normalised over all feasible nodes with
    /// [`Score::normalize`](crate::plugin::Score::normalize). The normalisation may depend only on the set of raw
    /// scores, not on the node of a score or the number of nodes with it.
    fn normalizes(&self) -> bool {
        false
    }
}

/// The numbers by which a ledger distinguishes nodes: nodes with equal numbers get equal answers.
pub type Class = SmallVec<[i64; 4]>;

/// A change of a node that a ledger follows.
#[derive(Debug, Clone, Copy)]
pub enum LedgerChange<'a> {
    /// It was added, deleted or changed: it is counted again with all pods on it.
    Node,
    /// A pod was added to it or removed from it; the node itself did not change.
    Pod {
        /// The pod.
        pod: &'a PodInfo,
        /// Its signatures, which exclude most irrelevant pods without reading them.
        signatures: &'a PodSignatures,
        /// Whether it was added.
        is_added: bool,
    },
}

/// The state of a ledger, in addition to its answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LedgerState {
    /// The length of a class, which is constant for a ledger.
    pub class_len: usize,
    /// Whether the plugin accepts every node and prefers none, even after the removal of any of the current pods.
    /// Results for a node then do not depend on the pods of other nodes.
    pub is_indifferent: bool,
    /// Whether the ledger should be opened again because it has become slow. Its answers are still correct.
    pub is_stale: bool,
    /// About how much memory it takes, in bytes.
    pub bytes: usize,
}

/// Feasible nodes of one class.
#[derive(Debug, Clone, Copy)]
pub struct FeasibleClass<'a> {
    /// The ledger's own numbers.
    pub class: &'a [i64],
    /// The number of nodes; at least one.
    pub nodes: usize,
}

/// A plugin that judges nodes by the pods in their topology domains, and can update its counts pod by pod.
///
/// The ledger replaces PreFilter, Filter, PreScore and Score of the plugin, and must give the same answers.
pub trait Domains: Send + Sync + 'static {
    /// Writes the values that the answers about `pod` depend on, other than nodes and the pods on them.
    fn fragment(&self, cx: &Context<'_>, pod: &PodInfo, fragment: &mut Fragment) -> Kept;

    /// Counts the current cluster for all pods with the fragment of `pod`. `None` if the plugin accepts every node for
    /// such pods and prefers none, whatever changes.
    fn open(&self, cx: &Context<'_>, pod: &Arc<PodInfo>) -> Option<Box<dyn Ledger>>;
}

/// Counts that follow the cluster, for all pods with one fragment. See [`Domains`].
///
/// Changes arrive in order, each once: either the pods of a node one by one, or the node as a whole.
pub trait Ledger: Send + fmt::Debug {
    /// Processes a change of a node. Adds the nodes whose class may have changed to `changed`; the node itself need not
    /// be among them if it changed as a whole.
    fn follow(
        &mut self,
        cx: &Context<'_>,
        node: Slot,
        change: LedgerChange<'_>,
        changed: &mut Vec<Slot>,
    );

    /// The state.
    fn state(&self) -> LedgerState;

    /// Writes the classes of nodes, at least one, in as few passes as possible: number `k` of the node at place `n` is at
    /// `classes[k * nodes.len() + n]`. A slot without a node gets any class.
    fn write_classes(&self, nodes: &[Slot], classes: &mut [i64]);

    /// The answer of Filter for the nodes of a class.
    ///
    /// # Errors
    /// The reason for the rejection.
    fn filter(&self, class: &[i64]) -> Result<(), Status>;

    /// Writes the normalised scores of the feasible nodes, by class, to `scores`. Returns false if the plugin has no
    /// preference (as when PreScore returns Skip), for any classes; `scores` is then undefined.
    fn score(&self, classes: &[FeasibleClass<'_>], scores: &mut [i64]) -> bool;

    /// Returns whether `pod` would change an answer if it were added to some node.
    fn concerns(&self, cx: &Context<'_>, pod: &PodInfo) -> bool;

    /// The answer of Filter for a node as if AddPod had been called with these pods, which are nominated to it. `None`
    /// if the ledger has no answer; the plain evaluator decides then.
    ///
    /// # Errors
    /// The reason for the rejection.
    fn filter_with(
        &mut self,
        _cx: &Context<'_>,
        _node: Slot,
        _pods: &[Arc<PodInfo>],
    ) -> Option<Result<(), Status>> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes<T: Hash + ?Sized>(values: &[&T]) -> Vec<u8> {
        let mut fragment = Fragment::default();
        for value in values {
            fragment.put(*value);
        }
        fragment.as_bytes().to_vec()
    }

    #[test]
    fn different_values_never_look_alike() {
        assert_eq!(bytes(&["ab"]), bytes(&["ab"]));
        assert_ne!(bytes(&["ab", "c"]), bytes(&["a", "bc"]));
        assert_ne!(bytes(&[&vec!["a"]]), bytes(&[&vec!["a", ""]]));
        assert_ne!(bytes(&[&Some(0_i64)]), bytes(&[&None::<i64>]));
    }
}
