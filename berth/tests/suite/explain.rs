//! `berth explain` as docs/use/explain.md and docs/use/explain-cases.md show it, and further answers.

use crate::BINARY;
use crate::e2e::{Cluster, eventually};
use crate::typed::{self, TypedPage};
use std::process::Command;

/// The situations of docs/use/explain.md.
const SITUATIONS: [&str; 3] = ["Insufficient CPU", "A scheduling gate", "Devices"];

/// The situations of docs/use/explain-cases.md.
const CASES: [&str; 10] = [
    "A taint",
    "Node affinity",
    "Topology spread",
    "A host port",
    "An unbound claim",
    "A missing claim",
    "A PreEnqueue plugin",
    "A disruption budget",
    "Preemption under way",
    "Backoff",
];

#[test]
fn the_commands_of_the_page_print_what_it_shows() {
    typed::check(&TypedPage {
        name: "explain",
        file: "use/explain.md",
        args: &["--nodes", "3", "--gpus-per-node", "2"],
        situations: &SITUATIONS,
    });
}

#[test]
fn the_commands_of_the_page_of_cases_print_what_it_shows() {
    let gates = "SchedulerPopFromBackoffQ=false";
    typed::check(&TypedPage {
        name: "explain-cases",
        file: "use/explain-cases.md",
        args: &["--nodes", "3", "--feature-gates", gates],
        situations: &CASES,
    });
}

/// The situations of docs/use/deferred-quota.md.
const QUOTAS: [&str; 4] = [
    "Pods wait",
    "The reason",
    "What frees a pod",
    "Room is made",
];

#[test]
fn the_commands_of_the_page_of_deferred_quotas_print_what_it_shows() {
    typed::check(&TypedPage {
        name: "deferred-quota",
        file: "use/deferred-quota.md",
        args: &["--nodes", "3"],
        situations: &QUOTAS,
    });
}

#[test]
fn the_commands_of_the_page_of_kubelet_rejections_print_what_it_shows() {
    typed::check(&TypedPage {
        name: "kubelet-rejections",
        file: "use/kubelet-rejections.md",
        args: &["--nodes", "2"],
        situations: &["A node is excluded", "Another node"],
    });
}

#[test]
fn the_commands_of_the_page_of_estimated_starts_print_what_it_shows() {
    typed::check(&TypedPage {
        name: "estimated-start",
        file: "use/estimated-start.md",
        args: &["--nodes", "1"],
        situations: &["Run times", "Not known"],
    });
}

/// A bound pod, a node and the queue are explained, in every format, and unknown facts are named.
#[test]
fn bound_pods_nodes_and_the_queue_are_explained() {
    let cluster = Cluster::up("explain-bound", &["--nodes", "2"]);
    let api = crate::e2e::Api::of(&cluster);
    api.create_pod("web-1", &serde_json::json!({"app": "web"}));
    api.bound("web-1");
    let kubeconfig = cluster.kubeconfig().display().to_string();
    let berth = |args: &[&str]| {
        let output = Command::new(BINARY)
            .arg("explain")
            .args(args)
            .args(["--kubeconfig", &kubeconfig])
            .output()
            .expect("berth runs");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (
            output.status.code(),
            text(&output.stdout),
            text(&output.stderr),
        )
    };
    let answer = eventually("the pod is bound for the scheduler", || {
        let (_, json, _) = berth(&["pod", "web-1", "--output", "json"]);
        let answer: serde_json::Value = serde_json::from_str(&json).ok()?;
        (answer["state"] == "Bound").then_some(answer)
    });
    let table = &answer["decision"];
    assert_eq!(table["feasible"], 2, "{answer}");
    assert_eq!(table["nodes"][0]["node"], answer["node"], "{answer}");
    let (code, text, _) = berth(&["pod", "default/web-1"]);
    assert_eq!(code, Some(0));
    assert!(
        text.contains("(chosen)") && text.contains("NodeResourcesFit"),
        "{text}"
    );
    let node = answer["node"].as_str().expect("a node").to_owned();
    let (code, yaml, _) = berth(&["node", &node, "-o", "yaml"]);
    assert_eq!(code, Some(0));
    assert!(yaml.contains("podCount: 1"), "{yaml}");
    let (code, text, _) = berth(&["queue"]);
    assert_eq!(code, Some(0));
    assert!(text.contains("0 pods wait"), "{text}");
    let gated = serde_json::json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "gated"},
        "spec": {"schedulingGates": [{"name": "example.com/gate"}], "containers": [{"name": "c", "image": "i"}]},
    });
    api.send(&berth_client::request::create(
        berth_client::request::PODS,
        "default",
        &gated,
    ));
    eventually(
        "the queue has the pod, by a name that can be asked about",
        || {
            let (_, text, _) = berth(&["queue"]);
            text.contains("default/gated").then_some(())
        },
    );
    for (args, named) in [
        (
            ["pod", "no-such-pod"],
            "there is no pod no-such-pod in namespace default",
        ),
        (["node", "no-such-node"], "there is no node no-such-node"),
    ] {
        let (code, _, error) = berth(&args);
        assert_eq!(code, Some(2), "{error}");
        assert!(error.contains(named), "{error}");
    }
    // Only loopback addresses are answered: not a page in a browser that has another name for the port.
    let response = cluster.http_get("/explain/queue");
    assert!(response.starts_with("HTTP/1.1 200"), "{response}");
}
