//! The rules of pods: the parts of defaults, preparation and validation that `facts/rules/pod.txt` cannot express.
//!
//! Templates inside workloads share the defaults and the validation of the spec. The order of errors is
//! upstream's, because clients compare it. Rules `API-…` of scheduling readiness (KEP-3521, KEP-3838) are in
//! `scheduling` (gates at creation) and `update` (gates and directives afterwards).

mod annotations;
pub(super) mod containers;
pub(crate) mod defaults;
pub(super) mod env;
pub(crate) mod handlers;
pub(super) mod mounts;
mod parts;
mod prepare;
pub mod requests;
pub(crate) mod resources;
pub(crate) mod scheduling;
pub(super) mod security;
pub(crate) mod spec;
mod status;
pub(super) mod update;
pub(crate) mod volume_sources;
pub(crate) mod volumes;

use crate::field::FieldError;
use crate::strategy::{KindStrategy, Subresource};
use crate::view::FieldView;
use serde_json::Value;

/// The strategy of pods.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct PodStrategy;

impl KindStrategy for PodStrategy {
    fn prepare_for_create(&self, object: &mut Value, now: &str) {
        prepare::for_create(object, now);
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        spec::validate_new(object).into_vec()
    }

    fn prepare_for_update(&self, new: &mut Value, old: &Value, part: Subresource, _now: &str) {
        match part {
            Subresource::Main | Subresource::Approval => prepare::for_update(new, old),
            Subresource::Status => prepare::for_status_update(new, old),
            Subresource::Resize => parts::prepare_resize(new, old),
            Subresource::EphemeralContainers => parts::prepare_ephemeral(new, old),
        }
    }

    fn validate_update(&self, new: &Value, old: &Value, part: Subresource) -> Vec<FieldError> {
        match part {
            Subresource::Main | Subresource::Approval => update::validate(new, old),
            Subresource::Status => status::validate(new, old),
            Subresource::Resize => parts::validate_resize(new, old),
            Subresource::EphemeralContainers => parts::validate_ephemeral(new, old),
        }
        .into_vec()
    }

    /// A pod that runs on a node is deleted when the node reports its end; one without a node, or finished, at once.
    fn grace_period_seconds(&self, object: &Value, requested: Option<i64>) -> Option<i64> {
        let spec = object.part("spec");
        let phase = object.part("status").text("phase");
        if spec.text("nodeName").is_empty() || matches!(phase, "Succeeded" | "Failed") {
            return None;
        }
        match requested.unwrap_or_else(|| spec.int("terminationGracePeriodSeconds")) {
            0 => None,
            // A negative period is stored as one second.
            ..0 => Some(1),
            seconds => Some(seconds),
        }
    }
}

#[cfg(test)]
mod tests;
