//! The rules of StatefulSets and DaemonSets.

use super::errors::{Errors, Path};
use super::metadata::validate_annotations;
use super::pod::scheduling::validate_gates;
use super::pod::spec::validate_template;
use super::selectors;
use super::view::{View, child, copy_field, existing, items_mut, set, set_if_absent, set_if_zero};
use super::workloads::{
    default_workload, int_or_percent, spec_of, validate_at_most_all, validate_counts,
    validate_endless, validate_int_or_percent, validate_replica_status, validate_selector,
    validate_selector_kept, validate_template_labels,
};
use crate::field::FieldError;
use crate::strategy::{RequestContext, Strategy, Subresource};
use serde_json::{Value, json};

/// Fields of a StatefulSet that may change.
const MUTABLE: &[&str] = &[
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
];

/// The strategy of StatefulSets.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct StatefulSetStrategy;

impl Strategy for StatefulSetStrategy {
    fn default(&self, object: &mut Value) {
        default_workload(object, ("apps", "v1", "StatefulSet"));
        let Some(spec) = existing(object, "spec") else {
            return;
        };
        set_if_zero(spec, "podManagementPolicy", "OrderedReady");
        if let Some(strategy) = child(spec, "updateStrategy") {
            if strategy.text("type").is_empty() {
                set(strategy, "type", "RollingUpdate");
                let _ = child(strategy, "rollingUpdate");
            }
            if strategy.text("type") == "RollingUpdate"
                && let Some(rolling) = existing(strategy, "rollingUpdate")
            {
                set_if_absent(rolling, "partition", 0);
            }
        }
        if let Some(policy) = child(spec, "persistentVolumeClaimRetentionPolicy") {
            set_if_zero(policy, "whenDeleted", "Retain");
            set_if_zero(policy, "whenScaled", "Retain");
        }
        set_if_absent(spec, "replicas", 1);
        set_if_absent(spec, "revisionHistoryLimit", 10);
        for claim in items_mut(spec, "volumeClaimTemplates") {
            super::volumes::ClaimStrategy.default(claim);
            set_if_absent(claim, "kind", "PersistentVolumeClaim");
            set_if_absent(claim, "apiVersion", "v1");
        }
    }

    fn prepare_for_create(&self, object: &mut Value, _cx: &RequestContext) {
        set(
            object,
            "status",
            json!({"replicas": 0, "availableReplicas": 0}),
        );
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let path = Path::new("spec");
        let spec = spec_of(object);
        validate_policies(&mut errors, spec, &path);
        validate_counts(&mut errors, spec, &["replicas", "minReadySeconds"], &path);
        if let Some(ordinals) = spec.field("ordinals") {
            validate_counts(&mut errors, ordinals, &["start"], &path.child("ordinals"));
        }
        validate_selector(
            &mut errors,
            spec,
            "empty selector is invalid for statefulset",
            &path,
        );
        validate_template_labels(&mut errors, spec, &path);
        // The volumes of the template are completed by claims, so its mounts cannot be checked here.
        let at = path.child("template");
        if let Some(template) = spec.field("template") {
            let empty = Value::Null;
            let metadata = template.field("metadata").unwrap_or(&empty);
            selectors::validate_labels(&mut errors, metadata, "labels", &at.child("labels"));
            validate_annotations(&mut errors, metadata, &at.child("annotations"));
            if spec_of(template).items("containers").is_empty() {
                errors.required(&at.child("spec").child("containers"), "");
            }
            validate_gates(
                &mut errors,
                spec_of(template).items("schedulingGates"),
                &at.child("spec").child("schedulingGates"),
            );
            validate_endless(&mut errors, template, "StatefulSet", &at);
        } else {
            errors.required(&at, "");
        }
        errors.into_vec()
    }

    fn validate_update(
        &self,
        new: &Value,
        old: &Value,
        subresource: Subresource,
    ) -> Vec<FieldError> {
        let mut errors = Errors::new();
        if subresource == Subresource::Status {
            validate_replica_status(
                &mut errors,
                new,
                &[
                    "readyReplicas",
                    "currentReplicas",
                    "updatedReplicas",
                    "availableReplicas",
                ],
            );
            return errors.into_vec();
        }
        let mut rest = spec_of(new).clone();
        for field in MUTABLE {
            copy_field(&mut rest, spec_of(old), field);
        }
        if rest != *spec_of(old) {
            errors.forbidden(
                &Path::new("spec"),
                "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', \
                 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and \
                 'minReadySeconds' are forbidden",
            );
        }
        let mut all = self.validate(new);
        all.extend(errors.into_vec());
        all
    }
}

fn validate_policies(errors: &mut Errors, spec: &Value, path: &Path) {
    let at = path.child("podManagementPolicy");
    match spec.text("podManagementPolicy") {
        "" => errors.required(&at, ""),
        "OrderedReady" | "Parallel" => {}
        other => errors.invalid(&at, other, "must be 'OrderedReady' or 'Parallel'"),
    }
    let empty = Value::Null;
    let strategy = spec.field("updateStrategy").unwrap_or(&empty);
    let at = path.child("updateStrategy");
    let rolling = strategy.field("rollingUpdate");
    match strategy.text("type") {
        "" => errors.required(&at, ""),
        "OnDelete" => {
            if let Some(rolling) = rolling {
                errors.invalid(
                    &at.child("rollingUpdate"),
                    rolling,
                    "only allowed for updateStrategy 'RollingUpdate'",
                );
            }
        }
        "RollingUpdate" => {
            if let Some(rolling) = rolling {
                let at = at.child("rollingUpdate");
                validate_counts(errors, rolling, &["partition"], &at);
                validate_int_or_percent(errors, rolling, "maxUnavailable", &at);
                validate_at_most_all(errors, rolling, "maxUnavailable", &at);
            }
        }
        _ => errors.invalid(&at, strategy, "must be 'RollingUpdate' or 'OnDelete'"),
    }
    if let Some(policy) = spec.field("persistentVolumeClaimRetentionPolicy") {
        let at = path.child("persistentVolumeClaimRetentionPolicy");
        for field in ["whenDeleted", "whenScaled"] {
            let value = policy.text(field);
            if !matches!(value, "Retain" | "Delete") {
                errors.not_supported(&at.child(field), value, &["Retain", "Delete"]);
            }
        }
    }
}

/// The strategy of DaemonSets.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct DaemonSetStrategy;

/// Counts of a DaemonSet's status that are always there.
const DAEMON_COUNTS: [&str; 4] = [
    "currentNumberScheduled",
    "numberMisscheduled",
    "desiredNumberScheduled",
    "numberReady",
];

impl Strategy for DaemonSetStrategy {
    fn default(&self, object: &mut Value) {
        default_workload(object, ("apps", "v1", "DaemonSet"));
        let Some(spec) = existing(object, "spec") else {
            return;
        };
        if let Some(strategy) = child(spec, "updateStrategy") {
            set_if_zero(strategy, "type", "RollingUpdate");
            if strategy.text("type") == "RollingUpdate"
                && let Some(rolling) = child(strategy, "rollingUpdate")
            {
                set_if_absent(rolling, "maxUnavailable", 1);
                set_if_absent(rolling, "maxSurge", 0);
            }
        }
        set_if_absent(spec, "revisionHistoryLimit", 10);
    }

    fn prepare_for_create(&self, object: &mut Value, _cx: &RequestContext) {
        let mut status = json!({});
        for count in DAEMON_COUNTS {
            set(&mut status, count, 0);
        }
        set(object, "status", status);
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let path = Path::new("spec");
        let spec = spec_of(object);
        validate_selector(
            &mut errors,
            spec,
            "empty selector is invalid for daemonset",
            &path,
        );
        validate_template_labels(&mut errors, spec, &path);
        let at = path.child("template");
        let empty = Value::Null;
        let template = spec.field("template").unwrap_or(&empty);
        validate_template(&mut errors, template, &at);
        validate_endless(&mut errors, template, "DaemonSet", &at);
        validate_counts(&mut errors, spec, &["minReadySeconds"], &path);
        validate_daemon_rollout(&mut errors, spec, &path.child("updateStrategy"));
        validate_counts(&mut errors, spec, &["revisionHistoryLimit"], &path);
        errors.into_vec()
    }

    fn validate_update(
        &self,
        new: &Value,
        old: &Value,
        subresource: Subresource,
    ) -> Vec<FieldError> {
        let mut errors = Errors::new();
        if subresource == Subresource::Status {
            let empty = Value::Null;
            let status = new.field("status").unwrap_or(&empty);
            validate_counts(&mut errors, status, &DAEMON_COUNTS, &Path::new("status"));
            return errors.into_vec();
        }
        let mut all = self.validate(new);
        validate_selector_kept(&mut errors, new, old);
        all.extend(errors.into_vec());
        all
    }
}

fn validate_daemon_rollout(errors: &mut Errors, spec: &Value, path: &Path) {
    let empty = Value::Null;
    let strategy = spec.field("updateStrategy").unwrap_or(&empty);
    match strategy.text("type") {
        "OnDelete" => {}
        "RollingUpdate" => {
            let at = path.child("rollingUpdate");
            let Some(rolling) = strategy.field("rollingUpdate") else {
                errors.required(&at, "");
                return;
            };
            for field in ["maxUnavailable", "maxSurge"] {
                validate_int_or_percent(errors, rolling, field, &at);
                validate_at_most_all(errors, rolling, field, &at);
            }
            let unavailable = int_or_percent(rolling, "maxUnavailable");
            match (unavailable, int_or_percent(rolling, "maxSurge")) {
                (0, 0) => errors.required(
                    &at.child("maxUnavailable"),
                    "cannot be 0 when maxSurge is 0",
                ),
                (1.., 1..) => {
                    let shown = rolling.field("maxSurge").unwrap_or(&Value::Null);
                    errors.invalid(
                        &at.child("maxSurge"),
                        shown,
                        "may not be set when maxUnavailable is non-zero",
                    );
                }
                _ => {}
            }
        }
        other => {
            errors.not_supported(&path.child("type"), other, &["RollingUpdate", "OnDelete"]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object() -> Value {
        json!({"metadata": {"name": "s"}, "spec": {
            "selector": {"matchLabels": {"a": "s"}},
            "template": {"metadata": {"labels": {"a": "s"}},
                "spec": {"containers": [{"name": "c", "image": "a:1"}]}}}})
    }

    #[test]
    fn sets_get_their_defaults_and_are_valid() {
        let mut set = object();
        StatefulSetStrategy.default(&mut set);
        assert_eq!(StatefulSetStrategy.validate(&set), []);
        assert_eq!(set["spec"]["podManagementPolicy"], "OrderedReady");
        assert_eq!(
            set["spec"]["updateStrategy"],
            json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 0}})
        );
        let mut set = object();
        DaemonSetStrategy.default(&mut set);
        assert_eq!(DaemonSetStrategy.validate(&set), []);
        assert_eq!(
            set["spec"]["updateStrategy"],
            json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}})
        );
    }

    #[test]
    fn a_stateful_set_keeps_its_service_but_scales() {
        let mut old = object();
        StatefulSetStrategy.default(&mut old);
        let mut new = old.clone();
        new["spec"]["replicas"] = json!(5);
        assert_eq!(
            StatefulSetStrategy.validate_update(&new, &old, Subresource::Main),
            []
        );
        new["spec"]["serviceName"] = json!("other");
        let errors = StatefulSetStrategy.validate_update(&new, &old, Subresource::Main);
        assert_eq!(errors.len(), 1);
        assert_eq!(errors[0].field, "spec");
    }
}
