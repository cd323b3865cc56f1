//! Extenders change the candidates: the nodes and the victims (P-14).
//!
//! The extenders receive the candidates one after another, and each returns the candidates that it accepts. The cycle
//! is parked until all have answered. If the cluster has changed by then: no pod is evicted if the pod fits now, and a
//! candidate that is no longer valid is dropped. If none is left, the search runs again.

use super::candidates::{Candidate, Wish, choose};
use super::results::NodeError;
use super::victims::{DryRunVictims, by_importance, select};
use super::{PREFIX, WantedRoom, evict, make_room, not_found, unschedulable};
use berth_api::Pod;
use berth_framework::extender::{
    ChosenVictims, EXTENDER, ExtenderCallError, ExtenderSpec, NodeVictims,
};
use berth_framework::job;
use berth_framework::plugin::{Nominating, PostFilterContext, PostFilterStep};
use berth_framework::stage::{Wait, WaitOn, WakeReason};
use berth_framework::{Cluster, PodInfo, Slot, Status};
use std::sync::Arc;

/// The number of searches in one attempt.
const ROUNDS_MAX: usize = 4;

/// The pending question.
pub(super) struct PendingQuestion {
    /// The extender's place.
    at: usize,
    /// The candidates that it received.
    candidates: Vec<Candidate>,
    /// Whether a candidate was dropped because the cluster changed.
    is_old: bool,
    /// The number of searches so far.
    round: usize,
    /// The end of the nodes' change log at that time.
    seen: u64,
}

/// The candidates that the search has to find.
pub(super) fn wish(cx: &PostFilterContext<'_>, pod: &Pod) -> Wish {
    let extenders = cx.outbox.extenders();
    match extenders.next(0, pod, |spec| spec.preempts) {
        Some(_) => Wish::All,
        None => Wish::Cheapest,
    }
}

/// Calls the extenders; when all have answered, the victims of the best remaining candidate are evicted.
pub(super) fn begin(
    cx: &mut PostFilterContext<'_>,
    wanted: WantedRoom<'_>,
    candidates: Vec<Candidate>,
    round: usize,
) -> PostFilterStep {
    let asking = PendingQuestion {
        at: 0,
        candidates,
        is_old: false,
        round,
        seen: cx.dry_run.cluster().nodes.log().end(),
    };
    ask(cx, wanted, asking)
}

/// Calls the extender at the index, or the next one that is interested.
fn ask(
    cx: &mut PostFilterContext<'_>,
    wanted: WantedRoom<'_>,
    mut asking: PendingQuestion,
) -> PostFilterStep {
    let pod = &wanted.pod.pod;
    let extenders = cx.outbox.extenders();
    let next = extenders.next(asking.at, pod, |spec| spec.preempts);
    // The search is decided after the last extender, or as soon as no candidate is left.
    let Some((at, extender)) = next.filter(|_| !asking.candidates.is_empty()) else {
        return decide(cx, wanted, asking);
    };
    asking.at = at;
    let notified = asking.candidates.iter().map(|candidate| NodeVictims {
        node: candidate.name.clone(),
        pods: candidate
            .victims
            .pods
            .iter()
            .map(|v| v.pod.clone())
            .collect(),
        violations: candidate.victims.violations,
    });
    let answer = extender.preempt(pod, notified.collect());
    let deadline = cx.now + extender.spec().timeout;
    let job = cx.outbox.job(job::of(answer));
    // The cycle is parked; its state keeps the candidates until the answer.
    cx.dry_run.state().write(Some(asking));
    PostFilterStep::Wait(Wait {
        on: WaitOn::Job(job),
        deadline,
    })
}

/// The extender that the cycle waits for, if any.
pub(super) fn awaited(cx: &mut PostFilterContext<'_>) -> Option<PendingQuestion> {
    cx.dry_run
        .state()
        .read_mut::<Option<PendingQuestion>>()
        .and_then(Option::take)
}

/// Continues after the answer of an extender, or its failure.
pub(super) fn resume(
    cx: &mut PostFilterContext<'_>,
    wanted: WantedRoom<'_>,
    mut asking: PendingQuestion,
    reason: WakeReason,
) -> PostFilterStep {
    let pod = &wanted.pod.pod;
    let cluster = cx.dry_run.cluster();
    let is_there = cluster.pods.get(pod.uid());
    if is_there.is_none_or(|pod| pod.is_assigned() || pod.is_terminating()) {
        // It was deleted, or has a node: no pod is evicted for it (P-3).
        return PostFilterStep::done(not_found(pod), Nominating::Keep);
    }
    let extenders = cx.outbox.extenders();
    if let Some(extender) = extenders.get(asking.at) {
        let spec = extender.spec();
        let stated = spec.answer::<Vec<ChosenVictims>>(reason.into_value());
        match stated.and_then(|stated| left(cluster, spec, &asking.candidates, stated)) {
            Ok(left) => asking.candidates = left,
            Err(error) if spec.ignorable => cx.outbox.log(spec.skipped(&error)),
            Err(error) => {
                return PostFilterStep::done(
                    Status::error(format!("{PREFIX}{error}")),
                    Nominating::Keep,
                );
            }
        }
    }
    let notified = asking.candidates.len();
    let cluster = cx.dry_run.cluster();
    asking
        .candidates
        .retain_mut(|candidate| is_left(cluster, candidate));
    asking.is_old |= asking.candidates.len() < notified;
    asking.at += 1;
    ask(cx, wanted, asking)
}

/// The candidates that an extender returns (F-43). It may return other victims and other nodes than it received.
fn left(
    cluster: &Cluster,
    spec: &ExtenderSpec,
    notified: &[Candidate],
    stated: Vec<ChosenVictims>,
) -> Result<Vec<Candidate>, ExtenderCallError> {
    let mut left = Vec::with_capacity(stated.len());
    for ChosenVictims {
        node: name,
        pods,
        violations,
    } in stated
    {
        // Nodes and victims may have been deleted during the call.
        let reported_of = notified.iter().find(|candidate| candidate.name == name);
        let view = cluster.nodes.node(&name);
        let Some(node) = view
            .map(|view| view.slot())
            .or(reported_of.map(|of| of.node))
        else {
            return Err(ExtenderCallError::InvalidAnswer(format!(
                "nodeinfo not found for node name {:?}",
                name.as_str()
            )));
        };
        let there = view.into_iter().flat_map(|view| view.pods());
        let known = there.chain(reported_of.into_iter().flat_map(|of| &of.victims.pods));
        let mut victims: Vec<Arc<PodInfo>> = Vec::with_capacity(pods.len());
        for uid in &pods {
            let Some(victim) = known.clone().find(|known| known.pod.uid() == uid) else {
                return Err(ExtenderCallError::InvalidAnswer(format!(
                    "extender: {} claims to preempt pod (UID: {uid}) on node: {name}, but the pod is not found on that \
                     node",
                    spec.name
                )));
            };
            victims.push(victim.clone());
        }
        let had_none = reported_of.is_some_and(|of| of.victims.pods.is_empty());
        if victims.is_empty() && !had_none {
            if spec.ignorable {
                continue;
            }
            let error = NodeError::NoVictims(name);
            return Err(ExtenderCallError::InvalidAnswer(error.to_string()));
        }
        victims.sort_by(|a, b| by_importance(&a.pod, &b.pod));
        let as_reported = reported_of.filter(|of| {
            !of.by_extender
                && of.victims.pods.len() == victims.len()
                && victims.iter().all(|victim| is_among(victim, of))
        });
        left.push(Candidate {
            node,
            name,
            victims: DryRunVictims {
                pods: victims,
                violations,
            },
            by_extender: as_reported.is_none(),
        });
    }
    Ok(left)
}

fn is_among(victim: &PodInfo, candidate: &Candidate) -> bool {
    let mut victims = candidate.victims.pods.iter();
    victims.any(|other| other.pod.uid() == victim.pod.uid())
}

/// Finds the node by its name, because its slot may belong to another node now, and removes victims that left it.
/// Returns whether the candidate is still valid.
fn is_left(cluster: &Cluster, candidate: &mut Candidate) -> bool {
    let Some(view) = cluster.nodes.node(&candidate.name) else {
        return false;
    };
    candidate.node = view.slot();
    let had_none = candidate.victims.pods.is_empty();
    candidate.victims.pods.retain(|victim| {
        let uid = victim.pod.uid();
        cluster.pods.contains_key(uid) && view.pods().iter().any(|pod| pod.pod.uid() == uid)
    });
    had_none || !candidate.victims.pods.is_empty()
}

/// All have answered: the victims of the best valid candidate are evicted.
fn decide(
    cx: &mut PostFilterContext<'_>,
    wanted: WantedRoom<'_>,
    mut asking: PendingQuestion,
) -> PostFilterStep {
    if asking.candidates.is_empty() && !asking.is_old {
        let text = "no candidate node for preemption";
        return PostFilterStep::done(unschedulable(text), Nominating::Keep);
    }
    let has_changed = cx.dry_run.cluster().nodes.log().end() != asking.seen;
    if has_changed && let Some(end) = look_again(cx, wanted) {
        return end;
    }
    while let Some(candidate) = choose(&mut asking.candidates) {
        let lasting = if has_changed {
            as_it_is(cx, wanted, candidate)
        } else {
            Some(candidate)
        };
        if let Some(candidate) = lasting {
            return evict::start(cx, wanted.pod, candidate);
        }
    }
    if asking.round >= ROUNDS_MAX {
        let text = "the nodes keep changing while extenders are asked";
        return PostFilterStep::done(unschedulable(text), Nominating::Keep);
    }
    make_room(cx, wanted, asking.round + 1)
}

/// For nodes that changed. If the pod fits now, no pod is evicted: the pod is nominated to the node, and retried soon,
/// because the change wakes it. Only nodes that plugins rejected are searched; the retry calls the extenders for them.
fn look_again(cx: &mut PostFilterContext<'_>, wanted: WantedRoom<'_>) -> Option<PostFilterStep> {
    let extenders = cx.outbox.extenders();
    let is_filtered = extenders
        .next(0, &wanted.pod.pod, |spec| spec.filters)
        .is_some();
    let may = |node: Slot| {
        let plugin = wanted.statuses.get(node).plugin();
        !is_filtered || plugin.is_some_and(|plugin| plugin.as_str() != EXTENDER)
    };
    let result = cx.dry_run.look_again(&may);
    let node = match result {
        Ok(None) => return None,
        Ok(Some(node)) => cx.dry_run.cluster().nodes.get(node)?.name().clone(),
        // PreFilter rejects the pod in the changed cluster, so no eviction helps.
        Err(status) if status.is_rejected() => {
            return Some(PostFilterStep::done(
                unschedulable(status.message()),
                Nominating::Keep,
            ));
        }
        Err(status) => {
            let text = format!("{PREFIX}{}", status.message());
            return Some(PostFilterStep::done(Status::error(text), Nominating::Keep));
        }
    };
    let text = format!("there is room on node {:?} by now", node.as_str());
    Some(PostFilterStep::done(
        unschedulable(text),
        Nominating::Set(node),
    ))
}

/// The candidate with the victims that are needed now; `None` if the victims accepted by the extenders are not enough.
/// Victims that an extender chose itself are not checked.
fn as_it_is(
    cx: &mut PostFilterContext<'_>,
    wanted: WantedRoom<'_>,
    candidate: Candidate,
) -> Option<Candidate> {
    if candidate.by_extender {
        return Some(candidate);
    }
    let victims = select(cx.dry_run, &wanted.features, wanted.pod, candidate.node).ok()?;
    let is_agreed = victims.pods.iter().all(|pod| is_among(pod, &candidate));
    let had_none = candidate.victims.pods.is_empty();
    (is_agreed && (had_none || !victims.pods.is_empty())).then_some(Candidate {
        victims,
        ..candidate
    })
}
