//! Traces of scheduling attempts, exported by the edge: the start and the end of an attempt and of each of its
//! extension points.
//!
//! They are disabled by default. An attempt with a trace costs a few entries of a vector.

use berth_api::{Str, Time};
use berth_framework::Code;
use berth_framework::call::PodRef;

/// The number of recorded extension points of an attempt. An attempt runs each of them once, and Filter and Score again
/// if it was parked.
pub(crate) const POINTS_MAX: usize = 64;
/// The number of traces kept until the edge takes them; further ones are dropped and counted.
const KEPT_MAX: usize = 4 * 1024;

/// A run of an extension point.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TracedPoint {
    /// The name of the point, as in metrics.
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
    /// `scheduled`, `unschedulable` or `error`, as in metrics.
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

    /// The buffer for the points of a new attempt; `None` while traces are disabled.
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
