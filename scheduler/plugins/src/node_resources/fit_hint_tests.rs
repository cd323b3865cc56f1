//! The events that may help a pod that NodeResourcesFit rejected.

use super::*;
use crate::testing::{Changed, add, delete, full_pod, hint, node, pod, update};
use berth_framework::event::{Hint, HintError};

fn ask(
    waiting: &Pod,
    resource: EventResource,
    action: ActionType,
    changed: Changed,
) -> Result<Hint, HintError> {
    hint(
        NodeResourcesFit::default(),
        &World::new(),
        resource,
        action,
        waiting,
        changed,
    )
}

/// PL-64: a pod is deleted or reduced.
#[test]
fn pods_that_free_something_wake() {
    let assigned = |name: &str, requests: Value| {
        let mut spec = requesting(requests);
        spec["nodeName"] = json!("n");
        pod(name, spec)
    };
    let waiting = pod(
        "p",
        requesting(json!({"memory": "1Gi", "example.com/gpu": 1})),
    );
    let mut nominated = pod("o", requesting(json!({})));
    nominated.status.nominated_node_name = "n".into();
    let scale_down = ActionType::UPDATE_POD_SCALE_DOWN;
    let resized = |allocated: &str| {
        full_pod(
            "o",
            json!({
                "spec": {"nodeName": "n", "containers": [{"name": "c", "resources": {"requests": {"memory": "1Gi"}}}]},
                "status": {"containerStatuses": [{"name": "c", "allocatedResources": {"memory": allocated},
                    "resources": {"requests": {"memory": allocated}}}]},
            }),
        )
    };
    for (name, action, change, expected) in [
        (
            "an assigned pod goes",
            ActionType::DELETE,
            delete(assigned("o", json!({}))),
            Hint::Queue,
        ),
        (
            "a nominated pod goes",
            ActionType::DELETE,
            delete(nominated),
            Hint::Queue,
        ),
        (
            "a pending pod goes",
            ActionType::DELETE,
            delete(pod("o", requesting(json!({})))),
            Hint::Skip,
        ),
        (
            "it shrinks itself",
            scale_down,
            update(
                waiting.clone(),
                pod("p", requesting(json!({"memory": "1Mi"}))),
            ),
            Hint::Queue,
        ),
        (
            "less memory",
            scale_down,
            update(
                assigned("o", json!({"memory": "2Gi"})),
                assigned("o", json!({"memory": "1Gi"})),
            ),
            Hint::Queue,
        ),
        (
            "fewer GPUs",
            scale_down,
            update(
                assigned("o", json!({"example.com/gpu": 2})),
                assigned("o", json!({"example.com/gpu": 1})),
            ),
            Hint::Queue,
        ),
        (
            "less CPU, which it does not request",
            scale_down,
            update(
                assigned("o", json!({"cpu": "2"})),
                assigned("o", json!({"cpu": "1"})),
            ),
            Hint::Skip,
        ),
        (
            "a pending pod shrinks",
            scale_down,
            update(
                pod("o", requesting(json!({"memory": "2Gi"}))),
                pod("o", requesting(json!({"memory": "1Gi"}))),
            ),
            Hint::Skip,
        ),
        (
            "what is actuated shrinks",
            scale_down,
            update(resized("4Gi"), resized("1Gi")),
            Hint::Queue,
        ),
    ] {
        assert_eq!(
            ask(&waiting, EventResource::Pod, action, change),
            Ok(expected),
            "{name}"
        );
    }
}

/// PL-65: a node is added or offers more.
#[test]
fn nodes_that_offer_enough_wake() {
    let offers = |allocatable: Value| node("n", offering(allocatable));
    let allocatable = ActionType::UPDATE_NODE_ALLOCATABLE;
    let cpu = || requesting(json!({"cpu": "2"}));
    for (name, spec, action, change, expected) in [
        (
            "new and large enough",
            cpu(),
            ActionType::ADD,
            add(offers(json!({"cpu": "2"}))),
            Hint::Queue,
        ),
        (
            "new and too small",
            cpu(),
            ActionType::ADD,
            add(offers(json!({"cpu": "1"}))),
            Hint::Skip,
        ),
        (
            "new without room for pods",
            cpu(),
            ActionType::ADD,
            add(offers(json!({"cpu": "2", "pods": 0}))),
            Hint::Skip,
        ),
        (
            "more CPU, enough",
            cpu(),
            allocatable,
            update(offers(json!({"cpu": "1"})), offers(json!({"cpu": "2"}))),
            Hint::Queue,
        ),
        (
            "more CPU, not enough",
            cpu(),
            allocatable,
            update(offers(json!({"cpu": "1"})), offers(json!({"cpu": "1500m"}))),
            Hint::Skip,
        ),
        (
            "more memory, not requested",
            cpu(),
            allocatable,
            update(
                offers(json!({"cpu": "2", "memory": 1})),
                offers(json!({"cpu": "2", "memory": 2})),
            ),
            Hint::Skip,
        ),
        (
            "more pods",
            cpu(),
            allocatable,
            update(
                offers(json!({"cpu": "2", "pods": 1})),
                offers(json!({"cpu": "2", "pods": 2})),
            ),
            Hint::Queue,
        ),
        (
            "nothing requested, more CPU",
            json!({}),
            allocatable,
            update(offers(json!({"cpu": "2"})), offers(json!({"cpu": "3"}))),
            Hint::Skip,
        ),
        (
            "more GPUs",
            requesting(json!({"example.com/gpu": 1})),
            allocatable,
            update(offers(json!({})), offers(json!({"example.com/gpu": 1}))),
            Hint::Queue,
        ),
    ] {
        let waiting = pod("p", spec);
        assert_eq!(
            ask(&waiting, EventResource::Node, action, change),
            Ok(expected),
            "{name}"
        );
    }
}

/// PL-66: any update of a node queues a pod whose extended resource a device class provides on that node. If the node
/// offers the resource itself, only an increase of it queues the pod.
#[test]
fn nodes_that_leave_it_to_devices_help() {
    let offers = |allocatable: Value| node("n", offering(allocatable));
    let waiting = pod("p", requesting(json!({"example.com/gpu": 1})));
    for (name, class_of, before, after, expected) in [
        (
            "a class stands for it",
            "example.com/gpu",
            json!({"cpu": 1}),
            json!({"cpu": 2}),
            Hint::Queue,
        ),
        (
            "a class of another",
            "example.com/nic",
            json!({"cpu": 1}),
            json!({"cpu": 2}),
            Hint::Skip,
        ),
        (
            "the node's own, as before",
            "example.com/gpu",
            json!({"cpu": 1, "example.com/gpu": 1}),
            json!({"cpu": 2, "example.com/gpu": 1}),
            Hint::Skip,
        ),
    ] {
        let got = hint(
            NodeResourcesFit::default(),
            &World::new().with(class("c", Some(class_of))),
            EventResource::Node,
            ActionType::UPDATE_NODE_ALLOCATABLE,
            &waiting,
            update(offers(before), offers(after)),
        );
        assert_eq!(got, Ok(expected), "{name}");
    }
}

/// PL-67: classes that begin to provide a resource that the pod requests.
#[test]
fn classes_that_help() {
    let update_any = ActionType::UPDATE;
    let gpu = || requesting(json!({"example.com/gpu": 1}));
    let implied = || requesting(json!({"deviceclass.resource.kubernetes.io/gpu": 1}));
    for (name, spec, action, change, expected) in [
        (
            "new, stands for it",
            gpu(),
            ActionType::ADD,
            add(class("x", Some("example.com/gpu"))),
            Hint::Queue,
        ),
        (
            "new, stands for another",
            gpu(),
            ActionType::ADD,
            add(class("x", Some("example.com/nic"))),
            Hint::Skip,
        ),
        (
            "new, of that name",
            implied(),
            ActionType::ADD,
            add(class("gpu", None)),
            Hint::Queue,
        ),
        (
            "comes to stand for it",
            gpu(),
            update_any,
            update(class("x", None), class("x", Some("example.com/gpu"))),
            Hint::Queue,
        ),
        (
            "stands for it as before",
            gpu(),
            update_any,
            update(
                class("x", Some("example.com/gpu")),
                class("x", Some("example.com/gpu")),
            ),
            Hint::Skip,
        ),
    ] {
        let waiting = pod("p", spec);
        assert_eq!(
            ask(&waiting, EventResource::DeviceClass, action, change),
            Ok(expected),
            "{name}"
        );
    }
}
