//! Bindings, in addition to the recorded transcript.

use super::*;
use berth_api::Release;
use berth_objects::releases::ApiRelease;

fn binding(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Binding", "metadata": {"name": name},
        "target": {"kind": "Node", "name": "n"},
    })
}

/// API-19, case 22: the fields that a binding sets. Other fields of the pod are kept.
#[tokio::test]
async fn binding_sets_the_node_and_what_goes_with_it() {
    let cluster = Cluster::start().await;
    let node = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": "n", "labels": {"topology.kubernetes.io/zone": "z", "other": "o"}},
    });
    cluster.create("/api/v1/nodes", &node).await;
    let mut plain = pod("p");
    plain["metadata"]["labels"] = json!({"from": "pod", "kept": "yes"});
    plain["metadata"]["annotations"] = json!({"a": "pod", "kept": "yes"});
    cluster.create(PODS, &plain).await;
    let status = json!({"status": {
        "nominatedNodeName": "m",
        "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "lastTransitionTime": "2020-01-01T00:00:00Z"}],
    }});
    cluster.merge(&format!("{PODS}/p/status"), &status).await;
    let mut body = binding("p");
    body["metadata"]["annotations"] = json!({"a": "b"});
    body["metadata"]["labels"] = json!({"from": "binding"});
    let reply = cluster.post(&format!("{PODS}/p/binding"), &body).await;
    assert_eq!(reply.status, 201, "{}", reply.text());
    let bound = cluster.get(&format!("{PODS}/p")).await.json();
    assert_eq!(text(&bound, "/spec/nodeName"), "n");
    assert_eq!(
        *at(&bound, "/metadata/annotations"),
        json!({"a": "b", "kept": "yes"})
    );
    assert_eq!(
        *at(&bound, "/metadata/labels"),
        json!({"from": "binding", "kept": "yes", "topology.kubernetes.io/zone": "z"})
    );
    assert_eq!(*at(&bound, "/status/nominatedNodeName"), Value::Null);
    let condition = at(&bound, "/status/conditions/0");
    assert_eq!(text(condition, "/status"), "True");
    assert_eq!(*at(condition, "/reason"), Value::Null);
    assert_ne!(
        text(condition, "/lastTransitionTime"),
        "2020-01-01T00:00:00Z"
    );
    assert_eq!(bound["metadata"]["generation"], json!(1));
}

/// API-60: since Kubernetes 1.38, the answer to a binding names the version of the pod that the binding made. A dry run
/// makes none.
#[tokio::test]
async fn the_answer_to_a_binding_names_the_version_of_the_pod() {
    let cluster = Cluster::with(ServerOptions {
        api: ApiRelease::of(Release::V1_38),
        ..ServerOptions::default()
    })
    .await;
    for (name, path) in [
        ("p", format!("{PODS}/p/binding")),
        ("q", PODS.replace("/pods", "/bindings")),
    ] {
        cluster.create(PODS, &pod(name)).await;
        let dry_run = format!("{path}?dryRun=All");
        let reply = cluster.post(&dry_run, &binding(name)).await.json();
        assert_eq!(reply["metadata"], json!({}), "{path}");
        let reply = cluster.post(&path, &binding(name)).await.json();
        assert_eq!(text(&reply, "/status"), "Success", "{path}");
        let bound = cluster.get(&format!("{PODS}/{name}")).await.json();
        assert_eq!(
            text(&reply, "/metadata/resourceVersion"),
            text(&bound, "/metadata/resourceVersion"),
            "{path}"
        );
    }
}

/// API-17, case 21: the pods that the server does not bind, its messages, and the order of its checks.
#[tokio::test]
async fn bindings_that_are_refused() {
    let cluster = Cluster::start().await;
    let gates = json!([{"name": "example.com/g"}]);
    let mut gated = pod("gated");
    gated["spec"]["schedulingGates"] = gates.clone();
    cluster.create(PODS, &gated).await;
    let mut held = pod("deleting");
    held["metadata"]["finalizers"] = json!(["example.com/f"]);
    held["spec"]["schedulingGates"] = gates;
    cluster.create(PODS, &held).await;
    cluster
        .delete(&format!("{PODS}/deleting"), &Value::Null)
        .await;
    cluster.create(PODS, &pod("p")).await;
    cluster.create(PODS, &pod("bound")).await;
    let first = cluster
        .post(&format!("{PODS}/bound/binding"), &binding("bound"))
        .await;
    assert_eq!(first.status, 201, "{}", first.text());
    let with = |change: &dyn Fn(&mut Value)| {
        let mut body = binding("p");
        change(&mut body);
        body
    };
    let conflict = |name: &str, why: &str| {
        format!("Operation cannot be fulfilled on pods/binding \"{name}\": {why}")
    };
    let other_name = "name in URL does not match name in Binding object";
    let cases = [
        (
            "deleting",
            binding("deleting"),
            409,
            conflict(
                "deleting",
                "pod deleting is being deleted, cannot be assigned to a host",
            ),
        ),
        (
            "bound",
            binding("bound"),
            409,
            conflict("bound", "pod bound is already assigned to node \"n\""),
        ),
        (
            "gated",
            binding("gated"),
            409,
            conflict("gated", "pod gated has non-empty .spec.schedulingGates"),
        ),
        (
            "gone",
            binding("gone"),
            404,
            "pods \"gone\" not found".to_owned(),
        ),
        ("p", binding("q"), 400, other_name.to_owned()),
        ("p", binding(""), 400, other_name.to_owned()),
        (
            "p",
            with(&|b| b["target"] = json!({})),
            500,
            "target.name: Required value".to_owned(),
        ),
        (
            "p",
            with(&|b| b["target"]["kind"] = json!("Pod")),
            500,
            "target.kind: Unsupported value: \"Pod\"".to_owned(),
        ),
        (
            "p",
            with(&|b| b["metadata"]["namespace"] = json!("other")),
            400,
            "the namespace of the provided object does not match the namespace sent on the request"
                .to_owned(),
        ),
    ];
    for (name, body, status, message) in cases {
        let reply = cluster.post(&format!("{PODS}/{name}/binding"), &body).await;
        assert_eq!(reply.status, status, "{body}: {}", reply.text());
        let notified = text(&reply.json(), "/message").to_owned();
        assert!(notified.contains(&message), "{body}: {notified}");
        if status == 409 {
            assert_eq!(notified, message);
            assert_eq!(text(&reply.json(), "/reason"), "Conflict");
            assert_eq!(text(&reply.json(), "/details/kind"), "pods/binding");
        }
    }
    let free = cluster.get(&format!("{PODS}/p")).await.json();
    assert_eq!(text(&free, "/spec/nodeName"), "", "nothing was done");
    let old_style = |name: &str| {
        let body = binding(name);
        let cluster = &cluster;
        async move {
            cluster
                .post("/api/v1/namespaces/default/bindings", &body)
                .await
        }
    };
    assert_eq!(old_style("p").await.status, 201);
    let again = old_style("p").await;
    assert_eq!(
        text(&again.json(), "/message"),
        conflict("p", "pod p is already assigned to node \"n\"")
    );
    assert_eq!(old_style("").await.status, 400);
}

/// API-18: the identity and the version in a binding are compared with the pod first; whether the pod may be bound is
/// checked afterwards.
#[tokio::test]
async fn a_binding_is_for_one_pod_in_one_version() {
    let cluster = Cluster::start().await;
    let mut gated = pod("gated");
    gated["spec"]["schedulingGates"] = json!([{"name": "g"}]);
    cluster.create(PODS, &gated).await;
    let first = cluster.create(PODS, &pod("p")).await;
    let uid = text(&first, "/metadata/uid").to_owned();
    let deleted = cluster.delete(&format!("{PODS}/p"), &Value::Null).await;
    assert_eq!(deleted.status, 200);
    let second = cluster.create(PODS, &pod("p")).await;
    let now = text(&second, "/metadata/uid").to_owned();
    assert_ne!(uid, now);
    let bind = |name: &str, field: &str, value: &str| {
        let mut body = binding(name);
        body["metadata"][field] = json!(value);
        let path = format!("{PODS}/{name}/binding");
        let cluster = &cluster;
        async move { cluster.post(&path, &body).await }
    };
    let version = text(&second, "/metadata/resourceVersion").to_owned();
    for (name, field, value, message) in [
        (
            "p",
            "uid",
            uid.as_str(),
            format!("Precondition failed: UID in precondition: {uid}, UID in object meta: {now}"),
        ),
        (
            "p",
            "resourceVersion",
            "1",
            format!(
                "Precondition failed: ResourceVersion in precondition: 1, ResourceVersion in object meta: {version}"
            ),
        ),
        (
            "gated",
            "uid",
            uid.as_str(),
            format!("Precondition failed: UID in precondition: {uid}, UID in object meta: "),
        ),
    ] {
        let reply = bind(name, field, value).await;
        assert_eq!(reply.status, 409, "{field}: {}", reply.text());
        let notified = reply.json();
        assert!(text(&notified, "/message").contains(&message), "{notified}");
        assert_eq!(text(&notified, "/details/kind"), "pods");
    }
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    let changed = cluster.merge(&format!("{PODS}/p"), &label).await.json();
    assert_eq!(bind("p", "resourceVersion", &version).await.status, 409);
    let version = text(&changed, "/metadata/resourceVersion");
    assert_eq!(bind("p", "resourceVersion", version).await.status, 201);
    cluster.create(PODS, &pod("q")).await;
    let q = cluster.get(&format!("{PODS}/q")).await.json();
    assert_eq!(
        bind("q", "uid", text(&q, "/metadata/uid")).await.status,
        201
    );
}
