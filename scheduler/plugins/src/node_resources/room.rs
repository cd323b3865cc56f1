//! The nodes that have enough free resources for a pod, read from the columns of the table.

use super::fit::FitRequests;
use berth_framework::Slot;
use berth_framework::table::{NodeTable, ResourceColumn, ResourceId};
use smallvec::SmallVec;

/// A request above zero.
struct WantedAmount<'a> {
    amount: i64,
    column: &'a ResourceColumn,
    /// Whether a node that offers none is enough.
    or_none: bool,
}

/// The requirement of a pod on every node.
pub(super) struct Room<'a> {
    pods: &'a ResourceColumn,
    wanted: SmallVec<[WantedAmount<'a>; 4]>,
    /// Whether the pod requests something that no node offers.
    is_hopeless: bool,
}

impl<'a> Room<'a> {
    pub(super) fn new(table: &'a NodeTable, requests: &FitRequests) -> Self {
        let columns = table.columns();
        let mut room = Self {
            pods: columns.get(ResourceId::PODS),
            wanted: SmallVec::new(),
            is_hopeless: false,
        };
        for (amount, id) in [
            (requests.milli_cpu, ResourceId::CPU),
            (requests.memory, ResourceId::MEMORY),
            (requests.ephemeral_storage, ResourceId::EPHEMERAL_STORAGE),
        ] {
            if amount > 0 {
                room.wanted.push(WantedAmount {
                    amount,
                    column: columns.get(id),
                    or_none: false,
                });
            }
        }
        for scalar in &requests.scalars {
            match scalar.id {
                Some(id) => room.wanted.push(WantedAmount {
                    amount: scalar.amount,
                    column: columns.get(id),
                    or_none: scalar.has_devices,
                }),
                None => room.is_hopeless |= !scalar.has_devices,
            }
        }
        room
    }

    /// Returns whether the slot holds a node on which the pod fits; [`NodeResourcesFit`](super::NodeResourcesFit)
    /// reports what is missing on the others. A slot without a node has no room, not even for a pod without requests.
    #[inline]
    pub(super) fn suffices(&self, node: Slot) -> bool {
        let at = node.index();
        let Some(pods) = self.pods.requested.get(at) else {
            return false;
        };
        if self.is_hopeless || pods.saturating_add(1) > self.pods.allocatable[at] {
            return false;
        }
        self.wanted.iter().all(|wanted| {
            let allocatable = wanted.column.allocatable[at];
            let free = allocatable.saturating_sub(wanted.column.requested[at]);
            wanted.amount <= free || (wanted.or_none && allocatable <= 0)
        })
    }
}
