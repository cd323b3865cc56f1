//! The checks that `facts/rules/workloads.txt` cannot express for Jobs and the Jobs of CronJobs: the spec, its changes,
//! and the index intervals that spec and status share. The status is in `job_status`.

use super::errors::{ErrorPath, Errors, IS_IMMUTABLE, Shown, quote};
use super::owner::Owner;
use super::small::domain_prefixed_path;
use super::workloads::{spec_of, template_labels};
use super::{groups, names, selectors};
use crate::enumerations::values;
use crate::view::{FieldView, child, copy_field, is_zero, set};
use serde_json::{Value, json};
use std::collections::HashSet;

/// The label of a Job's pods with its UID, and its former name without a prefix.
pub(super) const UID_LABELS: [&str; 2] = ["batch.kubernetes.io/controller-uid", "controller-uid"];
/// The same for the name.
pub(super) const NAME_LABELS: [&str; 2] = ["batch.kubernetes.io/job-name", "job-name"];
const INDEXED_MAX: i64 = 100_000;
/// With more completions than `INDEXED_MAX`, and retries per index, there are stricter limits.
const MANY_MAX: i64 = 10_000;
const MANAGED_BY_BYTES_MAX: usize = 63;
const RULES_MAX: usize = 20;
const EXIT_CODES_MAX: usize = 255;
const INDEXES_BYTES_MAX: usize = 64 * 1024;
const ACTIONS: [&str; 4] = values!(batch.v1.PodFailurePolicyRule.action);
const OPERATORS: [&str; 2] = values!(batch.v1.PodFailurePolicyOnExitCodesRequirement.operator);
const STATUSES: [&str; 3] = ["False", "True", "Unknown"];
const POLICIES: [&str; 2] = ["OnFailure", "Never"];

pub(crate) fn job_of_cron(e: &mut Errors, owner: &Owner, _: &Value, path: &ErrorPath) {
    let spec = owner.value.part("spec");
    if let Some(selector) = spec.field("selector") {
        let at = path.child("selector");
        e.invalid(
            &at,
            selectors::shown(selector),
            "`selector` will be auto-generated",
        );
    }
    if spec.flag("manualSelector") {
        let at = path.child("manualSelector");
        e.not_supported_plain(&at, true, &["nil", "false"]);
    }
}

/// Without a selector of the user, the server generates the selector and the labels of the template.
pub(crate) fn generated_selector(errors: &mut Errors, _: &Owner, job: &Value, _: &ErrorPath) {
    let (metadata, spec) = (job.part("metadata"), spec_of(job));
    let Some(selector) = spec
        .field("selector")
        .filter(|_| !spec.flag("manualSelector"))
    else {
        return;
    };
    let labels = spec.part("template").part("metadata").part("labels");
    let path = ErrorPath::new("spec.template.metadata.labels");
    // kube-apiserver's order of errors: the former labels first.
    for (field, names) in [("uid", UID_LABELS), ("name", NAME_LABELS)].map(|(f, [_, old])| (f, old))
    {
        has_label(errors, labels, names, metadata.text(field), &path);
    }
    for (field, name) in [("uid", UID_LABELS[0]), ("name", NAME_LABELS[0])] {
        has_label(errors, labels, name, metadata.text(field), &path);
    }
    let mut expected = json!({});
    for (field, names) in [("uid", UID_LABELS), ("name", NAME_LABELS)] {
        for name in names {
            set(&mut expected, name, metadata.text(field));
        }
    }
    if !selectors::matches(selector, &json!({"labels": expected})) {
        let at = ErrorPath::new("spec.selector");
        errors.invalid(
            &at,
            selectors::shown(selector),
            "`selector` not auto-generated",
        );
    }
}

fn has_label(errors: &mut Errors, labels: &Value, label: &str, expected: &str, path: &ErrorPath) {
    match labels.maybe_text(label) {
        None => errors.required(&path.key(label), format!("must be '{expected}'")),
        Some(actual) if actual != expected => {
            errors.invalid(&path.key(label), labels, format!("must be '{expected}'"));
        }
        Some(_) => {}
    }
}

/// The checks after the spec: the selector, the names of the pods, and immutable fields.
pub(crate) fn job(errors: &mut Errors, owner: &Owner, job: &Value, _: &ErrorPath) {
    let (spec, path) = (spec_of(job), ErrorPath::new("spec"));
    if spec.field("selector").is_none() {
        errors.required(&path.child("selector"), "");
    }
    template_labels(errors, owner, spec, &path);
    let completions = spec.int("completions");
    if is_indexed(spec) && completions > 0 {
        let name = job.part("metadata").text("name");
        let host = format!("{name}-{}", completions - 1);
        if !names::dns_label(&host).is_empty() {
            errors.invalid(
                &ErrorPath::new("metadata.name"),
                name,
                format!("will not able to create pod with invalid DNS label: {host}"),
            );
        }
    }
    if let Some(old) = owner.old {
        change(errors, spec, old, &path);
    }
}

pub(super) fn is_indexed(spec: &Value) -> bool {
    spec.text("completionMode") == "Indexed"
}

fn change(errors: &mut Errors, spec: &Value, old: &Value, path: &ErrorPath) {
    let before = spec_of(old);
    let immutable = |errors: &mut Errors, field: &'static str| {
        if spec.field(field) != before.field(field) {
            let shown = spec.field(field).map_or_else(Shown::null, Shown::from);
            errors.invalid(&path.child(field), shown, IS_IMMUTABLE);
        }
    };
    if !is_indexed(spec) {
        immutable(errors, "completions");
    // An indexed job may be scaled, if both numbers change together.
    } else if let Some(completions) = spec.maybe_int("completions")
        && before.maybe_int("completions") != Some(completions)
        && completions != spec.int("parallelism")
    {
        let detail = "can only be modified in tandem with spec.parallelism";
        errors.invalid(&path.child("completions"), completions, detail);
    }
    immutable(errors, "selector");
    template_change(errors, spec, old, path);
    for field in [
        "completionMode",
        "podFailurePolicy",
        "backoffLimitPerIndex",
        "managedBy",
        "successPolicy",
    ] {
        immutable(errors, field);
    }
    groups::scheduling_kept(errors, spec, before, path);
}

/// A suspended Job without active pods may change only the node placement and the requests of its pods.
fn template_change(errors: &mut Errors, spec: &Value, old: &Value, path: &ErrorPath) {
    let before = spec_of(old);
    let status = old.part("status");
    let is_open = before.flag("suspend")
        && (status.field("startTime").is_none()
            || super::job_status::has_condition(status, "Suspended", "True"))
        && status.int("active") == 0;
    let template = spec.part("template");
    let mut allowed = before.part("template").clone();
    if !is_open {
        if *template != allowed {
            errors.invalid(&path.child("template"), template, IS_IMMUTABLE);
        }
        return;
    }
    let new = template.part("spec");
    if let Some(pod) = child(&mut allowed, "spec") {
        take_placement(pod, new);
        for list in ["containers", "initContainers"] {
            take_resources(pod, new, list);
        }
        if pod != new {
            errors.invalid(&path.child("template.spec"), new, IS_IMMUTABLE);
        }
    }
}

/// Takes over the node affinity, node selector, tolerations and gates of the new template.
fn take_placement(pod: &mut Value, new: &Value) {
    let affinity = new.field("affinity");
    match (affinity, pod.field("affinity").is_some()) {
        (None, true) => {
            if let Some(old) = child(pod, "affinity") {
                crate::view::remove(old, "nodeAffinity");
            }
            if is_zero(pod.field("affinity")) {
                crate::view::remove(pod, "affinity");
            }
        }
        (Some(affinity), _) => {
            if let Some(old) = child(pod, "affinity") {
                copy_field(old, affinity, "nodeAffinity");
            }
        }
        (None, false) => {}
    }
    for field in ["nodeSelector", "tolerations", "schedulingGates"] {
        copy_field(pod, new, field);
    }
}

/// Takes over the resources of the containers that have the same place and name.
fn take_resources(pod: &mut Value, new: &Value, list: &str) {
    let news = new.items(list);
    let olds = crate::view::items_mut(pod, list);
    if news.len() != olds.len() {
        return;
    }
    for (old, new) in olds.iter_mut().zip(news) {
        if old.text("name") == new.text("name") {
            copy_field(old, new, "resources");
        }
    }
}

/// The fields of a spec but its template, in upstream's order.
pub(crate) fn spec_fields(errors: &mut Errors, _: &Owner, spec: &Value, path: &ErrorPath) {
    for field in [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ] {
        errors.nonnegative(&path.child(field), spec.int(field));
    }
    let per_index = spec.maybe_int("backoffLimitPerIndex");
    let max_failed = spec.maybe_int("maxFailedIndexes");
    if max_failed.is_some() && per_index.is_none() {
        let at = path.child("backoffLimitPerIndex");
        errors.required(&at, "when maxFailedIndexes is specified");
    }
    if let Some(manager) = spec.maybe_text("managedBy") {
        let at = path.child("managedBy");
        domain_prefixed_path(errors, manager, &at);
        if manager.len() > MANAGED_BY_BYTES_MAX {
            errors.too_long(&at, MANAGED_BY_BYTES_MAX);
        }
    }
    let mode = spec.maybe_text("completionMode");
    if let Some(mode) = mode.filter(|m| !matches!(*m, "NonIndexed" | "Indexed")) {
        errors.not_supported(
            &path.child("completionMode"),
            mode,
            &["NonIndexed", "Indexed"],
        );
    }
    match mode {
        Some("Indexed") => indexed(errors, spec, path),
        None | Some("NonIndexed") => {
            for field in ["backoffLimitPerIndex", "maxFailedIndexes"] {
                if let Some(number) = spec.maybe_int(field) {
                    errors.invalid(
                        &path.child(field),
                        number,
                        "requires indexed completion mode",
                    );
                }
            }
        }
        Some(_) => {}
    }
    failure_policy(errors, spec, &path.child("podFailurePolicy.rules"));
    if let Some(policy) = spec.field("successPolicy") {
        let at = path.child("successPolicy");
        if is_indexed(spec) {
            success_policy(errors, spec, policy, &at.child("rules"));
        } else {
            errors.invalid(&at, policy, "requires indexed completion mode");
        }
    }
    if let Some(replace) = spec.maybe_text("podReplacementPolicy") {
        let known: &[&str] = match spec.field("podFailurePolicy") {
            Some(_) => &["Failed"],
            None => &values!(batch.v1.JobSpec.podReplacementPolicy),
        };
        if !known.contains(&replace) {
            errors.not_supported(&path.child("podReplacementPolicy"), replace, known);
        }
    }
}

fn indexed(errors: &mut Errors, spec: &Value, path: &ErrorPath) {
    let completions = spec.maybe_int("completions");
    let parallelism = spec.int("parallelism");
    let max_failed = spec.maybe_int("maxFailedIndexes");
    let failed_path = path.child("maxFailedIndexes");
    if completions.is_none() {
        let at = path.child("completions");
        errors.required(&at, "when completion mode is Indexed");
    }
    let at_most = |max: i64, what: &str| format!("must be less than or equal to {max}{what}");
    if parallelism > INDEXED_MAX {
        let detail = at_most(INDEXED_MAX, " when completion mode is Indexed");
        errors.invalid(&path.child("parallelism"), parallelism, detail);
    }
    if let (Some(completions), Some(failed)) = (completions, max_failed)
        && failed > completions
    {
        errors.invalid(
            &failed_path,
            failed,
            "must be less than or equal to completions",
        );
    }
    if let Some(failed) = max_failed.filter(|f| *f > INDEXED_MAX) {
        errors.invalid(&failed_path, failed, at_most(INDEXED_MAX, ""));
    }
    let has_many = completions.is_some_and(|c| c > INDEXED_MAX);
    // The stricter limits apply only to jobs with many indexes and a limit for each.
    if !has_many || spec.field("backoffLimitPerIndex").is_none() {
        return;
    }
    if max_failed.is_none() {
        let detail = format!("must be specified when completions is above {INDEXED_MAX}");
        errors.required(&failed_path, detail);
    }
    let many =
        format!(" when completions are above {INDEXED_MAX} and used with backoff limit per index");
    if parallelism > MANY_MAX {
        let at = path.child("parallelism");
        errors.invalid(&at, parallelism, at_most(MANY_MAX, &many));
    }
    if let Some(failed) = max_failed.filter(|f| *f > MANY_MAX) {
        errors.invalid(&failed_path, failed, at_most(MANY_MAX, &many));
    }
}

fn failure_policy(errors: &mut Errors, spec: &Value, path: &ErrorPath) {
    let pod = spec.part("template").part("spec");
    let containers = ["containers", "initContainers"];
    let containers = containers.iter().flat_map(|list| pod.items(list));
    let containers: HashSet<&str> = containers.map(|c| c.text("name")).collect();
    let rules = spec.part("podFailurePolicy").items("rules");
    errors.check_at_most(path, rules.len(), RULES_MAX);
    for (i, rule) in rules.iter().enumerate() {
        let path = path.index(i);
        let at = path.child("action");
        match rule.text("action") {
            "" => errors.required(&at, valid_values(&ACTIONS)),
            "FailIndex" if spec.field("backoffLimitPerIndex").is_none() => {
                let detail = "requires the backoffLimitPerIndex to be set";
                errors.invalid(&at, "FailIndex", detail);
            }
            action if !ACTIONS.contains(&action) => errors.not_supported(&at, action, &ACTIONS),
            _ => {}
        }
        let codes = rule.field("onExitCodes");
        if let Some(codes) = codes {
            exit_codes(errors, codes, &containers, &path.child("onExitCodes"));
        }
        let conditions = rule.items("onPodConditions");
        let at = path.child("onPodConditions");
        errors.check_at_most(&at, conditions.len(), RULES_MAX);
        for (j, condition) in conditions.iter().enumerate() {
            let kind = condition.text("type");
            let at = at.index(j);
            errors.each_invalid(&at.child("type"), kind, names::qualified_name(kind));
            let at = at.child("status");
            match condition.text("status") {
                "" => errors.required(&at, valid_values(&STATUSES)),
                status if STATUSES.contains(&status) => {}
                status => errors.not_supported(&at, status, &STATUSES),
            }
        }
        match (codes.is_some(), conditions.is_empty()) {
            (true, false) => errors.invalid_unshown(
                &path,
                "specifying both OnExitCodes and OnPodConditions is not supported",
            ),
            (false, true) => errors.invalid_unshown(
                &path,
                "specifying one of OnExitCodes and OnPodConditions is required",
            ),
            _ => {}
        }
    }
}

/// A list of strings as Go prints it with `%q`.
fn valid_values(values: &[&str]) -> String {
    let values: Vec<String> = values.iter().map(|v| quote(v)).collect();
    format!("valid values: [{}]", values.join(" "))
}

fn exit_codes(errors: &mut Errors, codes: &Value, containers: &HashSet<&str>, path: &ErrorPath) {
    let at = path.child("operator");
    let operator = codes.text("operator");
    match operator {
        "" => errors.required(&at, valid_values(&OPERATORS)),
        "In" | "NotIn" => {}
        other => errors.not_supported(&at, other, &OPERATORS),
    }
    if let Some(name) = codes.maybe_text("containerName")
        && !containers.contains(name)
    {
        errors.invalid(
            &path.child("containerName"),
            name,
            "must be one of the container or initContainer names in the pod template",
        );
    }
    let at = path.child("values");
    let values = codes.items("values");
    if values.is_empty() {
        let shown = codes.field("values").map_or_else(Shown::null, Shown::from);
        errors.invalid(&at, shown, "at least one value is required");
    }
    errors.check_at_most(&at, values.len(), EXIT_CODES_MAX);
    let values: Vec<i64> = values.iter().filter_map(Value::as_i64).collect();
    let mut seen = HashSet::new();
    for (i, value) in values.iter().enumerate() {
        if operator == "In" && *value == 0 {
            errors.invalid(&at.index(i), *value, "must not be 0 for the In operator");
        }
        if !seen.insert(*value) {
            errors.duplicate(&at.index(i), *value);
        }
    }
    // kube-apiserver searches the values by bisection.
    if !values.is_sorted() {
        errors.invalid(&at, codes.part("values"), "must be ordered");
    }
}

fn success_policy(errors: &mut Errors, spec: &Value, policy: &Value, path: &ErrorPath) {
    let rules = policy.items("rules");
    if rules.is_empty() {
        let detail = "at least one rules must be specified when the successPolicy is specified";
        errors.required(path, detail);
    }
    errors.check_at_most(path, rules.len(), RULES_MAX);
    let completions = spec.int("completions");
    for (i, rule) in rules.iter().enumerate() {
        let path = path.index(i);
        let count = rule.maybe_int("succeededCount");
        let indexes = rule.maybe_text("succeededIndexes");
        if count.is_none() && indexes.is_none() {
            let detail = "at least one of succeededCount or succeededIndexes must be specified";
            errors.required(&path, detail);
        }
        let mut total = 0;
        if let Some(indexes) = indexes {
            let at = path.child("succeededIndexes");
            if indexes.len() > INDEXES_BYTES_MAX {
                errors.too_long(&at, INDEXES_BYTES_MAX);
            }
            match index_total(indexes, completions) {
                Ok(number) => total = number,
                Err(fault) => {
                    let detail = format!("error parsing succeededIndexes: {fault}");
                    errors.invalid(&at, indexes, detail);
                }
            }
        }
        let Some(count) = count else { continue };
        let at = path.child("succeededCount");
        errors.nonnegative(&at, count);
        let limits = [
            (Some(completions), "the number of specified completions"),
            (
                indexes.map(|_| total),
                "the number of indexes in the specified succeededIndexes field",
            ),
        ];
        for (limit, what) in limits {
            if let Some(limit) = limit.filter(|limit| count > *limit) {
                let detail = format!("must be less than or equal to {limit} ({what})");
                errors.invalid(&at, count, detail);
            }
        }
    }
}

/// The pods of a Job end.
pub(crate) fn restart_policy(
    errors: &mut Errors,
    owner: &Owner,
    template: &Value,
    path: &ErrorPath,
) {
    let at = path.child("spec.restartPolicy");
    match spec_of(template).text("restartPolicy") {
        "OnFailure" if owner.value.field("podFailurePolicy").is_some() => errors.invalid(
            &at,
            "OnFailure",
            "only \"Never\" is supported when podFailurePolicy is specified",
        ),
        "OnFailure" | "Never" => {}
        "Always" | "" => {
            let detail = format!("valid values: {}", POLICIES.map(quote).join(", "));
            errors.required(&at, detail);
        }
        other => errors.not_supported(&at, other, &POLICIES),
    }
}

/// The number of indexes that a list of intervals such as `1,3-5` has.
///
/// # Errors
/// The fault.
pub(super) fn index_total(text: &str, completions: i64) -> Result<i64, String> {
    let mut last: Option<i64> = None;
    let mut total = 0;
    for interval in text.split(',').filter(|_| !text.is_empty()) {
        let (first, end) = index_interval(interval, completions)?;
        if let Some(last) = last.filter(|last| *last >= first) {
            return Err(out_of_order(last, first));
        }
        total += end - first + 1;
        last = Some(end);
    }
    Ok(total)
}

fn out_of_order(previous: i64, current: i64) -> String {
    format!("non-increasing order, previous: {previous}, current: {current}")
}

fn index_interval(interval: &str, completions: i64) -> Result<(i64, i64), String> {
    let index = |text: &str| match text.parse::<i64>() {
        Err(_) => Err(format!(
            "cannot convert string to integer for index: {}",
            quote(text)
        )),
        Ok(index) if index >= completions => Err(format!("too large index: {}", quote(text))),
        Ok(index) => Ok(index),
    };
    let parts: Vec<&str> = interval.split('-').collect();
    match parts.as_slice() {
        [one] => index(one).map(|one| (one, one)),
        [first, end] => {
            let (first, end) = (index(first)?, index(end)?);
            if first >= end {
                return Err(out_of_order(first, end));
            }
            Ok((first, end))
        }
        _ => Err(format!(
            "the fragment {} violates the requirement that an index interval can have at most two parts separated by '-'",
            quote(interval)
        )),
    }
}

/// The first index that two lists of intervals share. Intervals that cannot be read are skipped.
pub(super) fn shared_index(completed: &str, failed: &str, completions: i64) -> Option<i64> {
    let read = |text: &str| -> Vec<(i64, i64)> {
        let parts = text.split(',').filter(|_| !text.is_empty());
        parts
            .filter_map(|part| index_interval(part, completions).ok())
            .collect()
    };
    let (completed, failed) = (read(completed), read(failed));
    let (mut c, mut f) = (completed.iter().peekable(), failed.iter().peekable());
    while let (Some((c_first, c_end)), Some((f_first, f_end))) = (c.peek(), f.peek()) {
        if c_first <= f_end && f_first <= c_end {
            return Some(*c_first.max(f_first));
        }
        if c_first <= f_first {
            c.next();
        } else {
            f.next();
        }
    }
    None
}
