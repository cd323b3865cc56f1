//! The nodes that have enough free resources for a pod, read from the columns of the table.

use super::fit::FitRequests;
use berth_framework::Slot;
use berth_framework::table::{NodeTable, ResourceColumn, ResourceId};
use smallvec::SmallVec;

/// What a pod needs of one resource.
struct NeededAmount<'a> {
    /// At least this amount must be free.
    amount: i64,
    column: &'a ResourceColumn,
}

/// The requirement of a pod on every node.
pub(super) struct Room<'a> {
    /// Of places, CPU, memory and ephemeral storage.
    needed: [NeededAmount<'a>; 4],
    /// Of other resources, and whether a node that offers none is enough.
    scalars: SmallVec<[(NeededAmount<'a>, bool); 2]>,
    /// Whether the pod requests something that no node offers.
    is_hopeless: bool,
}

impl<'a> Room<'a> {
    pub(super) fn new(table: &'a NodeTable, requests: &FitRequests) -> Self {
        let columns = table.columns();
        let needed = |id, amount| NeededAmount {
            // A pod that requests nothing fits on a node that has less than nothing.
            amount: if amount > 0 { amount } else { i64::MIN },
            column: columns.get(id),
        };
        let mut room = Self {
            needed: [
                needed(ResourceId::PODS, 1),
                needed(ResourceId::CPU, requests.milli_cpu),
                needed(ResourceId::MEMORY, requests.memory),
                needed(ResourceId::EPHEMERAL_STORAGE, requests.ephemeral_storage),
            ],
            scalars: SmallVec::new(),
            is_hopeless: false,
        };
        for scalar in &requests.scalars {
            match scalar.id {
                Some(id) => {
                    let needed = needed(id, scalar.amount);
                    room.scalars.push((needed, scalar.has_devices));
                }
                None => room.is_hopeless |= !scalar.has_devices,
            }
        }
        room
    }

    /// Returns whether the slot holds a node on which the pod fits; [`NodeResourcesFit`](super::NodeResourcesFit)
    /// reports what is missing on the others. A slot without a node has no room, not even for a pod without requests.
    #[inline(always)]
    pub(super) fn suffices(&self, node: Slot) -> bool {
        let fits = |needed: &NeededAmount<'_>| {
            let ResourceColumn {
                allocatable,
                requested,
            } = needed.column;
            match (allocatable.get(node.index()), requested.get(node.index())) {
                (Some(offered), Some(held)) => needed.amount <= offered.saturating_sub(*held),
                _ => false,
            }
        };
        // Without a way out in between: on most nodes there is enough of each.
        let [places, cpu, memory, storage] = &self.needed;
        (fits(places) & fits(cpu) & fits(memory) & fits(storage))
            && !self.is_hopeless
            && self.scalars.iter().all(|(needed, or_none)| {
                fits(needed) || (*or_none && needed.column.allocatable[node.index()] <= 0)
            })
    }
}
