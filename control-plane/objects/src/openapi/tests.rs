//! The elements that clients look up in the documents.

use super::*;
use crate::catalog::built_in;

fn document(path: &str) -> Value {
    let document = super::document(built_in(), path).expect(path);
    serde_json::from_slice(&document.body).expect("JSON")
}

#[test]
fn the_index_names_every_group_version_with_its_hash() {
    let index = index(built_in());
    let paths = index["paths"].as_object().expect("paths");
    assert_eq!(paths.len(), built_in().group_versions().len());
    for (path, entry) in paths {
        let hash = super::document(built_in(), path).expect(path).hash;
        assert_eq!(
            entry["serverRelativeURL"],
            json!(format!("/openapi/v3/{path}?hash={hash}"))
        );
    }
    assert!(super::document(built_in(), "apis/nope/v1").is_none());
}

#[test]
fn every_reference_leads_somewhere() {
    for path in ["api/v1", "apis/apps/v1", "apis/resource.k8s.io/v1"] {
        let document = document(path);
        let mut references = Vec::new();
        collect_references(&document, &mut references);
        assert!(!references.is_empty());
        for reference in references {
            let pointer = reference.strip_prefix('#').expect("a local reference");
            assert!(document.pointer(pointer).is_some(), "{path}: {reference}");
        }
    }
}

/// `kubectl explain` prints `<empty>` for types and fields without a description.
#[test]
fn kinds_and_fields_are_described() {
    for (group, version) in built_in().group_versions() {
        let path = group_version_path(group, version);
        let document = document(&path);
        let schemas = document["components"]["schemas"]
            .as_object()
            .expect("schemas");
        for (name, schema) in schemas {
            let is_served = schema["x-kubernetes-group-version-kind"].is_array();
            let is_list = schema["required"] == json!(["items"]);
            let is_of_machinery = name.contains("apimachinery");
            if is_served && !is_list && !is_of_machinery {
                assert!(schema["description"].is_string(), "{path}: {name}");
            }
            let fields = schema["properties"].as_object().into_iter().flatten();
            for (field, schema) in fields.filter(|_| !is_list) {
                assert!(schema["description"].is_string(), "{path}: {name}.{field}");
            }
        }
    }
    let pod = document("api/v1");
    let gates = &pod["components"]["schemas"]["io.k8s.api.core.v1.PodSpec"]["properties"]["schedulingGates"];
    let described = gates["description"].as_str().unwrap_or_default();
    assert!(described.contains("Names are unique."), "{gates}");
}

fn collect_references<'a>(value: &'a Value, references: &mut Vec<&'a str>) {
    match value {
        Value::Object(object) => {
            if let Some(Value::String(reference)) = object.get("$ref") {
                assert_eq!(object.len(), 1, "nothing may stand beside {reference}");
                references.push(reference);
            }
            for value in object.values() {
                collect_references(value, references);
            }
        }
        Value::Array(list) => {
            for value in list {
                collect_references(value, references);
            }
        }
        _ => {}
    }
}

#[test]
fn schemas_carry_what_patches_need() {
    let document = document("api/v1");
    let schemas = &document["components"]["schemas"];
    let property = |type_name: &str, field: &str| {
        schemas[format!("io.k8s.api.core.v1.{type_name}")]["properties"][field].clone()
    };
    let extension = |property: &Value, name: &str| property[format!("x-kubernetes-{name}")].clone();

    let containers = property("PodSpec", "containers");
    assert_eq!(extension(&containers, "patch-merge-key"), "name");
    assert_eq!(extension(&containers, "patch-strategy"), "merge");
    assert_eq!(extension(&containers, "list-type"), "map");
    assert_eq!(extension(&containers, "list-map-keys"), json!(["name"]));
    assert_eq!(
        containers["items"],
        json!({"allOf": [{"$ref": "#/components/schemas/io.k8s.api.core.v1.Container"}]})
    );
    let volumes = property("PodSpec", "volumes");
    assert_eq!(extension(&volumes, "patch-strategy"), "merge,retainKeys");
    let ports = property("ServiceSpec", "ports");
    assert_eq!(extension(&ports, "patch-merge-key"), "port");
    assert_eq!(
        extension(&ports, "list-map-keys"),
        json!(["port", "protocol"])
    );
    assert_eq!(property("ServicePort", "protocol")["default"], "TCP");
    let tolerations = property("PodSpec", "tolerations");
    assert_eq!(extension(&tolerations, "list-type"), "atomic");
    assert_eq!(extension(&tolerations, "patch-merge-key"), Value::Null);
    assert_eq!(
        extension(&property("ServiceSpec", "selector"), "map-type"),
        "atomic"
    );
    let selector = &schemas["io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelector"];
    assert_eq!(extension(selector, "map-type"), "atomic");
    let finalizers =
        &schemas["io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"]["properties"]["finalizers"];
    assert_eq!(extension(finalizers, "list-type"), "set");
    assert_eq!(extension(finalizers, "patch-strategy"), "merge");
}

#[test]
fn schemas_are_published_in_kubernetes_form() {
    let document = document("api/v1");
    let schemas = &document["components"]["schemas"];
    assert_eq!(
        schemas["io.k8s.api.core.v1.Pod"]["x-kubernetes-group-version-kind"],
        json!([{"group": "", "version": "v1", "kind": "Pod"}])
    );
    assert_eq!(
        schemas["io.k8s.apimachinery.pkg.api.resource.Quantity"]["oneOf"],
        json!([{"type": "string"}, {"type": "number"}])
    );
    let int_or_string = &schemas["io.k8s.apimachinery.pkg.util.intstr.IntOrString"];
    assert_eq!(int_or_string["format"], "int-or-string");
    assert_eq!(
        schemas["io.k8s.apimachinery.pkg.apis.meta.v1.Time"]["format"],
        "date-time"
    );
    let pod = &schemas["io.k8s.api.core.v1.Pod"];
    assert_eq!(pod["required"], Value::Null, "metadata is not asked for");
    assert_eq!(
        schemas["io.k8s.api.core.v1.PodSpec"]["required"],
        json!(["containers"])
    );
    assert_eq!(
        schemas["io.k8s.api.core.v1.PodList"]["properties"]["items"]["items"]["allOf"][0]["$ref"],
        "#/components/schemas/io.k8s.api.core.v1.Pod"
    );
}

#[test]
fn paths_state_what_the_server_supports() {
    let core = document("api/v1");
    let patch = &core["paths"]["/api/v1/namespaces/{namespace}/pods/{name}"]["patch"];
    assert_eq!(
        patch["x-kubernetes-group-version-kind"],
        json!({"group": "", "version": "v1", "kind": "Pod"})
    );
    assert_eq!(patch["x-kubernetes-action"], "patch");
    assert_eq!(patch["operationId"], "patchCoreV1NamespacedPod");
    let parameters: Vec<&str> = patch["parameters"]
        .as_array()
        .expect("parameters")
        .iter()
        .filter_map(|p| p["name"].as_str())
        .collect();
    assert_eq!(
        parameters,
        ["dryRun", "fieldManager", "fieldValidation", "force"]
    );
    assert!(patch["requestBody"]["content"]["application/strategic-merge-patch+json"].is_object());

    let methods = |path: &str| -> Vec<String> {
        core["paths"][path]
            .as_object()
            .expect(path)
            .keys()
            .cloned()
            .collect()
    };
    assert_eq!(
        methods("/api/v1/namespaces/{namespace}/pods/{name}/binding"),
        ["parameters", "post"]
    );
    assert_eq!(methods("/api/v1/nodes"), ["delete", "get", "post"]);

    let apps = document("apis/apps/v1");
    let scale = &apps["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}/scale"];
    assert_eq!(
        scale["get"]["x-kubernetes-group-version-kind"],
        json!({"group": "autoscaling", "version": "v1", "kind": "Scale"})
    );
}

#[test]
fn version_2_states_the_same_and_is_encoded_for_kubectl() {
    let json = super::document_v2(built_in(), false);
    let document: Value = serde_json::from_slice(&json.body).expect("JSON");
    let definitions = &document["definitions"];
    assert_eq!(
        definitions["io.k8s.api.core.v1.Pod"]["properties"]["spec"]["$ref"],
        "#/definitions/io.k8s.api.core.v1.PodSpec"
    );
    assert_eq!(
        definitions["io.k8s.apimachinery.pkg.api.resource.Quantity"],
        json!({"type": "string"})
    );
    let patch = &document["paths"]["/api/v1/nodes/{name}"]["patch"];
    assert!(
        patch["consumes"]
            .to_string()
            .contains("strategic-merge-patch")
    );
    assert_eq!(
        patch["responses"]["200"]["schema"]["$ref"],
        "#/definitions/io.k8s.api.core.v1.Node"
    );
    let bytes = super::document_v2(built_in(), true).body;
    // Document.swagger (1) is the first field.
    assert_eq!(bytes.get(..5), Some(&b"\x0a\x032.0"[..]));
}

/// A property may have the name of a keyword of schemas.
#[test]
fn every_property_of_version_2_is_a_schema() {
    let json = super::document_v2(built_in(), false);
    let document: Value = serde_json::from_slice(&json.body).expect("JSON");
    let definitions = document["definitions"].as_object().expect("definitions");
    for (name, definition) in definitions {
        for (property, schema) in definition["properties"].as_object().into_iter().flatten() {
            assert!(schema.is_object(), "{name}: {property}: {schema}");
        }
    }
    let (_, schemas) = definitions
        .iter()
        .find(|(name, _)| name.ends_with(".apiextensions.v1.JSONSchemaProps"))
        .expect("the schemas of custom resources");
    for property in ["allOf", "anyOf", "oneOf", "not", "nullable", "type"] {
        assert!(schemas["properties"][property].is_object(), "{property}");
    }
}

#[test]
fn values_that_version_2_cannot_describe_have_any_type() {
    let convert = |schema: Value| {
        let definitions = json!({"A": schema});
        let document = json!({"components": {"schemas": definitions}, "paths": {}, "info": {}});
        v2::convert(document)["definitions"]["A"].clone()
    };
    let kind = json!([{"group": "g", "version": "v1", "kind": "A"}]);
    let open = json!({
        "type": "object", "x-kubernetes-preserve-unknown-fields": true, "description": "d",
        "properties": {"a": {"type": "string"}}, "x-kubernetes-group-version-kind": kind,
    });
    let expect = json!({"type": "object", "x-kubernetes-group-version-kind": kind});
    assert_eq!(convert(open), expect);
    let below = json!({"type": "object", "properties": {
        "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {}},
        "null": {"type": "array", "nullable": true, "items": {"type": "string"}},
    }});
    let expect = json!({"type": "object", "properties": {
        "any": {"x-kubernetes-preserve-unknown-fields": true}, "null": {},
    }});
    assert_eq!(convert(below), expect);
}
