//! The rules of Jobs.

use super::errors::{Errors, IS_IMMUTABLE, Path, Shown, quote};
use super::names;
use super::pod::spec::validate_template;
use super::selectors;
use super::view::{View, child, existing, is_zero, set, set_if_absent, set_if_zero};
use super::workloads::{default_workload, spec_of, validate_counts, validate_template_labels};
use crate::field::FieldError;
use crate::strategy::{RequestContext, Strategy, Subresource};
use serde_json::{Map, Value, json};

/// Labels that tie pods to their Job, with and without the domain of the group.
const UID_LABELS: [&str; 2] = ["batch.kubernetes.io/controller-uid", "controller-uid"];
const NAME_LABELS: [&str; 2] = ["batch.kubernetes.io/job-name", "job-name"];
/// How many pods a Job of indexed pods may run at once.
const INDEXED_PARALLELISM_MAX: i64 = 100_000;

/// The strategy of Jobs.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct JobStrategy;

impl Strategy for JobStrategy {
    fn default(&self, object: &mut Value) {
        default_workload(object, ("batch", "v1", "Job"));
        let labels = object
            .at(&["spec", "template", "metadata", "labels"])
            .cloned();
        if let Some(labels) = labels
            && let Some(metadata) = child(object, "metadata")
        {
            set_if_zero(metadata, "labels", labels);
        }
        let Some(spec) = existing(object, "spec") else {
            return;
        };
        if spec.field("parallelism").is_none() {
            set_if_absent(spec, "completions", 1);
            set(spec, "parallelism", 1);
        }
        let retries = match spec.field("backoffLimitPerIndex") {
            Some(_) => i64::from(i32::MAX),
            None => 6,
        };
        set_if_absent(spec, "backoffLimit", retries);
        set_if_absent(spec, "completionMode", "NonIndexed");
        set_if_absent(spec, "suspend", false);
        set_if_absent(spec, "manualSelector", false);
        let replace = match spec.field("podFailurePolicy") {
            Some(_) => "Failed",
            None => "TerminatingOrFailed",
        };
        set_if_absent(spec, "podReplacementPolicy", replace);
    }

    /// Pods belong to a Job by its UID, unless the user insists on a selector of their own.
    fn prepare_for_create(&self, object: &mut Value, _cx: &RequestContext) {
        set(object, "status", Map::new());
        let text = |name: &str| {
            object
                .field("metadata")
                .map(|m| m.text(name).to_owned())
                .unwrap_or_default()
        };
        let (name, uid) = (text("name"), text("uid"));
        let Some(spec) = existing(object, "spec") else {
            return;
        };
        if spec.flag("manualSelector") {
            return;
        }
        if let Some(labels) = child(spec, "template")
            .and_then(|t| child(t, "metadata"))
            .and_then(|m| child(m, "labels"))
        {
            for label in NAME_LABELS {
                set(labels, label, name.clone());
            }
            for label in UID_LABELS {
                set(labels, label, uid.clone());
            }
        }
        if is_zero(spec.field("selector")) {
            set(
                spec,
                "selector",
                json!({"matchLabels": {UID_LABELS[0]: uid}}),
            );
        }
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let path = Path::new("spec");
        let spec = spec_of(object);
        validate_counts(
            &mut errors,
            spec,
            &[
                "parallelism",
                "completions",
                "activeDeadlineSeconds",
                "backoffLimit",
                "ttlSecondsAfterFinished",
                "backoffLimitPerIndex",
            ],
            &path,
        );
        let indexed = spec.text("completionMode") == "Indexed";
        match spec.text("completionMode") {
            "NonIndexed" => {}
            "Indexed" => {
                if spec.field("completions").is_none() {
                    errors.required(
                        &path.child("completions"),
                        "when completion mode is Indexed",
                    );
                }
                if spec.int("parallelism") > INDEXED_PARALLELISM_MAX {
                    errors.invalid(
                        &path.child("parallelism"),
                        spec.int("parallelism"),
                        format!("must be less than or equal to {INDEXED_PARALLELISM_MAX} when completion mode is Indexed"),
                    );
                }
            }
            other => errors.not_supported(
                &path.child("completionMode"),
                other,
                &["Indexed", "NonIndexed"],
            ),
        }
        if spec.field("backoffLimitPerIndex").is_some() && !indexed {
            errors.invalid(
                &path.child("backoffLimitPerIndex"),
                spec.int("backoffLimitPerIndex"),
                "requires indexed completion mode",
            );
        }
        selectors::validate_label_selector(
            &mut errors,
            spec.field("selector"),
            &path.child("selector"),
        );
        if spec.field("selector").is_none() {
            errors.required(&path.child("selector"), "");
        }
        validate_template_labels(&mut errors, spec, &path);
        let at = path.child("template");
        let empty = Value::Null;
        let template = spec.field("template").unwrap_or(&empty);
        validate_template(&mut errors, template, &at);
        let at = at.child("spec").child("restartPolicy");
        let policies = ["OnFailure", "Never"];
        match spec_of(template).text("restartPolicy") {
            "OnFailure" | "Never" => {}
            "Always" => errors.required(
                &at,
                format!("valid values: {}", policies.map(quote).join(", ")),
            ),
            other => errors.not_supported(&at, other, &policies),
        }
        if let Some(manager) = spec.maybe_text("managedBy") {
            let at = path.child("managedBy");
            errors.each_invalid(&at, manager, names::qualified_name(manager));
            if manager.len() > 63 {
                errors.too_long(&at, 63);
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
            let empty = Value::Null;
            let status = new.field("status").unwrap_or(&empty);
            validate_counts(
                &mut errors,
                status,
                &["active", "succeeded", "failed", "ready", "terminating"],
                &Path::new("status"),
            );
            return errors.into_vec();
        }
        let path = Path::new("spec");
        let (new_spec, old_spec) = (spec_of(new), spec_of(old));
        let fixed = [
            "completions",
            "selector",
            "template",
            "completionMode",
            "podFailurePolicy",
            "backoffLimitPerIndex",
            "managedBy",
            "successPolicy",
        ];
        for field in fixed {
            // Elastic indexed Jobs change completions and parallelism together.
            let elastic = field == "completions"
                && new_spec.text("completionMode") == "Indexed"
                && new_spec.int("completions") == new_spec.int("parallelism");
            // A suspended Job that never started may get other placement and resources.
            let relaxed = field == "template"
                && old_spec.flag("suspend")
                && old.at(&["status", "startTime"]).is_none();
            if new_spec.field(field) != old_spec.field(field) && !elastic && !relaxed {
                let shown = new_spec
                    .field(field)
                    .map_or_else(Shown::absent, Shown::from);
                errors.invalid(&path.child(field), shown, IS_IMMUTABLE);
            }
        }
        let mut all = self.validate(new);
        all.extend(errors.into_vec());
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_ties_pods_to_its_uid() {
        let mut job = json!({"metadata": {"name": "j", "uid": "u"}, "spec": {"template": {"spec": {
            "restartPolicy": "Never", "containers": [{"name": "c", "image": "a:1"}]}}}});
        JobStrategy.default(&mut job);
        let cx = RequestContext {
            now: String::new(),
            namespace: "default".to_owned(),
        };
        JobStrategy.prepare_for_create(&mut job, &cx);
        assert_eq!(JobStrategy.validate(&job), []);
        assert_eq!(job["spec"]["completions"], 1);
        assert_eq!(job["spec"]["backoffLimit"], 6);
        assert_eq!(
            job["spec"]["selector"],
            json!({"matchLabels": {"batch.kubernetes.io/controller-uid": "u"}})
        );
        assert_eq!(
            job["spec"]["template"]["metadata"]["labels"]["job-name"],
            "j"
        );

        let mut endless = job.clone();
        endless["spec"]["template"]["spec"]["restartPolicy"] = json!("Always");
        let errors = JobStrategy.validate(&endless);
        assert_eq!(
            errors.first().map(ToString::to_string).unwrap_or_default(),
            r#"spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never""#
        );
        let errors = JobStrategy.validate_update(&endless, &job, Subresource::Main);
        assert!(
            errors
                .iter()
                .any(|e| e.field == "spec.template" && e.detail == IS_IMMUTABLE)
        );
    }
}
