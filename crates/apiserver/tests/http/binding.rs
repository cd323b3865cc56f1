//! Binding, beyond what the recorded transcript has.

use super::*;

fn binding(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Binding", "metadata": {"name": name},
        "target": {"kind": "Node", "name": "n"},
    })
}

#[tokio::test]
async fn binding_sets_the_node_and_what_goes_with_it() {
    let cluster = Cluster::start().await;
    let node = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": "n", "labels": {"topology.kubernetes.io/zone": "z", "other": "o"}},
    });
    cluster.create("/api/v1/nodes", &node).await;
    cluster.create(PODS, &pod("p")).await;
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
    assert_eq!(*at(&bound, "/metadata/annotations"), json!({"a": "b"}));
    assert_eq!(
        *at(&bound, "/metadata/labels"),
        json!({"from": "binding", "topology.kubernetes.io/zone": "z"})
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

#[tokio::test]
async fn bindings_that_are_refused() {
    let cluster = Cluster::start().await;
    let mut held = pod("deleting");
    held["metadata"]["finalizers"] = json!(["example.com/f"]);
    cluster.create(PODS, &held).await;
    cluster
        .delete(&format!("{PODS}/deleting"), &Value::Null)
        .await;
    cluster.create(PODS, &pod("p")).await;
    let with = |change: &dyn Fn(&mut Value)| {
        let mut body = binding("p");
        change(&mut body);
        body
    };
    let cases = [
        (
            "deleting",
            binding("deleting"),
            409,
            "pod deleting is being deleted, cannot be assigned to a host",
        ),
        (
            "p",
            binding("q"),
            400,
            "name in URL does not match name in Binding object",
        ),
        (
            "p",
            with(&|b| b["target"] = json!({})),
            422,
            "target.name: Required value",
        ),
        (
            "p",
            with(&|b| b["target"]["kind"] = json!("Pod")),
            422,
            "target.kind",
        ),
        (
            "p",
            with(&|b| b["metadata"]["resourceVersion"] = json!("1")),
            409,
            "ResourceVersion in precondition: 1, ResourceVersion in object meta:",
        ),
        (
            "p",
            with(&|b| b["metadata"]["namespace"] = json!("other")),
            400,
            "namespace",
        ),
    ];
    for (name, body, status, message) in cases {
        let reply = cluster.post(&format!("{PODS}/{name}/binding"), &body).await;
        assert_eq!(reply.status, status, "{body}: {}", reply.text());
        assert!(reply.text().contains(message), "{body}: {}", reply.text());
    }
    let old_style = cluster
        .post("/api/v1/namespaces/default/bindings", &binding("p"))
        .await;
    assert_eq!(old_style.status, 201, "{}", old_style.text());
    let again = cluster
        .post(&format!("{PODS}/p/binding"), &binding("p"))
        .await;
    assert_eq!(again.status, 409);
}
