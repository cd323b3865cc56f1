//! Capacity buffers: room that node groups keep for pods that do not exist yet.
//!
//! As with a cluster autoscaler, the chunks of buffers cause nodes and keep nodes. The scheduler ignores them: a pod uses
//! the room at any time. Whether a chunk fits on a node is judged as for the pods that cause nodes. Chunks are packed
//! greedily, in the order of the buffers, on the first nodes with room.
//!
//! Every scan follows from a change of the trace: a pod that is bound or ends, a node of the trace that joins, leaves or is
//! cordoned. A node that a group adds or removes plans no scan, so a simulation with buffers ends.

use super::events::NodeIndex;
use super::node_groups::is_allowed;
use super::plan::Plan;
use super::{Simulation, SimulationError};
use crate::report::BufferUse;
use crate::trace::{CapacityBuffer, Trace};
use berth_api::{Duration, Node, Time};
use std::collections::BTreeSet;
use std::sync::Arc;

/// A buffer.
#[derive(Debug)]
struct SimulatedBuffer {
    of: CapacityBuffer,
    /// The requests of a chunk, in the order of the plan.
    requests: Box<[i64]>,
    /// The chunks with room, as counted last.
    room: u32,
    /// The time in which all chunks had room, in nanoseconds.
    all_room: u128,
    /// The integral of the chunks with room, in nanoseconds.
    room_area: u128,
}

/// All buffers.
#[derive(Debug)]
pub(super) struct Buffers {
    all: Vec<SimulatedBuffer>,
    /// Nodes without pods that stay because chunks need them.
    kept: BTreeSet<NodeIndex>,
    /// Whether the room may have changed since the last count.
    is_stale: bool,
    /// The time up to which the room is measured.
    measured: Time,
}

impl Buffers {
    /// The buffers of a trace.
    ///
    /// # Errors
    /// When two buffers have one name.
    pub(super) fn new(trace: &Trace, plan: &Plan) -> Result<Self, SimulationError> {
        let mut names = BTreeSet::new();
        let repeated = trace
            .buffers
            .iter()
            .find(|buffer| !names.insert((&buffer.namespace, &buffer.name)));
        if let Some(buffer) = repeated {
            return Err(SimulationError::SameName {
                kind: "capacity buffers",
                name: format!("{}/{}", buffer.namespace, buffer.name),
            });
        }
        let all = trace.buffers.iter().map(|buffer| SimulatedBuffer {
            of: buffer.clone(),
            requests: plan.amounts(&berth_oracle::requests(&buffer.pod)),
            room: 0,
            all_room: 0,
            room_area: 0,
        });
        Ok(Self {
            all: all.collect(),
            kept: BTreeSet::new(),
            is_stale: true,
            measured: trace.start(),
        })
    }

    /// A node or the room on it has changed.
    pub(super) fn note_change(&mut self) {
        self.is_stale = true;
    }

    /// The number of chunks of each buffer.
    fn chunks(&self) -> Vec<u32> {
        self.all.iter().map(|buffer| buffer.of.chunks).collect()
    }

    /// Packs the remaining chunks on the free resources of a node.
    fn pack(&self, left: &mut [u32], node: &Node, free: &mut [i64]) {
        for (buffer, left) in self.all.iter().zip(left) {
            let fitting = fitting(free, &buffer.requests).min(*left);
            if fitting > 0 && is_allowed(&buffer.of.pod, node) {
                *left -= fitting;
                for (free, request) in free.iter_mut().zip(&buffer.requests) {
                    *free -= request * i64::from(fitting);
                }
            }
        }
    }

    /// The result after this time.
    pub(super) fn outcome(&self, length: Duration) -> Vec<BufferUse> {
        let length = length.as_nanos().max(1) as f64;
        let outcome = self.all.iter().map(|buffer| BufferUse {
            namespace: buffer.of.namespace.to_string(),
            name: buffer.of.name.to_string(),
            chunks: buffer.of.chunks,
            all_room_share: buffer.all_room as f64 / length,
            room_mean: buffer.room_area as f64 / length,
            room_end: buffer.room,
        });
        outcome.collect()
    }
}

/// The number of pods with these requests that fit into what is free.
fn fitting(free: &[i64], requests: &[i64]) -> u32 {
    let amounts = free.iter().zip(requests);
    let of_each = amounts.filter(|(_, request)| **request > 0);
    let of_each = of_each.map(|(free, request)| (free / request).max(0));
    let least = of_each.min().unwrap_or(i64::MAX);
    u32::try_from(least).unwrap_or(u32::MAX)
}

impl Simulation {
    /// The room on nodes of the trace has changed, or pods have taken or given back room.
    pub(super) fn room_changed(&mut self) {
        self.buffers.note_change();
        self.plan_scan_for_buffers();
    }

    pub(super) fn plan_scan_for_buffers(&mut self) {
        if !self.buffers.all.is_empty() {
            self.plan_scan();
        }
    }

    /// Packs all chunks on the nodes that exist, without one of them. Returns the chunks without room.
    fn chunks_without_room(&self, without: Option<NodeIndex>) -> Vec<u32> {
        let mut left = self.buffers.chunks();
        let mut free = Vec::new();
        for (at, state) in self.nodes.all.iter().enumerate() {
            if left.iter().all(|left| *left == 0) {
                break;
            }
            let Some(node) = state.object.as_ref().filter(|_| state.is_open()) else {
                continue;
            };
            if without == Some(at as NodeIndex) {
                continue;
            }
            free.clear();
            let amounts = state.capacity.iter().zip(&state.used);
            free.extend(amounts.map(|(capacity, used)| capacity - used));
            self.buffers.pack(&mut left, node, &mut free);
        }
        left
    }

    /// Adds nodes for the chunks that have no room on nodes that exist or boot (`coming`, with the resources that no waiting
    /// pod needs), and removes nodes that were kept for chunks and are not needed any more.
    pub(super) fn scan_buffers(&mut self, coming: Vec<(Arc<Node>, Box<[i64]>)>) {
        if self.buffers.all.is_empty() {
            return;
        }
        let mut left = self.chunks_without_room(None);
        for (node, mut free) in coming {
            self.buffers.pack(&mut left, &node, &mut free);
        }
        for at in 0..left.len() {
            while left[at] > 0 {
                let buffer = &self.buffers.all[at];
                let Some(group) = self.group_for(&buffer.of.pod, &buffer.requests) else {
                    break;
                };
                let node = self.boot_node(group);
                let state = self.nodes.get(node);
                let (node, mut free) = (state.template.clone(), state.capacity.clone());
                let before = left[at];
                self.buffers.pack(&mut left, &node, &mut free);
                // Only the name of the node can prevent that it takes a chunk; then, the next node does not help either.
                if left[at] == before {
                    break;
                }
            }
        }
        for node in std::mem::take(&mut self.buffers.kept) {
            self.idle_check(node);
        }
    }

    /// Returns whether a node without pods stays: without it, a chunk that has room would have none. It is evaluated again
    /// in the next scan.
    pub(super) fn keep_for_buffers(&mut self, node: NodeIndex) -> bool {
        if self.buffers.all.is_empty() {
            return false;
        }
        let with = self.chunks_without_room(None);
        let without = self.chunks_without_room(Some(node));
        let is_needed = with
            .iter()
            .zip(&without)
            .any(|(with, without)| without > with);
        if is_needed {
            self.buffers.kept.insert(node);
        }
        is_needed
    }

    /// Time passes with the present room.
    pub(super) fn measure_buffers(&mut self, until: Time) {
        let nanos = until.since(self.buffers.measured).as_nanos();
        if self.buffers.all.is_empty() || nanos == 0 {
            return;
        }
        if self.buffers.is_stale {
            let left = self.chunks_without_room(None);
            for (buffer, left) in self.buffers.all.iter_mut().zip(left) {
                buffer.room = buffer.of.chunks - left;
            }
            self.buffers.is_stale = false;
        }
        self.buffers.measured = until;
        for buffer in &mut self.buffers.all {
            buffer.room_area += u128::from(buffer.room) * nanos;
            if buffer.room == buffer.of.chunks {
                buffer.all_room += nanos;
            }
        }
    }
}
