//! The checks of the status of a ResourceClaim: its consumers, the allocated devices of each request, and the reports
//! of drivers.

use super::conditions;
use super::devices::{RequestNames, check_raw, validate_driver, validate_pool};
use super::engine::run_type;
use super::errors::{ErrorPath, Errors, IS_IMMUTABLE, Shown, json_text, struct_text};
use super::names;
use super::owner::Owner;
use crate::enumerations::values;
use crate::view::FieldView;
use serde_json::Value;
use std::collections::HashSet;

const SOURCES: [&str; 2] = values!(resource.v1.DeviceAllocationConfiguration.source);
const RESERVED_MAX: usize = 256;
const RESULTS_MAX: usize = 32;
const CONFIGS_MAX: usize = 64;
/// The maximum number of requests that a constraint, a configuration or a result names.
pub(super) const REQUESTS_MAX: usize = 32;
const BINDING_CONDITIONS_MAX: usize = 4;
const CONDITIONS_MAX: usize = 8;
const DATA_BYTES_MAX: usize = 10 * 1_024;
const INTERFACE_BYTES_MAX: usize = 256;
const HARDWARE_BYTES_MAX: usize = 128;
const IPS_MAX: usize = 16;
const NOT_A_REQUEST: &str = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'";

/// The identity of an allocated device.
type DeviceId<'a> = (&'a str, &'a str, &'a str, &'a str);

fn id_of(device: &Value) -> DeviceId<'_> {
    let text = |field| device.text(field);
    (
        text("driver"),
        text("pool"),
        text("device"),
        text("shareID"),
    )
}

/// Errors of a status.
pub(crate) fn validate(errors: &mut Errors, owner: &Owner, status: &Value, path: &ErrorPath) {
    // Only updates have a status.
    let Some(old) = owner.old else { return };
    let (claim, old) = (owner.value, old.part("status"));
    let consumers = status.items("reservedFor");
    let at = path.child("reservedFor");
    if consumers.len() > RESERVED_MAX {
        errors.check_at_most(&at, consumers.len(), RESERVED_MAX);
    } else {
        reserved(errors, consumers, &at);
    }
    let allocation = status.field("allocation");
    let results = status.part("allocation").part("devices").items("results");
    let allocated: HashSet<DeviceId> = results.iter().map(id_of).collect();
    device_statuses(
        errors,
        status.items("devices"),
        &allocated,
        &path.child("devices"),
    );
    if !consumers.is_empty() && allocation.is_none() {
        errors.forbidden(&at, "may not be specified when `allocated` is not set");
    } else if claim.part("metadata").field("deletionTimestamp").is_some() {
        // A claim that is being deleted may lose consumers, but not gain any.
        let before = old.items("reservedFor");
        if consumers.iter().any(|consumer| !before.contains(consumer)) {
            let detail = "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set";
            errors.forbidden(&at, detail);
        }
    }
    let at = path.child("allocation");
    match (allocation, old.field("allocation")) {
        // An allocation may be set and removed, not changed: pods use it.
        (Some(new), Some(old)) if new != old => errors.invalid(&at, new, IS_IMMUTABLE),
        (Some(new), None) => validate_allocation(errors, owner, new, &at),
        _ => {}
    }
}

fn reserved(errors: &mut Errors, consumers: &[Value], path: &ErrorPath) {
    for (i, consumer) in consumers.iter().enumerate() {
        for field in ["resource", "name", "uid"] {
            if consumer.text(field).is_empty() {
                errors.required(&path.index(i).child(field), "");
            }
        }
    }
    let mut seen = HashSet::new();
    for (i, consumer) in consumers.iter().enumerate() {
        let uid = consumer.text("uid");
        if !seen.insert(uid) {
            errors.duplicate(&path.index(i), uid);
        }
    }
}

fn validate_allocation(errors: &mut Errors, owner: &Owner, allocation: &Value, path: &ErrorPath) {
    let devices = allocation.part("devices");
    let at = path.child("devices");
    let claim = RequestNames::of(owner.value.part("spec").part("devices"));
    let results = devices.items("results");
    let results_path = at.child("results");
    if results.len() > RESULTS_MAX {
        errors.check_at_most(&results_path, results.len(), RESULTS_MAX);
    // Entries of a list that is too long are not checked, which bounds the work.
    } else {
        for (i, result) in results.iter().enumerate() {
            let path = results_path.index(i);
            request_reference(
                errors,
                &claim,
                result.text("request"),
                &path.child("request"),
            );
            device_name(errors, result, &path);
            binding_conditions(errors, result, &path);
            share(errors, result, &path);
        }
    }
    let (configs, at) = (devices.items("config"), at.child("config"));
    if configs.len() > CONFIGS_MAX {
        errors.check_at_most(&at, configs.len(), CONFIGS_MAX);
    } else {
        for (i, config) in configs.iter().enumerate() {
            configuration(errors, owner, config, &claim, &at.index(i));
        }
    }
    if let Some(selector) = allocation.field("nodeSelector") {
        let at = path.child("nodeSelector");
        run_type(errors, "core.v1.NodeSelector", selector, owner, &at);
    }
}

/// A request of the claim by its name, or an alternative of one by both names.
pub(super) fn request_reference(
    errors: &mut Errors,
    known: &RequestNames<'_>,
    name: &str,
    path: &ErrorPath,
) {
    let parts: Vec<&str> = name.split('/').collect();
    if parts.len() <= 2 {
        for part in parts {
            errors.each_invalid(path, part, names::dns_label(part));
        }
    }
    if !known.has(name) {
        errors.invalid(path, name, NOT_A_REQUEST);
    }
}

fn device_name(errors: &mut Errors, device: &Value, path: &ErrorPath) {
    validate_driver(errors, device.text("driver"), &path.child("driver"));
    validate_pool(errors, device.text("pool"), &path.child("pool"));
    let name = device.text("device");
    errors.each_invalid(&path.child("device"), name, names::dns_label(name));
}

fn share(errors: &mut Errors, device: &Value, path: &ErrorPath) {
    let Some(id) = device.maybe_text("shareID") else {
        return;
    };
    let at = path.child("shareID");
    let is_hyphen = |i| matches!(i, 8 | 13 | 18 | 23);
    let fits = |(i, b): (usize, u8)| {
        if is_hyphen(i) {
            b == b'-'
        } else {
            b.is_ascii_hexdigit()
        }
    };
    if id.len() != 36 {
        let detail = format!("error validating uid: invalid UUID length: {}", id.len());
        errors.invalid(&at, id, detail);
    } else if !id.bytes().enumerate().all(fits) {
        errors.invalid(&at, id, "error validating uid: invalid UUID format");
    } else if id.bytes().any(|b| b.is_ascii_uppercase()) {
        let detail = "uid must be in RFC 4122 normalized form, `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx` with lowercase hexadecimal characters";
        errors.invalid(&at, id, detail);
    }
}

/// The conditions of a device that make its binding succeed or fail.
pub(super) fn binding_conditions(errors: &mut Errors, result: &Value, path: &ErrorPath) {
    let fields = ["bindingConditions", "bindingFailureConditions"];
    let lists = fields.map(|field| result.strings(field));
    for (field, list) in fields.iter().zip(&lists) {
        let at = path.child(field);
        if list.len() > BINDING_CONDITIONS_MAX {
            errors.check_at_most(&at, list.len(), BINDING_CONDITIONS_MAX);
            continue;
        }
        for (i, condition) in list.iter().enumerate() {
            let faults = names::qualified_name(condition);
            errors.each_invalid(&at.index(i), condition, faults);
        }
    }
    let [conditions, failures] = &lists;
    let mut met = HashSet::new();
    for (i, condition) in conditions.iter().enumerate() {
        if !met.insert(*condition) {
            errors.duplicate(&path.child("bindingConditions").index(i), *condition);
        }
    }
    let mut failed = HashSet::new();
    for (i, condition) in failures.iter().enumerate() {
        let at = path.child("bindingFailureConditions").index(i);
        if !failed.insert(*condition) {
            errors.duplicate(&at, *condition);
        }
        if met.contains(condition) {
            let detail = "bindingFailureConditions must not overlap with bindingConditions";
            errors.invalid(&at, *condition, detail);
        }
    }
    // One list without the other would leave the binding without an end.
    for (i, field) in fields.into_iter().enumerate() {
        let other = 1 - i;
        let is_alone = lists.get(i).is_some_and(Vec::is_empty)
            && lists.get(other).is_some_and(|list| !list.is_empty());
        if is_alone {
            let of = fields.get(other).copied().unwrap_or("");
            let detail = format!("{field} are required to use {of}");
            let shown = result.field(field).map_or_else(Shown::null, Shown::from);
            errors.invalid(&path.child(field), shown, detail);
        }
    }
}

fn configuration(
    errors: &mut Errors,
    owner: &Owner,
    config: &Value,
    claim: &RequestNames<'_>,
    path: &ErrorPath,
) {
    let (source, at) = (config.text("source"), path.child("source"));
    match source {
        "" => errors.required(&at, ""),
        "FromClaim" | "FromClass" => {}
        other => errors.not_supported(&at, other, &SOURCES),
    }
    let (requests, at) = (config.strings("requests"), path.child("requests"));
    if requests.len() > REQUESTS_MAX {
        errors.check_at_most(&at, requests.len(), REQUESTS_MAX);
    } else {
        let mut seen = HashSet::new();
        for (i, request) in requests.iter().enumerate() {
            request_reference(errors, claim, request, &at.index(i));
            if !seen.insert(*request) {
                errors.duplicate(&at.index(i), *request);
            }
        }
    }
    let at = path.child("opaque");
    match config.field("opaque") {
        None => errors.required(&at, ""),
        Some(opaque) => {
            let kind = "resource.v1.OpaqueDeviceConfiguration";
            run_type(errors, kind, opaque, owner, &at);
        }
    }
}

fn device_statuses(
    errors: &mut Errors,
    devices: &[Value],
    allocated: &HashSet<DeviceId>,
    path: &ErrorPath,
) {
    let shown = |device: &Value| {
        let parts = [
            ("Driver", "driver"),
            ("Pool", "pool"),
            ("Device", "device"),
            ("ShareID", "shareID"),
        ];
        Shown(struct_text(
            &parts.map(|(part, field)| (part, json_text(device.text(field)))),
        ))
    };
    for (i, device) in devices.iter().enumerate() {
        let path = path.index(i);
        device_name(errors, device, &path);
        share(errors, device, &path);
        // A driver reports only about devices that the claim has.
        if !allocated.contains(&id_of(device)) {
            let detail = "must be an allocated device in the claim";
            errors.invalid(&path, shown(device), detail);
        }
        let (list, at) = (device.items("conditions"), path.child("conditions"));
        errors.check_at_most(&at, list.len(), CONDITIONS_MAX);
        conditions::validate(errors, list, &at);
        if let Some(data) = device.field("data") {
            check_raw(errors, data, &path.child("data"), DATA_BYTES_MAX);
        }
        network_data(
            errors,
            device.part("networkData"),
            &path.child("networkData"),
        );
    }
    let mut seen = HashSet::new();
    for (i, device) in devices.iter().enumerate() {
        if !seen.insert(id_of(device)) {
            errors.duplicate(&path.index(i), shown(device));
        }
    }
}

fn network_data(errors: &mut Errors, data: &Value, path: &ErrorPath) {
    for (field, bytes_max) in [
        ("interfaceName", INTERFACE_BYTES_MAX),
        ("hardwareAddress", HARDWARE_BYTES_MAX),
    ] {
        if data.text(field).len() > bytes_max {
            errors.too_long(&path.child(field), bytes_max);
        }
    }
    let (ips, at) = (data.strings("ips"), path.child("ips"));
    if ips.len() > IPS_MAX {
        errors.check_at_most(&at, ips.len(), IPS_MAX);
        return;
    }
    let mut seen = HashSet::new();
    for (i, ip) in ips.into_iter().enumerate() {
        match names::parse_cidr(ip) {
            None => errors.invalid(
                &at.index(i),
                ip,
                "must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)",
            ),
            Some((address, bits)) => {
                let canonical = format!("{address}/{bits}");
                // Two texts of one address would not be recognised as duplicates.
                if ip != canonical {
                    let detail = format!("must be in canonical form ({canonical:?})");
                    errors.invalid(&at.index(i), ip, detail);
                }
            }
        }
        if !seen.insert(ip) {
            errors.duplicate(&at.index(i), ip);
        }
    }
}
