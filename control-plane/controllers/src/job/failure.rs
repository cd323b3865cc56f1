//! The failure of a job: its backoff limit, its deadline, or its pod failure policy.

use super::tally::JobTally;
use super::{TRACKING, after, back_off};
use berth_objects::access::StoredObject;
use berth_objects::object::{condition, created_at, has_finalizer, items, name, namespace, time};
use berth_objects::pod;
use jiff::Timestamp;
use serde_json::Value;

/// The reason why a job has failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct JobFailure {
    pub(super) reason: String,
    pub(super) message: String,
}

impl JobFailure {
    pub(super) fn new(reason: &str, message: impl Into<String>) -> Self {
        Self {
            reason: reason.to_owned(),
            message: message.into(),
        }
    }

    /// The job has run for too long.
    pub(super) fn deadline() -> Self {
        Self::new(
            "DeadlineExceeded",
            "Job was active longer than specified deadline",
        )
    }

    /// The reason as events name it.
    pub(super) fn event_reason(&self) -> &'static str {
        match self.reason.as_str() {
            "DeadlineExceeded" => "DeadlineExceeded",
            "FailedIndexes" => "FailedIndexes",
            "MaxFailedIndexesExceeded" => "MaxFailedIndexesExceeded",
            "PodFailurePolicy" => "PodFailurePolicy",
            _ => "BackoffLimitExceeded",
        }
    }
}

/// The failure that an earlier reconcile found.
pub(super) fn kept(status: &Value) -> Option<JobFailure> {
    let target = condition(status, "FailureTarget")?;
    let text = |field: &str| target[field].as_str().unwrap_or_default();
    Some(JobFailure::new(text("reason"), text("message")))
}

/// Returns whether pods have failed, or containers have been restarted, too often.
pub(super) fn by_retries(
    spec: &Value,
    tally: &JobTally,
    pods: &[StoredObject],
) -> Option<JobFailure> {
    let limit = spec["backoffLimit"].as_i64().unwrap_or(6);
    let restarts = || -> i64 {
        pods.iter()
            .filter(|p| matches!(pod::phase(p), "Running" | "Pending"))
            .flat_map(|p| {
                let status = &p["status"];
                items(&status["initContainerStatuses"])
                    .iter()
                    .chain(items(&status["containerStatuses"]))
            })
            .filter_map(|c| c["restartCount"].as_i64())
            .sum()
    };
    let exceeded = tally.failed() > limit
        || (spec["template"]["spec"]["restartPolicy"] == "OnFailure"
            && match limit {
                0 => restarts() > 0,
                limit => restarts() >= limit,
            });
    exceeded.then(|| {
        JobFailure::new(
            "BackoffLimitExceeded",
            "Job has reached the specified backoff limit",
        )
    })
}

/// Returns whether a rule of `podFailurePolicy` with the action FailJob matches a failed pod.
pub(super) fn by_policy(spec: &Value, pods: &[StoredObject]) -> Option<JobFailure> {
    let rules = items(&spec["podFailurePolicy"]["rules"]);
    let failed = pods
        .iter()
        .filter(|p| pod::phase(p) == "Failed" && has_finalizer(p, TRACKING));
    for pod in failed {
        let found = rules
            .iter()
            .enumerate()
            .find_map(|(i, rule)| Some((i, rule, matched(rule, pod)?)));
        if let Some((index, rule, what)) = found
            && rule["action"] == "FailJob"
        {
            let message = format!("{what} matching FailJob rule at index {index}");
            return Some(JobFailure::new("PodFailurePolicy", message));
        }
    }
    None
}

/// The action of the rule that matches a failed pod.
pub(super) fn action<'s>(spec: &'s Value, pod: &Value) -> Option<&'s str> {
    let mut rules = items(&spec["podFailurePolicy"]["rules"]).iter();
    rules.find(|rule| matched(rule, pod).is_some())?["action"].as_str()
}

/// The part of a pod that a rule matches.
fn matched(rule: &Value, pod: &Value) -> Option<String> {
    let pod_name = format!("{}/{}", namespace(pod), name(pod));
    if rule["onExitCodes"].is_object() {
        let wanted = &rule["onExitCodes"];
        let status = &pod["status"];
        let containers = items(&status["initContainerStatuses"])
            .iter()
            .chain(items(&status["containerStatuses"]));
        for container in containers {
            let only = &wanted["containerName"];
            if only.is_string() && *only != container["name"] {
                continue;
            }
            let Some(code) = container["state"]["terminated"]["exitCode"].as_i64() else {
                continue;
            };
            let listed = items(&wanted["values"]).iter().any(|v| *v == code);
            let matches = match wanted["operator"].as_str() {
                Some("In") => listed,
                // Exit code 0 is a success, which no failure rule may match.
                Some("NotIn") => code != 0 && !listed,
                _ => false,
            };
            if matches {
                let container = container["name"].as_str().unwrap_or_default();
                return Some(format!(
                    "Container {container} for pod {pod_name} failed with exit code {code}"
                ));
            }
        }
        return None;
    }
    let pattern = items(&rule["onPodConditions"]).iter().find(|pattern| {
        let kind = pattern["type"].as_str().unwrap_or_default();
        let status = pattern["status"].as_str().unwrap_or("True");
        condition(&pod["status"], kind).is_some_and(|c| c["status"] == status)
    })?;
    let kind = pattern["type"].as_str().unwrap_or_default();
    Some(format!("Pod {pod_name} has condition {kind}"))
}

/// The earliest time of the next pod after failures: the pause doubles with each failure since the last success.
pub(super) fn back_off_ends(pods: &[StoredObject]) -> Option<Timestamp> {
    let ended = |phase: &'static str| {
        pods.iter()
            .filter(move |p| pod::phase(p) == phase)
            .map(|p| ended_at(p))
    };
    let success = ended("Succeeded").max();
    let failures: Vec<Timestamp> = ended("Failed")
        .filter(|at| success.is_none_or(|success| *at > success))
        .collect();
    let last = failures.iter().max()?;
    Some(after(*last, back_off(failures.len() - 1)))
}

pub(super) fn ended_at(pod: &Value) -> Timestamp {
    items(&pod["status"]["containerStatuses"])
        .iter()
        .filter_map(|c| time(&c["state"]["terminated"]["finishedAt"]))
        .max()
        .unwrap_or_else(|| created_at(pod))
}
