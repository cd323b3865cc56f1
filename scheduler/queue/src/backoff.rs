//! The backoff of failed pods.

use super::config::QueueConfig;
use super::entry::QueuedPodInfo;
use berth_api::{Duration, Time};
use berth_framework::Feature;

/// The ordering window: expiries are rounded down to it if idle schedulers can pop pods from the backoff queue. The
/// queue sort orders the pods of one window.
pub(super) const ORDERING_WINDOW: Duration = Duration::from_secs(1);

/// The minimum of the first backoff, and the maximum backoff, of a pod whose attempts use up the budget for searches.
/// The backoff doubles beyond the configured maximum, so that such pods use a small part of the scheduler's time.
const USED_UP_INITIAL: Duration = Duration::from_secs(1);
const USED_UP_MAX: Duration = Duration::from_secs(300);

/// The rules of backoff.
#[derive(Debug, Clone, Copy)]
pub(super) struct Backoff {
    initial: Duration,
    max: Duration,
    /// The ordering window, or zero.
    window: Duration,
}

impl Backoff {
    pub(super) fn new(config: &QueueConfig) -> Self {
        let windowed = config.features.enabled(Feature::SchedulerPopFromBackoffQ);
        Self {
            initial: config.pod_initial_backoff,
            max: config.pod_max_backoff,
            window: if windowed {
                ORDERING_WINDOW
            } else {
                Duration::ZERO
            },
        }
    }

    /// `initial · 2^(count−1)`, at most the maximum. Consecutive errors take precedence over rejections.
    /// `None` without a failure.
    pub(super) fn duration(&self, info: &QueuedPodInfo) -> Option<Duration> {
        if info.in_a_row.used_up > 0 {
            let initial = self.initial.max(USED_UP_INITIAL);
            let max = self.max.max(USED_UP_MAX);
            return Some(doubled(initial, info.in_a_row.used_up, max));
        }
        let count = match info.in_a_row.errors {
            0 => info.unschedulable_count,
            errors => errors,
        };
        if count == 0 || self.max.is_zero() {
            return None;
        }
        // An attempt of a group takes as long as one attempt per member.
        let max = match &info.own.group {
            None => self.max,
            Some(group) => {
                let seconds = self.max.as_secs_f64() * (group.len() as f64).sqrt();
                Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
            }
        };
        Some(doubled(self.initial, count, max))
    }

    /// the end of the backoff of a pod, rounded down to the ordering window. It depends only on fields that the
    /// return of a pod sets, so it does not change while the pod is queued.
    pub(super) fn expiry(&self, info: &QueuedPodInfo) -> Option<Time> {
        Some((info.timestamp + self.duration(info)?).align_down(self.window))
    }

    /// returns whether a backoff that ends at `expiry` is still running, which includes its current window.
    pub(super) fn is_running(&self, expiry: Time, now: Time) -> bool {
        expiry >= now.align_down(self.window)
    }

    /// Returns whether a pod still has to wait.
    pub(super) fn is_backing_off(&self, info: &QueuedPodInfo, now: Time) -> bool {
        self.expiry(info)
            .is_some_and(|expiry| self.is_running(expiry, now))
    }

    /// The first time at which a backoff that ends at `expiry` has ended.
    pub(super) fn over_at(&self, expiry: Time) -> Time {
        expiry + self.window.max(Duration::from_nanos(1))
    }
}

/// `initial · 2^(count−1)`, at most `max`.
fn doubled(initial: Duration, count: u32, max: Duration) -> Duration {
    let max = u64::try_from(max.as_nanos()).unwrap_or(u64::MAX);
    let initial = u64::try_from(initial.as_nanos()).unwrap_or(u64::MAX);
    let nanos = match max.checked_shr(count.saturating_sub(1)) {
        Some(limit) if initial <= limit => initial << (count - 1),
        _ => max,
    };
    Duration::from_nanos(nanos)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::FailuresInARow;
    use std::sync::Arc;

    fn pod(unschedulable: u32, errors: u32, at_millis: i64) -> QueuedPodInfo {
        QueuedPodInfo {
            unschedulable_count: unschedulable,
            in_a_row: FailuresInARow { errors, used_up: 0 },
            ..QueuedPodInfo::new(Arc::default(), Time::from_millis(at_millis))
        }
    }

    fn rules(initial_secs: u64, max_secs: u64, windowed: bool) -> Backoff {
        let mut config = QueueConfig {
            pod_initial_backoff: Duration::from_secs(initial_secs),
            pod_max_backoff: Duration::from_secs(max_secs),
            ..QueueConfig::default()
        };
        config.features = config
            .features
            .with(Feature::SchedulerPopFromBackoffQ, windowed);
        Backoff::new(&config)
    }

    /// cases 45, 47, 49 and 50.
    #[test]
    fn duration_doubles_up_to_the_maximum() {
        for (unschedulable, errors, seconds) in [
            (0, 0, None),
            (1, 0, Some(1)),
            (2, 0, Some(2)),
            (3, 0, Some(4)),
            (4, 0, Some(8)),
            (5, 0, Some(10)),
            (16, 0, Some(10)),
            (33, 0, Some(10)),
            (64, 0, Some(10)),
            (65, 0, Some(10)),
            (128, 0, Some(10)),
            (u32::MAX, 0, Some(10)),
            (4, 1, Some(1)),
            (0, 3, Some(4)),
        ] {
            assert_eq!(
                rules(1, 10, true).duration(&pod(unschedulable, errors, 0)),
                seconds.map(Duration::from_secs),
                "{unschedulable} rejections, {errors} errors"
            );
        }
        assert_eq!(rules(1, 0, true).duration(&pod(3, 0, 0)), None, "maximum 0");
        assert_eq!(
            rules(20, 10, true).duration(&pod(1, 0, 0)),
            Some(Duration::from_secs(10)),
            "the maximum also limits the first backoff"
        );
        assert_eq!(
            rules(0, 10, true).duration(&pod(1, 0, 0)),
            Some(Duration::ZERO),
            "no initial backoff"
        );
    }

    /// attempts that used up their budget double the backoff from at least 1 s up to at least 300 s, also if the
    /// configuration has no backoff.
    #[test]
    fn a_used_up_budget_lengthens_the_backoff_further() {
        for (initial, max, used_up, seconds) in [
            (1, 10, 1, 1),
            (1, 10, 5, 16),
            (1, 10, 9, 256),
            (1, 10, 10, 300),
            (1, 10, u32::MAX, 300),
            (0, 0, 2, 2),
            (20, 900, 2, 40),
            (20, 900, 20, 900),
        ] {
            let mut info = pod(3, 2, 0);
            info.in_a_row.used_up = used_up;
            assert_eq!(
                rules(initial, max, true).duration(&info),
                Some(Duration::from_secs(seconds)),
                "{initial} s to {max} s, {used_up} attempts"
            );
        }
    }

    /// cases 51, 52 and 54.
    #[test]
    fn backoff_ends_with_the_window_after_its_expiry() {
        for (windowed, queued, now, expiry, running) in [
            (true, 300, 1_300, 1_000, true),
            (true, 300, 1_999, 1_000, true),
            (true, 300, 2_000, 1_000, false),
            (true, 999, 1_999, 1_000, true),
            (false, 300, 1_299, 1_300, true),
            (false, 300, 1_300, 1_300, true),
            (false, 300, 1_301, 1_300, false),
        ] {
            let rules = rules(1, 10, windowed);
            let info = pod(1, 0, queued);
            let case = format!("windowed {windowed}, queued at {queued} ms, now {now} ms");
            assert_eq!(
                rules.expiry(&info),
                Some(Time::from_millis(expiry)),
                "{case}"
            );
            let now = Time::from_millis(now);
            assert_eq!(rules.is_backing_off(&info, now), running, "{case}");
            let over_at = rules.over_at(Time::from_millis(expiry));
            assert!(!rules.is_backing_off(&info, over_at), "{case}");
            assert!(
                rules.is_backing_off(&info, over_at - Duration::from_nanos(1)),
                "{case}"
            );
        }
    }
}
