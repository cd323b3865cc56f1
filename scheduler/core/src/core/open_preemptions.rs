//! The preemptions that have not ended.

use super::RunningPreemption;
use berth_api::{Str, Time};
use berth_framework::call::{CallId, PodEvent, PodRef};
use berth_framework::stage::Eviction;
use rustc_hash::FxHashMap;

/// A preemption that has not ended.
#[derive(Debug)]
pub(crate) struct OpenPreemption {
    pub(crate) preemptor: PodRef,
    /// The kind of the preemptor, a label of metrics.
    pub(crate) kind: &'static str,
    pub(crate) plugin: Str,
    /// The reporter of the events.
    pub(crate) reporter: Str,
    pub(crate) began: Time,
    /// The number of calls that have not ended.
    pub(crate) pending: usize,
    /// The victim that is evicted after the others.
    pub(crate) last: Option<Eviction>,
    pub(crate) has_failed: bool,
}

/// The preemptions that have not ended.
#[derive(Debug, Default)]
pub(crate) struct OpenPreemptions {
    next: u64,
    running: FxHashMap<u64, OpenPreemption>,
    /// The preemption that a call belongs to, and the event to publish when the call has succeeded.
    calls: FxHashMap<CallId, (u64, PodEvent)>,
    /// Last victims that are being evicted, with their preemptions.
    last_evicted: FxHashMap<Str, Vec<u64>>,
    /// Last victims that have been evicted and that the API has not shown as terminating or deleted, with the
    /// preemptors that may be tried then and the plugins that chose the victims.
    unseen: FxHashMap<Str, Vec<(PodRef, Str)>>,
}

impl OpenPreemptions {
    /// A new preemption ID.
    pub(crate) fn next_id(&mut self) -> u64 {
        let id = self.next;
        self.next += 1;
        id
    }

    /// Keeps a preemption that has not ended.
    pub(crate) fn keep(&mut self, id: u64, running: OpenPreemption) {
        self.running.insert(id, running);
    }

    pub(crate) fn take(&mut self, id: u64) -> Option<OpenPreemption> {
        self.running.remove(&id)
    }

    /// A call evicts a victim of a preemption. The event is published when the call has succeeded.
    pub(crate) fn note_call(&mut self, call: CallId, id: u64, event: PodEvent) {
        self.calls.insert(call, (id, event));
    }

    /// A victim is the last one of a preemption.
    pub(crate) fn note_last(&mut self, victim: Str, id: u64) {
        self.last_evicted.entry(victim).or_default().push(id);
    }

    /// A call has ended. Returns the preemption that it belongs to, and the event about its victim.
    pub(crate) fn take_call(&mut self, call: CallId) -> Option<(u64, PodEvent)> {
        let (id, event) = self.calls.remove(&call)?;
        let victim = &event.regarding.uid;
        if let Some(waiting) = self.last_evicted.get_mut(victim) {
            waiting.retain(|other| *other != id);
            if waiting.is_empty() {
                self.last_evicted.remove(victim);
            }
        }
        Some((id, event))
    }

    /// Returns whether a preemption for the pod has not ended.
    pub(crate) fn is_preempting(&self, uid: &str) -> bool {
        let mut running = self.running.values();
        running.any(|running| running.preemptor.uid == *uid)
    }

    /// The preemptors for which only this victim is left to be evicted, each with the plugin that chose it.
    pub(crate) fn ending_with(&self, victim: &str) -> Vec<(PodRef, Str)> {
        let Some(waiting) = self.last_evicted.get(victim) else {
            return Vec::new();
        };
        let ending = waiting.iter().filter_map(|id| {
            let one = self.running.get(id)?;
            let is_other = |(other, running): (&u64, &OpenPreemption)| {
                other != id && running.preemptor == one.preemptor
            };
            let has_others = self.running.iter().any(is_other);
            (!has_others).then(|| (one.preemptor.clone(), one.plugin.clone()))
        });
        ending.collect()
    }

    /// The preemptor may be tried when the API shows that this victim is terminating or deleted.
    pub(crate) fn await_seen(&mut self, victim: Str, preemptor: PodRef, plugin: Str) {
        let waiting = self.unseen.entry(victim).or_default();
        waiting.push((preemptor, plugin));
    }

    /// The preemptors that have waited for the API to show this victim as terminating or deleted.
    pub(crate) fn take_seen(&mut self, victim: &str) -> Vec<(PodRef, Str)> {
        self.unseen.remove(victim).unwrap_or_default()
    }

    /// The preemptions for a pod that have not ended.
    pub(crate) fn of(&self, uid: &str) -> Vec<RunningPreemption> {
        let running = self.running.iter();
        let of_pod = running.filter(|(_, running)| running.preemptor.uid == uid);
        let views = of_pod.map(|(id, running)| {
            let calls = self.calls.values().filter(|(of, _)| of == id);
            let mut evicting: Vec<PodRef> =
                calls.map(|(_, event)| event.regarding.clone()).collect();
            evicting.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
            RunningPreemption {
                plugin: running.plugin.clone(),
                began: running.began,
                evicting,
                last: running
                    .last
                    .as_ref()
                    .map(|last| last.event.regarding.clone()),
                has_failed: running.has_failed,
            }
        });
        let mut views: Vec<RunningPreemption> = views.collect();
        views.sort_by_key(|view| view.began);
        views
    }

    /// Checks the consistency of the records.
    ///
    /// # Errors
    /// The first inconsistency.
    pub(crate) fn check(&self) -> Result<(), String> {
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
        let waiting = self.last_evicted.values().flatten();
        match strays
            .chain(waiting)
            .find(|id| !self.running.contains_key(id))
        {
            Some(id) => Err(format!("preemption {id} has ended and is still known")),
            None => Ok(()),
        }
    }
}
