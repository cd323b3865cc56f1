//! The rules of Nodes.

use super::amounts;
use super::errors::{Errors, Path, Shown, quote_json};
use super::names;
use super::normal;
use super::pod::scheduling::validate_taint_effect;
use super::view::{View, child, set};
use super::workloads::spec_of;
use crate::field::FieldError;
use crate::strategy::{Strategy, Subresource};
use serde_json::{Map, Value, json};
use std::collections::HashSet;

const CIDR_FIXED: &str = "node updates may not change podCIDR except from \"\" to valid";

/// The strategy of Nodes.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct NodeStrategy;

impl Strategy for NodeStrategy {
    fn default(&self, object: &mut Value) {
        normal::normalize(object, ("", "v1", "Node"));
        if let Some(spec) = child(object, "spec") {
            default_cidrs(spec);
        }
        let Some(status) = child(object, "status") else {
            return;
        };
        if status.field("allocatable").is_none()
            && let Some(capacity) = status.field("capacity").cloned()
        {
            set(status, "allocatable", capacity);
        }
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let spec = spec_of(object);
        // Upstream reports taints below metadata.
        validate_taints(&mut errors, spec, &Path::new("metadata.taints"));
        validate_amounts(&mut errors, object);
        let path = Path::new("spec.podCIDRs");
        let cidrs = spec.strings("podCIDRs");
        for (i, cidr) in cidrs.iter().enumerate() {
            if names::parse_cidr(cidr).is_none() {
                errors.invalid(&path.index(i), *cidr, names::NOT_A_CIDR);
            }
        }
        if cidrs.len() > 1 {
            let families: HashSet<bool> = cidrs
                .iter()
                .filter_map(|c| names::parse_cidr(c))
                .map(|(ip, _)| ip.is_ipv4())
                .collect();
            if families.len() != 2 || cidrs.len() > 2 {
                errors.invalid(
                    &path,
                    spec.field("podCIDRs").unwrap_or(&Value::Null),
                    "may specify no more than one CIDR for each IP family",
                );
            }
        }
        errors.into_vec()
    }

    fn validate_update(
        &self,
        new: &Value,
        old: &Value,
        _subresource: Subresource,
    ) -> Vec<FieldError> {
        let mut errors = Errors::new();
        validate_amounts(&mut errors, new);
        let empty = Value::Null;
        let mut seen = HashSet::new();
        let addresses = new.field("status").unwrap_or(&empty).items("addresses");
        for (i, address) in addresses.iter().enumerate() {
            let (kind, value) = (address.text("type"), address.text("address"));
            if !seen.insert((kind, value)) {
                let mut shown = String::from("{\"Type\":");
                quote_json(&mut shown, kind);
                shown.push_str(",\"Address\":");
                quote_json(&mut shown, value);
                shown.push('}');
                errors.duplicate(&Path::new("status.addresses").index(i), Shown(shown));
            }
        }
        let (new_spec, old_spec) = (spec_of(new), spec_of(old));
        let before = old_spec.strings("podCIDRs");
        if !before.is_empty() && before != new_spec.strings("podCIDRs") {
            errors.forbidden(&Path::new("spec.podCIDRs"), CIDR_FIXED);
        }
        let provider = old_spec.text("providerID");
        if !provider.is_empty() && provider != new_spec.text("providerID") {
            errors.forbidden(
                &Path::new("spec.providerID"),
                "node updates may not change providerID except from \"\" to valid",
            );
        }
        validate_taints(&mut errors, new_spec, &Path::new("metadata.taints"));
        errors.into_vec()
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
    let empty = Value::Object(Map::new());
    let status = node.field("status").unwrap_or(&empty);
    for list in ["capacity", "allocatable"] {
        for (name, amount) in status.entries(list) {
            let path = Path::new("status").child(list).child(name);
            amounts::validate(errors, name, amount, &path);
        }
    }
}

fn validate_taints(errors: &mut Errors, spec: &Value, path: &Path) {
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
        if !seen.insert((key, effect)) {
            let mut shown = String::new();
            for (opening, text) in [
                ("{\"Key\":", key),
                (",\"Value\":", value),
                (",\"Effect\":", effect),
            ] {
                shown.push_str(opening);
                quote_json(&mut shown, text);
            }
            shown.push_str(",\"TimeAdded\":");
            match taint.maybe_text("timeAdded") {
                Some(time) => quote_json(&mut shown, time),
                None => shown.push_str("null"),
            }
            shown.push('}');
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
        NodeStrategy.default(&mut node);
        assert_eq!(NodeStrategy.validate(&node), []);
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
    fn taints_and_addresses_are_checked() {
        let node = json!({"spec": {"taints": [
            {"key": "a", "effect": "NoSchedule"},
            {"key": "a", "effect": "NoSchedule", "value": "x"},
            {"key": "b"},
            {"key": "c d", "effect": "Never", "value": "-"},
        ]}});
        let fields: Vec<String> = NodeStrategy
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
        let errors = NodeStrategy.validate_update(&new, &old, Subresource::Main);
        let fields: Vec<&str> = errors.iter().map(|e| e.field.as_str()).collect();
        assert_eq!(
            fields,
            ["status.addresses[1]", "spec.podCIDRs", "spec.providerID"]
        );
    }
}
