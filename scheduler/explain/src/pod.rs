//! The explanation of a pod.

use crate::answer::{
    Attempt, Call, EarlierAttempt, Gate, PodAnswer, PodState, QueuePlace, Reason, Verdict, WakeUp,
};
use crate::closest::{closest, complete_codes, listed};
use crate::decision::decide_again;
use crate::devices::device_requests;
use crate::examine::examine;
use crate::facts::{GroupFacts, PodFacts};
use crate::gates::{gated_since, is_orphaned, usage};
use crate::group::explain_group;
use crate::limits::CLOSEST_MAX;
use crate::preemption::{ExaminedPod, nomination, preemption};
use crate::quota::quota_wait;
use crate::remedies::{self, NODES_CONSIDERED_MAX};
use crate::snapshot::Snapshot;
use crate::words::{ago, count, seconds};
use berth_api::{Pod, Time};
use berth_framework::{ActionType, PodInfo};
use berth_scheduler::dispatcher::{CallState, CallView};
use berth_scheduler::profile::Profile;
use berth_scheduler::queue::{EXTENDER, QueuedIn, default_registrations};
use berth_scheduler::{Explanation, Progress};
use std::sync::Arc;

/// The explanation of the pod. A trial in the snapshot is reverted.
pub fn explain_pod(snapshot: &mut Snapshot, facts: &PodFacts) -> PodAnswer {
    let pod = &facts.pod;
    let mut answer = PodAnswer {
        at: snapshot.now.rfc3339(),
        namespace: pod.namespace().to_string(),
        name: pod.name().to_string(),
        uid: pod.uid().to_string(),
        scheduler_name: pod.spec.scheduler_name.to_string(),
        priority: pod.priority(),
        state: state(snapshot, facts),
        queue: queue_place(snapshot, facts),
        progress: facts.progress.as_ref().map(progress),
        last_attempt: facts.explanation.as_ref().map(|last| attempt(last, pod)),
        earlier_attempts: facts.explanation.as_ref().map_or_else(Vec::new, earlier),
        calls: facts.calls.iter().map(call).collect(),
        nomination: nomination(snapshot, facts),
        ..PodAnswer::default()
    };
    let profile = snapshot.profiles.get(&pod.spec.scheduler_name).cloned();
    if let Some(profile) = &profile {
        if waits(answer.state) {
            match &facts.group {
                Some(group) => explain_member(snapshot, facts, group, profile, &mut answer),
                None => explain_waiting(snapshot, facts, profile, &mut answer),
            }
        }
        answer.woken_by = woken_by(snapshot, facts, profile);
    }
    if pod.is_assigned() {
        answer.node = Some(pod.spec.node_name.to_string());
    }
    if let Some(decision) = facts.decision.as_ref().filter(|_| pod.is_assigned()) {
        let (table, why) = decide_again(snapshot, decision);
        if let Some(why) = why {
            let text = format!("the scores are those of the present cluster: {why}");
            answer.notes.push(text);
        }
        answer.decision = Some(table);
    } else if answer.state == PodState::Bound {
        let text = "this scheduler did not place the pod, or the decision is not kept any more";
        answer.notes.push(text.to_owned());
    }
    answer.summary = summary(&answer, pod);
    answer
}

fn waits(state: PodState) -> bool {
    matches!(
        state,
        PodState::Active
            | PodState::Backoff
            | PodState::Unschedulable
            | PodState::Gated
            | PodState::Scheduling
            | PodState::Unknown
    )
}

fn state(snapshot: &Snapshot, facts: &PodFacts) -> PodState {
    let pod = &facts.pod;
    if let Some(progress) = &facts.progress {
        return match progress {
            Progress::Cycle { .. } => PodState::Scheduling,
            Progress::Permit { .. } | Progress::PreBind { .. } | Progress::Bind { .. } => {
                PodState::Binding
            }
        };
    }
    if pod.is_terminal() {
        return PodState::Finished;
    }
    if pod.is_terminating() {
        return PodState::Terminating;
    }
    if pod.is_assigned() {
        return if facts.is_assumed {
            PodState::Binding
        } else {
            PodState::Bound
        };
    }
    if snapshot.profiles.get(&pod.spec.scheduler_name).is_none() {
        return PodState::OtherScheduler;
    }
    let place = facts.queued.as_ref().map(|(place, _)| *place);
    place.map_or(PodState::Unknown, PodState::from)
}

fn queue_place(snapshot: &Snapshot, facts: &PodFacts) -> Option<QueuePlace> {
    let (_, info) = facts.queued.as_ref()?;
    Some(QueuePlace {
        since: info.waits_since().rfc3339(),
        seconds: seconds(info.waits_since(), snapshot.now),
        ahead: facts.ahead,
        backoff_until: facts.backoff_expiry.map(Time::rfc3339),
        attempts: info.attempts,
        first_attempt: info.initial_attempt_timestamp.map(Time::rfc3339),
        rejections: info.unschedulable_count,
        errors: info.in_a_row.errors,
        was_flushed: info.was_flushed_from_unschedulable,
        rejected_by: info.rejectors().map(ToString::to_string).collect(),
    })
}

fn attempt(explanation: &Explanation, pod: &Arc<Pod>) -> Attempt {
    let info = PodInfo::new(pod.clone());
    let reasons = explanation.reasons.iter().map(|reason| Reason {
        nodes: reason.nodes,
        examples: reason.examples.iter().map(ToString::to_string).collect(),
        preemption_may_help: reason.preemption_may_help,
        ..Reason::coded(&reason.plugin, &reason.text, reason.code, &info)
    });
    Attempt {
        at: explanation.at.rfc3339(),
        number: explanation.attempts,
        message: explanation.message.clone(),
        reasons: reasons.collect(),
    }
}

fn earlier(explanation: &Explanation) -> Vec<EarlierAttempt> {
    let earlier = explanation.earlier.iter().map(|attempt| EarlierAttempt {
        at: attempt.at.rfc3339(),
        number: attempt.attempts,
        message: attempt.message.clone(),
    });
    earlier.collect()
}

fn progress(progress: &Progress) -> String {
    match progress {
        Progress::Cycle { wait: None } => "its scheduling cycle is under way".to_owned(),
        Progress::Cycle { wait: Some(wait) } => format!(
            "its scheduling cycle waits for {:?}, until {} at the latest",
            wait.on,
            wait.deadline.rfc3339()
        ),
        Progress::Permit {
            node,
            since,
            plugins,
        } => {
            let plugins = plugins.iter();
            let plugins =
                plugins.map(|(name, until)| format!("{name} (until {})", until.rfc3339()));
            let plugins: Vec<String> = plugins.collect();
            format!(
                "Permit plugins hold it for node {node} since {}: {}",
                since.rfc3339(),
                plugins.join(", ")
            )
        }
        Progress::PreBind { node } => format!("PreBind plugins prepare node {node}"),
        Progress::Bind { node } => format!("it is being bound to node {node}"),
    }
}

fn call(view: &CallView) -> Call {
    let state = match view.state {
        CallState::Waiting => "Waiting",
        CallState::InFlight => "InFlight",
        CallState::Retrying => "Retrying",
        CallState::HeldBack => "HeldBack",
        CallState::Failed => "Failed",
    };
    Call {
        call_type: view.call_type.to_owned(),
        state: state.to_owned(),
        attempts: view.attempts,
        made_at: view.made_at.map(Time::rfc3339),
        not_before: view.not_before.map(Time::rfc3339),
        error: view.failure.as_ref().map(|(_, error)| error.clone()),
        failed_at: view.failure.as_ref().map(|(at, _)| at.rfc3339()),
    }
}

/// The names of actions; all updates have the same name.
fn actions(action: ActionType) -> Vec<&'static str> {
    let is_update = action.contains(ActionType::UPDATE);
    let bits = action.bits();
    let single = bits.filter(|(bit, _)| !is_update || !ActionType::UPDATE.contains(*bit));
    let mut names: Vec<&str> = single.map(|(_, name)| name).collect();
    names.extend(is_update.then_some("Update"));
    names
}

/// The events for which the rejecting plugins registered.
fn woken_by(snapshot: &Snapshot, facts: &PodFacts, profile: &Profile) -> Vec<WakeUp> {
    let Some((place, info)) = &facts.queued else {
        return Vec::new();
    };
    let names: Vec<&str> = match info.gating_plugin() {
        Some(gate) => vec![gate.as_str()],
        None if *place == QueuedIn::Unschedulable => {
            info.rejectors().map(|name| name.as_str()).collect()
        }
        None => Vec::new(),
    };
    let events = |name: &str| {
        let plugin = profile.plugins.iter().find(|p| p.name == name);
        let registrations = match plugin.and_then(|plugin| plugin.events.clone()) {
            Some(events) => events.events(&snapshot.features),
            // As in kube-scheduler, plugins without registrations and extenders are retried after events of many kinds
            //
            None if plugin.is_some() || name == EXTENDER => default_registrations(),
            None => Vec::new(),
        };
        let mut labels: Vec<String> = registrations
            .iter()
            .flat_map(|registration| {
                let resource = registration.event.resource.as_str();
                actions(registration.event.action)
                    .into_iter()
                    .map(move |action| format!("{resource}/{action}"))
            })
            .collect();
        labels.sort_unstable();
        labels.dedup();
        labels
    };
    let wake_ups = names.into_iter().map(|name| WakeUp {
        plugin: name.to_owned(),
        events: events(name),
    });
    wake_ups.collect()
}

fn gates(snapshot: &Snapshot, facts: &PodFacts, profile: &Profile) -> Vec<Gate> {
    let pod = &facts.pod;
    let created = pod.metadata.creation_timestamp;
    let queued = facts.queued.as_ref().map(|(_, info)| info.waits_since());
    let since = |time: Option<Time>| time.map_or_else(String::new, Time::rfc3339);
    let gated = gated_since(pod, queued.unwrap_or(snapshot.now));
    let of_spec = pod.spec.scheduling_gates.iter().map(|gate| {
        let removals = facts.removals.iter().find(|(name, _)| *name == gate.name);
        let removals = removals.map(|(_, removals)| removals);
        let age = snapshot.now.since(gated);
        Gate {
            name: gate.name.to_string(),
            is_scheduling_gate: true,
            since: since(created.or(queued)),
            age_seconds: age.as_secs_f64(),
            usage: removals.map(usage),
            is_orphaned: is_orphaned(age, removals, snapshot.now),
            ..Gate::default()
        }
    });
    let mut gates: Vec<Gate> = of_spec.collect();
    let has_gates = !gates.is_empty();
    for member in &profile.pre_enqueue {
        let status = member.plugin.pre_enqueue(&snapshot.context(), pod);
        // Gates are listed already.
        let is_of_gates = has_gates && member.name == "SchedulingGates";
        if !status.is_success() && !is_of_gates {
            gates.push(Gate {
                name: member.name.to_string(),
                message: status.message(),
                since: since(queued),
                age_seconds: queued.map_or(0.0, |queued| seconds(queued, snapshot.now)),
                ..Gate::default()
            });
        }
    }
    gates
}

/// The reasons why a member of a group waits: its own gates, the nodes that reject it, and the explanation of its
/// group. No change is tried for it, because none lets a member be scheduled alone.
fn explain_member(
    snapshot: &mut Snapshot,
    facts: &PodFacts,
    group: &GroupFacts,
    profile: &Arc<Profile>,
    answer: &mut PodAnswer,
) {
    answer.gates = gates(snapshot, facts, profile);
    answer.quota = quota_wait(&snapshot.cluster, &facts.pod);
    let pod = Arc::new(PodInfo::new(facts.pod.clone()));
    let examination = examine(snapshot, profile, &pod);
    answer.verdict = Some(examination.verdict(&snapshot.cluster, &pod));
    answer.group = Some(explain_group(snapshot, group));
}

/// The reasons why a pod waits, and its remedies.
fn explain_waiting(
    snapshot: &mut Snapshot,
    facts: &PodFacts,
    profile: &Arc<Profile>,
    answer: &mut PodAnswer,
) {
    if snapshot.has_extenders {
        let text = "extenders are configured; they are not asked here, so they may reject nodes \
                    that this answer shows as feasible";
        answer.notes.push(text.to_owned());
    }
    answer.gates = gates(snapshot, facts, profile);
    answer.quota = quota_wait(&snapshot.cluster, &facts.pod);
    let pod = Arc::new(PodInfo::new(facts.pod.clone()));
    let without_gates = remedies::without_gates(&pod);
    let (pod, gate_change) = match without_gates {
        None => (pod, None),
        Some(change) => {
            let mut open = Pod::clone(&facts.pod);
            open.spec.scheduling_gates.clear();
            (Arc::new(PodInfo::new(Arc::new(open))), Some(change))
        }
    };
    let examination = examine(snapshot, profile, &pod);
    answer.verdict = Some(examination.verdict(&snapshot.cluster, &pod));
    let is_gated_otherwise = answer.gates.iter().any(|gate| !gate.is_scheduling_gate);
    if !examination.feasible.is_empty() && !is_gated_otherwise {
        let names = examination
            .feasible
            .iter()
            .filter_map(|node| Some(snapshot.cluster.nodes.get(*node)?.name().to_string()));
        let names: Vec<String> = names.collect();
        let remedy = gate_change.map(|change| remedies::remedy(vec![change], &names));
        answer.remedies.extend(remedy);
        return;
    }
    answer.devices = device_requests(snapshot, &pod.pod, &mut answer.notes);
    let closest = closest(snapshot, profile, &pod, &examination, NODES_CONSIDERED_MAX);
    answer.closest = listed(snapshot, &closest);
    if let Some(verdict) = &mut answer.verdict {
        complete_codes(verdict, &closest);
    }
    let examined = ExaminedPod {
        profile,
        pod: &pod,
        examination: &examination,
    };
    answer.preemption = preemption(snapshot, facts, Some(examined));
    // The victims are evicted and have not terminated.
    let awaited = answer.nomination.as_ref().filter(|n| !n.awaited.is_empty());
    if let Some((nomination, preemption)) = awaited.zip(answer.preemption.as_mut()) {
        preemption.is_running = true;
        preemption.node = Some(nomination.node.clone());
    }
    // The preemption of a gated pod follows the removal of its gates.
    let preempts = gate_change.is_none()
        && answer
            .preemption
            .as_ref()
            .is_some_and(|preemption| preemption.node.is_some());
    let found = remedies::search(snapshot, examined, gate_change, &closest, preempts);
    answer.remedies = found.remedies;
    answer.notes.extend(found.notes);
    if answer.remedies.is_empty() {
        let text = "no change and no pair of changes that was tried is enough";
        answer.notes.push(text.to_owned());
    }
    if examination.rejecting.len() > NODES_CONSIDERED_MAX {
        let text = format!(
            "changes are derived from the {NODES_CONSIDERED_MAX} closest of {} nodes; {} of these \
             are listed",
            examination.rejecting.len(),
            answer.closest.len().min(CLOSEST_MAX)
        );
        answer.notes.push(text);
    }
}

/// The event for which a preemptor waits.
fn awaited(answer: &PodAnswer) -> Option<String> {
    let nomination = answer.nomination.as_ref()?;
    let (pod, others) = nomination.awaited.split_first()?;
    let others = match others.len() {
        0 => String::new(),
        others => format!(" and {}", count(others as u64, "other pod")),
    };
    Some(format!(
        "it preempts pods on node {} and waits for the end of {}/{}{others}",
        nomination.node, pod.namespace, pod.name
    ))
}

fn summary(answer: &PodAnswer, pod: &Pod) -> String {
    if let Some(group) = &answer.group {
        return format!(
            "The pod is a member of {} {}/{} and is scheduled with it. {}",
            group.kind, group.namespace, group.name, group.summary
        );
    }
    let rejected = || match &answer.verdict {
        Some(Verdict {
            pre_filter: Some(reason),
            ..
        }) => format!("{}: {}", reason.plugin, reason.reason),
        Some(verdict) if verdict.feasible > 0 => {
            format!(
                "{} of {} nodes are feasible now",
                verdict.feasible, verdict.nodes
            )
        }
        Some(verdict) => {
            let reasons: Vec<String> = verdict
                .reasons
                .iter()
                .take(3)
                .map(|reason| {
                    format!(
                        "{} ({}, {})",
                        reason.reason,
                        reason.plugin,
                        count(reason.nodes as u64, "node")
                    )
                })
                .collect();
            if reasons.is_empty() {
                "there are no nodes".to_owned()
            } else {
                format!(
                    "none of {} nodes fits: {}",
                    verdict.nodes,
                    reasons.join("; ")
                )
            }
        }
        None => String::new(),
    };
    let queue = answer.queue.clone().unwrap_or_default();
    match answer.state {
        PodState::Unknown => format!("The pod is not in the queue; {}.", rejected()),
        PodState::Active => format!(
            "The pod waits for its turn; {} before it.",
            count(queue.ahead.unwrap_or_default() as u64, "pod")
        ),
        PodState::Backoff => format!(
            "The pod waits for its backoff, until {}; {}.",
            queue.backoff_until.unwrap_or_default(),
            rejected()
        ),
        PodState::Unschedulable => format!(
            "The pod has been unschedulable for {} after {}; {}.",
            ago(queue.seconds),
            count(queue.attempts, "attempt"),
            awaited(answer).unwrap_or_else(rejected)
        ),
        PodState::Gated => {
            let gates: Vec<&str> = answer.gates.iter().map(|gate| gate.name.as_str()).collect();
            format!(
                "The pod has been gated for {} by {}; without that, {}.",
                ago(queue.seconds),
                gates.join(", "),
                rejected()
            )
        }
        PodState::Scheduling => format!(
            "An attempt is under way: {}.",
            answer.progress.clone().unwrap_or_default()
        ),
        PodState::Binding => match &answer.progress {
            Some(progress) => format!("The pod has a node: {progress}."),
            None => format!("The pod is assumed on node {}.", pod.spec.node_name),
        },
        PodState::Bound => match &answer.decision {
            Some(table) if table.feasible == 1 => {
                format!("The pod is on node {}, the only feasible one.", table.node)
            }
            Some(table) => format!(
                "The pod is on node {}, the best of {} feasible nodes{}.",
                table.node,
                table.feasible,
                match table.ties {
                    0 | 1 => String::new(),
                    ties => format!(" (drawn among {ties} equal ones)"),
                }
            ),
            None => format!("The pod is on node {}.", pod.spec.node_name),
        },
        PodState::Terminating => "The pod is being deleted.".to_owned(),
        PodState::Finished => format!("The pod has run to its end: {}.", pod.status.phase),
        PodState::OtherScheduler => format!(
            "The pod is for scheduler {:?}, which is no profile of this one.",
            pod.spec.scheduler_name.as_str()
        ),
    }
}
