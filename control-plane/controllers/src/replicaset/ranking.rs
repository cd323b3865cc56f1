//! The pods that a replica set deletes first when it has too many.
//!
//! Follows kube-controller-manager's order. Deleted first: unassigned before assigned, Pending before Unknown before
//! Running, not ready before ready, lower `pod-deletion-cost` first, pods that share their node with more pods of the
//! same owner first, then the most recently ready or created.

use berth_objects::access::StoredObject;
use berth_objects::object::{annotation_number, created_at, uid};
use berth_objects::pod;
use jiff::Timestamp;
use rustc_hash::FxHashMap;
use serde_json::Value;
use std::cmp::{Ordering, Reverse};

/// The annotation that a user sets to keep (high) or offer (low) a pod.
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// The `count` pods to delete. `related` are the pods of all replica sets with the same owner; they show where
/// pods are doubled up.
pub(super) fn pods_to_delete(
    pods: Vec<StoredObject>,
    related: &[StoredObject],
    count: usize,
    now: Timestamp,
) -> Vec<StoredObject> {
    if count >= pods.len() {
        return pods;
    }
    let mut on_node: FxHashMap<&str, usize> = FxHashMap::default();
    for pod in related.iter().filter(|p| pod::is_active(p)) {
        *on_node.entry(node(pod)).or_default() += 1;
    }
    let mut ranked: Vec<(Rank, StoredObject)> = pods
        .into_iter()
        .map(|pod| {
            let together = on_node.get(node(&pod)).copied().unwrap_or_default();
            (Rank::of(&pod, together, now), pod)
        })
        .collect();
    ranked.sort_by(|(a, _), (b, _)| a.cmp(b));
    ranked.into_iter().take(count).map(|(_, p)| p).collect()
}

fn node(pod: &Value) -> &str {
    pod::node_name(pod).unwrap_or_default()
}

/// Pods with a lower rank are deleted first; the fields are compared in order.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    assigned: bool,
    phase: u8,
    ready: bool,
    deletion_cost: i32,
    /// Pods with more pods of the owner on the same node are deleted first.
    together: Reverse<usize>,
    /// More recently ready pods are deleted first, in steps that double: the UID decides between pods of about the same
    /// age.
    ready_age: AgeStep,
    restarts: Reverse<i64>,
    age: AgeStep,
    uid: String,
}

impl Rank {
    fn of(pod: &Value, together: usize, now: Timestamp) -> Self {
        let ready_since = pod::ready_since(pod);
        Self {
            assigned: pod::node_name(pod).is_some(),
            phase: match pod::phase(pod) {
                "Pending" => 0,
                "Unknown" => 1,
                _ => 2,
            },
            ready: ready_since.is_some(),
            deletion_cost: annotation_number(pod, DELETION_COST).unwrap_or_default(),
            together: Reverse(together),
            ready_age: AgeStep::since(ready_since, uid(pod), now),
            restarts: Reverse(pod::max_restarts(pod)),
            age: AgeStep::since(Some(created_at(pod)), uid(pod), now),
            uid: uid(pod).to_owned(),
        }
    }
}

/// An age in steps of powers of two. Equal moments are equal; different moments of the same step are ordered
/// by UID.
#[derive(Debug, PartialEq, Eq)]
struct AgeStep {
    at: Option<Timestamp>,
    step: i64,
    uid: String,
}

impl AgeStep {
    fn since(at: Option<Timestamp>, uid: &str, now: Timestamp) -> Self {
        let age = at.map_or(0, |at| now.duration_since(at).as_nanos());
        // Upstream: floor(log2(nanoseconds)); below one nanosecond, one step less.
        let step = if age <= 0 { -1 } else { i64::from(age.ilog2()) };
        Self {
            at,
            step,
            uid: uid.to_owned(),
        }
    }
}

impl PartialOrd for AgeStep {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for AgeStep {
    fn cmp(&self, other: &Self) -> Ordering {
        if self.at == other.at {
            return Ordering::Equal;
        }
        self.step
            .cmp(&other.step)
            .then_with(|| self.uid.cmp(&other.uid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::sync::Arc;

    fn now() -> Timestamp {
        "2026-01-01T12:00:00Z".parse().unwrap()
    }

    /// A ready pod that has run alone on its node for hours; each case changes one property.
    fn pod(name: &str, change: impl Fn(&mut Value)) -> StoredObject {
        let mut pod = json!({
            "metadata": {"name": name, "namespace": "n", "uid": name,
                         "creationTimestamp": "2026-01-01T06:00:00Z", "annotations": {}},
            "spec": {"nodeName": name},
            "status": {"phase": "Running", "containerStatuses": [{"restartCount": 0}],
                       "conditions": [{"type": "Ready", "status": "True",
                                       "lastTransitionTime": "2026-01-01T06:00:00Z"}]},
        });
        change(&mut pod);
        Arc::new(pod)
    }

    #[test]
    fn the_cheapest_pod_to_lose_goes_first() {
        type Change = fn(&mut Value);
        let plain: Change = |_| {};
        let cases: [(&str, Change, Change); 9] = [
            (
                "unassigned before assigned",
                |p| p["spec"]["nodeName"] = "".into(),
                |p| {
                    p["status"]["phase"] = "Pending".into();
                },
            ),
            (
                "pending before running",
                |p| p["status"]["phase"] = "Pending".into(),
                plain,
            ),
            (
                "pending before unknown",
                |p| p["status"]["phase"] = "Pending".into(),
                |p| {
                    p["status"]["phase"] = "Unknown".into();
                },
            ),
            (
                "not ready before ready",
                |p| p["status"]["conditions"][0]["status"] = "False".into(),
                |p| p["metadata"]["annotations"][DELETION_COST] = "-100".into(),
            ),
            (
                "the lower deletion cost",
                |p| p["metadata"]["annotations"][DELETION_COST] = "-1".into(),
                |p| p["metadata"]["annotations"][DELETION_COST] = "not a number".into(),
            ),
            (
                "doubled up on a node",
                |p| p["spec"]["nodeName"] = "busy".into(),
                |p| {
                    p["status"]["conditions"][0]["lastTransitionTime"] =
                        "2026-01-01T11:59:59Z".into();
                },
            ),
            (
                "ready more recently",
                |p| {
                    p["status"]["conditions"][0]["lastTransitionTime"] =
                        "2026-01-01T11:59:00Z".into()
                },
                |p| p["status"]["containerStatuses"][0]["restartCount"] = 9.into(),
            ),
            (
                "more restarts",
                |p| p["status"]["containerStatuses"][0]["restartCount"] = 1.into(),
                |p| p["metadata"]["creationTimestamp"] = "2026-01-01T11:59:00Z".into(),
            ),
            (
                "created more recently",
                |p| p["metadata"]["creationTimestamp"] = "2026-01-01T11:59:00Z".into(),
                plain,
            ),
        ];
        for (situation, first, second) in cases {
            // The pod that must stay has the name that would be deleted first by UID.
            let pods = vec![pod("a-stays", second), pod("z-goes", first)];
            let mut related = pods.clone();
            related.push(pod("neighbour", |p| p["spec"]["nodeName"] = "busy".into()));
            let chosen = pods_to_delete(pods, &related, 1, now());
            assert_eq!(chosen.len(), 1, "{situation}");
            assert_eq!(uid(&chosen[0]), "z-goes", "{situation}");
        }
    }

    #[test]
    fn of_pods_of_about_the_same_age_the_uid_decides() {
        // 2.5 h and 3 h are both between 2^42 and 2^43 … nanoseconds apart by less than a doubling.
        let at = |time: &'static str| {
            move |p: &mut Value| p["status"]["conditions"][0]["lastTransitionTime"] = time.into()
        };
        let older = pod("a", at("2026-01-01T09:00:00Z"));
        let newer = pod("b", at("2026-01-01T09:30:00Z"));
        let chosen = pods_to_delete(vec![newer, older], &[], 1, now());
        assert_eq!(uid(&chosen[0]), "a");
    }

    #[test]
    fn all_are_given_up_when_none_is_wanted() {
        let pods = vec![pod("a", |_| {}), pod("b", |_| {})];
        assert_eq!(pods_to_delete(pods, &[], 2, now()).len(), 2);
    }
}
