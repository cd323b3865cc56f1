//! The handling of a pod whose attempt has failed.

use crate::attempt::{Attempt, CycleResult};
use crate::cache::Cache;
use crate::call_results::note_requests;
use crate::core::{
    Core, Explanation, Explanations, Framework, RejectionReason, Settings, give_back, reasons,
};
use crate::pod_status::correct_status;
use berth_api::Str;
use berth_dispatcher::Dispatcher;
use berth_evaluator::FitError;
use berth_framework::call::{ConditionPatch, PodRef};
use berth_framework::condition::{POD_SCHEDULED, UNSCHEDULABLE};
use berth_framework::plugin::{Context, Nominating};
use berth_framework::stage::Observation;
use berth_framework::{ApiCall, Cluster, Feature, ReasonCode, Status};
use berth_queue::{Nominator, PodTemplateKey, QueuedPodInfo, SchedulingQueue};
use berth_telemetry::metrics::Metric;
use berth_telemetry::{Log, LogLine};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The reason why an attempt has failed.
#[derive(Debug)]
pub(crate) struct AttemptFailure {
    message: String,
    code: ReasonCode,
    /// Whether the pod was rejected; otherwise an error occurred.
    is_rejected: bool,
    error: Option<Box<FitError>>,
    /// The rejecting plugins, if there is no diagnosis.
    plugins: Vec<Str>,
    nominating: Nominating,
}

impl AttemptFailure {
    /// No node fits the pod.
    pub(crate) fn unfit(error: Box<FitError>, nominating: Nominating) -> Self {
        Self {
            message: error.to_string(),
            code: ReasonCode::Other,
            is_rejected: true,
            error: Some(error),
            plugins: Vec::new(),
            nominating,
        }
    }

    /// A failure with a status and no diagnosis.
    pub(crate) fn of_status(status: &Status, nominating: Nominating) -> Self {
        Self {
            message: status.message(),
            code: status.reason_code(),
            is_rejected: status.is_rejected(),
            error: None,
            plugins: Vec::new(),
            nominating,
        }
    }

    /// The group of the pod cannot start, or its attempt failed with an error.
    pub(crate) fn of_group(status: &Status, nominating: Nominating) -> Self {
        Self {
            plugins: status.plugin().cloned().into_iter().collect(),
            ..Self::of_status(status, nominating)
        }
    }

    /// The same with another nomination.
    pub(crate) fn nominating(self, nominating: Nominating) -> Self {
        Self { nominating, ..self }
    }

    fn into_result(self) -> CycleResult {
        let Self { message, .. } = self;
        if self.is_rejected {
            CycleResult::Unschedulable { message }
        } else {
            CycleResult::Error { message }
        }
    }
}

/// The state of a pod whose attempt failed, as the API shows it (C-48).
enum KnownStatus {
    /// It is still waiting for a node.
    Pending,
    /// It was deleted.
    Gone,
    /// It has a node.
    Bound,
    /// Another pod has the same name now.
    Replaced,
    /// It waits for a node, and its profile was removed during the attempt.
    Foreign,
}

/// Handles the failure of an attempt: return to the queue, nomination, event, condition.
pub(crate) fn fail(core: &mut Core, mut attempt: Attempt, failure: AttemptFailure) -> CycleResult {
    if attempt.is_resize() {
        note_requests(core);
        let Core {
            framework,
            queue,
            explanations,
            ..
        } = core;
        return resize_waits(framework, queue, explanations, attempt, failure);
    }
    // They are counted only if this was an attempt, which is decided below.
    let observations = core.framework.requests.take_observations();
    note_requests(core);
    let Core {
        framework,
        queue,
        calls,
        explanations,
        ..
    } = core;
    let now = framework.clock.now();
    let pod = attempt.pod_ref();
    framework.requests.take_activations(&pod.uid);
    let (result, reason) = if failure.is_rejected {
        ("unschedulable", UNSCHEDULABLE)
    } else {
        ("error", "SchedulerError")
    };
    let template = template(&framework.settings, queue.nominator(), &attempt, &failure);
    let info = &mut attempt.info;
    let rejectors = |info: &QueuedPodInfo| {
        (
            info.unschedulable_plugins.clone(),
            info.pending_plugins.clone(),
        )
    };
    let before = rejectors(info);
    info.clear_rejectors();
    if let Some(error) = &failure.error {
        let diagnosis = &error.diagnosis;
        info.unschedulable_plugins = diagnosis.unschedulable_plugins.iter().cloned().collect();
        info.pending_plugins = diagnosis.pending_plugins.iter().cloned().collect();
    }
    for plugin in failure.plugins.iter().filter(|_| failure.is_rejected) {
        info.unschedulable_plugins.insert(plugin);
    }
    let by_same = before == rejectors(info);
    info.in_a_row.used_up = if attempt.work.is_costly() {
        info.in_a_row.used_up.saturating_add(1)
    } else {
        0
    };
    info.set_template(template);
    let known = look_up(&framework.cache, &framework.settings, &pod);
    // A bound pod needs no event, no nomination and no condition.
    let call = match known {
        KnownStatus::Pending => {
            status_patch(&framework.cache, calls.dispatcher(), &pod, reason, &failure)
        }
        KnownStatus::Gone | KnownStatus::Bound | KnownStatus::Replaced | KnownStatus::Foreign => {
            None
        }
    };
    let last = explanations.get(&pod.uid);
    let dispatcher = calls.dispatcher();
    if by_same
        && matches!(known, KnownStatus::Pending)
        && is_as_before(&framework.cache, dispatcher, last, info, &failure, &call)
    {
        let is_of_attempt = |o: &Observation| matches!(o, Observation::PreemptionAttempt);
        framework.count_observations(observations.into_iter().filter(|o| !is_of_attempt(o)));
        return rejected_as_before(framework, queue, explanations, attempt, failure);
    }
    framework.count_observations(observations);
    framework.attempt_took(&attempt, result);
    framework.trace_ended(&mut attempt, result, None, &failure.message);
    if let KnownStatus::Replaced = known {
        queue.done(&pod.uid);
        return failure.into_result();
    }
    let Attempt { info, profile, .. } = attempt;
    match known {
        KnownStatus::Pending => {
            log(
                &mut framework.outbound.log,
                framework.cache.cluster(),
                &pod,
                &failure,
            );
            let explanation = explanation(&framework.context(), &info, &failure);
            explanations.put(info.pod.uid().clone(), explanation);
            // Before the status is written, as in kube-scheduler: the watch may show the write before the API server
            // answers it, and the event handler must find the pod in the queue.
            return_to_queue(framework, queue, info);
        }
        KnownStatus::Gone | KnownStatus::Bound | KnownStatus::Foreign => {
            let why = match known {
                KnownStatus::Gone => "Pod is gone and not tried again",
                KnownStatus::Foreign => {
                    "The profile of the pod was removed from the configuration. The pod is not tried again"
                }
                _ => "Pod has been assigned to node. Abort adding it back to queue.",
            };
            framework
                .outbound
                .log
                .push(LogLine::info(why).with("pod", &pod));
            queue.done(&pod.uid);
        }
        KnownStatus::Replaced => {}
    }
    if let KnownStatus::Foreign = known {
        calls.dispatcher_mut().leave_status(&pod.uid, now);
    }
    if let Some(object) = framework.cache.effective(&pod.uid).cloned() {
        let ended = Nominating::Set(Str::default());
        let nominating = match known {
            KnownStatus::Foreign => &ended,
            _ => &failure.nominating,
        };
        queue
            .nominator_mut()
            .add(framework.cache.cluster(), &object, nominating);
    }
    framework
        .outbound
        .publish_failure(&pod, &profile, &failure.message);
    if let Some(call) = call {
        calls.make(call, now);
    }
    // During the binding by this scheduler, no other status could be written.
    let stored = framework.cache.stored(&pod.uid);
    if let Some(stored) = stored.filter(|pod| pod.is_assigned()) {
        correct_status(calls, stored, now);
    }
    failure.into_result()
}

/// The resize of a pod with a node continues to wait: for the kubelet, for terminating victims, or for free resources.
/// The status of the pod shows its node, so neither its condition nor a nomination is written, and no event is
/// published.
fn resize_waits(
    framework: &mut Framework,
    queue: &mut SchedulingQueue,
    explanations: &mut Explanations,
    mut attempt: Attempt,
    failure: AttemptFailure,
) -> CycleResult {
    let uid = attempt.pod.pod.uid().clone();
    framework.requests.take_activations(&uid);
    let info = &mut attempt.info;
    info.clear_rejectors();
    if let Some(error) = &failure.error {
        let diagnosis = &error.diagnosis;
        info.unschedulable_plugins = diagnosis.unschedulable_plugins.iter().cloned().collect();
        info.pending_plugins = diagnosis.pending_plugins.iter().cloned().collect();
    }
    let result = if failure.is_rejected {
        "unschedulable"
    } else {
        "error"
    };
    framework.attempt_took(&attempt, result);
    framework.trace_ended(&mut attempt, result, None, &failure.message);
    let mut info = attempt.info;
    let explanation = explanation(&framework.context(), &info, &failure);
    explanations.put(info.pod.uid().clone(), explanation);
    let known = framework.cache.effective(&uid).cloned();
    // The pod leaves the queue when its resize no longer waits for the scheduler.
    match known.filter(|pod| framework.settings.makes_room_for_resize(pod)) {
        None => queue.done(&uid),
        Some(pod) => {
            info.pod = pod;
            give_back(framework, queue, info);
        }
    }
    failure.into_result()
}

fn log(log: &mut Log, cluster: &Cluster, pod: &PodRef, failure: &AttemptFailure) {
    let describe = |line: LogLine| line.with("pod", pod).with("err", &*failure.message);
    match failure.is_rejected {
        true if cluster.nodes.is_empty() => log.v(
            2,
            "Unable to schedule pod; no nodes are registered to the cluster; waiting",
            |line| line.with("pod", pod),
        ),
        true => log.v(2, "Unable to schedule pod; no fit; waiting", describe),
        false => log.push(describe(LogLine::error("Error scheduling pod; retrying"))),
    }
}

/// The pod's template, if all of its pods would be rejected like this one. If SchedulerPreQueueingHints is disabled,
/// each event is evaluated for each pod, as before KEP-6132.
fn template(
    settings: &Settings,
    nominator: &Nominator,
    attempt: &Attempt,
    failure: &AttemptFailure,
) -> Option<Arc<PodTemplateKey>> {
    let pod = &attempt.pod.pod;
    let diagnosis = &failure.error.as_ref()?.diagnosis;
    let keeps_room = match &failure.nominating {
        Nominating::Set(node) => !node.is_empty(),
        Nominating::Keep => false,
    };
    let mut post_filter = attempt.profile.post_filter.iter();
    let follows = attempt.evaluation.is_kept
        && settings.is_on(Feature::SchedulerPreQueueingHints)
        && settings.extenders.is_empty()
        && diagnosis.pending_plugins.is_empty()
        && !keeps_room
        && nominator.node_of(pod.uid()).is_none()
        && post_filter.all(|member| member.plugin.judges_by_template());
    let known = attempt.info.template();
    match known.filter(|known| known.is_of(pod)) {
        _ if !follows => None,
        Some(known) => Some(known.clone()),
        None => PodTemplateKey::of(pod).map(Arc::new),
    }
}

/// Returns whether the pod, rejected by the same plugins as in its last attempt, is rejected for the same reasons,
/// apart from the numbers of nodes.
fn is_as_before(
    cache: &Cache,
    dispatcher: &Dispatcher,
    last: Option<&Explanation>,
    info: &QueuedPodInfo,
    failure: &AttemptFailure,
    call: &Option<ApiCall>,
) -> bool {
    let Some(last) = last else {
        return false;
    };
    // The flush of long-unschedulable pods makes an attempt, so that the event about the pod is repeated every few
    // minutes.
    if info.was_flushed_from_unschedulable {
        return false;
    }
    let Some(error) = &failure.error else {
        let is_of_group = !failure.plugins.is_empty();
        return is_of_group && last.message == failure.message && call.is_none();
    };
    if last.message == failure.message && call.is_none() {
        return true;
    }
    let uid = info.pod.uid();
    let pod = cache.effective(uid);
    let stated = pod.and_then(|pod| pod.condition(POD_SCHEDULED));
    let differs_in_message_alone = match call {
        None => true,
        Some(
            patch @ ApiCall::PatchPodStatus {
                nominated_node: None,
                ..
            },
        ) => stated
            .zip(patch.condition(POD_SCHEDULED))
            .is_some_and(|(stated, new)| {
                stated.status == new.status
                    && stated.reason == new.reason
                    && !dispatcher.is_status_unclear(uid)
            }),
        Some(_) => false,
    };
    differs_in_message_alone && has_reasons_of(cache.cluster(), error, last)
}

fn has_reasons_of(cluster: &Cluster, error: &FitError, last: &Explanation) -> bool {
    let texts = |reasons: &[RejectionReason]| -> BTreeSet<(Str, String)> {
        let texts = reasons.iter().map(|r| (r.plugin.clone(), r.text.clone()));
        texts.collect()
    };
    texts(&last.reasons) == texts(&reasons(error, cluster))
}

/// An event woke the pod unnecessarily: its status already states these reasons. kube-scheduler counts an attempt,
/// publishes an event and increases the backoff. If many pods wait for resources, nearly all attempts are of this kind.
fn rejected_as_before(
    framework: &mut Framework,
    queue: &mut SchedulingQueue,
    explanations: &mut Explanations,
    attempt: Attempt,
    failure: AttemptFailure,
) -> CycleResult {
    let Attempt {
        mut info, profile, ..
    } = attempt;
    framework
        .metrics
        .count(Metric::AttemptsAvoided, &[profile.name.as_str()]);
    info.attempts = info.attempts.saturating_sub(1);
    let explanation = explanation(&framework.context(), &info, &failure);
    explanations.put(info.pod.uid().clone(), explanation);
    info.set_rejected_as_before();
    let pod = info.pod.clone();
    return_to_queue(framework, queue, info);
    // Including the writes that no watch has shown yet, one of which may be the nomination.
    let pod = framework.cache.effective(pod.uid()).cloned().unwrap_or(pod);
    queue
        .nominator_mut()
        .add(framework.cache.cluster(), &pod, &failure.nominating);
    failure.into_result()
}

fn look_up(cache: &Cache, settings: &Settings, pod: &PodRef) -> KnownStatus {
    match cache.stored(&pod.uid) {
        Some(stored) if stored.is_assigned() => KnownStatus::Bound,
        Some(stored) if !settings.has_profile(stored) => KnownStatus::Foreign,
        Some(_) => KnownStatus::Pending,
        None => match cache.stored_by_name(&pod.namespace, &pod.name) {
            Some(_) => KnownStatus::Replaced,
            None => KnownStatus::Gone,
        },
    }
}

/// Returns the latest version of a pod to the queue, unless it needs no node any more.
fn return_to_queue(
    framework: &mut Framework,
    queue: &mut SchedulingQueue,
    mut info: QueuedPodInfo,
) {
    let cache = &framework.cache;
    let uid = info.pod.uid();
    let is_pending = cache.stored(uid).is_some_and(|pod| !pod.is_assigned());
    let Some(pod) = cache.effective(uid).filter(|_| is_pending) else {
        queue.done(uid);
        return;
    };
    info.pod = pod.clone();
    give_back(framework, queue, info);
}

/// The patch of the pod's status; `None` if the status is already as desired (C-50).
fn status_patch(
    cache: &Cache,
    dispatcher: &Dispatcher,
    pod: &PodRef,
    reason: &str,
    failure: &AttemptFailure,
) -> Option<ApiCall> {
    let object = cache.effective(&pod.uid)?;
    let condition = ConditionPatch::of(object, POD_SCHEDULED, "False", reason, &failure.message);
    let is_stated = object.condition(POD_SCHEDULED).is_some_and(|c| {
        c.status == condition.status
            && c.reason == condition.reason
            && c.message == condition.message
    });
    let is_stated = is_stated && !dispatcher.is_status_unclear(&pod.uid);
    let nominated_node = match &failure.nominating {
        Nominating::Set(node) if *node != object.status.nominated_node_name => Some(node.clone()),
        _ => None,
    };
    if is_stated && nominated_node.is_none() {
        return None;
    }
    Some(ApiCall::PatchPodStatus {
        pod: pod.clone(),
        conditions: (!is_stated).then_some(condition).into_iter().collect(),
        nominated_node,
    })
}

fn explanation(cx: &Context<'_>, info: &QueuedPodInfo, failure: &AttemptFailure) -> Explanation {
    let error = failure.error.as_deref();
    Explanation {
        at: cx.now,
        attempts: info.attempts,
        message: failure.message.clone(),
        code: failure.code,
        unschedulable_plugins: info.unschedulable_plugins.iter().cloned().collect(),
        pending_plugins: info.pending_plugins.iter().cloned().collect(),
        reasons: error.map_or_else(Vec::new, |error| reasons(error, cx.cluster)),
        earlier: Vec::new(),
    }
}
