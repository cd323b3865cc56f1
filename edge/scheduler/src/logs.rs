//! The log: klog's text format or JSON, with klog's verbosity levels.
//!
//! The core hands over its lines ([`write`]). The edge logs through `tracing`: errors, warnings and `info!` are always
//! logged; `debug!` counts as level 4 and `trace!` as level 6, unless the event has a field `v`: `debug!(v = 2, kind =
//! "pods", "listed")`.
//!
//! | level | what |
//! |---|---|
//! | 0 | what an operator must see: start, leadership, warnings, errors |
//! | 1 | the configuration in effect, bindings that fail |
//! | 2 | the result of each attempt: bindings, rejections, preemptions; kinds that were listed |
//! | 3 | what begins: attempts, bindings, status patches; nodes and pods that are added and deleted; delayed requests |
//! | 4 | nodes and pods that are updated, answers of plugins, retries of watches and requests |
//! | 5 | each move of a pod in the queue, renewals of the lease |
//! | 6 | every request to the API |
//! | 8 | bodies of requests and answers, the first 1,024 bytes of each; 10,240 from level 9, all from level 10; libraries |

mod format;
mod sink;

use crate::flags::{Flags, Level, LogFormat, VModule};
use berth_scheduler::{LogLevel, LogLine};
use format::{EventFields, LogLineRecord};
use sink::{Sink, Stream};
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;
use tracing::level_filters::LevelFilter;
use tracing::subscriber::Interest;
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::Registry;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

/// The level of `debug!` without a field `v`.
const DEBUG_LEVEL: Level = Level(4);
/// The level of `trace!` without a field `v`.
const TRACE_LEVEL: Level = Level(6);
/// From this level on, debug messages of libraries are logged.
const LIBRARIES_LEVEL: Level = Level(8);

/// The verbosity. It can be changed while the process runs.
static VERBOSITY: AtomicU8 = AtomicU8::new(0);

/// The logger, after [`init`].
static LOGGER: OnceLock<Logger> = OnceLock::new();

/// The way to log.
#[derive(Debug, Clone)]
pub struct LogOptions {
    /// The notation of the lines.
    pub format: LogFormat,
    /// The verbosity; `None` logs warnings and errors only.
    pub verbosity: Option<Level>,
    /// The verbosity of single source files.
    pub(crate) vmodule: VModule,
    /// Errors are written to standard error and all other lines to standard output.
    pub(crate) split_stream: bool,
    /// With `split_stream`, how many bytes for standard output are buffered.
    pub(crate) info_buffer_bytes: usize,
    /// The interval at which the buffer is flushed.
    pub(crate) flush_frequency: Duration,
}

impl LogOptions {
    /// For a scheduler.
    pub fn of_flags(flags: &Flags) -> Self {
        let flags = &flags.logs;
        let (split_stream, buffer) = match flags.logging_format.value {
            LogFormat::Text => (
                flags.log_text_split_stream.value,
                flags.log_text_info_buffer_size.value,
            ),
            LogFormat::Json => (
                flags.log_json_split_stream.value,
                flags.log_json_info_buffer_size.value,
            ),
        };
        Self {
            format: flags.logging_format.value,
            verbosity: Some(flags.v.value),
            vmodule: flags.vmodule.value.clone(),
            split_stream,
            info_buffer_bytes: buffer.0,
            flush_frequency: flags.log_flush_frequency.value.as_duration(),
        }
    }

    /// For interactive commands.
    pub fn console(verbosity: Option<Level>) -> Self {
        Self {
            format: LogFormat::Text,
            verbosity,
            vmodule: VModule::default(),
            split_stream: false,
            info_buffer_bytes: 0,
            flush_frequency: Duration::from_secs(5),
        }
    }
}

/// Starts logging. Further calls have no effect.
pub fn init(options: LogOptions) {
    VERBOSITY.store(options.verbosity.unwrap_or_default().0, Ordering::Relaxed);
    let sink = Sink::new(
        options.split_stream,
        options.info_buffer_bytes,
        options.flush_frequency,
    );
    let logger = Logger {
        format: options.format,
        is_quiet: options.verbosity.is_none(),
        vmodule: options.vmodule,
        sink,
    };
    if LOGGER.set(logger).is_ok() {
        let _ = Registry::default().with(Layered).try_init();
    }
}

/// Writes a line of the core.
pub(crate) fn write(line: LogLine) {
    let Some(logger) = LOGGER.get() else {
        return;
    };
    let (severity, v) = match line.level {
        LogLevel::Error => (tracing::Level::ERROR, 0),
        LogLevel::Warning => (tracing::Level::WARN, 0),
        LogLevel::Info(v) => (tracing::Level::INFO, v),
    };
    if severity == tracing::Level::INFO && logger.is_quiet {
        return;
    }
    let (file, number) = (line.location.file(), line.location.line());
    logger.write(severity, Level(v), file, number, &EventFields::of(line));
}

/// The highest level that is logged of any source file.
pub(crate) fn highest_verbosity() -> u8 {
    LOGGER.get().map_or(0, |logger| logger.highest().0)
}

/// Changes the verbosity.
pub(crate) fn set_verbosity(level: Level) {
    VERBOSITY.store(level.0, Ordering::Relaxed);
    tracing::callsite::rebuild_interest_cache();
}

/// The verbosity.
fn verbosity() -> Level {
    Level(VERBOSITY.load(Ordering::Relaxed))
}

/// Writes the buffered lines.
pub fn flush() {
    sink::flush();
}

/// Formats events and writes them.
struct Logger {
    format: LogFormat,
    is_quiet: bool,
    vmodule: VModule,
    sink: Sink,
}

impl Logger {
    /// The highest level that is logged for some file.
    fn highest(&self) -> Level {
        let of_files = self.vmodule.0.iter().map(|(_, level)| *level);
        of_files.fold(verbosity(), Level::max)
    }

    /// The level that is logged for a file.
    fn level_of(&self, file: &str) -> Level {
        let path = Path::new(file);
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        let of_file = self.vmodule.0.iter().find(|(pattern, _)| {
            let name = if pattern.contains('/') {
                file.trim_end_matches(".rs")
            } else {
                &name
            };
            is_match(pattern, name)
        });
        of_file.map_or_else(verbosity, |(_, level)| *level)
    }

    fn wants(&self, metadata: &Metadata<'_>) -> bool {
        let level = *metadata.level();
        if level <= tracing::Level::WARN {
            // The client library logs errors that the client also reports.
            return !metadata.target().starts_with("kube_client");
        }
        if self.is_quiet {
            return false;
        }
        let highest = self.highest();
        if !metadata.target().starts_with("berth") {
            return highest >= LIBRARIES_LEVEL && level <= tracing::Level::DEBUG;
        }
        match level {
            tracing::Level::INFO => true,
            tracing::Level::DEBUG => highest > Level(0),
            _ => highest >= TRACE_LEVEL,
        }
    }

    /// Writes a line of this level, if that is logged of the file.
    fn write(
        &self,
        severity: tracing::Level,
        v: Level,
        file: &str,
        line: u32,
        fields: &EventFields,
    ) {
        if v > Level(0) && v > self.level_of(file) {
            return;
        }
        let record = LogLineRecord {
            severity,
            v,
            time: jiff::Timestamp::now(),
            file,
            line,
            fields,
        };
        let line = match self.format {
            LogFormat::Text => record.text(),
            LogFormat::Json => record.json(),
        };
        let stream = match severity {
            tracing::Level::ERROR => Stream::Error,
            _ => Stream::Info,
        };
        self.sink.write(stream, &line);
    }
}

/// Writes the events of `tracing`.
struct Layered;

impl Layered {
    fn logger(&self) -> Option<&'static Logger> {
        LOGGER.get()
    }
}

impl<S: Subscriber> Layer<S> for Layered {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if self.logger().is_some_and(|logger| logger.wants(metadata)) {
            Interest::always()
        } else {
            Interest::never()
        }
    }

    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        self.logger().is_some_and(|logger| logger.wants(metadata))
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        let logger = self.logger()?;
        if logger.is_quiet {
            return Some(LevelFilter::WARN);
        }
        Some(match logger.highest() {
            Level(0) => LevelFilter::INFO,
            level if level < TRACE_LEVEL => LevelFilter::DEBUG,
            _ => LevelFilter::TRACE,
        })
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let Some(logger) = self.logger() else {
            return;
        };
        let metadata = event.metadata();
        let mut fields = EventFields::default();
        event.record(&mut fields);
        let default = match *metadata.level() {
            tracing::Level::DEBUG => DEBUG_LEVEL,
            tracing::Level::TRACE => TRACE_LEVEL,
            _ => Level(0),
        };
        let v = fields.verbosity().unwrap_or(default);
        let file = metadata.file().unwrap_or_default();
        let line = metadata.line().unwrap_or_default();
        logger.write(*metadata.level(), v, file, line, &fields);
    }
}

/// Returns whether a name matches a pattern. In a pattern `*` matches any characters and `?` matches one.
fn is_match(pattern: &str, name: &str) -> bool {
    let mut pattern = pattern.chars();
    match pattern.next() {
        None => name.is_empty(),
        Some('*') => {
            let rest = pattern.as_str();
            let ends = name.char_indices().map(|(at, _)| at).chain([name.len()]);
            ends.into_iter().any(|at| is_match(rest, &name[at..]))
        }
        Some(wanted) => {
            let mut name = name.chars();
            let is_same = name.next().is_some_and(|c| wanted == '?' || wanted == c);
            is_same && is_match(pattern.as_str(), name.as_str())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_klog() {
        for (pattern, name, expected) in [
            ("queue", "queue", true),
            ("queue", "queues", false),
            ("queue*", "queues", true),
            ("*", "", true),
            ("q?eue", "queue", true),
            ("*/runner/*", "edge/scheduler/src/runner/core", true),
        ] {
            assert_eq!(is_match(pattern, name), expected, "{pattern} {name}");
        }
    }
}
