//! The groups with failed bindings, with the nodes that are kept for their members.

use super::{WaitId, Waiter, Waits};
use crate::cache::Cache;
use berth_api::{Duration, Pod, Str, Time};
use berth_framework::cluster::GroupKey;
use berth_framework::stage::{Wait, WaitOn};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

/// A group with a failed binding.
#[derive(Debug)]
struct BrokenGroup {
    /// The time of the first failure.
    since: Time,
    /// The timer; `None` if the nodes were released.
    timer: Option<WaitId>,
    /// The node of each member whose binding failed, by UID.
    members: BTreeMap<Str, Str>,
}

/// The groups with failed bindings, until these members are bound.
#[derive(Debug, Default)]
pub(crate) struct BrokenGroups {
    groups: FxHashMap<GroupKey, BrokenGroup>,
}

impl BrokenGroups {
    /// The time for which the nodes of members are kept after a binding failed.
    pub(crate) const KEPT_MAX: Duration = Duration::from_secs(30);

    /// The binding of a pod to a node has failed. Returns whether the node is kept for it: if it is a member of a group
    /// that began to fail less than 30 s ago, the node did not reject it, and it is not being deleted.
    pub(crate) fn binding_failed(
        &mut self,
        cache: &Cache,
        waits: &mut Waits,
        pod: &Pod,
        node: &Str,
        is_rejected: bool,
        now: Time,
    ) -> bool {
        let Some(key) = GroupKey::of_pod(pod) else {
            return false;
        };
        let known = cache.effective(pod.uid());
        if known.is_none_or(|pod| pod.is_terminating()) {
            return false;
        }
        // The time of an earlier failure does not count if the members that failed then are bound or deleted.
        self.forget_deleted(cache, waits);
        let group = self.groups.entry(key.clone()).or_insert_with(|| {
            let wait = Wait {
                on: WaitOn::Timer,
                deadline: now + Self::KEPT_MAX,
            };
            BrokenGroup {
                since: now,
                timer: Some(waits.add(Waiter::BrokenGroup(key), wait)),
                members: BTreeMap::new(),
            }
        });
        group.members.insert(pod.uid().clone(), node.clone());
        let is_kept = group.timer.is_some() && now.since(group.since) < Self::KEPT_MAX;
        is_kept && !is_rejected
    }

    /// A pod is bound. A group is complete again when no member with a failed binding is left.
    pub(crate) fn bound(&mut self, cache: &Cache, waits: &mut Waits, pod: &Pod) {
        if self.groups.is_empty() {
            return;
        }
        let Some(key) = GroupKey::of_pod(pod) else {
            return;
        };
        if let Some(group) = self.groups.get_mut(&key) {
            group.members.remove(pod.uid());
        }
        self.forget_deleted(cache, waits);
    }

    /// The timer of a group has ended: its nodes are not kept any more. Returns the node of each member that is not
    /// bound, by UID.
    pub(crate) fn time_is_over(
        &mut self,
        cache: &Cache,
        waits: &mut Waits,
        key: &GroupKey,
    ) -> Option<BTreeMap<Str, Str>> {
        self.forget_deleted(cache, waits);
        let group = self.groups.get_mut(key)?;
        group.timer = None;
        Some(group.members.clone())
    }

    /// Drops members that do not wait any more, and groups without such members.
    fn forget_deleted(&mut self, cache: &Cache, waits: &mut Waits) {
        let is_waiting = |uid: &Str| cache.stored(uid).is_some_and(|pod| !pod.is_assigned());
        self.groups.retain(|_, group| {
            group.members.retain(|uid, _| is_waiting(uid));
            if group.members.is_empty()
                && let Some(timer) = group.timer
            {
                waits.end(timer);
            }
            !group.members.is_empty()
        });
    }
}
