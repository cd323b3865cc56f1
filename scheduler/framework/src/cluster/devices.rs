//! Claims for devices, the classes that they name, and the devices that drivers publish.

use super::ResourceClaims;
use super::namespaced::{ByName, put};
use crate::features::{Behaviour, FeatureGates};
use crate::table::NodeTable;
use berth_api::{DeviceClass, DeviceTaintRule, Object, ResourceClaim, Str};
use berth_devices::{DeviceId, Inventory};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// The objects that Dynamic Resource Allocation reads. The inventory follows the slices and the claims.
#[derive(Debug, Clone, Default)]
pub struct Devices {
    classes: ByName<DeviceClass>,
    /// The classes that name an extended resource, by the resource. The last one has precedence.
    by_resource: FxHashMap<Str, Vec<Arc<DeviceClass>>>,
    claims: ResourceClaims,
    inventory: Inventory,
    /// Whether a DeviceTaintRule without `deviceSelector` applies to no device.
    ignores_rules_without_selector: bool,
}

impl Devices {
    /// Classes by name.
    pub fn classes(&self) -> &ByName<DeviceClass> {
        &self.classes
    }

    /// The class whose devices back an extended resource that it names: of several the newest, then the first by name.
    pub fn class_of_resource(&self, resource: &str) -> Option<&Arc<DeviceClass>> {
        self.by_resource.get(resource)?.last()
    }

    /// Files the class under the resource that it names.
    fn file(&mut self, class: &Arc<DeviceClass>, is_there: bool) {
        let name = &class.metadata.name;
        let before = self.classes.get(name);
        let before = before.and_then(|class| class.spec.extended_resource_name.clone());
        if let Some(resource) = before
            && let Some(filed) = self.by_resource.get_mut(&resource)
        {
            filed.retain(|known| known.metadata.name != *name);
            if filed.is_empty() {
                self.by_resource.remove(&resource);
            }
        }
        if let Some(resource) = class
            .spec
            .extended_resource_name
            .clone()
            .filter(|_| is_there)
        {
            let filed = self.by_resource.entry(resource).or_default();
            filed.push(class.clone());
            filed.sort_by(|a, b| {
                let (a, b) = (&a.metadata, &b.metadata);
                let age = a.creation_timestamp.cmp(&b.creation_timestamp);
                age.then_with(|| b.name.cmp(&a.name))
            });
        }
    }

    /// Claims, with the scheduler's unconfirmed writes applied.
    pub fn claims(&self) -> &ResourceClaims {
        &self.claims
    }

    /// The devices that drivers publish and that are allocated.
    pub fn inventory(&self) -> &Inventory {
        &self.inventory
    }

    /// The claims that hold devices. Devices with admin access remain available to others.
    pub fn holders(&self) -> FxHashMap<DeviceId, Arc<ResourceClaim>> {
        let mut holders = FxHashMap::default();
        for claim in self.claims.iter() {
            let allocation = claim.status.allocation.iter();
            let results = allocation.flat_map(|allocation| &allocation.devices.results);
            for result in results.filter(|result| result.admin_access != Some(true)) {
                let id = DeviceId {
                    driver: result.driver.clone(),
                    pool: result.pool.clone(),
                    device: result.device.clone(),
                };
                holders.insert(id, claim.clone());
            }
        }
        holders
    }

    /// Follows the release of these gates for objects that are set from now on.
    pub(super) fn follow(&mut self, features: &FeatureGates) {
        self.ignores_rules_without_selector =
            features.has(Behaviour::TaintRuleWithoutSelectorMatchesNothing);
    }

    fn is_ignored(&self, rule: &DeviceTaintRule) -> bool {
        self.ignores_rules_without_selector && rule.spec.device_selector.is_none()
    }

    /// Sets or removes an object, and returns whether its kind is kept here. Adds a change to the log of the
    /// table for each node whose devices or allocations have changed.
    pub(super) fn put(&mut self, object: &Object, is_there: bool, table: &mut NodeTable) -> bool {
        let name = &object.metadata().name;
        if let Object::DeviceClass(class) = object {
            self.file(class, is_there);
        }
        let is_ignored = matches!(object, Object::DeviceTaintRule(rule) if self.is_ignored(rule));
        let inventory = &mut self.inventory;
        let nodes: Vec<Str> = match object {
            Object::DeviceClass(class) => {
                put(&mut self.classes, name, class, is_there);
                return true;
            }
            Object::ResourceClaim(claim) => {
                let before = self.claims.put(claim, is_there);
                let before = before.as_ref().and_then(|c| c.status.allocation.as_ref());
                let after = claim.status.allocation.as_ref().filter(|_| is_there);
                inventory.set_allocation(before, after)
            }
            Object::ResourceSlice(slice) => {
                if is_there {
                    inventory.set_slice(slice)
                } else {
                    inventory.remove_slice(name)
                }
            }
            Object::DeviceTaintRule(rule) => {
                // The previous version of an ignored rule may have applied.
                if is_there && !is_ignored {
                    inventory.set_taint_rule(rule)
                } else {
                    inventory.remove_taint_rule(name)
                }
            }
            _ => return false,
        };
        for node in &nodes {
            if let Some(slot) = table.slot(node) {
                table.storage_changed(slot);
            }
        }
        true
    }
}
