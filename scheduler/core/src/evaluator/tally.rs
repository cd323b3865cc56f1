//! The counts of an evaluation for the metrics.

use crate::metrics::Metrics;
use crate::profile::Point;
use berth_framework::Code;
use smallvec::SmallVec;

/// Measures how much time has passed. Only metrics read it; no decision does, so that a run can be repeated.
pub trait Stopwatch: Send + Sync {
    /// Nanoseconds since some fixed moment.
    fn nanos(&self) -> u64;

    /// The last reading, where one is kept: a stage begins when the one before it has ended.
    fn last_nanos(&self) -> u64 {
        self.nanos()
    }
}

/// A stopwatch that does not run: every duration is zero.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoStopwatch;

impl Stopwatch for NoStopwatch {
    fn nanos(&self) -> u64 {
        0
    }
}

/// One run of an extension point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// The point.
    pub point: Point,
    /// The result.
    pub code: Code,
    /// The duration, in nanoseconds.
    pub nanos: u64,
}

/// Calls of plugins and runs of extension points. Counts are by the plugin's place among those of the point.
#[derive(Debug, Default, Clone)]
pub struct Tally {
    /// Calls of PreFilter that were not answered with Skip.
    pub pre_filter: SmallVec<[u32; 24]>,
    /// Calls of Filter.
    pub filter: SmallVec<[u32; 24]>,
    /// Calls of PreScore that were not answered with Skip.
    pub pre_score: SmallVec<[u32; 16]>,
    /// Calls of Score.
    pub score: SmallVec<[u32; 16]>,
    /// Runs of whole points.
    pub spans: SmallVec<[Span; 8]>,
    /// The durations of single calls of plugins, in a cycle that was chosen for it; see
    /// [`Sampler`](crate::metrics::Sampler).
    pub sampled: Option<Box<Metrics>>,
}

impl Tally {
    pub(super) fn count<const N: usize>(counts: &mut SmallVec<[u32; N]>, at: usize)
    where
        [u32; N]: smallvec::Array<Item = u32>,
    {
        Self::add(counts, at, 1);
    }

    pub(super) fn add<const N: usize>(counts: &mut SmallVec<[u32; N]>, at: usize, calls: u32)
    where
        [u32; N]: smallvec::Array<Item = u32>,
    {
        if counts.len() <= at {
            counts.resize(at + 1, 0);
        }
        counts[at] = counts[at].saturating_add(calls);
    }

    /// The time, when single calls are timed in this cycle.
    pub(super) fn begin(&self, stopwatch: &dyn Stopwatch) -> Option<u64> {
        self.sampled.is_some().then(|| stopwatch.nanos())
    }

    /// Notes one call of a plugin that began at `began`.
    pub(super) fn called(
        &mut self,
        began: Option<u64>,
        stopwatch: &dyn Stopwatch,
        (plugin, point): (&str, &str),
        code: Code,
    ) {
        if let (Some(began), Some(sampled)) = (began, &mut self.sampled) {
            let nanos = stopwatch.nanos().saturating_sub(began);
            sampled.observe_plugin(plugin, point, code, nanos);
        }
    }

    /// Notes one run of a point.
    pub fn span(&mut self, point: Point, code: Code, nanos: u64) {
        self.spans.push(Span { point, code, nanos });
    }
}
