//! Access to devices for administration, which the namespace of a claim must allow. Follows KEP-5018.

use super::api::Api;
use berth_objects::access::gr;
use berth_objects::catalog::{self, ServedResource};
use berth_objects::field::{ErrorType, FieldError};
use berth_objects::view::FieldView;
use serde_json::Value;

/// The label of a namespace whose claims may have access for administration.
const LABEL: &str = "resource.kubernetes.io/admin-access";

/// The error of a new claim, or of a new template of claims, that asks for access that its namespace does not allow.
pub(super) fn admin_access(
    api: &Api,
    rules: &ServedResource,
    object: &Value,
) -> Option<FieldError> {
    let spec = object.part("spec");
    let spec = match rules.resource {
        r if r == gr("resource.k8s.io", "resourceclaims") => spec,
        r if r == gr("resource.k8s.io", "resourceclaimtemplates") => spec.part("spec"),
        _ => return None,
    };
    let requests = spec.part("devices").items("requests").iter();
    let i = requests
        .map(|request| request.part("exactly").flag("adminAccess"))
        .position(|is_asked| is_asked)?;
    // Upstream names the field so for templates, too.
    let field = format!("spec.devices.requests[{i}].adminAccess");
    forbidden(api, object, field)
}

/// The same for the allocation in the new status of a claim. An allocation that had such access before keeps it.
pub(super) fn admin_access_of_status(
    api: &Api,
    rules: &ServedResource,
    (new, old): (&Value, &Value),
) -> Option<FieldError> {
    if rules.resource != gr("resource.k8s.io", "resourceclaims") {
        return None;
    }
    let asked = |claim: &Value| {
        let allocation = claim.part("status").part("allocation");
        let mut results = allocation.part("devices").items("results").iter();
        results.position(|result| result.flag("adminAccess"))
    };
    let i = match asked(old) {
        Some(_) => return None,
        None => asked(new)?,
    };
    let field = format!("status.allocation.devices.results[{i}].adminAccess");
    forbidden(api, new, field)
}

fn forbidden(api: &Api, object: &Value, field: String) -> Option<FieldError> {
    let namespace = object.part("metadata").text("namespace");
    let namespaces = catalog::find("", "namespaces")?;
    let found = api.get(namespaces, "", namespace).ok();
    let is_allowed = found.is_some_and(|namespace| {
        let namespace = namespace.object();
        namespace.part("metadata").part("labels").text(LABEL) == "true"
    });
    (!is_allowed).then(|| FieldError {
        kind: ErrorType::Forbidden,
        field,
        value: None,
        detail: format!(
            "admin access to devices requires the `{LABEL}: true` label on the containing namespace"
        ),
    })
}
