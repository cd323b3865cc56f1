//! `berth what-if` over files and over a running cluster.

// A test starts processes and waits for them; it is no part of the core.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod e2e;

use e2e::{Api, Cluster, Scratch};
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;

/// The command under test.
const BINARY: &str = env!("CARGO_BIN_EXE_berth");

fn node(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "uid": name},
           "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"}}})
}

/// A pod of a replica set.
fn pod(name: &str, cpu: &str, node: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod",
           "metadata": {"name": name, "namespace": "default", "uid": name, "labels": {"app": "web"},
               "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "rs",
                                    "controller": true}]},
           "spec": {"schedulerName": "default-scheduler", "nodeName": node,
                    "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}]},
           "status": {"phase": if node.is_empty() { "Pending" } else { "Running" }}})
}

fn budget(allowed: i32) -> Value {
    json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
           "metadata": {"name": "web", "namespace": "default", "uid": "pdb"},
           "spec": {"selector": {"matchLabels": {"app": "web"}}},
           "status": {"disruptionsAllowed": allowed}})
}

fn list(items: &[Value]) -> String {
    json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string()
}

fn what_if(args: &[&str]) -> Result<Value, String> {
    let output = Command::new(BINARY)
        .args(["what-if", "--output", "json"])
        .args(args)
        .output()
        .expect("berth runs");
    match output.status.code() {
        Some(0) => Ok(serde_json::from_slice(&output.stdout).expect("JSON")),
        code => Err(format!(
            "{code:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        )),
    }
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

#[test]
fn changes_are_run_and_reported() {
    let scratch = Scratch::new("what-if");
    let dump = [
        node("n1"),
        pod("a", "3", "n1"),
        pod("p", "3", ""),
        pod("q", "9", ""),
    ];
    let dump = shown(&scratch.file("dump.json", &list(&dump)));
    let run = |changes: &str| {
        let changes = shown(&scratch.file("changes.yaml", changes));
        what_if(&["--from", &dump, "-f", &changes])
    };
    let new_node = serde_json::to_string(&node("n2")).expect("JSON");
    for (situation, changes, placed, pending) in [
        ("nothing changes", String::new(), json!([]), 2),
        (
            "a node is added",
            new_node.clone(),
            json!([{"pod": "default/p", "node": "n2"}]),
            1,
        ),
        (
            "a node is added that is tainted",
            format!(
                "{new_node}\n---\napiVersion: v1\nkind: Node\nmetadata: {{name: n2}}\nspec: {{taints: [{{key: k, \
                 effect: NoSchedule}}]}}\n"
            ),
            json!([]),
            2,
        ),
        (
            "a pod is deleted",
            "apiVersion: v1\nkind: Pod\nmetadata: {name: a, annotations: {berth.dev/what-if: delete}}\n".to_owned(),
            json!([{"pod": "default/p", "node": "n1"}]),
            1,
        ),
        (
            "the replica set of the pods is scaled down",
            "apiVersion: apps/v1\nkind: ReplicaSet\nmetadata: {name: web}\nspec: {replicas: 1}\n".to_owned(),
            json!([]),
            0,
        ),
        (
            "a deployment is added",
            "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: shop}\nspec: {replicas: 2, template: {spec: \
             {containers: [{name: c, resources: {requests: {cpu: '1'}}}]}}}\n"
                .to_owned(),
            json!([{"pod": "default/shop-what-if-1", "node": "n1"}]),
            3,
        ),
    ] {
        let report = run(&changes).unwrap_or_else(|error| panic!("{situation}: {error}"));
        let got = report["placed"].as_array().cloned().unwrap_or_default();
        assert_eq!(json!(got), placed, "{situation}: {report}");
        let waiting = report["pending"].as_array().map_or(0, Vec::len);
        assert_eq!(waiting, pending, "{situation}: {report}");
        assert_eq!(report["before"]["nodes"], 1, "{situation}");
    }
    let error = run("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: q}\n").expect_err("refused");
    assert!(
        error.contains("Some(2)") && error.contains("ConfigMap"),
        "{error}"
    );
    let config = scratch.file(
        "extended.yaml",
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nextenders: [{urlPrefix: \
         'http://127.0.0.1:1', filterVerb: filter}]\n",
    );
    let error = what_if(&["--from", &dump, "--config", &shown(&config)]).expect_err("refused");
    let expected = "the configuration has extenders, which what-if does not call";
    assert!(error.contains(expected), "{error}");
}

/// Quotas of the cluster and of the changes limit new pods; DaemonSets run on new nodes.
#[test]
fn quotas_and_daemon_sets_are_followed() {
    let scratch = Scratch::new("what-if-quotas");
    let quota = |name: &str, hard: &Value| {
        json!({"apiVersion": "v1", "kind": "ResourceQuota",
        "metadata": {"name": name, "namespace": "default"}, "spec": {"hard": hard}})
    };
    let daemons = |name: &str, cpu: &str| {
        json!({"apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": {"name": name, "namespace": "ops"}, "spec": {"template": {"spec": {"containers":
            [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}}}})
    };
    let replicas = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "web"},
        "spec": {"replicas": 4}});
    let dump = [
        node("n1"),
        pod("a", "1", "n1"),
        quota("present", &json!({"requests.cpu": "3"})),
        daemons("logs", "500m"),
    ];
    let dump = shown(&scratch.file("dump.json", &list(&dump)));
    let mut deleted = quota("present", &json!({}));
    deleted["metadata"]["annotations"] = json!({"berth.dev/what-if": "delete"});
    for (situation, changes, placed, not_admitted) in [
        (
            "the quota has room for two of three",
            vec![replicas.clone()],
            2,
            1,
        ),
        (
            "the quota is deleted",
            vec![deleted.clone(), replicas.clone()],
            3,
            0,
        ),
        (
            "a quota of the changes",
            vec![
                deleted,
                quota("new", &json!({"pods": "1"})),
                replicas.clone(),
            ],
            0,
            3,
        ),
        (
            "a new node gets the pod of a DaemonSet",
            vec![node("n2")],
            1,
            0,
        ),
        (
            "a new DaemonSet runs on all nodes, a new node included",
            vec![daemons("metrics", "1"), node("n2")],
            3,
            0,
        ),
    ] {
        let changes = shown(&scratch.file("changes.json", &list(&changes)));
        let report = what_if(&["--from", &dump, "-f", &changes]);
        let report = report.unwrap_or_else(|error| panic!("{situation}: {error}"));
        let count = |field: &str| report[field].as_array().map_or(0, Vec::len);
        let counts = (count("placed"), count("notAdmitted"), count("pending"));
        assert_eq!(counts, (placed, not_admitted, 0), "{situation}: {report:#}");
    }
}

#[test]
fn a_higher_priority_evicts() {
    let scratch = Scratch::new("what-if-preemption");
    let mut vip = pod("vip", "3", "");
    vip["spec"]["priority"] = 10.into();
    let dump = list(&[node("n1"), pod("a", "3", "n1"), vip]);
    let dump = shown(&scratch.file("dump.json", &dump));
    let report = what_if(&["--from", &dump]).expect("a report");
    assert_eq!(
        report["evicted"],
        json!([{"pod": "default/a", "node": "n1"}]),
        "{report}"
    );
    assert_eq!(
        report["placed"],
        json!([{"pod": "default/vip", "node": "n1"}]),
        "{report}"
    );
}

#[test]
fn nodes_are_drained_under_disruption_budgets() {
    let scratch = Scratch::new("what-if-drain");
    let dump = |allowed| {
        let objects = [
            node("n1"),
            node("n2"),
            node("n3"),
            pod("a", "1", "n1"),
            pod("b", "1", "n2"),
            pod("c", "1", "n3"),
            budget(allowed),
        ];
        shown(&scratch.file("dump.json", &list(&objects)))
    };
    let report = what_if(&["--from", &dump(1), "--drain", "n1", "n2"]).expect("a report");
    assert_eq!(report["drained"], json!(["n1", "n2"]), "{report}");
    // The pod of n1 moves a second time if it was moved to n2.
    let moved = report["moved"].as_array().map_or(0, Vec::len);
    assert!((2..=3).contains(&moved), "{report}");
    let stays =
        |pod: &Value| pod["node"] == "n3" || pod["node"] == "n2" && pod["pod"] != "default/b";
    let all = report["moved"].as_array().expect("moved pods");
    assert!(all.iter().all(stays), "cordoned nodes get no pod: {report}");
    let report = what_if(&["--from", &dump(0), "--drain", "n1"]).expect("a report");
    assert_eq!(report["drained"], json!([]), "{report}");
    assert_eq!(report["blocked"][0]["pod"], "default/a", "{report}");
    let report = what_if(&["--from", &dump(0), "--consolidate"]).expect("a report");
    assert_eq!(
        report["drained"],
        json!([]),
        "no disruption is allowed: {report}"
    );
    // One node of four CPUs is enough for three pods of one.
    let report = what_if(&["--from", &dump(1), "--consolidate"]).expect("a report");
    assert_eq!(
        report["drained"].as_array().map(Vec::len),
        Some(2),
        "{report}"
    );
    assert_eq!(report["after"]["nodes"], 1, "{report}");
    assert_eq!(report["after"]["pending"], 0, "{report}");
    // Each pod is listed once, with the node on which it ends.
    let moved = report["moved"].as_array().expect("moved pods").iter();
    let names: std::collections::BTreeSet<&str> = moved
        .clone()
        .filter_map(|pod| pod["pod"].as_str())
        .collect();
    assert_eq!(names.len(), moved.len(), "{report}");
    let drained = report["drained"].as_array().expect("drained nodes");
    assert!(
        moved.clone().all(|pod| !drained.contains(&pod["node"])),
        "{report}"
    );
    let error = what_if(&["--from", &dump(1), "--drain", "n9"]).expect_err("refused");
    assert!(error.contains("there is no such node"), "{error}");
}

/// The configuration of the changes is the one of the run, `--config` the one before the changes.
#[test]
fn another_configuration_places_pods_elsewhere() {
    let scratch = Scratch::new("what-if-config");
    let dump = [
        node("empty"),
        node("full"),
        pod("a", "2", "full"),
        pod("p", "1", ""),
    ];
    let dump = shown(&scratch.file("dump.json", &list(&dump)));
    let scoring = |strategy: &str| {
        let file = format!("{strategy}.yaml");
        let config = json!({
            "apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
            "profiles": [{
                "plugins": {"score": {"disabled": [{"name": "*"}], "enabled": [{"name": "NodeResourcesFit"}]}},
                "pluginConfig": [{"name": "NodeResourcesFit", "args": {"scoringStrategy": {"type": strategy}}}],
            }],
        });
        shown(&scratch.file(&file, &config.to_string()))
    };
    let (least, most) = (scoring("LeastAllocated"), scoring("MostAllocated"));
    for (args, node) in [
        (vec!["--config", &least], "empty"),
        (vec!["--config", &most], "full"),
        (vec!["-f", &most], "full"),
        (vec!["--config", &most, "-f", &least], "empty"),
    ] {
        let args: Vec<&str> = ["--from", &dump].into_iter().chain(args).collect();
        let report = what_if(&args).expect("a report");
        let placed = json!([{"pod": "default/p", "node": node}]);
        assert_eq!(report["placed"], placed, "{args:?}: {report}");
    }
}

/// A running cluster is read and not written.
#[test]
fn a_cluster_is_only_read() {
    let cluster = Cluster::apiserver("what-if-cluster", &["--nodes", "2"]);
    let api = Api::of(&cluster);
    api.create_pod("web-1", &json!({}));
    let kubeconfig = shown(&cluster.kubeconfig());
    let before = cluster.requests(["DELETE"]);
    let report = what_if(&["--kubeconfig", &kubeconfig]).expect("a report");
    let placed = report["placed"].as_array().cloned().unwrap_or_default();
    assert_eq!(placed.len(), 1, "{report}");
    assert_eq!(placed[0]["pod"], "default/web-1");
    assert_eq!(api.pod("web-1")["spec"]["nodeName"], Value::Null);
    assert_eq!(cluster.requests(["DELETE"]), before);
}
