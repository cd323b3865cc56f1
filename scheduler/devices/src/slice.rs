//! A ResourceSlice with the values that are computed from it once.

use crate::target::TargetNode;
use berth_api::Str;
use berth_api::devices::{Device, DeviceTaintRule, ResourceSlice};
use berth_api::node_selector::{CompiledNodeSelector, NodeSelector};
use berth_cel::{DeviceValue, Environment};
use rustc_hash::FxBuildHasher;
use std::borrow::Cow;
use std::collections::HashSet;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// Identifies one version of a slice in caches. Identities are never used again and have no other meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SliceId(u64);

impl SliceId {
    fn next() -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        Self(LAST.fetch_add(1, Ordering::Relaxed))
    }
}

/// A compiled node selector, or the reason why it is invalid.
type Compiled = Result<CompiledNodeSelector, String>;

/// A slice with the values that are computed from it once.
#[derive(Debug)]
pub struct PreparedSlice {
    /// As its driver publishes it.
    published: Arc<ResourceSlice>,
    /// With the taints of DeviceTaintRules.
    slice: Arc<ResourceSlice>,
    id: SliceId,
    node_selector: Option<Compiled>,
    /// One per device if devices select nodes, otherwise none.
    device_selectors: Box<[Option<Compiled>]>,
    /// The devices as CEL values.
    values: Box<[OnceLock<DeviceValue>]>,
    /// The same for expressions that can read attributes with several values.
    list_values: OnceLock<Box<[OnceLock<DeviceValue>]>>,
    /// The hashes of the names of the devices, in their order: a pool of many slices is searched for a name.
    name_hashes: Box<[u32]>,
    duplicate: Option<Str>,
    has_binding_conditions: bool,
    /// Whether some of the devices use resources of their node.
    pub(crate) has_node_resources: bool,
}

/// Some bits of the hash of a name.
fn name_hash(name: &str) -> u32 {
    (FxBuildHasher.hash_one(name) >> 32) as u32
}

fn compile(selector: &NodeSelector) -> Compiled {
    CompiledNodeSelector::compile_strict(selector, "").map_err(|error| error.to_string())
}

/// Returns whether a node is selected by its name, as one of all nodes, or by a selector, in this order.
fn selects(
    target: TargetNode<'_>,
    name: Option<&Str>,
    all: bool,
    selector: Option<&Compiled>,
) -> Result<bool, String> {
    if let Some(name) = name.filter(|name| !name.is_empty()) {
        return Ok(**name == *target.name);
    }
    if all {
        return Ok(true);
    }
    match selector {
        None => Ok(false),
        Some(Ok(selector)) => Ok(selector
            .matches(target.labels, target.name)
            .unwrap_or(false)),
        Some(Err(why)) => Err(why.clone()),
    }
}

/// The slice with the taints of the rules that concern its devices.
fn tainted<'r>(
    slice: &Arc<ResourceSlice>,
    rules: impl Iterator<Item = &'r Arc<DeviceTaintRule>>,
) -> Arc<ResourceSlice> {
    let mut tainted = Cow::Borrowed(slice);
    let (driver, pool) = (&slice.spec.driver, &slice.spec.pool.name);
    for rule in rules.filter(|rule| rule.concerns(driver, pool)) {
        for (index, device) in slice.spec.devices.iter().enumerate() {
            if rule.taints(driver, pool, &device.name) {
                let tainted = Arc::make_mut(tainted.to_mut());
                tainted.spec.devices[index]
                    .taints
                    .push(rule.spec.taint.clone());
            }
        }
    }
    tainted.into_owned()
}

impl PreparedSlice {
    pub(crate) fn new<'r>(
        published: Arc<ResourceSlice>,
        rules: impl Iterator<Item = &'r Arc<DeviceTaintRule>>,
    ) -> Self {
        let slice = tainted(&published, rules);
        let spec = &slice.spec;
        let mut names = HashSet::new();
        let mut devices = spec.devices.iter();
        let duplicate = devices.find(|device| !names.insert(device.name.clone()));
        let device_selectors = if spec.per_device_node_selection {
            let selectors = spec.devices.iter();
            selectors
                .map(|device| device.node_selector.as_ref().map(compile))
                .collect()
        } else {
            Box::default()
        };
        Self {
            id: SliceId::next(),
            node_selector: spec.node_selector.as_ref().map(compile),
            device_selectors,
            // The CEL values of devices are created on demand.
            values: spec.devices.iter().map(|_| OnceLock::new()).collect(),
            list_values: OnceLock::new(),
            name_hashes: spec.devices.iter().map(|d| name_hash(&d.name)).collect(),
            duplicate: duplicate.map(|device| device.name.clone()),
            has_binding_conditions: spec
                .devices
                .iter()
                .any(|device| !device.binding_conditions.is_empty()),
            has_node_resources: spec
                .devices
                .iter()
                .any(|device| !device.node_allocatable_resources.is_empty()),
            published,
            slice,
        }
    }

    /// The slice without the taints of DeviceTaintRules.
    pub(crate) fn published(&self) -> &Arc<ResourceSlice> {
        &self.published
    }

    /// The slice, with the taints of DeviceTaintRules.
    pub fn slice(&self) -> &Arc<ResourceSlice> {
        &self.slice
    }

    pub(crate) fn id(&self) -> SliceId {
        self.id
    }

    pub(crate) fn name(&self) -> &Str {
        &self.slice.metadata.name
    }

    pub(crate) fn devices(&self) -> &[Device] {
        &self.slice.spec.devices
    }

    /// The places of the devices of this name; more than one in an invalid slice.
    pub(crate) fn places_of(&self, name: &str) -> impl Iterator<Item = usize> {
        let hash = name_hash(name);
        let hashes = self.name_hashes.iter().enumerate();
        let alike = hashes.filter(move |(_, known)| **known == hash);
        alike
            .map(|(at, _)| at)
            .filter(move |at| *self.devices()[*at].name == *name)
    }

    pub(crate) fn generation(&self) -> i64 {
        self.slice.spec.pool.generation
    }

    pub(crate) fn has_counters(&self) -> bool {
        !self.slice.spec.shared_counters.is_empty()
    }

    /// The node that alone can use the devices.
    pub(crate) fn node_name(&self) -> Option<&Str> {
        let name = self.slice.spec.node_name.as_ref();
        name.filter(|name| !name.is_empty())
    }

    /// The name of a device that another one of the slice has, too.
    pub(crate) fn duplicate(&self) -> Option<&Str> {
        self.duplicate.as_ref()
    }

    pub(crate) fn has_binding_conditions(&self) -> bool {
        self.has_binding_conditions
    }

    /// Returns whether the slice is relevant to a node: the node can use some of its devices, or the slice has
    /// counters.
    ///
    /// # Errors
    /// A node selector is invalid.
    pub(crate) fn is_relevant(&self, target: TargetNode<'_>) -> Result<bool, String> {
        let spec = &self.slice.spec;
        if self.has_counters() {
            return Ok(true);
        }
        let failed = |what: String, why: String| {
            format!("failed to perform node selection for {what}: {why}")
        };
        if self.node_name().is_some() || spec.all_nodes || self.node_selector.is_some() {
            let selector = self.node_selector.as_ref();
            return selects(target, spec.node_name.as_ref(), spec.all_nodes, selector)
                .map_err(|why| failed(format!("slice {}", self.name()), why));
        }
        for index in 0..self.device_selectors.len() {
            if self.selects_for_device(index, target)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns whether a node can use a device of a slice whose devices select nodes individually. For other slices,
    /// the slice decides.
    ///
    /// # Errors
    /// The node selector is invalid.
    pub(crate) fn selects_for_device(
        &self,
        index: usize,
        target: TargetNode<'_>,
    ) -> Result<bool, String> {
        let Some(selector) = self.device_selectors.get(index) else {
            return Ok(true);
        };
        let device = &self.devices()[index];
        selects(
            target,
            device.node_name.as_ref(),
            device.all_nodes,
            selector.as_ref(),
        )
        .map_err(|why| {
            format!(
                "failed to perform node selection for device {} in slice {}: {why}",
                device.name,
                self.name()
            )
        })
    }

    /// A device as a CEL value in this environment.
    pub(crate) fn value(&self, index: usize, environment: Environment) -> &DeviceValue {
        let values = if environment.list_attributes {
            self.list_values
                .get_or_init(|| self.devices().iter().map(|_| OnceLock::new()).collect())
        } else {
            &self.values
        };
        values[index].get_or_init(|| {
            let driver = &self.slice.spec.driver;
            DeviceValue::new(driver, &self.devices()[index], environment)
        })
    }
}
