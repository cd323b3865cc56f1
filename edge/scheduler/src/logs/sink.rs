//! The outputs of the log.

use std::io::{self, BufWriter, Stdout, Write};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// Standard output with a buffer, if it receives informational lines.
static INFO: OnceLock<Mutex<BufWriter<Stdout>>> = OnceLock::new();

/// The kind of the line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stream {
    /// An error.
    Error,
    /// Any other line.
    Info,
}

/// Writes log lines.
#[derive(Debug)]
pub(super) struct Sink {
    is_split: bool,
    is_buffered: bool,
}

impl Sink {
    /// Writes all lines to standard error or, when split, only errors.
    pub(super) fn new(is_split: bool, buffer_bytes: usize, flush_frequency: Duration) -> Self {
        let is_buffered = is_split && buffer_bytes > 0;
        if is_split {
            INFO.get_or_init(|| Mutex::new(BufWriter::with_capacity(buffer_bytes, io::stdout())));
        }
        if is_buffered && !flush_frequency.is_zero() {
            std::thread::spawn(move || {
                loop {
                    std::thread::sleep(flush_frequency);
                    flush();
                }
            });
        }
        Self {
            is_split,
            is_buffered,
        }
    }

    /// Writes a line. A failure is ignored, because it cannot be reported.
    pub(super) fn write(&self, stream: Stream, line: &str) {
        match INFO.get() {
            Some(info) if self.is_split && stream == Stream::Info => {
                let mut info = info.lock().unwrap_or_else(PoisonError::into_inner);
                let _ = info.write_all(line.as_bytes());
                if !self.is_buffered {
                    let _ = info.flush();
                }
            }
            _ => drop(io::stderr().lock().write_all(line.as_bytes())),
        }
    }
}

/// Writes the buffered lines.
pub(super) fn flush() {
    if let Some(info) = INFO.get() {
        let mut info = info.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = info.flush();
    }
}
