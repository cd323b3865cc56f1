//! A copy of the cluster, for examination and trial changes.

use crate::facts::{GroupFacts, PodFacts};
use berth_api::Time;
use berth_api::groups::GroupSpec;
use berth_framework::plugin::{
    Context, NodeStatuses, PostFilterContext, PostFilterResult, PostFilterStep,
};
use berth_framework::stage::{DryRunOutbox, Preemption};
use berth_framework::{Cluster, FeatureGates, PodInfo, Work};
use berth_scheduler::NoStopwatch;
use berth_scheduler::Scheduler;
use berth_scheduler::evaluator::{Evaluation, Evaluator};
use berth_scheduler::profile::{Profile, Profiles};
use berth_scheduler::queue::Nominator;
use std::sync::Arc;

/// The cluster of a scheduler at one time. It shares only the objects with the scheduler.
#[derive(Debug)]
pub struct Snapshot {
    pub(crate) cluster: Cluster,
    pub(crate) nominator: Nominator,
    pub(crate) profiles: Profiles,
    pub(crate) features: FeatureGates,
    /// Whether extenders are configured. Explanations do not call them.
    pub(crate) has_extenders: bool,
    pub(crate) now: Time,
    /// The end of the log of the node table. Edits that were tried and reverted are logged after it.
    pub(crate) log_end: u64,
}

impl Snapshot {
    /// Copies the cluster of a scheduler. The cost grows with the number of pods and nodes: a few references for each.
    ///
    /// Drop a copy, or replace it with [`Snapshot::renew`], on the thread that made it: allocators that keep memory by
    /// thread otherwise make both threads wait for each other.
    pub fn take(scheduler: &Scheduler, now: Time) -> Self {
        Self {
            log_end: scheduler.cache().cluster().nodes.log().end(),
            cluster: scheduler.cache().cluster().clone(),
            nominator: scheduler.queue().nominator().clone(),
            profiles: scheduler.profiles().clone(),
            features: *scheduler.features(),
            has_extenders: scheduler.has_extenders(),
            now,
        }
    }

    /// Copies the cluster of a scheduler again, into the memory of this copy.
    pub fn renew(&mut self, scheduler: &Scheduler, now: Time) {
        let known = scheduler.cache().cluster();
        self.cluster.clone_from(known);
        self.nominator.clone_from(scheduler.queue().nominator());
        self.profiles.clone_from(scheduler.profiles());
        self.features = *scheduler.features();
        self.has_extenders = scheduler.has_extenders();
        self.now = now;
        self.log_end = known.nodes.log().end();
    }

    /// Returns whether the copy is recent enough for an answer about the pod: it contains the pod's decision, if any.
    pub fn is_enough_for(&self, facts: &PodFacts) -> bool {
        let decision = facts.decision.as_ref();
        let group = facts.group.as_ref();
        decision.is_none_or(|decision| decision.changes_end <= self.log_end)
            && group.is_none_or(|group| self.is_enough_for_group(group))
    }

    /// Returns whether the copy is recent enough for an answer about the group: it has the same groups and the same
    /// numbers of members.
    pub fn is_enough_for_group(&self, facts: &GroupFacts) -> bool {
        facts.tree.iter().all(|group| {
            let members = self.cluster.pods.members(&group.key);
            let counts = members.map_or((0, 0), |m| (m.known(), m.scheduled().len()));
            let spec = self.cluster.groups().spec(&group.key);
            counts == (group.known, group.scheduled)
                && spec.map_or_else(|| group.spec == GroupSpec::default(), |s| *s == group.spec)
        })
    }

    /// The cluster.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// The time at which it was copied.
    pub fn now(&self) -> Time {
        self.now
    }

    pub(crate) fn context(&self) -> Context<'_> {
        Context {
            now: self.now,
            cluster: &self.cluster,
            features: &self.features,
            work: None,
        }
    }

    /// Runs a new evaluator for a pod.
    pub(crate) fn evaluate<R>(
        &mut self,
        profile: &Profile,
        pod: &Arc<PodInfo>,
        run: impl FnOnce(&mut Evaluator<'_>) -> R,
    ) -> R {
        run(&mut Evaluator {
            profile,
            features: &self.features,
            now: self.now,
            cluster: &mut self.cluster,
            nominated: &self.nominator,
            pod,
            evaluation: &mut Evaluation::default(),
            work: Some(&Work::default()),
            stopwatch: &NoStopwatch,
        })
    }

    /// Runs PostFilter for a pod as in the scheduling cycle, without effects. Returns the answers of the plugins with
    /// the requested preemptions.
    pub(crate) fn post_filter(
        &mut self,
        profile: &Profile,
        pod: &Arc<PodInfo>,
        statuses: &NodeStatuses,
    ) -> Vec<(PostFilterResult, Vec<Preemption>)> {
        let (features, now) = (self.features, self.now);
        self.evaluate(profile, pod, |evaluator| {
            if evaluator.pre_filter().is_err() {
                return Vec::new();
            }
            let mut answers = Vec::new();
            for member in &profile.post_filter {
                let mut outbox = DryRunOutbox::default();
                let step = member.plugin.post_filter(
                    &mut PostFilterContext {
                        now,
                        features: &features,
                        outbox: &mut outbox,
                        dry_run: evaluator,
                    },
                    pod,
                    statuses,
                    None,
                );
                if let PostFilterStep::Done(result) = step {
                    answers.push((result, outbox.preemptions));
                }
            }
            answers
        })
    }
}
