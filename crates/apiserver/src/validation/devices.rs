//! Rules of devices and of claims on them that `facts/rules/resource.txt` cannot express. Selectors in CEL are
//! compiled.

use super::engine::Owner;
use super::errors::{Errors, Path, Shown};
use super::pod::spec::is_repeated;
use super::view::{View, set_if_zero};
use super::{checks, names};
use berth_cel::{COST_MAX, EXPRESSION_LENGTH_MAX, Environment, Selector};
use serde_json::Value;
use std::collections::HashSet;

const ATTRIBUTES_MAX: usize = 32;
const DRIVER_BYTES_MAX: usize = 63;
const POOL_NAME_BYTES_MAX: usize = 253;

checks! {
    "cel-selector" => check_selector,
    "claim-status" => claim_status,
    "consumer-once" => |e, owner, uid, path| {
        if is_repeated(owner, "reservedFor", "uid") {
            e.duplicate(path, uid);
        }
    },
    "device-name" => |e, owner, name, path| {
        if is_repeated(owner, "devices", "name") {
            e.duplicate(path, name);
        }
    },
    "device-size" => |e, _, device, path| {
        let size = device.entries("attributes").len() + device.entries("capacity").len();
        if size > ATTRIBUTES_MAX {
            e.invalid(
                path,
                size as i64,
                format!("the total number of attributes and capacities must not exceed {ATTRIBUTES_MAX}"),
            );
        }
    },
    "driver" => |e, _, driver, path| {
        let driver = driver.as_str().unwrap_or("");
        if driver.is_empty() {
            e.required(path, "");
        }
        if driver.len() > DRIVER_BYTES_MAX {
            e.too_long(path, DRIVER_BYTES_MAX);
        }
        if !driver.is_empty() {
            e.each_invalid(path, driver, names::dns_subdomain(driver));
        }
    },
    "one-term" => |e, _, selector, path| {
        if !selector.is_null() && selector.items("nodeSelectorTerms").len() != 1 {
            let at = path.child("nodeSelectorTerms");
            e.invalid(&at, Shown::absent(), "must have exactly one node selector term");
        }
    },
    "pool-name" => pool_name,
    "request-kind" => request_kind,
    "request-references" => request_references,
    "slice-node" => |e, _, name, path| match name.as_str() {
        None => {}
        Some("") => e.invalid(path, "", "must be either unset or set to a non-empty string"),
        Some(name) => e.each_invalid(path, name, names::dns_subdomain(name)),
    },
    "slice-reach" => slice_reach,
}

/// Compiles a selector in CEL: its syntax and types, and the most that an evaluation can cost. An expression that is
/// stored already may use what new ones may not.
fn check_selector(errors: &mut Errors, owner: &Owner, expression: &Value, path: &Path) {
    let Some(expression) = expression.as_str().filter(|text| !text.is_empty()) else {
        return;
    };
    if expression.len() > EXPRESSION_LENGTH_MAX {
        errors.too_long(path, EXPRESSION_LENGTH_MAX);
        return;
    }
    let environment = Environment::of_devices(false, owner.old.is_none());
    match Selector::compile(expression, environment) {
        Err(error) => errors.invalid(path, expression, error.to_string()),
        Ok(selector) if selector.estimated_cost() > COST_MAX => {
            errors.forbidden(path, "too complex, exceeds cost limit");
        }
        Ok(_) => {}
    }
}

/// One device, unless the request asks for more or for all.
pub(super) fn default_request(request: &mut Value) {
    if request.text("allocationMode") == "ExactCount" {
        set_if_zero(request, "count", 1);
    }
}

fn request_kind(errors: &mut Errors, owner: &Owner, request: &Value, path: &Path) {
    let name = request.text("name");
    if is_repeated(owner, "requests", "name") {
        errors.duplicate(path, name);
    }
    let alternatives = request.items("firstAvailable");
    match (request.field("exactly"), alternatives) {
        (None, []) => {
            errors.required(
                path,
                "exactly one of `exactly` or `firstAvailable` is required",
            );
        }
        (Some(_), [_, ..]) => errors.invalid(
            path,
            Shown::absent(),
            "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set",
        ),
        _ => {}
    }
    let mut seen = HashSet::new();
    for (i, alternative) in alternatives.iter().enumerate() {
        let at = path.child("firstAvailable").index(i);
        let name = alternative.text("name");
        errors.check_name(&at.child("name"), name, names::dns_label);
        if !seen.insert(name) {
            errors.duplicate(&at, name);
        }
    }
}

/// Constraints and configurations name requests of the claim.
fn request_references(errors: &mut Errors, _: &Owner, devices: &Value, path: &Path) {
    let mut known: HashSet<String> = HashSet::new();
    for request in devices.items("requests") {
        let name = request.text("name");
        let subs = request.items("firstAvailable").iter();
        known.extend(subs.map(|sub| format!("{name}/{}", sub.text("name"))));
        known.insert(name.to_owned());
    }
    for list in ["constraints", "config"] {
        for (i, entry) in devices.items(list).iter().enumerate() {
            for (j, name) in entry.strings("requests").iter().enumerate() {
                if !known.contains(*name) {
                    errors.invalid(
                        &path.child(list).index(i).child("requests").index(j),
                        *name,
                        "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'",
                    );
                }
            }
        }
    }
}

fn claim_status(errors: &mut Errors, owner: &Owner, status: &Value, path: &Path) {
    let holders = status.items("reservedFor");
    let at = path.child("reservedFor");
    if !holders.is_empty() && status.field("allocation").is_none() {
        errors.forbidden(&at, "may not be specified when `allocated` is not set");
    }
    let claim = owner
        .enclosing("resource.v1.ResourceClaim")
        .unwrap_or(&Value::Null);
    let before = owner.old.map_or(&[][..], |old| old.items("reservedFor"));
    let deleting = claim.part("metadata").field("deletionTimestamp").is_some();
    if deleting && holders.iter().any(|h| !before.contains(h)) {
        errors.forbidden(
            &at,
            "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set",
        );
    }
}

fn pool_name(errors: &mut Errors, _: &Owner, name: &Value, path: &Path) {
    let name = name.as_str().unwrap_or("");
    if name.is_empty() {
        errors.required(path, "");
        return;
    }
    if name.len() > POOL_NAME_BYTES_MAX {
        errors.too_long(path, POOL_NAME_BYTES_MAX);
    }
    for part in name.split('/') {
        errors.each_invalid(path, part, names::dns_subdomain(part));
    }
}

/// A slice says in exactly one way which nodes reach its devices.
fn slice_reach(errors: &mut Errors, _: &Owner, spec: &Value, path: &Path) {
    const WAYS: &str = "`nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection`";
    let mut given = Vec::new();
    for (field, is_given) in [
        ("nodeName", spec.field("nodeName").is_some()),
        ("nodeSelector", spec.field("nodeSelector").is_some()),
        ("allNodes", spec.flag("allNodes")),
        (
            "perDeviceNodeSelection",
            spec.flag("perDeviceNodeSelection"),
        ),
    ] {
        given.extend(is_given.then(|| format!("`{field}`")));
    }
    match given.len() {
        0 => errors.required(path, format!("exactly one of {WAYS} is required")),
        1 => {}
        _ => errors.invalid(
            path,
            &format!("{{{}}}", given.join(", ")),
            format!("exactly one of {WAYS} is required, but multiple fields are set"),
        ),
    }
}
