//! The values that the resource scores read of a pod and of nodes.

use super::args::ScoredResource;
use super::devices::{self, DeviceAmounts};
use super::strategy::Share;
use berth_api::names::is_scalar_resource_name;
use berth_api::requests::{Footprint, SumOptions, pod_requests};
use berth_api::resources::{CPU, EPHEMERAL_STORAGE, MEMORY};
use berth_framework::plugin::Context;
use berth_framework::table::{Columns, ResourceId};
use berth_framework::{PodInfo, Slot};
use smallvec::SmallVec;

/// The requests that are assumed of a pending pod when `NodeResourcesFit` scores: with the defaults for containers
/// without requests, and, as upstream, without its pod-level requests.
pub const FOR_FIT: SumOptions = SumOptions {
    use_status: false,
    pod_level: false,
    non_zero: true,
    footprint: Footprint::Containers,
};

/// The requests that are assumed of a pending pod when `NodeResourcesBalancedAllocation` scores.
pub const FOR_BALANCE: SumOptions = SumOptions::PLACED;

/// The sums of CPU and memory of the pods of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CountedResources {
    /// Their requests, with the defaults for containers without.
    NonZero,
    /// Their requests, unchanged.
    Requested,
}

/// An amount of each scored resource, in their order: CPU in milli-CPU, else whole units.
pub type ScoredAmounts = SmallVec<[i64; 4]>;

/// The values that the resource scores read of a pod.
#[derive(Debug, Hash)]
pub struct Scored {
    pub(super) requested: ScoredAmounts,
    pub(super) devices: DeviceAmounts,
}

impl Scored {
    /// With the devices that provide some of the resources.
    pub(super) fn new(
        cx: &Context<'_>,
        resources: &[ScoredResource],
        requested: ScoredAmounts,
    ) -> Self {
        Self {
            devices: DeviceAmounts::of(cx, resources, &requested),
            requested,
        }
    }
}

/// Returns whether the status has no resources of containers, because the pod has not run yet.
pub(super) fn is_fresh(pod: &PodInfo) -> bool {
    let status = &pod.pod.status;
    status.container_statuses.is_empty()
        && status.init_container_statuses.is_empty()
        && status.resources.is_none()
}

/// CPU and memory, where they have been computed already.
fn known(pod: &PodInfo, options: SumOptions) -> Option<(i64, i64)> {
    match options {
        SumOptions::PLACED => Some((pod.requests.milli_cpu, pod.requests.memory)),
        FOR_FIT if is_fresh(pod) && pod.pod.spec.resources.is_none() => {
            Some((pod.non_zero_milli_cpu, pod.non_zero_memory))
        }
        _ => None,
    }
}

/// The amount of each scored resource that the pod requests.
pub fn requested(
    pod: &PodInfo,
    resources: &[ScoredResource],
    options: SumOptions,
) -> ScoredAmounts {
    let names = || resources.iter().map(|resource| resource.name.as_str());
    if let Some((milli_cpu, memory)) = known(pod, options)
        && names().all(|name| matches!(name, CPU | MEMORY))
    {
        let amount = |name: &str| if name == CPU { milli_cpu } else { memory };
        return names().map(amount).collect();
    }
    let requests = pod_requests(&pod.pod, options);
    let amount = |name: &str| match requests.get(name) {
        None => 0,
        Some(quantity) if name == CPU => quantity.milli_value(),
        Some(quantity) => quantity.value(),
    };
    names().map(amount).collect()
}

/// One scored resource of all nodes.
#[derive(Debug, Clone, Copy)]
pub struct ScoredColumn<'a> {
    pub(super) allocatable: &'a [i64],
    pub(super) held: &'a [i64],
    pub(super) own: i64,
    pub(super) weight: i64,
}

/// The scored resources of all nodes, with the amounts that a pod would add.
#[derive(Debug, Clone)]
pub struct ScoredColumns<'a> {
    columns: SmallVec<[ScoredColumn<'a>; 4]>,
    /// The resources that devices provide on nodes that do not offer them.
    of_devices: Vec<DeviceColumn<'a>>,
}

/// One scored resource that devices provide.
#[derive(Debug, Clone, Copy)]
struct DeviceColumn<'a> {
    counts: &'a [(i64, i64)],
    /// The amounts that nodes offer of the resource themselves, if some do.
    allocatable: Option<&'a [i64]>,
    own: i64,
    weight: i64,
}

impl<'a> ScoredColumns<'a> {
    /// For a pod that requests `pod`. A scalar resource that the pod does not request is left out; so is a resource
    /// that scheduling does not track, or that no object names.
    pub fn new(
        amounts: &'a Columns,
        resources: &[ScoredResource],
        pod: &'a Scored,
        counted: CountedResources,
    ) -> Self {
        let requested = &pod.requested;
        // On nodes that do not offer the resource, its devices count (PL-177).
        let of_devices = resources.iter().zip(requested).enumerate();
        let of_devices = of_devices.filter_map(|(index, (resource, own))| {
            let allocatable = of_columns(amounts, &resource.name, *own, counted);
            Some(DeviceColumn {
                counts: pod.devices.column(index)?,
                allocatable: allocatable.map(|(allocatable, _)| allocatable),
                own: *own,
                weight: resource.weight,
            })
        });
        let of_devices = of_devices.collect();
        let columns = resources
            .iter()
            .zip(requested)
            .filter_map(|(resource, own)| {
                let (allocatable, held) = of_columns(amounts, &resource.name, *own, counted)?;
                Some(ScoredColumn {
                    allocatable,
                    held,
                    own: *own,
                    weight: resource.weight,
                })
            });
        Self {
            columns: columns.collect(),
            of_devices,
        }
    }

    /// The shares of one node, without resources that the node does not offer.
    #[inline]
    pub fn of(&self, node: Slot) -> impl Iterator<Item = Share> + Clone {
        let at = node.index();
        let of_devices = self.of_devices.iter().filter_map(move |column| {
            let is_offered = column.allocatable.is_some_and(|offered| offered[at] != 0);
            let (all, allocated) = devices::at(column.counts, node);
            (!is_offered && all != 0).then(|| Share {
                requested: allocated.saturating_add(column.own),
                own: column.own,
                allocatable: all,
                weight: column.weight,
            })
        });
        let of_nodes = self.columns.iter().map(move |column| column.of(node));
        let of_nodes = of_nodes.filter(|share| share.allocatable != 0);
        of_nodes.chain(of_devices)
    }

    /// The shares of several nodes together.
    pub fn sums(&self, nodes: &[Slot]) -> Vec<Share> {
        let of_nodes = self.columns.iter().map(|column| {
            let mut sum = Share {
                requested: column.own,
                own: column.own,
                allocatable: 0,
                weight: column.weight,
            };
            for node in nodes {
                let at = node.index();
                sum.requested = sum.requested.saturating_add(column.held[at]);
                sum.allocatable = sum.allocatable.saturating_add(column.allocatable[at]);
            }
            sum
        });
        let of_nodes = of_nodes.filter(|share| share.allocatable != 0);
        of_nodes.collect()
    }

    /// The columns if two resources are scored, as by default, and devices provide none of them.
    pub fn pair(&self) -> Option<ScoredPair<'a>> {
        match self.columns[..] {
            [a, b] if self.of_devices.is_empty() => Some(ScoredPair([a, b])),
            _ => None,
        }
    }
}

/// Two scored resources of all nodes.
#[derive(Debug, Clone, Copy)]
pub struct ScoredPair<'a>(pub(super) [ScoredColumn<'a>; 2]);

impl ScoredPair<'_> {
    /// The shares of one node, if it offers both.
    #[inline]
    pub fn of(&self, node: Slot) -> Option<[Share; 2]> {
        // Without `map`, which is not inlined: this is read for each node.
        let (first, second) = (self.0[0].of(node), self.0[1].of(node));
        (first.allocatable != 0 && second.allocatable != 0).then_some([first, second])
    }
}

impl ScoredColumn<'_> {
    #[inline]
    fn of(&self, node: Slot) -> Share {
        Share {
            requested: self.held[node.index()].saturating_add(self.own),
            own: self.own,
            allocatable: self.allocatable[node.index()],
            weight: self.weight,
        }
    }
}

/// The allocatable amount of a resource, and the requests of the pods.
fn of_columns<'a>(
    columns: &'a Columns,
    name: &str,
    own: i64,
    counted: CountedResources,
) -> Option<(&'a [i64], &'a [i64])> {
    let column = |id| {
        let column = columns.get(id);
        (&column.allocatable[..], &column.requested[..])
    };
    let non_zero = counted == CountedResources::NonZero;
    match name {
        CPU if non_zero => Some((column(ResourceId::CPU).0, columns.non_zero_milli_cpu())),
        CPU => Some(column(ResourceId::CPU)),
        MEMORY if non_zero => Some((column(ResourceId::MEMORY).0, columns.non_zero_memory())),
        MEMORY => Some(column(ResourceId::MEMORY)),
        EPHEMERAL_STORAGE => Some(column(ResourceId::EPHEMERAL_STORAGE)),
        name if own != 0 && is_scalar_resource_name(name) => columns.id(name).map(column),
        _ => None,
    }
}
