//! The same objects from within the process.

use super::*;
use berth_objects::access::{DeleteOptions, WatchedChange, gr};

#[tokio::test]
async fn controllers_see_and_do_what_clients_do() {
    let cluster = Cluster::start().await;
    let api = cluster.server.api("test");
    let config_maps = gr("", "configmaps");
    cluster
        .create(CONFIG_MAPS, &config_map("before", json!({})))
        .await;
    let mut changes = api.watch(config_maps);
    let mut object = config_map("a", json!({}));
    object["metadata"]["namespace"] = json!("default");
    let created = match api.create(config_maps, object.clone()) {
        Ok(created) => created,
        Err(e) => panic!("{e}"),
    };
    let mut shown = cluster.get(&format!("{CONFIG_MAPS}/a")).await.json();
    let fields = &mut shown["metadata"]["managedFields"][0]["fieldsV1"];
    *fields = fields.to_string().into();
    assert_eq!(shown["metadata"], created["metadata"]);
    assert!(
        api.create(config_maps, object.clone())
            .is_err_and(|e| e.is_conflict())
    );

    let mut stale = Value::clone(&created);
    stale["data"] = json!({"a": "c"});
    assert!(api.update(config_maps, stale.clone()).is_ok());
    assert!(
        api.update(config_maps, stale)
            .is_err_and(|e| e.is_conflict())
    );

    let other = DeleteOptions {
        uid: Some("other".to_owned()),
        ..DeleteOptions::default()
    };
    assert!(
        api.delete(config_maps, "default", "a", &other)
            .is_err_and(|e| e.is_conflict())
    );
    assert!(
        api.delete(config_maps, "default", "a", &DeleteOptions::default())
            .is_ok()
    );
    assert!(
        api.get(config_maps, "default", "a")
            .is_err_and(|e| e.is_not_found())
    );
    assert_eq!(api.list(config_maps, Some("default")).len(), 1);
    assert_eq!(api.list(config_maps, Some("kube-public")).len(), 0);

    let mut seen = Vec::new();
    while seen.last().is_none_or(|last| last != "deleted a") {
        let Ok(Some(change)) = timeout(PATIENCE, changes.next()).await else {
            panic!("no more changes after {seen:?}");
        };
        let (kind, object) = match change {
            WatchedChange::Added(object) => ("added", object),
            WatchedChange::Modified(object) => ("modified", object),
            WatchedChange::Deleted(object) => ("deleted", object),
        };
        if text(&object, "/metadata/namespace") == "default" {
            seen.push(format!("{kind} {}", text(&object, "/metadata/name")));
        }
    }
    assert_eq!(seen, ["added before", "added a", "modified a", "deleted a"]);

    let missing = api.create(
        config_maps,
        json!({"metadata": {"name": "x", "namespace": "nope"}}),
    );
    assert!(missing.is_err_and(|e| e.code == 404));
    let nodes = api.kinds().iter().filter(|k| k.kind == "Node").count();
    let events = api.kinds().iter().filter(|k| k.kind == "Event").count();
    assert_eq!((nodes, events), (1, 1));
}

/// As with deletions by clients, other controllers can read the pod before its removal.
#[tokio::test]
async fn a_pod_that_a_controller_removes_is_marked_first() {
    let cluster = Cluster::start().await;
    let api = cluster.server.api("test");
    let pods = gr("", "pods");
    cluster.create(PODS, &pod("p")).await;
    let mut changes = api.watch(pods);
    let now = DeleteOptions {
        grace_period_seconds: Some(0),
        ..DeleteOptions::default()
    };
    assert!(api.delete(pods, "default", "p", &now).is_ok());
    // Without an await point, the second step has not run yet.
    let Ok(marked) = api.get(pods, "default", "p") else {
        panic!("it is there for a moment");
    };
    assert_eq!(
        at(&marked, "/metadata/deletionGracePeriodSeconds"),
        &json!(0)
    );
    loop {
        match timeout(PATIENCE, changes.next()).await {
            Ok(Some(WatchedChange::Deleted(_))) => break,
            Ok(Some(_)) => {}
            other => panic!("{other:?}"),
        }
    }
    assert!(
        api.get(pods, "default", "p")
            .is_err_and(|e| e.is_not_found())
    );
}

#[tokio::test]
async fn the_two_halves_of_an_object_are_written_apart() {
    let cluster = Cluster::start().await;
    let api = cluster.server.api("test");
    let deployments = gr("apps", "deployments");
    cluster.create(DEPLOYMENTS, &deployment("d")).await;
    let Ok(current) = api.get(deployments, "default", "d") else {
        panic!("it was created");
    };
    let mut both = Value::clone(&current);
    both["spec"]["replicas"] = json!(9);
    both["status"] = json!({"replicas": 4});
    both["metadata"]["resourceVersion"] = Value::Null;
    let status = api.update_status(deployments, both.clone());
    let halves = |o: &Value| {
        (
            o["spec"]["replicas"].clone(),
            o["status"]["replicas"].clone(),
        )
    };
    assert_eq!(status.map(|o| halves(&o)).ok(), Some((json!(2), json!(4))));
    both["status"] = json!({"replicas": 5});
    let main = api.update(deployments, both);
    assert_eq!(main.map(|o| halves(&o)).ok(), Some((json!(9), json!(4))));
}
