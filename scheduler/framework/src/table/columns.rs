//! The allocatable and the requested amounts of each resource: a column per resource, by slot.
//!
//! There are columns only for resources that nodes offer. A pod on a node can name thousands of other resources.

use super::Slot;
use crate::pod_info::PodInfo;
use berth_api::resources::{CPU, EPHEMERAL_STORAGE, MEMORY, PODS};
use berth_api::{Node, Resources, Str};
use rustc_hash::FxHashMap;
use std::sync::Arc;

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

    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// The allocatable amount of one resource on every node, and the requests of its pods, by slot.
#[derive(Debug, Default, Clone)]
pub struct ResourceColumn {
    /// The allocatable amount of the node.
    pub allocatable: Vec<i64>,
    /// The requests of its pods.
    pub requested: Vec<i64>,
}

/// The columns of a table. They have one length, the number of its slots.
#[derive(Debug, Clone)]
pub struct Columns {
    columns: Vec<ResourceColumn>,
    ids: FxHashMap<Str, ResourceId>,
    non_zero_milli_cpu: Vec<i64>,
    non_zero_memory: Vec<i64>,
}

impl Default for Columns {
    fn default() -> Self {
        let mut columns = Self {
            columns: Vec::new(),
            ids: FxHashMap::default(),
            non_zero_milli_cpu: Vec::new(),
            non_zero_memory: Vec::new(),
        };
        for name in [CPU, MEMORY, EPHEMERAL_STORAGE, PODS] {
            columns.id_or_new(&Str::new(name));
        }
        columns
    }
}

impl Columns {
    /// The column of a resource, if any node has offered it.
    pub fn id(&self, name: &str) -> Option<ResourceId> {
        self.ids.get(name).copied()
    }

    /// A column by slot.
    pub fn get(&self, id: ResourceId) -> &ResourceColumn {
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

    /// The amounts of a slot: the requests of its pods, then the allocatable amount of each resource.
    pub fn amounts(&self, slot: Slot) -> impl Iterator<Item = i64> {
        let columns = self.columns.iter();
        let allocatable = columns.map(move |column| column.allocatable[slot.index()]);
        self.held(slot).chain(allocatable)
    }

    /// The requests of the pods of a slot: CPU and memory as scores count them, then each resource.
    fn held(&self, slot: Slot) -> impl Iterator<Item = i64> {
        let at = slot.index();
        let columns = self.columns.iter();
        [self.non_zero_milli_cpu[at], self.non_zero_memory[at]]
            .into_iter()
            .chain(columns.map(move |column| column.requested[at]))
    }

    /// Returns whether a slot has the amounts of a slot of other columns of the same resources.
    pub fn equals(&self, slot: Slot, other: &Self, of: Slot) -> bool {
        self.amounts(slot).eq(other.amounts(of))
    }

    /// The number of resources.
    pub fn resources(&self) -> usize {
        self.columns.len()
    }

    /// Columns of the same resources, without slots.
    #[must_use]
    pub fn without_slots(&self) -> Self {
        Self {
            columns: vec![ResourceColumn::default(); self.columns.len()],
            ids: self.ids.clone(),
            non_zero_milli_cpu: Vec::new(),
            non_zero_memory: Vec::new(),
        }
    }

    /// Gives a slot the amounts of a slot of other columns of the same resources. Missing slots are added.
    pub fn copy(&mut self, slot: Slot, from: &Self, of: Slot) {
        while self.slots() <= slot.index() {
            self.add_slot();
        }
        let (at, of) = (slot.index(), of.index());
        for (column, from) in self.columns.iter_mut().zip(&from.columns) {
            column.allocatable[at] = from.allocatable[of];
            column.requested[at] = from.requested[of];
        }
        self.non_zero_milli_cpu[at] = from.non_zero_milli_cpu[of];
        self.non_zero_memory[at] = from.non_zero_memory[of];
    }

    /// The number of slots.
    pub fn slots(&self) -> usize {
        self.non_zero_memory.len()
    }

    /// The table has one slot more.
    pub(super) fn add_slot(&mut self) {
        for column in &mut self.columns {
            column.allocatable.push(0);
            column.requested.push(0);
        }
        self.non_zero_milli_cpu.push(0);
        self.non_zero_memory.push(0);
    }

    /// Sets the allocatable amounts of a slot; zero without a node. Returns the scalar resources. The caller must then
    /// count the requests of pods for resources that no node has offered before: see [`Columns::count_since`].
    pub(super) fn offer(&mut self, slot: Slot, node: Option<&Node>) -> Vec<Str> {
        for column in &mut self.columns {
            column.allocatable[slot.index()] = 0;
        }
        let Some(node) = node else {
            return Vec::new();
        };
        let allocatable = Resources::from_list(&node.status.allocatable);
        for (name, _) in &allocatable.scalars {
            self.id_or_new(name);
        }
        self.for_each(&allocatable, |_, column, amount| {
            column.allocatable[slot.index()] = amount;
        });
        self.columns[ResourceId::PODS.index()].allocatable[slot.index()] = allocatable.pods;
        allocatable.scalars.iter().map(|(n, _)| n.clone()).collect()
    }

    /// The slot has a pod that cannot be read, so that no other pod has a place.
    pub(super) fn offer_no_place(&mut self, slot: Slot) {
        self.columns[ResourceId::PODS.index()].allocatable[slot.index()] = 0;
    }

    /// A pod is added to a slot.
    pub(super) fn add(&mut self, slot: Slot, pod: &PodInfo) {
        self.count(slot, pod, i64::saturating_add, 1);
    }

    /// A pod is removed from a slot; the other pods are `left`.
    pub(super) fn remove(&mut self, slot: Slot, pod: &PodInfo, left: &[Arc<PodInfo>]) {
        let at = slot.index();
        // A sum at the maximum may be saturated, so subtraction would be wrong: the remaining pods are counted again.
        if self.held(slot).any(|sum| sum == i64::MAX) {
            for column in &mut self.columns {
                column.requested[at] = 0;
            }
            self.non_zero_milli_cpu[at] = 0;
            self.non_zero_memory[at] = 0;
            for pod in left {
                self.add(slot, pod);
            }
        } else {
            self.count(slot, pod, i64::saturating_sub, -1);
        }
    }

    fn count(&mut self, slot: Slot, pod: &PodInfo, change: fn(i64, i64) -> i64, sign: i64) {
        let at = slot.index();
        self.for_each(&pod.requests, |_, column, amount| {
            column.requested[at] = change(column.requested[at], amount);
        });
        self.columns[ResourceId::PODS.index()].requested[at] += sign;
        let (cpu, memory) = (&mut self.non_zero_milli_cpu, &mut self.non_zero_memory);
        cpu[at] = change(cpu[at], pod.non_zero_milli_cpu);
        memory[at] = change(memory[at], pod.non_zero_memory);
    }

    /// Counts the requests of a pod for the resources that were added after the first `before`.
    pub(super) fn count_since(&mut self, before: usize, slot: Slot, pod: &PodInfo) {
        let at = slot.index();
        self.for_each(&pod.requests, |id, column, amount| {
            if id.index() >= before {
                column.requested[at] = column.requested[at].saturating_add(amount);
            }
        });
    }

    fn id_or_new(&mut self, name: &Str) -> ResourceId {
        if let Some(id) = self.ids.get(name) {
            return *id;
        }
        let id = ResourceId(u32::try_from(self.columns.len()).unwrap_or(u32::MAX));
        let slots = self.non_zero_memory.len();
        self.columns.push(ResourceColumn {
            allocatable: vec![0; slots],
            requested: vec![0; slots],
        });
        self.ids.insert(name.clone(), id);
        id
    }

    /// Visits the existing columns of these resources.
    fn for_each(
        &mut self,
        amounts: &Resources,
        mut change: impl FnMut(ResourceId, &mut ResourceColumn, i64),
    ) {
        for (id, amount) in [
            (ResourceId::CPU, amounts.milli_cpu),
            (ResourceId::MEMORY, amounts.memory),
            (ResourceId::EPHEMERAL_STORAGE, amounts.ephemeral_storage),
        ] {
            change(id, &mut self.columns[id.index()], amount);
        }
        for (name, amount) in &amounts.scalars {
            if let Some(id) = self.id(name) {
                change(id, &mut self.columns[id.index()], *amount);
            }
        }
    }
}
