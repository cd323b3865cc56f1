//! The work queue of a controller: each key at most once, now or at a later time, with backoff after failures.
//!
//! It is owned by one task, so there is no lock in it. What it holds is bounded by the number of distinct keys.

use rustc_hash::{FxHashMap, FxHashSet};
use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};
use std::hash::Hash;
use std::time::Duration;
use tokio::time::Instant;

/// The delay after the first failure; each further one doubles it.
const BACKOFF_MIN: Duration = Duration::from_millis(5);
/// The longest delay after failures. A key that keeps failing is tried at this rate and never forgotten.
const BACKOFF_MAX: Duration = Duration::from_secs(60);

#[derive(Debug)]
struct Timer<K> {
    at: Instant,
    /// Keys of the same time come in the order they were added.
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
    /// The heap gives its greatest entry first; that must be the earliest.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.order).cmp(&(self.at, self.order))
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct WorkQueue<K> {
    ready: VecDeque<K>,
    in_ready: FxHashSet<K>,
    timers: BinaryHeap<Timer<K>>,
    /// The time that counts for each key; older timers of the key are void.
    due: FxHashMap<K, Instant>,
    failures: FxHashMap<K, u32>,
    order: u64,
}

impl<K> Default for WorkQueue<K> {
    fn default() -> Self {
        Self {
            ready: VecDeque::new(),
            in_ready: FxHashSet::default(),
            timers: BinaryHeap::new(),
            due: FxHashMap::default(),
            failures: FxHashMap::default(),
            order: 0,
        }
    }
}

impl<K: Clone + Eq + Hash> WorkQueue<K> {
    /// Adds a key to be worked on now.
    pub(crate) fn add(&mut self, key: K) {
        if self.in_ready.insert(key.clone()) {
            self.ready.push_back(key);
        }
    }

    /// Adds a key to be worked on at `at`; the earliest time asked for wins.
    pub(crate) fn add_at(&mut self, key: K, at: Instant) {
        if self.due.get(&key).is_some_and(|due| *due <= at) {
            return;
        }
        self.due.insert(key.clone(), at);
        self.order += 1;
        self.timers.push(Timer {
            at,
            order: self.order,
            key,
        });
        // Each replaced time leaves a void timer behind; do not let them pile up.
        if self.timers.len() > 2 * self.due.len() + 64 {
            let due = &self.due;
            self.timers.retain(|t| due.get(&t.key) == Some(&t.at));
        }
    }

    /// Adds a key after a failure; gives the delay.
    pub(crate) fn retry(&mut self, key: K, now: Instant) -> Duration {
        let failures = self.failures.entry(key.clone()).or_default();
        let delay = BACKOFF_MIN
            .saturating_mul(1u32 << (*failures).min(20))
            .min(BACKOFF_MAX);
        *failures = failures.saturating_add(1);
        self.add_at(key, now + delay);
        delay
    }

    /// Ends the backoff of a key.
    pub(crate) fn forget(&mut self, key: &K) {
        self.failures.remove(key);
    }

    /// The next key to work on, if one is ready at `now`.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<K> {
        while self.timers.peek().is_some_and(|t| t.at <= now) {
            let Some(timer) = self.timers.pop() else {
                break;
            };
            if self.due.get(&timer.key) == Some(&timer.at) {
                self.due.remove(&timer.key);
                self.add(timer.key);
            }
        }
        let key = self.ready.pop_front()?;
        self.in_ready.remove(&key);
        Some(key)
    }

    /// When the next waiting key becomes ready.
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
