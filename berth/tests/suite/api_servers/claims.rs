//! Claims whose drivers have configuration: the API server compares it byte by byte.

use super::{create_pod, ready, scheduler};
use crate::e2e::server::on_each;
use berth_client::content::JSON;
use berth_client::request::{self, ApiRequest, Body, Resource};
use serde_json::json;

const fn devices(plural: &'static str) -> Resource {
    Resource {
        group: "resource.k8s.io",
        version: "v1",
        plural,
    }
}

/// Forms that an API server changes when it computes a patch, and forms that it keeps.
const PARAMETERS: [&str; 6] = [
    r#"{"kind":"ChannelConfig","apiVersion":"example.com/v1"}"#,
    r#"{"a":1.0}"#,
    r#"{"a":"x<y"}"#,
    r#"{"a": 1}"#,
    r#"{"a":1}"#,
    r#"{"apiVersion":"example.com/v1","kind":"ChannelConfig"}"#,
];

/// PL-179: pods are bound for all forms of the parameters of their claims and classes; a second pod shares the claim.
#[test]
fn pods_whose_claims_have_driver_parameters_are_bound() {
    on_each("driver-parameters", |server| {
        server.create_nodes(1, 110);
        let api = &server.api;
        let driver = "gpu.example.com";
        let devices_of_node: Vec<_> = (0..PARAMETERS.len())
            .map(|i| json!({"name": format!("d{i}")}))
            .collect();
        let slice = json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "n1"},
            "spec": {
                "driver": driver, "nodeName": "n1", "devices": devices_of_node,
                "pool": {"name": "n1", "generation": 1, "resourceSliceCount": 1},
            },
        });
        api.send(&request::create(devices("resourceslices"), "", &slice));
        let post = |resource: Resource, namespace: &str, json: String| {
            api.send(&ApiRequest {
                body: Body::Bytes(json.into()),
                content_type: JSON,
                ..request::create(resource, namespace, &json!({}))
            });
        };
        let selectors = format!(r#"[{{"cel":{{"expression":"device.driver == \"{driver}\""}}}}]"#);
        let config = |parameters: &str| {
            format!(r#"[{{"opaque":{{"driver":"{driver}","parameters":{parameters}}}}}]"#)
        };
        let scheduler = scheduler(&server.kubeconfig(), &["--leader-elect=false"]);
        ready(&scheduler);
        for (i, parameters) in PARAMETERS.into_iter().enumerate() {
            let name = format!("c{i}");
            let class = format!(
                r#"{{"metadata":{{"name":"{name}"}},"spec":{{"selectors":{selectors},"config":{}}}}}"#,
                config(parameters)
            );
            post(devices("deviceclasses"), "", class);
            let requests = format!(r#"[{{"name":"r0","exactly":{{"deviceClassName":"{name}"}}}}]"#);
            let claim = format!(
                r#"{{"metadata":{{"name":"{name}"}},"spec":{{"devices":{{"requests":{requests},"config":{}}}}}}}"#,
                config(parameters)
            );
            post(devices("resourceclaims"), "default", claim);
            let uses = json!({"resourceClaims": [{"name": "k", "resourceClaimName": name}]});
            for pod in ["first", "second"] {
                let pod = format!("{pod}-{i}");
                create_pod(api, &pod, "1m", &uses);
                api.bound(&pod);
            }
            let stored = request::get(devices("resourceclaims"), "default", &name);
            let stored = api.send(&stored);
            let expected: serde_json::Value = serde_json::from_str(parameters).expect("JSON");
            let of_spec = &stored["spec"]["devices"]["config"];
            let of_status = &stored["status"]["allocation"]["devices"]["config"];
            for (config, entries) in [(of_spec, 1), (of_status, 2)] {
                let config = config.as_array().expect("a list");
                assert_eq!(config.len(), entries, "{stored}");
                for entry in config {
                    assert_eq!(entry["opaque"]["parameters"], expected, "{stored}");
                }
            }
        }
        drop(scheduler);
    });
}
