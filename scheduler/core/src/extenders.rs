//! The answers of extenders, merged with those of the plugins. When they are asked is for the cycle
//! ([`crate::cycle`]) and the binding to decide; this module has the rules of what follows from an answer, without any
//! waiting.

mod filter;
mod prioritize;

pub(crate) use filter::narrow;
pub(crate) use prioritize::{Totals, add_scores};
