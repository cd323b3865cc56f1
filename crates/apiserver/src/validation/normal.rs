//! The normal form of objects: what a round trip through Kubernetes' Go types makes of them.
//!
//! Objects are brought into that form before they are compared or stored, so that `hostNetwork: false` equals its
//! absence and `cpu: 1000m` equals `cpu: "1"`. What is written and what is left out follows from the types
//! ([`crate::schema`]); lists of resources are rounded up to thousandths besides, as defaulting does.

use crate::schema::Schemas;
use serde_json::Value;

/// Group, version and kind of an object.
pub(crate) type Type = (&'static str, &'static str, &'static str);

/// Brings an object of a type into its normal form.
pub(crate) fn normalize(object: &mut Value, (group, version, kind): Type) {
    let schemas = Schemas::get();
    schemas.normalize(group, version, kind, object);
    schemas.fill_defaults(group, version, kind, object);
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_pod_loses_what_go_would_not_print_and_gains_what_it_would() {
        let mut pod = json!({
            "metadata": {"name": "p", "labels": {}},
            "spec": {
                "hostNetwork": false,
                "nodeName": "",
                "nodeSelector": {},
                "affinity": {"nodeAffinity": {}},
                "containers": [{
                    "name": "c",
                    "env": [{"name": "A", "value": ""}],
                    "args": [],
                    "resources": {"limits": {"cpu": 1, "memory": "1024Mi", "x.io/y": "100u"}},
                    "livenessProbe": null,
                }],
                "volumes": [{"name": "v", "emptyDir": {"sizeLimit": "1000m"}}],
            },
        });
        normalize(&mut pod, ("", "v1", "Pod"));
        assert_eq!(
            pod["spec"],
            json!({
                "affinity": {"nodeAffinity": {}},
                "containers": [{
                    "name": "c",
                    "env": [{"name": "A"}],
                    "resources": {"limits": {"cpu": "1", "memory": "1Gi", "x.io/y": "1m"}},
                }],
                "volumes": [{"name": "v", "emptyDir": {"sizeLimit": "1"}}],
            })
        );
        assert_eq!(pod["metadata"], json!({"name": "p"}));
        assert_eq!(pod["status"], json!({}));
    }
}
