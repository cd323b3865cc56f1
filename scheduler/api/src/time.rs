//! Points in time and spans, as values: the core never reads a clock.

use crate::go_time::{GoTime, GoTimeError, TimeLayout};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::ops::{Add, Sub};

pub use std::time::Duration;

/// A point in time: nanoseconds since the Unix epoch, from the year 1677 to 2262. API servers store every year: earlier
/// and later times become the first and the last of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(i64);

impl Time {
    /// The Unix epoch.
    pub const EPOCH: Self = Self(0);
    /// Later than every event.
    pub const MAX: Self = Self(i64::MAX);

    /// From nanoseconds since the Unix epoch.
    pub const fn from_nanos(nanos: i64) -> Self {
        Self(nanos)
    }

    /// From milliseconds since the Unix epoch, saturating.
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis.saturating_mul(1_000_000))
    }

    /// From seconds since the Unix epoch, saturating.
    pub const fn from_secs(secs: i64) -> Self {
        Self(secs.saturating_mul(1_000_000_000))
    }

    /// Nanoseconds since the Unix epoch.
    pub const fn as_nanos(self) -> i64 {
        self.0
    }

    /// Milliseconds since the Unix epoch, rounded down.
    pub const fn as_millis(self) -> i64 {
        self.0.div_euclid(1_000_000)
    }

    /// The time from `earlier` to this; zero when it is not later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    /// The last whole multiple of `window` at or before this time; the time itself when `window` is zero.
    #[must_use]
    pub fn align_down(self, window: Duration) -> Self {
        match i64::try_from(window.as_nanos()) {
            Ok(window) if window > 0 => Self(self.0.saturating_sub(self.0.rem_euclid(window))),
            _ => self,
        }
    }

    /// The time as the API writes it: RFC 3339 in UTC, whole seconds.
    pub fn rfc3339(self) -> String {
        GoTime::new(0, self.0).text(TimeLayout::Seconds)
    }

    /// The time as the API writes a MicroTime: RFC 3339 in UTC with six decimals.
    pub fn rfc3339_micros(self) -> String {
        GoTime::new(0, self.0).text(TimeLayout::Micros)
    }
}

impl Add<Duration> for Time {
    type Output = Self;
    fn add(self, span: Duration) -> Self {
        Self(
            self.0
                .saturating_add(i64::try_from(span.as_nanos()).unwrap_or(i64::MAX)),
        )
    }
}

impl Sub<Duration> for Time {
    type Output = Self;
    fn sub(self, span: Duration) -> Self {
        Self(
            self.0
                .saturating_sub(i64::try_from(span.as_nanos()).unwrap_or(i64::MAX)),
        )
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.rfc3339())
    }
}

/// Of any text that an API server writes, saturating.
impl std::str::FromStr for Time {
    type Err = GoTimeError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        GoTime::read(text).map(|time| Self(time.as_nanos()))
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // Without a fraction when there is none, as the API writes it; otherwise exactly.
        match jiff::Timestamp::from_nanosecond(i128::from(self.0)) {
            Ok(timestamp) => serializer.collect_str(&timestamp),
            Err(_) => serializer.serialize_str(&self.rfc3339()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_survives_its_text() {
        let time: Time = "2026-11-20T23:34:56Z".parse().unwrap();
        assert_eq!(time.rfc3339(), "2026-11-20T23:34:56Z");
        assert_eq!(time.rfc3339_micros(), "2026-11-20T23:34:56.000000Z");
    }

    /// Times that an API server stores and that are out of range are the first or the last time.
    #[test]
    fn times_saturate() {
        for (text, time) in [
            ("1677-09-21T00:12:43Z", Time(i64::MIN)),
            ("0001-01-02T00:00:00Z", Time(i64::MIN)),
            ("-292277022399-01-01T00:00:00Z", Time(i64::MIN)),
            ("1677-09-21T00:12:44Z", Time::from_secs(-9_223_372_036)),
            ("2262-04-11T23:47:16Z", Time::from_secs(9_223_372_036)),
            ("2262-04-11T23:47:17Z", Time::MAX),
            ("9999-12-31T23:59:59Z", Time::MAX),
            ("10000-01-01T23:59:59Z", Time::MAX),
        ] {
            assert_eq!(text.parse(), Ok(time), "{text}");
        }
        let first = Time(i64::MIN);
        assert_eq!(first.align_down(Duration::from_secs(7)), first);
        assert_eq!(first - Duration::from_secs(1), first);
    }

    #[test]
    fn aligning_goes_down_to_the_window() {
        let second = Duration::from_secs(1);
        for (millis, aligned) in [(0, 0), (999, 0), (1000, 1000), (1999, 1000), (-1, -1000)] {
            assert_eq!(
                Time::from_millis(millis).align_down(second),
                Time::from_millis(aligned),
                "{millis} ms"
            );
        }
        assert_eq!(
            Time::from_millis(7).align_down(Duration::ZERO),
            Time::from_millis(7)
        );
    }

    #[test]
    fn arithmetic_saturates() {
        assert_eq!(Time::MAX + Duration::from_secs(1), Time::MAX);
        assert_eq!(Time::EPOCH.since(Time::from_secs(5)), Duration::ZERO);
    }
}
