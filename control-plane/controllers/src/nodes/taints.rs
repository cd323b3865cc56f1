//! The taints of a node by its conditions, and the time until they evict a pod. Pure.

use berth_api::{Taint, TaintEffect, Toleration};
use berth_objects::object::{condition, items, seconds, time};
use berth_objects::well_known::NOT_READY;
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde_json::{Value, json};

const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";
const OUTAGES: [(&str, &str); 4] = [
    ("MemoryPressure", "node.kubernetes.io/memory-pressure"),
    ("DiskPressure", "node.kubernetes.io/disk-pressure"),
    ("PIDPressure", "node.kubernetes.io/pid-pressure"),
    (
        "NetworkUnavailable",
        "node.kubernetes.io/network-unavailable",
    ),
];

/// Returns whether a taint is set and taken away by the node lifecycle controller alone.
fn is_ours(taint: &Value) -> bool {
    let key = taint["key"].as_str().unwrap_or_default();
    match taint["effect"].as_str() {
        Some("NoSchedule") => {
            matches!(key, NOT_READY | UNREACHABLE | UNSCHEDULABLE)
                || OUTAGES.iter().any(|(_, taint)| *taint == key)
        }
        Some("NoExecute") => matches!(key, NOT_READY | UNREACHABLE),
        _ => false,
    }
}

/// The taints that the conditions and `spec.unschedulable` of a node call for.
fn called_for(node: &Value) -> Vec<(&'static str, &'static str)> {
    let status = |kind| condition(&node["status"], kind).and_then(|c| c["status"].as_str());
    let mut taints = Vec::new();
    let readiness = match status("Ready") {
        Some("False") => Some(NOT_READY),
        Some("Unknown") => Some(UNREACHABLE),
        _ => None,
    };
    if let Some(key) = readiness {
        taints.push((key, "NoSchedule"));
        taints.push((key, "NoExecute"));
    }
    for (kind, key) in OUTAGES {
        if status(kind) == Some("True") {
            taints.push((key, "NoSchedule"));
        }
    }
    if node["spec"]["unschedulable"] == true {
        taints.push((UNSCHEDULABLE, "NoSchedule"));
    }
    taints
}

/// The desired taints of the node; `None` if it has them. Taints of other components are kept.
pub(super) fn corrected(node: &Value, now: Timestamp) -> Option<Vec<Value>> {
    let present = items(&node["spec"]["taints"]);
    let wanted = called_for(node);
    let is = |taint: &Value, (key, effect): &(&str, &str)| {
        taint["key"] == *key && taint["effect"] == *effect
    };
    // A node whose kubelet has never reported keeps its initial taint.
    let is_silent = condition(&node["status"], "Ready").is_none();
    let is_kept = |taint: &Value| is_silent && is(taint, &(NOT_READY, "NoSchedule"));
    let mut taints: Vec<Value> = present
        .iter()
        .filter(|t| !is_ours(t) || is_kept(t) || wanted.iter().any(|w| is(t, w)))
        .cloned()
        .collect();
    let mut changed = taints.len() != present.len();
    for new in &wanted {
        if !taints.iter().any(|t| is(t, new)) {
            taints.push(json!({"key": new.0, "effect": new.1, "timeAdded": seconds(now)}));
            changed = true;
        }
    }
    changed.then_some(taints)
}

/// The NoExecute taints of a node, and the time of the most recent one, if stated.
pub(super) fn evicting(node: &Value) -> (Vec<Taint>, Option<Timestamp>) {
    let raw: Vec<&Value> = items(&node["spec"]["taints"])
        .iter()
        .filter(|t| t["effect"] == TaintEffect::NoExecute.as_str())
        .collect();
    let since = raw.iter().filter_map(|t| time(&t["timeAdded"])).max();
    let taints = raw
        .into_iter()
        .filter_map(|t| Taint::deserialize(t).ok())
        .collect();
    (taints, since)
}

/// The time at which these NoExecute taints evict a pod, if the most recent taint was added at `since`. `None`: never.
pub(super) fn leaves_at(pod: &Value, taints: &[Taint], since: Timestamp) -> Option<Timestamp> {
    let tolerations: Vec<Toleration> = items(&pod["spec"]["tolerations"])
        .iter()
        .filter_map(|t| Toleration::deserialize(t).ok())
        .collect();
    let mut seconds: Option<i64> = None;
    for taint in taints {
        let used: Vec<&Toleration> = tolerations
            .iter()
            .filter(|t| t.tolerates(taint, false))
            .collect();
        if used.is_empty() {
            return Some(since);
        }
        let limits = used.iter().filter_map(|t| t.toleration_seconds);
        seconds = limits.chain(seconds).min();
    }
    let seconds = seconds?.max(0);
    since.checked_add(SignedDuration::from_secs(seconds)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        "2026-01-01T00:00:00Z".parse::<Timestamp>().unwrap() + SignedDuration::from_secs(second)
    }

    #[test]
    fn taints_follow_the_conditions() {
        let shown = |node: &Value| {
            corrected(node, at(0)).map(|taints| {
                let text = |t: &Value| {
                    let field = |f: &str| {
                        t[f].as_str()
                            .unwrap()
                            .trim_start_matches("node.kubernetes.io/")
                            .to_owned()
                    };
                    format!("{}:{}", field("key"), field("effect"))
                };
                taints.iter().map(text).collect::<Vec<_>>().join(" ")
            })
        };
        let node = |ready: &str, unschedulable: bool, taints: Value| {
            json!({"spec": {"unschedulable": unschedulable, "taints": taints},
                   "status": {"conditions": [{"type": "Ready", "status": ready}]}})
        };
        let own = json!({"key": "gpu", "effect": "NoSchedule"});
        let taint = |key: &str, effect: &str| json!({"key": key, "effect": effect});
        for (situation, node, expected) in [
            ("ready", node("True", false, json!([own])), None),
            (
                "cordoned",
                node("True", true, json!([own])),
                Some("gpu:NoSchedule unschedulable:NoSchedule"),
            ),
            (
                "cordoned, known",
                node("True", true, json!([taint(UNSCHEDULABLE, "NoSchedule")])),
                None,
            ),
            (
                "uncordoned",
                node(
                    "True",
                    false,
                    json!([taint(UNSCHEDULABLE, "NoSchedule"), own]),
                ),
                Some("gpu:NoSchedule"),
            ),
            (
                "not ready",
                node("False", false, json!([])),
                Some("not-ready:NoSchedule not-ready:NoExecute"),
            ),
            (
                "not ready, now unreachable",
                node(
                    "Unknown",
                    false,
                    json!([
                        taint(NOT_READY, "NoSchedule"),
                        taint(NOT_READY, "NoExecute")
                    ]),
                ),
                Some("unreachable:NoSchedule unreachable:NoExecute"),
            ),
            (
                "ready again",
                node("True", false, json!([taint(UNREACHABLE, "NoExecute")])),
                Some(""),
            ),
            (
                "a user's NoExecute taint of another key stays",
                node("True", false, json!([taint("maintenance", "NoExecute")])),
                None,
            ),
        ] {
            assert_eq!(shown(&node).as_deref(), expected, "{situation}");
        }
        let pressed =
            json!({"status": {"conditions": [{"type": "DiskPressure", "status": "True"}]}});
        assert_eq!(shown(&pressed).as_deref(), Some("disk-pressure:NoSchedule"));
    }

    #[test]
    fn pods_leave_when_their_tolerations_end() {
        let taint = |key: &str| Taint::new(key, "", TaintEffect::NoExecute);
        let (a, b) = (taint("a"), taint("b"));
        let tolerate = |key: &str, seconds: Value| json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds});
        for (situation, tolerations, taints, expected) in [
            ("none", json!([]), vec![&a], Some(0)),
            (
                "for ever",
                json!([tolerate("a", Value::Null)]),
                vec![&a],
                None,
            ),
            (
                "for a while",
                json!([tolerate("a", json!(300))]),
                vec![&a],
                Some(300),
            ),
            (
                "one of two",
                json!([tolerate("a", json!(300))]),
                vec![&a, &b],
                Some(0),
            ),
            (
                "both, the shorter one counts",
                json!([tolerate("a", json!(300)), tolerate("b", json!(10))]),
                vec![&a, &b],
                Some(10),
            ),
            (
                "negative",
                json!([tolerate("a", json!(-5))]),
                vec![&a],
                Some(0),
            ),
        ] {
            let pod = json!({"spec": {"tolerations": tolerations}});
            let taints: Vec<Taint> = taints.into_iter().cloned().collect();
            assert_eq!(
                leaves_at(&pod, &taints, at(0)),
                expected.map(at),
                "{situation}"
            );
        }
    }
}
