//! `berth apiserver` and `berth scheduler` as two processes: the scheduler has no way in but the API.

use crate::e2e::{Api, Cluster, Running, eventually};
use berth_client::request::{self, PODS};
use serde_json::json;
use std::ops::Range;

fn create(api: &Api, pods: Range<usize>) {
    for index in pods {
        let pod = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": format!("pod-{index}"), "namespace": "default"},
            "spec": {"containers": [{"name": "c", "image": "registry.example/c:1"}]},
        });
        api.send(&request::create(PODS, "default", &pod));
    }
}

fn has_scheduled(scheduler: &Running, pods: usize) {
    let attempts = "scheduler_schedule_attempts_total";
    let scheduled = "profile=\"default-scheduler\",result=\"scheduled\"";
    eventually("the pods are scheduled", || {
        (scheduler.metric(attempts, scheduled) == pods as f64).then_some(())
    });
}

#[test]
fn a_scheduler_of_its_own_schedules_and_takes_over_from_one_that_was_killed() {
    let server = Cluster::apiserver("halves", &["--nodes", "3"]);
    let api = Api::of(&server);
    assert!(server.http_get("/healthz").ends_with("ok"));
    let nodes = server.metric("apiserver_storage_objects", "resource=\"nodes\"");
    assert_eq!(nodes, 3.0);

    let first = server.scheduler(&[]);
    assert!(first.http_get("/healthz").ends_with("ok"));
    create(&api, 0..5);
    has_scheduled(&first, 5);
    // Dropping kills the process without a graceful shutdown.
    drop(first);
    create(&api, 5..10);
    let second = server.scheduler(&[]);
    // The five that wait, and none of the five that were bound before.
    has_scheduled(&second, 5);
    assert_eq!(second.pending("active"), 0.0);
}
