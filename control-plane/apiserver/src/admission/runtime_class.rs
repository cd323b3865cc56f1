//! RuntimeClass: a pod gets the overhead, the node selector and the tolerations of its runtime class.

use crate::registry::Api;
use berth_objects::catalog::{self, ServedResource};
use berth_objects::status::ApiError;
use berth_objects::validation::amounts;
use berth_objects::view::{FieldView, child, set};
use serde_json::Value;

/// Sets the fields of a pod that its runtime class defines.
///
/// # Errors
/// 403 when the class does not exist or the pod states something else.
pub(super) fn apply(api: &Api, pods: &ServedResource, pod: &mut Value) -> Result<(), ApiError> {
    let name = super::given_name(pod).to_owned();
    let forbid = |message: String| Err(ApiError::forbidden(pods.subject(&name), &message));
    let Some(spec) = child(pod, "spec") else {
        return Ok(());
    };
    let Some(class_name) = spec.maybe_text("runtimeClassName").map(str::to_owned) else {
        return match spec.field("overhead") {
            Some(_) => forbid(WITHOUT_CLASS.to_owned()),
            None => Ok(()),
        };
    };
    let classes = catalog::find("node.k8s.io", "runtimeclasses");
    let class = classes.and_then(|classes| api.get(classes, "", &class_name).ok());
    let Some(class) = class else {
        let message = format!("pod rejected: RuntimeClass {class_name:?} not found");
        return forbid(message);
    };
    let class = class.object();
    let given = amounts::list(spec, "overhead");
    match class.field("overhead") {
        Some(overhead) => {
            if !given.is_empty() && given != amounts::list(overhead, "podFixed") {
                let message =
                    "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead";
                return forbid(message.to_owned());
            }
            set(spec, "overhead", overhead.part("podFixed").clone());
        }
        None if spec.field("overhead").is_some() => return forbid(WITHOUT_CLASS.to_owned()),
        None => {}
    }
    let Some(scheduling) = class.field("scheduling") else {
        return Ok(());
    };
    for (key, value) in scheduling.labels("nodeSelector") {
        let Some(selector) = child(spec, "nodeSelector") else {
            continue;
        };
        match selector.maybe_text(key) {
            Some(own) if own != value => {
                let message = format!(
                    "conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value}; pod.spec.nodeSelector[{key}] = {own}"
                );
                return forbid(message);
            }
            _ => set(selector, key, value),
        }
    }
    let all: Vec<&Value> = [&*spec, scheduling]
        .into_iter()
        .flat_map(|holder| holder.items("tolerations"))
        .collect();
    let mut merged: Vec<Value> = Vec::new();
    for (i, toleration) in all.iter().enumerate() {
        // A toleration that another one covers is dropped; the first of equals is kept.
        let later = all.iter().skip(i + 1);
        let is_covered = merged.iter().any(|other| covers(other, toleration))
            || later
                .filter(|other| *other != toleration)
                .any(|other| covers(other, toleration));
        if !is_covered {
            merged.push(Value::clone(toleration));
        }
    }
    if !merged.is_empty() {
        set(spec, "tolerations", merged);
    }
    Ok(())
}

/// Returns whether a toleration tolerates every taint of another toleration for at least the same time.
fn covers(wide: &Value, narrow: &Value) -> bool {
    let exists = wide.text("operator") == "Exists";
    let same = |field: &str| wide.text(field) == narrow.text(field);
    let lasts = match (
        wide.maybe_int("tolerationSeconds"),
        narrow.maybe_int("tolerationSeconds"),
    ) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some(wide), Some(narrow)) => narrow <= wide,
    };
    wide == narrow
        || (same("key") || (exists && wide.text("key").is_empty()))
            && (same("effect") || wide.text("effect").is_empty())
            && (lasts || wide.text("effect") != "NoExecute")
            && (exists || (narrow.text("operator") == "Equal" && same("value")))
}

const WITHOUT_CLASS: &str =
    "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead";
