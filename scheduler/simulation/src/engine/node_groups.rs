//! Groups of nodes that grow and shrink, as cluster autoscalers do: a pod that no node accepts and that would fit on a
//! new node causes one; a node without pods is removed after some time, unless a capacity buffer needs it.
//!
//! Whether a pod fits on a new node is judged by its requests, node selector, required node affinity and tolerations. A
//! pod that has room on a present node waits for something else than a node, and causes none.

use super::Simulation;
use super::events::{Event, NodeIndex, PodIndex};
use super::nodes::fits;
use super::plan::Plan;
use crate::trace::{NodeGroup, Trace};
use berth_api::{Duration, Node, Pod, Time};
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The time between two comparisons, as that of the cluster autoscaler (`--scan-interval`).
const SCAN_INTERVAL: Duration = Duration::from_secs(10);

/// A node group.
#[derive(Debug)]
struct SimulatedGroup {
    of: NodeGroup,
    capacity: Box<[i64]>,
    /// Nodes that exist or boot.
    count: u32,
    /// The number of the next node.
    next: u32,
}

/// All node groups.
#[derive(Debug, Default)]
pub(super) struct NodeGroups {
    groups: Vec<SimulatedGroup>,
    /// The groups by price, the cheapest first.
    order: Vec<usize>,
    /// Pods whose last attempt found no node.
    unschedulable: BTreeSet<PodIndex>,
    is_scan_planned: bool,
    /// The nodes that boot.
    booting: BTreeSet<NodeIndex>,
    /// The time at which a node joined or lost its last pod.
    empty_since: FxHashMap<NodeIndex, Time>,
    /// Nodes that were added after the start, and removed.
    pub(super) added: u64,
    pub(super) removed: u64,
}

impl NodeGroups {
    pub(super) fn new(trace: &Trace, plan: &Plan) -> Self {
        let groups = trace.node_groups.iter().map(|group| SimulatedGroup {
            of: group.clone(),
            capacity: plan.amounts(&group.node.status.allocatable),
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

/// Returns whether the labels and taints of a node allow a pod.
pub(super) fn is_allowed(pod: &Pod, node: &Node) -> bool {
    berth_oracle::has_selected_labels(pod, node)
        && berth_oracle::matches_affinity(pod, node)
        && berth_oracle::untolerated(
            &pod.spec.tolerations,
            node,
            berth_oracle::SCHEDULING_EFFECTS,
        )
        .next()
        .is_none()
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
            let since = self.now.since(self.start).as_nanos();
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
            self.events.push(self.now, Event::Scan);
        }
    }

    /// Adds the nodes for pods that no node accepts, and for chunks of capacity buffers without room.
    pub(super) fn scan(&mut self) {
        self.node_groups.is_scan_planned = false;
        // The free resources of nodes that boot, and of those that are added now.
        let mut coming: Vec<(Arc<Node>, Box<[i64]>)> = self
            .node_groups
            .booting
            .iter()
            .map(|node| {
                let node = self.nodes.get(*node);
                (node.template.clone(), node.capacity.clone())
            })
            .collect();
        let mut has_room: FxHashMap<u32, bool> = FxHashMap::default();
        for pod in self.node_groups.unschedulable.clone() {
            let shape = self.shape_of(pod);
            let is_present = *has_room
                .entry(shape)
                .or_insert_with(|| self.has_room_on_a_node(shape));
            if is_present {
                continue;
            }
            let (pod, requests) = {
                let shape = &self.plan.shapes[shape as usize];
                (shape.pod.clone(), shape.requests.clone())
            };
            let place = coming.iter_mut().find(|(node, free)| {
                fits(free.iter().copied().zip(requests.iter().copied())) && is_allowed(&pod, node)
            });
            let free = match place {
                Some((_, free)) => free,
                None => {
                    let Some(group) = self.group_for(&pod, &requests) else {
                        continue;
                    };
                    let node = self.boot_node(group);
                    let node = self.nodes.get(node);
                    coming.push((node.template.clone(), node.capacity.clone()));
                    let Some((_, free)) = coming.last_mut() else {
                        continue;
                    };
                    free
                }
            };
            for (free, request) in free.iter_mut().zip(&requests) {
                *free -= request;
            }
        }
        self.scan_buffers(coming);
    }

    fn has_room_on_a_node(&self, shape: u32) -> bool {
        let shape = &self.plan.shapes[shape as usize];
        self.nodes.all.iter().any(|node| {
            node.is_open()
                && node.has_room(&shape.requests)
                && node
                    .object
                    .as_ref()
                    .is_some_and(|node| is_allowed(&shape.pod, node))
        })
    }

    /// The cheapest group that may grow and whose nodes accept a pod.
    pub(super) fn group_for(&self, pod: &Pod, requests: &[i64]) -> Option<u32> {
        let groups = &self.node_groups;
        let found = groups.order.iter().find(|at| {
            let group = &groups.groups[**at];
            group.count < group.of.maximum
                && fits(group.capacity.iter().copied().zip(requests.iter().copied()))
                && is_allowed(pod, &group.of.node)
        });
        found.map(|at| *at as u32)
    }

    /// Adds a node that joins after its boot time.
    pub(super) fn boot_node(&mut self, group: u32) -> NodeIndex {
        let node = self.new_group_node(group);
        let boot = self.node_groups.groups[group as usize].of.boot.clone();
        let boot = boot.draw(&mut self.rng);
        self.node_groups.booting.insert(node);
        self.node_groups.added += 1;
        self.events.push(self.now + boot, Event::NodeJoins { node });
        node
    }

    /// Adds a node that exists from the start on.
    pub(super) fn add_group_node(&mut self, group: u32) {
        let node = self.new_group_node(group);
        self.events.push(self.now, Event::NodeJoins { node });
    }

    fn new_group_node(&mut self, group: u32) -> NodeIndex {
        let of = &mut self.node_groups.groups[group as usize];
        of.count += 1;
        let name = format!("{}-{}", of.of.name, of.next);
        of.next += 1;
        let (node, price) = (of.of.node.clone(), of.of.price_per_hour);
        self.add_node(name.into(), &node, price, Some(group))
    }

    /// A node of a group has joined: it is idle until it gets a pod, and may allow another one to be removed.
    pub(super) fn group_node_joined(&mut self, group: u32, joined: NodeIndex) {
        self.node_groups.booting.remove(&joined);
        self.node_groups.empty_since.insert(joined, self.now);
        let idle = self.node_groups.groups[group as usize].of.idle;
        let empty = self.nodes.all.iter().enumerate().filter(|(_, node)| {
            node.group == Some(group) && node.object.is_some() && node.pods.is_empty()
        });
        let empty: Vec<NodeIndex> = empty.map(|(at, _)| at as NodeIndex).collect();
        for node in empty {
            self.events.push(self.now + idle, Event::IdleCheck { node });
        }
    }

    /// A node has lost its last pod.
    pub(super) fn node_is_empty(&mut self, node: NodeIndex) {
        if let Some(group) = self.nodes.get(node).group {
            let idle = self.node_groups.groups[group as usize].of.idle;
            self.node_groups.empty_since.insert(node, self.now);
            self.events.push(self.now + idle, Event::IdleCheck { node });
        }
    }

    /// Removes a node that was idle for long enough and that no chunk of a capacity buffer needs.
    pub(super) fn idle_check(&mut self, node: NodeIndex) {
        let state = self.nodes.get(node);
        let Some(group) = state
            .group
            .filter(|_| state.object.is_some() && state.pods.is_empty())
        else {
            return;
        };
        // A pod may be on its way to the node.
        let cluster = self.scheduler.cache().cluster();
        let view = cluster.nodes.node(&state.name);
        if view.is_some_and(|view| !view.pods().is_empty()) {
            return;
        }
        let of = &self.node_groups.groups[group as usize];
        let since = self.node_groups.empty_since.get(&node);
        if of.count <= of.of.minimum
            || since.is_some_and(|since| self.now.since(*since) < of.of.idle)
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
