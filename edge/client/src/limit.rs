//! The client's own limit on requests a second (`clientConnection.qps` and `burst`).
//!
//! Requests take tokens from a bucket, as in client-go. Without tokens, requests wait by lane: more urgent lanes are
//! served first, and one token in `RESERVED_EVERY` is given to the lower lanes in turn, so that none starves. With 50
//! requests a second, bindings get at least 45 of them, independently of other requests.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};

/// One in this number of tokens is given to a lane below the most urgent waiting lane.
const RESERVED_EVERY: u32 = 12;
/// A limit that delays requests is logged this often at most.
const LOG_EVERY: Duration = Duration::from_secs(30);
/// The wait from which a request counts as delayed, as in client-go.
const NOTICEABLE: Duration = Duration::from_millis(50);

/// The urgency of a request. More urgent lanes are first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lane {
    /// Bindings.
    Binding,
    /// Evictions.
    Deletion,
    /// Writes of claims and volumes, and registered writes of plugins.
    Write,
    /// Lists and watches.
    Read,
    /// Conditions and nominations of pods, and all other requests.
    Status,
}

impl Lane {
    const COUNT: usize = 5;
}

/// A limit. Cloning shares it.
#[derive(Debug, Clone, Default)]
pub struct RateLimit(Option<Arc<SharedLimit>>);

#[derive(Debug)]
struct SharedLimit {
    qps: f64,
    state: Mutex<LimitState>,
}

#[derive(Debug)]
struct LimitState {
    bucket: Bucket,
    waiting: [VecDeque<oneshot::Sender<()>>; Lane::COUNT],
    turns: Turns,
    /// Whether a task hands out tokens.
    is_served: bool,
    delays: Delays,
}

impl RateLimit {
    /// No limit.
    pub const NONE: Self = Self(None);

    /// The requests per second, and the requests at once after a pause. Negative `qps` means no limit.
    pub fn new(qps: f32, burst: i32) -> Self {
        if qps <= 0.0 {
            return Self::NONE;
        }
        let qps = f64::from(qps);
        Self(Some(Arc::new(SharedLimit {
            qps,
            state: Mutex::new(LimitState {
                bucket: Bucket::new(qps, burst),
                waiting: Default::default(),
                turns: Turns::default(),
                is_served: false,
                delays: Delays::default(),
            }),
        })))
    }

    /// Returns whether a request may be sent at once. If not, [`RateLimit::admit`] waits for its turn.
    pub(crate) fn admits_at_once(&self) -> bool {
        let Some(shared) = &self.0 else {
            return true;
        };
        let mut state = shared.lock();
        state.is_idle() && state.bucket.take(Instant::now())
    }

    /// Waits until a request of this lane may be sent. Returns how long that took.
    pub async fn admit(&self, lane: Lane) -> Duration {
        let Some(shared) = &self.0 else {
            return Duration::ZERO;
        };
        if self.admits_at_once() {
            return Duration::ZERO;
        }
        let began = Instant::now();
        let turn = {
            let mut state = shared.lock();
            let (turn, mine) = oneshot::channel();
            state.waiting[lane as usize].push_back(turn);
            if !state.is_served {
                state.is_served = true;
                tokio::spawn(serve(Arc::clone(shared)));
            }
            mine
        };
        // The task that serves drops no waiting request.
        let _ = turn.await;
        let waited = began.elapsed();
        if waited >= NOTICEABLE {
            let news = shared.lock().delays.note(waited, Instant::now());
            if let Some((requests, longest)) = news {
                tracing::warn!(
                    qps = shared.qps,
                    requests,
                    longest_wait_seconds = longest.as_secs_f64(),
                    "requests to the API server wait for the client's own limit; raise clientConnection.qps and burst \
                     if the server can take more"
                );
            }
        }
        waited
    }
}

impl SharedLimit {
    fn lock(&self) -> MutexGuard<'_, LimitState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LimitState {
    fn is_idle(&self) -> bool {
        self.waiting.iter().all(VecDeque::is_empty)
    }

    /// Releases requests while there are tokens. Returns the time of the next token; `None` if no request waits.
    fn hand_out(&mut self, now: Instant) -> Option<Instant> {
        loop {
            // Cancelled requests do not count.
            for lane in &mut self.waiting {
                while lane.front().is_some_and(oneshot::Sender::is_closed) {
                    lane.pop_front();
                }
            }
            if self.is_idle() {
                return None;
            }
            if !self.bucket.take(now) {
                return Some(self.bucket.next(now));
            }
            let waiting = self.waiting.each_ref().map(|lane| !lane.is_empty());
            let lane = self.turns.next(waiting);
            if let Some(turn) = self.waiting[lane].pop_front()
                && turn.send(()).is_err()
            {
                self.bucket.put_back();
            }
        }
    }
}

/// Hands out tokens until no request waits.
async fn serve(shared: Arc<SharedLimit>) {
    loop {
        let next = {
            let mut state = shared.lock();
            let next = state.hand_out(Instant::now());
            state.is_served = next.is_some();
            next
        };
        match next {
            Some(next) => sleep_until(next).await,
            None => return,
        }
    }
}

/// Tokens that are refilled over time.
#[derive(Debug)]
struct Bucket {
    qps: f64,
    burst: f64,
    tokens: f64,
    at: Option<Instant>,
}

impl Bucket {
    fn new(qps: f64, burst: i32) -> Self {
        let burst = f64::from(burst.max(1));
        Self {
            qps,
            burst,
            tokens: burst,
            at: None,
        }
    }

    fn take(&mut self, now: Instant) -> bool {
        if let Some(at) = self.at {
            let gained = now.saturating_duration_since(at).as_secs_f64() * self.qps;
            self.tokens = (self.tokens + gained).min(self.burst);
        }
        self.at = Some(now);
        let has_one = self.tokens >= 1.0;
        if has_one {
            self.tokens -= 1.0;
        }
        has_one
    }

    fn put_back(&mut self) {
        self.tokens += 1.0;
    }

    /// The time of the next token.
    fn next(&self, now: Instant) -> Instant {
        let missing = (1.0 - self.tokens).max(0.0);
        // Rounded up, or the token would be short of a rounding error.
        now + Duration::from_secs_f64(missing / self.qps) + Duration::from_micros(1)
    }
}

/// The order of lanes.
#[derive(Debug, Default)]
struct Turns {
    /// Tokens since a lane below the most urgent one had its share.
    since_reserved: u32,
    /// The lane that had it.
    last_reserved: usize,
}

impl Turns {
    /// The lane that gets a token. At least one lane waits.
    fn next(&mut self, waiting: [bool; Lane::COUNT]) -> usize {
        let first = waiting.iter().position(|waits| *waits).unwrap_or_default();
        let below = (1..=Lane::COUNT)
            .map(|step| (self.last_reserved + step) % Lane::COUNT)
            .find(|lane| *lane > first && waiting[*lane]);
        let Some(below) = below else {
            return first;
        };
        self.since_reserved += 1;
        if self.since_reserved < RESERVED_EVERY {
            return first;
        }
        self.since_reserved = 0;
        self.last_reserved = below;
        below
    }
}

/// Collects delays until they are logged.
#[derive(Debug, Default)]
struct Delays {
    requests: u64,
    longest: Duration,
    logged: Option<Instant>,
}

impl Delays {
    /// Counts a delayed request. Returns the values to log, if it is time.
    fn note(&mut self, waited: Duration, now: Instant) -> Option<(u64, Duration)> {
        self.requests += 1;
        self.longest = self.longest.max(waited);
        let is_due = self
            .logged
            .is_none_or(|logged| now.saturating_duration_since(logged) >= LOG_EVERY);
        is_due.then(|| {
            self.logged = Some(now);
            (
                std::mem::take(&mut self.requests),
                std::mem::take(&mut self.longest),
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lets a number of requests of each lane wait, and counts the admitted requests of each after `seconds`.
    async fn admitted(limit: &RateLimit, waiting: &[(Lane, usize)], seconds: u64) -> Vec<usize> {
        let counts: Vec<Arc<std::sync::atomic::AtomicUsize>> =
            waiting.iter().map(|_| Arc::default()).collect();
        let mut tasks = Vec::new();
        for ((lane, requests), count) in waiting.iter().zip(&counts) {
            for _ in 0..*requests {
                let (limit, lane, count) = (limit.clone(), *lane, Arc::clone(count));
                tasks.push(tokio::spawn(async move {
                    limit.admit(lane).await;
                    count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                }));
            }
        }
        // A moment more, so that all permitted requests are sent.
        tokio::time::sleep(Duration::from_secs(seconds) + Duration::from_millis(1)).await;
        for task in tasks {
            task.abort();
        }
        let read = |count: &Arc<std::sync::atomic::AtomicUsize>| {
            count.load(std::sync::atomic::Ordering::Relaxed)
        };
        counts.iter().map(read).collect()
    }

    /// The burst is sent at once, further requests at the configured rate.
    #[tokio::test(start_paused = true)]
    async fn requests_keep_to_the_limit() {
        for (qps, burst, requests, seconds, expected) in [
            (50.0, 100, 1_000, 0, 100),
            (50.0, 1, 1_000, 0, 1),
            (50.0, 100, 1_000, 10, 600),
            (0.5, 1, 10, 4, 3),
            (-1.0, 0, 1_000, 0, 1_000),
        ] {
            let limit = RateLimit::new(qps, burst);
            let got = admitted(&limit, &[(Lane::Status, requests)], seconds).await;
            // The runtime's timers are late by up to a millisecond.
            assert!(
                (expected - 1..=expected).contains(&got[0]),
                "{qps} a second: {got:?}"
            );
        }
    }

    /// With 50 requests a second, bindings get at least 45 while thousands of other requests wait, and each of the
    /// other lanes gets some.
    #[tokio::test(start_paused = true)]
    async fn bindings_go_first_and_no_lane_starves() {
        let limit = RateLimit::new(50.0, 10);
        let waiting = [
            (Lane::Status, 5_000),
            (Lane::Read, 100),
            (Lane::Deletion, 100),
            (Lane::Binding, 5_000),
        ];
        let got = admitted(&limit, &waiting, 60).await;
        assert!(got[3] >= 45 * 60, "{got:?}");
        assert!(got[..3].iter().all(|requests| *requests >= 60), "{got:?}");
        assert!(got.iter().sum::<usize>() <= 50 * 60 + 10, "{got:?}");
    }

    /// A cancelled request costs no token.
    #[tokio::test(start_paused = true)]
    async fn a_request_that_was_given_up_does_not_count() {
        let limit = RateLimit::new(1.0, 1);
        let given_up = admitted(&limit, &[(Lane::Binding, 100)], 0).await;
        assert_eq!(given_up, [1]);
        let got = admitted(&limit, &[(Lane::Status, 10)], 5).await;
        assert!(matches!(got[..], [4 | 5]), "{got:?}");
    }

    #[test]
    fn delays_are_logged_now_and_then() {
        let mut delays = Delays::default();
        let begin = Instant::now();
        let ms = Duration::from_millis;
        for (second, waited, news) in [
            (0, ms(60), Some((1, ms(60)))),
            (1, ms(900), None),
            (2, ms(70), None),
            (31, ms(80), Some((3, ms(900)))),
        ] {
            let got = delays.note(waited, begin + Duration::from_secs(second));
            assert_eq!(got, news, "second {second}");
        }
    }
}
