//! The calls about one object, for explanations.

use super::Dispatcher;
use super::object::Entry;
use berth_api::{Kind, Time};

/// How far a call has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallState {
    /// It waits to be sent for the first time.
    Waiting,
    /// It was sent and is not answered.
    InFlight,
    /// It failed and is sent again.
    Retrying,
    /// It is held back: a status that is written if it still holds at that time.
    HeldBack,
}

/// A call that has not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallView {
    /// The type, as metrics name it.
    pub call_type: &'static str,
    /// How far it has come.
    pub state: CallState,
    /// How often it was sent.
    pub attempts: u32,
    /// When it was made; `None` for one that is held back.
    pub made_at: Option<Time>,
    /// When it is sent at the earliest, if that is later than now.
    pub not_before: Option<Time>,
}

fn view(entry: &Entry, in_flight: bool) -> CallView {
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
    }
}

/// The calls about a pod that have not ended, the one in flight first.
pub fn calls_about(dispatcher: &Dispatcher, uid: &str) -> Vec<CallView> {
    let objects = &dispatcher.backlog.objects;
    let object = objects.find(Kind::Pod, uid).and_then(|at| objects.get(at));
    let Some(object) = object else {
        return Vec::new();
    };
    let in_flight = object.in_flight.iter().map(|entry| view(entry, true));
    let waiting = object.waiting.iter().map(|entry| view(entry, false));
    let mut calls: Vec<CallView> = in_flight.chain(waiting).collect();
    if let Some((call, due)) = dispatcher.report_of(uid) {
        calls.push(CallView {
            call_type: call.call_type().name(),
            state: CallState::HeldBack,
            attempts: 0,
            made_at: None,
            not_before: Some(due),
        });
    }
    calls
}
