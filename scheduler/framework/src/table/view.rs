//! One node as plugins read it.

use super::row::has_disk;
use super::{ImageState, NodeRow, NodeTable, ResourceId, Slot};
use crate::pod_info::{HostPort, PodInfo};
use berth_api::storage::CsiVolume;
use berth_api::{Labels, Node, Str};
use std::fmt;
use std::sync::Arc;

/// A node that exists, with its pods. Cheap to copy.
#[derive(Clone, Copy)]
pub struct NodeView<'a> {
    table: &'a NodeTable,
    slot: Slot,
    row: &'a NodeRow,
    node: &'a Arc<Node>,
}

impl<'a> NodeView<'a> {
    /// The caller has checked that the slot holds a node.
    pub(super) fn new(table: &'a NodeTable, slot: Slot) -> Self {
        let row = &table.rows[slot.index()];
        let node = row
            .node
            .as_ref()
            .expect("a view is made of a slot that holds a node");
        Self {
            table,
            slot,
            row,
            node,
        }
    }

    /// The node's place in the table.
    pub fn slot(&self) -> Slot {
        self.slot
    }

    /// The node.
    pub fn node(&self) -> &'a Arc<Node> {
        self.node
    }

    /// The node's name.
    pub fn name(&self) -> &'a Str {
        self.node.name()
    }

    /// The node's labels.
    pub fn labels(&self) -> &'a Labels {
        self.node.labels()
    }

    /// The allocatable amount of a resource.
    pub fn allocatable(&self, id: ResourceId) -> i64 {
        self.table.columns.get(id).allocatable[self.slot.index()]
    }

    /// The amount of a resource that the pods of the node request.
    pub fn requested(&self, id: ResourceId) -> i64 {
        self.table.columns.get(id).requested[self.slot.index()]
    }

    /// The allocatable amount of a resource by name; zero for an unknown name.
    pub fn allocatable_of(&self, name: &str) -> i64 {
        let id = self.table.columns.id(name);
        id.map_or(0, |id| self.allocatable(id))
    }

    /// The requested amount of a resource by name; zero for an unknown name.
    pub fn requested_of(&self, name: &str) -> i64 {
        let id = self.table.columns.id(name);
        id.map_or(0, |id| self.requested(id))
    }

    /// CPU in milli-CPU that the node's pods count for in scores.
    pub fn non_zero_milli_cpu(&self) -> i64 {
        self.table.columns.non_zero_milli_cpu()[self.slot.index()]
    }

    /// Memory in bytes that the node's pods count for in scores.
    pub fn non_zero_memory(&self) -> i64 {
        self.table.columns.non_zero_memory()[self.slot.index()]
    }

    /// The pods on the node, in no particular order.
    pub fn pods(&self) -> &'a [Arc<PodInfo>] {
        &self.row.pods
    }

    /// The pods of the node with affinity or anti-affinity to pods.
    pub fn pods_with_affinity(&self) -> impl Iterator<Item = &'a Arc<PodInfo>> {
        let pods: &[_] = if self.row.with_affinity == 0 {
            &[]
        } else {
            &self.row.pods
        };
        pods.iter().filter(|p| p.has_affinity())
    }

    /// The pods of the node with a disk in their spec that pods may not be able to share.
    pub fn pods_with_disks(&self) -> impl Iterator<Item = &'a Arc<PodInfo>> + use<'a> {
        let pods: &[_] = if self.row.with_disks == 0 {
            &[]
        } else {
            &self.row.pods
        };
        pods.iter().filter(|pod| has_disk(pod))
    }

    /// Returns whether a host port conflicts with one that a pod of the node holds.
    pub fn port_conflicts(&self, wanted: &HostPort) -> bool {
        wanted.port > 0 && self.row.used_ports.conflicts_with(wanted)
    }

    /// An image, if the node has it.
    pub fn image(&self, name: &str) -> Option<ImageState> {
        let mut images = self.node.status.images.iter();
        let on_node = images.any(|image| image.names.iter().any(|n| n == name));
        self.table.images.get(name).filter(|_| on_node)
    }

    /// The number of volumes that the CSI driver can attach to the node; `None` for no limit.
    pub fn volume_limit(&self, driver: &str) -> Option<i64> {
        self.table.volumes.limit(self.name(), driver)
    }

    /// Returns whether the node has the CSI driver.
    pub fn has_csi_driver(&self, driver: &str) -> bool {
        self.table.volumes.has_driver(self.name(), driver)
    }

    /// Returns whether the node has any CSI driver.
    pub fn has_csi_drivers(&self) -> bool {
        self.table.volumes.has_drivers(self.name())
    }

    /// The number of volumes of the CSI driver that the pods of the node use or are attached to it, each counted once.
    pub fn attached_volumes(&self, driver: &str) -> usize {
        self.table.volumes.attached(self.slot, driver)
    }

    /// Returns whether a pod of the node uses the CSI volume.
    pub fn uses_volume(&self, volume: &CsiVolume) -> bool {
        self.table.volumes.uses(self.slot, volume)
    }

    /// Returns whether a pod of this or another node uses the claim.
    pub fn is_claim_used(&self, namespace: &Str, name: &Str) -> bool {
        self.table.is_claim_used(namespace, name)
    }

    /// The scalar resources that the node offers, a zero amount included; sorted.
    pub fn allocatable_scalars(&self) -> &'a [Str] {
        &self.row.allocatable_scalars
    }

    /// Returns whether the node offers a scalar resource, be it a zero amount.
    pub fn offers_scalar(&self, name: &Str) -> bool {
        self.row.allocatable_scalars.binary_search(name).is_ok()
    }
}

impl fmt::Debug for NodeView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeView")
            .field("name", self.name())
            .field("pods", &self.row.pods.len())
            .finish()
    }
}
