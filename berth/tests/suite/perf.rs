//! `berth perf FILE`: workload files run from the command line.

use crate::BINARY;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

/// A directory that is removed with the test.
struct Scratch(TempDir);

impl Scratch {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("the temporary directory can be written"))
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::write(&path, text).expect("the directory can be written");
        path
    }
}

fn perf(file: &Path, args: &[&str]) -> Output {
    Command::new(BINARY)
        .arg("perf")
        .arg(file)
        .args(args)
        .output()
        .expect("berth runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

const TINY: &str = "
- name: Tiny
  workloadTemplate:
  - opcode: createNodes
    countParam: $nodes
    uniqueNodeLabelStrategy: {labelKey: unique}
  - opcode: createNamespaces
    prefix: extra
    count: 2
  - opcode: createPods
    countParam: $pods
    podTemplatePath: pod.yaml
    collectMetrics: true
  - opcode: createPods
    count: 3
    namespace: extra-0
    skipWaitToCompletion: true
  - opcode: barrier
  workloads:
  - name: 3Nodes_12Pods
    labels: [short]
    params: {nodes: 3, pods: 12}
  - name: unknown-gate
    labels: [gate]
    featureGates: {NoSuchGate: true}
    params: {nodes: 1, pods: 1}
";

const POD: &str = "
apiVersion: v1
kind: Pod
metadata:
  name: pod-{{ .Index }}
spec:
  containers:
  - {name: pause, image: registry.k8s.io/pause:3.10.1, resources: {requests: {cpu: '{{ Mod .Index 2 }}'}}}
";

#[test]
fn a_tiny_workload_runs_in_process_and_its_bindings_are_verified() {
    let scratch = Scratch::new();
    let file = scratch.file("tiny.yaml", TINY);
    scratch.file("pod.yaml", POD);
    let out = scratch.0.path().join("out.json");
    let shown = out.display().to_string();
    let args = ["--in-process", "--filter", "3Nodes", "--out", &shown];
    let output = perf(&file, &args);
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{stdout}\n{stderr}");
    for expect in [
        "Tiny/3Nodes_12Pods",
        "15 bindings verified",
        "12 pods scheduled",
        "create to bound",
        "1 of 1 runs succeeded",
    ] {
        assert!(
            stdout.contains(expect),
            "{expect:?} is not in\n{stdout}\n{stderr}"
        );
    }
    let json = std::fs::read(&out).expect("the results are written");
    let json: Value = serde_json::from_slice(&json).expect("the results are JSON");
    assert_eq!(json["version"], "v1");
    let items = json["dataItems"].as_array().expect("data items");
    let name = "BenchmarkPerfScheduling/Tiny/3Nodes_12Pods/namespace-2";
    assert!(items.iter().all(|item| item["labels"]["Name"] == name));
    let attempts = items
        .iter()
        .find(|item| item["labels"]["Metric"] == "AttemptsPerPod")
        .expect("the attempts");
    assert_eq!(attempts["data"]["Average"], 1.0);
}

#[test]
fn pods_are_created_at_a_rate_and_gates_are_compared() {
    let scratch = Scratch::new();
    let file = scratch.file("tiny.yaml", TINY);
    scratch.file("pod.yaml", POD);
    let out = scratch.0.path().join("out.json");
    let shown = out.display().to_string();
    let gate = "SchedulerPreQueueingHints=false";
    let output = perf(
        &file,
        &[
            "--in-process",
            "--filter",
            "3Nodes",
            "--rate",
            "24",
            "--compare-gates",
            gate,
            "--out",
            &shown,
        ],
    );
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{stdout}\n{stderr}");
    for expect in [
        "Tiny/3Nodes_12Pods\n",
        &format!("Tiny/3Nodes_12Pods with {gate}\n"),
        "2 of 2 runs succeeded (in-process: one process, no sockets; measured pods are created at 24/s)",
    ] {
        assert!(stdout.contains(expect), "{expect:?} is not in\n{stdout}");
    }
    let json = std::fs::read(&out).expect("the results are written");
    let json: Value = serde_json::from_slice(&json).expect("the results are JSON");
    let items = json["dataItems"].as_array().expect("data items").iter();
    let durations: Vec<f64> = items
        .filter(|item| item["labels"]["Metric"] == "SchedulingDuration")
        .filter_map(|item| item["data"]["Duration"].as_f64())
        .collect();
    // The last of twelve pods is created eleven intervals after the first.
    assert_eq!(durations.len(), 2);
    assert!(
        durations.iter().all(|seconds| *seconds >= 11.0 / 24.0),
        "{durations:?}"
    );
}

#[test]
fn two_builds_take_turns() {
    let scratch = Scratch::new();
    let file = scratch.file("tiny.yaml", TINY);
    scratch.file("pod.yaml", POD);
    let args = ["--filter", "3Nodes", "--against", BINARY];
    let output = perf(&file, &args);
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{stdout}\n{stderr}");
    let title = format!("Tiny/3Nodes_12Pods with {BINARY}");
    let runs = stdout.lines().filter(|line| *line == title);
    assert_eq!(runs.count(), 2, "{stdout}");
    assert!(stdout.contains("2 of 2 runs succeeded"), "{stdout}");
}

#[test]
fn a_workload_without_a_result_is_an_error() {
    let scratch = Scratch::new();
    let file = scratch.file("tiny.yaml", TINY);
    scratch.file("pod.yaml", POD);
    let output = perf(&file, &["--in-process", "--labels", "gate"]);
    assert_eq!(output.status.code(), Some(1));
    let stdout = text(&output.stdout);
    assert!(stdout.contains("cannot run here"), "{stdout}");
    assert!(stdout.contains("NoSuchGate"), "{stdout}");
    let output = perf(
        &file,
        &["--in-process", "--labels", "gate", "--skip-unsupported"],
    );
    assert_eq!(output.status.code(), Some(0));
    // A node for no pod: the wait ends with the reason.
    let large = POD.replace("'{{ Mod .Index 2 }}'", "'64'");
    scratch.file("pod.yaml", &large);
    let args = [
        "--in-process",
        "--filter",
        "3Nodes",
        "--wait-limit-seconds",
        "2",
    ];
    let output = perf(&file, &args);
    assert_eq!(output.status.code(), Some(1));
    let stdout = text(&output.stdout);
    assert!(stdout.contains("0 of 12 pods were scheduled"), "{stdout}");
    assert!(stdout.contains("Insufficient cpu"), "{stdout}");
}

/// A separate process, because the memory of other tests would count. Twenty thousand pods are a weak test for a
/// million, so the bound is loose; it detects excessive growth.
#[test]
fn nodes_and_pods_are_kept_in_few_bytes() {
    let output = Command::new(BINARY)
        .args(["perf", "memory", "--nodes", "1000", "--pods", "20000"])
        .args(["--output", "json"])
        .output()
        .expect("berth runs");
    let report: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", text(&output.stderr)));
    let per_pod = report["perPod"].as_f64().expect("a number of bytes");
    assert!(per_pod > 100.0 && per_pod < 3_000.0, "{report:#}");
    assert_eq!(report["scheduled"], 200, "{report:#}");
}

#[test]
fn a_malformed_file_is_refused_before_anything_starts() {
    let scratch = Scratch::new();
    let file = scratch.file(
        "bad.yaml",
        &TINY.replace("createNamespaces", "createNamespace"),
    );
    scratch.file("pod.yaml", POD);
    let output = perf(&file, &["--list"]);
    assert_eq!(output.status.code(), Some(2));
    let stderr = text(&output.stderr);
    assert!(
        stderr.contains("unknown variant `createNamespace`"),
        "{stderr}"
    );
}

#[test]
fn our_own_workloads_are_well_formed() {
    for (file, short) in [("storms.yaml", 6), ("devices.yaml", 2)] {
        let file = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../testing/perf/workloads/")
            .join(file);
        let output = perf(&file, &["--list", "--labels", "short"]);
        let stdout = text(&output.stdout);
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert_eq!(stdout.lines().count(), short, "{stdout}");
    }
}

/// A count above its limit fails the command, on a machine of any speed.
#[test]
fn counts_per_pod_are_within_the_limits_of_a_workload() {
    let scratch = Scratch::new();
    scratch.file("pod.yaml", POD);
    for (limits, exit, shown) in [
        (
            "{AttemptsPerPod: 1, HintCallsPerPod: 12}",
            0,
            "limit AttemptsPerPod 1 met by 1.00",
        ),
        (
            "{AttemptsPerPod: 0.5}",
            1,
            "limit AttemptsPerPod 0.5 MISSED by 1.00",
        ),
    ] {
        let params = "params: {nodes: 3, pods: 12}";
        let limited = format!("limits: {limits}\n    {params}");
        let file = scratch.file("tiny.yaml", &TINY.replace(params, &limited));
        let output = perf(&file, &["--in-process", "--filter", "3Nodes"]);
        let stdout = text(&output.stdout);
        assert_eq!(output.status.code(), Some(exit), "{stdout}");
        assert!(stdout.contains(shown), "{shown:?} is not in\n{stdout}");
    }
}
