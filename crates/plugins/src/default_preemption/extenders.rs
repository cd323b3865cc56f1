//! Extenders have a say in where room is made, and which pods go for it (P-14).
//!
//! Each in turn is told the candidates and answers with those that it would have. The cycle is parked meanwhile.

use super::candidates::{Candidate, choose};
use super::victims::{Victims, by_importance};
use super::{PREFIX, done, evict, not_found, unschedulable};
use berth_api::Time;
use berth_framework::extender::{ChosenVictims, ExtenderSpec, NodeVictims, job};
use berth_framework::plugin::{Nominating, PostFilterContext, PostFilterStep};
use berth_framework::stage::{Wait, WaitOn, Wake};
use berth_framework::{Cluster, PodInfo, Status};
use std::sync::Arc;

/// What is waited for.
pub(super) struct Asking {
    /// The extender's place.
    at: usize,
    /// What it was told.
    candidates: Vec<Candidate>,
}

/// Asks the extenders from `from` on; when all have answered, room is made on the best candidate that is left.
pub(super) fn ask(
    cx: &mut PostFilterContext<'_>,
    pod: &PodInfo,
    candidates: Vec<Candidate>,
    from: usize,
) -> PostFilterStep {
    let extenders = cx.outbox.extenders();
    let next = extenders.next(from, &pod.pod, |spec| spec.preempts);
    let Some((at, extender)) = next.filter(|_| !candidates.is_empty()) else {
        return match choose(candidates, cx.now) {
            Some(candidate) => evict::start(cx, pod, candidate),
            None => done(
                unschedulable("no candidate node for preemption"),
                Nominating::Keep,
            ),
        };
    };
    let told = candidates.iter().map(|candidate| NodeVictims {
        node: candidate.name.clone(),
        pods: candidate
            .victims
            .pods
            .iter()
            .map(|v| v.pod.clone())
            .collect(),
        violations: candidate.victims.violations,
    });
    let answer = extender.preempt(&pod.pod, told.collect());
    let deadline = cx.now + extender.spec().timeout;
    let job = cx.outbox.job(job(answer));
    let asking = Asking { at, candidates };
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
    pod: &PodInfo,
    asking: Asking,
    wake: Wake,
) -> PostFilterStep {
    let Asking { at, candidates } = asking;
    let cluster = cx.dry_run.cluster();
    let is_there = cluster.pods.get(pod.pod.uid());
    if is_there.is_none_or(|pod| pod.is_assigned() || pod.is_terminating()) {
        // It went, or has a node: nobody has to make room for it (P-3).
        return done(not_found(&pod.pod), Nominating::Keep);
    }
    let extenders = cx.outbox.extenders();
    let Some(extender) = extenders.get(at) else {
        return ask(cx, pod, candidates, at + 1);
    };
    let spec = extender.spec();
    let said = spec.answer::<Vec<ChosenVictims>>(wake);
    let left = said.and_then(|said| left(cluster, spec, &candidates, said, cx.now));
    match left {
        Ok(left) => ask(cx, pod, left, at + 1),
        Err(error) if spec.ignorable => {
            cx.outbox.log(spec.skipped(&error));
            ask(cx, pod, candidates, at + 1)
        }
        Err(error) => done(Status::error(format!("{PREFIX}{error}")), Nominating::Keep),
    }
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
        let Some(view) = cluster.nodes.node(&name) else {
            return Err(format!(
                "nodeinfo not found for node name {:?}",
                name.as_str()
            ));
        };
        // A victim may have gone since it was told of.
        let told_of = told.iter().filter(|candidate| candidate.name == name);
        let known = view
            .pods()
            .iter()
            .chain(told_of.flat_map(|candidate| &candidate.victims.pods));
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
        left.push(Candidate {
            node: view.slot(),
            name,
            victims: Victims {
                pods: victims,
                violations,
            },
        });
    }
    Ok(left)
}
