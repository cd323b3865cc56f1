//! Objects as JSON: their keys, their defaults, and the objects as the scheduler and the controllers of claims read them.

use crate::documents::Document;
use crate::error::InputError;
use berth_api::{Kind, Object, Pod};
use berth_explain::engine::VOLUME_CLAIM_TEMPLATES_ANNOTATION;
use berth_explain::what_if::{CopiedObjects, key_of};
use berth_framework::cluster::{DEFERRED_QUOTA, QuotaSpec};
use berth_objects::{object, offline};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The objects that the scheduler reads, so that changes can name single fields.
pub(crate) type ClusterJson = BTreeMap<ObjectKey, Value>;
/// Kind, namespace and name of an object.
pub(crate) type ObjectKey = (Kind, String, String);

/// Returns whether there are groups of pods, so that the scheduler schedules their pods as groups.
pub(crate) fn has_groups(raw: &ClusterJson) -> bool {
    raw.keys().any(|(kind, ..)| *kind == Kind::PodGroup)
}

/// The key of an object that the scheduler reads; `None` for an object of another kind.
pub(crate) fn known(
    place: &str,
    mut object: Value,
) -> Result<Option<(ObjectKey, Value)>, InputError> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
    if kind.is_empty() || version.is_empty() {
        return Err(InputError::object(
            place,
            "apiVersion or kind is missing; give objects as kubectl get -o yaml prints them",
        ));
    }
    let known_kind = Kind::by_name(&version, &kind);
    let quota = is_deferred_quota(&object).then_some(Kind::Custom(DEFERRED_QUOTA));
    let Some(found) = known_kind.or(quota) else {
        return Ok(None);
    };
    let name = text(&object["metadata"]["name"]);
    if name.is_empty() {
        return Err(InputError::object(place, "metadata.name is missing"));
    }
    let mut namespace = text(&object["metadata"]["namespace"]);
    if namespace.is_empty() && is_namespaced(found) {
        namespace = "default".to_owned();
        object["metadata"]["namespace"] = "default".into();
    }
    Ok(Some(((found, namespace, name), object)))
}

/// Sets the defaults of the API server in an object.
pub(crate) fn set_defaults(object: &mut Value) {
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
            | Kind::PodGroup
            | Kind::CompositePodGroup
            | Kind::Custom(DEFERRED_QUOTA)
    )
}

/// Returns whether an object is a DeferredQuota: the only custom kind that the scheduler reads.
pub(crate) fn is_deferred_quota(object: &Value) -> bool {
    object["apiVersion"] == "scheduling.berth.dev/v1alpha1" && object["kind"] == "DeferredQuota"
}

/// `namespace/name`, or the name of an object outside of namespaces.
pub(crate) fn shown(key: &ObjectKey) -> String {
    match key.1.as_str() {
        "" => key.2.clone(),
        namespace => format!("{namespace}/{}", key.2),
    }
}

pub(crate) fn shown_with_kind(key: &ObjectKey) -> String {
    format!("{} {}", key.0.name(), shown(key))
}

/// The objects as the scheduler reads them.
///
/// # Errors
/// When a field has a value of the wrong type.
pub(crate) fn decode(raw: &ClusterJson) -> Result<CopiedObjects, InputError> {
    let decoded = raw.iter().map(|(key, value)| {
        let object = key.0.decode(value.to_string().as_bytes());
        let wrong = |reason| InputError::Field {
            object: shown_with_kind(key),
            reason,
        };
        let mut object = object.map_err(|e| wrong(e.to_string()))?;
        if let Object::Pod(pod) = &mut object {
            note_volume_templates(Arc::make_mut(pod), &value["spec"]).map_err(wrong)?;
        }
        // The rules of the definition refuse such a quota.
        if let Object::Custom(quota) = &object {
            QuotaSpec::read(quota).map_err(wrong)?;
        }
        Ok((key_of(&object), object))
    });
    decoded.collect()
}

/// A new pod as the scheduler reads it.
///
/// # Errors
/// When a field has a value of the wrong type.
pub(crate) fn decoded_pod(pod: &Value) -> Result<Arc<Pod>, String> {
    let mut decoded = object::decoded_pod(pod).map_err(|e| e.to_string())?;
    note_volume_templates(Arc::make_mut(&mut decoded), &pod["spec"])?;
    Ok(decoded)
}

/// Notes the claim templates of the ephemeral volumes of a pod's spec, which controllers read and the scheduler does not,
/// as an annotation of the pod.
///
/// # Errors
/// When a template is malformed.
pub fn note_volume_templates(pod: &mut Pod, spec: &Value) -> Result<(), String> {
    let mut templates = Map::new();
    for (index, volume) in spec["volumes"].as_array().into_iter().flatten().enumerate() {
        let template = &volume["ephemeral"]["volumeClaimTemplate"];
        let Some(name) = volume["name"].as_str().filter(|_| !template.is_null()) else {
            continue;
        };
        let decoded = Kind::PersistentVolumeClaim.decode(template.to_string().as_bytes());
        decoded.map_err(|e| {
            format!("failed to decode spec.volumes[{index}].ephemeral.volumeClaimTemplate: {e}")
        })?;
        templates.insert(name.to_owned(), template.clone());
    }
    if !templates.is_empty() {
        let templates = Value::Object(templates).to_string();
        let annotations = &mut pod.metadata.annotations;
        *annotations = annotations.with(VOLUME_CLAIM_TEMPLATES_ANNOTATION, &templates);
    }
    Ok(())
}

/// An object with its defaults as the scheduler reads it, or its kind if the scheduler does not read the kind.
///
/// # Errors
/// When the object is malformed.
pub fn decoded(document: Document) -> Result<Result<Object, String>, InputError> {
    let Document { place, object } = document;
    let kind = object["kind"].as_str().unwrap_or_default().to_owned();
    let Some((key, mut object)) = known(&place, object)? else {
        return Ok(Err(kind));
    };
    set_defaults(&mut object);
    let decoded = key.0.decode(object.to_string().as_bytes());
    decoded
        .map(Ok)
        .map_err(|e| InputError::object(&place, format!("failed to decode {kind} {}: {e}", key.2)))
}
