//! The changes that an update may not make.

use super::kinds::{created, with};
use super::*;

/// A kind, an object, and changes of it with the error that each leads to; none when it is empty.
type Steps = (
    GroupResource,
    Value,
    &'static [(&'static str, &'static str, &'static str)],
);

fn cases() -> Vec<Steps> {
    let volume = json!({"metadata": {"name": "v"}, "spec": {
        "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "volumeMode": "Filesystem",
        "csi": {"driver": "a.example.com", "volumeHandle": "h"}}});
    let claim = json!({"metadata": {"name": "c"}, "spec": {
        "accessModes": ["ReadWriteOnce"], "storageClassName": "a",
        "resources": {"requests": {"storage": "1Gi"}}}});
    vec![
        (
            gr("storage.k8s.io", "storageclasses"),
            json!({"metadata": {"name": "s"}, "provisioner": "a.example.com", "parameters": {"a": "b"}}),
            &[
                (
                    "/provisioner",
                    r#""b.example.com""#,
                    "provisioner: field is immutable",
                ),
                (
                    "/parameters",
                    r#"{"a": "c"}"#,
                    "parameters: field is immutable",
                ),
                (
                    "/reclaimPolicy",
                    r#""Retain""#,
                    "reclaimPolicy: field is immutable",
                ),
                (
                    "/volumeBindingMode",
                    r#""WaitForFirstConsumer""#,
                    "volumeBindingMode: field is immutable",
                ),
                ("/allowVolumeExpansion", "true", ""),
            ],
        ),
        (
            gr("storage.k8s.io", "volumeattributesclasses"),
            json!({"metadata": {"name": "s"}, "driverName": "a.example.com", "parameters": {"a": "b"}}),
            &[
                (
                    "/driverName",
                    r#""b.example.com""#,
                    "driverName: updates to driverName are forbidden.",
                ),
                (
                    "/parameters",
                    r#"{"a": "c"}"#,
                    "parameters: updates to parameters are forbidden.",
                ),
            ],
        ),
        (
            gr("storage.k8s.io", "csidrivers"),
            json!({"metadata": {"name": "a.example.com"}, "spec": {}}),
            &[
                (
                    "/spec/attachRequired",
                    "false",
                    "spec.attachedRequired: field is immutable",
                ),
                (
                    "/spec/volumeLifecycleModes",
                    r#"["Ephemeral"]"#,
                    "spec.volumeLifecycleModes: field is immutable",
                ),
                ("/spec/storageCapacity", "true", ""),
            ],
        ),
        (
            gr("storage.k8s.io", "csinodes"),
            json!({"metadata": {"name": "n"}, "spec": {"drivers": [{"name": "a.example.com", "nodeID": "n"}]}}),
            &[
                (
                    "/spec/drivers/0/nodeID",
                    r#""m""#,
                    "spec.drivers: field is immutable",
                ),
                ("/spec/drivers/0/allocatable", r#"{"count": 5}"#, ""),
            ],
        ),
        (
            gr("storage.k8s.io", "volumeattachments"),
            json!({"metadata": {"name": "a"}, "spec": {"attacher": "a.example.com", "nodeName": "n",
                "source": {"persistentVolumeName": "v"}}}),
            &[("/spec/nodeName", r#""m""#, "spec: field is immutable")],
        ),
        (
            gr("storage.k8s.io", "csistoragecapacities"),
            json!({"metadata": {"name": "a"}, "storageClassName": "a", "capacity": "1Gi"}),
            &[
                (
                    "/storageClassName",
                    r#""b""#,
                    "storageClassName: field is immutable",
                ),
                (
                    "/nodeTopology",
                    r#"{"matchLabels": {"a": "b"}}"#,
                    "nodeTopology: field is immutable",
                ),
                ("/capacity", r#""2Gi""#, ""),
            ],
        ),
        (
            gr("", "persistentvolumes"),
            volume,
            &[
                (
                    "/spec/volumeMode",
                    r#""Block""#,
                    "volumeMode: field is immutable",
                ),
                (
                    "/spec/csi/volumeHandle",
                    r#""i""#,
                    "spec.persistentvolumesource: spec.persistentvolumesource is immutable after creation",
                ),
                (
                    "/spec/csi/controllerExpandSecretRef",
                    r#"{"name": "s", "namespace": "n"}"#,
                    "",
                ),
                ("/spec/persistentVolumeReclaimPolicy", r#""Delete""#, ""),
            ],
        ),
        (
            gr("", "persistentvolumeclaims"),
            claim,
            &[
                ("/spec/volumeName", r#""v""#, ""),
                (
                    "/spec/volumeAttributesClassName",
                    r#""a""#,
                    "spec: spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims",
                ),
                (
                    "/spec/resources/requests/storage",
                    r#""2Gi""#,
                    "spec: spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims",
                ),
                (
                    "/spec/storageClassName",
                    r#""b""#,
                    "spec: spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims",
                ),
            ],
        ),
        (
            gr("networking.k8s.io", "ingressclasses"),
            json!({"metadata": {"name": "i"}, "spec": {"controller": "example.com/a"}}),
            &[(
                "/spec/controller",
                r#""example.com/b""#,
                "spec.controller: field is immutable",
            )],
        ),
        (
            gr("discovery.k8s.io", "endpointslices"),
            json!({"metadata": {"name": "e"}, "addressType": "IPv4", "endpoints": []}),
            &[(
                "/addressType",
                r#""IPv6""#,
                "addressType: field is immutable",
            )],
        ),
        (
            gr("resource.k8s.io", "resourceclaims"),
            json!({"metadata": {"name": "c"}, "spec": {"devices": {"requests": [
                {"name": "r", "exactly": {"deviceClassName": "gpu"}}]}}}),
            &[(
                "/spec/devices/requests/0/name",
                r#""S!""#,
                "spec: field is immutable",
            )],
        ),
        (
            gr("", "services"),
            json!({"metadata": {"name": "s", "uid": "u"}, "spec": {"ports": [{"port": 80}]}}),
            &[
                (
                    "/spec/clusterIP",
                    r#""10.96.9.9""#,
                    "spec.clusterIPs[0]: may not change once set",
                ),
                (
                    "/spec/ipFamilies",
                    r#"["IPv6"]"#,
                    "spec.clusterIPs[0]: expected an IPv6 value as indicated by `ipFamilies[0]`",
                ),
                ("/spec/sessionAffinity", r#""ClientIP""#, ""),
            ],
        ),
    ]
}

#[test]
fn what_may_not_change_is_reported_as_by_kubernetes() {
    for (kind, object, steps) in cases() {
        let rules = strategy(kind);
        let old = created(kind, object);
        assert_eq!(rules.validate(&old), [], "{kind:?}");
        for (pointer, value, expect) in steps {
            let value = serde_json::from_str(value).expect("JSON");
            let mut new = with(&old, pointer, value);
            rules.default(&mut new);
            rules.prepare_for_update(&mut new, &old, Subresource::Main, "");
            let errors = rules.validate_update(&new, &old, Subresource::Main);
            let errors: Vec<String> = errors
                .into_iter()
                // The other lines are the differences, which have their own test.
                .map(|e| {
                    format!(
                        "{}: {}",
                        e.field,
                        e.detail.lines().next().unwrap_or_default()
                    )
                })
                .collect();
            let expect: Vec<&str> = [*expect].into_iter().filter(|e| !e.is_empty()).collect();
            assert_eq!(errors, expect, "{kind:?} {pointer}");
        }
    }
}

#[test]
fn a_service_becomes_external_and_comes_back() {
    let services = gr("", "services");
    let rules = strategy(services);
    let turn = |old: &Value, spec: Value| {
        let mut new = old.clone();
        for (field, value) in spec.as_object().into_iter().flatten() {
            new["spec"][field] = value.clone();
        }
        rules.default(&mut new);
        rules.prepare_for_update(&mut new, old, Subresource::Main, "");
        let errors = rules.validate_update(&new, old, Subresource::Main);
        assert_eq!(errors, [], "{new}");
        new
    };
    for spec in [
        json!({"type": "ClusterIP", "ports": [{"port": 80}]}),
        json!({"type": "NodePort", "ports": [{"port": 80}]}),
        json!({"type": "LoadBalancer", "ports": [{"port": 80}], "externalTrafficPolicy": "Local",
            "loadBalancerClass": "example.com/a"}),
    ] {
        let mut old = created(
            services,
            json!({"metadata": {"name": "s", "uid": "u"}, "spec": spec}),
        );
        assert_eq!(rules.validate(&old), [], "{old}");
        old["status"]["loadBalancer"] = json!({"ingress": [{"hostname": "a.example.com"}]});
        let external = turn(
            &old,
            json!({"type": "ExternalName", "externalName": "example.com"}),
        );
        for field in [
            "clusterIP",
            "clusterIPs",
            "ipFamilies",
            "ipFamilyPolicy",
            "externalTrafficPolicy",
            "healthCheckNodePort",
            "allocateLoadBalancerNodePorts",
            "loadBalancerClass",
        ] {
            assert_eq!(external["spec"].get(field), None, "{field}: {external}");
        }
        assert_eq!(external["spec"]["ports"][0].get("nodePort"), None);
        assert_eq!(external["status"]["loadBalancer"], json!({}));
        let back = turn(&external, json!({"type": "ClusterIP"}));
        assert!(back["spec"]["clusterIP"].is_string(), "{back}");
    }
}
