//! Extension points that can wait: PostFilter, Reserve, Permit, PreBind and Bind.
//!
//! No step blocks. A step that cannot finish returns the event to wait for; the plugin is called again with the result
//! of the wait ([`Wake`]).

use crate::call::{ApiCall, CallId, CallResult, ConditionPatch, PodEvent, PodRef};
use crate::cluster::Cluster;
use crate::extender::Extenders;
use crate::features::FeatureGates;
use crate::job::{self, Job, JobError, JobId, JobResult};
use crate::object_name::ObjectName;
use crate::pod_info::PodInfo;
use crate::status::{Code, Status};
use crate::write::{PodEdit, Write};
use berth_api::{Duration, Str, Time};
use std::any::Any;
use std::cell::Cell;
use std::fmt;
use std::future::Future;
use std::sync::Arc;

/// The progress of a step of an extension point.
#[derive(Debug)]
pub enum Step {
    /// It is done.
    Done(Status),
    /// The plugin is called again after this event.
    Wait(Wait),
}

impl Step {
    /// Done, with success.
    pub fn success() -> Self {
        Self::Done(Status::success())
    }
}

/// The wait of a step. Every wait has a limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wait {
    /// The awaited event.
    pub on: WaitOn,
    /// The latest end of the wait, with [`WakeReason::Deadline`]; with [`WaitOn::Timer`] the wait is for this
    /// time.
    pub deadline: Time,
}

/// The events that a step can wait for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WaitOn {
    /// The result of an API call.
    Call(CallId),
    /// The result of a job.
    Job(JobId),
    /// A change of one of these objects: it was added, changed or deleted, or an assumption about it was reverted.
    Objects(Vec<ObjectName>),
    /// The deadline alone.
    Timer,
}

/// The reasons for which a step that waited is called again.
pub enum WakeReason {
    /// The call has ended.
    Call(CallResult),
    /// The job has ended.
    Job(JobResult),
    /// One of the objects has changed.
    Object,
    /// The deadline of a [`WaitOn::Timer`] was reached.
    Timer,
    /// The awaited event did not happen before the deadline.
    Deadline,
}

impl WakeReason {
    /// The value of the job that the step waited for; see [`StageContext::wait_for_job`].
    ///
    /// # Errors
    /// Why there is no value: the job failed, or did not end before the deadline.
    pub fn into_value<T: Any>(self) -> Result<T, JobError> {
        match self {
            Self::Job(Ok(value)) => match value.downcast() {
                Ok(value) => Ok(*value),
                Err(_) => Err(JobError::OtherType),
            },
            Self::Job(Err(error)) => Err(error),
            Self::Deadline => Err(JobError::Deadline),
            Self::Call(_) => Err(JobError::OtherWait("an API call ended")),
            Self::Object => Err(JobError::OtherWait("an object changed")),
            Self::Timer => Err(JobError::OtherWait("a timer ended")),
        }
    }

    /// Returns whether the plugin must read the reason, because the job or call may have failed.
    fn may_be_failure(&self) -> bool {
        matches!(self, Self::Call(_) | Self::Job(_) | Self::Deadline)
    }
}

impl fmt::Debug for WakeReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Call(result) => f.debug_tuple("Call").field(result).finish(),
            Self::Job(result) => f
                .debug_tuple("Job")
                .field(&result.as_ref().map(|_| "value"))
                .finish(),
            Self::Object => f.write_str("Object"),
            Self::Timer => f.write_str("Timer"),
            Self::Deadline => f.write_str("Deadline"),
        }
    }
}

/// The end of a plugin's wait. The plugin must read [`Wake::reason`]: see [`call_plugin`].
#[derive(Debug)]
pub struct Wake<'a> {
    reason: WakeReason,
    is_read: Option<&'a Cell<bool>>,
}

impl Wake<'_> {
    /// The result of the wait.
    pub fn reason(self) -> WakeReason {
        if let Some(is_read) = self.is_read {
            is_read.set(true);
        }
        self.reason
    }

    /// The value of the job that the step waited for; see [`WakeReason::into_value`].
    ///
    /// # Errors
    /// Why there is no value.
    pub fn into_value<T: Any>(self) -> Result<T, JobError> {
        self.reason().into_value()
    }
}

/// For tests that call a plugin directly.
impl From<WakeReason> for Wake<'_> {
    fn from(reason: WakeReason) -> Self {
        Self {
            reason,
            is_read: None,
        }
    }
}

/// The answer of a plugin at an extension point that may have effects.
pub trait Answer {
    /// The code of the answer, as metrics name it.
    fn code(&self) -> Code;
    /// Returns whether the plugin waits and must be called again.
    fn waits(&self) -> bool;
    /// The answer of a plugin that failed with this text.
    fn failed(text: &str) -> Self;
}

impl Answer for Step {
    fn code(&self) -> Code {
        match self {
            Self::Done(status) => status.code(),
            Self::Wait(_) => Code::Wait,
        }
    }

    fn waits(&self) -> bool {
        matches!(self, Self::Wait(_))
    }

    fn failed(text: &str) -> Self {
        Self::Done(Status::error(text))
    }
}

/// For extension points that cannot wait.
impl Answer for Status {
    fn code(&self) -> Code {
        Self::code(self)
    }

    fn waits(&self) -> bool {
        false
    }

    fn failed(text: &str) -> Self {
        Self::error(text)
    }
}

/// For extension points without an answer.
impl Answer for () {
    fn code(&self) -> Code {
        Code::Success
    }

    fn waits(&self) -> bool {
        false
    }

    fn failed(_text: &str) -> Self {}
}

/// The error of a plugin that does not read the result of its wait.
const UNREAD_WAKE: &str =
    "the plugin was called again after a wait and did not look at how the wait had ended";

/// Calls a plugin at an extension point that can wait: first without a wake-up, and after each wait with its result.
///
/// A plugin that waits and does not read the result is never successful, because the job or call may have failed. Its
/// answer becomes an error, unless it is a failure already.
pub fn call_plugin<A: Answer>(
    reason: Option<WakeReason>,
    call: impl FnOnce(Option<Wake<'_>>) -> A,
) -> A {
    let Some(reason) = reason else {
        return call(None);
    };
    let is_read = Cell::new(!reason.may_be_failure());
    let answer = call(Some(Wake {
        reason,
        is_read: Some(&is_read),
    }));
    match answer.code() {
        Code::Success | Code::Skip | Code::Wait if !is_read.get() => A::failed(UNREAD_WAKE),
        _ => answer,
    }
}

/// A pod that has a node and is held by Permit plugins.
#[derive(Debug, Clone)]
pub struct WaitingPod {
    /// The pod.
    pub pod: Arc<PodInfo>,
    /// Its node.
    pub node: Str,
    /// The Permit plugins that have not allowed it yet.
    pub pending_plugins: Vec<Str>,
}

/// A victim of a preemption.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Eviction {
    /// The condition with the reason of the eviction.
    pub condition: ConditionPatch,
    /// The event about the victim that is published after its eviction. The note ends with [`Eviction::IN_MEMORY`] if
    /// the eviction needed no call.
    pub event: PodEvent,
}

impl Eviction {
    /// The end of the note about a victim that was not bound yet and was stopped in memory.
    pub const IN_MEMORY: &str = " (in kube-scheduler memory).";

    /// The call that evicts the victim.
    pub fn call(&self) -> ApiCall {
        ApiCall::DeletePod {
            pod: self.event.regarding.clone(),
            condition: self.condition.clone(),
        }
    }
}

/// Pods that are evicted so that another pod fits. See [`Outbox::start_preemption`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Preemption {
    /// The pod for which they are evicted.
    pub preemptor: PodRef,
    /// The kind of the preemptor, a label of metrics: `pod`, `podgroup` or `compositepodgroup`.
    pub kind: &'static str,
    /// The plugin that evicts them.
    pub plugin: Str,
    /// The victims, the most important first.
    pub victims: Vec<Eviction>,
}

/// Something that a plugin did and that metrics count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Observation {
    /// It searched for victims.
    PreemptionAttempt,
    /// It selected victims.
    Preemption(Disruption),
    /// It failed to assume volumes for a pod, or to bind them: `assume` or `bind`.
    VolumeStageFailed(&'static str),
}

/// The victims of a preemption, as metrics count them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Disruption {
    /// The kind of the preemptor: `pod`, `podgroup` or `compositepodgroup`.
    pub preemptor: &'static str,
    /// The number of victims.
    pub victims: usize,
    /// The number of units that are evicted: pods alone, and groups that are evicted as a whole.
    pub units: usize,
    /// The number of victims whose eviction violates a PodDisruptionBudget.
    pub violations: usize,
}

/// The interface through which plugins request API calls, jobs, events, and decisions about other pods.
///
/// No method has a default: each implementation states what it ignores.
pub trait Outbox {
    /// Hands an API call to the dispatcher.
    fn call(&mut self, call: ApiCall) -> CallId;
    /// Hands a job to the edge.
    fn job(&mut self, job: Job) -> JobId;
    /// Publishes an event.
    fn publish(&mut self, event: PodEvent);
    /// Shows the object as if the write had been made (see [`Write::seen_as`]), from the end of this step until the API
    /// shows a later version than the version of the write, or until it is [reverted](Self::revert). A write for any
    /// version is shown until it is reverted. An object has at most one assumed write; a later one replaces it. Only
    /// for kinds that the scheduler follows, and not for pods and nodes. The write itself is a separate
    /// [call](Self::call).
    fn assume(&mut self, write: Write);
    /// Reverts [`Self::assume`], if the write is not made or its result is not known: the object is shown as the API
    /// has it, and the call is dropped if it was not sent.
    fn revert(&mut self, write: Write);
    /// Reverts [`Self::assume`] of a write that is a [call](Self::call) as well: an unsent call is dropped. Otherwise
    /// the API may carry it out, even after a timeout. The assumption then holds until the existing calls about the
    /// object, such as one that reverts the write, have ended, or the API shows a later version.
    fn give_up(&mut self, write: Write);
    /// The placed pod of the attempt counts on its node with this edit, from the end of this step until its binding has
    /// ended: with a label of its devices, for example, that a [call](Self::call) writes in PreBind. Updates of the pod
    /// until then are edited, too. The edits of several plugins are applied in order.
    fn count(&mut self, edit: PodEdit);
    /// Moves a pending pod to the active queue, also during its backoff, if the cycle succeeds.
    fn activate(&mut self, namespace: &Str, name: &Str);
    /// The pods that Permit plugins hold.
    fn waiting_pods(&self) -> Vec<WaitingPod>;
    /// Allows a pod on behalf of a Permit plugin. The pod is bound when no plugin holds it.
    fn allow(&mut self, uid: &str, plugin: &str);
    /// Rejects a pod that Permit plugins hold; false if no plugin holds it.
    fn reject(&mut self, uid: &str, plugin: &str, message: &str) -> bool;
    /// Stops a pod that is held by Permit or in PreBind, to free its resources; false if it is too late, and the pod
    /// must be deleted through the API.
    fn preempt(&mut self, uid: &str, plugin: &str) -> bool;
    /// Evicts the victims, outside of the cycle: a pod that is not bound yet is stopped in memory, any other is evicted
    /// through the API. The last victim is evicted after all others. If an eviction fails, the last victim is not
    /// evicted, and the preemptor is retried. Until the last eviction the preemptor is
    /// [preempting](Cluster::preempting).
    fn start_preemption(&mut self, preemption: Preemption);
    /// Records an observation in the metrics.
    fn observe(&mut self, observation: Observation);
    /// Writes a line to the log.
    fn log(&mut self, text: String);
    /// The extenders, for a plugin that consults them. A request to one is a [job](job::of).
    fn extenders(&self) -> Extenders;
}

/// An outbox that keeps the preemptions that plugins begin and what they reserve, and drops everything else: for plugins
/// that are asked about a cluster that is not to be changed.
#[derive(Default)]
pub struct DryRunOutbox {
    /// The preemptions, in order.
    pub preemptions: Vec<Preemption>,
    /// The writes to assume ([`Outbox::assume`]), in order.
    pub assumed: Vec<Write>,
    /// The edits with which the pod counts ([`Outbox::count`]), in order.
    pub edits: Vec<PodEdit>,
}

impl Outbox for DryRunOutbox {
    fn start_preemption(&mut self, preemption: Preemption) {
        self.preemptions.push(preemption);
    }

    fn call(&mut self, _call: ApiCall) -> CallId {
        CallId(0)
    }

    fn job(&mut self, _job: Job) -> JobId {
        JobId(0)
    }

    fn assume(&mut self, write: Write) {
        self.assumed.push(write);
    }

    fn count(&mut self, edit: PodEdit) {
        self.edits.push(edit);
    }

    fn publish(&mut self, _event: PodEvent) {}
    fn revert(&mut self, _write: Write) {}
    fn give_up(&mut self, _write: Write) {}
    fn activate(&mut self, _namespace: &Str, _name: &Str) {}
    fn observe(&mut self, _observation: Observation) {}
    fn log(&mut self, _text: String) {}

    fn waiting_pods(&self) -> Vec<WaitingPod> {
        Vec::new()
    }

    fn allow(&mut self, _uid: &str, _plugin: &str) {}

    fn reject(&mut self, _uid: &str, _plugin: &str, _message: &str) -> bool {
        false
    }

    fn preempt(&mut self, _uid: &str, _plugin: &str) -> bool {
        false
    }

    fn extenders(&self) -> Extenders {
        Extenders::default()
    }
}

/// The state that a step can use.
pub struct StageContext<'a> {
    /// The time.
    pub now: Time,
    /// The cluster.
    pub cluster: &'a Cluster,
    /// The feature gates.
    pub features: &'a FeatureGates,
    /// The receiver of calls and jobs.
    pub outbox: &'a mut dyn Outbox,
}

impl StageContext<'_> {
    /// Hands a job to the edge and waits for it, at most `limit` from now. [`Wake::into_value`] returns its value. The
    /// job is not stopped at the deadline, so it must have a limit of its own.
    pub fn wait_for_job<T: Any + Send, E: Into<JobError>>(
        &mut self,
        limit: Duration,
        job: impl Future<Output = Result<T, E>> + Send + 'static,
    ) -> Step {
        let job = self.outbox.job(job::of(job));
        Step::Wait(Wait {
            on: WaitOn::Job(job),
            deadline: self.now + limit,
        })
    }

    /// Hands a job to the edge and does not wait for it: for cleaning up.
    pub fn start_job(&mut self, job: impl Future<Output = ()> + Send + 'static) {
        self.outbox.job(job::of(async move {
            job.await;
            Ok::<(), JobError>(())
        }));
    }

    /// Hands an API call to the dispatcher and waits for it, at most `limit` from now.
    pub fn wait_for_call(&mut self, limit: Duration, call: impl Into<ApiCall>) -> Step {
        Step::Wait(Wait {
            on: WaitOn::Call(self.outbox.call(call.into())),
            deadline: self.now + limit,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::{CallError, CallErrorKind, Response};

    #[test]
    fn a_job_has_a_value_or_an_error() {
        for (reason, expected) in [
            (WakeReason::Job(Ok(Box::new(7_u32))), Ok(7)),
            (
                WakeReason::Job(Ok(Box::new("text"))),
                Err("the job returned a value of another type"),
            ),
            (WakeReason::Job(Err("refused".into())), Err("refused")),
            (WakeReason::Deadline, Err("the job took too long")),
            (
                WakeReason::Call(Ok(Response::default())),
                Err("an API call ended, not the job"),
            ),
            (WakeReason::Object, Err("an object changed, not the job")),
            (WakeReason::Timer, Err("a timer ended, not the job")),
        ] {
            let case = format!("{reason:?}");
            let got = Wake::from(reason).into_value::<u32>();
            let got = got.map_err(|error| error.to_string());
            assert_eq!(got, expected.map_err(str::to_owned), "{case}");
        }
    }

    /// F-45: the awaited call or job may have failed, so a plugin that does not read the result fails.
    #[test]
    fn an_unread_wake_reason_is_an_error() {
        let refused = || WakeReason::Call(Err(CallError::new(CallErrorKind::Refused, "no")));
        let nothing = || -> Box<dyn Any + Send> { Box::new(()) };
        let wait = || {
            Step::Wait(Wait {
                on: WaitOn::Timer,
                deadline: Time::EPOCH,
            })
        };
        type Call = fn(Option<Wake<'_>>) -> bool;
        let ignores: Call = |wake| wake.is_some();
        let reads: Call = |wake| wake.map(Wake::reason).is_some();
        for (case, reason, look, answer, expected) in [
            (
                "the first call",
                None,
                ignores,
                Step::success(),
                "Success: ",
            ),
            (
                "a failed call",
                Some(refused()),
                ignores,
                Step::success(),
                UNREAD_WAKE,
            ),
            (
                "a successful call",
                Some(WakeReason::Call(Ok(Response::default()))),
                ignores,
                Step::success(),
                UNREAD_WAKE,
            ),
            (
                "a job",
                Some(WakeReason::Job(Ok(nothing()))),
                ignores,
                Step::Done(Status::skip()),
                UNREAD_WAKE,
            ),
            (
                "a deadline, and another wait",
                Some(WakeReason::Deadline),
                ignores,
                wait(),
                UNREAD_WAKE,
            ),
            (
                "a timer",
                Some(WakeReason::Timer),
                ignores,
                Step::success(),
                "Success: ",
            ),
            (
                "an object",
                Some(WakeReason::Object),
                ignores,
                Step::success(),
                "Success: ",
            ),
            ("read", Some(refused()), reads, Step::success(), "Success: "),
            (
                "failed by itself",
                Some(refused()),
                ignores,
                Step::Done(Status::unschedulable("full")),
                "Unschedulable: full",
            ),
        ] {
            let got = call_plugin(reason, |wake| {
                look(wake);
                answer
            });
            let Step::Done(status) = got else {
                panic!("{case}: {got:?}");
            };
            let text = format!("{}: {}", status.code(), status.message());
            let expected = match expected {
                UNREAD_WAKE => format!("Error: {UNREAD_WAKE}"),
                expected => expected.to_owned(),
            };
            assert_eq!(text, expected, "{case}");
        }
    }
}
