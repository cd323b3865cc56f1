//! The slices of all drivers by pool and by node, and the devices that are allocated.

use crate::AllocatorFeatures;
use crate::allocated::AllocatedDevices;
use crate::pool::{DevicePool, NodePool, PoolId, PoolView};
use crate::selectors;
use crate::slice::{PreparedSlice, SliceId};
use crate::target::TargetNode;
use berth_api::Str;
use berth_api::devices::{
    AllocationResult, Device, DeviceRequestAllocationResult, DeviceTaintRule, ResourceSlice,
};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The devices that a node sees beside its own. The same devices can be allocated on all nodes with an equal view, if they
/// have none of their own, or none that the claims select.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SharedView {
    /// The slices of pools that select nodes, sorted. The other pools are the same for all nodes.
    slices: SmallVec<[SliceId; 8]>,
    pub(crate) skips_operations: bool,
}

/// Slices and allocations. It is updated with each change of a ResourceSlice or of a claim's allocation.
#[derive(Debug, Clone, Default)]
pub struct Inventory {
    pools: BTreeMap<PoolId, DevicePool>,
    /// The pool of each slice, by the slice's name.
    pool_of: FxHashMap<Str, PoolId>,
    /// Pools with a slice for one node only, by the node's name.
    of_node: FxHashMap<Str, BTreeSet<PoolId>>,
    /// Pools with devices that are not bound to one node.
    of_any_node: BTreeSet<PoolId>,
    /// Pools in `of_any_node` whose slices or devices select nodes.
    selecting: BTreeSet<PoolId>,
    /// Pools that are relevant to every node because they have shared counters, and that are not usable.
    broken_everywhere: BTreeSet<PoolId>,
    allocated: AllocatedDevices,
    /// By name.
    taint_rules: BTreeMap<Str, Arc<DeviceTaintRule>>,
    version: u64,
    shared_slices_version: u64,
    shared_allocations_version: u64,
}

impl Inventory {
    /// Adds a slice, or replaces the slice of that name. Returns the nodes with slices of their own whose pools
    /// changed.
    pub fn set_slice(&mut self, slice: &Arc<ResourceSlice>) -> Vec<Str> {
        let id = PoolId::of(slice);
        let name = &slice.metadata.name;
        let mut nodes = match self.pool_of.get(name) {
            Some(before) if *before != id => self.remove_slice(name),
            Some(_) | None => self.nodes_of(&id),
        };
        let prepared = PreparedSlice::new(slice.clone(), self.taint_rules.values());
        let pool = self.pools.entry(id.clone()).or_default();
        if let Some(before) = pool.set(prepared, self.allocated.of_pool(&id.driver, &id.name)) {
            selectors::forget(before.id());
            self.unlist(&id, &before);
        }
        self.pool_of.insert(name.clone(), id.clone());
        self.list(&id);
        nodes.extend(self.nodes_of(&id));
        nodes
    }

    /// Removes the slice of this name. Returns the nodes with slices of their own whose pools changed.
    pub fn remove_slice(&mut self, name: &str) -> Vec<Str> {
        let Some(id) = self.pool_of.remove(name) else {
            return Vec::new();
        };
        let nodes = self.nodes_of(&id);
        let Some(pool) = self.pools.get_mut(&id) else {
            return nodes;
        };
        let Some(before) = pool.remove(name) else {
            return nodes;
        };
        selectors::forget(before.id());
        if pool.is_empty() {
            self.pools.remove(&id);
        }
        self.unlist(&id, &before);
        self.list(&id);
        nodes
    }

    /// Returns whether the pool of the slice has other slices.
    pub fn has_more_slices(&self, slice: &ResourceSlice) -> bool {
        let pool = self.pools.get(&PoolId::of(slice));
        let mut others = pool.into_iter().flat_map(DevicePool::slices);
        others.any(|other| *other.name() != slice.metadata.name)
    }

    /// Adds a rule that taints devices, or replaces the rule of that name. Returns the nodes with slices of their own
    /// whose devices may have other taints.
    pub fn set_taint_rule(&mut self, rule: &Arc<DeviceTaintRule>) -> Vec<Str> {
        let name = rule.metadata.name.clone();
        let before = self.taint_rules.insert(name, rule.clone());
        self.taint(before.iter().chain([rule]))
    }

    /// Removes the rule of this name. Returns the nodes with slices of their own whose devices may have other taints.
    pub fn remove_taint_rule(&mut self, name: &str) -> Vec<Str> {
        let before = self.taint_rules.remove(name);
        self.taint(before.iter())
    }

    /// Applies the rules again to all slices that the changed rules concern.
    fn taint<'r>(
        &mut self,
        changed: impl Iterator<Item = &'r Arc<DeviceTaintRule>> + Clone,
    ) -> Vec<Str> {
        let mut nodes = Vec::new();
        for (id, pool) in &mut self.pools {
            let mut changed = changed.clone();
            if !changed.any(|rule| rule.concerns(&id.driver, &id.name)) {
                continue;
            }
            self.version += 1;
            self.shared_slices_version +=
                u64::from(self.of_any_node.contains(id) || self.broken_everywhere.contains(id));
            nodes.extend(pool.slices().filter_map(|slice| slice.node_name().cloned()));
            pool.replace(|known| {
                selectors::forget(known.id());
                PreparedSlice::new(known.published().clone(), self.taint_rules.values())
            });
        }
        nodes
    }

    /// The nodes with slices of their own in a pool; a node may be listed more than once.
    fn nodes_of(&self, id: &PoolId) -> Vec<Str> {
        let slices = self.pools.get(id).into_iter().flat_map(DevicePool::slices);
        let nodes = slices.filter_map(|slice| slice.node_name().cloned());
        nodes.collect()
    }

    /// Changes with every change of the slices of pools in which nodes have no slices of their own, and of the taints of
    /// their devices. With it, views of nodes change.
    pub fn shared_slices_version(&self) -> u64 {
        self.shared_slices_version
    }

    /// Changes when devices of pools for several nodes are allocated or freed.
    pub fn shared_allocations_version(&self) -> u64 {
        self.shared_allocations_version
    }

    fn is_shared(&self, id: &PoolId) -> bool {
        self.of_any_node.contains(id) || self.broken_everywhere.contains(id)
    }

    /// The slices of a pool are about to change, or have changed.
    fn touch(&mut self, id: &PoolId) {
        self.version += 1;
        self.shared_slices_version += u64::from(self.is_shared(id));
    }

    /// Removes a pool from the lists of its former slices. [`Self::list`] adds it again where needed.
    fn unlist(&mut self, id: &PoolId, before: &PreparedSlice) {
        self.touch(id);
        if let Some(node) = before.node_name()
            && let Some(pools) = self.of_node.get_mut(node)
        {
            pools.remove(id);
            if pools.is_empty() {
                self.of_node.remove(node);
            }
        }
        self.of_any_node.remove(id);
        self.selecting.remove(id);
    }

    fn list(&mut self, id: &PoolId) {
        self.touch(id);
        self.list_slices(id);
        self.touch(id);
    }

    fn list_slices(&mut self, id: &PoolId) {
        self.broken_everywhere.remove(id);
        let Some(pool) = self.pools.get(id) else {
            return;
        };
        let mut has_counters = false;
        for slice in pool.slices() {
            match slice.node_name() {
                _ if slice.has_counters() => has_counters = true,
                Some(node) => {
                    let pools = self.of_node.entry(node.clone()).or_default();
                    if !pools.contains(id) {
                        pools.insert(id.clone());
                    }
                }
                None => {
                    // A slice without a node name can apply to any node, even if its selector excludes most.
                    self.of_any_node.insert(id.clone());
                    if !slice.slice().spec.all_nodes {
                        self.selecting.insert(id.clone());
                    }
                }
            }
        }
        // A pool whose counters are invalid is broken on every node.
        if has_counters {
            let features = AllocatorFeatures::default();
            let counters_only = |slice: &PreparedSlice| Ok(slice.has_counters());
            let view = pool.view(features, counters_only);
            let view = view.as_deref();
            if !matches!(view, Ok(PoolView::Usable(_) | PoolView::Ignored)) {
                self.broken_everywhere.insert(id.clone());
            }
        }
    }

    /// Follows the allocation of a claim. Returns the nodes with slices of their own in the pools of its devices.
    pub fn set_allocation(
        &mut self,
        before: Option<&AllocationResult>,
        after: Option<&AllocationResult>,
    ) -> Vec<Str> {
        if before == after {
            return Vec::new();
        }
        if let Some(before) = before {
            self.allocated.remove(before);
        }
        if let Some(after) = after {
            self.allocated.add(after);
        }
        let results = || {
            let allocations = before.into_iter().chain(after);
            allocations.flat_map(|allocation| &allocation.devices.results)
        };
        let pools = results().map(|result| PoolId {
            driver: result.driver.clone(),
            name: result.pool.clone(),
        });
        let pools: BTreeSet<PoolId> = pools.collect();
        let mut nodes = Vec::new();
        for id in &pools {
            self.version += 1;
            self.shared_allocations_version += u64::from(self.is_shared(id));
            // There may be one pool per node, so each is looked up only once.
            let Some(pool) = self.pools.get_mut(id) else {
                continue;
            };
            let allocated = self.allocated.of_pool(&id.driver, &id.name);
            let of_pool = |result: &&DeviceRequestAllocationResult| {
                result.driver == id.driver && result.pool == id.name
            };
            for result in results().filter(of_pool) {
                pool.follow(&result.device, allocated);
            }
            let slices = pool.slices();
            nodes.extend(slices.filter_map(|slice| slice.node_name().cloned()));
        }
        nodes
    }

    /// The allocated devices.
    pub fn allocated(&self) -> &AllocatedDevices {
        &self.allocated
    }

    /// Returns whether there is no slice.
    pub fn is_empty(&self) -> bool {
        self.pools.is_empty()
    }

    /// Changes with every change of a slice or an allocation.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// A published device, in the newest generation of its pool that contains it.
    pub fn device(&self, driver: &Str, pool: &Str, device: &str) -> Option<&Device> {
        let id = PoolId {
            driver: driver.clone(),
            name: pool.clone(),
        };
        let slices = self.pools.get(&id)?.slices();
        let found = slices.filter_map(|slice| {
            let mut devices = slice.devices().iter();
            let found = devices.find(|known| *known.name == *device)?;
            Some((slice.generation(), found))
        });
        found
            .max_by_key(|(generation, _)| *generation)
            .map(|(_, found)| found)
    }

    /// Returns whether some device uses resources of its node, such as CPU.
    pub fn has_node_resources(&self) -> bool {
        let mut slices = self.slices();
        slices.any(|slice| slice.has_node_resources)
    }

    /// All slices, in the order of their pools.
    pub fn slices(&self) -> impl Iterator<Item = &Arc<PreparedSlice>> {
        self.pools.values().flat_map(DevicePool::slices)
    }

    /// The view of a node on the devices that several nodes can use. `None` if devices of a slice select nodes
    /// individually, or if the node has pools of its own, some of which do not meet a condition.
    pub(crate) fn shared_view(
        &self,
        node: TargetNode<'_>,
        features: AllocatorFeatures,
        mut is_without_effect: impl FnMut(&NodePool<'_>) -> bool,
    ) -> Option<SharedView> {
        if let Some(own) = self.of_node.get(node.name) {
            // If all devices belong to single nodes, no view is shared.
            if own.iter().any(|id| self.is_shared(id)) || self.of_any_node.is_empty() {
                return None;
            }
            let is_relevant = |slice: &PreparedSlice| slice.is_relevant(node);
            for id in own {
                let (id, pool) = self.pools.get_key_value(id)?;
                let view = pool.view(features, is_relevant).ok()?;
                let pool = NodePool::new(id, pool, view, None);
                if pool.is_some_and(|pool| !is_without_effect(&pool)) {
                    return None;
                }
            }
        }
        let mut slices = SmallVec::new();
        for id in &self.selecting {
            for slice in self.pools.get(id).into_iter().flat_map(DevicePool::slices) {
                if slice.slice().spec.per_device_node_selection {
                    return None;
                }
                if slice.is_relevant(node).ok()? {
                    slices.push(slice.id());
                }
            }
        }
        slices.sort_unstable();
        Some(SharedView {
            slices,
            skips_operations: node.skips_operations,
        })
    }

    /// The slices of the pools with devices that are not bound to one node.
    pub(crate) fn shared_slices(&self) -> impl Iterator<Item = &PreparedSlice> {
        let pools = self.of_any_node.iter().filter_map(|id| self.pools.get(id));
        pools.flat_map(DevicePool::slices).map(|slice| &**slice)
    }

    /// The pools that the nodes with a view need to know, as [`Self::pools_for`] has them.
    pub(crate) fn pools_in(
        &self,
        view: &SharedView,
        features: AllocatorFeatures,
    ) -> Result<Vec<NodePool<'_>>, String> {
        let is_relevant = |slice: &PreparedSlice| {
            let is_everywhere = slice.node_name().is_none() && slice.slice().spec.all_nodes;
            Ok(slice.has_counters()
                || is_everywhere
                || view.slices.binary_search(&slice.id()).is_ok())
        };
        self.pools(None, features, is_relevant)
    }

    /// The pools that are relevant to a node, in the order of allocation: by driver and name, pools with binding
    /// conditions last.
    ///
    /// # Errors
    /// A node selector of a slice is invalid.
    pub(crate) fn pools_for(
        &self,
        node: TargetNode<'_>,
        features: AllocatorFeatures,
    ) -> Result<Vec<NodePool<'_>>, String> {
        let own = self.of_node.get(node.name);
        self.pools(own, features, |slice| slice.is_relevant(node))
    }

    /// The pools for one node and for several nodes, as seen by a node for which `is_relevant` selects the slices.
    fn pools(
        &self,
        own: Option<&BTreeSet<PoolId>>,
        features: AllocatorFeatures,
        is_relevant: impl Fn(&PreparedSlice) -> Result<bool, String>,
    ) -> Result<Vec<NodePool<'_>>, String> {
        let broken = features
            .partitionable_devices
            .then_some(&self.broken_everywhere);
        let ids: BTreeSet<&PoolId>;
        let (single, several);
        // Most nodes have pools of their own and no others.
        let candidates: &mut dyn Iterator<Item = &PoolId> = match own {
            Some(own) if self.of_any_node.is_empty() && self.broken_everywhere.is_empty() => {
                single = own.iter();
                &mut { single }
            }
            own => {
                let own = own.into_iter().flatten();
                let broken = broken.into_iter().flatten();
                ids = own.chain(&self.of_any_node).chain(broken).collect();
                several = ids.iter().copied();
                &mut { several }
            }
        };
        let mut pools = Vec::new();
        let mut with_conditions = Vec::new();
        for id in candidates {
            let Some((id, pool)) = self.pools.get_key_value(id) else {
                continue;
            };
            let view = pool.view(features, &is_relevant)?;
            let allocated = self.allocated.of_pool(&id.driver, &id.name);
            let Some(pool) = NodePool::new(id, pool, view, allocated) else {
                continue;
            };
            if pool.has_binding_conditions() {
                with_conditions.push(pool)
            } else {
                pools.push(pool)
            }
        }
        pools.append(&mut with_conditions);
        Ok(pools)
    }
}
