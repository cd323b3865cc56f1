//! The template of the pods that are added until no further one fits.

use crate::InputError;
use crate::changes::others::Others;
use crate::changes::strict;
use crate::changes::workloads::new_pod;
use crate::changes::{Added, name_of, namespace_of};
use crate::documents::Document;
use crate::json::{ClusterJson, ObjectKey, decoded_pod};
use berth_api::{Kind, Pod};
use serde_json::Value;
use std::sync::Arc;

/// The maximum number of added pods.
pub(crate) const PODS_MAX: usize = 10_000;

/// The template.
#[derive(Debug, Clone)]
pub(crate) struct FitTemplate {
    pub(crate) pod: Arc<Pod>,
    /// The missing objects.
    pub(crate) notes: Vec<String>,
}

/// Reads the template: a Pod, a PodTemplate, or a workload with a template.
///
/// # Errors
/// When the document is none of these, or the pod is invalid.
pub(crate) fn template(document: &Document, others: &Others) -> Result<FitTemplate, InputError> {
    let Document { place, object } = document;
    strict::check(place, object)?;
    let text = |field: &str| object[field].as_str().unwrap_or_default().to_owned();
    let (version, kind) = (text("apiVersion"), text("kind"));
    let name = name_of(object).unwrap_or_else(|| "pod".to_owned());
    let key: ObjectKey = (Kind::Pod, namespace_of(object), name);
    let model = match kind.as_str() {
        "Pod" => object,
        "PodTemplate" => &object["template"],
        "CronJob" => &object["spec"]["jobTemplate"]["spec"]["template"],
        _ => &object["spec"]["template"],
    };
    if !model["spec"].is_object() {
        return Err(InputError::object(
            place,
            format!("{kind} has no template of a pod; give a Pod, a PodTemplate or a workload"),
        ));
    }
    let mut pod = new_pod(&key, model, &version, &kind, &key.2);
    if matches!(kind.as_str(), "Pod" | "PodTemplate") {
        pod["metadata"]["ownerReferences"] = Value::Null;
    }
    pod["apiVersion"] = "v1".into();
    pod["kind"] = "Pod".into();
    strict::check_new(&ClusterJson::new(), place, &key, &pod)?;
    let mut alone = ClusterJson::from([(key.clone(), pod)]);
    let added = Added {
        pods: vec![key.clone()],
        ..Added::default()
    };
    others.priorities.resolve(&mut alone, &added)?;
    let pod = alone.remove(&key).unwrap_or_default();
    let notes = others.claims.missing([&pod]);
    let pod = decoded_pod(&pod).map_err(|reason| InputError::object(place, reason))?;
    Ok(FitTemplate { pod, notes })
}
