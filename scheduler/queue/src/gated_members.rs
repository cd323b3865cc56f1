//! The members of gated groups that PreEnqueue plugins reject for their own reasons, in addition to the member that
//! gates the group. Each is indexed as a single pod, by gate, rejectors and what it waits for: an event finds the
//! members that it can help, and each member states its current reason (KEP-5501). They never leave their group: an
//! event that helps a member only runs its plugins again.
//!
//! A member with the reason of the whole group is not indexed: all members are evaluated again when that reason ends.

use super::SchedulingQueue;
use super::entry::{EntryId, Gate, QueuedGroup, QueuedPodInfo};
use super::hooks::{ProfileId, Profiles};
use super::pool::Pool;
use super::walk::WaitingPods;
use berth_api::Str;
use berth_framework::cluster::GroupKey;
use rustc_hash::FxHashMap;
use slab::Slab;
use std::collections::BTreeSet;
use std::sync::Arc;

/// An indexed member.
#[derive(Debug)]
struct FiledMember {
    info: QueuedPodInfo,
    profile: Option<ProfileId>,
    /// The group without parent.
    root: GroupKey,
}

impl FiledMember {
    /// Returns whether the member states a reason of the whole group.
    fn states_reason_of_group(&self) -> bool {
        self.info.own.gate.as_ref().is_some_and(Gate::is_of_group)
    }
}

/// The indexed members. Their numbers are separate from the entries of the queue.
#[derive(Debug, Default)]
pub(super) struct GatedMembers {
    filed: Slab<FiledMember>,
    by_uid: FxHashMap<Str, EntryId>,
    /// The UIDs of the members that state a reason of the whole group, by the group without parent.
    of_groups: FxHashMap<GroupKey, BTreeSet<Str>>,
    pool: Pool,
}

impl GatedMembers {
    /// Returns whether no member is indexed.
    pub(super) fn is_empty(&self) -> bool {
        self.filed.is_empty()
    }

    /// The index of the members.
    pub(super) fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Returns whether the member is indexed.
    pub(super) fn contains(&self, uid: &str) -> bool {
        self.by_uid.contains_key(uid)
    }

    /// The number of an indexed member.
    pub(super) fn id_of(&self, uid: &str) -> Option<EntryId> {
        self.by_uid.get(uid).copied()
    }

    /// The UID of an indexed member.
    pub(super) fn uid_of(&self, id: EntryId) -> Option<&Str> {
        Some(self.filed.get(id.index())?.info.pod.uid())
    }

    /// The UIDs of the indexed members that state a reason of the whole group.
    pub(super) fn with_reason_of_group(&self, root: &GroupKey) -> Option<&BTreeSet<Str>> {
        self.of_groups.get(root)
    }

    /// Indexes a member in its current state. `root` is its group without parent.
    pub(super) fn file(&mut self, profiles: &Profiles, root: &GroupKey, info: &QueuedPodInfo) {
        let known = self.id_of(info.pod.uid());
        let known = known.and_then(|id| self.filed.get(id.index()));
        if known.is_some_and(|filed| is_unchanged(&filed.info, info)) {
            return;
        }
        self.remove(info.pod.uid());
        let profile = profiles.by_name(&info.pod.spec.scheduler_name);
        let filed = FiledMember {
            info: info.clone(),
            profile,
            root: root.clone(),
        };
        if filed.states_reason_of_group() {
            let of_group = self.of_groups.entry(root.clone()).or_default();
            of_group.insert(info.pod.uid().clone());
        }
        let id = EntryId::new(self.filed.insert(filed));
        self.by_uid.insert(info.pod.uid().clone(), id);
        self.pool
            .insert(id, profile.zip(profiles.get(profile)), info);
    }

    /// Files every member again, after the profiles were replaced.
    pub(super) fn refile(&mut self, profiles: &Profiles) {
        self.pool = Pool::default();
        for (at, FiledMember { info, profile, .. }) in &mut self.filed {
            *profile = profiles.by_name(&info.pod.spec.scheduler_name);
            let known = profile.zip(profiles.get(*profile));
            self.pool.insert(EntryId::new(at), known, info);
        }
    }

    /// Removes a member that is in no gated group, or has no reason of its own.
    pub(super) fn remove(&mut self, uid: &str) {
        let Some(id) = self.by_uid.remove(uid) else {
            return;
        };
        let Some(filed) = self.filed.try_remove(id.index()) else {
            return;
        };
        if filed.states_reason_of_group()
            && let Some(of_group) = self.of_groups.get_mut(&filed.root)
        {
            of_group.remove(uid);
            if of_group.is_empty() {
                self.of_groups.remove(&filed.root);
            }
        }
        self.pool.remove(id, filed.profile, &filed.info);
    }

    /// Checks that exactly the members of `groups` with their own reasons are indexed, in their current state.
    ///
    /// # Errors
    /// The first disagreement.
    pub(super) fn check<'q>(
        &self,
        profiles: &Profiles,
        groups: impl Iterator<Item = &'q QueuedPodInfo>,
    ) -> Result<(), String> {
        let (mut expected, mut of_groups) = (0, 0);
        for entry in groups {
            let members = entry.group().into_iter().flat_map(QueuedGroup::members);
            for member in members.filter(|member| is_filed(entry, member)) {
                expected += 1;
                let (pod, id) = (member.pod.key(), self.id_of(member.pod.uid()));
                let filed = id.and_then(|id| self.filed.get(id.index()).map(|filed| (id, filed)));
                let Some((id, filed)) = filed else {
                    return Err(format!("the gated member {pod} is not filed"));
                };
                if !is_unchanged(&filed.info, member) {
                    return Err(format!("the gated member {pod} is filed as it was before"));
                }
                if filed.states_reason_of_group() {
                    of_groups += 1;
                    let root = entry.group().map(QueuedGroup::key);
                    let stating = root.and_then(|root| self.with_reason_of_group(root));
                    if !stating.is_some_and(|uids| uids.contains(member.pod.uid())) {
                        return Err(format!(
                            "the gated member {pod} states a reason of its group, and is not found by it"
                        ));
                    }
                }
                let profile = filed.profile.zip(profiles.get(filed.profile));
                let checked = self.pool.by_wait.check(id, profile, &filed.info);
                checked.map_err(|problem| format!("the gated member {pod} {problem}"))?;
            }
        }
        let by_group: usize = self.of_groups.values().map(BTreeSet::len).sum();
        if by_group != of_groups {
            return Err(format!(
                "{by_group} gated members state reasons of groups, expected {of_groups}"
            ));
        }
        if [self.filed.len(), self.by_uid.len()] != [expected; 2] {
            return Err(format!(
                "{} gated members are filed, expected {expected}",
                self.filed.len()
            ));
        }
        Ok(())
    }
}

/// Returns whether a member waits for the same as in its index entry.
fn is_unchanged(filed: &QueuedPodInfo, now: &QueuedPodInfo) -> bool {
    Arc::ptr_eq(&filed.pod, &now.pod)
        && filed.own.gate == now.own.gate
        && filed.rejectors().eq(now.rejectors())
}

/// Returns whether a member of a gated group must be indexed. `entry` is the entry of its group.
pub(super) fn is_filed(entry: &QueuedPodInfo, member: &QueuedPodInfo) -> bool {
    let (Some(group), Some(gate), Some(of_group)) =
        (entry.group(), &member.own.gate, &entry.own.gate)
    else {
        return false;
    };
    let is_blocker = group.blocker.as_ref() == Some(member.pod.uid());
    let is_that_of_group = gate == of_group && gate.is_of_group();
    !gate.is_of_sibling && !is_blocker && !is_that_of_group
}

/// The indexed members of a queue, in the form for events.
pub(super) struct FiledMembers<'q>(pub(super) &'q SchedulingQueue);

impl WaitingPods for FiledMembers<'_> {
    fn waiting(&self, id: EntryId) -> Option<(&QueuedPodInfo, Option<ProfileId>)> {
        let filed = self.0.gated_members.filed.get(id.index())?;
        Some((&filed.info, filed.profile))
    }

    fn named(&self, namespace: &str, name: &str) -> Option<EntryId> {
        let groups = &self.0.places.groups;
        let uid = groups.uid_of(&namespace.into(), &name.into())?;
        self.0.gated_members.id_of(uid)
    }
}
