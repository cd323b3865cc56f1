//! Replays decisions: one pending pod against one cluster, from PreFilter to the scores.
//!
//! The answers of each plugin are compared: the rejection of PreFilter, the first rejection of every node, the weighted
//! score of every plugin on every feasible node, the plugins without a preference, the message of a pod that fits on no
//! node, and the victims of preemption. Each case is replayed with the plain evaluator, and from kept answers after
//! different histories. Entries of plugins that Berth does not have are omitted, also from the totals; such a case
//! counts at most as compared in part.

mod compare;
mod config;
mod kept;
mod recorded;
#[cfg(test)]
mod tests;

use crate::cases::{self, LaterAnswers};
use crate::cluster;
use crate::report::CaseReport;
use berth_api::{Release, Time};
use berth_framework::plugin::{
    NodeStatuses, Nominating, PostFilterContext, PostFilterResult, PostFilterStep,
};
use berth_framework::registry::Registry;
use berth_framework::stage::DryRunOutbox;
use berth_framework::{Cluster, FeatureGates, PodInfo, Slot, Status};
use berth_scheduler::NoStopwatch;
use berth_scheduler::evaluator::{Evaluation, Evaluator, Found, NoNominations, PreFiltered};
use berth_scheduler::profile::{Profile, ProfileSpec};
use compare::CaseComparison;
use kept::{AnswerHistory, KeptCluster};
use recorded::{DecisionCase, PostFiltered, Rejection};
use std::io::BufRead;
use std::sync::Arc;

/// The answers that later releases change.
const LATER: &str = include_str!("../later/decisions.jsonl");

/// The outcome of a case without a mismatch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CaseOutcome {
    Passed,
    Partly,
}

/// With which evaluators cases are replayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Evaluators {
    /// With all evaluators: a case passes if it passes with each.
    #[default]
    All,
    /// With the plain one.
    Plain,
    /// From kept answers. Cases that the incremental evaluator passes to the plain one count as well.
    Incremental,
}

/// Replays decisions of kube-scheduler, one JSON object per line, with the answers of a release. Unreadable lines fail
/// under their number.
pub fn replay(reader: impl BufRead, evaluators: Evaluators, release: Release) -> CaseReport {
    let features = FeatureGates::of(release);
    let registry = berth_plugins::in_tree();
    let mut report = CaseReport::new();
    let answers = match LaterAnswers::read(LATER, release) {
        Ok(answers) => answers,
        Err(what) => {
            report.fail("the later answers", what);
            return report;
        }
    };
    cases::each(
        reader,
        &answers,
        &mut report,
        |case: DecisionCase, report| match check(&case, &registry, evaluators, features) {
            Ok(CaseOutcome::Passed) => report.pass(case.id),
            Ok(CaseOutcome::Partly) => report.partly(case.id),
            Err(what) => report.fail(case.id, what),
        },
    );
    report
}

fn check(
    case: &DecisionCase,
    registry: &Registry,
    evaluators: Evaluators,
    features: FeatureGates,
) -> Result<CaseOutcome, String> {
    let pod = cluster::decode_pod(&case.pod)?;
    let mut cluster = cluster::build(&case.objects, &features)?;
    // The scheduler knows the pods that wait.
    cluster.pods.insert(pod.uid().clone(), pod.clone());
    let spec = match &case.config {
        None => ProfileSpec::default(),
        Some(config) => config::profile(config, &pod.spec.scheduler_name, registry, features)?,
    };
    let profile = Profile::build(&spec, registry, &features)
        .map_err(|errors| format!("the profile is refused: {errors:?}"))?;
    let pod = Arc::new(PodInfo::new(pod));
    if let Some(observed) = &case.expect.outcome {
        let mut run = DecisionRun {
            profile: &profile,
            features: &features,
            cluster: &mut cluster,
            pod: &pod,
        };
        return run.compare_outcome(observed).map(|()| CaseOutcome::Passed);
    }
    let mut plain = || {
        let mut run = DecisionRun {
            profile: &profile,
            features: &features,
            cluster: &mut cluster,
            pod: &pod,
        };
        let mut comparison = CaseComparison::new(registry);
        run.compare(&case.expect, &mut comparison)?;
        comparison.outcome()
    };
    if evaluators == Evaluators::Plain {
        return plain();
    }
    let plainly = match evaluators {
        Evaluators::Incremental => None,
        _ => Some(plain()?),
    };
    match from_kept(case, &profile, &features, &pod, registry)? {
        Some(outcome) => Ok(plainly.unwrap_or(outcome)),
        // Left to the plain evaluator.
        None => plainly.map_or_else(plain, Ok),
    }
}

/// Replays a case from kept answers after several histories; `None` if only the plain evaluator can decide it.
fn from_kept(
    case: &DecisionCase,
    profile: &Profile,
    features: &FeatureGates,
    pod: &Arc<PodInfo>,
    registry: &Registry,
) -> Result<Option<CaseOutcome>, String> {
    let mut outcome = None;
    for (history, seed) in [
        (AnswerHistory::Shuffled, 1),
        (AnswerHistory::Shuffled, 2),
        (AnswerHistory::AfterOthers, 3),
    ] {
        let replayed = || -> Result<Option<CaseOutcome>, String> {
            let mut kept = KeptCluster::new(history, &case.objects, profile, features, pod, seed)?;
            let mut comparison = CaseComparison::new(registry);
            if !kept.compare(&case.expect, &mut comparison)? {
                return Ok(None);
            }
            comparison.outcome().map(Some)
        };
        let result = replayed()
            .map_err(|what| format!("from kept answers, {history:?} with seed {seed}: {what}"))?;
        outcome = outcome.or(result);
    }
    Ok(outcome)
}

/// One pod, one cluster, one profile.
struct DecisionRun<'a> {
    profile: &'a Profile,
    features: &'a FeatureGates,
    cluster: &'a mut Cluster,
    pod: &'a Arc<PodInfo>,
}

impl DecisionRun<'_> {
    fn evaluator<'b>(&'b mut self, evaluation: &'b mut Evaluation) -> Evaluator<'b> {
        Evaluator {
            profile: self.profile,
            features: self.features,
            now: Time::EPOCH,
            cluster: self.cluster,
            nominated: &NoNominations,
            pod: self.pod,
            evaluation,
            work: None,
            stopwatch: &NoStopwatch,
        }
    }

    /// Compares single steps if the recording has steps, and then the search as a whole.
    fn compare(
        &mut self,
        expect: &recorded::DecisionExpectation,
        comparison: &mut CaseComparison<'_>,
    ) -> Result<(), String> {
        let mut evaluation = Evaluation::default();
        let pre_filtered = self.evaluator(&mut evaluation).pre_filter();
        let narrowed = match pre_filtered {
            Ok(PreFiltered { nodes, .. }) => {
                comparison.pre_filter(expect, None, nodes.as_deref());
                nodes
            }
            Err((status, _)) => {
                comparison.pre_filter(expect, Some(&status), None);
                self.compare_message(expect, comparison);
                return Ok(());
            }
        };
        if expect.pre_filter.is_some() {
            return Ok(());
        }
        let statuses = self.filter(&mut evaluation, narrowed.as_deref());
        let feasible = comparison.filter(expect, self.cluster, &statuses);
        if !feasible.is_empty() {
            let scores = self
                .evaluator(&mut evaluation)
                .score(&feasible)
                .map_err(|status| format!("scoring failed: {}", status.message()))?;
            comparison.scores(expect, self.cluster, &scores);
        }
        self.compare_message(expect, comparison);
        comparison.post_filter(expect, || {
            let answers = statuses
                .iter()
                .filter(|(_, status)| !status.is_success())
                .cloned()
                .collect();
            let statuses: NodeStatuses = answers;
            self.post_filter(&mut evaluation, &statuses)
        });
        Ok(())
    }

    /// Compares a decision that was recorded only by its outcome.
    fn compare_outcome(&mut self, observed: &recorded::ObservedOutcome) -> Result<(), String> {
        let mut evaluation = Evaluation::default();
        match observed {
            recorded::ObservedOutcome::Bound(node) => {
                let slot = self.cluster.nodes.slot(node);
                let slot = slot.ok_or_else(|| format!("there is no node {node}"))?;
                let mut evaluator = self.evaluator(&mut evaluation);
                let pre_filtered = evaluator.pre_filter();
                let left = pre_filtered
                    .map_err(|(status, _)| format!("PreFilter: {}", status.message()))?
                    .nodes;
                if left.is_some_and(|names| !names.iter().any(|name| *name == *node.as_str())) {
                    return Err(format!("PreFilter leaves {node} out"));
                }
                let status = evaluator.filter_node(slot);
                if status.is_success() {
                    Ok(())
                } else {
                    Err(format!(
                        "bound to {node}, which is not feasible: {:?}",
                        compare::rejection(&status)
                    ))
                }
            }
            recorded::ObservedOutcome::Unschedulable(message) => {
                let mut rng = fastrand::Rng::with_seed(1);
                let found = self.evaluator(&mut evaluation).find(None, &mut 0, &mut rng);
                let ours = match found {
                    Found::Placed(placement) => {
                        return Err(format!(
                            "reported as unschedulable, and {} nodes are feasible, such as {}",
                            placement.feasible, placement.name
                        ));
                    }
                    Found::Unfit(error) => error.to_string(),
                    Found::NoNodes(status) | Found::Failed(status) => status.message(),
                };
                // PostFilter plugins append their message to its reasons.
                match message.strip_prefix(&*ours) {
                    Some(rest) if rest.is_empty() || rest.starts_with(' ') => Ok(()),
                    _ => Err(format!("message: recorded {message:?}, got {ours:?}")),
                }
            }
        }
    }

    /// Runs the PostFilter plugins as in a cycle, and records the evicted pods.
    fn post_filter(
        &mut self,
        evaluation: &mut Evaluation,
        statuses: &NodeStatuses,
    ) -> Result<PostFiltered, String> {
        let profile = self.profile;
        let (pod, features) = (self.pod, self.features);
        let mut outbox = DryRunOutbox::default();
        let mut no: Option<Rejection> = None;
        for member in &profile.post_filter {
            let mut evaluator = self.evaluator(evaluation);
            let mut cx = PostFilterContext {
                now: Time::EPOCH,
                features,
                outbox: &mut outbox,
                dry_run: &mut evaluator,
            };
            let step = member.plugin.post_filter(&mut cx, pod, statuses, None);
            let PostFilterStep::Done(PostFilterResult { status, nominating }) = step else {
                return Err(format!("{} waits", member.name));
            };
            if status.is_success() {
                let node = match nominating {
                    Nominating::Set(node) => node.to_string(),
                    Nominating::Keep => String::new(),
                };
                let evicted = outbox.preemptions.iter();
                let evicted = evicted.flat_map(|preemption| &preemption.victims);
                let names = evicted.map(|victim| victim.event.regarding.to_string());
                let mut victims: Vec<String> = names.collect();
                victims.sort();
                return Ok(PostFiltered {
                    nominated_node_name: Some(node),
                    victims,
                    status: None,
                });
            }
            if !status.is_rejected() {
                return Err(status.message());
            }
            let stated = compare::rejection(&status.by(&member.name));
            match &mut no {
                None => no = Some(stated),
                Some(no) => no.reasons.extend(stated.reasons),
            }
        }
        Ok(PostFiltered {
            nominated_node_name: None,
            victims: Vec::new(),
            status: no,
        })
    }

    /// The answer for each node, or for each node that PreFilter has returned.
    fn filter(
        &mut self,
        evaluation: &mut Evaluation,
        narrowed: Option<&[berth_api::Str]>,
    ) -> Vec<(Slot, Status)> {
        let slots: Vec<Slot> = match narrowed {
            None => self.cluster.nodes.in_order().to_vec(),
            Some(names) => names
                .iter()
                .filter_map(|name| Some(self.cluster.nodes.node(name)?.slot()))
                .collect(),
        };
        slots
            .into_iter()
            .map(|slot| (slot, self.evaluator(evaluation).filter_node(slot)))
            .collect()
    }

    /// The search as a whole: the node with the highest total, or the message.
    fn compare_message(
        &mut self,
        expect: &recorded::DecisionExpectation,
        comparison: &mut CaseComparison<'_>,
    ) {
        let mut evaluation = Evaluation::default();
        let mut rng = fastrand::Rng::with_seed(1);
        let found = self.evaluator(&mut evaluation).find(None, &mut 0, &mut rng);
        compare_found(expect, comparison, found);
    }
}

/// Compares the result of the search as a whole. Returns the answers of the nodes if the pod fits on no node.
fn compare_found(
    expect: &recorded::DecisionExpectation,
    comparison: &mut CaseComparison<'_>,
    found: Found,
) -> Option<NodeStatuses> {
    match found {
        Found::Placed(placement) => comparison.placed(expect, &placement.name),
        Found::Unfit(error) => {
            comparison.unfit(expect, &error);
            return Some(error.diagnosis.statuses);
        }
        Found::NoNodes(status) | Found::Failed(status) => comparison.failed(&status),
    }
    None
}
