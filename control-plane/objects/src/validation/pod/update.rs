//! The fields that may change in a pod that exists (rules API-7 to API-13, KEP-3838).
//!
//! Everything that decides placement is fixed, except that a gated pod may be narrowed: node selectors and
//! required node affinity may only be added to. "Gated" is judged on the pod as it was.

use super::{annotations, scheduling};
use crate::validation::differences::with_differences;
use crate::validation::errors::{ErrorPath, Errors, Shown, json_text, list_text, struct_text};
use crate::validation::internal::InternalPart;
use crate::validation::names;
use crate::view::{FieldView, copy_field, existing, items_mut, remove, set};
use serde_json::{Map, Value};
use std::collections::{HashMap, HashSet};

const IMMUTABLE: &str = "pod updates may not change fields other than \
`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,\
`spec.tolerations` (only additions to existing tolerations),\
`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";
const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";

/// Errors of a change of a pod, without common errors of its metadata.
pub(crate) fn validate(new: &Value, old: &Value) -> Errors {
    let mut errors = Errors::new();
    let path = ErrorPath::new("spec");
    let (new_spec, old_spec) = (new.part("spec"), old.part("spec"));
    annotations::validate_update(
        &mut errors,
        new.part("metadata"),
        old.part("metadata"),
        new_spec,
        &ErrorPath::new("metadata.annotations"),
    );
    // Errors of images are returned alone: the differences below would repeat them.
    for list in ["containers", "initContainers"] {
        if !validate_images(&mut errors, new_spec, old_spec, list, &path) {
            return errors;
        }
    }
    if !validate_deadline(&mut errors, new_spec, old_spec, &path) {
        return errors;
    }
    validate_tolerations(&mut errors, new_spec, old_spec, &path.child("tolerations"));
    validate_gates(
        &mut errors,
        new_spec,
        old_spec,
        &path.child("schedulingGates"),
    );
    if new_spec == old_spec {
        return errors;
    }
    // All fields that may change are reset, so that any other difference is an error.
    let mut rest = new_spec.clone();
    take_over_mutable(&mut rest, old_spec);
    // A pod with gates may be narrowed further; these fields are judged on their own.
    if !old_spec.items("schedulingGates").is_empty() {
        validate_gated(&mut errors, &mut rest, old_spec, &path);
    }
    if rest != *old_spec {
        let text = with_differences(IMMUTABLE, InternalPart::PodSpec, old_spec, &rest, &path);
        errors.forbidden(&path, text);
    }
    errors
}

/// Returns whether the rest of the spec can be compared.
fn validate_images(
    errors: &mut Errors,
    new: &Value,
    old: &Value,
    list: &str,
    path: &ErrorPath,
) -> bool {
    let path = path.child(list);
    if new.items(list).len() != old.items(list).len() {
        errors.forbidden(&path, "pod updates may not add or remove containers");
        return false;
    }
    for (i, container) in new.items(list).iter().enumerate() {
        let at = path.index(i).child("image");
        let image = container.text("image");
        if image.is_empty() {
            errors.required(&at, "");
        }
        if image.trim() != image {
            errors.invalid(&at, image, "must not have leading or trailing whitespace");
        }
    }
    true
}

/// The deadline may be set once, and then only be shortened. Returns whether the other checks apply.
fn validate_deadline(errors: &mut Errors, new: &Value, old: &Value, path: &ErrorPath) -> bool {
    let path = path.child("activeDeadlineSeconds");
    let before = old.maybe_int("activeDeadlineSeconds");
    match (new.maybe_int("activeDeadlineSeconds"), before) {
        (Some(after), _) if !(0..=i64::from(i32::MAX)).contains(&after) => {
            errors.invalid(&path, after, names::inclusive_range(0, i64::from(i32::MAX)));
            false
        }
        (Some(after), Some(before)) if before < after => {
            errors.invalid(&path, after, "must be less than or equal to previous value");
            false
        }
        (None, Some(_)) => {
            errors.invalid(
                &path,
                Shown::null(),
                "must not update from a positive integer to nil value",
            );
            true
        }
        _ => true,
    }
}

/// Every toleration stays, with another `tolerationSeconds` at most; more may be added.
fn validate_tolerations(errors: &mut Errors, new: &Value, old: &Value, path: &ErrorPath) {
    let without_seconds = |toleration: &Value| {
        let mut toleration = toleration.clone();
        remove(&mut toleration, "tolerationSeconds");
        toleration
    };
    let after: HashSet<Value> = new
        .items("tolerations")
        .iter()
        .map(without_seconds)
        .collect();
    let all_kept = old
        .items("tolerations")
        .iter()
        .all(|t| after.contains(&without_seconds(t)));
    if !all_kept {
        errors.forbidden(
            path,
            "existing toleration can not be modified except its tolerationSeconds",
        );
        return;
    }
    for (i, toleration) in new.items("tolerations").iter().enumerate() {
        scheduling::validate_toleration(errors, toleration, &path.index(i));
    }
}

/// Gates may only be removed (rule API-7).
fn validate_gates(errors: &mut Errors, new: &Value, old: &Value, path: &ErrorPath) {
    let before: HashSet<&str> = old
        .items("schedulingGates")
        .iter()
        .map(|g| g.text("name"))
        .collect();
    let gates = new.items("schedulingGates");
    let last: HashMap<&str, usize> = gates
        .iter()
        .enumerate()
        .map(|(i, gate)| (gate.text("name"), i))
        .collect();
    for (i, gate) in gates.iter().enumerate() {
        let name = gate.text("name");
        // A new gate that is listed twice is reported once, at its last place.
        if !before.contains(name) && last.get(name) == Some(&i) {
            errors.forbidden(
                &path.index(i).child("name"),
                format!("only deletion is allowed, but found new scheduling gate '{name}'"),
            );
        }
    }
}

/// Resets the mutable fields of any pod to their old values, so that only immutable fields differ.
fn take_over_mutable(rest: &mut Value, old: &Value) {
    for list in ["containers", "initContainers"] {
        for (container, before) in items_mut(rest, list).iter_mut().zip(old.items(list)) {
            copy_field(container, before, "image");
        }
    }
    for field in ["activeDeadlineSeconds", "schedulingGates", "tolerations"] {
        copy_field(rest, old, field);
    }
    let was_negative = old
        .maybe_int("terminationGracePeriodSeconds")
        .is_some_and(|s| s < 0);
    if was_negative && rest.maybe_int("terminationGracePeriodSeconds") == Some(1) {
        copy_field(rest, old, "terminationGracePeriodSeconds");
    }
}

/// The placement of a gated pod may be narrowed (rules API-10 and API-11); checked fields are reset to their old
/// values.
fn validate_gated(errors: &mut Errors, rest: &mut Value, old: &Value, path: &ErrorPath) {
    if rest.field("nodeSelector") != old.field("nodeSelector") {
        let empty = Map::new();
        let after = rest.map("nodeSelector").unwrap_or(&empty);
        let only_added = old
            .map("nodeSelector")
            .unwrap_or(&empty)
            .iter()
            .all(|(key, value)| after.get(key) == Some(value));
        if !only_added {
            let shown = rest.field("nodeSelector").unwrap_or(&Value::Null);
            errors.invalid(
                &path.child("nodeSelector"),
                shown,
                "only additions to spec.nodeSelector are allowed (no mutations or deletions)",
            );
        }
        copy_field(rest, old, "nodeSelector");
    }
    let before = old.at(&["affinity", "nodeAffinity"]);
    let after = rest.at(&["affinity", "nodeAffinity"]);
    if before == after {
        return;
    }
    validate_node_affinity(
        errors,
        after,
        before,
        &path.child("affinity").child("nodeAffinity"),
    );
    match (rest.field("affinity"), old.field("affinity")) {
        (None, _) => {
            if let Some(before) = before {
                set(
                    rest,
                    "affinity",
                    serde_json::json!({"nodeAffinity": before}),
                );
            }
        }
        (Some(affinity), None)
            if affinity.field("podAffinity").is_none()
                && affinity.field("podAntiAffinity").is_none() =>
        {
            remove(rest, "affinity");
        }
        (Some(_), old_affinity) => {
            if let Some(affinity) = existing(rest, "affinity") {
                copy_field(
                    affinity,
                    old_affinity.unwrap_or(&Value::Null),
                    "nodeAffinity",
                );
            }
        }
    }
}

fn validate_node_affinity(
    errors: &mut Errors,
    new: Option<&Value>,
    old: Option<&Value>,
    path: &ErrorPath,
) {
    let required = |affinity: Option<&Value>| affinity.and_then(|a| a.field(REQUIRED)).cloned();
    // Without terms every addition narrows.
    let Some(old) = required(old) else {
        return;
    };
    let new = required(new).unwrap_or_default();
    let (before, after) = (
        old.items("nodeSelectorTerms"),
        new.items("nodeSelectorTerms"),
    );
    let path = path.child(REQUIRED).child("nodeSelectorTerms");
    // Terms are alternatives: another term would widen the choice of nodes.
    if !before.is_empty() && before.len() != after.len() {
        errors.invalid(
            &path,
            node_selector_terms(&new),
            "no additions/deletions to non-empty NodeSelectorTerms list are allowed",
        );
        return;
    }
    for (i, (before, after)) in before.iter().zip(after).enumerate() {
        if !is_narrower(after, before) {
            errors.invalid(
                &path.index(i),
                Shown(term_text(after)),
                "only additions are allowed (no mutations or deletions)",
            );
        }
    }
}

/// Returns whether requirements were only added to a term. A term without requirements matches nothing and must stay
/// unchanged.
fn is_narrower(after: &Value, before: &Value) -> bool {
    let lists = ["matchExpressions", "matchFields"];
    if lists.iter().all(|l| before.items(l).is_empty()) {
        return lists.iter().all(|l| after.items(l).is_empty());
    }
    lists
        .iter()
        .all(|l| after.items(l).starts_with(before.items(l)))
}

/// The terms of a node selector as kube-apiserver prints them.
pub(in crate::validation) fn node_selector_terms(selector: &Value) -> Shown {
    Shown(all(selector, "nodeSelectorTerms", term_text))
}

/// A node selector term as upstream prints it: with the names of its internal type (rule API-9a).
fn term_text(term: &Value) -> String {
    struct_text(&[
        (
            "MatchExpressions",
            all(term, "matchExpressions", requirement_text),
        ),
        ("MatchFields", all(term, "matchFields", requirement_text)),
    ])
}

/// The entries of a list, which may be absent.
fn all(holder: &Value, list: &str, text: fn(&Value) -> String) -> String {
    match holder.field(list) {
        None => "null".to_owned(),
        Some(_) => list_text(holder.items(list).iter().map(text)),
    }
}

fn requirement_text(requirement: &Value) -> String {
    struct_text(&[
        ("Key", json_text(requirement.text("key"))),
        ("Operator", json_text(requirement.text("operator"))),
        ("Values", json_text(requirement.part("values").clone())),
    ])
}
