//! The admission of additional usage, within the quotas of its namespace.

use super::siblings;
use crate::registry::{Api, Method, UpdateInputs, WriteOptions};
use berth_objects::access::{StoredObject, gr};
use berth_objects::catalog::ServedResource;
use berth_objects::quota::{charged, is_in_scope, tracks, unstated, usage};
use berth_objects::status::ApiError;
use berth_objects::validation::amounts::{self, Amounts};
use berth_objects::view::FieldView;
use serde_json::Value;
use std::collections::BTreeSet;

/// Charges the quotas of a namespace for a new object, or for the additional usage of a changed object.
///
/// # Errors
/// 403 if that exceeds a quota, or if a container does not state a counted resource.
pub(super) fn charge(
    api: &Api,
    resource: &ServedResource,
    namespace: &str,
    object: &Value,
    old: Option<&Value>,
    dry_run: bool,
) -> Result<(), ApiError> {
    let kind = resource.resource;
    let quotas = siblings(api, "resourcequotas", namespace);
    let quotas: Vec<StoredObject> = quotas.iter().map(|v| v.object()).collect();
    if quotas.is_empty() {
        return Ok(());
    }
    let now = api.now();
    let name = object.part("metadata").text("name");
    let forbid = |message: &str| ApiError::forbidden(resource.subject(name), message);
    let after = usage(kind, object, now);
    let mut charges = Vec::new();
    for quota in &quotas {
        let quota = &**quota;
        let hard = amounts::list(quota.part("status"), "hard");
        let counted: BTreeSet<&str> = hard.keys().map(String::as_str).collect();
        let counted: BTreeSet<&str> = counted.into_iter().filter(|n| tracks(kind, n)).collect();
        if counted.is_empty() || !is_in_scope(quota, kind, object) {
            continue;
        }
        let quota_name = quota.part("metadata").text("name");
        if kind == gr("", "pods")
            && let Some(missing) = unstated(object.part("spec"), &counted)
        {
            return Err(forbid(&format!(
                "failed quota: {quota_name}: must specify {missing}"
            )));
        }
        let used = quota.part("status").part("used");
        if counted.iter().any(|name| used.field(name).is_none()) {
            let names: Vec<&str> = counted.into_iter().collect();
            let names = names.join(",");
            return Err(forbid(&format!(
                "status unknown for quota: {quota_name}, resources: {names}"
            )));
        }
        let before = old.filter(|old| is_in_scope(quota, kind, old));
        let before = before.map_or_else(Amounts::new, |old| usage(kind, old, now));
        let mut more = after.clone();
        more.retain(|name, amount| {
            *amount -= before.get(name).copied().unwrap_or_default();
            amount.sign() > 0 && hard.contains_key(name)
        });
        if !more.is_empty() {
            charged(quota, &more).map_err(|message| forbid(&message))?;
            charges.push((quota_name, more));
        }
    }
    let options = WriteOptions {
        manager: "kube-apiserver".to_owned(),
        ..WriteOptions::default()
    };
    let quotas = berth_objects::catalog::find("", "resourcequotas")
        .ok_or_else(ApiError::no_such_resource)?;
    for (quota, more) in charges.iter().filter(|_| !dry_run) {
        let change = UpdateInputs {
            resource: quotas,
            namespace,
            name: quota,
            sub: "status",
            options: &options,
            by: Method::Patch,
            is_decoded: false,
        };
        let compute = |quota: &Value| {
            let mut quota = charged(quota, more).map_err(|message| forbid(&message))?;
            // The amounts are added to the stored amounts.
            if let Some(metadata) = quota["metadata"].as_object_mut() {
                metadata.remove("resourceVersion");
            }
            Ok(quota)
        };
        match api.update(&change, compute) {
            Err(error) if error.code != 404 => return Err(error),
            _ => {}
        }
    }
    Ok(())
}
