//! The StatefulSet controller against an API: what users see of it.

use super::*;
use crate::access::Access;
use crate::controllers::runtime::Handle;
use crate::controllers::testing::{Fake, eventually, make_ready, pass};
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
    // Scaled down, the last goes first; claims stay.
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
