//! The scheduling core: queue, cache, cycles and API dispatcher as one state machine without I/O.
//!
//! [`Scheduler`] is the whole of it. Time is an argument, randomness comes from one seed, and what has to be done
//! outside is handed out as values: calls to the API, jobs, events and log lines.
//!
//! **Architecture invariants:** no socket, no async runtime, no clock, no lock, no global randomness. Plugins are
//! known by their traits alone.

mod binding;
pub mod cache;
pub mod config;
mod core;
mod cycle;
pub mod dispatcher;
pub mod evaluator;
mod extenders;
pub mod metrics;
pub mod profile;
pub mod queue;

pub use crate::core::{
    ClusterChange, Event, Explanation, LogLevel, LogLine, Outputs, Reason, Scheduler,
    SchedulerOptions,
};
pub use cycle::{CycleResult, Outcome};
