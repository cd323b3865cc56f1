//! The incoming pod, or all pods with one fragment: their common state, and the effects of other pods on them.

use super::InterPodAffinityArgs;
use super::score::Preferences;
use super::terms::{
    MatchedPod, RequiredMatch, RequiredTerms, count_existing_anti_affinity, required_anti_affinity,
};
use berth_api::{Labels, Pod, Selector, Str};
use berth_framework::keep::{Fragment, Kept};
use berth_framework::plugin::Context;
use berth_framework::pod_info::LabelSignature;
use berth_framework::pod_info::{AffinityTerm, AffinityTerms, Computed};
use berth_framework::table::{PodSignatures, PodsPerNode};
use berth_framework::{Cluster, NodeTable, NodeView, PodInfo, Status};
use smallvec::SmallVec;
use std::sync::Arc;

/// The effect of a pod on a node on the incoming pod, in one domain of the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PodEffect {
    /// Its required anti-affinity excludes the incoming pod.
    ExistingAntiAffinity,
    /// It matches all required affinity terms of the incoming pod; once per term.
    Affinity,
    /// It matches a required anti-affinity term of the incoming pod.
    AntiAffinity,
    /// The points of preferred terms of either pod.
    Points(i64),
}

/// Returns whether the matches of the selector depend on the labels of namespaces. A selector that matches empty labels
/// matches all namespaces; see [`Term`](crate::inter_pod_affinity::terms::Term).
fn looks_up(selector: &Selector) -> bool {
    !selector.is_nothing() && !selector.matches(&Labels::default())
}

/// Returns whether a pod matches all its own required affinity terms: then it may be the first of a series.
fn matches_itself(terms: &AffinityTerms, cluster: &Cluster, pod: &Pod) -> bool {
    let means = |term: &AffinityTerm| {
        let everywhere = term.namespace_selector.matches(&Labels::default());
        let namespace = || cluster.namespaces().labels(pod.namespace());
        (everywhere && term.selector.matches(pod.labels())) || term.matches(pod, namespace)
    };
    !terms.required_affinity.is_empty() && terms.required_affinity.iter().all(means)
}

/// Writes the fragment: the pod's own terms and whether they match the pod itself; then, if terms of other pods may
/// match it, its namespace and the labels that such terms read. Labels that no term reads, such as the hash of a
/// template, do not distinguish pods.
pub(super) fn write(cluster: &Cluster, pod: &PodInfo, fragment: &mut Fragment) -> Kept {
    let own = pod.affinity.as_deref();
    if own.is_some_and(|terms| terms.error.is_some()) {
        return Kept::Never;
    }
    let own = own.filter(|terms| terms.all().next().is_some());
    fragment.put(&own);
    if let Some(terms) = own {
        fragment.put(&matches_itself(terms, cluster, &pod.pod));
        if terms.all().any(|term| looks_up(&term.namespace_selector)) {
            fragment.put(&cluster.namespaces().version());
        }
    }
    let may_be_meant = cluster.nodes.totals().with_affinity() > 0;
    fragment.put(&may_be_meant);
    if may_be_meant {
        let namespace = pod.pod.namespace();
        fragment.put(namespace);
        fragment.put(&cluster.namespaces().labels(namespace));
        for key in cluster.nodes.totals().affinity_labels() {
            fragment.put(key);
            fragment.put(&pod.pod.labels().get(key));
        }
    }
    Kept::ByFragment
}

/// The state of all pods with one fragment.
#[derive(Debug)]
pub(super) struct Incoming {
    /// One of them.
    pod: PodInfo,
    /// The labels of its namespace.
    namespace: Labels,
    pub(super) required: RequiredTerms,
    pub(super) preferences: Preferences,
    /// Whether required anti-affinity terms of other pods count.
    counts_existing_anti_affinity: bool,
    /// Whether the pod's required affinity terms match the pod itself.
    pub(super) matches_itself: bool,
    /// The labels of the pod that are equal for all pods of the fragment; `None` if not even the namespace is equal.
    common_labels: Option<Vec<Str>>,
}

impl Incoming {
    /// Without required and preferred terms.
    fn bare(cluster: &Cluster, pod: &PodInfo) -> Self {
        Self {
            namespace: cluster.namespaces().labels(pod.pod.namespace()),
            required: RequiredTerms::default(),
            preferences: Preferences::default(),
            counts_existing_anti_affinity: false,
            matches_itself: false,
            common_labels: None,
            pod: pod.clone(),
        }
    }

    /// With required terms only.
    pub(super) fn for_filter(cluster: &Cluster, pod: &PodInfo) -> Self {
        let required = RequiredTerms::new(pod.affinity.as_deref(), cluster);
        Self {
            matches_itself: required.matches_all_affinity(&pod.pod),
            required,
            counts_existing_anti_affinity: true,
            ..Self::bare(cluster, pod)
        }
    }

    /// With preferred terms only.
    pub(super) fn for_score(args: &InterPodAffinityArgs, cluster: &Cluster, pod: &PodInfo) -> Self {
        Self {
            preferences: Preferences::new(args, pod.affinity.as_deref(), cluster),
            ..Self::bare(cluster, pod)
        }
    }

    /// With everything, for all pods with the fragment of `pod`.
    pub(super) fn new(args: &InterPodAffinityArgs, cluster: &Cluster, pod: &PodInfo) -> Self {
        let may_be_meant = cluster.nodes.totals().with_affinity() > 0;
        let labels = || cluster.nodes.totals().affinity_labels().cloned().collect();
        Self {
            preferences: Preferences::new(args, pod.affinity.as_deref(), cluster),
            common_labels: may_be_meant.then(labels),
            ..Self::for_filter(cluster, pod)
        }
    }

    /// The topology keys of the pod's own terms, and whether they are of required affinity.
    pub(super) fn topology_keys(&self) -> impl Iterator<Item = (&Str, bool)> {
        let near = self.required.affinity.iter();
        let far = self.required.anti_affinity.iter();
        let preferred = self.preferences.topology_keys();
        near.map(|term| (term.topology_key(), true))
            .chain(far.map(|term| (term.topology_key(), false)))
            .chain(preferred.map(|key| (key, false)))
    }

    fn has_terms(&self) -> bool {
        !(self.required.is_empty() && self.preferences.is_empty())
    }

    /// A pod that the terms match has all bits of one of these signatures.
    pub(super) fn signatures(&self) -> impl Iterator<Item = LabelSignature> {
        self.required
            .signatures()
            .chain(self.preferences.signatures())
    }

    /// Returns whether the terms of another pod may match the pod.
    pub(super) fn may_be_matched_by(&self, other: &PodSignatures) -> bool {
        let mut signatures = other.of_terms.iter();
        signatures.any(|signature| signature.is_in(self.pod.signature()))
    }

    /// The pods of a node that may count.
    pub(super) fn received<'a>(
        &self,
        node: &'a NodeView<'_>,
    ) -> impl Iterator<Item = &'a Arc<PodInfo>> + use<'a> {
        let (all, others) = if self.has_terms() {
            (node.pods(), None)
        } else {
            (&[][..], Some(node.pods_with_affinity()))
        };
        all.iter().chain(others.into_iter().flatten())
    }

    /// Visits the effects of another pod with their topology keys.
    pub(super) fn effects(&self, other: &PodInfo, mut each: impl FnMut(&Str, PodEffect)) {
        if self.has_terms() {
            self.effects_by_labels((&other.pod).into(), &mut each);
        }
        if other.has_affinity() {
            self.effects_by_terms(other, &mut each);
        }
    }

    /// The effects of another pod by the terms of the new one.
    fn effects_by_labels(&self, other: MatchedPod<'_>, each: &mut impl FnMut(&Str, PodEffect)) {
        self.required.count(other, |key, meant| {
            let effect = match meant {
                RequiredMatch::Affinity => PodEffect::Affinity,
                RequiredMatch::AntiAffinity => PodEffect::AntiAffinity,
            };
            each(key, effect);
        });
        self.preferences
            .count_own(other, |key, points| each(key, PodEffect::Points(points)));
    }

    /// The effects of another pod by its own terms.
    fn effects_by_terms(&self, other: &Computed, each: &mut impl FnMut(&Str, PodEffect)) {
        let (pod, namespace) = (&self.pod.pod, &self.namespace);
        if self.counts_existing_anti_affinity {
            count_existing_anti_affinity(pod, namespace, other, |key| {
                each(key, PodEffect::ExistingAntiAffinity);
            });
        }
        self.preferences
            .count_others(pod, namespace, other, |key, points| {
                each(key, PodEffect::Points(points));
            });
    }

    /// Counts that each term is compared with each kind of pods on nodes.
    ///
    /// # Errors
    /// When that is more than the attempt may do.
    pub(super) fn look_at_all(&self, cx: &Context<'_>) -> Result<(), Status> {
        let required = &self.required;
        let terms = required.affinity.len() + required.anti_affinity.len();
        let terms = terms.saturating_add(self.preferences.topology_keys().count());
        cx.look_at(terms, cx.cluster.nodes.pod_kinds())
    }

    /// Visits the effects of the pods on all nodes: each effect with its topology key and the number of pods per node.
    pub(super) fn all_effects(
        &self,
        nodes: &NodeTable,
        mut each: impl FnMut(&Str, PodEffect, &PodsPerNode),
    ) {
        if nodes.is_supposing() {
            // The census does not count the pods of a dry run.
            for node in nodes.iter() {
                for other in self.received(&node) {
                    self.effects(other, |key, effect| each(key, effect, &[(node.slot(), 1)]));
                }
            }
            return;
        }
        let census = nodes.census();
        let wanted: SmallVec<[LabelSignature; 4]> = self.signatures().collect();
        if !wanted.is_empty() {
            for alike in census.alike(&wanted) {
                let alike_pod = MatchedPod {
                    namespace: alike.namespace,
                    labels: alike.labels,
                };
                self.effects_by_labels(alike_pod, &mut |key, effect| {
                    each(key, effect, alike.per_node)
                });
            }
        }
        if nodes.totals().with_affinity() > 0 {
            let pod = &self.pod.pod;
            let signature = LabelSignature::of(pod.namespace(), pod.labels());
            for (computed, per_node) in census.may_mean(signature) {
                self.effects_by_terms(computed, &mut |key, effect| each(key, effect, per_node));
            }
        }
    }

    /// Returns whether a pod without a node would count for any pod of the ledger. If its terms read values in which
    /// these pods differ, the answer is true.
    pub(super) fn may_count(&self, other: &PodInfo) -> bool {
        let mut means_own = false;
        self.required.count(&other.pod, |_, _| means_own = true);
        self.preferences
            .count_own(&other.pod, |_, _| means_own = true);
        let scored = self.preferences.terms_of(other).map(|(term, _)| term);
        means_own
            || required_anti_affinity(other)
                .iter()
                .chain(scored)
                .any(|term| self.may_be_meant(term))
    }

    /// Returns whether all pods of the ledger are equal to the required anti-affinity terms of another pod.
    pub(super) fn knows_count(&self, other: &PodInfo) -> bool {
        required_anti_affinity(other).iter().all(|term| {
            let mut requirements = term.selector.requirements().iter();
            self.common_labels.as_ref().is_some_and(|common| {
                requirements.all(|requirement| common.binary_search(requirement.key()).is_ok())
            })
        })
    }

    fn may_be_meant(&self, term: &AffinityTerm) -> bool {
        let Some(common) = &self.common_labels else {
            return !term.selector.is_nothing();
        };
        let is_namespace_meant = term.namespaces.contains(self.pod.pod.namespace())
            || term.namespace_selector.matches(&self.namespace);
        let mut requirements = term.selector.requirements().iter();
        let labels = self.pod.pod.labels();
        is_namespace_meant
            && !term.selector.is_nothing()
            && requirements.all(|requirement| {
                common.binary_search(requirement.key()).is_err()
                    || requirement.is_met_by(labels.get(requirement.key()))
            })
    }
}
