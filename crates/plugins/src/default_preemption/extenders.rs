//! Extenders have a say in where room is made, and which pods go for it (P-14).
//!
//! Each in turn is told the candidates and answers with those that it would have. The cycle is parked meanwhile, and the
//! cluster goes on: when all have answered and it has changed, nobody goes if there is room by then, and a candidate
//! that does not last is dropped. When none lasts they are looked for again.

use super::candidates::{Candidate, choose};
use super::victims::{Victims, by_importance, select};
use super::{PREFIX, Wanted, evict, make_room, not_found, unschedulable};
use berth_api::Time;
use berth_framework::extender::{ChosenVictims, EXTENDER, ExtenderSpec, NodeVictims, job};
use berth_framework::plugin::{Nominating, PostFilterContext, PostFilterStep};
use berth_framework::stage::{Wait, WaitOn, WakeReason};
use berth_framework::{Cluster, PodInfo, Slot, Status};
use std::sync::Arc;

/// How often candidates are looked for in one attempt.
const ROUNDS_MAX: usize = 4;

/// What is waited for.
pub(super) struct Asking {
    /// The extender's place.
    at: usize,
    /// What it was told.
    candidates: Vec<Candidate>,
    /// Whether a candidate was dropped because of what happened meanwhile.
    is_old: bool,
    /// How often candidates have been looked for.
    round: usize,
    /// Where the log of changes of the nodes ended then.
    seen: u64,
}

/// Asks the extenders; when all have answered, room is made on the best candidate that is left.
pub(super) fn begin(
    cx: &mut PostFilterContext<'_>,
    wanted: Wanted<'_>,
    candidates: Vec<Candidate>,
    round: usize,
) -> PostFilterStep {
    let asking = Asking {
        at: 0,
        candidates,
        is_old: false,
        round,
        seen: cx.dry_run.cluster().nodes.changes_end(),
    };
    ask(cx, wanted, asking)
}

/// Asks the extender at the place, or the next one that is interested.
fn ask(cx: &mut PostFilterContext<'_>, wanted: Wanted<'_>, mut asking: Asking) -> PostFilterStep {
    let pod = &wanted.pod.pod;
    let extenders = cx.outbox.extenders();
    let next = extenders.next(asking.at, pod, |spec| spec.preempts);
    let Some((at, extender)) = next.filter(|_| !asking.candidates.is_empty()) else {
        return decide(cx, wanted, asking);
    };
    asking.at = at;
    let told = asking.candidates.iter().map(|candidate| NodeVictims {
        node: candidate.name.clone(),
        pods: candidate
            .victims
            .pods
            .iter()
            .map(|v| v.pod.clone())
            .collect(),
        violations: candidate.victims.violations,
    });
    let answer = extender.preempt(pod, told.collect());
    let deadline = cx.now + extender.spec().timeout;
    let job = cx.outbox.job(job(answer));
    cx.dry_run.state().write(Some(asking));
    PostFilterStep::Wait(Wait {
        on: WaitOn::Job(job),
        deadline,
    })
}

/// What is waited for, if it is an extender.
pub(super) fn awaited(cx: &mut PostFilterContext<'_>) -> Option<Asking> {
    cx.dry_run
        .state()
        .read_mut::<Option<Asking>>()
        .and_then(Option::take)
}

/// Goes on when an extender has answered, or failed to.
pub(super) fn resume(
    cx: &mut PostFilterContext<'_>,
    wanted: Wanted<'_>,
    mut asking: Asking,
    reason: WakeReason,
) -> PostFilterStep {
    let pod = &wanted.pod.pod;
    let cluster = cx.dry_run.cluster();
    let is_there = cluster.pods.get(pod.uid());
    if is_there.is_none_or(|pod| pod.is_assigned() || pod.is_terminating()) {
        // It went, or has a node: nobody has to make room for it (P-3).
        return PostFilterStep::done(not_found(pod), Nominating::Keep);
    }
    let extenders = cx.outbox.extenders();
    if let Some(extender) = extenders.get(asking.at) {
        let spec = extender.spec();
        let said = spec.answer::<Vec<ChosenVictims>>(reason);
        match said.and_then(|said| left(cluster, spec, &asking.candidates, said, cx.now)) {
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
    let told = asking.candidates.len();
    let cluster = cx.dry_run.cluster();
    asking
        .candidates
        .retain_mut(|candidate| is_left(cluster, candidate));
    asking.is_old |= asking.candidates.len() < told;
    asking.at += 1;
    ask(cx, wanted, asking)
}

/// The candidates that an extender leaves (F-43). It may name other victims than it was told of, and other nodes.
fn left(
    cluster: &Cluster,
    spec: &ExtenderSpec,
    told: &[Candidate],
    said: Vec<ChosenVictims>,
    now: Time,
) -> Result<Vec<Candidate>, String> {
    let mut left = Vec::with_capacity(said.len());
    for ChosenVictims {
        node: name,
        pods,
        violations,
    } in said
    {
        // Nodes and victims may have gone since it was told of them.
        let told_of = told.iter().find(|candidate| candidate.name == name);
        let view = cluster.nodes.node(&name);
        let Some(node) = view.map(|view| view.slot()).or(told_of.map(|of| of.node)) else {
            return Err(format!(
                "nodeinfo not found for node name {:?}",
                name.as_str()
            ));
        };
        let there = view.into_iter().flat_map(|view| view.pods());
        let known = there.chain(told_of.into_iter().flat_map(|of| &of.victims.pods));
        let mut victims: Vec<Arc<PodInfo>> = Vec::with_capacity(pods.len());
        for uid in &pods {
            let Some(victim) = known.clone().find(|known| known.pod.uid() == uid) else {
                return Err(format!(
                    "extender: {} claims to preempt pod (UID: {uid}) on node: {name}, but the pod is not found on that \
                     node",
                    spec.name
                ));
            };
            victims.push(victim.clone());
        }
        if victims.is_empty() {
            if spec.ignorable {
                continue;
            }
            return Err(format!(
                "expected at least one victim pod on node {:?}",
                name.as_str()
            ));
        }
        victims.sort_by(|a, b| by_importance(&a.pod, &b.pod, now));
        let as_told = told_of.filter(|of| {
            !of.by_extender
                && of.victims.pods.len() == victims.len()
                && victims.iter().all(|victim| is_among(victim, of))
        });
        left.push(Candidate {
            node,
            name,
            victims: Victims {
                pods: victims,
                violations,
            },
            by_extender: as_told.is_none(),
        });
    }
    Ok(left)
}

fn is_among(victim: &PodInfo, candidate: &Candidate) -> bool {
    let mut victims = candidate.victims.pods.iter();
    victims.any(|other| other.pod.uid() == victim.pod.uid())
}

/// Finds the node by its name, as its place may be another's by now, and forgets victims that have left it. Whether
/// the candidate still is one.
fn is_left(cluster: &Cluster, candidate: &mut Candidate) -> bool {
    let Some(view) = cluster.nodes.node(&candidate.name) else {
        return false;
    };
    candidate.node = view.slot();
    candidate.victims.pods.retain(|victim| {
        let uid = victim.pod.uid();
        cluster.pods.contains_key(uid) && view.pods().iter().any(|pod| pod.pod.uid() == uid)
    });
    !candidate.victims.pods.is_empty()
}

/// All have answered: room is made on the best candidate that is left, and lasts.
fn decide(
    cx: &mut PostFilterContext<'_>,
    wanted: Wanted<'_>,
    mut asking: Asking,
) -> PostFilterStep {
    if asking.candidates.is_empty() && !asking.is_old {
        let text = "no candidate node for preemption";
        return PostFilterStep::done(unschedulable(text), Nominating::Keep);
    }
    let has_changed = cx.dry_run.cluster().nodes.changes_end() != asking.seen;
    if has_changed && let Some(end) = look_again(cx, wanted) {
        return end;
    }
    while let Some(candidate) = choose(&mut asking.candidates, cx.now) {
        let lasting = match has_changed {
            true => as_it_stands(cx, wanted.pod, candidate),
            false => Some(candidate),
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

/// The nodes have changed. If there is room for the pod by now, nobody has to go: it is promised the node, and tried
/// again soon, as what made the room wakes it. Room is looked for where only plugins turned the pod down: what
/// extenders would say of a node that they have not been asked about shows then.
fn look_again(cx: &mut PostFilterContext<'_>, wanted: Wanted<'_>) -> Option<PostFilterStep> {
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

/// The candidate, with the victims that are needed as things stand; `None` when those that extenders agreed to are not
/// enough. What an extender has chosen itself is taken at its word.
fn as_it_stands(
    cx: &mut PostFilterContext<'_>,
    pod: &PodInfo,
    candidate: Candidate,
) -> Option<Candidate> {
    if candidate.by_extender {
        return Some(candidate);
    }
    let victims = select(cx.dry_run, pod, candidate.node, cx.now).ok()?;
    let is_agreed = victims.pods.iter().all(|pod| is_among(pod, &candidate));
    (is_agreed && !victims.pods.is_empty()).then_some(Candidate {
        victims,
        ..candidate
    })
}
