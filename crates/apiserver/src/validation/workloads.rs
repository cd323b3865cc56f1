//! The rules of Deployments, ReplicaSets and ReplicationControllers, and what all workloads share.

use super::errors::{Errors, IS_IMMUTABLE, Path, Shown};
use super::names;
use super::normal;
use super::pod::defaults::default_template;
use super::pod::spec::validate_template;
use super::selectors;
use super::view::{View, child, existing, set, set_if_absent, set_if_zero};
use crate::field::FieldError;
use crate::strategy::{RequestContext, Strategy, Subresource};
use serde_json::{Map, Value, json};

const DOES_NOT_MATCH: &str = "`selector` does not match template `labels`";

/// The spec of an object, or nothing.
pub(crate) fn spec_of(object: &Value) -> &Value {
    static NOTHING: Value = Value::Null;
    object.field("spec").unwrap_or(&NOTHING)
}

/// Brings a workload into its normal form and fills in the defaults of its template.
pub(crate) fn default_workload(object: &mut Value, kind: normal::Type) {
    normal::normalize(object, kind);
    if let Some(spec) = child(object, "spec")
        && let Some(template) = existing(spec, "template")
    {
        default_template(template);
    }
}

/// Errors of a required selector that must select something and match the labels of the template.
pub(crate) fn validate_selector(
    errors: &mut Errors,
    spec: &Value,
    empty_detail: &str,
    path: &Path,
) {
    let at = path.child("selector");
    let Some(selector) = spec.field("selector") else {
        errors.required(&at, "");
        return;
    };
    selectors::validate_label_selector(errors, Some(selector), &at);
    if selectors::is_empty(selector) {
        errors.invalid(&at, selectors::shown(selector), empty_detail);
    }
}

/// An error when the labels of the template do not satisfy the selector.
pub(crate) fn validate_template_labels(errors: &mut Errors, spec: &Value, path: &Path) {
    let empty = json!({});
    let metadata = spec.at(&["template", "metadata"]).unwrap_or(&empty);
    let selects =
        |selector: &Value| selectors::is_empty(selector) || selectors::matches(selector, metadata);
    if !spec.field("selector").is_none_or(selects) {
        let labels = metadata.field("labels").unwrap_or(&Value::Null);
        errors.invalid(
            &path.child("template").child("metadata").child("labels"),
            labels,
            DOES_NOT_MATCH,
        );
    }
}

/// Errors of a template whose pods run for ever.
pub(crate) fn validate_endless_template(
    errors: &mut Errors,
    spec: &Value,
    kind: &str,
    path: &Path,
) {
    let path = path.child("template");
    let Some(template) = spec.field("template") else {
        errors.required(&path, "");
        return;
    };
    validate_template(errors, template, &path);
    validate_endless(errors, template, kind, &path);
}

/// Errors of a template that says when its pods would end.
pub(crate) fn validate_endless(errors: &mut Errors, template: &Value, kind: &str, path: &Path) {
    let path = path.child("spec");
    let spec = spec_of(template);
    let policy = spec.text("restartPolicy");
    if policy != "Always" {
        errors.not_supported(&path.child("restartPolicy"), policy, &["Always"]);
    }
    if spec.field("activeDeadlineSeconds").is_some() {
        errors.forbidden(
            &path.child("activeDeadlineSeconds"),
            format!("activeDeadlineSeconds in {kind} is not Supported"),
        );
    }
}

/// Errors of numbers that may not be negative; absent ones have none.
pub(crate) fn validate_counts(errors: &mut Errors, holder: &Value, fields: &[&str], path: &Path) {
    for field in fields {
        errors.nonnegative(&path.child(field), holder.int(field));
    }
}

/// Errors of a number or percentage that may not be negative.
pub(crate) fn validate_int_or_percent(
    errors: &mut Errors,
    holder: &Value,
    field: &str,
    path: &Path,
) {
    let at = path.child(field);
    match holder.field(field) {
        Some(Value::String(text)) => {
            for message in names::percent(text) {
                errors.invalid(&at, text, message);
            }
        }
        Some(number) => errors.nonnegative(&at, number.as_i64().unwrap_or(0)),
        None => {}
    }
}

/// Errors of a percentage above 100.
pub(crate) fn validate_at_most_all(errors: &mut Errors, holder: &Value, field: &str, path: &Path) {
    if let Some(text) = holder.maybe_text(field)
        && percent_of(text).is_some_and(|percent| percent > 100)
    {
        errors.invalid(&path.child(field), text, "must not be greater than 100%");
    }
}

fn percent_of(text: &str) -> Option<u64> {
    text.strip_suffix('%')?.parse().ok()
}

/// The number of an int-or-percent as upstream reads it, with the sign of a percentage dropped.
pub(crate) fn int_or_percent(holder: &Value, field: &str) -> u64 {
    match holder.field(field) {
        Some(Value::String(text)) => percent_of(text).unwrap_or(0),
        Some(number) => number.as_u64().unwrap_or(0),
        None => 0,
    }
}

/// An error when the selector has changed.
pub(crate) fn validate_selector_kept(errors: &mut Errors, new: &Value, old: &Value) {
    let (new, old) = (spec_of(new), spec_of(old));
    if new.field("selector") != old.field("selector") {
        let shown = new
            .field("selector")
            .map_or_else(Shown::absent, selectors::shown);
        errors.invalid(&Path::new("spec.selector"), shown, IS_IMMUTABLE);
    }
}

/// Errors of replica counts in a status: none negative, none above `replicas`.
pub(crate) fn validate_replica_status(errors: &mut Errors, object: &Value, parts: &[&str]) {
    let path = Path::new("status");
    let empty = Value::Null;
    let status = object.field("status").unwrap_or(&empty);
    validate_counts(errors, status, &["replicas", "observedGeneration"], &path);
    validate_counts(errors, status, parts, &path);
    for part in parts {
        if status.int(part) > status.int("replicas") {
            errors.invalid(
                &path.child(part),
                status.int(part),
                "cannot be greater than status.replicas",
            );
        }
    }
}

// === impl DeploymentStrategy ===

/// The strategy of Deployments.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct DeploymentStrategy;

impl Strategy for DeploymentStrategy {
    fn default(&self, object: &mut Value) {
        default_workload(object, ("apps", "v1", "Deployment"));
        let Some(spec) = child(object, "spec") else {
            return;
        };
        set_if_absent(spec, "replicas", 1);
        if let Some(strategy) = child(spec, "strategy") {
            set_if_zero(strategy, "type", "RollingUpdate");
            if strategy.text("type") == "RollingUpdate"
                && let Some(rolling) = child(strategy, "rollingUpdate")
            {
                set_if_absent(rolling, "maxUnavailable", "25%");
                set_if_absent(rolling, "maxSurge", "25%");
            }
        }
        set_if_absent(spec, "revisionHistoryLimit", 10);
        set_if_absent(spec, "progressDeadlineSeconds", 600);
    }

    fn prepare_for_create(&self, object: &mut Value, _cx: &RequestContext) {
        set(object, "status", Map::new());
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let path = Path::new("spec");
        let spec = spec_of(object);
        validate_counts(&mut errors, spec, &["replicas"], &path);
        validate_selector(
            &mut errors,
            spec,
            "empty selector is invalid for deployment",
            &path,
        );
        validate_template_labels(&mut errors, spec, &path);
        validate_endless_template(&mut errors, spec, "ReplicaSet", &path);
        validate_rollout(&mut errors, spec, &path.child("strategy"));
        validate_counts(
            &mut errors,
            spec,
            &["minReadySeconds", "revisionHistoryLimit"],
            &path,
        );
        if let Some(seconds) = spec.maybe_int("progressDeadlineSeconds") {
            let at = path.child("progressDeadlineSeconds");
            errors.nonnegative(&at, seconds);
            if seconds <= spec.int("minReadySeconds") {
                errors.invalid(&at, seconds, "must be greater than minReadySeconds");
            }
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
                &["updatedReplicas", "readyReplicas", "availableReplicas"],
            );
            let empty = Value::Null;
            let collisions = |o: &Value| o.field("status").unwrap_or(&empty).int("collisionCount");
            if collisions(new) < collisions(old) {
                errors.invalid(
                    &Path::new("status.collisionCount"),
                    collisions(new),
                    "cannot be decremented",
                );
            }
            return errors.into_vec();
        }
        let mut all = self.validate(new);
        validate_selector_kept(&mut errors, new, old);
        all.extend(errors.into_vec());
        all
    }
}

fn validate_rollout(errors: &mut Errors, spec: &Value, path: &Path) {
    let empty = Value::Null;
    let strategy = spec.field("strategy").unwrap_or(&empty);
    let rolling = strategy.field("rollingUpdate");
    let at = path.child("rollingUpdate");
    match strategy.text("type") {
        "Recreate" => {
            if rolling.is_some() {
                errors.forbidden(
                    &at,
                    "may not be specified when strategy `type` is 'Recreate'",
                );
            }
        }
        "RollingUpdate" => match rolling {
            None => errors.required(&at, "this should be defaulted and never be nil"),
            Some(rolling) => {
                validate_int_or_percent(errors, rolling, "maxUnavailable", &at);
                validate_int_or_percent(errors, rolling, "maxSurge", &at);
                if int_or_percent(rolling, "maxUnavailable") == 0
                    && int_or_percent(rolling, "maxSurge") == 0
                {
                    let shown = rolling.field("maxUnavailable").unwrap_or(&Value::Null);
                    errors.invalid(
                        &at.child("maxUnavailable"),
                        shown,
                        "may not be 0 when `maxSurge` is 0",
                    );
                }
                validate_at_most_all(errors, rolling, "maxUnavailable", &at);
            }
        },
        other => errors.not_supported(&path.child("type"), other, &["Recreate", "RollingUpdate"]),
    }
}

// === impl ReplicaSetStrategy ===

/// The strategy of ReplicaSets.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ReplicaSetStrategy;

impl Strategy for ReplicaSetStrategy {
    fn default(&self, object: &mut Value) {
        default_workload(object, ("apps", "v1", "ReplicaSet"));
        if let Some(spec) = existing(object, "spec") {
            set_if_absent(spec, "replicas", 1);
        }
    }

    fn prepare_for_create(&self, object: &mut Value, _cx: &RequestContext) {
        set(object, "status", json!({"replicas": 0}));
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let path = Path::new("spec");
        let spec = spec_of(object);
        validate_counts(&mut errors, spec, &["replicas", "minReadySeconds"], &path);
        validate_selector(
            &mut errors,
            spec,
            "empty selector is invalid for deployment",
            &path,
        );
        validate_template_labels(&mut errors, spec, &path);
        validate_endless_template(&mut errors, spec, "ReplicaSet", &path);
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
                &["fullyLabeledReplicas", "readyReplicas", "availableReplicas"],
            );
            return errors.into_vec();
        }
        let mut all = self.validate(new);
        validate_selector_kept(&mut errors, new, old);
        all.extend(errors.into_vec());
        all
    }
}

// === impl ReplicationControllerStrategy ===

/// The strategy of ReplicationControllers, whose selector is a map of labels.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ReplicationControllerStrategy;

impl Strategy for ReplicationControllerStrategy {
    fn default(&self, object: &mut Value) {
        default_workload(object, ("", "v1", "ReplicationController"));
        let labels = object
            .at(&["spec", "template", "metadata", "labels"])
            .cloned();
        if let Some(labels) = labels {
            if let Some(spec) = existing(object, "spec") {
                set_if_zero(spec, "selector", labels.clone());
            }
            if let Some(metadata) = child(object, "metadata") {
                set_if_zero(metadata, "labels", labels);
            }
        }
        if let Some(spec) = existing(object, "spec") {
            set_if_absent(spec, "replicas", 1);
        }
    }

    fn prepare_for_create(&self, object: &mut Value, _cx: &RequestContext) {
        set(object, "status", json!({"replicas": 0}));
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let path = Path::new("spec");
        let spec = spec_of(object);
        validate_counts(&mut errors, spec, &["minReadySeconds"], &path);
        if spec.entries("selector").is_empty() {
            errors.required(&path.child("selector"), "");
        }
        validate_counts(&mut errors, spec, &["replicas"], &path);
        let as_selector = json!({
            "selector": {"matchLabels": spec.field("selector")},
            "template": spec.field("template"),
        });
        validate_template_labels(&mut errors, &as_selector, &path);
        validate_endless_template(&mut errors, spec, "ReplicationController", &path);
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
        validate_replica_status(
            &mut errors,
            new,
            &["fullyLabeledReplicas", "readyReplicas", "availableReplicas"],
        );
        errors.into_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deployment(change: impl Fn(&mut Value)) -> Value {
        let mut object = json!({"metadata": {"name": "d"}, "spec": {
            "selector": {"matchLabels": {"a": "d"}},
            "template": {"metadata": {"labels": {"a": "d"}},
                "spec": {"containers": [{"name": "c", "image": "registry.example/a:1"}]}}}});
        change(&mut object);
        DeploymentStrategy.default(&mut object);
        object
    }

    #[test]
    fn a_deployment_gets_its_defaults() {
        let object = deployment(|_| {});
        assert_eq!(DeploymentStrategy.validate(&object), []);
        assert_eq!(
            object["spec"],
            json!({
                "replicas": 1,
                "selector": {"matchLabels": {"a": "d"}},
                "template": {"metadata": {"labels": {"a": "d"}}, "spec": {
                    "containers": [{"name": "c", "image": "registry.example/a:1", "resources": {},
                        "terminationMessagePath": "/dev/termination-log",
                        "terminationMessagePolicy": "File", "imagePullPolicy": "IfNotPresent"}],
                    "restartPolicy": "Always", "terminationGracePeriodSeconds": 30,
                    "dnsPolicy": "ClusterFirst", "securityContext": {},
                    "schedulerName": "default-scheduler"}},
                "strategy": {"type": "RollingUpdate",
                    "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"}},
                "revisionHistoryLimit": 10,
                "progressDeadlineSeconds": 600,
            })
        );
        assert_eq!(object["status"], json!({}));
    }

    #[test]
    fn what_a_deployment_may_not_be() {
        type Change = fn(&mut Value);
        let cases: &[(Change, &[&str])] = &[
            (
                |d| {
                    d["spec"]["selector"] = Value::Null;
                },
                &["spec.selector: Required value"],
            ),
            (
                |d| d["spec"]["selector"] = json!({}),
                &["spec.selector: Invalid value: {}: empty selector is invalid for deployment"],
            ),
            (
                |d| d["spec"]["selector"]["matchLabels"]["a"] = json!("x"),
                &[
                    "spec.template.metadata.labels: Invalid value: {\"a\":\"d\"}: `selector` does not match template `labels`",
                ],
            ),
            (
                |d| d["spec"]["template"]["spec"]["restartPolicy"] = json!("Never"),
                &[
                    "spec.template.spec.restartPolicy: Unsupported value: \"Never\": supported values: \"Always\"",
                ],
            ),
            (
                |d| d["spec"]["replicas"] = json!(-1),
                &["spec.replicas: Invalid value: -1: must be greater than or equal to 0"],
            ),
            (
                |d| {
                    d["spec"]["strategy"] =
                        json!({"rollingUpdate": {"maxSurge": 0, "maxUnavailable": "0%"}})
                },
                &[
                    "spec.strategy.rollingUpdate.maxUnavailable: Invalid value: \"0%\": may not be 0 when `maxSurge` is 0",
                ],
            ),
            (
                |d| d["spec"]["strategy"] = json!({"type": "Sudden"}),
                &[
                    "spec.strategy.type: Unsupported value: \"Sudden\": supported values: \"Recreate\", \"RollingUpdate\"",
                ],
            ),
            (
                |d| d["spec"]["progressDeadlineSeconds"] = json!(0),
                &[
                    "spec.progressDeadlineSeconds: Invalid value: 0: must be greater than minReadySeconds",
                ],
            ),
            (
                |d| d["spec"]["template"]["spec"]["containers"] = json!([]),
                &["spec.template.spec.containers: Required value"],
            ),
        ];
        for (change, expected) in cases {
            let errors = DeploymentStrategy.validate(&deployment(change));
            let printed: Vec<String> = errors.iter().map(ToString::to_string).collect();
            assert_eq!(printed, *expected);
        }
    }

    #[test]
    fn the_selector_stays() {
        let old = deployment(|_| {});
        let new = deployment(|d| {
            d["spec"]["selector"]["matchLabels"] = json!({"b": "d"});
            d["spec"]["template"]["metadata"]["labels"] = json!({"b": "d"});
        });
        let errors = DeploymentStrategy.validate_update(&new, &old, Subresource::Main);
        let printed: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(
            printed,
            ["spec.selector: Invalid value: {\"matchLabels\":{\"b\":\"d\"}}: field is immutable"]
        );
    }

    #[test]
    fn a_replication_controller_selects_its_own_labels() {
        let mut object = json!({"metadata": {"name": "r"}, "spec": {"template": {
            "metadata": {"labels": {"a": "r"}},
            "spec": {"containers": [{"name": "c", "image": "a:1"}]}}}});
        ReplicationControllerStrategy.default(&mut object);
        assert_eq!(ReplicationControllerStrategy.validate(&object), []);
        assert_eq!(object["spec"]["selector"], json!({"a": "r"}));
        assert_eq!(object["metadata"]["labels"], json!({"a": "r"}));
    }
}
