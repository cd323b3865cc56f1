//! Options shared by several measurements.

use clap::builder::RangedU64ValueParser;

/// Parses a number that must not be zero, because zero would measure nothing.
pub(crate) fn at_least_one() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..)
}
