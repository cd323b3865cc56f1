//! The report for people.

use berth_simulation::Report;
use berth_simulation::report::{Comparison, METRICS, Quantiles, Run, Spread, WaitingTimes};
use berth_simulation::span::show_span;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

/// The number of namespaces and priorities that the text lists.
const ROWS_MAX: usize = 20;

/// The report: one simulation in detail, or several in columns.
pub(super) fn report(report: &Report) -> String {
    match &report.runs[..] {
        [run] => one(run),
        runs => {
            let mut text = String::new();
            if let Some(run) = runs.first() {
                let seeds = report.comparison.first().map_or(0, |first| first.seeds);
                let _ = writeln!(
                    text,
                    "{} pods; {} configurations, {seeds} seeds; mean{}, and the difference from {}\n",
                    run.summary.arrived,
                    report.comparison.len(),
                    if seeds > 1 {
                        " ± standard deviation"
                    } else {
                        ""
                    },
                    run.config
                );
            }
            text + &compared(&report.comparison)
        }
    }
}

/// The speed of the simulation.
pub(super) fn speed(report: &Report, attempts: u64, took: Duration) -> String {
    let simulated: f64 = report.runs.iter().map(|run| run.seconds).sum();
    let seconds = took.as_secs_f64();
    let shown = if seconds < 10.0 {
        format!("{seconds:.2} s")
    } else {
        show_span(seconds)
    };
    format!(
        "simulated {} with {attempts} attempts in {shown}",
        show_span(simulated)
    )
}

/// Rows of cells as a table: the first column is left-aligned, the others right-aligned.
fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(&widths).enumerate();
        let cells = cells.map(|(column, (cell, width))| match column {
            0 => format!("{cell:<width$}"),
            _ => format!("{cell:>width$}"),
        });
        let line = cells.collect::<Vec<_>>().join("  ");
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// A moment to the minute.
fn minute(time: &str) -> String {
    time.get(..16).unwrap_or(time).replace('T', " ")
}

fn one(run: &Run) -> String {
    let summary = &run.summary;
    let mut text = String::new();
    let mut line = |name: &str, rest: String| {
        let _ = writeln!(text, "{name:<10}{rest}");
    };
    line(
        "time",
        format!(
            "{} to {} ({})",
            minute(&run.start),
            minute(&run.end),
            show_span(run.seconds)
        ),
    );
    let mut ends = vec![format!("{} finished", summary.finished)];
    for (count, what) in [
        (summary.running, "running"),
        (summary.waiting, "waiting"),
        (summary.lost, "lost"),
    ] {
        if count > 0 {
            ends.push(format!("{count} {what}"));
        }
    }
    line(
        "pods",
        format!(
            "{} arrived, {} ran, {} never ran; at the end: {}",
            summary.arrived,
            summary.bound,
            summary.arrived - summary.bound,
            ends.join(", ")
        ),
    );
    let mean = summary.attempts as f64 / summary.arrived.max(1) as f64;
    line(
        "attempts",
        format!(
            "{} ({mean:.2} for each pod), {} without a node",
            summary.attempts, summary.failed_attempts
        ),
    );
    if summary.preempted + summary.disrupted > 0 {
        line(
            "evictions",
            format!(
                "{} by preemption, {} by nodes; {} of work lost",
                summary.preempted,
                summary.disrupted,
                show_span(summary.lost_work_seconds)
            ),
        );
    }
    line("nodes", nodes(run));
    if summary.cost > 0.0 {
        line("cost", format!("{:.2}", summary.cost));
    }
    if let Some(fairness) = summary.fairness {
        line(
            "fairness",
            format!("{fairness:.3} between namespaces (1 is equal)"),
        );
    }
    text.push('\n');
    text.push_str(&resources(run));
    text.push('\n');
    text.push_str(&waits(run));
    if !run.buffers.is_empty() {
        text.push('\n');
        text.push_str(&buffers(run));
    }
    text
}

fn nodes(run: &Run) -> String {
    let summary = &run.summary;
    let mut text = format!(
        "{} at most, {:.1} in the mean; with pods {} at most, {:.1} in the mean",
        summary.nodes_max, summary.nodes_mean, summary.nodes_used_max, summary.nodes_used_mean
    );
    if summary.nodes_added + summary.nodes_removed > 0 {
        let _ = write!(
            text,
            "; {} added, {} removed",
            summary.nodes_added, summary.nodes_removed
        );
    }
    text
}

/// The use of each resource that pods request.
fn resources(run: &Run) -> String {
    let head = [
        "used",
        "mean",
        "largest",
        "at the end",
        "no waiting pod can use",
    ];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for (name, used) in &run.summary.resources {
        if used.utilization_max > 0.0 {
            rows.push(vec![
                name.clone(),
                percent(used.utilization_mean),
                percent(used.utilization_max),
                percent(used.utilization_end),
                percent(used.fragmentation_mean),
            ]);
        }
    }
    table(&rows)
}

/// The room for the chunks of capacity buffers.
fn buffers(run: &Run) -> String {
    let head = [
        "capacity buffer",
        "chunks",
        "all with room",
        "with room, mean",
        "at the end",
    ];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for buffer in &run.buffers {
        rows.push(vec![
            format!("{}/{}", buffer.namespace, buffer.name),
            buffer.chunks.to_string(),
            format!("{} of the time", percent(buffer.all_room_share)),
            format!("{:.1}", buffer.room_mean),
            buffer.room_end.to_string(),
        ]);
    }
    table(&rows)
}

/// The waiting times of all pods and of groups of them.
fn waits(run: &Run) -> String {
    let head = [
        "wait for a node",
        "pods",
        "never ran",
        "median",
        "90 %",
        "99 %",
        "largest",
        "to the start, median",
    ];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.push(wait("all", &run.waiting));
    let mut add = |what: &str, of: Vec<(String, &WaitingTimes)>| {
        if of.len() < 2 {
            return;
        }
        let more = of.len().saturating_sub(ROWS_MAX);
        for (name, waiting) in of.into_iter().take(ROWS_MAX) {
            rows.push(wait(&format!("{what} {name}"), waiting));
        }
        if more > 0 {
            rows.push(vec![format!("and {more} more; -o json has all")]);
        }
    };
    let named =
        |of: &'_ BTreeMap<String, WaitingTimes>| -> Vec<String> { of.keys().cloned().collect() };
    let names = named(&run.by_namespace).into_iter();
    add("namespace", names.zip(run.by_namespace.values()).collect());
    let priorities = run.by_priority.iter().rev();
    add(
        "priority",
        priorities.map(|(p, w)| (p.to_string(), w)).collect(),
    );
    let sizes = ["small", "medium", "large"].into_iter();
    let sizes = sizes.filter_map(|size| Some((size.to_owned(), run.by_size.get(size)?)));
    add("size", sizes.collect());
    table(&rows)
}

fn wait(name: &str, waiting: &WaitingTimes) -> Vec<String> {
    let of: &Quantiles = &waiting.to_binding;
    let mut row = vec![
        name.to_owned(),
        waiting.pods.to_string(),
        waiting.never_bound.to_string(),
    ];
    row.extend([of.median, of.p90, of.p99, of.max, waiting.to_start.median].map(show_span));
    row
}

/// The unit of a metric.
#[derive(Clone, Copy)]
enum Unit {
    Count,
    Span,
    Share,
    Money,
}

/// The rows of a comparison: the name in JSON, the text, the unit.
const COMPARED: &[(&str, &str, Unit)] = &[
    ("bound", "pods that ran", Unit::Count),
    ("neverBound", "pods that never ran", Unit::Count),
    ("waitMedian", "wait for a node, median", Unit::Span),
    ("waitMean", "wait for a node, mean", Unit::Span),
    ("waitP90", "wait for a node, 90 %", Unit::Span),
    ("waitP99", "wait for a node, 99 %", Unit::Span),
    ("waitMax", "wait for a node, largest", Unit::Span),
    ("preempted", "evicted by preemption", Unit::Count),
    ("disrupted", "evicted by nodes", Unit::Count),
    ("lostWorkSeconds", "work lost", Unit::Span),
    ("attempts", "attempts", Unit::Count),
    ("nodesMax", "nodes at most", Unit::Count),
    ("nodesUsedMean", "nodes with pods, mean", Unit::Count),
    ("nodesUsedMax", "nodes with pods, most", Unit::Count),
    ("cost", "cost", Unit::Money),
    ("seconds", "time until the end", Unit::Span),
    ("fairness", "fairness", Unit::Share),
];

impl Unit {
    fn show(self, value: f64) -> String {
        match self {
            Self::Count if value.fract() == 0.0 => format!("{value:.0}"),
            Self::Count => format!("{value:.1}"),
            Self::Span => show_span(value),
            Self::Share => format!("{:.1} %", value * 100.0),
            Self::Money => format!("{value:.2}"),
        }
    }

    fn spread(self, spread: &Spread, seeds: u64) -> String {
        let mean = self.show(spread.mean);
        if seeds > 1 {
            format!("{mean} ± {}", self.show(spread.sd))
        } else {
            mean
        }
    }

    fn difference(self, spread: &Spread) -> String {
        let text = self.show(spread.difference.abs());
        // A difference that the text does not show is none.
        if !text.contains(|c: char| ('1'..='9').contains(&c)) {
            return self.show(0.0);
        }
        let sign = if spread.difference > 0.0 { '+' } else { '-' };
        format!("{sign}{text}")
    }
}

/// The configurations in columns.
fn compared(all: &[Comparison]) -> String {
    let mut head = vec![String::new()];
    for (at, of) in all.iter().enumerate() {
        head.push(of.config.clone());
        if at > 0 {
            head.push("difference".to_owned());
        }
    }
    let mut rows = vec![head];
    let is_zero = |name: &str| {
        let spreads = all.iter().filter_map(|of| of.metrics.get(name));
        spreads
            .into_iter()
            .all(|spread| spread.mean == 0.0 && spread.sd == 0.0)
    };
    debug_assert!(COMPARED.iter().all(|(name, ..)| {
        *name == "fairness" || METRICS.iter().any(|metric| metric.name == *name)
    }));
    for (name, text, unit) in COMPARED {
        let always = matches!(*name, "bound" | "neverBound" | "waitMedian" | "waitMax");
        if always || !is_zero(name) {
            rows.push(compared_row(all, name, text, *unit));
        }
    }
    let metrics = all
        .first()
        .into_iter()
        .flat_map(|first| first.metrics.keys());
    let used = metrics.filter_map(|name| name.strip_prefix("utilization/"));
    for resource in used {
        if is_zero(&format!("utilization/{resource}")) {
            continue;
        }
        for (metric, text) in [
            ("utilization", "used, mean"),
            ("utilizationEnd", "used, at the end"),
            ("fragmentation", "that no waiting pod can use"),
        ] {
            let name = format!("{metric}/{resource}");
            if !is_zero(&name) {
                let text = format!("{resource} {text}");
                rows.push(compared_row(all, &name, &text, Unit::Share));
            }
        }
    }
    let buffers = all.first().into_iter().flat_map(|of| of.metrics.keys());
    for name in buffers {
        if let Some(buffer) = name.strip_prefix("bufferRoom/") {
            let text = format!("{buffer}, all chunks with room");
            rows.push(compared_row(all, name, &text, Unit::Share));
        }
    }
    table(&rows)
}

fn compared_row(all: &[Comparison], name: &str, text: &str, unit: Unit) -> Vec<String> {
    let mut row = vec![text.to_owned()];
    for (at, of) in all.iter().enumerate() {
        let spread = of.metrics.get(name).copied().unwrap_or_default();
        row.push(unit.spread(&spread, of.seeds));
        if at > 0 {
            row.push(unit.difference(&spread));
        }
    }
    row
}
