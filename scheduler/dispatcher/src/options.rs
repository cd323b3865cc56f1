//! The options of the dispatcher. Every number is a limit: nothing in the dispatcher grows or repeats without a limit.

use super::lanes::{LaneShare, LaneShares};
use berth_api::Duration;

/// The retries of calls after a temporary failure.
///
/// The pause after attempt `n` is `backoff_initial * backoff_factor^(n-1)`, at most `backoff_max`, lengthened by up
/// to `jitter_percent` of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryPolicy {
    /// The maximum number of attempts, including the first one.
    pub attempts_max: u32,
    /// The pause after the first attempt.
    pub backoff_initial: Duration,
    /// The factor by which each further pause is longer.
    pub backoff_factor: u32,
    /// The longest pause, before jitter.
    pub backoff_max: Duration,
    /// The maximum random extension of a pause, in percent.
    pub jitter_percent: u32,
    /// The longest pause that the server can request (`Retry-After`).
    pub retry_after_max: Duration,
}

impl RetryPolicy {
    /// Of status patches: kube-scheduler's numbers (D-19).
    pub const STATUS: Self = Self {
        attempts_max: 4,
        backoff_initial: Duration::from_millis(10),
        backoff_factor: 5,
        backoff_max: Duration::from_secs(5),
        jitter_percent: 10,
        retry_after_max: Duration::from_secs(30),
    };

    /// For bindings, deletions and writes of claims and volumes. A failure would waste a scheduling cycle or a victim,
    /// so the retries outlast a restart of the server: about 16 s in total.
    pub const WRITES: Self = Self {
        attempts_max: 8,
        ..Self::STATUS
    };

    /// The pause after `attempts` attempts, or the pause that the server requested in `asked` if it is longer. `random`
    /// is between 0 and 1.
    pub fn pause(&self, attempts: u32, asked: Option<Duration>, random: f64) -> Duration {
        let factor = self
            .backoff_factor
            .saturating_pow(attempts.saturating_sub(1));
        let pause = self
            .backoff_initial
            .saturating_mul(factor)
            .min(self.backoff_max);
        let pause = asked.map_or(pause, |asked| pause.max(asked.min(self.retry_after_max)));
        pause + pause.mul_f64(f64::from(self.jitter_percent) / 100.0 * random.clamp(0.0, 1.0))
    }
}

/// The options of the dispatcher.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DispatcherOptions {
    /// Whether calls about one object are merged and skipped (gate SchedulerAsyncAPICalls). Otherwise every call is
    /// sent, in order.
    pub asynchronous: bool,
    /// The maximum number of calls in flight. At least the sum of the reserved shares.
    pub in_flight_max: usize,
    /// The shares of the lanes.
    pub lanes: LaneShares,
    /// The maximum number of calls, in flight or waiting. Status patches may use half of them; further ones are
    /// refused. Reports of PreEnqueue may use a quarter. From three quarters on, the dispatcher is saturated.
    pub tracked_max: usize,
    /// The repetition of status patches.
    pub status_retry: RetryPolicy,
    /// The retries of the other calls.
    pub write_retry: RetryPolicy,
    /// The time for which a successful write is assumed although no update of the object shows it, if the server did
    /// not return the version. After that time, another client is assumed to have overwritten it.
    pub unseen_max: Duration,
    /// The same if the server returned the version. The write normally ends with the update that shows that version or
    /// a later one; this limit applies if no such update arrives.
    pub unshown_max: Duration,
    /// The seed of the jitter.
    pub seed: u64,
}

impl DispatcherOptions {
    /// Options for a scheduler with this `parallelism`: eight calls in flight for each.
    ///
    /// kube-scheduler runs at most as many calls as it has workers (16). Together with its client's limit of 50 calls
    /// per second, status patches therefore delay bindings. In Berth, a call in flight costs almost nothing, and
    /// bindings mostly wait for the server.
    pub fn for_parallelism(parallelism: usize) -> Self {
        Self::for_in_flight(parallelism.saturating_mul(8))
    }

    /// Options for this number of calls in flight, at least one for each lane: a quarter is reserved for bindings, a
    /// sixteenth for each other lane. Status patches never use more than a quarter, deletions and writes of claims and
    /// volumes never more than a half.
    pub fn for_in_flight(in_flight_max: usize) -> Self {
        let total = in_flight_max.max(4);
        let part = |divisor: usize| (total / divisor).max(1);
        let lane = |reserved, max| LaneShare { reserved, max };
        Self {
            asynchronous: true,
            in_flight_max: total,
            lanes: LaneShares {
                binding: lane(part(4), total),
                deletion: lane(part(16), part(2)),
                write: lane(part(16), part(2)),
                status: lane(part(16), part(4)),
            },
            tracked_max: 1 << 18,
            status_retry: RetryPolicy::STATUS,
            write_retry: RetryPolicy::WRITES,
            unseen_max: Duration::from_secs(30),
            unshown_max: Duration::from_secs(600),
            seed: 0,
        }
    }
}

impl Default for DispatcherOptions {
    fn default() -> Self {
        Self::for_parallelism(16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// D-19: 10 ms, five times as long each time, 10 % jitter; by hand: 10, 50, 250, 1250, then the cap of 5 s.
    #[test]
    fn pauses_grow_fivefold_up_to_the_cap() {
        let policy = RetryPolicy::WRITES;
        for (attempts, millis) in [(1, 10), (2, 50), (3, 250), (4, 1250), (5, 5000), (99, 5000)] {
            assert_eq!(
                policy.pause(attempts, None, 0.0),
                Duration::from_millis(millis)
            );
            let longest = Duration::from_micros(millis * 1100);
            assert_eq!(
                policy.pause(attempts, None, 1.0),
                longest,
                "attempt {attempts}"
            );
        }
    }

    /// D-19: a longer pause requested by the server is used, up to a limit, and gets jitter like any pause.
    #[test]
    fn a_server_is_left_alone_as_long_as_it_asks() {
        let policy = RetryPolicy::STATUS;
        for (attempts, asked, random, millis) in [
            (1, 1_000, 0.0, 1_000),
            (1, 1_000, 1.0, 1_100),
            (4, 1_000, 0.0, 1_250),
            (1, 30_000, 0.0, 30_000),
            (1, 3_600_000, 0.0, 30_000),
            (1, 0, 0.0, 10),
        ] {
            let pause = policy.pause(attempts, Some(Duration::from_millis(asked)), random);
            let what = format!("attempt {attempts}, asked for {asked} ms");
            assert_eq!(pause, Duration::from_millis(millis), "{what}");
        }
    }

    /// D-11.
    #[test]
    fn every_lane_gets_a_share_however_few_calls_there_are() {
        for total in [0, 1, 4, 5, 16, 128, 1000] {
            let options = DispatcherOptions::for_in_flight(total);
            let lanes = options.lanes;
            let shares = [lanes.binding, lanes.deletion, lanes.write, lanes.status];
            assert!(
                shares
                    .iter()
                    .all(|s| s.reserved >= 1 && s.max >= s.reserved)
            );
            let reserved: usize = shares.iter().map(|s| s.reserved).sum();
            assert!(reserved <= options.in_flight_max, "{total}: {options:?}");
        }
        assert_eq!(DispatcherOptions::default().in_flight_max, 128);
    }
}
