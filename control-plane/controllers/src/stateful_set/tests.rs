//! The StatefulSet controller against an API: the results that users see.

use super::*;
use crate::runtime::Handle;
use crate::testing::{Fake, eventually, make_ready, pass};
use berth_objects::access::{Access, DeleteOptions};
use std::sync::Arc;

fn set(policy: &str) -> Value {
    json!({
        "metadata": {"name": "web", "namespace": "n"},
        "spec": {
            "replicas": 3,
            "serviceName": "web",
            "podManagementPolicy": policy,
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
            "selector": {"matchLabels": {"app": "web"}},
            "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {}}],
            "template": {"metadata": {"labels": {"app": "web"}},
                         "spec": {"containers": [{"name": "c", "image": "i:1"}]}},
        },
    })
}

fn start(policy: &str) -> (Arc<Fake>, Handle) {
    let api = Fake::new();
    api.create(STATEFUL_SET.resource, set(policy))
        .expect("created");
    let mut handle = Handle::new();
    handle.start(StatefulSets::default(), api.clone(), api.clock());
    (api, handle)
}

fn pods(api: &Fake) -> Vec<String> {
    let pods = api.list(POD.resource, Some("n"));
    pods.iter().map(|p| name(p).to_owned()).collect()
}

fn status(api: &Fake) -> Value {
    api.get(STATEFUL_SET.resource, "n", "web")
        .expect("it exists")["status"]
        .clone()
}

/// Makes all pods ready as they are created, until there are three with this image.
async fn settles(api: &Fake, image: &str) {
    eventually("three ready pods", || {
        let pods = api.list(POD.resource, Some("n"));
        for pod in pods.iter().filter(|p| !pod::is_ready(p)) {
            make_ready(api, pod);
        }
        pods.len() == 3
            && pods
                .iter()
                .all(|p| p["spec"]["containers"][0]["image"] == image)
            && status(api)["readyReplicas"] == 3
            && status(api)["currentRevision"] == status(api)["updateRevision"]
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_ordered_set_waits_for_each_pod() {
    let (api, _handle) = start("OrderedReady");
    for (i, expect) in [
        &["web-0"][..],
        &["web-0", "web-1"],
        &["web-0", "web-1", "web-2"],
    ]
    .into_iter()
    .enumerate()
    {
        eventually("the next pod", || pods(&api).len() == i + 1).await;
        pass(60.0).await;
        assert_eq!(pods(&api), expect, "no pod comes before the last is ready");
        let pod = api.get(POD.resource, "n", expect[i]).expect("it exists");
        make_ready(&api, &pod);
    }
    eventually("all are ready", || status(&api)["readyReplicas"] == 3).await;
    assert!(api.get(CLAIM.resource, "n", "data-web-2").is_ok());
    // When the set is scaled down, the last pod is deleted first; claims stay.
    api.edit(STATEFUL_SET.resource, ("n", "web"), |s| {
        s["spec"]["replicas"] = 1.into();
    });
    eventually("one pod", || pods(&api) == ["web-0"]).await;
    assert!(api.get(CLAIM.resource, "n", "data-web-2").is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_parallel_set_creates_all_pods_at_once() {
    let (api, _handle) = start("Parallel");
    eventually("three pods", || pods(&api).len() == 3).await;
}

#[tokio::test(start_paused = true)]
async fn a_new_template_replaces_pods_from_the_last_on_down_to_the_partition() {
    let (api, _handle) = start("OrderedReady");
    settles(&api, "i:1").await;
    let first = status(&api)["currentRevision"].clone();
    let update = |image: &'static str, partition: i64| {
        api.edit(STATEFUL_SET.resource, ("n", "web"), move |s| {
            s["spec"]["template"]["spec"]["containers"][0]["image"] = image.into();
            s["spec"]["updateStrategy"]["rollingUpdate"]["partition"] = partition.into();
        });
    };
    update("i:2", 2);
    eventually("the last pod is updated", || {
        for pod in api.list(POD.resource, Some("n")) {
            if !pod::is_ready(&pod) {
                make_ready(&api, &pod);
            }
        }
        status(&api)["updatedReplicas"] == 1 && status(&api)["readyReplicas"] == 3
    })
    .await;
    pass(60.0).await;
    let image = |at: i64| {
        let pod = api
            .get(POD.resource, "n", &format!("web-{at}"))
            .expect("it exists");
        pod["spec"]["containers"][0]["image"].clone()
    };
    assert_eq!([image(0), image(1), image(2)], ["i:1", "i:1", "i:2"]);
    assert_eq!(status(&api)["currentRevision"], first);
    update("i:2", 0);
    settles(&api, "i:2").await;
    // The old template again is the old revision.
    update("i:1", 0);
    settles(&api, "i:1").await;
    assert_eq!(status(&api)["currentRevision"], first);
}

/// Finds a claim.
fn claim(api: &Fake, name: &str) -> Option<StoredObject> {
    api.get(CLAIM.resource, "n", name).ok()
}

/// Deletes an object as `kubectl delete --wait=false`.
fn delete(api: &Fake, kind: berth_objects::object::ControllerKind, name: &str) {
    let options = DeleteOptions::default();
    let deleted = api.delete(kind.resource, "n", name, &options);
    deleted.expect("it is deleted");
}

/// The owners of a claim: kinds and names.
fn owners(api: &Fake, name: &str) -> Vec<String> {
    let claim = claim(api, name).expect("the claim exists");
    object::owner_references(&claim)
        .iter()
        .map(|r| {
            assert_eq!(r["controller"], true, "{r}");
            let text = |field: &str| r[field].as_str().unwrap_or_default().to_owned();
            format!("{} {}", text("kind"), text("name"))
        })
        .collect()
}

fn policy(api: &Fake, when_deleted: &str, when_scaled: &str) {
    let policy = json!({"whenDeleted": when_deleted, "whenScaled": when_scaled});
    api.edit(STATEFUL_SET.resource, ("n", "web"), move |s| {
        s["spec"]["persistentVolumeClaimRetentionPolicy"] = policy.clone();
    });
}

#[tokio::test(start_paused = true)]
async fn a_pending_pod_whose_claim_was_deleted_gets_another_claim() {
    let (api, _handle) = start("OrderedReady");
    eventually("the first pod", || pods(&api) == ["web-0"]).await;
    let first = claim(&api, "data-web-0").expect("it exists");
    delete(&api, CLAIM, "data-web-0");
    eventually("another claim", || {
        claim(&api, "data-web-0").is_some_and(|c| object::uid(&c) != object::uid(&first))
    })
    .await;
    assert_eq!(pods(&api), ["web-0"]);
}

#[tokio::test(start_paused = true)]
async fn a_pod_is_created_after_its_claim_that_is_being_deleted_was_deleted() {
    let (api, handle) = start("Parallel");
    settles(&api, "i:1").await;
    // The claim is in use by its pod, as the finalizer states.
    api.edit(CLAIM.resource, ("n", "data-web-0"), |c| {
        c["metadata"]["finalizers"] = json!(["kubernetes.io/pvc-protection"]);
    });
    delete(&api, CLAIM, "data-web-0");
    delete(&api, POD, "web-0");
    pass(1800.0).await;
    assert_eq!(pods(&api), ["web-1", "web-2"]);
    let runs = handle.activity()[0].runs;
    pass(3600.0).await;
    let runs = handle.activity()[0].runs - runs;
    assert!(runs <= 61, "{runs} runs in an hour of waiting");
    api.edit(CLAIM.resource, ("n", "data-web-0"), |c| {
        c["metadata"]["finalizers"] = json!([]);
    });
    eventually("pod and claim", || {
        pods(&api) == ["web-0", "web-1", "web-2"] && claim(&api, "data-web-0").is_some()
    })
    .await;
    assert!(!is_deleting(&claim(&api, "data-web-0").expect("it exists")));
}

#[tokio::test(start_paused = true)]
async fn claims_have_the_owners_that_the_retention_policy_of_now_requires() {
    let (api, _handle) = start("Parallel");
    settles(&api, "i:1").await;
    let none: [&str; 0] = [];
    assert_eq!(owners(&api, "data-web-1"), none);
    for (when_deleted, when_scaled, expect) in [
        ("Delete", "Retain", &["StatefulSet web"][..]),
        ("Delete", "Delete", &["StatefulSet web"]),
        ("Retain", "Delete", &[]),
        ("Delete", "Retain", &["StatefulSet web"]),
        ("Retain", "Retain", &[]),
    ] {
        policy(&api, when_deleted, when_scaled);
        eventually(&format!("{when_deleted} {when_scaled}"), || {
            (0..3).all(|i| owners(&api, &format!("data-web-{i}")) == expect)
        })
        .await;
    }
    // A scaled-down pod owns its claim, so that both are deleted.
    policy(&api, "Delete", "Delete");
    api.edit(POD.resource, ("n", "web-2"), |p| {
        p["metadata"]["finalizers"] = json!(["test/hold"]);
    });
    api.edit(STATEFUL_SET.resource, ("n", "web"), |s| {
        s["spec"]["replicas"] = 2.into()
    });
    eventually("the pod owns the claim", || {
        owners(&api, "data-web-2") == ["Pod web-2"]
    })
    .await;
    assert_eq!(owners(&api, "data-web-1"), ["StatefulSet web"]);
}

#[tokio::test(start_paused = true)]
async fn owners_of_others_stay_and_suspend_the_retention_policy() {
    let (api, _handle) = start("Parallel");
    settles(&api, "i:1").await;
    let strange = json!([{"apiVersion": "example.com/v1", "kind": "Backup", "name": "b",
        "uid": "strange", "controller": true}]);
    api.edit(CLAIM.resource, ("n", "data-web-0"), |c| {
        c["metadata"]["ownerReferences"] = strange.clone();
    });
    api.edit(CLAIM.resource, ("n", "data-web-1"), |c| {
        c["metadata"]["ownerReferences"] = json!([{"apiVersion": "example.com/v1",
            "kind": "Backup", "name": "b", "uid": "strange"}]);
    });
    policy(&api, "Delete", "Delete");
    eventually("the others follow the policy", || {
        owners(&api, "data-web-2") == ["StatefulSet web"]
    })
    .await;
    pass(1.0).await;
    assert_eq!(owners(&api, "data-web-0"), ["Backup b"]);
    let shared = claim(&api, "data-web-1").expect("it exists");
    let kinds: Vec<&Value> = object::owner_references(&shared)
        .iter()
        .map(|r| &r["kind"])
        .collect();
    assert_eq!(kinds, ["Backup", "StatefulSet"]);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_scaled_up_again_waits_for_the_end_of_its_old_claim() {
    let (api, _handle) = start("Parallel");
    settles(&api, "i:1").await;
    policy(&api, "Retain", "Delete");
    let replicas = |count: i64| {
        api.edit(STATEFUL_SET.resource, ("n", "web"), move |s| {
            s["spec"]["replicas"] = count.into()
        });
    };
    replicas(2);
    eventually("two pods", || pods(&api) == ["web-0", "web-1"]).await;
    let old = claim(&api, "data-web-2").expect("the garbage collector has not been here");
    replicas(3);
    pass(60.0).await;
    assert_eq!(pods(&api), ["web-0", "web-1"]);
    delete(&api, CLAIM, "data-web-2");
    eventually("pod and claim", || {
        pods(&api).len() == 3
            && claim(&api, "data-web-2").is_some_and(|c| object::uid(&c) != object::uid(&old))
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_lost_the_label_of_its_name_gets_it_again() {
    let (api, _handle) = start("Parallel");
    settles(&api, "i:1").await;
    let label = "statefulset.kubernetes.io/pod-name";
    api.edit(POD.resource, ("n", "web-1"), |p| {
        p["metadata"]["labels"]
            .as_object_mut()
            .expect("it has labels")
            .remove(label);
    });
    eventually("the label is there again", || {
        let pod = api.get(POD.resource, "n", "web-1").expect("it exists");
        labels(&pod).and_then(|l| l.get(label)) == Some(&json!("web-1"))
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn claims_that_are_refused_are_tried_later_and_later() {
    let api = Fake::new();
    api.set_fault(|verb, kind, _| {
        (verb == "create" && kind == CLAIM.resource)
            .then(|| crate::testing::refused(403, "Forbidden", "exceeded quota: q"))
    });
    api.create(STATEFUL_SET.resource, set("OrderedReady"))
        .expect("created");
    let mut handle = Handle::new();
    handle.start(StatefulSets::default(), api.clone(), api.clock());
    pass(3600.0).await;
    let runs = handle.activity()[0].runs;
    pass(3600.0).await;
    assert_eq!(handle.activity()[0].runs - runs, 60);
    assert!(pods(&api).is_empty());
    let events = api.list(berth_objects::object::EVENT.resource, Some("n"));
    let texts: Vec<&str> = events
        .iter()
        .filter_map(|e| e["message"].as_str())
        .collect();
    for text in [
        "Create Claim data-web-0 for Pod web-0 in StatefulSet web failed error: exceeded quota: q",
        "Create Pod web-0 in StatefulSet web failed error: failed to create PVC data-web-0: exceeded quota: q",
    ] {
        assert!(texts.contains(&text), "{texts:?}");
    }
}
