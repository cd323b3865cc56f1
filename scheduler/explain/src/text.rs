//! The answers for people.

use crate::answer::{
    ClosestNode, DecisionTable, Gate, LackView, NodeAnswer, PodAnswer, PodName, Preemption,
    QueueAnswer, Reason,
};
use crate::spread::SpreadAnswer;
use crate::words::ago;
use berth_framework::quantity;
use std::fmt::Write as _;

/// The maximum length of a message in a table, in characters.
const MESSAGE_CHARS_MAX: usize = 100;

/// Appends a line; writing to a string cannot fail.
macro_rules! line {
    ($text:expr) => { $text.push('\n') };
    ($text:expr, $($arg:tt)*) => {{
        let _ = writeln!($text, $($arg)*);
    }};
}

mod group;
mod when;

pub use group::group;
pub use when::when;

/// An amount of a resource in the unit of the answers, in the format of Kubernetes.
pub fn amount(resource: &str, amount: i64) -> String {
    quantity::amount(resource, amount)
}

/// The number of listed pods of a workload.
const SPREAD_PODS_MAX: usize = 10;

/// Rows in columns with the width of their longest cell.
fn table(rows: &[Vec<String>], indent: &str) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |at: usize| {
        let cells = rows.iter().filter_map(|row| row.get(at));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let mut cells = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            let _ = write!(cells, "{cell:width$}   ");
        }
        line!(text, "{indent}{}", cells.trim_end());
    }
    text
}

fn headed(head: &[&str], rows: impl IntoIterator<Item = Vec<String>>, indent: &str) -> String {
    let head = head.iter().map(|cell| (*cell).to_owned()).collect();
    let rows: Vec<Vec<String>> = std::iter::once(head).chain(rows).collect();
    table(&rows, indent)
}

fn lacks(lacks: &[LackView]) -> String {
    let texts: Vec<&str> = lacks.iter().map(|lack| lack.text.as_str()).collect();
    texts.join("; ")
}

fn shortened(text: &str) -> String {
    if text.chars().count() > MESSAGE_CHARS_MAX {
        text.chars().take(MESSAGE_CHARS_MAX).collect::<String>() + "…"
    } else {
        text.to_owned()
    }
}

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

fn pod_name(pod: &PodName) -> String {
    let budgets = if pod.violated_budgets.is_empty() {
        String::new()
    } else {
        format!(
            ", against PodDisruptionBudget {}",
            pod.violated_budgets.join(", ")
        )
    };
    format!(
        "{}/{} (priority {}{budgets})",
        pod.namespace, pod.name, pod.priority
    )
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

fn notes(text: &mut String, notes: &[String]) {
    if notes.is_empty() {
        return;
    }
    line!(text);
    for note in notes {
        line!(text, "Note: {note}.");
    }
}

/// The explanation of a node.
pub fn node(answer: &NodeAnswer) -> String {
    let mut text = String::new();
    line!(text, "Node {}", answer.name);
    line!(text, "  {}", answer.summary);
    for taint in &answer.taints {
        line!(text, "  taint {taint}");
    }
    line!(text);
    let rows = answer.resources.iter().map(|resource| {
        vec![
            resource.name.clone(),
            resource.allocatable.clone(),
            resource.requested.clone(),
            resource.free.clone(),
            format!("{:.0} %", resource.requested_percent),
        ]
    });
    text += &headed(
        &["RESOURCE", "ALLOCATABLE", "REQUESTED", "FREE", "SHARE"],
        rows,
        "  ",
    );
    line!(
        text,
        "  fragmentation: {:.1} % between the free shares of CPU and memory",
        answer.fragmentation_percent
    );
    if !answer.pods.is_empty() {
        line!(text);
        let rows = answer.pods.iter().map(|pod| {
            vec![
                format!("{}/{}", pod.namespace, pod.name),
                pod.priority.to_string(),
                pod.requests.clone(),
                pod.note.clone(),
            ]
        });
        text += &headed(&["POD", "PRIORITY", "REQUESTS", ""], rows, "  ");
    }
    if answer.device_count > 0 {
        line!(text);
        let (free, all) = (answer.devices_free, answer.device_count);
        line!(text, "Devices: {free} of {all} free");
        let rows = answer.devices.iter().map(|device| {
            vec![
                device.device.clone(),
                device.state.clone(),
                device.claim.clone(),
                device.pods.join(", "),
                device.taints.join(", "),
            ]
        });
        text += &headed(&["DEVICE", "STATE", "CLAIM", "PODS", "TAINTS"], rows, "  ");
    }
    for pod in &answer.nominated {
        line!(text, "  nominated: {}", pod_name(pod));
    }
    if !answer.fits.is_empty() {
        line!(text);
        line!(text, "Waiting pods that fit");
        let rows = answer.fits.iter();
        let rows = rows.map(|kind| vec![kind.example.clone(), kind.pods.to_string()]);
        text += &headed(&["EXAMPLE", "PODS"], rows, "  ");
    }
    if !answer.closest_to.is_empty() {
        line!(text);
        line!(text, "Waiting pods that do not fit, the closest first");
        let rows = answer.closest_to.iter();
        let rows = rows.map(|kind| {
            vec![
                kind.example.clone(),
                kind.pods.to_string(),
                lacks(&kind.lacks),
            ]
        });
        text += &headed(&["EXAMPLE", "PODS", "LACKS"], rows, "  ");
    }
    notes(&mut text, &answer.notes);
    text
}

/// The gates of waiting pods.
fn gates_of_queue(text: &mut String, answer: &QueueAnswer) {
    if answer.gates.is_empty() {
        return;
    }
    line!(text);
    let rows = answer.gates.iter().map(|gate| {
        let usage = gate.usage.as_ref();
        let seconds = |seconds: Option<f64>| seconds.map_or_else(String::new, ago);
        vec![
            gate.gate.clone(),
            gate.pods.to_string(),
            ago(gate.oldest_seconds),
            usage.map_or(0, |usage| usage.removals).to_string(),
            seconds(usage.and_then(|usage| usage.median_seconds)),
            seconds(usage.and_then(|usage| usage.p99_seconds)),
            gate.orphans.to_string(),
        ]
    });
    let head = [
        "GATE", "PODS", "OLDEST", "REMOVALS", "MEDIAN", "P99", "ORPHANS",
    ];
    *text += &headed(&head, rows, "  ");
}

/// The deferred quotas for which pods wait.
fn quotas_of_queue(text: &mut String, answer: &QueueAnswer) {
    if answer.quotas.is_empty() {
        return;
    }
    line!(text);
    let rows = answer.quotas.iter().map(|line| {
        let message = match line.message.split_once(": ") {
            Some((_, rest)) => rest,
            None => &line.message,
        };
        let never = if line.is_stuck {
            "; can never be admitted"
        } else {
            ""
        };
        vec![
            format!("{}/{}", line.namespace, line.quota),
            line.order.clone(),
            line.waiting.to_string(),
            ago(line.oldest_seconds),
            line.first.clone(),
            format!("{message}{never}"),
        ]
    });
    let head = ["QUOTA", "ORDER", "WAITING", "OLDEST", "FIRST", "REASON"];
    *text += &headed(&head, rows, "  ");
}

/// The spread of workloads.
pub fn spread(answer: &SpreadAnswer) -> String {
    if answer.workloads.is_empty() {
        return "No workload has topology spread constraints.\n".to_owned();
    }
    let rows = answer.workloads.iter().map(|spread| {
        let domains = spread.domains.iter();
        let domains = domains.map(|domain| format!("{} {}", domain.domain, domain.after));
        vec![
            spread.workload.clone(),
            spread.topology_key.clone(),
            spread.max_skew.to_string(),
            spread.skew.to_string(),
            spread.skew_after.to_string(),
            domains.collect::<Vec<_>>().join(", "),
        ]
    });
    let head = [
        "WORKLOAD",
        "DOMAINS",
        "ALLOWED",
        "NOW",
        "AFTER",
        "PODS AFTER",
    ];
    let mut text = headed(&head, rows, "");
    let exceeded = answer
        .workloads
        .iter()
        .filter(|spread| spread.is_exceeded());
    for spread in exceeded {
        line!(text);
        let pods = &spread.surplus;
        if pods.is_empty() {
            line!(
                text,
                "{} exceeds its skew over {}, and no deletion of its pods can help.",
                spread.workload,
                spread.topology_key
            );
            continue;
        }
        let (shown, more) = pods.split_at(pods.len().min(SPREAD_PODS_MAX));
        let more = match more.len() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        line!(
            text,
            "{} has its skew over {} again after the deletion of {}{more}.",
            spread.workload,
            spread.topology_key,
            shown.join(", ")
        );
    }
    text
}

/// The explanation of the queue.
pub fn queue(answer: &QueueAnswer) -> String {
    let mut text = String::new();
    line!(text, "Queue");
    line!(text, "  {}", answer.summary);
    line!(text);
    let rows = [
        ("active", answer.active),
        ("backoff", answer.backoff),
        ("unschedulable", answer.unschedulable),
        ("gated", answer.gated),
        ("in flight", answer.in_flight),
    ];
    let of_groups = [
        ("group incomplete", answer.incomplete),
        ("group under way", answer.pending_members),
    ];
    let of_groups = of_groups.into_iter().filter(|(_, pods)| *pods > 0);
    let rows: Vec<Vec<String>> = rows
        .into_iter()
        .chain(of_groups)
        .map(|(name, pods)| vec![name.to_owned(), pods.to_string()])
        .collect();
    text += &table(&rows, "  ");
    let at_least = if answer.is_rate_of_less {
        "at least "
    } else {
        ""
    };
    let rate = answer.placed_per_second;
    line!(
        text,
        "  placed in the last minute: {at_least}{rate:.1} pods/s"
    );
    line!(
        text,
        "  missed wake-ups (rescued by the periodic flush): {}",
        answer.flush_rescues
    );
    if !answer.groups.is_empty() {
        line!(text);
        let has_devices = answer.groups.iter().any(|group| !group.requests.is_empty());
        let rows = answer.groups.iter().map(|group| {
            let mut row = vec![
                group.pods.to_string(),
                format!("{:?}", group.place),
                ago(group.seconds),
                group.reason.clone(),
                group.owner.clone(),
                format!("{}/{}", group.namespace, group.oldest),
                shortened(&group.message),
            ];
            if has_devices {
                row.insert(4, group.requests.clone());
            }
            row
        });
        let mut head = vec![
            "PODS", "PLACE", "OLDEST", "REASON", "OWNER", "EXAMPLE", "MESSAGE",
        ];
        if has_devices {
            head.insert(4, "DEVICES");
        }
        text += &headed(&head, rows, "  ");
    }
    gates_of_queue(&mut text, answer);
    quotas_of_queue(&mut text, answer);
    if answer.group_count > answer.groups.len() {
        let (shown, all) = (answer.groups.len(), answer.group_count);
        line!(
            text,
            "  {shown} of {all} groups are listed, the oldest ones."
        );
    }
    text
}
