//! Validation of scheduling directives: affinity, tolerations, topology spread and gates.

use crate::validation::errors::{ErrorPath, Errors};
use crate::validation::names;
use crate::validation::owner::Owner;
use crate::view::FieldView;
use serde_json::Value;
use std::collections::{HashMap, HashSet};

/// The effects that a taint may have.
const TAINT_EFFECTS: &[&str] = &["NoSchedule", "PreferNoSchedule", "NoExecute"];

pub(crate) fn gates(e: &mut Errors, _: &Owner, gates: &Value, path: &ErrorPath) {
    validate_gates(e, gates, path)
}

pub(crate) fn match_fields(e: &mut Errors, _: &Owner, fields: &Value, path: &ErrorPath) {
    for (i, field) in fields.as_array().into_iter().flatten().enumerate() {
        validate_node_field(e, field, &path.index(i));
    }
}

pub(crate) fn min_domains(e: &mut Errors, owner: &Owner, domains: &Value, path: &ErrorPath) {
    let action = owner.value.text("whenUnsatisfiable");
    if let Some(domains) = domains.as_i64().filter(|_| action != "DoNotSchedule") {
        e.invalid(
            path,
            domains,
            format!("can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}"),
        );
    }
}

pub(crate) fn node_requirement(
    e: &mut Errors,
    owner: &Owner,
    requirement: &Value,
    path: &ErrorPath,
) {
    let strict = owner.enclosing("core.v1.PreferredSchedulingTerm").is_none();
    validate_node_requirement(e, requirement, strict, path);
}

pub(crate) fn spread_keys(e: &mut Errors, owner: &Owner, _: &Value, path: &ErrorPath) {
    let selector = owner.value.field("labelSelector");
    let keys = owner.value.strings("matchLabelKeys");
    validate_label_keys(e, &keys, selector, path);
    for (i, key) in keys_repeated_in_selector(&keys, selector) {
        e.invalid(
            &path.index(i),
            key,
            "exists in both matchLabelKeys and labelSelector",
        );
    }
}

pub(crate) fn toleration(e: &mut Errors, _: &Owner, toleration: &Value, path: &ErrorPath) {
    validate_toleration(e, toleration, path)
}

fn validate_node_requirement(
    errors: &mut Errors,
    requirement: &Value,
    strict_values: bool,
    path: &ErrorPath,
) {
    let values = requirement.strings("values");
    let at = path.child("values");
    match requirement.text("operator") {
        "In" | "NotIn" if values.is_empty() => {
            errors.required(&at, "must be specified when `operator` is 'In' or 'NotIn'");
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => errors.forbidden(
            &at,
            "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
        ),
        "Gt" | "Lt" if values.len() != 1 => errors.required(
            &at,
            "must be specified single value when `operator` is 'Lt' or 'Gt'",
        ),
        "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {}
        other => errors.invalid(
            &path.child("operator"),
            other,
            "not a valid selector operator",
        ),
    }
    let key = requirement.text("key");
    errors.each_invalid(&path.child("key"), key, names::qualified_name(key));
    // Terms that existed before may have values that are invalid today.
    if strict_values {
        for (i, value) in values.iter().enumerate() {
            errors.each_invalid(&at.index(i), value, names::label_value(value));
        }
    }
}

fn validate_node_field(errors: &mut Errors, requirement: &Value, path: &ErrorPath) {
    let values = requirement.strings("values");
    match requirement.text("operator") {
        "In" | "NotIn" => {
            if values.len() != 1 {
                errors.required(
                    &path.child("values"),
                    "must be only one value when `operator` is 'In' or 'NotIn' for node field selector",
                );
            }
        }
        other => errors.invalid(
            &path.child("operator"),
            other,
            "not a valid selector operator",
        ),
    }
    let key = requirement.text("key");
    if key == "metadata.name" {
        for (i, value) in values.iter().enumerate() {
            let at = path.child("values").index(i);
            errors.each_invalid(&at, value, names::dns_subdomain(value));
        }
    } else {
        errors.invalid(&path.child("key"), key, "not a valid field selector key");
    }
}

pub(crate) fn validate_pod_term(errors: &mut Errors, _: &Owner, term: &Value, path: &ErrorPath) {
    let selector = term.field("labelSelector");
    for namespace in term.strings("namespaces") {
        errors.each_invalid(
            &path.child("namespace"),
            namespace,
            names::dns_label(namespace),
        );
    }
    let match_keys = term.strings("matchLabelKeys");
    let mismatch_keys = term.strings("mismatchLabelKeys");
    for (field, keys) in [
        ("matchLabelKeys", &match_keys),
        ("mismatchLabelKeys", &mismatch_keys),
    ] {
        validate_label_keys(errors, keys, selector, &path.child(field));
    }
    // The server adds the keys to the selector: a key in both would be ambiguous.
    for (i, key) in keys_repeated_in_selector(&match_keys, selector) {
        errors.invalid(
            &path.index(i),
            key,
            "exists in both matchLabelKeys and labelSelector",
        );
    }
    let mismatched: HashSet<&str> = mismatch_keys.iter().copied().collect();
    for (i, key) in match_keys.iter().enumerate() {
        if mismatched.contains(key) {
            errors.invalid(
                &path.child("matchLabelKeys").index(i),
                *key,
                "exists in both matchLabelKeys and mismatchLabelKeys",
            );
        }
    }
    let key = term.text("topologyKey");
    let at = path.child("topologyKey");
    if key.is_empty() {
        errors.required(&at, "can not be empty");
    }
    errors.each_invalid(&at, key, names::qualified_name(key));
}

fn validate_label_keys(
    errors: &mut Errors,
    keys: &[&str],
    selector: Option<&Value>,
    path: &ErrorPath,
) {
    if keys.is_empty() {
        return;
    }
    if selector.is_none() {
        errors.forbidden(path, "must not be specified when labelSelector is not set");
        return;
    }
    for (i, key) in keys.iter().enumerate() {
        errors.each_invalid(&path.index(i), key, names::qualified_name(key));
    }
}

/// Keys of `matchLabelKeys` that the user also lists in the selector. The server merges each key into the selector when
/// the pod is created, so only a second occurrence is the user's.
fn keys_repeated_in_selector<'a>(
    keys: &[&'a str],
    selector: Option<&Value>,
) -> Vec<(usize, &'a str)> {
    let Some(selector) = selector else {
        return Vec::new();
    };
    let mut seen: HashSet<&str> = selector
        .labels("matchLabels")
        .into_iter()
        .map(|(k, _)| k)
        .collect();
    // The last of equal keys.
    let places: HashMap<&str, (usize, &'a str)> = keys
        .iter()
        .enumerate()
        .map(|(i, key)| (*key, (i, *key)))
        .collect();
    let mut repeated = Vec::new();
    for requirement in selector.items("matchExpressions") {
        let key = requirement.text("key");
        if seen.contains(key) {
            repeated.extend(places.get(key));
        }
        seen.insert(key);
    }
    repeated
}

/// Errors of a toleration.
pub(super) fn validate_toleration(errors: &mut Errors, toleration: &Value, path: &ErrorPath) {
    let (key, operator) = (toleration.text("key"), toleration.text("operator"));
    let operator_path = path.child("operator");
    if !key.is_empty() {
        errors.each_invalid(&path.child("key"), key, names::qualified_name(key));
    } else if operator != "Exists" {
        errors.invalid(
            &operator_path,
            operator,
            "operator must be Exists when `key` is empty, which means \"match all values and all keys\"",
        );
    }
    let effect = toleration.text("effect");
    if toleration.field("tolerationSeconds").is_some() && effect != "NoExecute" {
        errors.invalid(
            &path.child("effect"),
            effect,
            "effect must be 'NoExecute' when `tolerationSeconds` is set",
        );
    }
    let value = toleration.text("value");
    match operator {
        "Equal" | "" => {
            let messages = names::label_value(value);
            if !messages.is_empty() {
                errors.invalid(&operator_path, value, messages.join(";"));
            }
        }
        "Exists" if value.is_empty() => {}
        "Exists" => {
            errors.invalid(
                &operator_path,
                value,
                "value must be empty when `operator` is 'Exists'",
            );
        }
        // The numeric operators are listed as known, and are known only behind a feature gate that is off.
        other @ ("Lt" | "Gt") => {
            errors.not_supported(&operator_path, other, &["Equal", "Exists", "Lt", "Gt"]);
        }
        other => errors.not_supported(&operator_path, other, &["Equal", "Exists"]),
    }
    if !effect.is_empty() {
        validate_taint_effect(errors, effect, &path.child("effect"));
    }
}

/// Errors of the effect of a taint.
pub(crate) fn validate_taint_effect(errors: &mut Errors, effect: &str, path: &ErrorPath) {
    if !TAINT_EFFECTS.contains(&effect) {
        errors.not_supported(path, effect, TAINT_EFFECTS);
    }
}

/// Errors of `spec.schedulingGates`: qualified names, each once (rules API-3 and API-4).
pub(crate) fn validate_gates(errors: &mut Errors, gates: &Value, path: &ErrorPath) {
    let mut seen = HashSet::new();
    for (i, gate) in gates.as_array().into_iter().flatten().enumerate() {
        let name = gate.text("name");
        errors.each_invalid(&path.index(i), name, names::qualified_name(name));
        if !seen.insert(name) {
            errors.duplicate(&path.index(i), name);
        }
    }
}

/// Topology key and action together are unique; upstream reports the first of two.
pub(crate) fn spread_once(
    errors: &mut Errors,
    owner: &Owner,
    constraint: &Value,
    path: &ErrorPath,
) {
    if owner.repeated_later(&["topologyKey", "whenUnsatisfiable"]) {
        let (key, action) = (
            constraint.text("topologyKey"),
            constraint.text("whenUnsatisfiable"),
        );
        errors.duplicate(
            &path.child("{topologyKey, whenUnsatisfiable}"),
            format!("{{{key}, {action}}}").as_str(),
        );
    }
}
