//! The shared parts of the controllers of workloads: pods from templates, and the events about them.

use super::runtime::ControllerContext;
use berth_objects::access::{AccessError, StoredObject};
use berth_objects::object::{
    ControllerKey, ControllerKind, POD, controller_reference, name, namespace,
};
use serde_json::{Value, json};

/// The pod that a workload's template asks for, owned by the workload.
pub(super) fn pod_from_template(template: &Value, kind: ControllerKind, owner: &Value) -> Value {
    let mut metadata = json!({
        "generateName": format!("{}-", name(owner)),
        "namespace": namespace(owner),
        "ownerReferences": [controller_reference(kind, owner)],
    });
    for field in ["labels", "annotations", "finalizers"] {
        if !template["metadata"][field].is_null() {
            metadata[field] = template["metadata"][field].clone();
        }
    }
    POD.object(json!({"metadata": metadata,
        "spec": template["spec"],
    }))
}

/// Creates a pod of a workload; `false` if its namespace is being deleted, which ends the reconcile.
pub(super) fn create_pod(
    cx: &mut ControllerContext<ControllerKey>,
    workload: &StoredObject,
    pod: Value,
) -> Result<bool, AccessError> {
    match cx.create(POD, pod) {
        Ok(pod) => {
            let message = format!("Created pod: {}", name(&pod));
            cx.normal(workload, "SuccessfulCreate", message);
            Ok(true)
        }
        Err(error) if error.is_namespace_terminating() => Ok(false),
        Err(error) => {
            cx.warn(workload, "FailedCreate", format!("Error creating: {error}"));
            Err(error)
        }
    }
}

/// Deletes a pod of a workload.
pub(super) fn delete_pod(
    cx: &mut ControllerContext<ControllerKey>,
    workload: &StoredObject,
    pod: &StoredObject,
) -> Result<(), AccessError> {
    let deleted = cx.delete(POD, pod);
    match &deleted {
        Ok(()) => {
            let message = format!("Deleted pod: {}", name(pod));
            cx.normal(workload, "SuccessfulDelete", message);
        }
        Err(error) => cx.warn(workload, "FailedDelete", format!("Error deleting: {error}")),
    }
    deleted
}
