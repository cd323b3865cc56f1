//! Numbers, times and taints in words.

use berth_api::{Duration, Time};

/// Seconds between two times.
pub(crate) fn seconds(since: Time, now: Time) -> f64 {
    now.since(since).as_secs_f64()
}

/// A number with its noun.
pub(crate) fn count(number: impl Into<u64>, noun: &str) -> String {
    match number.into() {
        1 => format!("1 {noun}"),
        number => format!("{number} {noun}s"),
    }
}

/// A duration for people: `3m`, `12s`.
pub(crate) fn ago(seconds: f64) -> String {
    let duration = Duration::from_secs_f64(seconds.clamp(0.0, 1e9));
    match duration.as_secs() {
        secs if secs < 120 => format!("{secs}s"),
        secs if secs < 2 * 3600 => format!("{}m", secs / 60),
        secs if secs < 48 * 3600 => format!("{}h", secs / 3600),
        secs => format!("{}d", secs / 86400),
    }
}

/// A taint of a device.
pub(crate) fn taint_text(key: &str, value: &str) -> String {
    match value {
        "" => key.to_owned(),
        value => format!("{key}={value}"),
    }
}
