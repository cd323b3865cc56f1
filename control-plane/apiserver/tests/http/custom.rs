//! CustomResourceDefinitions and their objects. The texts equal kube-apiserver 1.36's.

mod definitions;

use super::*;
use berth_apiserver::storage::HistoryLimits;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";

/// A definition of widgets with a status and a scale, in two versions.
fn definition() -> Value {
    let schema = json!({
        "type": "object",
        "required": ["spec"],
        "properties": {
            "spec": {
                "type": "object",
                "required": ["size"],
                "properties": {
                    "size": {"type": "integer", "minimum": 1, "maximum": 10},
                    "color": {"type": "string", "enum": ["red", "blue"], "default": "red"},
                    "code": {"type": "string", "pattern": "^[a-z]+$", "maxLength": 5},
                    "port": {"x-kubernetes-int-or-string": true},
                    "note": {"type": "string", "nullable": true},
                    "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                    "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                    "replicas": {"type": "integer", "default": 1},
                    "parts": {
                        "type": "array",
                        "x-kubernetes-list-type": "map",
                        "x-kubernetes-list-map-keys": ["name"],
                        "items": {
                            "type": "object",
                            "required": ["name"],
                            "properties": {"name": {"type": "string"}, "count": {"type": "integer", "default": 7}},
                        },
                    },
                    "tags": {"type": "array", "x-kubernetes-list-type": "set", "maxItems": 2, "items": {"type": "string"}},
                },
            },
            "status": {
                "type": "object",
                "properties": {
                    "replicas": {"type": "integer"}, "selector": {"type": "string"},
                    "conditions": {"type": "array", "items": {"type": "object", "properties": {"type": {"type": "string"}, "status": {"type": "string"}}}},
                },
            },
        },
    });
    let version = |name: &str, storage: bool| {
        json!({
            "name": name, "served": true, "storage": storage,
            "schema": {"openAPIV3Schema": schema},
            "subresources": {
                "status": {},
                "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas", "labelSelectorPath": ".status.selector"},
            },
            "additionalPrinterColumns": [
                {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
                {"name": "Ready", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Ready\")].status"},
                {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
            ],
        })
    };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget", "shortNames": ["wd"]},
            "versions": [version("v1beta1", false), version("v1", true)],
        },
    })
}

fn widget(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}, "spec": spec})
}

impl Cluster {
    /// Creates the definition of widgets and waits until they are served.
    async fn define(&self, definition: &Value) {
        self.create(DEFINITIONS, definition).await;
        self.answers(WIDGETS, 200).await;
    }

    /// Waits until a path answers with a code.
    pub(super) async fn answers(&self, path: &str, code: u16) {
        let reached = async {
            while self.get(path).await.status != code {
                tokio::task::yield_now().await;
            }
        };
        assert!(
            timeout(PATIENCE, reached).await.is_ok(),
            "{path}: never {code}"
        );
    }
}

fn message(reply: &Reply) -> String {
    text(&reply.json(), "/message").to_owned()
}

#[tokio::test]
async fn a_definition_is_established_and_its_objects_are_served() {
    let cluster = Cluster::start().await;
    let created = cluster.create(DEFINITIONS, &definition()).await;
    assert_eq!(*at(&created, "/status/storedVersions"), json!(["v1"]));
    assert_eq!(text(&created, "/spec/names/listKind"), "WidgetList");
    assert_eq!(text(&created, "/spec/conversion/strategy"), "None");
    cluster.answers(WIDGETS, 200).await;
    let stored = cluster
        .get(&format!("{DEFINITIONS}/widgets.example.com"))
        .await
        .json();
    let conditions: Vec<(&str, &str, &str)> = at(&stored, "/status/conditions")
        .as_array()
        .into_iter()
        .flatten()
        .map(|c| (text(c, "/type"), text(c, "/status"), text(c, "/reason")))
        .collect();
    assert_eq!(
        conditions,
        [
            ("NamesAccepted", "True", "NoConflicts"),
            ("Established", "True", "InitialNamesAccepted")
        ]
    );
    assert_eq!(text(&stored, "/status/acceptedNames/singular"), "widget");
    let created = cluster
        .create(WIDGETS, &widget("a", json!({"size": 3})))
        .await;
    assert_eq!(
        *at(&created, "/spec"),
        json!({"size": 3, "color": "red", "replicas": 1})
    );
    assert_eq!(*at(&created, "/metadata/generation"), json!(1));
    // The other version shows the same object.
    let other = cluster
        .get("/apis/example.com/v1beta1/namespaces/default/widgets/a")
        .await
        .json();
    assert_eq!(text(&other, "/apiVersion"), "example.com/v1beta1");
    assert_eq!(*at(&other, "/spec/size"), json!(3));
    let group = cluster.get("/apis/example.com").await.json();
    assert_eq!(text(&group, "/preferredVersion/version"), "v1");
    let resources = cluster.get("/apis/example.com/v1").await.json();
    let resources: Vec<&str> = at(&resources, "/resources")
        .as_array()
        .into_iter()
        .flatten()
        .map(|r| text(r, "/name"))
        .collect();
    assert_eq!(resources, ["widgets", "widgets/status", "widgets/scale"]);
    let openapi = cluster.get("/openapi/v3/apis/example.com/v1").await.json();
    let schema = at(&openapi, "/components/schemas/com.example.v1.Widget");
    // The descriptions that `kubectl explain` shows, and the end-to-end tests of Kubernetes look for.
    let described = |pointer: &str| text(schema, pointer).to_owned();
    assert!(described("/properties/apiVersion/description").starts_with("APIVersion defines"));
    assert!(described("/properties/metadata/description").contains("Standard object's metadata"));
    let metadata = "/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
    let metadata = at(&openapi, metadata);
    let created = text(metadata, "/properties/creationTimestamp/description");
    assert!(created.starts_with("CreationTimestamp is a timestamp"));
    assert_eq!(
        text(schema, "/properties/spec/properties/color/default"),
        "red"
    );
    let v2 = cluster.get("/openapi/v2").await.json();
    assert!(v2["definitions"]["com.example.v1beta1.Widget"].is_object());
}

#[tokio::test]
async fn objects_are_pruned_defaulted_and_validated() {
    let cluster = Cluster::start().await;
    cluster.define(&definition()).await;
    let spec = json!({
        "size": 1, "unknown": 1, "note": null, "code": null, "port": "http",
        "free": {"any": {"thing": 1}}, "labels": {"a": "b"}, "parts": [{"name": "x", "odd": true}],
    });
    let path = format!("{WIDGETS}?fieldValidation=Warn");
    let reply = cluster.post(&path, &widget("a", spec.clone())).await;
    assert_eq!(
        at(&reply.json(), "/spec"),
        &json!({
            "size": 1, "note": null, "port": "http", "color": "red", "replicas": 1,
            "free": {"any": {"thing": 1}}, "labels": {"a": "b"}, "parts": [{"name": "x", "count": 7}],
        })
    );
    let warnings: Vec<&str> = reply
        .headers
        .get_all("warning")
        .iter()
        .filter_map(|v| v.to_str().ok())
        .collect();
    assert_eq!(
        warnings,
        [
            "299 - \"unknown field \\\"spec.parts[0].odd\\\"\"",
            "299 - \"unknown field \\\"spec.unknown\\\"\""
        ]
    );
    let mut named = widget("b", spec);
    named["metadata"]["odd"] = 1.into();
    let reply = cluster
        .post(&format!("{WIDGETS}?fieldValidation=Strict"), &named)
        .await;
    assert_eq!(reply.status, 400);
    assert!(message(&reply).contains("strict decoding error: unknown field \"metadata.odd\", unknown field \"spec.parts[0].odd\", unknown field \"spec.unknown\""), "{}", reply.text());
    let cases = [
        (json!({}), "spec.size: Required value"),
        (
            json!({"size": "x"}),
            "spec.size: Invalid value: \"string\": spec.size in body must be of type integer: \"string\"",
        ),
        (
            json!({"size": 0}),
            "spec.size: Invalid value: 0: spec.size in body should be greater than or equal to 1",
        ),
        (
            json!({"size": 11}),
            "spec.size: Invalid value: 11: spec.size in body should be less than or equal to 10",
        ),
        (
            json!({"size": 1, "color": "green"}),
            "spec.color: Unsupported value: \"green\": supported values: \"red\", \"blue\"",
        ),
        (
            json!({"size": 1, "code": "A1"}),
            "spec.code: Invalid value: \"A1\": spec.code in body should match '^[a-z]+$'",
        ),
        (
            json!({"size": 1, "code": "abcdef"}),
            "spec.code: Too long: may not be more than 5 bytes",
        ),
        (
            json!({"size": 1, "port": true}),
            "spec.port: Invalid value: \"boolean\": spec.port in body must be of type integer,string: \"boolean\"",
        ),
        (
            json!({"size": 1, "tags": ["a", "a"]}),
            "spec.tags[1]: Duplicate value: \"a\"",
        ),
        (
            json!({"size": 1, "tags": ["a", "b", "c"]}),
            "spec.tags: Too many: 3: must have at most 2 items",
        ),
        (
            json!({"size": 1, "parts": [{"name": "a"}, {"name": "a"}]}),
            "spec.parts[1]: Duplicate value: {\"name\":\"a\"}",
        ),
        (
            json!({"size": 1, "labels": {"a": 1}}),
            "spec.labels.a: Invalid value: \"integer\": spec.labels.a in body must be of type string: \"integer\"",
        ),
    ];
    for (spec, expect) in cases {
        let reply = cluster.post(WIDGETS, &widget("bad", spec)).await;
        let expect = format!("Widget.example.com \"bad\" is invalid: {expect}");
        assert_eq!((reply.status, message(&reply)), (422, expect));
    }
    let strategic = "application/strategic-merge-patch+json";
    let reply = cluster
        .send_as("PATCH", &format!("{WIDGETS}/a"), strategic, &json!({}))
        .await;
    assert_eq!(reply.status, 415);
}

/// Without a webhook, versions differ in their schemas only: a field that the stored version does not have is lost, and its
/// defaults are in every version that has the field.
#[tokio::test]
async fn objects_have_the_fields_of_the_stored_version() {
    let cluster = Cluster::start().await;
    let mut definition = definition();
    let pointer = "/spec/versions/1/schema/openAPIV3Schema/properties/spec/properties";
    if let Some(fields) = definition
        .pointer_mut(pointer)
        .and_then(Value::as_object_mut)
    {
        fields.remove("note");
        fields["code"]["default"] = "abc".into();
    }
    cluster.define(&definition).await;
    let mut object = widget("a", json!({"size": 1, "note": "x"}));
    object["apiVersion"] = "example.com/v1beta1".into();
    let beta = "/apis/example.com/v1beta1/namespaces/default/widgets";
    let created = cluster.create(beta, &object).await;
    let expect = json!({"size": 1, "color": "red", "replicas": 1, "code": "abc"});
    assert_eq!(*at(&created, "/spec"), expect);
    let read = cluster.get(&format!("{beta}/a")).await.json();
    assert_eq!(*at(&read, "/spec"), expect);
}

#[tokio::test]
async fn status_and_scale_are_written_on_their_own() {
    let cluster = Cluster::start().await;
    cluster.define(&definition()).await;
    let mut object = widget("a", json!({"size": 1}));
    object["status"] = json!({"replicas": 9});
    let created = cluster.create(WIDGETS, &object).await;
    assert_eq!(created.get("status"), None);
    let path = format!("{WIDGETS}/a");
    let status = json!({"status": {"replicas": 2, "selector": "a=b"}, "spec": {"size": 5}});
    let written = cluster
        .merge(&format!("{path}/status"), &status)
        .await
        .json();
    assert_eq!(
        (at(&written, "/spec/size"), at(&written, "/status/replicas")),
        (&json!(1), &json!(2))
    );
    assert_eq!(*at(&written, "/metadata/generation"), json!(1));
    let scaled = cluster
        .merge(&format!("{path}/scale"), &json!({"spec": {"replicas": 4}}))
        .await
        .json();
    assert_eq!(text(&scaled, "/kind"), "Scale");
    assert_eq!(*at(&scaled, "/spec/replicas"), json!(4));
    assert_eq!(
        *at(&scaled, "/status"),
        json!({"replicas": 2, "selector": "a=b"})
    );
    let now = cluster.get(&path).await.json();
    assert_eq!(
        (at(&now, "/spec/replicas"), at(&now, "/metadata/generation")),
        (&json!(4), &json!(2))
    );
    let table = cluster
        .ask(Ask {
            path: WIDGETS.to_owned(),
            accept: "application/json;as=Table;v=v1;g=meta.k8s.io".to_owned(),
            ..Ask::default()
        })
        .await
        .json();
    let columns: Vec<&str> = at(&table, "/columnDefinitions")
        .as_array()
        .into_iter()
        .flatten()
        .map(|c| text(c, "/name"))
        .collect();
    assert_eq!(columns, ["Name", "Size", "Ready", "Age"]);
    assert_eq!(at(&table, "/rows/0/cells/1"), &json!(1));
}

#[tokio::test]
async fn server_side_apply_merges_lists_by_their_keys() {
    let cluster = Cluster::start().await;
    cluster.define(&definition()).await;
    let apply = async |manager: &str, parts: Value| {
        let config = widget("a", json!({"size": 1, "parts": parts}));
        let path = format!("{WIDGETS}/a?fieldManager={manager}");
        cluster
            .send_as("PATCH", &path, "application/apply-patch+yaml", &config)
            .await
    };
    assert_eq!(
        apply("one", json!([{"name": "x", "count": 1}]))
            .await
            .status,
        201
    );
    let merged = apply("two", json!([{"name": "y", "count": 2}]))
        .await
        .json();
    assert_eq!(
        *at(&merged, "/spec/parts"),
        json!([{"name": "x", "count": 1}, {"name": "y", "count": 2}])
    );
    let conflict = apply("two", json!([{"name": "x", "count": 3}])).await;
    assert_eq!(conflict.status, 409, "{}", conflict.text());
    let unknown = apply("two", json!([{"name": "y", "odd": 3}])).await;
    assert!(
        message(&unknown).contains("field not declared in schema"),
        "{}",
        unknown.text()
    );
}

/// Kubernetes' own kinds take finalizers with a domain, and some names; custom resources take any qualified name.
#[tokio::test]
async fn finalizers_of_custom_resources_need_no_domain() {
    let cluster = Cluster::start().await;
    cluster.define(&definition()).await;
    let with = |mut object: Value, finalizer: &str| {
        object["metadata"]["finalizers"] = json!([finalizer]);
        object
    };
    let plain = with(widget("a", json!({"size": 1})), "mine");
    cluster.create(WIDGETS, &plain).await;
    let path = format!("{WIDGETS}/a");
    let patch = json!({"metadata": {"finalizers": ["mine", "yours"]}});
    let patched = cluster.merge(&path, &patch).await;
    assert_eq!(patched.status, 200, "{}", patched.text());
    let invalid = with(widget("b", json!({"size": 1})), "not valid");
    assert_eq!(cluster.post(WIDGETS, &invalid).await.status, 422);
    let maps = "/api/v1/namespaces/default/configmaps";
    let refused = cluster
        .post(maps, &with(config_map("c", json!({})), "mine"))
        .await;
    assert_eq!(
        (refused.status, text(&refused.json(), "/message")),
        (
            422,
            "ConfigMap \"c\" is invalid: metadata.finalizers[0]: Invalid value: \"mine\": name is neither a standard finalizer name nor is it fully qualified"
        )
    );
}

#[tokio::test]
async fn objects_go_with_their_definition() {
    let cluster = Cluster::start().await;
    cluster.define(&definition()).await;
    let mut held = widget("held", json!({"size": 1}));
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    cluster.create(WIDGETS, &held).await;
    cluster
        .create(WIDGETS, &widget("free", json!({"size": 1})))
        .await;
    let path = format!("{DEFINITIONS}/widgets.example.com");
    let deleted = cluster.delete(&path, &Value::Null).await.json();
    assert_eq!(
        *at(&deleted, "/metadata/finalizers"),
        json!(["customresourcecleanup.apiextensions.k8s.io"])
    );
    cluster.answers(&format!("{WIDGETS}/free"), 404).await;
    assert_eq!(cluster.get(&path).await.status, 200, "an object holds it");
    let reply = cluster
        .post(WIDGETS, &widget("late", json!({"size": 1})))
        .await;
    assert_eq!(reply.status, 405, "{}", reply.text());
    cluster
        .merge(
            &format!("{WIDGETS}/held"),
            &json!({"metadata": {"finalizers": null}}),
        )
        .await;
    cluster.answers(&path, 404).await;
    cluster.answers(WIDGETS, 404).await;
    cluster.define(&definition()).await;
    assert_eq!(
        names(&cluster.get(WIDGETS).await.json()),
        Vec::<String>::new()
    );
}

/// The resources of a definition are removed before the definition: a client that waits for the end of the definition
/// and creates it again uses the new resources.
#[tokio::test]
async fn a_definition_that_is_created_again_serves_its_objects() {
    let cluster = Cluster::start().await;
    let path = format!("{DEFINITIONS}/widgets.example.com");
    for round in 0..20 {
        cluster.define(&definition()).await;
        let object = widget("a", json!({"size": 3}));
        cluster.create(WIDGETS, &object).await;
        let deleted = cluster.delete(&path, &Value::Null).await;
        assert_eq!(deleted.status, 200, "round {round}");
        cluster.answers(&path, 404).await;
        assert_eq!(cluster.get(WIDGETS).await.status, 404, "round {round}");
        let groups = cluster.get("/apis").await.json();
        assert!(
            !groups.to_string().contains("example.com"),
            "round {round}: {groups}"
        );
    }
}

#[tokio::test]
async fn watches_see_the_objects_of_one_definition() {
    let cluster = Cluster::start().await;
    cluster.define(&definition()).await;
    let mut gadgets = definition();
    gadgets["metadata"]["name"] = "gadgets.example.com".into();
    gadgets["spec"]["names"] = json!({"plural": "gadgets", "kind": "Gadget"});
    cluster.create(DEFINITIONS, &gadgets).await;
    let path = "/apis/example.com/v1/namespaces/default/gadgets";
    cluster.answers(path, 200).await;
    let mut gadget = widget("g", json!({"size": 1}));
    gadget["kind"] = "Gadget".into();
    cluster.create(path, &gadget).await;
    cluster
        .create(WIDGETS, &widget("w", json!({"size": 1})))
        .await;
    let events = cluster
        .get(&format!("{WIDGETS}?watch=1&timeoutSeconds=1"))
        .await
        .events();
    let seen: Vec<(&str, &str, &str)> = events
        .iter()
        .map(|e| {
            (
                text(e, "/type"),
                text(e, "/object/kind"),
                text(e, "/object/metadata/name"),
            )
        })
        .collect();
    assert_eq!(seen, [("ADDED", "Widget", "w")]);
    let mut taken = definition();
    taken["metadata"]["name"] = "others.example.com".into();
    taken["spec"]["names"] = json!({"plural": "others", "kind": "Widget"});
    cluster.create(DEFINITIONS, &taken).await;
    let path = format!("{DEFINITIONS}/others.example.com");
    let reached = async {
        loop {
            let found = cluster.get(&path).await.json();
            let condition = at(&found, "/status/conditions/0").clone();
            if !condition.is_null() {
                return condition;
            }
        }
    };
    let condition = timeout(PATIENCE, reached).await.expect("a condition");
    assert_eq!(
        (text(&condition, "/status"), text(&condition, "/reason")),
        ("False", "ListKindConflict")
    );
}

#[tokio::test]
async fn definitions_and_objects_survive_a_restart() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let options = || ServerOptions {
        data_dir: Some(directory.path().to_owned()),
        history: HistoryLimits::default(),
        ..ServerOptions::default()
    };
    let cluster = Cluster::with(options()).await;
    cluster.define(&definition()).await;
    cluster
        .create(WIDGETS, &widget("kept", json!({"size": 2})))
        .await;
    cluster.server.shutdown().await;
    let cluster = Cluster::with(options()).await;
    let found = cluster.get(&format!("{WIDGETS}/kept")).await;
    assert_eq!(
        (found.status, at(&found.json(), "/spec/size")),
        (200, &json!(2))
    );
    cluster.server.shutdown().await;
}

#[tokio::test]
async fn objects_obey_the_rules_of_their_schema() {
    let cluster = Cluster::start().await;
    let mut definition = definition();
    let spec = "/spec/versions/1/schema/openAPIV3Schema/properties/spec";
    if let Some(spec) = definition.pointer_mut(spec) {
        spec["x-kubernetes-validations"] = json!([
            {"rule": "self.size != 7", "message": "no seven"},
            {"rule": "self.size >= oldSelf.size", "message": "may not shrink"},
        ]);
    }
    cluster.define(&definition).await;
    let reply = cluster
        .post(WIDGETS, &widget("w", json!({"size": 7})))
        .await;
    assert_eq!(reply.status, 422);
    assert_eq!(
        message(&reply),
        "Widget.example.com \"w\" is invalid: spec: Invalid value: no seven"
    );
    cluster
        .create(WIDGETS, &widget("w", json!({"size": 5})))
        .await;
    let path = format!("{WIDGETS}/w");
    for (size, status) in [(6, 200), (5, 422), (6, 200)] {
        let reply = cluster.merge(&path, &json!({"spec": {"size": size}})).await;
        assert_eq!(reply.status, status, "{size}: {}", reply.text());
    }
}

#[tokio::test]
async fn objects_are_selected_by_the_fields_that_the_definition_names() {
    let cluster = Cluster::start().await;
    let mut definition = definition();
    let version = &mut definition["spec"]["versions"][1];
    let paths = [
        ".spec.color",
        ".spec.size",
        ".spec.vendor/model",
        ".spec.a~1b",
    ];
    version["selectableFields"] = paths.map(|path| json!({"jsonPath": path})).into();
    let schema = &mut version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"];
    for name in ["vendor/model", "a~1b"] {
        schema[name] = json!({"type": "string"});
    }
    cluster.define(&definition).await;
    for (name, color, size) in [("a", "red", 1), ("b", "blue", 2), ("c", "red", 2)] {
        let spec = json!({
            "size": size, "color": color, "vendor/model": format!("m{size}"), "a~1b": color,
        });
        cluster.create(WIDGETS, &widget(name, spec)).await;
    }
    for (selector, expect) in [
        ("spec.color=red", vec!["a", "c"]),
        ("spec.color!=red", vec!["b"]),
        ("spec.color=red,spec.size=2", vec!["c"]),
        ("spec.vendor/model=m2", vec!["b", "c"]),
        ("spec.vendor/model!=m2", vec!["a"]),
        ("spec.a~1b=blue", vec!["b"]),
    ] {
        let selector = selector.replace('=', "%3D").replace(',', "%2C");
        let list = cluster
            .get(&format!("{WIDGETS}?fieldSelector={selector}"))
            .await;
        assert_eq!(names(&list.json()), expect, "{selector}");
    }
    let unknown = cluster
        .get(&format!("{WIDGETS}?fieldSelector=spec.code%3Dx"))
        .await;
    assert_eq!(unknown.status, 400);
    definition["metadata"]["name"] = "gadgets.example.com".into();
    definition["spec"]["names"] = json!({"plural": "gadgets", "kind": "Gadget"});
    definition["spec"]["versions"][1]["selectableFields"] = json!([{"jsonPath": ".spec.parts"}]);
    let reply = cluster.post(DEFINITIONS, &definition).await;
    assert_eq!(reply.status, 422);
    let expect = "spec.versions[1].selectableFields[0].jsonPath: Invalid value: \".spec.parts\": must point to a field of type string, boolean or integer";
    assert!(message(&reply).contains(expect), "{}", message(&reply));
}
