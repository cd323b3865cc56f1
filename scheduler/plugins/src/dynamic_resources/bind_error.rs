//! The reasons why the devices of a pod's claims cannot be bound: the pod is retried.

use berth_api::Str;
use berth_framework::CallError;

/// A claim cannot be written or used. The texts are kube-scheduler's where it has one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum BindError {
    #[error("claim {0} got deleted in the meantime")]
    Deleted(String),
    #[error("claim {0} got allocated elsewhere in the meantime")]
    Allocated(String),
    #[error("claim {0} got deallocated elsewhere in the meantime")]
    Deallocated(String),
    /// The write of a claim.
    #[error("{action} {claim}: {error}")]
    Write {
        action: &'static str,
        claim: String,
        error: CallError,
    },
    /// The write of a pod's status.
    #[error("update pod {pod} {field}: {error}")]
    PodStatus {
        pod: String,
        field: &'static str,
        error: CallError,
    },
    /// The error of the write of the named claim or pod.
    #[error("updating {object}: no answer within {seconds} s")]
    NoAnswer { object: String, seconds: u64 },
    #[error(
        "create claim for extended resources {claim}: the watch does not show it after {seconds} s"
    )]
    NotShown { claim: String, seconds: u64 },
    #[error("create claim for extended resources {0}: a claim of that name exists")]
    NameTaken(String),
    /// A device reports that it cannot be bound.
    #[error("{0}")]
    Condition(String),
    #[error("device binding timeout: claim={0}")]
    Late(Str),
    #[error("device binding timeout: context deadline exceeded")]
    Deadline,
}
