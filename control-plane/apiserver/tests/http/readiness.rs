//! Pods that are not ready for scheduling, from their creation to their binding (KEP-3521, KEP-3838).

use super::*;

/// The reasons of `PodScheduled=False`: of the server first, then of schedulers.
const REASONS: [(&str, &str); 4] = [
    ("SchedulingGated", "SchedulingGated"),
    ("Unschedulable", "Pending"),
    ("SchedulerError", "Pending"),
    ("NotReadyForScheduling", "Pending"),
];

fn gated(name: &str, gates: &[&str]) -> Value {
    let gates: Vec<Value> = gates.iter().map(|n| json!({"name": n})).collect();
    let mut pod = pod(name);
    pod["spec"]["schedulingGates"] = json!(gates);
    pod
}

/// The STATUS column of a pod.
async fn status_of(cluster: &Cluster, name: &str) -> String {
    let table = Ask {
        path: format!("{PODS}/{name}"),
        accept: "application/json;as=Table;v=v1;g=meta.k8s.io".to_owned(),
        ..Ask::default()
    };
    let table = cluster.ask(table).await.json();
    text(&table, "/rows/0/cells/2").to_owned()
}

async fn strategic(cluster: &Cluster, name: &str, patch: Value) -> Reply {
    let path = format!("{PODS}/{name}");
    let kind = "application/strategic-merge-patch+json";
    cluster.send_as("PATCH", &path, kind, &patch).await
}

fn gates_of(pod: &Value) -> Vec<&str> {
    let gates = at(pod, "/spec/schedulingGates").as_array();
    gates
        .into_iter()
        .flatten()
        .map(|gate| text(gate, "/name"))
        .collect()
}

/// API-1, API-2, API-7, API-14, API-15, API-19, API-20, cases 8, 20 to 22, 24: patches that merge by name remove one
/// gate after another. The condition does not change until a client writes it. Then the pod can be bound.
#[tokio::test]
async fn from_the_first_gate_to_the_binding() {
    let cluster = Cluster::start().await;
    let mut sent = gated("p", &["example.com/a", "example.com/b"]);
    sent["status"] = json!({"phase": "Running", "conditions": [
        {"type": "PodScheduled", "status": "True"}]});
    let created = cluster.create(PODS, &sent).await;
    assert_eq!(at(&created, "/metadata/generation"), 1);
    assert_eq!(text(&created, "/status/phase"), "Pending");
    assert_eq!(text(&created, "/status/qosClass"), "BestEffort");
    let conditions = at(&created, "/status/conditions").clone();
    assert_eq!(conditions.as_array().map(Vec::len), Some(1));
    assert_eq!(text(&conditions, "/0/reason"), "SchedulingGated");
    assert_eq!(
        text(&conditions, "/0/message"),
        "Scheduling is blocked due to non-empty scheduling gates"
    );
    assert_eq!(status_of(&cluster, "p").await, "SchedulingGated");

    let added = json!({"spec": {"schedulingGates": [{"name": "example.com/c"}]}});
    let refused = strategic(&cluster, "p", added).await;
    assert_eq!(refused.status, 422);
    // Merged by name: new entries precede existing ones.
    assert_eq!(
        text(&refused.json(), "/details/causes/0/field"),
        "spec.schedulingGates[0].name"
    );
    let gone =
        |name: &str| json!({"spec": {"schedulingGates": [{"$patch": "delete", "name": name}]}});
    let one = strategic(&cluster, "p", gone("example.com/a")).await.json();
    assert_eq!(gates_of(&one), ["example.com/b"]);
    let none = strategic(&cluster, "p", gone("example.com/b")).await.json();
    assert_eq!(gates_of(&none), [""; 0]);
    assert_eq!(*at(&none, "/status/conditions"), conditions, "untouched");
    assert_eq!(at(&none, "/metadata/generation"), 3);
    assert_eq!(status_of(&cluster, "p").await, "SchedulingGated");

    let status = json!({"status": {"nominatedNodeName": "n", "conditions": [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}});
    let written = cluster.merge(&format!("{PODS}/p/status"), &status).await;
    assert_eq!(written.status, 200, "{}", written.text());
    assert_eq!(status_of(&cluster, "p").await, "Pending");

    let binding = json!({
        "apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"},
        "target": {"kind": "Node", "name": "n"},
    });
    let bound = cluster.post(&format!("{PODS}/p/binding"), &binding).await;
    assert_eq!(bound.status, 201, "{}", bound.text());
    let bound = cluster.get(&format!("{PODS}/p")).await.json();
    assert_eq!(*at(&bound, "/status/nominatedNodeName"), Value::Null);
    let scheduled = at(&bound, "/status/conditions/0");
    assert_eq!(text(scheduled, "/type"), "PodScheduled");
    assert_eq!(text(scheduled, "/status"), "True");
}

/// API-16, API-20, case 24: only the reason of gates is shown as the pod's status, for any reason that a scheduler
/// writes.
#[tokio::test]
async fn of_the_reasons_only_gates_are_shown() {
    let cluster = Cluster::start().await;
    cluster.create(PODS, &pod("p")).await;
    for (reason, shown) in REASONS {
        let status = json!({"status": {"conditions": [
            {"type": "PodScheduled", "status": "False", "reason": reason, "message": "why"},
            {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"},
        ]}});
        let written = cluster.merge(&format!("{PODS}/p/status"), &status).await;
        assert_eq!(written.status, 200, "{reason}: {}", written.text());
        assert_eq!(status_of(&cluster, "p").await, shown, "{reason}");
    }
}

/// API-9, API-10, API-12, case 12: one request removes the last gate and narrows the selector; a later request must
/// not.
#[tokio::test]
async fn the_last_gate_goes_with_a_new_selector() {
    let cluster = Cluster::start().await;
    cluster.create(PODS, &gated("p", &["a"])).await;
    let path = format!("{PODS}/p");
    let both = json!({"spec": {"schedulingGates": null, "nodeSelector": {"disk": "ssd"}}});
    let reply = cluster.merge(&path, &both).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    assert_eq!(
        *at(&reply.json(), "/spec/nodeSelector"),
        json!({"disk": "ssd"})
    );
    let more = json!({"spec": {"nodeSelector": {"arch": "arm"}}});
    let reply = cluster.merge(&path, &more).await;
    assert_eq!(reply.status, 422);
    assert_eq!(text(&reply.json(), "/details/causes/0/field"), "spec");
    let label = json!({"metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}}});
    assert_eq!(cluster.merge(&path, &label).await.status, 200);
}

/// API-6: controllers may make gated pods: a template with gates is accepted, one with unsound gates is not.
#[tokio::test]
async fn templates_may_have_gates() {
    let cluster = Cluster::start().await;
    let mut template = deployment("d");
    let gates = "/spec/template/spec/schedulingGates";
    template["spec"]["template"]["spec"]["schedulingGates"] = json!([{"name": "example.com/a"}]);
    let made = cluster.create(DEPLOYMENTS, &template).await;
    assert_eq!(*at(&made, gates), json!([{"name": "example.com/a"}]));
    template["metadata"]["name"] = json!("e");
    template["spec"]["template"]["spec"]["schedulingGates"] = json!([{"name": "a"}, {"name": "a"}]);
    let refused = cluster.post(DEPLOYMENTS, &template).await;
    assert_eq!(refused.status, 422);
    assert_eq!(
        text(&refused.json(), "/details/causes/0/field"),
        "spec.template.spec.schedulingGates[1]"
    );
}
