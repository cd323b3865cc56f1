//! The errors of a run: an unusable file, and a workload without a result.

/// An unusable workload file. Found before any process is started.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {message}")]
pub struct FileError {
    /// File, test case, workload and field.
    pub place: String,
    /// The fault, and the way out.
    pub message: String,
}

impl FileError {
    pub(super) fn new(place: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            place: place.into(),
            message: message.into(),
        }
    }
}

/// The reason for a missing result of a workload.
#[derive(Debug, Clone, thiserror::Error)]
pub enum RunError {
    /// The scheduler or the API server of this run lacks a feature that the workload needs.
    #[error("cannot run here: {0}")]
    Unsupported(String),
    /// The cluster could not be started.
    #[error("failed to start the cluster: {0}")]
    Start(String),
    /// A request of an operation failed.
    #[error("op {op} ({opcode}): {message}")]
    Operation {
        /// The index of the operation, after pod sets were unrolled.
        op: usize,
        /// Its opcode.
        opcode: &'static str,
        /// The event.
        message: String,
    },
    /// Pods did not reach the required state in time.
    #[error(
        "op {op} ({opcode}): {reached} of {wanted} pods were {stage} in namespace {namespace} within {limit_seconds} s; {detail}"
    )]
    Wait {
        /// The index of the operation.
        op: usize,
        /// Its opcode.
        opcode: &'static str,
        /// `scheduled` or `attempted`.
        stage: &'static str,
        /// The namespace.
        namespace: String,
        /// The number of pods that reached the state.
        reached: usize,
        /// The required number.
        wanted: usize,
        /// The limit, in seconds.
        limit_seconds: u64,
        /// A pod that did not reach it, and the reason from its condition.
        detail: String,
    },
    /// The pods of the workload could not be watched without a gap.
    #[error("lost the watch of {0}; a result would be incomplete")]
    Watch(String),
    /// A process of the cluster ended during the run.
    #[error("{0}")]
    Ended(String),
    /// The verifier found violations of the scheduler.
    #[error("the result is void: {count} violations; the first: {first}")]
    Violations {
        /// The number.
        count: usize,
        /// The first of them.
        first: String,
    },
}
