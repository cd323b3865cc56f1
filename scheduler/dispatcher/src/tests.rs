//! The rules of the dispatcher and their cases (docs/contribute/rules/dispatcher.md), in virtual time.

mod off;
mod other_schedulers;
mod property;
mod queueing;
mod relevance;
mod removals;
mod reports;
mod retries;
mod scale;
mod views;
mod writes;

use super::*;
use berth_api::{Kind, Pod, Str};
use berth_framework::call::{ConditionPatch, PodRef};
use berth_framework::object_name::ObjectKey;
use berth_framework::testing::{CLAIM_UPDATE, PodBuilder, VOLUME_UPDATE, annotate, pod};
use std::sync::Arc;

/// A dispatcher, the time, and the results so far.
struct Desk {
    dispatcher: Dispatcher,
    now: Time,
    /// The calls in flight, oldest first.
    sent: Vec<(CallId, ApiCall)>,
    ended: BTreeMap<CallId, Finished>,
}

fn desk() -> Desk {
    desk_with(DispatcherOptions::default())
}

fn desk_with(options: DispatcherOptions) -> Desk {
    let mut dispatcher = Dispatcher::new(options);
    for call_type in [&CLAIM_UPDATE, &VOLUME_UPDATE] {
        let registered = dispatcher.register(call_type);
        assert_eq!(registered, Ok(()), "{call_type:?}");
    }
    Desk {
        dispatcher,
        now: Time::from_secs(1000),
        sent: Vec::new(),
        ended: BTreeMap::new(),
    }
}

fn condition(reason: &str, message: &str) -> ConditionPatch {
    ConditionPatch {
        kind: "PodScheduled".into(),
        status: "False".into(),
        reason: reason.into(),
        message: message.into(),
        observed_generation: Some(1),
        status_changes: true,
    }
}

fn key(uid: &str) -> ObjectKey {
    ObjectKey {
        kind: Kind::Pod,
        uid: uid.into(),
    }
}

fn pod_ref(name: &str) -> PodRef {
    PodRef::of(&pod(name).build())
}

/// A patch of the condition alone.
fn statement(name: &str, reason: &str) -> ApiCall {
    ApiCall::PatchPodStatus {
        pod: pod_ref(name),
        conditions: vec![condition(reason, "m")],
        nominated_node: None,
    }
}

/// A patch of the nomination alone.
fn nominate(name: &str, node: &str) -> ApiCall {
    ApiCall::PatchPodStatus {
        pod: pod_ref(name),
        conditions: Vec::new(),
        nominated_node: Some(node.into()),
    }
}

fn clear(name: &str) -> ApiCall {
    ApiCall::ClearPreEnqueueStatus {
        pod: pod_ref(name),
        resource_version: None,
        conditions: Vec::new(),
        nominated_node: None,
    }
}

fn bind(name: &str, node: &str) -> ApiCall {
    ApiCall::BindPod {
        pod: pod_ref(name),
        node: node.into(),
    }
}

fn delete(name: &str) -> ApiCall {
    let mut condition = condition("PreemptionByScheduler", "m");
    condition.kind = "DisruptionTarget".into();
    condition.status = "True".into();
    ApiCall::DeletePod {
        pod: pod_ref(name),
        condition,
    }
}

fn error(kind: CallErrorKind) -> CallResult {
    Err(CallError::new(kind, format!("{kind:?}")))
}

/// A pod that carries a PodScheduled condition.
fn pod_that_states(name: &str, reason: &str) -> PodBuilder {
    pod(name).condition("PodScheduled", "False", reason, "m")
}

fn short(call: &ApiCall) -> String {
    let name = call.object().name;
    match call {
        ApiCall::BindPod { node, .. } => format!("bind {name} {node}"),
        ApiCall::DeletePod { .. } => format!("delete {name}"),
        ApiCall::PatchPodStatus {
            conditions,
            nominated_node,
            ..
        } => {
            let mut text = format!("patch {name}");
            for condition in conditions {
                text += &format!(" {}", condition.reason);
            }
            if let Some(node) = nominated_node {
                text += &format!(" on {:?}", node.as_str());
            }
            text
        }
        ApiCall::ClearPreEnqueueStatus {
            conditions,
            nominated_node,
            ..
        } => {
            let mut text = format!("clear {name}");
            for condition in conditions {
                text += &format!(" {}", condition.reason);
            }
            if let Some(node) = nominated_node {
                text += &format!(" on {:?}", node.as_str());
            }
            text
        }
        ApiCall::Write(_) => format!("write {name}"),
    }
}

impl Dispatcher {
    /// The pod with our successful and pending writes; the same object if there are none.
    fn effective(&self, stored: &Arc<Pod>) -> Arc<Pod> {
        let writes = self.writes(stored.uid());
        if writes.is_empty() {
            return stored.clone();
        }
        let mut pod = Pod::clone(stored);
        writes.apply_to(&mut pod);
        Arc::new(pod)
    }

    /// The number of calls of a lane that are in flight.
    fn in_flight(&self, lane: Lane) -> usize {
        self.backlog.lanes.in_flight(lane)
    }

    /// The number of objects that wait in a lane for their turn.
    fn ready(&self, lane: Lane) -> usize {
        self.backlog.lanes.ready(lane)
    }

    /// Returns whether there are calls to send now.
    fn has_calls_to_send(&self) -> bool {
        self.backlog.lanes.has_next()
    }

    /// The pod was deleted.
    fn forget(&mut self, uid: &str, now: Time) {
        self.forget_object(Kind::Pod, uid, now);
    }
}

impl Desk {
    fn call(&mut self, call: ApiCall) -> CallId {
        let id = self.dispatcher.enqueue(call, self.now);
        self.look();
        id
    }

    /// Reports the answer of PreEnqueue plugins about a pod; it is written 5 s later.
    fn report(&mut self, call: ApiCall) {
        let due = self.now + Duration::from_secs(5);
        self.dispatcher.report(call, due, self.now);
        self.look();
    }

    /// The report of the pod that waits, in short.
    fn waiting_report(&self) -> Option<String> {
        let (call, _) = self.dispatcher.report_of("uid-p")?;
        Some(short(&call))
    }

    /// The API shows the pod so.
    fn shows(&mut self, pod: PodBuilder) {
        self.dispatcher.sync(&pod.arc(), self.now);
        self.look();
    }

    /// Sends the calls that may be sent, and returns them in short form.
    fn send(&mut self) -> Vec<String> {
        let calls = self.dispatcher.next_calls(self.now);
        let texts = calls.iter().map(|(_, call)| short(call)).collect();
        self.sent.extend(calls);
        self.look();
        texts
    }

    /// Answers a call in flight.
    fn answer(&mut self, id: CallId, answer: Result<impl Into<Response>, CallError>) {
        let before = self.sent.len();
        self.sent.retain(|(sent, _)| *sent != id);
        assert_eq!(self.sent.len() + 1, before, "{id:?} is on its way once");
        self.dispatcher.complete(id, answer, self.now);
        self.look();
    }

    /// Answers the oldest call in flight.
    fn answer_first(&mut self, answer: Result<impl Into<Response>, CallError>) {
        let id = self.sent.first().expect("a call is on its way").0;
        self.answer(id, answer);
    }

    fn advance(&mut self, millis: u64) {
        self.now = self.now + Duration::from_millis(millis);
    }

    /// Collects the finished calls, and checks the accounting.
    fn look(&mut self) {
        for finished in self.dispatcher.take_finished() {
            let id = finished.id;
            let before = self.ended.insert(id, finished);
            assert_eq!(before, None, "{id:?} has ended twice");
        }
        if let Err(wrong) = self.dispatcher.check() {
            panic!("{wrong}");
        }
    }

    /// The end of a call, in words; `-` when it has not.
    fn end_of(&self, id: CallId) -> String {
        match self.ended.get(&id).map(|finished| &finished.result) {
            None => "-".to_owned(),
            Some(Ok(_)) => "ok".to_owned(),
            Some(Err(error)) => error.message.clone(),
        }
    }

    /// The result that the waiter of the call receives: whether the call succeeded; `None` when it has not ended.
    fn notified(&self, id: CallId) -> Option<bool> {
        Some(self.ended.get(&id)?.for_waiter().is_ok())
    }

    fn pending(&self, call_type: &str) -> usize {
        self.dispatcher
            .pending()
            .get(call_type)
            .copied()
            .unwrap_or(0)
    }

    /// Reason and nominated node of the effective pod.
    fn effective(&self, stored: PodBuilder) -> (String, String) {
        let pod: Arc<Pod> = self.dispatcher.effective(&stored.arc());
        let reason = pod.condition("PodScheduled").map(|c| c.reason.to_string());
        let node: &Str = &pod.status.nominated_node_name;
        (reason.unwrap_or_default(), node.to_string())
    }
}
