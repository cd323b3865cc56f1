//! The status of a deployment: counts, Available, and how the rollout progresses.

use super::rolling::Bounds;
use berth_objects::access::StoredObject;
use berth_objects::object::{
    self, condition, count, generation, name, remove_condition, seconds, set, time,
};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

pub(super) const AVAILABLE: &str = "Available";
pub(super) const PROGRESSING: &str = "Progressing";
const REPLICA_FAILURE: &str = "ReplicaFailure";
const COMPLETE: &str = "NewReplicaSetAvailable";
const TIMED_OUT: &str = "ProgressDeadlineExceeded";

/// A condition as of now.
pub(super) fn new_condition(
    kind: &str,
    status: &str,
    reason: &str,
    message: &str,
    now: Timestamp,
) -> Value {
    let mut condition = object::new_condition(kind, status, reason, message, now);
    condition["lastUpdateTime"] = seconds(now);
    condition
}

/// Puts a condition at the end of the list, unless there is one of its type with the same status and reason. The
/// time of the last transition stays when the status does. `true` when that changed something.
pub(super) fn set_condition(status: &mut Value, mut new: Value) -> bool {
    let kind = new["type"].as_str().unwrap_or_default().to_owned();
    if let Some(old) = condition(status, &kind)
        && old["status"] == new["status"]
    {
        if old["reason"] == new["reason"] {
            return false;
        }
        new["lastTransitionTime"] = old["lastTransitionTime"].clone();
    }
    remove_condition(status, &kind);
    match status.get_mut("conditions").and_then(Value::as_array_mut) {
        Some(conditions) => conditions.push(new),
        None => set(status, &["conditions"], json!([new])),
    }
    true
}

/// The progress deadline of the rollout in seconds; `None` if there is none.
pub(super) fn progress_deadline(deployment: &Value) -> Option<i64> {
    deployment["spec"]["progressDeadlineSeconds"]
        .as_i64()
        .filter(|s| *s != i64::from(i32::MAX))
}

/// Counts and the condition Available. `sets` are all replica sets, `new` is the set of the current template.
pub(super) fn counts(
    deployment: &Value,
    sets: &[&StoredObject],
    new: Option<&StoredObject>,
    bounds: Bounds,
    now: Timestamp,
) -> Value {
    let sum = |field: &str| -> i32 { sets.iter().map(|s| count(&s["status"][field], 0)).sum() };
    let replicas = sum("replicas");
    let available = sum("availableReplicas");
    let old = &deployment["status"];
    let mut status = json!({
        "observedGeneration": generation(deployment),
        "terminatingReplicas": sum("terminatingReplicas"),
    });
    for (field, value) in [
        ("replicas", replicas),
        (
            "updatedReplicas",
            new.map_or(0, |s| count(&s["status"]["replicas"], 0)),
        ),
        ("readyReplicas", sum("readyReplicas")),
        ("availableReplicas", available),
        ("unavailableReplicas", (replicas - available).max(0)),
    ] {
        // Zeros are left out, as upstream does.
        if value != 0 {
            status[field] = value.into();
        }
    }
    for field in ["collisionCount", "conditions"] {
        if !old[field].is_null() {
            status[field] = old[field].clone();
        }
    }
    let condition = if available >= bounds.available_min() {
        let message = "Deployment has minimum availability.";
        new_condition(AVAILABLE, "True", "MinimumReplicasAvailable", message, now)
    } else {
        let message = "Deployment does not have minimum availability.";
        new_condition(
            AVAILABLE,
            "False",
            "MinimumReplicasUnavailable",
            message,
            now,
        )
    };
    set_condition(&mut status, condition);
    status
}

/// Returns whether a rollout has ended: all pods are new, all are available, and the newest template was seen.
pub(super) fn is_complete(deployment: &Value, status: &Value) -> bool {
    let wanted = count(&deployment["spec"]["replicas"], 1);
    ["updatedReplicas", "replicas", "availableReplicas"]
        .iter()
        .all(|field| count(&status[*field], 0) == wanted)
        && status["observedGeneration"].as_i64().unwrap_or_default() >= generation(deployment)
}

fn has_progressed(old: &Value, new: &Value) -> bool {
    let get = |status: &Value, field: &str| count(&status[field], 0);
    let outdated = |status: &Value| get(status, "replicas") - get(status, "updatedReplicas");
    get(new, "updatedReplicas") > get(old, "updatedReplicas")
        || outdated(new) < outdated(old)
        || get(new, "readyReplicas") > get(old, "readyReplicas")
        || get(new, "availableReplicas") > get(old, "availableReplicas")
}

fn has_timed_out(status: &Value, deadline: i64, now: Timestamp) -> bool {
    let Some(progress) = condition(status, PROGRESSING) else {
        return false;
    };
    match progress["reason"].as_str() {
        Some(COMPLETE) => false,
        Some(TIMED_OUT) => true,
        _ => time(&progress["lastUpdateTime"])
            .and_then(|t| t.checked_add(SignedDuration::from_secs(deadline)).ok())
            .is_some_and(|t| t < now),
    }
}

/// Brings the conditions Progressing and ReplicaFailure of `status` (from [`counts`]) up to date.
pub(super) fn progress(
    deployment: &Value,
    status: &mut Value,
    sets: &[&StoredObject],
    new: Option<&StoredObject>,
    now: Timestamp,
) {
    match progress_deadline(deployment) {
        None => remove_condition(status, PROGRESSING),
        Some(deadline) => note_progress(deployment, status, new, deadline, now),
    }
    // The failure of the new replica set takes precedence over failures of old replica sets.
    let failure = new
        .into_iter()
        .chain(sets.iter().copied())
        .find_map(|s| condition(&s["status"], REPLICA_FAILURE));
    match failure {
        None => remove_condition(status, REPLICA_FAILURE),
        Some(failure) => {
            let text = |field: &str| failure[field].as_str().unwrap_or_default();
            let mut condition = new_condition(
                REPLICA_FAILURE,
                text("status"),
                text("reason"),
                text("message"),
                now,
            );
            condition["lastTransitionTime"] = failure["lastTransitionTime"].clone();
            condition["lastUpdateTime"] = failure["lastTransitionTime"].clone();
            set_condition(status, condition);
        }
    }
}

fn note_progress(
    deployment: &Value,
    status: &mut Value,
    new: Option<&StoredObject>,
    deadline: i64,
    now: Timestamp,
) {
    let current = condition(status, PROGRESSING).cloned();
    let settled = count(&status["replicas"], 0) == count(&status["updatedReplicas"], 0)
        && current.as_ref().is_some_and(|c| c["reason"] == COMPLETE);
    if settled {
        return;
    }
    let subject = match new {
        Some(set) => format!("ReplicaSet {:?}", name(set)),
        None => format!("Deployment {:?}", name(deployment)),
    };
    if is_complete(deployment, status) {
        let message = format!("{subject} has successfully progressed.");
        set_condition(
            status,
            new_condition(PROGRESSING, "True", COMPLETE, &message, now),
        );
    } else if has_progressed(&deployment["status"], status) {
        let message = format!("{subject} is progressing.");
        let mut condition = new_condition(PROGRESSING, "True", "ReplicaSetUpdated", &message, now);
        // Each step restarts the deadline, so the condition is replaced even if it is otherwise unchanged.
        if let Some(current) = current {
            if current["status"] == "True" {
                condition["lastTransitionTime"] = current["lastTransitionTime"].clone();
            }
            remove_condition(status, PROGRESSING);
        }
        set_condition(status, condition);
    } else if has_timed_out(status, deadline, now) {
        let message = format!("{subject} has timed out progressing.");
        set_condition(
            status,
            new_condition(PROGRESSING, "False", TIMED_OUT, &message, now),
        );
    }
}

/// The condition that reports pausing and resuming, if it has to change.
pub(super) fn pause_condition(deployment: &Value, now: Timestamp) -> Option<Value> {
    progress_deadline(deployment)?;
    let reason = condition(&deployment["status"], PROGRESSING)
        .and_then(|c| c["reason"].as_str())
        .unwrap_or_default();
    let is_paused = deployment["spec"]["paused"] == true;
    let (reason, message) = match reason {
        // A rollout that has timed out stays so until it makes progress.
        TIMED_OUT => return None,
        "DeploymentPaused" if !is_paused => ("DeploymentResumed", "Deployment is resumed"),
        "DeploymentPaused" => return None,
        _ if is_paused => ("DeploymentPaused", "Deployment is paused"),
        _ => return None,
    };
    Some(new_condition(PROGRESSING, "Unknown", reason, message, now))
}

/// The time to check for a timeout of the rollout. A rollout that has completed once or has timed out does not time out
/// again by the passage of time.
pub(super) fn check_again_at(deployment: &Value, status: &Value) -> Option<Timestamp> {
    let deadline = progress_deadline(deployment)?;
    let progress = condition(status, PROGRESSING)?;
    let has_ended = progress["reason"] == TIMED_OUT || progress["reason"] == COMPLETE;
    if has_ended || is_complete(deployment, status) {
        return None;
    }
    time(&progress["lastUpdateTime"])?
        .checked_add(SignedDuration::from_secs(deadline.saturating_add(1)))
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    const T0: &str = "2026-01-01T00:00:00Z";

    fn at(second: i64) -> Timestamp {
        T0.parse::<Timestamp>().unwrap() + SignedDuration::from_secs(second)
    }

    fn set(name: &str, replicas: i32, ready: i32, available: i32) -> StoredObject {
        Arc::new(json!({"metadata": {"name": name}, "status": {
            "replicas": replicas, "readyReplicas": ready, "availableReplicas": available}}))
    }

    fn deployment(status: Value) -> Value {
        json!({"metadata": {"name": "web", "generation": 2},
               "spec": {"replicas": 10, "progressDeadlineSeconds": 600}, "status": status})
    }

    fn progressing(reason: &str) -> Value {
        json!([new_condition(PROGRESSING, "True", reason, "", at(0))])
    }

    #[test]
    fn counts_add_up_and_zeros_are_left_out() {
        let (old, new) = (set("web-a", 8, 8, 8), set("web-b", 5, 2, 1));
        let bounds = Bounds {
            replicas: 10,
            surge: 3,
            unavailable: 2,
        };
        let d = deployment(json!({}));
        let status = counts(&d, &[&old, &new], Some(&new), bounds, at(0));
        let number = |field: &str| count(&status[field], 0);
        assert_eq!(number("replicas"), 13);
        assert_eq!(number("updatedReplicas"), 5);
        assert_eq!(number("readyReplicas"), 10);
        assert_eq!(number("availableReplicas"), 9);
        assert_eq!(number("unavailableReplicas"), 4);
        assert_eq!(
            status["conditions"][0]["reason"],
            "MinimumReplicasAvailable"
        );
        let none = counts(&d, &[], None, bounds, at(0));
        assert!(none.get("replicas").is_none());
        assert_eq!(
            none["conditions"][0]["reason"],
            "MinimumReplicasUnavailable"
        );
        assert_eq!(
            none["conditions"][0]["message"],
            "Deployment does not have minimum availability."
        );
    }

    #[test]
    fn progress_is_reported_with_upstreams_reasons_and_messages() {
        let new = set("web-b", 5, 2, 2);
        let done = json!({"replicas": 10, "updatedReplicas": 10, "readyReplicas": 10,
                          "availableReplicas": 10, "observedGeneration": 2});
        let half = json!({"replicas": 13, "updatedReplicas": 5, "readyReplicas": 10,
                          "availableReplicas": 10, "observedGeneration": 2});
        let some = |mut status: Value, reason: &str| {
            status["conditions"] = progressing(reason);
            status
        };
        for (situation, before, after, new, second, expected) in [
            (
                "all pods are new and available",
                some(half.clone(), "ReplicaSetUpdated"),
                some(done.clone(), "ReplicaSetUpdated"),
                Some(&new),
                10,
                (
                    "True",
                    COMPLETE,
                    "ReplicaSet \"web-b\" has successfully progressed.",
                ),
            ),
            (
                "a step forward",
                some(
                    json!({"replicas": 13, "updatedReplicas": 3}),
                    "NewReplicaSetCreated",
                ),
                some(half.clone(), "NewReplicaSetCreated"),
                Some(&new),
                10,
                (
                    "True",
                    "ReplicaSetUpdated",
                    "ReplicaSet \"web-b\" is progressing.",
                ),
            ),
            (
                "no replica set yet",
                some(json!({}), "x"),
                some(half.clone(), "x"),
                None,
                10,
                (
                    "True",
                    "ReplicaSetUpdated",
                    "Deployment \"web\" is progressing.",
                ),
            ),
            (
                "nothing moves, the deadline is ahead",
                some(half.clone(), "ReplicaSetUpdated"),
                some(half.clone(), "ReplicaSetUpdated"),
                Some(&new),
                600,
                ("True", "ReplicaSetUpdated", ""),
            ),
            (
                "nothing moves, the deadline is over",
                some(half.clone(), "ReplicaSetUpdated"),
                some(half.clone(), "ReplicaSetUpdated"),
                Some(&new),
                601,
                (
                    "False",
                    TIMED_OUT,
                    "ReplicaSet \"web-b\" has timed out progressing.",
                ),
            ),
            (
                "complete long ago: no pod can time out",
                some(half.clone(), COMPLETE),
                some(half.clone(), COMPLETE),
                Some(&new),
                9999,
                ("True", COMPLETE, ""),
            ),
        ] {
            let mut status = after;
            progress(&deployment(before), &mut status, &[], new, at(second));
            let condition = condition(&status, PROGRESSING).unwrap();
            assert_eq!(
                (
                    condition["status"].as_str().unwrap(),
                    condition["reason"].as_str().unwrap(),
                    condition["message"].as_str().unwrap()
                ),
                expected,
                "{situation}"
            );
        }
    }

    #[test]
    fn each_step_forward_moves_the_deadline_but_not_the_transition() {
        let before = json!({"updatedReplicas": 1, "conditions": progressing("ReplicaSetUpdated")});
        let mut after =
            json!({"updatedReplicas": 2, "conditions": progressing("ReplicaSetUpdated")});
        let d = deployment(before);
        progress(&d, &mut after, &[], None, at(100));
        let condition = condition(&after, PROGRESSING).unwrap();
        assert_eq!(time(&condition["lastUpdateTime"]), Some(at(100)));
        assert_eq!(time(&condition["lastTransitionTime"]), Some(at(0)));
        assert_eq!(check_again_at(&d, &after), Some(at(701)));
    }

    #[test]
    fn without_a_deadline_there_is_no_progress_to_report() {
        let mut d = deployment(json!({}));
        d["spec"]["progressDeadlineSeconds"] = i32::MAX.into();
        let mut status = json!({"conditions": progressing("ReplicaSetUpdated")});
        progress(&d, &mut status, &[], None, at(0));
        assert!(condition(&status, PROGRESSING).is_none());
        assert_eq!(pause_condition(&d, at(0)), None);
    }

    #[test]
    fn a_replica_failure_shows_until_it_is_over() {
        let mut failing = (*set("web-b", 0, 0, 0)).clone();
        failing["status"]["conditions"] = json!([{"type": "ReplicaFailure", "status": "True",
            "reason": "FailedCreate", "message": "exceeded quota", "lastTransitionTime": T0}]);
        let failing = Arc::new(failing);
        let d = deployment(json!({}));
        let mut status = json!({});
        progress(&d, &mut status, &[&failing], Some(&failing), at(0));
        let failure = condition(&status, REPLICA_FAILURE).unwrap();
        assert_eq!(failure["message"], "exceeded quota");
        progress(&d, &mut status, &[], None, at(1));
        assert!(condition(&status, REPLICA_FAILURE).is_none());
    }

    #[test]
    fn pausing_and_resuming_are_reported_once() {
        let paused = |status: Value, is_paused: bool| {
            let mut d = deployment(status);
            d["spec"]["paused"] = is_paused.into();
            pause_condition(&d, at(0)).map(|c| c["reason"].as_str().unwrap().to_owned())
        };
        let with = |reason: &str| json!({"conditions": progressing(reason)});
        for (situation, status, is_paused, expected) in [
            (
                "paused",
                with("ReplicaSetUpdated"),
                true,
                Some("DeploymentPaused"),
            ),
            ("already reported", with("DeploymentPaused"), true, None),
            (
                "resumed",
                with("DeploymentPaused"),
                false,
                Some("DeploymentResumed"),
            ),
            ("never paused", with("ReplicaSetUpdated"), false, None),
            ("timed out", with(TIMED_OUT), true, None),
        ] {
            let got = paused(status, is_paused);
            assert_eq!(got.as_deref(), expected, "{situation}");
        }
    }
}
