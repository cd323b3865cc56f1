//! The desired status of each pod: the conditions and nominations that have not been written.
//!
//! Of a pod's status there are at most three things to write, and one call writes them:
//! - what is **decided** (the result of a cycle, a nomination): a call like any other, sent as soon as possible;
//! - a **report**: the answers of PreEnqueue plugins about the pod (KEP-5501). It is written when it has been due for 5
//!   s, is replaced by later reports without moving that time, and is dropped when the pod states it already;
//! - an **offer**: what the API did not take in all attempts. It is offered again after 30 s, as far as the core finds
//!   it still true by then.
//!
//! Each is compared with the status of the pod, as far as that is known: the stored object with the writes that have
//! succeeded. A difference that ends by itself is never written.

use super::object::{CallEntry, TrackedObject, is_status_patch};
use super::status::{ConditionChange, StatusChange};
use super::{Backlog, Dispatcher, overwritten, text};
use berth_api::{Duration, Kind, Time};
use berth_framework::call::{CallErrorKind, PodRef};
use berth_framework::write::POD_STATUS_PATCH;
use berth_framework::{ApiCall, CallError};

/// The pause before a status is offered again.
const OFFERED_AGAIN_AFTER: Duration = Duration::from_secs(30);
/// The number of statuses that may be offered again. Further ones are forgotten: they are written when their pod is
/// next tried.
const OFFERS_MAX: usize = 1 << 16;

/// The report of PreEnqueue plugins about a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Report {
    pod: PodRef,
    change: ConditionChange,
    /// The time at which it is written.
    pub(super) due: Time,
    /// Whether it is a new rejection: after what is in flight was reported, the pod had been admitted.
    is_new: bool,
}

/// A status that the API did not take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Offer {
    call: ApiCall,
    /// The time at which it is offered again.
    pub(super) due: Time,
}

impl TrackedObject {
    /// Returns whether the last call about the object writes this condition: no other one is left to write then.
    fn writes_condition(&self, change: &ConditionChange) -> bool {
        let last = self.waiting.last().or(self.in_flight.as_deref());
        let last = last.and_then(|entry| StatusChange::of(&entry.call));
        last.and_then(|last| last.condition)
            .is_some_and(|last| last.states_the_same(change))
    }
}

impl CallEntry {
    /// Writes this instead of the condition that is in the call.
    fn restate(&mut self, change: ConditionChange, pod: PodRef) {
        if let Some(earlier) = StatusChange::of(&self.call) {
            let merged = StatusChange::of_condition(change).after(earlier);
            self.call = merged.into_call(pod);
        }
    }

    /// Takes the PodScheduled condition out of the call. Other conditions and a nominated node are still written.
    fn retract_report(&mut self) {
        if let (Some(change), Some(pod)) = (StatusChange::of(&self.call), self.call.pod().cloned())
        {
            let rest = StatusChange {
                condition: None,
                ..change
            };
            self.call = rest.into_call(pod);
        }
    }

    /// Returns whether the call is a status patch of which nothing is left.
    pub(super) fn writes_nothing(&self) -> bool {
        StatusChange::of(&self.call).is_some_and(|change| change.is_empty())
    }
}

impl Dispatcher {
    /// The answer of PreEnqueue plugins differs from the status of a pod: `call` sets or clears the condition, and is
    /// made at
    /// `due`. A report that waits already keeps its time, unless the pod had passed meanwhile. While the pod states it,
    /// or a more relevant call is about it, nothing is left to report.
    ///
    /// With the gate SchedulerAsyncAPICalls off the call is made at once.
    pub fn report(&mut self, call: ApiCall, due: Time, now: Time) {
        let (Some(change), Some(pod)) = (StatusChange::of(&call), call.pod().cloned()) else {
            debug_assert!(false, "a report is a status patch");
            return;
        };
        let Some(change) = change.condition else {
            return;
        };
        if self.closed {
            return;
        }
        if !self.options.asynchronous {
            self.enqueue(call, now);
            return;
        }
        let key = call.key();
        let at = match self.backlog.objects.find(key.kind, &key.uid) {
            Some(at) => at,
            None => self.backlog.objects.insert(key),
        };
        self.set_report(at, pod, change, due, now);
        self.backlog.tidy(at);
    }

    fn set_report(&mut self, at: u32, pod: PodRef, change: ConditionChange, due: Time, now: Time) {
        let Some(object) = self.backlog.objects.get_mut(at) else {
            return;
        };
        let mut entries = object.waiting.iter().chain(object.in_flight.as_deref());
        if object.gone || entries.any(|entry| !entry.is_status_patch()) {
            return;
        }
        let mut follows_admission = false;
        // A report that has not been sent states the present answer of the plugins (D-14).
        if let Some((first, earlier)) = object
            .waiting
            .first_mut()
            .and_then(|first| first.report().map(|earlier| (first, earlier)))
        {
            if !earlier.is_followed_by_new_rejection(&change) {
                first.restate(change, pod);
                self.backlog.drop_report(at);
                self.drop_needless(at, text::NO_EFFECT, now);
                return;
            }
            follows_admission = true;
            // The removal of a report that may have been carried out is repeated: only then it is known what the pod
            // states.
            if !first.unclear {
                first.retract_report();
            }
            if first.writes_nothing()
                && let Some(entry) = self.backlog.take_first(at)
            {
                self.end(entry, overwritten(text::SAME_TYPE), now);
            }
        }
        let Some(object) = self.backlog.objects.get_mut(at) else {
            return;
        };
        if object.writes_condition(&change) {
            self.backlog.drop_report(at);
            return;
        }
        let earlier = object.report.take();
        let (due, is_new) = match earlier.as_deref() {
            Some(earlier) if earlier.change.is_followed_by_new_rejection(&change) => (due, true),
            Some(earlier) => (earlier.due, earlier.is_new),
            None => {
                let in_flight = object.in_flight.as_ref().and_then(|entry| entry.report());
                let is_new = in_flight.is_some_and(|r| r.is_followed_by_new_rejection(&change));
                (due, is_new || follows_admission)
            }
        };
        if earlier.is_none() {
            self.backlog.types.begins_to_wait(&POD_STATUS_PATCH);
            self.backlog.tracked += 1;
        }
        object.report = Some(Box::new(Report {
            pod,
            change,
            due,
            is_new,
        }));
        self.backlog.drop_offer(at);
        self.backlog.drop_needless_report(at);
        self.backlog.replace_report(at);
    }

    /// The report of a pod as a call, when it is time to write it.
    pub(super) fn due_report(&mut self, at: u32, now: Time) -> Option<CallEntry> {
        let due = self.backlog.objects.get(at)?.report.as_ref()?.due;
        if due > now {
            return None;
        }
        let report = self.backlog.take_report(at)?;
        let change = StatusChange::of_condition(report.change);
        let id = self.new_id();
        self.backlog.tracked += 1;
        Some(CallEntry::new(id, change.into_call(report.pod), now))
    }

    /// Returns whether one more report would be kept; see [`DispatcherOptions::tracked_max`](super::DispatcherOptions).
    pub fn takes_reports(&self) -> bool {
        self.backlog.tracked <= self.options.tracked_max
            && self.backlog.types.waiting(&POD_STATUS_PATCH) < self.options.tracked_max / 4
            && self.backlog.offers.len() < OFFERS_MAX / 2
    }

    /// The report that waits for its time. For tests and for debugging.
    pub fn report_of(&self, uid: &str) -> Option<(ApiCall, Time)> {
        let at = self.backlog.objects.find(Kind::Pod, uid)?;
        let report = self.backlog.objects.get(at)?.report.as_ref()?;
        let change = StatusChange::of_condition(report.change.clone());
        Some((change.into_call(report.pod.clone()), report.due))
    }

    // --- offers --------------------------------------------------------------------------------------------

    /// A status patch has failed in all attempts, and may succeed later. A newer patch of the condition makes it
    /// needless.
    pub(super) fn offer_again(&mut self, at: u32, call: &ApiCall, error: &CallError, now: Time) {
        let may_succeed = matches!(
            error.kind,
            CallErrorKind::Unavailable | CallErrorKind::Timeout | CallErrorKind::Conflict
        );
        if !may_succeed || !is_status_patch(call) || self.closed {
            return;
        }
        let Some(object) = self.backlog.objects.get(at) else {
            return;
        };
        let states_more = |entry: &CallEntry| {
            let change = StatusChange::of(&entry.call);
            change.is_none_or(|change| change.changes_conditions())
        };
        if object.gone || object.report.is_some() || object.waiting.iter().any(states_more) {
            return;
        }
        self.backlog.drop_offer(at);
        if self.backlog.offers.len() >= OFFERS_MAX {
            return;
        }
        let due = now + OFFERED_AGAIN_AFTER;
        if let Some(object) = self.backlog.objects.get_mut(at) {
            let call = call.clone();
            object.offer = Some(Box::new(Offer { call, due }));
            self.backlog.offers.insert((due, at));
        }
    }

    /// The pod is bound, and the API shows so: earlier status changes are out of date.
    pub fn forget_status(&mut self, uid: &str) {
        if let Some(at) = self.backlog.objects.find(Kind::Pod, uid) {
            self.backlog.drop_offer(at);
            self.backlog.drop_report(at);
            self.backlog.tidy(at);
        }
    }

    /// The next status that is to be offered again; it counts as settled. The core decides which part of it is still
    /// true.
    pub fn take_due_offer(&mut self, now: Time) -> Option<ApiCall> {
        let (due, at) = self.backlog.offers.first().copied()?;
        if due > now {
            return None;
        }
        let offer = self.backlog.objects.get(at)?.offer.as_ref()?;
        let call = offer.call.clone();
        self.backlog.drop_offer(at);
        self.backlog.tidy(at);
        Some(call)
    }
}

impl Backlog {
    /// The report has another time, or there is none any more.
    pub(super) fn replace_report(&mut self, at: u32) {
        let Some(object) = self.objects.get(at) else {
            return;
        };
        if object.waiting.is_empty() {
            self.unplace(at);
            self.place(at, None);
        }
    }

    /// Drops a report that the status of the pod shows already. While a status patch is in flight, or may have been
    /// carried out, that is not known.
    pub(super) fn drop_needless_report(&mut self, at: u32) {
        let Some(object) = self.objects.get(at) else {
            return;
        };
        let Some(report) = &object.report else {
            return;
        };
        let mut entries = object.waiting.iter().chain(object.in_flight.as_deref());
        if entries.any(|entry| entry.is_status_patch()) {
            return;
        }
        let change = StatusChange::of_condition(report.change.clone());
        if object.is_needless(&change.into_call(report.pod.clone())) {
            self.drop_report(at);
        }
    }

    /// Forgets the report of a pod.
    pub(super) fn drop_report(&mut self, at: u32) {
        self.take_report(at);
        self.replace_report(at);
    }

    pub(super) fn take_report(&mut self, at: u32) -> Option<Report> {
        let report = self.objects.get_mut(at)?.report.take()?;
        self.types.ends_to_wait(&POD_STATUS_PATCH);
        self.tracked = self.tracked.saturating_sub(1);
        Some(*report)
    }

    /// A report failed and is repeated: it states the present answer of the plugins (D-14). A new rejection waits for
    /// its own time; until then the pod states nothing, whether or not the report was carried out.
    pub(super) fn renew_report(&mut self, at: u32, entry: &mut CallEntry) {
        if entry.report().is_none() {
            return;
        }
        let object = self.objects.get(at);
        match object.and_then(|object| object.report.as_deref()) {
            None => {}
            Some(report) if report.is_new && entry.unclear => {
                entry.restate(ConditionChange::Clear, report.pod.clone());
            }
            Some(report) if report.is_new => entry.retract_report(),
            Some(_) => {
                if let Some(report) = self.take_report(at) {
                    entry.restate(report.change, report.pod);
                }
            }
        }
    }

    /// A status patch is made: it takes the place of what was to be offered again. A condition in it takes the place of
    /// the report; without one, the report is written along with it (D-24).
    pub(super) fn supersede_report(&mut self, at: u32, entry: &mut CallEntry) {
        self.drop_offer(at);
        let Some(change) = StatusChange::of(&entry.call) else {
            return;
        };
        if change.condition.is_some() {
            self.take_report(at);
        } else if !change.changes_conditions() {
            let object = self.objects.get(at);
            entry.joins_report = object.is_some_and(|object| object.report.is_some());
        }
    }

    /// A status patch is sent, with the report that it is to take along. A patch that has become needless is not sent,
    /// so that its report waits for its own time.
    pub(super) fn join_report(&mut self, at: u32, entry: &mut CallEntry) {
        if !std::mem::take(&mut entry.joins_report) {
            return;
        }
        let Some(change) =
            StatusChange::of(&entry.call).filter(|change| !change.changes_conditions())
        else {
            return;
        };
        self.drop_needless_report(at);
        if let Some(report) = self.take_report(at) {
            let both = StatusChange {
                condition: Some(report.change),
                ..change
            };
            entry.call = both.into_call(report.pod);
        }
    }

    /// The status is not offered again.
    pub(super) fn drop_offer(&mut self, at: u32) {
        let object = self.objects.get_mut(at);
        if let Some(offer) = object.and_then(|object| object.offer.take()) {
            self.offers.remove(&(offer.due, at));
        }
    }
}
