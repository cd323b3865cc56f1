//! Runs `custom-scheduler up` with the configuration of the example and watches its plugins decide.

// A test starts processes and waits for them; it is no part of the core.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod admission;
#[path = "../../../crates/berth/tests/e2e/mod.rs"]
mod e2e;

use admission::AdmissionServer;
use berth_client::request::{self, PODS, Resource};
use custom_scheduler::hold::{HOLD, RELEASED};
use custom_scheduler::node_admission::{ADMISSION, REQUIRED};
use custom_scheduler::rack_aware::{DRAINED, RACK, TIER};
use e2e::{Api, Cluster, Kubectl, Scratch, eventually, scheduled};
use serde_json::{Value, json};
use std::time::Duration;

/// The command under test.
const BINARY: &str = env!("CARGO_BIN_EXE_custom-scheduler");

const NODES: Resource = Resource {
    group: "",
    version: "v1",
    plural: "nodes",
};
const NAMESPACES: Resource = Resource {
    group: "",
    version: "v1",
    plural: "namespaces",
};

/// The configuration of the example, as the documentation shows it.
const CONFIG: &str = include_str!("../config.yaml");
/// The admission service in it.
const SERVICE: &str = "http://127.0.0.1:8099/admissions";

/// A cluster of three nodes: two gold ones, of which one is in the drained rack, and a silver one.
fn start(name: &str, service: &str) -> (Scratch, Cluster, Api) {
    assert!(
        CONFIG.contains(SERVICE),
        "the configuration names a service"
    );
    let scratch = Scratch::new(&format!("{name}-config"));
    let config = scratch.file("config.yaml", &CONFIG.replace(SERVICE, service));
    let config = config.display().to_string();
    let cluster = Cluster::up(name, &["--nodes", "3", "--config", &config]);
    let api = Api::of(&cluster);
    eventually("the scheduler knows the nodes", || {
        (seen(&cluster, "NodeAdd") >= 3.0).then_some(())
    });
    let nodes = [
        ("berth-node-1", json!({RACK: "r13", TIER: "gold"})),
        ("berth-node-2", json!({RACK: "r1", TIER: "silver"})),
        ("berth-node-3", json!({RACK: "r2", TIER: "gold"})),
    ];
    label_nodes(&cluster, &api, &nodes);
    (scratch, cluster, api)
}

/// How many events of this kind the scheduler has seen.
fn seen(cluster: &Cluster, event: &str) -> f64 {
    let event = format!("event=\"{event}\"");
    cluster.metric("scheduler_event_handling_duration_seconds_count", &event)
}

/// Labels nodes and waits until the scheduler has seen it: nodes and pods come to it by different watches.
fn label_nodes(cluster: &Cluster, api: &Api, nodes: &[(&str, Value)]) {
    let expected = seen(cluster, "NodeUpdateNodeLabel") + nodes.len() as f64;
    for (node, labels) in nodes {
        label(api, NODES, "", node, labels.clone());
    }
    eventually("the scheduler knows the labels", || {
        (seen(cluster, "NodeUpdateNodeLabel") >= expected).then_some(())
    });
}

fn label(api: &Api, resource: Resource, namespace: &str, name: &str, labels: Value) {
    let patch = json!({"metadata": {"labels": labels}});
    api.send(&request::merge_patch(resource, namespace, name, &patch));
}

fn create(api: &Api, name: &str, labels: Value) -> Value {
    let pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels},
        "spec": {"containers": [{"name": "c", "image": "registry.example/c:1"}]},
    });
    api.send(&request::create(PODS, "default", &pod))
}

fn node_of(pod: &Value) -> Option<&str> {
    pod["spec"]["nodeName"].as_str()
}

fn bound(api: &Api, name: &str) -> Value {
    eventually("the pod is bound", || {
        let pod = api.pod(name);
        node_of(&pod).is_some().then_some(pod)
    })
}

/// A time of the API, in whole seconds.
fn seconds(time: &Value) -> i64 {
    let text = time.as_str().unwrap_or_default();
    let time: berth_api::Time = serde_json::from_value(json!(text)).expect("a time");
    time.as_millis() / 1000
}

/// How often a call of this type was carried out.
fn calls(cluster: &Cluster, call_type: &str) -> f64 {
    let label = format!("call_type=\"{call_type}\"");
    cluster.metric("scheduler_async_api_call_execution_total", &label)
}

/// RackAware: no pod comes to the drained rack, though it is gold; the other gold rack is preferred until it is
/// drained, too.
#[test]
fn racks_are_avoided_and_preferred() {
    let (_scratch, cluster, api) = start("racks", SERVICE);
    for i in 0..6 {
        let name = format!("web-{i}");
        create(&api, &name, json!({"app": "web"}));
        assert_eq!(node_of(&bound(&api, &name)), Some("berth-node-3"), "{name}");
    }
    let drain = ["berth-node-2", "berth-node-3"].map(|node| (node, json!({RACK: "r13"})));
    label_nodes(&cluster, &api, &drain);
    create(&api, "late", json!({}));
    let message = eventually("the pod says why it waits", || {
        let condition = scheduled(&api.pod("late"));
        let message = condition["message"].as_str()?.to_owned();
        (condition["reason"] == "Unschedulable").then_some(message)
    });
    let expected = format!("0/3 nodes are available: 3 {DRAINED}.");
    assert!(message.starts_with(&expected), "{message}");
    // A rack that opens wakes the pod.
    label_nodes(&cluster, &api, &[("berth-node-2", json!({RACK: "r1"}))]);
    assert_eq!(node_of(&bound(&api, "late")), Some("berth-node-2"));
}

/// NodeAdmission: the pod is not bound before the service has answered; an answer that is no is taken back and asked
/// for again.
#[test]
fn a_pod_is_bound_once_its_node_is_admitted() {
    let service = AdmissionServer::start();
    let (_scratch, _cluster, api) = start("admission", &service.url());

    create(&api, "careful", json!({ADMISSION: REQUIRED}));
    let asked = service.next();
    assert_eq!(asked.line(), "PUT /admissions/default/careful/berth-node-3");
    // Meanwhile others are bound, and the pod says where it is going.
    create(&api, "careless", json!({}));
    bound(&api, "careless");
    eventually("the pod says where it is going", || {
        (api.pod("careful")["status"]["nominatedNodeName"] == "berth-node-3").then_some(())
    });
    assert_eq!(node_of(&api.pod("careful")), None, "nobody has answered");

    asked.answer("503 Service Unavailable", "still warming up");
    let taken_back = service.next();
    assert_eq!(
        taken_back.line(),
        "DELETE /admissions/default/careful/berth-node-3"
    );
    let taken_back_at = taken_back.at();
    taken_back.answer("204 No Content", "");
    let condition = eventually("the pod says what went wrong", || {
        let condition = scheduled(&api.pod("careful"));
        condition["message"].is_string().then_some(condition)
    });
    assert_eq!(condition["reason"], "SchedulerError");
    let message = condition["message"].as_str().unwrap_or_default();
    for part in ["NodeAdmission", "503 Service Unavailable: still warming up"] {
        assert!(message.contains(part), "no {part:?} in {message:?}");
    }

    // The backoff is one second. Nobody but the clock brings the pod back.
    let again = service.next();
    let waited = again.at() - taken_back_at;
    assert!(
        waited < Duration::from_secs(15),
        "asked again after {waited:?}"
    );
    assert_eq!(again.line(), "PUT /admissions/default/careful/berth-node-3");
    assert_eq!(node_of(&api.pod("careful")), None, "nobody has answered");
    again.answer("204 No Content", "");
    let pod = bound(&api, "careful");
    assert_eq!(node_of(&pod), Some("berth-node-3"));
    assert_eq!(scheduled(&pod)["status"], "True");
}

/// Hold, and KEP-5501: what keeps a pod out for five seconds is told in its status and in an event; the pod says so no
/// more once it is released.
#[test]
fn a_held_pod_says_what_it_is_held_for() {
    let (_scratch, cluster, api) = start("held", SERVICE);
    let created = create(&api, "held", json!({HOLD: "budget"}));
    let condition = eventually("the pod says why it is not ready", || {
        let condition = scheduled(&api.pod("held"));
        (!condition.is_null()).then_some(condition)
    });
    assert_eq!(condition["status"], "False");
    assert_eq!(condition["reason"], "NotReadyForScheduling");
    assert_eq!(condition["message"], "held for \"budget\"");
    assert_eq!(condition["observedGeneration"], 1);
    // Both times are cut to whole seconds, which never makes five seconds less.
    let waited = seconds(&condition["lastTransitionTime"])
        - seconds(&created["metadata"]["creationTimestamp"]);
    assert!((5..30).contains(&waited), "told after {waited} s");
    let event = eventually("an event tells the same", || {
        api.event("held", "NotReadyForScheduling")
    });
    assert_eq!(event["message"], condition["message"]);
    assert_eq!(event["type"], "Warning");
    assert!(api.event("held", "FailedScheduling").is_none());
    assert_eq!(calls(&cluster, "pod_status_patch"), 1.0);
    assert_eq!(
        cluster.metric("scheduler_pending_pods", "queue=\"gated\""),
        1.0
    );
    if let Some(kubectl) = Kubectl::find(&cluster) {
        let described = kubectl.ok(&["describe", "pod", "held"]);
        let told = described.lines().any(|line| {
            line.contains("NotReadyForScheduling") && line.contains("held for \"budget\"")
        });
        assert!(told, "{described}");
    }

    // Another reason is told, too, after its own five seconds.
    label(&api, PODS, "default", "held", json!({HOLD: "freeze"}));
    eventually("the pod says why it is held now", || {
        (scheduled(&api.pod("held"))["message"] == "held for \"freeze\"").then_some(())
    });

    // The namespace releases it.
    label(&api, NAMESPACES, "", "default", json!({RELEASED: "freeze"}));
    let pod = bound(&api, "held");
    let condition = scheduled(&pod);
    assert_eq!(condition["status"], "True");
    assert_eq!(condition["reason"], Value::Null);
    assert_eq!(calls(&cluster, "pod_status_patch"), 2.0);
}

/// KEP-5501: what passes within five seconds is nobody's business: neither a patch nor an event.
#[test]
fn a_pod_that_is_released_in_time_says_nothing() {
    let (_scratch, cluster, api) = start("released", SERVICE);
    // A pod that stays held tells when the five seconds are over, for the others as well.
    for name in ["held-1", "held-2", "stays"] {
        create(&api, name, json!({HOLD: "budget"}));
    }
    label(&api, PODS, "default", "held-1", json!({HOLD: null}));
    bound(&api, "held-1");
    // Held for one reason after another, then released.
    label(&api, PODS, "default", "held-2", json!({HOLD: "freeze"}));
    label(&api, PODS, "default", "held-2", json!({HOLD: null}));
    bound(&api, "held-2");
    eventually("the five seconds are over", || {
        api.event("stays", "NotReadyForScheduling")
    });
    assert_eq!(
        calls(&cluster, "pod_status_patch"),
        1.0,
        "of the pod that stays held"
    );
    assert_eq!(calls(&cluster, "pod_binding"), 2.0);
    for name in ["held-1", "held-2"] {
        assert_eq!(scheduled(&api.pod(name))["status"], "True");
        assert_eq!(api.event(name, "NotReadyForScheduling"), None, "{name}");
    }
}
