//! Nominated pods, as the search for a node reads them.

use crate::pod_info::PodInfo;
use berth_api::Str;
use std::sync::Arc;

/// The pods that are nominated to a node and are not on it yet.
pub trait NominatedPods {
    /// Returns whether there is none anywhere.
    fn is_empty(&self) -> bool;
    /// Visits the pods that are nominated to a node.
    fn on_node(&self, node: &Str, each: &mut dyn FnMut(&Arc<PodInfo>));
    /// The node that a pod is nominated to.
    fn node_of(&self, uid: &str) -> Option<&Str>;
    /// Grows with every change.
    fn changes_end(&self) -> u64;
    /// Names every node whose nominations have changed since [`NominatedPods::changes_end`] was `since`; false when
    /// that is too long ago to be known.
    fn changed_since(&self, since: u64, each: &mut dyn FnMut(&Str)) -> bool;
    /// Names every node to which a pod is nominated that uses this claim.
    fn with_claim(&self, namespace: &Str, name: &Str, each: &mut dyn FnMut(&Str));
}

/// No pod is nominated.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoNominations;

impl NominatedPods for NoNominations {
    fn is_empty(&self) -> bool {
        true
    }

    fn on_node(&self, _node: &Str, _each: &mut dyn FnMut(&Arc<PodInfo>)) {}

    fn node_of(&self, _uid: &str) -> Option<&Str> {
        None
    }

    fn changes_end(&self) -> u64 {
        0
    }

    fn changed_since(&self, _since: u64, _each: &mut dyn FnMut(&Str)) -> bool {
        true
    }

    fn with_claim(&self, _namespace: &Str, _name: &Str, _each: &mut dyn FnMut(&Str)) {}
}
