//! In-place resize of pods on simulated nodes (KEP-1287).
//!
//! A kubelet compares the spec and the status of a running pod. If the node has room for the new resources, the kubelet
//! allocates them (`allocatedResources`, condition PodResizeInProgress), then sets `resources`. Otherwise the resize is
//! deferred (condition PodResizePending) until another pod of the node ends.

use super::admission::{JudgedPod, NodeShare, message_of};
use berth_api::Str;
use berth_objects::access::StoredObject;
use berth_objects::object::{
    condition, generation, next_count, put_condition, remove_condition, seconds,
};
use berth_objects::pod;
use berth_objects::validation::amounts::{self, Amounts};
use berth_objects::view::{FieldView, copy_field, items_mut, set};
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use std::sync::Arc;

const PENDING: &str = "PodResizePending";
const IN_PROGRESS: &str = "PodResizeInProgress";
/// The containers that can be resized and their statuses.
const CONTAINERS: [(&str, &str); 2] = [
    ("containers", "containerStatuses"),
    ("initContainers", "initContainerStatuses"),
];

/// The resources of a container as its status shows them.
pub(super) fn shown(container: &Value) -> Value {
    let mut resources = Map::new();
    for list in ["limits", "requests"] {
        let amounts = container.part("resources").field(list);
        resources.extend(amounts.map(|amounts| (list.to_owned(), amounts.clone())));
    }
    resources.into()
}

/// Each container with the status that has its resources.
fn reported(pod: &Value) -> impl Iterator<Item = (&Value, &Value)> {
    CONTAINERS.into_iter().flat_map(move |(list, statuses)| {
        let statuses = pod.part("status").items(statuses);
        let containers = pod.part("spec").items(list).iter();
        containers.filter_map(move |container| {
            let mut own = statuses
                .iter()
                .filter(|s| s.text("name") == container.text("name"));
            let own = own.find(|s| s.field("resources").is_some())?;
            Some((container, own))
        })
    })
}

fn lists(resources: &Value) -> [Amounts; 2] {
    ["requests", "limits"].map(|list| amounts::list(resources, list))
}

fn is_allocated((container, status): (&Value, &Value)) -> bool {
    let [requests, _] = lists(container.part("resources"));
    requests == amounts::list(status, "allocatedResources")
}

fn is_actuated((container, status): (&Value, &Value)) -> bool {
    lists(container.part("resources")) == lists(status.part("resources"))
}

/// Returns whether a pod waits until its node has room.
pub(super) fn is_deferred(pod: &Value) -> bool {
    condition(&pod["status"], PENDING).is_some()
}

/// The status of a running pod after the next step of a resize; `None` if no resize is pending. `neighbours` are the
/// pods of its node.
pub(super) fn step<'p>(
    pod: &Value,
    node: &Value,
    neighbours: impl Iterator<Item = &'p StoredObject>,
    now: Timestamp,
) -> Option<Value> {
    let in_progress = condition(&pod["status"], IN_PROGRESS).is_some();
    let is_actuated = reported(pod).all(is_actuated);
    let mut status = pod["status"].clone();
    if reported(pod).all(is_allocated) && (is_actuated || in_progress) {
        if is_actuated && !in_progress && !is_deferred(pod) {
            return None;
        }
        // The amounts are allocated already: only the actuation is left.
        remove_condition(&mut status, PENDING);
        remove_condition(&mut status, IN_PROGRESS);
        write(&mut status, pod, actuate);
    } else if let Some(message) = lacks(pod, node, neighbours) {
        let known = condition(&status, PENDING);
        // A deferred resize with the same reason is not written again.
        if known
            .is_some_and(|c| c["message"] == message && c["observedGeneration"] == generation(pod))
        {
            return None;
        }
        put(&mut status, pod, PENDING, Some(("Deferred", message)), now);
    } else {
        remove_condition(&mut status, PENDING);
        put(&mut status, pod, IN_PROGRESS, None, now);
        write(&mut status, pod, |container, status| {
            copy_field(
                status,
                &json!({"allocatedResources": container.part("resources").part("requests")}),
                "allocatedResources",
            );
        });
    }
    status["observedGeneration"] = generation(pod).into();
    Some(status)
}

/// Gives a running container the resources of its spec. One whose policy demands that restarts.
fn actuate(container: &Value, status: &mut Value) {
    if is_actuated((container, status)) {
        return;
    }
    let [before, after] = [status.part("resources"), container.part("resources")].map(lists);
    let changes = |resource: &str| {
        let of = |lists: &[Amounts; 2]| lists.clone().map(|list| list.get(resource).copied());
        of(&before) != of(&after)
    };
    let mut policies = container.items("resizePolicy").iter();
    if policies
        .any(|p| p.text("restartPolicy") == "RestartContainer" && changes(p.text("resourceName")))
    {
        let restarts = next_count(status.int("restartCount"));
        set(status, "restartCount", restarts);
    }
    set(status, "resources", shown(container));
}

fn write(status: &mut Value, pod: &Value, change: impl Fn(&Value, &mut Value)) {
    for (list, statuses) in CONTAINERS {
        for container in pod.part("spec").items(list) {
            let mut own = items_mut(status, statuses).iter_mut();
            if let Some(own) =
                own.find(|s| s["name"] == container["name"] && s["resources"].is_object())
            {
                change(container, own);
            }
        }
    }
}

fn put(status: &mut Value, pod: &Value, kind: &str, why: Option<(&str, String)>, now: Timestamp) {
    let since = condition(status, kind).map(|c| c["lastTransitionTime"].clone());
    let mut new = json!({
        "type": kind,
        "status": "True",
        "lastProbeTime": null,
        "lastTransitionTime": since.unwrap_or_else(|| seconds(now)),
        "observedGeneration": generation(pod),
    });
    if let Some((reason, message)) = why {
        new["reason"] = reason.into();
        new["message"] = message.into();
    }
    put_condition(status, new);
}

/// The reason why a node has no room for a pod, given the allocations of its other pods.
fn lacks<'p>(
    pod: &Value,
    node: &Value,
    neighbours: impl Iterator<Item = &'p StoredObject>,
) -> Option<String> {
    let is_other =
        |p: &&StoredObject| p["metadata"]["uid"] != pod["metadata"]["uid"] && !pod::is_terminal(p);
    let taken = neighbours
        .filter(is_other)
        .map(|other| NodeShare::by(other).map(Arc::new));
    let is_resizable = |name: &Str| matches!(name.as_str(), "cpu" | "memory");
    match taken
        .collect::<Result<_, _>>()
        .and_then(|taken| JudgedPod::new(pod, node, taken))
    {
        Ok(judged) => judged
            .shortage(is_resizable)
            .map(|short| message_of(&short)),
        Err(error) => Some(error.to_string()),
    }
}
