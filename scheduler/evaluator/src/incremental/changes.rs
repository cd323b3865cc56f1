//! The re-evaluated nodes in order, for columns and shapes that follow them.

use super::scratch::Scratch;
use crate::Evaluator;
use berth_framework::table::TableChange;
use berth_framework::{PodInfo, Slot};
use std::collections::VecDeque;
use std::sync::Arc;

/// Notes the nodes that have changed since these positions in the changes of the table and in those of the nominations;
/// pods count if they are read. False when that is too long ago to be known.
pub(super) fn note_changes(
    evaluator: &Evaluator<'_>,
    scratch: &mut Scratch,
    log: u64,
    nominations: u64,
    reads_pods: bool,
) -> bool {
    let (table, nominated) = (&evaluator.cluster.nodes, evaluator.nominated);
    let Some(changes) = table.log().since(log) else {
        return false;
    };
    for change in changes {
        match change {
            TableChange::Node(slot) => scratch.note_changed(*slot),
            TableChange::PodAdded(slot, _)
            | TableChange::PodRemoved(slot, _)
            | TableChange::Storage(slot)
                if reads_pods =>
            {
                scratch.note(*slot);
            }
            // Pods that are nominated to a node use volumes there as those on it do.
            TableChange::Claim { namespace, name } if reads_pods => {
                nominated.with_claim(namespace, name, &mut |node| scratch.note_named(table, node));
            }
            TableChange::PodAdded(..)
            | TableChange::PodRemoved(..)
            | TableChange::Storage(_)
            | TableChange::Claim { .. } => {}
        }
    }
    !reads_pods || nominated.changed_since(nominations, &mut |node| scratch.note_named(table, node))
}

/// Returns whether a pod with this property is nominated to a node.
pub(super) fn has_nominated(
    evaluator: &Evaluator<'_>,
    slot: Slot,
    is_meant: impl Fn(&PodInfo) -> bool,
) -> bool {
    let mut has_nominated = false;
    if !evaluator.nominated.is_empty()
        && let Some(view) = evaluator.cluster.nodes.get(slot)
    {
        let each = &mut |pod: &Arc<PodInfo>| has_nominated |= is_meant(pod);
        evaluator.nominated.on_node(view.name(), each);
    }
    has_nominated
}

/// The number of remembered changes, as in the log of the node table. A reader that missed more reads all nodes.
const CHANGES_MAX: usize = 16 * 1024;

/// The last [`CHANGES_MAX`] changes, numbered without a gap.
#[derive(Debug, Default)]
pub(super) struct Changes {
    slots: VecDeque<Slot>,
    /// The number of the first of them.
    first: u64,
}

impl Changes {
    pub(super) fn push(&mut self, slot: Slot) {
        if self.slots.len() >= CHANGES_MAX {
            self.slots.pop_front();
            self.first += 1;
        }
        self.slots.push_back(slot);
    }

    /// No changes, after which none of the positions in these is known.
    pub(super) fn begin_anew(&self) -> Self {
        Self {
            first: self.end() + 1,
            ..Self::default()
        }
    }

    /// The number of the next change.
    pub(super) fn end(&self) -> u64 {
        self.first + self.slots.len() as u64
    }

    /// The changes since they ended at `since`; `None` when that is too long ago.
    pub(super) fn since(&self, since: u64) -> Option<impl Iterator<Item = Slot>> {
        let skipped = usize::try_from(since.checked_sub(self.first)?).ok()?;
        (skipped <= self.slots.len()).then(|| self.slots.range(skipped..).copied())
    }

    /// About how much memory they take, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.slots.capacity() * size_of::<Slot>()
    }
}
