//! The event, and the pods that it moves.

use super::crowd::{Crowd, affinity, claim, device_claim, request, tolerate};
use crate::generate;
use berth_api::{Kind, Object, Pod};
use berth_framework::event::Change;
use berth_framework::{ActionType, ClusterEvent, EventResource};
use serde_json::{Value, json};
use std::sync::Arc;

/// An event, and the pods that it helps.
pub(super) struct Scene {
    pub(super) name: &'static str,
    pub(super) event: ClusterEvent,
    old: Option<Object>,
    new: Option<Object>,
    /// The plugin that rejected the helped pods.
    pub(super) plugin: &'static str,
    /// The edit of the helped pods.
    pub(super) helped: fn(&mut Value),
    /// The other waiting pods besides gated pods, which the event does not help.
    crowd: Crowd,
}

fn node(edit: impl FnOnce(&mut Value)) -> Option<Object> {
    Some(Object::Node(generate::node(0, |node| {
        node["spec"]["taints"] = json!([{"key": "team", "effect": "NoSchedule"}]);
        edit(node);
    })))
}

fn placed(edit: impl FnOnce(&mut Value)) -> Option<Object> {
    let pod = generate::pod(1, |pod| {
        pod["spec"]["nodeName"] = json!("node-0");
        edit(pod);
    });
    Some(Object::Pod(Arc::new(Pod::clone(&pod))))
}

impl Scene {
    /// Everything that happens.
    pub(super) fn all() -> Vec<Self> {
        use ActionType as A;
        use EventResource as R;
        let event = ClusterEvent::new;
        let near_web: fn(&mut Value) =
            |pod| affinity(pod, "podAffinity", "web", "kubernetes.io/hostname");
        vec![
            Self {
                name: "node added",
                event: event(R::Node, A::ADD),
                old: None,
                new: node(|_| {}),
                plugin: "NodeResourcesFit",
                helped: |pod| request(pod, json!({"cpu": "3", "memory": "2Gi"})),
                crowd: Crowd::ForNodes,
            },
            Self {
                name: "node grown",
                event: event(R::Node, A::UPDATE_NODE_ALLOCATABLE),
                old: node(|_| {}),
                new: node(|node| node["status"]["allocatable"]["cpu"] = json!("8")),
                plugin: "NodeResourcesFit",
                helped: |pod| request(pod, json!({"cpu": "6", "memory": "2Gi"})),
                crowd: Crowd::ForNodes,
            },
            Self {
                name: "node relabelled",
                event: event(R::Node, A::UPDATE_NODE_LABEL),
                old: node(|_| {}),
                new: node(|node| node["metadata"]["labels"]["disk"] = json!("ssd")),
                plugin: "NodeAffinity",
                helped: |pod| pod["spec"]["nodeSelector"] = json!({"disk": "ssd"}),
                crowd: Crowd::ForNodes,
            },
            Self {
                name: "node untainted",
                event: event(R::Node, A::UPDATE_NODE_TAINT),
                old: node(|node| {
                    node["spec"]["taints"] = json!([
                        {"key": "team", "effect": "NoSchedule"},
                        {"key": "maintenance", "effect": "NoSchedule"},
                    ]);
                }),
                new: node(|_| {}),
                plugin: "TaintToleration",
                helped: |pod| tolerate(pod, "team"),
                crowd: Crowd::ForTaints,
            },
            Self {
                name: "pod placed",
                event: event(R::AssignedPod, A::ADD),
                old: None,
                new: placed(|_| {}),
                plugin: "InterPodAffinity",
                helped: near_web,
                crowd: Crowd::ForPods,
            },
            Self {
                name: "pod relabelled",
                event: event(R::AssignedPod, A::UPDATE_POD_LABEL),
                old: placed(|pod| pod["metadata"]["labels"]["app"] = json!("other")),
                new: placed(|_| {}),
                plugin: "InterPodAffinity",
                helped: near_web,
                crowd: Crowd::ForPods,
            },
            Self {
                name: "pod deleted",
                event: event(R::AssignedPod, A::DELETE),
                old: placed(|pod| {
                    pod["spec"]["containers"][0]["ports"] =
                        json!([{"containerPort": 80, "hostPort": 9090}]);
                }),
                new: None,
                plugin: "NodePorts",
                helped: |pod| {
                    pod["spec"]["containers"][0]["ports"] =
                        json!([{"containerPort": 80, "hostPort": 9090}]);
                },
                crowd: Crowd::ForPods,
            },
            Self {
                name: "claim changed",
                event: event(R::PersistentVolumeClaim, A::UPDATE),
                old: Some(claim_object("1")),
                new: Some(claim_object("2")),
                plugin: "VolumeBinding",
                helped: |pod| claim(pod, "shared"),
                crowd: Crowd::ForVolumes,
            },
            Self {
                name: "resource claim changed",
                event: event(R::ResourceClaim, A::UPDATE),
                old: Some(device_claim_object(json!({}))),
                new: Some(device_claim_object(json!({"reservedFor": [
                    {"resource": "pods", "name": "other", "uid": "other"},
                ]}))),
                plugin: "DynamicResources",
                helped: |pod| device_claim(pod, "shared"),
                crowd: Crowd::ForDevices,
            },
            Self {
                name: "namespace changed",
                event: event(R::of_kind(Kind::Namespace), A::UPDATE),
                old: Some(generate::namespace("other", json!({}))),
                new: Some(generate::namespace("other", json!({"team": "a"}))),
                plugin: "InterPodAffinity",
                helped: |pod| {
                    affinity(pod, "podAffinity", "web", "kubernetes.io/hostname");
                    let terms = "/spec/affinity/podAffinity/requiredDuringSchedulingIgnoredDuringExecution/0";
                    if let Some(term) = pod.pointer_mut(terms) {
                        term["namespaceSelector"] = json!({"matchLabels": {"team": "a"}});
                    }
                },
                crowd: Crowd::ForPods,
            },
        ]
    }

    /// Returns whether the event helps no pod of the crowd.
    pub(super) fn suits(&self, crowd: Crowd) -> bool {
        crowd == Crowd::Gated || crowd == self.crowd
    }

    pub(super) fn change(&self) -> Change<'_> {
        Change {
            old: self.old.as_ref(),
            new: self.new.as_ref(),
        }
    }
}

fn device_claim_object(status: Value) -> Object {
    let metadata = json!({"name": "shared", "namespace": "default", "uid": "shared"});
    let object = json!({"metadata": metadata, "status": status});
    generate::decoded(Kind::ResourceClaim, &object)
}

fn claim_object(version: &str) -> Object {
    let object = json!({
        "metadata": {"name": "shared", "namespace": "default", "uid": "c", "resourceVersion": version},
        "spec": {"accessModes": ["ReadWriteOnce"]},
    });
    generate::decoded(Kind::PersistentVolumeClaim, &object)
}
