//! Nodes that are drained or deleted, and their pods.

use super::*;

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
    // Each pod is listed once, with its final node.
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
    // Names are separated by commas, too, and a similar name is proposed.
    let report = what_if(&["--from", &dump(1), "--drain", "n1,n2"]).expect("a report");
    assert_eq!(report["drained"], json!(["n1", "n2"]), "{report}");
}

/// Each pod of a deleted node is accounted for, and the numbers before and after add up.
#[test]
fn pods_of_a_deleted_node_are_accounted_for() {
    let scratch = Scratch::new("what-if-account");
    let owned = |name: &str, kind: &str| {
        let mut pod = pod(name, "500m", "n1");
        pod["metadata"]["ownerReferences"][0]["kind"] = kind.into();
        pod
    };
    let mut single = pod("single", "500m", "n1");
    single["metadata"]["ownerReferences"] = json!([]);
    let dump = [
        node("n1"),
        node("n2"),
        pod("fits", "1", "n1"),
        pod("large", "3900m", "n1"),
        owned("agent", "DaemonSet"),
        owned("static", "Node"),
        single,
        pod("other", "1", "n2"),
        pod("waiting", "1", ""),
    ];
    let dump = shown(&scratch.file("dump.json", &list(&dump)));
    let deleted = "apiVersion: v1\nkind: Node\nmetadata: {name: n1, annotations: {berth.dev/what-if: delete}}\n";
    let changes = shown(&scratch.file("changes.yaml", deleted));
    let report = what_if(&["--from", &dump, "-f", &changes]).expect("a report");
    let displaced = report["displaced"].as_array().expect("displaced pods");
    let ends: std::collections::BTreeMap<&str, &str> = displaced
        .iter()
        .filter_map(|pod| Some((pod["pod"].as_str()?, pod["fate"].as_str()?)))
        .collect();
    let expected = [
        ("default/agent", "Lost"),
        ("default/fits", "BoundElsewhere"),
        ("default/large", "Waiting"),
        ("default/single", "Lost"),
        ("default/static", "Lost"),
    ];
    assert_eq!(ends, expected.into(), "{report}");
    let number = |field: &str| report["balance"][field].as_u64().expect("a number");
    assert_eq!(
        number("onNodesBefore") + number("waitingBefore") + number("added"),
        number("onNodesAfter")
            + number("waitingAfter")
            + number("removed")
            + number("lost")
            + number("evicted"),
        "{report}"
    );
    assert_eq!(number("lost"), 3, "{report}");
    assert_eq!(report["after"]["pods"], report["balance"]["onNodesAfter"]);
    assert_eq!(report["before"]["pods"], report["balance"]["onNodesBefore"]);
    // A replacement is not listed as a pending pod that gets a node.
    assert_eq!(
        report["placed"],
        json!([{"pod": "default/waiting", "node": "n2"}]),
        "{report}"
    );
    // The text names each pod.
    let text = Command::new(BINARY)
        .args(["what-if", "--from", &dump, "-f", &changes])
        .output()
        .expect("berth runs");
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    for line in [
        "1 bound elsewhere, 1 waiting, 3 lost (5)",
        "default/fits: n1 -> n2",
        "default/large: n1 -> waits: 0/1 nodes are available",
        "default/single: n1 -> lost: it has no controller that would replace it",
        "pods    7 (6 on nodes, 1 pending) - 3 lost = 4 (3 on nodes, 1 pending)",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
}

/// A drain waits for the end of a pod that is being deleted and that its controller has replaced: nothing is moved, and
/// no pod waits. A pod that PreEnqueue rejects is listed with the reason.
#[test]
fn pods_that_are_being_deleted_are_not_moved() {
    let scratch = Scratch::new("what-if-terminating");
    let mut ending = pod("ending", "1", "n1");
    ending["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    let mut claims = pod("noclaim", "1", "");
    claims["spec"]["resourceClaims"] = json!([{"name": "gpu", "resourceClaimName": "mine"}]);
    let dump = [
        node("n1"),
        node("n2"),
        ending,
        pod("new", "1", "n2"),
        claims,
    ];
    let dump = shown(&scratch.file("dump.json", &list(&dump)));
    let report = what_if(&["--from", &dump, "--drain", "n1"]).expect("a report");
    assert_eq!(report["drained"], json!(["n1"]), "{report:#}");
    assert_eq!(
        (&report["moved"], &report["blocked"]),
        (&json!([]), &json!([])),
        "{report:#}"
    );
    let ended = &report["displaced"][0];
    assert_eq!(
        (&ended["pod"], &ended["fate"]),
        (&json!("default/ending"), &json!("Lost"))
    );
    assert_eq!(
        report["pending"],
        json!([{"pod": "default/noclaim", "reason": "Waiting for resource claim \"mine\" to be present"}]),
        "{report:#}"
    );
}

/// The replacement of a pod gets a new claim and a new volume, and the devices of a deleted pod are free. The claim of the
/// old pod has the spec of an unknown template.
#[test]
fn replacements_get_claims_of_their_own() {
    let scratch = Scratch::new("what-if-drain-claims");
    let spec =
        json!({"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]}});
    let storage = json!({"storageClassName": "disks", "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}}});
    let slice = |node: &str| {
        json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": node, "uid": node},
            "spec": {"driver": "gpu.example.com", "nodeName": node, "devices": [{"name": "gpu-0"}],
                "pool": {"name": node, "generation": 1, "resourceSliceCount": 1}}})
    };
    let with_claims = |mut pod: Value| {
        pod["spec"]["resourceClaims"] =
            json!([{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}]);
        pod["spec"]["volumes"] =
            json!([{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": storage}}}]);
        pod
    };
    let mut running = with_claims(pod("a", "1", "n1"));
    running["status"]["resourceClaimStatuses"] =
        json!([{"name": "gpu", "resourceClaimName": "a-gpu-x7"}]);
    let owner =
        json!([{"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "a", "controller": true}]);
    let objects = [
        node("n1"),
        node("n2"),
        slice("n1"),
        slice("n2"),
        json!({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "gpu", "uid": "class"},
            "spec": {}}),
        json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "disks", "uid": "disks"},
            "provisioner": "example.com/disks", "volumeBindingMode": "WaitForFirstConsumer"}),
        running,
        json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
            "metadata": {"name": "a-gpu-x7", "namespace": "default", "uid": "claim", "ownerReferences": owner},
            "spec": spec,
            "status": {"reservedFor": [{"resource": "pods", "name": "a", "uid": "a"}],
                "allocation": {"devices": {"results":
                    [{"request": "gpu", "driver": "gpu.example.com", "pool": "n1", "device": "gpu-0"}]}}}}),
        json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": "a-scratch", "namespace": "default", "uid": "pvc", "ownerReferences": owner,
                "annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
            "spec": {"storageClassName": "disks", "accessModes": ["ReadWriteOnce"], "volumeName": "pv",
                "resources": {"requests": {"storage": "1Gi"}}},
            "status": {"phase": "Bound"}}),
        json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "pv", "uid": "pv"},
            "spec": {"storageClassName": "disks", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"},
                "claimRef": {"namespace": "default", "name": "a-scratch", "uid": "pvc"},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchFields":
                    [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]}}}}),
    ];
    let dump = shown(&scratch.file("dump.json", &list(&objects)));
    let deletion = |of: Value| {
        let mut deletion = of;
        deletion["metadata"] = json!({"name": deletion["metadata"]["name"], "namespace": deletion["metadata"]["namespace"],
            "annotations": {"berth.dev/what-if": "delete"}});
        deletion
    };
    let node_deleted = deletion(node("n1"));
    let node_deleted = shown(&scratch.file("node.json", &node_deleted.to_string()));
    for (flag, value) in [("--drain", "n1"), ("-f", node_deleted.as_str())] {
        let report = what_if(&["--from", &dump, flag, value]).expect("a report");
        let displaced = &report["displaced"][0];
        let end = (&displaced["fate"], &displaced["node"]);
        assert_eq!(end, (&json!("BoundElsewhere"), &json!("n2")), "{report:#}");
        let balance = &report["balance"];
        assert_eq!(balance["onNodesAfter"], 1, "{report:#}");
        assert_eq!(balance["removed"].as_u64().unwrap_or(0), 0, "{report:#}");
    }
    let report = what_if(&["--from", &dump, "--consolidate"]).expect("a report");
    let drained = report["drained"].as_array().map(Vec::len);
    assert_eq!(drained, Some(1), "{report:#}");
    // Both devices are free for the pods that are added.
    let new = ["b", "c"].map(|name| {
        let mut new = with_claims(pod(name, "1", ""));
        let spec = new["spec"].as_object_mut().expect("a spec");
        spec.remove("nodeName");
        new
    });
    let changes = [&new[..], &[deletion(pod("a", "1", ""))]].concat();
    let changes = shown(&scratch.file("changes.json", &list(&changes)));
    let report = what_if(&["--from", &dump, "-f", &changes]).expect("a report");
    let placed = report["placed"].as_array().map(Vec::len);
    assert_eq!(placed, Some(2), "{report:#}");
    assert_eq!(report["balance"]["onNodesAfter"], 2, "{report:#}");
}
