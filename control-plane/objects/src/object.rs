//! Reading and changing stored objects, which are JSON values: metadata, owners, conditions, times.
//!
//! Readers never fail: a missing value or a value of another type reads as absent, because the objects have passed
//! validation and a controller must survive an invalid object. Writers replace values of another type.

use crate::access::{GroupResource, gr};
use berth_api::{GoTime, Kind, Node, Object, Pod};
use jiff::Timestamp;
use serde::de::Error;
use serde_json::{Map, Value, json};
use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

/// The object as the scheduler reads it. It is converted through text, because each format is compiled for all types
/// within.
///
/// # Errors
/// When a field has the wrong type.
pub fn decoded(kind: Kind, object: &Value) -> Result<Object, serde_json::Error> {
    let decoded = kind.decode(&serde_json::to_vec(object)?);
    // The text is not part of the input, so the error is without the place in it.
    decoded.map_err(|error| {
        let text = error.to_string();
        let place = text.rfind(" at line ").unwrap_or(text.len());
        Error::custom(&text[..place])
    })
}

/// A pod as the scheduler reads it.
///
/// # Errors
/// When a field has the wrong type.
pub fn decoded_pod(pod: &Value) -> Result<Arc<Pod>, serde_json::Error> {
    match decoded(Kind::Pod, pod)? {
        Object::Pod(pod) => Ok(pod),
        other => Err(Error::custom(format_args!("{:?} is no pod", other.kind()))),
    }
}

/// A node as the scheduler reads it.
///
/// # Errors
/// When a field has the wrong type.
pub fn decoded_node(node: &Value) -> Result<Arc<Node>, serde_json::Error> {
    match decoded(Kind::Node, node)? {
        Object::Node(node) => Ok(node),
        other => Err(Error::custom(format_args!("{:?} is no node", other.kind()))),
    }
}

/// A kind for controllers: its resource, and its names in references.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ControllerKind {
    /// Group and resource.
    pub resource: GroupResource,
    /// `apiVersion` as written into owner references and events.
    pub api_version: &'static str,
    /// `kind` as written into owner references and events.
    pub kind: &'static str,
}

impl ControllerKind {
    /// The fields of an object of this kind, completed with the kind.
    pub fn object(self, mut fields: Value) -> Value {
        fields["apiVersion"] = self.api_version.into();
        fields["kind"] = self.kind.into();
        fields
    }
}

impl From<ControllerKind> for GroupResource {
    fn from(kind: ControllerKind) -> Self {
        kind.resource
    }
}

/// The kinds that controllers know: group, API version, resource and kind.
macro_rules! kinds {
    ($($name:ident: $group:literal $api_version:literal $resource:literal $kind:literal,)*) => {
        $(#[doc = concat!("The kind ", $kind, ".")]
        pub const $name: ControllerKind = ControllerKind {
            resource: gr($group, $resource),
            api_version: $api_version,
            kind: $kind,
        };)*
    };
}

kinds! {
    POD: "" "v1" "pods" "Pod",
    NODE: "" "v1" "nodes" "Node",
    NAMESPACE: "" "v1" "namespaces" "Namespace",
    SERVICE_ACCOUNT: "" "v1" "serviceaccounts" "ServiceAccount",
    CONFIG_MAP: "" "v1" "configmaps" "ConfigMap",
    EVENT: "" "v1" "events" "Event",
    SERVICE: "" "v1" "services" "Service",
    ENDPOINTS: "" "v1" "endpoints" "Endpoints",
    ENDPOINT_SLICE: "discovery.k8s.io" "discovery.k8s.io/v1" "endpointslices" "EndpointSlice",
    LEASE: "coordination.k8s.io" "coordination.k8s.io/v1" "leases" "Lease",
    DISRUPTION_BUDGET: "policy" "policy/v1" "poddisruptionbudgets" "PodDisruptionBudget",
    RESOURCE_QUOTA: "" "v1" "resourcequotas" "ResourceQuota",
    VOLUME: "" "v1" "persistentvolumes" "PersistentVolume",
    CLAIM: "" "v1" "persistentvolumeclaims" "PersistentVolumeClaim",
    STORAGE_CLASS: "storage.k8s.io" "storage.k8s.io/v1" "storageclasses" "StorageClass",
    REPLICA_SET: "apps" "apps/v1" "replicasets" "ReplicaSet",
    DEPLOYMENT: "apps" "apps/v1" "deployments" "Deployment",
    STATEFUL_SET: "apps" "apps/v1" "statefulsets" "StatefulSet",
    DAEMON_SET: "apps" "apps/v1" "daemonsets" "DaemonSet",
    CONTROLLER_REVISION: "apps" "apps/v1" "controllerrevisions" "ControllerRevision",
    REPLICATION_CONTROLLER: "" "v1" "replicationcontrollers" "ReplicationController",
    JOB: "batch" "batch/v1" "jobs" "Job",
    CRON_JOB: "batch" "batch/v1" "cronjobs" "CronJob",
    ADMISSION_POLICY: "admissionregistration.k8s.io" "admissionregistration.k8s.io/v1" "validatingadmissionpolicies" "ValidatingAdmissionPolicy",
    RESOURCE_CLAIM: "resource.k8s.io" "resource.k8s.io/v1" "resourceclaims" "ResourceClaim",
    WORKLOAD: "scheduling.k8s.io" "scheduling.k8s.io/v1beta1" "workloads" "Workload",
    POD_GROUP: "scheduling.k8s.io" "scheduling.k8s.io/v1beta1" "podgroups" "PodGroup",
    COMPOSITE_POD_GROUP: "scheduling.k8s.io" "scheduling.k8s.io/v1alpha3" "compositepodgroups" "CompositePodGroup",
    RESOURCE_CLAIM_TEMPLATE: "resource.k8s.io" "resource.k8s.io/v1" "resourceclaimtemplates" "ResourceClaimTemplate",
}

/// Namespace and name of an object within its kind; the namespace is empty for cluster-scoped kinds.
/// Clones share the text.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ControllerKey {
    /// The namespace, or empty.
    pub namespace: Arc<str>,
    /// The name.
    pub name: Arc<str>,
}

impl ControllerKey {
    /// The key of these two.
    pub fn new(namespace: &str, name: &str) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
        }
    }

    /// The key of an object.
    pub fn of(object: &Value) -> Self {
        Self::new(namespace(object), name(object))
    }
}

impl fmt::Debug for ControllerKey {
    /// As people write it: logs show keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for ControllerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            write!(f, "{}", self.name)
        } else {
            write!(f, "{}/{}", self.namespace, self.name)
        }
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// `metadata.name`.
pub fn name(object: &Value) -> &str {
    text(&object["metadata"]["name"])
}

/// `metadata.namespace`, empty when there is none.
pub fn namespace(object: &Value) -> &str {
    text(&object["metadata"]["namespace"])
}

/// `metadata.uid`.
pub fn uid(object: &Value) -> &str {
    text(&object["metadata"]["uid"])
}

/// `metadata.resourceVersion` as the number it is in this store.
pub fn version(object: &Value) -> u64 {
    text(&object["metadata"]["resourceVersion"])
        .parse()
        .unwrap_or_default()
}

/// `metadata.generation`.
pub fn generation(object: &Value) -> i64 {
    object["metadata"]["generation"]
        .as_i64()
        .unwrap_or_default()
}

/// Returns whether the deletion of the object was requested.
pub fn is_deleting(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

/// `metadata.labels`.
pub fn labels(object: &Value) -> Option<&Map<String, Value>> {
    object["metadata"]["labels"].as_object()
}

/// One annotation.
pub fn annotation<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object["metadata"]["annotations"][key].as_str()
}

/// One annotation that is a number.
pub fn annotation_number<N: std::str::FromStr>(object: &Value, key: &str) -> Option<N> {
    annotation(object, key)?.trim().parse().ok()
}

/// Returns whether `metadata.finalizers` holds `finalizer`.
pub fn has_finalizer(object: &Value, finalizer: &str) -> bool {
    items(&object["metadata"]["finalizers"])
        .iter()
        .any(|f| f == finalizer)
}

/// Takes `finalizer` out of `metadata.finalizers`.
pub fn remove_finalizer(object: &mut Value, finalizer: &str) {
    if let Some(list) = object
        .pointer_mut("/metadata/finalizers")
        .and_then(Value::as_array_mut)
    {
        list.retain(|f| f != finalizer);
    }
}

/// The entries of an array; empty for any other value.
pub fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// A 32-bit count such as `spec.replicas`; `default` when absent.
pub fn count(value: &Value, default: i32) -> i32 {
    value.as_i64().map_or(default, |n| {
        n.clamp(i32::MIN.into(), i32::MAX.into()) as i32
    })
}

/// The number after `count` in a 32-bit field. The maximum is not exceeded, because API servers reject larger values
/// and the object could no longer be written.
pub fn next_count(count: i64) -> i64 {
    count.saturating_add(1).min(i32::MAX.into())
}

/// A number, or a percentage of `total`. Absent is 25 %, the default of both bounds of a rolling update.
pub fn scaled(value: &Value, total: i32, up: bool) -> i32 {
    let percent = match value {
        Value::Number(_) => return count(value, 0).max(0),
        Value::String(text) => text
            .strip_suffix('%')
            .and_then(|p| p.parse::<u32>().ok())
            .unwrap_or_default(),
        _ => 25,
    };
    let product = i64::from(percent) * i64::from(total);
    let scaled = if up {
        (product + 99) / 100
    } else {
        product / 100
    };
    i32::try_from(scaled).unwrap_or(i32::MAX)
}

/// An RFC 3339 time; see [`timestamp`].
pub fn time(value: &Value) -> Option<Timestamp> {
    timestamp(value.as_str()?)
}

/// A time that an API server wrote. One that is out of the range of the type is its first or last time.
pub fn timestamp(text: &str) -> Option<Timestamp> {
    let time = GoTime::read(text).ok()?;
    let nanos = i32::try_from(time.nanos()).ok()?;
    let bound = if time.seconds() < 0 {
        Timestamp::MIN
    } else {
        Timestamp::MAX
    };
    Some(Timestamp::new(time.seconds(), nanos).unwrap_or(bound))
}

/// `metadata.creationTimestamp`, or the epoch.
pub fn created_at(object: &Value) -> Timestamp {
    time(&object["metadata"]["creationTimestamp"]).unwrap_or_default()
}

/// A time as `metav1.Time` is written: whole seconds.
pub fn seconds(time: Timestamp) -> Value {
    Value::String(time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
}

/// A time as `metav1.MicroTime` is written.
pub fn micros(time: Timestamp) -> Value {
    Value::String(time.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string())
}

/// Sets the value at `path`, and creates missing parent objects.
pub fn set(object: &mut Value, path: &[&str], value: Value) {
    let mut at = object;
    for step in path {
        if !at.is_object() {
            *at = Value::Object(Map::new());
        }
        let Value::Object(map) = at else { return };
        at = map.entry(*step).or_insert(Value::Null);
    }
    *at = value;
}

/// Sets a count of a status, or removes it when it is zero, as the API writes optional counts.
pub fn set_count(status: &mut Value, field: &str, count: usize) {
    if count > 0 {
        set(status, &[field], count.into());
    } else if let Some(status) = status.as_object_mut() {
        status.remove(field);
    }
}

/// Sets one annotation; `true` when that changed something.
pub fn set_annotation(object: &mut Value, key: &str, value: &str) -> bool {
    if annotation(object, key) == Some(value) {
        return false;
    }
    set(object, &["metadata", "annotations", key], value.into());
    true
}

// === owners ===

/// `metadata.ownerReferences`.
pub fn owner_references(object: &Value) -> &[Value] {
    items(&object["metadata"]["ownerReferences"])
}

/// The owner reference of the managing controller, if there is one.
pub fn controller_of(object: &Value) -> Option<&Value> {
    owner_references(object)
        .iter()
        .find(|r| r["controller"] == true)
}

/// The UID of the managing controller, if there is one.
pub fn controller_uid(object: &Value) -> Option<&str> {
    controller_of(object)?["uid"].as_str()
}

/// The key of the managing controller, if that is of this kind.
pub fn controller_key(kind: ControllerKind, object: &Value) -> Option<ControllerKey> {
    let owner = controller_of(object)?;
    (owner["kind"] == kind.kind && owner["apiVersion"] == kind.api_version)
        .then(|| ControllerKey::new(namespace(object), text(&owner["name"])))
}

/// The owner reference that makes `owner` the managing controller of an object.
pub fn controller_reference(kind: ControllerKind, owner: &Value) -> Value {
    json!({
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "name": name(owner),
        "uid": uid(owner),
        "controller": true,
        "blockOwnerDeletion": true,
    })
}

/// Appends an owner reference.
pub fn add_owner(object: &mut Value, reference: Value) {
    let mut references = owner_references(object).to_vec();
    references.push(reference);
    set(object, &["metadata", "ownerReferences"], references.into());
}

/// Drops the owner references whose UID `gone` accepts; `true` when there were any.
pub fn remove_owners(object: &mut Value, gone: impl Fn(&str) -> bool) -> bool {
    let before = owner_references(object).len();
    let left: Vec<Value> = owner_references(object)
        .iter()
        .filter(|r| !gone(text(&r["uid"])))
        .cloned()
        .collect();
    let changed = left.len() != before;
    if !changed {
        return false;
    }
    if left.is_empty() {
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.remove("ownerReferences");
        }
    } else {
        set(object, &["metadata", "ownerReferences"], left.into());
    }
    true
}

// === conditions ===

/// The condition of that type in a status.
pub fn condition<'a>(status: &'a Value, kind: &str) -> Option<&'a Value> {
    items(&status["conditions"])
        .iter()
        .find(|c| c["type"] == kind)
}

/// Returns whether the condition of that type is `True`.
pub fn condition_is_true(status: &Value, kind: &str) -> bool {
    condition(status, kind).is_some_and(|c| c["status"] == "True")
}

/// Drops the condition of that type.
pub fn remove_condition(status: &mut Value, kind: &str) {
    if let Some(conditions) = status.get_mut("conditions").and_then(Value::as_array_mut) {
        conditions.retain(|c| c["type"] != kind);
    }
}

/// A condition that has this status since now.
pub fn new_condition(
    kind: &str,
    status: &str,
    reason: &str,
    message: &str,
    now: Timestamp,
) -> Value {
    json!({
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": seconds(now),
    })
}

/// As [`put_condition`]; a condition that has its status already keeps the time since when it has.
pub fn update_condition(status: &mut Value, mut new: Value) {
    let kind = new["type"].as_str().unwrap_or_default();
    let old = condition(status, kind).filter(|old| old["status"] == new["status"]);
    if let Some(since) = old.map(|old| old["lastTransitionTime"].clone()) {
        new["lastTransitionTime"] = since;
    }
    put_condition(status, new);
}

/// Replaces the condition of the same type, or appends `condition`.
pub fn put_condition(status: &mut Value, condition: Value) {
    let mut conditions = items(&status["conditions"]).to_vec();
    match conditions
        .iter_mut()
        .find(|c| c["type"] == condition["type"])
    {
        Some(slot) => *slot = condition,
        None => conditions.push(condition),
    }
    set(status, &["conditions"], conditions.into());
}

/// Older first; of the same second, in name order.
pub fn by_age(a: &Value, b: &Value) -> Ordering {
    created_at(a)
        .cmp(&created_at(b))
        .then_with(|| name(a).cmp(name(b)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn setting_makes_the_objects_on_the_way_and_replaces_what_is_in_it() {
        let mut object = json!({"metadata": "wrong"});
        set(&mut object, &["metadata", "labels", "a"], "b".into());
        assert_eq!(object, json!({"metadata": {"labels": {"a": "b"}}}));
    }

    #[test]
    fn owners_are_removed_by_uid_and_an_empty_list_disappears() {
        let mut object = json!({"metadata": {"ownerReferences": [{"uid": "1"}, {"uid": "2"}]}});
        assert!(!remove_owners(&mut object, |uid| uid == "3"));
        assert!(remove_owners(&mut object, |uid| uid == "1"));
        assert_eq!(owner_references(&object), [json!({"uid": "2"})]);
        assert!(remove_owners(&mut object, |_| true));
        assert_eq!(object, json!({"metadata": {}}));
    }

    #[test]
    fn a_condition_keeps_its_place() {
        let mut status = json!({"conditions": [{"type": "A", "status": "False"}, {"type": "B"}]});
        put_condition(&mut status, json!({"type": "A", "status": "True"}));
        put_condition(&mut status, json!({"type": "C"}));
        let types: Vec<_> = items(&status["conditions"])
            .iter()
            .map(|c| &c["type"])
            .collect();
        assert_eq!(types, ["A", "B", "C"]);
        assert!(condition_is_true(&status, "A"));
    }

    #[test]
    fn times_are_written_as_kubernetes_writes_them() {
        let time: Timestamp = "2026-01-02T03:04:05.678901234Z".parse().unwrap();
        assert_eq!(timestamp("2026-01-02T03:04:05.678901234Z"), Some(time));
        for (text, bound) in [
            ("9999-12-31T23:59:59Z", Timestamp::MAX),
            ("292277026596-12-04T15:30:07Z", Timestamp::MAX),
            ("-10000-01-01T00:00:00Z", Timestamp::MIN),
        ] {
            assert_eq!(timestamp(text), Some(bound), "{text}");
        }
        assert_eq!(seconds(time), "2026-01-02T03:04:05Z");
        assert_eq!(micros(time), "2026-01-02T03:04:05.678901Z");
    }

    #[test]
    fn an_error_of_decoding_has_no_place_in_a_text_that_is_not_shown() {
        let pod = json!({"metadata": {"name": "p"}, "spec": {"priority": "high"}});
        let error = decoded_pod(&pod).expect_err("the priority is no number");
        let expected = r#"invalid type: string "high", expected i32"#;
        assert_eq!(error.to_string(), expected);
    }
}
