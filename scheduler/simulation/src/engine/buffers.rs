//! Capacity buffers: room that node groups keep for pods that do not exist yet.
//!
//! As with a cluster autoscaler, the chunks of buffers cause nodes and keep nodes. The scheduler ignores them, so a pod
//! can use the room at any time. Chunks are placed like the pods that cause nodes, in the order of the buffers, on the
//! first nodes that accept them.
//!
//! Every scan follows a change of the trace: a pod that is bound or ends, a node of the trace that joins, leaves or is
//! cordoned. A node that a group adds or removes plans no scan, so a simulation with buffers ends.

use super::events::NodeIndex;
use super::{Simulation, SimulationError};
use crate::report::BufferUse;
use crate::trace::{CapacityBuffer, Trace};
use berth_api::{Duration, Pod, Str, Time};
use berth_explain::Packing;
use berth_framework::{PodInfo, Slot};
use std::collections::BTreeSet;
use std::sync::Arc;

/// A buffer.
#[derive(Debug)]
struct SimulatedBuffer {
    of: CapacityBuffer,
    /// A pod for each chunk.
    pods: Vec<Arc<PodInfo>>,
    /// The chunks with room at the last count.
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
    /// Nodes without pods that are kept because chunks need them.
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
    /// When two buffers have the same name.
    pub(super) fn new(trace: &Trace) -> Result<Self, SimulationError> {
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
            pods: chunks(buffer),
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

    /// Places all chunks. Returns the number of placed chunks of each buffer.
    fn place(&self, packing: &mut Packing, nodes: &[Slot]) -> Vec<u32> {
        let all = self.all.iter();
        all.map(|buffer| place(packing, &buffer.pods, nodes))
            .collect()
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

/// The virtual pods of the chunks of a buffer.
fn chunks(buffer: &CapacityBuffer) -> Vec<Arc<PodInfo>> {
    let chunks = (0..buffer.chunks).map(|number| {
        let mut pod = Pod::clone(&buffer.pod);
        let name: Str = format!("{}-chunk-{number}", buffer.name).into();
        pod.metadata.uid = format!("chunk-{}-{name}", buffer.namespace).into();
        pod.metadata.name = name;
        pod.metadata.namespace = buffer.namespace.clone();
        Arc::new(PodInfo::new(Arc::new(pod)))
    });
    chunks.collect()
}

/// Places chunks. Returns the number of placed chunks.
fn place(packing: &mut Packing, chunks: &[Arc<PodInfo>], nodes: &[Slot]) -> u32 {
    let has_claims = |chunk: &Arc<PodInfo>| !chunk.pod.status.resource_claim_statuses.is_empty();
    let placed = if chunks.first().is_some_and(has_claims) {
        // Chunks with claims of their own are not equal.
        let each = chunks.chunks(1);
        each.take_while(|chunk| packing.place(chunk, nodes) > 0)
            .count()
    } else {
        packing.place(chunks, nodes)
    };
    u32::try_from(placed).unwrap_or(u32::MAX)
}

impl Simulation {
    /// Creates the claims of all chunks. They have no devices and volumes, so that they take no room from pods.
    pub(super) fn create_claims_of_chunks(&mut self) {
        let chunks = self.buffers.all.iter_mut();
        for chunk in chunks.flat_map(|buffer| &mut buffer.pods) {
            let mut pod = Pod::clone(&chunk.pod);
            self.engine.create_claims(&mut pod);
            *chunk = Arc::new(PodInfo::new(Arc::new(pod)));
        }
    }

    /// The room on nodes of the trace has changed, or pods have used or released room.
    pub(super) fn room_changed(&mut self) {
        self.buffers.note_change();
        self.plan_scan_for_buffers();
    }

    pub(super) fn plan_scan_for_buffers(&mut self) {
        if !self.buffers.all.is_empty() {
            self.plan_scan();
        }
    }

    /// The number of chunks of each buffer with room on the existing nodes, except one node.
    fn chunks_with_room(&mut self, without: Option<NodeIndex>) -> Vec<u32> {
        let mut packing = self.take_packing();
        if let Some(node) = without {
            packing.remove_node(&self.nodes.get(node).name);
        }
        let nodes = packing.nodes();
        let placed = self.buffers.place(&mut packing, &nodes);
        self.packing = Some(packing);
        placed
    }

    /// Adds nodes for the chunks without room on present nodes or on booting nodes (`coming`), in a copy of the cluster
    /// with the waiting pods. Removes nodes that were kept for chunks and are not needed any more.
    pub(super) fn scan_buffers(
        &mut self,
        packing: &mut Packing,
        present: &[Slot],
        mut coming: Vec<Slot>,
    ) {
        if self.buffers.all.is_empty() {
            return;
        }
        let nodes = [present, &coming].concat();
        let placed = self.buffers.place(packing, &nodes);
        coming.clear();
        for (at, placed) in placed.into_iter().enumerate() {
            let pods = self.buffers.all[at].pods.clone();
            let left = pods.get(placed as usize..).unwrap_or_default();
            let mut left = &left[place(packing, left, &coming) as usize..];
            while let [chunk, others @ ..] = left {
                let Some(node) = self.grow_for(chunk, packing) else {
                    break;
                };
                coming.push(node);
                left = &others[place(packing, others, &[node]) as usize..];
            }
        }
        for node in std::mem::take(&mut self.buffers.kept) {
            self.idle_check(node);
        }
    }

    /// Returns whether a node without pods is kept, because a chunk would lose its room without it. It is evaluated
    /// again in the next scan.
    pub(super) fn keep_for_buffers(&mut self, node: NodeIndex) -> bool {
        if self.buffers.all.is_empty() {
            return false;
        }
        let with = self.chunks_with_room(None);
        let without = self.chunks_with_room(Some(node));
        let is_needed = with
            .iter()
            .zip(&without)
            .any(|(with, without)| without < with);
        if is_needed {
            self.buffers.kept.insert(node);
        }
        is_needed
    }

    /// Advances the time with the current room.
    pub(super) fn measure_buffers(&mut self, until: Time) {
        let nanos = until.since(self.buffers.measured).as_nanos();
        if self.buffers.all.is_empty() || nanos == 0 {
            return;
        }
        if self.buffers.is_stale {
            let placed = self.chunks_with_room(None);
            for (buffer, placed) in self.buffers.all.iter_mut().zip(placed) {
                buffer.room = placed;
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
