//! The devices of ResourceSlices.

use super::claim_status::binding_conditions;
use super::devices::{qualified, validate_driver};
use super::engine::run_type;
use super::errors::{ErrorPath, Errors, Shown};
use super::names;
use super::owner::Owner;
use super::pod::update::node_selector_terms;
use crate::enumerations::values;
use crate::strategy::{KindStrategy, Subresource, keep_other_half};
use crate::view::{FieldView, existing, items_mut, set, set_if_absent};
use serde_json::{Map, Value};
use std::collections::HashSet;

const DEVICES_MAX: usize = 128;
/// With taints, counters or lists of attributes.
const DEVICES_ADVANCED_MAX: usize = 64;
const TAINTS_MAX: usize = 16;
const CONSUMPTIONS_MAX: usize = 2;
const COUNTERS_MAX: usize = 32;
const COUNTER_SETS_MAX: usize = 8;
const COMPATIBILITY_GROUPS_MAX: usize = 2;
/// Operations of the kubelet that a slice may leave out.
const OPERATIONS: [&str; 3] = ["*", "NodePrepareResources", "NodeUnprepareResources"];
const VALUE_BYTES_MAX: usize = 64;
/// The values that an attribute may have, and the lists of such values.
const VALUES: [&str; 8] = [
    "bool", "int", "string", "version", "bools", "ints", "strings", "versions",
];
const PER_DEVICE: &str = "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to true in the ResourceSlice spec";
/// The message about a node selector with another number of terms.
pub(super) const ONE_TERM: &str = "must have exactly one node selector term";
const NOT_PER_DEVICE: &str = "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in the ResourceSlice spec";

/// The node selector of a slice has exactly one term.
pub(crate) fn one_node_selector_term(
    errors: &mut Errors,
    _: &Owner,
    selector: &Value,
    path: &ErrorPath,
) {
    if !selector.is_null() && selector.items("nodeSelectorTerms").len() != 1 {
        let shown = node_selector_terms(selector);
        errors.invalid(&path.child("nodeSelectorTerms"), shown, ONE_TERM);
    }
}

pub(crate) fn slice_driver(e: &mut Errors, _: &Owner, driver: &Value, path: &ErrorPath) {
    validate_driver(e, driver.as_str().unwrap_or(""), path);
}

/// The devices and the counters that they share.
pub(crate) fn devices(errors: &mut Errors, owner: &Owner, spec: &Value, path: &ErrorPath) {
    let devices = spec.items("devices");
    let counters = spec.items("sharedCounters");
    if spec.field("devices").is_some() && spec.field("sharedCounters").is_some() {
        errors.invalid(
            path,
            "",
            "only one of `sharedCounters` or `devices` is allowed",
        );
    }
    // Devices with these fields take more memory in the scheduler, so fewer of them fit into a slice.
    let is_advanced = |device: &Value| {
        let mut attributes = device.map("attributes").into_iter().flatten();
        !device.items("taints").is_empty()
            || !device.items("consumesCounters").is_empty()
            || attributes.any(|(_, value)| {
                VALUES
                    .iter()
                    .skip(4)
                    .any(|list| value.field(list).is_some())
            })
    };
    let max = if devices.iter().any(is_advanced) {
        DEVICES_ADVANCED_MAX
    } else {
        DEVICES_MAX
    };
    let at = path.child("devices");
    if devices.len() > max {
        errors.check_at_most(&at, devices.len(), max);
    } else {
        for (i, device) in devices.iter().enumerate() {
            let per_device = spec.flag("perDeviceNodeSelection");
            validate_device(errors, owner, device, per_device, &at.index(i));
        }
        once(errors, devices, "name", &at);
    }
    let at = path.child("sharedCounters");
    if counters.len() > COUNTER_SETS_MAX {
        errors.check_at_most(&at, counters.len(), COUNTER_SETS_MAX);
        return;
    }
    for (i, set) in counters.iter().enumerate() {
        counter_set(errors, set, "name", &at.index(i));
    }
    once(errors, counters, "name", &at);
}

/// The operations of the kubelet that are left out: preparation only together with its end.
pub(crate) fn operations(errors: &mut Errors, _: &Owner, list: &Value, path: &ErrorPath) {
    let named: Vec<&str> = list
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let mut seen = HashSet::new();
    for (i, operation) in named.iter().enumerate() {
        let is_repeated = !seen.insert(*operation);
        if !OPERATIONS.contains(operation) {
            errors.not_supported(&path.index(i), operation, &OPERATIONS);
        } else if is_repeated {
            errors.duplicate(&path.index(i), *operation);
        }
    }
    let has = |operation: &str| named.contains(&operation);
    if has("NodePrepareResources") && !has("NodeUnprepareResources") && !has("*") {
        let detail = "`NodePrepareResources` requires `NodeUnprepareResources` or `*`";
        errors.invalid(path, Shown::null(), detail);
    }
}

/// Each entry has its own value of a field.
fn once(errors: &mut Errors, list: &[Value], field: &str, path: &ErrorPath) {
    let mut seen = HashSet::new();
    for (i, entry) in list.iter().enumerate() {
        let text = entry.text(field);
        if !seen.insert(text) {
            errors.duplicate(&path.index(i), text);
        }
    }
}

fn counter_set(errors: &mut Errors, set: &Value, name: &'static str, path: &ErrorPath) {
    errors.check_name(&path.child(name), set.text(name), names::dns_label);
    let counters = set.entries("counters");
    let at = path.child("counters");
    if counters.is_empty() {
        errors.required(&at, "");
    } else if counters.len() > COUNTERS_MAX {
        errors.check_at_most(&at, counters.len(), COUNTERS_MAX);
    } else {
        for (name, _) in counters {
            errors.each_invalid(&at, name, names::dns_label(name));
        }
    }
}

fn validate_device(
    errors: &mut Errors,
    owner: &Owner,
    device: &Value,
    per_device: bool,
    path: &ErrorPath,
) {
    let name = device.text("name");
    errors.each_invalid(&path.child("name"), name, names::dns_label(name));
    super::devices::device_size(errors, device, path);
    let at = path.child("attributes");
    for (name, attribute) in device.entries("attributes") {
        qualified(errors, name, &at);
        validate_attribute(errors, attribute, &at.key(name));
    }
    let at = path.child("capacity");
    for (name, _) in device.entries("capacity") {
        qualified(errors, name, &at);
    }
    let (taints, at) = (device.items("taints"), path.child("taints"));
    // Entries of a list that is too long are not checked, which bounds the work.
    if taints.len() > TAINTS_MAX {
        errors.check_at_most(&at, taints.len(), TAINTS_MAX);
    } else {
        for (i, taint) in taints.iter().enumerate() {
            validate_taint(errors, taint, &at.index(i));
        }
    }
    let (consumptions, at) = (
        device.items("consumesCounters"),
        path.child("consumesCounters"),
    );
    if consumptions.len() > CONSUMPTIONS_MAX {
        errors.check_at_most(&at, consumptions.len(), CONSUMPTIONS_MAX);
    } else {
        for (i, consumption) in consumptions.iter().enumerate() {
            counter_set(errors, consumption, "counterSet", &at.index(i));
            compatibility_groups(errors, consumption, &at.index(i));
        }
        once(errors, consumptions, "counterSet", &at);
    }
    reach(errors, owner, device, per_device, path);
    binding_conditions(errors, device, path);
}

fn compatibility_groups(errors: &mut Errors, consumption: &Value, path: &ErrorPath) {
    let groups = consumption.strings("compatibilityGroups");
    let at = path.child("compatibilityGroups");
    if groups.len() > COMPATIBILITY_GROUPS_MAX {
        errors.check_at_most(&at, groups.len(), COMPATIBILITY_GROUPS_MAX);
    } else if let [first, second] = groups[..]
        && first == second
    {
        errors.duplicate(&at.index(1), second);
    }
}

fn validate_attribute(errors: &mut Errors, attribute: &Value, path: &ErrorPath) {
    let given: Vec<&str> = VALUES
        .into_iter()
        .filter(|value| attribute.field(value).is_some())
        .collect();
    let mut text = |value: &str, is_version: bool, path: &ErrorPath| {
        if is_version && !is_version_of_semver(value) {
            let detail = "must be a string compatible with semver.org spec 2.0.0";
            errors.invalid(path, value, detail);
        }
        if value.len() > VALUE_BYTES_MAX {
            errors.too_long(path, VALUE_BYTES_MAX);
        }
    };
    for (field, list) in [("string", "strings"), ("version", "versions")] {
        let is_version = field == "version";
        if let Some(value) = attribute.maybe_text(field) {
            text(value, is_version, &path.child(field));
        }
        for (i, value) in attribute.strings(list).into_iter().enumerate() {
            text(value, is_version, &path.child(list).index(i));
        }
    }
    match given.len() {
        0 => errors.invalid(path, "", "exactly one value must be specified"),
        1 => {}
        _ => errors.invalid(path, attribute, "exactly one value must be specified"),
    }
}

/// Three numbers, with a pre-release and the data of the build behind them.
fn is_version_of_semver(text: &str) -> bool {
    let (text, build) = text
        .split_once('+')
        .map_or((text, None), |(t, b)| (t, Some(b)));
    let (core, release) = text
        .split_once('-')
        .map_or((text, None), |(t, r)| (t, Some(r)));
    let word = |part: &str| {
        !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
    };
    let number = |part: &str| {
        !part.is_empty()
            && part.bytes().all(|b| b.is_ascii_digit())
            && (part == "0" || !part.starts_with('0'))
    };
    let release_part =
        |part: &str| word(part) && (number(part) || !part.bytes().all(|b| b.is_ascii_digit()));
    core.split('.').count() == 3
        && core.split('.').all(number)
        && release.is_none_or(|text| text.split('.').all(release_part))
        && build.is_none_or(|text| text.split('.').all(word))
}

fn validate_taint(errors: &mut Errors, taint: &Value, path: &ErrorPath) {
    let key = taint.text("key");
    errors.each_invalid(&path.child("key"), key, names::qualified_name(key));
    let value = taint.text("value");
    if !value.is_empty() {
        errors.each_invalid(&path.child("value"), value, names::label_value(value));
    }
    let (effect, at) = (taint.text("effect"), path.child("effect"));
    let known = values!(resource.v1.DeviceTaint.effect);
    if effect.is_empty() {
        errors.required(&at, "");
    } else if !known.contains(&effect) {
        errors.not_supported(&at, effect, &known);
    }
}

/// The nodes that reach a device, where the slice does not state them for all.
fn reach(errors: &mut Errors, owner: &Owner, device: &Value, per_device: bool, path: &ErrorPath) {
    let fields = ["nodeName", "nodeSelector", "allNodes"];
    let given = |field: &&str| device.field(field).is_some();
    // The slice states the nodes for all of its devices.
    if !per_device {
        if fields.iter().any(given) {
            errors.invalid(path, Shown::null(), NOT_PER_DEVICE);
        }
        return;
    }
    let mut set = Vec::new();
    let at = path.child("nodeName");
    match device.maybe_text("nodeName") {
        None => {}
        Some("") => errors.invalid(&at, "", "must not be empty"),
        Some(name) => {
            set.push("`nodeName`");
            errors.each_invalid(&at, name, names::dns_subdomain(name));
        }
    }
    if let Some(selector) = device.field("nodeSelector") {
        set.push("`nodeSelector`");
        let at = path.child("nodeSelector");
        run_type(errors, "core.v1.NodeSelector", selector, owner, &at);
    }
    match device.maybe_flag("allNodes") {
        None => {}
        Some(true) => set.push("`allNodes`"),
        Some(false) => {
            let detail = "must be either unset or set to true";
            errors.invalid(&path.child("allNodes"), false, detail);
        }
    }
    match set.len() {
        0 => errors.required(path, PER_DEVICE),
        1 => {}
        _ => errors.invalid(path, &format!("{{{}}}", set.join(", ")), PER_DEVICE),
    }
}

/// The strategy of ResourceSlices: taints without a time were added now.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct SliceStrategy;

impl SliceStrategy {
    fn date_taints(slice: &mut Value, now: &str) {
        let Some(spec) = existing(slice, "spec") else {
            return;
        };
        for device in items_mut(spec, "devices") {
            for taint in items_mut(device, "taints") {
                set_if_absent(taint, "timeAdded", now);
            }
        }
    }
}

impl KindStrategy for SliceStrategy {
    fn prepare_for_create(&self, object: &mut Value, now: &str) {
        Self::date_taints(object, now);
    }

    fn prepare_for_update(&self, new: &mut Value, old: &Value, part: Subresource, now: &str) {
        keep_other_half(new, old, part);
        Self::date_taints(new, now);
    }
}

/// The strategy of DeviceTaintRules: as [`SliceStrategy`], with a status.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct TaintRuleStrategy;

impl TaintRuleStrategy {
    fn date_taint(rule: &mut Value, now: &str) {
        let taint = existing(rule, "spec").and_then(|spec| existing(spec, "taint"));
        if let Some(taint) = taint {
            set_if_absent(taint, "timeAdded", now);
        }
    }
}

impl KindStrategy for TaintRuleStrategy {
    fn prepare_for_create(&self, object: &mut Value, now: &str) {
        set(object, "status", Map::new());
        Self::date_taint(object, now);
    }

    fn prepare_for_update(&self, new: &mut Value, old: &Value, part: Subresource, now: &str) {
        keep_other_half(new, old, part);
        Self::date_taint(new, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_those_of_semver() {
        for good in [
            "1.2.3",
            "0.0.1",
            "1.0.0-alpha.1",
            "1.0.0-a-b+build.5",
            "1.0.0+001",
        ] {
            assert!(is_version_of_semver(good), "{good}");
        }
        for bad in [
            "1", "1.2", "v1.2.3", "01.2.3", "1.2.3-", "1.2.3-01", "1.2.3+", "",
        ] {
            assert!(!is_version_of_semver(bad), "{bad}");
        }
    }
}
