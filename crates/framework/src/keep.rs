//! Answers that may be kept: what lets a decision cost as much as has changed since the last one like it.
//!
//! Pods come from templates, so most pods look to a plugin like one that it has judged before. A plugin that
//! implements [`Keep`] says what its answers depend on: a [`Fragment`] of the pod, written down piece by piece, and
//! beside it nothing but the node that it is asked about. Such answers are kept, and asked for again on the nodes
//! that have changed, only.
//!
//! A plugin whose answer about one node depends on pods of others, by the values of node labels, implements
//! [`Domains`] instead: it opens a [`Ledger`] for all pods with one fragment. The ledger hears of every pod that
//! comes or goes, and sorts the nodes into **classes** about which it always gives one answer.
//!
//! A plugin that implements neither is asked about every node each time: correct, and slow for the pods that it has
//! something to say about.

use crate::plugin::{Context, Plugin};
use crate::pod_info::PodInfo;
use crate::status::Status;
use crate::table::Slot;
use smallvec::SmallVec;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// What a plugin reads of a pod, written down. Two pods with equal fragments get equal answers.
///
/// Anything that can be hashed can be written: what a hash is made of is kept as it is, so that different values
/// never count as equal.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Fragment {
    bytes: Vec<u8>,
}

impl Fragment {
    /// Writes a value down.
    pub fn put<T: Hash + ?Sized>(&mut self, value: &T) {
        value.hash(self);
    }

    /// Everything written so far.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Forgets what was written.
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

/// Whether a plugin's answers about a pod may be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    /// They may not: they depend on more than the plugin has written down.
    Never,
    /// They hold for every pod with the same fragment.
    ByFragment,
}

/// A plugin whose answers about a node depend on a fragment of the pod, on the node and on the node's pods.
///
/// This covers all of PreFilter, Filter, PreScore and Score: where answers are kept, PreFilter and PreScore run once
/// for all pods with one fragment (PreScore is shown no nodes), and what they write into the
/// [`CycleState`](crate::CycleState) is not there in later extension points. A plugin that needs it there must say
/// [`Kept::Never`] for such pods.
pub trait Keep: Plugin {
    /// Writes what the answers about `pod` depend on, other than the node: parts of the pod's spec, and whatever
    /// is read of `cx` beside the node that is asked about.
    fn fragment(&self, cx: &Context<'_>, pod: &PodInfo, fragment: &mut Fragment) -> Kept;

    /// Whether answers depend on the pods of the node, or on pods that were promised it, and not on the node alone.
    fn reads_pods(&self) -> bool {
        true
    }

    /// Whether scores have to be brought to scale by all nodes' together, with
    /// [`Score::normalize`](crate::plugin::Score::normalize). It may depend on nothing but *which* raw scores there
    /// are among the feasible nodes, not on whose they are or how many have them.
    fn normalizes(&self) -> bool {
        false
    }
}

/// What a ledger tells nodes apart by: nodes with equal numbers get equal answers.
pub type Class = SmallVec<[i64; 4]>;

/// Whether a pod has come to a node or gone from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Movement {
    /// It has come.
    Came,
    /// It has gone.
    Went,
}

/// Feasible nodes of one class.
#[derive(Debug, Clone, Copy)]
pub struct FeasibleClass<'a> {
    /// The ledger's own numbers.
    pub class: &'a [i64],
    /// How many nodes; at least one.
    pub nodes: usize,
}

/// A plugin that judges nodes by what runs in their topology domains, and can keep its counts pod by pod.
///
/// The ledger stands in for PreFilter, Filter, PreScore and Score of the plugin, and must answer as they do.
pub trait Domains: Plugin {
    /// Writes what the answers about `pod` depend on, other than nodes and the pods on them.
    fn fragment(&self, cx: &Context<'_>, pod: &PodInfo, fragment: &mut Fragment) -> Kept;

    /// Opens the books for all pods with the fragment of `pod`, from the cluster as it stands. `None` when the
    /// plugin has nothing to say about such pods, whatever comes and goes.
    fn open(&self, cx: &Context<'_>, pod: &Arc<PodInfo>) -> Option<Box<dyn Ledger>>;
}

/// Counts that follow the cluster, for all pods with one fragment. See [`Domains`].
///
/// Changes come in order, and each is told once: either the pods of a node one by one, or the node as a whole.
pub trait Ledger: Send + fmt::Debug {
    /// A pod has come to a node or gone from it; the node itself is as it was. Adds the nodes whose class may be
    /// another now to `changed`.
    fn pod_moved(
        &mut self,
        cx: &Context<'_>,
        node: Slot,
        pod: &PodInfo,
        movement: Movement,
        changed: &mut Vec<Slot>,
    );

    /// A node has come, gone or changed: it is counted anew with all pods on it. Adds the *other* nodes whose class
    /// may be another now to `changed`.
    fn node_changed(&mut self, cx: &Context<'_>, node: Slot, changed: &mut Vec<Slot>);

    /// How many numbers make up a class; always the same for one ledger.
    fn width(&self) -> usize;

    /// Appends the class of a node that exists.
    fn class(&self, node: Slot, class: &mut Class);

    /// What Filter says about the nodes of a class.
    ///
    /// # Errors
    /// Why they are turned down.
    fn filter(&self, class: &[i64]) -> Result<(), Status>;

    /// The normalised scores of the feasible nodes, by class, into `scores`; false when the plugin has no preference
    /// (as PreScore says Skip), and `scores` means nothing then.
    fn score(&self, classes: &[FeasibleClass<'_>], scores: &mut [i64]) -> bool;

    /// Whether `pod`, if it came to some node, would change an answer.
    fn concerns(&self, cx: &Context<'_>, pod: &PodInfo) -> bool;

    /// Whether the plugin lets every node through and prefers none, and would do so all the same if any of the pods
    /// that there are now went. What is found out about one node then holds whatever other nodes' pods do.
    fn is_indifferent(&self) -> bool {
        false
    }

    /// Whether all nodes are in one class at the moment.
    fn is_uniform(&self) -> bool {
        false
    }

    /// Whether the ledger had better be opened anew: it still answers right, but slowly.
    fn is_stale(&self) -> bool {
        false
    }

    /// About how much memory the ledger takes, in bytes.
    fn bytes(&self) -> usize;
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
