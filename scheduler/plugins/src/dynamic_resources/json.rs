//! Allocations of claims as JSON.

use berth_api::devices::{
    AllocationResult, DeviceAllocationConfiguration, DeviceRequestAllocationResult,
    DeviceTaintEffect, DeviceToleration,
};
use berth_api::node_selector::{NodeSelector, NodeSelectorRequirement};
use serde_json::{Map, Value, json};

/// An object without its empty values, which the API omits.
pub(super) fn object(fields: impl IntoIterator<Item = (&'static str, Value)>) -> Value {
    let is_set = |value: &Value| match value {
        Value::Null => false,
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
        Value::String(text) => !text.is_empty(),
        _ => true,
    };
    let fields = fields.into_iter().filter(|(_, value)| is_set(value));
    Value::Object(
        fields
            .map(|(name, value)| (name.to_owned(), value))
            .collect(),
    )
}

/// An allocation as the API writes it.
pub(super) fn allocation_json(allocation: &AllocationResult) -> Value {
    let results = allocation.devices.results.iter().map(result_json);
    let config = allocation.devices.config.iter().map(config_json);
    let devices = object([
        ("results", Value::Array(results.collect())),
        ("config", Value::Array(config.collect())),
    ]);
    let time = allocation
        .allocation_timestamp
        .map(|time| json!(time.rfc3339()));
    let selector = allocation.node_selector.as_ref().map(selector_json);
    let mut json = object([
        ("nodeSelector", selector.unwrap_or_default()),
        ("allocationTimestamp", time.unwrap_or_default()),
    ]);
    json["devices"] = devices;
    json
}

fn result_json(result: &DeviceRequestAllocationResult) -> Value {
    let consumed = result.consumed_capacity.iter();
    let consumed: Map<String, Value> = consumed
        .map(|(name, amount)| (name.to_string(), json!(amount)))
        .collect();
    let tolerations = result.tolerations.iter().map(toleration_json);
    object([
        ("request", json!(result.request)),
        ("driver", json!(result.driver)),
        ("pool", json!(result.pool)),
        ("device", json!(result.device)),
        ("adminAccess", json!(result.admin_access)),
        ("tolerations", Value::Array(tolerations.collect())),
        ("bindingConditions", json!(result.binding_conditions)),
        (
            "bindingFailureConditions",
            json!(result.binding_failure_conditions),
        ),
        ("shareID", json!(result.share_id)),
        ("consumedCapacity", Value::Object(consumed)),
        ("skipNodeOperations", json!(result.skip_node_operations)),
    ])
}

fn toleration_json(toleration: &DeviceToleration) -> Value {
    let effect = match toleration.effect {
        DeviceTaintEffect::Unset => Value::Null,
        effect => json!(effect.as_str()),
    };
    object([
        ("key", json!(toleration.key)),
        ("operator", json!(toleration.operator)),
        ("value", json!(toleration.value)),
        ("effect", effect),
        ("tolerationSeconds", json!(toleration.toleration_seconds)),
    ])
}

fn config_json(config: &DeviceAllocationConfiguration) -> Value {
    // Not every text of parameters has a value.
    let opaque = config.opaque.as_ref().map(|opaque| {
        let parameters = opaque.parameters.value();
        json!({"driver": opaque.driver, "parameters": parameters})
    });
    object([
        ("source", json!(config.source.as_str())),
        ("requests", json!(config.requests)),
        ("opaque", opaque.unwrap_or_default()),
    ])
}

fn selector_json(selector: &NodeSelector) -> Value {
    let requirements = |requirements: &[NodeSelectorRequirement]| {
        let requirements = requirements.iter().map(|requirement| {
            object([
                ("key", json!(requirement.key)),
                ("operator", json!(requirement.operator)),
                ("values", json!(requirement.values)),
            ])
        });
        Value::Array(requirements.collect())
    };
    let terms = selector.node_selector_terms.iter().map(|term| {
        object([
            ("matchExpressions", requirements(&term.match_expressions)),
            ("matchFields", requirements(&term.match_fields)),
        ])
    });
    json!({"nodeSelectorTerms": terms.collect::<Vec<_>>()})
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A written allocation is read back as the same allocation, and nothing is lost.
    #[test]
    fn an_allocation_is_written_in_full() {
        let json = json!({
            "devices": {
                "results": [
                    {"request": "r/a", "driver": "d", "pool": "p", "device": "one", "adminAccess": true,
                     "tolerations": [{"key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}],
                     "bindingConditions": ["Ready"], "bindingFailureConditions": ["Broken"]},
                    {"request": "s", "driver": "d", "pool": "p", "device": "two", "shareID": "id",
                     "consumedCapacity": {"memory": "10Gi"}},
                ],
                "config": [{"source": "FromClass", "requests": ["s"], "opaque": {"driver": "d", "parameters": {"a": 1}}}],
            },
            "nodeSelector": {"nodeSelectorTerms": [{
                "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}],
                "matchExpressions": [{"key": "zone", "operator": "Exists"}],
            }]},
            "allocationTimestamp": "2026-01-01T00:00:00Z",
        });
        let allocation: AllocationResult = serde_json::from_value(json.clone()).expect("valid");
        assert_eq!(allocation_json(&allocation), json);
    }
}
