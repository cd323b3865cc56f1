//! Eviction with a budget: permitted evictions, and kube-apiserver 1.36's answers to refused ones.

use super::*;

const BUDGETS: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";

impl Cluster {
    /// A budget for the pods of `default` that have the label `app=NAME`, with this status.
    async fn budget(&self, name: &str, spec: Value, status: Value) {
        let mut spec = spec;
        spec["selector"] = json!({"matchLabels": {"app": "web"}});
        let budget = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
            "metadata": {"name": name}, "spec": spec});
        self.create(BUDGETS, &budget).await;
        let path = format!("{BUDGETS}/{name}/status");
        let reply = self.merge(&path, &json!({"status": status})).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
    }

    /// A pod on a node, in this phase.
    async fn placed(&self, name: &str, phase: &str, ready: bool) {
        let mut object = pod(name);
        object["metadata"]["labels"] = json!({"app": "web"});
        object["spec"]["nodeName"] = json!("n");
        self.create(PODS, &object).await;
        let ready = if ready { "True" } else { "False" };
        let status =
            json!({"status": {"phase": phase, "conditions": [{"type": "Ready", "status": ready}]}});
        self.merge(&format!("{PODS}/{name}/status"), &status).await;
    }

    async fn evict(&self, name: &str, query: &str) -> Reply {
        let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction",
            "metadata": {"name": name, "namespace": "default"}});
        self.post(&format!("{PODS}/{name}/eviction{query}"), &eviction)
            .await
    }

    async fn is_being_deleted(&self, name: &str) -> bool {
        let reply = self.get(&format!("{PODS}/{name}")).await;
        reply.status == 404 || !at(&reply.json(), "/metadata/deletionTimestamp").is_null()
    }
}

fn allows(disruptions: i64, healthy: i64, desired: i64) -> Value {
    json!({"observedGeneration": 1, "disruptionsAllowed": disruptions,
        "currentHealthy": healthy, "desiredHealthy": desired, "expectedPods": healthy})
}

#[tokio::test]
async fn a_budget_is_charged_for_each_eviction() {
    let cluster = Cluster::start().await;
    cluster
        .budget("b", json!({"minAvailable": 1}), allows(1, 2, 1))
        .await;
    for name in ["one", "two"] {
        cluster.placed(name, "Running", true).await;
    }
    let dry = cluster.evict("one", "?dryRun=All").await;
    assert_eq!(dry.status, 201, "{}", dry.text());
    assert!(!cluster.is_being_deleted("one").await);
    let reply = cluster.evict("one", "").await;
    assert_eq!(reply.status, 201, "{}", reply.text());
    assert_eq!(text(&reply.json(), "/status"), "Success");
    assert!(cluster.is_being_deleted("one").await);
    let pod = cluster.get(&format!("{PODS}/one")).await.json();
    let conditions = at(&pod, "/status/conditions").as_array();
    let target = conditions
        .into_iter()
        .flatten()
        .find(|c| c["type"] == "DisruptionTarget");
    let reason = target.map(|c| c["reason"].clone());
    assert_eq!(reason, Some(json!("EvictionByEvictionAPI")));
    let budget = cluster.get(&format!("{BUDGETS}/b")).await.json();
    assert_eq!(at(&budget, "/status/disruptionsAllowed"), &json!(0));
    assert_ne!(at(&budget, "/status/disruptedPods/one"), &Value::Null);
    assert_eq!(
        text(&budget, "/status/conditions/0/reason"),
        "InsufficientPods"
    );
    let reply = cluster.evict("two", "").await;
    assert_eq!(reply.status, 429);
    let status = reply.json();
    assert_eq!(
        text(&status, "/message"),
        "Cannot evict pod as it would violate the pod's disruption budget."
    );
    assert_eq!(
        at(&status, "/details/causes/0"),
        &json!({"reason": "DisruptionBudget", "message": "The disruption budget b does not allow evicting pods currently"})
    );
    assert!(!cluster.is_being_deleted("two").await);
}

#[tokio::test]
async fn what_a_budget_does_not_protect() {
    // (phase, ready, policy, status of the budget, code)
    let cases = [
        ("Pending", false, "IfHealthyBudget", allows(0, 1, 1), 201),
        ("Succeeded", false, "IfHealthyBudget", allows(0, 1, 1), 201),
        ("Running", false, "AlwaysAllow", allows(0, 0, 1), 201),
        ("Running", false, "IfHealthyBudget", allows(0, 1, 1), 201),
        ("Running", false, "IfHealthyBudget", allows(0, 0, 1), 429),
        ("Running", true, "AlwaysAllow", allows(0, 1, 1), 429),
    ];
    for (phase, ready, policy, status, code) in cases {
        let cluster = Cluster::start().await;
        let spec = json!({"minAvailable": 1, "unhealthyPodEvictionPolicy": policy});
        let shown = format!("{phase} {ready} {policy} {status}");
        cluster.budget("b", spec, status).await;
        cluster.placed("p", phase, ready).await;
        let reply = cluster.evict("p", "").await;
        assert_eq!(reply.status, code, "{shown}: {}", reply.text());
        assert_eq!(cluster.is_being_deleted("p").await, code == 201, "{shown}");
    }
}

#[tokio::test]
async fn evictions_that_are_rejected() {
    let cluster = Cluster::start().await;
    assert_eq!(cluster.evict("p", "").await.status, 404);
    cluster.placed("p", "Running", true).await;
    let other = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "q"}});
    let reply = cluster.post(&format!("{PODS}/p/eviction"), &other).await;
    assert_eq!(
        (reply.status, text(&reply.json(), "/message")),
        (400, "name in URL does not match name in Eviction object")
    );
    let stale = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"},
        "deleteOptions": {"preconditions": {"uid": "other"}}});
    let reply = cluster.post(&format!("{PODS}/p/eviction"), &stale).await;
    assert_eq!(reply.status, 409, "{}", reply.text());
    // The controller has not seen the budget yet.
    let unseen = json!({"observedGeneration": 0, "disruptionsAllowed": 1,
        "currentHealthy": 1, "desiredHealthy": 0, "expectedPods": 1});
    cluster
        .budget("b", json!({"minAvailable": 0}), unseen)
        .await;
    let reply = cluster.evict("p", "").await;
    assert_eq!((reply.status, reply.header("retry-after")), (429, "10"));
    assert_eq!(
        text(&reply.json(), "/details/causes/0/message"),
        "The disruption budget b is still being processed by the server."
    );
    cluster
        .budget("c", json!({"minAvailable": 0}), allows(1, 1, 0))
        .await;
    let reply = cluster.evict("p", "").await;
    assert_eq!(
        (reply.status, text(&reply.json(), "/message")),
        (
            500,
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
        )
    );
    assert!(!cluster.is_being_deleted("p").await);
}
