//! The preemptions that have not ended.

use crate::core::RunningPreemption;
use berth_api::{Str, Time};
use berth_framework::call::{CallId, PodEvent, PodRef};
use berth_framework::stage::Eviction;
use rustc_hash::FxHashMap;

/// A preemption that has not ended.
#[derive(Debug)]
pub(super) struct OpenPreemption {
    pub(super) preemptor: PodRef,
    /// The kind of the preemptor, a label of metrics.
    pub(super) kind: &'static str,
    pub(super) plugin: Str,
    /// The reporter of the events.
    pub(super) reporter: Str,
    pub(super) began: Time,
    /// The number of calls that have not ended.
    pub(super) pending: usize,
    /// The victim that is evicted after the others.
    pub(super) last: Option<Eviction>,
    pub(super) has_failed: bool,
}

/// The preemptions that have not ended.
#[derive(Debug, Default)]
pub(crate) struct OpenPreemptions {
    pub(super) next: u64,
    pub(super) running: FxHashMap<u64, OpenPreemption>,
    /// The preemption that a call belongs to, and the event to publish when the call has succeeded.
    pub(super) calls: FxHashMap<CallId, (u64, PodEvent)>,
    /// Last victims that are being evicted, with their preemptions.
    pub(super) last_evicted: FxHashMap<Str, Vec<u64>>,
}

impl OpenPreemptions {
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

    /// Checks that the books agree.
    ///
    /// # Errors
    /// The first disagreement.
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
