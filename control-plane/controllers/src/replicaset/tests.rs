//! The ReplicaSet controller against an API: the results that users see.

use super::*;
use crate::runtime::Handle;
use crate::testing::{Fake, eventually, make_ready, pass, refused};
use berth_objects::access::Access;
use berth_objects::object::{
    EVENT, POD, REPLICATION_CONTROLLER, condition, controller_of, name, owner_references, uid,
};
use serde_json::{Value, json};
use std::sync::Arc;

fn replica_set(name: &str, replicas: u32) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "n"},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}},
                 "template": {"metadata": {"labels": {"app": name}},
                              "spec": {"containers": [{"name": "c", "image": "i"}]}}},
    })
}

fn start(api: &Arc<Fake>) -> Handle {
    let mut handle = Handle::new();
    handle.start(ReplicaSets::new(REPLICA_SET), api.clone(), api.clock());
    handle
}

fn pods(api: &Fake) -> Vec<StoredObject> {
    api.list(POD.resource, Some("n"))
}

fn active(api: &Fake) -> usize {
    pods(api).iter().filter(|p| pod::is_active(p)).count()
}

fn status(api: &Fake, name: &str) -> Value {
    api.get(REPLICA_SET.resource, "n", name).unwrap()["status"].clone()
}

#[tokio::test(start_paused = true)]
async fn keeps_as_many_pods_as_asked_for() {
    let api = Fake::new();
    let handle = start(&api);
    api.create(REPLICA_SET.resource, replica_set("web", 3))
        .unwrap();
    eventually("three pods", || status(&api, "web")["replicas"] == 3).await;
    let set = api.get(REPLICA_SET.resource, "n", "web").unwrap();
    for pod in pods(&api) {
        assert!(name(&pod).starts_with("web-"), "{}", name(&pod));
        assert_eq!(pod["metadata"]["labels"]["app"], "web");
        assert_eq!(
            owner_references(&pod),
            [
                json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web",
                    "uid": uid(&set), "controller": true, "blockOwnerDeletion": true})
            ]
        );
    }
    // One fails and is replaced; it stays for people to look at.
    let failed = pods(&api)[0].clone();
    api.edit_status(POD.resource, ("n", name(&failed)), |p| {
        p["status"]["phase"] = "Failed".into()
    });
    eventually("a replacement", || {
        active(&api) == 3 && pods(&api).len() == 4
    })
    .await;
    // After scaling down, the ready pods remain.
    let ready = pods(&api)[2].clone();
    make_ready(&api, &ready);
    api.edit(REPLICA_SET.resource, ("n", "web"), |s| {
        s["spec"]["replicas"] = 1.into()
    });
    eventually("one pod", || {
        status(&api, "web")["availableReplicas"] == 1 && active(&api) == 1
    })
    .await;
    assert!(pods(&api).iter().any(|p| uid(p) == uid(&ready)));
    eventually("the status", || {
        status(&api, "web")["observedGeneration"] == 2
    })
    .await;
    handle.stop().await;
}

#[tokio::test(start_paused = true)]
async fn adopts_what_matches_and_releases_what_no_longer_does() {
    let api = Fake::new();
    let labelled = |name: &str, app: &str| json!({"metadata": {"name": name, "namespace": "n", "labels": {"app": app}}, "spec": {}});
    api.create(POD.resource, labelled("early", "web")).unwrap();
    api.create(POD.resource, labelled("other", "api")).unwrap();
    let handle = start(&api);
    api.create(REPLICA_SET.resource, replica_set("web", 2))
        .unwrap();
    eventually("early is adopted and one is made", || {
        status(&api, "web")["replicas"] == 2 && pods(&api).len() == 3
    })
    .await;
    let owned = |name: &str| controller_of(&api.get(POD.resource, "n", name).unwrap()).is_some();
    assert!(owned("early") && !owned("other"));
    // After a change of its label the pod is released, and a new pod replaces it.
    api.edit(POD.resource, ("n", "early"), |p| {
        p["metadata"]["labels"]["app"] = "old".into()
    });
    eventually("early is free", || !owned("early") && pods(&api).len() == 4).await;
    // And back: there is one pod too many, which is deleted.
    api.edit(POD.resource, ("n", "early"), |p| {
        p["metadata"]["labels"]["app"] = "web".into()
    });
    eventually("one too many", || {
        pods(&api).len() == 3 && status(&api, "web")["replicas"] == 2
    })
    .await;
    handle.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_counts_as_available_after_min_ready_seconds() {
    let api = Fake::new();
    let handle = start(&api);
    let mut set = replica_set("web", 1);
    set["spec"]["minReadySeconds"] = 30.into();
    api.create(REPLICA_SET.resource, set).unwrap();
    eventually("a pod", || active(&api) == 1).await;
    make_ready(&api, &pods(&api)[0]);
    pass(20.0).await;
    assert_eq!(status(&api, "web")["readyReplicas"], 1);
    assert!(status(&api, "web")["availableReplicas"].is_null());
    pass(11.0).await;
    assert_eq!(status(&api, "web")["availableReplicas"], 1);
    handle.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_reported_and_tried_again_slowly() {
    let api = Fake::new();
    let (tries, allowed) = (Arc::new(std::sync::Mutex::new(0)), 5);
    let counted = tries.clone();
    api.set_fault(move |verb, kind, _| {
        if (verb, kind) != ("create", POD.resource) {
            return None;
        }
        let mut tries = counted.lock().unwrap();
        *tries += 1;
        (*tries > allowed).then(|| refused(403, "Forbidden", "exceeded quota: q"))
    });
    let handle = start(&api);
    api.create(REPLICA_SET.resource, replica_set("web", 100))
        .unwrap();
    pass(0.001).await;
    // Batches of 1, 2 and 4; two creations of the last are refused, and the rest is not attempted. The created pods
    // cause a second reconcile, which attempts one.
    assert_eq!((*tries.lock().unwrap(), active(&api)), (8, 5));
    let status = status(&api, "web");
    let failure = condition(&status, "ReplicaFailure").unwrap();
    assert_eq!(failure["reason"], "FailedCreate");
    assert_eq!(failure["message"], "exceeded quota: q");
    let events = api.list(EVENT.resource, Some("n"));
    assert!(
        events.iter().any(|e| e["reason"] == "FailedCreate"
            && e["message"] == "Error creating: exceeded quota: q")
    );
    pass(60.0).await;
    assert!(*tries.lock().unwrap() < 30, "{}", tries.lock().unwrap());
    api.set_fault(|_, _, _| None);
    eventually("all are made", || active(&api) == 100).await;
    eventually("the condition goes", || {
        let set = api.get(REPLICA_SET.resource, "n", "web").unwrap();
        set["status"]["replicas"] == 100 && condition(&set["status"], "ReplicaFailure").is_none()
    })
    .await;
    handle.stop().await;
}

#[tokio::test(start_paused = true)]
async fn more_pods_than_one_burst_are_made_and_deleted() {
    let api = Fake::new();
    let handle = start(&api);
    api.create(REPLICA_SET.resource, replica_set("web", 1203))
        .unwrap();
    eventually("all are made", || status(&api, "web")["replicas"] == 1203).await;
    assert_eq!(pods(&api).len(), 1203);
    api.edit(REPLICA_SET.resource, ("n", "web"), |s| {
        s["spec"]["replicas"] = 0.into()
    });
    eventually("all are gone", || pods(&api).is_empty()).await;
    handle.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_replication_controller_keeps_as_many_pods_as_asked_for() {
    let api = Fake::new();
    let mut handle = Handle::new();
    let controller = ReplicaSets::new(REPLICATION_CONTROLLER);
    handle.start(controller, api.clone(), api.clock());
    let mut object = replica_set("web", 2);
    object["spec"]["selector"] = json!({"app": "web"});
    api.create(REPLICATION_CONTROLLER.resource, object).unwrap();
    // An orphan that matches is adopted.
    let orphan = json!({"metadata": {"name": "o", "namespace": "n", "labels": {"app": "web"}}});
    api.create(POD.resource, orphan).unwrap();
    let status = || {
        api.get(REPLICATION_CONTROLLER.resource, "n", "web")
            .unwrap()["status"]
            .clone()
    };
    eventually("two pods", || {
        status()["replicas"] == 2 && active(&api) == 2
    })
    .await;
    for pod in pods(&api).iter().filter(|p| pod::is_active(p)) {
        assert_eq!(controller_of(pod).unwrap()["kind"], "ReplicationController");
    }
}

#[tokio::test(start_paused = true)]
async fn a_set_whose_pods_fail_at_once_creates_them_later_and_later() {
    let api = Fake::new();
    let handle = start(&api);
    api.create(REPLICA_SET.resource, replica_set("web", 1))
        .unwrap();
    // As a kubelet that rejects every pod.
    let fail_all = || {
        for pod in pods(&api).iter().filter(|p| pod::is_active(p)) {
            api.edit_status(POD.resource, ("n", name(pod)), |p| {
                p["status"]["phase"] = "Failed".into()
            });
        }
    };
    for _ in 0..6000 {
        fail_all();
        pass(0.1).await;
    }
    let count = pods(&api).len();
    assert!((14..=18).contains(&count), "{count} pods in ten minutes");
    // A pod that does not fail is kept, and the set rests.
    eventually("another pod", || active(&api) == 1).await;
    let pod = pods(&api)
        .into_iter()
        .find(|p| pod::is_active(p))
        .expect("it was counted");
    make_ready(&api, &pod);
    eventually("it is ready", || status(&api, "web")["readyReplicas"] == 1).await;
    let runs = handle.activity()[0].runs;
    pass(3600.0).await;
    assert!(handle.activity()[0].runs - runs <= 1);
    handle.stop().await;
}

#[tokio::test(start_paused = true)]
async fn five_thousand_pods_are_created_without_a_pause() {
    let api = Fake::new();
    let handle = start(&api);
    let begin = api.clock().now();
    api.create(REPLICA_SET.resource, replica_set("web", 5000))
        .unwrap();
    eventually("all pods", || active(&api) == 5000).await;
    let took = api.clock().now().duration_since(begin).as_secs_f64();
    assert!(took < 2.0, "{took} s of virtual time");
    handle.stop().await;
}
