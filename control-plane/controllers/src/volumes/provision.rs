//! The simulated provisioner: volumes that exist as objects only.
//!
//! A volume that is created for a node is reachable from the zone of that node, like a cloud disk, or from that node
//! alone if nodes have no zones.

use super::matching::class;
use super::{Cx, PROVISIONED_BY, SELECTED_NODE, SIMULATED, reference, text};
use berth_objects::access::{AccessError, StoredObject};
use berth_objects::object::{
    CLAIM, ControllerKey, NODE, VOLUME, annotation, items, labels, name, set, uid,
};
use serde_json::{Value, json};

/// The labels that state from where a volume can be reached, the first that the node has.
const TOPOLOGY: [&str; 2] = ["topology.kubernetes.io/zone", "kubernetes.io/hostname"];

/// Creates a volume for a claim. The two are then bound like any others.
pub(super) fn provision(
    cx: &mut Cx,
    claim: &StoredObject,
    class: &StoredObject,
) -> Result<(), AccessError> {
    let topology = match annotation(claim, SELECTED_NODE) {
        None => anywhere(class),
        Some(node) => match cx.api().get(NODE.resource, "", node) {
            Ok(node) => reach(&node),
            Err(error) if error.is_not_found() => return give_up(cx, claim, node),
            Err(error) => return Err(error),
        },
    };
    let volume = volume(claim, class, topology);
    let volume_name = name(&volume).to_owned();
    if cx
        .cache(VOLUME)
        .get(&ControllerKey::new("", &volume_name))
        .is_some()
    {
        return Ok(());
    }
    match cx.create(VOLUME, volume) {
        Err(error) if error.reason != "AlreadyExists" => return Err(error),
        Ok(_) | Err(_) => {}
    }
    let message = format!("Successfully provisioned volume {volume_name}");
    cx.normal(claim, "ProvisioningSucceeded", message);
    Ok(())
}

/// The node was deleted: the scheduler has to select another node.
fn give_up(cx: &mut Cx, claim: &StoredObject, node: &str) -> Result<(), AccessError> {
    let mut free = (**claim).clone();
    if let Some(annotations) = free["metadata"]["annotations"].as_object_mut() {
        annotations.remove(SELECTED_NODE);
    }
    cx.update(CLAIM, free)?;
    let message = format!(
        "failed to provision volume with StorageClass {:?}: node {node:?} not found",
        class(claim)
    );
    cx.warn(claim, "ProvisioningFailed", message);
    Ok(())
}

/// From where a volume for a node can be reached.
fn reach(node: &Value) -> Value {
    let found = TOPOLOGY.into_iter().find_map(|key| {
        let value = labels(node)?.get(key)?.as_str()?;
        Some(json!([{"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]}]))
    });
    found.unwrap_or_default()
}

/// The topology of a volume that is not created for a particular node: the allowed topologies of the class.
fn anywhere(class: &Value) -> Value {
    let allowed = items(&class["allowedTopologies"]).iter().map(|term| {
        let expressions = items(&term["matchLabelExpressions"]).iter();
        let expressions: Vec<Value> = expressions
            .map(|e| json!({"key": e["key"], "operator": "In", "values": e["values"]}))
            .collect();
        json!({"matchExpressions": expressions})
    });
    let allowed: Vec<Value> = allowed.collect();
    if allowed.is_empty() {
        Value::Null
    } else {
        allowed.into()
    }
}

fn volume(claim: &Value, class: &Value, topology: Value) -> Value {
    let volume_name = format!("pvc-{}", uid(claim));
    let mut volume = VOLUME.object(json!({"metadata": {
            "name": volume_name,
            "annotations": {PROVISIONED_BY: SIMULATED},
        },
        "spec": {
            "accessModes": claim["spec"]["accessModes"],
            "capacity": {"storage": claim["spec"]["resources"]["requests"]["storage"]},
            "claimRef": reference(claim),
            "csi": {"driver": SIMULATED, "volumeHandle": volume_name},
            "persistentVolumeReclaimPolicy": class["reclaimPolicy"],
            "storageClassName": name(class),
            "volumeMode": claim["spec"]["volumeMode"],
        },
    }));
    if !topology.is_null() {
        let required = json!({"nodeSelectorTerms": topology});
        set(&mut volume, &["spec", "nodeAffinity", "required"], required);
    }
    let attributes = text(claim, "/spec/volumeAttributesClassName");
    if !attributes.is_empty() {
        let path = ["spec", "volumeAttributesClassName"];
        set(&mut volume, &path, attributes.into());
    }
    volume
}
