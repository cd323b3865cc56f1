//! Who waits for what: results of calls and jobs, changes of objects, and the time.

use berth_api::{Str, Time};
use berth_framework::call::{CallId, ObjectName};
use berth_framework::stage::{JobId, Wait, WaitOn, WakeReason};
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;

/// Names a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct WaitId(u64);

/// Who goes on when a wait ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Waiter {
    /// The parked cycle.
    Cycle,
    /// The parked cycle, for the scores of the extender at this place among others.
    Prioritizer(usize),
    /// A pod that Permit plugins hold, by UID: the first of them has held it for long enough.
    PermitTimeout(Str),
    /// A Permit plugin of a binding.
    Permit {
        /// Which binding.
        binding: u64,
        /// The plugin's place in the profile.
        at: usize,
    },
    /// A PreBind plugin of a binding.
    PreBind {
        /// Which binding.
        binding: u64,
        /// The plugin's place in the profile.
        at: usize,
    },
    /// The Bind plugin of a binding.
    Bind(u64),
}

/// All waits. Each ends once: by what it waits for or by its deadline.
#[derive(Debug, Default)]
pub(crate) struct Waits {
    next: u64,
    waiting: FxHashMap<WaitId, (Waiter, Wait)>,
    calls: FxHashMap<CallId, WaitId>,
    jobs: FxHashMap<JobId, WaitId>,
    /// Those that wait for a change of an object, in the order in which they began.
    objects: FxHashMap<ObjectName, Vec<WaitId>>,
    deadlines: BTreeSet<(Time, WaitId)>,
}

impl Waits {
    pub(crate) fn add(&mut self, waiter: Waiter, wait: Wait) -> WaitId {
        let id = WaitId(self.next);
        self.next += 1;
        match &wait.on {
            WaitOn::Call(call) => {
                self.calls.insert(*call, id);
            }
            WaitOn::Job(job) => {
                self.jobs.insert(*job, id);
            }
            WaitOn::Objects(objects) => {
                for object in objects {
                    self.objects.entry(object.clone()).or_default().push(id);
                }
            }
            WaitOn::Timer => {}
        }
        self.deadlines.insert((wait.deadline, id));
        self.waiting.insert(id, (waiter, wait));
        id
    }

    /// The wait is over, whatever it was for.
    pub(crate) fn end(&mut self, id: WaitId) -> Option<Waiter> {
        let (waiter, wait) = self.waiting.remove(&id)?;
        self.deadlines.remove(&(wait.deadline, id));
        match &wait.on {
            WaitOn::Call(call) if self.calls.get(call) == Some(&id) => {
                self.calls.remove(call);
            }
            WaitOn::Job(job) if self.jobs.get(job) == Some(&id) => {
                self.jobs.remove(job);
            }
            WaitOn::Objects(objects) => {
                for object in objects {
                    if let Some(ids) = self.objects.get_mut(object) {
                        ids.retain(|other| *other != id);
                        if ids.is_empty() {
                            self.objects.remove(object);
                        }
                    }
                }
            }
            _ => {}
        }
        Some(waiter)
    }

    /// Who waits for a call; that wait is over.
    pub(crate) fn by_call(&mut self, call: CallId) -> Option<Waiter> {
        let id = *self.calls.get(&call)?;
        self.end(id)
    }

    /// Who waits for a job; that wait is over.
    pub(crate) fn by_job(&mut self, job: JobId) -> Option<Waiter> {
        let id = *self.jobs.get(&job)?;
        self.end(id)
    }

    /// Whether somebody waits for a change of some object.
    pub(crate) fn any_for_objects(&self) -> bool {
        !self.objects.is_empty()
    }

    /// The waits for a change of the object. They are not over yet.
    pub(crate) fn for_object(&self, object: &ObjectName) -> Vec<WaitId> {
        self.objects.get(object).cloned().unwrap_or_default()
    }

    /// The first whose deadline has come, with what that means to it; that wait is over.
    pub(crate) fn due(&mut self, now: Time) -> Option<(Waiter, WakeReason)> {
        let (deadline, id) = *self.deadlines.first()?;
        if deadline > now {
            return None;
        }
        let reason = match self.waiting.get(&id).map(|(_, wait)| &wait.on) {
            Some(WaitOn::Timer) => WakeReason::Timer,
            _ => WakeReason::Deadline,
        };
        self.end(id).map(|waiter| (waiter, reason))
    }

    /// The next deadline.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_ends_once() {
        let mut waits = Waits::default();
        let wait = |on, secs| Wait {
            on,
            deadline: Time::from_secs(secs),
        };
        waits.add(Waiter::Bind(1), wait(WaitOn::Call(CallId(7)), 10));
        waits.add(Waiter::Bind(2), wait(WaitOn::Job(JobId(7)), 5));
        waits.add(Waiter::Cycle, wait(WaitOn::Timer, 8));
        assert_eq!(waits.next_deadline(), Some(Time::from_secs(5)));
        assert_eq!(waits.by_call(CallId(7)), Some(Waiter::Bind(1)));
        assert_eq!(waits.by_call(CallId(7)), None);
        assert!(waits.due(Time::from_secs(4)).is_none());
        let due = waits.due(Time::from_secs(8));
        assert!(matches!(due, Some((Waiter::Bind(2), WakeReason::Deadline))));
        assert_eq!(waits.by_job(JobId(7)), None);
        let due = waits.due(Time::from_secs(8));
        assert!(matches!(due, Some((Waiter::Cycle, WakeReason::Timer))));
        assert!(waits.waiting.is_empty());
        assert_eq!(waits.next_deadline(), None);
    }

    #[test]
    fn a_wait_for_one_of_several_objects_ends_with_the_first() {
        let mut waits = Waits::default();
        let node = |name: &str| ObjectName::new(berth_api::Kind::Node, &"".into(), &name.into());
        let wait = |names: &[&str]| Wait {
            on: WaitOn::Objects(names.iter().map(|name| node(name)).collect()),
            deadline: Time::from_secs(9),
        };
        assert!(!waits.any_for_objects());
        let both = waits.add(Waiter::Bind(1), wait(&["a", "b"]));
        let one = waits.add(Waiter::Bind(2), wait(&["b"]));
        assert!(waits.any_for_objects());
        assert_eq!(waits.for_object(&node("a")), [both]);
        assert_eq!(waits.for_object(&node("b")), [both, one]);
        assert_eq!(waits.end(both), Some(Waiter::Bind(1)));
        assert_eq!(waits.end(both), None);
        assert_eq!(waits.for_object(&node("a")), []);
        assert_eq!(waits.for_object(&node("b")), [one]);
        let due = waits.due(Time::from_secs(9));
        assert!(matches!(due, Some((Waiter::Bind(2), WakeReason::Deadline))));
        assert!(!waits.any_for_objects());
    }
}
