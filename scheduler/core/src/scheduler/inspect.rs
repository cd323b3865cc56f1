//! The parts of the scheduler that explanations read in addition to the queue and the cache.

use super::Scheduler;
use crate::core::{PodDecision, Progress, RunningPreemption};
use crate::{GateRemovals, RunTimes};
use berth_api::Str;
use berth_telemetry::metrics::Metric;

impl Scheduler {
    /// The last decision about a pod, if it is among the last [`DECISIONS_MAX`](crate::DECISIONS_MAX).
    pub fn decision(&self, uid: &str) -> Option<&PodDecision> {
        self.core.framework.decisions.of(uid)
    }

    /// The observed removals of a scheduling gate.
    pub fn gate_removals(&self, gate: &str) -> Option<&GateRemovals> {
        self.core.explanations.gates.get(gate)
    }

    /// All gates with observed removals, 128 at most.
    pub fn removed_gates(&self) -> impl Iterator<Item = (&Str, &GateRemovals)> {
        self.core.explanations.gates.all()
    }

    /// The run times of pods, by template.
    pub fn run_times(&self) -> &RunTimes {
        &self.core.explanations.run_times
    }

    /// The last decisions, oldest first.
    pub fn decisions(&self) -> impl DoubleEndedIterator<Item = &PodDecision> {
        self.core.framework.decisions.all()
    }

    /// The approximate number of bytes kept for explanations: the last attempts of pods and the last decisions, without
    /// the objects that they share with the cluster.
    pub fn explanation_bytes(&self) -> usize {
        self.core.explanations.bytes() + self.core.framework.decisions.bytes()
    }

    /// The progress of a pod; `None` for a pod that is in the queue, is bound, or is not known.
    pub fn progress(&self, uid: &str) -> Option<Progress> {
        let core = &self.core;
        if let Some(pod) = self.bindings.pod(uid) {
            let node = pod.pod.spec.node_name.clone();
            return Some(core.framework.unbound.progress(uid, node));
        }
        core.queue
            .in_flight()
            .contains(uid)
            .then(|| Progress::Cycle {
                wait: self.cycle.waits_for().cloned(),
            })
    }

    /// The preemptions for a pod that have not ended.
    pub fn preemptions_for(&self, uid: &str) -> Vec<RunningPreemption> {
        self.core.preemptions.of(uid)
    }

    /// Returns whether extenders are configured.
    pub fn has_extenders(&self) -> bool {
        !self.core.framework.settings.extenders.is_empty()
    }

    /// The number of pods that were scheduled after the periodic flush had moved them; each is a missed wake-up.
    pub fn flush_rescues(&self) -> u64 {
        let rescues = self
            .core
            .framework
            .metrics
            .number(Metric::PodScheduledAfterFlush, &[]);
        rescues as u64
    }
}
