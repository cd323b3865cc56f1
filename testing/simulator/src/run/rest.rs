//! Coming to rest: faults stop, all events are delivered, all calls are answered, and time passes. Then the state of
//! the world must be correct.

use super::{LEADER, Run};
use crate::checker::{Statuses, Violation, check_at_rest};
use crate::script::CallAnswer;
use crate::shapes::{NAMESPACES, SLOW, Slow};
use crate::world::{Devices, WATCHED};
use berth_api::{Duration, Str};
use berth_framework::Feature;

/// The time without any change after which the run is at rest: longer than any backoff and delay.
const QUIET: Duration = Duration::from_secs(40);
/// The maximum number of rounds until the run is at rest.
const ROUNDS_MAX: u64 = 4000;
/// The maximum number of attempts in a round.
const TRIES_MAX: usize = 200;

impl Run<'_, '_> {
    /// Stops faults, delivers all events, answers all calls and lets time pass; then judges the state of the world.
    pub(super) fn run_to_rest(&mut self) -> Result<(), Violation> {
        self.print_line(|| "--- faults stop".to_owned());
        self.setup.configuration = 0;
        self.world.reap();
        self.world.collect_garbage();
        // Calls sent before can still be executed, without faults.
        self.step_down()?;
        while !self.orphans.is_empty() {
            self.land(0)?;
        }
        self.answer_all()?;
        // No component allows the pods that the simulator's Permit delays, so their label is removed.
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
                return Err(self.endless_activity());
            }
            if self.round()? {
                quiet_since = self.now;
            }
            let second = Duration::from_secs(1);
            let wake = self.instances[LEADER].scheduler.next_wake(self.now);
            let wait = wake.map_or(second, |at| at.since(self.now)).min(second);
            let wait = wait.max(Duration::from_millis(1));
            self.print_line(|| format!("--- {} ms pass", wait.as_millis()));
            self.now = self.now + wait;
        }
        self.check_at_rest()
    }

    fn answer_all(&mut self) -> Result<(), Violation> {
        while !self.instances[LEADER].calls.is_empty() {
            self.answer(LEADER, 0, CallAnswer::Honest)?;
        }
        Ok(())
    }

    /// Plays one round. Returns whether anything changed.
    fn round(&mut self) -> Result<bool, Violation> {
        self.take_over_all()?;
        let version = self.world.version();
        // The kubelets remove pods that are being deleted; the controllers act.
        self.world.reap();
        self.world.collect_garbage();
        self.world.bind_claims();
        Devices::of(&mut self.world).manage_claims(self.now);
        self.tick(LEADER)?;
        for at in self.all() {
            // Pods last: they may name everything else.
            for kind in WATCHED.into_iter().rev() {
                while self.deliver(at, kind)? {}
            }
        }
        for _ in 0..TRIES_MAX {
            if !self.instances[LEADER].scheduler.has_pod_to_try() || !self.schedule(LEADER)? {
                break;
            }
        }
        self.answer_all()?;
        while !self.instances[LEADER].jobs.is_empty() {
            self.end_job(LEADER, 0, true)?;
        }
        self.check_books()?;
        let leader = &self.instances[LEADER];
        Ok(self.world.version() != version
            || leader.watches.undelivered_in_all(&self.world) > 0
            || !leader.calls.is_empty()
            || leader.configuration != self.setup.configuration
            || leader.scheduler.bindings_in_flight() > 0
            || !leader.scheduler.dispatcher().is_empty())
    }

    fn endless_activity(&self) -> Violation {
        let leader = &self.instances[LEADER];
        let what = format!(
            "{} bindings, {} calls and {} undelivered events after {ROUNDS_MAX} rounds",
            leader.scheduler.bindings_in_flight(),
            leader.scheduler.dispatcher().len(),
            leader.watches.undelivered_in_all(&self.world),
        );
        Violation::EndlessActivity { what }
    }

    fn check_at_rest(&mut self) -> Result<(), Violation> {
        self.check_quotas_at_rest()?;
        let leader = &self.instances[LEADER];
        let queue = leader.scheduler.queue();
        for (count, what) in [
            (
                leader.scheduler.cache().assumed_pods(),
                "pods with a node that the API does not show",
            ),
            (
                leader.checker.placed().count(),
                "pods whose node the API does not show",
            ),
            (queue.in_flight().len(), "pods in flight"),
            (
                leader.scheduler.cache().assumed_objects(),
                "volumes and claims that are not seen as they are",
            ),
        ] {
            if count > 0 {
                return Err(Violation::Unresolved {
                    what: format!("{count} {what}"),
                });
            }
        }
        let features = &self.setup.features;
        let statuses = Statuses {
            holds: features.enabled(Feature::SchedulerPreEnqueuePodStatus),
            foreign: self.foreign.clone(),
            are_devices_certain: self.tally.faults == 0
                && self.tally.restarts == 0
                && self.tally.failovers == 0,
            nominations: self.nominations.clone(),
            kept_free: leader.kept_free().collect(),
            after_failure: leader.checker.remains_after_failure().clone(),
        };
        check_at_rest(&self.world, &statuses).map_err(|violation| match violation {
            Violation::Lost { pod, node, .. } => Violation::Lost {
                whereabouts: self.whereabouts(&pod),
                pod,
                node,
            },
            other => other,
        })
    }

    /// The place of a pod in the scheduler.
    fn whereabouts(&self, name: &str) -> String {
        let queue = self.instances[LEADER].scheduler.queue();
        let mut found = NAMESPACES
            .iter()
            .filter_map(|namespace| queue.get(namespace, name));
        match found.next() {
            Some((place, info)) => {
                let rejectors: Vec<&str> = info.rejectors().map(Str::as_str).collect();
                format!("{place:?} pods, rejected by {rejectors:?}")
            }
            None => "no queue".to_owned(),
        }
    }
}
