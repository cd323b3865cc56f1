//! What extenders say, brought together with what the plugins say (section 4.8). When they are asked is for the cycle
//! ([`crate::cycle`]) and the binding to say; here are the rules of what follows from an answer, without any waiting.

mod filter;
mod prioritize;

pub(crate) use filter::narrow;
pub(crate) use prioritize::{Totals, add_scores};

use berth_framework::extender::ExtenderSpec;
use berth_framework::stage::Wake;
use std::any::Any;

/// What an extender has answered.
///
/// # Errors
/// Why there is no answer.
pub(crate) fn answer<T: Any>(spec: &ExtenderSpec, wake: Wake) -> Result<T, String> {
    match wake {
        Wake::Deadline => Err(no_answer(spec)),
        wake => wake.into_value(),
    }
}

/// An extender has kept silent for too long.
fn no_answer(spec: &ExtenderSpec) -> String {
    format!(
        "no answer from extender {} within {} ms",
        spec.name,
        spec.timeout.as_millis()
    )
}
