//! What the options of several measurements have in common.

use clap::builder::RangedU64ValueParser;

/// Reads a number of which zero would measure nothing.
pub(crate) fn at_least_one() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..)
}
