//! The answer to the question when a pod starts.

use super::is_default;
use serde::{Deserialize, Serialize};

answers! {
    /// When a pod starts.
    WhenAnswer {
        /// The namespace of the pod.
        namespace: String,
        /// The name of the pod.
        name: String,
        /// The time of the answer.
        at: String,
        /// The earliest estimated start.
        earliest: Option<PlayedStart>,
        /// The latest estimated start.
        latest: Option<PlayedStart>,
        /// The reason why the start, or the latest start, is not known.
        unknown: Option<String>,
        /// The running pods, by what is known of their ends.
        running: RunningPods,
        /// The assumptions of the estimate.
        assumptions: Vec<String>,
    }
    /// The start of a pod in a play.
    PlayedStart {
        /// The time.
        at: String,
        /// The same in seconds from the time of the answer.
        seconds: u64,
        /// The node.
        node: String,
        /// The number of pods that end before.
        ended_pods: usize,
        /// The last of them, `namespace/name`.
        after: Option<String>,
    }
    /// Numbers of running pods.
    RunningPods {
        /// Pods that end by the run times of their template.
        by_run_times: usize,
        /// Pods that end at a deadline.
        by_deadline: usize,
        /// Pods that run longer than all earlier pods of their template.
        overdue: usize,
        /// Pods of which no end is known.
        without_end: usize,
    }
}
