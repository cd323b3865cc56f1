//! The nodes: a slot each, a column per resource, and the pods on them.
//!
//! The table is not copied before a cycle: one thread owns it, so the cache *is* the snapshot. Dry runs
//! ([`NodeTable::begin`]) change it in place, log the changes, and revert them.

mod census;
mod columns;
mod images;
mod journal;
mod log;
mod nodes;
mod order;
mod ports;
mod row;
mod slots;
#[cfg(test)]
mod tests;
mod topology;
mod totals;
mod view;
mod volumes;

pub use census::{Alike, Census, PodsPerNode};
pub use columns::{Columns, ResourceColumn, ResourceId};
pub use images::{ImageState, Images};
pub use log::{ChangeLog, PodSignatures, TableChange};
pub use order::zone_key;
pub use slots::Slot;
pub use topology::{Held, Topology};
pub use totals::PodTotals;
pub use view::NodeView;

use crate::pod_info::PodInfo;
use berth_api::storage::CsiVolume;
use berth_api::{Node, ObjectMeta, Str};
use journal::{Journal, Undo};
use nodes::NodeSlots;
use row::NodeRow;
use slots::Slots;
use std::sync::Arc;
use topology::Topologies;
use volumes::NodeVolumes;

pub(crate) use volumes::ClaimKey;

/// The reason why a pod could not be removed from a node.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no corresponding pod {pod} in pods of node {node}")]
pub struct NoSuchPod {
    /// The pod's name.
    pub pod: Str,
    /// The node's name.
    pub node: Str,
}

/// Returns whether one node is another version of the other, and nothing else has changed.
fn is_unchanged(old: &Node, new: &Node) -> bool {
    let metadata = ObjectMeta {
        resource_version: old.metadata.resource_version.clone(),
        ..new.metadata.clone()
    };
    old.spec == new.spec && old.status == new.status && old.metadata == metadata
}

/// All nodes and the pods on them. Each part owns its counts; the table keeps the parts consistent.
#[derive(Debug, Clone, Default)]
pub struct NodeTable {
    slots: Slots,
    rows: Vec<NodeRow>,
    nodes: NodeSlots,
    columns: Columns,
    topologies: Topologies,
    images: Images,
    census: Census,
    totals: PodTotals,
    volumes: NodeVolumes,
    journal: Journal,
    log: ChangeLog,
    generation: u64,
}

impl NodeTable {
    // --- the parts -----------------------------------------------------------------------------------------

    /// The allocatable and the requested amounts of each resource.
    pub fn columns(&self) -> &Columns {
        &self.columns
    }

    /// The images of nodes.
    pub fn images(&self) -> &Images {
        &self.images
    }

    /// The sums over the pods on nodes, known or not.
    pub fn totals(&self) -> &PodTotals {
        &self.totals
    }

    /// The pods on nodes, known or not, by kind. Supposed changes are not included, so it must not be read during a dry
    /// run.
    pub fn census(&self) -> &Census {
        debug_assert!(!self.is_supposing(), "what is supposed is not counted");
        &self.census
    }

    /// The number of different combinations of labels among the pods on nodes, without supposed pods.
    pub fn pod_kinds(&self) -> usize {
        self.census.kinds()
    }

    /// The volumes of nodes.
    pub(crate) fn volumes(&self) -> &NodeVolumes {
        &self.volumes
    }

    /// The latest changes. Supposed changes are not recorded.
    pub fn log(&self) -> &ChangeLog {
        &self.log
    }

    // --- nodes ---------------------------------------------------------------------------------------------

    /// Adds a node, or replaces the node of that name; its pods are kept. A new version of a node without another
    /// difference, as after a heartbeat, is no change.
    ///
    /// # Panics
    /// Never while something is supposed: see [`NodeTable::begin`].
    pub fn set_node(&mut self, node: Arc<Node>) -> Slot {
        let slot = self.slot_or_new(node.name());
        let known = &mut self.rows[slot.index()].node;
        match known {
            Some(known) if is_unchanged(known, &node) => *known = node,
            _ => drop(self.replace_node(slot, Some(node))),
        }
        slot
    }

    /// Removes a node. While pods are still counted on it, its slot is kept and hidden.
    pub fn remove_node(&mut self, name: &str) -> Option<Arc<Node>> {
        let slot = self.slot(name)?;
        self.rows[slot.index()].node.as_ref()?;
        let node = self.replace_node(slot, None);
        self.release_if_empty(slot);
        node
    }

    /// Sets or removes the node of a slot. Returns the previous version.
    fn replace_node(&mut self, slot: Slot, new: Option<Arc<Node>>) -> Option<Arc<Node>> {
        debug_assert!(
            !self.is_supposing(),
            "nodes do not change while something is supposed"
        );
        let node = new.as_deref();
        let old = self.rows[slot.index()].node.take();
        self.nodes.replace(slot, old.as_deref(), node);
        self.images.replace(old.as_deref(), node);
        self.topologies.tidy();
        self.topologies.set(slot, node.map(Node::labels));
        let before = self.columns.resources();
        let row = &mut self.rows[slot.index()];
        row.allocatable_scalars = self.columns.offer(slot, node);
        if row.unreadable > 0 {
            self.columns.offer_no_place(slot);
        }
        row.node = new;
        if self.columns.resources() > before {
            for (row, index) in self.rows.iter().zip(0..) {
                for pod in &row.pods {
                    self.columns.count_since(before, Slot(index), pod);
                }
            }
        }
        self.touch(slot);
        self.log.push(TableChange::Node(slot));
        old
    }

    /// The slot of a node, or of pods that were seen before their node.
    pub fn slot(&self, name: &str) -> Option<Slot> {
        self.slots.get(name)
    }

    /// The view of a node that exists.
    pub fn node(&self, name: &str) -> Option<NodeView<'_>> {
        self.get(self.slot(name)?)
    }

    /// The view of a slot that holds a node.
    pub fn get(&self, slot: Slot) -> Option<NodeView<'_>> {
        self.rows.get(slot.index())?.node.as_ref()?;
        Some(NodeView::new(self, slot))
    }

    /// The number of nodes.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Returns whether there is no node.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The nodes in kube-scheduler's order: one of each zone in turn.
    pub fn in_order(&mut self) -> Arc<[Slot]> {
        self.nodes.in_order()
    }

    /// The nodes in slot order: cheaper than [`NodeTable::in_order`] where the order does not matter.
    pub fn iter(&self) -> impl Iterator<Item = NodeView<'_>> {
        self.occupied().map(|slot| NodeView::new(self, slot))
    }

    /// The slots that hold nodes, in order.
    pub fn occupied(&self) -> impl Iterator<Item = Slot> {
        let slots = self.is_node().iter().zip(0..);
        slots
            .filter(|(is_node, _)| **is_node)
            .map(|(_, index)| Slot(index))
    }

    /// Returns whether each slot holds a node.
    pub fn is_node(&self) -> &[bool] {
        self.nodes.is_node()
    }

    /// Returns whether the node of a slot is known to have no taint and not to be cordoned. Most nodes are like that
    /// and need not be read.
    pub fn is_untainted(&self, slot: Slot) -> bool {
        self.nodes.is_untainted(slot)
    }

    /// The domains of nodes by the values of a label. The returned topology is kept up to date. While a caller holds
    /// it, later calls return the same numbers for domains that have had a node all the time.
    pub fn topology(&self, key: &Str) -> Arc<Topology> {
        self.topologies.get(key, &self.rows)
    }

    /// The number of slots, used or not: the length of every column.
    pub fn slots(&self) -> usize {
        self.rows.len()
    }

    /// Grows with every change of the table.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The generation of the last change of a node or of its pods.
    pub fn changed_at(&self, slot: Slot) -> u64 {
        self.rows.get(slot.index()).map_or(0, |row| row.generation)
    }

    // --- pods ----------------------------------------------------------------------------------------------

    /// Counts a pod on a node, which need not be known yet.
    pub fn add_pod(&mut self, node: &Str, pod: Arc<PodInfo>) -> Slot {
        let slot = self.slot_or_new(node);
        self.add_pod_at(slot, pod);
        slot
    }

    /// Counts a pod on the node of a slot.
    pub fn add_pod_at(&mut self, slot: Slot, pod: Arc<PodInfo>) {
        if self.is_supposing() {
            self.journal.push(Undo::Added {
                slot,
                uid: pod.pod.uid().clone(),
                generation: self.rows[slot.index()].generation,
            });
        } else {
            self.topologies.tidy();
            self.census.add(slot, &pod);
            self.log.push(TableChange::PodAdded(slot, pod.clone()));
        }
        self.rows[slot.index()].push_pod(pod.clone());
        self.count_added(slot, &pod);
        self.touch(slot);
    }

    /// Replaces a pod on a node by a newer version that [counts the same](PodInfo::counts_as), which is no change.
    /// Returns whether the pod was replaced.
    pub fn replace_pod(&mut self, node: &str, pod: &Arc<PodInfo>) -> bool {
        let slot = self.slot(node);
        slot.is_some_and(|slot| self.rows[slot.index()].replace_pod(pod))
    }

    /// Stops counting a pod on a node.
    ///
    /// # Errors
    /// When the pod is not counted there.
    pub fn remove_pod(&mut self, node: &str, uid: &str) -> Result<Arc<PodInfo>, NoSuchPod> {
        let missing = || NoSuchPod {
            pod: Str::new(uid),
            node: Str::new(node),
        };
        let slot = self.slot(node).ok_or_else(missing)?;
        self.remove_pod_at(slot, uid).ok_or_else(missing)
    }

    /// Stops counting a pod on the node of a slot; `None` when it is not counted there.
    pub fn remove_pod_at(&mut self, slot: Slot, uid: &str) -> Option<Arc<PodInfo>> {
        let row = self.rows.get_mut(slot.index())?;
        let generation = row.generation;
        let (pod, at) = row.take_pod(uid)?;
        self.count_removed(slot, &pod);
        self.touch(slot);
        if self.is_supposing() {
            self.journal.push(Undo::Removed {
                slot,
                pod: pod.clone(),
                at,
                generation,
            });
        } else {
            self.census.remove(slot, &pod);
            self.log.push(TableChange::PodRemoved(slot, pod.clone()));
            self.release_if_empty(slot);
        }
        Some(pod)
    }

    /// Counts a pod that its row has now.
    fn count_added(&mut self, slot: Slot, pod: &PodInfo) {
        self.columns.add(slot, pod);
        self.count(slot, pod, 1);
    }

    /// Stops counting a pod that its row no longer has.
    fn count_removed(&mut self, slot: Slot, pod: &PodInfo) {
        let left = &self.rows[slot.index()].pods;
        self.columns.remove(slot, pod, left);
        self.count(slot, pod, -1);
    }

    fn count(&mut self, slot: Slot, pod: &PodInfo, sign: i8) {
        self.totals.count(pod, sign.into());
        if !pod.pod.spec.volumes.is_empty() {
            self.volumes.count_pod(slot, &pod.pod, sign.into());
        }
        if pod.pod.status.is_unreadable {
            let row = &self.rows[slot.index()];
            self.columns.offer(slot, row.node.as_deref());
            if row.unreadable > 0 {
                self.columns.offer_no_place(slot);
            }
            if !self.is_supposing() {
                self.log.push(TableChange::Node(slot));
            }
        }
    }

    // --- volumes -------------------------------------------------------------------------------------------

    /// Returns whether some pod on a node uses the claim.
    pub fn is_claim_used(&self, namespace: &Str, name: &Str) -> bool {
        let key = (namespace.clone(), name.clone());
        let mut users = self.volumes.users(&key);
        users.any(|slot| self.is_node()[slot.index()])
    }

    /// Sets the CSI volume behind a claim.
    pub(crate) fn set_claim_volume(&mut self, key: &ClaimKey, volume: Option<CsiVolume>) {
        let Some(users) = self.volumes.set_claim(key, volume) else {
            return;
        };
        let (namespace, name) = key.clone();
        self.log.push(TableChange::Claim { namespace, name });
        for slot in users {
            self.storage_changed(slot);
        }
    }

    /// Sets the volumes that are attached to a node, whether or not a pod uses them.
    pub(crate) fn set_attachments(&mut self, node: &Str, volumes: Vec<CsiVolume>) {
        let slot = self.slot(node);
        if self.volumes.set_attachments(node, slot, volumes) {
            slot.into_iter().for_each(|slot| self.storage_changed(slot));
        }
    }

    /// Sets the CSI drivers of a node, each with the maximum number of its volumes.
    pub(crate) fn set_csi_drivers(&mut self, node: &Str, drivers: Vec<(Str, Option<i64>)>) {
        if self.volumes.set_drivers(node, drivers) {
            let slot = self.slot(node);
            slot.into_iter().for_each(|slot| self.storage_changed(slot));
        }
    }

    /// Records a change of the volumes, the devices or the device allocations of a node.
    pub(crate) fn storage_changed(&mut self, slot: Slot) {
        self.touch(slot);
        self.log.push(TableChange::Storage(slot));
    }

    // --- supposing -----------------------------------------------------------------------------------------

    /// Starts a dry run: additions and removals of pods are only supposed, until [`NodeTable::rollback`]. Dry runs can
    /// be nested.
    pub fn begin(&mut self) {
        self.journal.begin();
    }

    /// Returns whether a dry run is in progress.
    pub fn is_supposing(&self) -> bool {
        self.journal.is_open()
    }

    /// Reverts every change since the last [`NodeTable::begin`].
    pub fn rollback(&mut self) {
        while let Some(undo) = self.journal.pop() {
            // The node and the order of its pods are restored, so the node is unchanged.
            match undo {
                Undo::Added {
                    slot,
                    uid,
                    generation,
                } => {
                    if let Some((pod, _)) = self.rows[slot.index()].take_pod(&uid) {
                        self.count_removed(slot, &pod);
                    }
                    self.rows[slot.index()].generation = generation;
                }
                Undo::Removed {
                    slot,
                    pod,
                    at,
                    generation,
                } => {
                    self.rows[slot.index()].put_back(pod.clone(), at);
                    self.count_added(slot, &pod);
                    self.rows[slot.index()].generation = generation;
                }
            }
        }
    }

    // --- slots ---------------------------------------------------------------------------------------------

    fn touch(&mut self, slot: Slot) {
        self.generation += 1;
        self.rows[slot.index()].generation = self.generation;
    }

    fn slot_or_new(&mut self, name: &Str) -> Slot {
        if let Some(slot) = self.slot(name) {
            return slot;
        }
        let slot = self.slots.open(name, self.rows.len());
        if slot.index() == self.rows.len() {
            self.rows.push(NodeRow::default());
            self.columns.add_slot();
            self.nodes.add_slot();
        }
        self.rows[slot.index()].name = name.clone();
        self.volumes.open_slot(slot, name);
        slot
    }

    fn release_if_empty(&mut self, slot: Slot) {
        let row = &mut self.rows[slot.index()];
        if row.node.is_none() && row.pods.is_empty() {
            self.slots.close(&std::mem::take(&mut row.name));
            self.volumes.close_slot(slot);
        }
    }
}
