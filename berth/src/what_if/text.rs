//! The report for people.

use crate::cli::WhatIfArgs;
use berth_core::{Balance, Fate, PendingPod, PlacedPod, Usage, WhatIfReport};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The number of lines of each kind that the text lists.
pub(super) const LINES_MAX: usize = 50;
/// The number of pods with the same reason that the text names.
const NAMED_MAX: usize = 5;

/// A row for each reason, in the order of the pods, with the names of some pods.
fn by_reason(pods: &[PendingPod]) -> Vec<String> {
    let (mut groups, mut known) = (Vec::<(&str, Vec<&str>)>::new(), BTreeMap::new());
    for pod in pods {
        let at = *known.entry(pod.reason.as_str()).or_insert(groups.len());
        if at == groups.len() {
            groups.push((&pod.reason, Vec::new()));
        }
        groups[at].1.push(&pod.pod);
    }
    let rows = groups.iter().map(|(reason, pods)| match &pods[..] {
        [pod] => format!("{pod}: {reason}"),
        pods => {
            let more = match pods.len().saturating_sub(NAMED_MAX) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            let named = &pods[..pods.len().min(NAMED_MAX)];
            format!(
                "{} pods: {reason}\n    {}{more}",
                pods.len(),
                named.join(", ")
            )
        }
    });
    rows.collect()
}

/// The report for people.
pub(super) fn report(args: &WhatIfArgs, report: &WhatIfReport) -> String {
    let mut text = String::new();
    let mut line = |line: String| {
        let _ = writeln!(text, "{line}");
    };
    let usage = |usage: &Usage| {
        format!(
            "{} nodes, {} pods on them, {} pending; requested: CPU {:.1} %, memory {:.1} %",
            usage.nodes, usage.pods, usage.pending, usage.cpu_percent, usage.memory_percent
        )
    };
    line(format!("before  {}", usage(&report.before)));
    line(format!("after   {}", usage(&report.after)));
    line(format!("pods    {}", sum(&report.balance)));
    let mut section = |title: &str, count: usize, rows: Vec<String>| {
        if rows.is_empty() {
            return;
        }
        line(String::new());
        line(format!("{title} ({count})"));
        for row in rows.iter().take(LINES_MAX) {
            line(format!("  {row}"));
        }
        if rows.len() > LINES_MAX {
            line(format!(
                "  and {} more; -o json lists all",
                rows.len() - LINES_MAX
            ));
        }
    };
    let arrow = |pods: &[PlacedPod]| {
        let rows = pods.iter().map(|p| format!("{} -> {}", p.pod, p.node));
        rows.collect::<Vec<_>>()
    };
    let evicted = report.evicted.iter();
    let evicted = evicted.map(|p| format!("{} from {}", p.pod, p.node));
    let title_of_drained = if args.consolidate {
        "Nodes that are not needed, in the order in which they can be drained"
    } else {
        "Drained nodes"
    };
    section("Changes", report.changes.len(), report.changes.clone());
    let displaced = report.displaced.len();
    section(&title_of_displaced(args, report), displaced, ends(report));
    for (title, count, rows) in [
        (
            "Pending pods that get a node",
            report.placed.len(),
            arrow(&report.placed),
        ),
        (
            "Evicted by preemption",
            report.evicted.len(),
            evicted.collect(),
        ),
        (
            "Not admitted by quotas",
            report.not_admitted.len(),
            by_reason(&report.not_admitted),
        ),
        ("Pending", report.pending.len(), by_reason(&report.pending)),
        ("Spread of workloads", report.spread.len(), spreads(report)),
        ("Capacity buffers", report.buffers.len(), buffers(report)),
        (
            title_of_drained,
            report.drained.len(),
            report.drained.clone(),
        ),
    ] {
        section(title, count, rows);
    }
    for row in fitted(report).into_iter().chain(added(report)) {
        line(row);
    }
    for note in &report.notes {
        line(format!("Note: {note}."));
    }
    text
}

/// The pods before and after as a sum; terms that are zero are left out.
fn sum(balance: &Balance) -> String {
    let pods = |total: usize, on_nodes: usize, waiting: usize| {
        format!("{total} ({on_nodes} on nodes, {waiting} pending)")
    };
    let mut sum = pods(
        balance.before(),
        balance.on_nodes_before,
        balance.waiting_before,
    );
    for (sign, count, what) in [
        ('+', balance.added, "added"),
        ('-', balance.removed, "deleted"),
        ('-', balance.lost, "lost"),
        ('-', balance.evicted, "evicted"),
    ] {
        if count > 0 {
            let _ = write!(sum, " {sign} {count} {what}");
        }
    }
    let after = pods(
        balance.after(),
        balance.on_nodes_after,
        balance.waiting_after,
    );
    format!("{sum} = {after}")
}

/// The number of further pods of the template that fit, their nodes, and what the next pod lacks.
fn fitted(report: &WhatIfReport) -> Vec<String> {
    let Some(fit) = &report.fit else {
        return Vec::new();
    };
    let at_least = if fit.is_limited { "at least " } else { "" };
    let mut lines = vec![
        String::new(),
        format!("{at_least}{} more pods like {} fit", fit.pods, fit.pod),
    ];
    let listed = fit.nodes.iter().take(LINES_MAX);
    lines.extend(listed.map(|node| format!("  {} on {}", node.pods, node.node)));
    // A long list would hide the reason below it.
    if fit.nodes.len() > LINES_MAX {
        lines.push(format!(
            "  and more on {} nodes",
            fit.nodes.len() - LINES_MAX
        ));
    }
    if !fit.bottleneck.is_empty() {
        lines.push("The next one fits nowhere:".to_owned());
    }
    for reason in &fit.bottleneck {
        let amounts = match (reason.wanted, reason.free) {
            (Some(wanted), Some(free)) => {
                let resource = reason.resource.as_deref().unwrap_or_default();
                let amount = |amount| berth_explain::text::amount(resource, amount);
                format!(
                    " (wants {}, the most that is free on a node is {})",
                    amount(wanted),
                    amount(free)
                )
            }
            _ => String::new(),
        };
        lines.push(format!(
            "  {} on {} nodes: {}{amounts}",
            reason.plugin, reason.nodes, reason.reason
        ));
    }
    lines
}

/// The number of nodes that the waiting pods need.
fn added(report: &WhatIfReport) -> Vec<String> {
    let Some(added) = &report.add_nodes else {
        return Vec::new();
    };
    let nodes = if added.is_limited {
        format!("{} nodes or more", added.nodes)
    } else {
        match added.nodes {
            1 => "1 node".to_owned(),
            nodes => format!("{nodes} nodes"),
        }
    };
    let text = match (added.waiting, added.placed) {
        (0, _) => "No pod waits: no node is needed".to_owned(),
        (waiting, 0) => format!(
            "Nodes of the shape {} do not help: {waiting} pods wait whatever their number",
            added.shape
        ),
        (waiting, placed) => format!(
            "Needed: {nodes} of the shape {}; {placed} of {waiting} waiting pods get a node then",
            added.shape
        ),
    };
    vec![String::new(), text]
}

/// A row for each constraint of a workload.
fn spreads(report: &WhatIfReport) -> Vec<String> {
    let rows = report.spread.iter().map(|row| {
        let spread = &row.spread;
        let mut text = format!(
            "{} over {}: skew {}, {} allowed",
            spread.workload, spread.topology_key, spread.skew_after, spread.max_skew
        );
        if spread.skew != spread.skew_after {
            let _ = write!(
                text,
                " when former revisions are gone ({} now)",
                spread.skew
            );
        }
        let domains = spread.domains.iter();
        let domains = domains.map(|domain| format!("{} {}", domain.domain, domain.after));
        let _ = write!(text, " ({})", domains.collect::<Vec<_>>().join(", "));
        if !spread.surplus.is_empty() {
            let _ = write!(text, "; {} after the deletion", row.skew_rebalanced);
        }
        text
    });
    rows.collect()
}

/// A row for each CapacityBuffer.
fn buffers(report: &WhatIfReport) -> Vec<String> {
    let rows = report.buffers.iter().map(|room| {
        let text = format!(
            "{}: room for {} of {} chunks",
            room.buffer, room.fitting, room.chunks
        );
        if room.reason.is_empty() {
            text
        } else {
            format!("{text}: {}", room.reason)
        }
    });
    rows.collect()
}

fn title_of_displaced(args: &WhatIfArgs, report: &WhatIfReport) -> String {
    let counts = Fate::ALL.into_iter().filter_map(|fate| {
        let pods = report.displaced.iter().filter(|pod| pod.fate == fate);
        match pods.count() {
            0 => None,
            count => Some(format!("{count} {}", fate.text())),
        }
    });
    let counts: Vec<String> = counts.collect();
    let what = if args.rebalance {
        "Pods to delete"
    } else {
        "Pods of deleted and drained nodes"
    };
    format!("{what}: {}", counts.join(", "))
}

/// A row for each pod of a node that is deleted or drained.
fn ends(report: &WhatIfReport) -> Vec<String> {
    let rows = report.displaced.iter().map(|pod| {
        let (name, from) = (&pod.pod, &pod.from);
        match (&pod.node, pod.fate) {
            (Some(node), _) => format!("{name}: {from} -> {node}"),
            (None, Fate::Waiting) => format!("{name}: {from} -> waits: {}", pod.reason),
            (None, Fate::Stays) => format!("{name}: stays on {from}: {}", pod.reason),
            (None, fate) => format!("{name}: {from} -> {}: {}", fate.text(), pod.reason),
        }
    });
    rows.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_that_wait_for_one_reason_are_one_row() {
        let pending = |pod: &str, reason: &str| PendingPod {
            pod: pod.to_owned(),
            reason: reason.to_owned(),
        };
        let mut pods = vec![pending("gated", "gates")];
        pods.extend((0..7).map(|at| pending(&format!("p{at}"), "cpu")));
        pods.insert(3, pending("other", "memory"));
        assert_eq!(
            by_reason(&pods),
            [
                "gated: gates",
                "7 pods: cpu\n    p0, p1, p2, p3, p4 and 2 more",
                "other: memory",
            ]
        );
    }
}
