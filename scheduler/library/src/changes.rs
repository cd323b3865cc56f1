//! Changes of a cluster: objects that are added, changed or deleted.

pub(crate) mod buffers;
pub(crate) mod claims;
pub(crate) mod daemons;
mod nodes;
pub(crate) mod others;
mod priorities;
mod quotas;
pub(crate) mod strict;
pub(crate) mod workloads;

pub use buffers::{BufferRequest, is_read_by_buffers};
pub use priorities::{ClassPriority, PriorityClasses, is_priority_class};

use crate::InputError;
use crate::documents::Document;
use crate::json::{ClusterJson, ObjectKey, known, set_defaults, shown};
use berth_api::{Kind, Time};
use berth_explain::what_if::{DisplacedPod, PendingPod};
use others::Others;
use serde_json::Value;
use std::collections::BTreeSet;

/// An object of the changes with this annotation is deleted.
pub(crate) const DELETE: &str = "berth.dev/what-if";

/// The objects that the changes add and delete, in the order of the changes.
#[derive(Debug, Default)]
pub(crate) struct Added {
    /// The pods that the changes add.
    pub(crate) pods: Vec<ObjectKey>,
    /// The groups of pods that the changes add.
    pub(crate) groups: Vec<ObjectKey>,
    /// The nodes that the changes delete.
    pub(crate) deleted_nodes: Vec<String>,
}

/// The outcome of the changes, in addition to the changed objects.
#[derive(Debug, Default)]
pub(crate) struct Changed {
    /// The chunks of CapacityBuffers, which are pods of the changed cluster.
    pub(crate) chunks: Vec<buffers::BufferChunks>,
    /// New pods that no quota admits.
    pub(crate) not_admitted: Vec<PendingPod>,
    /// The pods of nodes that are deleted.
    pub(crate) displaced: Vec<DisplacedPod>,
    /// The effect of each document.
    pub(crate) done: Vec<String>,
}

/// Applies the changes in order.
///
/// # Errors
/// When the API server would not accept a document, or a document names an object that does not exist.
pub(crate) fn change_all(
    documents: &[Document],
    raw: &mut ClusterJson,
    others: &mut Others,
    now: Time,
) -> Result<Changed, InputError> {
    let nodes: BTreeSet<ObjectKey> = raw
        .keys()
        .filter(|key| key.0 == Kind::Node)
        .cloned()
        .collect();
    let (mut added, mut daemons) = (Added::default(), Vec::new());
    let mut done = Vec::new();
    for Document { place, object } in documents {
        if object["kind"] == "KubeSchedulerConfiguration" {
            return Err(InputError::object(
                place,
                "a KubeSchedulerConfiguration is no object of a cluster; give it as WhatIf::configuration",
            ));
        }
        if buffers::is_buffer(object) {
            buffers::check(place, object)?;
        } else {
            strict::check(place, object)?;
        }
        let object = object.clone();
        if daemons::is_one(&object) {
            daemons.push((place.clone(), object));
        } else if let Some(object) = others.take(place, object, Some(&mut done))? {
            change(raw, place, object, &mut added, &mut done)?;
        }
    }
    let displaced = nodes::displace(raw, &added.deleted_nodes);
    // Nodes that are added get a pod of each DaemonSet that the changes do not contain.
    let name = |object: &Value| (namespace_of(object), name_of(object));
    let changed: BTreeSet<_> = daemons.iter().map(|(_, object)| name(object)).collect();
    for (place, present) in &others.daemons {
        if !changed.contains(&name(present)) {
            daemons::apply(raw, place, present, &mut added, |node| {
                !nodes.contains(node)
            })?;
        }
    }
    for (place, object) in &daemons {
        let before = added.pods.len();
        daemons::apply(raw, place, object, &mut added, |_| true)?;
        let (namespace, name) = name(object);
        let pods = added.pods.len().saturating_sub(before);
        done.push(format!(
            "DaemonSet {namespace}/{}: {pods} pods created",
            name.unwrap_or_default()
        ));
    }
    for (place, object) in daemons {
        let known = others
            .daemons
            .iter_mut()
            .find(|(_, other)| name(other) == name(&object));
        match known {
            Some(known) => *known = (place, object),
            None => others.daemons.push((place, object)),
        }
    }
    let (chunks, notes) = others.buffers.add_chunks(raw, &mut added);
    others.notes.extend(notes);
    others.priorities.resolve(raw, &added)?;
    let notes = others
        .claims
        .missing(added.pods.iter().filter_map(|pod| raw.get(pod)));
    others.notes.extend(notes);
    let not_admitted = quotas::admit(raw, &others.quotas, &added, now);
    Ok(Changed {
        chunks,
        not_admitted,
        displaced,
        done,
    })
}

/// Applies a change: a new object, fields of a known one, or its deletion.
fn change(
    raw: &mut ClusterJson,
    place: &str,
    object: Value,
    added: &mut Added,
    done: &mut Vec<String>,
) -> Result<(), InputError> {
    let kind = object["kind"].as_str().unwrap_or_default().to_owned();
    if let Some(effect) = workloads::apply(raw, place, &object, added)? {
        let (namespace, name) = (namespace_of(&object), name_of(&object).unwrap_or_default());
        done.push(format!("{kind} {namespace}/{name}: {effect}"));
        // The scheduler reads replica sets and others, too. A dump may lack them.
        let key = known(place, object.clone())?.map(|(key, _)| key);
        let is_deleted = object["metadata"]["annotations"][DELETE] == "delete";
        if key.is_none_or(|key| is_deleted && !raw.contains_key(&key)) {
            return Ok(());
        }
    }
    let Some((key, mut object)) = known(place, object)? else {
        return Err(InputError::object(
            place,
            format!(
                "the scheduler does not read objects of kind {kind}; give the pods and nodes that follow from it, or \
             their Deployment, ReplicaSet, StatefulSet, ReplicationController, DaemonSet or Job, or a ResourceQuota, \
             DeferredQuota, PriorityClass, ResourceClaimTemplate, CapacityBuffer or PodTemplate"
            ),
        ));
    };
    let shown = shown(&key);
    let is_workload = workloads::is_one(&object);
    if object["metadata"]["annotations"][DELETE] == "delete" {
        added.pods.retain(|pod| *pod != key);
        if raw.remove(&key).is_none() {
            let similar = strict::similar(raw, &key);
            let reason = format!("there is no {kind} {shown} to delete{similar}");
            return Err(InputError::object(place, reason));
        }
        if key.0 == Kind::Node {
            added.deleted_nodes.push(key.2);
        }
        if !is_workload {
            done.push(format!("{kind} {shown}: deleted"));
        }
        return Ok(());
    }
    match raw.get_mut(&key) {
        Some(known) => {
            merge(known, object);
            if !is_workload {
                done.push(format!("{kind} {shown}: changed"));
            }
        }
        None => {
            if !is_workload {
                strict::check_new(raw, place, &key, &object)?;
            }
            let uid = &mut object["metadata"]["uid"];
            if uid.is_null() {
                *uid = format!("what-if-{kind}-{}-{}", key.1, key.2).into();
            }
            set_defaults(&mut object);
            match key.0 {
                Kind::Pod => added.pods.push(key.clone()),
                Kind::PodGroup => added.groups.push(key.clone()),
                _ => {}
            }
            raw.insert(key, object);
            if !is_workload {
                done.push(format!("{kind} {shown}: added"));
            }
        }
    }
    Ok(())
}

/// The name of an object, if it has one.
pub(crate) fn name_of(object: &Value) -> Option<String> {
    let name = object["metadata"]["name"].as_str();
    name.filter(|name| !name.is_empty()).map(str::to_owned)
}

/// The namespace of a namespaced object.
pub(crate) fn namespace_of(object: &Value) -> String {
    let namespace = object["metadata"]["namespace"].as_str();
    let namespace = namespace.filter(|name| !name.is_empty());
    namespace.unwrap_or("default").to_owned()
}

/// A JSON merge patch (RFC 7396).
pub(crate) fn merge(into: &mut Value, patch: Value) {
    match patch {
        Value::Object(fields) => {
            if !into.is_object() {
                *into = Value::Object(serde_json::Map::new());
            }
            for (name, value) in fields {
                match value {
                    Value::Null => {
                        into.as_object_mut().map(|object| object.remove(&name));
                    }
                    value => merge(&mut into[name], value),
                }
            }
        }
        value => *into = value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_change_adds_patches_or_deletes() {
        let (mut raw, mut added) = (ClusterJson::new(), Added::default());
        let node = |spec: Value, annotations: Value| {
            json!({"apiVersion": "v1", "kind": "Node",
                   "metadata": {"name": "n1", "annotations": annotations}, "spec": spec,
                   "status": {"allocatable": {"cpu": "1", "pods": "10"}}})
        };
        let apply = |raw: &mut ClusterJson, added: &mut Added, object: Value| {
            change(raw, "f", object, added, &mut Vec::new())
        };
        let key = (Kind::Node, String::new(), "n1".to_owned());
        apply(
            &mut raw,
            &mut added,
            node(json!({"unschedulable": true}), json!({})),
        )
        .expect("added");
        let taints = json!([{"key": "gpu", "effect": "NoSchedule"}]);
        let tainted = node(json!({ "taints": taints }), json!({}));
        apply(&mut raw, &mut added, tainted).expect("changed");
        assert_eq!(
            raw[&key]["spec"],
            json!({"unschedulable": true, "taints": taints})
        );
        apply(
            &mut raw,
            &mut added,
            node(json!({"unschedulable": null}), json!({})),
        )
        .expect("changed");
        assert_eq!(raw[&key]["spec"], json!({ "taints": taints }));
        let deletion = node(json!({}), json!({DELETE: "delete"}));
        apply(&mut raw, &mut added, deletion.clone()).expect("deleted");
        assert!(raw.is_empty());
        let refused = apply(&mut raw, &mut added, deletion);
        let text = refused.expect_err("a fault").to_string();
        assert!(text.contains("no Node n1"), "{text}");
        let other = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "d"}});
        let refused = apply(&mut raw, &mut added, other);
        let text = refused.expect_err("a fault").to_string();
        assert!(text.contains("kind ConfigMap"), "{text}");
    }
}
