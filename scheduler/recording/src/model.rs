//! The model: the decisions of the core for a recorded day with another configuration.
//!
//! The decisions differ from the recorded ones, so the recorded results of calls do not fit. The model passes the
//! recorded external changes to the core, answers its calls with success, and shows it the results: a binding assigns
//! the node of the pod, a patch changes its status, an eviction deletes it. Scheduling takes no time. To compare two
//! configurations, run the model with each: the simplifications of the model affect both.
//!
//! Pods with persistent volume claims or resource claims keep their recorded nodes, because other components react to
//! the scheduler's writes about them.

use crate::answers::result_of;
use crate::entry::Entry;
use crate::reader::{Damage, FoundEntry};
use berth_api::pod::PodCondition;
use berth_api::{Kind, Object, Pod, Str, Time};
use berth_framework::call::{ApiCall, CallError, CallErrorKind, CallResult, Response};
use berth_scheduler::{ClusterChange, Scheduler};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

/// After this number of steps without progress of time the model stops, because of a defect or of a configuration that
/// never becomes stable.
const STEPS_MAX: u64 = 10_000_000;

/// The place of a pod at the end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodEnd {
    /// `namespace/name`.
    pub pod: String,
    /// Its last node; empty if it never had one.
    pub node: Str,
    /// The time from its first appearance to its placement, in milliseconds.
    pub waited_ms: u64,
    /// The reason why it was not placed in the last attempt; empty if it was placed or not tried.
    pub message: String,
    /// Whether it was evicted for another pod.
    pub evicted: bool,
}

/// The outcome of a model.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Modelled {
    /// Every pod that the scheduler decided about, by UID.
    pub pods: BTreeMap<Str, PodEnd>,
    /// The number of scheduling attempts.
    pub attempts: u64,
    /// Pods that kept their recorded nodes, because they have claims.
    pub kept: u64,
    /// The number of nodes with pods at the end, and of all nodes.
    pub nodes_used: (usize, usize),
    /// The time of the last entry.
    pub until: Option<Time>,
    /// The place from which the recording cannot be read.
    pub damage: Option<Damage>,
}

impl Modelled {
    /// The number of pods that have a node and were not evicted.
    pub fn placed(&self) -> usize {
        let ends = self.pods.values();
        ends.filter(|end| !end.node.is_empty() && !end.evicted)
            .count()
    }

    /// The number of evicted pods.
    pub fn evicted(&self) -> usize {
        self.pods.values().filter(|end| end.evicted).count()
    }

    /// The mean and the longest time until a placement, in milliseconds.
    pub fn waits(&self) -> (u64, u64) {
        let placed = self.pods.values().filter(|end| !end.node.is_empty());
        let waits: Vec<u64> = placed.map(|end| end.waited_ms).collect();
        let sum: u64 = waits.iter().sum();
        let count = waits.len().max(1) as u64;
        (sum / count, waits.into_iter().max().unwrap_or(0))
    }
}

struct Model<'a> {
    take_over: TakeOver<'a>,
    scheduler: &'a mut Scheduler,
    now: Time,
    /// The pods as the API shows them, by UID.
    pods: HashMap<Str, Arc<Pod>>,
    /// The pods that the model places, with the time at which each appeared.
    ours: HashMap<Str, Time>,
    /// The pods that the recorded scheduler evicted.
    recorded_evictions: HashSet<String>,
    kept: HashSet<Str>,
    version: u64,
    /// Nothing is scheduled before the recorded scheduler did.
    leads: bool,
    outcome: Modelled,
}

/// Applies the configuration that the recorded scheduler applied at this time.
pub type TakeOver<'a> = &'a mut dyn FnMut(&mut Scheduler, &str, Time);

/// Runs the model over a recording, up to this time. `scheduler` has received nothing yet. `take_over` is called where
/// the recorded scheduler took over another configuration.
pub fn model(
    entries: impl IntoIterator<Item = Result<FoundEntry, Damage>>,
    scheduler: &mut Scheduler,
    beginning: Time,
    until: Option<Time>,
    take_over: TakeOver<'_>,
) -> Modelled {
    let mut model = Model {
        scheduler,
        take_over,
        now: beginning,
        pods: HashMap::new(),
        ours: HashMap::new(),
        recorded_evictions: HashSet::new(),
        kept: HashSet::new(),
        version: 1 << 40,
        leads: false,
        outcome: Modelled::default(),
    };
    model.run(entries, until);
    let nodes = &model.scheduler.cache().cluster().nodes;
    let used = nodes.iter().filter(|view| !view.pods().is_empty()).count();
    model.outcome.nodes_used = (used, nodes.len());
    model.outcome.kept = model.kept.len() as u64;
    model.outcome
}

/// Returns whether other components react to the scheduler's writes about the pod.
fn has_claims(pod: &Pod) -> bool {
    let claims = |volume: &berth_api::pod::Volume| {
        volume.persistent_volume_claim.is_some() || volume.ephemeral.is_some()
    };
    pod.spec.volumes.iter().any(claims) || !pod.spec.resource_claims.is_empty()
}

impl Model<'_> {
    fn run(
        &mut self,
        entries: impl IntoIterator<Item = Result<FoundEntry, Damage>>,
        until: Option<Time>,
    ) {
        let (mut lists, mut left): (BTreeMap<Kind, Vec<Object>>, usize) = (BTreeMap::new(), 0);
        let mut skipped = 0;
        let mut is_first = true;
        for found in entries {
            let FoundEntry { at, entry, .. } = match found {
                Ok(found) => found,
                Err(damage) => {
                    self.outcome.damage = Some(damage);
                    break;
                }
            };
            if until.is_some_and(|until| at > until) {
                break;
            }
            self.advance(at);
            match entry {
                Entry::Start(_) => {}
                Entry::Checkpoint { objects, dropped } if is_first || dropped > 0 => left = objects,
                Entry::Checkpoint { objects, .. } => skipped = objects,
                Entry::Item(_) if skipped > 0 => skipped -= 1,
                Entry::List(kind, count) => {
                    lists.insert(kind, Vec::new());
                    left = count;
                    if count == 0 {
                        self.replace(std::mem::take(&mut lists));
                    }
                }
                Entry::Item(object) => {
                    lists.entry(object.kind()).or_default().push(object);
                    left = left.saturating_sub(1);
                    if left == 0 {
                        self.replace(std::mem::take(&mut lists));
                    }
                }
                Entry::Apply(object) => self.applied(object),
                Entry::Delete(object) => self.deleted(&object),
                Entry::ScheduleOne | Entry::TakeOutputs | Entry::Tick => self.leads = true,
                Entry::Called(_, text) => self.called(&text),
                Entry::Reconfigure(text) => (self.take_over)(self.scheduler, &text, self.now),
                Entry::Complete(..)
                | Entry::JobDone(..)
                | Entry::Decided(..)
                | Entry::Close
                | Entry::End => {}
            }
            is_first = is_first && left == 0 && skipped == 0 && self.pods.is_empty();
        }
        self.settle();
        self.outcome.until = Some(self.now);
    }

    /// The recorded scheduler evicts a pod, so its deletion is not an external change.
    fn called(&mut self, text: &str) {
        let uid = text.strip_prefix("delete pods/").and_then(|rest| {
            let (_, rest) = rest.split_once(" (")?;
            Some(rest.split_once(')')?.0.to_owned())
        });
        self.recorded_evictions.extend(uid);
    }

    /// Advances the time. Due backoffs and flushes happen at their own times.
    fn advance(&mut self, to: Time) {
        self.settle();
        while let Some(wake) = self.scheduler.next_wake(self.now) {
            if !self.leads || wake >= to || wake <= self.now {
                break;
            }
            self.now = wake;
            self.scheduler.tick(wake);
            self.settle();
        }
        self.now = self.now.max(to);
    }

    /// Lets the core do all pending work.
    fn settle(&mut self) {
        if !self.leads {
            return;
        }
        for _ in 0..STEPS_MAX {
            let now = self.now;
            let tried = if self.scheduler.has_pod_to_try() {
                self.scheduler.schedule_one(now).is_attempt()
            } else {
                self.scheduler.tick(now);
                false
            };
            self.outcome.attempts += u64::from(tried);
            let outputs = self.scheduler.take_outputs(now);
            let is_idle = !tried && outputs.calls.is_empty() && outputs.jobs.is_empty();
            for (id, call) in outputs.calls {
                let (result, change) = self.carry_out(&call);
                self.scheduler.complete(id, result, now);
                if let Some(change) = change {
                    self.scheduler.apply(change, now);
                }
            }
            for (id, job) in outputs.jobs {
                // Extenders answer from the recording, without waiting.
                let refused = || Err("jobs are not carried out in a model".into());
                let result = result_of(job).unwrap_or_else(refused);
                self.scheduler.job_done(id, result, now);
            }
            if is_idle && !self.scheduler.has_pod_to_try() {
                return;
            }
        }
    }

    fn next_version(&mut self) -> Str {
        self.version += 1;
        self.version.to_string().into()
    }

    // --- the recorded changes ------------------------------------------------------------------------------

    fn replace(&mut self, lists: BTreeMap<Kind, Vec<Object>>) {
        for (kind, objects) in lists {
            if kind != Kind::Pod {
                let change = ClusterChange::Replaced(kind, objects);
                self.scheduler.apply(change, self.now);
                continue;
            }
            let listed: BTreeSet<Str> = objects.iter().map(|o| o.metadata().uid.clone()).collect();
            let gone: Vec<Arc<Pod>> = self
                .pods
                .values()
                .filter(|pod| !listed.contains(pod.uid()))
                .cloned()
                .collect();
            for pod in gone {
                self.deleted(&Object::Pod(pod));
            }
            if objects.is_empty() {
                let change = ClusterChange::Replaced(kind, Vec::new());
                self.scheduler.apply(change, self.now);
            }
            for object in objects {
                self.applied(object);
            }
        }
    }

    fn applied(&mut self, object: Object) {
        let Object::Pod(recorded) = object else {
            return self
                .scheduler
                .apply(ClusterChange::Applied(object), self.now);
        };
        let uid = recorded.uid().clone();
        let is_new = !self.ours.contains_key(&uid) && !self.pods.contains_key(&uid);
        let profiles = self.scheduler.profiles();
        let is_pending = !recorded.is_assigned() && !recorded.is_terminal();
        if is_new && is_pending && profiles.get(&recorded.spec.scheduler_name).is_some() {
            if has_claims(&recorded) {
                self.kept.insert(uid.clone());
            } else {
                self.ours.insert(uid.clone(), self.now);
                let end = PodEnd {
                    pod: recorded.key(),
                    node: Str::default(),
                    waited_ms: 0,
                    message: String::new(),
                    evicted: false,
                };
                self.outcome.pods.insert(uid.clone(), end);
            }
        }
        if self.kept.contains(&uid) && !recorded.is_assigned() {
            return;
        }
        let mut pod = Pod::clone(&recorded);
        if self.ours.contains_key(&uid) {
            if self.outcome.pods.get(&uid).is_some_and(|end| end.evicted) {
                return;
            }
            // The status written by the recorded scheduler or by the kubelet of the recorded node is replaced by the
            // model's status.
            let known = self.pods.get(&uid);
            pod.spec.node_name = known.map(|p| p.spec.node_name.clone()).unwrap_or_default();
            pod.status.nominated_node_name = known
                .map(|p| p.status.nominated_node_name.clone())
                .unwrap_or_default();
            let scheduled = known.and_then(|p| p.condition("PodScheduled").cloned());
            pod.status.conditions.retain(|c| c.kind != "PodScheduled");
            pod.status.conditions.extend(scheduled);
            if pod.spec.node_name.is_empty() {
                pod.status.phase = "Pending".into();
                pod.status.start_time = None;
            }
        }
        pod.metadata.resource_version = self.next_version();
        let pod = Arc::new(pod);
        self.pods.insert(uid, pod.clone());
        let change = ClusterChange::Applied(Object::Pod(pod));
        self.scheduler.apply(change, self.now);
    }

    fn deleted(&mut self, object: &Object) {
        let Object::Pod(recorded) = object else {
            let change = ClusterChange::Deleted(object.clone());
            return self.scheduler.apply(change, self.now);
        };
        let uid = recorded.uid();
        // An eviction by the recorded scheduler is not an external change.
        if self.recorded_evictions.contains(uid.as_str()) && self.ours.contains_key(uid) {
            return;
        }
        if let Some(pod) = self.pods.remove(uid) {
            let change = ClusterChange::Deleted(Object::Pod(pod));
            self.scheduler.apply(change, self.now);
        }
    }

    // --- the calls of the core -----------------------------------------------------------------------------

    fn carry_out(&mut self, call: &ApiCall) -> (CallResult, Option<ClusterChange>) {
        let refused = |kind, text: &str| (Err(CallError::new(kind, text)), None);
        let Some(target) = call.pod() else {
            return refused(
                CallErrorKind::Refused,
                "writes are not carried out in a model",
            );
        };
        let Some(stored) = self.pods.get(&target.uid).cloned() else {
            return refused(CallErrorKind::NotFound, "the pod was deleted");
        };
        let mut pod = Pod::clone(&stored);
        match call {
            ApiCall::BindPod { node, .. } => {
                if pod.is_assigned() {
                    return refused(CallErrorKind::Conflict, "the pod has a node");
                }
                pod.spec.node_name = node.clone();
                set_condition(&mut pod, "True", "", "");
                let since = self.ours.get(pod.uid()).copied().unwrap_or(self.now);
                let waited = self.now.since(since).as_millis();
                if let Some(end) = self.outcome.pods.get_mut(pod.uid()) {
                    end.node = node.clone();
                    end.waited_ms = u64::try_from(waited).unwrap_or(u64::MAX);
                    end.message = String::new();
                }
            }
            ApiCall::PatchPodStatus { nominated_node, .. } => {
                if let Some(condition) = call.condition("PodScheduled") {
                    set_condition(
                        &mut pod,
                        &condition.status,
                        &condition.reason,
                        &condition.message,
                    );
                    if let Some(end) = self.outcome.pods.get_mut(pod.uid()) {
                        end.message = condition.message.to_string();
                    }
                }
                if let Some(node) = nominated_node {
                    pod.status.nominated_node_name = node.clone();
                }
            }
            ApiCall::ClearPreEnqueueStatus { nominated_node, .. } => {
                pod.status.conditions.retain(|c| c.kind != "PodScheduled");
                if let Some(node) = nominated_node {
                    pod.status.nominated_node_name = node.clone();
                }
            }
            ApiCall::DeletePod { .. } => {
                self.pods.remove(pod.uid());
                if let Some(end) = self.outcome.pods.get_mut(pod.uid()) {
                    end.evicted = true;
                }
                let change = ClusterChange::Deleted(Object::Pod(stored));
                return (Ok(Response::default()), Some(change));
            }
            ApiCall::Write(_) => {}
        }
        pod.metadata.resource_version = self.next_version();
        let version = pod.metadata.resource_version.clone();
        let pod = Arc::new(pod);
        self.pods.insert(pod.uid().clone(), pod.clone());
        let change = ClusterChange::Applied(Object::Pod(pod));
        (Ok(Response::written(version)), Some(change))
    }
}

fn set_condition(pod: &mut Pod, status: &str, reason: &str, message: &str) {
    pod.status.conditions.retain(|c| c.kind != "PodScheduled");
    pod.status.conditions.push(PodCondition {
        kind: "PodScheduled".into(),
        status: status.into(),
        reason: reason.into(),
        message: message.into(),
        observed_generation: None,
    });
}
