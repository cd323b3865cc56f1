//! The node lifecycle controller: detects silent kubelets, taints nodes for their conditions and for cordons, and
//! evicts pods that do not tolerate NoExecute taints.
//!
//! Two differences from upstream: no heartbeats are expected of a ready node that never had a lease (created by hand,
//! or by a benchmark), and eviction is not slowed down when most of a zone fails.

mod taints;

use self::taints::{corrected, evicting, leaves_at};
use super::pod_gc::disrupted;
use super::runtime::{CacheDifference, Controller, ControllerContext, Index, Watch, watching};
use berth_objects::access::{AccessError, GroupResource, StoredObject, unless_not_found};
use berth_objects::object::{
    ControllerKey, LEASE, NODE, POD, condition, created_at, is_deleting, items, name, namespace,
    new_condition, put_condition, set, time,
};
use berth_objects::pod;
use jiff::{SignedDuration, Timestamp};
use rustc_hash::FxHashMap;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::Instant;
use tracing::warn;

/// The place where kubelets keep their leases.
const LEASE_NAMESPACE: &str = "kube-node-lease";

/// A kubelet posts the first status of its node within this time: upstream's `--node-startup-grace-period`.
const STARTUP_GRACE: SignedDuration = SignedDuration::from_secs(60);

/// If this controller examines a silent kubelet later than this after the planned time, the kubelet or this process may
/// have been late …
const LATE: Duration = Duration::from_secs(1);
/// … and gives the kubelet this time for another heartbeat …
const CHANCE: Duration = Duration::from_secs(15);
/// … at most this number of times in a row.
const CHANCES_MAX: u32 = 3;

/// The last heartbeat of a kubelet, by the clock of this process; it is not comparable with the clock of a node.
#[derive(Debug)]
struct Sign {
    renew_time: Value,
    seen_at: Instant,
    /// The time at which the heartbeat is overdue.
    overdue_at: Instant,
    /// The number of times that it got more time because this controller was late.
    chances: u32,
}

impl Sign {
    fn new(renew_time: &Value, grace: Duration) -> Self {
        let now = Instant::now();
        Self {
            renew_time: renew_time.clone(),
            seen_at: now,
            overdue_at: now + grace,
            chances: 0,
        }
    }
}

/// See the module. Its keys are node names.
#[derive(Debug)]
pub(super) struct Nodes {
    /// The time that a kubelet may be silent.
    grace: Duration,
    signs: FxHashMap<String, Sign>,
}

impl Nodes {
    pub(super) fn new(grace: Duration) -> Self {
        Self {
            grace,
            signs: FxHashMap::default(),
        }
    }

    fn observe_lease(&mut self, cx: &mut ControllerContext<String>, diff: &CacheDifference) {
        let Some(lease) = diff.new.as_ref().or(diff.old.as_ref()) else {
            return;
        };
        if namespace(lease) != LEASE_NAMESPACE {
            return;
        }
        let node = name(lease);
        let Some(new) = &diff.new else {
            // Without a lease the last sign counts, until the node is deleted.
            return;
        };
        let renew_time = &new["spec"]["renewTime"];
        let is_news = self
            .signs
            .get(node)
            .is_none_or(|s| s.renew_time != *renew_time);
        if is_news {
            let sign = Sign::new(renew_time, self.grace);
            self.signs.insert(node.to_owned(), sign);
            cx.enqueue_after(node.to_owned(), self.grace);
        }
    }

    /// Marks a node whose kubelet has been silent for too long, unless it is this controller that is late.
    fn check_signs(
        &mut self,
        cx: &mut ControllerContext<String>,
        key: &str,
        node: StoredObject,
    ) -> Result<StoredObject, AccessError> {
        let Some(sign) = self.signs.get_mut(key) else {
            return check_start(cx, key, node);
        };
        let now = Instant::now();
        if now < sign.overdue_at {
            cx.enqueue_after(key.to_owned(), sign.overdue_at - now);
            return Ok(node);
        }
        let Some(status) = unknown(&node, cx.now()) else {
            return Ok(node);
        };
        // The view may be late.
        let lease = cx.api().get(LEASE.resource, LEASE_NAMESPACE, key);
        if let Ok(lease) = lease
            && lease["spec"]["renewTime"] != sign.renew_time
        {
            *sign = Sign::new(&lease["spec"]["renewTime"], self.grace);
            cx.enqueue_after(key.to_owned(), self.grace);
            return Ok(node);
        }
        let late = now - sign.overdue_at;
        if late > LATE && sign.chances < CHANCES_MAX {
            sign.chances += 1;
            sign.overdue_at = now + CHANCE;
            let silent = sign.seen_at.elapsed();
            warn!(
                node = key,
                ?silent,
                ?late,
                "the kubelet is silent, but this process was late, too; waiting for another heartbeat"
            );
            cx.enqueue_after(key.to_owned(), CHANCE);
            return Ok(node);
        }
        let updated = cx.write_status(NODE, &node, status)?;
        let message = format!("Node {key} status is now: NodeNotReady");
        cx.normal(&updated, "NodeNotReady", message);
        Ok(updated)
    }

    /// Pods on a node without heartbeats are not ready, independently of their last status.
    fn mark_pods(&self, cx: &mut ControllerContext<String>, key: &str) -> Result<(), AccessError> {
        let pods: Vec<StoredObject> = cx
            .cache(POD)
            .by(Index::Node, key)
            .filter(|p| pod::is_ready(p))
            .cloned()
            .collect();
        for pod in pods {
            let mut new = (*pod).clone();
            let (reason, message) = ("NodeNotReady", "Node is not ready");
            let mut condition = new_condition("Ready", "False", reason, message, cx.now());
            condition["lastProbeTime"] = Value::Null;
            put_condition(&mut new["status"], condition);
            unless_not_found(cx.update_status(POD, new))?;
        }
        Ok(())
    }

    /// Evicts the overdue pods of this node, and requests a reconcile for the next pod.
    fn evict(&self, cx: &mut ControllerContext<String>, node: &Value) -> Result<(), AccessError> {
        let (taints, since) = evicting(node);
        if taints.is_empty() {
            return Ok(());
        }
        let pods: Vec<StoredObject> = cx
            .cache(POD)
            .by(Index::Node, name(node))
            .filter(|p| !is_deleting(p) && !pod::is_terminal(p))
            .cloned()
            .collect();
        for pod in pods {
            // For a pod newer than the taint, the toleration time counts from its own start.
            let arrived = time(&pod["status"]["startTime"]).unwrap_or_else(|| created_at(&pod));
            let since = since.map_or(arrived, |since| since.max(arrived));
            let Some(at) = leaves_at(&pod, &taints, since) else {
                continue;
            };
            if at > cx.now() {
                cx.enqueue_at(name(node).to_owned(), at);
                continue;
            }
            let message = format!("Marking for deletion Pod {}", ControllerKey::of(&pod));
            cx.normal(&pod, "TaintManagerEviction", message);
            let message = "Taint manager: deleting due to NoExecute taint";
            let marked = disrupted(&pod, "DeletionByTaintManager", message, cx.now());
            unless_not_found(cx.update_status(POD, marked))?;
            cx.delete(POD, &pod)?;
        }
        Ok(())
    }
}

/// Reports by an event that a node was added or removed.
fn notify(
    cx: &mut ControllerContext<String>,
    node: &Value,
    reason: &str,
    verb: &str,
    where_to: &str,
) {
    let name = name(node);
    let message = format!("Node {name} event: {verb} Node {name} {where_to} Controller");
    cx.normal(node, reason, message);
}

/// Marks a node without a lease whose kubelet has never posted a status.
fn check_start(
    cx: &mut ControllerContext<String>,
    key: &str,
    node: StoredObject,
) -> Result<StoredObject, AccessError> {
    if condition(&node["status"], "Ready").is_some() {
        return Ok(node);
    }
    let overdue_at = created_at(&node).checked_add(STARTUP_GRACE);
    if let Ok(overdue_at) = overdue_at
        && cx.now() < overdue_at
    {
        cx.enqueue_at(key.to_owned(), overdue_at);
        return Ok(node);
    }
    match unknown(&node, cx.now()) {
        Some(status) => cx.write_status(NODE, &node, status),
        None => Ok(node),
    }
}

/// Returns whether a node has the status of one that sends no heartbeats.
fn is_unknown(node: &Value) -> bool {
    let ready = condition(&node["status"], "Ready");
    ready.is_some_and(|c| c["status"] == "Unknown")
}

/// The status of a node that sends no heartbeats; `None` when it has that status already.
fn unknown(node: &Value, now: Timestamp) -> Option<Value> {
    let mut status = node["status"].clone();
    if !status.is_object() {
        status = json!({});
    }
    let mut changed = false;
    for kind in ["MemoryPressure", "DiskPressure", "PIDPressure", "Ready"] {
        let old = condition(&status, kind);
        // A condition that is Unknown already keeps its reason and its times.
        if old.is_some_and(|c| c["status"] == "Unknown") {
            continue;
        }
        let (heartbeat, reason, message) = match old {
            Some(c) => (
                c["lastHeartbeatTime"].clone(),
                "NodeStatusUnknown",
                "Kubelet stopped posting node status.",
            ),
            None => (
                node["metadata"]["creationTimestamp"].clone(),
                "NodeStatusNeverUpdated",
                "Kubelet never posted node status.",
            ),
        };
        let mut condition = new_condition(kind, "Unknown", reason, message, now);
        condition["lastHeartbeatTime"] = heartbeat;
        put_condition(&mut status, condition);
        changed = true;
    }
    changed.then_some(status)
}

fn has_no_execute_taint(node: &Value) -> bool {
    items(&node["spec"]["taints"])
        .iter()
        .any(|t| t["effect"] == "NoExecute")
}

impl Controller for Nodes {
    type Key = String;
    const NAME: &'static str = "node-controller";
    const WATCHES: &'static [Watch] = &[
        watching(NODE, &[]),
        watching(LEASE, &[]),
        watching(POD, &[Index::Node]),
    ];

    fn observe(
        &mut self,
        cx: &mut ControllerContext<String>,
        kind: GroupResource,
        diff: &CacheDifference,
    ) {
        if kind == LEASE.resource {
            self.observe_lease(cx, diff);
        } else if kind == NODE.resource {
            match (&diff.old, &diff.new) {
                (old, Some(node)) => {
                    if old.is_none() {
                        notify(cx, node, "RegisteredNode", "Registered", "in");
                    }
                    cx.enqueue(name(node).to_owned());
                }
                (Some(node), None) => {
                    notify(cx, node, "RemovingNode", "Removing", "from");
                    self.signs.remove(name(node));
                }
                (None, None) => {}
            }
        } else if let Some(pod) = &diff.new
            && let Some(node) = pod::node_name(pod)
            // Only changes that affect the eviction by taints are of interest.
            && diff.old.as_ref().is_none_or(|old| {
                pod::node_name(old).is_none()
                    || old["spec"]["tolerations"] != pod["spec"]["tolerations"]
            })
            && cx
                .cache(NODE)
                .get(&ControllerKey::new("", node))
                .is_some_and(|n| has_no_execute_taint(n))
        {
            let node = node.to_owned();
            cx.enqueue(node);
        }
    }

    fn reconcile(
        &mut self,
        cx: &mut ControllerContext<String>,
        key: &String,
    ) -> Result<(), AccessError> {
        let Some(node) = cx.cache(NODE).get(&ControllerKey::new("", key)).cloned() else {
            return Ok(());
        };
        let mut node = self.check_signs(cx, key, node)?;
        if let Some(taints) = corrected(&node, cx.now()) {
            let mut new = (*node).clone();
            set(&mut new, &["spec", "taints"], taints.into());
            node = cx.update(NODE, new)?;
        }
        if is_unknown(&node) {
            self.mark_pods(cx, key)?;
        }
        self.evict(cx, &node)
    }
}

#[cfg(test)]
mod tests;
