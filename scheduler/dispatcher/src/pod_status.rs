//! The desired status of each pod: the conditions and the nomination that the pod should have and does not have yet.
//!
//! [`DesiredStatus`] is the row of one pod:
//! - **now**: the decided changes (the result of a cycle, a nomination). They are written as soon as possible.
//! - **report**: the answer of PreEnqueue plugins about the pod (KEP-5501). It is written when it has been due for 5 s;
//!   later answers replace it without moving that time.
//! - **refused**: changes that the API refused in all attempts. They are offered again after 30 s, if the core finds
//!   them still true by then.
//!
//! A row is compared with the known state of the pod: the stored object with the successful writes. A status patch is
//! the difference at the time when it is sent. While it is in flight, the row does not contain its changes; if it fails
//! and is retried, they return to the row, where newer changes take precedence. A difference that disappears by itself
//! is never written.

use super::desired_status::{DesiredStatus, RefusedChange, Report};
use super::object::{CallEntry, TrackedObject, WaitingPlace};
use super::status::{ConditionChange, StatusChange};
use super::writes::{Base, Writes};
use super::{Backlog, Dispatcher, overwritten, skipped, text};
use berth_api::{Duration, Kind, Object, Pod, Time};
use berth_framework::ApiCall;
use berth_framework::call::{CallErrorKind, PodRef};
use berth_framework::write::POD_STATUS_PATCH;
use std::mem;

/// The pause before a status is offered again.
const OFFERED_AGAIN_AFTER: Duration = Duration::from_secs(30);
/// The maximum number of statuses that are offered again. Further ones are dropped: they are written when their pod is
/// next tried.
const OFFERS_MAX: usize = 1 << 16;

impl TrackedObject {
    /// The row of the pod.
    fn row(&mut self, pod: &PodRef) -> &mut DesiredStatus {
        self.status.get_or_insert_with(|| {
            Box::new(DesiredStatus {
                pod: pod.clone(),
                now: StatusChange::default(),
                report: None,
                refused: None,
            })
        })
    }

    pub(super) fn report(&self) -> Option<&Report> {
        self.status.as_ref()?.report.as_ref()
    }

    /// Returns whether a condition was given up, and the pod may have it or get it later.
    pub(super) fn has_refused_condition(&self) -> bool {
        let refused = self.status.as_ref().and_then(|row| row.refused.as_ref());
        refused.is_some_and(|refused| refused.change.changes_conditions())
    }

    /// Returns whether a patch was given up that may have been carried out.
    pub(super) fn is_refused_unclear(&self) -> bool {
        let refused = self.status.as_ref().and_then(|row| row.refused.as_ref());
        refused.is_some_and(|refused| refused.is_unclear)
    }

    /// Drops the row of the pod if it is empty. Without a waiting status patch, there is nothing to write now.
    pub(super) fn tidy_status(&mut self) {
        let is_patched = self.waiting.iter().any(CallEntry::is_status_patch);
        if let Some(row) = &mut self.status {
            if !is_patched {
                row.take_now();
            }
            if row.now.is_empty() && row.report.is_none() && row.refused.is_none() {
                self.status = None;
            }
        }
    }
}

impl Dispatcher {
    /// Records that the answer of PreEnqueue plugins differs from the status of a pod: `call` sets or clears the
    /// condition, and is sent at `due`. A waiting report keeps its time, unless the pod was admitted since. If the pod
    /// has the condition, or a more relevant call is pending, there is nothing to report.
    ///
    /// With the gate SchedulerAsyncAPICalls off the call is made at once.
    pub fn report(&mut self, call: ApiCall, due: Time, now: Time) {
        let answer = StatusChange::of(&call).and_then(|change| change.condition);
        let (Some(answer), Some(pod)) = (answer, call.pod()) else {
            debug_assert!(false, "a report sets or clears a condition");
            return;
        };
        if self.closed {
            return;
        }
        if !self.options.asynchronous {
            self.enqueue(call, now);
            return;
        }
        let at = self.backlog.objects.find_or_insert(call.key());
        let Some(object) = self.backlog.objects.get_mut(at) else {
            return;
        };
        let mut entries = object.waiting.iter().chain(object.in_flight.as_deref());
        if object.gone || entries.any(|entry| !entry.is_status_patch()) {
            return;
        }
        let was_left = object.writes_again();
        let is_unclear = object.waiting.first().is_some_and(|first| first.unclear);
        let sent = object.in_flight.as_deref();
        let sent = sent.and_then(|entry| StatusChange::of(&entry.call)?.condition);
        let row = object.row(pod);
        let report = row.answered(answer, due, sent.as_ref(), was_left, is_unclear);
        if row.now.is_empty()
            && let Some(entry) = self.backlog.take_first(at)
        {
            self.end(entry, overwritten(text::SAME_TYPE), now);
        }
        self.backlog.drop_report(at);
        if let Some(report) = report {
            self.backlog.keep_report(at, report);
            self.backlog.drop_needless_report(at);
        } else {
            self.drop_needless(at, text::NO_EFFECT, now);
        }
        self.backlog.tidy(at);
    }

    /// A due report becomes a call.
    pub(super) fn make_due_report(&mut self, at: u32, now: Time) {
        let Some(row) = self.backlog.row(at) else {
            return;
        };
        let pod = row.pod.clone();
        if row.report.as_ref().is_some_and(|report| report.due <= now)
            && let Some(report) = self.backlog.take_report(at)
        {
            let call = StatusChange::of_condition(report.answer).into_call(pod);
            let mut entry = CallEntry::new(self.ids.take(), call, now);
            entry.unclear = self.backlog.drop_refused(at);
            self.backlog.tracked += 1;
            self.backlog.add(at, entry);
            self.drop_needless(at, text::NO_EFFECT, now);
        }
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
        let row = self.backlog.objects.get(at)?.status.as_ref()?;
        let report = row.report.as_ref()?;
        let change = StatusChange::of_condition(report.answer.clone());
        Some((change.into_call(row.pod.clone()), report.due))
    }

    /// A status patch has failed in all attempts, and may succeed later, unless a newer patch of the condition replaces
    /// it.
    pub(super) fn offer_again(
        &mut self,
        at: u32,
        entry: &CallEntry,
        error: CallErrorKind,
        now: Time,
    ) {
        let may_succeed = error.may_be_done() || error == CallErrorKind::Conflict;
        let (Some(change), Some(pod)) = (StatusChange::of(&entry.call), entry.call.pod()) else {
            return;
        };
        let Some(object) = self.backlog.objects.get_mut(at) else {
            return;
        };
        let states_more = |entry: &CallEntry| {
            let change = object.change_of(entry);
            change.is_none_or(|change| change.changes_conditions())
        };
        let is_replaced = object.report().is_some() || object.waiting.iter().any(states_more);
        if !may_succeed || is_replaced || object.gone || self.closed {
            return;
        }
        let due = now + OFFERED_AGAIN_AFTER;
        self.backlog.drop_refused(at);
        if let Some(object) = self.backlog.objects.get_mut(at)
            && self.backlog.offers.len() < OFFERS_MAX
        {
            object.row(pod).refused = Some(RefusedChange {
                change,
                due: Some(due),
                is_unclear: entry.unclear || error.may_be_done(),
            });
            self.backlog.offers.insert((due, at));
        }
    }

    /// The API shows that the pod is bound, so earlier status changes are outdated.
    pub fn forget_status(&mut self, uid: &str) {
        if let Some(at) = self.backlog.objects.find(Kind::Pod, uid) {
            self.backlog.drop_later(at);
            self.backlog.tidy(at);
        }
    }

    /// Leaves the status of the pod to another scheduler, because no profile schedules the pod any more. Unsent changes
    /// are dropped, and the call in flight is not retried (D-31). An attempt with an unknown result is remembered, in
    /// case a profile schedules the pod again.
    pub fn leave_status(&mut self, uid: &str, now: Time) {
        let Some(at) = self.backlog.objects.find(Kind::Pod, uid) else {
            return;
        };
        self.backlog.drop_report(at);
        self.backlog.withdraw_offer(at);
        if let Some(object) = self.backlog.objects.get_mut(at)
            && let Some(entry) = object.in_flight.as_deref_mut()
        {
            entry.is_last = entry.is_status_patch();
        }
        let mut kept = Vec::new();
        while let Some(entry) = self.backlog.take_first(at) {
            if entry.is_status_patch() {
                self.backlog.remember_unclear(at, &entry);
                self.end(entry, skipped(text::LEFT), now);
            } else {
                kept.push(entry);
            }
        }
        for entry in kept {
            self.backlog.set_waiting(at, entry, None);
        }
        self.backlog.tidy(at);
    }

    /// The next status that is to be offered again. The core decides which part of it is still true. If an attempt may
    /// have been carried out, that is remembered until the next status patch of the pod.
    pub fn take_due_offer(&mut self, now: Time) -> Option<ApiCall> {
        let (due, at) = self.backlog.offers.first().copied()?;
        if due > now {
            return None;
        }
        let row = self.backlog.row(at)?;
        let call = row
            .refused
            .as_ref()?
            .change
            .clone()
            .into_call(row.pod.clone());
        self.backlog.withdraw_offer(at);
        self.backlog.tidy(at);
        Some(call)
    }
}

impl Backlog {
    fn row(&mut self, at: u32) -> Option<&mut DesiredStatus> {
        self.objects.get_mut(at)?.status.as_deref_mut()
    }

    // --- changes to write now -------------------------------------------------------------------------------

    /// Moves the changes of a status patch into the row of its pod, where they take precedence.
    pub(super) fn decide(&mut self, at: u32, entry: &mut CallEntry) {
        if let Some((row, change)) = self.take_change(at, entry) {
            row.now = change.after(mem::take(&mut row.now));
        }
    }

    fn take_change(
        &mut self,
        at: u32,
        entry: &mut CallEntry,
    ) -> Option<(&mut DesiredStatus, StatusChange)> {
        let change = StatusChange::of(&entry.call)?;
        let pod = entry.call.pod()?.clone();
        let row = self.objects.get_mut(at)?.row(&pod);
        entry.call = StatusChange::default().into_call(pod);
        Some((row, change))
    }

    /// A status patch has failed and is retried: its changes return to the row of the pod, where newer ones take
    /// precedence. A report is replaced by the current answer of the plugins (D-14). A new rejection waits for its own
    /// time; until then the pod gets no condition, whether or not the report was carried out.
    pub(super) fn restore(&mut self, at: u32, entry: &mut CallEntry) {
        let Some((row, sent)) = self.take_change(at, entry) else {
            return;
        };
        row.now = mem::take(&mut row.now).after(sent);
        let condition = row.now.condition.as_ref();
        if !condition.is_some_and(ConditionChange::is_report) {
            return;
        }
        if row.report.as_ref().is_some_and(|report| report.is_new) {
            row.now.condition = entry.unclear.then_some(ConditionChange::Clear);
        } else if let Some(report) = &row.report {
            row.now.condition = Some(report.answer.clone());
            self.take_report(at);
        }
    }

    /// The waiting call as it is to be sent: a status patch contains only the differences from the pod. `None` if there
    /// are none. A nomination includes a report that was waiting when it was decided. If the nomination has become
    /// needless, the report waits for its own time.
    pub(super) fn call_to_send(&mut self, at: u32, entry: &CallEntry) -> Option<ApiCall> {
        let object = self.objects.get_mut(at)?;
        let (Some(change), Some(pod)) = (object.change_of(entry), entry.call.pod()) else {
            return (!object.is_done(&entry.call)).then(|| object.for_latest_version(&entry.call));
        };
        let mut patch = object.cut(change, entry.unclear)?;
        let joins = object.status.as_mut().is_some_and(|row| row.take_now());
        if joins && !patch.changes_conditions() {
            self.drop_needless_report(at);
            patch.condition = self.take_report(at).map(|report| report.answer);
        }
        let mut call = patch.into_call(pod.clone());
        // A removal is sent for the version of the pod that has the condition, because the pod may be bound in the
        // meantime, with another condition.
        if let ApiCall::ClearPreEnqueueStatus {
            resource_version, ..
        } = &mut call
        {
            *resource_version = self.objects.get(at)?.known_version();
        }
        Some(call)
    }

    /// Drops the waiting status patch. If an earlier attempt may have been carried out, that is remembered.
    fn remember_unclear(&mut self, at: u32, entry: &CallEntry) {
        let Some(object) = self.objects.get_mut(at).filter(|_| entry.unclear) else {
            return;
        };
        if let (Some(change), Some(pod)) = (object.change_of(entry), entry.call.pod()) {
            object.row(pod).refused = Some(RefusedChange {
                change,
                due: None,
                is_unclear: true,
            });
        }
    }

    // --- changes to write later ----------------------------------------------------------------------------

    /// Replaces the refused changes by a new status patch. A condition in it replaces the report; without a condition,
    /// the report is written with the patch (D-24).
    pub(super) fn supersede_later(&mut self, at: u32, patch: &mut CallEntry) {
        let Some(change) = StatusChange::of(&patch.call) else {
            return;
        };
        patch.unclear |= self.supersede_refused(at, &change);
        let Some(report) = self.row(at).and_then(|row| row.report.as_mut()) else {
            return;
        };
        report.joins |= !change.changes_conditions();
        if change.condition.is_some() {
            self.drop_report(at);
        }
    }

    /// Replaces the refused changes by a new change. A refused nomination that the change does not touch is offered
    /// again, and a condition that may have been written is remembered until there is another one. Returns whether the
    /// state of the pod is unknown for the changed fields.
    fn supersede_refused(&mut self, at: u32, change: &StatusChange) -> bool {
        let Some(refused) = self.row(at).and_then(|row| row.refused.as_mut()) else {
            return false;
        };
        let is_unclear = refused.is_unclear;
        let nominates = refused.change.nominated_node.is_some();
        if change.condition.is_none() && refused.change.condition.is_some() {
            self.withdraw_offer(at);
            return is_unclear && nominates;
        }
        if nominates && change.nominated_node.is_none() && refused.due.is_some() {
            refused.change = StatusChange {
                nominated_node: refused.change.nominated_node.take(),
                ..StatusChange::default()
            };
        } else {
            self.drop_refused(at);
        }
        is_unclear
    }

    /// Drops a report that the status of the pod already has. This is unknown while a status patch is in flight or may
    /// have been carried out.
    pub(super) fn drop_needless_report(&mut self, at: u32) {
        let Some(object) = self.objects.get(at) else {
            return;
        };
        let states =
            |report: &Report| object.has(&StatusChange::of_condition(report.answer.clone()));
        let is_known = object.changes().next().is_none() && !object.is_refused_unclear();
        if object.report().is_some_and(states) && is_known {
            self.drop_report(at);
        }
    }

    fn keep_report(&mut self, at: u32, report: Report) {
        if let Some(row) = self.row(at) {
            row.report = Some(report);
            self.withdraw_offer(at);
            self.types.begins_to_wait(&POD_STATUS_PATCH);
            self.tracked += 1;
            self.replan(at);
        }
    }

    fn take_report(&mut self, at: u32) -> Option<Report> {
        let report = self.row(at)?.report.take()?;
        self.types.ends_to_wait(&POD_STATUS_PATCH);
        self.tracked = self.tracked.saturating_sub(1);
        Some(report)
    }

    /// Drops the report of a pod.
    fn drop_report(&mut self, at: u32) {
        self.take_report(at);
        self.replan(at);
    }

    /// Ends the offer of the status. It is remembered that an attempt may have been carried out.
    pub(super) fn withdraw_offer(&mut self, at: u32) {
        let Some(refused) = self.row(at).and_then(|row| row.refused.as_mut()) else {
            return;
        };
        let is_unclear = refused.is_unclear;
        if let Some(due) = refused.due.take() {
            self.offers.remove(&(due, at));
        }
        if !is_unclear {
            self.drop_refused(at);
        }
    }

    /// Drops the refused changes. Returns whether an attempt may have been carried out.
    fn drop_refused(&mut self, at: u32) -> bool {
        let refused = self.row(at).and_then(|row| row.refused.take());
        if let Some(due) = refused.as_ref().and_then(|refused| refused.due) {
            self.offers.remove(&(due, at));
        }
        refused.is_some_and(|refused| refused.is_unclear)
    }

    /// The pod is shown with the changes that were given up, so they had been carried out.
    pub(super) fn drop_shown(&mut self, at: u32, before: &Object) {
        let Some(object) = self.objects.get(at) else {
            return;
        };
        let row = object.status.as_ref();
        let refused = row.and_then(|row| row.refused.as_ref());
        let is_new = |refused: &RefusedChange| {
            let change = &refused.change;
            let is_in = |pod: &Pod| change.has_no_effect(&Base::new(pod, &Writes::NONE));
            !before.as_pod().is_some_and(|pod| is_in(pod)) && object.stored_pod().is_some_and(is_in)
        };
        if refused.is_some_and(is_new) {
            self.drop_refused(at);
        }
    }

    /// Drops the changes to write later.
    pub(super) fn drop_later(&mut self, at: u32) {
        self.drop_report(at);
        self.drop_refused(at);
    }

    /// Moves the object to its current place, because the time of its next change may differ.
    fn replan(&mut self, at: u32) {
        let object = self.objects.get(at);
        if object.is_some_and(|object| !matches!(object.place, WaitingPlace::Ready(..))) {
            self.unplace(at);
            self.place(at, None);
        }
    }
}
