//! Waiting pods of one template in the default profile: one of them is evaluated on behalf of the others.

use crate::drivers::{driver_of, with_spec};
use berth_framework::testing::{PodBuilder, node, pod};
use berth_framework::{Feature, FeatureGates};
use berth_scheduler::metrics::Metric;
use berth_scheduler::testing::Driver;
use serde_json::{Value, json};

const CPU: &str = "3950m";

/// Three nodes of 4 CPUs, and `count` pods of a template; each pod fills a node.
fn crowded(
    count: usize,
    features: FeatureGates,
    of_template: impl Fn(&str) -> PodBuilder,
) -> Driver {
    let mut w = driver_of(features);
    for name in ["n1", "n2", "n3"] {
        w.node(node(name).capacity("4", "8Gi", "110"));
    }
    for i in 0..count {
        w.pod(of_template(&format!("web-{i}")));
        w.attempt();
        w.answer_all();
    }
    w.wait(30);
    assert_eq!(w.attempts(), [""; 0], "all others wait for an event");
    w
}

fn plain(name: &str) -> PodBuilder {
    pod(name).label("app", "web").request("cpu", CPU)
}

fn count(w: &Driver, metric: Metric) -> f64 {
    w.metric(metric, &["default-scheduler"])
}

/// A pod that was bound by another scheduler is added and deleted: room seems to be freed, and no waiting pod fits.
/// Returns the evaluated pods.
fn evaluated_in_vain(w: &mut Driver) -> Vec<String> {
    w.pod(pod("other").request("cpu", CPU).on("n1"));
    w.deleted("other");
    w.wait(30);
    let tried = w.attempts();
    assert!(w.calls.is_empty(), "nothing new is written");
    tried
}

/// Q-111, C-58: 12 and 27 pods of a ReplicaSet wait, and a pod of their size is deleted. One of them is evaluated. It
/// is rejected as before, so that neither an attempt nor a preemption attempt is counted.
#[test]
fn one_pod_of_a_template_is_evaluated() {
    for replicas in [15, 30] {
        let mut w = crowded(replicas, FeatureGates::default(), plain);
        let preemptions = w.metric(Metric::PreemptionAttempts, &[]);
        assert_eq!(preemptions, replicas as f64 - 3.0);
        let message = "web-3: 0/3 nodes are available: 3 Insufficient cpu.";
        let tried = evaluated_in_vain(&mut w);
        assert_eq!(tried.len(), 1, "{replicas} replicas: {tried:?}");
        assert!(tried[0].starts_with(message), "{tried:?}");
        assert_eq!(count(&w, Metric::AttemptsAvoided), 1.0);
        assert_eq!(w.metric(Metric::PreemptionAttempts, &[]), preemptions);
    }
}

/// Q-111: other fields of real pod templates, in addition to requests, do not cause the pods to be evaluated
/// individually.
#[test]
fn one_pod_of_a_template_is_evaluated_whatever_the_template_contains() {
    let spread = json!({"topologySpreadConstraints": [{
        "maxSkew": 5, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }]});
    let affinity = json!({"affinity": {"podAntiAffinity": {
        "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": {
            "topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "web"}},
        }}],
    }}});
    let volume = json!({"volumes": [{"name": "v", "emptyDir": {}}]});
    let selector = json!({"nodeSelector": {}, "overhead": {"memory": "1Mi"}});
    for fields in [spread, affinity, volume, selector] {
        let template = |name: &str| with_spec(plain(name), &fields);
        let mut w = crowded(15, FeatureGates::default(), template);
        let tried = evaluated_in_vain(&mut w);
        assert_eq!(tried.len(), 1, "{fields}: {tried:?}");
    }
    let priority = |name: &str| plain(name).priority(1000);
    let mut w = crowded(15, FeatureGates::default(), priority);
    assert_eq!(evaluated_in_vain(&mut w).len(), 1, "with a priority");
}

/// Q-99, Q-111: without SchedulerPreQueueingHints, an event evaluates all waiting pods, as in kube-scheduler v1.36.
#[test]
fn all_pods_are_evaluated_without_the_gate() {
    let features = FeatureGates::default().with(Feature::SchedulerPreQueueingHints, false);
    for replicas in [15, 30] {
        let mut w = crowded(replicas, features, plain);
        let tried = evaluated_in_vain(&mut w);
        assert_eq!(tried.len(), replicas - 3, "{tried:?}");
    }
}

/// Q-111: pods with claims of their own differ from each other, so each is asked.
#[test]
fn pods_with_claims_are_evaluated_one_by_one() {
    let with_claim = |name: &str| {
        let entries: Value = json!([{"name": "c", "resourceClaimName": name}]);
        plain(name).with(|pod| {
            pod.spec.resource_claims = serde_json::from_value(entries).expect("claims");
        })
    };
    let mut w = driver_of(FeatureGates::default());
    w.object(
        berth_api::Kind::DeviceClass,
        json!({"metadata": {"name": "gpu"}}),
    );
    w.node(node("n1").capacity("4", "8Gi", "110"));
    for name in ["web-0", "web-1"] {
        w.object(
            berth_api::Kind::ResourceClaim,
            json!({
                "metadata": {"name": name, "namespace": "default", "uid": format!("uid-{name}")},
                "spec": {"devices": {"requests": [{"name": "r", "exactly": {
                    "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1,
                }}]}},
            }),
        );
        w.pod(with_claim(name));
        w.attempt();
        w.answer_all();
    }
    w.wait(30);
    w.attempts();
    w.node(node("n2").capacity("4", "8Gi", "110"));
    w.wait(30);
    assert_eq!(w.attempts().len(), 2);
}
