//! `NodeResourcesFit`: rejects nodes whose free resources are less than the requests of the pod, and scores nodes by
//! their utilisation.
//!
//! ```text
//! free: 1 CPU, requested: 2 CPU, the node has 4 CPU   → Insufficient cpu (preemption may help)
//! free: 1 CPU, requested: 8 CPU, the node has 4 CPU   → Insufficient cpu (nothing helps)
//! ```
//!
//! The filter reports every shortage. Requests are taken from the pod's spec, with pod-level resources and overhead;
//! scores use default requests for containers without requests.

use super::amounts::{CountedResources, FOR_FIT, Scored, ScoredColumns, is_fresh, requested};
use super::args::{FitArgs, ScoredResource, complete_fit};
use super::room::Room;
use super::strategy::ScoringStrategy;
use super::{hints, keys};
use crate::extended_resources::{class_of, without_backing_classes};
use berth_api::names::is_extended_resource_name;
use berth_api::requests::{SumOptions, pod_resources};
use berth_api::resources::{CPU, EPHEMERAL_STORAGE, MEMORY, PODS};
use berth_api::{Pod, Resources, Str};
use berth_framework::event::{ActionType, EventRegistration, EventResource};
use berth_framework::plugin::{
    Context, EnqueueExtensions, GroupPlacement, GroupProposal, PlacementScore,
};
use berth_framework::registry::{ArgsKind, Extensions, Registration};
use berth_framework::requirement::{NodeFilter, NodeScore};
use berth_framework::table::{Columns, ResourceId};
use berth_framework::{
    Code, Feature, FeatureGates, Lack, NodeTable, NodeView, PodInfo, Reason, ReasonCode, Slot,
    Status,
};
use smallvec::SmallVec;
use std::borrow::Cow;
use std::sync::Arc;

/// The plugin's name.
pub const NAME: &str = "NodeResourcesFit";

/// The number of resources that a rejection of a node names. A pod can request thousands, and there can be thousands of
/// nodes.
const REASONS_MAX: usize = 64;

/// Requests of a pod against the free resources of nodes.
#[derive(Debug, Default)]
pub struct NodeResourcesFit {
    args: FitArgs,
}

/// The amounts that must be free on a node.
#[derive(Debug, Hash)]
pub struct FitRequests {
    pub(super) milli_cpu: i64,
    pub(super) memory: i64,
    pub(super) ephemeral_storage: i64,
    pub(super) scalars: SmallVec<[ScalarRequest; 2]>,
    /// The pod, if it is resized on the node: it is counted there already.
    pub(super) resized: Option<Str>,
}

/// A request of a scalar resource that counts.
#[derive(Debug, Hash)]
pub struct ScalarRequest {
    name: Str,
    pub(super) amount: i64,
    /// The column; without one no node offers any.
    pub(super) id: Option<ResourceId>,
    /// Whether devices back it on nodes that offer none.
    pub(super) has_devices: bool,
}

/// The requests of a pending pod for filters.
pub(super) fn requests(pod: &Pod) -> Resources {
    pod_resources(pod, SumOptions::PENDING)
}

/// A resource of which a node has not enough.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shortage<'a> {
    resource: &'a str,
    /// The amount that the pod adds to the node.
    wanted: i64,
    free: i64,
    /// Whether the node is too small even if it is empty.
    is_hopeless: bool,
}

impl<'a> Shortage<'a> {
    /// The shortage for a pod that requests an amount and holds `own` of it on the node already.
    pub(super) fn of(
        resource: &'a str,
        request: i64,
        own: i64,
        allocatable: i64,
        held: i64,
    ) -> Option<Self> {
        let wanted = request.saturating_sub(own).max(0);
        let free = allocatable.saturating_sub(held);
        (request > 0 && wanted > free).then_some(Self {
            resource,
            wanted,
            free,
            is_hopeless: request > allocatable,
        })
    }

    /// The shortage of places. As in kube-scheduler, preemption is tried even if a node allows no pod.
    pub(super) fn of_pods(pods: i64, allowed: i64) -> Option<Self> {
        let shortage = Self::of(PODS, 1, 0, allowed, pods)?;
        Some(Self {
            is_hopeless: false,
            ..shortage
        })
    }
}

impl NodeResourcesFit {
    /// The plugin with these arguments.
    pub fn new(args: FitArgs) -> Self {
        Self { args }
    }

    fn is_ignored(&self, resource: &str) -> bool {
        if !is_extended_resource_name(resource) {
            return false;
        }
        let group = resource.split('/').next().unwrap_or(resource);
        self.args.ignored_resources.contains(resource)
            || self.args.ignored_resource_groups.contains(group)
    }

    fn requests(&self, cx: &Context<'_>, pod: &PodInfo) -> FitRequests {
        let is_resized = pod.pod.has_deferred_resize();
        let requests = if is_fresh(pod) && !is_resized {
            Cow::Borrowed(&pod.requests)
        } else {
            Cow::Owned(requests(&pod.pod))
        };
        let has_devices = cx.features.enabled(Feature::DRAExtendedResource);
        let scalars = requests
            .scalars
            .iter()
            .filter(|(name, amount)| *amount > 0 && !self.is_ignored(name))
            .map(|(name, amount)| ScalarRequest {
                name: name.clone(),
                amount: *amount,
                id: cx.cluster.nodes.columns().id(name),
                has_devices: has_devices && class_of(cx.cluster, name).is_some(),
            })
            .collect();
        FitRequests {
            milli_cpu: requests.milli_cpu,
            memory: requests.memory,
            ephemeral_storage: requests.ephemeral_storage,
            scalars,
            resized: is_resized.then(|| pod.pod.uid().clone()),
        }
    }

    /// Calls `each` for every resource of which the node has not enough.
    fn shortages<'a>(
        requests: &'a FitRequests,
        node: NodeView<'_>,
        mut found: impl FnMut(Shortage<'a>),
    ) {
        let pods = i64::try_from(node.pods().len()).unwrap_or(i64::MAX);
        // A pod in a resize is on its node already: its own place and requests are subtracted (PL-332, PL-333).
        let own = requests.resized.as_ref().and_then(|uid| {
            let mut pods = node.pods().iter();
            pods.find(|known| known.pod.uid() == uid)
        });
        let others = pods - i64::from(own.is_some());
        let own = own.map(|own| &own.requests);
        let places = Shortage::of_pods(others, node.allocatable(ResourceId::PODS));
        places.into_iter().for_each(&mut found);
        for (resource, request, id) in [
            (CPU, requests.milli_cpu, ResourceId::CPU),
            (MEMORY, requests.memory, ResourceId::MEMORY),
            (
                EPHEMERAL_STORAGE,
                requests.ephemeral_storage,
                ResourceId::EPHEMERAL_STORAGE,
            ),
        ] {
            let own = own.map_or(0, |own| match id {
                ResourceId::CPU => own.milli_cpu,
                ResourceId::MEMORY => own.memory,
                _ => own.ephemeral_storage,
            });
            let (allocatable, held) = (node.allocatable(id), node.requested(id));
            Shortage::of(resource, request, own, allocatable, held)
                .into_iter()
                .for_each(&mut found);
        }
        for scalar in &requests.scalars {
            let (allocatable, held) = scalar
                .id
                .map_or((0, 0), |id| (node.allocatable(id), node.requested(id)));
            // The resource is left to devices (PL-63).
            if allocatable <= 0 && scalar.has_devices {
                continue;
            }
            let own = own.map_or(0, |own| own.scalar(&scalar.name));
            Shortage::of(&scalar.name, scalar.amount, own, allocatable, held)
                .into_iter()
                .for_each(&mut found);
        }
    }
}

/// The plugin's entry in the registry.
pub fn registration() -> Registration {
    Registration::new(NAME, |cx| {
        let args = FitArgs::decode(cx.args)?;
        Ok(Extensions::of(NodeResourcesFit::new(args))
            .pre_filter()
            .node_filter()
            .pre_score()
            .node_score()
            .placement_score()
            .events()
            .judges_resizes()
            // The columns of resources are in the requirement.
            .fragment_version(|cx| {
                let columns = cx.cluster.nodes.columns().resources() as u64;
                without_backing_classes(cx).map(|none| none + columns)
            })
            .build())
    })
    .args(ArgsKind::Typed(complete_fit))
    .ignores_resources_in("ignoredResources")
    .by_default(Some(1))
}

impl NodeFilter for NodeResourcesFit {
    /// Never none: even a pod without requests counts as a pod.
    type Requirement = FitRequests;

    fn reads_amounts_alone(&self, requests: &FitRequests) -> bool {
        requests.resized.is_none()
    }

    fn requirement(&self, cx: &Context<'_>, pod: &PodInfo) -> Result<Option<FitRequests>, Status> {
        Ok(Some(self.requests(cx, pod)))
    }

    /// The exact reasons.
    fn check(&self, requests: &FitRequests, node: NodeView<'_>) -> Status {
        let (mut reasons, mut is_hopeless) = (SmallVec::<[Reason; 2]>::new(), false);
        let mut others = 0_usize;
        Self::shortages(requests, node, |shortage| {
            if reasons.len() < REASONS_MAX {
                reasons.push(Reason::insufficient(shortage.resource));
            } else {
                others += 1;
            }
            is_hopeless |= shortage.is_hopeless;
        });
        if others > 0 {
            let text = format!("{others} other resources are insufficient");
            reasons.push(ReasonCode::InsufficientResource.reason(text));
        }
        match (reasons.is_empty(), is_hopeless) {
            (true, _) => Status::success(),
            (false, true) => Status::new(Code::UnschedulableAndUnresolvable, reasons),
            (false, false) => Status::new(Code::Unschedulable, reasons),
        }
    }

    fn lacks(&self, requests: &FitRequests, node: NodeView<'_>) -> Vec<Lack> {
        let mut lacks = Vec::new();
        Self::shortages(requests, node, |shortage| {
            lacks.push(Lack::Resource {
                resource: Str::new(shortage.resource),
                wanted: shortage.wanted,
                free: shortage.free,
            });
        });
        lacks
    }

    fn quick_check<'a>(
        &'a self,
        requests: &'a FitRequests,
        nodes: &'a NodeTable,
    ) -> impl Fn(Slot) -> bool + 'a {
        let room = Room::new(nodes.columns(), requests);
        // A pod that is resized counts on its node already, which columns do not tell: each node is checked.
        move |slot| requests.resized.is_none() && room.suffices(slot)
    }

    fn check_amounts(&self, requests: &FitRequests, amounts: &Columns, fits: &mut [bool]) {
        Room::new(amounts, requests).suffices_at(fits);
    }
}

impl NodeScore for NodeResourcesFit {
    /// The sums rather than the spec: pods that request the same share their scores.
    type Preference = Scored;

    fn reads_amounts_alone(&self, scored: &Scored) -> bool {
        scored.devices.is_empty()
    }

    fn preference(&self, cx: &Context<'_>, pod: &PodInfo) -> Result<Option<Scored>, Status> {
        let resources = &self.args.resources;
        let requested = requested(pod, resources, FOR_FIT);
        Ok(Some(Scored::new(cx, resources, requested)))
    }

    fn rate<'a>(
        &'a self,
        requested: &'a Scored,
        nodes: &'a NodeTable,
    ) -> impl Fn(Slot) -> i64 + 'a {
        self.rate_in(requested, nodes.columns())
    }

    fn rate_amounts(&self, requested: &Scored, amounts: &Columns, scores: &mut [i32]) -> bool {
        let columns = self.scored_columns(requested, amounts);
        let rate = self.rate_in(requested, amounts);
        let strategy = &self.args.strategy;
        columns
            .pair()
            .is_some_and(|pair| strategy.score_all(&pair, scores, rate))
    }
}

impl NodeResourcesFit {
    fn scored_columns<'a>(&self, requested: &'a Scored, amounts: &'a Columns) -> ScoredColumns<'a> {
        let resources = &self.args.resources;
        ScoredColumns::new(amounts, resources, requested, CountedResources::NonZero)
    }

    fn rate_in<'a>(
        &'a self,
        requested: &'a Scored,
        amounts: &'a Columns,
    ) -> impl Fn(Slot) -> i64 + 'a {
        let strategy = &self.args.strategy;
        let columns = self.scored_columns(requested, amounts);
        let pair = columns.pair();
        move |slot| match pair.and_then(|pair| pair.of(slot)) {
            Some(shares) => strategy.score_of_pair(shares),
            None => strategy.score(columns.of(slot)),
        }
    }
}

/// The sum of the requests of the pods for the scored resources.
fn sum_of_pods(cx: &Context<'_>, resources: &[ScoredResource], pods: &[&PodInfo]) -> Scored {
    let mut sums = vec![0_i64; resources.len()];
    for pod in pods {
        for (sum, own) in sums.iter_mut().zip(requested(pod, resources, FOR_FIT)) {
            *sum = sum.saturating_add(own);
        }
    }
    Scored::new(cx, resources, sums.into_iter().collect())
}

impl PlacementScore for NodeResourcesFit {
    /// The used part of all nodes of the placement together with the pods, in percent: the fuller the better, whatever
    /// the strategy for single nodes.
    fn placement_score(&self, cx: &Context<'_>, proposal: &GroupProposal<'_>) -> i64 {
        let resources = &self.args.resources;
        let scored = sum_of_pods(cx, resources, proposal.pods);
        let nodes = cx.cluster.nodes.columns();
        let columns = ScoredColumns::new(nodes, resources, &scored, CountedResources::NonZero);
        ScoringStrategy::MostAllocated.score(columns.sums(proposal.nodes))
    }

    fn placement_scores(
        &self,
        cx: &Context<'_>,
        pods: &[&PodInfo],
        _scheduled: usize,
        placements: &[GroupPlacement],
    ) -> Vec<i64> {
        let resources = &self.args.resources;
        let scored = sum_of_pods(cx, resources, pods);
        let nodes = cx.cluster.nodes.columns();
        let columns = ScoredColumns::new(nodes, resources, &scored, CountedResources::NonZero);
        let scores = placements.iter().map(|placement| {
            let shares = columns.sums(&placement.nodes);
            ScoringStrategy::MostAllocated.score(shares)
        });
        scores.collect()
    }

    fn may_have_room(&self, cx: &Context<'_>, proposal: &GroupProposal<'_>) -> bool {
        // A necessary condition: the free amounts of all nodes together. It ignores fragmentation, which the attempt
        // checks.
        let (mut cpu, mut memory) = (0_i64, 0_i64);
        for pod in proposal.pods {
            let requests = self.requests(cx, pod);
            cpu = cpu.saturating_add(requests.milli_cpu);
            memory = memory.saturating_add(requests.memory);
        }
        let pods = i64::try_from(proposal.pods.len()).unwrap_or(i64::MAX);
        let columns = cx.cluster.nodes.columns();
        let free = |id: ResourceId, needed: i64| {
            let column = columns.get(id);
            let free = proposal.nodes.iter().map(|slot| {
                let at = slot.index();
                column.allocatable[at]
                    .saturating_sub(column.requested[at])
                    .max(0)
            });
            needed <= 0 || free.fold(0_i64, i64::saturating_add) >= needed
        };
        let places = proposal.nodes.iter().filter_map(|slot| {
            let view = cx.cluster.nodes.get(*slot)?;
            let held = i64::try_from(view.pods().len()).unwrap_or(i64::MAX);
            Some(
                view.allocatable(ResourceId::PODS)
                    .saturating_sub(held)
                    .max(0),
            )
        });
        free(ResourceId::CPU, cpu)
            && free(ResourceId::MEMORY, memory)
            && places.fold(0_i64, i64::saturating_add) >= pods
    }
}

impl EnqueueExtensions for NodeResourcesFit {
    fn events(self: Arc<Self>, features: &FeatureGates) -> Vec<EventRegistration> {
        let has_devices = features.enabled(Feature::DRAExtendedResource);
        let mut events = vec![
            EventRegistration::with_hint(
                EventResource::Pod,
                ActionType::DELETE | ActionType::UPDATE_POD_SCALE_DOWN,
                |cluster, pod, change| hints::after_pod_change(cluster, pod, &change),
            )
            .touching(|_, change| hints::touched_by_pod(&change)),
            EventRegistration::with_hint(
                EventResource::Node,
                ActionType::ADD | ActionType::UPDATE_NODE_ALLOCATABLE,
                move |cluster, pod, change| {
                    hints::after_node_change(cluster, has_devices, pod, &change)
                },
            )
            .found_by(keys::waits_for_nodes, move |cluster, change| {
                keys::touched_by_node(cluster, has_devices, &change)
            }),
        ];
        if features.enabled(Feature::InPlacePodVerticalScalingSchedulerPreemption) {
            // A pod on the same node has grown, or the resize itself is another one.
            events.push(EventRegistration::with_hint(
                EventResource::Pod,
                ActionType::UPDATE_POD_SCALE_UP,
                |_, pod, change| hints::after_growth(pod, &change),
            ));
        }
        if has_devices {
            let classes = EventRegistration::with_hint(
                EventResource::DeviceClass,
                ActionType::ADD | ActionType::UPDATE,
                |_, pod, change| hints::after_class_change(pod, &change),
            );
            events.push(classes.found_by(keys::waits_for_classes, |_, change| {
                keys::touched_by_class(&change)
            }));
        }
        events
    }
}

#[cfg(test)]
#[path = "fit_tests.rs"]
mod tests;
