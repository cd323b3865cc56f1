//! Conditions of the common type `meta.v1.Condition`.

use super::errors::{ErrorPath, Errors};
use super::names;
use super::owner::Owner;
use crate::view::FieldView;
use serde_json::Value;
use std::collections::HashSet;

const REASON_BYTES_MAX: usize = 1_024;
const MESSAGE_BYTES_MAX: usize = 32 * 1_024;
const REASON: &str = "a condition reason must start with alphabetic character, optionally followed by a string of alphanumeric characters or '_,:', and must end with an alphanumeric character or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName',  or 'ReasonA,ReasonB',  or 'ReasonA:ReasonB', regex used for validation is '[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?')";

pub(crate) fn conditions(e: &mut Errors, _: &Owner, list: &Value, path: &ErrorPath) {
    validate(e, list.as_array().map_or(&[], Vec::as_slice), path);
}

/// Errors of a list of conditions: one of each type, complete and well formed.
pub(crate) fn validate(errors: &mut Errors, conditions: &[Value], path: &ErrorPath) {
    let mut seen = HashSet::new();
    for (i, condition) in conditions.iter().enumerate() {
        let path = path.index(i);
        let kind = condition.text("type");
        if !seen.insert(kind) {
            errors.duplicate(&path.child("type"), kind);
        }
        errors.each_invalid(&path.child("type"), kind, names::qualified_name(kind));
        let status = condition.text("status");
        let known = ["False", "True", "Unknown"];
        if !known.contains(&status) {
            errors.not_supported(&path.child("status"), status, &known);
        }
        let generation = condition.int("observedGeneration");
        if generation < 0 {
            let detail = "must be greater than or equal to zero";
            errors.invalid(&path.child("observedGeneration"), generation, detail);
        }
        if condition.text("lastTransitionTime").is_empty() {
            errors.required(&path.child("lastTransitionTime"), "");
        }
        let reason = condition.text("reason");
        let at = path.child("reason");
        if reason.is_empty() {
            errors.required(&at, "");
        } else if !is_reason(reason) {
            errors.invalid(&at, reason, REASON);
        }
        // The length is reported in addition, as in Kubernetes.
        if reason.len() > REASON_BYTES_MAX {
            errors.too_long(&at, REASON_BYTES_MAX);
        }
        if condition.text("message").len() > MESSAGE_BYTES_MAX {
            errors.too_long(&path.child("message"), MESSAGE_BYTES_MAX);
        }
    }
}

fn is_reason(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_alphanumeric() || b"_,:".contains(&b);
    let (first, last) = (text.bytes().next(), text.bytes().last());
    first.is_some_and(|b| b.is_ascii_alphabetic())
        && last.is_some_and(|b| b.is_ascii_alphanumeric() || b == b'_')
        && text.bytes().all(inner)
}
