//! What is measured of plugins, as far as it can be counted without a clock (spec section 7).

use super::*;
use crate::metrics::{Metric, Snapshot, Value};
use berth_framework::event::EventRegistration;
use berth_framework::testing::{fake, node, pod};
use berth_framework::{ActionType, EventResource, Status};

/// How many observations a histogram holds.
fn observed(metrics: &Snapshot, metric: Metric, labels: &[&str]) -> u64 {
    match metrics.get(metric, labels) {
        Some(Value::Histogram(histogram)) => histogram.count(),
        _ => 0,
    }
}

/// KEP-3521; Q-27: runs of PreEnqueue are observed with the code that they ended with, gated pods are counted, and the
/// plugin that keeps them out shows among the calls that are timed.
#[test]
fn gated_pods_show_in_the_metrics() {
    let gates = fake("SchedulingGates").pre_enqueue(|pod| match pod.spec.scheduling_gates.len() {
        0 => Status::success(),
        _ => Status::unresolvable("gated"),
    });
    let mut w = world([gates]);
    for name in ["a", "b", "c"] {
        w.pod(pod(name).gate("g"));
    }
    w.pod(pod("d"));
    let metrics = w.core.metrics();
    for (queue, pods) in [("gated", 3.0), ("active", 1.0), ("unschedulable", 0.0)] {
        assert_eq!(
            metrics.number(Metric::PendingPods, &[queue]),
            pods,
            "{queue}"
        );
    }
    for (code, runs) in [("UnschedulableAndUnresolvable", 3), ("Success", 1)] {
        let labels = ["PreEnqueue", code, "default-scheduler"];
        let metric = Metric::FrameworkExtensionPointDuration;
        assert_eq!(observed(&metrics, metric, &labels), runs, "{code}");
    }
    let code = "UnschedulableAndUnresolvable";
    let labels = ["SchedulingGates", "PreEnqueue", code];
    let calls = observed(&metrics, Metric::PluginExecutionDuration, &labels);
    assert!(
        (1..=3).contains(&calls),
        "the first run is always timed: {calls}"
    );
}

/// F-7, Q-55, M-3: the calls of one of ten cycles are timed, each with its code; every call of a hint is; and all of it
/// is forgotten on request.
#[test]
fn calls_of_plugins_and_hints_are_timed() {
    let picky = fake("Picky")
        .filter(|_, _, node| match node.name().as_str() {
            "n1" => Status::unschedulable("no"),
            _ => Status::success(),
        })
        .events(|| {
            vec![EventRegistration::always(
                EventResource::Node,
                ActionType::ADD,
            )]
        });
    let mut w = world([picky]);
    w.applied(node("n1").object());
    w.pod(pod("p"));
    w.attempt();
    w.applied(node("n2").object());
    let metrics = w.core.metrics();
    let filter = ["Picky", "Filter", "Unschedulable"];
    assert_eq!(
        observed(&metrics, Metric::PluginExecutionDuration, &filter),
        1
    );
    let hint = ["Picky", "NodeAdd", "Queue"];
    let hints = Metric::QueueingHintExecutionDuration;
    assert_eq!(observed(&metrics, hints, &hint), 1);
    w.core.reset_metrics();
    let metrics = w.core.metrics();
    assert_eq!(
        observed(&metrics, Metric::PluginExecutionDuration, &filter),
        0
    );
    assert_eq!(observed(&metrics, hints, &hint), 0);
}
