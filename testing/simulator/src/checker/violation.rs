//! The violations that the checker may find.

use crate::rules::Broken;
use berth_api::Str;
use std::fmt;

/// A violation: a state or action that must not occur, or the absence of a required one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Violation {
    /// A pod was bound to a second node, or again while its binding exists or is in progress.
    DoubleBind {
        /// The pod.
        pod: Str,
        /// The node of the earlier binding.
        first: Str,
        /// The node of the later one.
        second: Str,
    },
    /// A pod with scheduling gates was assigned to a node.
    GateBypassed {
        /// The pod.
        pod: Str,
    },
    /// The pods of a node exceed its capacity.
    Overcommit {
        /// The node.
        node: Str,
        /// The pod that exceeds the capacity.
        pod: Str,
        /// The resource, port or volume.
        resource: String,
    },
    /// A pod was assigned to a node on which it may not run.
    Misplaced {
        /// The pod.
        pod: Str,
        /// The node.
        node: Str,
        /// The broken rule.
        rule: &'static str,
    },
    /// A pod was deleted as a victim without need.
    NeedlessPreemption {
        /// The pod that was deleted.
        victim: Str,
        /// The reason why it is wrong.
        reason: String,
    },
    /// A pod preempts again while the victims of its previous preemption are still being deleted.
    RepeatedPreemption {
        /// The preempting pod.
        pod: Str,
        /// The pod that was deleted for it.
        victim: Str,
        /// The previous victim that is still being deleted.
        earlier: Str,
    },
    /// A pod still waits after the run is at rest, although it fits on a node.
    Lost {
        /// The pod.
        pod: Str,
        /// A node where it fits.
        node: Str,
        /// The place of the pod in the scheduler.
        whereabouts: String,
    },
    /// The scheduler still has state for a pod after the run is at rest, and the pod does not exist.
    Unresolved {
        /// The remaining object.
        what: String,
    },
    /// A pod's PodScheduled condition is wrong after the run is at rest.
    StatusWrong {
        /// The pod.
        pod: Str,
        /// The message of the condition.
        condition: String,
        /// The expected message.
        expected: String,
    },
    /// The nominated node in a pod's status differs from the node that is kept free for it after the run is at
    /// rest.
    NominationWrong {
        /// The pod.
        pod: Str,
        /// The node in its status; empty for none.
        statement: Str,
        /// The node that the scheduler keeps free; empty for none.
        kept: Str,
    },
    /// The nominated node in a pod's status differs from the last written node after the run is at rest.
    NominationStays {
        /// The pod.
        pod: Str,
        /// The node in its status; empty for none.
        statement: Str,
        /// The node that was written last; empty if the nomination was cleared.
        written: Str,
    },
    /// A gang has started with too few members.
    ShortGang {
        /// The group.
        group: Str,
        /// The number of placed members.
        placed: usize,
        /// The required number of placed members.
        wanted: usize,
    },
    /// A node is kept free for a member of a group for longer than a failed binding or a preemption takes.
    HeldRoom {
        /// The pod.
        pod: Str,
        /// The node.
        node: Str,
    },
    /// A pod of another scheduler was assigned to a node or got a status.
    ForeignPod {
        /// The pod.
        pod: Str,
    },
    /// A pod's status is written with the message that PreEnqueue rejects the pod, but that is not true or need not be
    /// reported.
    IncorrectReport {
        /// The pod.
        pod: Str,
        /// The written message of the status.
        statement: String,
        /// The expected message.
        expected: String,
    },
    /// A device is allocated to a claim that must not have it.
    WrongDevice {
        /// The claim.
        claim: Str,
        /// The device, or the request.
        device: String,
        /// The broken rule.
        problem: &'static str,
    },
    /// A device is allocated to two claims in the API.
    SharedDevice {
        /// The object.
        what: String,
    },
    /// After the run is at rest, a pod has a node, and one of its claims is not reserved for it.
    NotReserved {
        /// The pod.
        pod: Str,
        /// The claim.
        claim: Str,
    },
    /// The usage of a deferred quota exceeds its limits.
    QuotaExceeded {
        /// The quota.
        quota: Str,
        /// The pod that exceeds the quota; empty if the API shows too many.
        pod: Str,
        /// The key with the amounts.
        what: String,
    },
    /// A pod is admitted by a deferred quota before an earlier pod of a strict line.
    Overtaken {
        /// The quota.
        quota: Str,
        /// The pod that passes.
        pod: Str,
        /// The pod that waits.
        first: Str,
    },
    /// Deferred quotas admitted some members of a gang, and others not.
    SplitGang {
        /// A member that does not pass.
        pod: Str,
    },
    /// A pod waits for deferred quotas that have room for it.
    NeedlessWait {
        /// The pod.
        pod: Str,
    },
    /// The status of a deferred quota is wrong after the run is at rest.
    QuotaStatusWrong {
        /// The quota.
        quota: Str,
        /// The difference.
        what: String,
    },
    /// The scheduler's own records are inconsistent.
    InconsistentState(String),
    /// The scheduler panicked.
    Panic {
        /// The message.
        message: String,
        /// File and line.
        place: String,
    },
    /// Some activity does not end.
    EndlessActivity {
        /// The unfinished work.
        what: String,
    },
}

impl Violation {
    /// The kind of violation, in a word.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::DoubleBind { .. } => "double bind",
            Self::GateBypassed { .. } => "bypassed gate",
            Self::Overcommit { .. } => "overcommit",
            Self::Misplaced { .. } => "misplaced",
            Self::NeedlessPreemption { .. } => "needless preemption",
            Self::RepeatedPreemption { .. } => "repeated preemption",
            Self::Lost { .. } => "lost pod",
            Self::Unresolved { .. } => "unresolved",
            Self::StatusWrong { .. } => "wrong status",
            Self::NominationWrong { .. } | Self::NominationStays { .. } => "wrong nomination",
            Self::ShortGang { .. } => "short gang",
            Self::HeldRoom { .. } => "held room",
            Self::ForeignPod { .. } => "foreign pod",
            Self::IncorrectReport { .. } => "incorrect report",
            Self::WrongDevice { .. } => "wrong device",
            Self::SharedDevice { .. } => "shared device",
            Self::NotReserved { .. } => "no reservation",
            Self::QuotaExceeded { .. } => "exceeded quota",
            Self::Overtaken { .. } => "overtaken pod",
            Self::SplitGang { .. } => "split gang",
            Self::NeedlessWait { .. } => "needless wait",
            Self::QuotaStatusWrong { .. } => "wrong quota status",
            Self::InconsistentState(_) => "inconsistent state",
            Self::Panic { .. } => "panic",
            Self::EndlessActivity { .. } => "endless activity",
        }
    }
}

impl From<Broken> for Violation {
    fn from(broken: Broken) -> Self {
        match broken {
            Broken::Exceeded { quota, pod, what } => Self::QuotaExceeded { quota, pod, what },
            Broken::Overtaken { quota, pod, first } => Self::Overtaken { quota, pod, first },
            Broken::Split { pod } => Self::SplitGang { pod },
            Broken::Needless { pod } => Self::NeedlessWait { pod },
        }
    }
}

impl Violation {
    /// Returns whether both are of one kind, and panics in one place.
    pub fn is_like(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Panic { place, .. }, Self::Panic { place: other, .. }) => place == other,
            _ => self.kind() == other.kind(),
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.kind())?;
        match self {
            Self::DoubleBind { pod, first, second } => write!(
                f,
                "pod {pod} is sent to node {second} though it is bound or being bound to {first}"
            ),
            Self::GateBypassed { pod } => {
                write!(
                    f,
                    "pod {pod} is given a node though it has scheduling gates"
                )
            }
            Self::Overcommit {
                node,
                pod,
                resource,
            } => {
                write!(
                    f,
                    "pod {pod} is one too many on node {node}: not enough {resource}"
                )
            }
            Self::Misplaced { pod, node, rule } => {
                write!(f, "pod {pod} may not run on node {node}: {rule}")
            }
            Self::NeedlessPreemption { victim, reason } => {
                write!(f, "pod {victim} is deleted to make room: {reason}")
            }
            Self::RepeatedPreemption {
                pod,
                victim,
                earlier,
            } => write!(
                f,
                "pod {victim} is deleted to make room for pod {pod} while pod {earlier} is still being deleted for it"
            ),
            Self::Lost {
                pod,
                node,
                whereabouts,
            } => write!(
                f,
                "pod {pod} fits on node {node} and is left in {whereabouts} (the periodic flush is off)"
            ),
            Self::Unresolved { what } => write!(f, "at rest there is still {what}"),
            Self::StatusWrong {
                pod,
                condition,
                expected,
            } => write!(
                f,
                "pod {pod} states PodScheduled {condition}, expected {expected}"
            ),
            Self::NominationWrong {
                pod,
                statement,
                kept,
            } => write!(
                f,
                "pod {pod} is nominated to {statement:?} by its status, and {kept:?} is kept free for it"
            ),
            Self::NominationStays {
                pod,
                statement,
                written,
            } => write!(
                f,
                "pod {pod} is nominated to {statement:?} by its status, and {written:?} was written last"
            ),
            Self::HeldRoom { pod, node } => {
                write!(f, "node {node} is kept free for pod {pod} for no reason")
            }
            Self::ShortGang {
                group,
                placed,
                wanted,
            } => {
                write!(f, "group {group} starts with {placed} of {wanted} members")
            }
            Self::ForeignPod { pod } => write!(f, "pod {pod} is for another scheduler to place"),
            Self::IncorrectReport {
                pod,
                statement,
                expected,
            } => write!(
                f,
                "pod {pod} is written with PodScheduled False {statement}, expected {expected}"
            ),
            Self::WrongDevice {
                claim,
                device,
                problem,
            } => write!(f, "claim {claim} is given {device}: {problem}"),
            Self::SharedDevice { what } => f.write_str(what),
            Self::NotReserved { pod, claim } => {
                write!(
                    f,
                    "pod {pod} has a node, and its claim {claim} is not reserved for it"
                )
            }
            Self::QuotaExceeded { quota, pod, what } if pod.is_empty() => {
                write!(f, "the API shows more than quota {quota} has: {what}")
            }
            Self::QuotaExceeded { quota, pod, what } => {
                write!(f, "pod {pod} is one too many for quota {quota}: {what}")
            }
            Self::Overtaken { quota, pod, first } => {
                write!(
                    f,
                    "pod {pod} passes quota {quota} before pod {first}, which is earlier in line"
                )
            }
            Self::SplitGang { pod } => {
                write!(
                    f,
                    "pod {pod} waits for quotas, and other members of its gang pass"
                )
            }
            Self::NeedlessWait { pod } => {
                write!(f, "pod {pod} waits for quotas that have room for it")
            }
            Self::QuotaStatusWrong { quota, what } => {
                write!(f, "the status of quota {quota} is wrong: {what}")
            }
            Self::InconsistentState(text) => f.write_str(text),
            Self::Panic { message, place } => write!(f, "{message} ({place})"),
            Self::EndlessActivity { what } => write!(f, "without faults there is still {what}"),
        }
    }
}
