//! The explanation of a pod as text.

use super::{group, headed, lacks, notes, pod_name, shortened, table};
use crate::answer::{ClosestNode, DecisionTable, Gate, PodAnswer, Preemption, Reason};
use crate::words::ago;
use std::fmt::Write as _;

/// The explanation of a pod.
pub fn pod(answer: &PodAnswer) -> String {
    let mut text = String::new();
    line!(
        text,
        "Pod {}/{}: {:?}",
        answer.namespace,
        answer.name,
        answer.state
    );
    line!(text, "  {}", answer.summary);
    if let Some(queue) = &answer.queue {
        line!(text);
        line!(text, "Queue");
        let mut rows = vec![
            vec!["place".to_owned(), format!("{:?}", answer.state)],
            vec![
                "since".to_owned(),
                format!("{} ({})", queue.since, ago(queue.seconds)),
            ],
        ];
        let mut row = |name: &str, value: String| rows.push(vec![name.to_owned(), value]);
        if let Some(ahead) = queue.ahead {
            row("pods ahead", ahead.to_string());
        }
        if let Some(until) = &queue.backoff_until {
            row("backoff until", until.clone());
        }
        row("attempts", queue.attempts.to_string());
        if !queue.rejected_by.is_empty() {
            row("rejected by", queue.rejected_by.join(", "));
        }
        if queue.was_flushed {
            row("moved by", "the periodic flush, not by an event".to_owned());
        }
        text += &table(&rows, "  ");
    }
    gates(&mut text, answer);
    quota(&mut text, answer);
    verdict(&mut text, answer);
    devices(&mut text, answer);
    closest(&mut text, &answer.closest);
    if !answer.remedies.is_empty() {
        line!(text);
        line!(
            text,
            "What would free it (each was tried on a copy of the cluster)"
        );
        for (number, remedy) in answer.remedies.iter().enumerate() {
            line!(text, "  {}. {}", number + 1, remedy.text);
        }
    }
    let attempt = answer.last_attempt.as_ref();
    if let Some(attempt) = attempt.filter(|a| a.reasons.is_empty() && !a.message.is_empty()) {
        line!(text);
        line!(text, "Last attempt ({}, {})", attempt.number, attempt.at);
        line!(text, "  {}", attempt.message);
    }
    if !answer.earlier_attempts.is_empty() {
        line!(text);
        line!(text, "Earlier attempts with other results");
        let rows = answer.earlier_attempts.iter().map(|attempt| {
            let number = attempt.number.to_string();
            vec![number, attempt.at.clone(), shortened(&attempt.message)]
        });
        text += &table(&rows.collect::<Vec<_>>(), "  ");
    }
    if let Some(of_group) = &answer.group {
        line!(text);
        text += &group(of_group);
    }
    preemption(&mut text, answer);
    if !answer.woken_by.is_empty() {
        line!(text);
        line!(text, "Tried again after");
        let rows = answer.woken_by.iter();
        let rows = rows.map(|wake_up| vec![wake_up.plugin.clone(), wake_up.events.join(", ")]);
        text += &table(&rows.collect::<Vec<_>>(), "  ");
    }
    if !answer.calls.is_empty() {
        line!(text);
        line!(text, "API calls");
        let rows = answer.calls.iter().map(|call| {
            let failed_at = call.failed_at.as_deref().unwrap_or_default();
            let error = call.error.as_ref();
            vec![
                call.call_type.clone(),
                call.state.clone(),
                call.attempts.to_string(),
                call.not_before.clone().unwrap_or_default(),
                error.map_or_else(String::new, |error| format!("{failed_at}: {error}")),
            ]
        });
        let head = ["TYPE", "STATE", "SENT", "NOT BEFORE", "ERROR"];
        text += &headed(&head, rows, "  ");
    }
    if let Some(decision) = &answer.decision {
        decided(&mut text, decision);
    }
    notes(&mut text, &answer.notes);
    text
}

/// The deferred quota for which a pod waits.
fn quota(text: &mut String, answer: &PodAnswer) {
    let Some(wait) = &answer.quota else {
        return;
    };
    line!(text);
    line!(text, "Deferred quota");
    let mut rows = vec![vec![
        "quota".to_owned(),
        format!("{} ({})", wait.quota, wait.order),
    ]];
    let mut row = |name: &str, value: String| rows.push(vec![name.to_owned(), value]);
    match wait.place {
        0 => row("place", "not in line".to_owned()),
        place => row("place", format!("{place} of {} in line", wait.entries)),
    }
    if wait.place > 1 {
        row("first in line", wait.first.clone());
    }
    if !wait.key.is_empty() {
        let cohort = match wait.cohort.as_str() {
            "" => String::new(),
            cohort => format!(" in cohort {cohort}"),
        };
        let missing = if wait.never_fits {
            "the request exceeds the limit".to_owned()
        } else {
            format!("{} missing", wait.missing)
        };
        row(
            &wait.key,
            format!(
                "requested {}, used {} of {}{cohort}: {missing}",
                wait.requested, wait.used, wait.limit
            ),
        );
    }
    *text += &table(&rows, "  ");
}

fn gates(text: &mut String, answer: &PodAnswer) {
    if answer.gates.is_empty() {
        return;
    }
    line!(text);
    line!(text, "Gated by");
    for gate in &answer.gates {
        let what = if gate.is_scheduling_gate {
            "scheduling gate"
        } else {
            "PreEnqueue plugin"
        };
        let since = if gate.since.is_empty() {
            String::new()
        } else {
            format!(", since {}", gate.since)
        };
        line!(text, "  {what} {}{since}", gate.name);
        if !gate.message.is_empty() {
            line!(text, "    {}", gate.message);
        }
        if let Some(manager) = &gate.set_by {
            line!(text, "    set by {manager}");
        }
        if !gate.webhooks.is_empty() {
            let webhooks = gate.webhooks.join(", ");
            line!(text, "    webhooks that may set it: {webhooks}");
        }
        usual(text, gate);
        if !gate.other_managers.is_empty() {
            line!(
                text,
                "    also written by {}",
                gate.other_managers.join(", ")
            );
        }
        for event in &gate.events {
            line!(
                text,
                "    {}: {} reports {}: {}",
                event.at,
                event.component,
                event.reason,
                event.message
            );
        }
    }
}

/// The age of a gate compared with its usual age, and whether a component still removes it.
fn usual(text: &mut String, gate: &Gate) {
    removals(text, gate);
    if let Some(lease) = &gate.expired_lease {
        line!(
            text,
            "    no component seems to remove it any more: the Lease {} of {:?} expired {} ago",
            lease.name,
            lease.holder,
            ago(lease.expired_seconds)
        );
    } else if gate.is_orphaned {
        let age = ago(gate.age_seconds);
        line!(
            text,
            "    no component seems to remove it any more: it is {age} old"
        );
    }
}

fn removals(text: &mut String, gate: &Gate) {
    let Some(usage) = &gate.usage else {
        if gate.is_scheduling_gate {
            line!(text, "    no removal of this gate was seen");
        }
        return;
    };
    let by = gate.removed_by.as_ref();
    let by = by.map_or_else(String::new, |manager| format!(" by {manager}"));
    let ages = match (usage.median_seconds, usage.p99_seconds) {
        (Some(median), Some(p99)) => {
            format!("; usual age {} (median), {} (p99)", ago(median), ago(p99))
        }
        _ => String::new(),
    };
    line!(
        text,
        "    removed from {} other pods{by}, last at {}{ages}",
        usage.removals,
        usage.last
    );
}

fn reason_rows<'a>(reasons: impl Iterator<Item = &'a Reason>) -> impl Iterator<Item = Vec<String>> {
    reasons.map(|reason| {
        vec![
            reason.plugin.clone(),
            reason.nodes.to_string(),
            reason.reason.clone(),
            reason.examples.join(", "),
        ]
    })
}

fn verdict(text: &mut String, answer: &PodAnswer) {
    let Some(verdict) = &answer.verdict else {
        return;
    };
    line!(text);
    if let Some(reason) = &verdict.pre_filter {
        line!(
            text,
            "Rejected on every node by {}: {}",
            reason.plugin,
            reason.reason
        );
    } else if verdict.reasons.is_empty() {
        line!(
            text,
            "{} of {} nodes are feasible now",
            verdict.feasible,
            verdict.nodes
        );
    } else {
        let feasible = verdict.feasible;
        line!(text, "Nodes now: {feasible} of {} feasible", verdict.nodes);
        let rows = reason_rows(verdict.reasons.iter());
        *text += &headed(&["PLUGIN", "NODES", "REASON", "EXAMPLES"], rows, "  ");
    }
}

fn devices(text: &mut String, answer: &PodAnswer) {
    if answer.devices.is_empty() {
        return;
    }
    line!(text);
    line!(text, "Devices in the cluster, by request");
    let rows = answer.devices.iter().map(|request| {
        let wanted = request.wanted.map(|wanted| wanted.to_string());
        let number = |number: usize| number.to_string();
        vec![
            format!("{}/{}", request.claim, request.request),
            request.class.clone(),
            wanted.unwrap_or_else(|| "all".to_owned()),
            number(request.exist),
            number(request.matching),
            number(request.free),
            number(request.held),
            number(request.tainted),
            number(request.exhausted),
        ]
    });
    let head = [
        "REQUEST", "CLASS", "WANTS", "EXIST", "MATCH", "FREE", "HELD", "TAINTED", "USED UP",
    ];
    *text += &headed(&head, rows, "  ");
    for request in &answer.devices {
        if let Some(closest) = &request.closest {
            line!(
                text,
                "  {}: closest is node {} with {} free, {} missing",
                request.request,
                closest.node,
                closest.free,
                closest.missing
            );
        }
        if !request.taints.is_empty() {
            let taints = request.taints.join(", ");
            line!(text, "  {}: taints {taints}", request.request);
        }
        for holder in &request.held_by {
            let pods = holder.pods.join(", ");
            let (device, claim) = (&holder.device, &holder.claim);
            line!(text, "  {device} is held by claim {claim} of pod {pods}");
        }
    }
}

fn closest(text: &mut String, closest: &[ClosestNode]) {
    if closest.is_empty() {
        return;
    }
    line!(text);
    line!(text, "Closest nodes");
    let rows = closest
        .iter()
        .map(|node| vec![node.node.clone(), lacks(&node.lacks)]);
    *text += &headed(&["NODE", "LACKS"], rows, "  ");
}

fn preemption(text: &mut String, answer: &PodAnswer) {
    if let Some(nomination) = &answer.nomination {
        line!(text);
        line!(text, "Nominated to node {}", nomination.node);
        for pod in &nomination.awaited {
            line!(text, "  waits until {} has terminated", pod_name(pod));
        }
    }
    let Some(Preemption {
        is_running,
        node,
        victims,
        message,
    }) = &answer.preemption
    else {
        return;
    };
    line!(text);
    match (is_running, node) {
        (true, _) => line!(text, "Preemption is under way"),
        (false, Some(node)) => line!(text, "Preemption would make room on node {node}"),
        (false, None) => line!(text, "Preemption does not help"),
    }
    line!(text, "  {message}");
    for victim in victims {
        line!(text, "  victim {}", pod_name(victim));
    }
}

fn decided(text: &mut String, table_of: &DecisionTable) {
    line!(text);
    line!(
        text,
        "Decided at {}: {} nodes filtered, {} feasible{}",
        table_of.at,
        table_of.evaluated,
        table_of.feasible,
        match table_of.drawn {
            Some(drawn) => format!(
                ", {} with the greatest total; number {drawn} of these was drawn",
                table_of.ties
            ),
            None => String::new(),
        }
    );
    let Some(first) = table_of.nodes.first() else {
        return;
    };
    let mut head = vec!["PLUGIN".to_owned(), "WEIGHT".to_owned()];
    head.extend(table_of.nodes.iter().map(|node| {
        if node.is_chosen {
            format!("{} (chosen)", node.node)
        } else {
            node.node.clone()
        }
    }));
    let mut rows = vec![head];
    for (at, score) in first.scores.iter().enumerate() {
        let mut row = vec![score.plugin.clone(), score.weight.to_string()];
        row.extend(table_of.nodes.iter().map(|node| {
            node.scores.get(at).map_or_else(String::new, |score| {
                if score.raw == score.normalized {
                    format!("{}", score.weighted)
                } else {
                    format!("{} (raw {})", score.weighted, score.raw)
                }
            })
        }));
        rows.push(row);
    }
    let mut total = vec!["total".to_owned(), String::new()];
    total.extend(table_of.nodes.iter().map(|node| node.total.to_string()));
    rows.push(total);
    *text += &table(&rows, "  ");
}
