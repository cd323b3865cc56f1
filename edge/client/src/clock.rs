//! The clock of this machine, and seeds of random numbers.

use berth_api::Time;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{SystemTime, UNIX_EPOCH};

/// A seed for the jitter of this process: processes that fail together must not retry together.
pub(crate) fn seed(instance: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    instance.hash(&mut hasher);
    hasher.finish()
}

/// The time by this machine's clock.
pub fn now() -> Time {
    let nanos = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |d| i64::try_from(d.as_nanos()).unwrap_or(i64::MAX));
    Time::from_nanos(nanos)
}
