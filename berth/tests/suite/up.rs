//! Drives `berth up` over plain HTTP requests, without any other tool: always runs.

mod clusters;
mod envtest;
mod jobs;

use crate::BINARY;
use crate::e2e::{Api, Cluster, Scratch, eventually, scheduled};
use berth_client::request::{self, PODS, Resource};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::TcpListener;
use std::process::{Command, Output};

const DEPLOYMENTS: Resource = Resource {
    group: "apps",
    version: "v1",
    plural: "deployments",
};
const NODES: Resource = Resource {
    group: "",
    version: "v1",
    plural: "nodes",
};
const MANIFEST: &str = "\
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 12
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - {name: web, image: 'registry.example/web:1'}
---
apiVersion: v1
kind: Pod
metadata: {name: gated}
spec:
  schedulingGates: [{name: example.com/foo}, {name: example.com/bar}]
  containers:
  - {name: c, image: 'registry.example/c:1'}
---
apiVersion: v1
kind: Pod
metadata: {name: huge}
spec:
  containers:
  - {name: c, image: 'registry.example/c:1', resources: {requests: {cpu: 1k}}}
";

#[test]
fn manifests_run_gates_block_and_reasons_are_reported() {
    let scratch = Scratch::new("up-manifest");
    let manifest = scratch.file("all.yaml", MANIFEST);
    let cluster = Cluster::up("up", &["--nodes", "4", &manifest.display().to_string()]);
    let api = Api::of(&cluster);

    // The deployment runs, spread over all nodes.
    let by_node = eventually("twelve pods run", || {
        let mut by_node: BTreeMap<String, usize> = BTreeMap::new();
        for pod in api.pods() {
            if pod["status"]["phase"] == "Running" {
                *by_node
                    .entry(pod["spec"]["nodeName"].to_string())
                    .or_default() += 1;
            }
        }
        (by_node.values().sum::<usize>() == 12).then_some(by_node)
    });
    assert_eq!(by_node.len(), 4, "{by_node:?}");
    let status = eventually("the deployment reports it", || {
        let deployment = api.send(&request::get(DEPLOYMENTS, "default", "web"));
        (deployment["status"]["availableReplicas"] == 12).then(|| deployment["status"].clone())
    });
    assert_eq!(status["updatedReplicas"], 12);

    // A gated pod is not attempted; it runs after the removal of its last gate.
    assert_eq!(scheduled(&api.pod("gated"))["reason"], "SchedulingGated");
    let refused = api
        .runtime
        .block_on(api.transport.execute(&request::bind_pod(
            &"default".into(),
            &"gated".into(),
            &"".into(),
            &"anywhere".into(),
        )));
    assert_eq!(
        refused.expect_err("gated pods cannot be bound").code(),
        Some(409)
    );
    for left in [json!([{"name": "example.com/bar"}]), Value::Null] {
        assert!(api.pod("gated")["spec"]["nodeName"].is_null());
        let patch = json!({"spec": {"schedulingGates": left}});
        api.send(&request::merge_patch(PODS, "default", "gated", &patch));
    }
    eventually("the pod runs once its gates are gone", || {
        (api.pod("gated")["status"]["phase"] == "Running").then_some(())
    });
    assert_eq!(scheduled(&api.pod("gated"))["status"], "True");

    // A pod that fits nowhere reports the reason in its status and in an event.
    let condition = eventually("the pod states why it waits", || {
        let condition = scheduled(&api.pod("huge"));
        (condition["reason"] == "Unschedulable").then_some(condition)
    });
    let message = condition["message"].as_str().unwrap_or_default().to_owned();
    assert!(
        message.starts_with("0/4 nodes are available: 4 Insufficient cpu."),
        "{message}"
    );
    assert_eq!(condition["observedGeneration"], 1);
    eventually("the events report the same", || {
        let notified = |object, reason| api.event(object, reason);
        let failed = notified("huge", "FailedScheduling")?;
        notified("gated", "Scheduled")?;
        assert!(
            notified("gated", "FailedScheduling").is_none(),
            "a gated pod is never tried"
        );
        (failed["message"] == message.as_str()).then_some(())
    });

    // Health and metrics are served in plain text.
    assert!(cluster.http_get("/healthz").ends_with("ok"));
    let metrics = cluster.http_get("/metrics");
    for line in [
        "scheduler_schedule_attempts_total{profile=\"default-scheduler\",result=\"scheduled\"} 13",
        "scheduler_pending_pods{queue=\"unschedulable\"} 1",
    ] {
        assert!(metrics.contains(line), "no {line} in:\n{metrics}");
    }

    assert_eq!(cluster.stop("-TERM"), Some(0));
}

#[test]
fn ctrl_c_stops_cleanly() {
    let cluster = Cluster::up("up-interrupt", &[]);
    assert!(
        cluster.greeting.contains("KUBECONFIG="),
        "{}",
        cluster.greeting
    );
    assert_eq!(cluster.stop("-INT"), Some(0));
}

fn berth(args: &[&str]) -> Output {
    Command::new(BINARY)
        .args(args)
        .output()
        .expect("berth runs")
}

#[test]
fn what_cannot_be_had_is_named_with_the_way_out() {
    let scratch = Scratch::new("up-errors");
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let taken = taken.local_addr().expect("it has an address").to_string();
    let kubeconfig = scratch.path("kubeconfig").display().to_string();
    let nowhere = scratch.path("no/such/dir/kubeconfig").display().to_string();
    let broken = scratch
        .file("broken.yaml", "kind: [Pod\n")
        .display()
        .to_string();
    let invalid = scratch
        .file(
            "invalid.yaml",
            "apiVersion: v1\nkind: Pod\nmetadata: {name: Bad_Name}\nspec: {containers: [{name: c, image: i}]}\n",
        )
        .display()
        .to_string();
    let free = "127.0.0.1:0";
    for (situation, args, code, notified) in [
        (
            "a busy port",
            vec![
                "--listen",
                &taken,
                "--metrics",
                free,
                "--kubeconfig",
                &kubeconfig,
            ],
            3,
            vec![taken.as_str(), "--listen ADDR"],
        ),
        (
            "a busy metrics port",
            vec![
                "--listen",
                free,
                "--metrics",
                &taken,
                "--kubeconfig",
                &kubeconfig,
            ],
            3,
            vec![taken.as_str(), "--metrics ADDR"],
        ),
        (
            "an unwritable kubeconfig",
            vec![
                "--listen",
                free,
                "--metrics",
                free,
                "--kubeconfig",
                &nowhere,
            ],
            3,
            vec![nowhere.as_str(), "--kubeconfig PATH"],
        ),
        (
            "a malformed manifest",
            vec![
                "--listen",
                free,
                "--metrics",
                free,
                "--kubeconfig",
                &kubeconfig,
                &broken,
            ],
            2,
            vec![broken.as_str(), "nothing was started"],
        ),
        (
            "an invalid object",
            vec![
                "--listen",
                free,
                "--metrics",
                free,
                "--kubeconfig",
                &kubeconfig,
                &invalid,
            ],
            2,
            vec![invalid.as_str(), "metadata.name"],
        ),
        (
            "an unknown feature gate",
            vec![
                "--listen",
                free,
                "--metrics",
                free,
                "--kubeconfig",
                &kubeconfig,
                "--feature-gates",
                "NoSuch=true",
            ],
            2,
            vec!["unrecognized feature gate: NoSuch"],
        ),
    ] {
        let output = berth(&[&["up"], args.as_slice()].concat());
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{situation}: {error}");
        for part in notified {
            assert!(error.contains(part), "{situation}: no {part:?} in {error}");
        }
    }
}

/// A cluster in a data directory keeps its nodes: the default number is for a new cluster.
#[test]
fn a_kept_cluster_has_the_nodes_that_it_had() {
    let scratch = Scratch::new("up-kept");
    let dir = scratch.path("data").display().to_string();
    let names = |args: &[&str]| -> Vec<String> {
        let cluster = Cluster::up("up-kept-cluster", &[&["--data-dir", &dir], args].concat());
        let list = Api::of(&cluster).send(&request::list(NODES, "", 0, ""));
        let nodes = list["items"].as_array().expect("a list").iter();
        let names = nodes
            .map(|node| node["metadata"]["name"].to_string())
            .collect();
        assert!(cluster.stop("-TERM").is_some());
        names
    };
    let two = names(&["--nodes", "2"]);
    assert_eq!(two.len(), 2);
    assert_eq!(names(&[]), two);
    assert_eq!(names(&["--nodes", "3"]).len(), 3);
}

#[test]
fn every_subcommand_has_help_with_an_example() {
    for command in [
        vec!["up"],
        vec!["apiserver"],
        vec!["scheduler"],
        vec!["envtest"],
        vec!["down"],
        vec!["get"],
        vec!["version"],
        vec!["completion"],
        vec!["explain"],
        vec!["what-if"],
        vec!["conformance"],
        vec!["campaign"],
        vec!["perf", "core"],
        vec!["perf", "memory"],
    ] {
        let output = berth(&[command.as_slice(), &["--help"]].concat());
        let help = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{command:?}");
        assert!(help.contains("Example: berth"), "{command:?}: {help}");
    }
}

/// The seed that is printed replays the run.
#[test]
fn campaign_with_random_seeds_prints_them() {
    let output = berth(&["campaign", "--random", "--seeds", "2", "--steps", "20"]);
    let remark = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{remark}");
    let first = remark.split_whitespace().find_map(|word| word.parse().ok());
    let first: u64 = first.unwrap_or_else(|| panic!("no seed in {remark}"));
    assert!(remark.contains(&format!("seeds {first} to {}", first + 1)));
    let again = [
        "campaign",
        "--seed",
        &first.to_string(),
        "--seeds",
        "2",
        "--steps",
        "20",
    ];
    assert_eq!(berth(&again).stdout, output.stdout);
}
