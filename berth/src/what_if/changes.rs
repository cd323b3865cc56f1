//! Changes of a cluster: objects that are added, changed or deleted.

use super::buffers::{self, Buffers};
use super::priorities::{self, Priorities};
use super::read::documents;
use super::{claims, daemons, nodes, quotas, strict, workloads};
use crate::exit::CommandFailure;
use berth_api::{Kind, Object};
use berth_explain::what_if::{CopiedObjects, DisplacedPod, PendingPod, key_of};
use berth_framework::cluster::{DEFERRED_QUOTA, QuotaSpec};
use berth_objects::offline;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// An object of the changes with this annotation is deleted.
pub(super) const DELETE: &str = "berth.dev/what-if";

/// The objects as JSON, so that changes can name single fields.
pub(super) type ClusterJson = BTreeMap<ChangedKey, Value>;
/// Kind, namespace and name of an object.
pub(super) type ChangedKey = (Kind, String, String);

/// The pods that the changes add, in the order of the changes.
#[derive(Debug, Default)]
pub(super) struct Added {
    pub(super) pods: Vec<ChangedKey>,
    /// The nodes that the changes delete.
    pub(super) deleted_nodes: Vec<String>,
}

/// The other objects of the cluster: the scheduler does not read it.
#[derive(Debug, Default)]
pub(super) struct Others {
    pub(super) quotas: quotas::Quotas,
    pub(super) priorities: Priorities,
    pub(super) claims: claims::ClaimTemplates,
    pub(super) buffers: Buffers,
    /// DaemonSets with the places where they were read.
    pub(super) daemons: Vec<(String, Value)>,
    pub(super) notes: Vec<String>,
}

impl Others {
    /// Takes an object that is one of these, and notes what it changes if it is a change.
    pub(super) fn take(
        &mut self,
        place: &str,
        object: Value,
        done: Option<&mut Vec<String>>,
    ) -> Result<Option<Value>, CommandFailure> {
        let is_change = done.is_some();
        if self.buffers.take(place, &object, is_change)? {
            if let Some(done) = done {
                let kind = object["kind"].as_str().unwrap_or_default();
                let name = name_of(&object).unwrap_or_default();
                done.push(format!(
                    "{kind} {}/{name}: set or deleted",
                    namespace_of(&object)
                ));
            }
            return Ok(None);
        }
        // Priority classes have no namespace.
        let is_in_namespace = !priorities::is_one(&object);
        let is_one = quotas::is_one(&object) || claims::is_one(&object) || !is_in_namespace;
        if is_one {
            let kind = object["kind"].as_str().unwrap_or_default();
            let name = name_of(&object).unwrap_or_default();
            let line = if is_in_namespace {
                format!("{kind} {}/{name}: set or deleted", namespace_of(&object))
            } else {
                format!("{kind} {name}: set or deleted")
            };
            if quotas::is_one(&object) {
                quotas::change(&mut self.quotas, place, object)?;
            } else if claims::is_one(&object) {
                self.claims.change(place, object)?;
            } else {
                self.priorities.change(place, object)?;
            }
            if let Some(done) = done {
                done.push(line);
            }
        } else if daemons::is_one(&object) {
            self.daemons.push((place.to_owned(), object));
        } else {
            return Ok(Some(object));
        }
        Ok(None)
    }
}

/// The outcome of the changes, beside the changed objects.
#[derive(Debug, Default)]
pub(super) struct Changed {
    /// The file of a changed configuration.
    pub(super) config: Option<PathBuf>,
    /// The chunks of CapacityBuffers, which are pods of the changed cluster.
    pub(super) chunks: Vec<buffers::BufferChunks>,
    /// New pods that no quota admits.
    pub(super) not_admitted: Vec<PendingPod>,
    /// The pods of nodes that are deleted.
    pub(super) displaced: Vec<DisplacedPod>,
    /// The effect of each document.
    pub(super) done: Vec<String>,
}

/// Applies the changes of all files.
///
/// # Errors
/// When a document is not what the API server would accept, or names an object that does not exist.
pub(super) fn change_all(
    files: &[PathBuf],
    raw: &mut ClusterJson,
    others: &mut Others,
) -> Result<Changed, CommandFailure> {
    let nodes: BTreeSet<ChangedKey> = raw
        .keys()
        .filter(|key| key.0 == Kind::Node)
        .cloned()
        .collect();
    let (mut config, mut added, mut daemons) = (None, Added::default(), Vec::new());
    let mut done = Vec::new();
    for file in files {
        for (place, object) in documents(file)? {
            if object["kind"] == "KubeSchedulerConfiguration" {
                config = Some(configuration(file)?);
                continue;
            }
            if buffers::is_buffer(&object) {
                buffers::check(&place, &object)?;
            } else {
                strict::check(&place, &object)?;
            }
            if daemons::is_one(&object) {
                daemons.push((place, object));
            } else if let Some(object) = others.take(&place, object, Some(&mut done))? {
                change(raw, &place, object, &mut added, &mut done)?;
            }
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
    let notes = others.claims.make(raw, &added);
    others.notes.extend(notes);
    let not_admitted = quotas::admit(raw, &others.quotas, &added);
    Ok(Changed {
        config,
        chunks,
        not_admitted,
        displaced,
        done,
    })
}

/// The file of a configuration among the changes: it is read again.
fn configuration(file: &Path) -> Result<PathBuf, CommandFailure> {
    if file.as_os_str() == "-" {
        Err(CommandFailure::usage(
            "a KubeSchedulerConfiguration is read from a file: give -f FILE, not -f -",
        ))
    } else {
        Ok(file.to_owned())
    }
}

/// The key of an object that the scheduler reads; `None` for one of another kind.
pub(super) fn known(
    place: &str,
    mut object: Value,
) -> Result<Option<(ChangedKey, Value)>, CommandFailure> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
    if kind.is_empty() || version.is_empty() {
        return Err(CommandFailure::Usage(format!(
            "{place}: apiVersion or kind is missing; give objects as kubectl get -o yaml prints them"
        )));
    }
    let known_kind = Kind::by_name(&version, &kind);
    let quota = is_deferred_quota(&object).then_some(Kind::Custom(DEFERRED_QUOTA));
    let Some(found) = known_kind.or(quota) else {
        return Ok(None);
    };
    let name = text(&object["metadata"]["name"]);
    if name.is_empty() {
        return Err(CommandFailure::Usage(format!(
            "{place}: metadata.name is missing"
        )));
    }
    let mut namespace = text(&object["metadata"]["namespace"]);
    if namespace.is_empty() && is_namespaced(found) {
        namespace = "default".to_owned();
        object["metadata"]["namespace"] = "default".into();
    }
    Ok(Some(((found, namespace, name), object)))
}

/// Sets what the API server sets in an object that does not state it.
pub(super) fn set_defaults(object: &mut Value) {
    let text = |field: &str| object[field].as_str().unwrap_or_default().to_owned();
    offline::set_defaults(&text("apiVersion"), &text("kind"), object);
}

/// Returns whether objects of a kind are in namespaces.
fn is_namespaced(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::Pod
            | Kind::Service
            | Kind::ReplicationController
            | Kind::ReplicaSet
            | Kind::StatefulSet
            | Kind::PodDisruptionBudget
            | Kind::PersistentVolumeClaim
            | Kind::CsiStorageCapacity
            | Kind::ResourceClaim
            | Kind::Custom(DEFERRED_QUOTA)
    )
}

/// Returns whether an object is a DeferredQuota: the only custom kind that the scheduler reads.
pub(super) fn is_deferred_quota(object: &Value) -> bool {
    object["apiVersion"] == "scheduling.berth.dev/v1alpha1" && object["kind"] == "DeferredQuota"
}

/// Applies a change: a new object, fields of a known one, or its deletion.
fn change(
    raw: &mut ClusterJson,
    place: &str,
    object: Value,
    added: &mut Added,
    done: &mut Vec<String>,
) -> Result<(), CommandFailure> {
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
        return Err(CommandFailure::Usage(format!(
            "{place}: the scheduler does not read objects of kind {kind}; give the pods and nodes that follow from it, or \
             their Deployment, ReplicaSet, StatefulSet, ReplicationController, DaemonSet or Job, or a ResourceQuota, DeferredQuota, \
             PriorityClass, ResourceClaimTemplate, CapacityBuffer or PodTemplate"
        )));
    };
    let shown = shown(&key);
    let is_workload = workloads::is_one(&object);
    if object["metadata"]["annotations"][DELETE] == "delete" {
        added.pods.retain(|pod| *pod != key);
        if raw.remove(&key).is_none() {
            let similar = strict::similar(raw, &key);
            let text = format!("{place}: there is no {kind} {shown} to delete{similar}");
            return Err(CommandFailure::Usage(text));
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
            if key.0 == Kind::Pod {
                added.pods.push(key.clone());
            }
            raw.insert(key, object);
            if !is_workload {
                done.push(format!("{kind} {shown}: added"));
            }
        }
    }
    Ok(())
}

/// `namespace/name`, or the name of an object outside of namespaces.
pub(super) fn shown(key: &ChangedKey) -> String {
    match key.1.as_str() {
        "" => key.2.clone(),
        namespace => format!("{namespace}/{}", key.2),
    }
}

/// The name of an object, if it has one.
pub(super) fn name_of(object: &Value) -> Option<String> {
    let name = object["metadata"]["name"].as_str();
    name.filter(|name| !name.is_empty()).map(str::to_owned)
}

/// The namespace of a namespaced object.
pub(super) fn namespace_of(object: &Value) -> String {
    let namespace = object["metadata"]["namespace"].as_str();
    let namespace = namespace.filter(|name| !name.is_empty());
    namespace.unwrap_or("default").to_owned()
}

/// A JSON merge patch (RFC 7396).
pub(super) fn merge(into: &mut Value, patch: Value) {
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

/// The objects as the scheduler reads them.
///
/// # Errors
/// When a field has a value of the wrong type.
pub(super) fn decode(raw: &ClusterJson) -> Result<CopiedObjects, CommandFailure> {
    let decoded = raw.iter().map(|((kind, namespace, name), value)| {
        let object: Object = kind.decode(value.to_string().as_bytes()).map_err(|e| {
            let slash = if namespace.is_empty() { "" } else { "/" };
            let kind = kind.name();
            CommandFailure::Usage(format!(
                "failed to decode {kind} {namespace}{slash}{name}: {e}"
            ))
        })?;
        // The rules of the definition refuse such a quota.
        if let Object::Custom(quota) = &object {
            QuotaSpec::read(quota).map_err(|reason| {
                CommandFailure::Usage(format!("DeferredQuota {namespace}/{name}: {reason}"))
            })?;
        }
        Ok((key_of(&object), object))
    });
    decoded.collect()
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
        assert!(matches!(refused, Err(CommandFailure::Usage(text)) if text.contains("no Node n1")));
        let other = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "d"}});
        let refused = apply(&mut raw, &mut added, other);
        assert!(
            matches!(refused, Err(CommandFailure::Usage(text)) if text.contains("kind ConfigMap"))
        );
    }
}
