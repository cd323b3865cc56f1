//! Records schedulers with an API server over HTTPS, and replays the recordings.

use crate::BINARY;
use crate::e2e::{Api, Cluster, eventually, scheduled};
use berth_client::request::{self, PODS, Resource};
use serde_json::{Value, json};
use std::path::Path;
use std::process::{Command, Output};

const PRIORITY_CLASSES: Resource = Resource {
    group: "scheduling.k8s.io",
    version: "v1",
    plural: "priorityclasses",
};

fn replay(dir: &Path, args: &[&str]) -> Output {
    Command::new(BINARY)
        .arg("replay")
        .arg(dir)
        .args(args)
        .output()
        .expect("berth runs")
}

fn text(output: &Output) -> String {
    let out = String::from_utf8_lossy(&output.stdout);
    let err = String::from_utf8_lossy(&output.stderr);
    format!("{out}{err}")
}

fn report(dir: &Path) -> Value {
    let output = replay(dir, &["--output", "json"]);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {}", text(&output)))
}

fn pod(name: &str, cpu: &str, more: &Value) -> Value {
    let mut pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": "web"}},
        "spec": {"containers": [{
            "name": "c",
            "image": "registry.example/c:1",
            "resources": {"requests": {"cpu": cpu}},
        }]},
    });
    for (field, value) in more.as_object().into_iter().flatten() {
        pod["spec"][field] = value.clone();
    }
    pod
}

/// Bindings, a gate, a pod that does not fit and one that preempts.
fn traffic(api: &Api) {
    let create = |pod: &Value| api.send(&request::create(PODS, "default", pod));
    for at in 0..30 {
        create(&pod(&format!("web-{at}"), "100m", &Value::Null));
    }
    let gates = json!({"schedulingGates": [{"name": "example.com/gate"}]});
    create(&pod("gated", "100m", &gates));
    create(&pod("huge", "1k", &Value::Null));
    eventually("all but the gated and the huge pod are bound", || {
        let pods = api.pods();
        let bound = pods.iter().filter(|pod| !pod["spec"]["nodeName"].is_null());
        (bound.count() == 30).then_some(())
    });
    eventually("the huge pod has a reason", || {
        let condition = scheduled(&api.pod("huge"));
        (condition["reason"] == "Unschedulable").then_some(())
    });
    let open = json!({"spec": {"schedulingGates": null}});
    api.send(&request::merge_patch(PODS, "default", "gated", &open));
    api.bound("gated");
}

fn preemption(api: &Api, cpu: &str) {
    let class = json!({
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "high"},
        "value": 1000,
    });
    api.send(&request::create(PRIORITY_CLASSES, "", &class));
    let high = pod("high", cpu, &json!({"priorityClassName": "high"}));
    api.send(&request::create(PODS, "default", &high));
    api.bound("high");
}

fn is_the_same(dir: &Path, decisions_min: u64) {
    let report = report(dir);
    assert_eq!(report["differences"], 0, "{report:#}");
    assert_eq!(report["complete"], true, "{report:#}");
    assert!(
        report["decisions"].as_u64() >= Some(decisions_min),
        "{report:#}"
    );
    assert!(
        report["calls"].as_u64() >= Some(decisions_min),
        "{report:#}"
    );
}

#[test]
fn a_run_over_https_replays_to_the_same_decisions_and_calls() {
    let cluster = Cluster::apiserver("record-https", &["--nodes", "4"]);
    let api = Api::of(&cluster);
    let dir = cluster.scratch.path("recording");
    let shown = dir.display().to_string();
    let scheduler = cluster.scheduler(&["--record", &shown]);
    traffic(&api);
    // Every node has 4 CPUs: this pod fits only without the others on its node.
    preemption(&api, "3950m");
    assert_eq!(scheduler.stop("-TERM"), Some(0));
    is_the_same(&dir, 32);

    let output = replay(&dir, &["--break-at", "default/huge"]);
    let printed = text(&output);
    assert!(output.status.success(), "{printed}");
    for line in [
        "stopped     at the first decision about default/huge",
        "Insufficient cpu",
        "every decision and call is the recorded one",
    ] {
        assert!(printed.contains(line), "{line:?} is missing in\n{printed}");
    }

    // The same, explained at that moment.
    let explain = ["--break-at", "default/huge", "--explain", "pod/huge"];
    let output = replay(&dir, &explain);
    let printed = text(&output);
    assert!(output.status.success(), "{printed}");
    for line in ["Pod default/huge: ", "What would free it"] {
        assert!(printed.contains(line), "{line:?} is missing in\n{printed}");
    }
    let output = replay(&dir, &["--explain", "queue", "--output", "json"]);
    let explained: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {}", text(&output)));
    assert_eq!(
        explained["explanation"]["unschedulable"], 1,
        "{explained:#}"
    );
    let output = replay(&dir, &["--until", "0.001", "--explain", "pod/huge"]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output));
    let printed = text(&output);
    assert!(
        printed.contains("there is no pod default/huge at "),
        "{printed}"
    );

    // Plans over moments of the recording.
    let what_if = |args: &[&str]| -> Value {
        let output = Command::new(BINARY)
            .args(["what-if", "-o", "json", "--record", &shown])
            .args(args)
            .output()
            .expect("berth runs");
        serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {}", text(&output)))
    };
    let plan = what_if(&[]);
    assert_eq!(plan["pending"][0]["pod"], "default/huge", "{plan:#}");
    assert_eq!(plan["before"]["nodes"], 4, "{plan:#}");
    assert!(plan["before"]["pods"].as_u64() > Some(0), "{plan:#}");
    let plan = what_if(&["--at", "0.001"]);
    assert_eq!(plan["before"]["pods"], 0, "{plan:#}");

    // Another configuration: the pods are packed onto few nodes, and all of them are still placed.
    let config = cluster.scratch.file(
        "packed.yaml",
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles:\n- schedulerName: \
         default-scheduler\n  plugins: {multiPoint: {disabled: [{name: PodTopologySpread}, {name: \
         NodeResourcesBalancedAllocation}]}}\n  pluginConfig:\n  - name: NodeResourcesFit\n    args: {scoringStrategy: \
         {type: MostAllocated, resources: [{name: cpu, weight: 1}]}}\n",
    );
    let config = config.display().to_string();
    let output = replay(&dir, &["--config", &config, "--output", "json"]);
    let compared: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {}", text(&output)));
    assert!(output.status.success(), "{}", text(&output));
    let used = |which: &str| compared[which]["nodesUsed"].as_u64().expect("a number");
    assert!(used("other") < used("recorded"), "{compared:#}");
    assert_eq!(used("recorded"), 4, "{compared:#}");
    assert_eq!(compared["other"]["pods"], 33, "{compared:#}");

    let output = replay(&dir, &["--until", "0.001"]);
    assert!(output.status.success(), "{}", text(&output));
    assert!(
        text(&output).contains("as requested with --until"),
        "{}",
        text(&output)
    );

    // A part that is cut off is named, and the rest is replayed.
    let file = std::fs::read_dir(&dir).expect("a directory").next();
    let file = file.expect("a file").expect("a file").path();
    let bytes = std::fs::read(&file).expect("a file");
    std::fs::write(&file, &bytes[..bytes.len() - 3]).expect("a file");
    let output = replay(&dir, &[]);
    let printed = text(&output);
    assert_eq!(output.status.code(), Some(1), "{printed}");
    assert!(
        printed.contains("the file ends in a block, after"),
        "{printed}"
    );
    assert!(printed.contains("and later ones are lost"), "{printed}");
}

/// A recording with pseudonyms contains no name of the cluster, and replays to the same decisions and calls.
#[test]
fn a_run_with_pseudonyms_replays_to_the_same_decisions_and_calls() {
    let cluster = Cluster::apiserver("record-pseudonyms", &["--nodes", "4"]);
    let api = Api::of(&cluster);
    let dir = cluster.scratch.path("recording");
    let shown = dir.display().to_string();
    let scheduler = cluster.scheduler(&["--record", &shown, "--record-pseudonyms"]);
    traffic(&api);
    preemption(&api, "3950m");
    assert_eq!(scheduler.stop("-TERM"), Some(0));
    is_the_same(&dir, 32);
    assert_eq!(report(&dir)["pseudonyms"], true);
    let run = &berth_recording::runs(&dir).expect("a recording")[0];
    for found in berth_recording::RunEntries::of(run) {
        let entry = format!("{:?}", found.expect("no damage").entry);
        for name in [
            "web-",
            "huge",
            "berth-node",
            "registry.example",
            "example.com/gate",
        ] {
            assert!(!entry.contains(name), "{name}: {entry}");
        }
    }
}

#[test]
fn berth_up_records_each_start_as_a_run() {
    let cluster = Cluster::up("record-up", &["--nodes", "3", "--record", "recording"]);
    let api = Api::of(&cluster);
    traffic(&api);
    crowded(&api);
    let dir = cluster.scratch.path("recording");
    let kept = tempfile::tempdir().expect("a directory");
    // A run whose process is killed is replayed up to its last complete block.
    eventually("a block is written", || {
        let report = report(&dir);
        (report["decisions"].as_u64() >= Some(32)).then(|| {
            assert_eq!(report["differences"], 0, "{report:#}");
            assert_eq!(report["complete"], false, "{report:#}");
        })
    });
    eventually("the block with the last pod is written", || {
        for file in std::fs::read_dir(&dir).expect("a directory") {
            let path = file.expect("a file").path();
            let copy = kept.path().join(path.file_name().expect("a name"));
            std::fs::copy(&path, copy).expect("a file");
        }
        (preview(kept.path(), "1.38")["podsDiffer"] == 1).then_some(())
    });
    assert_eq!(cluster.stop("-INT"), Some(0));
    let report = report(kept.path());
    assert_eq!(report["differences"], 0, "{report:#}");
    previews(kept.path());
}

/// Pods on one node, and one that must run there and spread over the nodes by an empty selector. Until Kubernetes 1.37,
/// the selector counts no other pod.
fn crowded(api: &Api) {
    let node = api.pod("web-0")["spec"]["nodeName"].clone();
    let pinned = json!({"nodeSelector": {"kubernetes.io/hostname": node}});
    for name in ["pinned-0", "pinned-1", "pinned-2"] {
        api.send(&request::create(PODS, "default", &pod(name, "1m", &pinned)));
        api.bound(name);
    }
    let mut spread = pinned;
    spread["topologySpreadConstraints"] = json!([{
        "maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {}, "nodeAffinityPolicy": "Ignore",
    }]);
    api.send(&request::create(
        PODS,
        "default",
        &pod("spread", "1m", &spread),
    ));
    api.bound("spread");
}

/// The preview of a release over a recording.
fn preview(dir: &Path, version: &str) -> Value {
    let output = replay(dir, &["--emulated-version", version, "--output", "json"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// The recording is of 1.36. With 1.38, one pod differs, because of one change.
fn previews(dir: &Path) {
    let same = preview(dir, "1.37");
    assert_eq!(same["podsDiffer"], 0, "{same:#}");
    let other = preview(dir, "1.38");
    assert_eq!(other["podsDiffer"], 1, "{other:#}");
    let differing = &other["pods"][0];
    assert_eq!(differing["pod"], "default/spread", "{other:#}");
    assert_eq!(
        differing["causes"].as_array().map(Vec::len),
        Some(1),
        "{other:#}"
    );
    assert_eq!(
        differing["causes"][0]["name"],
        "EmptySpreadSelectorCountsAllPods"
    );
    assert_eq!(differing["causes"][0]["rule"], "PL-97");
    let shown = text(&replay(dir, &["--emulated-version", "kube=1.38"]));
    for part in [
        "default/spread: on ",
        "; with Kubernetes 1.38 not placed: ",
        "counts all pods of the namespace",
        "1 pods differ between Kubernetes 1.36 and 1.38",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let refused = replay(dir, &["--emulated-version", "1.40"]);
    assert_eq!(refused.status.code(), Some(2), "{}", text(&refused));
    let expected = "emulation version 1.40 is not between [1.36, 1.38.0]";
    assert!(text(&refused).contains(expected), "{}", text(&refused));
}

#[test]
fn what_cannot_be_replayed_is_refused() {
    let scratch = crate::e2e::Scratch::new("record-refused");
    let empty = scratch.path("empty");
    std::fs::create_dir_all(&empty).expect("a directory");
    for (dir, args, expected) in [
        (scratch.path("none"), &[][..], "failed to read"),
        (
            empty.clone(),
            &[][..],
            "contains no recording: files of one are named like 0000000000000-000000.rec",
        ),
        (
            empty,
            &["--until", "noon"][..],
            "must be like 2026-01-31T12:00:00Z, or seconds like 12.5",
        ),
    ] {
        let output = replay(&dir, args);
        assert_eq!(output.status.code(), Some(2), "{}", text(&output));
        assert!(text(&output).contains(expected), "{}", text(&output));
    }
}
