//! Traces of scheduling attempts, for the edge to export: when an attempt and each of its extension points began and
//! ended.
//!
//! They are off unless the edge asks for them. Then an attempt costs a few entries of a vector.

use berth_api::{Str, Time};
use berth_framework::Code;
use berth_framework::call::PodRef;

/// The number of extension points of an attempt that are kept. An attempt runs each of them once, and Filter and Score
/// again when it was parked.
pub(crate) const POINTS_MAX: usize = 64;
/// The number of traces that are kept until the edge takes them; further ones are dropped and counted.
const KEPT_MAX: usize = 4 * 1024;

/// A run of an extension point.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TracedPoint {
    /// The name of the point, as metrics have it.
    pub point: &'static str,
    /// The result.
    pub code: Code,
    /// The time at which it began.
    pub began: Time,
    /// The time at which it ended.
    pub ended: Time,
}

/// A scheduling attempt that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttemptTrace {
    /// The pod.
    pub pod: PodRef,
    /// The scheduler name of the profile.
    pub profile: Str,
    /// The number of the attempt; the first one of a pod is 1.
    pub attempt: u32,
    /// `scheduled`, `unschedulable` or `error`, as metrics have it.
    pub result: &'static str,
    /// The node, if the pod was bound.
    pub node: Option<Str>,
    /// The reason why the pod was not bound; empty if it was.
    pub message: String,
    /// The time at which the attempt began.
    pub began: Time,
    /// The time at which it ended: the pod is bound, or returns to the queue.
    pub ended: Time,
    /// Its extension points in the order in which they ended.
    pub points: Vec<TracedPoint>,
}

/// The recorded parts of attempts.
#[derive(Debug, Default)]
pub(crate) struct Traces {
    is_on: bool,
    ended: Vec<AttemptTrace>,
    dropped: usize,
}

impl Traces {
    pub(crate) fn switch_on(&mut self) {
        self.is_on = true;
    }

    /// The place for the points of an attempt that begins; `None` while traces are off.
    pub(crate) fn begin(&self) -> Option<Vec<TracedPoint>> {
        self.is_on.then(Vec::new)
    }

    pub(crate) fn keep(&mut self, trace: AttemptTrace) {
        if self.ended.len() < KEPT_MAX {
            self.ended.push(trace)
        } else {
            self.dropped += 1
        }
    }

    /// The traces that have ended, and how many were dropped.
    pub(crate) fn take(&mut self) -> (Vec<AttemptTrace>, usize) {
        let ended = std::mem::take(&mut self.ended);
        (ended, std::mem::take(&mut self.dropped))
    }
}
