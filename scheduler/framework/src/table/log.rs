//! The last changes of the table, for readers that keep values derived from it.

use super::Slot;
use crate::pod_info::LabelSignature;
use crate::pod_info::PodInfo;
use berth_api::Str;
use std::collections::VecDeque;
use std::sync::Arc;

/// The number of changes that are kept. A reader that missed more starts again from the table.
const CHANGES_MAX: usize = 16 * 1024;

/// A change of the table.
#[derive(Debug, Clone)]
pub enum TableChange {
    /// A node was added, deleted or changed.
    Node(Slot),
    /// A pod was added to a node, which may be unknown.
    PodAdded(Slot, Arc<PodInfo>),
    /// A pod was removed from a node, which may be unknown.
    PodRemoved(Slot, Arc<PodInfo>),
    /// The volumes that are attached to a node changed, its limits, or its devices and their allocations.
    Storage(Slot),
    /// The CSI volume behind a claim changed. A change of nodes follows for each that has pods with this claim.
    Claim {
        /// The namespace of the claim.
        namespace: Str,
        /// The name of the claim.
        name: Str,
    },
}

impl TableChange {
    /// The place of the change, if it is about a node.
    pub fn slot(&self) -> Option<Slot> {
        match self {
            Self::Node(slot)
            | Self::PodAdded(slot, _)
            | Self::PodRemoved(slot, _)
            | Self::Storage(slot) => Some(*slot),
            Self::Claim { .. } => None,
        }
    }
}

/// The signatures of a pod that was added or removed, by which most readers know that it does not concern them.
#[derive(Debug, Clone, Copy)]
pub struct PodSignatures {
    /// Its namespace and labels.
    pub own: LabelSignature,
    /// A pod that its affinity terms match has all bits of one of these.
    pub of_terms: [LabelSignature; 2],
}

impl PodSignatures {
    /// The signatures of a change that is not about a pod.
    const NONE: Self = Self {
        own: LabelSignature::NONE,
        of_terms: [LabelSignature::IMPOSSIBLE; 2],
    };

    /// The signatures of a pod.
    pub fn of_pod(pod: &PodInfo) -> Self {
        Self {
            own: pod.signature(),
            of_terms: pod.matched_by_terms,
        }
    }

    fn of(change: &TableChange) -> Self {
        match change {
            TableChange::PodAdded(_, pod) | TableChange::PodRemoved(_, pod) => Self::of_pod(pod),
            TableChange::Node(_) | TableChange::Storage(_) | TableChange::Claim { .. } => {
                Self::NONE
            }
        }
    }
}

/// Changes, numbered without a gap. A reader remembers the number at which it stopped.
#[derive(Debug, Clone, Default)]
pub struct ChangeLog {
    /// The number of the first one that is kept.
    first: u64,
    changes: VecDeque<TableChange>,
    /// The signatures of the changes, in a separate sequence because most changes are read without their pod.
    signatures: VecDeque<PodSignatures>,
}

impl ChangeLog {
    pub(super) fn push(&mut self, change: TableChange) {
        if self.changes.len() >= CHANGES_MAX {
            self.changes.pop_front();
            self.signatures.pop_front();
            self.first += 1;
        }
        self.signatures.push_back(PodSignatures::of(&change));
        self.changes.push_back(change);
    }

    /// The number of the next change.
    pub fn end(&self) -> u64 {
        self.first + self.changes.len() as u64
    }

    /// The changes since the log ended at `since`, in order; `None` when they go back too far to be known.
    pub fn since(&self, since: u64) -> Option<impl Iterator<Item = &TableChange>> {
        let skipped = self.place(since)?;
        Some(self.changes.range(skipped..))
    }

    /// The same with the signatures of the pods. A change is not read unless the reader does so.
    pub fn with_signatures_since(
        &self,
        since: u64,
    ) -> Option<impl Iterator<Item = (&PodSignatures, &TableChange)>> {
        let skipped = self.place(since)?;
        Some(
            self.signatures
                .range(skipped..)
                .zip(self.changes.range(skipped..)),
        )
    }

    /// The place of the change with a number.
    fn place(&self, number: u64) -> Option<usize> {
        let skipped = usize::try_from(number.checked_sub(self.first)?).ok()?;
        (skipped <= self.changes.len()).then_some(skipped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_back_too_far_is_not_known() {
        let mut log = ChangeLog::default();
        let slots = |log: &ChangeLog, since| -> Option<Vec<usize>> {
            Some(
                log.since(since)?
                    .filter_map(|c| Some(c.slot()?.index()))
                    .collect(),
            )
        };
        assert_eq!(slots(&log, 0), Some(vec![]));
        assert_eq!(slots(&log, 1), None);
        for slot in 0..3 {
            log.push(TableChange::Node(Slot(slot)));
        }
        assert_eq!(log.end(), 3);
        log.push(TableChange::Storage(Slot(0)));
        assert_eq!(slots(&log, 1), Some(vec![1, 2, 0]));
        for slot in 4..CHANGES_MAX as u32 + 1 {
            log.push(TableChange::Node(Slot(slot)));
        }
        assert_eq!(slots(&log, 0), None);
        assert_eq!(slots(&log, CHANGES_MAX as u64), Some(vec![CHANGES_MAX]));
    }
}
