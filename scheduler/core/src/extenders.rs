//! Merges the answers of extenders with the results of the plugins. The cycle ([`crate::cycle`]) and the binding decide
//! when to call an extender; this module only evaluates answers and never waits.

mod filter;
mod prioritize;

pub(crate) use filter::narrow;
pub(crate) use prioritize::{Totals, add_scores};
