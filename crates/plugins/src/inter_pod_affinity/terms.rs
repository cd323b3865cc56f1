//! The terms of the pod that is being scheduled, with their namespaces looked up.

use berth_api::{Labels, Pod, Str};
use berth_framework::Cluster;
use berth_framework::pod_info::AffinityTerm;
use rustc_hash::FxHashSet;

/// A term of the new pod. Which namespaces its selector means was looked up once, so that the namespaces of the pods
/// that it is compared with need not be.
#[derive(Debug, Clone)]
pub(super) struct Term {
    term: AffinityTerm,
    selected: FxHashSet<Str>,
    everywhere: bool,
}

impl Term {
    /// Looks up the namespaces of a term.
    pub(super) fn new(term: &AffinityTerm, cluster: &Cluster) -> Self {
        let selector = &term.namespace_selector;
        // An empty selector means every namespace, and so, as upstream, does one that no labels at all satisfy.
        let everywhere = selector.matches(&Labels::default());
        let mut selected = FxHashSet::default();
        if !everywhere && !selector.is_nothing() {
            let namespaces = cluster.namespaces.iter();
            selected.extend(
                namespaces
                    .filter(|(_, namespace)| selector.matches(&namespace.metadata.labels))
                    .map(|(name, _)| name.clone()),
            );
        }
        Self {
            term: term.clone(),
            selected,
            everywhere,
        }
    }

    pub(super) fn topology_key(&self) -> &Str {
        &self.term.topology_key
    }

    pub(super) fn matches(&self, pod: &Pod) -> bool {
        let namespace = pod.namespace();
        (self.everywhere
            || self.term.namespaces.contains(namespace)
            || self.selected.contains(namespace))
            && self.term.selector.matches(pod.labels())
    }
}

/// Whether each of the terms means the pod; not so without terms.
pub(super) fn all_match(terms: &[Term], pod: &Pod) -> bool {
    !terms.is_empty() && terms.iter().all(|term| term.matches(pod))
}
