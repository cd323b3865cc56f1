//! The StatefulSet controller: pods with stable names and claims, created, updated and deleted in order.

mod claims;
mod identity;

use self::identity::ordinal_of;
use super::failed_pods::FailedPods;
use super::ownership::{Ownership, owned};
use super::revisions::{self, REVISION_LABEL};
use super::runtime::{CacheDifference, Controller, ControllerContext, Watch, watching};
use berth_objects::access::{AccessError, GroupResource, StoredObject, unless_not_found};
use berth_objects::object::{
    CLAIM, ControllerKey, POD, STATEFUL_SET, count, generation, is_deleting, items, labels, name,
    namespace,
};
use berth_objects::{object, pod};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use tokio::time::Instant;

/// The label of a ControllerRevision with the hash of its template.
const HASH_LABEL: &str = "controller.kubernetes.io/hash";

/// See the module.
#[derive(Debug)]
pub(super) struct StatefulSets {
    ownership: Ownership,
    failed: FailedPods,
}

impl Default for StatefulSets {
    fn default() -> Self {
        Self {
            ownership: Ownership::new(STATEFUL_SET),
            failed: FailedPods::default(),
        }
    }
}

impl Controller for StatefulSets {
    type Key = ControllerKey;
    const NAME: &'static str = "statefulset-controller";

    fn watches(&self) -> Vec<Watch> {
        let mut watches = self.ownership.watches();
        watches.extend([revisions::watch(), watching(CLAIM, &[])]);
        watches
    }

    fn observe(
        &mut self,
        cx: &mut ControllerContext<ControllerKey>,
        kind: GroupResource,
        diff: &CacheDifference,
    ) {
        self.ownership.observe(cx, kind, diff);
        if kind == CLAIM.resource {
            for key in claims::sets_of(cx, diff) {
                cx.enqueue(key);
            }
        }
    }

    fn reconcile(
        &mut self,
        cx: &mut ControllerContext<ControllerKey>,
        key: &ControllerKey,
    ) -> Result<(), AccessError> {
        let Some(set) = cx.cache(STATEFUL_SET).get(key).cloned() else {
            return Ok(());
        };
        self.ownership.claim(cx, key, &set)?;
        if is_deleting(&set) {
            return Ok(());
        }
        let revisions = revisions::sync(cx, STATEFUL_SET, &set, HASH_LABEL)?;
        let Some(update) = revisions.last() else {
            return Ok(());
        };
        // Without a current revision, as after the first sync, the newest revision counts.
        let current = revisions
            .iter()
            .find(|r| set["status"]["currentRevision"] == name(r))
            .unwrap_or(update);
        let mut run = SetRun {
            set: &set,
            current,
            update,
            now: cx.now(),
            next: None,
            failed: &mut self.failed,
        };
        let done = run.carry_out(cx);
        let pods: Vec<StoredObject> = owned(cx, &set).collect();
        let status = run.status(&pods);
        cx.write_status(STATEFUL_SET, &set, status)?;
        if let Some(at) = run.next {
            cx.enqueue_at(key.clone(), at);
        }
        // The status is written even if a step failed; the error is reported afterwards.
        done?;
        let kept = [name(current), name(update)];
        revisions::clean_up(cx, &set, &revisions, |revision| {
            let used = |p: &StoredObject| revision_of(p) == Some(name(revision));
            kept.contains(&name(revision)) || pods.iter().any(used)
        })
    }
}

/// The revision of a pod.
fn revision_of(pod: &Value) -> Option<&str> {
    labels(pod)?.get(REVISION_LABEL)?.as_str()
}

/// One reconcile of a set.
struct SetRun<'a> {
    set: &'a StoredObject,
    /// The revision of the pods that are not updated yet.
    current: &'a StoredObject,
    /// The revision with the template of the set.
    update: &'a StoredObject,
    now: Timestamp,
    /// The time of the next reconcile.
    next: Option<Timestamp>,
    failed: &'a mut FailedPods,
}

impl SetRun<'_> {
    fn spec(&self) -> &Value {
        &self.set["spec"]
    }

    fn is_ordered(&self) -> bool {
        self.spec()["podManagementPolicy"] != "Parallel"
    }

    /// The ordinals that pods should have.
    fn ordinals(&self) -> std::ops::Range<i64> {
        let start = self.spec()["ordinals"]["start"].as_i64().unwrap_or(0);
        start..start.saturating_add(count(&self.spec()["replicas"], 1).max(0).into())
    }

    /// Pods below this ordinal are not updated.
    fn partition(&self) -> i64 {
        let update = &self.spec()["updateStrategy"];
        match update["type"].as_str() {
            Some("OnDelete") => i64::MAX,
            _ => {
                let partition = update["rollingUpdate"]["partition"].as_i64().unwrap_or(0);
                self.ordinals().start.saturating_add(partition)
            }
        }
    }

    fn available_from(&self, pod: &Value) -> Option<Timestamp> {
        if !pod::is_active(pod) || pod::phase(pod) != "Running" {
            return None;
        }
        pod::available_from(pod, count(&self.spec()["minReadySeconds"], 0))
    }

    /// Returns whether a pod is available; if it becomes available by the passage of time, the set is reconciled at
    /// that time.
    fn is_available(&mut self, pod: &Value) -> bool {
        match self.available_from(pod) {
            Some(at) if at <= self.now => true,
            Some(at) => {
                self.next = Some(self.next.map_or(at, |next| next.min(at)));
                false
            }
            None => false,
        }
    }

    /// Takes the next steps. An ordered set takes one at a time, and waits for its pods.
    fn carry_out(&mut self, cx: &mut ControllerContext<ControllerKey>) -> Result<(), AccessError> {
        let ordinals = self.ordinals();
        let mut pods: BTreeMap<i64, StoredObject> = BTreeMap::new();
        let mut condemned: BTreeMap<i64, StoredObject> = BTreeMap::new();
        for pod in owned(cx, self.set) {
            match ordinal_of(self.set, &pod) {
                Some(at) if ordinals.contains(&at) => _ = pods.insert(at, pod),
                Some(at) => _ = condemned.insert(at, pod),
                None => {}
            }
        }
        for at in ordinals.clone() {
            if !self.bring_up(cx, at, pods.get(&at))? && self.is_ordered() {
                return Ok(());
            }
        }
        for (at, pod) in &condemned {
            claims::follow_policy(cx, self.set, pod, *at, true)?;
        }
        for pod in condemned.into_values().rev() {
            if !is_deleting(&pod) {
                self.delete(cx, &pod)?;
            }
            if self.is_ordered() {
                return Ok(());
            }
        }
        self.roll(cx, &pods)
    }

    /// Creates or updates a pod; returns whether it is in the desired state.
    fn bring_up(
        &mut self,
        cx: &mut ControllerContext<ControllerKey>,
        at: i64,
        pod: Option<&StoredObject>,
    ) -> Result<bool, AccessError> {
        let Some(pod) = pod else {
            // A claim that is being deleted would be used by the new pod, and then be lost.
            if !claims::is_stale(cx, self.set, at) {
                self.create(cx, at)?;
            }
            return Ok(false);
        };
        if pod::is_terminal(pod) {
            if !is_deleting(pod) {
                let key = ControllerKey::of(self.set);
                // Pods that fail again and again are replaced later and later.
                if let Err(pause) = self.failed.replace(&key, name(pod), Instant::now()) {
                    cx.enqueue_after(key, pause);
                    return Ok(false);
                }
                let message = format!(
                    "StatefulSet {}/{} is recreating failed Pod {}",
                    namespace(self.set),
                    name(self.set),
                    name(pod)
                );
                cx.warn(self.set, "RecreatingFailedPod", message);
                self.delete(cx, pod)?;
            }
            return Ok(false);
        }
        if pod::phase(pod) == "Pending" {
            match claims::create_missing(cx, self.set, at) {
                Err(error) if error.is_namespace_terminating() => return Ok(false),
                other => other?,
            }
        }
        if let Some(relabelled) = identity::relabelled(pod, at) {
            unless_not_found(cx.update(POD, relabelled))?;
        }
        claims::follow_policy(cx, self.set, pod, at, false)?;
        Ok(self.is_available(pod))
    }

    fn create(
        &self,
        cx: &mut ControllerContext<ControllerKey>,
        at: i64,
    ) -> Result<(), AccessError> {
        let is_old = at < self.partition() && self.spec()["updateStrategy"]["type"] != "OnDelete";
        let revision = if is_old { self.current } else { self.update };
        let template = revisions::template_of(revision);
        let pod = identity::pod(self.set, &template, name(revision), at);
        let pod_name = name(&pod).to_owned();
        let what = format!("Create Pod {pod_name} in StatefulSet {}", name(self.set));
        let made = claims::create_missing(cx, self.set, at).and_then(|()| cx.create(POD, pod));
        match made {
            Ok(pod) => {
                claims::follow_policy(cx, self.set, &pod, at, false)?;
                let message = format!("{what} successful");
                cx.normal(self.set, "SuccessfulCreate", message);
                Ok(())
            }
            Err(error) if error.is_namespace_terminating() => Ok(()),
            Err(error) => {
                let message = format!("{what} failed error: {error}");
                cx.warn(self.set, "FailedCreate", message);
                Err(error)
            }
        }
    }

    fn delete(
        &self,
        cx: &mut ControllerContext<ControllerKey>,
        pod: &StoredObject,
    ) -> Result<(), AccessError> {
        cx.delete(POD, pod)?;
        let message = format!(
            "Delete Pod {} in StatefulSet {} successful",
            name(pod),
            name(self.set)
        );
        cx.normal(self.set, "SuccessfulDelete", message);
        Ok(())
    }

    /// Deletes the last pod whose revision is not that of the set, so that it is recreated.
    fn roll(
        &mut self,
        cx: &mut ControllerContext<ControllerKey>,
        pods: &BTreeMap<i64, StoredObject>,
    ) -> Result<(), AccessError> {
        let partition = self.partition();
        let mut room = self.unavailable_max();
        for (at, pod) in pods.iter().rev() {
            if *at < partition || room == 0 {
                break;
            }
            if revision_of(pod) != Some(name(self.update)) && !is_deleting(pod) {
                self.delete(cx, pod)?;
                room -= 1;
            } else if !self.is_available(pod) {
                room -= 1;
            }
        }
        Ok(())
    }

    /// The number of pods that may be unavailable during an update.
    fn unavailable_max(&self) -> usize {
        let value = &self.spec()["updateStrategy"]["rollingUpdate"]["maxUnavailable"];
        if value.is_null() {
            return 1;
        }
        let replicas = count(&self.spec()["replicas"], 1);
        usize::try_from(object::scaled(value, replicas, false).max(1)).unwrap_or(1)
    }

    fn status(&mut self, pods: &[StoredObject]) -> Value {
        let (mut replicas, mut ready, mut available) = (0, 0, 0);
        let (mut current, mut updated) = (0, 0);
        for pod in pods {
            if ordinal_of(self.set, pod).is_none() {
                continue;
            }
            replicas += 1;
            if pod::phase(pod) == "Running" && pod::is_ready(pod) {
                ready += 1;
            }
            if self.is_available(pod) {
                available += 1;
            }
            if !is_deleting(pod) {
                current += usize::from(revision_of(pod) == Some(name(self.current)));
                updated += usize::from(revision_of(pod) == Some(name(self.update)));
            }
        }
        let mut current_revision = name(self.current);
        // Only a rollout to all ordinals makes the new revision current.
        let is_complete = self.partition() == self.ordinals().start
            && updated == replicas
            && ready == replicas
            && replicas == self.ordinals().count();
        if is_complete {
            current_revision = name(self.update);
            current = updated;
        }
        let mut status = json!({
            "replicas": replicas,
            "availableReplicas": available,
            "currentRevision": current_revision,
            "updateRevision": name(self.update),
            "observedGeneration": generation(self.set),
            "collisionCount": self.set["status"]["collisionCount"].as_i64().unwrap_or(0),
        });
        object::set_count(&mut status, "readyReplicas", ready);
        object::set_count(&mut status, "currentReplicas", current);
        object::set_count(&mut status, "updatedReplicas", updated);
        let conditions = &self.set["status"]["conditions"];
        if !items(conditions).is_empty() {
            status["conditions"] = conditions.clone();
        }
        status
    }
}

#[cfg(test)]
mod tests;
