//! Gated pods as API servers send them (API-2, API-15, API-16).

use crate::drivers::driver;
use berth_api::Labels;
use berth_framework::testing::{node, pod};
use berth_scheduler::queue::QueuedIn;
use berth_scheduler::testing::Driver;
use serde_json::json;

/// The reasons of PodScheduled that are being written.
fn reasons(w: &Driver) -> Vec<String> {
    let conditions = w.calls.iter().filter_map(|(_, call)| {
        let c = call.condition("PodScheduled")?;
        Some(format!("{} {}", c.status, c.reason))
    });
    conditions.collect()
}

/// API-2, API-15, API-16, Q-26, Q-29, Q-30: a gated pod is not tried until its last gate is removed, even if it would
/// fit. The scheduler writes nothing about it, because the API server sets the condition. Afterwards the scheduler's
/// condition replaces it.
#[test]
fn a_gated_pod_is_left_alone() {
    for (cpu, tried, written) in [
        ("1", "p on n1", vec![]),
        (
            "9",
            "p: 0/1 nodes are available: 1 Insufficient cpu.",
            vec!["False Unschedulable"],
        ),
    ] {
        let mut w = driver();
        w.pod(
            pod("p")
                .request("cpu", cpu)
                .gate("example.com/a")
                .gate("example.com/b")
                .condition(
                    "PodScheduled",
                    "False",
                    "SchedulingGated",
                    "Scheduling is blocked due to non-empty scheduling gates",
                ),
        );
        w.node(node("n1").capacity("2", "1Gi", "10"));
        w.change("p", |p| p.label("touched", "yes"));
        w.change("p", |p| p.ungated().gate("example.com/b"));
        w.wait(600);
        assert_eq!(w.attempt_named(), "idle", "{cpu} CPUs");
        assert_eq!(w.place_of("p"), Some(QueuedIn::Gated), "{cpu} CPUs");
        assert_eq!((w.calls.len(), w.events.len()), (0, 0), "{cpu} CPUs");
        w.change("p", |p| p.ungated());
        w.wait(10);
        let text = w.attempt_named();
        assert!(text.starts_with(tried), "{text}");
        assert_eq!(reasons(&w), written, "{cpu} CPUs");
    }
}

/// a pod blocked by the PreEnqueue of any plugin keeps the room on its nominated node from pods of lower
/// priority. They are tried when the nomination ends.
#[test]
fn the_room_of_a_gated_pod_is_kept() {
    let claim = json!([{"name": "c", "resourceClaimName": "not-there"}]);
    let blocked = |by: &str| {
        let pod = pod("blocked").priority(1000).request("cpu", "3");
        match by {
            "SchedulingGates" => pod.gate("example.com/wait"),
            _ => pod.with(|pod| {
                pod.spec.resource_claims = serde_json::from_value(claim.clone()).expect("claims");
            }),
        }
    };
    for by in ["SchedulingGates", "DynamicResources"] {
        for end in ["cleared", "deleted", "moved"] {
            let mut w = driver();
            for name in ["n1", "n2"] {
                w.node(node(name).capacity("4", "8Gi", "10"));
            }
            w.pod(blocked(by));
            assert_eq!(w.place_of("blocked"), Some(QueuedIn::Gated), "{by}");
            w.change("blocked", |pod| pod.nominated("n1"));
            assert_eq!(w.nominated("blocked"), "n1", "{by}");
            let low = pod("low").priority(0).request("cpu", "2");
            w.pod(low.with(|pod| {
                pod.spec.node_selector =
                    Some(Labels::default().with("kubernetes.io/hostname", "n1"));
            }));
            w.node(
                node("n1")
                    .label("kubernetes.io/hostname", "n1")
                    .capacity("4", "8Gi", "10"),
            );
            let tried = w.attempt_named();
            assert!(tried.contains("1 Insufficient cpu"), "{by}: {tried}");
            w.answer_all();
            assert_eq!(w.place_of("low"), Some(QueuedIn::Unschedulable), "{by}");
            match end {
                "cleared" => w.change("blocked", |pod| pod.nominated("")),
                "moved" => w.change("blocked", |pod| pod.nominated("n2")),
                _ => w.deleted("blocked"),
            }
            w.wait(10);
            assert_eq!(w.attempt_named(), "low on n1", "{by}: {end}");
        }
    }
}

/// API-16: a cycle that fails with an error has the reason SchedulerError.
#[test]
fn a_cycle_that_breaks_has_a_reason_of_its_own() {
    let mut w = driver();
    w.node(node("n1").capacity("2", "1Gi", "10"));
    let constraints = json!([{
        "maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchExpressions": [{"key": "a", "operator": "Like"}]},
    }]);
    w.pod(pod("p").with(|p| {
        p.spec.topology_spread_constraints =
            serde_json::from_value(constraints).expect("constraints");
    }));
    let text = w.attempt_named();
    assert!(text.starts_with("p: error: "), "{text}");
    assert_eq!(reasons(&w), ["False SchedulerError"]);
}
