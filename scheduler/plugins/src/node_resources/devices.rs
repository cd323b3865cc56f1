//! Extended resources that devices provide, as the resource scores count them (KEP-5004).
//!
//! On a node that does not offer a scored resource itself, the allocatable amount is the number of its devices of the
//! class that backs the resource. Devices are counted, on all nodes, only for a pod that requests such a resource.

use super::args::ScoredResource;
use crate::extended_resources::{class_of, have_backing_classes};
use berth_api::Str;
use berth_devices::{SearchBudget, TargetNode, count_devices};
use berth_framework::Slot;
use berth_framework::plugin::Context;
use std::hash::{Hash, Hasher};

/// The devices of all nodes that provide scored resources. Equal versions of the classes and of the devices mean equal
/// numbers.
#[derive(Debug, Default)]
pub(super) struct DeviceAmounts {
    resources: Vec<DeviceResource>,
    version: u64,
}

/// A scored resource that devices provide.
#[derive(Debug)]
struct DeviceResource {
    /// Its position among the scored resources.
    index: usize,
    class: Str,
    class_version: Str,
    /// The number of devices of a node, and the number of allocated ones, by slot.
    counts: Vec<(i64, i64)>,
}

impl Hash for DeviceAmounts {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.resources.len().hash(state);
        for resource in &self.resources {
            (resource.index, &resource.class, &resource.class_version).hash(state);
        }
        if !self.resources.is_empty() {
            self.version.hash(state);
        }
    }
}

impl DeviceAmounts {
    /// Counts the devices that back the scored resources, for a pod that requests these amounts.
    pub(super) fn of(cx: &Context<'_>, scored: &[ScoredResource], requested: &[i64]) -> Self {
        let cluster = cx.cluster;
        if !have_backing_classes(cx) {
            return Self::default();
        }
        let wanted = scored.iter().zip(requested).enumerate();
        let wanted = wanted.filter(|(_, (_, amount))| **amount != 0);
        let resources = wanted.filter_map(|(index, (resource, _))| {
            let class = class_of(cluster, &resource.name)?;
            let mut counts = vec![(0, 0); cluster.nodes.slots()];
            for node in cluster.nodes.iter() {
                let target = TargetNode {
                    name: node.name(),
                    labels: node.labels(),
                    skips_operations: true,
                };
                // Without a limit: a selector has one of its own.
                let budget = &mut SearchBudget::unlimited();
                counts[node.slot().index()] =
                    count_devices(cluster.devices().inventory(), target, class, budget);
            }
            let meta = &class.metadata;
            Some(DeviceResource {
                index,
                class: meta.uid.clone(),
                class_version: meta.resource_version.clone(),
                counts,
            })
        });
        Self {
            resources: resources.collect(),
            version: cluster.devices().inventory().version(),
        }
    }

    /// The number of devices of the scored resource at `index` on a node, and the number of allocated ones; `None` if
    /// devices do not provide the resource.
    pub(super) fn is_empty(&self) -> bool {
        self.resources.is_empty()
    }

    pub(super) fn column(&self, index: usize) -> Option<&[(i64, i64)]> {
        let mut resources = self.resources.iter();
        let resource = resources.find(|resource| resource.index == index)?;
        Some(&resource.counts)
    }
}

/// The count of a slot; nothing for one that was added later.
pub(super) fn at(counts: &[(i64, i64)], slot: Slot) -> (i64, i64) {
    counts.get(slot.index()).copied().unwrap_or_default()
}
