//! A cluster over days, in virtual time: the scheduling core of production with the pods and nodes of a trace.
//!
//! | module | contents |
//! |---|---|
//! | [`trace`] | the input: pods that arrive and end, nodes that join and leave, node groups, quotas, latencies of the environment |
//! | [`text`] | the input as CSV and YAML |
//! | [`import`] | traces of other tools |
//! | [`trace::generate`] | pods generated from a seed: arrivals, sizes, durations |
//! | [`engine`] | the simulation: a queue of events around [`berth_scheduler::Scheduler`] |
//! | [`report`] | the result of a simulation, and comparisons of several; CSV |
//!
//! **Architecture invariants:** no I/O, no clock, no thread. The same trace, options and seed give the same report.

pub mod distribution;
pub mod engine;
pub mod import;
mod names;
pub mod report;
pub mod span;
pub mod text;
pub mod trace;

pub use distribution::Distribution;
pub use engine::{Progress, Simulation, SimulationError, SimulationOptions, simulate};
pub use report::{Report, Run};
pub use trace::Trace;
