//! SchedulingThroughput by the rule of Kubernetes' scheduler_perf, so that figures can be compared.
//!
//! The number of scheduled pods is read once per second. The first reading above zero starts the clock and is no
//! sample. A second without a pod is merged into the next one with a pod: its rate is computed over the whole interval,
//! and counts once for each second. Average and percentiles are computed over these samples.

use crate::stats::{Buckets, buckets};
use std::time::Duration;

/// The interval at which the number of scheduled pods is read.
pub const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);

/// Collects the samples of one measurement.
#[derive(Debug, Clone, Default)]
pub struct Throughput {
    /// The time of the last sample, and the number of pods that had been scheduled.
    last: Option<(Duration, u64)>,
    skipped: usize,
    samples: Vec<f64>,
}

impl Throughput {
    /// Records a reading: a total of `scheduled` pods at the time `now`.
    pub fn read(&mut self, now: Duration, scheduled: u64) {
        if scheduled == 0 {
            return;
        }
        let Some((then, before)) = self.last else {
            self.last = Some((now, scheduled));
            return;
        };
        let new = scheduled.saturating_sub(before);
        if new == 0 {
            self.skipped += 1;
            return;
        }
        let seconds = now.saturating_sub(then).as_secs_f64();
        if seconds <= 0.0 {
            return;
        }
        let rate = new as f64 / seconds;
        self.samples
            .extend(std::iter::repeat_n(rate, self.skipped + 1));
        self.skipped = 0;
        self.last = Some((now, scheduled));
    }

    /// Pods per second; none if the workload ended before two readings with pods.
    pub fn result(&self) -> Option<Buckets> {
        buckets(&self.samples)
    }

    /// The number of samples.
    pub fn samples(&self) -> usize {
        self.samples.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The result of the collector for these readings, one a second.
    fn result(readings: &[u64]) -> Option<(f64, f64, f64)> {
        let mut throughput = Throughput::default();
        for (second, scheduled) in (1..).zip(readings) {
            throughput.read(Duration::from_secs(second), *scheduled);
        }
        throughput.result().map(|b| (b.average, b.perc50, b.perc99))
    }

    #[test]
    fn the_rule_equals_upstream() {
        for (case, readings, expect) in [
            ("nothing scheduled", &[0, 0, 0][..], None),
            ("the first reading only starts the clock", &[0, 500], None),
            (
                "a steady rate",
                &[100, 200, 300],
                Some((100.0, 100.0, 100.0)),
            ),
            (
                "the pods of the first reading do not count",
                &[0, 900, 1000],
                Some((100.0, 100.0, 100.0)),
            ),
            (
                "an empty second is folded into the next one with pods",
                &[10, 10, 110],
                Some((50.0, 50.0, 50.0)),
            ),
            (
                "percentiles are over seconds",
                // 300 in one second, then 100 over two.
                &[10, 310, 310, 410],
                Some(((300.0 + 50.0 + 50.0) / 3.0, 50.0, 300.0)),
            ),
            (
                "empty seconds at the end do not count",
                &[10, 110, 110, 110],
                Some((100.0, 100.0, 100.0)),
            ),
        ] {
            assert_eq!(result(readings), expect, "{case}");
        }
    }

    #[test]
    fn a_late_reading_counts_with_its_real_time() {
        let mut throughput = Throughput::default();
        throughput.read(Duration::from_millis(1000), 10);
        throughput.read(Duration::from_millis(2500), 160);
        assert_eq!(throughput.result().map(|b| b.average), Some(100.0));
    }
}
