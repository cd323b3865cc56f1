//! The work queue of a controller: each key at most once, now or at a later time, with backoff after failures.
//!
//! A controller that asks for a key again at once, in the past or a few milliseconds ahead, again and again without a
//! change from outside, would keep a processor busy. So such requests back off per key, like failures
//! ([`WorkQueue::add_again`]).
//!
//! It is owned by one task and needs no lock. Its size is bounded by the number of distinct keys.

use rustc_hash::FxHashMap;
use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};
use std::hash::Hash;
use std::time::Duration;
use tokio::time::Instant;

/// The delay after the first failure; each further failure doubles it.
const BACKOFF_MIN: Duration = Duration::from_millis(5);
/// The longest delay after failures. A key that keeps failing is tried at this rate and never forgotten.
const BACKOFF_MAX: Duration = Duration::from_secs(60);
/// Repeated requests of a controller for a key are not limited if they are at least this time apart.
const AGAIN_MIN: Duration = Duration::from_millis(100);
/// The number of consecutive immediate requests for a key without a delay: a reconcile of several steps requests each
/// next step.
const AGAIN_FREE: u32 = 10;
/// After this idle time, the count of a key starts again.
const AGAIN_FORGET: Duration = Duration::from_secs(2);
/// From this number of keys on, keys whose count has restarted are removed periodically.
const AGAIN_KEYS: usize = 1024;

/// The reason why a key is to be worked on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cause {
    /// A change outside of the controller, or the end of a long delay.
    Outside,
    /// The controller asked for it while it worked.
    Again,
    /// The last attempt failed.
    Failure,
}

/// The number of times in a row that the controller requested a key again at once.
#[derive(Debug, Clone, Copy)]
struct Streak {
    length: u32,
    last: Instant,
}

impl Streak {
    /// The minimum delay of the next such request.
    fn pause(self) -> Duration {
        match self.length.checked_sub(AGAIN_FREE) {
            None => Duration::ZERO,
            Some(over) => backoff(over),
        }
    }

    fn is_over(self, now: Instant) -> bool {
        now.saturating_duration_since(self.last) > AGAIN_FORGET + 2 * self.pause()
    }
}

/// The delay after this many failures and one more.
fn backoff(failures: u32) -> Duration {
    BACKOFF_MIN
        .saturating_mul(1u32 << failures.min(20))
        .min(BACKOFF_MAX)
}

#[derive(Debug)]
struct Timer<K> {
    at: Instant,
    /// Keys with the same time are taken in the order of their additions.
    order: u64,
    key: K,
}

impl<K> PartialEq for Timer<K> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<K> Eq for Timer<K> {}

impl<K> PartialOrd for Timer<K> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<K> Ord for Timer<K> {
    /// The heap returns its greatest entry first, which must be the earliest.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.order).cmp(&(self.at, self.order))
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct WorkQueue<K> {
    ready: VecDeque<K>,
    in_ready: FxHashMap<K, Cause>,
    timers: BinaryHeap<Timer<K>>,
    /// The time that counts for each key; older timers of the key are void.
    due: FxHashMap<K, (Instant, Cause)>,
    failures: FxHashMap<K, u32>,
    streaks: FxHashMap<K, Streak>,
    /// At this number of streaks, ended streaks are removed.
    streaks_max: usize,
    order: u64,
}

impl<K> Default for WorkQueue<K> {
    fn default() -> Self {
        Self {
            ready: VecDeque::new(),
            in_ready: FxHashMap::default(),
            timers: BinaryHeap::new(),
            due: FxHashMap::default(),
            failures: FxHashMap::default(),
            streaks: FxHashMap::default(),
            streaks_max: AGAIN_KEYS,
            order: 0,
        }
    }
}

impl<K: Clone + Eq + Hash> WorkQueue<K> {
    /// Adds a key to be worked on now.
    pub(crate) fn add(&mut self, key: K) {
        self.push(key, Cause::Outside);
    }

    /// Adds a key to be worked on at `at`; the earliest time asked for wins.
    pub(crate) fn add_at(&mut self, key: K, at: Instant) {
        self.set_timer(key, at, Cause::Outside);
    }

    /// Adds a key at the request of its own reconcile, after `delay`, or later after many consecutive immediate
    /// requests. After a reconcile that has `progressed` (created or deleted objects), the wait is at most
    /// [`AGAIN_MIN`].
    pub(crate) fn add_again(&mut self, key: K, delay: Duration, progressed: bool, now: Instant) {
        if delay >= AGAIN_MIN {
            return self.set_timer(key, now + delay, Cause::Outside);
        }
        let streak = self.streaks.get(&key).filter(|s| !s.is_over(now));
        let pause = streak.map_or(Duration::ZERO, |s| s.pause());
        let pause = if progressed {
            pause.min(AGAIN_MIN)
        } else {
            pause
        };
        let delay = delay.max(pause);
        if delay.is_zero() {
            self.push(key, Cause::Again);
        } else {
            self.set_timer(key, now + delay, Cause::Again);
        }
    }

    /// Adds a key after a failure; returns the delay.
    pub(crate) fn retry(&mut self, key: K, now: Instant) -> Duration {
        let failures = self.failures.entry(key.clone()).or_default();
        let delay = backoff(*failures);
        *failures = failures.saturating_add(1);
        self.set_timer(key, now + delay, Cause::Failure);
        delay
    }

    /// Ends the backoff of a key.
    pub(crate) fn forget(&mut self, key: &K) {
        self.failures.remove(key);
    }

    fn push(&mut self, key: K, cause: Cause) {
        match self.in_ready.get_mut(&key) {
            // A change from outside takes precedence: the controller has something new to do.
            Some(known) if cause == Cause::Outside => *known = cause,
            Some(_) => {}
            None => {
                self.in_ready.insert(key.clone(), cause);
                self.ready.push_back(key);
            }
        }
    }

    fn set_timer(&mut self, key: K, at: Instant, cause: Cause) {
        if self.due.get(&key).is_some_and(|(due, _)| *due <= at) {
            return;
        }
        self.due.insert(key.clone(), (at, cause));
        self.order += 1;
        self.timers.push(Timer {
            at,
            order: self.order,
            key,
        });
        // Each replaced time leaves a void timer behind; do not let them pile up.
        if self.timers.len() > 2 * self.due.len() + 64 {
            let due = &self.due;
            self.timers
                .retain(|t| due.get(&t.key).is_some_and(|(at, _)| *at == t.at));
        }
    }

    /// The next key to work on, if one is ready at `now`.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<K> {
        while self.timers.peek().is_some_and(|t| t.at <= now) {
            let Some(timer) = self.timers.pop() else {
                break;
            };
            if let Some((at, cause)) = self.due.get(&timer.key).copied()
                && at == timer.at
            {
                self.due.remove(&timer.key);
                self.push(timer.key, cause);
            }
        }
        let key = self.ready.pop_front()?;
        if let Some(cause) = self.in_ready.remove(&key) {
            self.note(&key, cause, now);
        }
        Some(key)
    }

    /// Counts how often in a row a key is worked on because the controller asked for it.
    fn note(&mut self, key: &K, cause: Cause, now: Instant) {
        match cause {
            Cause::Failure => return,
            Cause::Outside => {
                self.streaks.remove(key);
                return;
            }
            Cause::Again => {}
        }
        let known = self.streaks.get(key).filter(|s| !s.is_over(now));
        let length = known.map_or(0, |s| s.length).saturating_add(1);
        let streak = Streak { length, last: now };
        self.streaks.insert(key.clone(), streak);
        if self.streaks.len() >= self.streaks_max {
            self.streaks.retain(|_, s| !s.is_over(now));
            self.streaks_max = AGAIN_KEYS.max(2 * self.streaks.len());
        }
    }

    /// The time of the next key.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.timers.peek().map(|t| t.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drain(queue: &mut WorkQueue<&'static str>, now: Instant) -> Vec<&'static str> {
        std::iter::from_fn(|| queue.pop(now)).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_waits_at_most_once_and_its_earliest_time_counts() {
        let t0 = Instant::now();
        let s = Duration::from_secs;
        let mut queue = WorkQueue::default();
        queue.add("a");
        queue.add("b");
        queue.add("a");
        assert_eq!(drain(&mut queue, t0), ["a", "b"]);

        queue.add_at("c", t0 + s(5));
        queue.add_at("c", t0 + s(9));
        queue.add_at("d", t0 + s(3));
        queue.add_at("c", t0 + s(2));
        assert_eq!(queue.next_due(), Some(t0 + s(2)));
        assert_eq!(drain(&mut queue, t0 + s(1)), [""; 0]);
        assert_eq!(drain(&mut queue, t0 + s(3)), ["c", "d"]);
        assert_eq!(
            drain(&mut queue, t0 + s(60)),
            [""; 0],
            "the later times of c are void"
        );
        assert_eq!(queue.next_due(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn failures_back_off_up_to_a_minute_and_success_starts_anew() {
        let now = Instant::now();
        let mut queue = WorkQueue::default();
        let delays: Vec<_> = (0..16).map(|_| queue.retry("a", now).as_millis()).collect();
        assert_eq!(delays[..4], [5, 10, 20, 40]);
        assert_eq!(delays[13..], [40_960, 60_000, 60_000]);
        queue.forget(&"a");
        assert_eq!(queue.retry("a", now).as_millis(), 5);
    }

    /// Works on a key that asks for itself again at once for `seconds`; returns how often.
    fn runs(queue: &mut WorkQueue<&'static str>, now: &mut Instant, seconds: u64) -> usize {
        let end = *now + Duration::from_secs(seconds);
        let mut runs = 0;
        while *now < end {
            match queue.pop(*now) {
                Some(key) => {
                    runs += 1;
                    queue.add_again(key, Duration::ZERO, false, *now);
                }
                None => *now = queue.next_due().map_or(end, |at| at.min(end)),
            }
        }
        runs
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_that_asks_for_itself_backs_off_until_something_changes() {
        let mut now = Instant::now();
        let mut queue = WorkQueue::default();
        queue.add("a");
        // 1 + 10 at once, then after 5, 10, 20, … ms, up to a minute.
        assert_eq!(runs(&mut queue, &mut now, 60), 24);
        assert_eq!(runs(&mut queue, &mut now, 3600), 60);
        queue.add("a");
        assert_eq!(queue.pop(now), Some("a"));
        queue.add_again("a", Duration::ZERO, false, now);
        assert_eq!(queue.pop(now), Some("a"), "the change ended the backoff");
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_that_is_asked_for_now_and_then_is_never_delayed() {
        let mut now = Instant::now();
        let mut queue = WorkQueue::default();
        for _ in 0..1000 {
            queue.add_again("a", Duration::ZERO, false, now);
            assert_eq!(drain(&mut queue, now), ["a"]);
            now += Duration::from_secs(3);
        }
        // A wait of a tenth of a second or more is granted as asked for.
        for _ in 0..1000 {
            queue.add_again("a", AGAIN_MIN, false, now);
            now += AGAIN_MIN;
            assert_eq!(drain(&mut queue, now), ["a"]);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_burst_that_creates_objects_goes_on_soon() {
        let mut now = Instant::now();
        let mut queue = WorkQueue::default();
        queue.add("a");
        for _ in 0..200 {
            assert_eq!(drain(&mut queue, now), ["a"]);
            queue.add_again("a", Duration::ZERO, true, now);
            now += AGAIN_MIN;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn keys_that_no_longer_ask_are_forgotten() {
        let mut now = Instant::now();
        let mut queue = WorkQueue::default();
        for key in 0..100_000u32 {
            queue.add_again(key, Duration::ZERO, false, now);
            assert_eq!(queue.pop(now), Some(key));
            now += Duration::from_millis(10);
        }
        assert!(queue.streaks.len() <= AGAIN_KEYS, "{}", queue.streaks.len());
    }

    #[tokio::test(start_paused = true)]
    async fn replaced_times_do_not_pile_up() {
        let now = Instant::now();
        let mut queue = WorkQueue::default();
        for i in (0..10_000).rev() {
            queue.add_at("a", now + Duration::from_millis(i));
        }
        assert!(queue.timers.len() < 100);
        assert_eq!(drain(&mut queue, now), ["a"]);
    }
}
