//! Nodes: they join, fail, are drained and leave.

use super::events::{Event, NodeIndex, PodIndex};
use super::plan::numbered;
use super::{Simulation, SimulationError};
use crate::names::{DRAWN, Names};
use crate::trace::{Trace, TraceNode};
use berth_api::{Node, Object, Str};
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The label with the name of a node.
const HOSTNAME: &str = "kubernetes.io/hostname";

/// A node of the trace, or of a node group.
#[derive(Debug)]
pub(super) struct SimulatedNode {
    pub(super) name: Str,
    /// The node as it joins.
    pub(super) template: Arc<Node>,
    pub(super) exists: bool,
    is_cordoned: bool,
    /// The allocatable resources, in the order of the plan.
    pub(super) capacity: Box<[i64]>,
    /// The requests of its pods.
    pub(super) used: Box<[i64]>,
    pub(super) pods: Vec<PodIndex>,
    /// The UIDs of its pods of DaemonSets.
    pub(super) daemons: Vec<Str>,
    /// In millionths.
    pub(super) price: i64,
    /// The node group.
    pub(super) group: Option<u32>,
    /// The number of times that it joined.
    joined: u32,
    /// Whether it left permanently.
    pub(super) is_gone: bool,
    /// Whether its drain waits for a disruption budget.
    pub(super) drain_is_refused: bool,
}

impl SimulatedNode {
    /// Returns whether pods may be placed on it.
    pub(super) fn is_open(&self) -> bool {
        self.exists && !self.is_cordoned
    }

    /// Returns whether requests fit into the free resources.
    pub(super) fn has_room(&self, requests: &[i64]) -> bool {
        let mut amounts = self.capacity.iter().zip(&self.used).zip(requests);
        // A resource that is not requested may be overcommitted.
        amounts.all(|((capacity, used), request)| *request <= 0 || *request <= capacity - used)
    }
}

/// A node with its name.
pub(super) fn named(of: &Node, name: &Str) -> Node {
    let mut node = of.clone();
    let hostname = node.metadata.labels.get(HOSTNAME);
    if hostname.is_none_or(|value| value != name.as_str()) {
        node.metadata.labels = node.metadata.labels.with(HOSTNAME, name);
    }
    node.metadata.name = name.clone();
    node
}

/// The nodes of a simulation.
#[derive(Debug, Default)]
pub(super) struct Nodes {
    pub(super) all: Vec<SimulatedNode>,
    /// Nodes that are being drained.
    pub(super) draining: BTreeSet<NodeIndex>,
    /// Nodes that exist, by name.
    by_name: FxHashMap<Str, NodeIndex>,
}

impl Nodes {
    pub(super) fn index_of(&self, name: &str) -> Option<NodeIndex> {
        self.by_name.get(name).copied()
    }

    pub(super) fn get(&self, node: NodeIndex) -> &SimulatedNode {
        &self.all[node as usize]
    }
}

impl Simulation {
    /// The nodes of the trace, including nodes of node groups.
    pub(super) fn add_nodes(&mut self, trace: &Trace) -> Result<(), SimulationError> {
        let mut names = Names::default();
        let nodes = trace.nodes.iter().map(|node| (&node.name, node.count));
        let groups = trace.node_groups.iter().map(|group| (&group.name, DRAWN));
        for (name, count) in nodes.chain(groups) {
            let added = names.add(&Str::default(), name, count, 0);
            added.map_err(|same| SimulationError::SameName {
                kind: "nodes or node groups",
                name: same.name,
            })?;
        }
        for of_trace in &trace.nodes {
            for copy in 0..of_trace.count {
                let name = numbered(&of_trace.name, of_trace.count, copy);
                let node = self.add_node(name, &of_trace.node, of_trace.price_per_hour, None);
                self.plan_node(node, of_trace);
            }
        }
        for group in 0..trace.node_groups.len() {
            for _ in 0..trace.node_groups[group].minimum {
                self.add_group_node(group as u32);
            }
        }
        // Nodes that exist from the start are added before the first pod arrives.
        self.happen_nodes();
        Ok(())
    }

    /// Adds a node that has not joined.
    pub(super) fn add_node(
        &mut self,
        name: Str,
        of: &Node,
        price_per_hour: f64,
        group: Option<u32>,
    ) -> NodeIndex {
        let node = named(of, &name);
        let capacity = self.plan.amounts(&node.status.allocatable);
        self.nodes.all.push(SimulatedNode {
            name,
            template: Arc::new(node),
            exists: false,
            is_cordoned: false,
            used: vec![0; capacity.len()].into(),
            capacity,
            pods: Vec::new(),
            daemons: Vec::new(),
            price: (price_per_hour * 1e6).round() as i64,
            group,
            joined: 0,
            is_gone: false,
            drain_is_refused: false,
        });
        (self.nodes.all.len() - 1) as NodeIndex
    }

    fn plan_node(&mut self, node: NodeIndex, of: &TraceNode) {
        let at = |offset| self.start + offset;
        let mut planned = vec![(at(of.joins), Event::NodeJoins { node })];
        for outage in &of.outages {
            let (begin, end) = (
                at(outage.at),
                outage.length.map(|length| at(outage.at + length)),
            );
            if outage.drain {
                planned.push((begin, Event::NodeDrains { node }));
                planned.extend(end.map(|end| (end, Event::NodeReturns { node })));
            } else {
                planned.push((begin, Event::NodeLeaves { node }));
                planned.extend(end.map(|end| (end, Event::NodeJoins { node })));
            }
        }
        planned.extend(
            of.leaves
                .map(|offset| (at(offset), Event::NodeLeaves { node })),
        );
        for (time, event) in planned {
            self.events.push(time, event);
        }
    }

    /// The nodes that join at the start.
    fn happen_nodes(&mut self) {
        while let Some(event) = self.events.pop_due(self.engine.now()) {
            match event {
                Event::NodeJoins { node } => self.node_joins(node),
                // All other events at the start follow after the nodes have joined.
                other => {
                    self.events.push(self.engine.now() + super::STEP_MIN, other);
                }
            }
        }
    }

    /// A node joins, or returns after a failure.
    pub(super) fn node_joins(&mut self, node: NodeIndex) {
        let now = self.engine.now();
        let state = &mut self.nodes.all[node as usize];
        if state.exists || state.is_gone {
            return;
        }
        state.joined += 1;
        let mut object = Node::clone(&state.template);
        object.metadata.uid = format!("node-{node}-{}", state.joined).into();
        object.metadata.creation_timestamp = Some(now);
        state.exists = true;
        state.is_cordoned = object.spec.unschedulable;
        let group = state.group;
        self.buffers.note_change();
        self.nodes.by_name.insert(object.name().clone(), node);
        self.measure.node_joins(&state.capacity, state.price);
        self.engine.set(Object::Node(Arc::new(object)));
        self.publish_slices(node);
        self.start_daemons(node);
        if let Some(group) = group {
            self.group_node_joined(group, node);
        } else {
            self.plan_scan_for_buffers();
        }
    }

    /// A node leaves or fails: its pods end with it.
    pub(super) fn node_leaves(&mut self, node: NodeIndex) {
        let state = &mut self.nodes.all[node as usize];
        if !std::mem::take(&mut state.exists) {
            return;
        }
        let name = state.name.clone();
        self.nodes.by_name.remove(&name);
        self.buffers.note_change();
        // A group removes a node only if no chunk needs it.
        if !state.is_gone {
            self.plan_scan_for_buffers();
        }
        let state = &self.nodes.all[node as usize];
        self.measure.node_leaves(&state.capacity, state.price);
        self.nodes.draining.remove(&node);
        self.pods_end_with(node);
        for uid in self.nodes.get(node).daemons.clone() {
            self.end_daemon(&uid);
        }
        self.delete_slices(node);
        self.engine.delete_node(&name);
    }

    /// Cordons or uncordons a node. Returns whether it exists.
    pub(super) fn cordon(&mut self, node: NodeIndex, is_cordoned: bool) -> bool {
        let state = &mut self.nodes.all[node as usize];
        let Some(object) = self.engine.scheduler().cache().node(&state.name) else {
            return false;
        };
        state.is_cordoned = is_cordoned;
        let mut changed = Node::clone(object);
        changed.spec.unschedulable = is_cordoned;
        self.engine.set(Object::Node(Arc::new(changed)));
        self.room_changed();
        true
    }

    /// A node has a pod more.
    pub(super) fn node_takes(&mut self, node: NodeIndex, pod: PodIndex) {
        let requests = &self.plan.shapes[self.plan.pods[pod as usize].shape as usize].requests;
        let state = &mut self.nodes.all[node as usize];
        for (used, request) in state.used.iter_mut().zip(requests) {
            *used += request;
        }
        state.pods.push(pod);
        if state.pods.len() == 1 {
            self.measure.node_is_used(1);
        }
        self.room_changed();
    }

    /// A node has a pod less.
    pub(super) fn node_gives_back(&mut self, node: NodeIndex, pod: PodIndex) {
        let requests = &self.plan.shapes[self.plan.pods[pod as usize].shape as usize].requests;
        let Some(state) = self.nodes.all.get_mut(node as usize) else {
            return;
        };
        let Some(at) = state.pods.iter().rposition(|known| *known == pod) else {
            return;
        };
        state.pods.swap_remove(at);
        for (used, request) in state.used.iter_mut().zip(requests) {
            *used -= request;
        }
        let is_empty = state.pods.is_empty();
        self.room_changed();
        if is_empty {
            self.measure.node_is_used(-1);
            self.node_is_empty(node);
        }
    }
}
