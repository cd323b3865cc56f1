//! The changes that may help a pod that `NodeResourcesFit` rejected.

use super::fit::{Shortage, requests};
use crate::change::is_assigned_or_nominated;
use crate::extended_resources::{class_of, implied_resource};
use berth_api::requests::{SumOptions, pod_resources};
use berth_api::resources::{CPU, EPHEMERAL_STORAGE, MEMORY};
use berth_api::{Node, Pod, Resources};
use berth_framework::Cluster;
use berth_framework::event::{Change, Hint, HintError, Touched};

/// A pod that is deleted, or that requests less, may free enough.
pub(super) fn after_pod_change(
    cluster: &Cluster,
    pod: &Pod,
    change: &Change<'_>,
) -> Result<Hint, HintError> {
    Ok(match change.pods()? {
        (Some(deleted), None) => Hint::queue_if(is_assigned_or_nominated(deleted)),
        (_, Some(new)) if new.uid() == pod.uid() => Hint::Queue,
        (Some(old), Some(new)) => {
            Hint::queue_if(new.is_assigned() && frees_what_is_wanted(cluster, pod, old, new))
        }
        _ => Hint::Skip,
    })
}

/// A pod requests more than before, so pods on its node that wait for a resize are evaluated again.
pub(super) fn after_growth(pod: &Pod, change: &Change<'_>) -> Result<Hint, HintError> {
    let (_, new) = change.pods()?;
    let is_near = new.is_some_and(|new| new.spec.node_name == pod.spec.node_name);
    Ok(Hint::queue_if(pod.has_deferred_resize() && is_near))
}

/// The pods that a change of a pod may help: all. As in kube-scheduler, the freed amount is not compared, because
/// preemption may free the rest.
pub(super) fn touched_by_pod(change: &Change<'_>) -> Touched {
    match change.pods() {
        Ok((Some(deleted), None)) if !is_assigned_or_nominated(deleted) => Touched::no_pod(),
        Ok((_, Some(new))) if !new.is_assigned() => Touched::no_pod().and_pod(new),
        _ => Touched::everything(),
    }
}

/// Returns whether `new` requests less than `old` of something that `pod` requests.
fn frees_what_is_wanted(cluster: &Cluster, pod: &Pod, old: &Pod, new: &Pod) -> bool {
    let wanted = requests(pod);
    let placed = SumOptions::PLACED.counting(cluster.footprint);
    let old = pod_resources(old, placed);
    let new = pod_resources(new, placed);
    any_wanted(&wanted, |amount_of| amount_of(&old) > amount_of(&new))
}

/// A node helps if the pod fits the empty node, and, for a changed node, if it allows more pods, offers more of a
/// resource that the pod requests, or leaves such a resource to devices. As in kube-scheduler, ignored resources are
/// compared, because a pod that lacks nothing else is not rejected for them.
pub(super) fn after_node_change(
    cluster: &Cluster,
    has_devices: bool,
    pod: &Pod,
    change: &Change<'_>,
) -> Result<Hint, HintError> {
    let (old, new) = change.nodes()?;
    let Some(new) = new else {
        return Ok(Hint::Skip);
    };
    let wanted = requests(pod);
    let offered = allocatable(new);
    let by_devices = |resource: &str| {
        has_devices && offered.scalar(resource) <= 0 && class_of(cluster, resource).is_some()
    };
    // A node whose empty capacity is too small cannot help (PL-65).
    if !fits_empty(&wanted, &offered, by_devices) {
        return Ok(Hint::Skip);
    }
    let mut scalars = wanted.scalars.iter();
    let has_device = scalars.any(|(name, amount)| *amount > 0 && by_devices(name));
    let Some(old) = old else {
        return Ok(Hint::Queue);
    };
    let before = allocatable(old);
    Ok(Hint::queue_if(
        offered.pods > before.pods
            || has_device
            || any_wanted(&wanted, |amount_of| {
                amount_of(&offered) > amount_of(&before)
            }),
    ))
}

/// A class that newly backs a resource that the pod requests.
pub(super) fn after_class_change(pod: &Pod, change: &Change<'_>) -> Result<Hint, HintError> {
    let Some(new) = change.new else {
        return Ok(Hint::Skip);
    };
    let class = new.as_device_class().ok_or_else(|| HintError::OtherKind {
        expected: "a device class",
        found: new.kind(),
    })?;
    let named = class.spec.extended_resource_name.as_ref();
    let before = change.old.and_then(|old| old.as_device_class());
    if before.is_some_and(|before| before.spec.extended_resource_name.as_ref() == named) {
        return Ok(Hint::Skip);
    }
    let wanted = requests(pod);
    let is_wanted = |resource: &str| wanted.scalar(resource) > 0;
    Ok(Hint::queue_if(
        (before.is_none() && is_wanted(&implied_resource(class)))
            || named.is_some_and(|named| is_wanted(named)),
    ))
}

pub(super) fn allocatable(node: &Node) -> Resources {
    Resources::from_list(&node.status.allocatable)
}

/// Returns whether the pod fits the empty node. Resources that devices back are not compared.
fn fits_empty(wanted: &Resources, offered: &Resources, by_devices: impl Fn(&str) -> bool) -> bool {
    let is_enough =
        |resource: &str, request, offered| Shortage::of(resource, request, 0, offered, 0).is_none();
    let mut scalars = wanted.scalars.iter();
    Shortage::of_pods(0, offered.pods).is_none()
        && is_enough(CPU, wanted.milli_cpu, offered.milli_cpu)
        && is_enough(MEMORY, wanted.memory, offered.memory)
        && is_enough(
            EPHEMERAL_STORAGE,
            wanted.ephemeral_storage,
            offered.ephemeral_storage,
        )
        && scalars.all(|(name, request)| {
            by_devices(name) || is_enough(name, *request, offered.scalar(name))
        })
}

/// Returns whether `holds` for some resource that the pod requests; it receives a function that reads the amount.
fn any_wanted(wanted: &Resources, holds: impl Fn(&dyn Fn(&Resources) -> i64) -> bool) -> bool {
    let plain: [fn(&Resources) -> i64; 3] = [
        |resources| resources.milli_cpu,
        |resources| resources.memory,
        |resources| resources.ephemeral_storage,
    ];
    plain
        .iter()
        .any(|amount_of| amount_of(wanted) > 0 && holds(amount_of))
        || wanted
            .scalars
            .iter()
            .any(|(name, amount)| *amount > 0 && holds(&|resources| resources.scalar(name)))
}
