//! HorizontalPodAutoscalers in both versions.

use super::*;

const V1: &str = "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers";
const V2: &str = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers";

fn autoscaler(version: &str, spec: Value) -> Value {
    let mut autoscaler = json!({
        "apiVersion": format!("autoscaling/{version}"),
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web"},
        "spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}, "maxReplicas": 5},
    });
    for (field, value) in spec.as_object().into_iter().flatten() {
        autoscaler["spec"][field] = value.clone();
    }
    autoscaler
}

#[tokio::test]
async fn an_autoscaler_is_the_same_in_both_versions() {
    let cluster = Cluster::start().await;
    let created = autoscaler("v1", json!({"targetCPUUtilizationPercentage": 60}));
    let created = cluster.create(V1, &created).await;
    assert_eq!(*at(&created, "/spec/minReplicas"), json!(1));
    assert_eq!(
        *at(&created, "/spec/targetCPUUtilizationPercentage"),
        json!(60)
    );
    let shown = cluster.get(&format!("{V2}/web")).await.json();
    assert_eq!(text(&shown, "/apiVersion"), "autoscaling/v2");
    assert_eq!(
        *at(&shown, "/spec/metrics/0/resource"),
        json!({"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 60}})
    );
    // A field that version 1 does not have survives a change in version 1.
    let memory = json!({"type": "Resource", "resource": {"name": "memory", "target": {"type": "AverageValue", "averageValue": "1Gi"}}});
    let metrics = json!({"spec": {"metrics": [memory, at(&shown, "/spec/metrics/0")]}});
    let reply = cluster.merge(&format!("{V2}/web"), &metrics).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    let reply = cluster
        .merge(&format!("{V1}/web"), &json!({"spec": {"maxReplicas": 9}}))
        .await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    let shown = cluster.get(&format!("{V2}/web")).await.json();
    assert_eq!(*at(&shown, "/spec/metrics/0"), memory);
    assert_eq!(*at(&shown, "/spec/maxReplicas"), json!(9));
    for path in [V1, V2] {
        assert_eq!(names(&cluster.get(path).await.json()), ["web"], "{path}");
        let ask = Ask {
            path: path.to_owned(),
            accept: "application/vnd.kubernetes.protobuf".to_owned(),
            ..Ask::default()
        };
        let reply = cluster.ask(ask).await;
        assert_eq!(reply.status, 200, "{path}");
    }
    let groups = cluster.get("/apis/autoscaling").await.json();
    assert_eq!(text(&groups, "/preferredVersion/version"), "v2");
}
