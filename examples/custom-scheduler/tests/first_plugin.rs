//! The commands of the tutorial, docs/contribute/adding-a-plugin.md: a node under maintenance gets no pods, and a pod
//! that waits is bound when a node is free of the label.

// A test starts processes and waits for them; it is no part of the core.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

#[path = "../../../berth/tests/e2e/mod.rs"]
mod e2e;

use berth_client::request::{self, Resource};
use e2e::{Api, Cluster, Scratch, eventually, scheduled};
use serde_json::{Value, json};

/// The command under test.
const BINARY: &str = env!("CARGO_BIN_EXE_first-plugin");

const NODES: Resource = Resource {
    group: "",
    version: "v1",
    plural: "nodes",
};
const LABEL: &str = "example.com/maintenance";
const MESSAGE: &str = "0/3 nodes are available: 3 node(s) were under maintenance.";

#[test]
fn the_tutorial_runs() {
    let scratch = Scratch::new("first-plugin-config");
    let config = scratch.file("config.yaml", include_str!("../first-plugin.yaml"));
    let config = config.display().to_string();
    let cluster = Cluster::up("first-plugin", &["--nodes", "3", "--config", &config]);
    let api = Api::of(&cluster);
    let events = "scheduler_event_handling_duration_seconds_count";
    // A node that is not known to the scheduler yet would be added with its label.
    eventually("the scheduler knows the nodes", || {
        let count = cluster.metric(events, "event=\"NodeAdd\"");
        (count >= 3.0).then_some(())
    });
    for node in ["berth-node-1", "berth-node-2", "berth-node-3"] {
        api.label(NODES, "", node, &json!({LABEL: "true"}));
    }
    let labelled = "event=\"NodeUpdateNodeLabel\"";
    eventually("the scheduler has received the labels", || {
        let count = cluster.metric(events, labelled);
        (count >= 3.0).then_some(())
    });
    api.create_pod("web", &json!({}));
    let message = eventually("the pod is unschedulable", || {
        let condition = scheduled(&api.pod("web"));
        let message = condition["message"].as_str()?.to_owned();
        (condition["reason"] == "Unschedulable").then_some(message)
    });
    assert!(message.starts_with(MESSAGE), "{message}");
    let unlabelled = json!({"metadata": {"labels": {LABEL: Value::Null}}});
    api.send(&request::merge_patch(
        NODES,
        "",
        "berth-node-2",
        &unlabelled,
    ));
    assert_eq!(api.bound("web")["spec"]["nodeName"], "berth-node-2");
}
