//! Loops over columns, compiled once for each width of vector instructions.
//!
//! Released binaries run on each processor of their architecture, so that the compiler assumes 128 bits only. All versions
//! of a loop give the same results: the compiler neither reorders floating-point operations nor fuses a multiplication with
//! an addition.

use fearless_simd::{Level, Simd, dispatch};

/// The number of slots that are read together: whole vectors of each width.
pub const RUN: usize = 64;

/// The amounts of one run of slots: run 0 has the first [`RUN`] slots.
///
/// # Panics
/// When the column ends before the run does.
#[inline(always)]
pub fn run_of(column: &[i64], run: usize) -> &[i64; RUN] {
    &column.as_chunks().0[run]
}

/// Calls `pass` in the version for the widest vector instructions of the processor. Its code and the functions that it
/// calls must be marked as `#[inline(always)]`, otherwise they are compiled for 128 bits.
#[inline(always)]
pub fn in_vectors<R>(pass: impl FnOnce() -> R) -> R {
    dispatch!(Level::new(), processor => processor.vectorize(pass))
}
