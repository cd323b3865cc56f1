//! The Job controller against an API: the results that users see.

use super::*;
use crate::runtime::Handle;
use crate::testing::{Fake, eventually, pass};
use berth_objects::access::Access;
use berth_objects::object::{condition_is_true, seconds};
use std::sync::Arc;

fn start(spec: Value) -> (Arc<Fake>, Handle) {
    let api = Fake::new();
    let mut job = json!({
        "metadata": {"name": "j", "namespace": "n"},
        "spec": {
            "parallelism": 2, "completions": 3, "backoffLimit": 6,
            "selector": {"matchLabels": {"job-name": "j"}},
            "template": {"metadata": {"labels": {"job-name": "j"}},
                         "spec": {"restartPolicy": "Never",
                                  "containers": [{"name": "c", "image": "i"}]}},
        },
    });
    for (field, value) in spec.as_object().into_iter().flatten() {
        job["spec"][field] = value.clone();
    }
    api.create(JOB.resource, job).expect("created");
    let mut handle = Handle::new();
    handle.start(Jobs::new(true), api.clone(), api.clock());
    (api, handle)
}

fn pods(api: &Fake) -> Vec<StoredObject> {
    api.list(POD.resource, Some("n"))
}

fn active(api: &Fake) -> Vec<StoredObject> {
    let pods = pods(api);
    pods.into_iter().filter(|p| pod::is_active(p)).collect()
}

fn status(api: &Fake) -> Value {
    api.get(JOB.resource, "n", "j").expect("it exists")["status"].clone()
}

/// Ends a pod with an exit code.
fn end(api: &Fake, pod: &Value, code: i64) {
    let now = seconds(api.clock().now());
    let phase = if code == 0 { "Succeeded" } else { "Failed" };
    api.edit_status(POD.resource, ("n", name(pod)), |p| {
        p["status"] = json!({"phase": phase, "containerStatuses": [
            {"name": "c", "state": {"terminated": {"exitCode": code, "finishedAt": now}}},
        ]});
    });
}

#[tokio::test(start_paused = true)]
async fn a_job_runs_pods_until_enough_have_succeeded() {
    let (api, _handle) = start(json!({}));
    eventually("two pods", || active(&api).len() == 2).await;
    assert_eq!(status(&api)["active"], 2);
    assert!(pods(&api).iter().all(|p| has_finalizer(p, TRACKING)));
    for done in 1..=3 {
        let pod = active(&api)[0].clone();
        end(&api, &pod, 0);
        eventually("it is counted", || status(&api)["succeeded"] == done).await;
    }
    eventually("it is complete", || {
        condition_is_true(&status(&api), "Complete")
    })
    .await;
    let status = status(&api);
    assert!(condition_is_true(&status, "SuccessCriteriaMet"));
    assert!(status["completionTime"].is_string());
    assert_eq!(status["uncountedTerminatedPods"], json!({}));
    assert_eq!(status["active"], Value::Null);
    assert_eq!(pods(&api).len(), 3);
    assert!(pods(&api).iter().all(|p| !has_finalizer(p, TRACKING)));
}

#[tokio::test(start_paused = true)]
async fn too_many_failures_end_a_job_with_a_growing_pause_between_them() {
    let (api, _handle) = start(json!({"parallelism": 1, "completions": 1, "backoffLimit": 2}));
    let mut created = Vec::new();
    for _ in 0..3 {
        eventually("a pod", || active(&api).len() == 1).await;
        created.push(api.clock().now());
        let pod = active(&api)[0].clone();
        end(&api, &pod, 1);
    }
    eventually("it has failed", || {
        condition_is_true(&status(&api), "Failed")
    })
    .await;
    assert_eq!(status(&api)["failed"], 3);
    let failed = object::condition(&status(&api), "Failed")
        .cloned()
        .unwrap_or_default();
    assert_eq!(failed["reason"], "BackoffLimitExceeded");
    let pauses: Vec<i64> = created
        .windows(2)
        .map(|pair| pair[1].duration_since(pair[0]).as_secs())
        .collect();
    // Times are written in whole seconds.
    assert!(
        (9..=11).contains(&pauses[0]) && (19..=21).contains(&pauses[1]),
        "{pauses:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn an_indexed_job_runs_a_pod_for_each_index() {
    let (api, _handle) = start(json!({"completionMode": "Indexed", "parallelism": 3}));
    eventually("three pods", || active(&api).len() == 3).await;
    let indexes: BTreeSet<Option<u64>> = pods(&api).iter().map(|p| tally::index_of(p)).collect();
    assert_eq!(indexes, [Some(0), Some(1), Some(2)].into());
    let pod = pods(&api)
        .into_iter()
        .find(|p| tally::index_of(p) == Some(1))
        .expect("it was seen");
    assert!(name(&pod).starts_with("j-1-"), "{}", name(&pod));
    assert_eq!(pod["spec"]["hostname"], "j-1");
    assert_eq!(
        pod["spec"]["containers"][0]["env"][0]["name"],
        "JOB_COMPLETION_INDEX"
    );
    end(&api, &pod, 0);
    eventually("index 1 is done", || {
        status(&api)["completedIndexes"] == "1"
    })
    .await;
    for pod in active(&api) {
        end(&api, &pod, 0);
    }
    eventually("it is complete", || {
        condition_is_true(&status(&api), "Complete")
    })
    .await;
    assert_eq!(status(&api)["completedIndexes"], "0-2");
    assert_eq!(status(&api)["succeeded"], 3);
}

#[tokio::test(start_paused = true)]
async fn a_suspended_job_has_no_pods_until_it_is_resumed() {
    let (api, _handle) = start(json!({"suspend": true}));
    eventually("it is suspended", || {
        condition_is_true(&status(&api), "Suspended")
    })
    .await;
    assert!(pods(&api).is_empty());
    assert_eq!(status(&api)["startTime"], Value::Null);
    let suspend = |suspend: bool| {
        api.edit(JOB.resource, ("n", "j"), move |j| {
            j["spec"]["suspend"] = suspend.into()
        });
    };
    suspend(false);
    eventually("two pods", || active(&api).len() == 2).await;
    assert!(status(&api)["startTime"].is_string());
    suspend(true);
    eventually("no pods", || active(&api).is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn a_job_ends_at_its_deadline_and_is_deleted_when_its_time_is_over() {
    let (api, _handle) = start(json!({"activeDeadlineSeconds": 30, "ttlSecondsAfterFinished": 60}));
    eventually("two pods", || active(&api).len() == 2).await;
    eventually("it has failed", || {
        condition_is_true(&status(&api), "Failed")
    })
    .await;
    let failed = object::condition(&status(&api), "Failed")
        .cloned()
        .unwrap_or_default();
    assert_eq!(failed["reason"], "DeadlineExceeded");
    assert!(active(&api).is_empty());
    pass(70.0).await;
    let gone = api.get(JOB.resource, "n", "j");
    assert!(gone.is_err() || gone.is_ok_and(|j| is_deleting(&j)));
}

#[tokio::test(start_paused = true)]
async fn the_policy_for_failures_can_end_a_job_or_ignore_a_pod() {
    let rules = json!({"rules": [
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
        {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}},
    ]});
    let (api, _handle) = start(json!({
        "parallelism": 1, "completions": 1, "backoffLimit": 0, "podFailurePolicy": rules,
        "podReplacementPolicy": "Failed",
    }));
    eventually("a pod", || active(&api).len() == 1).await;
    let first = active(&api)[0].clone();
    api.edit_status(POD.resource, ("n", name(&first)), |p| {
        p["status"] = json!({"phase": "Failed", "conditions": [
            {"type": "DisruptionTarget", "status": "True"},
        ]});
    });
    eventually("another pod", || active(&api).len() == 1).await;
    assert_eq!(status(&api)["failed"], Value::Null);
    let second = active(&api)[0].clone();
    end(&api, &second, 42);
    eventually("it has failed", || {
        condition_is_true(&status(&api), "Failed")
    })
    .await;
    let failed = object::condition(&status(&api), "Failed")
        .cloned()
        .unwrap_or_default();
    assert_eq!(failed["reason"], "PodFailurePolicy");
    let expect = format!(
        "Container c for pod n/{} failed with exit code 42 matching FailJob rule at index 1",
        name(&second)
    );
    assert_eq!(failed["message"], expect);
}

/// The active pod of an index.
fn of_index(api: &Fake, index: u64) -> StoredObject {
    let mut active = active(api).into_iter();
    active
        .find(|p| tally::index_of(p) == Some(index))
        .expect("it is active")
}

fn annotation<'p>(pod: &'p Value, name: &str) -> &'p str {
    let key = format!("batch.kubernetes.io/{name}");
    pod["metadata"]["annotations"][key].as_str().unwrap_or("")
}

fn indexed(spec: Value) -> Value {
    let mut all = json!({"completionMode": "Indexed", "backoffLimit": i32::MAX, "completions": 3, "parallelism": 3});
    for (field, value) in spec.as_object().into_iter().flatten() {
        all[field] = value.clone();
    }
    all
}

#[tokio::test(start_paused = true)]
async fn each_index_has_retries_of_its_own() {
    let (api, _handle) = start(indexed(json!({"backoffLimitPerIndex": 1})));
    eventually("a pod for each index", || active(&api).len() == 3).await;
    assert_eq!(
        annotation(&of_index(&api, 0), "job-index-failure-count"),
        "0"
    );
    end(&api, &of_index(&api, 0), 1);
    end(&api, &of_index(&api, 1), 0);
    pass(5.0).await;
    // The failed pod is kept until its replacement continues its counts.
    assert_eq!(active(&api).len(), 1);
    assert_eq!(status(&api)["failed"], Value::Null);
    pass(6.0).await;
    assert_eq!(
        annotation(&of_index(&api, 0), "job-index-failure-count"),
        "1"
    );
    eventually("the failure is counted", || status(&api)["failed"] == 1).await;
    end(&api, &of_index(&api, 0), 1);
    eventually("the index has failed", || {
        status(&api)["failedIndexes"] == "0"
    })
    .await;
    pass(600.0).await;
    assert_eq!(active(&api).len(), 1, "the failed index gets no other pod");
    end(&api, &of_index(&api, 2), 0);
    eventually("the job has failed", || {
        condition_is_true(&status(&api), "Failed")
    })
    .await;
    let failed = status(&api);
    let condition = object::condition(&failed, "Failed").expect("it has failed");
    assert_eq!(condition["reason"], "FailedIndexes");
    assert_eq!(condition["message"], "Job has failed indexes");
    assert_eq!(failed["completedIndexes"], "1,2");
    assert_eq!(failed["failed"], 2);
    assert!(pods(&api).iter().all(|p| !has_finalizer(p, TRACKING)));
}

#[tokio::test(start_paused = true)]
async fn too_many_failed_indexes_end_a_job() {
    let spec = json!({"backoffLimitPerIndex": 0, "maxFailedIndexes": 1});
    let (api, _handle) = start(indexed(spec));
    eventually("a pod for each index", || active(&api).len() == 3).await;
    end(&api, &of_index(&api, 0), 1);
    pass(1.0).await;
    assert_eq!(active(&api).len(), 2);
    end(&api, &of_index(&api, 2), 1);
    let target = || object::condition(&status(&api), "FailureTarget").map(|c| c["reason"].clone());
    eventually("the job fails", || target().is_some()).await;
    assert_eq!(target(), Some("MaxFailedIndexesExceeded".into()));
    eventually("no pod is active", || active(&api).is_empty()).await;
    // The pod that is deleted then counts as a failure, too.
    eventually("all are counted", || status(&api)["failedIndexes"] == "0-2").await;
}

#[tokio::test(start_paused = true)]
async fn a_rule_fails_an_index_at_once() {
    let rule = json!({"action": "FailIndex", "onExitCodes": {"operator": "In", "values": [42]}});
    let spec = json!({"backoffLimitPerIndex": 5, "podFailurePolicy": {"rules": [rule]}});
    let (api, _handle) = start(indexed(spec));
    eventually("a pod for each index", || active(&api).len() == 3).await;
    end(&api, &of_index(&api, 1), 42);
    eventually("the index has failed", || {
        status(&api)["failedIndexes"] == "1"
    })
    .await;
    end(&api, &of_index(&api, 0), 7);
    pass(60.0).await;
    assert_eq!(
        annotation(&of_index(&api, 0), "job-index-failure-count"),
        "1"
    );
    assert_eq!(status(&api)["failedIndexes"], "1");
}

#[tokio::test(start_paused = true)]
async fn a_success_policy_ends_a_job_before_all_indexes_have_succeeded() {
    let cases = [
        (
            json!([{"succeededCount": 1}]),
            2,
            "Matched rules at index 0",
        ),
        (
            json!([{"succeededIndexes": "0,1"}, {"succeededIndexes": "2"}]),
            2,
            "Matched rules at index 1",
        ),
        (
            json!([{"succeededIndexes": "0-1", "succeededCount": 1}]),
            1,
            "Matched rules at index 0",
        ),
    ];
    for (rules, index, message) in cases {
        let (api, _handle) = start(indexed(json!({"successPolicy": {"rules": rules}})));
        eventually("a pod for each index", || active(&api).len() == 3).await;
        end(&api, &of_index(&api, index), 0);
        eventually("the job is complete", || {
            condition_is_true(&status(&api), "Complete")
        })
        .await;
        let ended = status(&api);
        for kind in ["SuccessCriteriaMet", "Complete"] {
            let condition = object::condition(&ended, kind).expect("it is complete");
            assert_eq!(condition["reason"], "SuccessPolicy");
            assert_eq!(condition["message"], message);
        }
        assert_eq!(ended["completedIndexes"], index.to_string());
        assert!(active(&api).is_empty());
    }
}

/// The watch may show the deletion of a pod before the deletion of its job. The pod does not change afterwards.
#[tokio::test(start_paused = true)]
async fn pods_of_a_deleted_job_lose_the_finalizer() {
    let (api, _handle) = start(json!({}));
    eventually("two pods", || active(&api).len() == 2).await;
    let job = api.get(JOB.resource, "n", "j").expect("it exists");
    let deleted = api.delete(JOB.resource, "n", name(&job), &DeleteOptions::default());
    assert!(deleted.is_ok(), "{deleted:?}");
    eventually("no pod has the finalizer", || {
        pods(&api).iter().all(|p| !has_finalizer(p, TRACKING))
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_no_job_counts_loses_the_finalizer() {
    let is_held = |api: &Fake, name: &str| {
        let pod = api.get(POD.resource, "n", name).expect("it exists");
        has_finalizer(&pod, TRACKING)
    };
    // A pod that the job releases because its labels were changed, running or ended.
    for ended in [false, true] {
        let (api, _handle) = start(json!({"parallelism": 1}));
        eventually("a pod", || active(&api).len() == 1).await;
        let pod = name(&active(&api)[0]).to_owned();
        if ended {
            // The controller has not seen that it ended when its labels change.
            api.set_fault(|verb, kind, _| {
                let is_write = verb == "update_status" && kind == JOB.resource;
                is_write.then(|| crate::testing::refused(500, "Internal", "not now"))
            });
            end(&api, &json!({"metadata": {"name": pod}}), 0);
        }
        api.edit(POD.resource, ("n", &pod), |p| {
            p["metadata"]["labels"]["job-name"] = "other".into();
        });
        eventually("it is released", || !is_held(&api, &pod)).await;
        let released = api.get(POD.resource, "n", &pod).expect("it exists");
        assert!(object::owner_references(&released).is_empty());
    }
    // A pod whose Job was deleted, or that never had one.
    let (api, _handle) = start(json!({"parallelism": 1}));
    eventually("a pod", || active(&api).len() == 1).await;
    for (name, owners) in [
        ("alone", json!([])),
        (
            "of-a-job-that-is-gone",
            json!([{"apiVersion": "batch/v1", "kind": "Job", "name": "was", "uid": "was",
                "controller": true}]),
        ),
        (
            "of-an-earlier-job",
            json!([{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "was",
                "controller": true}]),
        ),
    ] {
        let pod = json!({"metadata": {"name": name, "namespace": "n", "finalizers": [TRACKING],
            "ownerReferences": owners}, "spec": {}});
        api.create(POD.resource, pod).expect("created");
        eventually(name, || !is_held(&api, name)).await;
    }
    // A pod of another controller is not touched.
    let pod = json!({"metadata": {"name": "theirs", "namespace": "n", "finalizers": [TRACKING],
        "ownerReferences": [{"apiVersion": "example.com/v1", "kind": "Batch", "name": "j",
            "uid": "theirs", "controller": true}]}, "spec": {}});
    api.create(POD.resource, pod).expect("created");
    // Deleting the job without its pods: the garbage collector removes the reference to it.
    let of_job = |p: &StoredObject| name(p).starts_with("j-");
    let own = active(&api)
        .into_iter()
        .find(of_job)
        .expect("a pod of the job");
    let own = name(&own).to_owned();
    api.edit(POD.resource, ("n", &own), |p| {
        p["metadata"]["ownerReferences"] = json!([]);
        p["metadata"]["labels"] = json!({});
    });
    eventually("the orphan is released", || !is_held(&api, &own)).await;
    pass(60.0).await;
    assert!(is_held(&api, "theirs"));
}
