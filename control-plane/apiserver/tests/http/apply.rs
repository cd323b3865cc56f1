//! Server-side apply and `managedFields`. The expected answers equal kube-apiserver 1.36's.

use super::*;
use berth_protobuf::envelope::Envelope;

const MAP: &str = "/api/v1/namespaces/default/configmaps/c";
const SCALED: &str = "/apis/apps/v1/namespaces/default/deployments/d";

impl Cluster {
    /// Applies a configuration; `query` begins with the name of the field manager.
    async fn apply(&self, path: &str, query: &str, config: &Value) -> Reply {
        let path = format!("{path}?fieldManager={query}");
        self.send_as("PATCH", &path, "application/apply-patch+yaml", config)
            .await
    }
}

fn map(data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": data})
}

/// Manager, operation, subresource and fields of each entry.
fn owners(object: &Value) -> Vec<(String, String, String, Value)> {
    let entries = at(object, "/metadata/managedFields").as_array();
    let entries = entries.into_iter().flatten().map(|entry| {
        (
            text(entry, "/manager").to_owned(),
            text(entry, "/operation").to_owned(),
            text(entry, "/subresource").to_owned(),
            at(entry, "/fieldsV1").clone(),
        )
    });
    entries.collect()
}

fn owner(manager: &str, operation: &str, fields: Value) -> (String, String, String, Value) {
    let part = String::new();
    (manager.to_owned(), operation.to_owned(), part, fields)
}

#[tokio::test]
async fn a_manager_owns_what_it_applies_and_removes_what_it_leaves_out() {
    let cluster = Cluster::start().await;
    let reply = cluster
        .apply(MAP, "one", &map(json!({"a": "1", "b": "2"})))
        .await;
    assert_eq!(reply.status, 201, "{}", reply.text());
    let first = reply.json();
    let both = json!({"f:data": {"f:a": {}, "f:b": {}}});
    assert_eq!(owners(&first), [owner("one", "Apply", both)]);
    let again = cluster
        .apply(MAP, "one", &map(json!({"a": "1", "b": "2"})))
        .await;
    assert_eq!(again.json(), first, "nothing changes");
    let reply = cluster
        .apply(MAP, "two", &map(json!({"b": "2", "c": "3"})))
        .await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    let reply = cluster.apply(MAP, "one", &map(json!({"c": "3"}))).await;
    let left = reply.json();
    assert_eq!(
        left["data"],
        json!({"b": "2", "c": "3"}),
        "`two` owns b, too"
    );
    let mut found = owners(&left);
    found.sort_by(|a, b| a.0.cmp(&b.0));
    let expect = [
        owner("one", "Apply", json!({"f:data": {"f:c": {}}})),
        owner("two", "Apply", json!({"f:data": {"f:b": {}, "f:c": {}}})),
    ];
    assert_eq!(found, expect);
}

#[tokio::test]
async fn a_change_of_what_another_manager_owns_conflicts_unless_it_is_forced() {
    let cluster = Cluster::start().await;
    let created = format!("{CONFIG_MAPS}?fieldManager=maker");
    cluster.create(&created, &map(json!({"u": "1"}))).await;
    cluster
        .apply(MAP, "one", &map(json!({"a": "1", "b": "2"})))
        .await;
    let wanted = map(json!({"a": "x", "b": "y", "u": "z"}));
    let reply = cluster.apply(MAP, "two", &wanted).await;
    assert_eq!(reply.status, 409);
    let status = reply.json();
    assert_eq!(
        text(&status, "/message"),
        "Apply failed with 3 conflicts: conflicts with \"maker\" using v1:\n- .data.u\nconflicts with \"one\":\n- .data.a\n- .data.b"
    );
    assert_eq!(
        status["details"]["causes"][0],
        json!({"reason": "FieldManagerConflict", "message": "conflict with \"maker\" using v1", "field": ".data.u"})
    );
    let reply = cluster
        .apply(MAP, "two", &map(json!({"a": "x", "b": "2"})))
        .await;
    let message = "Apply failed with 1 conflict: conflict with \"one\": .data.a";
    assert_eq!(text(&reply.json(), "/message"), message);
    let forced = cluster.apply(MAP, "two&force=true", &wanted).await.json();
    assert_eq!(forced["data"], wanted["data"]);
    // `one` owns no field any more, `maker` only the map itself.
    let mine = json!({"f:data": {"f:a": {}, "f:b": {}, "f:u": {}}});
    let expect = [
        owner("two", "Apply", mine),
        owner("maker", "Update", json!({"f:data": {}})),
    ];
    assert_eq!(owners(&forced), expect);
}

const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// A map as `kubectl apply` creates it.
fn client_side(data: Value) -> Value {
    let config = map(data);
    let mut object = config.clone();
    object["metadata"]["annotations"] = json!({LAST_APPLIED: format!("{config}\n")});
    object
}

fn last_applied(object: &Value) -> Value {
    let text = at(object, "/metadata/annotations")[LAST_APPLIED].as_str();
    let text = text.unwrap_or_default();
    assert!(text.ends_with("}\n"), "{text:?}");
    serde_json::from_str(text).unwrap_or_default()
}

#[tokio::test]
async fn kubectl_applies_on_the_server_what_it_applied_as_a_client() {
    let cluster = Cluster::start().await;
    let path = format!("{CONFIG_MAPS}?fieldManager=kubectl-client-side-apply");
    let first = client_side(json!({"a": "1", "b": "2", "c": "3"}));
    cluster.create(&path, &first).await;
    // A later change by another manager is not included.
    let edit = format!("{MAP}?fieldManager=editor");
    cluster.merge(&edit, &json!({"data": {"c": "x"}})).await;
    let wanted = map(json!({"a": "10", "b": "2", "c": "30"}));
    let reply = cluster.apply(MAP, "kubectl", &wanted).await;
    let message = "Apply failed with 1 conflict: conflict with \"editor\" using v1: .data.c";
    assert_eq!(
        (reply.status, text(&reply.json(), "/message")),
        (409, message)
    );
    // Other managers conflict with all.
    let wanted = map(json!({"a": "10", "b": "2"}));
    let reply = cluster.apply(MAP, "other", &wanted).await;
    let message = "Apply failed with 1 conflict: conflict with \"kubectl-client-side-apply\" using v1: .data.a";
    assert_eq!(
        (reply.status, text(&reply.json(), "/message")),
        (409, message)
    );

    let reply = cluster.apply(MAP, "kubectl", &wanted).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    let applied = reply.json();
    assert_eq!(applied["data"], json!({"a": "10", "b": "2", "c": "x"}));
    assert_eq!(last_applied(&applied), wanted);
    let annotation = json!({".": {}, format!("f:{LAST_APPLIED}"): {}});
    let of_client = json!({
        "f:data": {".": {}, "f:b": {}},
        "f:metadata": {"f:annotations": annotation},
    });
    let expect = [
        owner(
            "kubectl",
            "Apply",
            json!({"f:data": {"f:a": {}, "f:b": {}}}),
        ),
        owner("editor", "Update", json!({"f:data": {"f:c": {}}})),
        owner("kubectl-client-side-apply", "Update", of_client),
    ];
    let mut found = owners(&applied);
    found.sort_by(|a, b| (&a.1, &a.0).cmp(&(&b.1, &b.0)));
    assert_eq!(found, expect);
    let again = cluster.apply(MAP, "kubectl", &wanted).await;
    assert_eq!(again.json(), applied, "nothing changes");
    // A later client-side apply compares with the configuration that was applied on the server.
    let next = map(json!({"b": "3"}));
    let reply = cluster.apply(MAP, "kubectl", &next).await.json();
    assert_eq!(reply["data"], json!({"b": "3", "c": "x"}));
    assert_eq!(last_applied(&reply), next);
}

#[tokio::test]
async fn an_object_without_the_annotation_does_not_get_it() {
    let cluster = Cluster::start().await;
    let reply = cluster.apply(MAP, "kubectl", &map(json!({"a": "1"}))).await;
    assert_eq!(reply.status, 201, "{}", reply.text());
    assert!(reply.json()["metadata"].get("annotations").is_none());
    // An invalid annotation permits no takeover.
    let annotations = json!({"metadata": {"annotations": {LAST_APPLIED: "{"}}, "data": {"a": "2"}});
    let edit = format!("{MAP}?fieldManager=editor");
    cluster.merge(&edit, &annotations).await;
    let reply = cluster.apply(MAP, "kubectl", &map(json!({"a": "1"}))).await;
    assert_eq!(reply.status, 409, "{}", reply.text());
}

#[tokio::test]
async fn updates_take_over_what_they_change() {
    let cluster = Cluster::start().await;
    cluster
        .apply(MAP, "one", &map(json!({"a": "1", "b": "2"})))
        .await;
    let path = format!("{MAP}?fieldManager=editor");
    let edited = cluster.merge(&path, &json!({"data": {"a": "x"}})).await;
    let expect = [
        owner("one", "Apply", json!({"f:data": {"f:b": {}}})),
        owner("editor", "Update", json!({"f:data": {"f:a": {}}})),
    ];
    assert_eq!(owners(&edited.json()), expect);
    // An empty entry clears the owners, and none is recorded until the next apply.
    let clear = json!({"metadata": {"managedFields": [{}]}});
    assert_eq!(owners(&cluster.merge(MAP, &clear).await.json()), []);
    let reply = cluster.merge(MAP, &json!({"data": {"a": "y"}})).await;
    assert_eq!(owners(&reply.json()), []);
    let reply = cluster.apply(MAP, "one", &map(json!({"b": "3"}))).await;
    let message =
        "Apply failed with 1 conflict: conflict with \"before-first-apply\" using v1: .data.b";
    assert_eq!(text(&reply.json(), "/message"), message);
}

/// KEP-3521: the owner of a gate removes it by leaving it out, and only its own.
#[tokio::test]
async fn each_manager_removes_its_own_gates() {
    let cluster = Cluster::start().await;
    let path = format!("{PODS}/p");
    let gates = |names: &[&str]| {
        let mut pod = pod("p");
        let gates: Vec<Value> = names.iter().map(|name| json!({"name": name})).collect();
        pod["spec"]["schedulingGates"] = json!(gates);
        pod
    };
    cluster
        .apply(&path, "quota", &gates(&["x.io/quota", "x.io/data"]))
        .await;
    let only_data = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
        "spec": {"schedulingGates": [{"name": "x.io/data"}]}});
    cluster.apply(&path, "data", &only_data).await;
    let pod = cluster.apply(&path, "quota", &gates(&[])).await.json();
    assert_eq!(
        pod["spec"]["schedulingGates"],
        json!([{"name": "x.io/data"}])
    );
    let added = cluster
        .apply(&path, "quota", &gates(&["x.io/late"]))
        .await
        .json();
    assert_eq!(
        text(&added, "/message"),
        "Pod \"p\" is invalid: spec.schedulingGates[1].name: Forbidden: only deletion is allowed, but found new scheduling gate 'x.io/late'"
    );
    let none = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}});
    let pod = cluster.apply(&path, "data", &none).await.json();
    assert_eq!(pod["spec"]["schedulingGates"], Value::Null);
}

#[tokio::test]
async fn subresources_own_their_part() {
    let cluster = Cluster::start().await;
    cluster.apply(SCALED, "one", &deployment("d")).await;
    let scale = |replicas: i64| {
        json!({"apiVersion": "autoscaling/v1", "kind": "Scale",
            "metadata": {"name": "d", "namespace": "default"}, "spec": {"replicas": replicas}})
    };
    let path = format!("{SCALED}/scale");
    let reply = cluster.apply(&path, "scaler", &scale(5)).await;
    let message = "Apply failed with 1 conflict: conflict with \"one\": .spec.replicas";
    assert_eq!(text(&reply.json(), "/message"), message);
    let reply = cluster.apply(&path, "scaler&force=true", &scale(5)).await;
    assert_eq!(at(&reply.json(), "/spec/replicas"), &json!(5));
    let reply = cluster.apply(SCALED, "one", &deployment("d")).await;
    assert_eq!(
        text(&reply.json(), "/message"),
        "Apply failed with 1 conflict: conflict with \"scaler\" with subresource \"scale\": .spec.replicas"
    );
    // Scaling by another client takes the field over.
    cluster
        .merge(
            &format!("{path}?fieldManager=cli"),
            &json!({"spec": {"replicas": 6}}),
        )
        .await;
    let reply = cluster.apply(&path, "scaler", &scale(5)).await;
    assert_eq!(
        text(&reply.json(), "/message"),
        "Apply failed with 1 conflict: conflict with \"cli\" with subresource \"scale\" using autoscaling/v1: .spec.replicas"
    );
    let status = json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "d", "labels": {"ignored": "yes"}}, "status": {"replicas": 4}});
    let after = cluster
        .apply(&format!("{SCALED}/status"), "reporter", &status)
        .await
        .json();
    assert_eq!(at(&after, "/metadata/labels"), &Value::Null);
    let fields = json!({"f:status": {"f:replicas": {}}});
    let entry = (
        "reporter".to_owned(),
        "Apply".to_owned(),
        "status".to_owned(),
        fields,
    );
    assert!(owners(&after).contains(&entry), "{after}");
}

#[tokio::test]
async fn configurations_that_are_rejected() {
    let cluster = Cluster::start().await;
    cluster.apply(SCALED, "one", &deployment("d")).await;
    let with = |pointer: &str, value: Value| {
        let mut object = deployment("d");
        let (parent, field) = pointer.rsplit_once('/').unwrap_or(("", pointer));
        if let Some(parent) = object.pointer_mut(parent).and_then(Value::as_object_mut) {
            parent.insert(field.to_owned(), value);
        }
        object
    };
    let typed = "failed to create typed patch object (/d; apps/v1, Kind=Deployment): ";
    let containers = "/spec/template/spec/containers";
    let cases = [
        (
            "",
            deployment("d"),
            422,
            "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply patch".to_owned(),
        ),
        (
            "one",
            with("/spec/bogus", json!(1)),
            500,
            format!("{typed}.spec.bogus: field not declared in schema"),
        ),
        (
            "one",
            with("/spec/replicas", json!("x")),
            500,
            format!("{typed}.spec.replicas: expected numeric (int or float), got string"),
        ),
        (
            "one",
            with("/spec/template", json!("x")),
            500,
            format!("{typed}.spec.template: expected map, got &{{x}}"),
        ),
        (
            "one",
            with(containers, json!([{"name": "c", "image": "1"}, {"name": "c", "image": "2"}])),
            500,
            format!("{typed}.spec.template.spec.containers: duplicate entries for key [name=\"c\"]"),
        ),
        (
            "one",
            with("/metadata/managedFields", json!([{"manager": "x"}])),
            400,
            "metadata.managedFields must be nil".to_owned(),
        ),
        (
            "one",
            with("/metadata/name", json!("e")),
            400,
            "the name of the object (e) does not match the name on the URL (d)".to_owned(),
        ),
        (
            "one",
            with("/kind", json!("ReplicaSet")),
            400,
            "invalid object type: apps/v1, Kind=ReplicaSet".to_owned(),
        ),
        (
            "one",
            json!("x"),
            400,
            "error decoding YAML: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal string into Go value of type map[string]interface {}".to_owned(),
        ),
        (
            "one&force=true",
            with("/metadata/uid", json!("11111111-1111-1111-1111-111111111111")),
            422,
            "Deployment.apps \"d\" is invalid: metadata.uid: Invalid value: \"11111111-1111-1111-1111-111111111111\": field is immutable".to_owned(),
        ),
    ];
    for (query, config, code, message) in cases {
        let reply = cluster.apply(SCALED, query, &config).await;
        assert_eq!(
            (reply.status, text(&reply.json(), "/message")),
            (code, message.as_str())
        );
    }
    let twice = Ask {
        method: "PATCH".to_owned(),
        path: format!("{SCALED}?fieldManager=one&fieldValidation=Strict"),
        content_type: "application/apply-patch+yaml".to_owned(),
        body: b"apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: d\nspec:\n  replicas: 1\n  replicas: 2\n".to_vec(),
        ..Ask::default()
    };
    let reply = cluster.ask(twice).await;
    assert_eq!(
        (reply.status, text(&reply.json(), "/message")),
        (
            400,
            "error strict decoding YAML: error converting YAML to JSON: yaml: unmarshal errors:\n  line 7: key \"replicas\" already set in map"
        )
    );
    let reply = cluster
        .merge(&format!("{SCALED}?force=true"), &json!({}))
        .await;
    assert_eq!(
        text(&reply.json(), "/message"),
        "PatchOptions.meta.k8s.io \"\" is invalid: force: Forbidden: may not be specified for non-apply patch"
    );
}

#[tokio::test]
async fn owners_have_one_form_in_every_view_and_format() {
    let cluster = Cluster::start().await;
    let created = cluster
        .apply(MAP, "m", &map(json!({"a": "1"})))
        .await
        .json();
    let expected = vec![owner("m", "Apply", json!({"f:data": {"f:a": {}}}))];
    assert_eq!(owners(&created), expected);
    let json = "application/json";
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let partial = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
    let protobuf = "application/vnd.kubernetes.protobuf";
    for (path, accept, place) in [
        (MAP, json, ""),
        (CONFIG_MAPS, json, "/items/0"),
        (MAP, partial, ""),
        (MAP, table, "/rows/0/object"),
        (
            "/api/v1/namespaces/default/configmaps/c?includeObject=Object",
            table,
            "/rows/0/object",
        ),
        (MAP, protobuf, ""),
    ] {
        let ask = Ask {
            path: path.to_owned(),
            accept: accept.to_owned(),
            ..Ask::default()
        };
        let reply = cluster.ask(ask).await;
        let shown: Value = if accept == protobuf {
            Envelope::open(&reply.body)
                .and_then(|body| body.decode())
                .expect("protobuf")
        } else {
            reply.json()
        };
        let object = match place {
            "" => &shown,
            place => at(&shown, place),
        };
        assert_eq!(owners(object), expected, "{accept} {path}");
    }
    // Patches of the owners, by path and as a whole.
    let patch = json!([
        {"op": "test", "path": "/metadata/managedFields/0/fieldsV1", "value": {"f:data": {"f:a": {}}}},
        {"op": "add", "path": "/metadata/managedFields/0/fieldsV1/f:data/f:b", "value": {}},
    ]);
    let reply = cluster
        .send_as("PATCH", MAP, "application/json-patch+json", &patch)
        .await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    let expected = json!({"f:data": {"f:a": {}, "f:b": {}}});
    assert_eq!(owners(&reply.json()), [owner("m", "Apply", expected)]);
    let reply = cluster
        .merge(MAP, &json!({"metadata": {"managedFields": [{}]}}))
        .await;
    assert_eq!(owners(&reply.json()), []);
}
