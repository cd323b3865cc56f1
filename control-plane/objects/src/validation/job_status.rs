//! The checks of the status of a Job, written by its controller or by another manager.
//!
//! A Job that has finished does not run again, and conditions and times do not contradict each other. Most rules are
//! checked only when the fields change that they are about, so that a status that breaks them can be written on.

use super::errors::{ErrorPath, Errors, Shown, json_text, struct_text};
use super::job::{index_total, is_indexed, shared_index};
use super::owner::Owner;
use crate::view::FieldView;
use serde_json::Value;
use std::collections::HashSet;

/// Returns whether a status has a condition of this type and status.
pub(super) fn has_condition(status: &Value, kind: &str, is: &str) -> bool {
    let mut conditions = status.items("conditions").iter();
    conditions.any(|c| c.text("type") == kind && c.text("status") == is)
}

/// A status, with the conditions that the rules ask for.
struct JobStatusState<'a> {
    status: &'a Value,
    complete: bool,
    failed: bool,
    failure_target: bool,
    criteria_met: bool,
}

impl<'a> JobStatusState<'a> {
    fn of(status: &'a Value) -> Self {
        let is = |kind| has_condition(status, kind, "True");
        Self {
            status,
            complete: is("Complete"),
            failed: is("Failed"),
            failure_target: is("FailureTarget"),
            criteria_met: is("SuccessCriteriaMet"),
        }
    }

    fn finished(&self) -> bool {
        self.complete || self.failed
    }
}

/// Errors of a write of the status.
pub(crate) fn validate(errors: &mut Errors, owner: &Owner, status: &Value, path: &ErrorPath) {
    let Some(old) = owner.old else { return };
    let spec = owner.value.part("spec");
    let (new, old) = (
        JobStatusState::of(status),
        JobStatusState::of(old.part("status")),
    );
    for field in ["active", "succeeded", "failed", "ready", "terminating"] {
        errors.nonnegative(&path.child(field), status.int(field));
    }
    uncounted_pods(errors, status, &path.child("uncountedTerminatedPods"));
    conditions_and_times(errors, &new, &old, path);
    finished_job(errors, &new, &old, spec, path);
    indexes(errors, &new, &old, spec, path);
    counts(errors, &new, &old, path);
    success(errors, &new, spec, path);
    transitions(errors, &new, &old, spec, path);
}

fn uncounted_pods(errors: &mut Errors, status: &Value, path: &ErrorPath) {
    let pods = status.part("uncountedTerminatedPods");
    let mut seen = HashSet::new();
    for list in ["succeeded", "failed"] {
        for (i, uid) in pods.strings(list).into_iter().enumerate() {
            let at = path.child(list).index(i);
            if uid.is_empty() {
                errors.invalid(&at, uid, "must not be empty");
            } else if !seen.insert(uid) {
                errors.duplicate(&at, uid);
            }
        }
    }
}

fn conditions_and_times(
    errors: &mut Errors,
    new: &JobStatusState,
    old: &JobStatusState,
    path: &ErrorPath,
) {
    let conditions = path.child("conditions");
    let (complete_changed, failed_changed) =
        (new.complete != old.complete, new.failed != old.failed);
    let changed = |field: &str| new.status.field(field) != old.status.field(field);
    if (complete_changed || failed_changed) && new.complete && new.failed {
        let detail = "cannot set Complete=True and Failed=true conditions";
        errors.invalid_unshown(&conditions, detail);
    }
    if (complete_changed || new.failure_target != old.failure_target)
        && new.complete
        && new.failure_target
    {
        let detail = "cannot set Complete=True and FailureTarget=true conditions";
        errors.invalid_unshown(&conditions, detail);
    }
    let at = path.child("completionTime");
    let end = new.status.field("completionTime");
    if complete_changed || changed("completionTime") {
        match end {
            Some(end) if !new.complete => errors.invalid(
                &at,
                end,
                "cannot set completionTime when there is no Complete=True condition",
            ),
            None if new.complete => {
                errors.required(&at, "completionTime is required for Complete jobs");
            }
            _ => {}
        }
    }
    if (changed("startTime") || changed("completionTime"))
        && let (Some(end), Some(start)) = (
            instant(new.status, "completionTime"),
            instant(new.status, "startTime"),
        )
        && end < start
    {
        let shown = new.status.part("completionTime");
        errors.invalid(&at, shown, "must be equal to or after `startTime`");
    }
    if (failed_changed || changed("failedIndexes")) && new.failed && !new.failure_target {
        let detail = "cannot set Failed=True condition without the FailureTarget=true condition";
        errors.invalid_unshown(&conditions, detail);
    }
    if (complete_changed || new.criteria_met != old.criteria_met)
        && new.complete
        && !new.criteria_met
    {
        let detail =
            "cannot set Complete=True condition without the SuccessCriteriaMet=true condition";
        errors.invalid_unshown(&conditions, detail);
    }
}

fn instant(status: &Value, field: &str) -> Option<jiff::Timestamp> {
    status.maybe_text(field)?.parse().ok()
}

fn finished_job(
    errors: &mut Errors,
    new: &JobStatusState,
    old: &JobStatusState,
    spec: &Value,
    path: &ErrorPath,
) {
    let changed = |field: &str| new.status.field(field) != old.status.field(field);
    // A status that was invalid before is not checked again if its part did not change.
    let finished_changed = new.finished() != old.finished();
    if !new.finished() {
        return;
    }
    let active = new.status.int("active");
    if (finished_changed || active != old.status.int("active")) && active > 0 {
        let detail = "active>0 is invalid for finished job";
        errors.invalid(&path.child("active"), active, detail);
    }
    let never_ran = spec.flag("suspend") && spec.maybe_int("completions") == Some(0);
    if (finished_changed || changed("startTime"))
        && !never_ran
        && new.status.field("startTime").is_none()
    {
        let detail = "startTime is required for finished job";
        errors.required(&path.child("startTime"), detail);
    }
    let uncounted = new.status.part("uncountedTerminatedPods");
    let lists = ["succeeded", "failed"].map(|list| uncounted.part(list));
    if (finished_changed || changed("uncountedTerminatedPods"))
        && lists
            .iter()
            .any(|list| list.as_array().is_some_and(|l| !l.is_empty()))
    {
        let [succeeded, failed] = lists.map(|list| json_text(list.clone()));
        let shown = struct_text(&[("Succeeded", succeeded), ("Failed", failed)]);
        let at = path.child("uncountedTerminatedPods");
        errors.invalid(&at, Shown(shown), "must be empty for finished job");
    }
}

fn indexes(
    errors: &mut Errors,
    new: &JobStatusState,
    old: &JobStatusState,
    spec: &Value,
    path: &ErrorPath,
) {
    let (completed, failed) = (
        new.status.text("completedIndexes"),
        new.status.maybe_text("failedIndexes"),
    );
    let completed_changed = completed != old.status.text("completedIndexes");
    let failed_changed = failed != old.status.maybe_text("failedIndexes");
    let (completed_path, failed_path) =
        (path.child("completedIndexes"), path.child("failedIndexes"));
    let completions = spec.maybe_int("completions");
    let per_index = spec.field("backoffLimitPerIndex").is_some();
    let mut parse = |text: &str, at: &ErrorPath, what: &str| {
        if let Some(completions) = completions
            && let Err(fault) = index_total(text, completions)
        {
            errors.invalid(at, text, format!("error parsing {what}: {fault}"));
        }
    };
    // Only changed lists are parsed: stored lists may be invalid by newer rules.
    if completed_changed {
        parse(completed, &completed_path, "completedIndexes");
    }
    if let Some(failed) = failed.filter(|_| failed_changed && per_index) {
        parse(failed, &failed_path, "failedIndexes");
    }
    if completed_changed && !completed.is_empty() && !is_indexed(spec) {
        let detail = "cannot set non-empty completedIndexes when non-indexed completion mode";
        errors.invalid(&completed_path, completed, detail);
    }
    let Some(failed) = failed else { return };
    if failed_changed && !per_index {
        let detail = "cannot set non-null failedIndexes when backoffLimitPerIndex is null";
        errors.invalid(&failed_path, failed, detail);
    }
    if (failed_changed || completed_changed)
        && let Some(index) = completions.and_then(|max| shared_index(completed, failed, max))
    {
        let detail = format!("failedIndexes and completedIndexes overlap at index: {index}");
        errors.invalid(&failed_path, failed, detail);
    }
}

fn counts(errors: &mut Errors, new: &JobStatusState, old: &JobStatusState, path: &ErrorPath) {
    let changed = |field: &str| new.status.maybe_int(field) != old.status.maybe_int(field);
    let terminating = new.status.int("terminating");
    if (new.finished() != old.finished() || changed("terminating"))
        && terminating > 0
        && new.finished()
    {
        let detail = "terminating>0 is invalid for finished job";
        errors.invalid(&path.child("terminating"), terminating, detail);
    }
    let (ready, active) = (new.status.maybe_int("ready"), new.status.int("active"));
    let active_changed = active != old.status.int("active");
    if let Some(ready) = ready.filter(|ready| *ready > active)
        && (changed("ready") || active_changed)
    {
        let detail = "cannot set more ready pods than active";
        errors.invalid(&path.child("ready"), ready, detail);
    }
}

fn success(errors: &mut Errors, new: &JobStatusState, spec: &Value, path: &ErrorPath) {
    let path = path.child("conditions");
    if new.criteria_met && new.failed {
        let detail = "cannot set SuccessCriteriaMet=True and Failed=true conditions";
        errors.invalid_unshown(&path, detail);
    }
    if new.criteria_met && new.failure_target {
        let detail = "cannot set SuccessCriteriaMet=True and FailureTarget=true conditions";
        errors.invalid_unshown(&path, detail);
    }
    if spec.field("successPolicy").is_some() && !new.criteria_met && new.complete {
        let detail =
            "cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True";
        errors.invalid_unshown(&path, detail);
    }
}

fn transitions(
    errors: &mut Errors,
    new: &JobStatusState,
    old: &JobStatusState,
    spec: &Value,
    path: &ErrorPath,
) {
    let conditions = path.child("conditions");
    for (kind, before, after) in [
        ("Failed", old.failed, new.failed),
        ("Complete", old.complete, new.complete),
        ("FailureTarget", old.failure_target, new.failure_target),
    ] {
        if before && !after {
            let detail = format!("cannot disable the terminal {kind}=True condition");
            errors.invalid_unshown(&conditions, detail);
        }
    }
    // Scaling an indexed job down can remove indexes that succeeded.
    let scales = is_indexed(spec) && spec.field("completions") == spec.field("parallelism");
    for (field, counts) in [("failed", true), ("succeeded", !scales)] {
        let count = new.status.int(field);
        if counts && count < old.status.int(field) {
            let detail = format!("cannot decrease the {field} counter");
            errors.invalid(&path.child(field), count, detail);
        }
    }
    let times = |field: &str| (old.status.field(field), new.status.field(field));
    if let (Some(before), Some(after)) = times("completionTime")
        && before != after
    {
        errors.invalid(&path.child("completionTime"), after, "field is immutable");
    }
    // A resumed job gets a new start time.
    let resumes = has_condition(old.status, "Suspended", "True")
        && has_condition(new.status, "Suspended", "False");
    if let (Some(before), after) = times("startTime")
        && Some(before) != after
        && !resumes
        && !spec.flag("suspend")
    {
        let shown = after.map_or_else(Shown::null, Shown::from);
        let detail = "field is immutable for unsuspended job once set";
        errors.invalid(&path.child("startTime"), shown, detail);
    }
    if old.criteria_met && !new.criteria_met {
        let detail = "cannot disable the SuccessCriteriaMet=True condition";
        errors.invalid_unshown(&conditions, detail);
    }
    if old.complete && !old.criteria_met && new.criteria_met {
        let detail =
            "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions";
        errors.invalid_unshown(&conditions, detail);
    }
}
