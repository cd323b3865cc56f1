//! ResourceClaims, their templates and ResourceSlices in resource.k8s.io/v1beta1: the fields of an exact request are in
//! the request itself, and the fields of a device are in `basic`.

use crate::view::{items_mut, remove};
use serde_json::{Map, Value, json};

/// The fields of an exact request.
const EXACT: [&str; 8] = [
    "adminAccess",
    "allocationMode",
    "capacity",
    "count",
    "derivedAttributes",
    "deviceClassName",
    "selectors",
    "tolerations",
];

/// An object of v1 from one of v1beta1.
pub(super) fn from_v1beta1(kind: &str, mut object: Value) -> Value {
    object["apiVersion"] = "resource.k8s.io/v1".into();
    for request in requests(kind, &mut object) {
        let mut exact = Map::new();
        for field in EXACT {
            let value = take(request, field);
            exact.extend(value.filter(is_set).map(|value| (field.to_owned(), value)));
        }
        if !exact.is_empty() {
            request["exactly"] = exact.into();
        }
    }
    if let ("ResourceSlice", Some(spec)) = (kind, object.get_mut("spec")) {
        for field in ["nodeName", "allNodes"] {
            if spec.get(field).is_some_and(|value| !is_set(value)) {
                remove(spec, field);
            }
        }
        for device in items_mut(spec, "devices") {
            let basic = take(device, "basic");
            if let (Some(Value::Object(basic)), Some(device)) = (basic, device.as_object_mut()) {
                device.extend(basic);
            }
        }
    }
    object
}

/// An object of v1beta1 from one of v1.
pub(super) fn to_v1beta1(kind: &str, object: &Value) -> Value {
    let mut object = object.clone();
    object["apiVersion"] = "resource.k8s.io/v1beta1".into();
    for request in requests(kind, &mut object) {
        let exact = take(request, "exactly");
        if let (Some(Value::Object(exact)), Some(request)) = (exact, request.as_object_mut()) {
            request.extend(exact);
        }
        // Go always writes it.
        if request.get("deviceClassName").is_none() {
            request["deviceClassName"] = "".into();
        }
    }
    if let ("ResourceSlice", Some(spec)) = (kind, object.get_mut("spec")) {
        for device in items_mut(spec, "devices") {
            if let Value::Object(fields) = device {
                let name = fields.remove("name");
                *device = json!({"name": name, "basic": std::mem::take(fields)});
            }
        }
    }
    object
}

/// The requests of a claim or a template.
fn requests<'o>(kind: &str, object: &'o mut Value) -> &'o mut [Value] {
    let spec = match kind {
        "ResourceClaim" => object.pointer_mut("/spec/devices"),
        "ResourceClaimTemplate" => object.pointer_mut("/spec/spec/devices"),
        _ => None,
    };
    spec.map_or(&mut [], |devices| items_mut(devices, "requests"))
}

fn take(object: &mut Value, field: &str) -> Option<Value> {
    object.as_object_mut()?.remove(field)
}

/// Returns whether a field was set.
fn is_set(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::String(text) => !text.is_empty(),
        Value::Number(number) => number.as_i64() != Some(0),
        Value::Bool(flag) => *flag,
        Value::Array(_) | Value::Object(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_the_same_after_both_conversions() {
        let claim = |spec: Value| json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "spec": {"devices": spec}});
        let cases = [
            (
                "ResourceClaim",
                claim(json!({"requests": [
                    {"name": "a", "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 2}},
                    {"name": "b", "firstAvailable": [{"name": "c", "deviceClassName": "gpu"}]},
                ]})),
                "/spec/devices/requests/0/deviceClassName",
            ),
            (
                "ResourceClaimTemplate",
                json!({"apiVersion": "resource.k8s.io/v1", "spec": {"spec": {"devices": {"requests": [
                    {"name": "a", "exactly": {"deviceClassName": "gpu", "adminAccess": true}},
                ]}}}}),
                "/spec/spec/devices/requests/0/adminAccess",
            ),
            (
                "ResourceSlice",
                json!({"apiVersion": "resource.k8s.io/v1", "spec": {"nodeName": "n", "devices": [
                    {"name": "d", "attributes": {"a": {"int": 1}}},
                ]}}),
                "/spec/devices/0/basic/attributes",
            ),
            (
                "DeviceClass",
                json!({"apiVersion": "resource.k8s.io/v1", "spec": {}}),
                "/spec",
            ),
        ];
        for (kind, stored, pointer) in cases {
            let shown = to_v1beta1(kind, &stored);
            assert_eq!(shown["apiVersion"], "resource.k8s.io/v1beta1");
            assert!(shown.pointer(pointer).is_some(), "{shown}");
            assert_eq!(from_v1beta1(kind, shown), stored, "{kind}");
        }
    }
}
