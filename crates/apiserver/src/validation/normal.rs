//! The normal form of objects: what a round trip through Kubernetes' Go types leaves of them.
//!
//! Go drops `null`s, empty lists and maps, and the zero values of optional fields, and it prints quantities in one
//! canonical way. Objects are brought into that form before they are compared or stored, so that
//! `hostNetwork: false` equals its absence and `cpu: 1000m` equals `cpu: "1"`.

use super::amounts;
use super::view::View;
use serde_json::Value;

/// Maps from names to strings or quantities: dropped when empty, and never searched for fields.
const PLAIN_MAPS: &[&str] = &[
    "labels",
    "annotations",
    "nodeSelector",
    "matchLabels",
    "limits",
    "requests",
    "overhead",
    "capacity",
    "allocatable",
    "allocatedResources",
    "hard",
    "used",
    "min",
    "max",
    "parameters",
    "volumeAttributes",
    "options",
    "attributes",
];

/// Maps from names to quantities.
const QUANTITY_MAPS: &[&str] = &[
    "limits",
    "requests",
    "overhead",
    "capacity",
    "allocatable",
    "allocatedResources",
    "hard",
    "used",
];

/// Fields of pod specs that hold one quantity.
const QUANTITIES: &[&str] = &["sizeLimit", "divisor"];

/// Optional fields of pod specs whose zero value Go leaves out.
const OMITTED_WHEN_ZERO: &[&str] = &[
    // Strings of the spec and of containers.
    "restartPolicy",
    "dnsPolicy",
    "serviceAccountName",
    "serviceAccount",
    "nodeName",
    "hostname",
    "subdomain",
    "schedulerName",
    "priorityClassName",
    "image",
    "workingDir",
    "terminationMessagePath",
    "terminationMessagePolicy",
    "imagePullPolicy",
    "protocol",
    "hostIP",
    "prefix",
    "subPath",
    "subPathExpr",
    "host",
    "scheme",
    "medium",
    "value",
    "effect",
    "operator",
    // Booleans.
    "hostNetwork",
    "hostPID",
    "hostIPC",
    "readOnly",
    "stdin",
    "stdinOnce",
    "tty",
    // Numbers.
    "hostPort",
    "initialDelaySeconds",
    "timeoutSeconds",
    "periodSeconds",
    "successThreshold",
    "failureThreshold",
];

/// Times that Go prints as `null` when they are unset.
const NULL_TIMES: &[&str] = &[
    "lastProbeTime",
    "lastHeartbeatTime",
    "lastTransitionTime",
    "firstTimestamp",
    "lastTimestamp",
    "deprecatedFirstTimestamp",
    "deprecatedLastTimestamp",
    "eventTime",
];

/// Brings a pod spec into its normal form.
pub(crate) fn pod_spec(spec: &mut Value) {
    walk(spec, true);
}

/// Drops `null`s and empty lists and maps, and prints quantities canonically, in an object of any kind.
/// `metadata.managedFields` is left alone: its empty objects mean something.
pub(crate) fn object(object: &mut Value) {
    let Some(map) = object.as_object_mut() else {
        return;
    };
    if let Some(metadata) = map.get_mut("metadata") {
        let managed = metadata
            .as_object_mut()
            .and_then(|m| m.remove("managedFields"));
        walk(metadata, false);
        if let (Some(managed), Some(m)) = (managed, metadata.as_object_mut())
            && !managed.is_null()
        {
            m.insert("managedFields".to_owned(), managed);
        }
    }
    for name in ["spec", "status"] {
        if let Some(part) = map.get_mut(name) {
            if part.is_null() {
                map.remove(name);
            } else {
                walk(part, false);
            }
        }
    }
}

fn walk(value: &mut Value, in_pod: bool) {
    match value {
        Value::Object(map) => {
            map.retain(|name, field| keeps(name, field, in_pod));
            for (name, field) in map.iter_mut() {
                if QUANTITY_MAPS.contains(&name.as_str()) && field.is_object() {
                    amounts::canonicalize_list(field);
                } else if in_pod && QUANTITIES.contains(&name.as_str()) {
                    amounts::canonicalize(field);
                } else if !PLAIN_MAPS.contains(&name.as_str()) {
                    walk(field, in_pod);
                }
            }
        }
        Value::Array(items) => {
            for item in items {
                walk(item, in_pod);
            }
        }
        _ => {}
    }
}

fn keeps(name: &str, field: &Value, in_pod: bool) -> bool {
    match field {
        Value::Null => NULL_TIMES.contains(&name),
        // Required lists: an empty one is an error to report, not to hide.
        Value::Array(items) => {
            !items.is_empty() || matches!(name, "containers" | "nodeSelectorTerms" | "values")
        }
        Value::Object(map) => !map.is_empty() || !PLAIN_MAPS.contains(&name),
        Value::String(s) => !(in_pod && s.is_empty() && OMITTED_WHEN_ZERO.contains(&name)),
        Value::Bool(b) => !(in_pod && !b && OMITTED_WHEN_ZERO.contains(&name)),
        Value::Number(n) => !(in_pod && n.as_i64() == Some(0) && OMITTED_WHEN_ZERO.contains(&name)),
    }
}

/// Whether two values mean the same: equal, or both unset.
pub(crate) fn same(a: &Value, b: &Value, name: &str) -> bool {
    let unset = |v: Option<&Value>| match v {
        None => true,
        Some(Value::Array(items)) => items.is_empty(),
        Some(Value::Object(map)) => map.is_empty() && PLAIN_MAPS.contains(&name),
        Some(_) => false,
    };
    let (a, b) = (a.field(name), b.field(name));
    a == b || (unset(a) && unset(b))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_pod_spec_loses_what_go_would_not_print() {
        let mut spec = json!({
            "hostNetwork": false,
            "nodeName": "",
            "nodeSelector": {},
            "affinity": {"nodeAffinity": {}},
            "containers": [{
                "name": "",
                "env": [{"name": "A", "value": ""}],
                "args": [],
                "resources": {"limits": {"cpu": 1, "memory": "1024Mi"}},
                "livenessProbe": null,
            }],
            "volumes": [{"name": "v", "emptyDir": {"sizeLimit": "1000m"}}],
            "topologySpreadConstraints": [{"labelSelector": {"matchLabels": {"value": ""}}}],
        });
        pod_spec(&mut spec);
        assert_eq!(
            spec,
            json!({
                "affinity": {"nodeAffinity": {}},
                "containers": [{
                    "name": "",
                    "env": [{"name": "A"}],
                    "resources": {"limits": {"cpu": "1", "memory": "1Gi"}},
                }],
                "volumes": [{"name": "v", "emptyDir": {"sizeLimit": "1"}}],
                "topologySpreadConstraints": [{"labelSelector": {"matchLabels": {"value": ""}}}],
            })
        );
    }

    #[test]
    fn managed_fields_keep_their_empty_objects() {
        let mut o = json!({
            "metadata": {"labels": {}, "managedFields": [{"fieldsV1": {"f:metadata": {"f:labels": {}}}}]},
            "status": {"conditions": [{"type": "Ready", "lastHeartbeatTime": null, "reason": null}]},
        });
        object(&mut o);
        assert_eq!(
            o,
            json!({
                "metadata": {"managedFields": [{"fieldsV1": {"f:metadata": {"f:labels": {}}}}]},
                "status": {"conditions": [{"type": "Ready", "lastHeartbeatTime": null}]},
            })
        );
    }
}
