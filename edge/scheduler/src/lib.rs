//! The scheduler as a process: it connects the core to a cluster, serves the ports of the scheduler, and reads its flags
//! and its configuration. The parts that all commands share are here too: errors with exit codes, output, logs and
//! signals.
//!
//! It knows no API server and no controller: the cluster is a connection of `berth-client`, of the network or of this
//! process.

// The edge may ask the clock, open files and sockets, and start threads.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

pub mod args;
mod config_file;
pub mod dashboard;
pub mod discovery;
#[cfg(test)]
mod docs;
mod edge;
pub mod exit;
pub mod flags;
pub mod logs;
pub mod loopback;
mod metrics;
pub mod print;
pub mod record;
pub mod release;
mod runner;
pub mod scheduler;
pub mod serve;
pub mod serving;
pub mod settings;
pub mod shadow;
pub mod signal;
pub mod tasks;
mod traces;
