//! Points for domains with preferred pods, and negative points for domains with pods to avoid.

use super::counts::AffinityCounts;
use super::incoming::{Incoming, PodEffect};
use super::terms::{IncomingTerm, MatchedPod};
use super::{InterPodAffinity, InterPodAffinityArgs};
use berth_api::{Labels, Pod, Str};
use berth_framework::plugin::{Context, MAX_NODE_SCORE, PreScore, Score};
use berth_framework::pod_info::LabelSignature;
use berth_framework::pod_info::{AffinityTerm, AffinityTerms, Computed, WeightedAffinityTerm};
use berth_framework::{Cluster, CycleState, NodeView, PodInfo, Slot, Status};

/// A preferred term of the new pod with its points, negative for anti-affinity.
#[derive(Debug)]
struct Preference {
    points: i64,
    term: IncomingTerm,
}

/// The preferences of the new pod, and the weight of the preferences of others for it.
#[derive(Debug, Default)]
pub(super) struct Preferences {
    own: Vec<Preference>,
    others_count: bool,
    hard_weight: i64,
}

/// Preferred terms with their points.
fn weighted(
    terms: &[WeightedAffinityTerm],
    sign: i64,
) -> impl Iterator<Item = (&AffinityTerm, i64)> {
    let points = move |weighted: &WeightedAffinityTerm| sign * i64::from(weighted.weight);
    terms.iter().map(move |term| (&term.term, points(term)))
}

impl Preferences {
    pub(super) fn new(
        args: &InterPodAffinityArgs,
        terms: Option<&AffinityTerms>,
        cluster: &Cluster,
    ) -> Self {
        let own: Vec<Preference> = terms
            .into_iter()
            .flat_map(|terms| {
                let near = weighted(&terms.preferred_affinity, 1);
                near.chain(weighted(&terms.preferred_anti_affinity, -1))
            })
            .map(|(term, points)| Preference {
                points,
                term: IncomingTerm::new(term, cluster),
            })
            .collect();
        Self {
            others_count: !own.is_empty() || !args.ignore_preferred_terms_of_existing_pods,
            own,
            hard_weight: args.hard_pod_affinity_weight,
        }
    }

    /// Returns whether the new pod prefers nothing itself.
    pub(super) fn is_empty(&self) -> bool {
        self.own.is_empty()
    }

    /// The topology keys of the pod's own terms.
    pub(super) fn topology_keys(&self) -> impl Iterator<Item = &Str> {
        self.own.iter().map(|own| own.term.topology_key())
    }

    /// Signatures for a pre-check: every pod that an own term matches has at least one of them.
    pub(super) fn signatures(&self) -> impl Iterator<Item = LabelSignature> {
        self.own.iter().filter_map(|own| own.term.signature())
    }

    /// Visits the topology key and the points of each own term that matches another pod.
    pub(super) fn count_own<'a>(
        &self,
        other: impl Into<MatchedPod<'a>>,
        mut each: impl FnMut(&Str, i64),
    ) {
        let other = other.into();
        for preference in &self.own {
            if preference.term.matches(other) {
                each(preference.term.topology_key(), preference.points);
            }
        }
    }

    /// The terms of a pod that runs already which count, with their points.
    pub(super) fn terms_of<'a>(
        &self,
        other: &'a Computed,
    ) -> impl Iterator<Item = (&'a AffinityTerm, i64)> + use<'a> {
        let hard_weight = self.hard_weight;
        let terms = other.affinity.as_deref().filter(|_| self.others_count);
        terms.into_iter().flat_map(move |terms| {
            let required = terms.required_affinity.iter();
            required
                .filter(move |_| hard_weight > 0)
                .map(move |term| (term, hard_weight))
                .chain(weighted(&terms.preferred_affinity, 1))
                .chain(weighted(&terms.preferred_anti_affinity, -1))
        })
    }

    /// Visits the topology key and the points of each term of a placed pod that matches the new one.
    /// `namespace` has the labels of the new pod's namespace.
    pub(super) fn count_others(
        &self,
        pod: &Pod,
        namespace: &Labels,
        other: &Computed,
        mut each: impl FnMut(&Str, i64),
    ) {
        for (term, points) in self.terms_of(other) {
            if term.matches(pod, || namespace.clone()) {
                each(&term.topology_key, points);
            }
        }
    }
}

/// The least and the greatest of some sums of points.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct PointRange {
    least: i64,
    greatest: i64,
}

impl PointRange {
    pub(super) fn of(sums: impl Iterator<Item = i64> + Clone) -> Self {
        Self {
            least: sums.clone().min().unwrap_or(0),
            greatest: sums.max().unwrap_or(0),
        }
    }

    /// The least becomes 0, the greatest 100, cut to integers; all become 0 when they are equal.
    pub(super) fn scale(self, sum: i64) -> i64 {
        let width = self.greatest.saturating_sub(self.least);
        if width <= 0 {
            return 0;
        }
        let share = sum.saturating_sub(self.least) as f64 / width as f64;
        (MAX_NODE_SCORE as f64 * share) as i64
    }
}

struct PreScoreState {
    points: AffinityCounts,
}

impl PreScore for InterPodAffinity {
    fn pre_score(
        &self,
        cx: &Context<'_>,
        state: &mut CycleState,
        pod: &PodInfo,
        _nodes: &[Slot],
    ) -> Status {
        let terms = pod.affinity.as_deref();
        // An invalid preferred term fails the cycle (PL-87).
        if let Some(error) = terms.and_then(|terms| terms.error.as_ref()) {
            return Status::error(format!("parsing pod: {error}"));
        }
        let nodes = &cx.cluster.nodes;
        let incoming = Incoming::for_score(&self.args, cx.cluster, pod);
        let preferences = &incoming.preferences;
        // Terms of other pods count only if some pod has affinity.
        let others_count = preferences.others_count && nodes.totals().with_affinity() > 0;
        if preferences.is_empty() && !others_count {
            return Status::skip();
        }
        if let Err(status) = incoming.look_at_all(cx) {
            return status;
        }
        let mut points = AffinityCounts::default();
        incoming.all_effects(nodes, |key, effect, per_node| {
            let PodEffect::Points(of_each) = effect else {
                return;
            };
            for (slot, pods) in per_node {
                if let Some(node) = nodes.get(*slot) {
                    let sum = of_each.saturating_mul(i64::from(*pods));
                    points.add_points(key, node.labels(), sum);
                }
            }
        });
        // No term matches any pod, so all nodes are equal (PL-86).
        if points.is_empty() {
            return Status::skip();
        }
        state.write(PreScoreState { points });
        Status::success()
    }
}

impl Score for InterPodAffinity {
    fn score(
        &self,
        _cx: &Context<'_>,
        state: &CycleState,
        _pod: &PodInfo,
        node: NodeView<'_>,
    ) -> Result<i64, Status> {
        let kept = state
            .read::<PreScoreState>()
            .ok_or_else(|| Status::error("InterPodAffinity: Score ran without PreScore"))?;
        Ok(kept
            .points
            .of_node(node.labels())
            .map(|(_, points)| points)
            .fold(0, i64::saturating_add))
    }

    fn normalize(
        &self,
        _cx: &Context<'_>,
        _state: &CycleState,
        _pod: &PodInfo,
        scores: &mut [(Slot, i64)],
    ) -> Status {
        let range = PointRange::of(scores.iter().map(|(_, score)| *score));
        for (_, score) in scores {
            *score = range.scale(*score);
        }
        Status::success()
    }
}
