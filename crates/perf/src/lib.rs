//! Measures the scheduling core at scale, in generated clusters.
//!
//! Everything that is generated follows from a seed, so that two runs decide the same; only the times differ. What is
//! compared is measured in one run: machines are noisy.

// Measuring is what this crate is for: it may ask the clock.
#![allow(clippy::disallowed_methods)]

pub mod core;
pub mod dispatcher;
mod generate;
pub mod memory;
pub mod queue;
