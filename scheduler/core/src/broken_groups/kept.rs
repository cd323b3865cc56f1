//! The groups of which bindings failed, with the nodes that are kept for their members.

use crate::core::WaitId;
use berth_api::{Str, Time};
use berth_framework::cluster::GroupKey;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

/// A group of which a binding failed.
#[derive(Debug)]
pub(super) struct BrokenGroup {
    /// The time of the first failure.
    pub(super) since: Time,
    /// The timer; `None` if the nodes were given back.
    pub(super) timer: Option<WaitId>,
    /// The node of each member whose binding failed, by UID.
    pub(super) members: BTreeMap<Str, Str>,
}

/// The groups of which bindings failed, until these members are bound.
#[derive(Debug, Default)]
pub(crate) struct BrokenGroups {
    groups: FxHashMap<GroupKey, BrokenGroup>,
}

impl BrokenGroups {
    pub(super) fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    pub(super) fn contains(&self, key: &GroupKey) -> bool {
        self.groups.contains_key(key)
    }

    pub(super) fn insert(&mut self, key: GroupKey, group: BrokenGroup) {
        self.groups.insert(key, group);
    }

    pub(super) fn get_mut(&mut self, key: &GroupKey) -> Option<&mut BrokenGroup> {
        self.groups.get_mut(key)
    }

    /// Keeps the members of which `is_waiting` is true, and the groups with such members. Returns the timers of the
    /// others.
    pub(super) fn retain(&mut self, is_waiting: impl Fn(&Str) -> bool) -> Vec<WaitId> {
        let mut timers = Vec::new();
        self.groups.retain(|_, group| {
            group.members.retain(|uid, _| is_waiting(uid));
            if group.members.is_empty() {
                timers.extend(group.timer.take());
            }
            !group.members.is_empty()
        });
        timers
    }
}
