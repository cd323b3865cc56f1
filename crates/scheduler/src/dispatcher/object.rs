//! What the dispatcher knows of one object: the call on its way, the calls that wait, and how the object looks.

use super::lanes::{Lane, Position};
use super::status::StatusChange;
use super::writes::{Base, Writes};
use berth_api::{Duration, Pod, Str, Time};
use berth_framework::ApiCall;
use berth_framework::call::CallId;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::sync::Arc;

/// The kinds of calls that exclude or merge with each other (D-2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum CallType {
    /// `pod_status_patch`.
    StatusPatch,
    /// `pod_binding`.
    Binding,
    /// `pod_deletion`.
    Deletion,
}

impl CallType {
    pub(super) const ALL: [Self; 3] = [Self::StatusPatch, Self::Binding, Self::Deletion];

    pub(super) fn of(call: &ApiCall) -> Self {
        match call {
            ApiCall::PatchPodStatus { .. } | ApiCall::ClearPreEnqueueStatus { .. } => {
                Self::StatusPatch
            }
            ApiCall::BindPod { .. } => Self::Binding,
            ApiCall::DeletePod { .. } => Self::Deletion,
        }
    }

    /// The `call_type` label.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::StatusPatch => "pod_status_patch",
            Self::Binding => "pod_binding",
            Self::Deletion => "pod_deletion",
        }
    }

    /// What a call of a higher relevance makes needless (D-2).
    pub(super) fn relevance(self) -> u8 {
        match self {
            Self::StatusPatch => 1,
            Self::Binding => 2,
            Self::Deletion => 3,
        }
    }

    pub(super) fn lane(self) -> Lane {
        match self {
            Self::StatusPatch => Lane::Status,
            Self::Binding => Lane::Binding,
            Self::Deletion => Lane::Deletion,
        }
    }
}

/// A call that has not ended.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) id: CallId,
    /// Calls that want just this one: they get its result.
    pub(super) joined: Vec<CallId>,
    pub(super) call: ApiCall,
    pub(super) made_at: Time,
    /// The end of its delay or of the pause before its next attempt.
    pub(super) not_before: Option<Time>,
    /// Whether its maker wanted it delayed (KEP-5501).
    pub(super) delayed: bool,
    pub(super) attempts: u32,
    pub(super) first_sent: Option<Time>,
    /// Whether an attempt failed that may have been carried out all the same.
    pub(super) unclear: bool,
}

impl Entry {
    pub(super) fn new(id: CallId, call: ApiCall, delay: Duration, now: Time) -> Self {
        Self {
            id,
            joined: Vec::new(),
            call,
            made_at: now,
            not_before: (!delay.is_zero()).then(|| now + delay),
            delayed: !delay.is_zero(),
            attempts: 0,
            first_sent: None,
            unclear: false,
        }
    }

    pub(super) fn call_type(&self) -> CallType {
        CallType::of(&self.call)
    }
}

/// Where an object's first waiting call is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Place {
    /// Nowhere: there is none, or it waits for the call that is on its way.
    #[default]
    Nowhere,
    /// In a lane.
    Ready(Lane, Position),
    /// Among the timers.
    Timer(Time),
}

/// One object. At most one call is on its way; unless calls are kept in order, at most one waits.
#[derive(Debug, Default)]
pub(super) struct Object {
    pub(super) uid: Str,
    /// How the API showed it last; unknown until somebody says.
    pub(super) stored: Option<Arc<Pod>>,
    pub(super) in_flight: Option<Box<Entry>>,
    pub(super) waiting: SmallVec<[Entry; 1]>,
    pub(super) place: Place,
    /// What was written and is not shown yet.
    pub(super) written: Writes,
    /// Until when `written` is believed.
    pub(super) expires: Option<Time>,
    /// The object is deleted; what is on its way is the last.
    pub(super) gone: bool,
}

impl Object {
    pub(super) fn new(uid: Str) -> Self {
        Self {
            uid,
            ..Self::default()
        }
    }

    /// Whether there is nothing to remember.
    pub(super) fn is_idle(&self) -> bool {
        self.in_flight.is_none() && self.waiting.is_empty() && self.expires.is_none()
    }

    /// Whether a call would change nothing, as far as is known (D-8).
    pub(super) fn is_needless(&self, call: &ApiCall) -> bool {
        let Some(stored) = &self.stored else {
            return false;
        };
        match StatusChange::of(call) {
            Some(change) => change.has_no_effect(&Base::new(stored, &self.written)),
            None => self.is_done(call),
        }
    }

    /// Whether the object shows that a binding was carried out.
    pub(super) fn is_done(&self, call: &ApiCall) -> bool {
        match (call, &self.stored) {
            (ApiCall::BindPod { node, .. }, Some(stored)) => stored.spec.node_name == *node,
            _ => false,
        }
    }

    /// The call as it is to be sent: only what changes something. `None` when nothing does. After an attempt that may
    /// have been carried out nobody knows what a status patch changes, and all of it is sent.
    pub(super) fn cut(&self, entry: &Entry) -> Option<ApiCall> {
        let call = &entry.call;
        let Some(stored) = &self.stored else {
            return Some(call.clone());
        };
        match StatusChange::of(call) {
            Some(_) if entry.unclear => Some(call.clone()),
            None => (!self.is_done(call)).then(|| call.clone()),
            Some(change) => {
                let rest = change.cut_to(&Base::new(stored, &self.written))?;
                Some(rest.into_call(call.pod().clone()))
            }
        }
    }

    /// All writes that the stored object does not show. Delayed calls are left out until they are sent: nobody
    /// decides by them, and most are dropped again.
    pub(super) fn writes(&self) -> Writes {
        let mut writes = self.written.clone();
        let waiting = self.waiting.iter().filter(|entry| !entry.delayed);
        for entry in self.in_flight.as_deref().into_iter().chain(waiting) {
            writes.note(&entry.call, entry.made_at);
        }
        writes
    }
}

/// All objects that there is something to remember of, in slots that are used again.
#[derive(Debug, Default)]
pub(super) struct Objects {
    slots: Vec<Option<Object>>,
    free: Vec<u32>,
    by_uid: FxHashMap<Str, u32>,
}

impl Objects {
    pub(super) fn find(&self, uid: &str) -> Option<u32> {
        self.by_uid.get(uid).copied()
    }

    pub(super) fn get(&self, at: u32) -> Option<&Object> {
        self.slots.get(at as usize)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, at: u32) -> Option<&mut Object> {
        self.slots.get_mut(at as usize)?.as_mut()
    }

    pub(super) fn insert(&mut self, uid: Str) -> u32 {
        let object = Some(Object::new(uid.clone()));
        let at = match self.free.pop() {
            Some(at) => {
                self.slots[at as usize] = object;
                at
            }
            None => {
                self.slots.push(object);
                // More than 2^32 objects are refused long before, see `tracked_max`.
                u32::try_from(self.slots.len() - 1).unwrap_or(u32::MAX)
            }
        };
        self.by_uid.insert(uid, at);
        at
    }

    pub(super) fn remove(&mut self, at: u32) {
        if let Some(object) = self.slots.get_mut(at as usize).and_then(Option::take) {
            self.by_uid.remove(&object.uid);
            self.free.push(at);
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &Object)> {
        self.slots
            .iter()
            .enumerate()
            .filter_map(|(at, object)| Some((u32::try_from(at).ok()?, object.as_ref()?)))
    }
}
