//! Times as Go reads and writes them in objects: `2026-01-02T03:04:05Z`.
//!
//! An API server stores any number of seconds. Clients that write JSON reach the years -1 to 10000, because a time zone
//! moves the first and the last of them, and clients that write protobuf every year. So a text that an API server sends
//! may have a year of another length, which Go itself does not read ([`GoTime::read`]). A text of a client is read as
//! `time.Parse` does ([`GoTime::parse`]).

use std::fmt::Write as _;

const SECONDS_PER_DAY: i64 = 86_400;
const NANOS: i64 = 1_000_000_000;
/// Greater years are outside the range of seconds in any case.
const YEAR_MAX: i64 = 1_000_000_000_000;

/// The layouts of times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeLayout {
    /// `metav1.Time`: whole seconds. A fraction is read and dropped.
    Seconds,
    /// `metav1.MicroTime`: six decimals.
    Micros,
}

impl TimeLayout {
    /// The layout as Go writes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Seconds => "2006-01-02T15:04:05Z07:00",
            Self::Micros => "2006-01-02T15:04:05.000000Z07:00",
        }
    }
}

/// The reason why a text is no time, in the words of Go's package `time`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct GoTimeError(String);

/// A point in time: seconds since the Unix epoch, and nanoseconds from 0 to 999,999,999.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GoTime {
    seconds: i64,
    nanos: u32,
}

impl GoTime {
    /// The zero value of Go's `time.Time`, which API servers write as `null`.
    pub const ZERO: Self = Self {
        seconds: -62_135_596_800,
        nanos: 0,
    };

    /// From seconds and any number of nanoseconds, saturating.
    pub const fn new(seconds: i64, nanos: i64) -> Self {
        Self {
            seconds: seconds.saturating_add(nanos.div_euclid(NANOS)),
            nanos: nanos.rem_euclid(NANOS) as u32,
        }
    }

    /// Seconds since the Unix epoch.
    pub const fn seconds(self) -> i64 {
        self.seconds
    }

    /// Nanoseconds of the second.
    pub const fn nanos(self) -> u32 {
        self.nanos
    }

    /// Nanoseconds since the Unix epoch, saturating.
    pub fn as_nanos(self) -> i64 {
        let nanos = i128::from(self.seconds) * i128::from(NANOS) + i128::from(self.nanos);
        saturated(nanos)
    }

    /// Reads a time of a client as `time.Parse` does.
    ///
    /// # Errors
    /// When the text does not have the layout, or a number is out of range.
    pub fn parse(text: &str, layout: TimeLayout) -> Result<Self, GoTimeError> {
        Scanner::new(text, layout).time(false)
    }

    /// Reads a time that an API server wrote: of any year, with any fraction.
    ///
    /// # Errors
    /// When the text is no time.
    pub fn read(text: &str) -> Result<Self, GoTimeError> {
        Scanner::new(text, TimeLayout::Seconds).time(true)
    }

    /// The text in UTC, as API servers write it, truncated to the precision of the layout.
    pub fn text(self, layout: TimeLayout) -> String {
        let (year, month, day) = date_of(self.seconds.div_euclid(SECONDS_PER_DAY));
        let second = self.seconds.rem_euclid(SECONDS_PER_DAY);
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        let sign = if year < 0 { "-" } else { "" };
        let mut text = format!(
            "{sign}{:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}",
            year.unsigned_abs()
        );
        if layout == TimeLayout::Micros {
            let _ = write!(text, ".{:06}", self.nanos / 1000);
        }
        text.push('Z');
        text
    }
}

fn saturated(number: i128) -> i64 {
    i64::try_from(number).unwrap_or(if number < 0 { i64::MIN } else { i64::MAX })
}

/// Days from the Unix epoch to a date of the Gregorian calendar ([civil_from_days]). Years begin in March, so that the
/// leap day is the last of its year; 400 years have 146,097 days.
///
/// [civil_from_days]: https://howardhinnant.github.io/date_algorithms.html
fn days_to(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, year) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year * 365 + year / 4 - year / 100 + day_of_year - 719_468
}

/// The date of a number of days after the Unix epoch: year, month, day.
fn date_of(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = era * 400 + year + i64::from(month <= 2);
    (year, month, day)
}

fn days_in(year: i64, month: i64) -> i64 {
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    match month {
        2 => 28 + i64::from(is_leap),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Reads the elements of a layout one after the other, as `time.Parse` does.
struct Scanner<'a> {
    text: &'a [u8],
    layout: TimeLayout,
    rest: &'a [u8],
}

impl<'a> Scanner<'a> {
    fn new(text: &'a str, layout: TimeLayout) -> Self {
        let text = text.as_bytes();
        Self {
            text,
            layout,
            rest: text,
        }
    }

    /// The whole text; with `any_year`, as an API server writes it.
    fn time(mut self, any_year: bool) -> Result<GoTime, GoTimeError> {
        let year = if any_year {
            self.any_year()
        } else {
            self.year()
        }?;
        self.mark("-")?;
        let month = self.number("01", true)?;
        self.check((1..=12).contains(&month), "month")?;
        self.mark("-")?;
        let day = self.number("02", true)?;
        self.mark("T")?;
        // Go reads an hour of one digit.
        let hour = self.number("15", false)?;
        self.check(hour < 24, "hour")?;
        self.mark(":")?;
        let minute = self.number("04", true)?;
        self.check(minute < 60, "minute")?;
        self.mark(":")?;
        let second = self.number("05", true)?;
        self.check(second < 60, "second")?;
        let nanos = match self.layout {
            TimeLayout::Seconds => self.optional_fraction(),
            TimeLayout::Micros => self.micros()?,
        };
        let offset = self.zone()?;
        if !self.rest.is_empty() {
            return Err(self.error(&format!(": extra text: {}", quoted(self.rest))));
        }
        self.check((1..=days_in(year, month)).contains(&day), "day")?;
        let days = i128::from(days_to(year, month, day)) * i128::from(SECONDS_PER_DAY);
        let seconds = days + i128::from((hour * 60 + minute) * 60 + second - offset);
        Ok(GoTime::new(saturated(seconds), nanos))
    }

    fn year(&mut self) -> Result<i64, GoTimeError> {
        match self.rest.split_at_checked(4) {
            Some((digits, rest)) if digits.iter().all(u8::is_ascii_digit) => {
                self.rest = rest;
                Ok(value_of(digits))
            }
            _ => Err(self.unread(self.rest, "2006")),
        }
    }

    /// A year of four digits or more, possibly negative.
    fn any_year(&mut self) -> Result<i64, GoTimeError> {
        let whole = self.rest;
        let (is_negative, digits) = match whole {
            [b'-', digits @ ..] => (true, digits),
            digits => (false, digits),
        };
        let count = digits.iter().take_while(|byte| byte.is_ascii_digit());
        let (digits, rest) = digits.split_at(count.count());
        if digits.len() < 4 {
            return Err(self.unread(whole, "2006"));
        }
        self.rest = rest;
        let year = value_of(digits);
        Ok(if is_negative { -year } else { year })
    }

    /// A character between two numbers.
    fn mark(&mut self, mark: &'static str) -> Result<(), GoTimeError> {
        match self.rest.strip_prefix(mark.as_bytes()) {
            Some(rest) => {
                self.rest = rest;
                Ok(())
            }
            None => Err(self.unread(self.rest, mark)),
        }
    }

    /// A number of two digits, or of one unless it is `fixed`.
    fn number(&mut self, element: &'static str, fixed: bool) -> Result<i64, GoTimeError> {
        match self.rest {
            [tens @ b'0'..=b'9', ones @ b'0'..=b'9', rest @ ..] => {
                self.rest = rest;
                Ok(value_of(&[*tens, *ones]))
            }
            [digit @ b'0'..=b'9', rest @ ..] if !fixed => {
                self.rest = rest;
                Ok(value_of(&[*digit]))
            }
            _ => Err(self.unread(self.rest, element)),
        }
    }

    /// A fraction of any length, which the layout does not have.
    fn optional_fraction(&mut self) -> i64 {
        let [b'.' | b',', rest @ ..] = self.rest else {
            return 0;
        };
        let count = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (digits, rest) = rest.split_at(count);
        if digits.is_empty() {
            return 0;
        }
        self.rest = rest;
        nanos_of(&digits[..count.min(9)], 9)
    }

    /// The fraction of the layout. Go accepts a sign instead of the first digit.
    fn micros(&mut self) -> Result<i64, GoTimeError> {
        const ELEMENT: &str = ".000000";
        let whole = self.rest;
        let Some(([b'.' | b',', fraction @ ..], rest)) = whole.split_at_checked(ELEMENT.len())
        else {
            return Err(self.unread(whole, ELEMENT));
        };
        let (is_negative, digits) = match fraction {
            [sign @ (b'-' | b'+'), digits @ ..] => (*sign == b'-', digits),
            digits => (false, digits),
        };
        if !digits.iter().all(u8::is_ascii_digit) {
            return Err(self.unread(whole, ELEMENT));
        }
        self.rest = rest;
        let micros = value_of(digits);
        self.check(!is_negative || micros == 0, "fractional second")?;
        Ok(micros * 1000)
    }

    /// The offset from UTC in seconds.
    fn zone(&mut self) -> Result<i64, GoTimeError> {
        const ELEMENT: &str = "Z07:00";
        let whole = self.rest;
        if let [b'Z', rest @ ..] = whole {
            self.rest = rest;
            return Ok(0);
        }
        let [
            sign,
            hour_tens,
            hour_ones,
            b':',
            minute_tens,
            minute_ones,
            rest @ ..,
        ] = whole
        else {
            return Err(self.unread(whole, ELEMENT));
        };
        self.rest = rest;
        let number = |digits: [u8; 2]| {
            let are_digits = digits.iter().all(u8::is_ascii_digit);
            are_digits.then(|| value_of(&digits))
        };
        let hours = number([*hour_tens, *hour_ones]);
        let minutes = hours.and_then(|_| number([*minute_tens, *minute_ones]));
        // Go accepts offsets of 24 hours and of 60 minutes, and checks the sign last.
        self.check(minutes.is_none_or(|n| n <= 60), "time zone offset minute")?;
        self.check(hours.is_none_or(|n| n <= 24), "time zone offset hour")?;
        match (hours, minutes, sign) {
            (Some(hours), Some(minutes), b'+') => Ok((hours * 60 + minutes) * 60),
            (Some(hours), Some(minutes), b'-') => Ok(-(hours * 60 + minutes) * 60),
            _ => Err(self.unread(whole, ELEMENT)),
        }
    }

    fn check(&self, is_met: bool, what: &str) -> Result<(), GoTimeError> {
        if is_met {
            Ok(())
        } else {
            Err(self.error(&format!(": {what} out of range")))
        }
    }

    fn error(&self, reason: &str) -> GoTimeError {
        GoTimeError(format!("parsing time {}{reason}", quoted(self.text)))
    }

    /// The error of an element that is not in its place.
    fn unread(&self, value: &[u8], element: &str) -> GoTimeError {
        let layout = self.layout.as_str();
        let value = quoted(value);
        self.error(&format!(
            " as \"{layout}\": cannot parse {value} as \"{element}\""
        ))
    }
}

/// The number that these digits are, at most [`YEAR_MAX`].
fn value_of(digits: &[u8]) -> i64 {
    let digits = digits.iter().map(|digit| i64::from(digit - b'0'));
    digits.fold(0, |value, digit| (value * 10 + digit).min(YEAR_MAX))
}

/// The nanoseconds of the first digits of a fraction of `places`.
fn nanos_of(digits: &[u8], places: usize) -> i64 {
    (digits.len()..places).fold(value_of(digits), |value, _| value * 10)
}

/// A text in quotes, as Go's package `time` quotes it.
fn quoted(text: &[u8]) -> String {
    let mut quoted = String::from("\"");
    for byte in text {
        match byte {
            b'"' | b'\\' => {
                quoted.push('\\');
                quoted.push(char::from(*byte));
            }
            b' '..=0x7f => quoted.push(char::from(*byte)),
            byte => {
                let _ = write!(quoted, "\\x{byte:02x}");
            }
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The times that kube-apiserver 1.36.2 accepts, with the text that it stores.
    #[test]
    fn times_of_clients_are_read_as_go_reads_them() {
        use TimeLayout::{Micros, Seconds};
        for (layout, text, stored) in [
            (Seconds, "9999-12-31T23:59:59Z", "9999-12-31T23:59:59Z"),
            (
                Seconds,
                "9999-12-31T23:59:59-24:00",
                "10000-01-01T23:59:59Z",
            ),
            (
                Seconds,
                "0000-01-01T00:00:00+24:00",
                "-0001-12-31T00:00:00Z",
            ),
            (Seconds, "0000-02-29T00:00:00Z", "0000-02-29T00:00:00Z"),
            (Seconds, "0001-01-01T00:00:00Z", "0001-01-01T00:00:00Z"),
            (
                Seconds,
                "2026-01-01T02:00:00.5+02:00",
                "2026-01-01T00:00:00Z",
            ),
            (
                Seconds,
                "2026-01-01T02:00:00,1234567890123Z",
                "2026-01-01T02:00:00Z",
            ),
            (Seconds, "2026-01-01T2:00:00Z", "2026-01-01T02:00:00Z"),
            (Seconds, "2026-01-01T00:00:00+23:60", "2025-12-31T00:00:00Z"),
            (
                Micros,
                "2026-01-01T00:00:00.123456Z",
                "2026-01-01T00:00:00.123456Z",
            ),
            (
                Micros,
                "2026-01-01T00:00:00,+12345Z",
                "2026-01-01T00:00:00.012345Z",
            ),
            (
                Micros,
                "1969-12-31T23:59:59.999999Z",
                "1969-12-31T23:59:59.999999Z",
            ),
        ] {
            let time = GoTime::parse(text, layout).unwrap_or_else(|e| panic!("{text}: {e}"));
            assert_eq!(time.text(layout), stored, "{text}");
        }
    }

    #[test]
    fn other_texts_are_refused_with_the_words_of_go() {
        use TimeLayout::{Micros, Seconds};
        let seconds = "as \"2006-01-02T15:04:05Z07:00\": cannot parse";
        let micros = "as \"2006-01-02T15:04:05.000000Z07:00\": cannot parse";
        for (layout, text, reason) in [
            (Seconds, "", format!("{seconds} \"\" as \"2006\"")),
            (Seconds, "today", format!("{seconds} \"today\" as \"2006\"")),
            (
                Seconds,
                "10000-01-01T00:00:00Z",
                format!("{seconds} \"0-01-01T00:00:00Z\" as \"-\""),
            ),
            (
                Seconds,
                "-001-01-01T00:00:00Z",
                format!("{seconds} \"-001-01-01T00:00:00Z\" as \"2006\""),
            ),
            (
                Seconds,
                "2026-01-01 00:00:00Z",
                format!("{seconds} \" 00:00:00Z\" as \"T\""),
            ),
            (
                Seconds,
                "2026-01-01t00:00:00Z",
                format!("{seconds} \"t00:00:00Z\" as \"T\""),
            ),
            (
                Seconds,
                "2026-01-01T00:00:00z",
                format!("{seconds} \"z\" as \"Z07:00\""),
            ),
            (
                Seconds,
                "2026-01-01T00:00:00",
                format!("{seconds} \"\" as \"Z07:00\""),
            ),
            (
                Seconds,
                "2026-1-01T00:00:00Z",
                format!("{seconds} \"1-01T00:00:00Z\" as \"01\""),
            ),
            (
                Seconds,
                "2026-01-01T00:00:00*01:00",
                format!("{seconds} \"*01:00\" as \"Z07:00\""),
            ),
            (
                Micros,
                "2026-01-01T00:00:00Z",
                format!("{micros} \"Z\" as \".000000\""),
            ),
            (
                Micros,
                "2026-01-01T00:00:00.1234567Z",
                format!("{micros} \"7Z\" as \"Z07:00\""),
            ),
        ] {
            let error = GoTime::parse(text, layout).expect_err(text);
            assert_eq!(
                error.to_string(),
                format!("parsing time \"{text}\" {reason}")
            );
        }
        for (layout, text, reason) in [
            (Seconds, "2026-01-01T00:00:60Z", "second out of range"),
            (Seconds, "2026-01-01T00:60:00Z", "minute out of range"),
            (Seconds, "2026-01-01T24:00:00Z", "hour out of range"),
            (Seconds, "2026-13-01T00:00:00Z", "month out of range"),
            (Seconds, "2026-02-29T00:00:00Z", "day out of range"),
            (Seconds, "2026-01-00T00:00:00Z", "day out of range"),
            (
                Seconds,
                "2026-01-01T00:00:00+25:00",
                "time zone offset hour out of range",
            ),
            (
                Seconds,
                "2026-01-01T00:00:00+01:61",
                "time zone offset minute out of range",
            ),
            (Seconds, "2026-01-01T00:00:00Z!", "extra text: \"!\""),
            (
                Micros,
                "2026-01-01T00:00:00.-12345Z",
                "fractional second out of range",
            ),
        ] {
            let error = GoTime::parse(text, layout).expect_err(text);
            assert_eq!(
                error.to_string(),
                format!("parsing time \"{text}\": {reason}")
            );
        }
        let error = GoTime::parse("\"\u{e9}\n", Seconds).expect_err("no time");
        assert!(
            error
                .to_string()
                .starts_with("parsing time \"\\\"\\xc3\\xa9\\x0a\"")
        );
    }

    #[test]
    fn every_number_of_seconds_has_a_text_that_is_read_again() {
        for seconds in [
            i64::MIN,
            i64::MIN + 1,
            -62_135_596_801,
            GoTime::ZERO.seconds,
            -1,
            0,
            951_782_400,
            253_402_300_799,
            253_402_300_800,
            i64::MAX - 1,
            i64::MAX,
        ] {
            let text = GoTime::new(seconds, 0).text(TimeLayout::Seconds);
            assert_eq!(
                GoTime::read(&text).map(GoTime::seconds),
                Ok(seconds),
                "{text}"
            );
        }
        let last = GoTime::new(i64::MAX, 999_999_999).text(TimeLayout::Seconds);
        assert_eq!(last, "292277026596-12-04T15:30:07Z");
        for text in [
            "99999999999999999999999-01-01T00:00:00Z",
            "-99999999999999999999999-01-01T00:00:00Z",
        ] {
            let nanos = GoTime::read(text).map(GoTime::as_nanos);
            let bound = if text.starts_with('-') {
                i64::MIN
            } else {
                i64::MAX
            };
            assert_eq!(nanos, Ok(bound), "{text}");
        }
    }

    /// The dates of 800 years, against another implementation.
    #[test]
    fn dates_are_those_of_the_calendar() {
        let start = jiff::civil::date(1600, 1, 1);
        for day in 0..292_194_i64 {
            let date = start + jiff::Span::new().days(day);
            let (year, month, day) = (date.year().into(), date.month().into(), date.day().into());
            let days = days_to(year, month, day);
            assert_eq!(date_of(days), (year, month, day));
            let last: i64 = date.days_in_month().into();
            assert_eq!(days_in(year, month), last);
        }
        assert_eq!(days_to(1970, 1, 1), 0);
    }
}
