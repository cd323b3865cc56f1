//! Times and durations.
//!
//! Times are within the years 1 to 9999, in UTC. Parts of a time are those in UTC unless a time zone is given: by its
//! name in the IANA database, or by its offset (`-08:00`).

use super::Declaration;
use crate::error::EvaluationError;
use crate::value::{CelValue, EvalResult};
use jiff::Timestamp;
use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;

const SECOND: i64 = 1_000_000_000;
const DAY_SECONDS: i64 = 24 * 3600;
const EPOCH: Date = Date::constant(1970, 1, 1);
/// The first and the last second of the years that times can have.
const TIMES: std::ops::RangeInclusive<i64> = -62_135_596_800..=253_402_300_799;

/// The largest offset from UTC, in seconds, that a time zone can be given as.
const OFFSET_MAX: i64 = 100 * 3600;
/// The last year of times in UTC.
const YEAR_MAX: i64 = 9999;
/// After how many years, and so many days, the calendar is the same: a multiple of the 400 years after which it
/// repeats, large enough to have no times in the year below.
const CALENDAR_YEARS: i64 = 26 * 400;
const CALENDAR_DAYS: i64 = 26 * 146_097;
/// Represents the year after the last one.
const LATER_YEAR: i64 = YEAR_MAX + 1 - CALENDAR_YEARS;

/// Declares parts of a time: each in UTC, and in a time zone.
macro_rules! parts {
    ($($name:literal, $id:literal, $zoned:literal => $part:expr;)*) => {
        declarations! {$(
            $name, $id, ".timestamp -> int" => |_, args| part_of(args, $part);
            $name, $zoned, ".timestamp, string -> int" => |_, args| part_of(args, $part);
        )*}
    };
}

pub(crate) const PARTS: &[Declaration] = parts! {
    "getFullYear", "timestamp_to_year", "timestamp_to_year_with_tz" => |time| match i64::from(time.year()) {
        LATER_YEAR => YEAR_MAX + 1,
        year => year,
    };
    "getMonth", "timestamp_to_month", "timestamp_to_month_with_tz" => |time| i64::from(time.month()) - 1;
    "getDayOfYear", "timestamp_to_day_of_year", "timestamp_to_day_of_year_with_tz" => |time| i64::from(time.day_of_year()) - 1;
    "getDayOfMonth", "timestamp_to_day_of_month", "timestamp_to_day_of_month_with_tz" => |time| i64::from(time.day()) - 1;
    "getDate", "timestamp_to_day_of_month_1_based", "timestamp_to_day_of_month_1_based_with_tz" => |time| time.day().into();
    "getDayOfWeek", "timestamp_to_day_of_week", "timestamp_to_day_of_week_with_tz" => |time| time.weekday().to_sunday_zero_offset().into();
    "getHours", "timestamp_to_hours", "timestamp_to_hours_with_tz" => |time| time.hour().into();
    "getMinutes", "timestamp_to_minutes", "timestamp_to_minutes_with_tz" => |time| time.minute().into();
    "getSeconds", "timestamp_to_seconds", "timestamp_to_seconds_tz" => |time| time.second().into();
    "getMilliseconds", "timestamp_to_milliseconds", "timestamp_to_milliseconds_with_tz" => |time| time.millisecond().into();
};

pub(crate) const DECLARATIONS: &[Declaration] = declarations! {
    "getHours", "duration_to_hours", ".duration -> int" => |_, args| whole(args, 3600 * SECOND);
    "getMinutes", "duration_to_minutes", ".duration -> int" => |_, args| whole(args, 60 * SECOND);
    "getSeconds", "duration_to_seconds", ".duration -> int" => |_, args| whole(args, SECOND);
    "getMilliseconds", "duration_to_milliseconds", ".duration -> int" => |_, args| whole(args, SECOND / 1000);
};

/// The number of whole units that a duration has.
fn whole(args: &[CelValue], unit: i64) -> EvalResult {
    match args {
        [CelValue::Duration(nanos)] => Ok(CelValue::Int(nanos / unit)),
        _ => Err(EvaluationError::no_such_overload()),
    }
}

/// A time, and the offset from UTC in seconds that its text had.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Time {
    /// Whole seconds since 1970, rounded down.
    seconds: i64,
    nanos: u32,
    offset: i32,
}

impl Time {
    fn new(seconds: i64, nanos: u32, offset: i32) -> Result<Self, EvaluationError> {
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
    pub(crate) const fn of_instant((seconds, nanos): (i64, u32)) -> Self {
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
    fn civil(self, offset: i64) -> Result<DateTime, EvaluationError> {
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

    fn plus(self, nanos: i128) -> EvalResult {
        let total = i128::from(self.seconds) * i128::from(SECOND) + i128::from(self.nanos) + nanos;
        let second = i128::from(SECOND);
        let seconds = i64::try_from(total.div_euclid(second)).map_err(|_| overflow())?;
        let nanos = u32::try_from(total.rem_euclid(second)).map_err(|_| overflow())?;
        Self::new(seconds, nanos, self.offset).map(CelValue::Timestamp)
    }

    fn since(self, earlier: Self) -> i128 {
        let nanos =
            |time: Self| i128::from(time.seconds) * i128::from(SECOND) + i128::from(time.nanos);
        nanos(self) - nanos(earlier)
    }

    /// The whole seconds since 1970, rounded down.
    pub(crate) const fn seconds(self) -> i64 {
        self.seconds
    }

    /// The time in RFC 3339, with as many digits as it needs.
    pub(super) fn text(self) -> Result<String, EvaluationError> {
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

fn part_of(args: &[CelValue], part: fn(DateTime) -> i64) -> EvalResult {
    let (time, offset) = match args {
        [CelValue::Timestamp(time)] => (time, 0),
        [CelValue::Timestamp(time), CelValue::String(zone)] => (time, offset(zone, *time)?),
        _ => return Err(EvaluationError::no_such_overload()),
    };
    Ok(CelValue::Int(part(time.civil(offset)?)))
}

/// The offset from UTC in seconds of a time zone, by its name or as hours and minutes.
fn offset(zone: &str, time: Time) -> Result<i64, EvaluationError> {
    let unknown = || EvaluationError::failed(format!("unknown time zone {zone}"));
    let Some((hours, minutes)) = zone.split_once(':') else {
        if matches!(zone, "" | "UTC") {
            return Ok(0);
        }
        let zone = TimeZone::get(zone).map_err(|_| unknown())?;
        // Beyond the times that the database covers, offsets no longer change.
        let nearest = if time.seconds < 0 {
            Timestamp::MIN
        } else {
            Timestamp::MAX
        };
        let instant = Timestamp::from_second(time.seconds).unwrap_or(nearest);
        return Ok(zone.to_offset(instant).seconds().into());
    };
    let (hours, minutes): (i64, i64) = (
        hours.parse().map_err(|_| unknown())?,
        minutes.parse().map_err(|_| unknown())?,
    );
    let minutes = if zone.starts_with('-') {
        -minutes
    } else {
        minutes
    };
    hours
        .checked_mul(60)
        .and_then(|hours| hours.checked_add(minutes))
        .and_then(|minutes| minutes.checked_mul(60))
        .filter(|offset| offset.abs() <= OFFSET_MAX)
        .ok_or_else(unknown)
}

fn overflow() -> EvaluationError {
    EvaluationError::failed("timestamp overflow")
}

/// The seconds of a duration.
pub(super) fn seconds_of(nanos: i64) -> f64 {
    (nanos / SECOND) as f64 + (nanos % SECOND) as f64 / 1e9
}

pub(super) fn from_seconds(seconds: i64) -> EvalResult {
    Time::new(seconds, 0, 0).map(CelValue::Timestamp)
}

/// Reads a time in RFC 3339. None if the text is not one.
pub(super) fn parse(text: &str) -> Option<EvalResult> {
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
    Some(Time::new(seconds, nanos, offset).map(CelValue::Timestamp))
}

pub(super) fn add(a: &CelValue, b: &CelValue) -> EvalResult {
    match (a, b) {
        (CelValue::Duration(a), CelValue::Duration(b)) => a
            .checked_add(*b)
            .map(CelValue::Duration)
            .ok_or_else(|| EvaluationError::failed("integer overflow")),
        (CelValue::Timestamp(time), CelValue::Duration(nanos))
        | (CelValue::Duration(nanos), CelValue::Timestamp(time)) => time.plus((*nanos).into()),
        _ => Err(EvaluationError::no_such_overload()),
    }
}

pub(super) fn subtract(a: &CelValue, b: &CelValue) -> EvalResult {
    match (a, b) {
        (CelValue::Duration(a), CelValue::Duration(b)) => a
            .checked_sub(*b)
            .map(CelValue::Duration)
            .ok_or_else(|| EvaluationError::failed("integer overflow")),
        (CelValue::Timestamp(time), CelValue::Duration(nanos)) => time.plus(-i128::from(*nanos)),
        (CelValue::Timestamp(a), CelValue::Timestamp(b)) => i64::try_from(a.since(*b))
            .map(CelValue::Duration)
            .map_err(|_| EvaluationError::failed("integer overflow")),
        _ => Err(EvaluationError::no_such_overload()),
    }
}

/// Returns whether a text is a duration.
pub(crate) fn valid_duration(text: &str) -> bool {
    text.parse::<berth_api::GoDuration>().is_ok()
}

/// Returns whether a text is a time.
pub(crate) fn valid_timestamp(text: &str) -> bool {
    matches!(parse(text), Some(Ok(_)))
}

/// Returns whether a number of seconds since 1970 is a time.
pub(crate) fn valid_timestamp_of(seconds: i64) -> bool {
    from_seconds(seconds).is_ok()
}
