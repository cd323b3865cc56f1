//! The state of one object in the dispatcher: the call in flight, the waiting calls, and the view of the object.

use super::desired_status::DesiredStatus;
use super::lanes::LanePosition;
use super::status::{ConditionChange, StatusChange};
use super::writes::{Base, PodWrites, VersionNumber, Writes, version_number};
use berth_api::{Kind, Object as ApiObject, Pod, Str, Time};
use berth_framework::call::CallId;
use berth_framework::object_name::ObjectKey;
use berth_framework::write::Lane;
use berth_framework::{ApiCall, CallType, Write};
use rustc_hash::FxHashMap;
use slab::Slab;
use smallvec::SmallVec;
use std::collections::VecDeque;

/// The maximum number of remembered writes to an object after which other writes may be valid.
const FOLLOWED_MAX: usize = 64;

/// A call that has not ended.
#[derive(Debug, Clone)]
pub(super) struct CallEntry {
    pub(super) id: CallId,
    /// Equal calls, which get the result of this one.
    pub(super) joined: Vec<CallId>,
    /// The call as it was last sent. A waiting status patch contains no changes: they are computed from the desired
    /// status of the pod when it is sent. With the gate SchedulerAsyncAPICalls off, each patch contains its own
    /// changes.
    pub(super) call: ApiCall,
    pub(super) made_at: Time,
    /// The end of the pause before its next attempt.
    pub(super) not_before: Option<Time>,
    pub(super) attempts: u32,
    pub(super) first_sent: Option<Time>,
    /// Whether an attempt failed although the API may have carried it out.
    pub(super) unclear: bool,
    /// Whether the last attempt was for an older version than the API server has. The next update then ends the pause.
    pub(super) awaits_update: bool,
    /// Whether the call in flight is not retried after a failure, because the pod is left to another scheduler.
    pub(super) is_last: bool,
}

impl CallEntry {
    pub(super) fn new(id: CallId, call: ApiCall, now: Time) -> Self {
        Self {
            id,
            joined: Vec::new(),
            call,
            made_at: now,
            not_before: None,
            attempts: 0,
            first_sent: None,
            unclear: false,
            awaits_update: false,
            is_last: false,
        }
    }

    pub(super) fn call_type(&self) -> &'static CallType {
        self.call.call_type()
    }

    pub(super) fn is_status_patch(&self) -> bool {
        is_status_patch(&self.call)
    }
}

/// Returns whether the call writes conditions or the nominated node of a pod.
pub(super) fn is_status_patch(call: &ApiCall) -> bool {
    call.call_type().lane() == Lane::Status
}

/// The place of the first waiting call of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum WaitingPlace {
    /// Nowhere: no call waits, or it waits for the call in flight.
    #[default]
    Nowhere,
    /// In a lane.
    Ready(Lane, LanePosition),
    /// Among the timers.
    Timer(Time),
}

/// One object. At most one call is in flight. At most one waits, unless calls are kept in order, or waiting writes have
/// to be made one after the other ([`MergeError::Separate`](berth_framework::write::MergeError::Separate)).
#[derive(Debug)]
pub(super) struct TrackedObject {
    pub(super) key: ObjectKey,
    /// The last version that the API showed; `None` until an update shows it.
    pub(super) stored: Option<ApiObject>,
    pub(super) in_flight: Option<Box<CallEntry>>,
    pub(super) waiting: SmallVec<[CallEntry; 1]>,
    /// The desired status of the pod, except changes that are effective or in flight.
    pub(super) status: Option<Box<DesiredStatus>>,
    pub(super) place: WaitingPlace,
    /// The write that is not shown yet.
    pub(super) written: PodWrites,
    /// Until when `written` is believed.
    pub(super) expires: Option<Time>,
    /// The last writes after which other writes may be valid, with the versions that they created, oldest first.
    pub(super) followed: VecDeque<(Write, Str)>,
    /// The object is deleted; the call in flight is the last one.
    pub(super) gone: bool,
}

impl TrackedObject {
    pub(super) fn new(key: ObjectKey) -> Self {
        Self {
            key,
            stored: None,
            in_flight: None,
            waiting: SmallVec::new(),
            status: None,
            place: WaitingPlace::Nowhere,
            written: PodWrites::default(),
            expires: None,
            followed: VecDeque::new(),
            gone: false,
        }
    }

    /// A write has created a version of the object. Writes that wait for the previous version may be valid for this
    /// one.
    pub(super) fn note_version(&mut self, call: &ApiCall, version: Option<&str>) {
        let ApiCall::Write(write) = call else {
            return;
        };
        let Some(version) = version.filter(|_| write.may_be_followed()) else {
            return;
        };
        if self.followed.len() >= FOLLOWED_MAX {
            self.followed.pop_front();
        }
        self.followed
            .push_back((Write::clone(write), version.into()));
    }

    /// The call for the latest version for which it is valid.
    pub(super) fn for_latest_version(&self, call: &ApiCall) -> ApiCall {
        let ApiCall::Write(write) = call else {
            return call.clone();
        };
        let mut latest: Option<Write> = None;
        for (earlier, made) in &self.followed {
            let next = latest
                .as_ref()
                .unwrap_or(write)
                .for_version_of(earlier, made);
            latest = next.or(latest);
        }
        latest.map_or_else(|| call.clone(), ApiCall::from)
    }

    /// The pod as the API showed it last.
    pub(super) fn stored_pod(&self) -> Option<&Pod> {
        match &self.stored {
            Some(ApiObject::Pod(pod)) => Some(pod),
            _ => None,
        }
    }

    /// Remembers the changes of a call until the object shows them. Updates may arrive before answers.
    pub(super) fn note_written(
        &mut self,
        call: &ApiCall,
        version: Option<VersionNumber>,
        now: Time,
    ) {
        let stored = match &self.stored {
            Some(ApiObject::Pod(pod)) => Some(pod.as_ref()),
            _ => None,
        };
        self.written.note(call, version, stored, now);
    }

    /// Another status of the pod is to be written: a status patch in flight that fails is repeated with it. Returns whether
    /// the pod had been left to another scheduler.
    pub(super) fn writes_again(&mut self) -> bool {
        let in_flight = self.in_flight.as_deref_mut();
        in_flight.is_some_and(|entry| std::mem::take(&mut entry.is_last))
    }

    /// Returns whether there is no state left.
    pub(super) fn is_idle(&self) -> bool {
        self.in_flight.is_none()
            && self.waiting.is_empty()
            && self.status.is_none()
            && self.expires.is_none()
    }

    /// The changes of a waiting status patch: the desired ones, and with the gate SchedulerAsyncAPICalls off its own.
    pub(super) fn change_of(&self, entry: &CallEntry) -> Option<StatusChange> {
        let own = StatusChange::of(&entry.call)?;
        Some(match &self.status {
            Some(status) => own.after(status.now.clone()),
            None => own,
        })
    }

    /// The changes of all status patches that have not ended.
    pub(super) fn changes(&self) -> impl Iterator<Item = (&CallEntry, StatusChange)> {
        let in_flight = self.in_flight.as_deref();
        let in_flight = in_flight.and_then(|entry| Some((entry, StatusChange::of(&entry.call)?)));
        let waiting = self.waiting.iter();
        let waiting = waiting.filter_map(|entry| Some((entry, self.change_of(entry)?)));
        in_flight.into_iter().chain(waiting)
    }

    /// The end of the pause before a waiting call is sent. Only the removal of a condition waits for another version of
    /// the pod.
    pub(super) fn pause_of(&self, entry: &CallEntry) -> Option<Time> {
        let removes = |change: StatusChange| change.condition == Some(ConditionChange::Clear);
        let holds = !entry.awaits_update || self.change_of(entry).is_some_and(removes);
        entry.not_before.filter(|_| holds)
    }

    /// Returns whether the pod, as far as known, has the whole change.
    pub(super) fn has(&self, change: &StatusChange) -> bool {
        let is_in = |pod: &Pod| change.has_no_effect(&Base::new(pod, self.written.writes()));
        self.stored_pod().is_some_and(is_in)
    }

    /// Returns whether the object shows that a binding or a write of a claim or volume was carried out.
    pub(super) fn is_done(&self, call: &ApiCall) -> bool {
        match (call, &self.stored) {
            (ApiCall::BindPod { node, .. }, Some(ApiObject::Pod(stored))) => {
                stored.spec.node_name == *node
            }
            (ApiCall::Write(write), Some(stored)) => write.is_shown_by(stored),
            _ => false,
        }
    }

    /// Returns whether the object shows that repeating the call would be wrong: the pod has a node, which a binding
    /// cannot change and a status must not deny.
    pub(super) fn is_hopeless(&self, call: &ApiCall, change: Option<StatusChange>) -> bool {
        match (call, change, self.stored_pod()) {
            (ApiCall::BindPod { node, .. }, _, Some(stored)) => {
                stored.is_assigned() && stored.spec.node_name != *node
            }
            (_, Some(change), Some(stored)) => change.cut_to_truth(stored).is_none(),
            _ => false,
        }
    }

    /// The part of a change to send: only the differences from the pod; `None` if there are none. After an attempt with
    /// an unknown result the differences are unknown, so everything that is still true is sent.
    pub(super) fn cut(&self, change: StatusChange, is_unclear: bool) -> Option<StatusChange> {
        match self.stored_pod() {
            None => Some(change),
            Some(stored) if is_unclear => change.cut_to_truth(stored),
            Some(stored) => change.cut_to(&Base::new(stored, self.written.writes())),
        }
    }

    /// The latest known version of the pod: the last version shown by the API, or a later version created by our calls.
    pub(super) fn known_version(&self) -> Option<Str> {
        let stored = &self.stored_pod()?.metadata.resource_version;
        let made = self.written.latest_version();
        let later = made.filter(|made| version_number(stored).is_some_and(|shown| shown < *made));
        Some(later.map_or_else(|| stored.clone(), |made| Str::from(made.to_string())))
    }

    /// All writes that the stored object does not show. Reports of PreEnqueue are left out until they are sent: no
    /// decision depends on them, and most are dropped again.
    pub(super) fn writes(&self) -> Writes {
        let mut writes = self.written.writes().clone();
        if let Some(entry) = &self.in_flight {
            writes.note(&entry.call, entry.made_at);
        }
        if let Some(status) = &self.status {
            writes.note_change(status.now.clone());
        }
        for entry in &self.waiting {
            writes.note(&entry.call, entry.made_at);
        }
        writes
    }
}

/// All objects with state in the dispatcher.
#[derive(Debug, Default)]
pub(super) struct TrackedObjects {
    slots: Slab<TrackedObject>,
    /// By kind and UID.
    by_key: FxHashMap<Kind, FxHashMap<Str, u32>>,
}

impl TrackedObjects {
    pub(super) fn find(&self, kind: Kind, uid: &str) -> Option<u32> {
        self.by_key.get(&kind)?.get(uid).copied()
    }

    pub(super) fn get(&self, at: u32) -> Option<&TrackedObject> {
        self.slots.get(at as usize)
    }

    pub(super) fn get_mut(&mut self, at: u32) -> Option<&mut TrackedObject> {
        self.slots.get_mut(at as usize)
    }

    pub(super) fn find_or_insert(&mut self, key: ObjectKey) -> u32 {
        if let Some(at) = self.find(key.kind, &key.uid) {
            return at;
        }
        let at = self.slots.insert(TrackedObject::new(key.clone()));
        // More than 2^32 objects are refused long before, see `tracked_max`.
        let at = u32::try_from(at).unwrap_or(u32::MAX);
        let of_kind = self.by_key.entry(key.kind).or_default();
        of_kind.insert(key.uid, at);
        at
    }

    pub(super) fn remove(&mut self, at: u32) {
        if let Some(object) = self.slots.try_remove(at as usize)
            && let Some(of_kind) = self.by_key.get_mut(&object.key.kind)
        {
            of_kind.remove(&object.key.uid);
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &TrackedObject)> {
        let objects = self.slots.iter();
        objects.filter_map(|(at, object)| Some((u32::try_from(at).ok()?, object)))
    }
}
