//! Clusters in which schedulers differed, and the message of a pod: from kube-scheduler 1.36.2, which confirms it if
//! its program is in the folder of kube-apiserver, and from Berth.

use super::{ready, scheduler};
use crate::e2e::server::{Server, on_each};
use crate::e2e::{eventually, scheduled};
use berth_client::request::{self, ApiRequest, PODS, Resource};
use serde_json::{Value, json};

/// A cluster, the pod that is created last, and its message.
struct Case {
    name: &'static str,
    objects: Vec<(Resource, Value)>,
    pod: Value,
    message: &'static str,
}

const fn of(group: &'static str, plural: &'static str) -> Resource {
    Resource {
        group,
        version: "v1",
        plural,
    }
}

const NODES: Resource = of("", "nodes");
const CLAIMS: Resource = of("resource.k8s.io", "resourceclaims");
const CLASSES: Resource = of("resource.k8s.io", "deviceclasses");
const SLICES: Resource = of("resource.k8s.io", "resourceslices");
const VOLUMES: Resource = of("", "persistentvolumes");
const VOLUME_CLAIMS: Resource = of("", "persistentvolumeclaims");
const CSI_NODES: Resource = of("storage.k8s.io", "csinodes");
const PRIORITIES: Resource = of("scheduling.k8s.io", "priorityclasses");

fn node(name: &str, cpu: &str) -> (Resource, Value) {
    let labels = json!({"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": "z1"});
    let room = json!({"cpu": cpu, "pods": "110"});
    let ready = json!([{"type": "Ready", "status": "True"}]);
    let node = json!({
        "metadata": {"name": name, "labels": labels},
        "status": {"capacity": room, "allocatable": room, "conditions": ready},
    });
    (NODES, node)
}

fn slice(node: &str) -> (Resource, Value) {
    let pool = json!({"name": node, "generation": 1, "resourceSliceCount": 1});
    let slice = json!({"metadata": {"name": node}, "spec": {
        "driver": "gpu.example.com", "nodeName": node, "pool": pool, "devices": [{"name": "d0"}],
    }});
    (SLICES, slice)
}

fn class(name: &str, expression: &str) -> (Resource, Value) {
    let spec = json!({"selectors": [{"cel": {"expression": expression}}]});
    (CLASSES, json!({"metadata": {"name": name}, "spec": spec}))
}

fn claim(name: &str, class: &str) -> Value {
    let request = json!({"name": "r0", "exactly": {"deviceClassName": class}});
    json!({"metadata": {"name": name}, "spec": {"devices": {"requests": [request]}}})
}

fn pod(name: &str, cpu: &str, claims: &[&str]) -> Value {
    let named: Vec<Value> = claims.iter().map(|c| json!({"name": c})).collect();
    let used = claims
        .iter()
        .map(|c| json!({"name": c, "resourceClaimName": c}));
    json!({"metadata": {"name": name}, "spec": {
        "terminationGracePeriodSeconds": 0, "resourceClaims": used.collect::<Vec<_>>(),
        "containers": [{
            "name": "c", "image": "registry.example/c:1",
            "resources": {"requests": {"cpu": cpu}, "claims": named},
        }],
    }})
}

fn on(mut pod: Value, node: &str) -> Value {
    pod["spec"]["nodeName"] = node.into();
    pod
}

/// PostFilter keeps an allocated claim if another claim of the pod has no device anywhere.
fn useless_deallocation() -> Case {
    let mut has = claim("has", "gpu");
    let result = json!({"request": "r0", "driver": "gpu.example.com", "pool": "a", "device": "d0"});
    let field = json!({"key": "metadata.name", "operator": "In", "values": ["a"]});
    has["metadata"]["finalizers"] = json!(["resource.kubernetes.io/delete-protection"]);
    has["status"] = json!({"allocation": {
        "devices": {"results": [result]},
        "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]},
    }});
    Case {
        name: "useless-deallocation",
        objects: vec![
            node("a", "8"),
            node("b", "8"),
            slice("a"),
            class("gpu", "device.driver == \"gpu.example.com\""),
            class("nic", "device.driver == \"nic.example.com\""),
            (CLAIMS, has),
            (CLAIMS, claim("wants", "nic")),
        ],
        pod: pod("p", "1", &["has", "wants"]),
        message: "0/2 nodes are available: 2 cannot allocate all claims. still not schedulable, preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling.",
    }
}

/// The node affinity of a migrated in-tree volume equals the affinity of its CSI volume.
fn migrated_volume() -> Case {
    let migrated = json!({"storage.alpha.kubernetes.io/migrated-plugins": "kubernetes.io/gce-pd"});
    let csi_node =
        json!({"metadata": {"name": "n", "annotations": migrated}, "spec": {"drivers": []}});
    let volume = json!({
        "metadata": {"name": "v", "labels": {"topology.kubernetes.io/zone": "z1"}},
        "spec": {
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
            "gcePersistentDisk": {"pdName": "d"}, "claimRef": {"namespace": "default", "name": "c"},
        },
    });
    let claim = json!({
        "metadata": {"name": "c", "annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
        "spec": {
            "storageClassName": "", "volumeName": "v", "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        },
        "status": {"phase": "Bound"},
    });
    let mut pod = pod("p", "1", &[]);
    pod["spec"]["volumes"] = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]);
    Case {
        name: "migrated-volume",
        objects: vec![
            node("n", "8"),
            (CSI_NODES, csi_node),
            (VOLUMES, volume),
            (VOLUME_CLAIMS, claim),
        ],
        pod,
        message: "0/1 nodes are available: 1 node(s) didn't match PersistentVolume's node affinity. no new claims to deallocate, preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling.",
    }
}

/// Errors of dry runs that are equal are listed once.
fn equal_errors() -> Case {
    let mut objects = vec![
        (
            PRIORITIES,
            json!({"metadata": {"name": "high"}, "value": 1_000}),
        ),
        class(
            "gpu",
            "device.attributes[\"gpu.example.com\"].absent == \"x\"",
        ),
        (CLAIMS, claim("k", "gpu")),
    ];
    for name in ["a", "b", "c"] {
        objects.extend([node(name, "4"), slice(name)]);
        objects.push((PODS, on(pod(&format!("low-{name}"), "3", &[]), name)));
    }
    let mut pod = pod("p", "3", &["k"]);
    pod["spec"]["priorityClassName"] = "high".into();
    Case {
        name: "equal-errors",
        objects,
        pod,
        message: "0/3 nodes are available: 3 Insufficient cpu. preemption: running \"DynamicResources\" filter plugin: class gpu: selector #0: CEL runtime error: no such key: absent",
    }
}

/// Creates an object, with its status.
fn create(server: &Server, resource: Resource, object: &Value) {
    let is_cluster_wide = [NODES, VOLUMES, CLASSES, SLICES, CSI_NODES, PRIORITIES];
    let namespace = if is_cluster_wide.contains(&resource) {
        ""
    } else {
        "default"
    };
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let mut status_of: ApiRequest = request::merge_patch(
        resource,
        namespace,
        name,
        &json!({"status": object["status"]}),
    );
    status_of.path.push_str("/status");
    server
        .api
        .send(&request::create(resource, namespace, object));
    if object["status"].is_object() {
        server.api.send(&status_of);
    }
    if resource == NODES {
        // kube-apiserver taints new nodes until a controller has seen them.
        let untaint = json!({"spec": {"taints": null}});
        server
            .api
            .send(&request::merge_patch(NODES, "", name, &untaint));
    }
}

/// Creates the pod and waits for the message.
fn judge(server: &Server, by: &str, case: &Case) {
    create(server, PODS, &case.pod);
    let pod = eventually(&format!("{}: {by} rejects the pod", case.name), || {
        let pod = server.api.pod("p");
        assert!(
            pod["spec"]["nodeName"].is_null(),
            "{}: {by}: {pod}",
            case.name
        );
        scheduled(&pod)["message"].is_string().then_some(pod)
    });
    let message = scheduled(&pod)["message"].take();
    assert_eq!(message, case.message, "{}: {by}", case.name);
    server.api.send(&super::deletion_at_once("p"));
    eventually("the pod is deleted", || {
        server
            .api
            .pods()
            .iter()
            .all(|p| p["metadata"]["name"] != "p")
            .then_some(())
    });
}

#[test]
fn pods_get_the_message_of_kube_scheduler() {
    for case in [useless_deallocation, migrated_volume, equal_errors] {
        on_each("decisions", |server| {
            let case = case();
            for (resource, object) in &case.objects {
                create(server, *resource, object);
            }
            if let Some(kube_scheduler) = server.kube_scheduler() {
                judge(server, "kube-scheduler", &case);
                drop(kube_scheduler);
            }
            let berth = scheduler(&server.kubeconfig(), &["--leader-elect=false"]);
            ready(&berth);
            judge(server, "Berth", &case);
            if case.name == "useless-deallocation" {
                let claim = server.api.send(&request::get(CLAIMS, "default", "has"));
                assert!(claim["status"]["allocation"].is_object(), "{claim}");
            }
        });
    }
}
