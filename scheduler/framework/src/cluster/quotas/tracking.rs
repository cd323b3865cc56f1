//! The update of quotas from pods: counted pods, pods in line, and quotas whose room a change frees.

use super::admission::shortage;
use super::cohort::{Cohorts, join};
use super::line::{Entry, EntryKey, EntryState, Quota, QuotaId};
use super::needs::{self, Need, Needs};
use super::spec::QuotaSpec;
use super::{Facts, LineKey, OutOfLine, Quotas, Ruled, Standing, TrackedPod};
use crate::cluster::{GroupKey, GroupKind, is_group_ready};
use berth_api::{CustomObject, Pod, Str};
use std::collections::BTreeSet;
use std::sync::Arc;

impl Ruled {
    /// Returns whether a pod has room: it has a node, or it is admitted.
    pub(super) fn is_admitted(&self, tracked: &TrackedPod) -> bool {
        match &tracked.standing {
            Standing::Used => true,
            Standing::Pending { entry, .. } => {
                let entry = self.entries.get(entry);
                entry.is_some_and(|entry| entry.state == EntryState::Admitted)
            }
        }
    }

    /// How a pod is counted; `None` if no quota applies to it.
    fn standing_of(&self, pod: &Pod, schedulers: &[Str], facts: &Facts<'_>) -> Option<TrackedPod> {
        // Pods of other schedulers count only with a node (DQ-1, DQ-3).
        if !pod.is_assigned() && !schedulers.contains(&pod.spec.scheduler_name) {
            return None;
        }
        let selecting = self
            .quotas
            .iter()
            .filter(|(_, quota)| quota.spec.selects(pod));
        let mut counts_devices = false;
        let needs: Needs = selecting
            .map(|(name, quota)| {
                counts_devices |= quota.spec.counts_devices();
                Need {
                    quota: name.clone(),
                    amounts: needs::of_pod(&quota.spec, pod, facts),
                    pods: 1,
                }
            })
            .collect();
        if needs.is_empty() {
            return None;
        }
        let standing = if pod.is_assigned() {
            Standing::Used
        } else {
            let (entry, group) = entry_of(pod, facts);
            let out = if !pod.spec.scheduling_gates.is_empty() {
                Some(OutOfLine::Gated)
            } else if pod.is_terminating() {
                Some(OutOfLine::Terminating)
            } else if counts_devices && !needs::has_all_claims(pod, facts) {
                // A claim is awaited only if some quota counts its devices.
                Some(OutOfLine::ClaimMissing)
            } else {
                group
            };
            Standing::Pending { entry, out }
        };
        Some(TrackedPod {
            needs,
            place: LineKey::of(pod),
            standing,
        })
    }

    /// Adds a pod to the counted amounts, or removes it. The entry of a pending pod is out of line afterwards. Returns
    /// the previous state and the previous needs of the entry.
    fn count(
        &mut self,
        cohorts: &mut Cohorts,
        pod: &TrackedPod,
        sign: i64,
    ) -> Option<(EntryKey, EntryState, Needs)> {
        let (key, out) = match &pod.standing {
            Standing::Used => {
                for need in &pod.needs {
                    if let Some(quota) = self.quotas.get_mut(&need.quota) {
                        quota.count(cohorts, need, true, sign);
                    }
                }
                return None;
            }
            Standing::Pending { entry, out } => (entry, out),
        };
        // The entry leaves the line first, so that the amounts that it added are subtracted unchanged.
        let before = self.set_state(cohorts, key, EntryState::Out);
        let entry = self.entries.entry(key.clone()).or_default();
        let needed = entry.needs.clone();
        needs::add(&mut entry.needs, &pod.needs, sign);
        if sign > 0 {
            entry.members.insert(pod.place.clone());
            entry.unready += usize::from(out.is_some());
        } else {
            entry.members.remove(&pod.place);
            entry.unready -= usize::from(out.is_some());
        }
        if entry.members.is_empty() {
            self.entries.remove(key);
        }
        Some((key.clone(), before, needed))
    }

    /// The place of an entry that can be in line: all members are ready, and a gang is complete.
    fn place_of(&self, key: &EntryKey, facts: &Facts<'_>) -> Option<LineKey> {
        let entry = self.entries.get(key)?;
        let is_complete = match key {
            EntryKey::Pod(_) => true,
            EntryKey::Gang(root) => is_group_ready(facts.pods, facts.groups, root),
        };
        let first = entry
            .members
            .first()
            .filter(|_| entry.unready == 0 && is_complete);
        first.cloned()
    }

    /// Puts an entry into the line, if it can be there. With `keeps_room`, it is admitted at once if there is room,
    /// regardless of the order.
    fn enter(
        &mut self,
        cohorts: &mut Cohorts,
        namespace: &Str,
        key: &EntryKey,
        keeps_room: bool,
        facts: &Facts<'_>,
    ) {
        let Some(place) = self.place_of(key, facts) else {
            self.set_state(cohorts, key, EntryState::Out);
            return;
        };
        self.set_state(cohorts, key, EntryState::Out);
        let entry = self.entries.get(key);
        let fits = |entry: &Entry| shortage(self, cohorts, namespace, entry, None).is_none();
        let state = if keeps_room && entry.is_some_and(fits) {
            EntryState::Admitted
        } else {
            EntryState::Waiting(place)
        };
        self.set_state(cohorts, key, state);
    }

    fn quotas_of<'n>(
        namespace: &'n Str,
        needs: &'n Needs,
    ) -> impl Iterator<Item = QuotaId> + use<'n> {
        needs
            .iter()
            .map(|need| (namespace.clone(), need.quota.clone()))
    }
}

/// The entry to which a pending pod belongs, and the reason why it cannot be in line. A pod that terminates is no member
/// of its gang any more, because it will not run.
fn entry_of(pod: &Pod, facts: &Facts<'_>) -> (EntryKey, Option<OutOfLine>) {
    let alone = EntryKey::Pod(pod.uid().clone());
    let group = GroupKey::of_pod(pod)
        .filter(|_| facts.pods.follows_groups() && (pod.is_assigned() || !pod.is_terminating()));
    let Some(leaf) = group else {
        return (alone, None);
    };
    let Ok(root) = facts.groups.root_of(&leaf) else {
        return (alone, Some(OutOfLine::GroupMissing));
    };
    let spec = facts.groups.spec(&root);
    let is_basic =
        root.kind == GroupKind::PodGroup && spec.is_some_and(|spec| spec.gang_min().is_none());
    if is_basic {
        (alone, None)
    } else {
        (EntryKey::Gang(root), None)
    }
}

/// The gang to which a pod belongs.
pub(super) fn gang_of(pod: &Pod, facts: &Facts<'_>) -> Option<EntryKey> {
    let (entry, _) = entry_of(pod, facts);
    matches!(entry, EntryKey::Gang(_)).then_some(entry)
}

/// The gangs that a changed pod joined or left. They may have become complete or incomplete.
pub(super) fn gangs_of_change(
    before: Option<&Pod>,
    after: Option<&Pod>,
    facts: &Facts<'_>,
) -> Vec<EntryKey> {
    let counting = |pod: Option<&Pod>| pod.and_then(|pod| facts.pods.group_counting(pod));
    if counting(before) == counting(after) {
        return Vec::new();
    }
    let pods = before.into_iter().chain(after);
    pods.filter_map(|pod| gang_of(pod, facts)).collect()
}

/// The name, the object and the spec of a changed quota; without a spec, it was deleted or cannot be read.
pub(super) type ChangedQuota<'a> = (&'a Str, &'a Arc<CustomObject>, Option<Arc<QuotaSpec>>);

impl Quotas {
    /// Follows a pod of a namespace with quotas. `gangs` may have become complete or incomplete.
    pub(super) fn follow(
        &mut self,
        namespace: &Str,
        uid: &Str,
        pod: Option<&Pod>,
        is_new: bool,
        gangs: &[EntryKey],
        facts: &Facts<'_>,
    ) {
        let Self {
            spaces,
            cohorts,
            schedulers,
            changes,
            now,
            ..
        } = self;
        let space = spaces.get_mut(namespace);
        let Some(ruled) = space.and_then(|space| space.ruled.as_deref_mut()) else {
            return;
        };
        let after = pod.and_then(|pod| ruled.standing_of(pod, schedulers, facts));
        let before = ruled.pods.get(uid);
        if before == after.as_ref() && gangs.is_empty() {
            return;
        }
        let before = ruled.pods.remove(uid);
        let passed = before.as_ref().map(|before| ruled.is_admitted(before));
        let had_room = passed == Some(true);
        let mut looked_at: BTreeSet<QuotaId> = BTreeSet::new();
        let mut freed: BTreeSet<QuotaId> = BTreeSet::new();
        // The entries that are out of line while their members change, and whether they keep their room.
        let mut entries: Vec<(EntryKey, EntryState, bool)> = Vec::new();
        if let Some(before) = &before {
            freed.extend(Ruled::quotas_of(namespace, &before.needs));
            if let Some((key, state, needs)) = ruled.count(cohorts, before, -1) {
                freed.extend(Ruled::quotas_of(namespace, &needs));
                let keeps = state == EntryState::Admitted;
                entries.push((key, state, keeps));
            }
        }
        if let Some(after) = &after {
            looked_at.extend(Ruled::quotas_of(namespace, &after.needs));
            if let Some((key, state, needs)) = ruled.count(cohorts, after, 1) {
                freed.extend(Ruled::quotas_of(namespace, &needs));
                let known = entries.iter_mut().find(|(known, _, _)| *known == key);
                let is_alone = ruled
                    .entries
                    .get(&key)
                    .is_some_and(|entry| entry.members.len() == 1);
                match known {
                    // The pod has changed. The entry keeps its room only if the needs of the pod are the same.
                    Some((_, _, keeps)) => {
                        *keeps &= before.as_ref().is_some_and(|b| b.needs == after.needs);
                    }
                    None => {
                        let keeps = had_room && (is_alone || state == EntryState::Admitted);
                        entries.push((key, state, keeps));
                    }
                }
            }
            ruled.pods.insert(uid.clone(), after.clone());
        }
        for gang in gangs {
            let is_known = entries.iter().any(|(key, _, _)| key == gang);
            if is_known || !ruled.entries.contains_key(gang) {
                continue;
            }
            let needs = ruled.entries.get(gang).map(|entry| entry.needs.clone());
            freed.extend(
                needs
                    .iter()
                    .flat_map(|needs| Ruled::quotas_of(namespace, needs)),
            );
            let state = ruled.set_state(cohorts, gang, EntryState::Out);
            let keeps = state == EntryState::Admitted;
            entries.push((gang.clone(), state, keeps));
        }
        if !entries.is_empty() {
            looked_at.clear();
        }
        for (key, state, keeps) in &entries {
            ruled.enter(cohorts, namespace, key, *keeps, facts);
            let Some(entry) = ruled.entries.get_mut(key) else {
                continue;
            };
            if !matches!(state, EntryState::Waiting(_)) {
                entry.since = *now;
            }
            let candidate_of = entry.needs.iter().filter(|need| match &entry.state {
                EntryState::Waiting(place) => {
                    let quota = ruled.quotas.get(&need.quota);
                    quota.is_some_and(|quota| quota.is_candidate(place))
                }
                EntryState::Out | EntryState::Admitted => false,
            });
            looked_at.extend(candidate_of.map(|need| (namespace.clone(), need.quota.clone())));
        }
        let numbers = before.iter().chain(&after).flat_map(|pod| &pod.needs);
        changes
            .quotas
            .extend(numbers.map(|need| (namespace.clone(), need.quota.clone())));
        let has_room = after.as_ref().is_some_and(|after| ruled.is_admitted(after));
        let same_room = had_room
            && has_room
            && before.as_ref().map(|pod| &pod.needs) == after.as_ref().map(|pod| &pod.needs);
        let mut dirty = looked_at;
        if !same_room {
            dirty.extend(self.with_cohorts(freed));
        }
        self.admit_all(dirty);
        self.note_pods(namespace, uid, passed, pod, is_new);
        for (key, state, _) in entries {
            self.note_entry(namespace, &key, &state);
        }
    }

    /// Notes whether a changed pod passes now, or does not pass any more.
    fn note_pods(
        &mut self,
        namespace: &Str,
        uid: &Str,
        passed: Option<bool>,
        pod: Option<&Pod>,
        is_new: bool,
    ) {
        let Some(pod) = pod.filter(|pod| !pod.is_assigned()) else {
            return;
        };
        let passes = self.passes(pod);
        // Without a standing before, no quota applied.
        match (passed.unwrap_or(true), passes) {
            (false, true) if !self.changes.admitted.contains(uid) => {
                self.changes.admitted.push(uid.clone());
            }
            (true, false) if !is_new => self.changes.withdrawn.push(uid.clone()),
            _ => {}
        }
        debug_assert!(pod.namespace() == namespace, "a pod keeps its namespace");
    }

    /// Notes the members of an entry that has lost its admission.
    fn note_entry(&mut self, namespace: &Str, key: &EntryKey, before: &EntryState) {
        if *before != EntryState::Admitted {
            return;
        }
        let space = self.spaces.get(namespace);
        let ruled = space.and_then(|space| space.ruled.as_deref());
        let entry = ruled.and_then(|ruled| ruled.entries.get(key));
        if let Some(entry) = entry.filter(|entry| entry.state != EntryState::Admitted) {
            let members = entry.members.iter().map(|member| member.uid.clone());
            self.changes.withdrawn.extend(members);
        }
    }

    /// Computes the state of a namespace again, after a change of a quota or of the schedulers. Admitted entries keep
    /// their room in the order of the line, as far as there is room.
    pub(super) fn rebuild(
        &mut self,
        namespace: &Str,
        changed: Option<ChangedQuota<'_>>,
        facts: &Facts<'_>,
    ) {
        let Some(space) = self.spaces.get_mut(namespace) else {
            return;
        };
        let before = space.ruled.take().unwrap_or_default();
        let id = |name: &Str| (namespace.clone(), name.clone());
        let mut dirty: BTreeSet<QuotaId> = BTreeSet::new();
        // The old quotas leave their cohorts. This may free room for other quotas of these cohorts.
        for (name, quota) in &before.quotas {
            join(&mut self.cohorts, &id(name), quota, false);
            let cohort = quota.spec.cohort.as_ref();
            let cohort = cohort.and_then(|cohort| self.cohorts.get(cohort));
            dirty.extend(cohort.into_iter().flat_map(super::Cohort::waiting));
        }
        // The quotas start without amounts, because all pods are counted again.
        let mut ruled = Box::new(Ruled::default());
        for (name, quota) in &before.quotas {
            let quota = Quota::new(quota.object.clone(), quota.spec.clone());
            ruled.quotas.insert(name.clone(), quota);
        }
        match changed {
            Some((name, object, Some(spec))) => {
                let quota = Quota::new(object.clone(), spec);
                ruled.quotas.insert(name.clone(), quota);
            }
            Some((name, _, None)) => drop(ruled.quotas.remove(name)),
            None => {}
        }
        for (name, quota) in &ruled.quotas {
            join(&mut self.cohorts, &id(name), quota, true);
            let cohort = quota.spec.cohort.as_ref();
            let cohort = cohort.and_then(|cohort| self.cohorts.get(cohort));
            dirty.extend(cohort.into_iter().flat_map(super::Cohort::waiting));
            dirty.insert(id(name));
            self.changes.quotas.insert(id(name));
        }
        let mut uids: Vec<&Str> = space.pods.iter().collect();
        // A fixed order, because the set has none.
        uids.sort_unstable();
        for uid in &uids {
            let pod = facts.pods.get(*uid);
            let standing = pod.and_then(|pod| ruled.standing_of(pod, &self.schedulers, facts));
            if let Some(standing) = standing {
                ruled.count(&mut self.cohorts, &standing, 1);
                ruled.pods.insert((*uid).clone(), standing);
            }
        }
        let mut entries: Vec<(Option<LineKey>, EntryKey)> = ruled
            .entries
            .iter()
            .map(|(key, entry)| (entry.members.first().cloned(), key.clone()))
            .collect();
        // In the order of the line: earlier entries keep their room if there is not enough for all (DQ-4, DQ-12).
        entries.sort_unstable();
        for (_, key) in &entries {
            let known = before.entries.get(key);
            let was_admitted = known.is_some_and(|entry| entry.state == EntryState::Admitted);
            ruled.enter(&mut self.cohorts, namespace, key, was_admitted, facts);
            if let Some(entry) = ruled.entries.get_mut(key) {
                entry.since = known.map_or(self.now, |known| known.since);
            }
        }
        // The previous state of the pending pods, for the changes that are reported to the queue.
        let pending = uids.iter().filter_map(|uid| facts.pods.get(*uid));
        let pending = pending
            .filter(|pod| !pod.is_assigned() && self.schedulers.contains(&pod.spec.scheduler_name));
        let pending: Vec<(Arc<Pod>, bool)> = pending
            .map(|pod| {
                let tracked = before.pods.get(pod.uid());
                let passed = tracked.is_none_or(|tracked| before.is_admitted(tracked));
                (pod.clone(), passed)
            })
            .collect();
        space.ruled = (!ruled.quotas.is_empty()).then_some(ruled);
        self.admit_all(dirty);
        // `admit_all` has reported the pods that it admitted.
        let known: BTreeSet<Str> = self.changes.admitted.iter().cloned().collect();
        for (pod, passed) in pending {
            match (passed, self.passes(&pod)) {
                (false, true) if !known.contains(pod.uid()) => {
                    self.changes.admitted.push(pod.uid().clone());
                }
                (true, false) => self.changes.withdrawn.push(pod.uid().clone()),
                _ => {}
            }
        }
    }
}
