//! The checks that the tables cannot express for classes, drivers and attachments of volumes.

use super::errors::{ErrorPath, Errors, IS_IMMUTABLE, IS_NEGATIVE};
use super::owner::Owner;
use super::{amounts, names};
use crate::view::{FieldView, remove};
use serde_json::Value;
use std::collections::{HashMap, HashSet};

const PARAMETERS_MAX: usize = 512;
const PARAMETERS_BYTES_MAX: usize = 256 * 1_024;
const NODE_ID_BYTES_MAX: usize = 256;
const ERROR_BYTES_MAX: usize = 1_024;
const TOKEN_SECONDS_MIN: i64 = 600;
const TOKEN_SECONDS_MAX: i64 = 1 << 32;

pub(crate) fn attachment_status(e: &mut Errors, _: &Owner, status: &Value, path: &ErrorPath) {
    let size = sizes(status, "attachmentMetadata");
    if size > PARAMETERS_BYTES_MAX {
        e.too_long(&path.child("attachmentMetadata"), PARAMETERS_BYTES_MAX);
    }
    for field in ["attachError", "detachError"] {
        let (error, at) = (status.part(field), path.child(field));
        if error.text("message").len() > ERROR_BYTES_MAX {
            e.too_long(&at.child("message"), PARAMETERS_BYTES_MAX);
        }
        if let Some(code) = error.maybe_int("errorCode").filter(|code| *code < 0) {
            let detail = names::inclusive_range(0, i32::MAX.into());
            e.invalid(&at.child("errorCode"), code, detail);
        }
    }
}

pub(crate) fn class_parameters(e: &mut Errors, owner: &Owner, _: &Value, path: &ErrorPath) {
    parameters(e, owner.value, path)
}

pub(crate) fn driver_topology(e: &mut Errors, _: &Owner, driver: &Value, path: &ErrorPath) {
    let mut seen = HashSet::new();
    for key in driver.strings("topologyKeys") {
        if key.is_empty() {
            e.required(path, key);
        }
        if !seen.insert(key) {
            e.duplicate(path, key);
        }
        e.each_invalid(path, key, names::qualified_name(key));
    }
}

pub(crate) fn lifecycle_modes(e: &mut Errors, _: &Owner, modes: &Value, path: &ErrorPath) {
    for mode in modes
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
    {
        if !matches!(mode, "Persistent" | "Ephemeral") {
            e.not_supported(path, mode, &["Persistent", "Ephemeral"]);
        }
    }
}

pub(crate) fn node_id(e: &mut Errors, _: &Owner, id: &Value, path: &ErrorPath) {
    let id = id.as_str().unwrap_or("");
    if id.len() > NODE_ID_BYTES_MAX {
        let detail = format!("must be {NODE_ID_BYTES_MAX} characters or less");
        e.invalid(path, id, detail);
    }
}

pub(crate) fn quantity_not_negative(e: &mut Errors, _: &Owner, amount: &Value, path: &ErrorPath) {
    if let Some(quantity) = amounts::parse(amount).filter(|q| q.sign() < 0) {
        e.invalid(path, &quantity.to_string(), IS_NEGATIVE);
    }
}

/// The bytes of the keys and values of a map.
fn sizes(object: &Value, field: &str) -> usize {
    let entries = object.labels(field).into_iter();
    entries.map(|(key, value)| key.len() + value.len()).sum()
}

fn parameters(errors: &mut Errors, class: &Value, path: &ErrorPath) {
    let entries = class.labels("parameters");
    if entries.len() > PARAMETERS_MAX {
        errors.too_long(path, PARAMETERS_MAX);
        return;
    }
    if entries.iter().any(|(key, _)| key.is_empty()) {
        errors.invalid(path, "", "field can not be empty.");
    }
    if sizes(class, "parameters") > PARAMETERS_BYTES_MAX {
        errors.too_long(path, PARAMETERS_BYTES_MAX);
    }
    // Only a VolumeAttributesClass requires parameters.
    if entries.is_empty() && class.field("driverName").is_some() {
        errors.required(path, "must contain at least one key/value pair");
    }
}

pub(crate) fn allowed_topologies(errors: &mut Errors, _: &Owner, terms: &Value, path: &ErrorPath) {
    let mut seen: HashSet<Vec<(String, Vec<String>)>> = HashSet::new();
    for (i, term) in terms.as_array().into_iter().flatten().enumerate() {
        let path = path.index(i).child("matchLabelExpressions");
        let mut keys = HashSet::new();
        let mut expressions = Vec::new();
        for (j, expression) in term.items("matchLabelExpressions").iter().enumerate() {
            let at = path.index(j);
            let values = expression.strings("values");
            if values.is_empty() {
                errors.required(&at.child("values"), "");
            }
            let mut known = HashSet::new();
            for (k, value) in values.iter().enumerate() {
                if !known.insert(*value) {
                    errors.duplicate(&at.child("values").index(k), *value);
                }
            }
            let key = expression.text("key");
            errors.each_invalid(&at.child("key"), key, names::qualified_name(key));
            if !keys.insert(key) {
                errors.duplicate(&at.child("key"), key);
            }
            let mut values: Vec<String> = known.into_iter().map(str::to_owned).collect();
            values.sort_unstable();
            expressions.push((key.to_owned(), values));
        }
        // The order within a term has no meaning, so equal terms are found after sorting.
        expressions.sort();
        if !seen.insert(expressions) {
            errors.duplicate(&path, "");
        }
    }
}

pub(crate) fn attachment_source(
    errors: &mut Errors,
    owner: &Owner,
    source: &Value,
    path: &ErrorPath,
) {
    let exactly_one = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
    let name = source.maybe_text("persistentVolumeName");
    let at = path.child("persistentVolumeName");
    match (source.field("inlineVolumeSpec"), name) {
        (None, None) => errors.required(path, exactly_one),
        (Some(_), Some(_)) => errors.forbidden(path, exactly_one),
        (None, Some("")) => errors.required(&at, "must specify non empty persistentVolumeName"),
        (None, Some(_)) => {}
        (Some(inline), None) => {
            let path = path.child("inlineVolumeSpec");
            super::storage::validate_inline(errors, owner, inline, &path);
        }
    }
    if let Some(name) = name {
        errors.each_invalid(&at, name, names::dns_subdomain(name));
    }
}

/// An update may change only the volume limit of a node's driver.
pub(crate) fn drivers_kept(errors: &mut Errors, owner: &Owner, node: &Value, path: &ErrorPath) {
    let Some(old) = owner.old else { return };
    let drivers = |node: &Value| {
        let mut drivers = node.part("spec").items("drivers").to_vec();
        for driver in &mut drivers {
            remove(driver, "allocatable");
        }
        drivers
    };
    let (before, after) = (drivers(old), drivers(node));
    // Of equal names, the first.
    let mut by_name: HashMap<&str, &Value> = HashMap::new();
    for new in &after {
        by_name.entry(new.text("name")).or_insert(new);
    }
    for old in &before {
        let changed = by_name.get(old.text("name")).copied();
        if let Some(new) = changed.filter(|new| *new != old) {
            errors.invalid(&path.child("spec").child("drivers"), new, IS_IMMUTABLE);
        }
    }
}

pub(crate) fn token_requests(errors: &mut Errors, _: &Owner, requests: &Value, path: &ErrorPath) {
    let mut seen = HashSet::new();
    for (i, request) in requests.as_array().into_iter().flatten().enumerate() {
        let path = path.index(i);
        let audience = request.text("audience");
        if !seen.insert(audience) {
            errors.duplicate(&path.child("audience"), audience);
            continue;
        }
        let Some(seconds) = request.maybe_int("expirationSeconds") else {
            continue;
        };
        let at = path.child("expirationSeconds");
        if seconds < TOKEN_SECONDS_MIN {
            let detail = "may not specify a duration less than 10 minutes";
            errors.invalid(&at, seconds, detail);
        }
        if seconds > TOKEN_SECONDS_MAX {
            let detail = "may not specify a duration larger than 2^32 seconds";
            errors.invalid(&at, seconds, detail);
        }
    }
}
