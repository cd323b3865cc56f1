//! The answers for people.

use crate::answer::{LackView, NodeAnswer, PodName, QueueAnswer};
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
mod pod;
mod when;

pub use group::group;
pub use pod::pod;
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
