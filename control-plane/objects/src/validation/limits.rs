//! The checks that tables cannot express for limit ranges and resource quotas.

use super::errors::{ErrorPath, Errors, IS_IMMUTABLE, Shown};
use super::owner::Owner;
use super::pod::resources;
use super::{amounts, names};
use crate::view::{FieldView, child, set_if_absent};
use berth_api::Quantity;
use serde_json::Value;
use std::collections::BTreeSet;

const LIMIT_TYPES: [&str; 3] = ["Container", "PersistentVolumeClaim", "Pod"];
/// Scopes that a quota can have, and whether they are about CPU and memory of pods too.
const SCOPES: [(&str, bool); 7] = [
    ("BestEffort", false),
    ("CrossNamespacePodAffinity", true),
    ("NotBestEffort", true),
    ("NotTerminating", true),
    ("PriorityClass", true),
    ("Terminating", true),
    ("VolumeAttributesClass", false),
];
/// Mutually exclusive scopes of a quota.
const CONFLICTS: [[&str; 2]; 2] = [
    ["BestEffort", "NotBestEffort"],
    ["NotTerminating", "Terminating"],
];
const COMPUTE: [&str; 6] = [
    "cpu",
    "memory",
    "limits.cpu",
    "limits.memory",
    "requests.cpu",
    "requests.memory",
];

pub(crate) fn quota_amounts(e: &mut Errors, _: &Owner, list: &Value, path: &ErrorPath) {
    for (name, value) in list.as_object().into_iter().flatten() {
        let path = path.key(name);
        resources::validate_name(e, name, &path);
        if !name.contains('/') && !is_standard(name) {
            e.invalid(&path, name, "must be a standard resource for quota");
        }
        amounts::validate(e, name, value, &path);
    }
}

/// Returns whether quotas know the name. Names with a domain are always allowed.
fn is_standard(name: &str) -> bool {
    (resources::STANDARD.contains(&name) && name != "storage")
        || name.starts_with("hugepages-")
        || name.starts_with("requests.hugepages-")
}

/// Containers get the maximum as default limit, and the default limit or the minimum as default request.
pub(crate) fn default_item(item: &mut Value) {
    if item.text("type") != "Container" {
        return;
    }
    for (to, from) in [
        ("default", "max"),
        ("defaultRequest", "default"),
        ("defaultRequest", "min"),
    ] {
        let source = item.map(from).cloned().unwrap_or_default();
        if let Some(list) = child(item, to).filter(|_| !source.is_empty()) {
            for (name, amount) in source {
                set_if_absent(list, &name, amount);
            }
        }
    }
}

pub(crate) fn item(errors: &mut Errors, owner: &Owner, item: &Value, path: &ErrorPath) {
    let kind = item.text("type");
    let at = path.child("type");
    let faults = names::qualified_name(kind);
    if !faults.is_empty() {
        errors.each_invalid(&at, kind, faults);
    } else if !kind.contains('/') && !LIMIT_TYPES.contains(&kind) {
        errors.invalid(
            &at,
            kind,
            "must be a standard limit type or fully qualified",
        );
    }
    if owner.repeats("type") {
        errors.duplicate(&at, kind);
    }
    let mut known = BTreeSet::new();
    for list in [
        "max",
        "min",
        "default",
        "defaultRequest",
        "maxLimitRequestRatio",
    ] {
        if list.starts_with("default") && kind == "Pod" {
            if item.map(list).is_some_and(|m| !m.is_empty()) {
                let detail = "may not be specified when `type` is 'Pod'";
                errors.forbidden(&path.child(list), detail);
            }
            continue;
        }
        for (name, _) in item.entries(list) {
            let at = path.child(list).key(name);
            match kind {
                "Pod" | "Container" => resources::validate_container_name(errors, name, &at),
                _ => {
                    resources::validate_name(errors, name, &at);
                }
            }
            known.insert(name);
        }
    }
    let of = |list: &str, name: &str| amounts::get(item, list, name);
    let storage = ["min", "max"].map(|list| of(list, "storage"));
    if kind == "PersistentVolumeClaim" && storage == [None, None] {
        let detail =
            "either minimum or maximum storage value is required, but neither was provided";
        errors.required(&path.child("limits"), detail);
    }
    for name in known {
        let value = |list: &str| match list {
            "default" | "defaultRequest" if kind == "Pod" => None,
            list => of(list, name),
        };
        // The first amount may not be more than the second: the list that is reported, and the amount that is shown.
        for (low, high, reported, shown) in [
            ("min", "max", "min", 0),
            ("min", "defaultRequest", "defaultRequest", 1),
            ("defaultRequest", "max", "defaultRequest", 0),
            ("defaultRequest", "default", "defaultRequest", 0),
            ("min", "default", "default", 0),
            ("default", "max", "default", 1),
        ] {
            let label = |list: &str| match (list, low) {
                ("min", _) => "min value",
                ("max", _) => "max value",
                ("defaultRequest", _) => "default request value",
                (_, "defaultRequest") => "default limit value",
                _ => "default value",
            };
            if let (Some(least), Some(most)) = (value(low), value(high))
                && least > most
            {
                let (low, high) = (label(low), label(high));
                let detail = format!("{low} {least} is greater than {high} {most}");
                let shown = [least, most][shown].to_string();
                errors.invalid(&path.child(reported).key(name), &shown, detail);
            }
        }
        ratio(
            errors,
            name,
            value("maxLimitRequestRatio"),
            (value("min"), value("max")),
            path,
        );
        if let (Some(limit), Some(request)) = (value("default"), value("defaultRequest"))
            && limit != request
            && !amounts::is_overcommit_allowed(name)
        {
            errors.invalid(
                &path.child("defaultRequest").key(name),
                &request.to_string(),
                format!(
                    "default value {limit} must equal to defaultRequest value {request} in {name}"
                ),
            );
        }
    }
}

fn ratio(
    errors: &mut Errors,
    name: &str,
    ratio: Option<Quantity>,
    bounds: (Option<Quantity>, Option<Quantity>),
    path: &ErrorPath,
) {
    let Some(ratio) = ratio else { return };
    let at = path.child("maxLimitRequestRatio").key(name);
    let shown = ratio.to_string();
    if ratio.as_f64() < 1.0 {
        errors.invalid(&at, &shown, format!("ratio {ratio} is less than 1"));
    }
    if let (Some(min), Some(max)) = bounds {
        let widest = max.as_f64() / min.as_f64();
        if ratio.as_f64() > widest {
            let detail = format!("ratio {ratio} is greater than max/min = {widest:.6}");
            errors.invalid(&at, &shown, detail);
        }
    }
}

pub(crate) fn scopes(errors: &mut Errors, owner: &Owner, spec: &Value, path: &ErrorPath) {
    let hard: Vec<&str> = spec
        .entries("hard")
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    let is_known = |scope: &str| SCOPES.iter().any(|(known, _)| *known == scope);
    let is_about = |scope: &str, name: &str| match SCOPES.iter().find(|(s, _)| *s == scope) {
        _ if !is_standard(name) => true,
        Some(("VolumeAttributesClass", _)) => {
            matches!(name, "persistentvolumeclaims" | "requests.storage")
        }
        Some((_, compute)) => name == "pods" || (*compute && COMPUTE.contains(&name)),
        None => true,
    };
    let at = path.child("scopes");
    let listed = spec.strings("scopes");
    let conflicts = |scopes: &[&str]| {
        let both = |pair: &&[&str; 2]| pair.iter().all(|scope| scopes.contains(scope));
        CONFLICTS.iter().filter(both).count()
    };
    let shown = || spec.part("scopes");
    for scope in &listed {
        if !is_known(scope) {
            errors.invalid(&at, shown(), "unsupported scope");
        }
        for _ in hard.iter().filter(|name| !is_about(scope, name)) {
            errors.invalid(&at, shown(), "unsupported scope applied to resource");
        }
    }
    for _ in 0..conflicts(&listed) {
        errors.invalid(&at, shown(), "conflicting scopes");
    }
    let terms = spec.part("scopeSelector").items("matchExpressions");
    let at = path.child("scopeSelector.matchExpressions");
    for term in terms {
        let (scope, operator) = (term.text("scopeName"), term.text("operator"));
        if !is_known(scope) {
            errors.invalid(&at.child("scopeName"), scope, "unsupported scope");
        }
        for _ in hard.iter().filter(|name| !is_about(scope, name)) {
            errors.invalid(
                &at,
                internal(terms),
                "unsupported scope applied to resource",
            );
        }
        let has_values = matches!(scope, "PriorityClass" | "VolumeAttributesClass");
        if is_known(scope) && !has_values && operator != "Exists" {
            errors.invalid(
                &at.child("operator"),
                operator,
                "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity",
            );
        }
        let at_values = at.child("values");
        match (operator, term.items("values").is_empty()) {
            ("In" | "NotIn", true) => errors.required(
                &at_values,
                "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector",
            ),
            ("Exists" | "DoesNotExist", false) => errors.invalid(
                &at_values,
                term.part("values"),
                "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector",
            ),
            ("In" | "NotIn" | "Exists" | "DoesNotExist", _) => {}
            _ => errors.invalid(
                &at.child("operator"),
                operator,
                "not a valid selector operator",
            ),
        }
    }
    let named: Vec<&str> = terms.iter().map(|t| t.text("scopeName")).collect();
    for _ in 0..conflicts(&named) {
        errors.invalid(
            &path.child("scopeSelector.scopes"),
            shown(),
            "conflicting scopes",
        );
    }
    let before = owner
        .old
        .map(|old| old.strings("scopes").into_iter().collect());
    if before.is_some_and(|before: BTreeSet<&str>| before != listed.into_iter().collect()) {
        errors.invalid(&path.child("scopes"), shown(), IS_IMMUTABLE);
    }
}

/// A scope selector as upstream prints it: with the names of its internal type.
fn internal(terms: &[Value]) -> Shown {
    let terms: Vec<String> = terms
        .iter()
        .map(|term| {
            let [scope, operator, values] =
                ["scopeName", "operator", "values"].map(|field| term.part(field));
            format!("{{\"ScopeName\":{scope},\"Operator\":{operator},\"Values\":{values}}}")
        })
        .collect();
    Shown(format!("{{\"MatchExpressions\":[{}]}}", terms.join(",")))
}
