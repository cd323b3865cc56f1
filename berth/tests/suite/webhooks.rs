//! The main user story of KEP-3521 in a whole cluster: an admission webhook adds a scheduling gate to new pods, those
//! of a Deployment too, and a controller removes it. Both are the program `examples/quota-gate`.

use crate::e2e::{Api, Cluster, eventually, scheduled};
use berth_client::request::{self, PODS, Resource};
use serde_json::{Value, json};

const DEPLOYMENTS: Resource = Resource {
    group: "apps",
    version: "v1",
    plural: "deployments",
};
/// The quota of a namespace.
const PODS_MAX: usize = 2;

fn is_gated(pod: &Value) -> bool {
    let gates = pod["spec"]["schedulingGates"].as_array();
    gates.is_some_and(|gates| gates.iter().any(|gate| gate["name"] == quota_gate::GATE))
}

#[test]
fn a_webhook_gates_the_pods_of_a_deployment_and_a_controller_frees_them() {
    let cluster = Cluster::up("webhooks", &["--nodes", "2"]);
    let api = Api::of(&cluster);
    let kubeconfig = cluster.kubeconfig();
    let start = quota_gate::start(&kubeconfig);
    let mut gate = api
        .runtime
        .block_on(start)
        .expect("the webhook is registered");
    let labels = json!({"app": "batch"});
    let deployment = json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "batch"},
        "spec": {
            "replicas": 4,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "c", "image": "registry.example/c:1"}]},
            },
        },
    });
    api.send(&request::create(DEPLOYMENTS, "default", &deployment));
    let pods = eventually("the Deployment has its pods", || {
        let pods = api.pods();
        (pods.len() == 4).then_some(pods)
    });
    assert!(pods.iter().all(is_gated), "{pods:?}");
    eventually("the scheduler reports the gates", || {
        let waits = |pod: &Value| scheduled(pod)["reason"] == "SchedulingGated";
        api.pods().iter().all(waits).then_some(())
    });
    // Tasks of the example run on this runtime.
    let entered = api.runtime.enter();
    gate.control(PODS_MAX);
    drop(entered);
    let free = || -> Vec<Value> { api.pods().into_iter().filter(|p| !is_gated(p)).collect() };
    let freed = eventually("as many pods run as the quota allows", || {
        let freed = free();
        let bound = freed
            .iter()
            .filter(|p| p["spec"]["nodeName"].is_string())
            .count();
        (bound == PODS_MAX).then_some(freed)
    });
    assert_eq!(freed.len(), PODS_MAX);
    // A pod that is deleted makes room for another one; its replacement is gated.
    let name = freed[0]["metadata"]["name"].as_str().unwrap_or_default();
    api.send(&request::delete(PODS, "default", name, &json!({})));
    eventually("another pod runs", || {
        let freed = free();
        let others = freed.iter().filter(|p| p["metadata"]["name"] != name);
        (others.filter(|p| p["spec"]["nodeName"].is_string()).count() == PODS_MAX).then_some(())
    });
    assert!(free().len() <= PODS_MAX + 1);
    api.runtime
        .block_on(gate.end())
        .expect("the webhook is removed");
    api.create_pod("free", &json!({}));
    assert!(!is_gated(&api.pod("free")));
}
