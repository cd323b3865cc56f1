//! Replays recorded answers of the real components against Berth.
//!
//! Each family of vectors has a module that reads a file, replays every case and returns a [`report::CaseReport`].

// Replays read files and, for HTTP, run a server, so this crate is not part of the core.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

pub mod allocations;
pub mod cases;
pub mod cel;
pub mod cluster;
pub mod decisions;
pub mod hints;
pub mod http;
pub mod podapi;
pub mod queue;
pub mod report;
