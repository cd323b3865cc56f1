//! The disruption controller: updates the status of PodDisruptionBudgets, whose number of allowed disruptions evictions
//! decrement.

use super::runtime::{CacheDifference, Controller, ControllerContext, Index, Watch, watching};
use berth_objects::access::{AccessError, GroupResource, StoredObject, gr};
use berth_objects::disruption::{put_allowed, set_allowed};
use berth_objects::object::{
    ControllerKey, DEPLOYMENT, DISRUPTION_BUDGET, POD, REPLICA_SET, controller_of, count,
    generation, is_deleting, labels, name, namespace, scaled, uid,
};
use berth_objects::selectors::workload::ControllerSelector;
use berth_objects::{object, pod};
use jiff::{SignedDuration, Timestamp};
use rustc_hash::FxHashMap;
use serde_json::{Map, Value, json};
use std::time::Duration;

/// A pod whose eviction was admitted counts as available again when it is not being deleted after this time.
const DELETION_TIMEOUT: SignedDuration = SignedDuration::from_mins(2);
/// A reconcile examines all pods of a namespace; the next one waits this long per pod …
const PAUSE_PER_POD: Duration = Duration::from_micros(20);
/// … and never longer than this.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// See the module.
#[derive(Debug)]
pub(super) struct Disruption;

/// The inputs of the status of a budget.
#[derive(Debug, Default, PartialEq, Eq)]
struct ExpectedPods {
    /// The pods that the budget counts.
    pods: i32,
    /// The pods of them that have to be healthy.
    healthy: i32,
    /// Whether a pod has no controller, so that the total is unknown.
    unmanaged: bool,
}

impl Controller for Disruption {
    type Key = ControllerKey;
    const NAME: &'static str = "controllermanager";
    const WATCHES: &'static [Watch] = &[
        watching(DISRUPTION_BUDGET, &[Index::Namespace]),
        watching(POD, &[Index::Namespace]),
    ];

    fn observe(
        &mut self,
        cx: &mut ControllerContext<ControllerKey>,
        kind: GroupResource,
        diff: &CacheDifference,
    ) {
        if kind == DISRUPTION_BUDGET.resource {
            if let Some(budget) = &diff.new {
                cx.enqueue(ControllerKey::of(budget));
            }
            return;
        }
        for pod in [&diff.old, &diff.new].into_iter().flatten() {
            let concerned: Vec<ControllerKey> = cx
                .cache(DISRUPTION_BUDGET)
                .by(Index::Namespace, namespace(pod))
                .filter(|budget| selects(budget, pod))
                .map(|budget| ControllerKey::of(budget))
                .collect();
            let pods = cx.cache(POD).count_by(Index::Namespace, namespace(pod));
            let pods = u32::try_from(pods).unwrap_or(u32::MAX);
            let pause = PAUSE_PER_POD.saturating_mul(pods).min(PAUSE_MAX);
            for key in concerned {
                cx.enqueue_after(key, pause);
            }
        }
    }

    fn reconcile(
        &mut self,
        cx: &mut ControllerContext<ControllerKey>,
        key: &ControllerKey,
    ) -> Result<(), AccessError> {
        let Some(budget) = cx.cache(DISRUPTION_BUDGET).get(key).cloned() else {
            return Ok(());
        };
        let pods: Vec<StoredObject> = cx
            .cache(POD)
            .by(Index::Namespace, namespace(&budget))
            .filter(|pod| selects(&budget, pod))
            .cloned()
            .collect();
        // A budget without pods is valid; the event helps to find a wrong selector.
        if pods.is_empty() {
            cx.normal(&budget, "NoPods", "No matching pods found");
        }
        let status = match expected(cx, &budget, &pods) {
            Ok(expected) => {
                if expected.unmanaged {
                    let message = "Pods selected by this PodDisruptionBudget have no controller. Its status cannot be calculated unless .spec.minAvailable is an integer.";
                    cx.warn(&budget, "UnmanagedPods", message);
                }
                let (status, recheck) = status(&budget, &pods, &expected, cx.now());
                if let Some(at) = recheck {
                    cx.enqueue_at(key.clone(), at);
                }
                status
            }
            Err(problem) => {
                // Without an expected number no disruption is safe, so the status allows none.
                let message = format!("Failed to calculate the number of expected pods: {problem}");
                let reason = "CalculateExpectedPodCountFailed";
                cx.warn(&budget, reason, message);
                failed(&budget, &problem, cx.now())
            }
        };
        cx.write_status(DISRUPTION_BUDGET, &budget, status)?;
        Ok(())
    }
}

fn selects(budget: &Value, pod: &Value) -> bool {
    ControllerSelector::parse(&budget["spec"]["selector"]).matches(labels(pod))
}

/// The number of pods that there should be and how many of them healthy.
fn expected(
    cx: &ControllerContext<ControllerKey>,
    budget: &Value,
    pods: &[StoredObject],
) -> Result<ExpectedPods, String> {
    let spec = &budget["spec"];
    if !spec["maxUnavailable"].is_null() {
        let (whole, unmanaged) = scale(cx, pods)?;
        let healthy = whole.saturating_sub(scaled(&spec["maxUnavailable"], whole, true));
        return Ok(ExpectedPods {
            pods: whole,
            healthy: healthy.max(0),
            unmanaged,
        });
    }
    Ok(match &spec["minAvailable"] {
        Value::Null => ExpectedPods::default(),
        share @ Value::String(_) => {
            let (whole, unmanaged) = scale(cx, pods)?;
            ExpectedPods {
                pods: whole,
                healthy: scaled(share, whole, true),
                unmanaged,
            }
        }
        number => ExpectedPods {
            pods: i32::try_from(pods.len()).unwrap_or(i32::MAX),
            healthy: count(number, 0),
            unmanaged: false,
        },
    })
}

/// The replicas of all controllers of these pods, and whether a pod has no controller.
fn scale(
    cx: &ControllerContext<ControllerKey>,
    pods: &[StoredObject],
) -> Result<(i32, bool), String> {
    let mut scales: FxHashMap<&str, i32> = FxHashMap::default();
    let mut unmanaged = false;
    for pod in pods {
        let Some(owner) = controller_of(pod) else {
            unmanaged = true;
            continue;
        };
        let owner_uid = owner["uid"].as_str().unwrap_or_default();
        if !scales.contains_key(owner_uid) {
            let replicas = replicas_of(cx, namespace(pod), owner)
                .ok_or_else(|| format!("found no controllers for pod {:?}", name(pod)))?;
            scales.insert(owner_uid, replicas);
        }
    }
    let sum = scales
        .values()
        .fold(0_i32, |sum, scale| sum.saturating_add(*scale));
    Ok((sum, unmanaged))
}

/// The desired replicas of the owner of a pod, or of that owner's Deployment.
fn replicas_of(
    cx: &ControllerContext<ControllerKey>,
    namespace: &str,
    owner: &Value,
) -> Option<i32> {
    let kind = match owner["kind"].as_str()? {
        "ReplicaSet" => REPLICA_SET.resource,
        "ReplicationController" => gr("", "replicationcontrollers"),
        "StatefulSet" => gr("apps", "statefulsets"),
        _ => return None,
    };
    let get = |kind, owner: &Value| {
        let found = cx.api().get(kind, namespace, owner["name"].as_str()?);
        found.ok().filter(|object| owner["uid"] == uid(object))
    };
    let set = get(kind, owner)?;
    let whole = match controller_of(&set) {
        Some(above) if above["kind"] == DEPLOYMENT.kind => get(DEPLOYMENT.resource, above),
        _ => None,
    };
    Some(count(&whole.unwrap_or(set)["spec"]["replicas"], 1))
}

/// The status of a budget, and when it has to be computed again if no pod changes.
fn status(
    budget: &Value,
    pods: &[StoredObject],
    expected: &ExpectedPods,
    now: Timestamp,
) -> (Value, Option<Timestamp>) {
    let before = &budget["status"];
    let mut disrupted = Map::new();
    let mut recheck: Option<Timestamp> = None;
    let mut healthy = 0_i32;
    for pod in pods.iter().filter(|pod| !is_deleting(pod)) {
        let admitted = &before["disruptedPods"][name(pod)];
        let until = object::time(admitted).and_then(|t| t.checked_add(DELETION_TIMEOUT).ok());
        // An admitted eviction counts against the budget until the pod is deleted or the eviction times out.
        if let Some(until) = until.filter(|until| *until > now) {
            recheck = Some(recheck.map_or(until, |at| at.min(until)));
            disrupted.insert(name(pod).to_owned(), admitted.clone());
        } else if pod::is_ready(pod) {
            healthy = healthy.saturating_add(1);
        }
    }
    let allowed = match expected.pods {
        ..=0 => 0,
        _ => healthy.saturating_sub(expected.healthy).max(0),
    };
    let mut status = json!({
        "currentHealthy": healthy,
        "desiredHealthy": expected.healthy,
        "disruptionsAllowed": allowed,
        "expectedPods": expected.pods,
        "observedGeneration": generation(budget),
    });
    if !disrupted.is_empty() {
        status["disruptedPods"] = disrupted.into();
    }
    if let Some(conditions) = before.get("conditions") {
        status["conditions"] = conditions.clone();
    }
    set_allowed(&mut status, now);
    (status, recheck)
}

/// The status of a budget whose pods cannot be counted: it allows no disruption.
fn failed(budget: &Value, problem: &str, now: Timestamp) -> Value {
    let mut status = budget["status"].clone();
    if !status.is_object() {
        status = json!({});
    }
    status["disruptionsAllowed"] = 0.into();
    put_allowed(&mut status, "False", "SyncFailed", problem, now);
    status
}

#[cfg(test)]
mod tests;
