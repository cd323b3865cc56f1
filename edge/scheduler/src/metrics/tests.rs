//! The metrics are kube-scheduler's, with exceptions that are listed by name.

use super::*;
use berth_scheduler::metrics::{Families, Metric};
use serde_json::Value;
use std::collections::BTreeMap;

/// The families of kube-scheduler 1.36.2: type, labels, bounds of buckets.
const REFERENCE: &str = include_str!("kube-scheduler-1.36-metrics.json");
/// The page with the reason of every exception.
const DIFFERENCES: &str = include_str!("../../../../docs/use/reference/differences.md");

/// The metrics that Berth does not serve. A `*` at the end matches any characters.
const NOT_SERVED: [&str; 10] = [
    "rest_client_exec_plugin_certificate_rotation_age",
    "rest_client_exec_plugin_ttl_seconds",
    "rest_client_transport_cache_entries",
    "rest_client_transport_cert_rotation_gc_calls_total",
    "rest_client_transport_create_calls_total",
    "scheduler_batch_attempts_total",
    "scheduler_batch_cache_flushed_total",
    "scheduler_get_node_hint_duration_seconds",
    "scheduler_store_schedule_results_duration_seconds",
    "workqueue_*",
];

/// Every family that Berth serves at `/metrics`.
fn served() -> impl Iterator<Item = &'static Family> {
    EdgeMetric::FAMILIES.iter().chain(Metric::FAMILIES)
}

/// A family as the reference describes it.
fn described(family: &Family) -> Value {
    let mut labels = family.labels.to_vec();
    labels.sort_unstable();
    match family.kind {
        MetricKind::Counter => serde_json::json!({"type": "counter", "labels": labels}),
        MetricKind::Gauge => serde_json::json!({"type": "gauge", "labels": labels}),
        MetricKind::Histogram(buckets) => {
            let bounds = buckets.bounds().map(berth_scheduler::metrics::go_number);
            let bounds: Vec<String> = bounds.chain(["+Inf".to_owned()]).collect();
            serde_json::json!({"type": "histogram", "labels": labels, "buckets": bounds})
        }
    }
}

fn is_exception(name: &str) -> bool {
    NOT_SERVED
        .iter()
        .any(|exception| match exception.strip_suffix('*') {
            Some(prefix) => name.starts_with(prefix),
            None => name == *exception,
        })
}

/// Every family of kube-scheduler is served with its type, labels and buckets, or is an exception.
#[test]
fn the_families_are_kube_schedulers() {
    let reference: BTreeMap<String, Value> =
        serde_json::from_str(REFERENCE).expect("the reference is JSON");
    assert!(reference.len() > 50, "{}", reference.len());
    let served: BTreeMap<&str, &Family> = served().map(|f| (f.name, f)).collect();
    for (name, expected) in &reference {
        match served.get(name.as_str()) {
            Some(family) => {
                assert_eq!(described(family), *expected, "{name}");
                assert!(!is_exception(name), "{name} is served: it is no exception");
            }
            None => assert!(
                is_exception(name),
                "{name} is neither served nor an exception"
            ),
        }
    }
}

/// The reader of the documentation finds each exception.
#[test]
fn exceptions_are_documented_by_name() {
    for name in NOT_SERVED {
        assert!(DIFFERENCES.contains(&format!("`{name}`")), "{name}");
    }
}

#[test]
fn families_have_one_name_and_a_sentence() {
    let mut names: Vec<&str> = served().map(|family| family.name).collect();
    names.extend(HealthMetric::FAMILIES.iter().map(|family| family.name));
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
    for family in served() {
        assert!(family.help.len() > 20, "{}", family.name);
    }
}

#[test]
fn requests_are_counted_by_code_and_timed_but_for_watches() {
    let metrics = EdgeMetrics::new("v0", Versions::of(Release::V1_36));
    let exchange = |code, is_watch| Exchange {
        method: "GET",
        host: "h:1",
        code,
        took: Duration::from_millis(20),
        is_watch,
        request_bytes: 0,
        response_bytes: (!is_watch).then_some(100),
    };
    metrics.ended(&exchange(Some(200), false));
    metrics.ended(&exchange(Some(200), true));
    metrics.ended(&exchange(None, false));
    metrics.waited("POST", "h:1", Duration::from_secs(3));
    let text = metrics.snapshot(None, &[]).render();
    for line in [
        "rest_client_requests_total{code=\"200\",host=\"h:1\",method=\"GET\"} 2",
        "rest_client_requests_total{code=\"<error>\",host=\"h:1\",method=\"GET\"} 1",
        "rest_client_request_duration_seconds_count{host=\"h:1\",verb=\"GET\"} 2",
        "rest_client_request_duration_seconds_bucket{host=\"h:1\",verb=\"GET\",le=\"0.025\"} 2",
        "rest_client_response_size_bytes_sum{host=\"h:1\",verb=\"GET\"} 200",
        "rest_client_rate_limiter_duration_seconds_bucket{host=\"h:1\",verb=\"POST\",le=\"4\"} 1",
    ] {
        assert!(text.lines().any(|l| l == line), "{line:?} in\n{text}");
    }
    metrics.reset();
    let text = metrics.snapshot(None, &[]).render();
    assert!(!text.contains("rest_client_requests_total{"), "{text}");
    assert!(text.contains("kubernetes_build_info{"), "{text}");
}

#[test]
fn metrics_are_disabled_and_their_labels_restricted() {
    let metrics = EdgeMetrics::new("v0", Versions::of(Release::V1_36));
    for (code, count) in [(200, 2), (404, 3), (500, 4)] {
        for _ in 0..count {
            metrics.ended(&Exchange {
                method: "GET",
                host: "h",
                code: Some(code),
                took: Duration::ZERO,
                is_watch: false,
                request_bytes: 1,
                response_bytes: None,
            });
        }
    }
    let mut filter = MetricFilter::default();
    filter.disable("rest_client_request_size_bytes");
    filter
        .allow("rest_client_requests_total,code", "200")
        .expect("a metric and a label");
    let mut families = metrics.snapshot(None, &[]).families;
    filter.apply(&mut families);
    let text = Snapshot { families }.render();
    let counted: Vec<&str> = text
        .lines()
        .filter(|line| line.starts_with("rest_client_requests_total{"))
        .collect();
    assert_eq!(
        counted,
        [
            "rest_client_requests_total{code=\"200\",host=\"h\",method=\"GET\"} 2",
            "rest_client_requests_total{code=\"unexpected\",host=\"h\",method=\"GET\"} 7",
        ]
    );
    assert!(!text.contains("rest_client_request_size_bytes"), "{text}");
}
