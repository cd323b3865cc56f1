//! The checks that the tables cannot express for HorizontalPodAutoscalers: metrics, targets and scaling rules.

use super::errors::{ErrorPath, Errors, IS_NEGATIVE};
use super::owner::Owner;
use super::{amounts, names};
use crate::view::FieldView;
use serde_json::Value;

const PERIOD_SECONDS_MAX: i64 = 1_800;
const WINDOW_SECONDS_MAX: i64 = 3_600;
const GROUP_REQUIRED: &str = "apiVersion must specify API group";
const SOURCE_REQUIRED: &str = "must populate information for the given metric source";
/// The types of metrics, in the order of errors.
const TYPES: [&str; 5] = [
    "ContainerResource",
    "External",
    "Object",
    "Pods",
    "Resource",
];
/// The sources in the order of the checks, with their types.
const SOURCES: [(&str, &str); 5] = [
    ("object", "Object"),
    ("external", "External"),
    ("pods", "Pods"),
    ("resource", "Resource"),
    ("containerResource", "ContainerResource"),
];

pub(crate) fn autoscaler(errors: &mut Errors, owner: &Owner, object: &Value, _: &ErrorPath) {
    let (spec, path) = (object.part("spec"), ErrorPath::new("spec"));
    let min = spec.maybe_int("minReplicas");
    let max = spec.int("maxReplicas");
    if let Some(min) = min.filter(|min| *min < 1) {
        let detail = "must be greater than or equal to 1";
        errors.invalid(&path.child("minReplicas"), min, detail);
    }
    let at = path.child("maxReplicas");
    match max {
        0 => errors.required(&at, "must be set and greater than 0"),
        1.. => {}
        _ => errors.invalid(&at, max, "must be greater than or equal to 1"),
    }
    if min.is_some_and(|min| max < min) {
        let detail = "must be greater than or equal to `minReplicas`";
        errors.invalid(&at, max, detail);
    }
    target_of_scale(errors, owner, spec.part("scaleTargetRef"), &path);
    for (i, metric) in spec.items("metrics").iter().enumerate() {
        validate_metric(errors, metric, &path.child("metrics").index(i));
    }
    let behavior = spec.part("behavior");
    for direction in ["scaleUp", "scaleDown"] {
        if let Some(rules) = behavior.field(direction) {
            scaling_rules(errors, rules, &path.child("behavior").child(direction));
        }
    }
}

fn target_of_scale(errors: &mut Errors, owner: &Owner, target: &Value, path: &ErrorPath) {
    let path = path.child("scaleTargetRef");
    reference(errors, target, &path);
    let before = owner.old.map(|old| old.part("spec").part("scaleTargetRef"));
    let same = |field| before.is_some_and(|before| before.text(field) == target.text(field));
    if same("apiVersion") && same("kind") {
        return;
    }
    let needs_group = target.text("kind") != "ReplicationController";
    api_version(errors, target, needs_group, &path);
}

fn reference(errors: &mut Errors, reference: &Value, path: &ErrorPath) {
    for field in ["kind", "name"] {
        errors.check_name(&path.child(field), reference.text(field), |text| {
            names::path_segment(text, false)
        });
    }
}

fn api_version(errors: &mut Errors, reference: &Value, needs_group: bool, path: &ErrorPath) {
    let version = reference.text("apiVersion");
    let fault = match version.matches('/').count() {
        0 if needs_group => GROUP_REQUIRED.to_owned(),
        0 | 1 => return,
        _ => format!("unexpected GroupVersion string: {version}"),
    };
    errors.invalid(&path.child("apiVersion"), version, fault);
}

fn scaling_rules(errors: &mut Errors, rules: &Value, path: &ErrorPath) {
    if let Some(window) = rules.maybe_int("stabilizationWindowSeconds") {
        let at = path.child("stabilizationWindowSeconds");
        if window < 0 {
            errors.invalid(&at, window, "must be greater than or equal to zero");
        }
        if window > WINDOW_SECONDS_MAX {
            let detail = format!("must be less than or equal to {WINDOW_SECONDS_MAX}");
            errors.invalid(&at, window, detail);
        }
    }
    let known = ["Disabled", "Max", "Min"];
    if let Some(policy) = rules.maybe_text("selectPolicy")
        && !known.contains(&policy)
    {
        errors.not_supported(&path.child("selectPolicy"), policy, &known);
    }
    let at = path.child("policies");
    if rules.items("policies").is_empty() {
        errors.required(&at, "must specify at least one Policy");
    }
    for (i, policy) in rules.items("policies").iter().enumerate() {
        let at = at.index(i);
        let kind = policy.text("type");
        if !matches!(kind, "Percent" | "Pods") {
            errors.not_supported(&at.child("type"), kind, &["Percent", "Pods"]);
        }
        for field in ["value", "periodSeconds"] {
            let number = policy.int(field);
            if number <= 0 {
                errors.invalid(&at.child(field), number, "must be greater than zero");
            }
        }
        let period = policy.int("periodSeconds");
        if period > PERIOD_SECONDS_MAX {
            let detail = format!("must be less than or equal to {PERIOD_SECONDS_MAX}");
            errors.invalid(&at.child("periodSeconds"), period, detail);
        }
    }
    // A tolerance below zero would scale at every difference.
    if let Some(tolerance) = rules.field("tolerance").and_then(amounts::parse)
        && tolerance.sign() < 0
    {
        let shown = tolerance.to_string();
        errors.invalid(&path.child("tolerance"), &shown, IS_NEGATIVE);
    }
}

fn validate_metric(errors: &mut Errors, metric: &Value, path: &ErrorPath) {
    let (kind, at) = (metric.text("type"), path.child("type"));
    if kind.is_empty() {
        errors.required(&at, "must specify a metric source type");
    }
    if !TYPES.contains(&kind) {
        errors.not_supported(&at, kind, &TYPES);
    }
    let given = SOURCES
        .iter()
        .filter(|(field, _)| metric.field(field).is_some());
    let given: Vec<&str> = given.map(|(field, _)| *field).collect();
    if let Some(first) = given.first() {
        source(errors, first, metric.part(first), &path.child(first));
    }
    let expected = SOURCES.iter().find(|(_, of)| *of == kind).map(|(f, _)| *f);
    match expected {
        Some(field) if metric.field(field).is_none() => {
            errors.required(&path.child(field), SOURCE_REQUIRED);
        }
        Some(_) => {}
        // Upstream reports this twice.
        None => errors.not_supported(&at, kind, &TYPES),
    }
    if given.len() != 1 {
        for field in given.into_iter().filter(|field| Some(*field) != expected) {
            let detail = "must populate the given metric source only";
            errors.forbidden(&path.child(field), detail);
        }
    }
}

fn source(errors: &mut Errors, kind: &str, source: &Value, path: &ErrorPath) {
    let target = source.part("target");
    let has = |field: &str| target.field(field).is_some();
    let (utilization, average) = (has("averageUtilization"), has("averageValue"));
    let at = path.child("target");
    match kind {
        "object" => {
            let described = source.part("describedObject");
            let described_path = path.child("describedObject");
            reference(errors, described, &described_path);
            api_version(errors, described, false, &described_path);
            identifier(errors, source, path);
            validate_target(errors, target, &at);
            if !has("value") && !average {
                let detail = "must set either a target value or averageValue";
                errors.required(&at.child("averageValue"), detail);
            }
            return;
        }
        "external" => {
            identifier(errors, source, path);
            validate_target(errors, target, &at);
            if !has("value") && !average {
                let detail = "must set either a target value for metric or a per-pod target";
                errors.required(&at.child("averageValue"), detail);
            }
            if has("value") && average {
                let detail = "may not set both a target value for metric and a per-pod target";
                errors.forbidden(&at.child("value"), detail);
            }
            return;
        }
        "pods" => {
            identifier(errors, source, path);
            validate_target(errors, target, &at);
            if !average {
                let detail = "must specify a positive target averageValue";
                errors.required(&at.child("averageValue"), detail);
            }
            return;
        }
        _ => {}
    }
    let (name, name_path) = (source.text("name"), path.child("name"));
    if name.is_empty() {
        errors.required(&name_path, "must specify a resource name");
    }
    if kind == "containerResource" {
        if !name.is_empty() {
            super::pod::resources::validate_name(errors, name, &name_path);
        }
        let (container, at) = (source.text("container"), path.child("container"));
        if container.is_empty() {
            errors.required(&at, "must specify a container");
        } else {
            errors.each_invalid(&at, container, names::dns_label(container));
        }
    }
    validate_target(errors, target, &at);
    if !utilization && !average {
        let detail = "must set either a target raw value or a target utilization";
        errors.required(&at.child("averageUtilization"), detail);
    }
    if utilization && average {
        let detail = "may not set both a target raw value and a target utilization";
        errors.forbidden(&at.child("averageValue"), detail);
    }
}

fn identifier(errors: &mut Errors, source: &Value, path: &ErrorPath) {
    let name = source.part("metric").text("name");
    let at = path.child("metric").child("name");
    if name.is_empty() {
        errors.required(&at, "must specify a metric name");
    } else {
        errors.each_invalid(&at, name, names::path_segment(name, false));
    }
}

fn validate_target(errors: &mut Errors, target: &Value, path: &ErrorPath) {
    let (kind, at) = (target.text("type"), path.child("type"));
    if kind.is_empty() {
        errors.required(&at, "must specify a metric target type");
    }
    if !matches!(kind, "Utilization" | "Value" | "AverageValue") {
        let detail = "must be either Utilization, Value, or AverageValue";
        errors.invalid(&at, kind, detail);
    }
    for field in ["value", "averageValue"] {
        let amount = target.field(field);
        if let Some(amount) = amount
            && amounts::parse(amount).is_none_or(|quantity| quantity.sign() <= 0)
        {
            errors.invalid(&path.child(field), amount, "must be positive");
        }
    }
    if let Some(percent) = target.maybe_int("averageUtilization").filter(|p| *p < 1) {
        let at = path.child("averageUtilization");
        errors.invalid(&at, percent, "must be greater than 0");
    }
}
