//! The rules of pods: defaults, preparation and validation as kube-apiserver v1.36 applies them.
//!
//! Templates inside workloads share the defaults and the validation of the spec. The order of errors is
//! upstream's, because clients compare it. Rules `API-…` of scheduling readiness (KEP-3521, KEP-3838) are in
//! `scheduling` (gates at creation) and `update` (gates and directives afterwards).

mod annotations;
mod containers;
pub(crate) mod defaults;
mod env;
pub(crate) mod handlers;
mod mounts;
mod prepare;
mod requests;
mod resources;
pub(crate) mod scheduling;
mod security;
pub(crate) mod spec;
mod status;
mod update;
mod volume_sources;
mod volumes;

use super::view::View;
use crate::field::FieldError;
use crate::strategy::{RequestContext, Strategy, Subresource};
use serde_json::Value;

/// The strategy of pods.
#[derive(Debug, Clone, Copy, Default)]
pub struct PodStrategy;

impl Strategy for PodStrategy {
    fn default(&self, object: &mut Value) {
        defaults::default_pod(object);
    }

    fn prepare_for_create(&self, object: &mut Value, cx: &RequestContext) {
        prepare::for_create(object, &cx.now);
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        spec::validate_new_pod(object).into_vec()
    }

    fn prepare_for_update(
        &self,
        new: &mut Value,
        old: &Value,
        subresource: Subresource,
        _cx: &RequestContext,
    ) {
        match subresource {
            Subresource::Main => prepare::for_update(new, old),
            Subresource::Status => prepare::for_status_update(new, old),
        }
    }

    fn validate_update(
        &self,
        new: &Value,
        old: &Value,
        subresource: Subresource,
    ) -> Vec<FieldError> {
        match subresource {
            Subresource::Main => update::validate(new, old),
            Subresource::Status => status::validate(new, old),
        }
        .into_vec()
    }

    /// A pod that runs on a node goes when the node says so; one that is nowhere or finished goes at once.
    fn grace_period_seconds(&self, object: &Value, requested: Option<i64>) -> Option<i64> {
        let empty = Value::Null;
        let spec = object.field("spec").unwrap_or(&empty);
        let finished = object
            .at(&["status", "phase"])
            .and_then(Value::as_str)
            .is_some_and(|phase| matches!(phase, "Succeeded" | "Failed"));
        if spec.text("nodeName").is_empty() || finished {
            return None;
        }
        let seconds = requested.unwrap_or_else(|| spec.int("terminationGracePeriodSeconds"));
        match seconds {
            0 => None,
            // A negative period is stored as one second.
            ..0 => Some(1),
            _ => Some(seconds),
        }
    }
}

#[cfg(test)]
mod tests;
