//! The condition `DisruptionAllowed` of PodDisruptionBudgets, which their controller and evictions write.

use crate::object::{count, new_condition, update_condition};
use jiff::Timestamp;
use serde_json::Value;

/// Sets the condition `DisruptionAllowed` from the number of disruptions that a status allows.
pub fn set_allowed(status: &mut Value, now: Timestamp) {
    let (state, reason) = match count(&status["disruptionsAllowed"], 0) {
        ..=0 => ("False", "InsufficientPods"),
        _ => ("True", "SufficientPods"),
    };
    put_allowed(status, state, reason, "", now);
}

/// Sets the condition to this state, reason and message.
pub fn put_allowed(status: &mut Value, state: &str, reason: &str, message: &str, now: Timestamp) {
    let mut condition = new_condition("DisruptionAllowed", state, reason, message, now);
    condition["observedGeneration"] = status["observedGeneration"].clone();
    update_condition(status, condition);
}
