//! A policy as a scheduler plugin: Filter, Score, Reserve and PreBind over the bookkeeping of [`crate::devices`].

use crate::devices::{Demand, GPUS, Room, label};
use berth_api::{Duration, Kind, Object, Pod, Str};
use berth_framework::event::{ActionType, EventRegistration, EventResource};
use berth_framework::plugin::{Context, EnqueueExtensions, PreBind, Reserve};
use berth_framework::registry::Extensions;
use berth_framework::requirement::{NodeFilter, NodeScore, ScoreScale};
use berth_framework::stage::{StageContext, Step, Wake, WakeReason};
use berth_framework::write::{CallType, PodEdit, Write};
use berth_framework::{CycleState, FeatureGates, NodeTable, NodeView, PodInfo, Slot, Status};
use serde_json::json;
use std::sync::Arc;

/// The reason of the rejection of a node.
pub const TOO_FEW: &str = "node(s) had too few free GPUs";

/// The time limit of the call that writes the label. The dispatcher ends every call before that.
const CALL_MAX: Duration = Duration::from_secs(60);

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

/// The GPUs of the pod of this cycle, from Reserve to PreBind: the value of its label.
struct Chosen(Str);

impl<P: Policy> GpuPlugin<P> {
    /// The plugin with its extension points.
    pub fn extensions(policy: P) -> Extensions {
        Extensions::of(Self(policy))
            .node_filter()
            .node_score()
            .reserve()
            .pre_bind()
            .events()
            .calls(&[&POD_GPUS])
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

impl<P: Policy> Reserve for GpuPlugin<P> {
    fn reserve(
        &self,
        cx: &mut StageContext<'_>,
        state: &mut CycleState,
        pod: &PodInfo,
        node: &Str,
        _wake: Option<Wake<'_>>,
    ) -> Step {
        let demand = match Demand::of(pod) {
            Ok(demand) if demand.count > 0 => demand,
            Ok(_) => return Step::success(),
            Err(status) => return Step::Done(status),
        };
        let Some(view) = cx.cluster.nodes.node(node) else {
            return Step::Done(Status::error(format!("node {node} was deleted")));
        };
        let Some(gpus) = self.gpus(&demand, &Room::of(view, Some(&pod.pod)), &pod.pod) else {
            return Step::Done(Status::unschedulable(TOO_FEW));
        };
        let label = label(&gpus);
        let counted = label.clone();
        cx.outbox
            .count(PodEdit::new(move |pod| set_label(pod, &counted)));
        state.write(Chosen(label));
        Step::success()
    }

    fn unreserve(
        &self,
        _cx: &mut StageContext<'_>,
        _state: &mut CycleState,
        _pod: &PodInfo,
        _node: &Str,
    ) {
        // The pod is not counted on the node any more, and its label with it.
    }
}

impl<P: Policy> PreBind for GpuPlugin<P> {
    fn pre_flight(
        &self,
        _cx: &mut StageContext<'_>,
        state: &mut CycleState,
        _pod: &PodInfo,
        _node: &Str,
    ) -> Status {
        match state.read::<Chosen>() {
            Some(_) => Status::success(),
            None => Status::skip(),
        }
    }

    fn pre_bind(
        &self,
        cx: &mut StageContext<'_>,
        state: &mut CycleState,
        pod: &PodInfo,
        node: &Str,
        wake: Option<Wake<'_>>,
    ) -> Step {
        let Some(Chosen(label)) = state.read() else {
            return Step::success();
        };
        match wake.map(Wake::reason) {
            None => cx.wait_for_call(CALL_MAX, record(&pod.pod, label.clone())),
            Some(WakeReason::Call(Ok(_))) => Step::success(),
            Some(WakeReason::Call(Err(error))) => Step::Done(Status::error(error.to_string())),
            Some(_) => Step::Done(Status::error(format!(
                "pod {} was not given its GPUs of node {node}: no answer within {} s",
                pod.pod.key(),
                CALL_MAX.as_secs()
            ))),
        }
    }
}

fn set_label(pod: &mut Pod, label: &Str) {
    pod.metadata.labels = pod.metadata.labels.with(GPUS, label);
}

/// The write of the label.
fn record(pod: &Pod, label: Str) -> Write {
    let metadata = &pod.metadata;
    let body = json!({"metadata": {"labels": {GPUS: label.as_str()}}});
    Write::patch(&POD_GPUS, &metadata.namespace, &metadata.name, body)
        .of(metadata)
        .seen_as(move |object| {
            let mut labelled = object.clone();
            if let Object::Pod(pod) = &mut labelled {
                set_label(Arc::make_mut(pod), &label);
            }
            labelled
        })
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
