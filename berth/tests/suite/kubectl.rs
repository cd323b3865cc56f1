//! Drives `berth up` with the real kubectl through the commands of the README. Without kubectl the tests are skipped;
//! with `BERTH_REQUIRE_KUBECTL=1` they fail.

mod deferred_quotas;
mod everyday;
mod groups;

use crate::e2e::{Cluster, Kubectl, eventually};
use std::collections::BTreeMap;

/// The example that README uses: a pod with two gates.
const GATED: &str = include_str!("../../../examples/gated-pod.yaml");

fn pod_status(kubectl: &Kubectl, pod: &str) -> String {
    let row = kubectl.ok(&["get", "pod", pod, "--no-headers"]);
    row.split_whitespace().nth(2).unwrap_or_default().to_owned()
}

#[test]
fn a_deployment_runs_spread_over_the_nodes_and_is_scaled_and_deleted() {
    let cluster = Cluster::up("kubectl-deployment", &["--nodes", "10"]);
    let Some(kubectl) = Kubectl::find(&cluster) else {
        return;
    };
    kubectl.ok(&[
        "wait",
        "--for=condition=Ready",
        "node",
        "--all",
        "--timeout=60s",
    ]);
    assert_eq!(
        kubectl
            .ok(&["get", "nodes", "--no-headers"])
            .lines()
            .count(),
        10
    );

    kubectl.ok(&[
        "create",
        "deployment",
        "web",
        "--image=registry.example/web:1",
        "--replicas=30",
    ]);
    kubectl.ok(&["rollout", "status", "deployment/web", "--timeout=60s"]);
    let pods = kubectl.ok(&["get", "pods", "-o", "wide", "--no-headers"]);
    let mut by_node: BTreeMap<&str, usize> = BTreeMap::new();
    for row in pods.lines() {
        let columns: Vec<&str> = row.split_whitespace().collect();
        assert_eq!(columns[2], "Running", "{row}");
        *by_node.entry(columns[6]).or_default() += 1;
    }
    assert_eq!(by_node.values().sum::<usize>(), 30);
    assert_eq!(by_node.len(), 10, "every node has some: {by_node:?}");

    kubectl.ok(&["scale", "deployment/web", "--replicas=5"]);
    kubectl.ok(&["rollout", "status", "deployment/web", "--timeout=60s"]);
    eventually("five pods are left", || {
        (kubectl.ok(&["get", "pods", "--no-headers"]).lines().count() == 5).then_some(())
    });
    kubectl.ok(&[
        "set",
        "image",
        "deployment/web",
        "web=registry.example/web:2",
    ]);
    kubectl.ok(&["rollout", "status", "deployment/web", "--timeout=60s"]);
    eventually("only the new image runs", || {
        let images = kubectl.ok(&[
            "get",
            "pods",
            "-o",
            "jsonpath={.items[*].spec.containers[*].image}",
        ]);
        (images.split_whitespace().all(|i| i.ends_with(":2"))
            && images.split_whitespace().count() == 5)
            .then_some(())
    });
    kubectl.ok(&["delete", "deployment", "web", "--timeout=60s"]);
    eventually("the pods go with their deployment", || {
        kubectl
            .ok(&["get", "pods", "--no-headers"])
            .is_empty()
            .then_some(())
    });
}

#[test]
fn gates_hold_a_pod_until_the_last_is_removed_by_patch_edit_or_apply() {
    let cluster = Cluster::up("kubectl-gates", &["--nodes", "2"]);
    let Some(kubectl) = Kubectl::find(&cluster) else {
        return;
    };
    let manifest = cluster.scratch.file("gated.yaml", GATED);
    for way in ["patch", "edit", "apply"] {
        kubectl.apply(&manifest);
        assert_eq!(
            pod_status(&kubectl, "gated-pod"),
            "SchedulingGated",
            "{way}"
        );
        // The second gate first: any order will do.
        kubectl.ok(&[
            "patch",
            "pod",
            "gated-pod",
            "--type=json",
            "-p",
            r#"[{"op":"remove","path":"/spec/schedulingGates/1"}]"#,
        ]);
        assert_eq!(
            pod_status(&kubectl, "gated-pod"),
            "SchedulingGated",
            "{way}"
        );
        match way {
            "patch" => {
                kubectl.ok(&[
                    "patch",
                    "pod",
                    "gated-pod",
                    "-p",
                    r#"{"spec":{"schedulingGates":[{"$patch":"delete","name":"example.com/quota"}]}}"#,
                ]);
            }
            "edit" => {
                let edited = kubectl
                    .command(&["edit", "pod", "gated-pod"])
                    .env(
                        "KUBE_EDITOR",
                        "sed -i -e /schedulingGates:/d -e '/- name: example.com\\/quota/d'",
                    )
                    .output()
                    .expect("kubectl runs");
                assert!(
                    edited.status.success(),
                    "{}",
                    String::from_utf8_lossy(&edited.stderr)
                );
            }
            _ => {
                let open = GATED
                    .lines()
                    .filter(|line| {
                        !line.contains("schedulingGates") && !line.contains("example.com")
                    })
                    .collect::<Vec<_>>()
                    .join("\n");
                kubectl.apply(&cluster.scratch.file("open.yaml", &open));
            }
        }
        kubectl.ok(&[
            "wait",
            "--for=condition=Ready",
            "pod/gated-pod",
            "--timeout=60s",
        ]);
        assert_eq!(pod_status(&kubectl, "gated-pod"), "Running", "{way}");
        let events = kubectl.ok(&["describe", "pod", "gated-pod"]);
        assert!(events.contains("Scheduled"), "{way}: {events}");
        assert!(
            events.contains("Successfully assigned default/gated-pod to"),
            "{way}: {events}"
        );
        assert!(
            !events.contains("FailedScheduling"),
            "{way}: a gated pod is never tried: {events}"
        );
        kubectl.ok(&["delete", "pod", "gated-pod", "--timeout=60s"]);
    }
}

#[test]
fn a_pod_that_does_not_fit_states_why_and_runs_once_something_changes() {
    let cluster = Cluster::up("kubectl-why", &["--nodes", "3"]);
    let Some(kubectl) = Kubectl::find(&cluster) else {
        return;
    };
    let pod = |name: &str, extra: &str| {
        let text = format!(
            "apiVersion: v1\nkind: Pod\nmetadata:\n  name: {name}\nspec:\n  containers:\n  - name: c\n    image: registry.example/c:1\n{extra}"
        );
        kubectl.apply(&cluster.scratch.file(&format!("{name}.yaml"), &text));
    };
    let why = |name: &str| {
        eventually("the pod states why it waits", || {
            let message = kubectl.ok(&[
                "get",
                "pod",
                name,
                "-o",
                "jsonpath={.status.conditions[?(@.type=='PodScheduled')].message}",
            ]);
            (!message.is_empty()).then_some(message)
        })
    };

    pod("huge", "    resources: {requests: {cpu: 1k}}\n");
    let message = why("huge");
    assert!(
        message.starts_with("0/3 nodes are available: 3 Insufficient cpu."),
        "{message}"
    );
    eventually("the event is there", || {
        let described = kubectl.ok(&["describe", "pod", "huge"]);
        (described.contains("FailedScheduling") && described.contains(&message)).then_some(())
    });

    pod("choosy", "  nodeSelector: {disk: fast}\n");
    let message = why("choosy");
    assert!(
        message.starts_with(
            "0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector."
        ),
        "{message}"
    );
    let nodes = kubectl.ok(&["get", "nodes", "-o", "jsonpath={.items[*].metadata.name}"]);
    let nodes: Vec<&str> = nodes.split_whitespace().collect();
    kubectl.ok(&["label", "node", nodes[1], "disk=fast"]);
    kubectl.ok(&[
        "wait",
        "--for=condition=Ready",
        "pod/choosy",
        "--timeout=60s",
    ]);

    kubectl.ok(&["cordon", nodes[0]]);
    kubectl.ok(&[
        "taint",
        "node",
        nodes[1],
        nodes[2],
        "dedicated=batch:NoSchedule",
    ]);
    pod("kept-out", "");
    let message = why("kept-out");
    // The cordoned node carries the taint of its cordon, too.
    assert!(
        message.contains("2 node(s) had untolerated taint(s)"),
        "{message}"
    );
    assert!(
        message.contains("1 node(s) were unschedulable"),
        "{message}"
    );
    kubectl.ok(&["uncordon", nodes[0]]);
    kubectl.ok(&[
        "wait",
        "--for=condition=Ready",
        "pod/kept-out",
        "--timeout=60s",
    ]);
    assert_eq!(
        kubectl.ok(&["get", "pod", "kept-out", "-o", "jsonpath={.spec.nodeName}"]),
        nodes[0]
    );
    kubectl.ok(&["taint", "node", nodes[1], nodes[2], "dedicated-"]);
}

#[test]
fn what_is_removed_from_a_manifest_is_gone_after_apply() {
    let cluster = Cluster::up("kubectl-apply", &["--nodes", "1"]);
    let Some(kubectl) = Kubectl::find(&cluster) else {
        return;
    };
    let deployment = |env: &str| {
        format!(
            "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: app}}\nspec:\n  replicas: 1\n  selector: {{matchLabels: {{app: app}}}}\n  template:\n    metadata: {{labels: {{app: app}}}}\n    spec:\n      containers:\n      - name: app\n        image: registry.example/app:1\n        env:\n        - {{name: KEEP, value: 'yes'}}\n{env}"
        )
    };
    let names = || {
        kubectl.ok(&[
            "get",
            "deployment",
            "app",
            "-o",
            "jsonpath={.spec.template.spec.containers[0].env[*].name}",
        ])
    };
    kubectl.apply(&cluster.scratch.file(
        "app.yaml",
        &deployment("        - {name: DROP, value: 'no'}\n"),
    ));
    assert_eq!(names(), "KEEP DROP");
    kubectl.apply(&cluster.scratch.file("app.yaml", &deployment("")));
    assert_eq!(
        names(),
        "KEEP",
        "an env entry that left the manifest is gone"
    );

    kubectl.apply(&cluster.scratch.file("gated.yaml", GATED));
    let fewer = GATED.replace("    - name: example.com/image\n", "");
    kubectl.apply(&cluster.scratch.file("gated.yaml", &fewer));
    let gates = kubectl.ok(&[
        "get",
        "pod",
        "gated-pod",
        "-o",
        "jsonpath={.spec.schedulingGates[*].name}",
    ]);
    assert_eq!(
        gates, "example.com/quota",
        "a gate that left the manifest is gone"
    );
}

#[test]
fn watches_typing_errors_and_namespaces_behave_as_in_any_cluster() {
    let cluster = Cluster::up("kubectl-everyday", &["--nodes", "2"]);
    let Some(kubectl) = Kubectl::find(&cluster) else {
        return;
    };
    kubectl.ok(&["create", "namespace", "team"]);
    kubectl.ok(&[
        "create",
        "configmap",
        "settings",
        "--from-literal=a=b",
        "-n",
        "team",
    ]);
    kubectl.ok(&[
        "create",
        "deployment",
        "web",
        "--image=registry.example/web:1",
        "-n",
        "team",
    ]);
    kubectl.ok(&[
        "rollout",
        "status",
        "deployment/web",
        "-n",
        "team",
        "--timeout=60s",
    ]);
    let watched = kubectl
        .command(&["get", "pods", "-n", "team", "-w", "--request-timeout=2s"])
        .output()
        .expect("kubectl runs");
    let watched = String::from_utf8_lossy(&watched.stdout).into_owned();
    assert!(watched.starts_with("NAME"), "{watched}");
    assert!(watched.contains("Running"), "{watched}");
    let events = kubectl.ok(&["get", "events", "-n", "team"]);
    assert!(
        events.contains("ScalingReplicaSet") && events.contains("Scheduled"),
        "{events}"
    );
    let refused = kubectl.fails(&["create", "namespace", "team"]);
    assert!(refused.contains("AlreadyExists"), "{refused}");
    let unknown = cluster.scratch.file(
        "typo.yaml",
        "apiVersion: v1\nkind: Pod\nmetadata: {name: typo}\nspec:\n  contianers: []\n  containers: [{name: c, image: i}]\n",
    );
    let refused = kubectl.fails(&["create", "-f", &unknown.display().to_string()]);
    assert!(
        refused.contains("unknown field \"spec.contianers\""),
        "{refused}"
    );
    kubectl.ok(&["delete", "namespace", "team", "--timeout=60s"]);
    let refused = kubectl.fails(&["get", "namespace", "team"]);
    assert!(refused.contains("NotFound"), "{refused}");
    assert_eq!(
        kubectl.json(&["get", "pods", "-A"])["items"]
            .as_array()
            .map(Vec::len),
        Some(0)
    );
}
