//! The workloads of a queue that fit now.

use super::{PendingPod, PlacedPod, WhatIfWorld, WorkloadFit};
use berth_api::{Object, Pod, Str};
use std::sync::Arc;

impl WhatIfWorld {
    /// Schedules a workload without preemption and without its scheduling gates. If not all of its pods fit, they are
    /// removed again.
    pub fn fit_workload(&mut self, pods: &[Arc<Pod>]) -> WorkloadFit {
        for pod in pods.iter().filter(|pod| !pod.is_assigned()) {
            let mut pod = Pod::clone(pod);
            pod.spec.scheduling_gates = Default::default();
            pod.spec.preemption_policy = Some("Never".into());
            pod.status.nominated_node_name = Str::default();
            self.engine.set(Object::Pod(Arc::new(pod)));
        }
        self.run();
        let mut fit = WorkloadFit::default();
        for pod in pods {
            let key = pod.key();
            let assigned = pod.is_assigned().then(|| pod.spec.node_name.to_string());
            match self.placed.get(&key).cloned().or(assigned) {
                Some(node) => fit.placed.push(PlacedPod { pod: key, node }),
                None => fit.pending.push(PendingPod {
                    reason: self.reason_of_waiting(pod),
                    pod: key,
                }),
            }
        }
        if !fit.pending.is_empty() {
            for pod in pods.iter().filter(|pod| !pod.is_assigned()) {
                self.engine.delete_pod(pod.uid());
                self.placed.remove(&pod.key());
            }
        }
        fit
    }

    /// The reason why a pod waits, in the state of this world.
    fn reason_of_waiting(&self, pod: &Pod) -> String {
        let scheduler_name = &pod.spec.scheduler_name;
        if self.scheduler().profiles().get(scheduler_name).is_none() {
            return format!("no profile has the scheduler name {scheduler_name:?}");
        }
        let pod = self.engine.pod(pod.uid());
        pod.map_or_else(String::new, |pod| self.reason_for(pod))
    }
}
