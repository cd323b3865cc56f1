//! Patches of one object by many writers at the same time: a patch that sets no version itself never conflicts.

use super::webhooks::MUTATING;
use super::webhooks::receiver::{Webhook, rule};
use super::*;
use std::sync::Arc;

const WRITERS: usize = 20;
const JSON: &str = "application/json-patch+json";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

/// The request of a writer: the content type, the path, and the body for the number of the writer.
type Write = (&'static str, String, fn(usize) -> Value);

fn writes() -> Vec<Write> {
    let deployment = format!("{DEPLOYMENTS}/d");
    vec![
        (
            JSON,
            deployment.clone(),
            |i| json!([{"op": "add", "path": format!("/metadata/labels/json-{i}"), "value": "x"}]),
        ),
        (
            MERGE,
            deployment.clone(),
            |i| json!({"metadata": {"labels": {format!("merge-{i}"): "x"}}}),
        ),
        (
            STRATEGIC,
            deployment.clone(),
            |i| json!({"metadata": {"labels": {format!("strategic-{i}"): "x"}}}),
        ),
        (
            MERGE,
            format!("{deployment}/status"),
            |i| json!({"status": {"observedGeneration": i}}),
        ),
        (
            MERGE,
            format!("{deployment}/scale"),
            |i| json!({"spec": {"replicas": i}}),
        ),
        (APPLY, deployment, |i| {
            json!({
                "apiVersion": "apps/v1", "kind": "Deployment",
                "metadata": {"name": "d", "labels": {format!("apply-{i}"): "x"}},
            })
        }),
    ]
}

/// Sends the write of each writer at the same time, and returns the answers other than 200.
async fn write_all(cluster: &Arc<Cluster>, (content_type, path, body): &Write) -> Vec<String> {
    let writers = (0..WRITERS).map(|i| {
        let (cluster, content_type) = (Arc::clone(cluster), *content_type);
        let path = format!("{path}?fieldManager=writer-{i}");
        let body = body(i);
        tokio::spawn(async move { cluster.send_as("PATCH", &path, content_type, &body).await })
    });
    let mut faults = Vec::new();
    for writer in writers.collect::<Vec<_>>() {
        let reply = writer.await.expect("no panic");
        if reply.status != 200 {
            faults.push(reply.text());
        }
    }
    faults
}

async fn with_a_deployment() -> Arc<Cluster> {
    let cluster = Arc::new(Cluster::start().await);
    let mut object = deployment("d");
    object["metadata"]["labels"] = json!({"a": "b"});
    cluster.create(DEPLOYMENTS, &object).await;
    cluster
}

/// API-70.
#[tokio::test(flavor = "multi_thread")]
async fn patches_at_the_same_time_all_succeed() {
    let cluster = with_a_deployment().await;
    for write in writes() {
        for _ in 0..5 {
            assert_eq!(write_all(&cluster, &write).await, [""; 0], "{write:?}");
        }
    }
    let labels = cluster.get(&format!("{DEPLOYMENTS}/d")).await.json();
    let labels = at(&labels, "/metadata/labels")
        .as_object()
        .map_or(0, |l| l.len());
    assert_eq!(labels, 1 + 4 * WRITERS);
}

/// API-70.
#[tokio::test(flavor = "multi_thread")]
async fn patches_succeed_that_a_webhook_holds_until_others_were_stored() {
    for write in writes() {
        let (cluster, webhook) = (with_a_deployment().await, Webhook::start().await);
        webhook.answer("/held", |_| json!({"allowed": true}));
        let rules = ["deployments", "deployments/status", "deployments/scale"];
        let rules = rules.map(|resource| rule("apps", resource, "UPDATE"));
        let hook = webhook.hook("/held", json!({"rules": rules, "timeoutSeconds": 30}));
        cluster.configure(MUTATING, json!([hook])).await;
        // All writers have read the same version before the first answer.
        let (faults, ()) = tokio::join!(write_all(&cluster, &write), webhook.release(WRITERS));
        assert_eq!(faults, [""; 0], "{write:?}");
    }
}

/// API-70.
#[tokio::test]
async fn a_version_that_the_patch_sets_is_insisted_on() {
    let cluster = with_a_deployment().await;
    let path = format!("{DEPLOYMENTS}/d");
    let version = cluster.get(&path).await.json();
    let version = text(&version, "/metadata/resourceVersion").to_owned();
    let relabel = |version: &str, value: &str| json!({"metadata": {"resourceVersion": version, "labels": {"a": value}}});
    let first = cluster.merge(&path, &relabel(&version, "c")).await;
    assert_eq!(first.status, 200, "{}", first.text());
    let late = cluster.merge(&path, &relabel(&version, "d")).await;
    assert_eq!(late.status, 409, "{}", late.text());
    let scale = json!({"metadata": {"resourceVersion": version}, "spec": {"replicas": 3}});
    let late = cluster.merge(&format!("{path}/scale"), &scale).await;
    assert_eq!(late.status, 409, "{}", late.text());
}
