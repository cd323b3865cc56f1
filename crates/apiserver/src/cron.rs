//! Schedules of CronJobs: five fields (minute, hour, day of month, month, day of week) or a word such as `@daily`.
//!
//! As in the library that Kubernetes uses (robfig/cron): a day matches when both its fields match, or, when neither is
//! `*`, when one of them does.

use jiff::civil::{Date, DateTime, Time};
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};

/// A schedule that matches no day within so many years has no next time.
const YEARS_MAX: i16 = 5;
const MONTHS: [&str; 12] = [
    "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
];
const DAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

/// A time zone by its IANA name; nothing else than UTC where the system has no time zone database.
pub(crate) fn zone(name: &str) -> Option<TimeZone> {
    match name {
        "UTC" | "Etc/UTC" => Some(TimeZone::UTC),
        name => TimeZone::get(name).ok(),
    }
}

/// One field: a bit for each matching value, and whether it is `*`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Field {
    bits: u64,
    any: bool,
}

/// A parsed schedule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Schedule {
    minute: Field,
    hour: Field,
    day: Field,
    month: Field,
    weekday: Field,
}

impl Schedule {
    /// Parses a schedule.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let text = match text.trim() {
            "@yearly" | "@annually" => "0 0 1 1 *",
            "@monthly" => "0 0 1 * *",
            "@weekly" => "0 0 * * 0",
            "@daily" | "@midnight" => "0 0 * * *",
            "@hourly" => "0 * * * *",
            word if word.starts_with('@') => {
                return Err(format!("unrecognized descriptor: {word}"));
            }
            text => text,
        };
        let fields: Vec<&str> = text.split_whitespace().collect();
        let [minute, hour, day, month, weekday] = fields.as_slice() else {
            return Err(format!(
                "expected exactly 5 fields, found {}: [{}]",
                fields.len(),
                fields.join(" ")
            ));
        };
        Ok(Self {
            minute: Field::parse(minute, 0, 59, &[])?,
            hour: Field::parse(hour, 0, 23, &[])?,
            day: Field::parse(day, 1, 31, &[])?,
            month: Field::parse(month, 1, 12, &MONTHS)?,
            weekday: Field::parse(weekday, 0, 6, &DAYS)?,
        })
    }

    /// The first time of the schedule after `after`; `None` when there is none for years.
    pub(crate) fn next_after(&self, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let start = zone.to_datetime(after);
        let mut date = start.date();
        let last = start.year().checked_add(YEARS_MAX)?;
        let mut from = minutes(start.time()) + 1;
        while date.year() <= last {
            if self.matches_day(date) {
                let times = (from..24 * 60).filter(|m| self.matches_minute(*m));
                for minute in times {
                    let time = Time::new(
                        i8::try_from(minute / 60).ok()?,
                        i8::try_from(minute % 60).ok()?,
                        0,
                        0,
                    )
                    .ok()?;
                    let found = zone.to_timestamp(DateTime::from_parts(date, time)).ok()?;
                    if found > after {
                        return Some(found);
                    }
                }
            }
            from = 0;
            date = date.checked_add(1.day()).ok()?;
        }
        None
    }

    fn matches_day(&self, date: Date) -> bool {
        let day = self.day.has(date.day().unsigned_abs().into());
        let weekday = self
            .weekday
            .has(date.weekday().to_sunday_zero_offset().unsigned_abs().into());
        let either = !self.day.any && !self.weekday.any;
        let fits = if either {
            day || weekday
        } else {
            day && weekday
        };
        fits && self.month.has(date.month().unsigned_abs().into())
    }

    fn matches_minute(&self, minute: u32) -> bool {
        self.hour.has(minute / 60) && self.minute.has(minute % 60)
    }
}

fn minutes(time: Time) -> u32 {
    u32::from(time.hour().unsigned_abs()) * 60 + u32::from(time.minute().unsigned_abs())
}

impl Field {
    fn has(self, value: u32) -> bool {
        self.bits & (1 << value) != 0
    }

    /// A list of `*`, `a`, `a-b`, each with `/step`; `names` stand for numbers, the first for `min`.
    fn parse(text: &str, min: u32, max: u32, names: &[&str]) -> Result<Self, String> {
        let mut field = Self {
            bits: 0,
            any: false,
        };
        for part in text.split(',') {
            let (range, step) = match part.split_once('/') {
                Some((range, step)) => (range, Some(number(step, 0, &[])?)),
                None => (part, None),
            };
            let (low, high) = match (range, range.split_once('-')) {
                ("*" | "?", _) => {
                    field.any |= step.is_none_or(|s| s == 1);
                    (min, max)
                }
                (_, Some((low, high))) => (number(low, min, names)?, number(high, min, names)?),
                (one, None) => {
                    let one = number(one, min, names)?;
                    (one, if step.is_some() { max } else { one })
                }
            };
            // Seven is Sunday in some dialects, but not here.
            if low < min {
                return Err(format!(
                    "beginning of range ({low}) below minimum ({min}): {part}"
                ));
            }
            if high > max {
                return Err(format!(
                    "end of range ({high}) above maximum ({max}): {part}"
                ));
            }
            if low > high {
                return Err(format!(
                    "beginning of range ({low}) beyond end of range ({high}): {part}"
                ));
            }
            let step = step.unwrap_or(1);
            if step == 0 {
                return Err(format!("step of range should be a positive number: {part}"));
            }
            let mut value = low;
            while value <= high {
                field.bits |= 1 << value;
                value = value.saturating_add(step);
            }
        }
        Ok(field)
    }
}

fn number(text: &str, first: u32, names: &[&str]) -> Result<u32, String> {
    let lower = text.to_lowercase();
    if let Some(i) = names.iter().position(|name| *name == lower) {
        return Ok(first + u32::try_from(i).unwrap_or(0));
    }
    text.parse().map_err(|_| {
        format!("failed to parse int from {text}: strconv.Atoi: parsing {text:?}: invalid syntax")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_time_of_a_schedule() {
        let cases = [
            (
                "*/15 * * * *",
                "2026-01-01T00:00:00Z",
                Some("2026-01-01T00:15:00Z"),
            ),
            (
                "0 0 * * *",
                "2026-01-01T00:00:00Z",
                Some("2026-01-02T00:00:00Z"),
            ),
            (
                "@hourly",
                "2026-01-01T23:59:59Z",
                Some("2026-01-02T00:00:00Z"),
            ),
            (
                "30 6 * feb mon-fri",
                "2026-01-15T00:00:00Z",
                Some("2026-02-02T06:30:00Z"),
            ),
            // Either day of month or day of week: Friday the 2nd comes before the 13th.
            (
                "0 0 13 * fri",
                "2026-01-01T00:00:00Z",
                Some("2026-01-02T00:00:00Z"),
            ),
            (
                "0 12 29 2 *",
                "2026-01-01T00:00:00Z",
                Some("2028-02-29T12:00:00Z"),
            ),
            ("0 0 31 2 *", "2026-01-01T00:00:00Z", None),
        ];
        for (schedule, after, expect) in cases {
            let schedule = Schedule::parse(schedule).expect(schedule);
            let next = schedule.next_after(after.parse().expect("a time"), &TimeZone::UTC);
            assert_eq!(
                next.map(|t| t.to_string()).as_deref(),
                expect,
                "{schedule:?}"
            );
        }
    }

    #[test]
    fn malformed_schedules_are_refused() {
        for bad in [
            "",
            "* * * *",
            "60 * * * *",
            "* * * * 7",
            "5-1 * * * *",
            "*/0 * * * *",
            "x * * * *",
            "@never",
        ] {
            assert!(Schedule::parse(bad).is_err(), "{bad}");
        }
    }
}
