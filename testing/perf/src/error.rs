//! The errors of measurements of the core.

/// The reason why nothing could be measured.
#[derive(Debug, thiserror::Error)]
pub enum PerfError {
    /// The default profile cannot be built: a bug.
    #[error("failed to set up the scheduler: {0}")]
    Setup(String),
    /// A pod of the generated cluster was not scheduled: a bug.
    #[error("pod {0} of {1} was not scheduled")]
    Unscheduled(usize, usize),
    /// A pod or node of the generated cluster does not exist: a bug.
    #[error("a generated pod or node is missing")]
    Missing,
    /// The operating system does not report the memory of processes.
    #[error("failed to read the resident memory from /proc/self/status; this needs Linux")]
    NoProc,
    /// The core stopped before all pods were handled: a bug.
    #[error(
        "{row}: the scheduler came to rest with {left} of {pods} pods undecided on {nodes} nodes"
    )]
    Stuck {
        /// The row.
        row: String,
        /// Nodes of the cluster.
        nodes: usize,
        /// Pods of the cluster.
        pods: usize,
        /// Pods without a decision.
        left: usize,
    },
}
