//! Coming to rest: faults stop, everything is delivered and answered, time passes; then the world must be as it should
//! be.

use super::Run;
use crate::checker::{Statuses, Violation, check_rest};
use crate::script::{Answer, Watched};
use crate::shapes::{SLOW, Slow};
use crate::world::NAMESPACE;
use berth_api::{Duration, Str};
use berth_framework::Feature;

/// How long the scheduler may be left alone before it has come to rest: longer than any backoff and delay.
const QUIET: Duration = Duration::from_secs(40);
/// How many rounds it may take to come to rest.
const ROUNDS_MAX: u64 = 4000;
/// A status that the API did not take so many times in a row is given up until the pod is tried again.
const STATUS_TRIES: u32 = 4;
/// How many pods are tried in a round on the way to rest.
const TRIES_MAX: usize = 200;

impl Run<'_, '_> {
    /// Faults stop, everything is delivered and answered, time passes; then the world must be as it should be.
    pub(super) fn come_to_rest(&mut self) -> Result<(), Violation> {
        self.say(|| "--- faults stop".to_owned());
        self.world.reap();
        self.world.collect_garbage();
        // Calls from before, which no fault can touch any more, may still come to something.
        while !self.calls.is_empty() {
            self.answer(0, Answer::Honest)?;
        }
        self.world.kubelets_report(|_| true);
        // Nobody allows what the simulator's Permit holds back: users give up on it.
        let held_back: Vec<Str> = self
            .world
            .pods()
            .values()
            .filter(|pod| {
                !pod.is_assigned() && pod.labels().get(SLOW) == Some(Slow::Permit.as_str())
            })
            .map(|pod| pod.name().clone())
            .collect();
        for name in held_back {
            self.world.unlabel_pod(&name, SLOW);
        }
        let mut quiet_since = self.now;
        while self.now.since(quiet_since) < QUIET {
            self.tally.rounds_to_rest += 1;
            if self.tally.rounds_to_rest > ROUNDS_MAX {
                return Err(self.restless());
            }
            if self.round()? {
                quiet_since = self.now;
            }
            let second = Duration::from_secs(1);
            let wake = self.scheduler.next_wake(self.now);
            let wait = wake.map_or(second, |at| at.since(self.now)).min(second);
            let wait = wait.max(Duration::from_millis(1));
            self.say(|| format!("--- {} ms pass", wait.as_millis()));
            self.now = self.now + wait;
        }
        self.check_rest()
    }

    /// One round on the way to rest. Whether anything is going on.
    fn round(&mut self) -> Result<bool, Violation> {
        let version = self.world.version();
        // The kubelets let go of what is being deleted. Where the scheduler was never told that a binding was carried
        // out, it may say that it failed, and the kubelet has the last word.
        self.world.reap();
        let untold = &self.untold;
        self.world.kubelets_report(|pod| untold.contains(pod.uid()));
        self.scheduler.tick(self.now);
        self.after_input(None)?;
        for kind in [Watched::Nodes, Watched::Pods] {
            while self.deliver(kind)? {}
        }
        for _ in 0..TRIES_MAX {
            if !self.scheduler.has_pod_to_try() || !self.schedule()? {
                break;
            }
        }
        while !self.calls.is_empty() {
            self.answer(0, Answer::Honest)?;
        }
        while !self.jobs.is_empty() {
            self.end_job(0, true)?;
        }
        self.check_books()?;
        Ok(self.world.version() != version
            || self.world.undelivered() > 0
            || !self.calls.is_empty()
            || self.scheduler.bindings_in_flight() > 0
            || !self.scheduler.dispatcher().is_empty())
    }

    fn restless(&self) -> Violation {
        let what = format!(
            "{} bindings, {} calls and {} undelivered events after {ROUNDS_MAX} rounds",
            self.scheduler.bindings_in_flight(),
            self.scheduler.dispatcher().len(),
            self.world.undelivered(),
        );
        Violation::Restless { what }
    }

    fn check_rest(&self) -> Result<(), Violation> {
        let queue = self.scheduler.queue();
        for (count, what) in [
            (
                self.scheduler.cache().assumed_pods(),
                "pods with a node that the API does not show",
            ),
            (
                self.checker.placed().count(),
                "pods whose node the API does not show",
            ),
            (queue.in_flight_len(), "pods in flight"),
        ] {
            if count > 0 {
                return Err(Violation::Unresolved {
                    what: format!("{count} {what}"),
                });
            }
        }
        let statuses = Statuses {
            holds: self.features.enabled(Feature::SchedulerPreEnqueuePodStatus),
            missing: self
                .refused
                .iter()
                .filter(|(_, times)| **times >= STATUS_TRIES)
                .map(|(uid, _)| uid.clone())
                .collect(),
        };
        check_rest(&self.world, &statuses).map_err(|violation| match violation {
            Violation::Lost { pod, node, .. } => Violation::Lost {
                whereabouts: self.whereabouts(&pod),
                pod,
                node,
            },
            other => other,
        })
    }

    /// Where the scheduler has a pod.
    fn whereabouts(&self, name: &str) -> String {
        match self.scheduler.queue().get(NAMESPACE, name) {
            Some((place, info)) => {
                let rejectors: Vec<&str> = info.rejectors().map(Str::as_str).collect();
                format!("{place:?} pods, rejected by {rejectors:?}")
            }
            None => "no queue".to_owned(),
        }
    }
}
