//! DaemonSets: each has a pod on each node that its template allows, from the joining of the node to its end.
//!
//! Their controller assigns each pod to its node, so the pods have their nodes at once, before other pods use the
//! resources. They are not pods of the trace: the report counts their requests as used, and nothing else.

use super::Simulation;
use super::events::NodeIndex;
use super::plan::Plan;
use crate::trace::{DaemonSet, Trace};
use berth_api::{Node, Object, Pod, Str};
use berth_framework::PodInfo;
use berth_oracle::{SCHEDULING_EFFECTS, has_selected_labels, matches_affinity, untolerated};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// A DaemonSet.
#[derive(Debug)]
struct SimulatedDaemonSet {
    of: DaemonSet,
    /// In the order of the plan.
    requests: Box<[i64]>,
}

/// All DaemonSets.
#[derive(Debug, Default)]
pub(super) struct Daemons {
    all: Vec<SimulatedDaemonSet>,
    /// Their pods with their nodes, by UID.
    pods: FxHashMap<Str, DaemonPod>,
}

/// A pod of a DaemonSet.
#[derive(Debug)]
struct DaemonPod {
    set: usize,
    node: NodeIndex,
}

impl Daemons {
    pub(super) fn new(trace: &Trace, plan: &Plan) -> Self {
        let all = trace.daemon_sets.iter().map(|of| SimulatedDaemonSet {
            of: of.clone(),
            requests: plan.amounts(&berth_oracle::requests(&of.pod)),
        });
        Self {
            all: all.collect(),
            pods: FxHashMap::default(),
        }
    }

    /// Returns whether a pod with this UID exists.
    pub(super) fn has(&self, uid: &str) -> bool {
        self.pods.contains_key(uid)
    }

    /// The pods of a joining node, each with the index of its set. Pods for which the node is too small are left out.
    fn on_node(&self, node: &Node, allocatable: &[i64]) -> Vec<(usize, Pod)> {
        let mut free = allocatable.to_vec();
        let mut pods = Vec::new();
        for (at, set) in self.all.iter().enumerate() {
            let template = &set.of.pod;
            let tolerations = &template.spec.tolerations;
            let should_run = has_selected_labels(template, node)
                && matches_affinity(template, node)
                && untolerated(tolerations, node, SCHEDULING_EFFECTS)
                    .next()
                    .is_none();
            let mut amounts = free.iter().zip(&set.requests);
            let has_room = amounts.all(|(free, request)| *request <= 0 || request <= free);
            if !should_run || !has_room {
                continue;
            }
            for (free, request) in free.iter_mut().zip(&set.requests) {
                *free -= request;
            }
            let mut pod = Pod::clone(template);
            pod.metadata.name = format!("{}-{}", set.of.name, node.name()).into();
            pod.metadata.uid = format!(
                "daemon-{}-{}-{}",
                pod.namespace(),
                set.of.name,
                node.metadata.uid
            )
            .into();
            pod.spec.node_name = node.name().clone();
            pod.status = Default::default();
            pod.status.phase = "Running".into();
            pods.push((at, pod));
        }
        pods
    }
}

impl Simulation {
    /// The initial pods of a node of a group.
    pub(super) fn daemons_of(&self, node: &Node) -> Vec<Arc<PodInfo>> {
        let allocatable = self.plan.amounts(&node.status.allocatable);
        let pods = self.daemons.on_node(node, &allocatable).into_iter();
        pods.map(|(_, pod)| Arc::new(PodInfo::new(Arc::new(pod))))
            .collect()
    }

    /// Creates the pods of DaemonSets on a node that has joined.
    pub(super) fn start_daemons(&mut self, index: NodeIndex) {
        let state = self.nodes.get(index);
        let Some(node) = self.engine.scheduler().cache().node(&state.name).cloned() else {
            return;
        };
        for (set, mut pod) in self.daemons.on_node(&node, &state.capacity) {
            pod.metadata.creation_timestamp = Some(self.engine.now());
            pod.status.start_time = Some(self.engine.now());
            self.count_daemon(set, index, 1);
            let uid = pod.uid().clone();
            let daemon = DaemonPod { set, node: index };
            self.daemons.pods.insert(uid.clone(), daemon);
            self.nodes.all[index as usize].daemons.push(uid);
            self.engine.set(Object::Pod(Arc::new(pod)));
        }
    }

    /// A pod of a DaemonSet ends: with its node, or by preemption. Its controller replaces it when the node joins
    /// again.
    pub(super) fn end_daemon(&mut self, uid: &str) {
        let Some(pod) = self.daemons.pods.remove(uid) else {
            return;
        };
        let daemons = &mut self.nodes.all[pod.node as usize].daemons;
        daemons.retain(|known| known != uid);
        self.count_daemon(pod.set, pod.node, -1);
        self.engine.delete_pod(uid);
    }

    fn count_daemon(&mut self, set: usize, node: NodeIndex, sign: i64) {
        let requests = &self.daemons.all[set].requests;
        let used = &mut self.nodes.all[node as usize].used;
        for (used, request) in used.iter_mut().zip(requests) {
            *used += sign * request;
        }
        self.measure.daemon_changes(requests, sign);
    }
}
