//! The nodes that have enough free resources for a pod, read from the columns of the table.

use super::fit::FitRequests;
use berth_framework::Slot;
use berth_framework::table::{Columns, ResourceColumn, ResourceId};
use berth_framework::vectors::{RUN, in_vectors, run_of};
use smallvec::SmallVec;

/// The sum and the difference of two amounts below this one are in range.
const SUM_MAX: u64 = 1 << 61;

/// A request above zero.
struct WantedAmount<'a> {
    amount: i64,
    column: &'a ResourceColumn,
    /// Whether a node that offers nothing of the resource is enough.
    or_none: bool,
}

/// The requirement of a pod on every node.
pub(super) struct Room<'a> {
    pods: &'a ResourceColumn,
    wanted: SmallVec<[WantedAmount<'a>; 4]>,
    /// Whether the pod requests a resource that no node offers.
    is_hopeless: bool,
}

impl<'a> Room<'a> {
    pub(super) fn new(columns: &'a Columns, requests: &FitRequests) -> Self {
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
            // A request of zero fits even on an overcommitted node (PL-62).
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
                // No node offers the resource, so only devices can provide it.
                None => room.is_hopeless |= !scalar.has_devices,
            }
        }
        room
    }

    /// Returns whether the slot holds a node on which the pod fits; [`NodeResourcesFit`](super::NodeResourcesFit)
    /// reports the missing amounts on the others. A slot without a node has no room, not even for a pod without
    /// requests.
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

    /// Sets `fits` to false for the slots where [`Room::suffices`] is false.
    pub(super) fn suffices_at(&self, fits: &mut [bool]) {
        let suffices_each = |start: usize, fits: &mut [bool]| {
            for (slot, fits) in (start as u32..).map(Slot::from_index).zip(fits) {
                *fits &= self.suffices(slot);
            }
        };
        let (runs, rest) = fits.as_chunks_mut();
        suffices_each(runs.len() * RUN, rest);
        in_vectors(
            #[inline(always)]
            || {
                for (run, fits) in runs.iter_mut().enumerate() {
                    if !self.suffices_in_run(run, fits) {
                        suffices_each(run * RUN, fits);
                    }
                }
            },
        );
    }

    /// The same for a [run](RUN) of slots, in one pass per resource, which the compiler turns into vector instructions. Returns
    /// false without a change of `fits` if an amount is too large for it, or a slot may fit without offering a resource.
    #[inline(always)]
    fn suffices_in_run(&self, run: usize, fits: &mut [bool; RUN]) -> bool {
        // Negative where something is missing.
        let mut left = [0_i64; RUN];
        let mut bits = 0;
        let one = (self.pods, 1);
        let wanted = self
            .wanted
            .iter()
            .map(|wanted| (wanted.column, wanted.amount));
        for (column, amount) in std::iter::once(one).chain(wanted) {
            bits |= amount;
            let allocatable = run_of(&column.allocatable, run);
            let requested = run_of(&column.requested, run);
            for (left, (allocatable, requested)) in
                left.iter_mut().zip(allocatable.iter().zip(requested))
            {
                bits |= allocatable | requested;
                *left |= allocatable.wrapping_sub(*requested).wrapping_sub(amount);
            }
        }
        let or_none = self.wanted.iter().any(|wanted| wanted.or_none);
        if or_none || self.is_hopeless || bits.cast_unsigned() >= SUM_MAX {
            return false;
        }
        for (fits, left) in fits.iter_mut().zip(&left) {
            *fits &= *left >= 0;
        }
        true
    }
}
