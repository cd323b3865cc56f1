//! The API calls of the core until their results are known (KEP-5229, KEP-5501).
//!
//! The core passes calls to the dispatcher and never waits: the edge takes the calls that may be sent
//! ([`Dispatcher::next_calls`]), sends them, and returns the results ([`Dispatcher::complete`]). The component that
//! made a call finds its result in [`Dispatcher::take_finished`]. Each call ends exactly once.
//!
//! Its other tasks:
//! - **One call per object** is in flight at a time. A newer call merges with a waiting one of its type, replaces a
//!   less relevant one, or is dropped for a more relevant one (status patch < binding < deletion); the component that
//!   made a dropped call is notified. A call that reverts an unsent one removes both.
//! - **Lanes** ([`Lane`]): a burst of status patches never delays a binding, and every lower lane keeps a share.
//! - **Statuses of pods** (`pod_status`): one row for each pod has the changes to write now, the report of PreEnqueue,
//!   which is written 5 s later, and the changes refused by the API, which are offered again.
//! - **Retries** of temporary failures, with backoff and jitter, a limited number of times.
//! - **The state of objects**: updates ([`Dispatcher::sync`]) drop waiting calls that have become needless, and
//!   [`Dispatcher::writes`] returns the changes of our calls that the object does not show yet.
//! - **Bounds**: the number of kept calls is limited; from a threshold on, [`Dispatcher::is_saturated`] requests a
//!   pause.
//!
//! With the gate SchedulerAsyncAPICalls off ([`DispatcherOptions::asynchronous`]) calls about one object are sent one
//! after another, and nothing is merged, skipped or delayed.
//!
//! **Architecture invariant:** a state machine. No clock, no I/O, no lock; jitter is derived from a seed.

mod desired_status;
mod difference;
mod enqueue;
mod ids;
mod lanes;
mod object;
mod options;
mod pod_status;
mod send;
mod status;
mod sync;
#[cfg(test)]
mod tests;
mod types;
mod view;
mod writes;

pub use berth_framework::write::Lane;
pub use ids::CallIds;
pub use lanes::{LaneShare, LaneShares};
pub use options::{DispatcherOptions, RetryPolicy};
pub use sync::has_calls;
pub use view::{CallState, CallView, calls_about};
pub use writes::Writes;
pub use writes::{VersionNumber, version_number};

use berth_api::{Duration, Time};
use berth_framework::call::{CallErrorKind, CallResult, CallTypeError, Response};
use berth_framework::write::{POD_DELETION, POD_STATUS_PATCH};
use berth_framework::{ApiCall, CallError, CallId, CallType};
use lanes::Lanes;
use object::{CallEntry, TrackedObjects, is_status_patch};
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};
use types::Types;

/// The reasons why a call was not sent, or not unchanged. Programs compare the first five: they are kube-scheduler's.
mod text {
    pub(super) const LESS_RELEVANT: &str =
        "a more relevant call is already enqueued for this object: call skipped";
    pub(super) const MORE_RELEVANT: &str =
        "a more relevant call was enqueued for this object: call overwritten";
    pub(super) const SAME_TYPE: &str =
        "a call of the same type was enqueued for this object: call overwritten";
    pub(super) const NO_EFFECT: &str =
        "call does not need to be executed because it has no effect: call skipped";
    pub(super) const NO_EFFECT_AFTER_SYNC: &str =
        "call does not need to be executed because after sync it has no effect: call skipped";
    pub(super) const MERGE_FAILED: &str = "failed to merge API calls";
    pub(super) const GONE: &str = "the object is gone: call skipped";
    pub(super) const CANCELLED: &str = "the call was cancelled: call skipped";
    pub(super) const BOUND: &str = "the pod has a node by now";
    pub(super) const BOUND_ELSEWHERE: &str = "the pod is bound to another node by now";
    pub(super) const UNREGISTERED: &str =
        "no plugin has registered this type of API calls; see ExtensionsBuilder::calls";
    pub(super) const LEFT: &str =
        "no profile of the configuration schedules the pod any more: call skipped";
    pub(super) const CLOSED: &str = "the dispatcher is closed: call skipped";
}

/// The end of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finished {
    /// The call.
    pub id: CallId,
    /// The call as it was last sent or would have been sent. A dropped status patch contains no changes.
    pub call: ApiCall,
    /// The result. A deliberately dropped call ends with an error of that kind, see [`CallErrorKind::is_dropped`];
    /// [`Finished::for_waiter`] returns the result for a component that waits for the call.
    pub result: CallResult,
    /// The time in flight, retries included; `None` when it was never sent, or not by itself.
    pub took: Option<Duration>,
}

impl Finished {
    /// Returns whether the desired state of the call is reached, perhaps without the call: an object that was to be
    /// deleted, or a pod whose status was to be written, may not have existed any more.
    pub fn is_done(&self) -> bool {
        match &self.result {
            Ok(_) => true,
            Err(error) => {
                send::is_deletion_of_nothing(&self.call, error.kind)
                    || send::is_status_of_nothing(&self.call, error.kind)
                    || (error.kind.is_dropped() && *self.call.call_type() == POD_DELETION)
            }
        }
    }

    /// The result for a component that waits for the call (D-10). A dropped status patch counts as successful, because
    /// a newer change will be written. A dropped binding or deletion did not happen, which is an error.
    pub fn for_waiter(&self) -> CallResult {
        match &self.result {
            Err(error) if error.kind.is_dropped() && is_status_patch(&self.call) => {
                Ok(Response::default())
            }
            result => result.clone(),
        }
    }
}

/// The counters of the dispatcher since it was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DispatcherCounts {
    /// Calls handed out to be sent, repetitions included.
    pub sent: u64,
    /// Of these, repetitions.
    pub retried: u64,
    /// Calls that were replaced by a newer one.
    pub overwritten: u64,
    /// Calls that were needless.
    pub skipped: u64,
    /// Calls that were refused because of the limit.
    pub refused: u64,
}

/// Orders calls. See the [module](self).
#[derive(Debug)]
pub struct Dispatcher {
    options: DispatcherOptions,
    ids: CallIds,
    backlog: Backlog,
    /// The calls in flight.
    in_flight: FxHashMap<CallId, u32>,
    finished: Vec<Finished>,
    counts: DispatcherCounts,
    failures: view::Failures,
    rng: fastrand::Rng,
    closed: bool,
}

/// The objects with unfinished calls or unseen writes, and their places.
#[derive(Debug)]
struct Backlog {
    objects: TrackedObjects,
    lanes: Lanes,
    /// Reports and pauses, with the object they are for.
    timers: BTreeSet<(Time, u32)>,
    /// Statuses that are offered again, with their object.
    offers: BTreeSet<(Time, u32)>,
    /// The time until which a write without an update is assumed.
    expiries: BTreeSet<(Time, u32)>,
    /// The registered types of calls, with the number of waiting calls of each.
    types: Types,
    /// The number of calls that have not ended.
    tracked: usize,
}

impl Default for Dispatcher {
    fn default() -> Self {
        Self::new(DispatcherOptions::default())
    }
}

fn dropped(kind: CallErrorKind, message: &str) -> CallResult {
    Err(CallError::new(kind, message))
}

fn skipped(message: &str) -> CallResult {
    dropped(CallErrorKind::Skipped, message)
}

fn overwritten(message: &str) -> CallResult {
    dropped(CallErrorKind::Overwritten, message)
}

impl Dispatcher {
    /// A dispatcher without calls.
    pub fn new(options: DispatcherOptions) -> Self {
        Self {
            ids: CallIds::default(),
            backlog: Backlog {
                objects: TrackedObjects::default(),
                lanes: Lanes::new(options.lanes, options.in_flight_max),
                timers: BTreeSet::new(),
                offers: BTreeSet::new(),
                expiries: BTreeSet::new(),
                types: Types::default(),
                tracked: 0,
            },
            in_flight: FxHashMap::default(),
            finished: Vec::new(),
            counts: DispatcherCounts::default(),
            failures: view::Failures::default(),
            rng: fastrand::Rng::with_seed(options.seed),
            closed: false,
            options,
        }
    }

    /// The IDs of its calls, for a component that passes calls on later.
    pub fn ids(&self) -> CallIds {
        self.ids.clone()
    }

    /// The calls that have ended since this was called last, in order.
    pub fn take_finished(&mut self) -> Vec<Finished> {
        std::mem::take(&mut self.finished)
    }

    /// Returns whether calls have ended since the last call of [`Dispatcher::take_finished`].
    pub fn has_finished(&self) -> bool {
        !self.finished.is_empty()
    }

    /// The time at which [`Dispatcher::next_calls`], [`Dispatcher::expire`] or [`Dispatcher::take_due_offer`] has
    /// something to do, though nothing has happened.
    pub fn next_wake(&self) -> Option<Time> {
        let Backlog {
            timers,
            offers,
            expiries,
            ..
        } = &self.backlog;
        let first = |times: &BTreeSet<(Time, u32)>| times.first().map(|(time, _)| *time);
        [timers, offers, expiries]
            .into_iter()
            .filter_map(first)
            .min()
    }

    /// Returns whether the number of kept calls is above the threshold from which no further calls should be made.
    pub fn is_saturated(&self) -> bool {
        self.backlog.tracked >= self.options.tracked_max - self.options.tracked_max / 4
    }

    /// Registers another type of calls.
    ///
    /// # Errors
    /// When it cannot be distinguished from a type that was registered before.
    pub fn register(&mut self, call_type: &'static CallType) -> Result<(), CallTypeError> {
        self.backlog.types.register(call_type)
    }

    /// The number of unsent calls of each `call_type`, including calls that are held back.
    pub fn pending(&self) -> BTreeMap<&'static str, usize> {
        self.backlog.types.all_waiting()
    }

    /// The counters of the dispatcher since it was made.
    pub fn counts(&self) -> DispatcherCounts {
        self.counts
    }

    /// The number of calls that have not ended.
    pub fn len(&self) -> usize {
        self.backlog.tracked
    }

    /// Returns whether every call has ended.
    pub fn is_empty(&self) -> bool {
        self.backlog.tracked == 0
    }

    /// Stops sending: waiting calls and all later calls are dropped (D-16, D-28). Calls in flight may still be
    /// completed.
    pub fn close(&mut self, now: Time) {
        self.closed = true;
        let all: Vec<u32> = self.backlog.objects.iter().map(|(at, _)| at).collect();
        for at in all {
            while let Some(entry) = self.backlog.take_first(at) {
                self.end(entry, skipped(text::CLOSED), now);
            }
            self.backlog.drop_later(at);
            self.backlog.tidy(at);
        }
    }

    /// Ends a call and the calls that joined it.
    fn end(&mut self, entry: CallEntry, result: CallResult, now: Time) {
        let ids = 1 + entry.joined.len();
        debug_assert!(self.backlog.tracked >= ids, "a call that ends was tracked");
        self.backlog.tracked = self.backlog.tracked.saturating_sub(ids);
        match &result {
            Err(error) if error.kind == CallErrorKind::Skipped => self.counts.skipped += 1,
            Err(error) if error.kind == CallErrorKind::Overwritten => self.counts.overwritten += 1,
            _ => {}
        }
        for id in entry.joined {
            self.finished.push(Finished {
                id,
                call: entry.call.clone(),
                result: result.clone(),
                took: None,
            });
        }
        self.finished.push(Finished {
            id: entry.id,
            call: entry.call,
            result,
            took: entry.first_sent.map(|at| now.since(at)),
        });
    }

    /// Checks the internal accounting. Walks everything: for tests and the simulator.
    ///
    /// # Errors
    /// The first inconsistency.
    pub fn check(&self) -> Result<(), String> {
        use object::WaitingPlace;
        let mut tracked = 0;
        let mut pending: BTreeMap<&'static str, usize> =
            self.pending().keys().map(|name| (*name, 0)).collect();
        let (mut ready, mut timers, mut expiries, mut in_flight) = (0, 0, 0, 0);
        for (at, object) in self.backlog.objects.iter() {
            let uid = &object.key.uid;
            for entry in object.waiting.iter().chain(object.in_flight.as_deref()) {
                tracked += 1 + entry.joined.len();
            }
            let report_waits = object.report().is_some();
            if report_waits {
                tracked += 1;
                let name = POD_STATUS_PATCH.name();
                *pending.entry(name).or_default() += 1;
            }
            let row = object.status.as_deref();
            if let Some(due) = row.and_then(|row| row.refused.as_ref()?.due)
                && !self.backlog.offers.contains(&(due, at))
            {
                return Err(format!("the status of {uid} is never offered again"));
            }
            let is_patched = object.waiting.iter().any(CallEntry::is_status_patch);
            if row.is_some_and(|row| !row.now.is_empty()) && !is_patched {
                return Err(format!("no call writes the status of {uid}"));
            }
            for entry in &object.waiting {
                *pending.entry(entry.call_type().name()).or_default() += 1;
            }
            let is_write = |entry: &CallEntry| matches!(entry.call, ApiCall::Write(_));
            let may_be_many = object.waiting.iter().all(is_write);
            if self.options.asynchronous && object.waiting.len() > 1 && !may_be_many {
                return Err(format!("{} calls wait for {uid}", object.waiting.len()));
            }
            let waits = !object.waiting.is_empty() || report_waits;
            let can_go = object.in_flight.is_none() && waits;
            if can_go == (object.place == WaitingPlace::Nowhere) {
                return Err(format!("{uid} is in the wrong place: {:?}", object.place));
            }
            ready += usize::from(matches!(object.place, WaitingPlace::Ready(..)));
            if let WaitingPlace::Timer(time) = object.place {
                timers += 1;
                if !self.backlog.timers.contains(&(time, at)) {
                    return Err(format!("{uid} has no timer"));
                }
            }
            if let Some(time) = object.expires {
                expiries += 1;
                if !self.backlog.expiries.contains(&(time, at)) {
                    return Err(format!("the writes of {uid} never expire"));
                }
            }
            if let Some(entry) = &object.in_flight {
                in_flight += 1;
                if self.in_flight.get(&entry.id) != Some(&at) {
                    return Err(format!("the call of {uid} in flight is not noted"));
                }
            }
            if object.is_idle() {
                return Err(format!("{uid} is remembered for nothing"));
            }
        }
        let lanes_ready: usize = Lane::ALL
            .map(|lane| self.backlog.lanes.ready(lane))
            .iter()
            .sum();
        let lanes_in_flight: usize = Lane::ALL
            .map(|l| self.backlog.lanes.in_flight(l))
            .iter()
            .sum();
        let counted = [tracked, ready, timers, expiries, in_flight, in_flight];
        let noted = [
            self.backlog.tracked,
            lanes_ready,
            self.backlog.timers.len(),
            self.backlog.expiries.len(),
            self.in_flight.len(),
            lanes_in_flight,
        ];
        if counted != noted || pending != self.pending() {
            return Err(format!(
                "counted {counted:?} and {pending:?}, noted {noted:?} and {:?}",
                self.pending()
            ));
        }
        Ok(())
    }
}

impl Backlog {
    /// Drops an object without remaining state.
    fn tidy(&mut self, at: u32) {
        if let Some(object) = self.objects.get_mut(at) {
            object.tidy_status();
            if object.is_idle() {
                self.objects.remove(at);
            }
        }
    }
}
