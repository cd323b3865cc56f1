//! Groups of nodes that grow and shrink, like with a cluster autoscaler: a pod that no node accepts and that would fit
//! on a new node causes one; a node without pods is removed after some time, unless a capacity buffer needs it.
//!
//! The filters of the pod's profile decide whether it fits, on a copy of the cluster with the booting nodes and the
//! tried node ([`Packing`]). A pod that fits on an existing node waits for another reason, and causes no node.

use super::Simulation;
use super::events::{Event, NodeIndex, PodIndex};
use super::nodes::named;
use crate::trace::{NodeGroup, Trace};
use berth_api::{Duration, Kind, Object, ResourceSlice, Str, Time};
use berth_explain::Packing;
use berth_framework::{PodInfo, Slot};
use berth_scheduler::queue::QueuedIn;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The time between two scans, as in the cluster autoscaler (`--scan-interval`).
const SCAN_INTERVAL: Duration = Duration::from_secs(10);

/// A node group.
#[derive(Debug)]
struct SimulatedGroup {
    of: NodeGroup,
    /// Nodes that exist or boot.
    count: u32,
    /// The number of the next node.
    next: u32,
}

impl SimulatedGroup {
    fn next_name(&self) -> Str {
        format!("{}-{}", self.of.name, self.next).into()
    }

    /// The ResourceSlices of a node, each in the pool of the node.
    fn slices(&self, node: &Str) -> impl Iterator<Item = Object> {
        let slices = self.of.slices.iter().enumerate();
        slices.map(move |(number, slice)| {
            let mut slice = ResourceSlice::clone(slice);
            slice.metadata.name = format!("{node}-{number}").into();
            slice.metadata.uid = slice.metadata.name.clone();
            slice.spec.node_name = Some(node.clone());
            slice.spec.pool.name = node.clone();
            Object::ResourceSlice(Arc::new(slice))
        })
    }
}

/// All node groups.
#[derive(Debug, Default)]
pub(super) struct NodeGroups {
    groups: Vec<SimulatedGroup>,
    /// The groups by price, the cheapest first.
    order: Vec<usize>,
    /// Pods whose last attempt found no node.
    unschedulable: BTreeSet<PodIndex>,
    pub(super) is_scan_planned: bool,
    /// The nodes that boot.
    booting: BTreeSet<NodeIndex>,
    /// The time at which a node joined or lost its last pod.
    empty_since: FxHashMap<NodeIndex, Time>,
    /// Nodes that were added after the start, and removed.
    pub(super) added: u64,
    pub(super) removed: u64,
}

impl NodeGroups {
    pub(super) fn new(trace: &Trace) -> Self {
        let groups = trace.node_groups.iter().map(|group| SimulatedGroup {
            of: group.clone(),
            count: 0,
            next: 0,
        });
        let groups: Vec<SimulatedGroup> = groups.collect();
        let mut order: Vec<usize> = (0..groups.len()).collect();
        order.sort_by(|a, b| {
            let price = |at: &usize| groups[*at].of.price_per_hour;
            price(a).total_cmp(&price(b))
        });
        Self {
            groups,
            order,
            ..Self::default()
        }
    }
}

impl Simulation {
    /// An attempt for a pod found no node.
    pub(super) fn note_unschedulable(&mut self, pod: PodIndex) {
        if !self.node_groups.groups.is_empty() {
            self.node_groups.unschedulable.insert(pod);
            self.plan_scan();
        }
    }

    /// Plans a scan at the end of the present scan interval.
    pub(super) fn plan_scan(&mut self) {
        let groups = &mut self.node_groups;
        if !groups.groups.is_empty() && !groups.is_scan_planned {
            groups.is_scan_planned = true;
            let since = self.engine.now().since(self.start).as_nanos();
            let interval = SCAN_INTERVAL.as_nanos();
            let next = (since / interval + 1) * interval;
            let next = self.start + Duration::from_nanos(u64::try_from(next).unwrap_or(u64::MAX));
            self.events.push(next, Event::Scan);
        }
    }

    pub(super) fn no_longer_unschedulable(&mut self, pod: PodIndex) {
        self.node_groups.unschedulable.remove(&pod);
    }

    /// Plans the scan at the start of a simulation with capacity buffers.
    pub(super) fn plan_first_scan(&mut self) {
        if !self.node_groups.groups.is_empty() {
            self.node_groups.is_scan_planned = true;
            self.events.push(self.engine.now(), Event::Scan);
        }
    }

    /// Adds the nodes for pods that no node accepts, and for chunks of capacity buffers without room.
    pub(super) fn scan(&mut self) {
        self.node_groups.is_scan_planned = false;
        let mut packing = self.take_packing();
        let present = packing.nodes();
        let mut coming = Vec::new();
        for node in &self.node_groups.booting {
            let template = &self.nodes.get(*node).template;
            coming.push(packing.add_node(template.clone(), self.daemons_of(template)));
            let slices = self.slices_of(*node);
            slices.for_each(|slice| packing.set(&slice));
        }
        self.scan_pods(&mut packing, &present, &mut coming);
        self.scan_buffers(&mut packing, &present, coming);
        self.packing = Some(packing);
    }

    /// A copy of the current cluster of the scheduler.
    pub(super) fn take_packing(&mut self) -> Packing {
        match self.packing.take() {
            Some(mut packing) => {
                packing.renew(self.engine.scheduler(), self.engine.now());
                packing
            }
            None => Packing::new(self.engine.scheduler(), self.engine.now()),
        }
    }

    /// Places the pods that no node accepts on booting nodes, and adds nodes for the remaining pods.
    fn scan_pods(&mut self, packing: &mut Packing, present: &[Slot], coming: &mut Vec<Slot>) {
        // A placed pod only uses up room, so after a failure equal pods are not tried again.
        let mut fits_nowhere: FxHashSet<u32> = FxHashSet::default();
        let mut not_on_present: FxHashSet<u32> = FxHashSet::default();
        for index in self.node_groups.unschedulable.clone() {
            let shape = self.shape_of(index);
            let Some(pod) = self.engine.pod(&self.pods.uid(index)).cloned() else {
                continue;
            };
            let queue = self.engine.scheduler().queue();
            // A pod that is not queued is being bound. A nominated pod waits for the end of its victims.
            let Some((place, _)) = queue.get(pod.namespace(), pod.name()) else {
                continue;
            };
            if fits_nowhere.contains(&shape) || !pod.status.nominated_node_name.is_empty() {
                continue;
            }
            let pod = [Arc::new(PodInfo::new(pod))];
            // Since the last attempt of a pod in `Unschedulable`, no event has happened that may let it fit. A pod of a
            // group may wait for room for the other members.
            let may_fit = place != QueuedIn::Unschedulable || pod[0].pod.pod_group_name().is_some();
            let may_fit = may_fit && !not_on_present.contains(&shape);
            if may_fit {
                if packing.place(&pod, present) > 0 {
                    continue;
                }
                not_on_present.insert(shape);
            }
            if packing.place(&pod, coming) > 0 {
                continue;
            }
            match self.grow_for(&pod[0], packing) {
                Some(node) => coming.push(node),
                None => {
                    fits_nowhere.insert(shape);
                }
            }
        }
    }

    /// Adds a node of the cheapest group that may grow and whose nodes accept a pod, and places the pod on it.
    pub(super) fn grow_for(&mut self, pod: &Arc<PodInfo>, packing: &mut Packing) -> Option<Slot> {
        for at in self.node_groups.order.clone() {
            let group = &self.node_groups.groups[at];
            if group.count >= group.of.maximum {
                continue;
            }
            let name = group.next_name();
            let node = named(&group.of.node, &name);
            let daemons = self.daemons_of(&node);
            let slot = packing.add_node(node.into(), daemons);
            let slices: Vec<Object> = group.slices(&name).collect();
            slices.iter().for_each(|slice| packing.set(slice));
            if packing.place(std::slice::from_ref(pod), &[slot]) > 0 {
                self.boot_node(at as u32);
                return Some(slot);
            }
            packing.remove_node(&name);
            slices.iter().for_each(|slice| packing.unset(slice));
        }
        None
    }

    /// The ResourceSlices of a node of a group.
    fn slices_of(&self, node: NodeIndex) -> impl Iterator<Item = Object> {
        let node = self.nodes.get(node);
        let group = node
            .group
            .map(|group| &self.node_groups.groups[group as usize]);
        group
            .into_iter()
            .flat_map(move |group| group.slices(&node.name))
    }

    /// The drivers of devices publish the slices of a node that has joined.
    pub(super) fn publish_slices(&mut self, node: NodeIndex) {
        for slice in self.slices_of(node).collect::<Vec<_>>() {
            self.engine.set(slice);
        }
    }

    /// The slices of a node end with it.
    pub(super) fn delete_slices(&mut self, node: NodeIndex) {
        for slice in self.slices_of(node).collect::<Vec<_>>() {
            let name = &slice.metadata().name;
            self.engine
                .delete(Kind::ResourceSlice, &Str::default(), name);
        }
    }

    /// Adds a node that joins after its boot time.
    fn boot_node(&mut self, group: u32) {
        let node = self.new_group_node(group);
        let boot = self.node_groups.groups[group as usize].of.boot.clone();
        let boot = boot.draw(&mut self.rng);
        self.node_groups.booting.insert(node);
        self.node_groups.added += 1;
        self.events
            .push(self.engine.now() + boot, Event::NodeJoins { node });
    }

    /// Adds a node that exists from the start.
    pub(super) fn add_group_node(&mut self, group: u32) {
        let node = self.new_group_node(group);
        self.events
            .push(self.engine.now(), Event::NodeJoins { node });
    }

    fn new_group_node(&mut self, group: u32) -> NodeIndex {
        let of = &mut self.node_groups.groups[group as usize];
        let name = of.next_name();
        of.count += 1;
        of.next += 1;
        let (node, price) = (of.of.node.clone(), of.of.price_per_hour);
        self.add_node(name, &node, price, Some(group))
    }

    /// A node of a group has joined: it is idle until it gets a pod, and may allow the removal of another node.
    pub(super) fn group_node_joined(&mut self, group: u32, joined: NodeIndex) {
        self.node_groups.booting.remove(&joined);
        self.node_groups
            .empty_since
            .insert(joined, self.engine.now());
        let idle = self.node_groups.groups[group as usize].of.idle;
        let empty =
            self.nodes.all.iter().enumerate().filter(|(_, node)| {
                node.group == Some(group) && node.exists && node.pods.is_empty()
            });
        let empty: Vec<NodeIndex> = empty.map(|(at, _)| at as NodeIndex).collect();
        for node in empty {
            self.events
                .push(self.engine.now() + idle, Event::IdleCheck { node });
        }
    }

    /// A node has lost its last pod.
    pub(super) fn node_is_empty(&mut self, node: NodeIndex) {
        if let Some(group) = self.nodes.get(node).group {
            let idle = self.node_groups.groups[group as usize].of.idle;
            self.node_groups.empty_since.insert(node, self.engine.now());
            self.events
                .push(self.engine.now() + idle, Event::IdleCheck { node });
        }
    }

    /// Removes a node that was idle for long enough and that no chunk of a capacity buffer needs.
    pub(super) fn idle_check(&mut self, node: NodeIndex) {
        let state = self.nodes.get(node);
        let Some(group) = state
            .group
            .filter(|_| state.exists && state.pods.is_empty())
        else {
            return;
        };
        // A pod may be assigned to the node with its binding in flight.
        let cluster = self.engine.scheduler().cache().cluster();
        let view = cluster.nodes.node(&state.name);
        if view.is_some_and(|view| view.pods().len() > state.daemons.len()) {
            return;
        }
        let of = &self.node_groups.groups[group as usize];
        let since = self.node_groups.empty_since.get(&node);
        if of.count <= of.of.minimum
            || since.is_some_and(|since| self.engine.now().since(*since) < of.of.idle)
        {
            return;
        }
        if self.keep_for_buffers(node) {
            return;
        }
        self.node_groups.groups[group as usize].count -= 1;
        self.node_groups.removed += 1;
        self.nodes.all[node as usize].is_gone = true;
        self.node_leaves(node);
    }
}
