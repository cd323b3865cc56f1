//! Schedules of CronJobs: five fields (minute, hour, day of month, month, day of week), a word such as `@daily`, or
//! `@every` with a duration.
//!
//! As in the library that Kubernetes uses (robfig/cron): a day matches if both its fields match, or, if neither is `*`,
//! if one of them does. No time in the hour that a clock change skips is due; times in the repeated hour are due twice.

use berth_api::go_duration::GoDuration;
use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

/// The number of years that are searched for the next time of a schedule.
const YEARS_MAX: i16 = 5;
const MONTHS: [&str; 12] = [
    "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
];
const DAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

/// A time zone by its IANA name; only UTC if the system has no time zone database.
pub fn zone(name: &str) -> Option<TimeZone> {
    match name {
        "UTC" | "Etc/UTC" => Some(TimeZone::UTC),
        name => TimeZone::get(name).ok(),
    }
}

/// One field: a bit for each matching value, and whether it is `*`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct CronField {
    bits: u64,
    any: bool,
}

/// The five fields.
#[derive(Debug, Clone, PartialEq, Eq)]
struct CronFields {
    minute: CronField,
    hour: CronField,
    day: CronField,
    month: CronField,
    weekday: CronField,
}

/// A parsed schedule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule(FieldKind);

#[derive(Debug, Clone, PartialEq, Eq)]
enum FieldKind {
    Fields(CronFields),
    /// At this interval, in whole seconds.
    Every(SignedDuration),
}

impl Schedule {
    /// Parses a schedule.
    ///
    /// # Errors
    /// The error of the library about the schedule.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("empty spec string".to_owned());
        }
        // A time zone in the schedule is checked and has no effect; `timeZone` of the spec decides.
        let text = if text.starts_with("TZ=") || text.starts_with("CRON_TZ=") {
            without_zone(text)?
        } else {
            text
        };
        let text = match text {
            "@yearly" | "@annually" => "0 0 1 1 *",
            "@monthly" => "0 0 1 * *",
            "@weekly" => "0 0 * * 0",
            "@daily" | "@midnight" => "0 0 * * *",
            "@hourly" => "0 * * * *",
            word if word.starts_with('@') => return every(word),
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
        Ok(Self(FieldKind::Fields(CronFields {
            minute: CronField::parse(minute, 0, 59, &[])?,
            hour: CronField::parse(hour, 0, 23, &[])?,
            day: CronField::parse(day, 1, 31, &[])?,
            month: CronField::parse(month, 1, 12, &MONTHS)?,
            weekday: CronField::parse(weekday, 0, 6, &DAYS)?,
        })))
    }

    /// The first time of the schedule after `after`; `None` when there is none for years.
    pub fn next_after(&self, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let after = Timestamp::from_second(after.as_second()).ok()?;
        match &self.0 {
            FieldKind::Fields(fields) => fields.next_after(after, zone),
            FieldKind::Every(delay) => after.checked_add(*delay).ok(),
        }
    }
}

/// The schedule behind a time zone, which must be known.
fn without_zone(text: &str) -> Result<&str, String> {
    let Some((zone_text, rest)) = text.split_once(' ') else {
        return Err(
            "invalid schedule format: runtime error: slice bounds out of range [:-1]".to_owned(),
        );
    };
    let name = zone_text.split_once('=').map_or("", |(_, name)| name);
    if !name.is_empty() && name != "Local" && zone(name).is_none() {
        return Err(format!(
            "provided bad location {name}: unknown time zone {name}"
        ));
    }
    Ok(rest.trim())
}

/// `@every` with a duration: at least a second, in whole seconds.
fn every(text: &str) -> Result<Schedule, String> {
    let Some(duration) = text.strip_prefix("@every ") else {
        return Err(format!("unrecognized descriptor: {text}"));
    };
    let duration: GoDuration = duration
        .parse()
        .map_err(|e| format!("failed to parse duration {text}: {e}"))?;
    let seconds = (duration.as_nanos() / 1_000_000_000).max(1);
    Ok(Schedule(FieldKind::Every(SignedDuration::from_secs(
        seconds,
    ))))
}

/// A local time in a zone as in Go's `time.Date`: in the hour that a clock change skips, with one of the two offsets.
fn instant(zone: &TimeZone, local: DateTime) -> Option<Timestamp> {
    let as_utc = TimeZone::UTC.to_timestamp(local).ok()?;
    let shifted = |by: Timestamp| {
        let offset = i64::from(zone.to_offset(by).seconds());
        as_utc.checked_sub(SignedDuration::from_secs(offset)).ok()
    };
    shifted(shifted(as_utc)?)
}

impl CronFields {
    /// Determines the month, the day, the hour and the minute in turn. A field that overflows restarts the search,
    /// because the fields above it have changed.
    fn next_after(&self, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let mut search = TimeSearch {
            at: after.checked_add(SignedDuration::from_secs(1)).ok()?,
            moved: false,
            zone,
        };
        let year_max = search.local().year().checked_add(YEARS_MAX)?;
        while search.local().year() <= year_max {
            if self.find_day(&mut search)? && self.find_time(&mut search)? {
                return Some(search.at);
            }
        }
        None
    }

    /// Advances to a matching day; false if the month or the year changed.
    fn find_day(&self, search: &mut TimeSearch<'_>) -> Option<bool> {
        while !self.month.has(search.local().month()) {
            let start = search.local().date().first_of_month();
            search.start_at(start.to_datetime(jiff::civil::Time::midnight()))?;
            let next = search.local().checked_add(jiff::Span::new().months(1));
            search.at = instant(search.zone, next.ok()?)?;
            if search.local().month() == 1 {
                return Some(false);
            }
        }
        while !self.matches_day(search.local().date()) {
            let start = search.local().date();
            search.start_at(start.to_datetime(jiff::civil::Time::midnight()))?;
            let next = search.local().checked_add(jiff::Span::new().days(1));
            search.at = instant(search.zone, next.ok()?)?;
            // Midnight may be left out by a change of the clock.
            let hour = i64::from(search.local().hour());
            let shift = if hour > 12 { 24 - hour } else { -hour };
            search.at = search
                .at
                .checked_add(SignedDuration::from_hours(shift))
                .ok()?;
            if search.local().day() == 1 {
                return Some(false);
            }
        }
        Some(true)
    }

    /// Advances to a matching hour and minute; false if the day or the hour changed.
    fn find_time(&self, search: &mut TimeSearch<'_>) -> Option<bool> {
        while !self.hour.has(search.local().hour()) {
            let local = search.local();
            search.start_at(local.date().at(local.hour(), 0, 0, 0))?;
            search.at = search.at.checked_add(SignedDuration::from_hours(1)).ok()?;
            if search.local().hour() == 0 {
                return Some(false);
            }
        }
        while !self.minute.has(search.local().minute()) {
            search.start_at_minute()?;
            search.at = search.at.checked_add(SignedDuration::from_mins(1)).ok()?;
            if search.local().minute() == 0 {
                return Some(false);
            }
        }
        if search.local().second() != 0 {
            search.moved = false;
            search.start_at_minute()?;
            search.at = search.at.checked_add(SignedDuration::from_mins(1)).ok()?;
            return Some(false);
        }
        Some(true)
    }

    fn matches_day(&self, date: Date) -> bool {
        let day = self.day.has(date.day());
        let weekday = self.weekday.has(date.weekday().to_sunday_zero_offset());
        if self.day.any || self.weekday.any {
            day && weekday
        } else {
            day || weekday
        }
    }
}

/// The time that is tried.
struct TimeSearch<'a> {
    at: Timestamp,
    /// Whether the time has been moved to the start of a field.
    moved: bool,
    zone: &'a TimeZone,
}

impl TimeSearch<'_> {
    fn local(&self) -> DateTime {
        self.zone.to_datetime(self.at)
    }

    /// Moves to the start of a part, once.
    fn start_at(&mut self, start: DateTime) -> Option<()> {
        if !std::mem::replace(&mut self.moved, true) {
            self.at = instant(self.zone, start)?;
        }
        Some(())
    }

    /// Moves to the start of the minute, once.
    fn start_at_minute(&mut self) -> Option<()> {
        if !std::mem::replace(&mut self.moved, true) {
            let seconds = self.at.as_second();
            self.at = Timestamp::from_second(seconds - seconds.rem_euclid(60)).ok()?;
        }
        Some(())
    }
}

impl CronField {
    fn has(self, value: i8) -> bool {
        self.bits & (1 << value) != 0
    }

    /// A list of `*`, `a`, `a-b`, each with `/step`; `names` are aliases of numbers, from `min` on. Empty entries of
    /// the list are skipped.
    fn parse(text: &str, min: u64, max: u64, names: &[&str]) -> Result<Self, String> {
        let mut field = Self {
            bits: 0,
            any: false,
        };
        for part in text.split(',').filter(|part| !part.is_empty()) {
            field.add(part, min, max, names)?;
        }
        Ok(field)
    }

    /// Adds the values of one entry.
    fn add(&mut self, part: &str, min: u64, max: u64, names: &[&str]) -> Result<(), String> {
        let range_and_step: Vec<&str> = part.split('/').collect();
        let low_and_high: Vec<&str> = range_and_step.first().unwrap_or(&"").split('-').collect();
        let named = |text| match names.iter().position(|n| n.eq_ignore_ascii_case(text)) {
            Some(i) => Ok(min + u64::try_from(i).unwrap_or(0)),
            None => number(text),
        };
        let mut any = false;
        let (low, mut high) = match low_and_high.as_slice() {
            // Text after a star is not read.
            ["*" | "?", ..] => {
                any = true;
                (min, max)
            }
            [one] => {
                let one = named(one)?;
                (one, one)
            }
            [low, high] => (named(low)?, named(high)?),
            [low, ..] => {
                named(low)?;
                return Err(format!("too many hyphens: {part}"));
            }
            [] => (min, max),
        };
        let step = match range_and_step.as_slice() {
            [_] => 1,
            [_, step] => {
                let step = number(step)?;
                if low_and_high.len() == 1 {
                    high = max;
                }
                any &= step <= 1;
                step
            }
            _ => return Err(format!("too many slashes: {part}")),
        };
        // Seven is Sunday in some dialects, but not in this one.
        let fault = if low < min {
            format!("beginning of range ({low}) below minimum ({min}): {part}")
        } else if high > max {
            format!("end of range ({high}) above maximum ({max}): {part}")
        } else if low > high {
            format!("beginning of range ({low}) beyond end of range ({high}): {part}")
        } else if step == 0 {
            format!("step of range should be a positive number: {part}")
        } else {
            let mut value = low;
            while value <= high {
                self.bits |= 1 << value;
                value = value.saturating_add(step);
            }
            self.any |= any;
            return Ok(());
        };
        Err(fault)
    }
}

/// A number as Go's `strconv.Atoi` reads it, which must not be negative.
fn number(text: &str) -> Result<u64, String> {
    use std::num::IntErrorKind::{NegOverflow, PosOverflow};
    let number: i64 = text.parse().map_err(|e: std::num::ParseIntError| {
        let fault = match e.kind() {
            PosOverflow | NegOverflow => "value out of range",
            _ => "invalid syntax",
        };
        format!("failed to parse int from {text}: strconv.Atoi: parsing {text:?}: {fault}")
    })?;
    u64::try_from(number).map_err(|_| format!("negative number ({number}) not allowed: {text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// API-74.
    #[test]
    fn the_next_time_of_a_schedule() {
        let cases = [
            // (schedule, after, the next time)
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
                "@weekly",
                "2026-01-01T00:00:00Z",
                Some("2026-01-04T00:00:00Z"),
            ),
            (
                "@yearly",
                "2026-01-01T00:00:00Z",
                Some("2027-01-01T00:00:00Z"),
            ),
            (
                "30 6 * feb mon-fri",
                "2026-01-15T00:00:00Z",
                Some("2026-02-02T06:30:00Z"),
            ),
            // Either day of month or day of week: Friday the 2nd is earlier than the 13th.
            (
                "0 0 13 * fri",
                "2026-01-01T00:00:00Z",
                Some("2026-01-02T00:00:00Z"),
            ),
            // For this rule, a star with a step does not count as a star, except with the step 1.
            (
                "0 0 13 * */2",
                "2026-01-01T00:00:00Z",
                Some("2026-01-03T00:00:00Z"),
            ),
            (
                "0 0 13 * */1",
                "2026-01-01T00:00:00Z",
                Some("2026-01-13T00:00:00Z"),
            ),
            (
                "0 12 29 2 *",
                "2026-01-01T00:00:00Z",
                Some("2028-02-29T12:00:00Z"),
            ),
            ("0 0 31 2 *", "2026-01-01T00:00:00Z", None),
            // Text after a star is not read; empty entries are skipped.
            (
                "*-5 * * * *",
                "2026-01-01T00:00:30Z",
                Some("2026-01-01T00:01:00Z"),
            ),
            (
                "0 0 * * mon-fri,",
                "2026-01-02T00:00:00Z",
                Some("2026-01-05T00:00:00Z"),
            ),
            ("0 0 * * ,", "2026-01-02T00:00:00Z", None),
            (
                "50/5 * * * *",
                "2026-01-01T00:56:00Z",
                Some("2026-01-01T01:50:00Z"),
            ),
            // Relative to the time before, in whole seconds, at least one.
            (
                "@every 5m",
                "2026-01-01T00:01:17Z",
                Some("2026-01-01T00:06:17Z"),
            ),
            (
                "@every 1h30m",
                "2026-01-01T23:00:00.7Z",
                Some("2026-01-02T00:30:00Z"),
            ),
            (
                "@every 90.9s",
                "2026-01-01T00:00:00Z",
                Some("2026-01-01T00:01:30Z"),
            ),
            (
                "@every 1ms",
                "2026-01-01T00:00:00Z",
                Some("2026-01-01T00:00:01Z"),
            ),
            (
                "@every -5m",
                "2026-01-01T00:00:00Z",
                Some("2026-01-01T00:00:01Z"),
            ),
        ];
        for (text, after, expect) in cases {
            let schedule = Schedule::parse(text).expect(text);
            let next = schedule.next_after(after.parse().expect("a time"), &TimeZone::UTC);
            assert_eq!(next.map(|t| t.to_string()).as_deref(), expect, "{text}");
        }
    }

    #[test]
    fn changes_of_the_clock_skip_times_and_repeat_them() {
        // The clock is set from 02:00 to 03:00 on 8 March 2026, and from 02:00 to 01:00 on 1 November.
        let rule = "EST5EDT,M3.2.0,M11.1.0";
        let zone = TimeZone::posix(rule).expect("a zone");
        let cases = [
            ("30 2 * * *", "2026-03-07T12:00:00Z", "2026-03-09T06:30:00Z"),
            ("30 1 * * *", "2026-11-01T05:00:00Z", "2026-11-01T05:30:00Z"),
            ("30 1 * * *", "2026-11-01T05:30:00Z", "2026-11-01T06:30:00Z"),
            ("0 * * * *", "2026-03-08T06:00:00Z", "2026-03-08T07:00:00Z"),
            ("0 12 * * *", "2026-03-08T00:00:00Z", "2026-03-08T16:00:00Z"),
        ];
        for (text, after, expect) in cases {
            let schedule = Schedule::parse(text).expect(text);
            let next = schedule.next_after(after.parse().expect("a time"), &zone);
            assert_eq!(
                next.map(|t| t.to_string()).as_deref(),
                Some(expect),
                "{text}"
            );
        }
    }

    #[test]
    fn malformed_schedules_are_reported_in_the_words_of_the_library() {
        let cases = [
            ("", "empty spec string"),
            (" ", "expected exactly 5 fields, found 0: []"),
            ("* * * *", "expected exactly 5 fields, found 4: [* * * *]"),
            (" @daily", "expected exactly 5 fields, found 1: [@daily]"),
            ("60 * * * *", "end of range (60) above maximum (59): 60"),
            ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
            ("* * * * 7", "end of range (7) above maximum (6): 7"),
            (
                "5-1 * * * *",
                "beginning of range (5) beyond end of range (1): 5-1",
            ),
            (
                "*/0 * * * *",
                "step of range should be a positive number: */0",
            ),
            ("*/-1 * * * *", "negative number (-1) not allowed: -1"),
            ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
            ("1/2/3 * * * *", "too many slashes: 1/2/3"),
            (
                "x * * * *",
                "failed to parse int from x: strconv.Atoi: parsing \"x\": invalid syntax",
            ),
            (
                "-1 * * * *",
                "failed to parse int from : strconv.Atoi: parsing \"\": invalid syntax",
            ),
            (
                "99999999999999999999 * * * *",
                "failed to parse int from 99999999999999999999: strconv.Atoi: parsing \"99999999999999999999\": value out of range",
            ),
            ("@never", "unrecognized descriptor: @never"),
            ("@every", "unrecognized descriptor: @every"),
            (
                "@every 5",
                "failed to parse duration @every 5: time: missing unit in duration \"5\"",
            ),
            (
                "@every ",
                "failed to parse duration @every : time: invalid duration \"\"",
            ),
            (
                "@every 1d",
                "failed to parse duration @every 1d: time: unknown unit \"d\" in duration \"1d\"",
            ),
            (
                "TZ=No/Where 0 0 * * *",
                "provided bad location No/Where: unknown time zone No/Where",
            ),
        ];
        for (text, reason) in cases {
            assert_eq!(Schedule::parse(text), Err(reason.to_owned()), "{text}");
        }
    }
}
