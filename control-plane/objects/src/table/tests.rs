//! The contents of the rows.

use super::*;
use crate::catalog;

fn cells(group: &str, resource: &str, object: &Value) -> Vec<String> {
    let Some(resource) = catalog::find(group, resource) else {
        return Vec::new();
    };
    let now = "2026-01-01T01:00:00Z"
        .parse()
        .unwrap_or(Timestamp::UNIX_EPOCH);
    let columns = columns_of(resource);
    super::cells(&columns, object, now)
        .iter()
        .map(|c| c.as_str().map_or_else(|| c.to_string(), str::to_owned))
        .collect()
}

fn pod(status: Value, more: &Value) -> Value {
    let mut pod = json!({
        "metadata": {"name": "p", "creationTimestamp": "2026-01-01T00:50:00Z"},
        "spec": {"containers": [{"name": "a"}, {"name": "b"}]},
        "status": status,
    });
    for part in ["metadata", "spec"] {
        if let (Some(into), Some(from)) = (
            pod.get_mut(part).and_then(Value::as_object_mut),
            more.get(part).and_then(Value::as_object),
        ) {
            into.extend(from.clone());
        }
    }
    pod
}

/// API-20, case 24: the phase, unless a later status is more specific; the most specific status is last.
#[test]
fn the_status_of_a_pod_is_the_most_specific_one() {
    let is_gated =
        json!([{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]);
    let init = json!({"spec": {"initContainers": [{"name": "i"}, {"name": "s", "restartPolicy": "Always"}]}});
    let deleted = json!({"metadata": {"deletionTimestamp": "2026-01-01T01:00:00Z"}});
    let running = json!({"running": {}});
    let cases = [
        (
            "pending",
            json!({"phase": "Pending"}),
            json!({}),
            ["0/2", "Pending", "0"],
        ),
        (
            "gated",
            json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]}),
            json!({}),
            ["0/2", "SchedulingGated", "0"],
        ),
        (
            "not ready for scheduling",
            json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "reason": "NotReadyForScheduling"}]}),
            json!({}),
            ["0/2", "Pending", "0"],
        ),
        (
            "gated, with a reason",
            json!({"phase": "Pending", "reason": "Held", "conditions": is_gated}),
            json!({}),
            ["0/2", "SchedulingGated", "0"],
        ),
        (
            "a gate's reason in another condition",
            json!({"phase": "Pending", "conditions": [{"type": "Ready", "status": "False", "reason": "SchedulingGated"}]}),
            json!({}),
            ["0/2", "Pending", "0"],
        ),
        (
            "gated, and deleted",
            json!({"phase": "Pending", "conditions": is_gated}),
            deleted.clone(),
            ["0/2", "Terminating", "0"],
        ),
        (
            "its status is gated, and initializing",
            json!({"phase": "Pending", "conditions": is_gated,
                "initContainerStatuses": [{"name": "i", "state": {"waiting": {"reason": "PodInitializing"}}}]}),
            init.clone(),
            ["0/3", "Init:0/2", "0"],
        ),
        (
            "its status is gated, and a container waits",
            json!({"phase": "Pending", "conditions": is_gated,
                "containerStatuses": [{"name": "a", "state": {"waiting": {"reason": "ErrImagePull"}}}]}),
            json!({}),
            ["0/2", "ErrImagePull", "0"],
        ),
        (
            "not schedulable",
            json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}),
            json!({}),
            ["0/2", "Pending", "0"],
        ),
        (
            "evicted",
            json!({"phase": "Failed", "reason": "Evicted"}),
            json!({}),
            ["0/2", "Evicted", "0"],
        ),
        (
            "running, restarted",
            json!({"phase": "Running", "containerStatuses": [
                {"name": "a", "ready": true, "restartCount": 2, "state": running,
                 "lastState": {"terminated": {"finishedAt": "2026-01-01T00:59:00Z"}}},
                {"name": "b", "ready": true, "restartCount": 0, "state": running}]}),
            json!({}),
            ["2/2", "Running", "2 (60s ago)"],
        ),
        (
            "waiting",
            json!({"phase": "Pending", "containerStatuses": [{"name": "a", "state": {"waiting": {"reason": "ImagePullBackOff"}}}]}),
            json!({}),
            ["0/2", "ImagePullBackOff", "0"],
        ),
        (
            "one container completed, the pod not ready",
            json!({"phase": "Running", "containerStatuses": [
                {"name": "a", "state": {"terminated": {"reason": "Completed", "exitCode": 0}}},
                {"name": "b", "ready": true, "state": running}]}),
            json!({}),
            ["1/2", "NotReady", "0"],
        ),
        (
            "killed",
            json!({"phase": "Failed", "containerStatuses": [{"name": "a", "state": {"terminated": {"signal": 9, "exitCode": 137}}}]}),
            json!({}),
            ["0/2", "Signal:9", "0"],
        ),
        (
            "initializing",
            json!({"phase": "Pending", "initContainerStatuses": [{"name": "i", "state": {"waiting": {"reason": "PodInitializing"}}}]}),
            init.clone(),
            ["0/3", "Init:0/2", "0"],
        ),
        (
            "initialization failed",
            json!({"phase": "Pending", "initContainerStatuses": [{"name": "i", "restartCount": 3, "state": {"terminated": {"exitCode": 1}}}]}),
            init.clone(),
            ["0/3", "Init:ExitCode:1", "3"],
        ),
        (
            "sidecar ready",
            json!({"phase": "Running", "initContainerStatuses": [
                {"name": "i", "restartCount": 3, "state": {"terminated": {"exitCode": 0}}},
                {"name": "s", "ready": true, "started": true, "restartCount": 1, "state": running}],
                "containerStatuses": [{"name": "a", "ready": true, "state": running}]}),
            init,
            ["2/3", "Running", "1"],
        ),
        (
            "terminating",
            json!({"phase": "Running"}),
            deleted.clone(),
            ["0/2", "Terminating", "0"],
        ),
        (
            "terminating and over",
            json!({"phase": "Succeeded"}),
            deleted.clone(),
            ["0/2", "Succeeded", "0"],
        ),
        (
            "lost",
            json!({"phase": "Running", "reason": "NodeLost"}),
            deleted,
            ["0/2", "Unknown", "0"],
        ),
    ];
    for (name, status, more, expect) in cases {
        let cells = cells("", "pods", &pod(status, &more));
        assert_eq!(cells[1..4], expect, "{name}");
        assert_eq!(cells[4], "10m", "{name}");
    }
}

#[test]
fn rows_of_other_kinds() {
    let meta = json!({"name": "x", "creationTimestamp": "2026-01-01T00:59:00Z"});
    let cases = [
        (
            "",
            "nodes",
            json!({"metadata": {"name": "n", "creationTimestamp": "2026-01-01T00:59:00Z", "labels": {"node-role.kubernetes.io/worker": "", "kubernetes.io/role": "infra"}},
                "spec": {"unschedulable": true},
                "status": {"conditions": [{"type": "Ready", "status": "False"}], "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
                    "nodeInfo": {"kubeletVersion": "v1", "kernelVersion": "6.1", "architecture": "arm64"}}}),
            vec![
                "n",
                "NotReady,SchedulingDisabled",
                "infra,worker",
                "60s",
                "v1",
                "10.0.0.1",
                "<none>",
                "<unknown>",
                "6.1 (arm64)",
                "<unknown>",
            ],
        ),
        (
            "apps",
            "deployments",
            json!({"metadata": meta, "spec": {"replicas": 3, "selector": {"matchLabels": {"a": "b"}}, "template": {"spec": {"containers": [{"name": "c", "image": "i"}, {"name": "d", "image": "j"}]}}}, "status": {"readyReplicas": 1}}),
            vec!["x", "1/3", "0", "0", "60s", "c,d", "i,j", "a=b"],
        ),
        (
            "",
            "services",
            json!({"metadata": meta, "spec": {"type": "NodePort", "clusterIP": "10.0.0.1", "ports": [{"port": 80, "nodePort": 30000, "protocol": "TCP"}]}}),
            vec![
                "x",
                "NodePort",
                "10.0.0.1",
                "<none>",
                "80:30000/TCP",
                "60s",
                "<none>",
            ],
        ),
        (
            "",
            "events",
            json!({"metadata": meta, "type": "Normal", "reason": "R", "message": "m\n", "involvedObject": {"kind": "Pod", "name": "p"}, "source": {"component": "c"}, "firstTimestamp": "2026-01-01T00:58:00Z", "lastTimestamp": "2026-01-01T00:59:30Z", "count": 4}),
            vec!["30s", "Normal", "R", "pod/p", "", "c", "m", "2m", "4", "x"],
        ),
        (
            "resource.k8s.io",
            "resourceclaims",
            json!({"metadata": meta, "status": {"allocation": {}, "reservedFor": [{}]}}),
            vec!["x", "allocated,reserved", "60s"],
        ),
        (
            "scheduling.k8s.io",
            "priorityclasses",
            json!({"metadata": meta, "value": 5}),
            vec!["x", "5", "false", "60s", "PreemptLowerPriority"],
        ),
        (
            "batch",
            "jobs",
            json!({"metadata": meta, "spec": {"completions": 2}, "status": {"succeeded": 1, "startTime": "2026-01-01T00:59:50Z"}}),
            vec!["x", "Running", "1/2", "10s", "60s", "", "", "<none>"],
        ),
    ];
    for (group, resource, object, expect) in cases {
        assert_eq!(cells(group, resource, &object), expect, "{resource}");
    }
}

#[test]
fn a_finished_pod_states_so_in_its_row() {
    assert_eq!(
        row_conditions(&json!({"status": {"phase": "Succeeded"}})).map(|c| c["reason"].clone()),
        Some(json!("Succeeded"))
    );
    assert_eq!(
        row_conditions(&json!({"status": {"phase": "Running"}})),
        None
    );
}

fn row_conditions(pod: &Value) -> Option<Value> {
    pods::row_condition(pod)
}

#[test]
fn the_cells_of_custom_resources_are_those_of_kube_apiserver() {
    let object = json!({
        "metadata": {"name": "x"},
        "spec": {
            "list": [1, 2], "map": {"b": "<", "a": 1.5}, "large": 12_345_678.5, "half": 2.5, "none": null, "on": true,
            "since": "2026-01-01T00:00:00Z", "soon": "tomorrow", "blank": "",
        },
        "status": {"conditions": [{"type": "Created"}, {"type": "Running"}]},
    });
    let now = "2026-01-01T01:00:00Z"
        .parse()
        .unwrap_or(Timestamp::UNIX_EPOCH);
    for (kind, path, expect) in [
        ("string", ".status.conditions[-1:].type", json!("Running")),
        // One value is printed, the first.
        ("string", ".status.conditions[*].type", json!("Created")),
        ("string", "..type", json!("Created")),
        ("string", ".spec.list", json!("[1,2]")),
        ("string", ".spec.map", json!(r#"{"a":1.5,"b":"\u003c"}"#)),
        ("string", ".spec.large", json!("1.23456785e+07")),
        ("string", ".spec.on", json!("true")),
        ("string", ".spec.none", json!("<no value>")),
        ("string", ".spec.other", json!(null)),
        ("string", ".spec.list[5]", json!(null)),
        ("integer", ".spec.half", json!(2)),
        ("integer", ".spec.on", json!(null)),
        ("number", ".spec.half", json!(2.5)),
        ("boolean", ".spec.on", json!(true)),
        ("date", ".spec.since", json!("60m")),
        ("date", ".spec.soon", json!("<invalid>")),
        ("date", ".spec.blank", json!("<unknown>")),
        ("date", ".spec.list", json!(null)),
    ] {
        let parsed = crate::json_path::JsonPath::parse(path).unwrap_or_else(|| panic!("{path}"));
        let column = json!({"name": "C", "type": kind, "jsonPath": path});
        let cell = TableColumn::custom(&column, parsed).cell(&object, now);
        assert_eq!(cell, expect, "{kind} {path}");
    }
}
