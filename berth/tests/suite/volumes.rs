//! Pods with claims on a running cluster: existing volumes, volumes that the test creates like a provisioner, and
//! volumes of the simulated provisioner. Uses plain HTTP requests and no other tool: always runs.

use crate::e2e::{Api, Cluster, Scratch, eventually, scheduled};
use berth_client::request::{self, Resource};
use serde_json::{Value, json};

const CLAIMS: Resource = Resource {
    group: "",
    version: "v1",
    plural: "persistentvolumeclaims",
};
const VOLUMES: Resource = Resource {
    group: "",
    version: "v1",
    plural: "persistentvolumes",
};

const MANIFEST: &str = "\
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: local}
provisioner: kubernetes.io/no-provisioner
volumeBindingMode: WaitForFirstConsumer
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: external}
provisioner: csi.example.com
volumeBindingMode: WaitForFirstConsumer
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: simulated}
provisioner: simulated.berth.dev
volumeBindingMode: WaitForFirstConsumer
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: disk}
spec:
  storageClassName: local
  capacity: {storage: 2Gi}
  accessModes: [ReadWriteOnce]
  local: {path: /disk}
  nodeAffinity:
    required:
      nodeSelectorTerms:
      - matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [berth-node-2]}]
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: there}
spec:
  storageClassName: local
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 1Gi}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: made}
spec:
  storageClassName: external
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 1Gi}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: simulated}
spec:
  storageClassName: simulated
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 1Gi}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: large}
spec:
  storageClassName: local
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 100Gi}}
---
apiVersion: v1
kind: Pod
metadata: {name: there}
spec:
  containers: [{name: c, image: 'registry.example/c:1'}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: there}}]
---
apiVersion: v1
kind: Pod
metadata: {name: made}
spec:
  containers: [{name: c, image: 'registry.example/c:1'}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: made}}]
---
apiVersion: v1
kind: Pod
metadata: {name: simulated}
spec:
  containers: [{name: c, image: 'registry.example/c:1'}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: simulated}}]
---
apiVersion: v1
kind: Pod
metadata: {name: large}
spec:
  containers: [{name: c, image: 'registry.example/c:1'}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: large}}]
";

fn claim(api: &Api, name: &str) -> Value {
    api.send(&request::get(CLAIMS, "default", name))
}

/// The volume of a claim once both are marked as bound.
fn bound(api: &Api, name: &str) -> Value {
    eventually(&format!("the claim {name} is bound"), || {
        let claim = claim(api, name);
        let volume = claim["spec"]["volumeName"].as_str()?;
        let volume = api.send(&request::get(VOLUMES, "", volume));
        let both = claim["status"]["phase"] == "Bound" && volume["status"]["phase"] == "Bound";
        both.then_some(volume)
    })
}

/// The node of a pod once it runs.
fn runs_on(api: &Api, name: &str) -> String {
    eventually(&format!("the pod {name} runs"), || {
        let pod = api.pod(name);
        let node = pod["spec"]["nodeName"].as_str()?.to_owned();
        (pod["status"]["phase"] == "Running").then_some(node)
    })
}

fn local_volume(name: &str, class: &str, size: &str, node: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "storageClassName": class,
            "capacity": {"storage": size},
            "accessModes": ["ReadWriteOnce"],
            "local": {"path": "/disk"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
                {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]},
            ]}]}},
        },
    })
}

#[test]
fn pods_get_their_volumes_and_go_where_those_are() {
    let scratch = Scratch::new("volumes-manifest");
    let manifest = scratch.file("all.yaml", MANIFEST);
    let cluster = Cluster::up(
        "volumes",
        &["--nodes", "3", &manifest.display().to_string()],
    );
    let api = Api::of(&cluster);

    // An existing volume determines the node, and the scheduler binds it to the claim.
    assert_eq!(runs_on(&api, "there"), "berth-node-2");
    let disk = bound(&api, "there");
    assert_eq!(disk["metadata"]["name"], "disk");
    assert_eq!(
        disk["spec"]["claimRef"]["uid"],
        claim(&api, "there")["metadata"]["uid"]
    );
    let by = &disk["metadata"]["annotations"]["pv.kubernetes.io/bound-by-controller"];
    assert_eq!(by, "yes");
    assert_eq!(
        disk["spec"]["local"]["path"], "/disk",
        "nothing else was touched"
    );

    // A volume to create: the scheduler selects the node, and binds the pod when the volume exists.
    let node = eventually("a node is selected", || {
        let claim = claim(&api, "made");
        let node = &claim["metadata"]["annotations"]["volume.kubernetes.io/selected-node"];
        Some(node.as_str()?.to_owned())
    });
    let before = api.pod("made");
    assert!(
        before["spec"]["nodeName"].is_null(),
        "there is no volume yet"
    );
    assert_eq!(before["status"]["nominatedNodeName"], node.as_str());
    let mut volume = local_volume("made-by-test", "external", "1Gi", &node);
    let uid = claim(&api, "made")["metadata"]["uid"].clone();
    volume["spec"]["claimRef"] = json!({
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": "default",
        "name": "made",
        "uid": uid,
    });
    api.send(&request::create(VOLUMES, "", &volume));
    assert_eq!(runs_on(&api, "made"), node);
    assert_eq!(bound(&api, "made")["metadata"]["name"], "made-by-test");

    // The simulated provisioner needs no external component.
    runs_on(&api, "simulated");
    let simulated = bound(&api, "simulated");
    assert_eq!(simulated["spec"]["csi"]["driver"], "simulated.berth.dev");

    // The condition of a pod without a matching volume states the reason. The pod is retried when a volume is created.
    let message = eventually("the pod states what it lacks", || {
        let message = scheduled(&api.pod("large"))["message"].as_str()?.to_owned();
        message.starts_with("0/3 nodes").then_some(message)
    });
    let reason = "3 node(s) didn't find available persistent volumes to bind.";
    assert!(message.contains(reason), "{message}");
    let volume = local_volume("huge", "local", "200Gi", "berth-node-3");
    api.send(&request::create(VOLUMES, "", &volume));
    assert_eq!(runs_on(&api, "large"), "berth-node-3");

    // The writes are counted.
    let calls = "scheduler_async_api_call_execution_total";
    for (call_type, least) in [
        ("persistent_volume_update", 2.0),
        ("persistent_volume_claim_update", 2.0),
    ] {
        let label = format!("call_type=\"{call_type}\"");
        eventually(&format!("two writes of {call_type} are counted"), || {
            (cluster.metric(calls, &label) >= least).then_some(())
        });
    }
}
