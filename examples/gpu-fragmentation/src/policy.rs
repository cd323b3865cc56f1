//! A policy as a scheduler plugin: Filter, Score and the assignment of GPUs over the bookkeeping of [`crate::devices`].

use crate::devices::{Demand, GPUS, Room, label};
use berth_api::{Kind, Labels, Pod};
use berth_framework::assignment::Assignment;
use berth_framework::event::{ActionType, EventRegistration, EventResource};
use berth_framework::plugin::{Context, EnqueueExtensions};
use berth_framework::registry::Extensions;
use berth_framework::requirement::{NodeFilter, NodeScore, ScoreScale};
use berth_framework::write::CallType;
use berth_framework::{FeatureGates, NodeTable, NodeView, PodInfo, Slot, Status};
use std::sync::Arc;

/// The reason of the rejection of a node.
pub const TOO_FEW: &str = "node(s) had too few free GPUs";

/// The label of a pod with its GPUs. The scheduler's own calls about pods have the relevances 1 to 3.
pub static POD_GPUS: CallType = CallType::new("pod_gpus", Kind::Pod).with_relevance(4);

/// The bits of a raw score below the rate: the place of the node.
const PLACE_BITS: u32 = 16;

/// The way in which nodes and their GPUs are chosen.
pub trait Policy: Send + Sync + 'static {
    /// The name of the plugin.
    const NAME: &'static str;

    /// Whether [`Policy::rate`] distinguishes nodes. Otherwise, each node that fits has the same chance.
    const RATES_NODES: bool = true;

    /// The rate of a node that has room for the demand, from 0 to 100. Of the nodes with the highest rate, the one that
    /// joined first is chosen, as in the simulator of the paper.
    fn rate(&self, demand: &Demand, room: &Room<'_>) -> i64;

    /// The GPU for a pod that shares it, of those with enough free milli. `pod` identifies the pod.
    fn choose(&self, demand: &Demand, room: &Room<'_>, pod: &Pod) -> Option<usize>;
}

/// The plugin of a policy.
#[derive(Debug)]
pub struct GpuPlugin<P>(pub P);

impl<P: Policy> GpuPlugin<P> {
    /// The plugin with its extension points.
    pub fn extensions(policy: P) -> Extensions {
        Extensions::of(Self(policy))
            .node_filter()
            .node_score()
            .assignment()
            .events()
            .build()
    }

    /// The GPUs of a node for the pod.
    fn gpus(&self, demand: &Demand, room: &Room<'_>, pod: &Pod) -> Option<Vec<usize>> {
        if demand.is_shared() {
            return self.0.choose(demand, room, pod).map(|gpu| vec![gpu]);
        }
        let count = demand.count as usize;
        let gpus: Vec<usize> = room.fitting(demand).take(count).collect();
        (gpus.len() == count).then_some(gpus)
    }
}

impl<P: Policy> NodeFilter for GpuPlugin<P> {
    type Requirement = Demand;

    fn requirement(&self, _cx: &Context<'_>, pod: &PodInfo) -> Result<Option<Demand>, Status> {
        let demand = Demand::of(pod)?;
        // CPU and memory are NodeResourcesFit's.
        let gpus = Demand {
            milli_cpu: 0,
            ..demand
        };
        Ok((demand.count > 0).then_some(gpus))
    }

    fn check(&self, demand: &Demand, node: NodeView<'_>) -> Status {
        if Room::of(node, None).fits(demand) {
            Status::success()
        } else {
            Status::unschedulable(TOO_FEW)
        }
    }
}

impl<P: Policy> NodeScore for GpuPlugin<P> {
    type Preference = Demand;

    /// Only the best node has 100.
    const SCALE: ScoreScale = ScoreScale::Greatest;

    fn preference(&self, _cx: &Context<'_>, pod: &PodInfo) -> Result<Option<Demand>, Status> {
        let demand = Demand::of(pod)?;
        Ok(P::RATES_NODES.then_some(demand))
    }

    fn rate<'a>(&'a self, demand: &'a Demand, nodes: &'a NodeTable) -> impl Fn(Slot) -> i64 + 'a {
        |slot| {
            let room = nodes.get(slot).map(|node| Room::of(node, None));
            let room = room.filter(|room| room.fits(demand));
            let rate = room.map_or(0, |room| self.0.rate(demand, &room));
            let place = (1_i64 << PLACE_BITS) - 1 - i64::try_from(slot.index()).unwrap_or(0);
            (rate << PLACE_BITS) + place.max(0)
        }
    }
}

impl<P: Policy> Assignment for GpuPlugin<P> {
    const CALL: &'static CallType = &POD_GPUS;

    fn assign(&self, pod: &PodInfo, node: NodeView<'_>) -> Result<Option<Labels>, Status> {
        let demand = Demand::of(pod)?;
        if demand.count == 0 {
            return Ok(None);
        }
        let room = Room::of(node, Some(&pod.pod));
        let gpus = self.gpus(&demand, &room, &pod.pod);
        let gpus = gpus.ok_or_else(|| Status::unschedulable(TOO_FEW))?;
        Ok(Some(Labels::from_pairs([(GPUS, label(&gpus))])))
    }
}

impl<P: Policy> EnqueueExtensions for GpuPlugin<P> {
    fn events(self: Arc<Self>, _features: &FeatureGates) -> Vec<EventRegistration> {
        vec![
            EventRegistration::always(EventResource::AssignedPod, ActionType::DELETE),
            EventRegistration::always(
                EventResource::Node,
                ActionType::ADD | ActionType::UPDATE_NODE_ALLOCATABLE,
            ),
        ]
    }
}
