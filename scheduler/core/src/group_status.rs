//! The conditions of groups: whether a group was scheduled once, and if not, the reason.
//!
//! A condition is written through the dispatcher if it differs from the condition of the group in the cache, which
//! includes our own writes. A group that was scheduled once keeps this condition.

use crate::attempt::CycleResult;
use crate::cache::Cache;
use crate::core::{Calls, Framework};
use berth_api::groups::{
    COMPOSITE_INITIALLY_SCHEDULED, GroupCondition, GroupStatus, POD_GROUP_INITIALLY_SCHEDULED,
};
use berth_api::{Kind, Object, Str, Time};
use berth_dispatcher::Dispatcher;
use berth_framework::call::{CallResult, PodRef};
use berth_framework::cluster::{GroupKey, GroupKind, Groups};
use berth_framework::write::{Action, CallType, Write};
use berth_framework::{ApiCall, Code, Status};
use berth_telemetry::metrics::{Metric, Metrics};
use berth_telemetry::{Log, LogLine};
use rustc_hash::FxHashMap;
use serde_json::json;
use std::sync::Arc;

/// Conditions of pod groups. The last write of a group takes precedence.
pub(crate) static POD_GROUP_STATUS: CallType =
    CallType::new("pod_group_status_patch", Kind::PodGroup);
/// Conditions of composite pod groups.
pub(crate) static COMPOSITE_STATUS: CallType =
    CallType::new("composite_pod_group_status_patch", Kind::CompositePodGroup);

/// Registers these calls with the dispatcher.
pub(crate) fn register(dispatcher: &mut Dispatcher) {
    for call_type in [&POD_GROUP_STATUS, &COMPOSITE_STATUS] {
        let registered = dispatcher.register(call_type);
        debug_assert!(registered.is_ok(), "a plugin writes groups: {registered:?}");
    }
}

/// The status that decides about a group: the status of the highest ancestor that cannot start, or its own. `None` if
/// neither was evaluated.
pub(crate) fn deciding<'s>(
    groups: &Groups,
    statuses: &'s FxHashMap<GroupKey, Status>,
    key: &GroupKey,
) -> Option<&'s Status> {
    let path = groups.path_to_root(key).ok()?;
    let mut known = path.iter().rev().filter_map(|key| statuses.get(key));
    let failing = known.find(|status| !status.is_success());
    failing.or_else(|| statuses.get(key))
}

/// Writes the conditions of all groups of a hierarchy.
///
/// `scheduler` is the scheduler name of the pods.
pub(crate) fn write_all(
    framework: &mut Framework,
    calls: &mut Calls,
    root: &GroupKey,
    scheduler: &Str,
    statuses: &FxHashMap<GroupKey, Status>,
) {
    let now = framework.clock.now();
    let groups = framework.cache.cluster().groups();
    let tree = groups.tree(root);
    let decided = tree.into_iter().filter_map(|key| {
        let status = deciding(groups, statuses, &key)?.clone();
        Some((key, status))
    });
    for (key, status) in decided.collect::<Vec<_>>() {
        let groups = framework.cache.cluster().groups();
        let Some(write) = condition_write(groups, &key, &status, now) else {
            continue;
        };
        framework.cache.assume_write(write.clone());
        calls.make(ApiCall::from(write), now);
        if !status.is_success() {
            framework.publish_group_failure(&key, scheduler, &status.message());
        }
    }
}

/// The write of the condition of a group, if it changes.
fn condition_write(groups: &Groups, key: &GroupKey, status: &Status, now: Time) -> Option<Write> {
    let group = groups.get(key)?;
    let (call_type, kind) = match key.kind {
        GroupKind::PodGroup => (&POD_GROUP_STATUS, POD_GROUP_INITIALLY_SCHEDULED),
        GroupKind::CompositePodGroup => (&COMPOSITE_STATUS, COMPOSITE_INITIALLY_SCHEDULED),
    };
    let (value, reason) = match status.code() {
        Code::Success => ("True", "Scheduled"),
        Code::Error => ("False", "SchedulerError"),
        _ => ("False", "Unschedulable"),
    };
    let before = group.status.condition(kind);
    let message = if status.is_success() {
        String::new()
    } else {
        status.message()
    };
    // `True` is final: the group was scheduled once, and a later failure does not change that.
    let is_stated = before.is_some_and(|c| {
        c.status == "True" || c.status == value && c.reason == reason && c.message == *message
    });
    if is_stated {
        return None;
    }
    // A new reason or message is not a transition.
    let since = before
        .filter(|c| c.status == value)
        .and_then(|c| c.last_transition_time);
    let since = since.unwrap_or(now);
    let condition = GroupCondition {
        kind: kind.into(),
        status: value.into(),
        reason: reason.into(),
        message: message.into(),
        observed_generation: group.metadata.generation,
        last_transition_time: Some(since),
    };
    let body = json!({"status": {"conditions": [{
        "type": kind,
        "status": value,
        "reason": reason,
        "message": &*condition.message,
        "observedGeneration": condition.observed_generation.unwrap_or(0),
        "lastTransitionTime": since.rfc3339(),
    }]}});
    let (namespace, name) = (key.namespace.as_str(), key.name.as_str());
    let write = Write::new(call_type, namespace, name, Action::StrategicPatch(body))
        .assumed_of_version(group.metadata)
        .to_subresource("status")
        .seen_as(move |object| with_condition(object, &condition));
    Some(write)
}

/// The group with this condition instead of its condition of the same type.
fn with_condition(object: &Object, condition: &GroupCondition) -> Object {
    let set = |status: &mut GroupStatus| {
        let mut conditions = status.conditions.iter_mut();
        match conditions.find(|c| c.kind == condition.kind) {
            Some(known) => *known = condition.clone(),
            None => status.conditions.push(condition.clone()),
        }
    };
    match object {
        Object::PodGroup(group) => {
            let mut group = group.as_ref().clone();
            set(&mut group.status);
            Object::PodGroup(Arc::new(group))
        }
        Object::CompositePodGroup(group) => {
            let mut group = group.as_ref().clone();
            set(&mut group.status);
            Object::CompositePodGroup(Arc::new(group))
        }
        other => other.clone(),
    }
}

/// Handles the result of a write. A failed write is reverted in the cache; the next attempt writes the condition again.
pub(crate) fn write_ended(cache: &mut Cache, log: &mut Log, write: &Write, result: &CallResult) {
    let text = match write.object().kind {
        Kind::PodGroup => "Failed to update PodGroup status",
        Kind::CompositePodGroup => "Failed to update CompositePodGroup status",
        _ => return,
    };
    if let Err(error) = result
        && !error.kind.is_dropped()
    {
        cache.revert_write(write);
        let line = LogLine::error(text).with("podGroup", write.object().to_string());
        log.push(line.with("err", error.to_string()));
    }
}

/// The result of the attempt of a group.
pub(crate) struct AttemptEnd<'a> {
    /// The group without parent.
    pub(crate) root: &'a GroupKey,
    pub(crate) status: &'a Status,
    /// Whether pods are evicted for it.
    pub(crate) is_waiting: bool,
    /// The duration, in seconds.
    pub(crate) seconds: f64,
    /// The profile of its pods.
    pub(crate) profile: &'a Str,
}

/// The log messages about the end of an attempt for one kind of group.
struct Texts {
    key: &'static str,
    scheduled: &'static str,
    unschedulable: &'static str,
    waiting: &'static str,
    error: &'static str,
}

const OF_POD_GROUPS: Texts = Texts {
    key: "podGroup",
    scheduled: "Successfully scheduled a pod group",
    unschedulable: "Unable to schedule a pod group",
    waiting: "Pod group is waiting for preemption",
    error: "Error scheduling pod group",
};

const OF_COMPOSITES: Texts = Texts {
    key: "compositePodGroup",
    scheduled: "Successfully scheduled a composite pod group",
    unschedulable: "Unable to schedule a composite pod group",
    waiting: "Composite pod group is waiting for preemption",
    error: "Error scheduling composite pod group",
};

/// Counts and logs the end of an attempt of a group.
pub(crate) fn attempt_ended(
    log: &mut Log,
    metrics: &mut Metrics,
    attempt: &AttemptEnd<'_>,
    results: &[(PodRef, CycleResult)],
) {
    let AttemptEnd {
        root,
        status,
        is_waiting,
        seconds,
        profile,
    } = attempt;
    let texts = match root.kind {
        GroupKind::PodGroup => &OF_POD_GROUPS,
        GroupKind::CompositePodGroup => &OF_COMPOSITES,
    };
    let name = Str::from(root.namespaced_name());
    let placed =
        |(_, result): &&(PodRef, CycleResult)| matches!(result, CycleResult::Placed { .. });
    let scheduled = results.iter().filter(placed).count();
    let result = match status.code() {
        Code::Success => {
            log.v(2, texts.scheduled, |line| {
                line.with(texts.key, &name)
                    .with("scheduledPods", scheduled)
                    .with("unschedulablePods", results.len() - scheduled)
            });
            "scheduled"
        }
        Code::Error => {
            let line = LogLine::error(texts.error).with(texts.key, &name);
            log.push(line.with("err", status.message()));
            "error"
        }
        _ => {
            let text = if *is_waiting {
                texts.waiting
            } else {
                texts.unschedulable
            };
            log.v(2, text, |line| {
                line.with(texts.key, &name).with("err", status.message())
            });
            if *is_waiting {
                "waiting_on_preemption"
            } else {
                "unschedulable"
            }
        }
    };
    let labels = [result, profile.as_str()];
    metrics.count(Metric::PodGroupScheduleAttempts, &labels);
    metrics.observe(Metric::PodGroupSchedulingAttemptDuration, &labels, *seconds);
}
