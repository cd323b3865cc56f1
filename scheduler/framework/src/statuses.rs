//! The statuses of nodes for one pod.

use crate::status::{Code, Status};
use crate::table::Slot;
use rustc_hash::FxHashMap;
use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;

/// Kept statuses by node, from which [`NodeStatuses`] can be made instead of from a map.
pub trait KeptStatuses: Send + Sync + fmt::Debug {
    /// The answer of a node, if it has one.
    fn get(&self, node: Slot) -> Option<&Status>;
    /// The number of nodes that have answered.
    fn len(&self) -> usize;
    /// Returns whether none has.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Every node with its status, in slot order, until the visitor stops.
    fn each(&self, visit: &mut dyn FnMut(Slot, &Status) -> ControlFlow<()>);
    /// Every different status with the number of its nodes, at least one; a status may be listed more than once.
    fn totals(&self, visit: &mut dyn FnMut(&Status, usize));
}

/// The status of each node. Nodes that are not listed have the `absent` status.
#[derive(Debug, Clone)]
pub struct NodeStatuses {
    listed: ListedStatuses,
    /// Of every other node.
    pub absent: Status,
}

#[derive(Debug, Clone)]
enum ListedStatuses {
    Own(FxHashMap<Slot, Status>),
    Kept(Arc<dyn KeptStatuses>),
}

impl Default for NodeStatuses {
    fn default() -> Self {
        Self::new()
    }
}

impl FromIterator<(Slot, Status)> for NodeStatuses {
    fn from_iter<I: IntoIterator<Item = (Slot, Status)>>(answers: I) -> Self {
        Self {
            listed: ListedStatuses::Own(answers.into_iter().collect()),
            ..Self::new()
        }
    }
}

impl NodeStatuses {
    /// No node listed; the others `UnschedulableAndUnresolvable` without a reason.
    pub fn new() -> Self {
        Self {
            listed: ListedStatuses::Own(FxHashMap::default()),
            absent: Status::new(Code::UnschedulableAndUnresolvable, []),
        }
    }

    /// Kept statuses; the other nodes as in [`NodeStatuses::new`].
    pub fn kept(statuses: Arc<dyn KeptStatuses>) -> Self {
        Self {
            listed: ListedStatuses::Kept(statuses),
            ..Self::new()
        }
    }

    /// Lists a node with its answer.
    pub fn insert(&mut self, node: Slot, status: Status) {
        if let ListedStatuses::Kept(kept) = &self.listed {
            let mut own = FxHashMap::default();
            kept.each(&mut |node, status| {
                own.insert(node, status.clone());
                ControlFlow::Continue(())
            });
            self.listed = ListedStatuses::Own(own);
        }
        if let ListedStatuses::Own(own) = &mut self.listed {
            own.insert(node, status);
        }
    }

    /// The status of a node.
    pub fn get(&self, node: Slot) -> &Status {
        match &self.listed {
            ListedStatuses::Own(own) => own.get(&node),
            ListedStatuses::Kept(kept) => kept.get(node),
        }
        .unwrap_or(&self.absent)
    }

    /// The number of nodes that are listed.
    pub fn listed(&self) -> usize {
        match &self.listed {
            ListedStatuses::Own(own) => own.len(),
            ListedStatuses::Kept(kept) => kept.len(),
        }
    }

    /// Every listed node with its status, in no particular order, until the visitor stops.
    pub fn each(&self, mut visit: impl FnMut(Slot, &Status) -> ControlFlow<()>) {
        match &self.listed {
            ListedStatuses::Own(own) => {
                let _ = own
                    .iter()
                    .try_for_each(|(node, status)| visit(*node, status));
            }
            ListedStatuses::Kept(kept) => kept.each(&mut visit),
        }
    }

    /// The different statuses of listed nodes with their number of nodes; a status may be listed more than once.
    pub fn totals(&self, mut visit: impl FnMut(&Status, usize)) {
        match &self.listed {
            ListedStatuses::Own(own) => own.values().for_each(|status| visit(status, 1)),
            ListedStatuses::Kept(kept) => kept.totals(&mut visit),
        }
    }

    /// The number of `nodes` nodes that gave each reason, as `<count> <reason>`, sorted as text.
    pub fn histogram(&self, nodes: usize) -> Vec<String> {
        let mut counts: FxHashMap<String, usize> = FxHashMap::default();
        let mut count = |status: &Status, nodes: usize| {
            for reason in status.reasons() {
                match counts.get_mut(reason.as_ref()) {
                    Some(count) => *count += nodes,
                    None => {
                        counts.insert(reason.to_string(), nodes);
                    }
                }
            }
        };
        self.totals(&mut count);
        let absent = nodes.saturating_sub(self.listed());
        if absent > 0 {
            count(&self.absent, absent);
        }
        let mut lines: Vec<String> = counts
            .into_iter()
            .map(|(reason, count)| format!("{count} {reason}"))
            .collect();
        lines.sort_unstable();
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// F-6: nodes that are not listed have a common status, at first UnschedulableAndUnresolvable.
    #[test]
    fn nodes_that_are_not_listed_have_a_status_too() {
        let slots: Vec<Slot> = (0..4).map(Slot::from_index).collect();
        let codes = |statuses: &NodeStatuses| -> Vec<Code> {
            slots
                .iter()
                .map(|node| statuses.get(*node).code())
                .collect()
        };
        let (yes, no) = (Code::Unschedulable, Code::UnschedulableAndUnresolvable);
        let mut statuses = NodeStatuses::new();
        assert_eq!(codes(&statuses), [no; 4]);
        assert_eq!(statuses.absent.reasons(), [""; 0]);
        statuses.insert(slots[1], Status::unschedulable("full"));
        assert_eq!(codes(&statuses), [no, yes, no, no]);
        assert_eq!(statuses.listed(), 1);
        // Preemption finds the absent nodes by their common status.
        statuses.absent = Status::unschedulable("elsewhere");
        statuses.insert(slots[2], Status::unresolvable("tainted"));
        assert_eq!(codes(&statuses), [yes, yes, no, yes]);
        assert_eq!(
            statuses.histogram(4),
            ["1 full", "1 tainted", "2 elsewhere"]
        );
        let mut listed = Vec::new();
        statuses.each(|node, status| {
            listed.push((node, status.message()));
            ControlFlow::Continue(())
        });
        listed.sort_unstable();
        assert_eq!(
            listed,
            [
                (slots[1], "full".to_owned()),
                (slots[2], "tainted".to_owned())
            ]
        );
    }
}
