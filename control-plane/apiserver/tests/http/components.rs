//! ComponentStatuses: `kubectl get componentstatuses`.

use super::*;

const PATH: &str = "/api/v1/componentstatuses";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";

/// Status and message of a component.
async fn health(cluster: &Cluster, name: &str) -> (String, String) {
    let status = cluster.get(&format!("{PATH}/{name}")).await.json();
    let condition = at(&status, "/conditions/0");
    assert_eq!(condition["type"], "Healthy", "{status}");
    (
        text(condition, "/status").to_owned(),
        text(condition, "/message").to_owned(),
    )
}

#[tokio::test]
async fn components_report_their_health() {
    let cluster = Cluster::start().await;
    let listed = cluster.get(PATH).await;
    let deprecated = "299 - \"v1 ComponentStatus is deprecated in v1.19+\"";
    assert_eq!(listed.header("warning"), deprecated);
    let listed = listed.json();
    assert_eq!(
        names(&listed),
        ["scheduler", "controller-manager", "etcd-0"]
    );
    assert_eq!(
        health(&cluster, "etcd-0").await,
        ("True".to_owned(), "ok".to_owned())
    );
    assert_eq!(health(&cluster, "controller-manager").await.0, "False");
    let missing = cluster.get(&format!("{PATH}/other")).await;
    assert_eq!(
        (missing.status, text(&missing.json(), "/message")),
        (404, "componentstatus \"other\" not found")
    );
    assert_eq!(missing.header("warning"), deprecated);
    let refused = cluster
        .post(PATH, &json!({"metadata": {"name": "x"}}))
        .await;
    assert_eq!(refused.status, 405, "{}", refused.text());
}

/// The scheduler is healthy while it renews its Lease.
#[tokio::test]
async fn the_scheduler_is_as_healthy_as_its_lease() {
    let cluster = Cluster::start().await;
    let lease = |renewed: &str| {
        json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "kube-scheduler"},
            "spec": {"holderIdentity": "a", "leaseDurationSeconds": 15, "renewTime": renewed},
        })
    };
    let unhealthy = |message: &str| ("False".to_owned(), message.to_owned());
    assert_eq!(
        health(&cluster, "scheduler").await,
        unhealthy("no scheduler holds the Lease kube-system/kube-scheduler")
    );
    cluster
        .create(LEASES, &lease("2020-01-01T00:00:00.000000Z"))
        .await;
    assert_eq!(
        health(&cluster, "scheduler").await,
        unhealthy("the Lease kube-system/kube-scheduler of a is not renewed")
    );
    let path = format!("{LEASES}/kube-scheduler");
    let patch = json!({"spec": {"renewTime": "2199-01-01T00:00:00.000000Z"}});
    cluster.merge(&path, &patch).await;
    assert_eq!(
        health(&cluster, "scheduler").await,
        ("True".to_owned(), "ok".to_owned())
    );
}
