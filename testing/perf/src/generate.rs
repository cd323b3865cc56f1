//! Generated objects as the API server would show them: written as JSON and decoded as in production, so that the
//! measured objects are like the objects of a real cluster.

use berth_api::{Kind, Node, Object, Pod};
use serde_json::{Value, json};
use std::sync::Arc;

/// The zones that nodes are spread over.
pub(crate) const ZONES: [&str; 3] = ["zone-a", "zone-b", "zone-c"];

/// Decodes JSON written by this crate; an error is a defect of this crate.
pub(crate) fn decoded(kind: Kind, value: &Value) -> Object {
    let decoded = serde_json::to_vec(value).map(|json| kind.decode(&json));
    match decoded {
        Ok(Ok(object)) => object,
        Ok(Err(error)) | Err(error) => panic!("generated {}: {error}: {value}", kind.name()),
    }
}

/// A namespace with labels.
pub(crate) fn namespace(name: &str, labels: Value) -> Object {
    let object =
        json!({"metadata": {"name": name, "uid": format!("uid-of-{name}"), "labels": labels}});
    decoded(Kind::Namespace, &object)
}

/// A node as in the benchmarks of kube-scheduler: 4 CPU, 32 GiB, 110 pods. `more` changes its JSON.
pub(crate) fn node(index: usize, more: impl FnOnce(&mut Value)) -> Arc<Node> {
    let name = format!("node-{index}");
    let mut object = json!({
        "metadata": {
            "name": name,
            "uid": uid(1, index),
            "resourceVersion": index.to_string(),
            "labels": {
                "beta.kubernetes.io/arch": "amd64",
                "beta.kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "node.kubernetes.io/instance-type": "general-4",
                "topology.kubernetes.io/region": "region-1",
                "topology.kubernetes.io/zone": ZONES[index % ZONES.len()],
            },
        },
        "spec": {},
        "status": {
            "allocatable": {"cpu": "4", "memory": "32Gi", "pods": "110"},
            "conditions": [
                {"type": "MemoryPressure", "status": "False"},
                {"type": "DiskPressure", "status": "False"},
                {"type": "PIDPressure", "status": "False"},
                {"type": "Ready", "status": "True"},
            ],
        },
    });
    more(&mut object);
    match decoded(Kind::Node, &object) {
        Object::Node(node) => node,
        _ => unreachable!("a node decodes as a node"),
    }
}

/// A text like a UID of the API server. Kind 1 is for nodes, 2 for pods to schedule, 3 for running pods.
pub(crate) fn uid(kind: usize, index: usize) -> String {
    format!("{index:08x}-4b1d-4c5e-9f00-{kind:04x}{index:08x}")
}

/// A pending pod of a Deployment: one container with requests, and the tolerations and the service account's volume
/// that admission adds. `more` changes its JSON.
pub(crate) fn pod(index: usize, more: impl FnOnce(&mut Value)) -> Arc<Pod> {
    let mut object = pod_json(index);
    more(&mut object);
    pod_of(&object)
}

/// The pod of a JSON object.
pub(crate) fn pod_of(object: &Value) -> Arc<Pod> {
    match decoded(Kind::Pod, object) {
        Object::Pod(pod) => pod,
        _ => unreachable!("a pod decodes as a pod"),
    }
}

/// The JSON of [`pod`].
pub(crate) fn pod_json(index: usize) -> Value {
    json!({
        "metadata": {
            "name": format!("web-7d4b9c6f5d-{index:05}"),
            "generateName": "web-7d4b9c6f5d-",
            "namespace": "default",
            "uid": uid(2, index),
            "resourceVersion": (1_000_000 + index).to_string(),
            "generation": 1,
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"app": "web", "pod-template-hash": "7d4b9c6f5d"},
            "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-7d4b9c6f5d",
                "uid": "00000000-4b1d-4c5e-9f00-000000000001", "controller": true, "blockOwnerDeletion": true,
            }],
        },
        "spec": {
            "schedulerName": "default-scheduler",
            "priority": 0,
            "preemptionPolicy": "PreemptLowerPriority",
            "restartPolicy": "Always",
            "dnsPolicy": "ClusterFirst",
            "serviceAccountName": "default",
            "enableServiceLinks": true,
            "terminationGracePeriodSeconds": 30,
            "containers": [{
                "name": "main",
                "image": "registry.k8s.io/pause:3.10.2",
                "imagePullPolicy": "IfNotPresent",
                "ports": [{"containerPort": 80, "protocol": "TCP"}],
                "resources": {
                    "requests": {"cpu": "100m", "memory": "500Mi"},
                    "limits": {"cpu": "100m", "memory": "500Mi"},
                },
                "volumeMounts": [{
                    "name": "kube-api-access-x2k9q", "readOnly": true,
                    "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
                }],
                "terminationMessagePath": "/dev/termination-log",
                "terminationMessagePolicy": "File",
            }],
            "tolerations": [
                {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
                {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
            ],
            "volumes": [{
                "name": "kube-api-access-x2k9q",
                "projected": {"defaultMode": 420, "sources": [
                    {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                    {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                ]},
            }],
        },
        "status": {"phase": "Pending", "qosClass": "Guaranteed"},
    })
}
