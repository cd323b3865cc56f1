//! `--config FILE`: a KubeSchedulerConfiguration decides where pods are placed, and errors in it are reported with
//! their path.

use crate::BINARY;
use crate::e2e::{Cluster, Scratch, eventually};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

/// Fills one node before the next, where the default spreads.
const PACKING: &str = "\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
  plugins:
    score:
      disabled: [{name: '*'}]
      enabled: [{name: NodeResourcesFit}]
  pluginConfig:
  - name: NodeResourcesFit
    args:
      scoringStrategy:
        type: MostAllocated
        resources: [{name: cpu, weight: 1}]
";

const PODS: &str = "\
apiVersion: apps/v1
kind: Deployment
metadata: {name: packed}
spec:
  replicas: 6
  selector: {matchLabels: {app: packed}}
  template:
    metadata: {labels: {app: packed}}
    spec:
      containers:
      - {name: c, image: 'registry.example/c:1', resources: {requests: {cpu: 500m}}}
";

#[test]
fn a_profile_that_packs_fills_one_node_first() {
    let scratch = Scratch::new("config-packing");
    let config = scratch.file("config.yaml", PACKING).display().to_string();
    let pods = scratch.file("pods.yaml", PODS).display().to_string();
    let cluster = Cluster::up("config", &["--nodes", "3", "--config", &config, &pods]);
    let api = crate::e2e::Api::of(&cluster);
    let nodes = eventually("six pods run", || {
        let nodes: Vec<String> = api
            .pods()
            .iter()
            .filter(|pod| pod["status"]["phase"] == "Running")
            .map(|pod| pod["spec"]["nodeName"].to_string())
            .collect();
        (nodes.len() == 6).then_some(nodes)
    });
    assert!(nodes.iter().all(|node| *node == nodes[0]), "{nodes:?}");
}

#[test]
fn every_error_is_reported_with_its_path() {
    let scratch = Scratch::new("config-errors");
    let text = PACKING
        .replace("NodeResourcesFit}", "NodeResourceFit}")
        .replace("weight: 1", "weight: 101");
    let config = scratch.file("config.yaml", &text).display().to_string();
    let kubeconfig = scratch.path("kubeconfig").display().to_string();
    let output = Command::new(BINARY)
        .args(["up", "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0"])
        .args(["--kubeconfig", &kubeconfig, "--config", &config])
        .output()
        .expect("berth runs");
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{error}");
    for notified in [
        config.as_str(),
        "profiles[0].plugins.score.enabled[0]",
        "NodeResourcesFit",
        "scoringStrategy.resources[0].weight",
    ] {
        assert!(error.contains(notified), "no {notified:?} in {error}");
    }
}

/// With `--logging-format=json`, each line that the scheduler writes is a JSON object.
#[test]
fn a_log_in_json_is_nothing_else() {
    let scratch = Scratch::new("config-json-log");
    let config = serde_json::json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": {}}],
        "current-context": "c",
    });
    let kubeconfig = scratch.file("kubeconfig", &config.to_string());
    let mut scheduler = Command::new(BINARY)
        .args(["scheduler", "--logging-format=json", "--secure-port=0"])
        .args(["--leader-elect=false", "--emulated-version=1.36"])
        .arg("--kubeconfig")
        .arg(kubeconfig)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("berth starts");
    let stderr = scheduler.stderr.take().expect("stderr is piped");
    let mut messages = Vec::new();
    for line in BufReader::new(stderr).lines() {
        let line = line.expect("text");
        let entry: Value = serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line}"));
        messages.push(entry["msg"].as_str().expect("a message").to_owned());
        if messages
            .last()
            .is_some_and(|message| message.starts_with("failed to reach"))
        {
            break;
        }
    }
    scheduler.kill().expect("it runs");
    let mut printed = String::new();
    let mut stdout = scheduler.stdout.take().expect("stdout is piped");
    stdout.read_to_string(&mut printed).expect("text");
    scheduler.wait().expect("it ends");
    assert_eq!(printed, "");
    let starts = |start: &str| messages.iter().any(|message| message.starts_with(start));
    assert!(starts("starting the Berth scheduler"), "{messages:?}");
    assert!(starts("scheduling for an API server"), "{messages:?}");
}
