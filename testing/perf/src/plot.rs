//! Plots of results as SVG: throughput of the core over nodes, and the CPU time of each part per pod.
//!
//! The input is what `berth perf core --output json` prints and what `berth perf --out` writes, as JSON, so that
//! results of another version can be plotted too.

mod bars;
mod lines;
mod svg;

use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// A plot: the name of its file, and the SVG.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plot {
    /// The name of the file.
    pub file: &'static str,
    /// The content.
    pub svg: String,
}

/// The reason why results cannot be plotted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlotError {
    /// A file is neither of the two kinds of results.
    #[error(
        "{file}: not a result of `berth perf --out FILE` or `berth perf core --output json`: {reason}"
    )]
    Malformed {
        /// The file.
        file: String,
        /// The reason.
        reason: String,
    },
    /// There is nothing in the results that a plot shows.
    #[error(
        "nothing to plot: rows of `berth perf core` need two sizes of clusters, and workloads must have scheduled pods"
    )]
    Nothing,
}

/// A line: its name, and the points from the smallest cluster to the largest one.
type Line = (String, Vec<(f64, f64)>);

/// A bar: its name, and its parts from left to right.
type Bar = (String, Vec<(&'static str, f64)>);

#[derive(Deserialize)]
struct CoreReport {
    rows: Vec<CoreRow>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CoreRow {
    row: String,
    nodes: usize,
    incremental: Option<CoreFigures>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CoreFigures {
    decisions_per_second: f64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Items {
    data_items: Vec<PlotItem>,
}

#[derive(Deserialize)]
struct PlotItem {
    data: BTreeMap<String, f64>,
    labels: BTreeMap<String, String>,
}

impl PlotItem {
    fn label(&self, name: &str) -> &str {
        self.labels.get(name).map_or("", String::as_str)
    }
}

/// Plots these results: names of files, and their content.
///
/// # Errors
/// When a file has another format, or nothing can be plotted.
pub fn plots(files: &[(String, String)]) -> Result<Vec<Plot>, PlotError> {
    let mut lines: Vec<Line> = Vec::new();
    let mut bars: Vec<Bar> = Vec::new();
    for (file, text) in files {
        let malformed = |error: serde_json::Error| PlotError::Malformed {
            file: file.clone(),
            reason: error.to_string(),
        };
        let value: Value = serde_json::from_str(text).map_err(malformed)?;
        if value.get("dataItems").is_some() {
            let items: Items = serde_json::from_value(value).map_err(malformed)?;
            add_bars(&items.data_items, &mut bars);
        } else {
            let report: CoreReport = serde_json::from_value(value).map_err(malformed)?;
            add_points(report, &mut lines);
        }
    }
    for (_, points) in &mut lines {
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        // Of several results of a size the last one counts.
        points.dedup_by(|later, kept| {
            later.0 == kept.0 && {
                *kept = *later;
                true
            }
        });
    }
    lines.retain(|(_, points)| points.len() > 1);
    let mut plots = Vec::new();
    if !lines.is_empty() {
        plots.push(Plot {
            file: "throughput-over-nodes.svg",
            svg: lines::draw(&lines),
        });
    }
    if !bars.is_empty() {
        plots.push(Plot {
            file: "cpu-per-pod.svg",
            svg: bars::draw(&bars),
        });
    }
    if plots.is_empty() {
        Err(PlotError::Nothing)
    } else {
        Ok(plots)
    }
}

fn add_points(report: CoreReport, lines: &mut Vec<Line>) {
    for row in report.rows {
        let Some(figures) = row.incremental else {
            continue;
        };
        let point = (row.nodes as f64, figures.decisions_per_second);
        match lines.iter_mut().find(|(name, _)| *name == row.row) {
            Some((_, points)) => points.push(point),
            None => lines.push((row.row, vec![point])),
        }
    }
}

/// The parts that CPU time is given for, from left to right.
const PARTS: [&str; 6] = [
    "scheduler: core",
    "scheduler: edge",
    "API server",
    "etcd",
    "benchmark",
    "all in one process",
];

/// One bar for each measurement: the CPU time of each part per pod, in milliseconds, the mean of all runs.
fn add_bars(items: &[PlotItem], bars: &mut Vec<Bar>) {
    let mut runs: BTreeMap<&str, Vec<[f64; PARTS.len()]>> = BTreeMap::new();
    for item in items
        .iter()
        .filter(|item| item.label("Metric") == "SchedulingDuration")
    {
        let (name, run) = (item.label("Name"), item.label("Run"));
        let of = |metric: &str, process: &str, thread: Option<&str>, bucket: &str| {
            let found = items.iter().find(|item| {
                item.label("Metric") == metric
                    && item.label("Name") == name
                    && item.label("Run") == run
                    && item.label("process") == process
                    && thread.is_none_or(|thread| item.label("thread") == thread)
            });
            found.and_then(|item| item.data.get(bucket).copied())
        };
        let each = |process: &str| of("CPUPerPod", process, None, "Average").unwrap_or_default();
        let scheduler = each("scheduler");
        let core = of("ThreadCPUSeconds", "scheduler", Some("berth-core"), "Sum")
            .zip(of("CPUSeconds", "scheduler", None, "Sum"))
            .filter(|(_, all)| *all > 0.0)
            .map_or(0.0, |(core, all)| scheduler * core / all);
        let parts = [
            core,
            scheduler - core,
            each("apiserver") + each("kube-apiserver"),
            each("etcd"),
            each("runner"),
            each("berth"),
        ];
        if parts.iter().sum::<f64>() > 0.0 {
            runs.entry(name).or_default().push(parts);
        }
    }
    for (name, runs) in runs {
        let mean =
            |part: usize| runs.iter().map(|parts| parts[part]).sum::<f64>() / runs.len() as f64;
        let parts = PARTS
            .iter()
            .enumerate()
            .map(|(part, what)| (*what, mean(part)));
        bars.push((
            short(name),
            parts.filter(|(_, value)| *value > 0.0).collect(),
        ));
    }
}

/// `BenchmarkPerfScheduling/Case/workload/measurement` without what all names have.
fn short(name: &str) -> String {
    let mut parts = name.split('/').skip(1);
    let (case, workload) = (
        parts.next().unwrap_or(name),
        parts.next().unwrap_or_default(),
    );
    let workload = workload
        .replace("_QueueingHintsEnabled", "")
        .replace("_AsyncAPICallsEnabled", "");
    format!("{case} {workload}").trim_end().to_owned()
}

#[cfg(test)]
mod tests;
