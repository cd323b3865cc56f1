//! Room for pods whose resize is deferred (KEP-5836): PL-330 to PL-334, P-40 and Q-130.

use crate::drivers::{driver_of, is_deletion};
use berth_api::node::PodPreemptionPolicy;
use berth_api::pod::ContainerStatus;
use berth_api::{Release, ResourceList};
use berth_framework::testing::{NodeBuilder, PodBuilder, node, pod};
use berth_framework::{ApiCall, Feature, FeatureGates};
use berth_scheduler::metrics::Metric;
use berth_scheduler::queue::QueuedIn;
use berth_scheduler::testing::Driver;

const FITS: &str = "pod resize fits, waiting for Kubelet actuation";

fn gates(release: Release) -> FeatureGates {
    let gate = Feature::InPlacePodVerticalScalingSchedulerPreemption;
    FeatureGates::of(release).with(gate, true)
}

fn cpu(amount: &str) -> ResourceList {
    ResourceList::from_pairs([("cpu", amount.parse().expect("a quantity"))])
}

/// A pod on the node that has 1 CPU, and wants more.
fn grows(name: &str, wanted: &str) -> PodBuilder {
    let pod = pod(name).priority(100).request("cpu", wanted).on("n");
    let pod = pod.with(|pod| {
        let container = pod.spec.containers[0].name.clone();
        pod.status.container_statuses = vec![ContainerStatus {
            name: container,
            allocated_resources: cpu("1"),
            ..ContainerStatus::default()
        }];
    });
    deferred(pod)
}

fn deferred(pod: PodBuilder) -> PodBuilder {
    pod.condition("PodScheduled", "True", "", "").condition(
        "PodResizePending",
        "True",
        "Deferred",
        "",
    )
}

fn other(name: &str, priority: i32, amount: &str) -> PodBuilder {
    pod(name).priority(priority).request("cpu", amount).on("n")
}

fn four_cpus() -> NodeBuilder {
    node("n").capacity("4", "1Gi", "10")
}

/// A node of 4 CPUs with A, which has 1 CPU and wants `wanted`, B (1.5 CPU, priority 10) and C (1 CPU, priority 20).
fn world(features: FeatureGates, wanted: &str) -> Driver {
    let mut w = driver_of(features);
    w.node(four_cpus());
    w.pod(other("b", 10, "1500m"));
    w.pod(other("c", 20, "1"));
    w.pod(grows("a", wanted));
    w
}

fn status_writes(w: &Driver) -> usize {
    let writes = w.calls.iter();
    writes
        .filter(|(_, call)| matches!(call, ApiCall::PatchPodStatus { .. }))
        .count()
}

/// PL-332, P-40: A counts with 2 CPUs, so 4.5 of 4 CPUs are requested. Without B and C 2 are left; C fits back (3), B
/// does not (4.5): B is evicted. Then the resize fits, and the pod waits for its kubelet. Its status is not written.
#[test]
fn room_for_a_resize_is_made_on_the_pods_own_node() {
    for release in [Release::V1_37, Release::V1_38] {
        let mut w = world(gates(release), "2");
        // There is room elsewhere, which does not help.
        w.node(node("empty").capacity("8", "1Gi", "10"));
        assert_eq!(w.place_of("a"), Some(QueuedIn::Active));
        let text = w.attempt_named();
        assert!(text.contains("Insufficient cpu"), "{release}: {text}");
        assert_eq!(w.deletions(), ["b"], "{release}: {text}");
        assert_eq!(w.nominated("a"), "", "{release}");
        w.answer_which(is_deletion, None, true);
        // B is terminating, so no other pod is evicted.
        for text in w.wait(10).attempts() {
            assert!(text.starts_with("a: "), "{release}: {text}");
        }
        assert_eq!(w.deletions(), [""; 0], "{release}");
        w.deleted("b");
        w.wait(10);
        let texts = w.attempts();
        assert!(
            texts.last().is_some_and(|t| t.contains(FITS)),
            "{release}: {texts:?}"
        );
        assert_eq!(w.place_of("a"), Some(QueuedIn::Unschedulable));
        assert_eq!(status_writes(&w), 0, "{release}: {:?}", w.calls);
        let events: Vec<String> = w.take_events();
        assert!(
            events.iter().all(|e| !e.contains("FailedScheduling")),
            "{release}: {events:?}"
        );
        // The kubelet has done the resize.
        w.change("a", |pod| {
            pod.condition("PodResizePending", "False", "", "")
        });
        assert_eq!(w.place_of("a"), None, "{release}");
    }
}

/// PL-332: more than the whole node has is not preempted for.
#[test]
fn a_resize_beyond_the_node_evicts_no_pod() {
    let mut w = world(gates(Release::V1_38), "5");
    let text = w.attempt_named();
    assert!(text.contains("Insufficient cpu"), "{text}");
    assert_eq!(w.deletions(), [""; 0]);
    assert_eq!(w.place_of("a"), Some(QueuedIn::Unschedulable));
}

/// which pods with a node are in the queue.
#[test]
fn only_deferred_resizes_are_queued() {
    let off = FeatureGates::of(Release::V1_38);
    let on = gates(Release::V1_38);
    type Change = fn(PodBuilder) -> PodBuilder;
    let cases: [(&str, FeatureGates, Change, bool); 5] = [
        ("deferred", on, |p| p, true),
        ("the gate is off", off, |p| p, false),
        (
            "infeasible",
            on,
            |p| p.condition("PodResizePending", "True", "Infeasible", ""),
            false,
        ),
        (
            "done",
            on,
            |p| p.condition("PodResizePending", "False", "Deferred", ""),
            false,
        ),
        ("of another scheduler", on, |p| p.scheduler("other"), false),
    ];
    for (name, features, change, is_queued) in cases {
        let mut w = driver_of(features);
        w.node(four_cpus());
        w.pod(change(grows("a", "2")));
        assert_eq!(w.place_of("a").is_some(), is_queued, "{name}");
        // The condition appears later.
        w.pod(other("late", 0, "1"));
        assert_eq!(w.place_of("late"), None, "{name}");
        w.change("late", |pod| change(deferred(pod)));
        assert_eq!(w.place_of("late").is_some(), is_queued, "{name}");
        w.deleted("late");
        assert_eq!(w.place_of("late"), None, "{name}");
    }
}

/// PL-330, PL-331: a policy of the node disables preemption for resizes; without it, the pod is tried again.
#[test]
fn a_node_can_disable_preemption_for_resizes() {
    let with_policy = |reasons: &[&str]| {
        let policy = PodPreemptionPolicy {
            disable_resize_preemption: reasons.iter().map(|reason| (*reason).into()).collect(),
        };
        four_cpus().with(|node| node.spec.pod_preemption_policy = Some(policy))
    };
    let mut w = world(gates(Release::V1_38), "2");
    w.node(with_policy(&["example.com/no"]));
    let text = w.attempt_named();
    assert!(
        text.contains("node had resize preemption disabled"),
        "{text}"
    );
    assert_eq!(w.deletions(), [""; 0]);
    w.node(with_policy(&[]));
    w.wait(10);
    let texts = w.attempts();
    assert!(
        texts.iter().any(|t| t.contains("Insufficient cpu")),
        "{texts:?}"
    );
    assert_eq!(w.deletions(), ["b"]);
}

/// PL-333: a pod that is resized takes no further place on a node with the maximum number of pods.
#[test]
fn a_full_node_has_a_place_for_its_own_pod() {
    let mut w = driver_of(gates(Release::V1_38));
    w.node(node("n").capacity("4", "1Gi", "2"));
    w.pod(other("b", 10, "1"));
    w.pod(grows("a", "2"));
    let text = w.attempt_named();
    assert!(text.contains(FITS), "{text}");
}

/// PL-334: a pod whose resize fits is tried again when another pod of the node grows, and evicts pods if it does not
/// fit any more.
#[test]
fn a_pod_that_grows_takes_the_room_of_a_resize() {
    let mut w = driver_of(gates(Release::V1_38));
    w.node(four_cpus());
    w.pod(other("b", 10, "1"));
    w.pod(grows("a", "2"));
    assert!(w.attempt_named().contains(FITS));
    w.change("b", |pod| {
        pod.with(|pod| pod.spec.containers[0].resources.requests = cpu("3"))
    });
    w.wait(10);
    let texts = w.attempts();
    assert!(
        texts.iter().any(|t| t.contains("Insufficient cpu")),
        "{texts:?}"
    );
    assert_eq!(w.deletions(), ["b"]);
    assert_eq!(w.metric(Metric::PodScheduledAfterFlush, &[]), 0.0);
}

/// P-40: `preemptionPolicy: Never` holds for resizes.
#[test]
fn a_pod_that_never_preempts_waits() {
    let mut w = driver_of(gates(Release::V1_38));
    w.node(four_cpus());
    w.pod(other("b", 10, "3"));
    w.pod(grows("a", "2").with(|pod| pod.spec.preemption_policy = Some("Never".into())));
    let text = w.attempt_named();
    assert!(text.contains("preemptionPolicy=Never"), "{text}");
    assert_eq!(w.deletions(), [""; 0]);
}
