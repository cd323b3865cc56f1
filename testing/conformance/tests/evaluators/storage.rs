//! Volumes of every kind, claims, classes, drivers and disruption budgets, as JSON.

use super::draw::{namespaces, often, pick, selector, zone};
use berth_api::Release;
use fastrand::Rng;
use serde_json::{Value, json};

const DRIVER: &str = "csi.example.com";
const CLASSES: [&str; 3] = ["late", "local", "now"];
const CLAIMS: [&str; 5] = ["c0", "c1", "c2", "c3", "c4"];
const VOLUMES: [&str; 6] = ["pv-0", "pv-1", "pv-2", "pv-3", "pv-4", "pv-5"];
const ACCESS_MODES: [&str; 3] = ["ReadWriteOnce", "ReadWriteOncePod", "ReadOnlyMany"];

/// A volume in the spec of a pod.
pub(crate) fn volume(name: &str, rng: &mut Rng) -> Value {
    let disk = format!("disk-{}", rng.u8(..3));
    let mut volume = match rng.u8(..14) {
        0..=4 => json!({"persistentVolumeClaim": {"claimName": pick(rng, &CLAIMS)}}),
        5 => json!({"ephemeral": {"volumeClaimTemplate": {}}}),
        6 => json!({"gcePersistentDisk": {"pdName": disk, "readOnly": rng.bool()}}),
        7 => json!({"awsElasticBlockStore": {"volumeID": disk}}),
        8 => json!({"iscsi": {"iqn": disk, "readOnly": rng.bool()}}),
        9 => {
            json!({"rbd": {"monitors": ["m"], "pool": "p", "image": disk, "readOnly": rng.bool()}})
        }
        10 => json!({"azureDisk": {"diskName": disk, "diskURI": disk}}),
        11 => json!({"cinder": {"volumeID": disk}}),
        12 => json!({"csi": {"driver": DRIVER}}),
        _ => json!({"image": {"reference": "web:1"}}),
    };
    volume["name"] = json!(name);
    volume
}

fn object(kind: &str, namespace: &str, name: &str, fields: Value) -> Value {
    let version = match kind {
        "PersistentVolume" | "PersistentVolumeClaim" => "v1",
        "PodDisruptionBudget" => "policy/v1",
        "ReplicaSet" => "apps/v1",
        _ => "storage.k8s.io/v1",
    };
    object_of(version, kind, namespace, name, fields)
}

/// An object with a UID of its own. Objects of the cluster have an empty namespace.
pub(crate) fn object_of(
    version: &str,
    kind: &str,
    namespace: &str,
    name: &str,
    mut object: Value,
) -> Value {
    object["apiVersion"] = json!(version);
    object["kind"] = json!(kind);
    object["metadata"]["name"] = json!(name);
    object["metadata"]["uid"] = json!(format!("uid-{kind}-{namespace}-{name}"));
    if !namespace.is_empty() {
        object["metadata"]["namespace"] = json!(namespace);
    }
    object
}

fn in_zone(rng: &mut Rng) -> Value {
    json!({"key": "topology.kubernetes.io/zone", "operator": "In", "values": [zone(rng)]})
}

/// The nodes of a zone, or one node.
fn somewhere(rng: &mut Rng) -> Value {
    if rng.bool() {
        return in_zone(rng);
    }
    let node = format!("node-{}", rng.u8(..12));
    json!({"key": "kubernetes.io/hostname", "operator": "In", "values": [node]})
}

/// A claim; the claim of an ephemeral volume belongs to its pod.
pub(crate) fn claim(namespace: &str, name: &str, owner: Option<&str>, rng: &mut Rng) -> Value {
    let mut fields = json!({"spec": {
        "accessModes": [pick(rng, &ACCESS_MODES)],
        "resources": {"requests": {"storage": format!("{}Gi", rng.u8(1..5))}},
        "storageClassName": pick(rng, &CLASSES),
    }});
    if let Some(owner) = owner {
        fields["metadata"]["ownerReferences"] = json!([
            {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": owner, "controller": true}]);
    }
    if often(rng, 2) {
        fields["spec"]["volumeName"] = json!(pick(rng, &VOLUMES));
        if !often(rng, 8) {
            fields["metadata"]["annotations"] = json!({"pv.kubernetes.io/bind-completed": "yes"});
        }
    }
    object("PersistentVolumeClaim", namespace, name, fields)
}

fn persistent_volume(name: &str, rng: &mut Rng) -> Value {
    let handle = format!("disk-{}", rng.u8(..3));
    let mut spec = match rng.u8(..4) {
        0 => json!({"gcePersistentDisk": {"pdName": handle}}),
        1 => json!({"awsElasticBlockStore": {"volumeID": handle}}),
        _ => json!({"csi": {"driver": DRIVER, "volumeHandle": handle}}),
    };
    spec["capacity"] = json!({"storage": format!("{}Gi", rng.u8(1..9))});
    spec["accessModes"] = json!(ACCESS_MODES);
    spec["storageClassName"] = json!(pick(rng, &CLASSES));
    if often(rng, 2) {
        spec["nodeAffinity"] =
            json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [somewhere(rng)]}]}});
    }
    if often(rng, 6) {
        spec["claimRef"] =
            json!({"namespace": pick(rng, &namespaces()), "name": pick(rng, &CLAIMS)});
    }
    let mut labels = json!({});
    if often(rng, 3) {
        labels["topology.kubernetes.io/zone"] = json!(zone(rng));
    }
    let fields =
        json!({"metadata": {"labels": labels}, "spec": spec, "status": {"phase": "Available"}});
    object("PersistentVolume", "", name, fields)
}

fn class(name: &str, rng: &mut Rng) -> Value {
    let mut fields = json!({
        "provisioner": if name == "local" { "kubernetes.io/no-provisioner" } else { DRIVER },
        "volumeBindingMode": if name == "now" { "Immediate" } else { "WaitForFirstConsumer" },
    });
    if often(rng, 4) {
        fields["allowedTopologies"] = json!([{"matchLabelExpressions": [
            {"key": "topology.kubernetes.io/zone", "values": [zone(rng)]}]}]);
    }
    object("StorageClass", "", name, fields)
}

/// A random object of one of the kinds that volumes and preemption read.
pub(crate) fn some(nodes: usize, release: Release, rng: &mut Rng) -> Value {
    let later = release > Release::OLDEST;
    let node = format!("node-{}", rng.usize(..nodes));
    let namespace = pick(rng, &namespaces());
    match rng.u8(..16) {
        0..=4 => {
            let name = pick(rng, &CLAIMS);
            claim(namespace, name, None, rng)
        }
        5..=7 => {
            let name = pick(rng, &VOLUMES);
            persistent_volume(name, rng)
        }
        8 => {
            let name = pick(rng, &CLASSES);
            class(name, rng)
        }
        9 | 10 => {
            let driver = pick(rng, &[DRIVER, "pd.csi.storage.gke.io", "ebs.csi.aws.com"]);
            let limit = json!({"count": rng.u8(..4)});
            let drivers = json!([{"name": driver, "nodeID": node, "allocatable": limit}]);
            object("CSINode", "", &node, json!({"spec": {"drivers": drivers}}))
        }
        11 => {
            let mut spec = json!({"storageCapacity": rng.bool()});
            if later && often(rng, 2) {
                spec["preventPodSchedulingIfMissing"] = json!(true);
            }
            object("CSIDriver", "", DRIVER, json!({"spec": spec}))
        }
        12 => {
            let fields = json!({
                "storageClassName": "late", "capacity": format!("{}Gi", rng.u8(1..9)),
                "nodeTopology": {"matchExpressions": [somewhere(rng)]},
            });
            let name = pick(rng, &["capacity-0", "capacity-1", "capacity-2"]);
            object("CSIStorageCapacity", namespace, name, fields)
        }
        13 => {
            let source = json!({"persistentVolumeName": pick(rng, &VOLUMES)});
            let spec = json!({"attacher": DRIVER, "nodeName": node, "source": source});
            object(
                "VolumeAttachment",
                "",
                &format!("va-{node}"),
                json!({"spec": spec}),
            )
        }
        14 => {
            let name = format!("pdb-{}", rng.u8(..3));
            let covered = if later && often(rng, 3) {
                json!({})
            } else {
                selector(rng)
            };
            let fields = json!({
                "spec": {"selector": covered}, "status": {"disruptionsAllowed": rng.u8(..3)},
            });
            object("PodDisruptionBudget", namespace, &name, fields)
        }
        _ => object(
            "ReplicaSet",
            namespace,
            "rs",
            json!({"spec": {"selector": selector(rng)}}),
        ),
    }
}

/// Every class, so that most claims have one.
pub(crate) fn classes(rng: &mut Rng) -> Vec<Value> {
    CLASSES.iter().map(|name| class(name, rng)).collect()
}

/// The result of the volume controller for a claim with a selected node or a reserved volume: the claim is bound.
/// Returns the new claim, with the volume that was provisioned for it.
pub(crate) fn bound(claim: &Value, reserved: Option<&str>) -> Option<(Value, Option<Value>)> {
    if claim["spec"]["volumeName"].is_string() {
        return None;
    }
    let selected = &claim["metadata"]["annotations"]["volume.kubernetes.io/selected-node"];
    let text = |field: &str| claim["metadata"][field].as_str().unwrap_or_default();
    let (volume, provisioned) = match (reserved, selected.is_string()) {
        (Some(name), _) => (name.to_owned(), None),
        (None, false) => return None,
        (None, true) => {
            let name = format!("made-{}-{}", text("namespace"), text("name"));
            let claim_ref = json!({
                "namespace": text("namespace"), "name": text("name"), "uid": text("uid"),
            });
            let spec = json!({
                "csi": {"driver": DRIVER, "volumeHandle": name}, "claimRef": claim_ref,
                "capacity": {"storage": "8Gi"}, "storageClassName": claim["spec"]["storageClassName"],
                "accessModes": ACCESS_MODES,
            });
            let made = object("PersistentVolume", "", &name, json!({"spec": spec}));
            (name, Some(made))
        }
    };
    let mut claim = claim.clone();
    claim["spec"]["volumeName"] = json!(volume);
    claim["metadata"]["annotations"]["pv.kubernetes.io/bind-completed"] = json!("yes");
    Some((claim, provisioned))
}
