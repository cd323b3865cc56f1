//! Telling victims to go, beside the scheduling loop (P-17, P-20 to P-23).
//!
//! The victims of one preemption are told at once, except the last: that one is told when all others have been, so
//! that one pod less goes for nothing should another refuse. Until all have been told, or the last is seen going, the
//! preemptor is not to be tried: it counts as [preempting](berth_framework::Cluster::preempting), and PreEnqueue keeps
//! it out. What is said of a victim is published when it has been told, not before.

use super::{LogLevel, Scheduler};
use crate::dispatcher::Finished;
use crate::metrics::Metric;
use crate::queue::QueuedIn;
use berth_api::{Duration, Pod, Str, Time};
use berth_framework::call::{CallId, PodEvent, PodRef};
use berth_framework::plugin::Context;
use berth_framework::stage::{Eviction, Observation, Preemption};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// One preemption that is under way.
#[derive(Debug)]
struct Running {
    preemptor: PodRef,
    plugin: Str,
    /// Who reports the events.
    reporter: Str,
    began: Time,
    /// How many of the calls have not ended.
    pending: usize,
    /// The victim that is told when the others have been.
    last: Option<Eviction>,
    failed: bool,
}

/// The preemptions that are under way.
#[derive(Debug, Default)]
pub(crate) struct Preemptions {
    next: u64,
    running: FxHashMap<u64, Running>,
    /// Which preemption a call belongs to, and what to say when it has gone well.
    calls: FxHashMap<CallId, (u64, PodEvent)>,
    /// Last victims that have been told, with their preemption.
    last_told: FxHashMap<Str, Vec<u64>>,
}

impl Preemptions {
    /// Checks that the books agree.
    ///
    /// # Errors
    /// What does not agree.
    pub(super) fn check(&self) -> Result<(), String> {
        for (id, running) in &self.running {
            let calls = self.calls.values().filter(|(of, _)| of == id).count();
            if calls != running.pending || calls == 0 {
                return Err(format!(
                    "{} preempts with {calls} calls, {} are noted",
                    running.preemptor, running.pending
                ));
            }
        }
        let strays = self.calls.values().map(|(id, _)| id);
        let told = self.last_told.values().flatten();
        match strays.chain(told).find(|id| !self.running.contains_key(id)) {
            Some(id) => Err(format!("preemption {id} has ended and is still known")),
            None => Ok(()),
        }
    }
}

impl Scheduler {
    /// Begins with what plugins have asked for.
    pub(super) fn start_preemptions(&mut self, now: Time) {
        for observation in std::mem::take(&mut self.io.observations) {
            match observation {
                Observation::PreemptionAttempt => {
                    self.metrics.count(Metric::PreemptionAttempts, &[]);
                }
                Observation::PreemptionVictims(victims) => {
                    self.metrics
                        .observe(Metric::PreemptionVictims, &[], victims as f64);
                }
                Observation::VolumeStageFailed(operation) => {
                    self.metrics
                        .count(Metric::VolumeSchedulingStageErrors, &[operation]);
                }
            }
        }
        for (preemption, reporter) in std::mem::take(&mut self.io.preemptions) {
            self.start_preemption(preemption, reporter, now);
        }
    }

    fn start_preemption(&mut self, preemption: Preemption, reporter: Str, now: Time) {
        let Preemption {
            preemptor,
            plugin,
            mut victims,
        } = preemption;
        let id = self.preemptions.next;
        self.preemptions.next += 1;
        let last = victims.pop();
        self.cache
            .cluster_mut()
            .preempting
            .insert(preemptor.uid.clone());
        let mut running = Running {
            preemptor,
            plugin,
            reporter,
            began: now,
            pending: 0,
            last,
            failed: false,
        };
        for victim in victims {
            self.tell(id, &mut running, victim, now);
        }
        self.go_on(id, running, now);
    }

    /// Tells one victim to go.
    fn tell(&mut self, id: u64, running: &mut Running, victim: Eviction, now: Time) -> bool {
        let uid = &victim.event.regarding.uid;
        // Another scheduler may have bound it while it was being prepared here: then it is there, and has to be told.
        let is_bound = self.cache.stored(uid).is_some_and(|pod| pod.is_assigned());
        if !is_bound && self.io.permits.preempt(uid, &running.plugin) {
            let mut event = victim.event;
            event.note += Eviction::IN_MEMORY;
            self.io.publish(event, &running.reporter);
            return false;
        }
        let call = self.io.call(victim.call(), Duration::ZERO, now);
        self.preemptions.calls.insert(call, (id, victim.event));
        running.pending += 1;
        true
    }

    /// The next step of a preemption.
    fn go_on(&mut self, id: u64, mut running: Running, now: Time) {
        // A preemptor that has gone or found a place needs nobody's room.
        let wanted = self
            .cache
            .stored(&running.preemptor.uid)
            .is_some_and(|pod| !pod.is_assigned());
        if running.pending == 0
            && !running.failed
            && wanted
            && let Some(last) = running.last.take()
        {
            let uid = last.event.regarding.uid.clone();
            if self.tell(id, &mut running, last, now) {
                self.preemptions.last_told.entry(uid).or_default().push(id);
            }
        }
        if running.pending > 0 {
            self.preemptions.running.insert(id, running);
        } else {
            self.preemption_ended(running, now);
        }
    }

    /// The call that evicts a victim has ended, if it is one.
    pub(super) fn eviction_ended(&mut self, finished: &Finished, now: Time) {
        let Some((id, event)) = self.preemptions.calls.remove(&finished.id) else {
            return;
        };
        let victim = &event.regarding.uid;
        if let Some(told) = self.preemptions.last_told.get_mut(victim) {
            told.retain(|other| *other != id);
            if told.is_empty() {
                self.preemptions.last_told.remove(victim);
            }
        }
        let Some(mut running) = self.preemptions.running.remove(&id) else {
            return;
        };
        running.pending -= 1;
        match &finished.result {
            Ok(_) => self.io.publish(event, &running.reporter),
            Err(_) if finished.is_done() => {}
            Err(error) => {
                let text = format!(
                    "Failed to preempt pod {} for {}: {error}",
                    event.regarding, running.preemptor
                );
                self.io.log(LogLevel::Error, text);
                running.failed = true;
            }
        }
        self.go_on(id, running, now);
    }

    /// All that could be told have been. Should one not go, no event may ever come: the preemptor is tried again.
    fn preemption_ended(&mut self, running: Running, now: Time) {
        let result = if running.failed { "error" } else { "success" };
        let seconds = now.since(running.began).as_secs_f64();
        self.metrics
            .observe(Metric::PreemptionGoroutinesDuration, &[result], seconds);
        self.metrics
            .count(Metric::PreemptionGoroutinesExecutions, &[result]);
        let Running {
            preemptor,
            plugin,
            failed,
            ..
        } = running;
        let mut others = self.preemptions.running.values();
        if others.all(|other| other.preemptor.uid != preemptor.uid) {
            self.let_in(&preemptor, &plugin, now);
        }
        if failed && let Some(pod) = self.cache.effective(&preemptor.uid).cloned() {
            self.activate(&[pod], now);
        }
    }

    /// A pod is seen going, or is gone: whoever it is the last victim of may be tried again. Returns those, to be
    /// [let in](Self::let_in) once everybody has heard of it.
    pub(super) fn seen_going(&mut self, uid: &str) -> Vec<(PodRef, Str)> {
        let Some(told) = self.preemptions.last_told.get(uid) else {
            return Vec::new();
        };
        let mut preemptors = Vec::new();
        for id in told {
            let running = &self.preemptions.running;
            let Some(one) = running.get(id) else {
                continue;
            };
            let same = |(other, r): (&u64, &Running)| other != id && r.preemptor == one.preemptor;
            if !running.iter().any(same) {
                self.cache
                    .cluster_mut()
                    .preempting
                    .remove(&one.preemptor.uid);
                preemptors.push((one.preemptor.clone(), one.plugin.clone()));
            }
        }
        preemptors
    }

    /// The preemptor may be tried again. Where its gate has kept it out meanwhile, an event had found it worth a try.
    pub(super) fn let_in(&mut self, preemptor: &PodRef, plugin: &Str, now: Time) {
        self.cache.cluster_mut().preempting.remove(&preemptor.uid);
        let kept_out = self
            .queue
            .get(&preemptor.namespace, &preemptor.name)
            .is_some_and(|(place, info)| {
                place == QueuedIn::Gated && info.gating_plugin() == Some(plugin)
            });
        if kept_out && let Some(pod) = self.cache.effective(&preemptor.uid).cloned() {
            self.activate(&[pod], now);
        }
    }

    /// A victim has gone, or stays after all: whoever was promised its node and has waited for that is tried again.
    /// Plugins that turned such a pod down may have nothing to do with the victim, so that no event would say so, and
    /// its promise would keep others away (P-5, P-20).
    pub(super) fn wake_nominees(&mut self, victim: &Pod, now: Time) {
        let nominees = self.queue.nominator().pods_on(&victim.spec.node_name);
        let waiting = nominees.iter().filter(|info| {
            let pod = &info.pod;
            let queued = self.queue.get(pod.namespace(), pod.name());
            let waits = match queued {
                Some((place, _)) => place == QueuedIn::Unschedulable,
                None => self.queue.is_in_flight(pod.uid()),
            };
            waits && pod.priority() > victim.priority()
        });
        let pods: Vec<Arc<Pod>> = waiting
            .filter_map(|info| self.cache.effective(info.pod.uid()).cloned())
            .collect();
        if !pods.is_empty() {
            self.activate(&pods, now);
        }
    }

    /// Tries pods at once, whatever they wait for.
    pub(super) fn activate(&mut self, pods: &[Arc<Pod>], now: Time) {
        let cx = Context {
            now,
            cluster: self.cache.cluster(),
            features: &self.features,
        };
        self.queue.activate(&cx, pods);
    }
}
