//! Validation of what steers a pod to nodes: affinity, tolerations, spreading and gates.

use crate::validation::errors::{Errors, Path};
use crate::validation::names;
use crate::validation::selectors::validate_label_selector;
use crate::validation::view::View;
use serde_json::Value;
use std::collections::HashSet;

/// The effects that a taint may have.
const TAINT_EFFECTS: &[&str] = &["NoSchedule", "PreferNoSchedule", "NoExecute"];
const SPREAD_ACTIONS: &[&str] = &["DoNotSchedule", "ScheduleAnyway"];
const NODE_POLICIES: &[&str] = &["Honor", "Ignore"];
const WEIGHT_RANGE: &str = "must be in the range 1-100";
const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

/// Errors of `spec.affinity`.
pub(crate) fn validate_affinity(errors: &mut Errors, affinity: Option<&Value>, path: &Path) {
    let Some(affinity) = affinity else {
        return;
    };
    if let Some(node) = affinity.field("nodeAffinity") {
        let path = path.child("nodeAffinity");
        if let Some(selector) = node.field(REQUIRED) {
            validate_node_selector(errors, selector, &path.child(REQUIRED));
        }
        for (i, preferred) in node.items(PREFERRED).iter().enumerate() {
            let path = path.child(PREFERRED).index(i);
            validate_weight(errors, preferred, &path);
            if let Some(term) = preferred.field("preference") {
                validate_node_term(errors, term, false, &path.child("preference"));
            }
        }
    }
    for kind in ["podAffinity", "podAntiAffinity"] {
        let Some(affinity) = affinity.field(kind) else {
            continue;
        };
        let path = path.child(kind);
        for (i, term) in affinity.items(REQUIRED).iter().enumerate() {
            validate_pod_term(errors, term, &path.child(REQUIRED).index(i));
        }
        for (i, weighted) in affinity.items(PREFERRED).iter().enumerate() {
            let path = path.child(PREFERRED).index(i);
            validate_weight(errors, weighted, &path);
            let empty = Value::Null;
            let term = weighted.field("podAffinityTerm").unwrap_or(&empty);
            validate_pod_term(errors, term, &path.child("podAffinityTerm"));
        }
    }
}

fn validate_weight(errors: &mut Errors, weighted: &Value, path: &Path) {
    let weight = weighted.int("weight");
    if !(1..=100).contains(&weight) {
        errors.invalid(&path.child("weight"), weight, WEIGHT_RANGE);
    }
}

/// Errors of a node selector: terms of which one has to match.
pub(crate) fn validate_node_selector(errors: &mut Errors, selector: &Value, path: &Path) {
    let path = path.child("nodeSelectorTerms");
    let terms = selector.items("nodeSelectorTerms");
    if terms.is_empty() {
        errors.required(&path, "must have at least one node selector term");
        return;
    }
    for (i, term) in terms.iter().enumerate() {
        validate_node_term(errors, term, true, &path.index(i));
    }
}

fn validate_node_term(errors: &mut Errors, term: &Value, strict_values: bool, path: &Path) {
    for (i, requirement) in term.items("matchExpressions").iter().enumerate() {
        let path = path.child("matchExpressions").index(i);
        validate_node_requirement(errors, requirement, strict_values, &path);
    }
    for (i, requirement) in term.items("matchFields").iter().enumerate() {
        validate_node_field(errors, requirement, &path.child("matchFields").index(i));
    }
}

fn validate_node_requirement(
    errors: &mut Errors,
    requirement: &Value,
    strict_values: bool,
    path: &Path,
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
    if strict_values {
        for (i, value) in values.iter().enumerate() {
            errors.each_invalid(&at.index(i), value, names::label_value(value));
        }
    }
}

fn validate_node_field(errors: &mut Errors, requirement: &Value, path: &Path) {
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

fn validate_pod_term(errors: &mut Errors, term: &Value, path: &Path) {
    let selector = term.field("labelSelector");
    validate_label_selector(errors, selector, &path.child("labelSelector"));
    validate_label_selector(
        errors,
        term.field("namespaceSelector"),
        &path.child("namespaceSelector"),
    );
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
    for (i, key) in keys_repeated_in_selector(&match_keys, selector) {
        errors.invalid(
            &path.index(i),
            key,
            "exists in both matchLabelKeys and labelSelector",
        );
    }
    for (i, key) in match_keys.iter().enumerate() {
        if mismatch_keys.contains(key) {
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

fn validate_label_keys(errors: &mut Errors, keys: &[&str], selector: Option<&Value>, path: &Path) {
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

/// Keys that the selector names once more than `matchLabelKeys` accounts for: those keys were merged into the
/// selector when the pod was created, so that only a second mention is the user's.
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
    let mut repeated = Vec::new();
    for requirement in selector.items("matchExpressions") {
        let key = requirement.text("key");
        if seen.contains(key)
            && let Some(i) = keys.iter().rposition(|k| *k == key)
        {
            repeated.push((i, keys[i]));
        }
        seen.insert(key);
    }
    repeated
}

/// Errors of `spec.tolerations`.
pub(crate) fn validate_tolerations(errors: &mut Errors, tolerations: &[Value], path: &Path) {
    for (i, toleration) in tolerations.iter().enumerate() {
        let path = path.index(i);
        let key = toleration.text("key");
        let operator = toleration.text("operator");
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
            "Exists" => {
                if !value.is_empty() {
                    errors.invalid(
                        &operator_path,
                        value,
                        "value must be empty when `operator` is 'Exists'",
                    );
                }
            }
            other => errors.not_supported(&operator_path, other, &["Equal", "Exists"]),
        }
        if !effect.is_empty() {
            validate_taint_effect(errors, effect, &path.child("effect"));
        }
    }
}

/// Errors of the effect of a taint.
pub(crate) fn validate_taint_effect(errors: &mut Errors, effect: &str, path: &Path) {
    if !TAINT_EFFECTS.contains(&effect) {
        errors.not_supported(path, effect, TAINT_EFFECTS);
    }
}

/// Errors of `spec.schedulingGates`: qualified names, each once (rules API-3 and API-4).
pub(crate) fn validate_gates(errors: &mut Errors, gates: &[Value], path: &Path) {
    let mut seen = HashSet::new();
    for (i, gate) in gates.iter().enumerate() {
        let name = gate.text("name");
        errors.each_invalid(&path.index(i), name, names::qualified_name(name));
        if !seen.insert(name) {
            errors.duplicate(&path.index(i), name);
        }
    }
}

/// Errors of `spec.topologySpreadConstraints`.
pub(crate) fn validate_spread(errors: &mut Errors, constraints: &[Value], path: &Path) {
    for (i, constraint) in constraints.iter().enumerate() {
        let path = path.index(i);
        let max_skew = constraint.int("maxSkew");
        if max_skew <= 0 {
            errors.invalid(
                &path.child("maxSkew"),
                max_skew,
                "must be greater than zero",
            );
        }
        let key = constraint.text("topologyKey");
        if key.is_empty() {
            errors.required(&path.child("topologyKey"), "can not be empty");
        }
        let action = constraint.text("whenUnsatisfiable");
        if !SPREAD_ACTIONS.contains(&action) {
            errors.not_supported(&path.child("whenUnsatisfiable"), action, SPREAD_ACTIONS);
        }
        let repeated = constraints
            .iter()
            .skip(i + 1)
            .any(|c| c.text("topologyKey") == key && c.text("whenUnsatisfiable") == action);
        if repeated {
            errors.duplicate(
                &path.child("{topologyKey, whenUnsatisfiable}"),
                format!("{{{key}, {action}}}").as_str(),
            );
        }
        if let Some(domains) = constraint.maybe_int("minDomains") {
            let at = path.child("minDomains");
            if domains <= 0 {
                errors.invalid(&at, domains, "must be greater than zero");
            }
            if action != "DoNotSchedule" {
                errors.invalid(
                    &at,
                    domains,
                    format!(
                        "can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}"
                    ),
                );
            }
        }
        for field in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
            if let Some(policy) = constraint.maybe_text(field)
                && !NODE_POLICIES.contains(&policy)
            {
                errors.not_supported(&path.child(field), policy, NODE_POLICIES);
            }
        }
        let selector = constraint.field("labelSelector");
        let keys = constraint.strings("matchLabelKeys");
        let at = path.child("matchLabelKeys");
        validate_label_keys(errors, &keys, selector, &at);
        for (i, key) in keys_repeated_in_selector(&keys, selector) {
            errors.invalid(
                &at.index(i),
                key,
                "exists in both matchLabelKeys and labelSelector",
            );
        }
        validate_label_selector(errors, selector, &path.child("labelSelector"));
    }
}
