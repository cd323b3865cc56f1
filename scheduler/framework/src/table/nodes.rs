//! The slots that hold nodes, the fields of nodes that are read most often, and the order in which they are visited.

use super::Slot;
use super::order::{ZoneOrder, zone_key};
use berth_api::Node;
use std::sync::Arc;

/// The slots with nodes.
#[derive(Debug, Clone, Default)]
pub(super) struct NodeSlots {
    is_node: Vec<bool>,
    untainted: Vec<bool>,
    order: ZoneOrder,
}

impl NodeSlots {
    /// The table has one slot more.
    pub(super) fn add_slot(&mut self) {
        self.is_node.push(false);
        self.untainted.push(false);
    }

    /// A node is replaced by another version, added or removed.
    pub(super) fn replace(&mut self, slot: Slot, old: Option<&Node>, new: Option<&Node>) {
        let [before, after] = [old, new].map(|node| node.map(|node| zone_key(node.labels())));
        if before != after {
            if let Some(zone) = before {
                self.order.remove(&zone, slot);
            }
            if let Some(zone) = after {
                self.order.insert(zone, slot);
            }
        }
        let is_untainted = |node: &Node| node.spec.taints.is_empty() && !node.spec.unschedulable;
        self.is_node[slot.index()] = new.is_some();
        self.untainted[slot.index()] = new.is_some_and(is_untainted);
    }

    /// The number of nodes.
    pub(super) fn len(&self) -> usize {
        self.order.len()
    }

    /// See [`NodeTable::in_order`](super::NodeTable::in_order).
    pub(super) fn in_order(&mut self) -> Arc<[Slot]> {
        self.order.list()
    }

    /// Returns whether each slot holds a node.
    pub(super) fn is_node(&self) -> &[bool] {
        &self.is_node
    }

    /// See [`NodeTable::is_untainted`](super::NodeTable::is_untainted).
    pub(super) fn is_untainted(&self, slot: Slot) -> bool {
        self.untainted.get(slot.index()).copied().unwrap_or(false)
    }
}
