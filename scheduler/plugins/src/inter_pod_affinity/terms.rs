//! The required terms of the incoming pod, with resolved namespaces, and the required anti-affinity terms of other
//! pods.

use super::{REASON_AFFINITY, REASON_ANTI_AFFINITY, REASON_EXISTING_ANTI_AFFINITY};
use berth_api::{Labels, Pod, Str};
use berth_framework::pod_info::LabelSignature;
use berth_framework::pod_info::{AffinityTerm, AffinityTerms, Computed};
use berth_framework::{Cluster, ReasonCode, Status};
use rustc_hash::FxHashSet;
use std::sync::Arc;

/// The parts of a pod that selectors read.
#[derive(Debug, Clone, Copy)]
pub(super) struct MatchedPod<'a> {
    pub(super) namespace: &'a Str,
    pub(super) labels: &'a Labels,
}

impl<'a> From<&'a Pod> for MatchedPod<'a> {
    fn from(pod: &'a Pod) -> Self {
        Self {
            namespace: pod.namespace(),
            labels: pod.labels(),
        }
    }
}

impl<'a> From<&'a Arc<Pod>> for MatchedPod<'a> {
    fn from(pod: &'a Arc<Pod>) -> Self {
        Self::from(&**pod)
    }
}

/// A term of the incoming pod. The namespaces of its selector are resolved once, so that the namespaces of the compared
/// pods need not be looked up.
#[derive(Debug, Clone)]
pub(super) struct IncomingTerm {
    term: AffinityTerm,
    selected: FxHashSet<Str>,
    everywhere: bool,
}

impl IncomingTerm {
    /// Looks up the namespaces of a term.
    pub(super) fn new(term: &AffinityTerm, cluster: &Cluster) -> Self {
        let selector = &term.namespace_selector;
        // An empty selector means every namespace, and so, as upstream, does one that no labels at all satisfy.
        let everywhere = selector.matches(&Labels::default());
        let mut selected = FxHashSet::default();
        if !everywhere && !selector.is_nothing() {
            let namespaces = cluster.namespaces().iter();
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

    /// The signature of all pods that the term matches; `None` when it matches none.
    pub(super) fn signature(&self) -> Option<LabelSignature> {
        let term = &self.term;
        let one = term.namespaces.len() == 1 && !self.everywhere && self.selected.is_empty();
        let only = term.namespaces.first().filter(|_| one);
        (!term.selector.is_nothing())
            .then(|| LabelSignature::required(only.map(Str::as_str), &term.selector))
    }

    pub(super) fn matches<'a>(&self, other: impl Into<MatchedPod<'a>>) -> bool {
        let other = other.into();
        // Most pods differ in their labels, so that nothing is looked up for them.
        self.term.selector.matches(other.labels)
            && (self.everywhere
                || self.term.namespaces.contains(other.namespace)
                || self.selected.contains(other.namespace))
    }
}

/// The relation of a pod to a required term of the new one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequiredMatch {
    /// It matches all affinity terms, including this one.
    Affinity,
    /// It matches an anti-affinity term.
    AntiAffinity,
}

/// The required terms of the new pod.
#[derive(Debug, Default)]
pub(super) struct RequiredTerms {
    pub(super) affinity: Vec<IncomingTerm>,
    pub(super) anti_affinity: Vec<IncomingTerm>,
}

impl RequiredTerms {
    pub(super) fn new(terms: Option<&AffinityTerms>, cluster: &Cluster) -> Self {
        let unrolled = |terms: &[AffinityTerm]| {
            terms
                .iter()
                .map(|term| IncomingTerm::new(term, cluster))
                .collect()
        };
        Self {
            affinity: terms.map_or_else(Vec::new, |terms| unrolled(&terms.required_affinity)),
            anti_affinity: terms
                .map_or_else(Vec::new, |terms| unrolled(&terms.required_anti_affinity)),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.affinity.is_empty() && self.anti_affinity.is_empty()
    }

    /// Returns whether the pod matches every affinity term; not so without terms.
    pub(super) fn matches_all_affinity<'a>(&self, pod: impl Into<MatchedPod<'a>>) -> bool {
        let pod = pod.into();
        !self.affinity.is_empty() && self.affinity.iter().all(|term| term.matches(pod))
    }

    /// Signatures for a pre-check: every pod that counts has at least one of them.
    pub(super) fn signatures(&self) -> impl Iterator<Item = LabelSignature> {
        // A pod counts for affinity by all of its terms or by none.
        let near = self.affinity.first().into_iter();
        near.chain(&self.anti_affinity)
            .filter_map(IncomingTerm::signature)
    }

    /// Visits each topology key by which another pod counts.
    pub(super) fn count<'a>(
        &self,
        other: impl Into<MatchedPod<'a>>,
        mut each: impl FnMut(&Str, RequiredMatch),
    ) {
        let other = other.into();
        if self.matches_all_affinity(other) {
            for term in &self.affinity {
                each(term.topology_key(), RequiredMatch::Affinity);
            }
        }
        for term in &self.anti_affinity {
            if term.matches(other) {
                each(term.topology_key(), RequiredMatch::AntiAffinity);
            }
        }
    }
}

/// The required anti-affinity terms of a pod; none without affinity.
pub(super) fn required_anti_affinity(pod: &Computed) -> &[AffinityTerm] {
    match &pod.affinity {
        Some(terms) => &terms.required_anti_affinity,
        None => &[],
    }
}

/// Visits the topology key of each required anti-affinity term of `other` that matches `pod`. `namespace` has the
/// labels of the pod's namespace.
pub(super) fn count_existing_anti_affinity(
    pod: &Pod,
    namespace: &Labels,
    other: &Computed,
    mut each: impl FnMut(&Str),
) {
    for term in required_anti_affinity(other) {
        if term.matches(pod, || namespace.clone()) {
            each(&term.topology_key);
        }
    }
}

/// The status of Filter, for the first violated rule (PL-80, PL-82, PL-83).
pub(super) fn verdict(
    affinity: bool,
    anti_affinity: impl FnOnce() -> bool,
    existing_anti_affinity: impl FnOnce() -> bool,
) -> Status {
    if !affinity {
        return Status::unresolvable(ReasonCode::PodAffinity.reason(REASON_AFFINITY));
    }
    if !anti_affinity() {
        return Status::unschedulable(ReasonCode::PodAntiAffinity.reason(REASON_ANTI_AFFINITY));
    }
    if !existing_anti_affinity() {
        return Status::unschedulable(
            ReasonCode::ExistingPodsAntiAffinity.reason(REASON_EXISTING_ANTI_AFFINITY),
        );
    }
    Status::success()
}
