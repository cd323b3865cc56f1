//! Points for domains with pods that are wanted near, and against those with pods that are not.

use super::InterPodAffinity;
use super::counts::Counts;
use super::terms::Term;
use berth_api::{Labels, Pod};
use berth_framework::plugin::{Context, MAX_NODE_SCORE, PreScore, Score};
use berth_framework::pod_info::{AffinityTerms, WeightedAffinityTerm};
use berth_framework::{Cluster, CycleState, NodeView, PodInfo, Slot, Status};

/// A preferred term of the new pod with its points, negative for anti-affinity.
struct Preference {
    points: i64,
    term: Term,
}

struct PreScoreState {
    points: Counts,
}

fn preferences(terms: Option<&AffinityTerms>, cluster: &Cluster) -> Vec<Preference> {
    let Some(terms) = terms else {
        return Vec::new();
    };
    let of = |weighted: &WeightedAffinityTerm, sign: i64| Preference {
        points: sign * i64::from(weighted.weight),
        term: Term::new(&weighted.term, cluster),
    };
    let near = terms.preferred_affinity.iter().map(|term| of(term, 1));
    let far = terms
        .preferred_anti_affinity
        .iter()
        .map(|term| of(term, -1));
    near.chain(far).collect()
}

/// One new pod and what it prefers.
struct Scorer<'a> {
    pod: &'a Pod,
    namespace: Labels,
    hard_weight: i64,
    preferences: Vec<Preference>,
    points: Counts,
}

impl Scorer<'_> {
    fn own(&mut self, other: &Pod, labels: &Labels) {
        for preference in &self.preferences {
            if preference.term.matches(other) {
                let key = preference.term.topology_key();
                self.points.add_points(key, labels, preference.points);
            }
        }
    }

    /// What a pod that runs already thinks of the new one.
    fn others(&mut self, other: &PodInfo, labels: &Labels) {
        let Some(terms) = &other.affinity else { return };
        let required = terms
            .required_affinity
            .iter()
            .filter(|_| self.hard_weight > 0)
            .map(|term| (term, self.hard_weight));
        let near = terms
            .preferred_affinity
            .iter()
            .map(|weighted| (&weighted.term, i64::from(weighted.weight)));
        let far = terms
            .preferred_anti_affinity
            .iter()
            .map(|weighted| (&weighted.term, -i64::from(weighted.weight)));
        for (term, points) in required.chain(near).chain(far) {
            if term.matches(self.pod, || self.namespace.clone()) {
                self.points.add_points(&term.topology_key, labels, points);
            }
        }
    }
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
        if let Some(error) = terms.and_then(|terms| terms.error.as_ref()) {
            return Status::error(format!("parsing pod: {error}"));
        }
        let has_preferences = terms.is_some_and(|terms| {
            !(terms.preferred_affinity.is_empty() && terms.preferred_anti_affinity.is_empty())
        });
        let others_count = !self.args.ignore_preferred_terms_of_existing_pods
            && cx.cluster.nodes.pods_with_affinity() > 0;
        if !has_preferences && !others_count {
            return Status::skip();
        }
        let mut scorer = Scorer {
            pod: &pod.pod,
            namespace: cx.cluster.namespace_labels(pod.pod.namespace()),
            hard_weight: self.args.hard_pod_affinity_weight,
            preferences: preferences(terms, cx.cluster),
            points: Counts::default(),
        };
        for node in cx.cluster.nodes.iter() {
            if has_preferences {
                for other in node.pods() {
                    scorer.own(&other.pod, node.labels());
                }
            }
            for other in node.pods_with_affinity() {
                scorer.others(other, node.labels());
            }
        }
        if scorer.points.is_empty() {
            return Status::skip();
        }
        state.write(PreScoreState {
            points: scorer.points,
        });
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
            .fold(0, i64::saturating_add))
    }

    /// The least becomes 0, the greatest 100, cut to integers; all become 0 when they are equal.
    fn normalize(
        &self,
        _cx: &Context<'_>,
        _state: &CycleState,
        _pod: &PodInfo,
        scores: &mut [(Slot, i64)],
    ) -> Status {
        let least = scores.iter().map(|(_, score)| *score).min().unwrap_or(0);
        let greatest = scores.iter().map(|(_, score)| *score).max().unwrap_or(0);
        let range = greatest.saturating_sub(least);
        for (_, score) in scores {
            *score = if range > 0 {
                let share = score.saturating_sub(least) as f64 / range as f64;
                (MAX_NODE_SCORE as f64 * share) as i64
            } else {
                0
            };
        }
        Status::success()
    }
}
