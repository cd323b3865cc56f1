//! ComponentStatuses: the health of the parts of the control plane, determined at each read. Nothing is stored.
//!
//! kube-apiserver probes the scheduler and the controller manager at their ports on its own machine. Berth reads the
//! Lease of the scheduler, on any machine, and knows the controllers, which run in its process.

use super::api::Api;
use crate::storage::ObjectVersion;
use berth_objects::access::gr;
use berth_objects::catalog::{self, ServedResource};
use berth_objects::object::timestamp;
use berth_objects::status::{ApiError, StatusSubject};
use berth_objects::view::FieldView;
use jiff::SignedDuration;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The Lease that leading schedulers hold, in kube-system.
const SCHEDULER_LEASE: &str = "kube-scheduler";

/// The objects, if the resource is componentstatuses.
pub(super) fn all(api: &Api, resource: &ServedResource) -> Option<Vec<Arc<ObjectVersion>>> {
    if resource.resource != gr("", "componentstatuses") {
        return None;
    }
    let controllers = if api.has_controllers.load(Ordering::Relaxed) {
        Ok(())
    } else {
        Err("the controllers of this server are off".to_owned())
    };
    let parts = [
        ("scheduler", scheduler(api)),
        ("controller-manager", controllers),
        ("etcd-0", Ok(())),
    ];
    let parts = parts.map(|(name, health)| {
        let (status, message) = match health {
            Ok(()) => ("True", "ok".to_owned()),
            Err(why) => ("False", why),
        };
        ObjectVersion::unstored(json!({
            "kind": "ComponentStatus", "apiVersion": "v1", "metadata": {"name": name},
            "conditions": [{"type": "Healthy", "status": status, "message": message}],
        }))
    });
    Some(parts.to_vec())
}

/// The object of this name, if it would be one of this resource.
pub(super) fn one(
    api: &Api,
    resource: &ServedResource,
    name: &str,
) -> Option<Result<Arc<ObjectVersion>, ApiError>> {
    let is_wanted = |part: &Arc<ObjectVersion>| part.object().part("metadata").text("name") == name;
    let found = all(api, resource)?.into_iter().find(is_wanted);
    Some(found.ok_or_else(|| {
        // kube-apiserver names them by the singular.
        ApiError::not_found(StatusSubject {
            group: "",
            resource: "componentstatus",
            name,
        })
    }))
}

/// Returns whether a scheduler leads.
fn scheduler(api: &Api) -> Result<(), String> {
    let lease = catalog::find("coordination.k8s.io", "leases");
    let lease = lease.and_then(|leases| api.get(leases, "kube-system", SCHEDULER_LEASE).ok());
    let lease = lease.map(|lease| lease.object());
    let spec = lease.as_deref().unwrap_or(&Value::Null).part("spec");
    if spec.text("holderIdentity").is_empty() {
        return Err(format!(
            "no scheduler holds the Lease kube-system/{SCHEDULER_LEASE}"
        ));
    }
    let renewed = timestamp(spec.text("renewTime"));
    let lasts = SignedDuration::from_secs(spec.int("leaseDurationSeconds"));
    let ends = renewed.and_then(|renewed| renewed.checked_add(lasts).ok());
    if ends.is_some_and(|ends| ends > api.now()) {
        Ok(())
    } else {
        Err(format!(
            "the Lease kube-system/{SCHEDULER_LEASE} of {} is not renewed",
            spec.text("holderIdentity")
        ))
    }
}
