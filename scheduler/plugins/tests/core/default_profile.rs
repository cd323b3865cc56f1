//! Rules of the queue and the cycle in the default profile, with the real declarations of the plugins. The tests of the
//! crate `scheduler` check the same rules with fake plugins, which answer on command.

use crate::drivers::{driver, is_deletion, is_status_of};
use berth_api::{Kind, TaintEffect};
use berth_framework::ApiCall;
use berth_framework::testing::{PodBuilder, node, pod};
use berth_scheduler::metrics::Metric;
use berth_scheduler::queue::QueuedIn;
use berth_scheduler::testing::Driver;
use serde_json::json;

/// The reasons and messages of PodScheduled that are being written.
fn written(w: &Driver) -> Vec<String> {
    let conditions = w.calls.iter().filter_map(|(_, call)| {
        let condition = call.condition("PodScheduled")?;
        let is_patch = matches!(call, ApiCall::PatchPodStatus { .. });
        is_patch.then(|| format!("{}: {}", condition.reason, condition.message))
    });
    conditions.collect()
}

fn large(name: &str) -> PodBuilder {
    pod(name).request("cpu", "4")
}

/// One node of two CPUs.
fn small_cluster() -> Driver {
    let mut w = driver();
    w.node(node("n1").capacity("2", "1Gi", "10"));
    w
}

/// Q-8: by priority, then by the time of waiting.
#[test]
fn pods_are_tried_by_priority_and_then_by_time() {
    let mut w = small_cluster();
    for (name, priority) in [("a", 1), ("b", 5), ("c", 5), ("d", 9)] {
        w.pod(pod(name).priority(priority));
        w.wait(1);
    }
    let expected = ["d on n1", "b on n1", "c on n1", "a on n1"];
    assert_eq!(w.attempts(), expected);
}

/// Q-53, Q-54: only the plugins of the profile that rejected the pod decide which event moves it.
#[test]
fn an_event_moves_the_pods_that_it_can_help() {
    let mut w = small_cluster();
    w.pod(large("large"));
    w.pod(pod("picky").with(|p| {
        p.spec.node_selector = Some(berth_api::Labels::default().with("disk", "ssd"));
    }));
    w.attempts();
    w.answer_all();
    let places = |w: &Driver| ["large", "picky"].map(|name| w.place_of(name));
    let waits = Some(QueuedIn::Unschedulable);
    assert_eq!(places(&w), [waits, waits]);
    // A claim that neither has, a node that is as small, and the label of another disk.
    w.object(
        Kind::PersistentVolumeClaim,
        json!({"metadata": {"name": "c", "namespace": "default", "uid": "c"}}),
    );
    w.node(node("n2").capacity("2", "1Gi", "10"));
    w.node(node("n2").capacity("2", "1Gi", "10").label("disk", "hdd"));
    assert_eq!(places(&w), [waits, waits]);
    w.node(node("n2").capacity("2", "1Gi", "10").label("disk", "ssd"));
    assert_eq!(w.place_of("large"), waits);
    assert_ne!(w.place_of("picky"), waits);
    w.wait(10);
    assert_eq!(w.attempts(), ["picky on n2"]);
    w.node(node("n3").capacity("8", "1Gi", "10"));
    w.wait(10);
    assert_eq!(w.attempts(), ["large on n3"]);
}

/// C-28, C-32, C-50, C-58: the message counts the reasons of all plugins and ends with the reasons of PostFilter. An
/// event without effect writes nothing, makes no attempt and counts no preemption attempt.
#[test]
fn a_rejection_is_written_once() {
    let mut w = small_cluster();
    w.node(
        node("n2")
            .capacity("2", "1Gi", "10")
            .taint("k", "v", TaintEffect::NoSchedule),
    );
    w.pod(large("p"));
    w.attempt();
    let message = "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) had untolerated taint(s). \
                   no new claims to deallocate, preemption: 0/2 nodes are available: \
                   2 Preemption is not helpful for scheduling.";
    assert_eq!(written(&w), [format!("Unschedulable: {message}")]);
    w.answer_all();
    w.take_events();
    let attempts = w.metric(Metric::PreemptionAttempts, &[]);
    assert_eq!(attempts, 1.0);
    // The pod is rejected again for a subset of the previous reasons.
    w.pod(pod("other").request("cpu", "4").on("n1"));
    w.deleted("other");
    w.wait(30);
    assert_eq!(w.attempts().len(), 1);
    assert!(w.calls.is_empty(), "{:?}", w.calls);
    assert!(w.take_events().is_empty());
    assert_eq!(w.metric(Metric::PreemptionAttempts, &[]), attempts);
    assert_eq!(
        w.metric(Metric::AttemptsAvoided, &["default-scheduler"]),
        1.0
    );
}

/// C-16: the nominated node is taken if it is feasible, though another one has a better score; otherwise all nodes are
/// evaluated.
#[test]
fn the_nominated_node_comes_first() {
    for (nominated, expected) in [("n1", "p on n1"), ("n9", "p on n2"), ("", "p on n2")] {
        let mut w = small_cluster();
        w.node(node("n2").capacity("64", "64Gi", "10"));
        w.pod(
            pod("load")
                .request("cpu", "1")
                .request("memory", "900Mi")
                .on("n1"),
        );
        w.pod(pod("p").request("cpu", "500m").nominated(nominated));
        assert_eq!(w.attempts(), [expected], "nominated to {nominated:?}");
    }
}

fn with_claim(name: &str) -> PodBuilder {
    let entries = json!([{"name": "c", "resourceClaimName": "c"}]);
    pod(name).with(|pod| {
        pod.spec.resource_claims = serde_json::from_value(entries).expect("claims");
    })
}

/// Q-24, Q-26, Q-103, Q-105: a pod waits for its claim. Events that DynamicResources does not receive do not reach it.
/// When the claim is created within the 5 s, the result of the attempt is written at once, and the report never.
#[test]
fn the_result_of_an_attempt_replaces_a_report() {
    let mut w = small_cluster();
    w.object(Kind::DeviceClass, json!({"metadata": {"name": "gpu"}}));
    w.pod(with_claim("p"));
    assert_eq!(w.place_of("p"), Some(QueuedIn::Gated));
    w.node(node("n2").capacity("2", "1Gi", "10"));
    w.pod(pod("other").on("n2"));
    assert_eq!(w.place_of("p"), Some(QueuedIn::Gated));
    assert_eq!(w.attempt_named(), "idle");
    w.wait(3);
    w.object(
        Kind::ResourceClaim,
        json!({
            "metadata": {"name": "c", "namespace": "default", "uid": "c"},
            "spec": {"devices": {"requests": [{"name": "r", "exactly": {
                "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1,
            }}]}},
        }),
    );
    w.wait(1);
    let text = w.attempt_named();
    assert!(text.contains("2 cannot allocate all claims"), "{text}");
    let now = written(&w);
    assert_eq!(now.len(), 1, "{now:?}");
    assert!(now[0].starts_with("Unschedulable: 0/2 nodes"), "{now:?}");
    w.answer_all();
    w.wait(60);
    assert_eq!(written(&w), [""; 0]);
}

/// Q-113: an event wakes a preemptor while its victim is evicted. The status keeps the result of the attempt. If the
/// API server does not answer for 30 s, the status names the pending eviction.
#[test]
fn an_eviction_that_lasts_is_reported() {
    let mut w = small_cluster();
    w.pod(pod("victim").request("cpu", "2").on("n1"));
    w.pod(pod("vip").priority(10).request("cpu", "2"));
    w.attempt();
    assert_eq!(w.deletions(), ["victim"]);
    w.answer_which(is_status_of("vip"), None, false);
    w.node(
        node("n2")
            .capacity("4", "1Gi", "10")
            .taint("k", "v", TaintEffect::NoSchedule),
    );
    assert_eq!(w.place_of("vip"), Some(QueuedIn::Gated));
    w.wait(29);
    assert_eq!(written(&w), [""; 0]);
    w.wait(1);
    assert_eq!(
        written(&w),
        [
            "NotReadyForScheduling: Waiting for the eviction of the pods of lower priority that make room for this pod"
        ]
    );
    w.answer_which(is_status_of("vip"), None, false);
    w.answer_which(is_deletion, None, false);
    w.wait(10);
    let text = w.attempt_named();
    assert_eq!(text, "vip on n1");
}

/// PL-55: pods whose images no node had share their kept answers. A node with the image of the first pod is added: the
/// image counts for this pod and not for the others. (The driver makes each decision with both evaluators.)
#[test]
fn an_image_counts_for_the_pods_that_use_it() {
    let mut w = driver();
    let with_image = |name: &str, image: &str| {
        let image = image.to_owned();
        pod(name).with(move |pod| pod.spec.containers[0].image = image.as_str().into())
    };
    for name in ["n1", "n2"] {
        w.node(node(name).capacity("4", "1Gi", "10"));
    }
    w.pod(with_image("first", "db:1"));
    w.pod(with_image("other", "web:1"));
    assert_eq!(w.attempts().len(), 2);
    let node_with_db = node("n3").capacity("4", "1Gi", "10").with(|node| {
        let image = json!({"names": ["db:1"], "sizeBytes": 4_000_000_000_i64});
        node.status.images = serde_json::from_value(json!([image])).unwrap();
    });
    w.node(node_with_db);
    w.node(node("n4").capacity("4", "1Gi", "0"));
    for round in 0..5 {
        w.pod(with_image(&format!("db-{round}"), "db:1"));
        w.pod(with_image(&format!("web-{round}"), "web:1"));
    }
    let attempts = w.attempts();
    let placed = |kind: &str, on: &str| {
        let pods = attempts.iter().filter(|a| a.starts_with(kind));
        pods.filter(|a| a.ends_with(on)).count()
    };
    assert_eq!(placed("db-", "n3"), 5, "{attempts:?}");
    assert!(placed("web-", "n3") < 5, "{attempts:?}");
}
