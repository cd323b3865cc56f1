//! Pods: they arrive, are bound, start, run to their end and are replaced. Gates and groups of pods.

use super::events::{Event, NodeIndex, PodIndex};
use super::evictions::TerminatingPod;
use super::plan::Plan;
use super::{Simulation, SimulationError};
use crate::names::{DRAWN, Names};
use crate::trace::{Gate, GateRemoval, Trace, TraceGroup, scheduling_gates};
use berth_api::groups::{GangPolicy, TopologyConstraint};
use berth_api::{Kind, Object, Pod, PodGroup, Str, Time};
use berth_explain::engine::bind;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The place of a pod in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Phase {
    /// It has not arrived.
    #[default]
    Future,
    /// It waits for room in a quota, and does not exist yet.
    Held,
    /// It exists and has no node.
    Pending,
    /// It has a node.
    OnNode,
    /// It was deleted or ended with its node, and its replacement has not arrived.
    Replacing,
    /// It has run to its end.
    Finished,
    /// It was deleted or ended with its node, and is not replaced.
    Lost,
}

impl Phase {
    /// Returns whether the pod exists and is not being deleted.
    pub(super) fn exists(self) -> bool {
        matches!(self, Self::Pending | Self::OnNode)
    }
}

/// A pod of the trace.
#[derive(Debug, Clone, Default)]
pub(super) struct SimulatedPod {
    pub(super) phase: Phase,
    /// The number of times that it was created.
    pub(super) incarnation: u32,
    pub(super) node: NodeIndex,
    /// The first binding.
    pub(super) bound: Option<Time>,
    /// The first start.
    pub(super) started: Option<Time>,
    pub(super) ended: Option<Time>,
    /// The start of this incarnation.
    pub(super) runs_since: Option<Time>,
    pub(super) attempts: u32,
    pub(super) evictions: u32,
    pub(super) is_counted_by_quota: bool,
    pub(super) is_replacement_planned: bool,
}

/// A group, and the number of its pods that have not ended.
#[derive(Debug)]
struct SimulatedGroup {
    trace: TraceGroup,
    exists: bool,
    left: u32,
}

/// The pods of a simulation, in the order of their arrival.
#[derive(Debug)]
pub(super) struct Pods {
    pub(super) all: Vec<SimulatedPod>,
    /// Deleted pods whose containers run, by pod and incarnation.
    pub(super) terminating: BTreeMap<(PodIndex, u32), TerminatingPod>,
    arrivals: Vec<Time>,
    next: usize,
    groups: Vec<SimulatedGroup>,
    /// The group of each shape.
    group_of_shape: Vec<Option<u32>>,
    /// Pods whose end removes a gate, with the pods that have such a gate.
    awaited: FxHashMap<Str, Vec<(PodIndex, u8)>>,
    ended: FxHashSet<Str>,
}

impl Pods {
    /// Pods that have not arrived.
    ///
    /// # Errors
    /// When a pod names a group that does not exist, or two pods have one name.
    pub(super) fn new(trace: &Trace, plan: &Plan) -> Result<Self, SimulationError> {
        let mut names = Names::default();
        let given = trace.pods.iter().map(|of| (&of.pod, &of.name, of.count));
        let drawn = trace.generators.iter().map(|of| (&of.pod, &of.name, DRAWN));
        for (pod, name, count) in given.chain(drawn) {
            let namespace = pod.namespace();
            let added = names.add(namespace, name, count, 0);
            added.map_err(|same| SimulationError::SameName {
                kind: "pods",
                name: format!("{namespace}/{}", same.name),
            })?;
        }
        let groups = trace.groups.iter().map(|group| SimulatedGroup {
            trace: group.clone(),
            exists: false,
            left: 0,
        });
        let mut groups: Vec<SimulatedGroup> = groups.collect();
        let mut group_of_shape = Vec::with_capacity(plan.shapes.len());
        for shape in &plan.shapes {
            let Some(name) = shape.pod.pod_group_name() else {
                group_of_shape.push(None);
                continue;
            };
            let namespace = shape.pod.namespace();
            let found = groups
                .iter()
                .position(|group| group.trace.name == *name && group.trace.namespace == *namespace);
            let Some(found) = found else {
                let of_shape =
                    |source: &&crate::trace::TracePod| Arc::ptr_eq(&source.pod, &shape.pod);
                let pod = plan.sources.iter().find(of_shape);
                return Err(SimulationError::UnknownGroup {
                    pod: format!("{namespace}/{}", pod.map_or("", |pod| pod.name.as_str())),
                    group: format!("{namespace}/{name}"),
                });
            };
            group_of_shape.push(Some(found as u32));
        }
        for pod in &plan.pods {
            if let Some(group) = group_of_shape[pod.shape as usize] {
                groups[group as usize].left += 1;
            }
        }
        let awaited = awaited(plan)?;
        Ok(Self {
            all: vec![SimulatedPod::default(); plan.pods.len()],
            terminating: BTreeMap::new(),
            arrivals: plan.pods.iter().map(|pod| pod.arrival).collect(),
            next: 0,
            groups,
            group_of_shape,
            awaited,
            ended: FxHashSet::default(),
        })
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// The number of pods that have arrived.
    pub(super) fn arrived(&self) -> usize {
        self.next
    }

    pub(super) fn next_arrival(&self) -> Option<Time> {
        self.arrivals.get(self.next).copied()
    }

    /// The next pod whose arrival is due.
    pub(super) fn pop_arrival(&mut self, now: Time) -> Option<PodIndex> {
        self.next_arrival().filter(|at| *at <= now)?;
        self.next += 1;
        Some((self.next - 1) as u32)
    }

    pub(super) fn get(&self, pod: PodIndex) -> &SimulatedPod {
        &self.all[pod as usize]
    }

    pub(super) fn get_mut(&mut self, pod: PodIndex) -> &mut SimulatedPod {
        &mut self.all[pod as usize]
    }

    /// The pod with a UID of this simulation.
    pub(super) fn index_of(&self, uid: &str) -> Option<PodIndex> {
        let number = uid.split_once('.').map_or(uid, |(number, _)| number);
        let index: u32 = number.parse().ok()?;
        ((index as usize) < self.all.len()).then_some(index)
    }

    /// The current UID of a pod.
    pub(super) fn uid(&self, pod: PodIndex) -> Str {
        uid(pod, self.get(pod).incarnation)
    }

    /// The pod with this UID, if it exists with this identity and is not being deleted.
    pub(super) fn existing(&self, uid: &str) -> Option<PodIndex> {
        let index = self.index_of(uid)?;
        let exists = self.get(index).phase.exists() && self.uid(index).as_str() == uid;
        exists.then_some(index)
    }

    pub(super) fn note_attempt(&mut self, pod: PodIndex) {
        self.get_mut(pod).attempts += 1;
    }
}

/// The kubelet acknowledges a pod. Its containers start later, which the scheduler does not read.
pub(super) fn acknowledge(pod: &mut Pod, now: Time) {
    pod.status.start_time = Some(now);
}

/// The UID of a pod in its incarnation with this number.
pub(super) fn uid(pod: PodIndex, incarnation: u32) -> Str {
    match incarnation {
        1 => pod.to_string().into(),
        _ => format!("{pod}.{incarnation}").into(),
    }
}

/// The pods whose end removes a gate, `namespace/name`, without waiting pods yet.
fn awaited(plan: &Plan) -> Result<FxHashMap<Str, Vec<(PodIndex, u8)>>, SimulationError> {
    let mut awaited = FxHashMap::default();
    let mut unknown = BTreeMap::new();
    for source in &plan.sources {
        for gate in &source.gates {
            if let GateRemoval::Ended(pod) = &gate.removal {
                awaited.insert(pod.clone(), Vec::new());
                unknown.entry(pod.clone()).or_insert((source, gate));
            }
        }
    }
    if unknown.is_empty() {
        return Ok(awaited);
    }
    let mut sources = BTreeMap::new();
    for pod in &plan.pods {
        let namespace = plan.shapes[pod.shape as usize].pod.namespace();
        let name: Str = format!("{namespace}/{}", plan.name(pod)).into();
        if unknown.remove(&name).is_some() {
            sources.insert(name, pod.source);
        }
    }
    match unknown.pop_first() {
        None => check_cycles(plan, &sources).map(|()| awaited),
        Some((awaited, (source, gate))) => Err(SimulationError::UnknownPod {
            gate: gate.name.to_string(),
            pod: format!("{}/{}", source.pod.namespace(), source.name),
            awaited: awaited.to_string(),
        }),
    }
}

/// Checks that no pod waits for its own end. `sources` are the items of the awaited pods; the pods of an item have the same
/// gates.
fn check_cycles(plan: &Plan, sources: &BTreeMap<Str, u32>) -> Result<(), SimulationError> {
    let mut checked: FxHashSet<u32> = FxHashSet::default();
    for first in sources.values() {
        // A search in depth, with the next gate of each item of the path.
        let (mut path, mut is_on_path) = (vec![(*first, 0)], FxHashSet::from_iter([*first]));
        while let Some((item, next)) = path.last_mut() {
            let source = &plan.sources[*item as usize];
            let Some(gate) = source.gates.get(*next) else {
                checked.insert(*item);
                is_on_path.remove(item);
                path.pop();
                continue;
            };
            *next += 1;
            let GateRemoval::Ended(awaited) = &gate.removal else {
                continue;
            };
            match sources.get(awaited) {
                Some(item) if checked.contains(item) => {}
                Some(item) if is_on_path.insert(*item) => path.push((*item, 0)),
                Some(_) => {
                    return Err(SimulationError::GateCycle {
                        gate: gate.name.to_string(),
                        pod: format!("{}/{}", source.pod.namespace(), source.name),
                        awaited: awaited.to_string(),
                    });
                }
                None => {}
            }
        }
    }
    Ok(())
}

impl Simulation {
    pub(super) fn shape_of(&self, pod: PodIndex) -> u32 {
        self.plan.pods[pod as usize].shape
    }

    fn gates_of(&self, pod: PodIndex) -> &[Gate] {
        let source = self.plan.pods[pod as usize].source;
        &self.plan.sources[source as usize].gates
    }

    /// A pod arrives, for the first time or as the replacement of a pod that ended.
    pub(super) fn pod_arrives(&mut self, pod: PodIndex) {
        let is_first = self.pods.get(pod).phase == Phase::Future;
        let shape = self.shape_of(pod);
        if is_first {
            self.measure
                .pod_waits(&self.plan.shapes[shape as usize], shape);
            self.budgets_change(pod, 1, 0);
        }
        let waits_for_quota = |gate: &Gate| gate.removal == GateRemoval::Quota;
        if self.gates_of(pod).iter().any(waits_for_quota) {
            // It exists from now on, and is counted when its gate is removed.
            self.create_pod(pod);
            self.charge_or_hold(pod);
        } else if self.charge_or_hold(pod) {
            self.create_pod(pod);
        } else {
            self.pods.get_mut(pod).phase = Phase::Held;
        }
    }

    /// The quota has room for a pod now, and counts it.
    pub(super) fn admitted_by_quota(&mut self, pod: PodIndex) {
        if self.pods.get(pod).phase == Phase::Held {
            self.create_pod(pod);
            return;
        }
        let mut gates = self.gates_of(pod).iter();
        let gate = gates.position(|gate| gate.removal == GateRemoval::Quota);
        let incarnation = self.pods.get(pod).incarnation;
        if let Some(gate) = gate {
            self.remove_gate(pod, incarnation, gate);
        }
    }

    /// Creates the object of a pod.
    fn create_pod(&mut self, index: PodIndex) {
        let shape = self.shape_of(index);
        self.create_group(shape);
        let mut pod = Pod::clone(&self.plan.shapes[shape as usize].pod);
        let state = self.pods.get_mut(index);
        state.incarnation += 1;
        state.is_replacement_planned = false;
        let incarnation = state.incarnation;
        pod.metadata.name = self.plan.name(&self.plan.pods[index as usize]);
        if incarnation > 1 && !self.waits_for_end(index) {
            pod.metadata.name = format!("{}.{incarnation}", pod.metadata.name).into();
        }
        pod.metadata.uid = uid(index, incarnation);
        pod.metadata.creation_timestamp = Some(self.engine.now());
        pod.status = Default::default();
        pod.status.phase = "Pending".into();
        if !self.gates_of(index).is_empty() {
            let gates: Vec<_> = scheduling_gates(self.gates_of(index)).collect();
            pod.spec.scheduling_gates.extend(gates);
            self.plan_gates(index, incarnation);
        }
        let ran_before = self.ran_before(index);
        if ran_before {
            // Its claims are objects of the trace.
            let shape = &self.plan.shapes[shape as usize].pod;
            pod.status.resource_claim_statuses = shape.status.resource_claim_statuses.clone();
        }
        self.engine.create_claims(&mut pod);
        let node = std::mem::take(&mut pod.spec.node_name);
        if ran_before {
            bind(&mut pod, &node);
            acknowledge(&mut pod, self.engine.now());
        }
        let state = self.pods.get_mut(index);
        state.phase = Phase::Pending;
        state.runs_since = None;
        self.engine.set(Object::Pod(Arc::new(pod)));
        if ran_before {
            self.pod_bound(index);
            self.pod_starts(index, incarnation);
        }
    }

    fn create_group(&mut self, shape: u32) {
        let Some(group) = self.pods.group_of_shape[shape as usize] else {
            return;
        };
        let known = &mut self.pods.groups[group as usize];
        if std::mem::replace(&mut known.exists, true) {
            return;
        }
        let mut object = PodGroup::default();
        object.metadata.name = known.trace.name.clone();
        object.metadata.namespace = known.trace.namespace.clone();
        object.metadata.uid = format!("group-{group}").into();
        object.metadata.creation_timestamp = Some(self.engine.now());
        object.spec.priority = known.trace.priority;
        object.spec.scheduling_policy.gang = Some(GangPolicy {
            min: i32::try_from(known.trace.minimum).unwrap_or(i32::MAX),
        });
        if let Some(key) = &known.trace.topology {
            let constraint = TopologyConstraint { key: key.clone() };
            object.spec.scheduling_constraints.topology.push(constraint);
        }
        self.engine.set(Object::PodGroup(Arc::new(object)));
    }

    /// A pod of a group has ended permanently: the group ends with its last pod.
    pub(super) fn leave_group(&mut self, shape: u32) {
        let Some(group) = self.pods.group_of_shape[shape as usize] else {
            return;
        };
        let known = &mut self.pods.groups[group as usize];
        known.left -= 1;
        if known.left == 0 && std::mem::take(&mut known.exists) {
            let of = &known.trace;
            self.engine.delete(Kind::PodGroup, &of.namespace, &of.name);
        }
    }

    // --- gates ---------------------------------------------------------------------------------------------

    fn plan_gates(&mut self, index: PodIndex, incarnation: u32) {
        for (gate, of) in self.gates_of(index).to_vec().into_iter().enumerate() {
            let Ok(gate) = u8::try_from(gate) else {
                continue;
            };
            let at = match of.removal {
                GateRemoval::After(time) => self.engine.now() + time,
                GateRemoval::At(offset) => (self.start + offset).max(self.engine.now()),
                GateRemoval::Ended(pod) if self.pods.ended.contains(&pod) => self.engine.now(),
                GateRemoval::Ended(pod) => {
                    self.pods
                        .awaited
                        .entry(pod)
                        .or_default()
                        .push((index, gate));
                    continue;
                }
                GateRemoval::Quota => continue,
            };
            let event = Event::RemoveGate {
                pod: index,
                incarnation,
                gate,
            };
            self.events.push(at, event);
        }
    }

    /// Removes a gate of a pod, if the pod still exists.
    pub(super) fn remove_gate(&mut self, index: PodIndex, incarnation: u32, gate: usize) {
        let Some(name) = self.gates_of(index).get(gate).map(|gate| gate.name.clone()) else {
            return;
        };
        self.engine.change_pod(&uid(index, incarnation), |pod| {
            pod.spec.scheduling_gates.retain(|gate| gate.name != name);
        });
    }

    /// Pods whose gates wait for the end of this pod.
    fn remove_gates_after(&mut self, index: PodIndex) {
        if self.pods.awaited.is_empty() {
            return;
        }
        let planned = &self.plan.pods[index as usize];
        let namespace = self.plan.shapes[planned.shape as usize].pod.namespace();
        let key: Str = format!("{namespace}/{}", self.plan.name(planned)).into();
        let Some(waiting) = self.pods.awaited.remove(&key) else {
            return;
        };
        self.pods.ended.insert(key);
        for (pod, gate) in waiting {
            let incarnation = self.pods.get(pod).incarnation;
            self.remove_gate(pod, incarnation, usize::from(gate));
        }
    }

    // --- life ----------------------------------------------------------------------------------------------

    /// A pod was bound.
    pub(super) fn pod_bound(&mut self, index: PodIndex) {
        let now = self.engine.now();
        let shape = self.shape_of(index);
        let state = self.pods.get_mut(index);
        state.phase = Phase::OnNode;
        state.bound.get_or_insert(now);
        let incarnation = state.incarnation;
        self.measure
            .pod_bound(&self.plan.shapes[shape as usize], shape);
        self.no_longer_unschedulable(index);
        let pod = self.engine.pod(&uid(index, incarnation));
        let node = pod.and_then(|pod| self.nodes.index_of(&pod.spec.node_name));
        let Some(at) = node else {
            // The node left during the binding of the pod: the pod is deleted with it.
            self.pods.get_mut(index).node = NodeIndex::MAX;
            return self.pod_ends_early(index, false);
        };
        self.pods.get_mut(index).node = at;
        self.node_takes(at, index);
        if !self.ran_before(index) {
            let latency = self.plan.world.start_latency.draw(&mut self.rng);
            let start = Event::Start {
                pod: index,
                incarnation,
            };
            self.events.push(self.engine.now() + latency, start);
        }
    }

    /// Returns whether a pod has its node from the trace.
    pub(super) fn ran_before(&self, index: PodIndex) -> bool {
        let shape = &self.plan.shapes[self.shape_of(index) as usize];
        self.pods.get(index).incarnation == 1 && shape.pod.is_assigned()
    }

    /// The containers of a pod start.
    pub(super) fn pod_starts(&mut self, index: PodIndex, incarnation: u32) {
        let state = self.pods.get_mut(index);
        if state.incarnation != incarnation || state.phase != Phase::OnNode {
            return;
        }
        let now = self.engine.now();
        state.started.get_or_insert(now);
        state.runs_since = Some(now);
        self.budgets_change(index, 0, 1);
        if let Some(duration) = self.plan.pods[index as usize].duration {
            let end = Event::End {
                pod: index,
                incarnation,
            };
            self.events.push(now + duration, end);
        }
    }

    /// A pod has run to its end.
    pub(super) fn pod_ends(&mut self, index: PodIndex, incarnation: u32) {
        let state = self.pods.get_mut(index);
        if state.incarnation != incarnation || state.phase != Phase::OnNode {
            return;
        }
        state.ended = Some(self.engine.now());
        self.measure.note_finished();
        self.budgets_change(index, -1, -1);
        self.leave_node(index, Phase::Finished);
        self.leave_group(self.shape_of(index));
        self.remove_gates_after(index);
    }

    /// Deletes the object of a pod, which releases its node, if it has one.
    pub(super) fn leave_node(&mut self, index: PodIndex, to: Phase) {
        let shape = self.shape_of(index);
        let state = self.pods.get_mut(index);
        let was_on_node = state.phase == Phase::OnNode;
        state.phase = to;
        let node = state.node;
        if was_on_node {
            self.measure.pod_leaves(&self.plan.shapes[shape as usize]);
            self.node_gives_back(node, index);
        } else {
            self.measure
                .pod_gives_up(&self.plan.shapes[shape as usize], shape);
            self.no_longer_unschedulable(index);
        }
        let uid = self.pods.uid(index);
        self.engine.end_pod(&uid);
        let was_counted = std::mem::take(&mut self.pods.get_mut(index).is_counted_by_quota);
        self.release_quota(index, was_counted);
    }
}
