//! Durations as Go writes and reads them: `1h30m`, `15s`, `2.5ms`.

use crate::time::Duration;
use serde::{Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

/// The units and their nanoseconds. There are two letters that look like µ.
const UNITS: [(&str, i128); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("\u{b5}s", 1_000),
    ("\u{3bc}s", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60 * 1_000_000_000),
    ("h", 3600 * 1_000_000_000),
];

/// The maximum number of digits after the point that are read.
const FRACTION_DIGITS_MAX: usize = 15;

/// A span of time of a configuration: nanoseconds, and possibly negative before it is validated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct GoDuration(i64);

impl GoDuration {
    /// Whole seconds.
    pub const fn from_secs(seconds: i32) -> Self {
        Self(seconds as i64 * 1_000_000_000)
    }

    /// Its nanoseconds.
    pub fn as_nanos(self) -> i64 {
        self.0
    }

    /// The span; zero when it is negative.
    pub fn as_duration(self) -> Duration {
        Duration::from_nanos(u64::try_from(self.0).unwrap_or(0))
    }
}

/// As text, such as `1m30s`.
impl Serialize for GoDuration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl From<Duration> for GoDuration {
    /// A span of more than 292 years counts as 292 years.
    fn from(duration: Duration) -> Self {
        Self(i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX))
    }
}

impl fmt::Display for GoDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 < 0 {
            f.write_str("-")?;
        }
        f.write_str(&print(Duration::from_nanos(self.0.unsigned_abs())))
    }
}

/// As Go prints it: the greatest unit that fits, hours and minutes before the seconds, no zeros at the end.
fn print(duration: Duration) -> String {
    let nanos = duration.as_nanos();
    let fraction = |unit: u128| {
        let text = format!(
            "{}.{:0width$}",
            nanos / unit,
            nanos % unit,
            width = unit.ilog10() as usize
        );
        let text = text.trim_end_matches('0').trim_end_matches('.');
        text.to_owned()
    };
    // Below a second, Go prints a single unit.
    match nanos {
        0 => return "0s".to_owned(),
        1..1_000 => return format!("{nanos}ns"),
        1_000..1_000_000 => return format!("{}µs", fraction(1_000)),
        1_000_000..1_000_000_000 => return format!("{}ms", fraction(1_000_000)),
        _ => {}
    }
    let seconds = duration.as_secs();
    let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
    let rest = Duration::new(seconds % 60, duration.subsec_nanos());
    let rest = format!("{}.{:09}", rest.as_secs(), rest.subsec_nanos());
    let rest = rest.trim_end_matches('0').trim_end_matches('.');
    if hours > 0 {
        format!("{hours}h{minutes}m{rest}s")
    } else if minutes > 0 {
        format!("{minutes}m{rest}s")
    } else {
        format!("{rest}s")
    }
}

/// The reason why a text is no duration, in Go's words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GoDurationError {
    /// Not a duration, or one that is too long to count.
    #[error("time: invalid duration {0:?}")]
    Invalid(String),
    /// A number without a unit.
    #[error("time: missing unit in duration {0:?}")]
    NoUnit(String),
    /// A unit that Go does not know, such as days.
    #[error("time: unknown unit {0:?} in duration {1:?}")]
    UnknownUnit(String, String),
}

impl FromStr for GoDuration {
    type Err = GoDurationError;

    fn from_str(text: &str) -> Result<Self, GoDurationError> {
        let invalid = || GoDurationError::Invalid(text.to_owned());
        let (negative, mut rest) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        // Only zero may be written without a unit.
        if rest == "0" {
            return Ok(Self(0));
        }
        if rest.is_empty() {
            return Err(invalid());
        }
        let mut nanos: i128 = 0;
        while !rest.is_empty() {
            let (whole, after) = digits(rest);
            let (fraction, after) = match after.strip_prefix('.') {
                Some(after) => digits(after),
                None => ("", after),
            };
            if whole.is_empty() && fraction.is_empty() {
                return Err(invalid());
            }
            let end = after
                .find(|c: char| c == '.' || c.is_ascii_digit())
                .unwrap_or(after.len());
            let (unit, after) = after.split_at(end);
            if unit.is_empty() {
                return Err(GoDurationError::NoUnit(text.to_owned()));
            }
            let (_, scale) = UNITS
                .into_iter()
                .find(|(name, _)| *name == unit)
                .ok_or_else(|| GoDurationError::UnknownUnit(unit.to_owned(), text.to_owned()))?;
            let amount = amount(whole, fraction, scale).ok_or_else(invalid)?;
            nanos = nanos.checked_add(amount).ok_or_else(invalid)?;
            rest = after;
        }
        let nanos = if negative { -nanos } else { nanos };
        i64::try_from(nanos).map(Self).map_err(|_| invalid())
    }
}

fn digits(text: &str) -> (&str, &str) {
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    text.split_at(end)
}

/// The nanoseconds of `whole.fraction` units; none when they are too many to count.
fn amount(whole: &str, fraction: &str, scale: i128) -> Option<i128> {
    // No text has no value, and more than 19 digits are more than any i64 unless they start with zeros.
    let number = |digits: &str| match digits.trim_start_matches('0') {
        "" => Some(0),
        digits if digits.len() <= 19 => digits.parse::<i128>().ok(),
        _ => None,
    };
    let fraction = &fraction[..fraction.len().min(FRACTION_DIGITS_MAX)];
    let parts = 10_i128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    number(whole)?
        .checked_mul(scale)?
        .checked_add(number(fraction)?.checked_mul(scale)? / parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_and_written_as_go_does() {
        for (text, outcome) in [
            ("15s", Ok("15s")),
            ("600s", Ok("10m0s")),
            ("1h30m", Ok("1h30m0s")),
            ("1.5h", Ok("1h30m0s")),
            (".5s", Ok("500ms")),
            ("2.s", Ok("2s")),
            ("1m0.25s", Ok("1m0.25s")),
            ("3us", Ok("3µs")),
            ("3\u{3bc}s", Ok("3µs")),
            ("0", Ok("0s")),
            ("-0", Ok("0s")),
            ("+1ms", Ok("1ms")),
            ("-2s", Ok("-2s")),
            ("0000000000000000000000000001s", Ok("1s")),
            ("2562047h47m16.854775807s", Ok("2562047h47m16.854775807s")),
            ("-2562047h47m16.854775808s", Ok("-2562047h47m16.854775808s")),
            ("", Err("time: invalid duration \"\"")),
            ("-", Err("time: invalid duration \"-\"")),
            (".s", Err("time: invalid duration \".s\"")),
            ("s", Err("time: invalid duration \"s\"")),
            ("15", Err("time: missing unit in duration \"15\"")),
            ("1d", Err("time: unknown unit \"d\" in duration \"1d\"")),
            ("1 s", Err("time: unknown unit \" s\" in duration \"1 s\"")),
            ("1s ", Err("time: unknown unit \"s \" in duration \"1s \"")),
            ("2562048h", Err("time: invalid duration \"2562048h\"")),
            (
                "99999999999999999999s",
                Err("time: invalid duration \"99999999999999999999s\""),
            ),
        ] {
            let got = text
                .parse::<GoDuration>()
                .map(|d| d.to_string())
                .map_err(|e| e.to_string());
            let outcome = outcome.map(str::to_owned).map_err(str::to_owned);
            assert_eq!(got, outcome, "{text:?}");
        }
    }
}
