//! What must and must not be near, counted once and kept while pods are supposed to come and go.

use super::InterPodAffinity;
use super::counts::Counts;
use super::terms::{Meant, Required, count_unwelcome, verdict};
use berth_api::{Labels, Pod};
use berth_framework::plugin::{Context, Filter, PreFilter, PreFilterResult};
use berth_framework::{Cluster, CycleState, NodeView, PodInfo, Status};

/// What is kept about one pod.
#[derive(Debug)]
struct PreFilterState {
    required: Required,
    /// The labels of the pod's namespace.
    namespace: Labels,
    /// Per domain, the terms of other pods that do not want this one there.
    existing_anti_affinity: Counts,
    /// Per domain, the pods that match all affinity terms, once per term.
    affinity: Counts,
    /// Per domain, the pods that match an anti-affinity term, once per term.
    anti_affinity: Counts,
}

impl PreFilterState {
    fn new(cluster: &Cluster, pod: &PodInfo) -> Self {
        Self {
            required: Required::new(pod.affinity.as_deref(), cluster),
            namespace: cluster.namespace_labels(pod.pod.namespace()),
            existing_anti_affinity: Counts::default(),
            affinity: Counts::default(),
            anti_affinity: Counts::default(),
        }
    }

    fn count_all(&mut self, cluster: &Cluster, pod: &Pod) {
        let has_terms = !self.required.is_empty();
        if !has_terms && cluster.nodes.pods_with_required_anti_affinity() == 0 {
            return;
        }
        for node in cluster.nodes.iter() {
            for other in node.pods_with_required_anti_affinity() {
                self.count_existing(pod, other, node.labels(), 1);
            }
            if has_terms {
                for other in node.pods() {
                    self.count_own(&other.pod, node.labels(), 1);
                }
            }
        }
    }

    fn count_existing(&mut self, pod: &Pod, other: &PodInfo, labels: &Labels, amount: i64) {
        let counts = &mut self.existing_anti_affinity;
        count_unwelcome(pod, &self.namespace, other, |key| {
            counts.add(key, labels, amount);
        });
    }

    fn count_own(&mut self, other: &Pod, labels: &Labels, amount: i64) {
        let (affinity, anti_affinity) = (&mut self.affinity, &mut self.anti_affinity);
        self.required.count(other, |key, meant| match meant {
            Meant::Affinity => affinity.add(key, labels, amount),
            Meant::AntiAffinity => anti_affinity.add(key, labels, amount),
        });
    }

    fn change(&mut self, pod: &Pod, other: &PodInfo, labels: &Labels, amount: i64) {
        self.count_existing(pod, other, labels, amount);
        self.count_own(&other.pod, labels, amount);
    }

    fn satisfies_affinity(&self, pod: &Pod, labels: &Labels) -> bool {
        let mut all_there = true;
        for term in &self.required.affinity {
            let Some(value) = labels.get(term.topology_key()) else {
                return false;
            };
            all_there &= self.affinity.get(term.topology_key(), value) > 0;
        }
        // The first pod of a series.
        all_there || (self.affinity.is_empty() && self.required.affinity_means(pod))
    }

    fn satisfies_anti_affinity(&self, labels: &Labels) -> bool {
        self.required.anti_affinity.iter().all(|term| {
            let value = labels.get(term.topology_key());
            value.is_none_or(|value| self.anti_affinity.get(term.topology_key(), value) <= 0)
        })
    }

    fn check(&self, pod: &Pod, labels: &Labels) -> Status {
        let mut unwelcome = self.existing_anti_affinity.of_node(labels);
        verdict(
            self.satisfies_affinity(pod, labels),
            || self.satisfies_anti_affinity(labels),
            || !unwelcome.any(|count| count > 0),
        )
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
        if kept.existing_anti_affinity.is_empty() && kept.required.is_empty() {
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
