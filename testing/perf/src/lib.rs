//! Measures the scheduling core at scale, in generated clusters, and whole schedulers with the workload files of
//! Kubernetes' scheduler_perf ([`workload`]).
//!
//! All generated objects follow from a seed, so that two runs make the same decisions; only the times differ. Compare
//! only figures of one run, because machines are noisy.

// This crate measures, so it may read the clock. Workloads are at the edge: they read files, and their tasks share
// state.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

pub mod api;
mod child;
pub mod command;
pub mod core;
pub mod dispatcher;
pub mod error;
pub mod explain;
mod generate;
pub mod memory;
mod options;
pub mod queue;
mod scratch;
pub mod stats;
pub mod workload;
