//! Runs `custom-scheduler up` with the configuration of the example and watches its plugins decide.

// A test starts processes and waits for them; it is no part of the core.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod admission;
#[path = "../../../berth/tests/e2e/mod.rs"]
mod e2e;

use admission::AdmissionServer;
use berth_client::request::{self, Resource};
use custom_scheduler::node_admission::{ADMISSION, REQUIRED};
use custom_scheduler::rack_aware::{DRAINED, RACK, TIER};
use custom_scheduler::warm_up::{ANNOTATION, DONE, REQUESTED, WARM_UP};
use e2e::{Api, Cluster, Scratch, eventually, scheduled};
use serde_json::{Value, json};

/// The command under test.
const BINARY: &str = env!("CARGO_BIN_EXE_custom-scheduler");

const NODES: Resource = Resource {
    group: "",
    version: "v1",
    plural: "nodes",
};
/// The configuration of the example, as the documentation shows it.
const CONFIG: &str = include_str!("../config.yaml");
/// The admission service in it.
const SERVICE: &str = "http://127.0.0.1:8099/admissions";

/// A cluster of three nodes: two gold nodes, one of them in the drained rack, and a silver node.
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

/// The number of events of this kind that the scheduler has received.
fn seen(cluster: &Cluster, event: &str) -> f64 {
    let event = format!("event=\"{event}\"");
    cluster.metric("scheduler_event_handling_duration_seconds_count", &event)
}

/// Labels nodes and waits until the scheduler has received the change, because it watches nodes and pods independently.
fn label_nodes(cluster: &Cluster, api: &Api, nodes: &[(&str, Value)]) {
    let expected = seen(cluster, "NodeUpdateNodeLabel") + nodes.len() as f64;
    for (node, labels) in nodes {
        api.label(NODES, "", node, labels);
    }
    eventually("the scheduler knows the labels", || {
        (seen(cluster, "NodeUpdateNodeLabel") >= expected).then_some(())
    });
}

/// WarmUp: the plugin's own API call reaches the API server and is counted under its type; the pod is bound when the
/// node reports that it is ready, and a later pod is bound without a call.
#[test]
fn a_pod_is_bound_once_its_node_has_warmed_up() {
    let (_scratch, cluster, api) = start("warm-up", SERVICE);
    api.create_pod("first", &json!({WARM_UP: "llm"}));
    let key = format!("{ANNOTATION}llm");
    eventually("the node is asked", || {
        let node = api.send(&request::get(NODES, "", "berth-node-3"));
        (node["metadata"]["annotations"][&key] == REQUESTED).then_some(())
    });
    // Other pods are bound during the preparation.
    api.create_pod("plain", &json!({}));
    api.bound("plain");
    assert_eq!(node_of(&api.pod("first")), None, "the node is not ready");
    let ready = json!({"metadata": {"annotations": {&key: DONE}}});
    api.send(&request::merge_patch(NODES, "", "berth-node-3", &ready));
    assert_eq!(node_of(&api.bound("first")), Some("berth-node-3"));
    api.create_pod("second", &json!({WARM_UP: "llm"}));
    api.bound("second");
    let calls = cluster.metric(
        "scheduler_async_api_call_execution_total",
        "call_type=\"node_warm_up\",result=\"success\"",
    );
    assert_eq!(calls, 1.0);
}

fn node_of(pod: &Value) -> Option<&str> {
    pod["spec"]["nodeName"].as_str()
}

/// RackAware: no pod is placed in the drained rack, though it is gold; the other gold rack is preferred until it is
/// drained, too.
#[test]
fn racks_are_avoided_and_preferred() {
    let (_scratch, cluster, api) = start("racks", SERVICE);
    for i in 0..6 {
        let name = format!("web-{i}");
        api.create_pod(&name, &json!({"app": "web"}));
        assert_eq!(node_of(&api.bound(&name)), Some("berth-node-3"), "{name}");
    }
    let drain = ["berth-node-2", "berth-node-3"].map(|node| (node, json!({RACK: "r13"})));
    label_nodes(&cluster, &api, &drain);
    api.create_pod("late", &json!({}));
    let message = eventually("the pod states why it waits", || {
        let condition = scheduled(&api.pod("late"));
        let message = condition["message"].as_str()?.to_owned();
        (condition["reason"] == "Unschedulable").then_some(message)
    });
    let expected = format!("0/3 nodes are available: 3 {DRAINED}.");
    assert!(message.starts_with(&expected), "{message}");
    // A rack that opens wakes the pod.
    label_nodes(&cluster, &api, &[("berth-node-2", json!({RACK: "r1"}))]);
    assert_eq!(node_of(&api.bound("late")), Some("berth-node-2"));
}

/// NodeAdmission: the pod is not bound before the service has answered. After a refusal the request is withdrawn and
/// sent again.
#[test]
fn a_pod_is_bound_once_its_node_is_admitted() {
    let service = AdmissionServer::start();
    let (_scratch, _cluster, api) = start("admission", &service.url());

    api.create_pod("careful", &json!({ADMISSION: REQUIRED}));
    let asked = service.next();
    assert_eq!(asked.line(), "PUT /admissions/default/careful/berth-node-3");
    // Other pods are bound during the admission, and the status of the pod names the node.
    api.create_pod("careless", &json!({}));
    api.bound("careless");
    eventually("the pod states its nominated node", || {
        (api.pod("careful")["status"]["nominatedNodeName"] == "berth-node-3").then_some(())
    });
    assert_eq!(node_of(&api.pod("careful")), None, "no client has answered");

    asked.answer("503 Service Unavailable", "still warming up");
    let reverted = service.next();
    assert_eq!(
        reverted.line(),
        "DELETE /admissions/default/careful/berth-node-3"
    );
    reverted.answer("204 No Content", "");
    let condition = eventually("the pod states what went wrong", || {
        let condition = scheduled(&api.pod("careful"));
        condition["message"].is_string().then_some(condition)
    });
    assert_eq!(condition["reason"], "SchedulerError");
    let message = condition["message"].as_str().unwrap_or_default();
    for part in ["NodeAdmission", "503 Service Unavailable: still warming up"] {
        assert!(message.contains(part), "no {part:?} in {message:?}");
    }

    // The backoff is one second. Only its end makes the pod active again.
    let again = service.next();
    assert_eq!(again.line(), "PUT /admissions/default/careful/berth-node-3");
    assert_eq!(node_of(&api.pod("careful")), None, "no client has answered");
    again.answer("204 No Content", "");
    let pod = api.bound("careful");
    assert_eq!(node_of(&pod), Some("berth-node-3"));
    assert_eq!(scheduled(&pod)["status"], "True");
}
