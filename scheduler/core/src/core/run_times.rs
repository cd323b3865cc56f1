//! The run times of pods by template: from the start on a node to the end. Explanations estimate the end of running
//! pods from them.

use berth_api::pod::PodTemplate;
use berth_api::{Duration, Pod, Shared, Str, Time};
use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;
use std::collections::VecDeque;

/// The number of templates with recorded run times; the template whose last end is the oldest is dropped first.
const TEMPLATES_MAX: usize = 1024;
/// The number of recorded run times per template, the latest ones.
const SAMPLES_MAX: usize = 64;

/// Pods that run for similar times: pods of one kind of controller in a namespace whose specs are equal, as far as the
/// scheduler reads them. So the pods of successive Jobs of a CronJob have one template.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct RunTemplate {
    namespace: Str,
    controller: Option<Str>,
    spec: Shared<PodTemplate>,
}

impl RunTemplate {
    fn of(pod: &Pod) -> Self {
        let controller = pod.metadata.controller();
        Self {
            namespace: pod.namespace().clone(),
            controller: controller.map(|controller| controller.kind.clone()),
            spec: pod.spec.template.clone(),
        }
    }
}

/// The run times of one template.
#[derive(Debug, Clone, Default)]
struct Samples {
    /// The last run times, the latest last.
    times: VecDeque<Duration>,
    /// The number of the last pod among all that ended.
    last: u64,
}

/// The run times of pods that have ended, by template.
#[derive(Debug, Clone, Default)]
pub struct RunTimes {
    by_template: IndexMap<RunTemplate, Samples, FxBuildHasher>,
    /// The number of pods that have ended.
    count: u64,
}

impl RunTimes {
    /// A pod has ended on its node. Pods that did not run, or were deleted while running, are not recorded.
    pub(crate) fn ended(&mut self, pod: &Pod, now: Time) {
        let has_run = pod.is_assigned() && pod.status.phase == "Running" && !pod.is_terminating();
        let Some(start) = pod.status.start_time.filter(|_| has_run) else {
            return;
        };
        self.count += 1;
        let template = RunTemplate::of(pod);
        if self.by_template.len() >= TEMPLATES_MAX && !self.by_template.contains_key(&template) {
            let samples = self.by_template.values().enumerate();
            let oldest = samples.min_by_key(|(_, samples)| samples.last);
            if let Some((at, _)) = oldest {
                self.by_template.swap_remove_index(at);
            }
        }
        let samples = self.by_template.entry(template).or_default();
        samples.last = self.count;
        samples.times.push_back(now.since(start));
        if samples.times.len() > SAMPLES_MAX {
            samples.times.pop_front();
        }
    }

    /// The last run times of pods of the template of a pod, oldest first; none if no such pod has ended.
    pub fn of(&self, pod: &Pod) -> impl Iterator<Item = Duration> {
        let samples = self.by_template.get(&RunTemplate::of(pod));
        samples
            .into_iter()
            .flat_map(|samples| samples.times.iter().copied())
    }

    /// The number of templates with a run time.
    pub fn len(&self) -> usize {
        self.by_template.len()
    }

    /// Returns whether no pod has ended.
    pub fn is_empty(&self) -> bool {
        self.by_template.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_framework::testing::{PodBuilder, pod};

    fn running(name: &str, cpu: usize) -> PodBuilder {
        let running = pod(name).request("cpu", &cpu.to_string()).on("n");
        running
            .phase("Running")
            .with(|pod| pod.status.start_time = Some(Time::EPOCH))
    }

    fn times(run_times: &RunTimes, cpu: usize) -> Vec<u64> {
        let pod = pod("next").request("cpu", &cpu.to_string()).build();
        run_times.of(&pod).map(|time| time.as_secs()).collect()
    }

    #[test]
    fn pods_that_ended_have_run_times() {
        let mut run_times = RunTimes::default();
        for (pod, end) in [
            (running("a", 1), 10),
            (running("b", 1), 20),
            (running("c", 2), 30),
            (running("deleted", 1).deleting(Time::EPOCH), 40),
            (running("never started", 1).phase("Pending"), 50),
            (running("elsewhere", 1).namespace("other"), 60),
        ] {
            run_times.ended(&pod.build(), Time::from_secs(end));
        }
        assert_eq!(times(&run_times, 1), [10, 20]);
        assert_eq!(times(&run_times, 2), [30]);
        assert_eq!(times(&run_times, 3), [0; 0]);
    }

    #[test]
    fn the_memory_has_limits() {
        let mut run_times = RunTimes::default();
        for end in 0..2 * SAMPLES_MAX {
            let now = Time::from_secs(i64::try_from(end).unwrap_or(i64::MAX));
            run_times.ended(&running("p", 1).build(), now);
        }
        assert_eq!(times(&run_times, 1).len(), SAMPLES_MAX);
        assert_eq!(times(&run_times, 1)[0], SAMPLES_MAX as u64);
        for cpu in 2..=TEMPLATES_MAX + 1 {
            run_times.ended(&running("p", cpu).build(), Time::from_secs(5));
        }
        assert_eq!(run_times.len(), TEMPLATES_MAX);
        assert!(times(&run_times, 1).is_empty(), "its last pod ended first");
        assert_eq!(times(&run_times, 2), [5]);
    }
}
