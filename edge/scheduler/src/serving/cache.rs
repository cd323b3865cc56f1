//! Answers that count for a while.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The maximum number of cached answers; at the limit, all expired answers are dropped, and then all.
const ENTRIES_MAX: usize = 4096;

/// See the module.
#[derive(Debug)]
pub(super) struct TtlCache<K, V>(Mutex<HashMap<K, (Instant, V)>>);

impl<K, V> Default for TtlCache<K, V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Hash + Eq, V: Clone> TtlCache<K, V> {
    /// The answer that counts at this time.
    pub(super) fn get(&self, key: &K, now: Instant) -> Option<V> {
        let entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (until, value) = entries.get(key)?;
        (now < *until).then(|| value.clone())
    }

    /// Caches an answer for `ttl`.
    pub(super) fn put(&self, key: K, value: V, ttl: Duration, now: Instant) {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if entries.len() >= ENTRIES_MAX {
            entries.retain(|_, (until, _)| now < *until);
            if entries.len() >= ENTRIES_MAX {
                entries.clear();
            }
        }
        entries.insert(key, (now + ttl, value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_counts_for_its_time() {
        let cache = TtlCache::default();
        let begin = Instant::now();
        let seconds = Duration::from_secs;
        cache.put("a", 1, seconds(10), begin);
        assert_eq!(cache.get(&"a", begin + seconds(9)), Some(1));
        assert_eq!(cache.get(&"a", begin + seconds(10)), None);
        assert_eq!(cache.get(&"b", begin), None);
    }

    #[test]
    fn there_are_no_more_answers_than_the_limit() {
        let cache = TtlCache::default();
        let now = Instant::now();
        for key in 0..3 * ENTRIES_MAX {
            cache.put(key, (), Duration::from_secs(1), now);
        }
        let kept = cache.0.lock().expect("no panic").len();
        assert!(kept <= ENTRIES_MAX, "{kept}");
    }
}
