//! Rules of devices and of claims on them that `facts/rules/resource.txt` cannot express. Selectors in CEL are
//! compiled.

use super::engine::Owner;
use super::errors::{Errors, Path};
use super::pod::spec::is_repeated;
use super::view::{View, set_if_zero};
use super::{checks, names};
use berth_cel::{COST_MAX, EXPRESSION_LENGTH_MAX, Environment, Selector};
use serde_json::Value;
use std::collections::HashSet;

const ATTRIBUTES_MAX: usize = 32;

checks! {
    "alternatives" => |e, _, alternatives, path| {
        let mut seen = HashSet::new();
        for (i, alternative) in alternatives.as_array().into_iter().flatten().enumerate() {
            let (at, name) = (path.index(i), alternative.text("name"));
            e.check_name(&at.child("name"), name, names::dns_label);
            if !seen.insert(name) {
                e.duplicate(&at, name);
            }
        }
    },
    "cel-selector" => check_selector,
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
    "pool-name" => |e, _, name, path| {
        for part in name.as_str().unwrap_or("").split('/') {
            e.each_invalid(path, part, names::dns_subdomain(part));
        }
    },
    "request-once" => |e, owner, request, path| {
        if is_repeated(owner, "requests", "name") {
            e.duplicate(path, request.text("name"));
        }
    },
    "request-references" => request_references,
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
