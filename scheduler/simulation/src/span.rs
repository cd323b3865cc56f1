//! Durations and points in time in the format of traces.

use berth_api::{Duration, Time};

/// The supported formats of a span, for messages.
pub const SPAN_FORMS: &str = "a number of seconds, or units such as 90s, 1h30m, 2d12h, 20ms";

const UNITS: [(&str, f64); 7] = [
    ("ms", 1e-3),
    ("us", 1e-6),
    ("w", 604_800.0),
    ("d", 86_400.0),
    ("h", 3_600.0),
    ("m", 60.0),
    ("s", 1.0),
];
/// The longest span: a longer one is a mistake, and times stay within the range of the API.
const SECONDS_MAX: f64 = 200.0 * 365.25 * 86_400.0;

/// Reads a span: `90`, `1.5`, `90s`, `1h30m`, `2d`, `20ms`.
///
/// # Errors
/// When the text is neither a number of seconds nor numbers with units, or is longer than 200 years.
pub fn parse_span(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is no duration; write {SPAN_FORMS}");
    let text = text.trim();
    let seconds = match text.parse::<f64>() {
        Ok(seconds) => seconds,
        Err(_) => units(text).ok_or_else(wrong)?,
    };
    if !(0.0..=SECONDS_MAX).contains(&seconds) {
        return Err(format!(
            "the duration {text:?} is not between 0 and 200 years"
        ));
    }
    // To the nanosecond: seconds with decimals are not exact in binary.
    Ok(Duration::from_nanos((seconds * 1e9).round() as u64))
}

fn units(text: &str) -> Option<f64> {
    let (mut rest, mut seconds) = (text, 0.0);
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest[..end].parse().ok()?;
        rest = &rest[end..];
        let (unit, factor) = UNITS.iter().find(|(unit, _)| rest.starts_with(unit))?;
        rest = &rest[unit.len()..];
        seconds += number * factor;
    }
    Some(seconds)
}

/// A point in time of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// Since the start of the trace.
    Offset(Duration),
    /// A date.
    Absolute(Time),
}

impl Moment {
    /// Reads an offset, as [`parse_span`] does, or a date such as `2026-01-31T12:00:00Z`.
    ///
    /// # Errors
    /// When the text is neither.
    pub fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if text.contains('T') || text.contains(':') {
            let time = text.parse::<Time>();
            return time.map(Self::Absolute).map_err(|_| {
                format!("{text:?} is no time; write a date such as 2026-01-31T12:00:00Z, or {SPAN_FORMS} since the start")
            });
        }
        parse_span(text).map(Self::Offset)
    }
}

/// A span for people, with two units at most: `1d2h`, `3m20s`, `1.5s`, `20ms`.
pub fn show_span(seconds: f64) -> String {
    if seconds <= 0.0 {
        return "0s".to_owned();
    }
    if seconds < 1.0 {
        return format!("{:.0}ms", seconds * 1e3);
    }
    if seconds < 59.95 {
        let text = format!("{seconds:.1}");
        return format!("{}s", text.strip_suffix(".0").unwrap_or(&text));
    }
    let whole = seconds.round() as u64;
    let (large, small, large_unit, small_unit) = match whole {
        0..3_600 => (whole / 60, whole % 60, "m", "s"),
        3_600..86_400 => (whole / 3_600, whole % 3_600 / 60, "h", "m"),
        _ => (whole / 86_400, whole % 86_400 / 3_600, "d", "h"),
    };
    match small {
        0 => format!("{large}{large_unit}"),
        _ => format!("{large}{large_unit}{small}{small_unit}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_read_and_shown() {
        for (text, nanos, shown) in [
            ("90", 90_000_000_000_u64, "1m30s"),
            ("1.5", 1_500_000_000, "1.5s"),
            ("20ms", 20_000_000, "20ms"),
            ("1h30m", 5_400_000_000_000, "1h30m"),
            ("2d", 172_800_000_000_000, "2d"),
            ("1.5d", 129_600_000_000_000, "1d12h"),
            ("0", 0, "0s"),
        ] {
            let span = parse_span(text).unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(span, Duration::from_nanos(nanos), "{text}");
            assert_eq!(show_span(span.as_secs_f64()), shown, "{text}");
        }
        for text in ["", "-1", "5x", "h", "1h30", "1e99", "NaN", "inf"] {
            assert!(parse_span(text).is_err(), "{text}");
        }
    }

    #[test]
    fn moments_are_offsets_or_dates() {
        let date = "2026-01-31T12:00:00Z".parse().expect("a time");
        assert_eq!(
            Moment::parse("2026-01-31T12:00:00Z"),
            Ok(Moment::Absolute(date))
        );
        let hour = Moment::Offset(Duration::from_secs(3600));
        assert_eq!(Moment::parse(" 1h"), Ok(hour));
        assert!(Moment::parse("12:00").is_err());
    }
}
