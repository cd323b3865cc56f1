//! The steps of a run: a list of steps, drawn from a seed. A step names its objects, so its meaning does not change if
//! other steps are removed; if its object does not exist, the step has no effect.

mod draw;

pub use draw::{CONFIGURATION_SEEDS, GROUP_SEEDS, QUOTA_SEEDS, REJECTION_SEEDS};
mod faults;

pub use faults::{Faults, UnknownFault};

use crate::shapes::{
    Budget, ClaimShape, DeviceWant, DriverShape, GroupShape, NAMESPACES, NodeChange, NodeShape,
    PodShape, QuotaShape, Slow, claim_name, device_claim_name, group_name, quota_name,
};
use berth_api::{Duration, Kind};
use berth_framework::{Feature, FeatureGates};
use berth_scheduler::evaluator::EvaluatorKind;
use std::fmt;

/// The answer of the API to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallAnswer {
    /// The true result: done, or refused for a reason.
    Honest,
    /// 409 although nothing conflicts: another client wrote at the same time.
    Conflict,
    /// 429.
    TooManyRequests,
    /// 500, and nothing was done.
    ServerError,
    /// No answer in time, and the call was not executed.
    TimeoutBefore,
    /// No answer in time, but the call was executed.
    TimeoutAfter,
}

/// A step of a script. Pods, nodes and claims are identified by number. Steps of a scheduler refer to the leading one;
/// see [`Step::Other`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// A user creates a pod.
    CreatePod(usize, PodShape),
    /// A user replaces a pod with another one of the same name.
    ReplacePod(usize, PodShape),
    /// Another client creates a pod on a node.
    PlacePod(usize, PodShape, usize),
    /// A gate of a pod is removed.
    RemoveGate(usize, usize),
    /// A gated pod is restricted to a zone.
    Tighten(usize, &'static str),
    /// A plugin starts to reject a pod by its label, for this reason, or stops.
    Hold(usize, Option<&'static str>),
    /// A namespace, by its index, starts to reject some pods for this reason, or stops.
    Close(usize, Option<&'static str>),
    /// The placement of a pod becomes slow, or normal again.
    Slow(usize, Option<Slow>),
    /// The label of a pod changes.
    Relabel(usize, &'static str),
    /// A toleration is added to a pod.
    Tolerate(usize, &'static str),
    /// The deletion of a pod begins; the pod stays for some time.
    TerminatePod(usize),
    /// A pod is deleted.
    DeletePod(usize),
    /// A pod runs to its end.
    FinishPod(usize),
    /// The kubelet of a pod's node rejects the pod for this reason.
    RejectPod(usize, &'static str),
    /// The pods that are being deleted are removed.
    Reap,
    /// A node is created, possibly again.
    CreateNode(usize, NodeShape),
    /// A node changes.
    ChangeNode(usize, NodeChange),
    /// A node is deleted.
    DeleteNode(usize),
    /// Pods without their node are removed.
    CollectGarbage,
    /// A user creates a claim.
    CreateClaim(usize, ClaimShape),
    /// A claim is deleted, with its volume.
    DeleteClaim(usize),
    /// The controllers bind claims and volumes.
    BindClaims,
    /// The driver of a node, or of the devices that all nodes can use, replaces its published devices.
    PublishDevices(Option<usize>, DriverShape),
    /// Such a driver exits, and its devices are withdrawn.
    WithdrawDevices(Option<usize>),
    /// A user creates a resource claim.
    CreateDeviceClaim(usize, DeviceWant),
    /// A user deletes a resource claim.
    DeleteDeviceClaim(usize),
    /// The controller of resource claims creates and releases claims.
    ManageClaims,
    /// A namespace, by its index, is labelled for another team.
    LabelNamespace(usize, &'static str),
    /// The budget of an application is set: the number of pods that may be evicted.
    SetBudget(Budget),
    /// The budget of an application is removed, so that its pods may be evicted.
    RemoveBudget(&'static str),
    /// A user creates a group of pods.
    CreateGroup(usize, GroupShape),
    /// A user deletes a group of pods that has no pods.
    DeleteGroup(usize),
    /// A user creates a deferred quota, or changes it.
    SetQuota(usize, QuotaShape),
    /// A user deletes a deferred quota.
    DeleteQuota(usize),
    /// A watch delivers a number of events.
    Deliver(Kind, usize),
    /// A watch repeats its last event.
    Repeat(Kind),
    /// A watch breaks, and everything is listed again.
    Relist(Kind),
    /// Time passes.
    Advance(Duration),
    /// The scheduler tries a number of pods.
    Schedule(usize),
    /// A number of calls is answered, starting with this one (modulo the number of calls).
    Answer(usize, usize, CallAnswer),
    /// The API executes this number of calls, starting with this one (modulo the number of calls). They are answered
    /// later, so a watch can show their effect first.
    CarryOut(usize, usize),
    /// A job ends, well or not.
    EndJob(usize, bool),
    /// Every scheduler gets another configuration, by its number; see
    /// [`Subject::configuration`](crate::Subject::configuration). A scheduler with a parked cycle applies it
    /// afterwards.
    Reconfigure(usize),
    /// The scheduler exits and another one starts. Two bits for each pending call: it was executed (1), is never
    /// executed (0), or arrives later (2 and 3).
    Restart(u64),
    /// A call of an exited scheduler arrives (modulo the number of such calls).
    Land(usize),
    /// The scheduler on standby begins to lead. The former leader does not know yet, and continues.
    FailOver,
    /// A former leader notices the new leader and exits; its calls can still arrive. Another scheduler starts on
    /// standby.
    StepDown,
    /// The step for the scheduler that does not lead: it is on standby, or only believes that it leads.
    Other(Box<Step>),
}

/// The name of a pod.
pub(crate) fn pod_name(number: usize) -> String {
    format!("p{number}")
}

/// The name of a node.
pub(crate) fn node_name(number: usize) -> String {
    format!("n{number}")
}

/// The name of a namespace, counted round.
pub(crate) fn namespace_name(at: usize) -> &'static str {
    NAMESPACES[at % NAMESPACES.len()]
}

impl fmt::Display for CallAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Honest => "as is true",
            Self::Conflict => "with 409",
            Self::TooManyRequests => "with 429",
            Self::ServerError => "with 500",
            Self::TimeoutBefore => "with a timeout, not done",
            Self::TimeoutAfter => "with a timeout, but done",
        })
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CreatePod(pod, shape) => write!(f, "create pod p{pod}: {shape}"),
            Self::ReplacePod(pod, shape) => {
                write!(f, "delete pod p{pod} and create it anew: {shape}")
            }
            Self::PlacePod(pod, shape, node) => {
                write!(
                    f,
                    "another client binds pod p{pod} to node n{node}: {shape}"
                )
            }
            Self::RemoveGate(pod, gate) => write!(f, "remove gate {gate} of pod p{pod}"),
            Self::Tighten(pod, zone) => {
                write!(f, "narrow pod p{pod} to zone {zone} if it is gated")
            }
            Self::Hold(pod, Some(reason)) => write!(f, "hold pod p{pod} for {reason}"),
            Self::Hold(pod, None) => write!(f, "stop holding pod p{pod}"),
            Self::Close(at, Some(reason)) => {
                write!(f, "close namespace {} for {reason}", namespace_name(*at))
            }
            Self::Close(at, None) => write!(f, "open namespace {}", namespace_name(*at)),
            Self::Slow(pod, Some(slow)) => write!(f, "make pod p{pod} slow at {}", slow.as_str()),
            Self::Slow(pod, None) => write!(f, "make pod p{pod} quick"),
            Self::Relabel(pod, app) => write!(f, "label pod p{pod} app={app}"),
            Self::Tolerate(pod, taint) => write!(f, "let pod p{pod} tolerate {taint}"),
            Self::TerminatePod(pod) => write!(f, "begin to delete pod p{pod}"),
            Self::DeletePod(pod) => write!(f, "delete pod p{pod}"),
            Self::FinishPod(pod) => write!(f, "pod p{pod} runs to its end"),
            Self::RejectPod(pod, reason) => write!(f, "the kubelet rejects pod p{pod}: {reason}"),
            Self::Reap => f.write_str("pods that are being deleted go"),
            Self::CreateNode(node, shape) => write!(f, "create node n{node}: {shape}"),
            Self::ChangeNode(node, change) => write!(f, "change node n{node}: {change}"),
            Self::DeleteNode(node) => write!(f, "delete node n{node}"),
            Self::CollectGarbage => f.write_str("remove the pods whose node was deleted"),
            Self::CreateClaim(claim, shape) => {
                write!(f, "create claim {}: {shape}", claim_name(*claim))
            }
            Self::DeleteClaim(claim) => {
                write!(f, "delete claim {} if it is not in use", claim_name(*claim))
            }
            Self::BindClaims => f.write_str("the controllers bind claims and volumes"),
            Self::PublishDevices(place, shape) => match place {
                Some(node) => write!(f, "the driver of node n{node} publishes {shape}"),
                None => write!(f, "the driver of the network publishes {shape}"),
            },
            Self::WithdrawDevices(Some(node)) => write!(f, "the driver of node n{node} exits"),
            Self::WithdrawDevices(None) => f.write_str("the driver of the network exits"),
            Self::CreateDeviceClaim(claim, want) => write!(
                f,
                "create resource claim {} for {want}",
                device_claim_name(*claim)
            ),
            Self::DeleteDeviceClaim(claim) => {
                write!(f, "delete resource claim {}", device_claim_name(*claim))
            }
            Self::ManageClaims => {
                f.write_str("the controller creates and releases resource claims")
            }
            Self::LabelNamespace(at, team) => {
                write!(f, "label namespace {} team={team}", namespace_name(*at))
            }
            Self::SetBudget(budget) => write!(f, "set the budget: {budget}"),
            Self::RemoveBudget(app) => write!(f, "remove the budget of app {app}"),
            Self::CreateGroup(group, shape) => {
                write!(f, "create group {}: {shape}", group_name(*group))
            }
            Self::DeleteGroup(group) => {
                write!(f, "delete group {} if it has no pods", group_name(*group))
            }
            Self::SetQuota(quota, shape) => write!(f, "set quota {}: {shape}", quota_name(*quota)),
            Self::DeleteQuota(quota) => write!(f, "delete quota {}", quota_name(*quota)),
            Self::Deliver(what, count) => {
                write!(f, "the watch of {} delivers {count}", plural(*what))
            }
            Self::Repeat(what) => {
                write!(f, "the watch of {} repeats its last event", plural(*what))
            }
            Self::Relist(what) => write!(f, "the watch of {} breaks: relist", plural(*what)),
            Self::Advance(span) => write!(f, "{} ms pass", span.as_millis()),
            Self::Schedule(count) => write!(f, "schedule {count}"),
            Self::Answer(first, count, answer) => {
                write!(f, "answer {count} calls from {first} on {answer}")
            }
            Self::CarryOut(first, count) => {
                write!(
                    f,
                    "carry out {count} calls from {first} on and answer them later"
                )
            }
            Self::EndJob(job, true) => write!(f, "job {job} ends well"),
            Self::EndJob(job, false) => write!(f, "job {job} fails"),
            Self::Reconfigure(at) => write!(f, "the schedulers take over configuration {at}"),
            Self::Restart(fate) => {
                write!(f, "the scheduler restarts (fate of its calls: {fate:b})")
            }
            Self::Land(at) => write!(f, "call {at} of a dead scheduler arrives"),
            Self::FailOver => f.write_str("the standby scheduler begins to lead"),
            Self::StepDown => f.write_str("the scheduler that does not lead any more detects it"),
            Self::Other(step) => write!(f, "the other scheduler: {step}"),
        }
    }
}

fn plural(kind: Kind) -> &'static str {
    let (_, _, plural) = kind.resource();
    plural
}

/// All parameters of a run except the judged scheduler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Script {
    /// The seed of the scheduler.
    pub seed: u64,
    /// The feature gates.
    pub features: FeatureGates,
    /// The evaluator.
    pub evaluator: EvaluatorKind,
    /// Whether another scheduler is on standby.
    pub standby: bool,
    /// The steps.
    pub steps: Vec<Step>,
}

/// The gates that differ between seeds.
const VARIED: [Feature; 5] = [
    Feature::SchedulerAsyncAPICalls,
    Feature::SchedulerPreEnqueuePodStatus,
    Feature::SchedulerPopFromBackoffQ,
    Feature::SchedulerPreQueueingHints,
    Feature::NominatedNodeNameForExpectation,
];

impl Script {
    /// The gates that differ from the defaults, in the format of `--feature-gates`.
    pub fn unusual_features(&self) -> String {
        let usual = FeatureGates::of(self.features.release());
        let unusual = VARIED
            .iter()
            .filter(|feature| self.features.enabled(**feature) != usual.enabled(**feature));
        let texts: Vec<String> = unusual
            .map(|feature| format!("{feature}={}", self.features.enabled(*feature)))
            .collect();
        texts.join(",")
    }

    /// The settings of the run without its steps, in one line.
    pub fn setting(&self) -> String {
        let features = self.unusual_features();
        let parts = [
            Some(format!("Kubernetes {}", self.features.release())),
            Some(features).filter(|features| !features.is_empty()),
            Some(format!("the {} evaluator", self.evaluator)),
            self.standby
                .then(|| "a second scheduler on standby".to_owned()),
        ];
        parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}
