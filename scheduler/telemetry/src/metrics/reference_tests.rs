//! The metrics as kube-scheduler 1.36 serves them, family by family (M-1).

use super::{FAMILIES, MetricKind, Metrics, SeriesValue};
use std::collections::BTreeMap;

/// The metrics of Berth's own.
const OURS: [&str; 10] = [
    "scheduler_attempts_avoided_total",
    "scheduler_inflight_event_log_collapses_total",
    "scheduler_objects_dropped_by_list_total",
    "scheduler_kubelet_rejections_total",
    "scheduler_deferred_quota_hard",
    "scheduler_deferred_quota_used",
    "scheduler_deferred_quota_borrowed",
    "scheduler_deferred_quota_waiting_pods",
    "scheduler_deferred_quota_stuck",
    "scheduler_deferred_quota_wait_duration_seconds",
];

/// Name, type, sorted labels; for a histogram the first and the last bound as written, and the number of bounds.
#[rustfmt::skip]
const REFERENCE: &[(&str, &str, &str, &str)] = &[
    ("kubernetes_feature_enabled", "gauge", "name stage", ""),
    ("scheduler_async_api_call_execution_duration_seconds", "histogram", "call_type result", "0.001 16.384 15"),
    ("scheduler_async_api_call_execution_total", "counter", "call_type result", ""),
    ("scheduler_cache_size", "gauge", "type", ""),
    ("scheduler_event_handling_duration_seconds", "histogram", "event", "0.0001 0.2048 12"),
    ("scheduler_framework_extension_point_duration_seconds", "histogram", "extension_point profile status", "0.0001 0.2048 12"),
    ("scheduler_goroutines", "gauge", "operation", ""),
    ("scheduler_inflight_events", "gauge", "event", ""),
    ("scheduler_pending_async_api_calls", "gauge", "call_type", ""),
    ("scheduler_pending_pods", "gauge", "queue", ""),
    ("scheduler_plugin_evaluation_total", "counter", "extension_point plugin profile", ""),
    ("scheduler_plugin_execution_duration_seconds", "histogram", "extension_point plugin status", "1e-05 0.02216837820053101 20"),
    ("scheduler_pod_scheduled_after_flush_total", "counter", "", ""),
    ("scheduler_pod_scheduling_attempts", "histogram", "", "1 16 5"),
    ("scheduler_pod_scheduling_sli_duration_seconds", "histogram", "attempts", "0.01 5242.88 20"),
    ("scheduler_preemption_attempts_total", "counter", "", ""),
    ("scheduler_preemption_victims", "histogram", "", "1 64 7"),
    ("scheduler_queue_incoming_pods_total", "counter", "event queue", ""),
    ("scheduler_schedule_attempts_total", "counter", "profile result", ""),
    ("scheduler_scheduling_algorithm_duration_seconds", "histogram", "", "0.001 16.384 15"),
    ("scheduler_scheduling_attempt_duration_seconds", "histogram", "profile result", "0.001 16.384 15"),
    ("scheduler_unschedulable_pods", "gauge", "plugin profile", ""),
    ("scheduler_permit_wait_duration_seconds", "histogram", "result", "0.001 16.384 15"),
    ("scheduler_preemption_goroutines_duration_seconds", "histogram", "result", "0.01 5242.88 20"),
    ("scheduler_preemption_goroutines_execution_total", "counter", "result", ""),
    ("scheduler_queueing_hint_execution_duration_seconds", "histogram", "event hint plugin", "1e-05 0.02216837820053101 20"),
    ("scheduler_volume_scheduling_stage_error_total", "counter", "operation", ""),
    ("scheduler_pre_queueing_hint_evaluations_total", "counter", "plugin result", ""),
    // Of groups, as in 1.38.
    ("scheduler_queued_entities", "gauge", "queue type", ""),
    ("scheduler_queue_incoming_entities_total", "counter", "event queue type", ""),
    ("scheduler_podgroup_schedule_attempts_total", "counter", "profile result", ""),
    ("scheduler_podgroup_scheduling_attempt_duration_seconds", "histogram", "profile result", "0.001 16.384 15"),
    ("scheduler_podgroup_scheduling_algorithm_duration_seconds", "histogram", "", "0.001 16.384 15"),
    ("scheduler_workload_preemption_attempts_total", "counter", "result", ""),
    ("scheduler_workload_preemption_victims", "histogram", "", "1 1024 11"),
    ("scheduler_preemption_workload_disruptions", "histogram", "preemptor", "1 1024 11"),
    ("scheduler_preemption_evaluation_duration_seconds", "histogram", "preemptor result", "0.001 32.768 16"),
    ("scheduler_preemption_execution_duration_seconds", "histogram", "preemptor result", "0.001 32.768 16"),
    ("scheduler_preemption_pdb_violations_total", "counter", "preemptor", ""),
    ("scheduler_generated_placements_total", "counter", "profile", ""),
    ("scheduler_placement_evaluations_total", "counter", "profile result", ""),
    ("scheduler_placement_evaluation_duration_seconds", "histogram", "profile result", "0.001 16.384 15"),
];

/// Every metric is served with the name, type, labels and bounds that dashboards and alerts know.
#[test]
fn the_exposition_is_kube_schedulers() {
    let mut metrics = Metrics::default();
    for (at, family) in FAMILIES.iter().enumerate() {
        let labels = vec!["x"; family.labels.len()];
        let fresh = match family.kind {
            MetricKind::Histogram(buckets) => {
                SeriesValue::Histogram(super::HistogramValue::new(buckets))
            }
            _ => SeriesValue::Number(1.0),
        };
        metrics.series[at].get_or_insert(&labels, || fresh);
    }
    let served = families_of(&metrics.snapshot().render());
    let mut expected = BTreeMap::new();
    for (name, kind, labels, bounds) in REFERENCE {
        expected.insert(*name, format!("{kind} [{labels}] {bounds}"));
    }
    for (name, text) in &served {
        if !OURS.contains(&name.as_str()) {
            assert_eq!(expected.get(name.as_str()), Some(text), "{name}");
        }
    }
    let missing: Vec<_> = expected
        .keys()
        .filter(|name| !served.contains_key(**name))
        .collect();
    assert!(missing.is_empty(), "not served: {missing:?}");
}

/// The statement of the text format about each family: `type [labels] first-bound last-bound bounds`.
fn families_of(text: &str) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    for line in text.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        let (name, kind) = line.split_once(' ').expect("a name and a type");
        let of = |line: &&str| {
            let rest = line.strip_prefix(name).unwrap_or_default();
            ["{", " ", "_bucket{"].iter().any(|s| rest.starts_with(s))
        };
        let (mut labels, mut bounds): (Vec<&str>, Vec<&str>) = Default::default();
        for line in text.lines().filter(of) {
            let inner = line
                .split_once('{')
                .and_then(|(_, rest)| rest.split_once('}'));
            let pairs = inner.map_or("", |(pairs, _)| pairs).split(',');
            labels.clear();
            for (label, value) in pairs.filter_map(|pair| pair.split_once('=')) {
                match label {
                    "le" => bounds.push(value.trim_matches('"')),
                    _ => labels.push(label),
                }
            }
        }
        bounds.retain(|bound| *bound != "+Inf");
        let ends = match (bounds.first(), bounds.last()) {
            (Some(first), Some(last)) => format!("{first} {last} {}", bounds.len()),
            _ => String::new(),
        };
        let text = format!("{kind} [{}] {ends}", labels.join(" "));
        all.insert(name.to_owned(), text);
    }
    all
}
