//! The same cases with kept answers: the cluster is built by a stream of events that also adds and removes other nodes
//! and pods, and answers are requested in between.

use super::{DecisionRun, recorded};
use crate::cluster;
use crate::decisions::compare::CaseComparison;
use berth_api::{Node, Object, Pod, Time};
use berth_framework::{Cluster, FeatureGates, PodInfo, Slot, Status};
use berth_scheduler::NoStopwatch;
use berth_scheduler::evaluator::{AnswerCache, Evaluation, Evaluator, Examined, NoNominations};
use berth_scheduler::profile::Profile;
use serde_json::Value;
use std::sync::Arc;

/// The state of the evaluator before a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AnswerHistory {
    /// The objects of the case are added in random order, some of them first in an earlier version, among nodes and
    /// pods that are removed again; answers are requested several times in between.
    Shuffled,
    /// Other pods of the same shape were placed and deleted before.
    AfterOthers,
}

/// Something that happens to the cluster.
enum ClusterStep {
    Object(Object),
    /// A node that is not part of the case.
    Stranger(Arc<Node>),
    StrangerGone(Arc<Node>),
    /// A pod that is not part of the case, on the node of this name.
    Guest(Arc<Pod>),
    GuestGone(Arc<Pod>),
    Ask,
}

fn apply(cluster: &mut Cluster, step: &ClusterStep) {
    match step {
        ClusterStep::Object(Object::Node(node)) | ClusterStep::Stranger(node) => {
            cluster.nodes.set_node(node.clone());
        }
        ClusterStep::Object(Object::Pod(pod)) => {
            if pod.is_assigned() && !pod.is_terminal() {
                let info = Arc::new(PodInfo::counting(pod.clone(), cluster.footprint));
                cluster.nodes.add_pod(&pod.spec.node_name, info);
            }
            cluster.pods.insert(pod.uid().clone(), pod.clone());
        }
        ClusterStep::Object(other) => {
            cluster.set(other);
        }
        ClusterStep::StrangerGone(node) => {
            cluster.nodes.remove_node(node.name());
        }
        ClusterStep::Guest(pod) => {
            let info = Arc::new(PodInfo::counting(pod.clone(), cluster.footprint));
            cluster.nodes.add_pod(&pod.spec.node_name, info);
        }
        ClusterStep::GuestGone(pod) => {
            // It was added before, so it exists.
            let _ = cluster.nodes.remove_pod(&pod.spec.node_name, pod.uid());
        }
        ClusterStep::Ask => {}
    }
}

/// A cluster that is built step by step, and the answers that are kept between the steps.
pub(super) struct KeptCluster<'a> {
    pub(super) profile: &'a Profile,
    pub(super) features: &'a FeatureGates,
    pub(super) pod: &'a Arc<PodInfo>,
    pub(super) answer_cache: AnswerCache,
    pub(super) cluster: Cluster,
}

impl<'a> KeptCluster<'a> {
    /// Builds the cluster. All randomness follows from `seed`.
    ///
    /// # Errors
    /// The object that does not decode.
    pub(super) fn new(
        history: AnswerHistory,
        objects: &[Value],
        profile: &'a Profile,
        features: &'a FeatureGates,
        pod: &'a Arc<PodInfo>,
        seed: u64,
    ) -> Result<Self, String> {
        let mut kept = Self {
            profile,
            features,
            pod,
            answer_cache: AnswerCache::default(),
            cluster: Cluster::default(),
        };
        kept.cluster.follow(features);
        let mut rng = fastrand::Rng::with_seed(seed);
        match history {
            AnswerHistory::Shuffled => {
                for step in shuffled(objects, &pod.pod, &mut rng)? {
                    apply(&mut kept.cluster, &step);
                    if let ClusterStep::Ask = step {
                        kept.examine();
                    }
                }
            }
            AnswerHistory::AfterOthers => {
                kept.cluster = cluster::build(objects, features)?;
                kept.place_others(&mut rng);
            }
        }
        // The scheduler knows the pods that wait.
        let waiting = pod.pod.clone();
        kept.cluster.pods.insert(waiting.uid().clone(), waiting);
        Ok(kept)
    }

    fn evaluator<'b>(
        &'b mut self,
        evaluation: &'b mut Evaluation,
    ) -> (Evaluator<'b>, &'b mut AnswerCache) {
        let evaluator = Evaluator {
            profile: self.profile,
            features: self.features,
            now: Time::EPOCH,
            cluster: &mut self.cluster,
            nominated: &NoNominations,
            pod: self.pod,
            evaluation,
            work: None,
            stopwatch: &NoStopwatch,
        };
        (evaluator, &mut self.answer_cache)
    }

    fn examine(&mut self) -> Option<Examined> {
        let mut evaluation = Evaluation::default();
        let (mut evaluator, answer_cache) = self.evaluator(&mut evaluation);
        answer_cache.examine(&mut evaluator)
    }

    /// Places up to four pods like the pod of the case while they fit; then removes all of them.
    fn place_others(&mut self, rng: &mut fastrand::Rng) {
        let mut others = Vec::new();
        for i in 0..4 {
            let mut evaluation = Evaluation::default();
            let (mut evaluator, answer_cache) = self.evaluator(&mut evaluation);
            let found = evaluator.find_with(answer_cache, true, None, None, &mut 0, rng);
            let berth_scheduler::evaluator::Found::Placed(placement) = found else {
                break;
            };
            let mut other = Pod::clone(&self.pod.pod);
            other.metadata.uid = format!("other-{i}").into();
            other.metadata.name = format!("other-{i}").into();
            other.spec.node_name = placement.name.clone();
            let info = Arc::new(PodInfo::new(Arc::new(other)));
            self.cluster.nodes.add_pod(&placement.name, info.clone());
            others.push(info);
        }
        rng.shuffle(&mut others);
        for other in others {
            self.examine();
            let pod = &other.pod;
            let _ = self
                .cluster
                .nodes
                .remove_pod(&pod.spec.node_name, pod.uid());
        }
    }

    /// Compares all recorded results. Returns false if only the plain evaluator can decide about such a pod.
    ///
    /// # Errors
    /// The part that cannot be compared.
    pub(super) fn compare(
        &mut self,
        expect: &recorded::DecisionExpectation,
        comparison: &mut CaseComparison<'_>,
    ) -> Result<bool, String> {
        let Some(examined) = self.examine() else {
            return Ok(false);
        };
        comparison.pre_filter(expect, None, None);
        let statuses: Vec<(Slot, Status)> = self
            .cluster
            .nodes
            .iter()
            .map(|view| view.slot())
            .map(|slot| {
                let feasible = &examined.feasible;
                match feasible.binary_search_by_key(&slot, |(slot, _)| *slot) {
                    Ok(_) => (slot, Status::success()),
                    Err(_) => (slot, examined.statuses.get(slot).clone()),
                }
            })
            .collect();
        let feasible = comparison.filter(expect, &self.cluster, &statuses);
        if !feasible.is_empty() {
            comparison.totals(expect, &self.cluster, &examined.feasible);
        }
        let mut evaluation = Evaluation::default();
        let mut rng = fastrand::Rng::with_seed(1);
        let (mut evaluator, answer_cache) = self.evaluator(&mut evaluation);
        let found = evaluator.find_with(answer_cache, true, None, None, &mut 0, &mut rng);
        let answers = super::compare_found(expect, comparison, found);
        comparison.post_filter(expect, || {
            let mut run = DecisionRun {
                profile: self.profile,
                features: self.features,
                cluster: &mut self.cluster,
                pod: self.pod,
            };
            run.post_filter(&mut evaluation, &answers.unwrap_or_default())
        });
        Ok(true)
    }
}

/// The objects of a case as a stream of events, mixed with other events.
fn shuffled(
    objects: &[Value],
    pod: &Pod,
    rng: &mut fastrand::Rng,
) -> Result<Vec<ClusterStep>, String> {
    let mut steps: Vec<(u32, ClusterStep)> = Vec::new();
    let when = |rng: &mut fastrand::Rng| rng.u32(..1_000_000);
    let mut nodes: Vec<Arc<Node>> = Vec::new();
    let mut guests: Vec<Arc<Pod>> = Vec::new();
    for raw in objects {
        let Some(object) = cluster::decode(raw)? else {
            continue;
        };
        let at = when(rng);
        if let Object::Node(node) = &object {
            nodes.push(node.clone());
            if rng.bool() && at > 0 {
                let mut before = Node::clone(node);
                match rng.u8(..3) {
                    0 => before.metadata.labels = Default::default(),
                    1 => before.spec.taints = Default::default(),
                    _ => before.spec.unschedulable = !node.spec.unschedulable,
                }
                steps.push((
                    rng.u32(..at),
                    ClusterStep::Object(Object::Node(Arc::new(before))),
                ));
            }
        }
        if let Object::Pod(pod) = &object {
            guests.push(pod.clone());
        }
        steps.push((at, ClusterStep::Object(object)));
    }
    guests.push(Arc::new(Pod::clone(pod)));
    for i in 0..nodes.len().min(8) {
        let mut stranger = Node::clone(&nodes[rng.usize(..nodes.len())]);
        stranger.metadata.name = format!("stranger-{i}").into();
        let stranger = Arc::new(stranger);
        let (from, to) = span(rng);
        steps.push((from, ClusterStep::Stranger(stranger.clone())));
        steps.push((to, ClusterStep::StrangerGone(stranger)));
    }
    for i in 0..10 {
        let Some(node) = rng.choice(&nodes) else {
            break;
        };
        let mut guest = Pod::clone(&guests[rng.usize(..guests.len())]);
        guest.metadata.uid = format!("guest-{i}").into();
        guest.metadata.name = format!("guest-{i}").into();
        guest.spec.node_name = node.name().clone();
        let guest = Arc::new(guest);
        let (from, to) = span(rng);
        steps.push((from, ClusterStep::Guest(guest.clone())));
        steps.push((to, ClusterStep::GuestGone(guest)));
    }
    for _ in 0..12 {
        steps.push((when(rng), ClusterStep::Ask));
    }
    steps.sort_by_key(|(at, _)| *at);
    Ok(steps.into_iter().map(|(_, step)| step).collect())
}

/// A random time of addition and a later time of removal.
fn span(rng: &mut fastrand::Rng) -> (u32, u32) {
    let from = rng.u32(..1_000_000);
    (from, rng.u32(from..1_100_000))
}
