//! A policy as a scheduler plugin: Score, and the choice of GPUs. [`DeviceChoice`] adds Filter, Reserve, PreBind and
//! events.

use crate::devices::{DEVICES, Demand, Room};
use berth_framework::assignment::devices::{DeviceChoice, IndexedDevices, UnitRequest};
use berth_framework::plugin::Context;
use berth_framework::registry::Extensions;
use berth_framework::requirement::{NodeScore, ScoreScale};
use berth_framework::{NodeTable, NodeView, PodInfo, Slot, Status};

/// The reason of the rejection of a node.
pub const TOO_FEW: &str = DEVICES.too_few;

/// The bits of a raw score below the rate: the order in which nodes joined.
const ORDER_BITS: u32 = 16;

/// The way in which nodes and their GPUs are chosen.
pub trait Policy: Send + Sync + 'static {
    /// The name of the plugin.
    const NAME: &'static str;

    /// The GPUs for a demand, and the rate of the node from 0 to 100; `None` if it has too few. Among nodes with the
    /// highest rate, the first one to join is chosen, as in the simulator of the paper.
    fn place(&self, demand: &Demand, room: &Room<'_>) -> Option<(i64, Vec<usize>)>;
}

/// The plugin of a policy.
#[derive(Debug)]
pub struct GpuPlugin<P>(pub P);

impl<P: Policy> GpuPlugin<P> {
    /// The plugin with its extension points.
    pub fn extensions(policy: P) -> Extensions {
        Extensions::of(Self(policy)).devices().node_score().build()
    }
}

impl<P: Policy> DeviceChoice for GpuPlugin<P> {
    const DEVICES: IndexedDevices = DEVICES;

    fn choose(
        &self,
        pod: &PodInfo,
        request: UnitRequest,
        node: NodeView<'_>,
        free: &[i64],
    ) -> Option<Vec<usize>> {
        let demand = Demand::of(pod, request);
        let mut room = Room::of(node, free);
        // The pod counts on the node already.
        room.milli_cpu += demand.milli_cpu;
        self.0.place(&demand, &room).map(|(_, gpus)| gpus)
    }
}

impl<P: Policy> NodeScore for GpuPlugin<P> {
    type Preference = Demand;

    /// Only the best node has 100.
    const SCALE: ScoreScale = ScoreScale::Greatest;

    fn preference(&self, _cx: &Context<'_>, pod: &PodInfo) -> Result<Option<Demand>, Status> {
        Ok(Some(Demand::of(pod, DEVICES.request(pod)?)))
    }

    fn rate<'a>(&'a self, demand: &'a Demand, nodes: &'a NodeTable) -> impl Fn(Slot) -> i64 + 'a {
        |slot| {
            let room = nodes
                .get(slot)
                .map(|node| Room::of(node, &DEVICES.free(node, None)));
            let placed = room.and_then(|room| self.0.place(demand, &room));
            let rate = placed.map_or(0, |(rate, _)| rate);
            let order = (1_i64 << ORDER_BITS) - 1 - i64::try_from(slot.index()).unwrap_or(0);
            (rate << ORDER_BITS) + order.max(0)
        }
    }
}
