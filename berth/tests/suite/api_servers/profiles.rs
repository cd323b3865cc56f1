//! A configuration with two profiles and an extender, and preemption that respects PodDisruptionBudgets.

use super::{create_pod, deletion_at_once, pod, ready, scheduler};
use crate::e2e::server::on_each;
use crate::e2e::webhook::Webhook;
use crate::e2e::{eventually, scheduled};
use berth_client::request::{self, PODS, Resource};
use serde_json::json;

const PRIORITY_CLASSES: Resource = Resource {
    group: "scheduling.k8s.io",
    version: "v1",
    plural: "priorityclasses",
};

const BUDGETS: Resource = Resource {
    group: "policy",
    version: "v1",
    plural: "poddisruptionbudgets",
};

/// Both profiles call the extender. Only one of them fills nodes, and it does not check taints.
#[test]
fn two_profiles_and_an_extender_place_pods() {
    let webhook = Webhook::serve(|path, question| {
        if path != "/filter" {
            return (404, json!(format!("no {path}")));
        }
        let items = question["Nodes"]["items"].as_array().cloned();
        let mut items = items.unwrap_or_default();
        items.retain(|node| node["metadata"]["name"] != "n1");
        let failed = json!({"n1": "node is reserved"});
        (
            200,
            json!({"Nodes": {"items": items}, "FailedNodes": failed}),
        )
    });
    on_each("profiles", |server| {
        server.create_nodes(3, 110);
        let config = format!(
            "apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
- schedulerName: filling
  plugins:
    multiPoint: {{disabled: [{{name: TaintToleration}}]}}
  pluginConfig:
  - name: NodeResourcesFit
    args: {{scoringStrategy: {{type: MostAllocated, resources: [{{name: cpu, weight: 1}}]}}}}
  - name: NodeResourcesBalancedAllocation
    args: {{resources: [{{name: cpu, weight: 1}}]}}
extenders:
- {{urlPrefix: '{}', filterVerb: filter}}
",
            webhook.url
        );
        let config = server.scratch.file("profiles.yaml", &config);
        let config = format!("--config={}", config.display());
        let scheduler = scheduler(&server.kubeconfig(), &["--leader-elect=false", &config]);
        ready(&scheduler);
        let api = &server.api;

        // One pod uses half of n2. The default profile prefers the empty node, the other profile the used node.
        let on_n2 = json!({"nodeSelector": {"kubernetes.io/hostname": "n2"}});
        create_pod(api, "first", "2", &on_n2);
        assert_eq!(api.bound("first")["spec"]["nodeName"], "n2");
        create_pod(api, "spread", "500m", &json!({}));
        assert_eq!(api.bound("spread")["spec"]["nodeName"], "n3");
        let asked = webhook.asked("/filter", "filled").len();
        create_pod(api, "filled", "500m", &json!({"schedulerName": "filling"}));
        assert_eq!(api.bound("filled")["spec"]["nodeName"], "n2");
        assert!(
            webhook.asked("/filter", "filled").len() > asked,
            "{}: the extender takes part in each profile",
            server.name
        );

        // n1 is reserved by the extender, the other nodes by a taint that only one profile checks.
        for node in ["n2", "n3"] {
            let taint = json!([{"key": "example.com/closed", "effect": "NoSchedule"}]);
            let taints = json!({"spec": {"taints": taint}});
            let nodes = crate::e2e::server::NODES;
            api.send(&request::merge_patch(nodes, "", node, &taints));
        }
        create_pod(api, "closed-out", "100m", &json!({}));
        let message = eventually("the pod is reported as unschedulable", || {
            let condition = scheduled(&api.pod("closed-out"));
            let message = condition["message"].as_str().map(str::to_owned);
            message.filter(|_| condition["reason"] == "Unschedulable")
        });
        assert!(
            message.starts_with(
                "0/3 nodes are available: 1 node is reserved, 2 node(s) had untolerated taint(s)."
            ),
            "{}: {message}",
            server.name
        );
        create_pod(
            api,
            "unchecked",
            "100m",
            &json!({"schedulerName": "filling"}),
        );
        api.bound("unchecked");

        // A pod of another scheduler is not touched.
        create_pod(api, "foreign", "100m", &json!({"schedulerName": "foreign"}));
        create_pod(api, "last", "100m", &json!({"schedulerName": "filling"}));
        api.bound("last");
        assert!(api.pod("foreign")["spec"]["nodeName"].is_null());
    });
}

/// Two nodes have a pod of lower priority: the pod without a budget is preempted.
#[test]
fn preemption_spares_the_pod_that_a_budget_protects() {
    on_each("budget", |server| {
        server.create_nodes(2, 110);
        let api = &server.api;
        let high = json!({
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 1000,
        });
        api.ensure(&request::create(PRIORITY_CLASSES, "", &high));
        let budget = json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
            "metadata": {"name": "keep", "namespace": "default"},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "kept"}}},
        });
        api.send(&request::create(BUDGETS, "default", &budget));
        let scheduler = scheduler(&server.kubeconfig(), &["--leader-elect=false"]);
        ready(&scheduler);
        for (name, node) in [("kept", "n1"), ("other", "n2")] {
            let selector = json!({"nodeSelector": {"kubernetes.io/hostname": node}});
            let mut victim = pod(name, "3", &selector);
            victim["metadata"]["labels"] = json!({"app": name});
            api.send(&request::create(PODS, "default", &victim));
            api.bound(name);
        }
        let urgent = json!({"priorityClassName": "high"});
        create_pod(api, "urgent", "3", &urgent);
        eventually("the unprotected pod is evicted", || {
            let pods = api.pods();
            let mut others = pods.iter().filter(|p| p["metadata"]["name"] == "other");
            let is_evicted = others.all(|p| p["metadata"]["deletionTimestamp"].is_string());
            is_evicted.then_some(())
        });
        if api.pods().iter().any(|p| p["metadata"]["name"] == "other") {
            api.send(&deletion_at_once("other"));
        }
        assert_eq!(api.bound("urgent")["spec"]["nodeName"], "n2");
        assert!(api.pod("kept")["metadata"]["deletionTimestamp"].is_null());
    });
}
