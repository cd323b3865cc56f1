//! The questions of controllers about pods.

use crate::object::{condition, created_at, is_deleting, items, time};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

/// `status.phase`.
pub fn phase(pod: &Value) -> &str {
    pod["status"]["phase"].as_str().unwrap_or_default()
}

/// Returns whether all its containers have ended for good.
pub fn is_terminal(pod: &Value) -> bool {
    matches!(phase(pod), "Succeeded" | "Failed")
}

/// Returns whether it counts as a replica: it has not ended and is not being deleted.
pub fn is_active(pod: &Value) -> bool {
    !is_terminal(pod) && !is_deleting(pod)
}

/// `spec.nodeName`, if it has one.
pub fn node_name(pod: &Value) -> Option<&str> {
    pod["spec"]["nodeName"].as_str().filter(|n| !n.is_empty())
}

/// Returns whether its condition Ready is true.
pub fn is_ready(pod: &Value) -> bool {
    ready_since(pod).is_some()
}

/// Since when it is ready; `None` when it is not.
pub fn ready_since(pod: &Value) -> Option<Timestamp> {
    let ready = condition(&pod["status"], "Ready")?;
    (ready["status"] == "True")
        .then(|| time(&ready["lastTransitionTime"]).unwrap_or_else(|| created_at(pod)))
}

/// The time at which a ready pod becomes available: after `min_ready_seconds`.
pub fn available_from(pod: &Value, min_ready_seconds: i32) -> Option<Timestamp> {
    let since = ready_since(pod)?;
    since
        .checked_add(SignedDuration::from_secs(min_ready_seconds.max(0).into()))
        .ok()
}

/// The name of the resource claim that was generated for an entry of the pod's spec: `Some(None)` if none was needed,
/// `None` while this is undecided.
pub fn made_for<'p>(pod: &'p Value, entry: &str) -> Option<Option<&'p str>> {
    let mut made = items(&pod["status"]["resourceClaimStatuses"]).iter();
    let made = made.find(|made| made["name"] == entry)?;
    Some(made["resourceClaimName"].as_str())
}

/// The names of the resource claims that a pod uses, as far as they are known.
pub fn claims_of(pod: &Value) -> impl Iterator<Item = &str> {
    let entries = items(&pod["spec"]["resourceClaims"]).iter();
    let extended = pod["status"]["extendedResourceClaimStatus"]["resourceClaimName"].as_str();
    entries
        .filter_map(|entry| match entry["resourceClaimName"].as_str() {
            Some(name) => Some(name),
            None => made_for(pod, entry["name"].as_str()?)?,
        })
        .chain(extended)
}

/// The names of the templates of a pod's resource claims.
pub fn templates_of(pod: &Value) -> impl Iterator<Item = &str> {
    let entries = items(&pod["spec"]["resourceClaims"]).iter();
    entries.filter_map(|entry| entry["resourceClaimTemplateName"].as_str())
}

/// The greatest restart count of its containers.
pub fn max_restarts(pod: &Value) -> i64 {
    items(&pod["status"]["containerStatuses"])
        .iter()
        .filter_map(|c| c["restartCount"].as_i64())
        .max()
        .unwrap_or_default()
}
