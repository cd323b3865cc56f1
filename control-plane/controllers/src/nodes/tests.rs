//! The node lifecycle with simulated kubelets: silence, cordoning, eviction.

use super::*;
use crate::kubelet;
use crate::runtime::Handle;
use crate::testing::{Fake, eventually, pass};
use berth_objects::access::Access;
use berth_objects::object::condition_is_true;
use std::sync::Arc;

async fn start(api: &Arc<Fake>) -> (Handle, Handle) {
    let mut handle = Handle::new();
    handle.start(
        Nodes::new(Duration::from_secs(50)),
        api.clone(),
        api.clock(),
    );
    let options = kubelet::KubeletOptions {
        nodes: 2,
        clock: api.clock(),
        ..kubelet::KubeletOptions::default()
    };
    (handle, kubelet::spawn(api.clone(), options).await.unwrap())
}

fn taints(api: &Fake, node: &str) -> Vec<String> {
    let node = api.get(NODE.resource, "", node).unwrap();
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    items(&node["spec"]["taints"])
        .iter()
        .map(|t| format!("{}:{}", text(&t["key"]), text(&t["effect"])))
        .collect()
}

fn ready(api: &Fake, node: &str) -> (Value, Value) {
    let node = api.get(NODE.resource, "", node).unwrap();
    let ready = condition(&node["status"], "Ready").unwrap();
    (ready["status"].clone(), ready["reason"].clone())
}

fn print_line(api: &Fake, node: &str, value: &str) {
    api.edit(NODE.resource, ("", node), |n| {
        n["metadata"]["annotations"] = json!({kubelet::NODE_READY: value});
    });
}

#[tokio::test(start_paused = true)]
async fn a_cordoned_node_is_tainted_until_it_is_uncordoned() {
    let api = Fake::new();
    let (nodes, kubelets) = start(&api).await;
    api.edit(NODE.resource, ("", "berth-node-1"), |n| {
        n["spec"]["unschedulable"] = true.into()
    });
    pass(1.0).await;
    assert_eq!(
        taints(&api, "berth-node-1"),
        ["node.kubernetes.io/unschedulable:NoSchedule"]
    );
    assert!(taints(&api, "berth-node-2").is_empty());
    api.edit(NODE.resource, ("", "berth-node-1"), |n| {
        n["spec"]["unschedulable"] = false.into()
    });
    pass(1.0).await;
    assert!(taints(&api, "berth-node-1").is_empty());
    nodes.stop().await;
    kubelets.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_silent_kubelet_makes_its_node_unreachable_and_its_pods_leave() {
    let api = Fake::new();
    let (nodes, kubelets) = start(&api).await;
    let tolerate = |seconds: Value| {
        json!([{"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute",
                "tolerationSeconds": seconds}])
    };
    for (name, tolerations) in [
        ("short", tolerate(json!(300))),
        ("ever", tolerate(Value::Null)),
    ] {
        let pod = json!({"metadata": {"name": name, "namespace": "n"},
            "spec": {"nodeName": "berth-node-1", "tolerations": tolerations,
                     "containers": [{"name": "c", "image": "i"}]}});
        api.create(POD.resource, pod).unwrap();
    }
    let is_ready = |name: &str| {
        condition_is_true(
            &api.get(POD.resource, "n", name).unwrap()["status"],
            "Ready",
        )
    };
    eventually("both run", || is_ready("short") && is_ready("ever")).await;
    print_line(&api, "berth-node-1", "Unknown");
    pass(35.0).await;
    assert_eq!(ready(&api, "berth-node-1").0, "True");
    pass(20.0).await;
    assert_eq!(
        ready(&api, "berth-node-1"),
        (json!("Unknown"), json!("NodeStatusUnknown"))
    );
    assert_eq!(ready(&api, "berth-node-2").0, "True");
    let unreachable =
        ["NoSchedule", "NoExecute"].map(|e| format!("node.kubernetes.io/unreachable:{e}"));
    assert_eq!(taints(&api, "berth-node-1"), unreachable);
    assert!(!is_ready("ever"));
    pass(280.0).await;
    let is_leaving = |name: &str| is_deleting(&api.get(POD.resource, "n", name).unwrap());
    assert!(!is_leaving("short"));
    pass(20.0).await;
    assert!(is_leaving("short") && !is_leaving("ever"));
    // The kubelet reports again: it ends the pods that were deleted in the meantime, and the other pod is ready again.
    print_line(&api, "berth-node-1", "True");
    pass(60.0).await;
    assert_eq!(ready(&api, "berth-node-1").0, "True");
    assert!(taints(&api, "berth-node-1").is_empty());
    assert!(api.get(POD.resource, "n", "short").is_err());
    assert!(is_ready("ever"));
    nodes.stop().await;
    kubelets.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_users_no_execute_taint_evicts_pods_that_do_not_tolerate_it() {
    let api = Fake::new();
    let (nodes, kubelets) = start(&api).await;
    let pod = json!({"metadata": {"name": "p", "namespace": "n"},
        "spec": {"nodeName": "berth-node-1", "containers": [{"name": "c", "image": "i"}]}});
    api.create(POD.resource, pod.clone()).unwrap();
    pass(5.0).await;
    api.edit(NODE.resource, ("", "berth-node-1"), |n| {
        n["spec"]["taints"] = json!([{"key": "maintenance", "effect": "NoExecute"}]);
    });
    eventually("it is gone", || api.get(POD.resource, "n", "p").is_err()).await;
    // A pod that is bound later is evicted, too.
    api.create(POD.resource, pod).unwrap();
    pass(5.0).await;
    assert!(api.get(POD.resource, "n", "p").is_err());
    nodes.stop().await;
    kubelets.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_ready_node_without_a_lease_is_not_expected_to_give_signs_of_life() {
    let api = Fake::new();
    let (nodes, kubelets) = start(&api).await;
    let conditions = json!([{"type": "Ready", "status": "True"}]);
    let mine = json!({"metadata": {"name": "mine"}, "status": {"conditions": conditions}});
    api.create(NODE.resource, mine).unwrap();
    pass(1000.0).await;
    let mine = api.get(NODE.resource, "", "mine").unwrap();
    assert_eq!(mine["status"]["conditions"], conditions);
    assert!(mine["spec"]["taints"].is_null());
    nodes.stop().await;
    kubelets.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_node_whose_kubelet_never_posts_a_status_is_unknown_after_a_minute() {
    let api = Fake::new();
    let (nodes, kubelets) = start(&api).await;
    let mine = json!({"metadata": {"name": "mine"}, "spec": {"taints": [
        {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]}});
    api.create(NODE.resource, mine).unwrap();
    pass(58.0).await;
    assert_eq!(
        taints(&api, "mine"),
        ["node.kubernetes.io/not-ready:NoSchedule"]
    );
    let mine = api.get(NODE.resource, "", "mine").unwrap();
    assert!(mine["status"].is_null());
    pass(4.0).await;
    let mine = api.get(NODE.resource, "", "mine").unwrap();
    for kind in ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"] {
        let found = condition(&mine["status"], kind).unwrap();
        assert_eq!(found["status"], "Unknown", "{kind}");
        assert_eq!(found["reason"], "NodeStatusNeverUpdated", "{kind}");
        assert_eq!(found["message"], "Kubelet never posted node status.");
        assert_eq!(
            found["lastHeartbeatTime"],
            mine["metadata"]["creationTimestamp"]
        );
    }
    let unreachable =
        ["NoSchedule", "NoExecute"].map(|e| format!("node.kubernetes.io/unreachable:{e}"));
    assert_eq!(taints(&api, "mine"), unreachable);
    assert_eq!(ready(&api, "berth-node-1").0, "True");
    nodes.stop().await;
    kubelets.stop().await;
}

/// A node whose kubelet is a test, and its first heartbeat.
fn node_with_lease(api: &Fake, name: &str) {
    let ready = json!([{"type": "Ready", "status": "True", "reason": "KubeletReady"}]);
    let node = json!({"metadata": {"name": name}, "status": {"conditions": ready}});
    api.create(NODE.resource, node).unwrap();
    let lease = json!({"metadata": {"name": name, "namespace": LEASE_NAMESPACE},
        "spec": {"renewTime": "2026-01-01T00:00:00.000000Z"}});
    api.create(LEASE.resource, lease).unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_kubelet_is_not_silent_when_the_process_was_stopped() {
    let api = Fake::new();
    let mut handle = Handle::new();
    let grace = Duration::from_secs(50);
    handle.start(Nodes::new(grace), api.clone(), api.clock());
    node_with_lease(&api, "node");
    pass(20.0).await;
    // No timer fires for five minutes.
    tokio::time::advance(Duration::from_secs(300)).await;
    pass(5.0).await;
    assert_eq!(ready(&api, "node").0, "True");
    api.edit(LEASE.resource, (LEASE_NAMESPACE, "node"), |lease| {
        lease["spec"]["renewTime"] = "2026-01-01T00:05:25.000000Z".into();
    });
    pass(49.0).await;
    assert_eq!(ready(&api, "node").0, "True");
    // A kubelet that is silent while this process runs is not given more time.
    pass(2.0).await;
    assert_eq!(ready(&api, "node").0, "Unknown");
    handle.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_kubelet_that_stays_silent_after_a_stop_of_the_process_is_unreachable() {
    let api = Fake::new();
    let mut handle = Handle::new();
    let grace = Duration::from_secs(50);
    handle.start(Nodes::new(grace), api.clone(), api.clock());
    node_with_lease(&api, "node");
    pass(20.0).await;
    tokio::time::advance(Duration::from_secs(300)).await;
    pass(14.0).await;
    assert_eq!(ready(&api, "node").0, "True");
    pass(2.0).await;
    assert_eq!(ready(&api, "node").0, "Unknown");
    handle.stop().await;
}

#[tokio::test(start_paused = true)]
async fn simulated_nodes_stay_ready_when_the_process_was_stopped() {
    let api = Fake::new();
    let (nodes, kubelets) = start(&api).await;
    pass(60.0).await;
    for _ in 0..5 {
        tokio::time::advance(Duration::from_secs(120)).await;
        pass(5.0).await;
    }
    let events = api.list(berth_objects::object::EVENT.resource, None);
    let reasons: Vec<&str> = events.iter().filter_map(|e| e["reason"].as_str()).collect();
    assert!(!reasons.contains(&"NodeNotReady"), "{reasons:?}");
    nodes.stop().await;
    kubelets.stop().await;
}
