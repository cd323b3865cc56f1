//! The log lines and metrics of the scheduler. They are values: the edge writes and serves them.
//!
//! **Architecture invariant:** no I/O, no clock, no lock. A [`Stopwatch`] is an argument.

pub mod log;
pub mod metrics;
mod stopwatch;

pub use log::{Log, LogLevel, LogLine, LogValue};
pub use stopwatch::{NoStopwatch, Stopwatch};
