//! The nodes: a slot each, a column per resource, and the pods on them.
//!
//! The table is not copied before a cycle: one thread owns it, so the cache *is* the snapshot. Dry runs
//! ([`NodeTable::begin`]) change it in place, log the changes, and revert them.

mod census;
mod log;
mod order;
mod row;
#[cfg(test)]
mod tests;
mod topology;
mod view;
mod volumes;

pub use census::{Alike, Census, Crowd, Mark};
pub use log::TableChange;
pub use order::zone_key;
pub use topology::{Held, Topology};
pub use view::{ImageState, NodeView};

use crate::pod_info::PodInfo;
use berth_api::resources::{CPU, EPHEMERAL_STORAGE, MEMORY, PODS};
use berth_api::storage::CsiVolume;
use berth_api::{Node, ObjectMeta, Resources, Str};
use log::ChangeLog;
use order::ZoneOrder;
use row::Row;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::sync::Arc;
use topology::Topologies;
use volumes::NodeVolumes;

pub(crate) use volumes::ClaimKey;

/// A node's place in the table. A node keeps its slot while it exists; a later node may get the slot of a deleted one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Slot(u32);

impl Slot {
    /// The slot with this index.
    pub fn from_index(index: u32) -> Self {
        Self(index)
    }

    /// The index into columns.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A resource's place among the columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ResourceId(u32);

impl ResourceId {
    /// CPU in milli-CPU.
    pub const CPU: Self = Self(0);
    /// Memory in bytes.
    pub const MEMORY: Self = Self(1);
    /// Ephemeral storage in bytes.
    pub const EPHEMERAL_STORAGE: Self = Self(2);
    /// Pods.
    pub const PODS: Self = Self(3);

    fn index(self) -> usize {
        self.0 as usize
    }
}

/// What every node offers of one resource, and what its pods request, by slot.
#[derive(Debug, Default, Clone)]
pub struct Column {
    /// What the node offers.
    pub allocatable: Vec<i64>,
    /// What its pods request.
    pub requested: Vec<i64>,
}

/// An image in the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ImageSummary {
    /// In bytes, as the first node that was seen with the image said.
    size: i64,
    /// How many nodes have it.
    nodes: usize,
}

/// A change of a dry run, with what is needed to revert it.
#[derive(Debug, Clone)]
enum Undo {
    Mark,
    Added {
        slot: Slot,
        uid: Str,
        generation: u64,
    },
    Removed {
        slot: Slot,
        pod: Arc<PodInfo>,
        /// Its place in the row.
        at: usize,
        generation: u64,
    },
}

/// Why a pod could not be removed from a node.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no corresponding pod {pod} in pods of node {node}")]
pub struct NoSuchPod {
    /// The pod's name.
    pub pod: Str,
    /// The node's name.
    pub node: Str,
}

/// Whether one node is another version of the other, and nothing else has changed.
fn is_unchanged(old: &Node, new: &Node) -> bool {
    let metadata = ObjectMeta {
        resource_version: old.metadata.resource_version.clone(),
        ..new.metadata.clone()
    };
    old.spec == new.spec && old.status == new.status && old.metadata == metadata
}

/// All nodes and the pods on them.
#[derive(Debug, Clone)]
pub struct NodeTable {
    rows: Vec<Row>,
    free: Vec<Slot>,
    by_name: FxHashMap<Str, Slot>,
    columns: Vec<Column>,
    resource_ids: FxHashMap<Str, ResourceId>,
    non_zero_milli_cpu: Vec<i64>,
    non_zero_memory: Vec<i64>,
    is_node: Vec<bool>,
    topologies: Topologies,
    census: Census,
    images: FxHashMap<Str, ImageSummary>,
    with_affinity: usize,
    /// How many pods have each priority.
    priorities: BTreeMap<i32, usize>,
    /// How often each label is mentioned by the selectors of pods' affinity and anti-affinity terms.
    affinity_labels: BTreeMap<Str, usize>,
    order: ZoneOrder,
    journal: Vec<Undo>,
    marks: usize,
    generation: u64,
    log: ChangeLog,
    images_version: u64,
    /// By slot: see [`NodeTable::is_untainted`].
    untainted: Vec<bool>,
    volumes: NodeVolumes,
}

impl Default for NodeTable {
    fn default() -> Self {
        let mut table = Self {
            rows: Vec::new(),
            free: Vec::new(),
            by_name: FxHashMap::default(),
            columns: Vec::new(),
            resource_ids: FxHashMap::default(),
            non_zero_milli_cpu: Vec::new(),
            non_zero_memory: Vec::new(),
            is_node: Vec::new(),
            topologies: Topologies::default(),
            census: Census::default(),
            images: FxHashMap::default(),
            with_affinity: 0,
            priorities: BTreeMap::new(),
            affinity_labels: BTreeMap::new(),
            order: ZoneOrder::default(),
            journal: Vec::new(),
            marks: 0,
            generation: 0,
            log: ChangeLog::default(),
            images_version: 0,
            untainted: Vec::new(),
            volumes: NodeVolumes::default(),
        };
        for name in [CPU, MEMORY, EPHEMERAL_STORAGE, PODS] {
            table.resource(&Str::new(name));
        }
        table
    }
}

impl NodeTable {
    // --- nodes ---------------------------------------------------------------------------------------------

    /// Adds a node, or replaces the one of that name; its pods stay. Another version of a node that is there, with
    /// nothing else about it changed, such as a heartbeat makes, is no change.
    ///
    /// # Panics
    /// Never while something is supposed: see [`NodeTable::begin`].
    pub fn set_node(&mut self, node: Arc<Node>) -> Slot {
        debug_assert_eq!(
            self.marks, 0,
            "nodes do not change while something is supposed"
        );
        let slot = self.slot_or_new(node.name());
        let known = &mut self.rows[slot.index()].node;
        if known
            .as_ref()
            .is_some_and(|known| is_unchanged(known, &node))
        {
            *known = Some(node);
            return slot;
        }
        let old = known.take();
        if let Some(old) = &old {
            self.forget_images(old);
        }
        let zone = zone_key(node.labels());
        match &old {
            Some(old) if zone_key(old.labels()) == zone => {}
            Some(old) => {
                self.order.remove(&zone_key(old.labels()), slot);
                self.order.insert(zone, slot);
            }
            None => self.order.insert(zone, slot),
        }
        for image in &node.status.images {
            for name in &image.names {
                self.images
                    .entry(name.clone())
                    .or_insert(ImageSummary {
                        size: image.size_bytes,
                        nodes: 0,
                    })
                    .nodes += 1;
            }
        }
        for column in &mut self.columns {
            column.allocatable[slot.index()] = 0;
        }
        let allocatable = Resources::from_list(&node.status.allocatable);
        self.for_each_resource(&allocatable, |column, amount| {
            column.allocatable[slot.index()] = amount;
        });
        self.columns[ResourceId::PODS.index()].allocatable[slot.index()] = allocatable.pods;
        let row = &mut self.rows[slot.index()];
        row.allocatable_scalars = allocatable.scalars.iter().map(|(n, _)| n.clone()).collect();
        let same_images = old
            .as_ref()
            .is_some_and(|old| old.status.images == node.status.images);
        self.images_version += u64::from(!same_images);
        self.topologies.tidy();
        self.topologies.set(slot, Some(node.labels()));
        self.is_node[slot.index()] = true;
        self.untainted[slot.index()] = node.spec.taints.is_empty() && !node.spec.unschedulable;
        row.node = Some(node);
        self.touch(slot);
        self.log.push(TableChange::Node(slot));
        slot
    }

    /// Removes a node. While pods are still counted on it, its slot stays, out of sight.
    pub fn remove_node(&mut self, name: &str) -> Option<Arc<Node>> {
        debug_assert_eq!(
            self.marks, 0,
            "nodes do not change while something is supposed"
        );
        let slot = *self.by_name.get(name)?;
        let node = self.rows[slot.index()].node.take()?;
        self.images_version += 1;
        self.untainted[slot.index()] = false;
        self.log.push(TableChange::Node(slot));
        self.topologies.set(slot, None);
        self.is_node[slot.index()] = false;
        self.forget_images(&node);
        self.order.remove(&zone_key(node.labels()), slot);
        for column in &mut self.columns {
            column.allocatable[slot.index()] = 0;
        }
        self.touch(slot);
        self.release_if_empty(slot);
        Some(node)
    }

    fn forget_images(&mut self, node: &Node) {
        for name in node.status.images.iter().flat_map(|image| &image.names) {
            if let Some(summary) = self.images.get_mut(name) {
                summary.nodes = summary.nodes.saturating_sub(1);
                if summary.nodes == 0 {
                    self.images.remove(name);
                }
            }
        }
    }

    /// The slot of a node, or of pods that were seen before their node.
    pub fn slot(&self, name: &str) -> Option<Slot> {
        self.by_name.get(name).copied()
    }

    /// The view of a node that exists.
    pub fn node(&self, name: &str) -> Option<NodeView<'_>> {
        let slot = self.slot(name)?;
        self.row(slot)?.node.as_ref()?;
        Some(NodeView::new(self, slot))
    }

    /// The view of a slot that holds a node.
    pub fn get(&self, slot: Slot) -> Option<NodeView<'_>> {
        self.row(slot)?.node.as_ref()?;
        Some(NodeView::new(self, slot))
    }

    /// How many nodes there are.
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Whether there is no node.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The nodes in kube-scheduler's order: one of each zone in turn.
    pub fn in_order(&mut self) -> Arc<[Slot]> {
        self.order.list()
    }

    /// The nodes in slot order: cheaper than [`NodeTable::in_order`] where the order does not matter.
    pub fn iter(&self) -> impl Iterator<Item = NodeView<'_>> {
        self.rows
            .iter()
            .zip(0..)
            .filter(|(row, _)| row.node.is_some())
            .map(|(_, index)| NodeView::new(self, Slot(index)))
    }

    /// Whether each slot holds a node.
    pub fn is_node(&self) -> &[bool] {
        &self.is_node
    }

    /// The domains of nodes by the values of a label. The returned topology is kept up to date. While a caller holds
    /// it, later calls return the same numbers for domains that have had a node all the time.
    pub fn topology(&self, key: &Str) -> Arc<Topology> {
        self.topologies.get(key, &self.rows)
    }

    /// The slots that hold nodes, in order.
    pub fn occupied(&self) -> impl Iterator<Item = Slot> {
        let rows = self.rows.iter().zip(0..);
        rows.filter(|(row, _)| row.node.is_some())
            .map(|(_, index)| Slot(index))
    }

    /// How many slots there are, used or not: the length of every column.
    pub fn slots(&self) -> usize {
        self.rows.len()
    }

    /// Grows with every change of the table.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The generation of the last change of a node or of its pods.
    pub fn changed_at(&self, slot: Slot) -> u64 {
        self.row(slot).map_or(0, |row| row.generation)
    }

    /// Where the log of changes ends now; changes from here on are those of
    /// [`NodeTable::changes_since`]. What is only supposed is no change.
    pub fn changes_end(&self) -> u64 {
        self.log.end()
    }

    /// The changes since the log ended at `since`, in order; `None` when they go back too far to be known.
    pub fn changes_since(&self, since: u64) -> Option<impl Iterator<Item = &TableChange>> {
        self.log.since(since)
    }

    /// Whether something is only supposed at the moment.
    pub fn is_supposing(&self) -> bool {
        self.marks > 0
    }

    /// Changes whenever a node comes or goes, or has other images than before.
    pub fn images_version(&self) -> u64 {
        self.images_version
    }

    /// Whether the node of a slot is known to have no taint and not to be cordoned: most nodes are like that, and
    /// nothing has to be read of them.
    pub fn is_untainted(&self, slot: Slot) -> bool {
        self.untainted.get(slot.index()).copied().unwrap_or(false)
    }

    /// Whether any node has an image.
    pub fn has_image(&self, name: &str) -> bool {
        self.images.contains_key(name)
    }

    // --- resources -----------------------------------------------------------------------------------------

    /// The column of a resource, if any node or pod has named it.
    pub fn resource_id(&self, name: &str) -> Option<ResourceId> {
        self.resource_ids.get(name).copied()
    }

    /// A column by slot.
    pub fn column(&self, id: ResourceId) -> &Column {
        &self.columns[id.index()]
    }

    /// CPU in milli-CPU that each node's pods count for in scores, by slot.
    pub fn non_zero_milli_cpu(&self) -> &[i64] {
        &self.non_zero_milli_cpu
    }

    /// Memory in bytes that each node's pods count for in scores, by slot.
    pub fn non_zero_memory(&self) -> &[i64] {
        &self.non_zero_memory
    }

    fn resource(&mut self, name: &Str) -> ResourceId {
        if let Some(id) = self.resource_ids.get(name) {
            return *id;
        }
        let id = ResourceId(u32::try_from(self.columns.len()).unwrap_or(u32::MAX));
        self.columns.push(Column {
            allocatable: vec![0; self.rows.len()],
            requested: vec![0; self.rows.len()],
        });
        self.resource_ids.insert(name.clone(), id);
        id
    }

    fn for_each_resource(&mut self, amounts: &Resources, mut change: impl FnMut(&mut Column, i64)) {
        change(
            &mut self.columns[ResourceId::CPU.index()],
            amounts.milli_cpu,
        );
        change(
            &mut self.columns[ResourceId::MEMORY.index()],
            amounts.memory,
        );
        change(
            &mut self.columns[ResourceId::EPHEMERAL_STORAGE.index()],
            amounts.ephemeral_storage,
        );
        for (name, amount) in &amounts.scalars {
            let id = self.resource(name);
            change(&mut self.columns[id.index()], *amount);
        }
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
        if self.marks > 0 {
            self.journal.push(Undo::Added {
                slot,
                uid: pod.pod.uid().clone(),
                generation: self.rows[slot.index()].generation,
            });
        } else {
            self.topologies.tidy();
            self.census.add(slot, &pod);
            self.log.push(TableChange::Came(slot, pod.clone()));
        }
        self.book(slot, &pod, 1);
        self.rows[slot.index()].push_pod(pod);
        self.touch(slot);
    }

    /// Takes a newer version of a pod that is counted on a node, if [it counts as](PodInfo::counts_as) the one that is
    /// there: nothing has changed for anybody then. Returns whether that was so.
    pub fn replace_pod(&mut self, node: &str, pod: &Arc<PodInfo>) -> bool {
        let slot = self.by_name.get(node);
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
        self.book(slot, &pod, -1);
        self.touch(slot);
        if self.marks > 0 {
            self.journal.push(Undo::Removed {
                slot,
                pod: pod.clone(),
                at,
                generation,
            });
        } else {
            self.census.remove(slot, &pod);
            self.log.push(TableChange::Went(slot, pod.clone()));
            self.release_if_empty(slot);
        }
        Some(pod)
    }

    /// The pods on nodes, known or not, by kind. Not to be read while something is supposed: it would not be in it.
    pub fn census(&self) -> &Census {
        debug_assert_eq!(self.marks, 0, "what is supposed is not counted");
        &self.census
    }

    /// How many pods have affinity or anti-affinity to pods.
    pub fn pods_with_affinity(&self) -> usize {
        self.with_affinity
    }

    /// The labels of pods that the affinity and anti-affinity terms of pods look at, sorted.
    pub fn affinity_labels(&self) -> impl Iterator<Item = &Str> {
        self.affinity_labels.keys()
    }

    fn book_affinity_labels(&mut self, pod: &PodInfo, sign: i64) {
        let terms = pod.affinity.iter().flat_map(|terms| terms.all());
        for requirement in terms.flat_map(|term| term.selector.requirements()) {
            let key = requirement.key();
            let known = self.affinity_labels.get(key).copied();
            match known.unwrap_or(0).saturating_add_signed(sign as isize) {
                0 => self.affinity_labels.remove(key),
                mentions => self.affinity_labels.insert(key.clone(), mentions),
            };
        }
    }

    /// The lowest priority among the pods on nodes, known or not.
    pub fn lowest_priority(&self) -> Option<i32> {
        self.priorities.keys().next().copied()
    }

    fn book(&mut self, slot: Slot, pod: &PodInfo, sign: i64) {
        let at = slot.index();
        let priority = pod.pod.priority();
        let with_priority = self.priorities.entry(priority).or_default();
        if sign > 0 {
            *with_priority += 1;
        } else {
            *with_priority = with_priority.saturating_sub(1);
            if *with_priority == 0 {
                self.priorities.remove(&priority);
            }
        }
        self.book_affinity_labels(pod, sign);
        if !pod.pod.spec.volumes.is_empty() {
            self.volumes.count_pod(slot, &pod.pod, sign as i32);
        }
        if pod.has_affinity() {
            self.with_affinity = self.with_affinity.saturating_add_signed(sign as isize);
        }
        self.for_each_resource(&pod.requests, |column, amount| {
            column.requested[at] = column.requested[at].saturating_add(sign * amount);
        });
        self.columns[ResourceId::PODS.index()].requested[at] += sign;
        self.non_zero_milli_cpu[at] =
            self.non_zero_milli_cpu[at].saturating_add(sign * pod.non_zero_milli_cpu);
        self.non_zero_memory[at] =
            self.non_zero_memory[at].saturating_add(sign * pod.non_zero_memory);
    }

    // --- volumes -------------------------------------------------------------------------------------------

    /// Whether some pod on a node uses the claim.
    pub fn is_claim_used(&self, namespace: &Str, name: &Str) -> bool {
        let key = (namespace.clone(), name.clone());
        let mut users = self.volumes.users(&key);
        users.any(|slot| self.is_node[slot.index()])
    }

    /// How many claims are for the CSI volume, and how often pods on nodes use it, together.
    pub(crate) fn sources_of_volume(&self, volume: &CsiVolume) -> u32 {
        self.volumes.sources(volume)
    }

    /// The CSI volume behind a claim is this one now.
    pub(crate) fn set_claim_volume(&mut self, key: &ClaimKey, volume: Option<CsiVolume>) {
        for slot in self.volumes.set_claim(key, volume) {
            self.storage_changed(slot);
        }
    }

    /// The volumes that are attached to a node, whether or not a pod uses them, are these now.
    pub(crate) fn set_attachments(&mut self, node: &Str, volumes: Vec<CsiVolume>) {
        let slot = self.slot(node);
        if self.volumes.set_attachments(node, slot, volumes) {
            slot.into_iter().for_each(|slot| self.storage_changed(slot));
        }
    }

    /// The greatest numbers of volumes of a node, by driver, are these now.
    pub(crate) fn set_volume_limits(&mut self, node: &Str, limits: Vec<(Str, i64)>) {
        if self.volumes.set_limits(node, limits) {
            let slot = self.slot(node);
            slot.into_iter().for_each(|slot| self.storage_changed(slot));
        }
    }

    /// The volumes of a node changed, its devices, or which of them are allocated.
    pub(crate) fn storage_changed(&mut self, slot: Slot) {
        self.touch(slot);
        self.log.push(TableChange::Storage(slot));
    }

    // --- supposing -----------------------------------------------------------------------------------------

    /// From here on, pods that are added or removed are only supposed to be, until [`NodeTable::rollback`].
    /// May be nested.
    pub fn begin(&mut self) {
        self.journal.push(Undo::Mark);
        self.marks += 1;
    }

    /// Takes back every change since the last [`NodeTable::begin`].
    pub fn rollback(&mut self) {
        while let Some(undo) = self.journal.pop() {
            match undo {
                Undo::Mark => {
                    self.marks -= 1;
                    return;
                }
                // A node is as it was, the order of its pods too, so it has not changed.
                Undo::Added {
                    slot,
                    uid,
                    generation,
                } => {
                    if let Some((pod, _)) = self.rows[slot.index()].take_pod(&uid) {
                        self.book(slot, &pod, -1);
                    }
                    self.rows[slot.index()].generation = generation;
                }
                Undo::Removed {
                    slot,
                    pod,
                    at,
                    generation,
                } => {
                    self.book(slot, &pod, 1);
                    self.rows[slot.index()].put_back(pod, at);
                    self.rows[slot.index()].generation = generation;
                }
            }
        }
    }

    // --- slots ---------------------------------------------------------------------------------------------

    fn row(&self, slot: Slot) -> Option<&Row> {
        self.rows.get(slot.index())
    }

    fn touch(&mut self, slot: Slot) {
        self.generation += 1;
        self.rows[slot.index()].generation = self.generation;
    }

    fn slot_or_new(&mut self, name: &Str) -> Slot {
        if let Some(slot) = self.by_name.get(name) {
            return *slot;
        }
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None => {
                let slot = Slot(u32::try_from(self.rows.len()).unwrap_or(u32::MAX));
                self.rows.push(Row::default());
                for column in &mut self.columns {
                    column.allocatable.push(0);
                    column.requested.push(0);
                }
                self.untainted.push(false);
                self.non_zero_milli_cpu.push(0);
                self.non_zero_memory.push(0);
                self.is_node.push(false);
                slot
            }
        };
        self.rows[slot.index()].name = name.clone();
        self.by_name.insert(name.clone(), slot);
        self.volumes.open_slot(slot, name);
        slot
    }

    fn release_if_empty(&mut self, slot: Slot) {
        let row = &mut self.rows[slot.index()];
        if row.node.is_none() && row.pods.is_empty() {
            let name = std::mem::take(&mut row.name);
            self.by_name.remove(&name);
            self.volumes.close_slot(slot);
            self.free.push(slot);
        }
    }
}
