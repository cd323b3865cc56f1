//! The disruption controller against an API: the status that users see.

use super::*;
use crate::runtime::Handle;
use crate::testing::{Fake, eventually};
use berth_objects::access::Access;
use berth_objects::object::{EVENT, condition, seconds};
use std::sync::Arc;

fn start() -> (Arc<Fake>, Handle) {
    let api = Fake::new();
    let mut handle = Handle::new();
    handle.start(Disruption, api.clone(), api.clock());
    (api, handle)
}

fn budget(spec: Value) -> Value {
    let mut spec = spec;
    spec["selector"] = json!({"matchLabels": {"app": "web"}});
    json!({"metadata": {"name": "b", "namespace": "n"}, "spec": spec})
}

/// A deployment with `replicas`, its replica set, and `pods` pods; `ready` of them are ready.
fn deploy(api: &Fake, replicas: i32, pods: usize, ready: usize) {
    let owned = |kind: &str, above: &Value| json!([{"apiVersion": "apps/v1", "kind": kind, "name": name(above), "uid": uid(above), "controller": true}]);
    let deployment =
        json!({"metadata": {"name": "web", "namespace": "n"}, "spec": {"replicas": replicas}});
    let deployment = api.create(DEPLOYMENT.resource, deployment).unwrap();
    // A replica set in the middle of a roll-out; the deployment's number counts.
    let set = json!({"metadata": {"name": "web-1", "namespace": "n", "ownerReferences": owned("Deployment", &deployment)},
        "spec": {"replicas": 1}});
    let set = api.create(REPLICA_SET.resource, set).unwrap();
    for i in 0..pods {
        let pod = json!({"metadata": {"name": format!("web-1-{i}"), "namespace": "n", "labels": {"app": "web"},
            "ownerReferences": owned("ReplicaSet", &set)}});
        api.create(POD.resource, pod).unwrap();
        let state = if i < ready { "True" } else { "False" };
        api.edit_status(POD.resource, ("n", &format!("web-1-{i}")), |p| {
            p["status"] =
                json!({"phase": "Running", "conditions": [{"type": "Ready", "status": state}]});
        });
    }
}

fn status_of(api: &Fake) -> Value {
    api.get(DISRUPTION_BUDGET.resource, "n", "b").unwrap()["status"].clone()
}

/// Allowed disruptions, healthy pods, desired healthy pods, all pods.
fn numbers(api: &Fake) -> [i64; 4] {
    let status = status_of(api);
    [
        "disruptionsAllowed",
        "currentHealthy",
        "desiredHealthy",
        "expectedPods",
    ]
    .map(|field| status[field].as_i64().unwrap_or(-1))
}

#[tokio::test(start_paused = true)]
async fn a_status_follows_the_pods_and_their_controllers() {
    // (spec, replicas, pods, ready pods, the numbers)
    let cases = [
        (json!({"minAvailable": 2}), 3, 3, 3, [1, 3, 2, 3]),
        (json!({"minAvailable": 2}), 3, 3, 1, [0, 1, 2, 3]),
        (json!({"minAvailable": "50%"}), 5, 4, 4, [1, 4, 3, 5]),
        (json!({"maxUnavailable": 1}), 4, 4, 4, [1, 4, 3, 4]),
        (json!({"maxUnavailable": 1}), 4, 3, 3, [0, 3, 3, 4]),
        (json!({"maxUnavailable": "30%"}), 4, 4, 4, [2, 4, 2, 4]),
        (json!({"maxUnavailable": "100%"}), 2, 2, 0, [0, 0, 0, 2]),
        (json!({}), 2, 2, 2, [0, 2, 0, 0]),
    ];
    for (spec, replicas, pods, ready, expect) in cases {
        let (api, handle) = start();
        deploy(&api, replicas, pods, ready);
        let shown = spec.to_string();
        api.create(DISRUPTION_BUDGET.resource, budget(spec))
            .unwrap();
        eventually(&format!("{shown}: {expect:?}"), || numbers(&api) == expect).await;
        let status = status_of(&api);
        let allowed = condition(&status, "DisruptionAllowed").unwrap();
        let (state, reason) = match expect[0] {
            0 => ("False", "InsufficientPods"),
            _ => ("True", "SufficientPods"),
        };
        assert_eq!(
            (&allowed["status"], &allowed["reason"]),
            (&json!(state), &json!(reason)),
            "{shown}"
        );
        assert_eq!(status["observedGeneration"], 1, "{shown}");
        handle.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_admitted_eviction_counts_until_it_times_out() {
    let (api, handle) = start();
    deploy(&api, 3, 3, 3);
    let mut object = budget(json!({"minAvailable": 1}));
    object["status"] = json!({"disruptedPods": {"web-1-0": seconds(api.clock().now())}});
    api.create(DISRUPTION_BUDGET.resource, object).unwrap();
    eventually("the pod counts as gone", || numbers(&api) == [1, 2, 1, 3]).await;
    // The pod is not deleted. Time passes only while the test waits.
    eventually("the pod counts again", || numbers(&api) == [2, 3, 1, 3]).await;
    assert_eq!(status_of(&api)["disruptedPods"], Value::Null);
    handle.stop().await;
}

#[tokio::test(start_paused = true)]
async fn pods_whose_number_is_unknown_allow_no_disruption() {
    let (api, handle) = start();
    let owner = json!([{"apiVersion": "x.io/v1", "kind": "Gang", "name": "g", "uid": "u", "controller": true}]);
    let pod = json!({"metadata": {"name": "p", "namespace": "n", "labels": {"app": "web"}, "ownerReferences": owner}});
    api.create(POD.resource, pod).unwrap();
    let object = budget(json!({"maxUnavailable": 1}));
    api.create(DISRUPTION_BUDGET.resource, object).unwrap();
    eventually("the failure is reported", || {
        condition(&status_of(&api), "DisruptionAllowed").is_some_and(|c| {
            c["reason"] == "SyncFailed" && c["message"] == "found no controllers for pod \"p\""
        })
    })
    .await;
    assert_eq!(status_of(&api)["disruptionsAllowed"], 0);
    let events = api.list(EVENT.resource, Some("n"));
    let reasons: Vec<&Value> = events.iter().map(|e| &e["reason"]).collect();
    assert!(
        reasons.contains(&&json!("CalculateExpectedPodCountFailed")),
        "{reasons:?}"
    );
    handle.stop().await;
}
