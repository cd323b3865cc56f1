//! The status of a replica set: counts of its pods, and whether making or deleting them failed.

use berth_objects::access::{AccessError, StoredObject};
use berth_objects::object::{
    condition, count, generation, is_deleting, labels, put_condition, remove_condition, seconds,
};
use berth_objects::pod;
use berth_objects::selectors::workload::ControllerSelector;
use jiff::Timestamp;
use serde_json::{Value, json};

/// The sums over the pods of a replica set.
#[derive(Debug, PartialEq)]
pub(super) struct Summary {
    /// The whole new status.
    pub(super) status: Value,
    /// The time at which the next ready pod becomes available.
    pub(super) next_available: Option<Timestamp>,
}

/// The failed operation on the pods.
#[derive(Debug, Clone, Copy)]
pub(super) enum Failed<'a> {
    /// Too few, and no further one could be made.
    Create(&'a AccessError),
    /// Too many, and one could not be deleted.
    Delete(&'a AccessError),
}

/// Sums up `pods`, all that the replica set controls.
pub(super) fn summarize(
    set: &Value,
    pods: &[StoredObject],
    failed: Option<Failed<'_>>,
    now: Timestamp,
) -> Summary {
    let template = ControllerSelector::of_labels(&set["spec"]["template"]["metadata"]["labels"]);
    let min_ready = count(&set["spec"]["minReadySeconds"], 0);
    let (mut replicas, mut labeled, mut ready, mut available, mut terminating) = (0, 0, 0, 0, 0);
    let mut next_available: Option<Timestamp> = None;
    for p in pods {
        if !pod::is_active(p) {
            if is_deleting(p) && !pod::is_terminal(p) {
                terminating += 1;
            }
            continue;
        }
        replicas += 1;
        if template.matches(labels(p)) {
            labeled += 1;
        }
        let Some(from) = pod::available_from(p, min_ready) else {
            continue;
        };
        ready += 1;
        if min_ready <= 0 || from <= now {
            available += 1;
        } else {
            next_available = Some(next_available.map_or(from, |t| t.min(from)));
        }
    }
    let mut status = json!({
        "replicas": replicas,
        "fullyLabeledReplicas": labeled,
        "readyReplicas": ready,
        "availableReplicas": available,
        "terminatingReplicas": terminating,
        "observedGeneration": generation(set),
    });
    // Counts of zero are left out, as upstream does; `replicas` and `terminatingReplicas` are always there.
    for field in ["fullyLabeledReplicas", "readyReplicas", "availableReplicas"] {
        if status[field] == 0
            && let Some(status) = status.as_object_mut()
        {
            status.remove(field);
        }
    }
    let old = &set["status"];
    if old["conditions"].is_array() {
        status["conditions"] = old["conditions"].clone();
    }
    match failed {
        None => remove_condition(&mut status, "ReplicaFailure"),
        // The first failure is reported until it is over.
        Some(_) if condition(old, "ReplicaFailure").is_some() => {}
        Some(failed) => {
            let (reason, error) = match failed {
                Failed::Create(error) => ("FailedCreate", error),
                Failed::Delete(error) => ("FailedDelete", error),
            };
            put_condition(
                &mut status,
                json!({
                    "type": "ReplicaFailure",
                    "status": "True",
                    "lastTransitionTime": seconds(now),
                    "reason": reason,
                    "message": error.message,
                }),
            );
        }
    }
    if status["conditions"] == json!([])
        && let Some(status) = status.as_object_mut()
    {
        status.remove("conditions");
    }
    Summary {
        status,
        next_available,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::refused;
    use std::sync::Arc;

    fn pod(phase: &str, app: &str, ready_since: Option<&str>, deleting: bool) -> StoredObject {
        let mut pod = json!({"metadata": {"labels": {"app": app}}, "status": {"phase": phase}});
        if let Some(since) = ready_since {
            pod["status"]["conditions"] =
                json!([{"type": "Ready", "status": "True", "lastTransitionTime": since}]);
        }
        if deleting {
            pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        }
        Arc::new(pod)
    }

    fn set(min_ready: i32) -> Value {
        json!({"metadata": {"generation": 4},
               "spec": {"minReadySeconds": min_ready,
                        "template": {"metadata": {"labels": {"app": "web"}}}}})
    }

    #[test]
    fn pods_are_counted_by_what_they_can_do() {
        let pods = [
            pod("Running", "web", Some("2026-01-01T00:00:00Z"), false),
            pod("Running", "web", Some("2026-01-01T00:00:55Z"), false),
            pod("Running", "web", None, false),
            pod("Pending", "other", None, false),
            pod("Running", "web", Some("2026-01-01T00:00:00Z"), true),
            pod("Failed", "web", None, false),
        ];
        let now = "2026-01-01T00:01:00Z".parse().unwrap();
        let summary = summarize(&set(10), &pods, None, now);
        assert_eq!(
            summary.status,
            json!({"replicas": 4, "fullyLabeledReplicas": 3, "readyReplicas": 2,
                   "availableReplicas": 1, "terminatingReplicas": 1, "observedGeneration": 4})
        );
        assert_eq!(
            summary.next_available,
            Some("2026-01-01T00:01:05Z".parse().unwrap())
        );
        let without = summarize(&set(0), &pods, None, now);
        assert_eq!(without.status["availableReplicas"], 2);
        assert_eq!(without.next_available, None);
    }

    #[test]
    fn a_failure_is_reported_until_it_is_over() {
        let now = "2026-01-01T00:01:00Z".parse().unwrap();
        let first = refused(403, "Forbidden", "exceeded quota");
        let later = refused(403, "Forbidden", "another message");
        let mut rs = set(0);
        rs["status"] = summarize(&rs, &[], Some(Failed::Create(&first)), now).status;
        let condition = &rs["status"]["conditions"][0];
        assert_eq!(condition["reason"], "FailedCreate");
        assert_eq!(condition["message"], "exceeded quota");
        let after = summarize(&rs, &[], Some(Failed::Delete(&later)), now).status;
        assert_eq!(after["conditions"][0]["message"], "exceeded quota");
        let over = summarize(&rs, &[], None, now).status;
        assert!(over.get("conditions").is_none());
    }
}
