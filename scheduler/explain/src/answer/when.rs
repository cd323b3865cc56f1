//! The estimated start of a pod.

use super::is_default;
use serde::{Deserialize, Serialize};

answers! {
    /// The estimated start of a pod.
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
        /// The numbers of running pods by the source of their estimated end.
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
        /// The number of pods that end earlier.
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
        /// Pods without an estimated end.
        without_end: usize,
    }
}
