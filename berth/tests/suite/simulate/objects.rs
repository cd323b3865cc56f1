//! `berth simulate` with the objects of a cluster: CapacityBuffers, devices, classes, and the objects of controllers.

use super::{berth, refused, shown, simulated};
use crate::e2e::Scratch;
use serde_json::json;
use std::collections::BTreeMap;

/// A buffer of half of the replicas of a Deployment, a buffer without its template, and a waiting pod.
const WITH_BUFFERS: &str = "\
apiVersion: v1
kind: List
items:
- apiVersion: apps/v1
  kind: Deployment
  metadata: {name: web}
  spec:
    replicas: 4
    template:
      metadata: {labels: {app: web}}
      spec: {containers: [{name: c, image: i, resources: {requests: {cpu: '1'}}}]}
- apiVersion: v1
  kind: Pod
  metadata: {name: web-1, namespace: default}
  spec: {containers: [{name: c, image: i, resources: {requests: {cpu: '1'}}}]}
- apiVersion: autoscaling.x-k8s.io/v1beta1
  kind: CapacityBuffer
  metadata: {name: headroom, namespace: default}
  spec: {scalableRef: {apiGroup: apps, kind: Deployment, name: web}, percentage: 50}
- apiVersion: autoscaling.x-k8s.io/v1beta1
  kind: CapacityBuffer
  metadata: {name: empty, namespace: default}
  spec: {podTemplateRef: {name: missing}, replicas: 1}
";

#[test]
fn buffers_of_a_cluster_keep_nodes_of_a_group() {
    let scratch = Scratch::new("simulate-buffers");
    let objects = shown(&scratch.file("objects.yaml", WITH_BUFFERS));
    let group = "nodeGroups:\n- {name: pool, resources: {cpu: 1}, maximum: 2, idle: 5m}\n";
    let group = shown(&scratch.file("group.yaml", group));
    let report = simulated(&[&objects, &group]);
    let run = &report["runs"][0];
    // One of two nodes has the pod, which does not end, and the other stays for a chunk.
    assert_eq!(run["summary"]["nodesRemoved"], 0, "{}", run["summary"]);
    let buffers = run["buffers"].as_array().expect("a list");
    let [buffer] = &buffers[..] else {
        panic!("{buffers:?}");
    };
    assert_eq!(
        (&buffer["name"], &buffer["chunks"]),
        (&json!("headroom"), &json!(2))
    );
    // Both chunks have room only until the pod is bound.
    assert_eq!(buffer["roomEnd"], 1, "{buffer}");
    let share = buffer["allRoomShare"].as_f64();
    assert!(share.is_some_and(|share| share < 0.05), "{buffer}");
    let notes = run["notes"].to_string();
    let expected =
        "CapacityBuffer default/empty keeps no room: there is no PodTemplate default/missing";
    assert!(
        notes.contains(expected) && !notes.contains("left out"),
        "{notes}"
    );
    let output = berth(&["simulate", &objects, &group]);
    let table = String::from_utf8_lossy(&output.stdout).into_owned();
    let row = table
        .lines()
        .find(|line| line.starts_with("default/headroom"));
    assert!(
        row.is_some_and(|row| row.contains("% of the time")),
        "{table}"
    );
    // In a comparison, each buffer has a row.
    let output = berth(&["simulate", &objects, &group, "--seeds", "2"]);
    let table = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        table.contains("default/headroom, all chunks with room"),
        "{table}"
    );
}

/// A pod of a ReplicaSet on a node, with a DaemonSet, its pod, and the objects of claims for one device.
const OF_CONTROLLERS: &str = "\
apiVersion: v1
kind: Pod
metadata:
  {name: web-0, namespace: default, uid: w, labels: {app: web}, ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: web, uid: r, controller: true}]}
spec: {nodeName: old, terminationGracePeriodSeconds: 5, containers: [{name: c, image: i, resources: {requests: {cpu: '1'}}}]}
status: {phase: Running}
---
apiVersion: v1
kind: Pod
metadata:
  {name: agent-x, namespace: ops, uid: a, ownerReferences: [{apiVersion: apps/v1, kind: DaemonSet, name: agent, uid: d, controller: true}]}
spec: {nodeName: old, containers: [{name: c, image: i, resources: {requests: {cpu: '1'}}}]}
status: {phase: Running}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent, namespace: ops}
spec:
  selector: {matchLabels: {app: agent}}
  template:
    metadata: {labels: {app: agent}}
    spec: {containers: [{name: c, image: i, resources: {requests: {cpu: '1'}}}]}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web, namespace: default}
spec: {BOUND, selector: {matchLabels: {app: web}}}
---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu}
spec: {}
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: s}
spec: {driver: gpu.example.com, nodeName: new, pool: {name: new, generation: 1, resourceSliceCount: 1}, devices: [{name: g0}]}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: one-gpu, namespace: default}
spec: {spec: {devices: {requests: [{name: r, exactly: {deviceClassName: gpu}}]}}}
";

/// A node group with two devices on each node, and pods with a claim for one each.
const WITH_DEVICES: &str = "\
nodeGroups:
- name: gpus
  resources: {cpu: 16, memory: 64Gi}
  resourceSlices:
  - driver: gpu.example.com
    devices:
    - {name: gpu-0, attributes: {model: {string: a100}}, capacity: {memory: {value: 40Gi}}}
    - {name: gpu-1, attributes: {model: {string: a100}}, capacity: {memory: {value: 40Gi}}}
  maximum: 4
  boot: 90s
  idle: 10m
pods:
- {name: train, namespace: default, count: 5, duration: 1h, template: gpu.yaml}
";

/// What a claim for a device of a model is about.
const CLAIMS_FOR_DEVICES: &str = "\
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu}
spec: {selectors: [{cel: {expression: 'device.driver == \"gpu.example.com\"'}}]}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: one-gpu, namespace: default}
spec:
  spec:
    devices:
      requests:
      - name: gpu
        exactly:
          deviceClassName: gpu
          selectors: [{cel: {expression: 'device.attributes[\"gpu.example.com\"].model == \"MODEL\"'}}]
";

/// Pods with claims cause as many nodes as their devices need, and none if no device matches.
#[test]
fn node_groups_offer_devices() {
    let scratch = Scratch::new("simulate-devices");
    scratch.file("gpu.yaml", WITH_CLAIM);
    let trace = shown(&scratch.file("trace.yaml", WITH_DEVICES));
    for (model, nodes, finished) in [("a100", 3, 5), ("h100", 0, 0)] {
        let objects = CLAIMS_FOR_DEVICES.replace("MODEL", model);
        let objects = shown(&scratch.file("objects.yaml", &objects));
        let report = simulated(&[&objects, &trace]);
        let summary = &report["runs"][0]["summary"];
        assert_eq!(summary["nodesAdded"], nodes, "{model}: {summary}");
        assert_eq!(summary["nodesRemoved"], nodes, "{model}: {summary}");
        assert_eq!(summary["finished"], finished, "{model}: {summary}");
    }
}

/// The chunks of a buffer have claims and volumes like pods: a node for two chunks with a device each, no node without a
/// device or a provisioner. The pods that arrive use the devices.
#[test]
fn chunks_of_buffers_have_claims_and_volumes() {
    let scratch = Scratch::new("simulate-chunks");
    let volume = "  volumes: [{name: scratch, ephemeral: {volumeClaimTemplate: {spec: {storageClassName: disks, accessModes: \
                  [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}}}]\n";
    scratch.file("gpu.yaml", &format!("{WITH_CLAIM}{volume}"));
    let group = WITH_DEVICES.split("pods:").next().unwrap_or_default();
    let trace = format!(
        "{group}capacityBuffers:\n- {{name: room, replicas: 4, template: gpu.yaml}}\npods:\n- {{name: train, arrival: 10m, \
         duration: 1h, template: gpu.yaml}}\n"
    );
    let trace = shown(&scratch.file("trace.yaml", &trace));
    for (model, provisioner, nodes) in [
        ("a100", "example.com/disks", 2),
        ("h100", "example.com/disks", 0),
        ("a100", "", 0),
    ] {
        let mut objects = CLAIMS_FOR_DEVICES.replace("MODEL", model);
        if !provisioner.is_empty() {
            objects += &format!(
                "---\napiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {{name: disks}}\nprovisioner: \
                 {provisioner}\nvolumeBindingMode: WaitForFirstConsumer\n"
            );
        }
        let objects = shown(&scratch.file("objects.yaml", &objects));
        let report = simulated(&[&objects, &trace, "--until", "9m"]);
        let run = &report["runs"][0];
        let added = &run["summary"]["nodesAdded"];
        assert_eq!(*added, nodes, "{model} {provisioner}: {run:#}");
        assert_eq!(run["buffers"][0]["roomEnd"], nodes * 2, "{run:#}");
        // A pod takes a device, and a third node restores the room.
        let report = simulated(&[&objects, &trace, "--until", "30m"]);
        let run = &report["runs"][0];
        let expected = if nodes == 0 { (0, 0) } else { (3, 4) };
        let found = (&run["summary"]["nodesAdded"], &run["buffers"][0]["roomEnd"]);
        assert_eq!(found, (&json!(expected.0), &json!(expected.1)), "{run:#}");
    }
}

/// The template of a pod with a claim for a device.
const WITH_CLAIM: &str = "\
apiVersion: v1
kind: Pod
spec:
  containers: [{name: c, image: i, resources: {requests: {cpu: 100m}}}]
  resourceClaims: [{name: gpu, resourceClaimTemplateName: one-gpu}]
";

/// Two nodes of which the first is drained, and pods for the second.
const AROUND_THE_OBJECTS: &str = "\
nodes:
- {name: old, resources: {cpu: 2}, outages: [{at: 1m, drain: true}]}
- {name: new, resources: {cpu: 4}}
pods:
- {name: gpu, count: 2, duration: 60s, template: gpu.yaml}
- {name: large, requests: {cpu: 3500m}}
";

/// Documents as the list `objects` of a trace.
fn listed(documents: &str) -> String {
    let item = |document: &str| {
        let lines = document.trim().lines();
        let lines: Vec<String> = lines.map(|line| format!("  {line}\n")).collect();
        lines.concat().replacen("  ", "- ", 1)
    };
    let items: Vec<String> = documents.split("---\n").map(item).collect();
    format!("objects:\n{}", items.concat())
}

/// A trace has objects in a list of its own, with the same result as in a further file. Mistakes have the line and the
/// column of the object.
#[test]
fn objects_are_a_part_of_a_trace() {
    let scratch = Scratch::new("simulate-objects");
    scratch.file("gpu.yaml", WITH_CLAIM);
    let trace = shown(&scratch.file("trace.yaml", AROUND_THE_OBJECTS));
    let objects = OF_CONTROLLERS.replace("BOUND", "maxUnavailable: 1");
    let beside = shown(&scratch.file("objects.yaml", &objects));
    let both = format!("{AROUND_THE_OBJECTS}{}", listed(&objects));
    let both = shown(&scratch.file("both.yaml", &both));
    let pods = |args: &[&str]| simulated(args)["runs"][0]["pods"].clone();
    assert_eq!(pods(&[&both]), pods(&[&trace, &beside]));
    // As JSON.
    let class = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}});
    let json = json!({"pods": [{"name": "a", "requests": {"cpu": 1}}], "objects": [class]});
    let json = shown(&scratch.file("trace.json", &json.to_string()));
    let report = simulated(&[&json, "--nodes", "1"]);
    assert_eq!(report["runs"][0]["summary"]["bound"], 1);
    for (object, wanted) in [
        (
            "- kind: Namespace\n",
            "line 5, column 3: apiVersion or kind is missing; give objects as kubectl get -o yaml prints them",
        ),
        (
            "- {apiVersion: v1, kind: Namespace, metadata: {name: a}}\n- apiVersion: policy/v1\n  kind: PodDisruptionBudget\n  \
             metadata: {name: a, namespace: b}\n  spec: {minAvailable: many}\n",
            "line 6, column 3: spec.minAvailable is \"many\"; write a number of pods or a percentage such as 50%",
        ),
        (
            "- {apiVersion: storage.k8s.io/v1, kind: StorageClass}\n",
            "line 5, column 3: metadata.name is missing",
        ),
        (
            "- {apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: a}, provisioner: [b]}\n",
            "line 5, column 3: failed to decode StorageClass a",
        ),
        (
            "- {apiVersion: v1, kind: Pod, metadata: {name: a, namespace: default}, spec: {containers: [{name: c}]}}\n",
            "two pods of the trace have the name default/a; give each a name of its own",
        ),
    ] {
        let trace = format!(
            "nodes: [{{name: n, resources: {{cpu: 4}}}}]\npods:\n- name: a\nobjects:\n{object}"
        );
        let trace = shown(&scratch.file("wrong.yaml", &trace));
        let error = refused(&[&trace]);
        assert!(error.contains(wanted), "{object}: {error}");
    }
}

/// The ephemeral volume of a template needs a class with a provisioner.
#[test]
fn ephemeral_volumes_are_provisioned() {
    let scratch = Scratch::new("simulate-ephemeral");
    let pod = |template: &str| {
        let pod = format!(
            "kind: Pod\nspec:\n  containers: [{{name: c, image: i}}]\n  volumes: [{{name: scratch, ephemeral: {{volumeClaimTemplate: \
             {template}}}}}]\n"
        );
        scratch.file("pod.yaml", &pod);
    };
    let trace = "\
nodes: [{name: n, resources: {cpu: 4}}]
pods: [{name: a, count: 2, duration: 60s, template: pod.yaml}]
objects:
- {apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: disks}, provisioner: example.com/disks, volumeBindingMode: WaitForFirstConsumer}
";
    let trace = shown(&scratch.file("trace.yaml", trace));
    for (class, finished) in [("disks", 2), ("absent", 0)] {
        pod(&format!(
            "{{spec: {{storageClassName: {class}, accessModes: [ReadWriteOnce], resources: {{requests: {{storage: 1Gi}}}}}}}}"
        ));
        let report = simulated(&[&trace]);
        let summary = &report["runs"][0]["summary"];
        assert_eq!(summary["finished"], finished, "{class}: {summary}");
    }
    pod("{spec: {accessModes: all}}");
    let error = refused(&[&trace]);
    let wanted = "failed to decode spec.volumes[0].ephemeral.volumeClaimTemplate";
    assert!(
        error.contains("line 2, column") && error.contains(wanted),
        "{error}"
    );
}

/// The pod of a class preempts the pod of a lower class; pods without a class have the default one. An unknown class is
/// refused as by the API server.
#[test]
fn pods_have_the_priority_of_their_class() {
    let scratch = Scratch::new("simulate-classes");
    let classes = "\
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: high}
value: 100
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: waiting}
value: 200
preemptionPolicy: Never
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: usual}
value: 7
globalDefault: true
";
    scratch.file(
        "waiting.yaml",
        "kind: Pod\nspec: {priorityClassName: waiting, containers: [{name: c, image: i}]}\n",
    );
    let trace = |high: &str| {
        format!(
            "nodes: [{{name: n, resources: {{cpu: 4}}}}]\npods:\n- {{name: low, requests: {{cpu: 4}}}}\n\
             - {{name: waiting, arrival: 1m, requests: {{cpu: 4}}, template: waiting.yaml}}\n\
             - {{name: high, arrival: 2m, requests: {{cpu: 4}}, priorityClassName: {high}}}\n{}",
            listed(classes)
        )
    };
    let good = shown(&scratch.file("good.yaml", &trace("high")));
    let report = simulated(&[&good]);
    let run = &report["runs"][0];
    let pods = run["pods"].as_array().expect("a list").iter();
    let priorities: BTreeMap<&str, i64> = pods
        .filter_map(|pod| Some((pod["name"].as_str()?, pod["priority"].as_i64()?)))
        .collect();
    let wanted = BTreeMap::from([("low", 7), ("waiting", 200), ("high", 100)]);
    assert_eq!(priorities, wanted);
    // The class of the pod with the highest priority lets it wait, until the last pod preempts the first one.
    assert_eq!(run["summary"]["preempted"], 1, "{run}");
    let mut pods = run["pods"].as_array().expect("a list").iter();
    let waiting = pods.find(|pod| pod["name"] == "waiting").expect("a pod");
    assert!(waiting["bound"].as_f64() > Some(120.0), "{waiting}");
    let bad = shown(&scratch.file("bad.yaml", &trace("hihg")));
    let group = format!(
        "{}groups:\n- {{name: ring, minimum: 1, priorityClassName: hihg}}\n",
        trace("high")
    );
    let group = shown(&scratch.file("group.yaml", &group));
    let object = "apiVersion: scheduling.k8s.io/v1beta1\nkind: PodGroup\nmetadata: {name: ring}\n\
                  spec: {priorityClassName: hihg, schedulingPolicy: {gang: {minCount: 1}}}\n";
    let object = shown(&scratch.file("object.yaml", object));
    let csv = "name,arrival,cpu,priority_class_name\na,0,1,system-node-critical\nb,0,1,none\n";
    let csv = shown(&scratch.file("bad.csv", csv));
    for (args, wanted) in [
        (
            vec![bad.as_str()],
            "failed to create pod default/high: pods \"high\" is forbidden: no PriorityClass with name hihg was found; \
             did you mean \"high\"?",
        ),
        (
            vec![group.as_str()],
            "failed to create podgroup default/ring: podgroups \"ring\" is forbidden: no PriorityClass with name hihg",
        ),
        (
            vec![good.as_str(), object.as_str()],
            "failed to create podgroup default/ring: podgroups \"ring\" is forbidden: no PriorityClass with name hihg",
        ),
        (
            vec![csv.as_str(), "--nodes", "1"],
            "failed to create pod default/b: pods \"b\" is forbidden: no PriorityClass with name none was found",
        ),
    ] {
        let error = refused(&args);
        assert!(error.contains(wanted), "{error}");
    }
}

/// Budgets, DaemonSets, templates of claims and grace periods are read from objects.
#[test]
fn objects_of_controllers_are_simulated() {
    let scratch = Scratch::new("simulate-controllers");
    scratch.file("gpu.yaml", WITH_CLAIM);
    let trace = shown(&scratch.file("trace.yaml", AROUND_THE_OBJECTS));
    for (bound, evicted) in [
        ("maxUnavailable: 0", 0),
        ("minAvailable: 1", 0),
        ("minAvailable: '50%'", 0),
        ("maxUnavailable: '100%'", 1),
    ] {
        let objects = OF_CONTROLLERS.replace("BOUND", bound);
        let objects = shown(&scratch.file("objects.yaml", &objects));
        let report = simulated(&[&objects, &trace]);
        let run = &report["runs"][0];
        assert_eq!(run["summary"]["disrupted"], evicted, "{bound}: {run}");
        // The pod of the DaemonSet is none of the trace, and leaves too little room for the large pod.
        assert_eq!(run["summary"]["arrived"], 4, "{bound}");
        assert_eq!(run["summary"]["neverBound"], 1, "{bound}");
        let pods = run["pods"].as_array().expect("a list");
        let find = |name: &str| pods.iter().find(|pod| pod["name"] == name).expect("a pod");
        assert!(find("large")["bound"].is_null(), "{bound}");
        // One device: a pod after the other.
        let times = ["gpu-0", "gpu-1"].map(|name| {
            let pod = find(name);
            (
                pod["bound"].as_f64().expect("a time"),
                pod["ended"].as_f64().expect("a time"),
            )
        });
        let [first, second] = times;
        assert!(first.1 <= second.0 || second.1 <= first.0, "{times:?}");
    }
    let objects = OF_CONTROLLERS.replace("BOUND", "minAvailable: many");
    let objects = shown(&scratch.file("objects.yaml", &objects));
    let error = refused(&[&objects, &trace]);
    assert!(error.contains("spec.minAvailable is \"many\""), "{error}");
}
