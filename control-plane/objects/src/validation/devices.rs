//! Rules of devices and of claims on them that `facts/rules/resource.txt` cannot express. Selectors in CEL are
//! compiled.

use super::claim_status::{REQUESTS_MAX, request_reference};
use super::errors::{ErrorPath, Errors};
use super::names;
use super::owner::Owner;
use crate::raw_json;
use crate::view::{FieldView, set_if_zero};
use berth_cel::{COST_MAX, CelSelector, EXPRESSION_LENGTH_MAX, Environment};
use serde_json::Value;
use std::collections::HashSet;

const ATTRIBUTES_MAX: usize = 32;
/// The maximum number of constraints, and of configurations, of a claim.
const ENTRIES_MAX: usize = 32;

/// The maximum size, in bytes, of the parameters of a driver.
const PARAMETERS_BYTES_MAX: usize = 10 * 1_024;
const POOL_BYTES_MAX: usize = 253;
const ID_BYTES_MAX: usize = 32;
const NOT_AN_IDENTIFIER: &str = "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric characters or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName', regex used for validation is '[A-Za-z_][A-Za-z0-9_]*')";

/// A field that is kept as the text of its JSON: an object of a limited size in bytes.
pub(super) fn check_raw(errors: &mut Errors, field: &Value, path: &ErrorPath, bytes_max: usize) {
    let text = raw_json::text(field);
    if text.len() > bytes_max {
        errors.too_long(path, bytes_max);
    } else if !raw_json::is_object(&text) {
        errors.invalid(path, "<value omitted>", "must be a valid JSON object");
    }
}

pub(crate) fn alternatives(e: &mut Errors, _: &Owner, alternatives: &Value, path: &ErrorPath) {
    let mut seen = HashSet::new();
    for (i, alternative) in alternatives.as_array().into_iter().flatten().enumerate() {
        let (at, name) = (path.index(i), alternative.text("name"));
        e.check_name(&at.child("name"), name, names::dns_label);
        if !seen.insert(name) {
            e.duplicate(&at, name);
        }
    }
}

pub(crate) fn opaque_parameters(e: &mut Errors, _: &Owner, parameters: &Value, path: &ErrorPath) {
    match parameters {
        Value::Null => e.required(path, ""),
        parameters => check_raw(e, parameters, path, PARAMETERS_BYTES_MAX),
    }
}

pub(crate) fn pool_name(e: &mut Errors, _: &Owner, name: &Value, path: &ErrorPath) {
    validate_pool(e, name.as_str().unwrap_or(""), path)
}

pub(crate) fn request_once(e: &mut Errors, owner: &Owner, request: &Value, path: &ErrorPath) {
    if owner.repeats("name") {
        e.duplicate(path, request.text("name"));
    }
}

/// Compiles a selector in CEL: its syntax and types, and the maximum cost of an evaluation. A stored expression may use
/// features that new expressions may not.
pub(crate) fn check_selector(
    errors: &mut Errors,
    owner: &Owner,
    expression: &Value,
    path: &ErrorPath,
) {
    let Some(expression) = expression.as_str().filter(|text| !text.is_empty()) else {
        return;
    };
    if expression.len() > EXPRESSION_LENGTH_MAX {
        errors.too_long(path, EXPRESSION_LENGTH_MAX);
        return;
    }
    let environment = Environment::of_devices(false, owner.old.is_none());
    match CelSelector::compile(expression, environment) {
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
pub(crate) fn request_references(
    errors: &mut Errors,
    _: &Owner,
    devices: &Value,
    path: &ErrorPath,
) {
    let known = RequestNames::of(devices);
    // Entries of a list that is too long are not checked, which bounds the work. The table reports its length.
    let entries = |list| -> &[Value] {
        let entries = devices.items(list);
        if entries.len() > ENTRIES_MAX {
            &[]
        } else {
            entries
        }
    };
    for list in ["constraints", "config"] {
        for (i, entry) in entries(list).iter().enumerate() {
            let at = path.child(list).index(i).child("requests");
            let names = entry.strings("requests");
            if names.len() > REQUESTS_MAX {
                errors.check_at_most(&at, names.len(), REQUESTS_MAX);
                continue;
            }
            let mut seen = HashSet::new();
            for (j, name) in names.into_iter().enumerate() {
                request_reference(errors, &known, name, &at.index(j));
                if !seen.insert(name) {
                    errors.duplicate(&at.index(j), name);
                }
            }
        }
    }
    for (i, constraint) in entries("constraints").iter().enumerate() {
        let path = path.child("constraints").index(i);
        let attributes = ["matchAttribute", "distinctAttribute"];
        let given = attributes
            .into_iter()
            .find(|field| constraint.field(field).is_some());
        match given {
            None => errors.required(
                &path,
                "exactly one of \"matchAttribute\" or \"distinctAttribute\" is required, but multiple fields are set",
            ),
            Some(field) => attribute(errors, constraint.text(field), &path.child(field)),
        }
    }
}

/// The maximum number of attributes and capacities of a device.
pub(super) fn device_size(errors: &mut Errors, device: &Value, path: &ErrorPath) {
    let size = device.entries("attributes").len() + device.entries("capacity").len();
    if size > ATTRIBUTES_MAX {
        let detail = format!(
            "the total number of attributes and capacities must not exceed {ATTRIBUTES_MAX}"
        );
        errors.invalid(path, size as i64, detail);
    }
}

/// An attribute with its domain.
fn attribute(errors: &mut Errors, name: &str, path: &ErrorPath) {
    qualified(errors, name, path);
    if !name.contains('/') {
        let detail = "a fully qualified name must be a domain and a name separated by a slash";
        errors.invalid(path, name, detail);
    }
}

/// The name of an attribute or capacity, which may have a domain.
pub(super) fn qualified(errors: &mut Errors, name: &str, path: &ErrorPath) {
    let parts: Vec<&str> = name.split('/').collect();
    match parts.as_slice() {
        [id] => identifier(errors, id, path),
        [domain, id] => {
            match *domain {
                "" => errors.invalid(path, "", "the domain must not be empty"),
                domain => validate_driver(errors, domain, path),
            }
            match *id {
                "" => errors.invalid(path, "", "the name must not be empty"),
                id => identifier(errors, id, path),
            }
        }
        _ => {}
    }
}

fn identifier(errors: &mut Errors, id: &str, path: &ErrorPath) {
    if id.len() > ID_BYTES_MAX {
        errors.too_long(path, ID_BYTES_MAX);
    }
    let first = |b: u8| b.is_ascii_alphabetic() || b == b'_';
    let rest = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    if !id.bytes().next().is_some_and(first) || !id.bytes().all(rest) {
        errors.invalid(path, id, NOT_AN_IDENTIFIER);
    }
}

/// The names of the requests of a claim, and of their alternatives.
pub(super) struct RequestNames<'a> {
    requests: HashSet<&'a str>,
    /// Each with the name of its request.
    alternatives: HashSet<(&'a str, &'a str)>,
}

impl<'a> RequestNames<'a> {
    /// The requests of the devices of a claim.
    pub(super) fn of(devices: &'a Value) -> Self {
        let requests = devices.items("requests").iter();
        let alternatives = requests.clone().flat_map(|request| {
            let alternatives = request.items("firstAvailable").iter();
            alternatives.map(|alternative| (request.text("name"), alternative.text("name")))
        });
        Self {
            alternatives: alternatives.collect(),
            requests: requests.map(|request| request.text("name")).collect(),
        }
    }

    /// Returns whether there is a request of this name, or an alternative of one by both names.
    pub(super) fn has(&self, name: &str) -> bool {
        match name.split_once('/') {
            Some(names) => self.alternatives.contains(&names),
            None => self.requests.contains(name),
        }
    }
}

/// Errors of the name of a driver.
pub(super) fn validate_driver(errors: &mut Errors, driver: &str, path: &ErrorPath) {
    super::pod::volume_sources::validate_driver_name(errors, driver, path);
}

/// Errors of the name of a pool.
pub(super) fn validate_pool(errors: &mut Errors, pool: &str, path: &ErrorPath) {
    if pool.is_empty() {
        errors.required(path, "");
        return;
    }
    if pool.len() > POOL_BYTES_MAX {
        errors.too_long(path, POOL_BYTES_MAX);
    }
    for part in pool.split('/') {
        errors.each_invalid(path, part, names::dns_subdomain(part));
    }
}

/// A slice states in exactly one way which nodes reach its devices.
pub(crate) fn slice_reach(errors: &mut Errors, _: &Owner, spec: &Value, path: &ErrorPath) {
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
