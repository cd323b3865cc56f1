//! The calls to the API that the core wants made, until their results are in (KEP-5229).
//!
//! The core hands calls in and never waits: the edge takes what may be sent ([`Dispatcher::next_calls`]), sends it,
//! and brings back how it went ([`Dispatcher::complete`]); whoever made a call finds its end among
//! [`Dispatcher::take_finished`].
//!
//! Calls about one object are sent one at a time and in order; nothing is merged, skipped or delayed. That is how
//! Berth behaves with the gate SchedulerAsyncAPICalls off.

use berth_api::{Duration, Pod, Str, Time};
use berth_framework::call::{CallErrorKind, CallResult};
use berth_framework::{ApiCall, CallError, CallId};
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// How the dispatcher is set up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DispatcherOptions {
    /// How many calls may be on their way at once.
    pub in_flight_max: usize,
}

impl Default for DispatcherOptions {
    fn default() -> Self {
        Self { in_flight_max: 128 }
    }
}

/// The end of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finished {
    /// Which call.
    pub id: CallId,
    /// The call as it was made.
    pub call: ApiCall,
    /// How it went.
    pub result: CallResult,
    /// How long it was on its way; `None` when it was never sent.
    pub took: Option<Duration>,
}

#[derive(Debug)]
struct Tracked {
    call: ApiCall,
    sent_at: Option<Time>,
}

/// The calls about one object: the first may be on its way, the others wait for it.
type Line = VecDeque<CallId>;

/// Orders calls. See the [module](self).
#[derive(Debug, Default)]
pub struct Dispatcher {
    options: DispatcherOptions,
    next_id: u64,
    calls: FxHashMap<CallId, Tracked>,
    lines: FxHashMap<Str, Line>,
    /// The objects whose first call may be sent, oldest first.
    sendable: VecDeque<Str>,
    in_flight: usize,
    finished: Vec<Finished>,
}

impl Dispatcher {
    /// A dispatcher without calls.
    pub fn new(options: DispatcherOptions) -> Self {
        Self {
            options,
            ..Self::default()
        }
    }

    /// Takes a call to be sent `delay` after `now` (in this mode: as soon as the object's earlier calls are done).
    pub fn enqueue(&mut self, call: ApiCall, _delay: Duration, _now: Time) -> CallId {
        let id = CallId(self.next_id);
        self.next_id += 1;
        let uid = call.pod().uid.clone();
        self.calls.insert(
            id,
            Tracked {
                call,
                sent_at: None,
            },
        );
        let line = self.lines.entry(uid.clone()).or_default();
        line.push_back(id);
        if line.len() == 1 {
            self.sendable.push_back(uid);
        }
        id
    }

    /// The calls to send now; they are on their way from here on.
    pub fn next_calls(&mut self, now: Time) -> Vec<(CallId, ApiCall)> {
        let mut calls = Vec::new();
        while self.in_flight < self.options.in_flight_max {
            let Some(uid) = self.sendable.pop_front() else {
                break;
            };
            let first = self.lines.get(&uid).and_then(|line| line.front().copied());
            let Some((id, tracked)) = first.and_then(|id| Some((id, self.calls.get_mut(&id)?)))
            else {
                continue;
            };
            if tracked.sent_at.is_none() {
                tracked.sent_at = Some(now);
                self.in_flight += 1;
                calls.push((id, tracked.call.clone()));
            }
        }
        calls
    }

    /// A call that was sent has ended. An id that is not on its way is ignored.
    pub fn complete(&mut self, id: CallId, result: CallResult, now: Time) {
        if self.calls.get(&id).is_some_and(|c| c.sent_at.is_some()) {
            self.in_flight -= 1;
            self.finish(id, result, now);
        }
    }

    /// The pod has changed. Waiting calls may have become needless; in this mode they are sent all the same.
    pub fn sync(&mut self, _pod: &Arc<Pod>, _now: Time) {}

    /// The object is gone: calls that were not sent will not be.
    pub fn forget(&mut self, uid: &str, now: Time) {
        let Some(line) = self.lines.get(uid) else {
            return;
        };
        let waiting: Vec<CallId> = line
            .iter()
            .copied()
            .filter(|id| self.calls.get(id).is_some_and(|c| c.sent_at.is_none()))
            .collect();
        for id in waiting {
            let gone = CallError {
                kind: CallErrorKind::Skipped,
                message: "the object is gone: call skipped".to_owned(),
            };
            self.finish(id, Err(gone), now);
        }
    }

    fn finish(&mut self, id: CallId, result: CallResult, now: Time) {
        let Some(tracked) = self.calls.remove(&id) else {
            return;
        };
        let uid = &tracked.call.pod().uid;
        if let Some(line) = self.lines.get_mut(uid) {
            let was_first = line.front() == Some(&id);
            line.retain(|other| *other != id);
            if line.is_empty() {
                self.lines.remove(uid);
            } else if was_first {
                self.sendable.push_back(uid.clone());
            }
        }
        self.finished.push(Finished {
            id,
            result,
            took: tracked.sent_at.map(|at| now.since(at)),
            call: tracked.call,
        });
    }

    /// The calls that have ended since the last time, in that order.
    pub fn take_finished(&mut self) -> Vec<Finished> {
        std::mem::take(&mut self.finished)
    }

    /// When the dispatcher wants to be asked for calls again though nothing has happened; never, in this mode.
    pub fn next_wake(&self) -> Option<Time> {
        None
    }

    /// Whether there are calls to send now.
    pub fn has_calls_to_send(&self) -> bool {
        self.in_flight < self.options.in_flight_max && !self.sendable.is_empty()
    }

    /// How many calls of each `call_type` have not been sent yet.
    pub fn pending(&self) -> BTreeMap<&'static str, usize> {
        let mut pending = BTreeMap::new();
        for tracked in self.calls.values().filter(|c| c.sent_at.is_none()) {
            *pending.entry(tracked.call.call_type()).or_default() += 1;
        }
        pending
    }

    /// How many calls have not ended.
    pub fn len(&self) -> usize {
        self.calls.len()
    }

    /// Whether every call has ended.
    pub fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_framework::call::PodRef;
    use berth_framework::testing::pod;

    fn nominate(name: &str, node: &str) -> ApiCall {
        ApiCall::PatchPodStatus {
            pod: PodRef::of(&pod(name).build()),
            condition: None,
            nominated_node: Some(node.into()),
        }
    }

    fn enqueue(dispatcher: &mut Dispatcher, call: ApiCall) -> CallId {
        dispatcher.enqueue(call, Duration::ZERO, Time::EPOCH)
    }

    fn sent(dispatcher: &mut Dispatcher) -> Vec<CallId> {
        let calls = dispatcher.next_calls(Time::from_secs(1));
        calls.into_iter().map(|(id, _)| id).collect()
    }

    #[test]
    fn calls_about_one_object_go_one_after_another() {
        let mut dispatcher = Dispatcher::default();
        let first = enqueue(&mut dispatcher, nominate("a", "n1"));
        let second = enqueue(&mut dispatcher, nominate("a", "n2"));
        let other = enqueue(&mut dispatcher, nominate("b", "n1"));
        assert_eq!(sent(&mut dispatcher), [first, other]);
        assert_eq!(dispatcher.pending()["pod_status_patch"], 1);
        dispatcher.complete(second, Ok(()), Time::from_secs(2));
        assert_eq!(sent(&mut dispatcher), [], "what was not sent cannot end");
        dispatcher.complete(first, Ok(()), Time::from_secs(3));
        assert_eq!(sent(&mut dispatcher), [second]);
        let finished = dispatcher.take_finished();
        assert_eq!(finished.len(), 1);
        assert_eq!(finished[0].took, Some(Duration::from_secs(2)));
    }

    #[test]
    fn no_more_than_allowed_are_on_their_way() {
        let mut dispatcher = Dispatcher::new(DispatcherOptions { in_flight_max: 2 });
        let ids: Vec<CallId> = ["a", "b", "c"]
            .map(|name| enqueue(&mut dispatcher, nominate(name, "n")))
            .into();
        assert_eq!(sent(&mut dispatcher), ids[..2]);
        dispatcher.complete(ids[1], Ok(()), Time::from_secs(2));
        assert_eq!(sent(&mut dispatcher), ids[2..]);
    }

    #[test]
    fn nothing_more_is_sent_about_an_object_that_is_gone() {
        let mut dispatcher = Dispatcher::default();
        let first = enqueue(&mut dispatcher, nominate("a", "n1"));
        let second = enqueue(&mut dispatcher, nominate("a", "n2"));
        assert_eq!(sent(&mut dispatcher), [first]);
        dispatcher.forget("uid-a", Time::from_secs(1));
        let skipped = dispatcher.take_finished();
        assert_eq!(
            (skipped.len(), skipped[0].id, skipped[0].took),
            (1, second, None)
        );
        dispatcher.complete(first, Ok(()), Time::from_secs(2));
        assert!(dispatcher.is_empty() && sent(&mut dispatcher).is_empty());
    }
}
