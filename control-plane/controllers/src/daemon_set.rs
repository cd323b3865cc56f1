//! The DaemonSet controller: one pod of a template on each node that the template fits.
//!
//! The controller creates a pod for a node with a node affinity to that node, and the scheduler binds it.

use super::failed_pods::FailedPods;
use super::ownership::{Ownership, owned};
use super::revisions::{self, REVISION_LABEL};
use super::runtime::{CacheDifference, Controller, ControllerContext, Watch, watching};
use super::workload::{create_pod, delete_pod, pod_from_template};
use berth_objects::access::{AccessError, GroupResource, StoredObject};
use berth_objects::daemon_set::{DaemonTemplate, NodePlacement, assign, node_of};
use berth_objects::object::{
    ControllerKey, DAEMON_SET, NODE, POD, annotation, count, generation, is_deleting, items,
    labels, name, namespace, scaled, set,
};
use berth_objects::status::ApiError;
use berth_objects::{object, pod};
use jiff::Timestamp;
use rustc_hash::FxHashMap;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::Instant;

/// The number of pods that one reconcile creates or deletes at most.
const BURST: usize = 250;
/// The annotation and label with the generation of the template.
const GENERATION_ANNOTATION: &str = "deprecated.daemonset.template.generation";
const GENERATION_LABEL: &str = "pod-template-generation";

/// Returns whether a change of a node can change the nodes of the pods.
fn concerns_placement(diff: &CacheDifference) -> bool {
    match (&diff.old, &diff.new) {
        (Some(old), Some(new)) => {
            old["metadata"]["labels"] != new["metadata"]["labels"]
                || old["spec"]["taints"] != new["spec"]["taints"]
        }
        _ => true,
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct DaemonSets {
    ownership: Ownership,
    failed: FailedPods,
}

impl Default for DaemonSets {
    fn default() -> Self {
        Self {
            ownership: Ownership::new(DAEMON_SET),
            failed: FailedPods::default(),
        }
    }
}

impl Controller for DaemonSets {
    type Key = ControllerKey;
    const NAME: &'static str = "daemonset-controller";

    fn watches(&self) -> Vec<Watch> {
        let mut watches = self.ownership.watches();
        watches.extend([watching(NODE, &[]), revisions::watch()]);
        watches
    }

    fn observe(
        &mut self,
        cx: &mut ControllerContext<ControllerKey>,
        kind: GroupResource,
        diff: &CacheDifference,
    ) {
        self.ownership.observe(cx, kind, diff);
        if kind == NODE.resource && concerns_placement(diff) {
            let sets: Vec<ControllerKey> = cx
                .cache(DAEMON_SET)
                .iter()
                .map(|(k, _)| k.clone())
                .collect();
            for set in sets {
                cx.enqueue(set);
            }
        }
    }

    fn reconcile(
        &mut self,
        cx: &mut ControllerContext<ControllerKey>,
        key: &ControllerKey,
    ) -> Result<(), AccessError> {
        let Some(set) = cx.cache(DAEMON_SET).get(key).cloned() else {
            return Ok(());
        };
        self.ownership.claim(cx, key, &set)?;
        if is_deleting(&set) {
            return Ok(());
        }
        let revisions = revisions::sync(cx, DAEMON_SET, &set, REVISION_LABEL)?;
        let newest = revisions
            .last()
            .and_then(|r| hash_of(r))
            .unwrap_or_default();
        let newest = newest.to_owned();
        let nodes: Vec<StoredObject> = cx.cache(NODE).iter().map(|(_, n)| n.clone()).collect();
        let template = DaemonTemplate::new(&set["spec"]["template"]).map_err(|error| {
            ApiError::internal(format!("failed to decode the template: {error}"))
        })?;
        let view = DaemonView::new(cx, &set, &template, &nodes, &newest);
        let mut steps = view.steps();
        let mut wait: Option<Duration> = None;
        // Failed pods on a node are replaced later and later; others are not delayed by that.
        steps.failed.retain(|(_, node)| {
            let pause = self.failed.replace(key, node, Instant::now()).err();
            wait = wait.into_iter().chain(pause).min();
            pause.is_none()
        });
        let done = carry_out(cx, &set, &steps, &newest);
        // The status is computed from the pods after the steps.
        let view = DaemonView::new(cx, &set, &template, &nodes, &newest);
        let (status, next) = view.status();
        cx.write_status(DAEMON_SET, &set, status)?;
        if let Some(at) = next {
            cx.enqueue_at(key.clone(), at);
        }
        if steps.create.len() > BURST || steps.delete.len() > BURST {
            cx.enqueue(key.clone());
        }
        if let Some(pause) = wait {
            cx.enqueue_after(key.clone(), pause);
        }
        // The status is written even if a step failed; the error is reported afterwards.
        done?;
        let pods: Vec<StoredObject> = owned(cx, &set).collect();
        revisions::clean_up(cx, &set, &revisions, |revision| {
            pods.iter().any(|p| hash_of(p) == hash_of(revision))
        })
    }
}

/// The revision of a pod, or of a ControllerRevision.
fn hash_of(object: &Value) -> Option<&str> {
    labels(object)?.get(REVISION_LABEL)?.as_str()
}

/// The steps to take.
#[derive(Debug, Default)]
struct Steps {
    /// The nodes that get a pod.
    create: Vec<String>,
    /// The pods that are deleted.
    delete: Vec<StoredObject>,
    /// Pods that have failed, and their nodes. They are deleted, and replaced after that.
    failed: Vec<(StoredObject, String)>,
}

/// Performs the steps.
fn carry_out(
    cx: &mut ControllerContext<ControllerKey>,
    set: &StoredObject,
    steps: &Steps,
    newest: &str,
) -> Result<(), AccessError> {
    for (pod, node) in &steps.failed {
        let message = format!(
            "Found failed daemon pod {}/{} on node {node}, will try to kill it",
            namespace(pod),
            name(pod)
        );
        cx.warn(set, "FailedDaemonPod", message);
        cx.delete(POD, pod)?;
    }
    for pod in steps.delete.iter().take(BURST) {
        delete_pod(cx, set, pod)?;
    }
    for node in steps.create.iter().take(BURST) {
        if !create_pod(cx, set, new_pod(set, node, newest))? {
            return Ok(());
        }
    }
    Ok(())
}

/// The pod of a node.
fn new_pod(daemon_set: &StoredObject, node: &str, newest: &str) -> Value {
    let mut pod = pod_from_template(&daemon_set["spec"]["template"], DAEMON_SET, daemon_set);
    set(
        &mut pod,
        &["metadata", "labels", REVISION_LABEL],
        newest.into(),
    );
    if let Some(generation) = annotation(daemon_set, GENERATION_ANNOTATION) {
        set(
            &mut pod,
            &["metadata", "labels", GENERATION_LABEL],
            generation.into(),
        );
    }
    assign(&mut pod, node);
    pod
}

/// The pods of a DaemonSet, by node.
struct DaemonView<'a> {
    set: &'a Value,
    newest: &'a str,
    now: Timestamp,
    /// For each node: its name, whether a pod should be created on it and may stay on it, and its pods.
    places: Vec<(&'a str, NodePlacement, Vec<StoredObject>)>,
    /// Pods of nodes that do not exist.
    lost: Vec<StoredObject>,
}

impl<'a> DaemonView<'a> {
    fn new(
        cx: &ControllerContext<ControllerKey>,
        set: &'a StoredObject,
        template: &DaemonTemplate,
        nodes: &'a [StoredObject],
        newest: &'a str,
    ) -> Self {
        let mut by_node: FxHashMap<String, Vec<StoredObject>> = FxHashMap::default();
        for pod in owned(cx, set) {
            if let Some(node) = node_of(&pod) {
                by_node.entry(node.to_owned()).or_default().push(pod);
            }
        }
        let places = nodes
            .iter()
            .map(|node| {
                let pods = by_node.remove(name(node)).unwrap_or_default();
                (name(node), template.place(node), pods)
            })
            .collect();
        Self {
            set,
            newest,
            now: cx.now(),
            places,
            lost: by_node.into_values().flatten().collect(),
        }
    }

    fn is_newest(&self, pod: &Value) -> bool {
        hash_of(pod) == Some(self.newest)
    }

    fn available_from(&self, pod: &Value) -> Option<Timestamp> {
        pod::available_from(pod, count(&self.set["spec"]["minReadySeconds"], 0))
    }

    fn is_available(&self, pod: &Value) -> bool {
        pod::is_active(pod) && self.available_from(pod).is_some_and(|at| at <= self.now)
    }

    /// The number of nodes that may be without an available pod during an update, and how many may have two pods.
    fn bounds(&self) -> (usize, usize) {
        let desired = self.places.iter().filter(|(_, p, _)| p.should_run).count();
        let desired = i32::try_from(desired).unwrap_or(i32::MAX);
        let update = &self.set["spec"]["updateStrategy"]["rollingUpdate"];
        let scaled = |field: &str, absent: i32| match &update[field] {
            Value::Null => absent,
            value => scaled(value, desired, true),
        };
        let surge = scaled("maxSurge", 0);
        let unavailable = scaled("maxUnavailable", i32::from(surge == 0));
        let unavailable = if surge == 0 {
            unavailable.max(1)
        } else {
            unavailable
        };
        let count = |n: i32| usize::try_from(n).unwrap_or(0);
        (count(unavailable), count(surge))
    }

    fn is_rolling(&self) -> bool {
        self.set["spec"]["updateStrategy"]["type"] != "OnDelete"
    }

    fn steps(&self) -> Steps {
        let mut steps = Steps {
            delete: self
                .lost
                .iter()
                .filter(|p| !is_deleting(p))
                .cloned()
                .collect(),
            ..Steps::default()
        };
        for (node, place, pods) in &self.places {
            self.place(&mut steps, node, *place, pods);
        }
        if self.is_rolling() {
            self.update(&mut steps);
        }
        steps
    }

    /// Creates a missing pod of a node, or deletes surplus pods, of any revision.
    fn place(&self, steps: &mut Steps, node: &str, place: NodePlacement, pods: &[StoredObject]) {
        if !place.may_stay {
            steps
                .delete
                .extend(pods.iter().filter(|p| !is_deleting(p)).cloned());
            return;
        }
        let mut running: Vec<&StoredObject> = Vec::new();
        for pod in pods.iter().filter(|p| !is_deleting(p)) {
            match pod::phase(pod) {
                "Failed" => steps.failed.push((pod.clone(), node.to_owned())),
                // A pod of a DaemonSet does not end.
                "Succeeded" => steps.delete.push(pod.clone()),
                _ => running.push(pod),
            }
        }
        if place.should_run && pods.is_empty() {
            steps.create.push(node.to_owned());
        }
        // During an update with a surge, a node has one pod of each revision.
        let (_, surge) = self.bounds();
        running.sort_by(|a, b| object::by_age(a, b));
        let groups: Vec<Vec<&StoredObject>> = if surge > 0 && self.is_rolling() {
            let (new, old) = running.into_iter().partition(|p| self.is_newest(p));
            vec![new, old]
        } else {
            vec![running]
        };
        for group in groups {
            let bound = group.iter().position(|p| pod::node_name(p).is_some());
            let kept = bound.unwrap_or(0);
            let surplus = group.iter().enumerate().filter(|(i, _)| *i != kept);
            steps.delete.extend(surplus.map(|(_, p)| (*p).clone()));
        }
    }

    /// Replaces pods of older revisions, within the bounds of the update.
    fn update(&self, steps: &mut Steps) {
        let (unavailable_max, surge_max) = self.bounds();
        let mut unavailable = 0;
        let mut surging = 0;
        let mut candidates: Vec<&StoredObject> = Vec::new();
        let mut doomed: Vec<&StoredObject> = Vec::new();
        let mut to_surge: Vec<&str> = Vec::new();
        for (node, place, pods) in &self.places {
            if !place.should_run {
                continue;
            }
            let live = || pods.iter().filter(|p| pod::is_active(p));
            let new = live().find(|p| self.is_newest(p));
            let old = live().find(|p| !self.is_newest(p));
            let is_served = pods.iter().any(|p| self.is_available(p));
            if !is_served {
                unavailable += 1;
            }
            let Some(old) = old else { continue };
            if surge_max == 0 {
                if self.is_available(old) {
                    candidates.push(old);
                } else {
                    // The pod is not available, so its replacement costs no availability.
                    doomed.push(old);
                }
                continue;
            }
            match new {
                Some(new) if self.is_available(new) => doomed.push(old),
                Some(_) => surging += 1,
                None if self.is_available(old) => to_surge.push(node),
                None => {
                    doomed.push(old);
                    to_surge.push(node);
                }
            }
        }
        let room = unavailable_max.saturating_sub(unavailable);
        doomed.extend(candidates.into_iter().take(room));
        for pod in doomed {
            if steps.delete.iter().all(|p| name(p) != name(pod)) {
                steps.delete.push(pod.clone());
            }
        }
        let free = surge_max.saturating_sub(surging);
        steps
            .create
            .extend(to_surge.into_iter().take(free).map(str::to_owned));
    }

    /// The status, and when it changes by time alone.
    fn status(&self) -> (Value, Option<Timestamp>) {
        let (mut desired, mut current, mut misplaced) = (0, 0, 0);
        let (mut ready, mut available, mut updated) = (0, 0, 0);
        let mut next: Option<Timestamp> = None;
        for (_, place, pods) in &self.places {
            if !place.should_run {
                misplaced += usize::from(!pods.is_empty());
                continue;
            }
            desired += 1;
            current += usize::from(!pods.is_empty());
            let Some(oldest) = pods.iter().min_by(|a, b| {
                // A pod that is available counts before one that is not.
                let rank = |p: &Value| (!self.is_available(p), !pod::is_ready(p));
                rank(a).cmp(&rank(b)).then_with(|| object::by_age(a, b))
            }) else {
                continue;
            };
            ready += usize::from(pod::is_ready(oldest));
            available += usize::from(self.is_available(oldest));
            updated += usize::from(pods.iter().any(|p| self.is_newest(p)));
            if let Some(at) = self.available_from(oldest).filter(|at| *at > self.now) {
                next = Some(next.map_or(at, |next| next.min(at)));
            }
        }
        let old = &self.set["status"];
        let mut status = json!({
            "currentNumberScheduled": current,
            "desiredNumberScheduled": desired,
            "numberMisscheduled": misplaced,
            "numberReady": ready,
            "observedGeneration": generation(self.set),
        });
        object::set_count(&mut status, "updatedNumberScheduled", updated);
        object::set_count(&mut status, "numberAvailable", available);
        object::set_count(&mut status, "numberUnavailable", desired - available);
        for field in ["collisionCount", "conditions"] {
            if !old[field].is_null() && !items(&old[field]).is_empty() || old[field].is_number() {
                status[field] = old[field].clone();
            }
        }
        (status, next)
    }
}

#[cfg(test)]
mod tests;
