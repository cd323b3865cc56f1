//! `ScheduleAnyway`: the fewer pods in a node's domains, the better.
//!
//! A pod counts for `ln(domains + 2)`, so that a zone with a few pods weighs like a host with one. The least raw
//! score becomes the greatest normalised one.

use super::PodTopologySpread;
use super::constraints::{
    Constraint, HOSTNAME, Inclusion, SCHEDULE_ANYWAY, has_all_keys, look_at_all,
};
use super::tally::SelectorTally;
use berth_api::{Pod, Str};
use berth_framework::plugin::{Context, MAX_NODE_SCORE, PreScore, Score};
use berth_framework::{CycleState, NodeView, PodInfo, Slot, Status};
use rustc_hash::{FxHashMap, FxHashSet};

/// The weight of a pod in a topology with this number of domains.
pub(super) fn weight(domains: usize) -> f64 {
    ((domains + 2) as f64).ln()
}

/// A raw score brought to scale: the least becomes the greatest.
pub(super) fn normalized(score: i64, least: i64, greatest: i64) -> i64 {
    if greatest == 0 {
        MAX_NODE_SCORE
    } else {
        MAX_NODE_SCORE * (greatest + least - score) / greatest
    }
}

impl PodTopologySpread {
    /// Returns whether nodes without all of the labels are left out when nodes are scored.
    pub(super) fn wants_all_keys(&self, pod: &Pod) -> bool {
        !pod.spec.topology_spread_constraints.is_empty() || !self.args.system_defaulted
    }
}

/// A constraint with its counts.
struct Weighed {
    constraint: Constraint,
    tally: SelectorTally,
    /// The pods of each domain that a feasible node is in; not of hosts, which are counted one by one.
    domains: FxHashMap<Str, i64>,
    weight: f64,
}

impl Weighed {
    fn is_per_host(&self) -> bool {
        self.constraint.topology_key == HOSTNAME
    }
}

struct PreScoreState {
    weighed: Vec<Weighed>,
    /// Feasible nodes without all of the labels.
    ignored: FxHashSet<Slot>,
}

impl PreScoreState {
    /// The domains of the feasible nodes, without counts yet. A node without the label, where such nodes are not
    /// ignored, is in the domain of the empty value.
    fn new(
        cx: &Context<'_>,
        constraints: Vec<Constraint>,
        namespace: &str,
        feasible: &[Slot],
        all_keys: bool,
    ) -> Self {
        let mut ignored = FxHashSet::default();
        let mut domains = vec![FxHashMap::<Str, i64>::default(); constraints.len()];
        for slot in feasible {
            let Some(node) = cx.cluster.nodes.get(*slot) else {
                continue;
            };
            // Nodes without all keys score zero, and define no domains (PL-103).
            if all_keys && !has_all_keys(&constraints, node.labels()) {
                ignored.insert(*slot);
                continue;
            }
            for (constraint, domains) in constraints.iter().zip(&mut domains) {
                // Hosts are not collected, because each scored node is a domain.
                if constraint.topology_key != HOSTNAME {
                    let value = node.labels().get_str(&constraint.topology_key);
                    domains
                        .entry(value.cloned().unwrap_or_default())
                        .or_default();
                }
            }
        }
        let hosts = feasible.len() - ignored.len();
        let weighed = constraints
            .into_iter()
            .zip(domains)
            .map(|(constraint, domains)| {
                let tally = SelectorTally::open(&constraint.counted, namespace, &cx.cluster.nodes);
                let size = if constraint.topology_key == HOSTNAME {
                    hosts
                } else {
                    domains.len()
                };
                Weighed {
                    constraint,
                    tally,
                    domains,
                    weight: weight(size),
                }
            })
            .collect();
        Self { weighed, ignored }
    }

    /// Counts the pods of all nodes, feasible or not.
    fn count(&mut self, cx: &Context<'_>, pod: &PodInfo, all_keys: bool) {
        let pod = &pod.pod;
        let inclusion = Inclusion::of(pod, cx.features);
        for node in cx.cluster.nodes.iter() {
            let labels = node.labels();
            let constraints = self.weighed.iter().map(|weighed| &weighed.constraint);
            if all_keys && !has_all_keys(constraints, labels) {
                continue;
            }
            let included = inclusion.on_node(pod, node.node());
            for weighed in &mut self.weighed {
                let constraint = &weighed.constraint;
                let value = labels.get(&constraint.topology_key).unwrap_or("");
                if let Some(count) = weighed.domains.get_mut(value)
                    && included.includes(constraint)
                {
                    *count += weighed.tally.count(node.slot());
                }
            }
        }
    }

    fn score(&self, node: NodeView<'_>) -> i64 {
        if self.ignored.contains(&node.slot()) {
            return 0;
        }
        let mut score = 0.0;
        for weighed in &self.weighed {
            let constraint = &weighed.constraint;
            let Some(value) = node.labels().get(&constraint.topology_key) else {
                continue;
            };
            let count = if weighed.is_per_host() {
                weighed.tally.count(node.slot())
            } else {
                weighed.domains.get(value).copied().unwrap_or(0)
            };
            score += constraint.cost(count, weighed.weight);
        }
        score.round() as i64
    }
}

impl PreScore for PodTopologySpread {
    fn pre_score(
        &self,
        cx: &Context<'_>,
        state: &mut CycleState,
        pod: &PodInfo,
        nodes: &[Slot],
    ) -> Status {
        if cx.cluster.nodes.is_empty() {
            return Status::skip();
        }
        let constraints = self.constraints(cx.cluster, cx.features, &pod.pod, SCHEDULE_ANYWAY);
        let constraints = match constraints {
            Ok(constraints) if constraints.is_empty() => return Status::skip(),
            Ok(constraints) => constraints,
            Err(error) => {
                return Status::error(format!(
                    "calculating preScoreState: obtaining pod's soft topology spread constraints: {error}"
                ));
            }
        };
        if let Err(status) = look_at_all(cx, &constraints) {
            return status;
        }
        let all_keys = self.wants_all_keys(&pod.pod);
        let mut kept = PreScoreState::new(cx, constraints, pod.pod.namespace(), nodes, all_keys);
        kept.count(cx, pod, all_keys);
        state.write(kept);
        Status::success()
    }
}

impl Score for PodTopologySpread {
    fn score(
        &self,
        _cx: &Context<'_>,
        state: &CycleState,
        _pod: &PodInfo,
        node: NodeView<'_>,
    ) -> Result<i64, Status> {
        match state.read::<PreScoreState>() {
            Some(kept) => Ok(kept.score(node)),
            None => Err(Status::error(
                "PodTopologySpread: Score ran without PreScore",
            )),
        }
    }

    /// `100·(max + min − score)/max`; ignored nodes get 0, and all others 100 if all counts are zero.
    fn normalize(
        &self,
        _cx: &Context<'_>,
        state: &CycleState,
        _pod: &PodInfo,
        scores: &mut [(Slot, i64)],
    ) -> Status {
        let Some(kept) = state.read::<PreScoreState>() else {
            return Status::success();
        };
        let counted = |slot: &Slot| !kept.ignored.contains(slot);
        let valid = || {
            scores
                .iter()
                .filter(|(slot, _)| counted(slot))
                .map(|(_, score)| *score)
        };
        let least = valid().min().unwrap_or(0);
        let greatest = valid().max().unwrap_or(0);
        for (slot, score) in scores {
            *score = if counted(slot) {
                normalized(*score, least, greatest)
            } else {
                0
            };
        }
        Status::success()
    }
}
