//! The counts of an evaluation for the metrics.

use berth_framework::Code;
use berth_profile::Point;
use berth_telemetry::Stopwatch;
use berth_telemetry::metrics::Metrics;
use smallvec::SmallVec;

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
    /// [`Sampler`](berth_telemetry::metrics::Sampler).
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

    /// Calls a plugin, and notes the duration if single calls are timed in this cycle.
    pub(super) fn timed<T>(
        &mut self,
        stopwatch: &dyn Stopwatch,
        plugin: &str,
        point: &str,
        code: impl FnOnce(&T) -> Code,
        call: impl FnOnce() -> T,
    ) -> T {
        let Some(sampled) = &mut self.sampled else {
            return call();
        };
        let began = stopwatch.nanos();
        let result = call();
        let nanos = stopwatch.nanos().saturating_sub(began);
        sampled.observe_plugin(plugin, point, code(&result), nanos);
        result
    }

    /// Notes one run of a point.
    pub fn span(&mut self, point: Point, code: Code, nanos: u64) {
        self.spans.push(Span { point, code, nanos });
    }
}
