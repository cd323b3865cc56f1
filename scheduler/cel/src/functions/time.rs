//! Times and durations.
//!
//! Times are within the years 1 to 9999, in UTC. Parts of a time are in UTC unless a time zone is given: by its name in
//! the IANA database, or by its offset (`-08:00`).

use super::Declaration;
use crate::error::EvaluationError;
use crate::value::{CelValue, EvalResult, LATER_YEAR, SECOND, Time, YEAR_MAX, parse_time};
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

/// The largest offset from UTC, in seconds, that a time zone can be given as.
const OFFSET_MAX: i64 = 100 * 3600;
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
        let nearest = if time.seconds() < 0 {
            Timestamp::MIN
        } else {
            Timestamp::MAX
        };
        let instant = Timestamp::from_second(time.seconds()).unwrap_or(nearest);
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

/// The seconds of a duration.
pub(super) fn seconds_of(nanos: i64) -> f64 {
    (nanos / SECOND) as f64 + (nanos % SECOND) as f64 / 1e9
}

pub(super) fn from_seconds(seconds: i64) -> EvalResult {
    Time::new(seconds, 0, 0).map(CelValue::Timestamp)
}

pub(super) fn add(a: &CelValue, b: &CelValue) -> EvalResult {
    match (a, b) {
        (CelValue::Duration(a), CelValue::Duration(b)) => a
            .checked_add(*b)
            .map(CelValue::Duration)
            .ok_or_else(|| EvaluationError::failed("integer overflow")),
        (CelValue::Timestamp(time), CelValue::Duration(nanos))
        | (CelValue::Duration(nanos), CelValue::Timestamp(time)) => {
            time.plus((*nanos).into()).map(CelValue::Timestamp)
        }
        _ => Err(EvaluationError::no_such_overload()),
    }
}

pub(super) fn subtract(a: &CelValue, b: &CelValue) -> EvalResult {
    match (a, b) {
        (CelValue::Duration(a), CelValue::Duration(b)) => a
            .checked_sub(*b)
            .map(CelValue::Duration)
            .ok_or_else(|| EvaluationError::failed("integer overflow")),
        (CelValue::Timestamp(time), CelValue::Duration(nanos)) => {
            time.plus(-i128::from(*nanos)).map(CelValue::Timestamp)
        }
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
    matches!(parse_time(text), Some(Ok(_)))
}

/// Returns whether a number of seconds since 1970 is a time.
pub(crate) fn valid_timestamp_of(seconds: i64) -> bool {
    from_seconds(seconds).is_ok()
}
