//! Times, within the years 1 to 9999.

use crate::error::EvaluationError;
use jiff::civil::{Date, DateTime};

pub(crate) const SECOND: i64 = 1_000_000_000;
const DAY_SECONDS: i64 = 24 * 3600;
const EPOCH: Date = Date::constant(1970, 1, 1);
/// The first and the last second of the years that times can have.
const TIMES: std::ops::RangeInclusive<i64> = -62_135_596_800..=253_402_300_799;

/// The last year of times in UTC.
pub(crate) const YEAR_MAX: i64 = 9999;
/// After how many years, and so many days, the calendar is the same: a multiple of the 400 years after which it
/// repeats, large enough to have no times in the year below.
const CALENDAR_YEARS: i64 = 26 * 400;
const CALENDAR_DAYS: i64 = 26 * 146_097;
/// Represents the year after the last one.
pub(crate) const LATER_YEAR: i64 = YEAR_MAX + 1 - CALENDAR_YEARS;

/// A time, and the offset from UTC in seconds that its text had.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Time {
    /// Whole seconds since 1970, rounded down.
    seconds: i64,
    nanos: u32,
    offset: i32,
}

impl Time {
    pub(crate) fn new(seconds: i64, nanos: u32, offset: i32) -> Result<Self, EvaluationError> {
        if !TIMES.contains(&seconds) {
            return Err(overflow());
        }
        Ok(Self {
            seconds,
            nanos,
            offset,
        })
    }

    /// The key that distinguishes and orders times.
    pub(crate) const fn instant(self) -> (i64, u32) {
        (self.seconds, self.nanos)
    }

    /// The time of an instant, in UTC.
    pub(crate) const fn of_instant(seconds: i64, nanos: u32) -> Self {
        Self {
            seconds,
            nanos,
            offset: 0,
        }
    }

    /// Returns whether this is the start of the year 1.
    pub(crate) fn is_zero(self) -> bool {
        self.instant() == (*TIMES.start(), 0)
    }

    /// The date and the time of day at an offset from UTC in seconds. A time in the year after the last one is returned
    /// as a time in [`LATER_YEAR`], which has the same calendar.
    pub(crate) fn civil(self, offset: i64) -> Result<DateTime, EvaluationError> {
        let mut local = self.seconds + offset;
        if local > *TIMES.end() {
            local -= CALENDAR_DAYS * DAY_SECONDS;
        }
        let days = jiff::Span::new()
            .try_days(local.div_euclid(DAY_SECONDS))
            .map_err(|_| overflow())?;
        let date = EPOCH.checked_add(days).map_err(|_| overflow())?;
        let second = local.rem_euclid(DAY_SECONDS);
        let part = |value: i64| i8::try_from(value).unwrap_or(0);
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        let nanos = i32::try_from(self.nanos).unwrap_or(0);
        Ok(date.at(part(hour), part(minute), part(second), nanos))
    }

    pub(crate) fn plus(self, nanos: i128) -> Result<Self, EvaluationError> {
        let total = i128::from(self.seconds) * i128::from(SECOND) + i128::from(self.nanos) + nanos;
        let second = i128::from(SECOND);
        let seconds = i64::try_from(total.div_euclid(second)).map_err(|_| overflow())?;
        let nanos = u32::try_from(total.rem_euclid(second)).map_err(|_| overflow())?;
        Self::new(seconds, nanos, self.offset)
    }

    pub(crate) fn since(self, earlier: Self) -> i128 {
        let nanos =
            |time: Self| i128::from(time.seconds) * i128::from(SECOND) + i128::from(time.nanos);
        nanos(self) - nanos(earlier)
    }

    /// The whole seconds since 1970, rounded down.
    pub(crate) const fn seconds(self) -> i64 {
        self.seconds
    }

    /// The time in RFC 3339, with as many digits as it needs.
    pub(crate) fn text(self) -> Result<String, EvaluationError> {
        let text = self.civil(self.offset.into())?.to_string();
        if self.offset == 0 {
            return Ok(format!("{text}Z"));
        }
        let sign = if self.offset < 0 { '-' } else { '+' };
        let minutes = self.offset.unsigned_abs() / 60;
        Ok(format!(
            "{text}{sign}{:02}:{:02}",
            minutes / 60,
            minutes % 60
        ))
    }
}

/// Reads a time in RFC 3339. None if the text is not one.
pub(crate) fn parse_time(text: &str) -> Option<Result<Time, EvaluationError>> {
    let bytes = text.as_bytes();
    let digits = |range: std::ops::Range<usize>| -> Option<i64> {
        let part = bytes.get(range)?;
        part.iter().all(u8::is_ascii_digit).then(|| {
            part.iter()
                .fold(0, |sum, digit| sum * 10 + i64::from(digit - b'0'))
        })
    };
    let literal = |at: usize, expected: u8| (bytes.get(at) == Some(&expected)).then_some(());
    let (year, month, day) = (digits(0..4)?, digits(5..7)?, digits(8..10)?);
    literal(4, b'-')
        .and(literal(7, b'-'))
        .and(literal(10, b'T'))?;
    // An hour may have one digit.
    let (hour, at) = match digits(11..13) {
        Some(hour) => (hour, 13),
        None => (digits(11..12)?, 12),
    };
    literal(at, b':').and(literal(at + 3, b':'))?;
    let (minute, second) = (digits(at + 1..at + 3)?, digits(at + 4..at + 6)?);
    let mut rest = bytes.get(at + 6..)?;
    let mut nanos = 0;
    if let [b'.' | b',', fraction @ ..] = rest
        && fraction.first().is_some_and(u8::is_ascii_digit)
    {
        let length = fraction
            .iter()
            .position(|byte| !byte.is_ascii_digit())
            .unwrap_or(fraction.len());
        let mut unit = SECOND / 10;
        for digit in &fraction[..length.min(9)] {
            nanos += i64::from(digit - b'0') * unit;
            unit /= 10;
        }
        rest = &fraction[length..];
    }
    let offset = match rest {
        [b'Z'] => 0,
        [sign @ (b'+' | b'-'), h1, h2, b':', m1, m2] => {
            let number = |a: &u8, b: &u8| {
                (a.is_ascii_digit() && b.is_ascii_digit())
                    .then(|| i64::from(a - b'0') * 10 + i64::from(b - b'0'))
            };
            let (hours, minutes) = (number(h1, h2)?, number(m1, m2)?);
            if hours > 24 || minutes >= 60 {
                return None;
            }
            let seconds = hours * 3600 + minutes * 60;
            if *sign == b'-' { -seconds } else { seconds }
        }
        _ => return None,
    };
    let date = Date::new(
        year.try_into().ok()?,
        month.try_into().ok()?,
        day.try_into().ok()?,
    )
    .ok()?;
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let days = i64::from(EPOCH.until(date).ok()?.get_days());
    let seconds = days * DAY_SECONDS + hour * 3600 + minute * 60 + second - offset;
    let nanos = u32::try_from(nanos).ok()?;
    let offset = i32::try_from(offset).ok()?;
    Some(Time::new(seconds, nanos, offset))
}

fn overflow() -> EvaluationError {
    EvaluationError::failed("timestamp overflow")
}
