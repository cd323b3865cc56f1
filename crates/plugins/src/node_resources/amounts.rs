//! What the resource scores read of a pod and of a node.

use super::args::ScoredResource;
use super::strategy::Share;
use berth_api::Pod;
use berth_api::names::is_scalar_resource_name;
use berth_api::requests::{Options, pod_requests};
use berth_api::resources::{CPU, EPHEMERAL_STORAGE, MEMORY};
use berth_framework::NodeView;
use berth_framework::table::ResourceId;

/// What a pending pod is taken to request when `NodeResourcesFit` scores: with the defaults for containers without
/// requests, and, as upstream, without its pod-level requests.
pub const FOR_FIT: Options = Options {
    use_status: false,
    pod_level: false,
    non_zero: true,
};

/// What a pending pod is taken to request when `NodeResourcesBalancedAllocation` scores.
pub const FOR_BALANCE: Options = Options {
    use_status: true,
    pod_level: true,
    non_zero: false,
};

/// What the node's pods count for in CPU and memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counted {
    /// Their requests, with the defaults for containers without.
    NonZero,
    /// Their requests as they are.
    Requested,
}

/// What the pod requests of each scored resource, in their order: CPU in milli-CPU, else whole units.
pub fn requested(pod: &Pod, resources: &[ScoredResource], options: Options) -> Vec<i64> {
    let requests = pod_requests(pod, options);
    let amount = |name: &str| match requests.get(name) {
        None => 0,
        Some(quantity) if name == CPU => quantity.milli_value(),
        Some(quantity) => quantity.value(),
    };
    resources
        .iter()
        .map(|resource| amount(&resource.name))
        .collect()
}

/// What the node offers of each scored resource and what its pods, with this one, would hold. A scalar resource that
/// the pod does not request is left out, that is, offered with zero; so is a resource that scheduling does not track.
pub fn shares(
    node: NodeView<'_>,
    resources: &[ScoredResource],
    pod: &[i64],
    counted: Counted,
) -> Vec<Share> {
    resources
        .iter()
        .zip(pod)
        .map(|(resource, own)| {
            let (allocatable, held) = of_node(node, &resource.name, *own, counted);
            let (allocatable, held, own) = match allocatable {
                0 => (0, 0, 0),
                some => (some, held, *own),
            };
            Share {
                requested: held.saturating_add(own),
                allocatable,
                weight: resource.weight,
            }
        })
        .collect()
}

fn of_node(node: NodeView<'_>, name: &str, own: i64, counted: Counted) -> (i64, i64) {
    let non_zero = counted == Counted::NonZero;
    match name {
        CPU if non_zero => (node.allocatable(ResourceId::CPU), node.non_zero_milli_cpu()),
        CPU => (
            node.allocatable(ResourceId::CPU),
            node.requested(ResourceId::CPU),
        ),
        MEMORY if non_zero => (node.allocatable(ResourceId::MEMORY), node.non_zero_memory()),
        MEMORY => (
            node.allocatable(ResourceId::MEMORY),
            node.requested(ResourceId::MEMORY),
        ),
        EPHEMERAL_STORAGE => (
            node.allocatable(ResourceId::EPHEMERAL_STORAGE),
            node.requested(ResourceId::EPHEMERAL_STORAGE),
        ),
        name if own != 0 && is_scalar_resource_name(name) => {
            (node.allocatable_of(name), node.requested_of(name))
        }
        _ => (0, 0),
    }
}
