//! The log lines of the core. They are kept until the edge takes and writes them.
//!
//! If kube-scheduler logs the same event, the line has its message, level and keys. The levels are klog's:
//!
//! | level | lines |
//! |---|---|
//! | 0 | errors, warnings, and other lines that an operator needs |
//! | 1 | failed bindings |
//! | 2 | the result of each attempt: bindings, rejections, preemptions with their victims |
//! | 3 | the start of attempts, bindings and status patches; added and deleted nodes and pods |
//! | 4 | updated nodes and pods, answers of plugins, expected failures |
//! | 5 | each move of a pod in the queue |
//!
//! A line is created only if its level is logged.

use berth_api::{Pod, Str};
use berth_framework::call::PodRef;
use std::borrow::Cow;
use std::fmt;
use std::panic::Location;

/// The number of lines that are kept until they are taken; further ones are counted.
const LINES_MAX: usize = 16 * 1024;

/// The importance of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LogLevel {
    /// Something broke.
    Error,
    /// Something is odd.
    Warning,
    /// Information, from this verbosity on.
    Info(u8),
}

/// The value of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogValue {
    /// A text. Objects are `namespace/name`, or the name alone if they have no namespace.
    Text(String),
    /// A number.
    Number(u64),
}

impl From<String> for LogValue {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<&str> for LogValue {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<&Str> for LogValue {
    fn from(text: &Str) -> Self {
        text.as_str().into()
    }
}

impl From<usize> for LogValue {
    fn from(number: usize) -> Self {
        Self::Number(u64::try_from(number).unwrap_or(u64::MAX))
    }
}

impl From<u64> for LogValue {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

impl From<&Pod> for LogValue {
    fn from(pod: &Pod) -> Self {
        pod.key().into()
    }
}

impl From<&PodRef> for LogValue {
    fn from(pod: &PodRef) -> Self {
        pod.to_string().into()
    }
}

/// A line of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLine {
    /// The importance.
    pub level: LogLevel,
    /// The statement.
    pub message: Cow<'static, str>,
    /// Keys with their values, such as `pod` and `node`.
    pub values: Vec<(&'static str, LogValue)>,
    /// The place in the code.
    pub location: &'static Location<'static>,
}

impl LogLine {
    #[track_caller]
    fn new(level: LogLevel, message: Cow<'static, str>) -> Self {
        Self {
            level,
            message,
            values: Vec::new(),
            location: Location::caller(),
        }
    }

    /// An error.
    #[track_caller]
    pub fn error(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(LogLevel::Error, message.into())
    }

    /// A warning.
    #[track_caller]
    pub fn warning(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(LogLevel::Warning, message.into())
    }

    /// Information that is always logged.
    #[track_caller]
    pub fn info(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(LogLevel::Info(0), message.into())
    }

    /// The same line with a further key.
    #[must_use]
    pub fn with(mut self, key: &'static str, value: impl Into<LogValue>) -> Self {
        self.values.push((key, value.into()));
        self
    }
}

impl fmt::Display for LogLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        for (key, value) in &self.values {
            match value {
                LogValue::Text(text) => write!(f, " {key}={text}")?,
                LogValue::Number(number) => write!(f, " {key}={number}")?,
            }
        }
        Ok(())
    }
}

/// Lines that have not been taken yet.
#[derive(Debug, Default)]
pub struct Log {
    verbosity: u8,
    lines: Vec<LogLine>,
    dropped: usize,
}

impl Log {
    /// Logs lines up to this level from now on.
    pub fn set_verbosity(&mut self, verbosity: u8) {
        self.verbosity = verbosity;
    }

    /// Returns whether lines of this level are logged.
    #[inline]
    pub fn is_on(&self, level: u8) -> bool {
        level <= self.verbosity
    }

    /// Logs a line.
    pub fn push(&mut self, line: LogLine) {
        if self.lines.len() < LINES_MAX {
            self.lines.push(line);
        } else {
            self.dropped += 1;
        }
    }

    /// Logs information of a level, with the keys that `values` adds.
    #[track_caller]
    pub fn v(&mut self, level: u8, message: &'static str, values: impl FnOnce(LogLine) -> LogLine) {
        if self.is_on(level) {
            let line = LogLine::new(LogLevel::Info(level), Cow::Borrowed(message));
            self.push(values(line));
        }
    }

    /// Moves the lines of another log to the end of this one.
    pub fn append(&mut self, other: &mut Self) {
        self.dropped += std::mem::take(&mut other.dropped);
        if self.lines.len() + other.lines.len() <= LINES_MAX {
            self.lines.append(&mut other.lines);
        } else {
            other.lines.drain(..).for_each(|line| self.push(line));
        }
    }

    /// The lines so far, and how many further ones were dropped.
    pub fn take(&mut self) -> (Vec<LogLine>, usize) {
        (
            std::mem::take(&mut self.lines),
            std::mem::take(&mut self.dropped),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_beyond_the_limit_are_counted() {
        let (mut log, mut other) = (Log::default(), Log::default());
        for _ in 0..LINES_MAX - 2 {
            log.push(LogLine::error("full"));
        }
        for _ in 0..5 {
            other.push(LogLine::error("more"));
        }
        log.append(&mut other);
        let (lines, dropped) = log.take();
        assert_eq!((lines.len(), dropped), (LINES_MAX, 3));
        assert_eq!(log.take(), (Vec::new(), 0));
        assert_eq!(other.take(), (Vec::new(), 0));
    }

    #[test]
    fn a_line_has_its_level_its_keys_and_its_place() {
        let mut log = Log::default();
        log.set_verbosity(2);
        for level in 1..=3 {
            log.v(level, "bound", |line| {
                line.with("node", "n").with("feasibleNodes", 3_usize)
            });
        }
        let (lines, _) = log.take();
        let levels: Vec<LogLevel> = lines.iter().map(|line| line.level).collect();
        assert_eq!(levels, [LogLevel::Info(1), LogLevel::Info(2)]);
        let values = [
            ("node", LogValue::Text("n".to_owned())),
            ("feasibleNodes", LogValue::Number(3)),
        ];
        assert_eq!(lines[1].values, values);
        assert!(lines[1].location.file().ends_with("log.rs"));
    }
}
