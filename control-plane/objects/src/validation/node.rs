//! The rules of Nodes.

use super::addresses::validate_cidr;
use super::errors::{ErrorPath, Errors, Shown, json_text, struct_text};
use super::owner::Owner;
use super::pod::scheduling::validate_taint_effect;
use super::workloads::spec_of;
use super::{amounts, names};
use crate::view::{FieldView, child, set};
use serde_json::{Value, json};
use std::cmp::Ordering;
use std::collections::HashSet;

/// The longest name of a feature, in bytes.
const FEATURE_LENGTH_MAX: usize = 253;
const CIDR_FIXED: &str = "node updates may not change podCIDR except from \"\" to valid";

/// The most entries of `disableResizePreemption`.
const DISABLE_RESIZE_PREEMPTION_MAX: usize = 20;

pub(crate) fn node(e: &mut Errors, owner: &Owner, object: &Value, _: &ErrorPath) {
    match owner.old {
        None => validate(e, object),
        Some(old) => validate_update(e, object, old),
    }
}

pub(crate) fn node_status(e: &mut Errors, owner: &Owner, _: &Value, _: &ErrorPath) {
    let node = owner.enclosing("core.v1.Node").unwrap_or(&Value::Null);
    validate_amounts(e, node);
    validate_features(e, node);
    validate_addresses(e, node);
}

/// Capacity is allocatable, and the first of the CIDRs is the CIDR.
pub(super) fn default(object: &mut Value) {
    if let Some(spec) = child(object, "spec") {
        default_cidrs(spec);
    }
    if let Some(status) = child(object, "status")
        && status.field("allocatable").is_none()
        && let Some(capacity) = status.field("capacity").cloned()
    {
        set(status, "allocatable", capacity);
    }
}

fn validate(errors: &mut Errors, node: &Value) {
    let spec = spec_of(node);
    // Upstream reports taints below metadata.
    validate_taints(errors, spec, &ErrorPath::new("metadata.taints"));
    validate_amounts(errors, node);
    validate_preemption_policy(errors, spec);
    validate_features(errors, node);
    validate_cidrs(errors, spec);
}

fn validate_cidrs(errors: &mut Errors, spec: &Value) {
    let path = ErrorPath::new("spec.podCIDRs");
    let cidrs = spec.strings("podCIDRs");
    for (i, cidr) in cidrs.iter().enumerate() {
        validate_cidr(errors, cidr, &path.index(i));
    }
    let parsed = cidrs.iter().filter_map(|c| names::parse_cidr(c));
    let families: HashSet<bool> = parsed.map(|(ip, _)| ip.is_ipv4()).collect();
    if cidrs.len() > 1 && (families.len() != 2 || cidrs.len() > 2) {
        errors.invalid(
            &path,
            spec.part("podCIDRs"),
            "may specify no more than one CIDR for each IP family",
        );
    }
}

fn validate_update(errors: &mut Errors, new: &Value, old: &Value) {
    let (new_spec, old_spec) = (spec_of(new), spec_of(old));
    validate(errors, new);
    validate_addresses(errors, new);
    let before = old_spec.strings("podCIDRs");
    if !before.is_empty() && before != new_spec.strings("podCIDRs") {
        errors.forbidden(&ErrorPath::new("spec.podCIDRs"), CIDR_FIXED);
    }
    let provider = old_spec.text("providerID");
    if !provider.is_empty() && provider != new_spec.text("providerID") {
        errors.forbidden(
            &ErrorPath::new("spec.providerID"),
            "node updates may not change providerID except from \"\" to valid",
        );
    }
    if old_spec.text("externalID") != new_spec.text("externalID") {
        errors.forbidden(&ErrorPath::new("spec.externalID"), "may not be updated");
    }
}

/// Names of features are sorted.
fn validate_features(errors: &mut Errors, node: &Value) {
    let path = ErrorPath::new("status.declaredFeatures");
    let mut last: Option<&str> = None;
    for (i, name) in node
        .part("status")
        .strings("declaredFeatures")
        .into_iter()
        .enumerate()
    {
        let path = path.index(i);
        // A sorted list shows duplicates as neighbours.
        match last.map(|last| last.cmp(name)) {
            Some(Ordering::Equal) => errors.duplicate(&path, name),
            Some(Ordering::Greater) => {
                errors.invalid(&path, name, "list must be sorted alphabetically")
            }
            _ => {}
        }
        last = Some(name);
        let fault = if name.len() > FEATURE_LENGTH_MAX {
            format!("must be no more than {FEATURE_LENGTH_MAX} characters")
        } else if !is_feature(name) {
            "must start with an UpperCamelCase segment, with subsequent segments separated by '/' (e.g., MyFeature or MyFeature/mySubFeature), and contain only alphanumeric characters and slashes".to_owned()
        } else {
            continue;
        };
        errors.invalid(
            &path,
            name,
            format!("invalid feature name {name:?}: {fault}"),
        );
    }
}

/// Segments of letters and digits; the first begins with a capital letter.
fn is_feature(name: &str) -> bool {
    let is_segment = |s: &str| {
        s.starts_with(|c: char| c.is_ascii_alphabetic())
            && s.bytes().all(|b| b.is_ascii_alphanumeric())
    };
    name.starts_with(|c: char| c.is_ascii_uppercase()) && name.split('/').all(is_segment)
}

/// The reasons that exclude the pods of the node from preemption for a resize.
fn validate_preemption_policy(errors: &mut Errors, spec: &Value) {
    let policy = spec.part("podPreemptionPolicy");
    let keys = policy.strings("disableResizePreemption");
    let path = ErrorPath::new("spec.podPreemptionPolicy.disableResizePreemption");
    if keys.len() > DISABLE_RESIZE_PREEMPTION_MAX {
        errors.check_at_most(&path, keys.len(), DISABLE_RESIZE_PREEMPTION_MAX);
        return;
    }
    let mut seen = HashSet::new();
    for (i, key) in keys.into_iter().enumerate() {
        let path = path.index(i);
        errors.each_invalid(&path, key, names::qualified_name(key));
        if !seen.insert(key) {
            errors.duplicate(&path, key);
        }
    }
}

fn validate_addresses(errors: &mut Errors, node: &Value) {
    let mut seen = HashSet::new();
    for (i, address) in node.part("status").items("addresses").iter().enumerate() {
        let (kind, value) = (address.text("type"), address.text("address"));
        if !seen.insert((kind, value)) {
            let shown = struct_text(&[("Type", json_text(kind)), ("Address", json_text(value))]);
            errors.duplicate(&ErrorPath::new("status.addresses").index(i), Shown(shown));
        }
    }
}

/// `podCIDR` is the first of `podCIDRs`.
fn default_cidrs(spec: &mut Value) {
    let first = spec.strings("podCIDRs").first().map(|c| (*c).to_owned());
    match (first, spec.text("podCIDR").to_owned()) {
        (Some(first), _) => set(spec, "podCIDR", first),
        (None, one) if !one.is_empty() => set(spec, "podCIDRs", json!([one])),
        _ => {}
    }
}

fn validate_amounts(errors: &mut Errors, node: &Value) {
    let status = node.part("status");
    for list in ["capacity", "allocatable"] {
        for (name, amount) in status.entries(list) {
            let path = ErrorPath::new("status").child(list).child(name);
            amounts::validate(errors, name, amount, &path);
        }
    }
}

fn validate_taints(errors: &mut Errors, spec: &Value, path: &ErrorPath) {
    let mut seen = HashSet::new();
    for (i, taint) in spec.items("taints").iter().enumerate() {
        let path = path.index(i);
        let (key, value, effect) = (taint.text("key"), taint.text("value"), taint.text("effect"));
        errors.each_invalid(&path.child("key"), key, names::qualified_name(key));
        let messages = names::label_value(value);
        if !messages.is_empty() {
            errors.invalid(&path.child("value"), value, messages.join(";"));
        }
        if effect.is_empty() {
            errors.required(&path.child("effect"), "");
        } else {
            validate_taint_effect(errors, effect, &path.child("effect"));
        }
        // Taints with the same key and another effect are different taints.
        if !seen.insert((key, effect)) {
            let shown = struct_text(&[
                ("Key", json_text(key)),
                ("Value", json_text(value)),
                ("Effect", json_text(effect)),
                ("TimeAdded", json_text(taint.maybe_text("timeAdded"))),
            ]);
            errors.duplicate_because(
                &path,
                Shown(shown),
                "taints must be unique by key and effect pair",
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::gr;
    use crate::kinds::strategy;
    use crate::strategy::Subresource;

    #[test]
    fn a_node_is_stored_as_upstream_stores_it() {
        let mut node = json!({
            "metadata": {"name": "node-1"},
            "status": {
                "capacity": {"cpu": "4", "memory": "8Gi", "pods": "110"},
                "conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": null}],
                "nodeInfo": {"kubeletVersion": "v1.36.2"},
            },
        });
        strategy(gr("", "nodes")).default(&mut node);
        assert_eq!(strategy(gr("", "nodes")).validate(&node), []);
        assert_eq!(
            node,
            json!({
                "metadata": {"name": "node-1"},
                "spec": {},
                "status": {
                    "capacity": {"cpu": "4", "memory": "8Gi", "pods": "110"},
                    "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"},
                    "conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": null,
                        "lastTransitionTime": null}],
                    "daemonEndpoints": {"kubeletEndpoint": {"Port": 0}},
                    "nodeInfo": {"machineID": "", "systemUUID": "", "bootID": "",
                        "kernelVersion": "", "osImage": "", "containerRuntimeVersion": "",
                        "kubeletVersion": "v1.36.2", "kubeProxyVersion": "",
                        "operatingSystem": "", "architecture": ""},
                },
            })
        );
    }

    #[test]
    fn features_ranges_and_the_external_id_are_checked() {
        let texts = |new: Value, old: Value| -> Vec<String> {
            let errors = strategy(gr("", "nodes")).validate_update(&new, &old, Subresource::Main);
            errors.iter().map(ToString::to_string).collect()
        };
        let features = |list: Value| json!({"status": {"declaredFeatures": list}});
        assert!(texts(features(json!(["A", "A/b", "B2"])), json!({})).is_empty());
        let shape = "must start with an UpperCamelCase segment, with subsequent segments separated by '/' (e.g., MyFeature or MyFeature/mySubFeature), and contain only alphanumeric characters and slashes";
        for name in ["not valid!", "a", "A/", "A/1", ""] {
            let expect = format!(
                "status.declaredFeatures[0]: Invalid value: {name:?}: invalid feature name {name:?}: {shape}"
            );
            assert_eq!(texts(features(json!([name])), json!({})), [expect]);
        }
        assert_eq!(
            texts(features(json!(["B", "A", "A"])), json!({})),
            [
                "status.declaredFeatures[1]: Invalid value: \"A\": list must be sorted alphabetically",
                "status.declaredFeatures[2]: Duplicate value: \"A\"",
            ]
        );
        let cidr = json!({"spec": {"podCIDR": "1.2.3.4/24", "podCIDRs": ["1.2.3.4/24"]}});
        assert_eq!(
            texts(cidr, json!({})),
            [
                "spec.podCIDRs[0]: Invalid value: \"1.2.3.4/24\": must not have bits set beyond the prefix length"
            ]
        );
        let two = json!({"spec": {"podCIDRs": ["10.0.0.0/24", "10.0.1.0/24"]}});
        assert_eq!(
            texts(two, json!({})),
            [
                "spec.podCIDRs: Invalid value: [\"10.0.0.0/24\",\"10.0.1.0/24\"]: may specify no more than one CIDR for each IP family"
            ]
        );
        assert_eq!(
            texts(json!({"spec": {"externalID": "x"}}), json!({})),
            ["spec.externalID: Forbidden: may not be updated"]
        );
    }

    #[test]
    fn taints_and_addresses_are_checked() {
        let node = json!({"spec": {"taints": [
            {"key": "a", "effect": "NoSchedule"},
            {"key": "a", "effect": "NoSchedule", "value": "x"},
            {"key": "b"},
            {"key": "c d", "effect": "Never", "value": "-"},
        ]}});
        let fields: Vec<String> = strategy(gr("", "nodes"))
            .validate(&node)
            .iter()
            .map(|e| format!("{} {}", e.kind.title(), e.field))
            .collect();
        assert_eq!(
            fields,
            [
                "Duplicate value metadata.taints[1]",
                "Required value metadata.taints[2].effect",
                "Invalid value metadata.taints[3].key",
                "Invalid value metadata.taints[3].value",
                "Unsupported value metadata.taints[3].effect",
            ]
        );
        let old = json!({"spec": {"podCIDRs": ["10.0.0.0/24"], "providerID": "a"}});
        let new = json!({"spec": {"podCIDRs": ["10.0.1.0/24"]},
            "status": {"addresses": [{"type": "A", "address": "x"}, {"type": "A", "address": "x"}]}});
        let errors = strategy(gr("", "nodes")).validate_update(&new, &old, Subresource::Main);
        let fields: Vec<&str> = errors.iter().map(|e| e.field.as_str()).collect();
        assert_eq!(
            fields,
            ["status.addresses[1]", "spec.podCIDRs", "spec.providerID"]
        );
    }
}
