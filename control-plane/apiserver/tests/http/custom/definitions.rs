//! Definitions: rejections, paths in messages, and protobuf.

use super::*;

#[tokio::test]
async fn definitions_are_validated() {
    let cluster = Cluster::start().await;
    let changed = |pointer: &str, value: Value| {
        let mut definition = definition();
        match definition.pointer_mut(pointer) {
            Some(slot) => *slot = value,
            None => panic!("{pointer}"),
        }
        definition
    };
    let schema = "/spec/versions/1/schema/openAPIV3Schema";
    let size = format!("{schema}/properties/spec/properties/size");
    let at_size = "spec.versions[1].schema.openAPIV3Schema.properties[spec].properties[size]";
    let cases = [
        (changed("/metadata/name", json!("x.example.com")), "metadata.name: Invalid value: \"x.example.com\": must be spec.names.plural+\".\"+spec.group".to_owned()),
        (changed("/spec/scope", json!("Galaxy")), "spec.scope: Unsupported value: \"Galaxy\": supported values: \"Cluster\", \"Namespaced\"".to_owned()),
        (changed(schema, json!({"type": "string"})), "[spec.versions[1].schema.openAPIV3Schema.type: Invalid value: \"string\": only \"object\" is allowed as the type at the root of the schema if the status subresource is enabled, spec.versions[1].schema.openAPIV3Schema.type: Invalid value: \"string\": must be object at the root]".to_owned()),
        (changed(&size, json!({})), format!("{at_size}.type: Required value: must not be empty for specified object fields")),
        (changed(&size, json!({"type": "array"})), format!("{at_size}.items: Required value: must be specified")),
        (changed(&size, json!({"type": "integer", "x-kubernetes-validations": [{"rule": "self > x"}]})), format!("{at_size}.x-kubernetes-validations[0].rule: Invalid value: ")),
        (changed("/spec/names/kind", json!("W_")), "may have mixed case, but should otherwise match".to_owned()),
    ];
    for (definition, expect) in cases {
        let reply = cluster.post(DEFINITIONS, &definition).await;
        assert_eq!(reply.status, 422, "{expect}");
        assert!(
            message(&reply).contains(&expect),
            "{}\nhas not {expect}",
            message(&reply)
        );
    }
    cluster.define(&definition()).await;
    let path = format!("{DEFINITIONS}/widgets.example.com");
    let reply = cluster
        .merge(&path, &json!({"spec": {"scope": "Cluster"}}))
        .await;
    assert!(
        message(&reply).contains("spec.scope: Invalid value: \"Cluster\": field is immutable"),
        "{}",
        reply.text()
    );
}

/// Paths of definitions are accepted and refused as by kube-apiserver.
#[tokio::test]
async fn paths_of_definitions_are_checked_as_by_kube_apiserver() {
    let cluster = Cluster::start().await;
    let path = format!("{DEFINITIONS}?dryRun=All");
    let column = |path: &str| {
        (
            "additionalPrinterColumns",
            json!([{"name": "C", "type": "string", "jsonPath": path}]),
        )
    };
    let selectable = |path: &str| ("selectableFields", json!([{"jsonPath": path}]));
    let scale = |path: &str| {
        let scale = json!({"specReplicasPath": path, "statusReplicasPath": ".status.n"});
        ("subresources", json!({ "scale": scale }))
    };
    const COLUMN: &str = "additionalPrinterColumns[0].JSONPath: Invalid value: ";
    const SELECTABLE: &str = "selectableFields[0].jsonPath: Invalid value: ";
    const SCALE: &str = "subresources.scale.specReplicasPath: Invalid value: ";
    for ((field, stated), at, fault) in [
        (column(".status.conditions[-1:].type"), "", ""),
        (column(".spec.list[0:2]"), "", ""),
        (column(".spec.list[0,1]"), "", ""),
        (column(".spec..a"), "", ""),
        (column(".spec.list[?(@.x>1)]"), "", ""),
        (column(".spec.list["), "", ""),
        (
            column("{.spec.a}"),
            COLUMN,
            "must be a simple json path starting with .",
        ),
        (
            column("spec.a"),
            COLUMN,
            "must be a simple json path starting with .",
        ),
        (selectable(".spec.color"), "", ""),
        (
            selectable(".spec['color']"),
            SELECTABLE,
            "is an invalid path: array notation is not allowed",
        ),
        (
            selectable("spec.color"),
            SELECTABLE,
            "is an invalid path: expected [ or . but got: spec",
        ),
        (
            selectable(".spec.none"),
            SELECTABLE,
            "is an invalid path: does not refer to a valid field",
        ),
        (scale(".spec.size"), "", ""),
        (scale(".spec.a[0]"), "", ""),
        (
            scale("spec.size"),
            SCALE,
            "must be a simple json path starting with .",
        ),
        (
            scale(".status.size"),
            SCALE,
            "should be a json path under .spec",
        ),
    ] {
        let mut definition = definition();
        definition["spec"]["versions"][1][field] = stated.clone();
        let reply = cluster.post(&path, &definition).await;
        let expect = if fault.is_empty() { 201 } else { 422 };
        assert_eq!(reply.status, expect, "{stated}: {}", reply.text());
        if !fault.is_empty() {
            let message = message(&reply);
            assert!(
                message.contains(at) && message.contains(fault),
                "{stated}: {message}"
            );
        }
    }
    // A fault that all versions share is reported once, for the whole definition.
    let mut definition = definition();
    for version in [0, 1] {
        definition["spec"]["versions"][version]["selectableFields"] =
            json!([{"jsonPath": ".spec.none"}]);
    }
    let reply = cluster.post(&path, &definition).await;
    let message = message(&reply);
    assert_eq!(
        message.matches("is an invalid path").count(),
        1,
        "{message}"
    );
    assert!(
        message.contains(&format!(" spec.{SELECTABLE}")),
        "{message}"
    );
}

#[tokio::test]
async fn definitions_are_answered_in_protobuf() {
    let cluster = Cluster::start().await;
    cluster.define(&definition()).await;
    let ask = Ask {
        path: format!("{DEFINITIONS}/widgets.example.com"),
        accept: "application/vnd.kubernetes.protobuf".to_owned(),
        ..Ask::default()
    };
    let reply = cluster.ask(ask).await;
    assert_eq!(
        reply.header("content-type"),
        "application/vnd.kubernetes.protobuf"
    );
    let shown: Value = berth_protobuf::envelope::Envelope::open(&reply.body)
        .and_then(|body| body.decode())
        .expect("protobuf");
    let path = format!("{DEFINITIONS}/widgets.example.com");
    let json = cluster.get(&path).await.json();
    assert_eq!(at(&shown, "/spec"), at(&json, "/spec"));
    // The same bytes are a body.
    let mut other = shown;
    other["spec"]["names"] = json!({"plural": "gadgets", "kind": "Gadget"});
    other["metadata"] = json!({"name": "gadgets.example.com"});
    let body = berth_protobuf::encode_body(&other).expect("it has a message");
    let created = cluster
        .ask(Ask {
            method: "POST".to_owned(),
            path: DEFINITIONS.to_owned(),
            content_type: "application/vnd.kubernetes.protobuf".to_owned(),
            body,
            ..Ask::default()
        })
        .await;
    assert_eq!(created.status, 201, "{}", created.text());
    let schema = "/spec/versions/1/schema";
    assert_eq!(at(&created.json(), schema), at(&json, schema));
}
