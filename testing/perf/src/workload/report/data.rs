//! Data items, as upstream's harness writes them for its dashboard: each has labels, a unit, and values by bucket.

use super::{Compared, THROUGHPUT, WorkloadReport, WorkloadRun};
use crate::workload::process::machine;
use crate::workload::run::{PodCount, WorkloadMeasured};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// The prefix of names in upstream's results.
const NAME_PREFIX: &str = "BenchmarkPerfScheduling";
/// The value of a label that does not apply, so that all items have the same labels.
const NOT_APPLICABLE: &str = "not applicable";

/// One item.
struct DataItem {
    labels: BTreeMap<String, String>,
    data: BTreeMap<String, f64>,
    unit: &'static str,
}

/// The results as JSON: upstream's `version` and `dataItems`, and the source of the results.
pub fn data_items(report: &WorkloadReport) -> Value {
    let mut items = Vec::new();
    for run in &report.runs {
        for measured in run.result.iter().flat_map(|outcome| &outcome.measured) {
            add(run, measured, &mut items);
        }
    }
    let labels: BTreeSet<String> = items
        .iter()
        .flat_map(|i| i.labels.keys().cloned())
        .collect();
    let items: Vec<Value> = items
        .into_iter()
        .map(|mut item| {
            for label in &labels {
                item.labels
                    .entry(label.clone())
                    .or_insert_with(|| NOT_APPLICABLE.to_owned());
            }
            json!({"data": item.data, "unit": item.unit, "labels": item.labels})
        })
        .collect();
    let servers: BTreeSet<&str> = report
        .runs
        .iter()
        .filter_map(|run| Some(run.result.as_ref().ok()?.server_version.as_str()))
        .collect();
    let errors: Map<String, Value> = report
        .runs
        .iter()
        .filter_map(|run| {
            let error = run.result.as_ref().err()?;
            Some((
                format!("{} ({})", run.name, run.repetition),
                json!(error.to_string()),
            ))
        })
        .collect();
    json!({
        "version": "v1",
        "dataItems": items,
        "errors": errors,
        "target": report.target,
        "machine": machine(),
        "versions": {"berth": env!("CARGO_PKG_VERSION"), "apiServer": servers},
    })
}

fn add(run: &WorkloadRun, measured: &WorkloadMeasured, items: &mut Vec<DataItem>) {
    let name = format!("{NAME_PREFIX}/{}/{}", run.name, measured.name);
    let mut push = |metric: &str, unit, data: BTreeMap<String, f64>, more: &[(String, String)]| {
        let mut labels: BTreeMap<String, String> = more.iter().cloned().collect();
        labels.insert("Name".to_owned(), name.clone());
        labels.insert("Metric".to_owned(), metric.to_owned());
        labels.insert("Run".to_owned(), run.repetition.to_string());
        items.push(DataItem { labels, data, unit });
    };
    let one = |bucket: &str, value: f64| BTreeMap::from([(bucket.to_owned(), value)]);
    if let Some(throughput) = &measured.throughput {
        let mut data = throughput.data();
        if let (Some(threshold), Compared::Met { .. } | Compared::Missed { .. }) =
            (&run.threshold, run.compare(measured))
            && threshold.metric == THROUGHPUT
        {
            data.insert(format!("{}Threshold", threshold.bucket), threshold.value);
        }
        push(THROUGHPUT, "pods/s", data, &[]);
    }
    if let Some(overall) = measured.overall() {
        push("OverallThroughput", "pods/s", one("Average", overall), &[]);
    }
    if let Some(latency) = &measured.latency {
        push("CreateToBound", "ms", latency.data(), &[]);
    }
    let seconds = measured.duration.as_secs_f64();
    push("SchedulingDuration", "s", one("Duration", seconds), &[]);
    for process in &measured.processes {
        let label = [("process".to_owned(), process.name.clone())];
        push("CPUSeconds", "s", one("Sum", process.cpu_seconds), &label);
        if measured.scheduled > 0 {
            let each = process.cpu_seconds * 1e3 / measured.scheduled as f64;
            push("CPUPerPod", "ms", one("Average", each), &label);
        }
        for (thread, seconds) in &process.threads {
            let mut label = label.to_vec();
            label.push(("thread".to_owned(), thread.clone()));
            push("ThreadCPUSeconds", "s", one("Sum", *seconds), &label);
        }
        let mebibytes = process.peak_bytes as f64 / f64::from(1 << 20);
        push("PeakMemory", "MB", one("Max", mebibytes), &label);
    }
    if let Some(calls) = measured.api_calls {
        push("APICalls", "calls", one("Sum", calls as f64), &[]);
    }
    for count in PodCount::ALL {
        if let Some(each) = measured.count_per_pod(count) {
            push(count.name(), count.unit(), one("Average", each), &[]);
        }
    }
    for histogram in &measured.histograms {
        let labels: Vec<(String, String)> = histogram.labels.clone().into_iter().collect();
        push(histogram.metric, "ms", histogram.buckets.data(), &labels);
    }
}
