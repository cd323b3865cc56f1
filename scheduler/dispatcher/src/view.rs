//! The calls about one object, and the last failures, for explanations.

use super::Dispatcher;
use super::object::CallEntry;
use berth_api::{Kind, Time};
use berth_framework::CallError;
use berth_framework::object_name::ObjectKey;
use std::collections::VecDeque;

/// The number of failed attempts that are kept, the latest ones.
const FAILURES_MAX: usize = 1024;
/// The longest error message that is kept, in characters.
const ERROR_CHARS_MAX: usize = 512;

/// The last attempts that failed, oldest first.
#[derive(Debug, Default)]
pub(super) struct Failures(VecDeque<FailedAttempt>);

#[derive(Debug)]
struct FailedAttempt {
    object: ObjectKey,
    call_type: &'static str,
    attempts: u32,
    made_at: Time,
    at: Time,
    error: String,
}

impl Failures {
    pub(super) fn note(&mut self, entry: &CallEntry, error: &CallError, now: Time) {
        if self.0.len() >= FAILURES_MAX {
            self.0.pop_front();
        }
        self.0.push_back(FailedAttempt {
            object: entry.call.key(),
            call_type: entry.call_type().name(),
            attempts: entry.attempts,
            made_at: entry.made_at,
            at: now,
            error: error.message.chars().take(ERROR_CHARS_MAX).collect(),
        });
    }

    /// The latest failure of each call about a pod, oldest first.
    fn about(&self, uid: &str) -> Vec<&FailedAttempt> {
        let mut latest: Vec<&FailedAttempt> = Vec::new();
        let of_pod = |f: &&FailedAttempt| f.object.kind == Kind::Pod && f.object.uid == *uid;
        for failure in self.0.iter().filter(of_pod) {
            latest.retain(|f| (f.call_type, f.made_at) != (failure.call_type, failure.made_at));
            latest.push(failure);
        }
        latest
    }
}

/// The progress of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallState {
    /// It waits to be sent for the first time.
    Waiting,
    /// It was sent and is not answered.
    InFlight,
    /// It failed and is sent again.
    Retrying,
    /// It is held back: a status that is written if it is still true at that time.
    HeldBack,
    /// It failed and is not sent again.
    Failed,
}

/// A call that has not ended, or one of the last that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallView {
    /// The type, as metrics name it.
    pub call_type: &'static str,
    /// The progress of the call.
    pub state: CallState,
    /// The number of times that it was sent.
    pub attempts: u32,
    /// The time at which it was made; `None` for one that is held back.
    pub made_at: Option<Time>,
    /// The earliest time at which it is sent, if that is later than now.
    pub not_before: Option<Time>,
    /// The time at which its last attempt failed, and the error.
    pub failure: Option<(Time, String)>,
}

fn view(entry: &CallEntry, in_flight: bool) -> CallView {
    CallView {
        call_type: entry.call_type().name(),
        state: match (in_flight, entry.attempts) {
            (true, _) => CallState::InFlight,
            (false, 0) => CallState::Waiting,
            (false, _) => CallState::Retrying,
        },
        attempts: entry.attempts,
        made_at: Some(entry.made_at),
        not_before: entry.not_before,
        failure: None,
    }
}

/// The unfinished calls about a pod, the call in flight first, then the failed ones, oldest first.
pub fn calls_about(dispatcher: &Dispatcher, uid: &str) -> Vec<CallView> {
    let objects = &dispatcher.backlog.objects;
    let object = objects.find(Kind::Pod, uid).and_then(|at| objects.get(at));
    let mut calls: Vec<CallView> = Vec::new();
    if let Some(object) = object {
        calls.extend(object.in_flight.iter().map(|entry| view(entry, true)));
        calls.extend(object.waiting.iter().map(|entry| view(entry, false)));
    }
    for failure in dispatcher.failures.about(uid) {
        // A failed call that is retried is listed once, with its failure.
        let failed = Some((failure.at, failure.error.clone()));
        let retried = calls.iter_mut().find(|call| {
            call.call_type == failure.call_type && call.made_at == Some(failure.made_at)
        });
        match retried {
            Some(call) => call.failure = failed,
            None => calls.push(CallView {
                call_type: failure.call_type,
                state: CallState::Failed,
                attempts: failure.attempts,
                made_at: Some(failure.made_at),
                not_before: None,
                failure: failed,
            }),
        }
    }
    if let Some((call, due)) = dispatcher.report_of(uid) {
        calls.push(CallView {
            call_type: call.call_type().name(),
            state: CallState::HeldBack,
            attempts: 0,
            made_at: None,
            not_before: Some(due),
            failure: None,
        });
    }
    calls
}
