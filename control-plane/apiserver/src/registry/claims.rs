//! The permissions for the parts of the status of a ResourceClaim (gate DRAResourceClaimGranularStatusAuthorization).
//!
//! The allocation and the reservations need the right on `resourceclaims/binding`, as the scheduler has it. The status
//! of devices needs that on `resourceclaims/driver` for each driver: with the verb `associated-node:…` for a driver on
//! the node of the claim, with `arbitrary-node:…` otherwise.

use super::api::Api;
use super::rbac::{self, RequestAttributes};
use super::request::UpdateInputs;
use crate::auth::RequestUser;
use berth_api::names::dns1123_subdomain;
use berth_objects::field::{ErrorType, FieldError};
use berth_objects::view::{FieldView, meta};
use serde_json::Value;
use std::collections::BTreeSet;

const GROUP: &str = "resource.k8s.io";
/// The extra field of a user with the node of the pod that a token belongs to.
const NODE_NAME: &str = "authentication.kubernetes.io/node-name";

/// The fields that the sender may not change of the status of a claim.
pub(super) fn authorize(
    api: &Api,
    change: &UpdateInputs<'_>,
    new: &Value,
    old: &Value,
) -> Vec<FieldError> {
    let (verb, requester) = (change.verb(), &change.options.requester);
    if requester.is_internal() {
        return Vec::new();
    }
    let user = &requester.user;
    let (new_status, old_status) = (new.part("status"), old.part("status"));
    let differs = |field: &str| new_status.part(field) != old_status.part(field);
    let mut errors = Vec::new();
    let mut forbid = |field: &str, detail: String| {
        errors.push(FieldError {
            kind: ErrorType::Forbidden,
            field: field.to_owned(),
            value: None,
            detail,
        });
    };
    if differs("allocation") || differs("reservedFor") {
        let asked = RequestAttributes {
            verb,
            group: GROUP,
            resource: "resourceclaims",
            sub: "binding",
            ..RequestAttributes::default()
        };
        if let Err(error) = rbac::authorize(api, user, &asked) {
            forbid(
                "status.allocation",
                format!(
                    "changing status.allocation or status.reservedFor requires resource=\"resourceclaims/binding\", verb=\"{verb}\" permission: {error}"
                ),
            );
        }
    }
    if new_status.field("allocation").is_none() {
        return errors;
    }
    let node = allocated_node(new_status.part("allocation"));
    let is_associated = !node.is_empty() && node_of(user) == Some(node);
    let mut verbs = vec![format!("arbitrary-node:{verb}")];
    if is_associated {
        verbs.insert(0, format!("associated-node:{verb}"));
    }
    for driver in changed_drivers(new_status, old_status) {
        let mut refusal = None;
        let is_allowed = verbs.iter().any(|verb| {
            let asked = RequestAttributes {
                verb,
                group: GROUP,
                resource: "resourceclaims",
                sub: "driver",
                namespace: meta(new, "namespace"),
                name: driver,
                path: "",
            };
            let answer = rbac::authorize(api, user, &asked);
            let is_allowed = answer.is_ok();
            refusal = refusal.take().or(answer.err());
            is_allowed
        });
        if let (false, Some(error)) = (is_allowed, refusal) {
            let verbs = verbs.join(" ");
            forbid(
                "status.devices",
                format!(
                    "changing status.devices requires resource=\"resourceclaims/driver\", verb=\"[{verbs}]\" permission: {error}"
                ),
            );
        }
    }
    errors
}

/// The drivers whose entries are added, changed or removed.
fn changed_drivers<'c>(new: &'c Value, old: &'c Value) -> BTreeSet<&'c str> {
    let (new, old) = (new.items("devices"), old.items("devices"));
    let key =
        |device: &'c Value| ["driver", "pool", "device", "shareID"].map(|field| device.text(field));
    let is_in = |list: &'c [Value], device: &'c Value| {
        list.iter()
            .any(|other| key(other) == key(device) && other == device)
    };
    let changed = new.iter().filter(|device| !is_in(old, device));
    let removed = old
        .iter()
        .filter(|device| !new.iter().any(|other| key(other) == key(device)));
    changed
        .chain(removed)
        .map(|device| device.text("driver"))
        .collect()
}

/// The node of an allocation that is available on one node.
fn allocated_node(allocation: &Value) -> &str {
    let [term] = allocation.part("nodeSelector").items("nodeSelectorTerms") else {
        return "";
    };
    let ([], [field]) = (term.items("matchExpressions"), term.items("matchFields")) else {
        return "";
    };
    match (
        field.text("key"),
        field.text("operator"),
        &field.strings("values")[..],
    ) {
        ("metadata.name", "In", [node]) => node,
        _ => "",
    }
}

/// The node of the pod to which the token of a service account is bound.
fn node_of(user: &RequestUser) -> Option<&str> {
    let is_account = user.name.starts_with("system:serviceaccount:");
    match user.extra.get(NODE_NAME).map(Vec::as_slice) {
        Some([node]) if is_account && dns1123_subdomain(node).is_empty() => Some(node),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_node_is_that_of_an_allocation_for_one_node() {
        let selector = |term: Value| json!({"nodeSelector": {"nodeSelectorTerms": [term]}});
        let field =
            |values: Value| json!([{"key": "metadata.name", "operator": "In", "values": values}]);
        for (allocation, expect) in [
            (selector(json!({"matchFields": field(json!(["n"]))})), "n"),
            (
                selector(json!({"matchFields": field(json!(["n", "m"]))})),
                "",
            ),
            (
                selector(
                    json!({"matchFields": field(json!(["n"])), "matchExpressions": [{"key": "x"}]}),
                ),
                "",
            ),
            (json!({}), ""),
        ] {
            assert_eq!(allocated_node(&allocation), expect, "{allocation}");
        }
    }

    #[test]
    fn drivers_are_those_of_entries_that_differ() {
        let device = |driver: &str, data: &str| json!({"driver": driver, "pool": "p", "device": "d", "data": data});
        let old = json!({"devices": [device("same", "1"), device("changed", "1"), device("removed", "1")]});
        let new =
            json!({"devices": [device("same", "1"), device("changed", "2"), device("added", "1")]});
        let drivers: Vec<&str> = changed_drivers(&new, &old).into_iter().collect();
        assert_eq!(drivers, ["added", "changed", "removed"]);
    }
}
