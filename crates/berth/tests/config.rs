//! `--config FILE`: a KubeSchedulerConfiguration decides where pods are placed, and errors in it are reported with
//! their path.

// A test starts processes and waits for them; it is no part of the core.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod e2e;

use e2e::{Cluster, Scratch, eventually};
use std::process::Command;

/// The command under test.
const BINARY: &str = env!("CARGO_BIN_EXE_berth");

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
    let api = e2e::Api::of(&cluster);
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
    for told in [
        config.as_str(),
        "profiles[0].plugins.score.enabled[0]",
        "NodeResourcesFit",
        "scoringStrategy.resources[0].weight",
    ] {
        assert!(error.contains(told), "no {told:?} in {error}");
    }
}
