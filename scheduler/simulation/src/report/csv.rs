//! The report as CSV (RFC 4180).

use super::Report;
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// A field of CSV: in quotes if it contains a comma, a quote or a line break.
fn field(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

fn row(out: &mut String, fields: impl IntoIterator<Item = String>) {
    let fields: Vec<String> = fields.into_iter().map(|text| field(&text)).collect();
    let _ = writeln!(out, "{}", fields.join(","));
}

fn resources(report: &Report) -> BTreeSet<&str> {
    let of_runs = report
        .runs
        .iter()
        .flat_map(|run| run.series.capacity.keys());
    of_runs.map(String::as_str).collect()
}

/// The course of each simulation: a row for each interval.
pub fn series_csv(report: &Report) -> String {
    let resources = resources(report);
    let mut out = String::new();
    let fixed = [
        "config",
        "seed",
        "seconds",
        "running",
        "waiting",
        "waiting_max",
        "nodes",
        "nodes_used",
        "cost",
    ];
    let of_resources = resources.iter().flat_map(|name| {
        ["capacity", "allocated", "requested", "fragmentation"].map(|what| format!("{what}:{name}"))
    });
    row(
        &mut out,
        fixed.map(str::to_owned).into_iter().chain(of_resources),
    );
    for run in &report.runs {
        let series = &run.series;
        for (index, at) in series.at.iter().enumerate() {
            let value = |values: &Vec<f64>| values.get(index).copied().unwrap_or(0.0).to_string();
            let fixed = [
                run.config.clone(),
                run.seed.to_string(),
                at.to_string(),
                value(&series.running),
                value(&series.waiting),
                value(&series.waiting_max),
                value(&series.nodes),
                value(&series.nodes_used),
                value(&series.cost),
            ];
            let of_resources = resources.iter().flat_map(|name| {
                [
                    &series.capacity,
                    &series.allocated,
                    &series.requested,
                    &series.fragmentation,
                ]
                .map(|values| values.get(*name).map_or_else(String::new, value))
            });
            row(&mut out, fixed.into_iter().chain(of_resources));
        }
    }
    out
}

/// Each pod of each simulation: a row for each.
pub fn pods_csv(report: &Report) -> String {
    let resources = resources(report);
    let mut out = String::new();
    let fixed = [
        "config",
        "seed",
        "namespace",
        "name",
        "priority",
        "size",
        "arrived",
        "bound",
        "started",
        "ended",
        "node",
        "outcome",
        "attempts",
        "evictions",
    ];
    let names = resources.iter().map(|name| (*name).to_owned());
    row(&mut out, fixed.map(str::to_owned).into_iter().chain(names));
    let time = |value: Option<f64>| value.map_or_else(String::new, |at| at.to_string());
    for run in &report.runs {
        for pod in &run.pods {
            let fixed = [
                run.config.clone(),
                run.seed.to_string(),
                pod.namespace.clone(),
                pod.name.clone(),
                pod.priority.to_string(),
                pod.size.clone(),
                pod.arrived.to_string(),
                time(pod.bound),
                time(pod.started),
                time(pod.ended),
                pod.node.clone().unwrap_or_default(),
                pod.outcome.clone(),
                pod.attempts.to_string(),
                pod.evictions.to_string(),
            ];
            let requests = resources
                .iter()
                .map(|name| time(pod.requests.get(*name).copied()));
            row(&mut out, fixed.into_iter().chain(requests));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{PodRow, Run};

    #[test]
    fn names_with_commas_and_quotes_stay_one_field() {
        let pods = vec![PodRow {
            namespace: "a,b".into(),
            name: "the \"x\"".into(),
            bound: Some(1.5),
            ..PodRow::default()
        }];
        let run = Run {
            config: "default".into(),
            pods,
            ..Run::default()
        };
        let csv = pods_csv(&Report::new(vec![run]));
        let line = csv.lines().nth(1).unwrap_or_default();
        assert!(
            line.starts_with("default,0,\"a,b\",\"the \"\"x\"\"\",0,,0,1.5,,"),
            "{line}"
        );
    }
}
