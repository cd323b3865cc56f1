//! The rules of ResourceClaims and their templates, as far as structure goes: names, counts, one kind of request.
//! What selectors say in CEL is not looked at here.

use super::devices::validate_selectors;
use super::errors::{Errors, IS_IMMUTABLE, Path, Shown};
use super::names;
use super::normal;
use super::view::{View, child, existing, items_mut, set, set_if_zero};
use super::workloads::spec_of;
use crate::field::FieldError;
use crate::strategy::{RequestContext, Strategy, Subresource};
use serde_json::{Map, Value};
use std::collections::HashSet;

/// How many requests and constraints a claim may have, and alternatives a request.
const REQUESTS_MAX: usize = 32;
const ALTERNATIVES_MAX: usize = 8;
/// How many consumers may hold a claim.
const CONSUMERS_MAX: usize = 256;

fn default_spec(spec: &mut Value) {
    let Some(devices) = child(spec, "devices") else {
        return;
    };
    for request in items_mut(devices, "requests") {
        if let Some(exactly) = existing(request, "exactly") {
            default_request(exactly);
        }
        for alternative in items_mut(request, "firstAvailable") {
            default_request(alternative);
        }
    }
}

fn default_request(request: &mut Value) {
    set_if_zero(request, "allocationMode", "ExactCount");
    if request.text("allocationMode") == "ExactCount" {
        set_if_zero(request, "count", 1);
    }
    for toleration in items_mut(request, "tolerations") {
        set_if_zero(toleration, "operator", "Equal");
    }
}

fn validate_spec(errors: &mut Errors, spec: &Value, path: &Path) {
    let empty = Value::Null;
    let devices = spec.field("devices").unwrap_or(&empty);
    let path = path.child("devices");
    let requests = devices.items("requests");
    let at = path.child("requests");
    errors.check_at_most(&at, requests.len(), REQUESTS_MAX);
    let mut seen = HashSet::new();
    for (i, request) in requests.iter().enumerate() {
        let at = at.index(i);
        validate_request_name(errors, request, &mut seen, &at);
        let exactly = request.field("exactly");
        let alternatives = request.items("firstAvailable");
        match (exactly, alternatives) {
            (None, []) => errors.required(
                &at,
                "exactly one of `exactly` or `firstAvailable` is required",
            ),
            (Some(_), [_, ..]) => errors.invalid(
                &at,
                Shown::absent(),
                "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set",
            ),
            (Some(exactly), []) => validate_request(errors, exactly, &at.child("exactly")),
            (None, alternatives) => {
                let at = at.child("firstAvailable");
                errors.check_at_most(&at, alternatives.len(), ALTERNATIVES_MAX);
                let mut seen = HashSet::new();
                for (i, alternative) in alternatives.iter().enumerate() {
                    validate_request_name(errors, alternative, &mut seen, &at.index(i));
                    validate_request(errors, alternative, &at.index(i));
                }
            }
        }
    }
    let known: HashSet<String> = requests
        .iter()
        .flat_map(|request| {
            let name = request.text("name");
            std::iter::once(name.to_owned()).chain(
                request
                    .items("firstAvailable")
                    .iter()
                    .map(move |sub| format!("{name}/{}", sub.text("name"))),
            )
        })
        .collect();
    for list in ["constraints", "config"] {
        let at = path.child(list);
        let entries = devices.items(list);
        errors.check_at_most(&at, entries.len(), REQUESTS_MAX);
        for (i, entry) in entries.iter().enumerate() {
            for (j, name) in entry.strings("requests").iter().enumerate() {
                if !known.contains(*name) {
                    errors.invalid(
                        &at.index(i).child("requests").index(j),
                        *name,
                        "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'",
                    );
                }
            }
        }
    }
}

fn validate_request_name<'a>(
    errors: &mut Errors,
    request: &'a Value,
    seen: &mut HashSet<&'a str>,
    path: &Path,
) {
    let name = request.text("name");
    let at = path.child("name");
    errors.check_name(&at, name, names::dns_label);
    if !seen.insert(name) {
        errors.duplicate(path, name);
    }
}

fn validate_request(errors: &mut Errors, request: &Value, path: &Path) {
    let class = request.text("deviceClassName");
    let at = path.child("deviceClassName");
    errors.check_name(&at, class, names::dns_subdomain);
    validate_selectors(errors, request, path);
    let count = request.int("count");
    match request.text("allocationMode") {
        "All" => {
            if count != 0 {
                errors.invalid(
                    &path.child("count"),
                    count,
                    "must not be specified when allocationMode is 'All'",
                );
            }
        }
        "ExactCount" => {
            if count <= 0 {
                errors.invalid(&path.child("count"), count, "must be greater than zero");
            }
        }
        other => errors.not_supported(&path.child("allocationMode"), other, &["All", "ExactCount"]),
    }
}

/// The strategy of ResourceClaims.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ResourceClaimStrategy;

impl Strategy for ResourceClaimStrategy {
    fn default(&self, object: &mut Value) {
        normal::normalize(object, ("resource.k8s.io", "v1", "ResourceClaim"));
        if let Some(spec) = child(object, "spec") {
            default_spec(spec);
        }
    }

    fn prepare_for_create(&self, object: &mut Value, _cx: &RequestContext) {
        set(object, "status", Map::new());
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        validate_spec(&mut errors, spec_of(object), &Path::new("spec"));
        errors.into_vec()
    }

    fn validate_update(
        &self,
        new: &Value,
        old: &Value,
        subresource: Subresource,
    ) -> Vec<FieldError> {
        let mut errors = Errors::new();
        if subresource == Subresource::Main {
            if spec_of(new) != spec_of(old) {
                errors.invalid(&Path::new("spec"), spec_of(new), IS_IMMUTABLE);
            }
            return errors.into_vec();
        }
        let empty = Value::Null;
        let path = Path::new("status");
        let before = old.field("status").unwrap_or(&empty);
        let after = new.field("status").unwrap_or(&empty);
        let holders = after.items("reservedFor");
        let at = path.child("reservedFor");
        errors.check_at_most(&at, holders.len(), CONSUMERS_MAX);
        let mut seen = HashSet::new();
        for (i, holder) in holders.iter().enumerate() {
            for field in ["resource", "name", "uid"] {
                if holder.text(field).is_empty() {
                    errors.required(&at.index(i).child(field), "");
                }
            }
            if !seen.insert(holder.text("uid")) {
                errors.duplicate(&at.index(i).child("uid"), holder.text("uid"));
            }
        }
        let allocated = after.field("allocation").is_some();
        if !holders.is_empty() && !allocated {
            errors.forbidden(&at, "may not be specified when `allocated` is not set");
        }
        let deleting = new.at(&["metadata", "deletionTimestamp"]).is_some();
        let grown = holders
            .iter()
            .any(|h| !before.items("reservedFor").contains(h));
        if deleting && grown {
            errors.forbidden(
                &at,
                "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set",
            );
        }
        if let (Some(had), Some(has)) = (before.field("allocation"), after.field("allocation"))
            && had != has
        {
            errors.invalid(&path.child("allocation"), has, IS_IMMUTABLE);
        }
        errors.into_vec()
    }
}

/// The strategy of ResourceClaimTemplates.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ResourceClaimTemplateStrategy;

impl Strategy for ResourceClaimTemplateStrategy {
    fn default(&self, object: &mut Value) {
        normal::normalize(object, ("resource.k8s.io", "v1", "ResourceClaimTemplate"));
        if let Some(spec) = child(object, "spec").and_then(|s| child(s, "spec")) {
            default_spec(spec);
        }
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let inner = spec_of(spec_of(object));
        validate_spec(&mut errors, inner, &Path::new("spec.spec"));
        errors.into_vec()
    }

    fn validate_update(
        &self,
        new: &Value,
        old: &Value,
        _subresource: Subresource,
    ) -> Vec<FieldError> {
        let mut errors = Errors::new();
        if spec_of(new) != spec_of(old) {
            errors.invalid(&Path::new("spec"), spec_of(new), IS_IMMUTABLE);
        }
        errors.into_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_claim_asks_for_one_device_unless_it_says_more() {
        let mut claim = json!({"spec": {"devices": {"requests": [
            {"name": "r", "exactly": {"deviceClassName": "gpu"}}]}}});
        ResourceClaimStrategy.default(&mut claim);
        assert_eq!(ResourceClaimStrategy.validate(&claim), []);
        assert_eq!(
            claim,
            json!({"spec": {"devices": {"requests": [{"name": "r", "exactly": {
                "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}}]}}, "metadata": {}, "status": {}})
        );
        let mut changed = claim.clone();
        changed["spec"]["devices"]["requests"][0]["name"] = json!("x");
        let errors = ResourceClaimStrategy.validate_update(&changed, &claim, Subresource::Main);
        assert_eq!(errors.len(), 1);
    }

    #[test]
    fn malformed_requests_are_named() {
        let cases = [
            (json!({"name": "r"}), "spec.devices.requests[0]"),
            (
                json!({"name": "R!", "exactly": {"deviceClassName": "gpu"}}),
                "spec.devices.requests[0].name",
            ),
            (
                json!({"name": "r", "exactly": {}}),
                "spec.devices.requests[0].exactly.deviceClassName",
            ),
            (
                json!({"name": "r", "exactly": {"deviceClassName": "gpu", "allocationMode": "Some"}}),
                "spec.devices.requests[0].exactly.allocationMode",
            ),
            (
                json!({"name": "r", "exactly": {"deviceClassName": "gpu", "count": -1}}),
                "spec.devices.requests[0].exactly.count",
            ),
        ];
        for (request, field) in cases {
            let mut claim = json!({"spec": {"devices": {"requests": [request]}}});
            ResourceClaimStrategy.default(&mut claim);
            let errors = ResourceClaimStrategy.validate(&claim);
            let fields: Vec<&str> = errors.iter().map(|e| e.field.as_str()).collect();
            assert_eq!(fields, [field]);
        }
    }
}
