//! What must and must not be near, counted once and kept while pods are supposed to come and go.

use super::counts::Counts;
use super::terms::{Term, all_match};
use super::{
    InterPodAffinity, REASON_AFFINITY, REASON_ANTI_AFFINITY, REASON_EXISTING_ANTI_AFFINITY,
};
use berth_api::{Labels, Pod};
use berth_framework::plugin::{Context, Filter, PreFilter, PreFilterResult};
use berth_framework::pod_info::AffinityTerm;
use berth_framework::{Cluster, CycleState, NodeView, PodInfo, Status};

/// What is kept about one pod.
#[derive(Debug)]
struct PreFilterState {
    affinity_terms: Vec<Term>,
    anti_affinity_terms: Vec<Term>,
    /// The labels of the pod's namespace.
    namespace: Labels,
    /// Per domain, the terms of other pods that do not want this one there.
    existing_anti_affinity: Counts,
    /// Per domain, the pods that match all affinity terms, once per term.
    affinity: Counts,
    /// Per domain, the pods that match an anti-affinity term, once per term.
    anti_affinity: Counts,
}

fn unrolled(terms: &[AffinityTerm], cluster: &Cluster) -> Vec<Term> {
    terms.iter().map(|term| Term::new(term, cluster)).collect()
}

impl PreFilterState {
    fn new(cluster: &Cluster, pod: &PodInfo) -> Self {
        let (affinity_terms, anti_affinity_terms) = match &pod.affinity {
            None => (Vec::new(), Vec::new()),
            Some(terms) => (
                unrolled(&terms.required_affinity, cluster),
                unrolled(&terms.required_anti_affinity, cluster),
            ),
        };
        Self {
            affinity_terms,
            anti_affinity_terms,
            namespace: cluster.namespace_labels(pod.pod.namespace()),
            existing_anti_affinity: Counts::default(),
            affinity: Counts::default(),
            anti_affinity: Counts::default(),
        }
    }

    fn has_terms(&self) -> bool {
        !(self.affinity_terms.is_empty() && self.anti_affinity_terms.is_empty())
    }

    fn count_all(&mut self, cluster: &Cluster, pod: &Pod) {
        if !self.has_terms() && cluster.nodes.pods_with_required_anti_affinity() == 0 {
            return;
        }
        for node in cluster.nodes.iter() {
            for other in node.pods_with_required_anti_affinity() {
                self.count_existing(pod, other, node.labels(), 1);
            }
            if self.has_terms() {
                for other in node.pods() {
                    self.count_own(&other.pod, node.labels(), 1);
                }
            }
        }
    }

    fn count_existing(&mut self, pod: &Pod, other: &PodInfo, labels: &Labels, amount: i64) {
        let terms = other
            .affinity
            .iter()
            .flat_map(|terms| &terms.required_anti_affinity);
        for term in terms {
            if term.matches(pod, || self.namespace.clone()) {
                self.existing_anti_affinity
                    .add(&term.topology_key, labels, amount);
            }
        }
    }

    fn count_own(&mut self, other: &Pod, labels: &Labels, amount: i64) {
        if all_match(&self.affinity_terms, other) {
            for term in &self.affinity_terms {
                self.affinity.add(term.topology_key(), labels, amount);
            }
        }
        for term in &self.anti_affinity_terms {
            if term.matches(other) {
                self.anti_affinity.add(term.topology_key(), labels, amount);
            }
        }
    }

    fn change(&mut self, pod: &Pod, other: &PodInfo, labels: &Labels, amount: i64) {
        self.count_existing(pod, other, labels, amount);
        self.count_own(&other.pod, labels, amount);
    }

    fn satisfies_affinity(&self, pod: &Pod, labels: &Labels) -> bool {
        let mut all_there = true;
        for term in &self.affinity_terms {
            let Some(value) = labels.get(term.topology_key()) else {
                return false;
            };
            all_there &= self.affinity.get(term.topology_key(), value) > 0;
        }
        // The first pod of a series.
        all_there || (self.affinity.is_empty() && all_match(&self.affinity_terms, pod))
    }

    fn satisfies_anti_affinity(&self, labels: &Labels) -> bool {
        self.anti_affinity_terms.iter().all(|term| {
            let value = labels.get(term.topology_key());
            value.is_none_or(|value| self.anti_affinity.get(term.topology_key(), value) <= 0)
        })
    }

    fn check(&self, pod: &Pod, labels: &Labels) -> Status {
        if !self.satisfies_affinity(pod, labels) {
            return Status::unresolvable(REASON_AFFINITY);
        }
        if !self.satisfies_anti_affinity(labels) {
            return Status::unschedulable(REASON_ANTI_AFFINITY);
        }
        if self
            .existing_anti_affinity
            .of_node(labels)
            .any(|count| count > 0)
        {
            return Status::unschedulable(REASON_EXISTING_ANTI_AFFINITY);
        }
        Status::success()
    }
}

impl PreFilter for InterPodAffinity {
    fn pre_filter(
        &self,
        cx: &Context<'_>,
        state: &mut CycleState,
        pod: &PodInfo,
    ) -> PreFilterResult {
        let error = pod.affinity.as_ref().and_then(|terms| terms.error.as_ref());
        if let Some(error) = error {
            return PreFilterResult::Reject(Status::unresolvable(format!("parsing pod: {error}")));
        }
        let mut kept = PreFilterState::new(cx.cluster, pod);
        kept.count_all(cx.cluster, &pod.pod);
        if kept.existing_anti_affinity.is_empty() && !kept.has_terms() {
            return PreFilterResult::Skip;
        }
        state.write(kept);
        PreFilterResult::AllNodes
    }

    fn add_pod(
        &self,
        _cx: &Context<'_>,
        state: &mut CycleState,
        pod: &PodInfo,
        other: &PodInfo,
        node: NodeView<'_>,
    ) -> Status {
        if let Some(kept) = state.read_mut::<PreFilterState>() {
            kept.change(&pod.pod, other, node.labels(), 1);
        }
        Status::success()
    }

    fn remove_pod(
        &self,
        _cx: &Context<'_>,
        state: &mut CycleState,
        pod: &PodInfo,
        other: &PodInfo,
        node: NodeView<'_>,
    ) -> Status {
        if let Some(kept) = state.read_mut::<PreFilterState>() {
            kept.change(&pod.pod, other, node.labels(), -1);
        }
        Status::success()
    }
}

impl Filter for InterPodAffinity {
    fn filter(
        &self,
        _cx: &Context<'_>,
        state: &CycleState,
        pod: &PodInfo,
        node: NodeView<'_>,
    ) -> Status {
        match state.read::<PreFilterState>() {
            Some(kept) => kept.check(&pod.pod, node.labels()),
            None => Status::error("InterPodAffinity: Filter ran without PreFilter"),
        }
    }
}
