//! The Job controller: runs pods of a template until enough of them have succeeded, or too many have failed.
//!
//! A pod carries a finalizer until it is counted, so that none is counted twice or lost (KEP-2307): its UID is written
//! to `status.uncountedTerminatedPods`, then its finalizer is removed, then it moves to the counts.

mod failure;
mod group;
mod per_index;
mod status;
mod tally;

use self::failure::JobFailure;
use self::tally::JobTally;
use super::ownership::{Ownership, owned};
use super::runtime::{
    CacheDifference, Controller, ControllerContext, EventType, Index, Watch, watching,
};
use super::workload::{create_pod, delete_pod, pod_from_template};
use berth_objects::access::{
    AccessError, DeleteOptions, GroupResource, Propagation, StoredObject, unless_not_found,
};
use berth_objects::object::{
    ControllerKey, JOB, POD, POD_GROUP, WORKLOAD, controller_key, controller_uid, count,
    has_finalizer, is_deleting, items, name, remove_finalizer, set, time, uid,
};
use berth_objects::{object, pod};
use jiff::{SignedDuration, Timestamp};
use rustc_hash::{FxHashMap, FxHashSet};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// The finalizer of pods that have not been counted.
const TRACKING: &str = "batch.kubernetes.io/job-tracking";
/// The value of `managedBy` for this controller.
const MANAGED_BY: &str = "kubernetes.io/job-controller";
/// The label and annotation with the index of a pod.
const INDEX: &str = "batch.kubernetes.io/job-completion-index";
/// The number of pods that one reconcile creates at most.
const CREATE_MAX: usize = 500;
/// The pause after the first failure of a pod; it doubles with each further failure …
const BACK_OFF_SECONDS: i64 = 10;
/// … up to this maximum.
const BACK_OFF_SECONDS_MAX: i64 = 600;

/// See the module.
#[derive(Debug)]
pub(super) struct Jobs {
    ownership: Ownership,
    /// The UIDs of jobs that were deleted and may have left pods with the finalizer.
    deleted: FxHashMap<ControllerKey, FxHashSet<String>>,
    /// Pods with the finalizer that belong to no job.
    orphans: FxHashSet<ControllerKey>,
    /// Whether jobs are scheduled as groups.
    has_groups: bool,
}

impl Jobs {
    pub(super) fn new(has_groups: bool) -> Self {
        Self {
            ownership: Ownership::with_finalizer(JOB, TRACKING),
            deleted: FxHashMap::default(),
            orphans: FxHashSet::default(),
            has_groups,
        }
    }

    fn note_deleted(
        &mut self,
        cx: &mut ControllerContext<ControllerKey>,
        key: ControllerKey,
        uid: &str,
    ) {
        self.deleted
            .entry(key.clone())
            .or_default()
            .insert(uid.to_owned());
        cx.enqueue(key);
    }

    /// Removes the finalizer of a pod, unless a job has adopted it. Keys of orphaned pods and of jobs share one queue.
    fn release_orphan(
        &mut self,
        cx: &mut ControllerContext<ControllerKey>,
        key: &ControllerKey,
    ) -> Result<(), AccessError> {
        if !self.orphans.contains(key) {
            return Ok(());
        }
        if let Some(pod) = cx.cache(POD).get(key).cloned()
            && is_orphan(&pod)
        {
            release(cx, &pod)?;
        }
        self.orphans.remove(key);
        Ok(())
    }

    /// Removes the finalizer of the pods of deleted jobs of this name, which are never counted.
    fn release_left_pods(
        &mut self,
        cx: &mut ControllerContext<ControllerKey>,
        key: &ControllerKey,
    ) -> Result<(), AccessError> {
        let jobs = self.deleted.get(key).into_iter().flatten();
        let left: Vec<StoredObject> = jobs
            .flat_map(|job| cx.cache(POD).by(Index::Controller, job))
            .filter(|pod| has_finalizer(pod, TRACKING))
            .cloned()
            .collect();
        for pod in &left {
            release(cx, pod)?;
        }
        self.deleted.remove(key);
        Ok(())
    }
}

/// The condition that a job ended with: `Complete` or `Failed`.
pub(super) fn finished(job: &Value) -> Option<&Value> {
    items(&job["status"]["conditions"]).iter().find(|c| {
        matches!(c["type"].as_str(), Some("Complete" | "Failed")) && c["status"] == "True"
    })
}

impl Controller for Jobs {
    type Key = ControllerKey;
    const NAME: &'static str = "job-controller";

    fn watches(&self) -> Vec<Watch> {
        let mut watches = self.ownership.watches();
        if self.has_groups {
            watches.push(watching(WORKLOAD, &[Index::Controller, Index::Namespace]));
            watches.push(watching(POD_GROUP, &[Index::Controller]));
        }
        watches
    }

    fn observe(
        &mut self,
        cx: &mut ControllerContext<ControllerKey>,
        kind: GroupResource,
        diff: &CacheDifference,
    ) {
        self.ownership.observe(cx, kind, diff);
        if kind == JOB.resource
            && let Some(old) = &diff.old
            && diff.new.as_ref().is_none_or(|new| uid(new) != uid(old))
        {
            self.note_deleted(cx, ControllerKey::of(old), uid(old));
        }
        if (kind == POD_GROUP.resource || kind == WORKLOAD.resource)
            && let Some(object) = diff.new.as_ref().or(diff.old.as_ref())
            && let Some(job) = controller_key(JOB, object)
        {
            cx.enqueue(job);
        }
        // Only this controller removes the finalizer of a pod without its job.
        if kind == POD.resource
            && let Some(pod) = &diff.new
            && is_orphan(pod)
        {
            self.orphans.insert(ControllerKey::of(pod));
            cx.enqueue(ControllerKey::of(pod));
        }
        if kind == POD.resource
            && let Some(pod) = &diff.new
            && has_finalizer(pod, TRACKING)
            && let Some(key) = controller_key(JOB, pod)
        {
            let owner = controller_uid(pod).unwrap_or_default();
            let job = cx.cache(JOB).get(&key);
            // The owner was replaced by a job of the same name, or does not exist.
            if job.is_none_or(|job| uid(job) != owner) {
                self.note_deleted(cx, key, owner);
            }
        }
    }

    fn reconcile(
        &mut self,
        cx: &mut ControllerContext<ControllerKey>,
        key: &ControllerKey,
    ) -> Result<(), AccessError> {
        self.release_orphan(cx, key)?;
        self.release_left_pods(cx, key)?;
        let Some(job) = cx.cache(JOB).get(key).cloned() else {
            return Ok(());
        };
        // Another controller is responsible.
        if job["spec"]["managedBy"]
            .as_str()
            .is_some_and(|by| by != MANAGED_BY)
        {
            return Ok(());
        }
        let pods = self.ownership.claim(cx, key, &job)?;
        if is_deleting(&job) || finished(&job).is_some() {
            for pod in pods.iter().filter(|p| has_finalizer(p, TRACKING)) {
                release(cx, pod)?;
            }
            return expire(cx, key, &job);
        }
        let group = if self.has_groups {
            group::of_job(cx, &job, &pods)?
        } else {
            None
        };
        let mut run = JobRun::new(&job, pods, cx.now());
        run.group = group;
        run.decide();
        run.manage(cx, key)?;
        run.write(cx)?;
        for pod in run.tally.waiting(&run.pods) {
            release(cx, pod)?;
        }
        if let Some(at) = run.next {
            cx.enqueue_at(key.clone(), at);
        }
        Ok(())
    }
}

/// Returns whether a pod with the finalizer has no controller that will count it.
fn is_orphan(pod: &Value) -> bool {
    has_finalizer(pod, TRACKING) && object::controller_of(pod).is_none()
}

/// Removes the finalizer of a pod, which has been counted or need not be.
fn release(
    cx: &mut ControllerContext<ControllerKey>,
    pod: &StoredObject,
) -> Result<(), AccessError> {
    let mut released = (**pod).clone();
    remove_finalizer(&mut released, TRACKING);
    unless_not_found(cx.update(POD, released))
}

/// Deletes a finished job when its time is over.
fn expire(
    cx: &mut ControllerContext<ControllerKey>,
    key: &ControllerKey,
    job: &StoredObject,
) -> Result<(), AccessError> {
    let (Some(ttl), Some(end)) = (
        job["spec"]["ttlSecondsAfterFinished"].as_i64(),
        finished(job).and_then(|c| time(&c["lastTransitionTime"])),
    ) else {
        return Ok(());
    };
    if is_deleting(job) {
        return Ok(());
    }
    let at = after(end, ttl);
    if at > cx.now() {
        cx.enqueue_at(key.clone(), at);
        return Ok(());
    }
    let options = DeleteOptions {
        propagation: Propagation::Foreground,
        ..DeleteOptions::default()
    };
    cx.delete_with(JOB, job, options)
}

/// The pause in seconds before the pod after this many failures and one more.
fn back_off(failures: usize) -> i64 {
    let doublings = u32::try_from(failures).unwrap_or(u32::MAX).min(10);
    (BACK_OFF_SECONDS << doublings).min(BACK_OFF_SECONDS_MAX)
}

fn after(time: Timestamp, seconds: i64) -> Timestamp {
    time.checked_add(SignedDuration::from_secs(seconds))
        .unwrap_or(Timestamp::MAX)
}

/// The reason why a job is complete.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Success {
    reason: String,
    message: String,
}

/// One reconcile of a job.
struct JobRun<'a> {
    job: &'a StoredObject,
    pods: Vec<StoredObject>,
    now: Timestamp,
    /// The group of the pods.
    group: Option<StoredObject>,
    tally: JobTally,
    status: Value,
    failure: Option<JobFailure>,
    success: Option<Success>,
    /// The time of the next reconcile.
    next: Option<Timestamp>,
    events: Vec<(EventType, &'static str, String)>,
}

impl<'a> JobRun<'a> {
    fn new(job: &'a StoredObject, pods: Vec<StoredObject>, now: Timestamp) -> Self {
        let tally = JobTally::new(job, &pods);
        let mut status = job["status"].clone();
        if !status.is_object() {
            status = json!({});
        }
        Self {
            job,
            pods,
            now,
            group: None,
            tally,
            status,
            failure: None,
            success: None,
            next: None,
            events: Vec::new(),
        }
    }

    fn spec(&self) -> &'a Value {
        &self.job["spec"]
    }

    fn active(&self) -> impl Iterator<Item = &StoredObject> {
        self.pods.iter().filter(|p| pod::is_active(p))
    }

    /// Pods that are being deleted and have not ended.
    fn terminating(&self) -> usize {
        self.pods
            .iter()
            .filter(|p| is_deleting(p) && !pod::is_terminal(p))
            .count()
    }

    fn is_suspended(&self) -> bool {
        self.spec()["suspend"] == true
    }

    /// Returns whether the job has failed or succeeded.
    fn decide(&mut self) {
        if let Some(met) = object::condition(&self.status, "SuccessCriteriaMet") {
            // The pods that are deleted then do not count as failures.
            let text = |field: &str| met[field].as_str().unwrap_or_default().to_owned();
            self.success = Some(Success {
                reason: text("reason"),
                message: text("message"),
            });
            return;
        }
        self.failure = failure::kept(&self.status)
            .or_else(|| failure::by_policy(self.spec(), &self.pods))
            .or_else(|| failure::by_retries(self.spec(), &self.tally, &self.pods));
        if self.failure.is_none()
            && let (Some(limit), Some(start)) = (
                self.spec()["activeDeadlineSeconds"].as_i64(),
                time(&self.status["startTime"]),
            )
            && !self.is_suspended()
        {
            let deadline = after(start, limit);
            if deadline <= self.now {
                self.failure = Some(JobFailure::deadline());
            } else {
                self.look_again(deadline);
            }
        }
        if self.failure.is_none() {
            self.failure = per_index::failure(self.spec(), &self.tally);
        }
        if self.failure.is_some() {
            return;
        }
        if let Some(completed) = self.tally.completed() {
            self.success = per_index::success(self.spec(), completed);
        }
        let succeeded = self.tally.succeeded();
        let is_complete = match self.spec()["completions"].as_i64() {
            Some(completions) => succeeded >= completions,
            None => succeeded > 0 && self.active().next().is_none() && self.terminating() == 0,
        };
        if self.success.is_none() && is_complete {
            self.success = Some(Success {
                reason: "CompletionsReached".to_owned(),
                message: "Reached expected number of succeeded pods".to_owned(),
            });
        }
    }

    fn look_again(&mut self, at: Timestamp) {
        self.next = Some(self.next.map_or(at, |next| next.min(at)));
    }

    /// Creates and deletes pods.
    fn manage(
        &mut self,
        cx: &mut ControllerContext<ControllerKey>,
        key: &ControllerKey,
    ) -> Result<(), AccessError> {
        let ended = self.failure.is_some() || self.success.is_some();
        if ended || self.is_suspended() {
            let surplus: Vec<StoredObject> = self.active().cloned().collect();
            self.delete(cx, surplus)?;
        } else {
            let active = self.active().count();
            let wanted = self.wanted(active);
            if wanted < active {
                let mut surplus: Vec<StoredObject> = self.active().cloned().collect();
                // Pods that are further on stay.
                surplus.sort_by_key(|p| (pod::is_ready(p), pod::node_name(p).is_some()));
                surplus.truncate(active - wanted);
                self.delete(cx, surplus)?;
            } else if wanted > active {
                self.create(cx, key, wanted - active)?;
            }
        }
        self.pods = owned(cx, self.job).collect();
        Ok(())
    }

    /// The number of pods that should be active.
    fn wanted(&self, active: usize) -> usize {
        let parallelism = usize::try_from(count(&self.spec()["parallelism"], 1)).unwrap_or(0);
        let wanted = match self.spec()["completions"].as_i64() {
            Some(completions) => {
                let left = completions.saturating_sub(self.tally.succeeded());
                parallelism.min(usize::try_from(left).unwrap_or(0))
            }
            // One success ends it: the others finish, and none is added.
            None if self.tally.succeeded() > 0 => active.min(parallelism),
            None => parallelism,
        };
        if self.spec()["podReplacementPolicy"] == "Failed" {
            // Pods that are being deleted are replaced when they have ended.
            return wanted
                .saturating_sub(self.terminating())
                .max(active.min(wanted));
        }
        wanted
    }

    fn delete(
        &mut self,
        cx: &mut ControllerContext<ControllerKey>,
        pods: Vec<StoredObject>,
    ) -> Result<(), AccessError> {
        pods.iter()
            .try_for_each(|pod| delete_pod(cx, self.job, pod))
    }

    fn create(
        &mut self,
        cx: &mut ControllerContext<ControllerKey>,
        key: &ControllerKey,
        missing: usize,
    ) -> Result<(), AccessError> {
        // Jobs per index wait per index; the others wait as a whole.
        if self.tally.per_index.is_none()
            && let Some(at) = failure::back_off_ends(&self.pods)
            && at > self.now
        {
            self.look_again(at);
            return Ok(());
        }
        let indexes: Vec<Option<u64>> = if self.tally.completed().is_some() {
            let mut free = self.free_indexes();
            free.truncate(missing);
            if let Some(per_index) = &self.tally.per_index {
                let ends = |index: &u64| per_index.back_off_ends(*index);
                let next = free
                    .iter()
                    .filter_map(ends)
                    .filter(|at| *at > self.now)
                    .min();
                free.retain(|index| ends(index).is_none_or(|at| at <= self.now));
                if let Some(at) = next {
                    self.look_again(at);
                }
            }
            free.into_iter().map(Some).collect()
        } else {
            vec![None; missing]
        };
        // A large job creates its pods in several turns, so that other jobs are not delayed.
        if indexes.len() > CREATE_MAX {
            cx.enqueue(key.clone());
        }
        for index in indexes.into_iter().take(CREATE_MAX) {
            if !create_pod(cx, self.job, self.pod(index))? {
                break;
            }
        }
        Ok(())
    }

    /// The indexes that have neither ended nor a pod, in order.
    fn free_indexes(&self) -> Vec<u64> {
        let completions = self.spec()["completions"].as_u64().unwrap_or(0);
        let waits_for_end = self.spec()["podReplacementPolicy"] == "Failed";
        let taken: BTreeSet<u64> = self
            .pods
            .iter()
            .filter(|p| {
                pod::is_active(p) || (waits_for_end && is_deleting(p) && !pod::is_terminal(p))
            })
            .filter_map(|p| tally::index_of(p))
            .collect();
        (0..completions)
            .filter(|i| !taken.contains(i) && !self.tally.has_ended(*i))
            .collect()
    }

    /// A new pod of the job.
    fn pod(&self, index: Option<u64>) -> Value {
        let mut pod = pod_from_template(&self.spec()["template"], JOB, self.job);
        let mut finalizers = items(&pod["metadata"]["finalizers"]).to_vec();
        // The finalizer keeps a pod until its end is counted.
        finalizers.push(TRACKING.into());
        set(&mut pod, &["metadata", "finalizers"], finalizers.into());
        if let Some(group) = &self.group {
            group::join(&mut pod, self.job, group);
        }
        let Some(index) = index else {
            return pod;
        };
        if let Some(per_index) = &self.tally.per_index {
            per_index.annotate(self.spec(), index, &mut pod);
        }
        let (job, index) = (name(self.job), index.to_string());
        for field in ["labels", "annotations"] {
            set(&mut pod, &["metadata", field, INDEX], index.clone().into());
        }
        pod["metadata"]["generateName"] = format!("{job}-{index}-").into();
        set(
            &mut pod,
            &["spec", "hostname"],
            format!("{job}-{index}").into(),
        );
        let variable = json!({
            "name": "JOB_COMPLETION_INDEX",
            "valueFrom": {"fieldRef": {
                "apiVersion": "v1",
                "fieldPath": format!("metadata.labels['{INDEX}']"),
            }},
        });
        for field in ["initContainers", "containers"] {
            let containers = pod["spec"].get_mut(field).and_then(Value::as_array_mut);
            for container in containers.into_iter().flatten() {
                let mut env = items(&container["env"]).to_vec();
                // A variable that the template sets itself takes precedence.
                if env.iter().all(|e| e["name"] != variable["name"]) {
                    env.push(variable.clone());
                    container["env"] = env.into();
                }
            }
        }
        pod
    }
}

#[cfg(test)]
mod tests;
