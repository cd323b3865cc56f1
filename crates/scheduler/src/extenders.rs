//! What extenders say, brought together with what the plugins say (section 4.8). When they are asked is for the cycle
//! ([`crate::cycle`]) and the binding to say; here are the rules of what follows from an answer, without any waiting.

mod filter;
mod prioritize;

pub(crate) use filter::narrow;
pub(crate) use prioritize::{Totals, add_scores};
