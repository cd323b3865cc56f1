//! Jobs in a whole cluster: API server, controllers, scheduler and kubelets.

use super::{DEPLOYMENTS, NODES};
use crate::e2e::{Api, Cluster, eventually};
use berth_client::request::{self, Body, PODS, Resource};
use serde_json::{Value, json};

const JOBS: Resource = Resource {
    group: "batch",
    version: "v1",
    plural: "jobs",
};

/// The numbers of active, failed and terminating pods that a Job reports.
fn counts(api: &Api, name: &str) -> [i64; 3] {
    let job = api.send(&request::get(JOBS, "default", name));
    ["active", "failed", "terminating"].map(|field| job["status"][field].as_i64().unwrap_or(0))
}

/// Deletes a pod with seconds of grace.
fn delete(api: &Api, name: &str, grace: u32) {
    let mut request = request::delete(PODS, "default", name, &json!({}));
    let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": grace});
    request.body = Body::Value(options);
    api.send(&request);
}

/// The names of the pods that run and are not being deleted.
fn running(api: &Api) -> Vec<String> {
    let mut pods = api.pods();
    pods.retain(|pod| {
        pod["status"]["phase"] == "Running" && pod["metadata"]["deletionTimestamp"].is_null()
    });
    let names = pods.iter().map(|pod| pod["metadata"]["name"].as_str());
    names
        .map(|name| name.unwrap_or_default().to_owned())
        .collect()
}

/// The pod does not end by itself and uses its full grace period, so that each state lasts until the test continues.
#[test]
fn a_job_replaces_pods_only_after_they_have_failed_if_its_policy_says_so() {
    let cluster = Cluster::up("up-replacement", &["--nodes", "1"]);
    let api = Api::of(&cluster);
    let annotations = json!({"berth.dev/run-seconds": "3600", "berth.dev/stop-seconds": "3600"});
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "train"},
        "spec": {
            "podReplacementPolicy": "Failed", "backoffLimit": 1,
            "template": {
                "metadata": {"annotations": annotations},
                "spec": {
                    "restartPolicy": "Never",
                    "containers": [{"name": "c", "image": "registry.example/c:1"}],
                },
            },
        },
    });
    api.send(&request::create(JOBS, "default", &job));
    let first = eventually("the pod runs", || running(&api).pop());

    delete(&api, &first, 1800);
    eventually("the Job waits for the end of its pod", || {
        (counts(&api, "train") == [0, 0, 1]).then_some(())
    });
    let pods = api.pods();
    assert_eq!(pods.len(), 1, "{pods:?}");
    assert_eq!(pods[0]["status"]["phase"], "Running");

    // The process does not end on SIGTERM: it is killed after a second, and the pod has failed.
    delete(&api, &first, 1);
    eventually("the failed pod is replaced", || {
        (counts(&api, "train") == [1, 1, 0]).then_some(())
    });
    let second = eventually("the second pod runs", || running(&api).pop());
    assert_ne!(second, first);

    let ends = json!({"metadata": {"annotations": {"berth.dev/run-seconds": "0"}}});
    api.send(&request::merge_patch(PODS, "default", &second, &ends));
    let job = eventually("the Job is complete", || {
        let job = api.send(&request::get(JOBS, "default", "train"));
        let conditions = job["status"]["conditions"].as_array().cloned();
        let conditions = conditions.unwrap_or_default();
        let is_complete = |c: &Value| c["type"] == "Complete" && c["status"] == "True";
        conditions.iter().any(is_complete).then_some(job)
    });
    let status = &job["status"];
    assert_eq!(
        (&status["succeeded"], &status["failed"]),
        (&json!(1), &json!(1))
    );
}

/// A kubelet rejects all pods of a Deployment although its node has the best score: the next pods get another node, and
/// few pods fail.
#[test]
fn pods_leave_a_node_whose_kubelet_rejects_them() {
    let cluster = Cluster::up("up-rejections", &["--nodes", "2"]);
    let api = Api::of(&cluster);
    let rejects = json!({"metadata": {"annotations": {"berth.dev/reject-pods": "OutOfcpu"}}});
    api.send(&request::merge_patch(NODES, "", "berth-node-1", &rejects));
    let container = |cpu: &str| json!([{"name": "c", "image": "registry.example/c:1", "resources": {"requests": {"cpu": cpu}}}]);
    // The other node has less room, so its score is lower.
    let there = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "there"},
        "spec": {"nodeName": "berth-node-2", "containers": container("1")},
    });
    api.send(&request::create(PODS, "default", &there));
    eventually("the other node has a pod", || {
        running(&api).contains(&"there".to_owned()).then_some(())
    });
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": container("500m")},
            },
        },
    });
    api.send(&request::create(DEPLOYMENTS, "default", &deployment));
    eventually("both pods of the Deployment run", || {
        (running(&api).len() == 3).then_some(())
    });
    let pods = api.pods();
    let failed = pods.iter().filter(|p| p["status"]["phase"] == "Failed");
    let failed: Vec<&Value> = failed.collect();
    assert!(
        failed.iter().all(|p| p["status"]["reason"] == "OutOfcpu"),
        "{failed:?}"
    );
    // Both pods are placed at the same time, at most a few times.
    assert!((1..=6).contains(&failed.len()), "{failed:?}");
    let counted = cluster.metric("scheduler_kubelet_rejections_total", "OutOfcpu");
    assert_eq!(counted, failed.len() as f64);
}
