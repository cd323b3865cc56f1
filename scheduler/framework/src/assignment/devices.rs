//! Devices of a node that pods have whole or in parts, such as GPUs, counted in units of a resource.
//!
//! ```text
//! node  status.allocatable example.com/gpu-milli: 4000   four devices of 1,000 units each
//! pod   requests           example.com/gpu-milli: 300    a part of one device
//! pod   requests           example.com/gpu-milli: 2000   two whole devices
//! pod   label              example.com/gpu-index: "0-3"  its devices, once it has a node
//! ```
//!
//! A plugin names the resource and the label ([`IndexedDevices`]) and chooses among the devices ([`DeviceChoice`]). The rest
//! is derived:
//!
//! | extension point | derived as |
//! |---|---|
//! | PreFilter, Filter | a [`NodeFilter`]: the devices that the pod requests are free |
//! | Reserve, PreBind | an [`Assignment`]: the indices of the chosen devices, as a label |
//! | events | [`DeviceEvents`]: deleted pods, new nodes and changed amounts may help |

use super::Assignment;
use crate::event::{ActionType, EventRegistration, EventResource};
use crate::plugin::{Context, EnqueueExtensions};
use crate::requirement::NodeFilter;
use crate::{CallType, FeatureGates, NodeView, PodInfo, Status};
use berth_api::{Labels, Pod};
use smallvec::{SmallVec, smallvec};
use std::sync::Arc;

/// The largest number of devices of a node. Further devices are not used.
pub const DEVICES_MAX: i64 = 128;

/// The free units of each device of a node, by index.
pub type FreeUnits = SmallVec<[i64; 8]>;

/// Devices of nodes, as a resource and a label.
#[derive(Debug, Clone, Copy)]
pub struct IndexedDevices {
    /// The resource that counts units.
    pub resource: &'static str,
    /// The units of a device, at least 1.
    pub units: i64,
    /// The label of a pod with the indices of its devices, separated by hyphens.
    pub label: &'static str,
    /// The type of the calls that write the label.
    pub call: &'static CallType,
    /// The reason of the rejection of a node, such as `node(s) had too few free GPUs`.
    pub too_few: &'static str,
}

/// The devices that a pod requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnitRequest {
    /// The units of each device.
    pub units: i64,
    /// The number of devices; 0 for a pod without a request. More than one are whole.
    pub count: usize,
}

impl IndexedDevices {
    /// The devices for an amount of the resource; `None` for more than a device, but no whole number of devices.
    pub fn split(&self, amount: i64) -> Option<UnitRequest> {
        let (units, count) = match amount {
            ..=0 => (0, 0),
            part if part < self.units => (part, 1),
            whole if whole.checked_rem(self.units) == Some(0) => (self.units, whole / self.units),
            _ => return None,
        };
        let count = usize::try_from(count).ok()?;
        Some(UnitRequest { units, count })
    }

    /// The request of a pod.
    ///
    /// # Errors
    /// The pod requests more than one device, but no whole number of them.
    pub fn request(&self, pod: &PodInfo) -> Result<UnitRequest, Status> {
        let request = self.split(pod.requests.scalar(self.resource));
        request.ok_or_else(|| {
            Status::unresolvable(format!(
                "the request of {} must be below {} or a multiple of it",
                self.resource, self.units
            ))
        })
    }

    /// The free units of the devices of a node. `pod` does not count, if it is there.
    pub fn free(&self, node: NodeView<'_>, pod: Option<&Pod>) -> FreeUnits {
        let devices = node.allocatable_of(self.resource) / self.units.max(1);
        let devices = devices.clamp(0, DEVICES_MAX) as usize;
        let mut free: FreeUnits = smallvec![self.units; devices];
        for other in node.pods() {
            if pod.is_some_and(|pod| pod.uid() == other.pod.uid()) {
                continue;
            }
            let request = self.split(other.requests.scalar(self.resource));
            let units = request.map_or(0, |request| request.units);
            let label = other.pod.labels().get(self.label).unwrap_or_default();
            for index in label.split('-').map(str::parse::<usize>) {
                if let Some(free) = index.ok().and_then(|index| free.get_mut(index)) {
                    *free = (*free - units).max(0);
                }
            }
        }
        free
    }
}

impl UnitRequest {
    /// The devices with enough free units.
    pub fn fitting(self, free: &[i64]) -> impl Iterator<Item = usize> {
        (0..free.len()).filter(move |device| free[*device] >= self.units)
    }

    /// Returns whether enough devices have enough free units.
    pub fn fits(self, free: &[i64]) -> bool {
        self.count == 0 || self.fitting(free).count() >= self.count
    }

    /// The first devices with enough free units; `None` if there are too few.
    pub fn first(self, free: &[i64]) -> Option<Vec<usize>> {
        let devices: Vec<usize> = self.fitting(free).take(self.count).collect();
        (devices.len() == self.count).then_some(devices)
    }

    /// The choices that differ in the free units of their devices: for one device, the first device of each amount;
    /// otherwise, the first devices.
    pub fn choices(self, free: &[i64]) -> Vec<Vec<usize>> {
        if self.count != 1 {
            return self.first(free).into_iter().collect();
        }
        let is_new = |device: &usize| !free[..*device].contains(&free[*device]);
        let devices = self.fitting(free).filter(is_new);
        devices.map(|device| vec![device]).collect()
    }

    /// The free units of each device after a pod got `devices`; `None` unless they are as many as it requests, each with
    /// enough free units.
    pub fn taken(self, free: &[i64], devices: &[usize]) -> Option<FreeUnits> {
        let mut left = FreeUnits::from_slice(free);
        for device in devices {
            let units = left.get_mut(*device)?;
            *units -= self.units;
            if *units < 0 {
                return None;
            }
        }
        (devices.len() == self.count).then_some(left)
    }
}

/// Chooses the devices of pods. Implements [`NodeFilter`] and [`Assignment`]; register it with
/// [`devices`](crate::registry::ExtensionsBuilder::devices).
pub trait DeviceChoice: Send + Sync + 'static {
    /// The devices.
    const DEVICES: IndexedDevices;

    /// The devices for a pod, as many as it requests, each with enough free units. `None`, and any other choice, rejects
    /// the node. The pod itself is among the pods of the node, but not counted in `free`.
    fn choose(
        &self,
        pod: &PodInfo,
        request: UnitRequest,
        node: NodeView<'_>,
        free: &[i64],
    ) -> Option<Vec<usize>>;
}

impl<P: DeviceChoice> NodeFilter for P {
    type Requirement = UnitRequest;

    fn requirement(&self, _cx: &Context<'_>, pod: &PodInfo) -> Result<Option<UnitRequest>, Status> {
        let request = P::DEVICES.request(pod)?;
        Ok((request.count > 0).then_some(request))
    }

    fn check(&self, request: &UnitRequest, node: NodeView<'_>) -> Status {
        if request.fits(&P::DEVICES.free(node, None)) {
            Status::success()
        } else {
            Status::unschedulable(P::DEVICES.too_few)
        }
    }
}

impl<P: DeviceChoice> Assignment for P {
    const CALL: &'static CallType = P::DEVICES.call;

    fn assign(&self, pod: &PodInfo, node: NodeView<'_>) -> Result<Option<Labels>, Status> {
        let request = P::DEVICES.request(pod)?;
        if request.count == 0 {
            return Ok(None);
        }
        let free = P::DEVICES.free(node, Some(&pod.pod));
        let devices = self.choose(pod, request, node, &free);
        let devices = devices.filter(|devices| request.taken(&free, devices).is_some());
        let devices = devices.ok_or_else(|| Status::unschedulable(P::DEVICES.too_few))?;
        let indices: Vec<String> = devices.iter().map(usize::to_string).collect();
        Ok(Some(Labels::from_pairs([(
            P::DEVICES.label,
            indices.join("-"),
        )])))
    }
}

/// The events that may free devices for a rejected pod.
#[derive(Debug)]
pub struct DeviceEvents;

impl EnqueueExtensions for DeviceEvents {
    fn events(self: Arc<Self>, _features: &FeatureGates) -> Vec<EventRegistration> {
        let node = ActionType::ADD | ActionType::UPDATE_NODE_ALLOCATABLE;
        vec![
            EventRegistration::always(EventResource::AssignedPod, ActionType::DELETE),
            EventRegistration::always(EventResource::Node, node),
        ]
    }
}

#[cfg(test)]
mod tests;
