//! Clusters within a test binary: ten concurrent ones, bare and complete, and stopped when they are dropped.

// A test opens sockets; it is not part of the core.
#![allow(clippy::disallowed_types)]

use berth_client::{ConnectOptions, connect, request};
use berth_test::Cluster;
use serde_json::Value;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(120);
const NODES: &str = "/api/v1/nodes";
const WEB: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: c, image: 'registry.example/c:1'}]}
";

#[tokio::test]
async fn a_deployment_becomes_available() {
    let cluster = Cluster::builder().nodes(3).start().await;
    let cluster = cluster.expect("a cluster");
    cluster
        .apply_and_wait(WEB, PATIENCE)
        .await
        .expect("available");
    let web = "/apis/apps/v1/namespaces/default/deployments/web";
    let web = cluster.get(web).await.expect("the deployment");
    assert_eq!(web["status"]["availableReplicas"], 3);
    let error = cluster
        .get("/api/v1/nodes/none")
        .await
        .expect_err("no node");
    assert!(error.to_string().contains("not found"), "{error}");
}

/// The runtime of the test has one thread. The clusters have a runtime of their own.
#[tokio::test]
async fn ten_clusters_are_independent() {
    let starting: Vec<_> = (0..10)
        .map(|nodes| tokio::spawn(Cluster::builder().nodes(nodes).start()))
        .collect();
    let mut clusters = Vec::new();
    for cluster in starting {
        clusters.push(cluster.await.expect("no panic").expect("a cluster"));
    }
    for (nodes, cluster) in clusters.iter().enumerate() {
        let list = cluster.get(NODES).await.expect("a list");
        assert_eq!(list["items"].as_array().map(Vec::len), Some(nodes));
    }
}

#[tokio::test]
async fn a_kubeconfig_is_for_any_client() {
    let cluster = Cluster::start().await.expect("a cluster");
    let dir = tempfile::tempdir().expect("a directory");
    let kubeconfig = dir.path().join("kubeconfig");
    cluster.write_kubeconfig(&kubeconfig).expect("written");
    let options = ConnectOptions {
        kubeconfig: Some(kubeconfig),
        ..ConnectOptions::default()
    };
    let transport = connect(&options).await.expect("a connection");
    let list = transport.request::<Value>(&request::get_path(NODES)).await;
    let list = list.expect("a list");
    assert_eq!(list["items"].as_array().map(Vec::len), Some(1));
    assert_eq!(transport.server().trim_end_matches('/'), cluster.url());
}

#[tokio::test]
async fn a_bare_cluster_stores_what_it_gets_and_does_nothing() {
    let bare = Cluster::builder().nodes(0).controllers(false);
    let cluster = bare.scheduler(false).start().await.expect("a cluster");
    let account = "/api/v1/namespaces/default/serviceaccounts/default";
    let error = cluster.get(account).await.expect_err("no controller");
    assert!(error.to_string().contains("not found"), "{error}");
    let pod = "{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [{name: c, image: i}]}}";
    cluster.apply(pod).await.expect("applied");
    let pod = cluster.get("/api/v1/namespaces/default/pods/p").await;
    let pod = pod.expect("the pod");
    assert!(pod["spec"]["serviceAccountName"].is_null(), "{pod}");
}

#[tokio::test]
async fn definitions_and_their_objects_are_applied_in_one_call() {
    let cluster = Cluster::start().await.expect("a cluster");
    let applied = cluster
        .apply(
            "
apiVersion: example.com/v1
kind: Shop
metadata: {name: corner}
spec: {open: true}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: shops.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: shops, singular: shop, kind: Shop}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
",
        )
        .await;
    applied.expect("applied");
    let shop = "/apis/example.com/v1/namespaces/default/shops/corner";
    let shop = cluster.get(shop).await.expect("the shop");
    assert_eq!(shop["spec"]["open"], true);
    let error = cluster
        .apply("{apiVersion: v1, kind: Pod, metadata: {name: Bad}}")
        .await;
    let error = error.expect_err("no pod").to_string();
    assert!(error.contains("Pod Bad"), "{error}");
}

#[tokio::test]
async fn what_does_not_become_available_is_named() {
    let cluster = Cluster::builder().nodes(0).start().await;
    let cluster = cluster.expect("a cluster");
    let error = cluster.apply_and_wait(WEB, Duration::from_millis(10)).await;
    let error = error.expect_err("no node runs it").to_string();
    assert!(error.contains("Deployment web"), "{error}");
}

#[tokio::test]
async fn a_dropped_cluster_is_gone() {
    let cluster = Cluster::start().await.expect("a cluster");
    let address = cluster.url().trim_start_matches("https://").to_owned();
    std::net::TcpStream::connect(&address).expect("it listens");
    drop(cluster);
    assert!(std::net::TcpStream::connect(&address).is_err(), "{address}");
}
