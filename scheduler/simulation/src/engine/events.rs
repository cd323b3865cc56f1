//! The events, ordered by time, then by the order in which they were planned.

use berth_api::{Str, Time};
use berth_framework::ApiCall;
use berth_framework::call::CallId;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// An index of [`super::pods::Pods`].
pub(super) type PodIndex = u32;
/// An index of [`super::nodes::Nodes`].
pub(super) type NodeIndex = u32;

/// A call of the scheduler in flight.
#[derive(Debug)]
pub(super) struct CallAnswer {
    pub(super) id: CallId,
    pub(super) call: ApiCall,
}

/// Something that happens at a time.
#[derive(Debug)]
pub(super) enum Event {
    /// A call of the scheduler is performed and answered.
    Answer(Box<CallAnswer>),
    /// The containers of a pod start.
    Start { pod: PodIndex, incarnation: u32 },
    /// A pod has run to its end.
    End { pod: PodIndex, incarnation: u32 },
    /// The replacement of a pod arrives.
    Replace { pod: PodIndex },
    /// A gate is removed.
    RemoveGate {
        pod: PodIndex,
        incarnation: u32,
        gate: u8,
    },
    /// A node joins or returns after a failure.
    NodeJoins { node: NodeIndex },
    /// A node leaves or fails.
    NodeLeaves { node: NodeIndex },
    /// A node is drained.
    NodeDrains { node: NodeIndex },
    /// The drain of a node retries the eviction of the remaining pods.
    RetryDrain { node: NodeIndex },
    /// The controllers of volumes process a claim, by its namespace and name.
    BindVolume(Box<(Str, Str)>),
    /// The containers of a deleted pod have ended.
    Terminated { pod: PodIndex, incarnation: u32 },
    /// A drained node is available again.
    NodeReturns { node: NodeIndex },
    /// Node groups are compared with the waiting pods, and with the chunks of capacity buffers.
    Scan,
    /// A node of a node group may be idle for long enough.
    IdleCheck { node: NodeIndex },
}

struct Planned {
    at: Time,
    number: u64,
    event: Event,
}

impl PartialEq for Planned {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.number) == (other.at, other.number)
    }
}

impl Eq for Planned {}

impl PartialOrd for Planned {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Planned {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

/// The events that are planned.
#[derive(Default)]
pub(super) struct EventQueue {
    heap: BinaryHeap<Reverse<Planned>>,
    next_number: u64,
}

impl std::fmt::Debug for EventQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} events", self.heap.len())
    }
}

impl EventQueue {
    /// The number of planned events.
    pub(super) fn len(&self) -> usize {
        self.heap.len()
    }

    /// Plans an event.
    pub(super) fn push(&mut self, at: Time, event: Event) {
        let number = self.next_number;
        self.next_number += 1;
        self.heap.push(Reverse(Planned { at, number, event }));
    }

    /// The time of the next event.
    pub(super) fn next_time(&self) -> Option<Time> {
        self.heap.peek().map(|Reverse(planned)| planned.at)
    }

    /// The next event that is due.
    pub(super) fn pop_due(&mut self, now: Time) -> Option<Event> {
        if self.next_time()? > now {
            return None;
        }
        self.heap.pop().map(|Reverse(planned)| planned.event)
    }
}
