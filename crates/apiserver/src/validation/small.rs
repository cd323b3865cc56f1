//! Kinds with few rules: Namespaces, Leases, PriorityClasses, PodDisruptionBudgets and Events.

use super::errors::{Errors, Path, Shown};
use super::metadata::validate_plain_finalizer;
use super::names;
use super::normal;
use super::pod::spec::validate_preemption_policy;
use super::selectors::validate_label_selector;
use super::view::{View, child, set, set_if_absent, set_if_zero};
use super::workloads::{spec_of, validate_at_most_all, validate_counts, validate_int_or_percent};
use crate::field::FieldError;
use crate::strategy::{RequestContext, Strategy, Subresource};
use serde_json::{Value, json};

/// The highest priority that a user may define.
const USER_PRIORITY_MAX: i64 = 1_000_000_000;
/// Priority classes of Kubernetes itself, and their values.
const SYSTEM_CLASSES: [(&str, i64); 2] = [
    ("system-cluster-critical", 2_000_000_000),
    ("system-node-critical", 2_000_001_000),
];
/// Longest texts of an event, in bytes.
const EVENT_NAME_BYTES_MAX: usize = 128;
const EVENT_NOTE_BYTES_MAX: usize = 1024;

fn metadata_text<'a>(object: &'a Value, field: &str) -> &'a str {
    object.field("metadata").map_or("", |m| m.text(field))
}

/// The strategy of Namespaces. Their label, finalizer and phase are set by the registry.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct NamespaceStrategy;

impl Strategy for NamespaceStrategy {
    fn default(&self, object: &mut Value) {
        normal::normalize(object, ("", "v1", "Namespace"));
        if let Some(status) = child(object, "status") {
            set_if_zero(status, "phase", "Active");
        }
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let path = Path::new("spec.finalizers");
        for finalizer in spec_of(object).strings("finalizers") {
            errors.each_invalid(&path, finalizer, names::qualified_name(finalizer));
            validate_plain_finalizer(&mut errors, finalizer, &path);
        }
        errors.into_vec()
    }

    fn validate_update(
        &self,
        new: &Value,
        _old: &Value,
        subresource: Subresource,
    ) -> Vec<FieldError> {
        let mut errors = Errors::new();
        if subresource == Subresource::Status {
            let phase = new
                .at(&["status", "phase"])
                .and_then(Value::as_str)
                .unwrap_or("");
            let deleting = new.at(&["metadata", "deletionTimestamp"]).is_some();
            let (wanted, word) = if deleting {
                ("Terminating", "not ")
            } else {
                ("Active", "")
            };
            if phase != wanted {
                errors.invalid(
                    &Path::new("status.Phase"),
                    phase,
                    format!("may only be '{wanted}' if `deletionTimestamp` is {word}empty"),
                );
            }
        }
        errors.into_vec()
    }
}

/// The strategy of Leases.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct LeaseStrategy;

impl Strategy for LeaseStrategy {
    fn default(&self, object: &mut Value) {
        normal::normalize(object, ("coordination.k8s.io", "v1", "Lease"));
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let path = Path::new("spec");
        let spec = spec_of(object);
        if let Some(seconds) = spec.maybe_int("leaseDurationSeconds")
            && seconds <= 0
        {
            errors.invalid(
                &path.child("leaseDurationSeconds"),
                seconds,
                "must be greater than 0",
            );
        }
        validate_counts(&mut errors, spec, &["leaseTransitions"], &path);
        if let Some(strategy) = spec.maybe_text("strategy") {
            let at = path.child("strategy");
            errors.each_invalid(&at, strategy, names::qualified_name(strategy));
        }
        if spec.field("preferredHolder").is_some() && spec.text("strategy").is_empty() {
            errors.forbidden(
                &path.child("preferredHolder"),
                "may only be specified if `strategy` is defined",
            );
        }
        errors.into_vec()
    }
}

/// The strategy of PriorityClasses.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct PriorityClassStrategy;

impl Strategy for PriorityClassStrategy {
    fn default(&self, object: &mut Value) {
        normal::normalize(object, ("scheduling.k8s.io", "v1", "PriorityClass"));
        set_if_absent(object, "preemptionPolicy", "PreemptLowerPriority");
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let name = metadata_text(object, "name");
        let value = object.int("value");
        if name.starts_with("system-") {
            let problem = match SYSTEM_CLASSES.iter().find(|(known, _)| *known == name) {
                None => Some(format!("{name} is not a known system priority class")),
                Some((_, known)) if value != *known => {
                    Some(format!("value of {name} PriorityClass must be {known}"))
                }
                Some(_) if object.flag("globalDefault") => Some(format!(
                    "globalDefault of {name} PriorityClass must be false"
                )),
                Some(_) => None,
            };
            if let Some(problem) = problem {
                errors.forbidden(
                    &Path::new("metadata.name"),
                    format!(
                        "priority class names with 'system-' prefix are reserved for system use only. error: {problem}"
                    ),
                );
            }
        } else if value > USER_PRIORITY_MAX {
            errors.forbidden(
                &Path::new("value"),
                format!("maximum allowed value of a user defined priority is {USER_PRIORITY_MAX}"),
            );
        }
        if let Some(policy) = object.maybe_text("preemptionPolicy") {
            validate_preemption_policy(&mut errors, policy, &Path::new("preemptionPolicy"));
        }
        errors.into_vec()
    }

    fn validate_update(
        &self,
        new: &Value,
        old: &Value,
        _subresource: Subresource,
    ) -> Vec<FieldError> {
        let mut errors = Errors::new();
        if new.int("value") != old.int("value") {
            errors.forbidden(&Path::new("value"), "may not be changed in an update.");
        }
        if new.field("preemptionPolicy") != old.field("preemptionPolicy") {
            let shown = new
                .field("preemptionPolicy")
                .map_or_else(Shown::absent, Shown::from);
            errors.invalid(
                &Path::new("preemptionPolicy"),
                shown,
                super::errors::IS_IMMUTABLE,
            );
        }
        errors.into_vec()
    }
}

/// The strategy of PodDisruptionBudgets.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct DisruptionBudgetStrategy;

/// Counts of a budget's status that are always there.
const BUDGET_COUNTS: [&str; 4] = [
    "disruptionsAllowed",
    "currentHealthy",
    "desiredHealthy",
    "expectedPods",
];

impl Strategy for DisruptionBudgetStrategy {
    fn default(&self, object: &mut Value) {
        normal::normalize(object, ("policy", "v1", "PodDisruptionBudget"));
    }

    fn prepare_for_create(&self, object: &mut Value, _cx: &RequestContext) {
        let mut status = json!({});
        for count in BUDGET_COUNTS {
            set(&mut status, count, 0);
        }
        set(object, "status", status);
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let path = Path::new("spec");
        let spec = spec_of(object);
        if spec.field("minAvailable").is_some() && spec.field("maxUnavailable").is_some() {
            errors.invalid(
                &path,
                spec,
                "minAvailable and maxUnavailable cannot be both set",
            );
        }
        for field in ["minAvailable", "maxUnavailable"] {
            validate_int_or_percent(&mut errors, spec, field, &path);
            validate_at_most_all(&mut errors, spec, field, &path);
        }
        validate_label_selector(&mut errors, spec.field("selector"), &path.child("selector"));
        if let Some(policy) = spec.maybe_text("unhealthyPodEvictionPolicy") {
            let known = &["AlwaysAllow", "IfHealthyBudget"];
            if !known.contains(&policy) {
                errors.not_supported(&path.child("unhealthyPodEvictionPolicy"), policy, known);
            }
        }
        errors.into_vec()
    }

    fn validate_update(
        &self,
        new: &Value,
        _old: &Value,
        subresource: Subresource,
    ) -> Vec<FieldError> {
        if subresource == Subresource::Main {
            return self.validate(new);
        }
        let mut errors = Errors::new();
        let empty = Value::Null;
        let status = new.field("status").unwrap_or(&empty);
        validate_counts(&mut errors, status, &BUDGET_COUNTS, &Path::new("status"));
        errors.into_vec()
    }
}

/// The strategy of Events, which are stored in the shape of core/v1.
///
/// An event with `eventTime` is of the new kind and says who reports what; the old kind only has to agree with
/// its namespace.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct EventStrategy;

impl Strategy for EventStrategy {
    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let namespace = metadata_text(object, "namespace");
        let about = object
            .field("involvedObject")
            .map_or("", |o| o.text("namespace"));
        // Events about what has no namespace go to `default` or, from older clients, to `kube-system`.
        let agrees = match about {
            "" => matches!(namespace, "" | "default" | "kube-system"),
            about => about == namespace,
        };
        if !agrees {
            errors.invalid(
                &Path::new("involvedObject.namespace"),
                about,
                "does not match event.namespace",
            );
        }
        if object.field("eventTime").is_none() {
            return errors.into_vec();
        }
        let controller = object.text("reportingComponent");
        let at = Path::new("reportingController");
        if controller.is_empty() {
            errors.required(&at, "");
        }
        errors.each_invalid(&at, controller, names::qualified_name(controller));
        let instance = object.text("reportingInstance");
        let at = Path::new("reportingInstance");
        if instance.is_empty() {
            errors.required(&at, "");
        }
        if instance.len() > EVENT_NAME_BYTES_MAX {
            errors.invalid(
                &at,
                "",
                format!("can have at most {EVENT_NAME_BYTES_MAX} characters"),
            );
        }
        for (field, bytes_max, required) in [
            ("action", EVENT_NAME_BYTES_MAX, true),
            ("reason", EVENT_NAME_BYTES_MAX, true),
            ("message", EVENT_NOTE_BYTES_MAX, false),
        ] {
            let at = Path::new(field);
            let text = object.text(field);
            if required && text.is_empty() {
                errors.required(&at, "");
            }
            if text.len() > bytes_max {
                errors.invalid(&at, "", format!("can have at most {bytes_max} characters"));
            }
        }
        let kind = object.text("type");
        if !matches!(kind, "Normal" | "Warning") {
            errors.invalid(&Path::new("type"), "", format!("has invalid value: {kind}"));
        }
        errors.into_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(errors: &[FieldError]) -> Vec<&str> {
        errors.iter().map(|e| e.field.as_str()).collect()
    }

    #[test]
    fn priority_classes_keep_their_value_and_system_names() {
        let mut class =
            json!({"metadata": {"name": "high"}, "value": 1000, "globalDefault": false});
        PriorityClassStrategy.default(&mut class);
        assert_eq!(
            class,
            json!({"metadata": {"name": "high"}, "value": 1000,
                "preemptionPolicy": "PreemptLowerPriority"})
        );
        let cases = [
            (
                json!({"metadata": {"name": "a"}, "value": 1_000_000_000}),
                vec![],
            ),
            (
                json!({"metadata": {"name": "a"}, "value": 1_000_000_001}),
                vec!["value"],
            ),
            (
                json!({"metadata": {"name": "system-mine"}, "value": 1}),
                vec!["metadata.name"],
            ),
            (
                json!({"metadata": {"name": "system-node-critical"}, "value": 2_000_001_000}),
                vec![],
            ),
            (
                json!({"metadata": {"name": "a"}, "preemptionPolicy": "Maybe"}),
                vec!["preemptionPolicy"],
            ),
        ];
        for (class, expected) in cases {
            assert_eq!(
                fields(&PriorityClassStrategy.validate(&class)),
                expected,
                "{class}"
            );
        }
        let mut changed = class.clone();
        changed["value"] = json!(1);
        let errors = PriorityClassStrategy.validate_update(&changed, &class, Subresource::Main);
        assert_eq!(fields(&errors), ["value"]);
    }

    #[test]
    fn budgets_bound_one_side() {
        let cases = [
            (json!({"minAvailable": 1}), vec![]),
            (json!({"minAvailable": "150%"}), vec!["spec.minAvailable"]),
            (json!({"maxUnavailable": -1}), vec!["spec.maxUnavailable"]),
            (
                json!({"minAvailable": 1, "maxUnavailable": 1}),
                vec!["spec"],
            ),
            (json!({"minAvailable": "half"}), vec!["spec.minAvailable"]),
        ];
        for (spec, expected) in cases {
            let mut budget = json!({"spec": spec});
            DisruptionBudgetStrategy.default(&mut budget);
            assert_eq!(
                fields(&DisruptionBudgetStrategy.validate(&budget)),
                expected
            );
            assert_eq!(budget["status"]["expectedPods"], 0);
        }
    }

    #[test]
    fn events_agree_with_their_namespace_and_say_who_reports() {
        let cases = [
            (
                json!({"metadata": {"namespace": "default"}, "involvedObject": {"kind": "Node"}}),
                vec![],
            ),
            (
                json!({"metadata": {"namespace": "a"}, "involvedObject": {"namespace": "b"}}),
                vec!["involvedObject.namespace"],
            ),
            (
                json!({"metadata": {"namespace": "default"}, "eventTime": "t", "type": "Warning",
                    "reportingComponent": "default-scheduler", "reportingInstance": "x",
                    "action": "Scheduling", "reason": "FailedScheduling", "message": "n"}),
                vec![],
            ),
            (
                json!({"metadata": {"namespace": "default"}, "eventTime": "t",
                    "reportingComponent": "c", "reason": "r", "message": "x".repeat(1025)}),
                vec!["reportingInstance", "action", "message", "type"],
            ),
        ];
        for (event, expected) in cases {
            assert_eq!(fields(&EventStrategy.validate(&event)), expected);
        }
    }

    #[test]
    fn leases_last() {
        let cases = [
            (
                json!({"leaseDurationSeconds": 15, "leaseTransitions": 0}),
                vec![],
            ),
            (
                json!({"leaseDurationSeconds": 0, "leaseTransitions": -1}),
                vec!["spec.leaseDurationSeconds", "spec.leaseTransitions"],
            ),
        ];
        for (spec, expected) in cases {
            assert_eq!(
                fields(&LeaseStrategy.validate(&json!({"spec": spec}))),
                expected
            );
        }
    }
}
