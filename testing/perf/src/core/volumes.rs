//! The claims of pods and their volumes: one CSI driver with an attach limit, volumes that belong to a zone.

use super::Row;
use crate::generate::{self, ZONES};
use berth_api::{Kind, Object};
use serde_json::{Value, json};

const DRIVER: &str = "ebs.csi.aws.com";
const CLASS: &str = "late";
/// The attach limit of a node, as in the workloads of scheduler_perf.
const VOLUMES_PER_NODE: usize = 39;
const ZONE: &str = "topology.kubernetes.io/zone";

/// The class, and the attach limit of each node.
pub(super) fn objects(nodes: usize) -> Vec<Object> {
    let class = json!({
        "metadata": {"name": CLASS, "uid": "class", "resourceVersion": "1"},
        "provisioner": DRIVER, "volumeBindingMode": "WaitForFirstConsumer",
    });
    let limits = (0..nodes).map(|node| {
        let name = format!("node-{node}");
        let limit = json!({"count": VOLUMES_PER_NODE});
        let drivers = json!([{"name": DRIVER, "nodeID": name, "allocatable": limit}]);
        let meta = json!({"name": name, "uid": name, "resourceVersion": "1"});
        let csi_node = json!({"metadata": meta, "spec": {"drivers": drivers}});
        generate::decoded(Kind::CsiNode, &csi_node)
    });
    let class = generate::decoded(Kind::StorageClass, &class);
    std::iter::once(class).chain(limits).collect()
}

/// A volume of a zone that is for the claim.
fn volume(claim: &Value, zone: &str) -> Value {
    let meta = &claim["metadata"];
    let name = format!("pv-{}", meta["name"].as_str().unwrap_or_default());
    json!({
        "metadata": {"name": name, "uid": name, "resourceVersion": "1"},
        "spec": {
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
            "storageClassName": CLASS, "csi": {"driver": DRIVER, "volumeHandle": name},
            "claimRef": {"namespace": "default", "name": meta["name"], "uid": meta["uid"]},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
                {"key": ZONE, "operator": "In", "values": [zone]},
            ]}]}},
        },
        "status": {"phase": "Bound"},
    })
}

/// Binds a claim to a new volume of a zone. Returns the volume.
fn bind(claim: &mut Value, zone: &str) -> Value {
    let volume = volume(claim, zone);
    claim["spec"]["volumeName"] = volume["metadata"]["name"].clone();
    claim["metadata"]["annotations"]["pv.kubernetes.io/bind-completed"] = json!("yes");
    claim["status"] = json!({"phase": "Bound"});
    volume
}

/// Adds a claim to a pod. Returns the claim, and its volume if it has one.
pub(super) fn claim(row: Row, index: usize, pod: &mut Value) -> Vec<(Kind, Value)> {
    let name = format!("data-{}", pod["metadata"]["name"].as_str().unwrap_or("pod"));
    let volumes = json!([{"name": "data", "persistentVolumeClaim": {"claimName": name}}]);
    pod["spec"]["volumes"] = volumes;
    let mut claim = json!({
        "metadata": {"name": name, "namespace": "default", "uid": name, "resourceVersion": "1"},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": CLASS,
            "resources": {"requests": {"storage": "1Gi"}},
        },
        "status": {"phase": "Pending"},
    });
    if row != Row::BoundClaims {
        return vec![(Kind::PersistentVolumeClaim, claim)];
    }
    let volume = bind(&mut claim, ZONES[index % ZONES.len()]);
    vec![
        (Kind::PersistentVolume, volume),
        (Kind::PersistentVolumeClaim, claim),
    ]
}

/// Acts as the controllers do after a node was selected for a claim: binds the claim to a new volume in the zone of the
/// node. Returns the volume; `None` for other objects.
pub(super) fn provision(claim: &mut Value) -> Option<Value> {
    let annotations = &claim["metadata"]["annotations"];
    let node = annotations["volume.kubernetes.io/selected-node"].as_str()?;
    let index: usize = node.strip_prefix("node-")?.parse().ok()?;
    Some(bind(claim, ZONES[index % ZONES.len()]))
}
