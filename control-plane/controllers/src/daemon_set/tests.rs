//! The DaemonSet controller against an API: the results that users see.

use super::*;
use crate::runtime::Handle;
use crate::testing::{Fake, eventually, make_ready, pass};
use berth_objects::access::{Access, DeleteOptions};
use std::sync::Arc;

fn node(api: &Fake, name: &str, labels: Value) {
    let node = json!({"metadata": {"name": name, "labels": labels}, "spec": {}});
    api.create(NODE.resource, node).expect("created");
}

fn start(rolling: Value) -> (Arc<Fake>, Handle) {
    let api = Fake::new();
    for name in ["a", "b", "c"] {
        node(&api, name, json!({"disk": "ssd"}));
    }
    node(&api, "d", json!({}));
    let set = json!({
        "metadata": {"name": "ds", "namespace": "n"},
        "spec": {
            "selector": {"matchLabels": {"app": "ds"}},
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": rolling},
            "template": {"metadata": {"labels": {"app": "ds"}},
                         "spec": {"nodeSelector": {"disk": "ssd"},
                                  "containers": [{"name": "c", "image": "i:1"}]}},
        },
    });
    api.create(DAEMON_SET.resource, set).expect("created");
    let mut handle = Handle::new();
    handle.start(DaemonSets::default(), api.clone(), api.clock());
    (api, handle)
}

fn pods(api: &Fake) -> Vec<StoredObject> {
    api.list(POD.resource, Some("n"))
}

fn nodes_with_pods(api: &Fake) -> Vec<String> {
    let mut nodes: Vec<String> = pods(api)
        .iter()
        .filter_map(|p| node_of(p).map(str::to_owned))
        .collect();
    nodes.sort();
    nodes
}

fn status(api: &Fake) -> Value {
    api.get(DAEMON_SET.resource, "n", "ds").expect("it exists")["status"].clone()
}

fn edit(api: &Fake, change: impl Fn(&mut Value)) {
    api.edit(DAEMON_SET.resource, ("n", "ds"), change);
}

fn images(api: &Fake) -> Vec<Value> {
    let image = |p: &StoredObject| p["spec"]["containers"][0]["image"].clone();
    pods(api).iter().map(image).collect()
}

#[tokio::test(start_paused = true)]
async fn each_node_that_fits_has_one_pod() {
    let (api, _handle) = start(json!({"maxUnavailable": 1}));
    eventually("three pods", || nodes_with_pods(&api) == ["a", "b", "c"]).await;
    for pod in pods(&api) {
        make_ready(&api, &pod);
    }
    eventually("all are available", || status(&api)["numberAvailable"] == 3).await;
    assert_eq!(status(&api)["desiredNumberScheduled"], 3);
    // A node that becomes eligible gets a pod; a node that is no longer eligible loses its pod.
    api.edit(NODE.resource, ("", "d"), |n| {
        n["metadata"]["labels"]["disk"] = "ssd".into()
    });
    api.edit(NODE.resource, ("", "a"), |n| {
        n["metadata"]["labels"]["disk"] = "hdd".into()
    });
    eventually("b, c and d", || nodes_with_pods(&api) == ["b", "c", "d"]).await;
    // A pod that fails is replaced.
    let failed = pods(&api)[0].clone();
    api.edit_status(POD.resource, ("n", name(&failed)), |p| {
        p["status"]["phase"] = "Failed".into();
    });
    eventually("another pod", || {
        nodes_with_pods(&api) == ["b", "c", "d"]
            && pods(&api).iter().all(|p| name(p) != name(&failed))
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_new_template_replaces_pods_within_the_bounds() {
    let (api, _handle) = start(json!({"maxUnavailable": 1}));
    eventually("three pods", || pods(&api).len() == 3).await;
    for pod in pods(&api) {
        make_ready(&api, &pod);
    }
    eventually("all are available", || status(&api)["numberAvailable"] == 3).await;
    edit(&api, |s| {
        s["spec"]["template"]["spec"]["containers"][0]["image"] = "i:2".into()
    });
    for updated in 1..=3 {
        eventually("the next pod", || {
            pods(&api).len() == 3 && images(&api).iter().filter(|i| *i == "i:2").count() == updated
        })
        .await;
        pass(60.0).await;
        let new = images(&api).iter().filter(|i| *i == "i:2").count();
        assert_eq!(new, updated, "one at a time");
        for pod in pods(&api).iter().filter(|p| !pod::is_ready(p)) {
            make_ready(&api, pod);
        }
    }
    eventually("all are updated", || {
        status(&api)["updatedNumberScheduled"] == 3 && status(&api)["numberAvailable"] == 3
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn with_a_surge_the_old_pod_goes_when_the_new_one_is_available() {
    let (api, _handle) = start(json!({"maxUnavailable": 0, "maxSurge": 1}));
    eventually("three pods", || pods(&api).len() == 3).await;
    for pod in pods(&api) {
        make_ready(&api, &pod);
    }
    eventually("all are available", || status(&api)["numberAvailable"] == 3).await;
    edit(&api, |s| {
        s["spec"]["template"]["spec"]["containers"][0]["image"] = "i:2".into()
    });
    eventually("a fourth pod", || pods(&api).len() == 4).await;
    pass(60.0).await;
    assert_eq!(pods(&api).len(), 4, "one surge at a time");
    eventually("all are updated", || {
        for pod in pods(&api).iter().filter(|p| !pod::is_ready(p)) {
            make_ready(&api, pod);
        }
        assert!(
            status(&api)["numberUnavailable"].is_null(),
            "{}",
            status(&api)
        );
        images(&api) == ["i:2", "i:2", "i:2"]
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn on_delete_replaces_nothing() {
    let (api, _handle) = start(Value::Null);
    edit(&api, |s| {
        s["spec"]["updateStrategy"] = json!({"type": "OnDelete"})
    });
    eventually("three pods", || pods(&api).len() == 3).await;
    edit(&api, |s| {
        s["spec"]["template"]["spec"]["containers"][0]["image"] = "i:2".into()
    });
    pass(60.0).await;
    assert_eq!(images(&api), ["i:1", "i:1", "i:1"]);
    let pod = pods(&api)[0].clone();
    let gone = api.delete(POD.resource, "n", name(&pod), &DeleteOptions::default());
    assert!(gone.is_ok());
    eventually("its replacement is new", || {
        pods(&api).len() == 3 && images(&api).iter().filter(|i| *i == "i:2").count() == 1
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_rollback_restarts_only_pods_of_the_bad_template() {
    let (api, _handle) = start(json!({"maxUnavailable": 1}));
    eventually("three pods", || pods(&api).len() == 3).await;
    for pod in pods(&api) {
        make_ready(&api, &pod);
    }
    eventually("all are available", || status(&api)["numberAvailable"] == 3).await;
    let before: Vec<String> = pods(&api).iter().map(|p| name(p).to_owned()).collect();
    edit(&api, |s| {
        s["spec"]["template"]["spec"]["containers"][0]["image"] = "i:bad".into()
    });
    eventually("a pod of the bad template", || {
        images(&api).contains(&json!("i:bad"))
    })
    .await;
    // The new pod never becomes available.
    pass(60.0).await;
    let kept: Vec<String> = pods(&api)
        .iter()
        .map(|p| name(p).to_owned())
        .filter(|p| before.contains(p))
        .collect();
    assert_eq!(kept.len(), 2);
    edit(&api, |s| {
        s["spec"]["template"]["spec"]["containers"][0]["image"] = "i:1".into()
    });
    eventually("all are of the good template", || {
        for pod in pods(&api).iter().filter(|p| !pod::is_ready(p)) {
            make_ready(&api, pod);
        }
        images(&api) == ["i:1", "i:1", "i:1"] && status(&api)["numberAvailable"] == 3
    })
    .await;
    let after: Vec<String> = pods(&api).iter().map(|p| name(p).to_owned()).collect();
    assert!(kept.iter().all(|pod| after.contains(pod)), "{after:?}");
}

#[tokio::test(start_paused = true)]
async fn pods_that_fail_at_once_are_replaced_later_and_later() {
    let (api, handle) = start(json!({"maxUnavailable": 1}));
    eventually("three pods", || pods(&api).len() == 3).await;
    let mut seen = std::collections::BTreeSet::new();
    // As a kubelet that rejects every pod, for ten minutes.
    for _ in 0..6000 {
        for pod in pods(&api).iter().filter(|p| pod::is_active(p)) {
            seen.insert(name(pod).to_owned());
            api.edit_status(POD.resource, ("n", name(pod)), |p| {
                p["status"]["phase"] = "Failed".into();
            });
        }
        pass(0.1).await;
    }
    // For each node: at once, then after 1, 2, 4, … 256 s.
    assert!((27..=36).contains(&seen.len()), "{} pods", seen.len());
    let runs = handle.activity()[0].runs;
    assert!(runs < 600, "{runs} runs");
}
