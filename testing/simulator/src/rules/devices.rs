//! Devices: the devices that may be allocated to a claim, and whether a node has the devices for a pod.
//!
//! The rules read only the few kinds of claims and devices that `shapes::devices` describes.

use super::{Forbids, Scene};
use crate::shapes::{CLASS_PLAIN, DEVICE_DRIVER, EXTENDED};
use crate::world::Others;
use berth_api::devices::{
    AllocationResult, Device, DeviceAttribute, RequestedDevices, ResourceClaimSpec,
};
use berth_api::{Kind, Node, Pod, ResourceClaim, ResourceSlice, Str};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The pool and the name of a device. There is one driver.
type DeviceName = (Str, Str);

/// The alternatives of a claim's request, one of which is allocated.
type Alternatives<'a> = Vec<Wanted<'a>>;

/// Devices that a claim requests together.
struct Wanted<'a> {
    class: &'a str,
    /// An attribute and its value.
    selector: Option<(String, String)>,
    count: usize,
    tolerates: bool,
    memory: Option<i64>,
    same: Option<&'a str>,
}

impl<'a> Wanted<'a> {
    fn new(requested: &'a RequestedDevices, spec: &'a ResourceClaimSpec) -> Self {
        let cel = requested.selectors.iter().find_map(|s| s.cel.as_ref());
        let selector = cel.and_then(|cel| {
            let (left, right) = cel.expression.split_once(" == ")?;
            let (_, attribute) = left.rsplit_once('.')?;
            Some((attribute.to_owned(), right.trim_matches('"').to_owned()))
        });
        let memory = requested.capacity.as_ref();
        let memory = memory.and_then(|capacity| capacity.requests.get("memory"));
        let same = spec.devices.constraints.iter();
        let mut same = same.filter_map(|constraint| constraint.match_attribute.as_ref());
        Self {
            class: &requested.device_class_name,
            selector,
            count: usize::try_from(requested.count).unwrap_or(0),
            tolerates: !requested.tolerations.is_empty(),
            memory: memory.map(|memory| memory.value()),
            same: same
                .next()
                .and_then(|name| name.strip_prefix(DEVICE_DRIVER)),
        }
    }
}

fn alternatives(spec: &ResourceClaimSpec) -> Vec<Alternatives<'_>> {
    let requests = spec.devices.requests.iter();
    requests
        .map(|request| {
            let all = request.exactly.iter().chain(&request.first_available);
            all.map(|requested| Wanted::new(requested, spec)).collect()
        })
        .collect()
}

/// The devices that nodes can use, with their free capacity.
struct Free<'a> {
    devices: Vec<(DeviceName, &'a ResourceSlice, &'a Device)>,
    taken: BTreeSet<DeviceName>,
    /// By device.
    memory: BTreeMap<DeviceName, i64>,
    /// By pool, counter set and counter.
    counters: BTreeMap<(Str, Str, Str), i64>,
}

impl<'a> Free<'a> {
    fn of(scene: &Scene<'a>, except: Option<&Str>) -> Self {
        let mut pools: BTreeMap<&Str, Vec<&'a ResourceSlice>> = BTreeMap::new();
        for slice in scene.others.of_kind(Kind::ResourceSlice) {
            let Some(slice) = slice.as_resource_slice() else {
                continue;
            };
            let known = pools.entry(&slice.spec.pool.name).or_default();
            match known.first().map(|first| first.spec.pool.generation) {
                Some(newest) if slice.spec.pool.generation < newest => continue,
                Some(newest) if slice.spec.pool.generation > newest => known.clear(),
                _ => {}
            }
            known.push(slice);
        }
        let mut free = Self {
            devices: Vec::new(),
            taken: BTreeSet::new(),
            memory: BTreeMap::new(),
            counters: BTreeMap::new(),
        };
        for (name, slices) in pools {
            let complete = slices
                .iter()
                .all(|slice| slice.spec.pool.resource_slice_count == slices.len() as i64);
            if !complete {
                continue;
            }
            for slice in slices {
                for set in &slice.spec.shared_counters {
                    for (counter, amount) in &set.counters {
                        let key = (name.clone(), set.name.clone(), counter.clone());
                        free.counters.insert(key, amount.value.value());
                    }
                }
                for device in &slice.spec.devices {
                    let key = (name.clone(), device.name.clone());
                    if let Some(memory) = device.capacity.get("memory") {
                        free.memory.insert(key.clone(), memory.value.value());
                    }
                    free.devices.push((key, slice, device));
                }
            }
        }
        for (uid, allocation) in scene.allocations() {
            if Some(uid) != except {
                free.take_allocation(allocation);
            }
        }
        free
    }

    fn device(&self, name: &DeviceName) -> Option<(&'a ResourceSlice, &'a Device)> {
        let mut devices = self.devices.iter();
        let found = devices.find(|(known, _, _)| known == name);
        found.map(|(_, slice, device)| (*slice, *device))
    }

    /// Takes devices, free or not.
    fn take_allocation(&mut self, allocation: &AllocationResult) {
        for result in &allocation.devices.results {
            let name = (result.pool.clone(), result.device.clone());
            match result.consumed_capacity.get("memory") {
                Some(memory) if result.share_id.is_some() => self.consume(&name, memory.value()),
                _ => self.take(&name),
            }
        }
    }

    fn consume(&mut self, name: &DeviceName, amount: i64) {
        if let Some(memory) = self.memory.get_mut(name) {
            *memory -= amount;
        }
    }

    fn take(&mut self, name: &DeviceName) {
        if self.taken.insert(name.clone()) {
            self.count(name, -1);
        }
    }

    fn give_back(&mut self, name: &DeviceName) {
        if self.taken.remove(name) {
            self.count(name, 1);
        }
    }

    /// Adds or removes the counters that a device consumes.
    fn count(&mut self, (pool, device): &DeviceName, sign: i64) {
        let Some((_, device)) = self.device(&(pool.clone(), device.clone())) else {
            return;
        };
        for set in &device.consumes_counters {
            for (counter, amount) in &set.counters {
                let key = (pool.clone(), set.counter_set.clone(), counter.clone());
                if let Some(left) = self.counters.get_mut(&key) {
                    *left += sign * amount.value.value();
                }
            }
        }
    }

    /// The reason why the device cannot be allocated to the request on the node.
    fn refuses(&self, wanted: &Wanted<'_>, name: &DeviceName, node: &Node) -> Option<&'static str> {
        let Some((slice, device)) = self.device(name) else {
            return Some("no current slice has it");
        };
        let of_node = slice.spec.node_name.as_ref();
        if of_node.is_some_and(|of_node| of_node != node.name()) {
            return Some("another node has it");
        }
        let attribute = |name: &str| match device.attributes.get(name) {
            Some(DeviceAttribute::String(text)) => Some(text.as_str()),
            _ => None,
        };
        if attribute("kind") != Some(wanted.class) {
            return Some("it is of another class");
        }
        let selector = wanted.selector.as_ref();
        if selector.is_some_and(|(name, value)| attribute(name) != Some(value)) {
            return Some("the selector does not match");
        }
        if !wanted.tolerates && !device.taints.is_empty() {
            return Some("its taint is not tolerated");
        }
        match wanted.memory {
            Some(memory) => {
                let left = self.memory.get(name).copied().unwrap_or(0);
                if left < memory {
                    return Some("not enough of its capacity is left");
                }
            }
            None => {
                if self.taken.contains(name) {
                    return Some("it is allocated to another claim");
                }
            }
        }
        None
    }

    /// Returns whether a counter of the device is overdrawn. Two leaders can overdraw the counters of other devices.
    fn overdrawn(&self, (pool, device): &DeviceName) -> bool {
        let found = self.device(&(pool.clone(), device.clone()));
        let sets = found.map_or(&[][..], |(_, device)| &device.consumes_counters);
        sets.iter().any(|set| {
            let mut counters = set.counters.keys();
            counters.any(|counter| {
                let key = (pool.clone(), set.counter_set.clone(), counter.clone());
                self.counters.get(&key).is_some_and(|left| *left < 0)
            })
        })
    }

    /// Returns whether all requests fit on the node together. Searches exhaustively.
    fn fits(&mut self, requests: &[&Alternatives<'_>], node: &Node) -> bool {
        let Some((first, rest)) = requests.split_first() else {
            return true;
        };
        first
            .iter()
            .any(|wanted| self.fits_from(wanted, &mut Vec::new(), 0, rest, node))
    }

    fn fits_from(
        &mut self,
        wanted: &Wanted<'_>,
        picked: &mut Vec<DeviceName>,
        from: usize,
        rest: &[&Alternatives<'_>],
        node: &Node,
    ) -> bool {
        if picked.len() == wanted.count {
            return self.fits(rest, node);
        }
        for at in from..self.devices.len() {
            let name = self.devices[at].0.clone();
            if self.refuses(wanted, &name, node).is_some() {
                continue;
            }
            picked.push(name.clone());
            if self.differ(wanted, picked) {
                picked.pop();
                continue;
            }
            match wanted.memory {
                Some(amount) => self.consume(&name, amount),
                None => self.take(&name),
            }
            let fits = !self.overdrawn(&name) && self.fits_from(wanted, picked, at + 1, rest, node);
            match wanted.memory {
                Some(amount) => self.consume(&name, -amount),
                None => self.give_back(&name),
            }
            picked.pop();
            if fits {
                return true;
            }
        }
        false
    }

    /// Returns whether the devices differ in the attribute that must be equal.
    fn differ(&self, wanted: &Wanted<'_>, devices: &[DeviceName]) -> bool {
        let Some(attribute) = wanted.same else {
            return false;
        };
        let attribute = attribute.trim_start_matches('/');
        let mut values = devices.iter().map(|name| {
            let device = self.device(name)?.1;
            device.attributes.get(attribute)
        });
        let first = values.next().flatten();
        first.is_none() || values.any(|value| value != first)
    }
}

/// The number of devices that a pod requests as an extended resource.
fn extended(pod: &Pod) -> i64 {
    let containers = pod.spec.containers.iter();
    let amounts = containers.filter_map(|c| c.resources.requests.get(EXTENDED));
    amounts.map(|amount| amount.value()).sum()
}

/// The names of the claims of a pod. `None` for a claim that has not been created.
pub(crate) fn claim_names(pod: &Pod) -> impl Iterator<Item = Option<&Str>> {
    pod.spec.resource_claims.iter().map(|entry| {
        let named = entry.resource_claim_name.as_ref();
        let mut made = pod.status.resource_claim_statuses.iter();
        named.or_else(|| {
            let made = made.find(|made| made.name == entry.name)?;
            made.resource_claim_name.as_ref()
        })
    })
}

pub(super) fn forbids(scene: &Scene<'_>, pod: &Pod, node: &Node) -> Option<Forbids> {
    let extended = extended(pod);
    if pod.spec.resource_claims.is_empty() && extended == 0 {
        return None;
    }
    let mut wanted = Vec::new();
    for name in claim_names(pod) {
        let claim = name.and_then(|name| scene.others.device_claim(pod.namespace(), name));
        let claim = claim.filter(|claim| claim.metadata.deletion_timestamp.is_none());
        let Some(claim) = claim else {
            return Some(Forbids::Rule("a resource claim does not exist"));
        };
        match &claim.status.allocation {
            Some(allocation) => {
                let selector = allocation.node_selector.as_ref();
                if selector.is_some_and(|selector| !berth_oracle::matches_terms(selector, node)) {
                    return Some(Forbids::Rule("the devices of a claim cannot be used"));
                }
            }
            None if scene.decided_devices.contains_key(&claim.metadata.uid) => {
                return Some(Forbids::Rule("a resource claim is being allocated"));
            }
            None => wanted.extend(alternatives(&claim.spec)),
        }
    }
    if extended > 0 {
        wanted.push(vec![of_class(extended)]);
    }
    let wanted: Vec<&Alternatives<'_>> = wanted.iter().collect();
    let fits = wanted.is_empty() || Free::of(scene, None).fits(&wanted, node);
    (!fits).then(|| Forbids::Lacks("devices".to_owned()))
}

/// A number of whole devices.
fn of_class(count: i64) -> Wanted<'static> {
    Wanted {
        class: CLASS_PLAIN,
        selector: None,
        count: usize::try_from(count).unwrap_or(0),
        tolerates: false,
        memory: None,
        same: None,
    }
}

/// The problems of the devices chosen for a claim on a node: each device with its problem.
pub(crate) fn device_faults(
    scene: &Scene<'_>,
    claim: &ResourceClaim,
    allocation: &AllocationResult,
    node: &Node,
) -> Option<(String, &'static str)> {
    let mut free = Free::of(scene, Some(&claim.metadata.uid));
    let results = &allocation.devices.results;
    let mut expected = 0;
    for request in &claim.spec.devices.requests {
        let mut all = request.exactly.iter().chain(&request.first_available);
        let chosen = all.find(|requested| {
            let name = if requested.name.is_empty() {
                request.name.to_string()
            } else {
                format!("{}/{}", request.name, requested.name)
            };
            results.iter().any(|result| *result.request == *name)
        });
        let Some(chosen) = chosen else {
            return Some((request.name.to_string(), "the request has no device"));
        };
        let wanted = Wanted::new(chosen, &claim.spec);
        let mut picked = Vec::new();
        let own = results.iter().filter(|result| {
            let (name, _) = result
                .request
                .split_once('/')
                .unwrap_or((&result.request, ""));
            *name == *request.name
        });
        for result in own {
            let name = (result.pool.clone(), result.device.clone());
            let device = format!("{}/{}", name.0, name.1);
            if let Some(why) = free.refuses(&wanted, &name, node) {
                return Some((device, why));
            }
            let is_share = result.share_id.is_some();
            if is_share != wanted.memory.is_some() {
                return Some((device, "it is not shared as it has to be"));
            }
            match wanted.memory {
                Some(amount) => free.consume(&name, amount),
                None => free.take(&name),
            }
            if free.overdrawn(&name) {
                return Some((device, "not enough of its counters is left"));
            }
            picked.push(name);
            if free.differ(&wanted, &picked) {
                return Some((device, "it differs from the other devices of the claim"));
            }
        }
        if picked.len() != wanted.count {
            return Some((request.name.to_string(), "the number of devices is wrong"));
        }
        expected += wanted.count;
    }
    if results.len() != expected {
        return Some((
            "the claim".to_owned(),
            "it has devices that are not requested",
        ));
    }
    let is_local = results.iter().any(|result| *result.pool == **node.name());
    let selector = allocation.node_selector.as_ref();
    let is_open = selector.is_none_or(|selector| berth_oracle::matches_terms(selector, node));
    if !is_open || is_local && selector.is_none() {
        return Some(("the claim".to_owned(), "its node selector is wrong"));
    }
    None
}

/// A device that two claims have, or capacity or counters that are overdrawn.
pub(crate) fn conflict(others: &Others) -> Option<String> {
    let claims = others.of_kind(Kind::ResourceClaim);
    let claims = claims.filter_map(|object| object.as_resource_claim());
    let mut owners: BTreeMap<DeviceName, &Arc<ResourceClaim>> = BTreeMap::new();
    for claim in claims {
        let results = claim
            .status
            .allocation
            .iter()
            .flat_map(|a| &a.devices.results);
        for result in results.filter(|result| result.share_id.is_none()) {
            let name = (result.pool.clone(), result.device.clone());
            if let Some(first) = owners.insert(name, claim) {
                return Some(format!(
                    "device {}/{} is allocated to claims {} and {}",
                    result.pool, result.device, first.metadata.name, claim.metadata.name
                ));
            }
        }
    }
    None
}
