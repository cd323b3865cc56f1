//! Access to devices for administration, which the namespace of a claim must allow. Follows KEP-5018.

use super::api::Api;
use super::claims;
use super::kinds::ServerStrategy;
use super::request::UpdateInputs;
use berth_objects::catalog;
use berth_objects::field::{ErrorType, FieldError};
use berth_objects::strategy::Subresource;
use berth_objects::view::FieldView;
use serde_json::Value;

/// The label of a namespace whose claims may have access for administration.
const LABEL: &str = "resource.kubernetes.io/admin-access";

/// ResourceClaims.
pub(super) struct Claims;
/// ResourceClaimTemplates.
pub(super) struct ClaimTemplates;

impl ServerStrategy for Claims {
    fn validate(&self, api: &Api, claim: &Value) -> Vec<FieldError> {
        let error = admin_access(api, claim, claim.part("spec"));
        error.into_iter().collect()
    }

    fn validate_update(
        &self,
        api: &Api,
        change: &UpdateInputs<'_>,
        new: &Value,
        old: &Value,
    ) -> Vec<FieldError> {
        if change.half() != Subresource::Status {
            return Vec::new();
        }
        let mut errors = Vec::from_iter(admin_access_of_status(api, new, old));
        errors.extend(claims::authorize(api, change, new, old));
        errors
    }
}

impl ServerStrategy for ClaimTemplates {
    fn validate(&self, api: &Api, template: &Value) -> Vec<FieldError> {
        let error = admin_access(api, template, template.part("spec").part("spec"));
        error.into_iter().collect()
    }
}

/// The error of a new claim, or of a new template of claims, with this spec of claims that asks for access that its
/// namespace does not allow.
fn admin_access(api: &Api, object: &Value, spec: &Value) -> Option<FieldError> {
    let requests = spec.part("devices").items("requests").iter();
    let i = requests
        .map(|request| request.part("exactly").flag("adminAccess"))
        .position(|is_asked| is_asked)?;
    // Upstream names the field so for templates, too.
    let field = format!("spec.devices.requests[{i}].adminAccess");
    forbidden(api, object, field)
}

/// The same for the allocation in the new status of a claim. An allocation that had such access before keeps it.
fn admin_access_of_status(api: &Api, new: &Value, old: &Value) -> Option<FieldError> {
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
