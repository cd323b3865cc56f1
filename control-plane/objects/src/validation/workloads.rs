//! The checks that `facts/rules/workloads.txt` cannot express for the kinds that make pods.

use super::engine::run_alone;
use super::errors::{ErrorPath, Errors};
use super::job::{NAME_LABELS, UID_LABELS};
use super::owner::Owner;
use super::{names, selectors};
use crate::cron::Schedule;
use crate::strategy::{KindStrategy, Subresource, keep_other_half};
use crate::view::{FieldView, child, existing, items_mut, remove, set, set_if_absent, set_if_zero};
use serde_json::{Map, Value, json};

/// The type of the pods of a workload.
const TEMPLATE: &str = "core.v1.PodTemplateSpec";

/// The counts of a status that must not exceed its replicas.
const PARTS: [&str; 5] = [
    "updatedReplicas",
    "fullyLabeledReplicas",
    "readyReplicas",
    "currentReplicas",
    "availableReplicas",
];
pub(crate) fn not_decremented(e: &mut Errors, owner: &Owner, count: &Value, path: &ErrorPath) {
    let before = owner.old.map_or(0, |old| old.int("collisionCount"));
    let count = count.as_i64().unwrap_or(0);
    if count < before {
        e.invalid(path, count, "cannot be decremented");
    }
}

pub(crate) fn replica_status(e: &mut Errors, _: &Owner, status: &Value, path: &ErrorPath) {
    for part in PARTS {
        if status.int(part) > status.int("replicas") {
            let detail = "cannot be greater than status.replicas";
            e.invalid(&path.child(part), status.int(part), detail);
        }
    }
}

pub(crate) fn replaces_one_way(e: &mut Errors, _: &Owner, rolling: &Value, path: &ErrorPath) {
    let unavailable = int_or_percent(rolling, "maxUnavailable");
    match (unavailable, int_or_percent(rolling, "maxSurge")) {
        (0, 0) => e.required(
            &path.child("maxUnavailable"),
            "cannot be 0 when maxSurge is 0",
        ),
        (1.., 1..) => e.invalid(
            &path.child("maxSurge"),
            rolling.part("maxSurge"),
            "may not be set when maxUnavailable is non-zero",
        ),
        _ => {}
    }
}

pub(crate) fn replaces_some(e: &mut Errors, _: &Owner, rolling: &Value, path: &ErrorPath) {
    if ["maxUnavailable", "maxSurge"]
        .iter()
        .all(|field| int_or_percent(rolling, field) == 0)
    {
        let (at, shown) = (path.child("maxUnavailable"), rolling.part("maxUnavailable"));
        e.invalid(&at, shown, "may not be 0 when `maxSurge` is 0");
    }
}

pub(crate) fn schedule(e: &mut Errors, _: &Owner, schedule: &Value, path: &ErrorPath) {
    let text = schedule.as_str().unwrap_or("");
    if let Err(reason) = Schedule::parse(text) {
        e.invalid(path, text, reason);
    }
    if text.contains("TZ") {
        e.invalid(
            path,
            text,
            "cannot use TZ or CRON_TZ in schedule, use timeZone field instead",
        );
    }
}

pub(crate) fn time_zone(e: &mut Errors, _: &Owner, zone: &Value, path: &ErrorPath) {
    if let Some(zone) = zone
        .as_str()
        .filter(|zone| crate::cron::zone(zone).is_none())
    {
        e.invalid(path, zone, format!("unknown time zone {zone}"));
    }
}

/// The spec of an object, or null.
pub(crate) fn spec_of(object: &Value) -> &Value {
    object.part("spec")
}

/// Errors of a number or percentage that may not be negative.
pub(crate) fn amount(errors: &mut Errors, _: &Owner, amount: &Value, path: &ErrorPath) {
    match amount {
        Value::String(text) => errors.each_invalid(path, text, names::percent(text)),
        number => errors.nonnegative(path, number.as_i64().unwrap_or(0)),
    }
}

fn percent(text: &str) -> Option<u64> {
    text.strip_suffix('%')?.parse().ok()
}

/// The number of an int-or-percent as upstream reads it, with the sign of a percentage dropped.
fn int_or_percent(holder: &Value, field: &str) -> i64 {
    match holder.part(field) {
        Value::String(text) => percent(text).and_then(|p| p.try_into().ok()).unwrap_or(0),
        number => number.as_i64().unwrap_or(0),
    }
}

pub(crate) fn nonempty_selector(
    errors: &mut Errors,
    owner: &Owner,
    selector: &Value,
    path: &ErrorPath,
) {
    if selectors::is_empty(selector) {
        let kind = match owner.type_name {
            "apps.v1.DaemonSetSpec" => "daemonset",
            "apps.v1.StatefulSetSpec" => "statefulset",
            _ => "deployment",
        };
        let detail = format!("empty selector is invalid for {kind}");
        errors.invalid(path, selectors::shown(selector), detail);
    }
}

/// The labels of the template satisfy the selector.
pub(crate) fn template_labels(errors: &mut Errors, owner: &Owner, spec: &Value, path: &ErrorPath) {
    let metadata = spec.part("template").part("metadata");
    let mismatch = |errors: &mut Errors| {
        errors.invalid(
            &path.child("template.metadata.labels"),
            metadata.part("labels"),
            "`selector` does not match template `labels`",
        );
    };
    let Some(selector) = spec.field("selector") else {
        // A missing selector matches no pods, except in a ReplicationController, where it matches all.
        if owner.type_name != "core.v1.ReplicationControllerSpec" {
            mismatch(errors);
        }
        return;
    };
    let plain;
    // The selector of a ReplicationController is a map of labels.
    let is_plain = selector
        .as_object()
        .is_some_and(|map| map.values().all(Value::is_string));
    let selector = if is_plain {
        plain = json!({"matchLabels": selector});
        &plain
    } else {
        selector
    };
    if !selectors::is_empty(selector) && !selectors::matches(selector, metadata) {
        mismatch(errors);
    }
}

/// The pods of a template never terminate.
pub(crate) fn endless(errors: &mut Errors, owner: &Owner, template: &Value, path: &ErrorPath) {
    let kind = match owner.type_name {
        "apps.v1.DaemonSetSpec" => "DaemonSet",
        "apps.v1.StatefulSetSpec" => "StatefulSet",
        "core.v1.ReplicationControllerSpec" => "ReplicationController",
        _ => "ReplicaSet",
    };
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

pub(crate) fn at_most_all(errors: &mut Errors, _: &Owner, amount: &Value, path: &ErrorPath) {
    if let Some(text) = amount
        .as_str()
        .filter(|t| percent(t).is_some_and(|p| p > 100))
    {
        errors.invalid(path, text, "must not be greater than 100%");
    }
}

/// The template of a StatefulSet as completed by its controller: with volumes for the claims, and with stable host
/// names. A set whose template was invalid before an update may keep an invalid one.
pub(crate) fn set_template(errors: &mut Errors, owner: &Owner, template: &Value, path: &ErrorPath) {
    let is_faulty = |set: &Value| {
        let (mut found, path) = (Errors::new(), ErrorPath::default());
        let completed = completed_template(set, set.part("template"));
        run_alone(&mut found, owner.code, TEMPLATE, &completed, &path);
        !found.into_vec().is_empty()
    };
    if !owner.old.is_some_and(is_faulty) {
        let completed = completed_template(owner.value, template);
        run_alone(errors, owner.code, TEMPLATE, &completed, path);
    }
}

fn completed_template(workload: &Value, template: &Value) -> Value {
    let mut completed = template.clone();
    let Some(spec) = existing(&mut completed, "spec") else {
        return completed;
    };
    remove(spec, "subdomain");
    remove(spec, "hostname");
    let claims = workload.items("volumeClaimTemplates").iter();
    let names: Vec<&str> = claims
        .map(|claim| claim.part("metadata").text("name"))
        .collect();
    if names.is_empty() {
        return completed;
    }
    let claim = |name: &&str| json!({"name": name, "persistentVolumeClaim": {"claimName": name}});
    let mut volumes: Vec<Value> = names.iter().map(claim).collect();
    let own = spec.items("volumes").iter();
    volumes.extend(own.filter(|v| !names.contains(&v.text("name"))).cloned());
    set(spec, "volumes", volumes);
    completed
}

/// A rolling update of a Deployment replaces a quarter of the pods at a time.
pub(super) fn default_deployment_rollout(strategy: &mut Value) {
    if strategy.text("type") == "RollingUpdate"
        && let Some(rolling) = child(strategy, "rollingUpdate")
    {
        set_if_absent(rolling, "maxUnavailable", "25%");
        set_if_absent(rolling, "maxSurge", "25%");
    }
}

/// A rolling update of a DaemonSet replaces one pod at a time.
pub(super) fn default_daemon_rollout(strategy: &mut Value) {
    if strategy.text("type") == "RollingUpdate"
        && let Some(rolling) = child(strategy, "rollingUpdate")
    {
        set_if_absent(rolling, "maxUnavailable", 1);
        set_if_absent(rolling, "maxSurge", 0);
    }
}

/// A StatefulSet without a strategy rolls; its claims name their kind.
pub(super) fn default_set_rollout(spec: &mut Value) {
    if let Some(strategy) = child(spec, "updateStrategy")
        && strategy.text("type").is_empty()
    {
        set(strategy, "type", "RollingUpdate");
        if let Some(rolling) = child(strategy, "rollingUpdate") {
            set_if_absent(rolling, "partition", 0);
        }
    }
    for claim in items_mut(spec, "volumeClaimTemplates") {
        set_if_zero(claim, "kind", "PersistentVolumeClaim");
        set_if_zero(claim, "apiVersion", "v1");
    }
}

/// The labels and the selector of a ReplicationController default to the labels of its template.
pub(super) fn default_replication_controller(object: &mut Value) {
    let labels = object
        .at(&["spec", "template", "metadata", "labels"])
        .cloned();
    let Some(labels) = labels else {
        return;
    };
    if let Some(spec) = existing(object, "spec") {
        set_if_zero(spec, "selector", labels.clone());
    }
    if let Some(metadata) = child(object, "metadata") {
        set_if_zero(metadata, "labels", labels);
    }
}

/// The defaults of the number of pods and of the retries of a Job.
pub(super) fn default_job(job: &mut Value) {
    let Some(spec) = child(job, "spec") else {
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
    let replace = match spec.field("podFailurePolicy") {
        Some(_) => "Failed",
        None => "TerminatingOrFailed",
    };
    set_if_absent(spec, "podReplacementPolicy", replace);
    set_if_absent(spec, "completionMode", "NonIndexed");
    set_if_absent(spec, "suspend", false);
    set_if_absent(spec, "manualSelector", false);
}

/// The strategy of Jobs.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct JobStrategy;

impl KindStrategy for JobStrategy {
    fn default(&self, object: &mut Value) {
        let labels = object
            .at(&["spec", "template", "metadata", "labels"])
            .cloned();
        if let Some(labels) = labels
            && let Some(metadata) = child(object, "metadata")
        {
            set_if_zero(metadata, "labels", labels);
        }
    }

    /// Pods belong to a Job by its UID, unless the user sets `manualSelector`.
    fn prepare_for_create(&self, object: &mut Value, _now: &str) {
        set(object, "status", Map::new());
        let metadata = object.part("metadata");
        let (name, uid) = (
            metadata.text("name").to_owned(),
            metadata.text("uid").to_owned(),
        );
        // In kube-apiserver, labels that default to the labels of the template are the same map.
        let of_template = ["spec", "template", "metadata", "labels"];
        let is_shared = object.at(&of_template) == metadata.field("labels");
        let Some(spec) = existing(object, "spec").filter(|s| !s.flag("manualSelector")) else {
            return;
        };
        if let Some(labels) = child(spec, "template")
            .and_then(|t| child(t, "metadata"))
            .and_then(|m| child(m, "labels"))
        {
            // Labels of the user are validated later.
            for label in NAME_LABELS {
                set_if_absent(labels, label, name.clone());
            }
            for label in UID_LABELS {
                set_if_absent(labels, label, uid.clone());
            }
        }
        if let Some(labels) = child(spec, "selector").and_then(|s| child(s, "matchLabels")) {
            set_if_absent(labels, UID_LABELS[0], uid);
        }
        if is_shared && let Some(metadata) = existing(object, "metadata") {
            remove(metadata, "labels");
        }
        // kube-apiserver fills in defaults again when it reads the object.
        self.default(object);
    }
}

/// The number of times that the template of a DaemonSet has changed, as an annotation of apps/v1.
const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

/// The strategy of DaemonSets.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct DaemonSetStrategy;

impl DaemonSetStrategy {
    fn generation(object: &Value) -> i64 {
        let annotations = object.part("metadata").part("annotations");
        let text = annotations.text(TEMPLATE_GENERATION);
        text.parse().unwrap_or_default()
    }

    fn set_generation(object: &mut Value, generation: i64) {
        let annotations = child(object, "metadata").and_then(|m| child(m, "annotations"));
        if let Some(annotations) = annotations {
            set(annotations, TEMPLATE_GENERATION, generation.to_string());
        }
    }
}

impl KindStrategy for DaemonSetStrategy {
    fn default(&self, object: &mut Value) {
        Self::set_generation(object, Self::generation(object));
    }

    fn prepare_for_create(&self, object: &mut Value, now: &str) {
        WithStatus.prepare_for_create(object, now);
        Self::set_generation(object, Self::generation(object).max(1));
    }

    fn prepare_for_update(&self, new: &mut Value, old: &Value, part: Subresource, _now: &str) {
        keep_other_half(new, old, part);
        let template = |set: &Value| set.part("spec").part("template").clone();
        let changes = i64::from(template(new) != template(old));
        Self::set_generation(new, Self::generation(old).saturating_add(changes));
    }
}

/// The strategy of kinds that begin with an empty status.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct WithStatus;

impl KindStrategy for WithStatus {
    fn prepare_for_create(&self, object: &mut Value, _now: &str) {
        set(object, "status", Map::new());
    }
}
