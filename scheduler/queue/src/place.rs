//! The queued pods, each in its place. No other code changes the heaps and the indexes.

use super::QueueConfig;
use super::backoff::Backoff;
use super::counts::QueueCounts;
use super::entry::{Entry, EntryId, Gate, PodTemplateKey, QueueEntries, QueuedIn, QueuedPodInfo};
use super::groups::Groups;
use super::heap::{Heap, HeapItem, Key, Positions};
use super::hooks::{Profiles, QueueProfile};
use super::names::{self, Names};
use super::sort_order::SortOrder;
use super::waiting::{Turn, WaitingPods};
use berth_api::{Pod, Str, Time};
use berth_framework::Feature;
use berth_framework::plugin::QueueSort;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The pods of an entry: the pod, or the members of a group.
fn members_of(info: &QueuedPodInfo) -> impl Iterator<Item = &QueuedPodInfo> {
    let alone = info.own.group.is_none().then_some(info);
    let members = info.own.group.iter().flat_map(|group| group.members());
    alone.into_iter().chain(members)
}

/// The maximum number of pods whose backoff is checked before one of them is woken for its template.
const LOOKED_AT_MAX: usize = 16;

/// All queued pods. Each pod is in exactly one place.
pub struct QueuePlaces {
    sort: SortOrder,
    /// Whether pods are popped from backoff (SchedulerPopFromBackoffQ).
    pops_from_backoff: bool,
    backoff: Backoff,
    pub(super) profiles: Profiles,
    entries: QueueEntries,
    names: Names,
    heaps: [Heap; QueuedIn::ALL.len()],
    positions: Positions,
    /// The pods that wait for events, and the members of gated groups that wait for their own events.
    waiting: WaitingPods,
    /// The index entries of members of gated groups, by UID.
    members: FxHashMap<Str, EntryId>,
    arrivals: u64,
    /// The groups, and members without an entry.
    pub(super) groups: Groups,
    /// The number of gated pods whose plugins a flush ran again.
    long_gated: usize,
}

impl QueuePlaces {
    /// An empty set of places, ordered by `sort`, or by waiting time without it.
    pub(super) fn new(
        config: &QueueConfig,
        sort: Option<Arc<dyn QueueSort>>,
        profiles: Profiles,
    ) -> Self {
        let pops_from_backoff = config.features.enabled(Feature::SchedulerPopFromBackoffQ);
        Self {
            sort: SortOrder::of(sort, pops_from_backoff),
            pops_from_backoff,
            backoff: Backoff::new(config),
            profiles,
            entries: QueueEntries::default(),
            names: Names::default(),
            heaps: Default::default(),
            positions: Positions::default(),
            waiting: WaitingPods::default(),
            members: FxHashMap::default(),
            arrivals: 0,
            groups: Groups::default(),
            long_gated: 0,
        }
    }

    // --- to look at ----------------------------------------------------------------------------------------

    /// Returns whether a flush ran the plugins of any gated pod again.
    pub(super) fn has_long_gated(&self) -> bool {
        self.long_gated > 0
    }

    /// The backoff of pods.
    pub(super) fn backoff(&self) -> &Backoff {
        &self.backoff
    }

    /// The indexes of the pods that wait for events.
    pub(super) fn waiting(&self) -> &WaitingPods {
        &self.waiting
    }

    /// A waiting pod, or a member of a gated group with its own reason.
    pub(super) fn waiting_entry(&self, id: EntryId) -> Option<&Entry> {
        let waits = |entry: &&Entry| entry.place.is_some_and(QueuedIn::is_unschedulable_pool);
        self.entries.get(id).filter(waits)
    }

    /// The entries that an event about the pod of this name can help: its own, or those of its group and of the member.
    pub(super) fn named(
        &self,
        namespace: &str,
        name: &str,
    ) -> impl Iterator<Item = EntryId> + use<> {
        let entry = self.entry_of(namespace, name);
        let uid = self.groups.uid_of(namespace, name);
        let member = uid.and_then(|uid| self.members.get(uid).copied());
        entry.into_iter().chain(member)
    }

    /// The heap of a place.
    pub(super) fn heap(&self, place: QueuedIn) -> &Heap {
        &self.heaps[place as usize]
    }

    /// The entry of a queued pod.
    pub(super) fn id_of(&self, namespace: &str, name: &str) -> Option<EntryId> {
        self.names.find(namespace, name, &self.entries)
    }

    /// The entry of a queued pod, or the entry of its group.
    pub(super) fn entry_of(&self, namespace: &str, name: &str) -> Option<EntryId> {
        let alone = self.id_of(namespace, name);
        alone.or_else(|| self.groups.entry_of(self.groups.uid_of(namespace, name)?))
    }

    pub(super) fn get(&self, id: EntryId) -> Option<&Entry> {
        self.entries.get(id)
    }

    /// A mutable entry. Fields that its indexes depend on may change only while it is detached.
    pub(super) fn get_mut(&mut self, id: EntryId) -> Option<&mut Entry> {
        self.entries.get_mut(id)
    }

    /// The profile of a pod; `None` for pods of other schedulers.
    pub(super) fn profile_of(&self, pod: &Pod) -> Option<&QueueProfile> {
        self.profiles
            .get(self.profiles.by_name(&pod.spec.scheduler_name))
    }

    /// A detached entry, with the plugins of its profile.
    pub(super) fn with_profile(
        &mut self,
        id: EntryId,
    ) -> Option<(&mut QueuedPodInfo, Option<&QueueProfile>)> {
        let entry = self.entries.get_mut(id)?;
        debug_assert_eq!(entry.place, None, "a pod is detached while it is asked");
        Some((&mut entry.info, self.profiles.get(entry.profile)))
    }

    /// The number of waiting pods by place.
    pub fn counts(&self) -> QueueCounts {
        let len = |place| self.heap(place).len() + self.groups.further_members[place as usize];
        let outside = |place| self.groups.outside().filter(|(of, _)| *of == place).count();
        QueueCounts {
            active: len(QueuedIn::Active),
            backoff: len(QueuedIn::Backoff) + len(QueuedIn::ErrorBackoff),
            unschedulable: len(QueuedIn::Unschedulable),
            gated: len(QueuedIn::Gated),
            incomplete: outside(QueuedIn::Gated),
            pending: outside(QueuedIn::Active),
        }
    }

    /// Every queued pod, in no particular order.
    pub fn pods(&self) -> impl Iterator<Item = (QueuedIn, &QueuedPodInfo)> {
        let queued = self.entries.queued().filter_map(|(_, entry)| {
            let place = entry.place?;
            Some(members_of(&entry.info).map(move |info| (place, info)))
        });
        queued.flatten().chain(self.groups.outside())
    }

    /// The place of a member of a group, and the member as it is queued, pending or incomplete.
    pub(super) fn member(&self, uid: &str) -> Option<(QueuedIn, &QueuedPodInfo)> {
        let queued = || {
            let entry = self.entries.get(self.groups.entry_of(uid)?)?;
            Some((entry.place?, entry.info.group()?.members.get(uid)?))
        };
        self.groups.find_outside(uid).or_else(queued)
    }

    /// The number of entries by queue and type, with the names of the metrics.
    pub fn entities(&self) -> BTreeMap<(&'static str, &'static str), usize> {
        let name = |place| match place {
            QueuedIn::Active => "active",
            QueuedIn::Backoff | QueuedIn::ErrorBackoff => "backoff",
            QueuedIn::Unschedulable => "unschedulable",
            QueuedIn::Gated => "gated",
        };
        let mut entities: BTreeMap<(&'static str, &'static str), usize> = BTreeMap::new();
        for place in QueuedIn::ALL {
            *entities.entry((name(place), "pod")).or_default() += self.heap(place).len();
        }
        for (place, info) in self.groups() {
            let Some(group) = &info.own.group else {
                continue;
            };
            let word = group.key().kind.as_str();
            *entities.entry((name(place), word)).or_default() += 1;
            if let Some(pods) = entities.get_mut(&(name(place), "pod")) {
                *pods = pods.saturating_sub(1);
            }
        }
        entities
    }

    /// The queued groups, in no particular order.
    pub fn groups(&self) -> impl Iterator<Item = (QueuedIn, &QueuedPodInfo)> {
        self.groups.entries().filter_map(|id| {
            let entry = self.entries.get(id)?;
            Some((entry.place?, &entry.info))
        })
    }

    /// The pods of a place: active pods and pods in backoff in the order of pops, waiting pods by waiting time. Sorts;
    /// for explanations and tests.
    pub fn pods_in(&self, place: QueuedIn) -> Vec<&QueuedPodInfo> {
        let less = self.sort.less(place, &self.entries);
        let mut items = self.heap(place).items().to_vec();
        items.sort_by(|a, b| less(b, a).cmp(&less(a, b)));
        items
            .iter()
            .filter_map(|item| Some(members_of(&self.entries.get(item.id)?.info)))
            .flatten()
            .collect()
    }

    /// The number of pods that precede a queued pod in its place, in the order of [`QueuePlaces::pods_in`].
    pub fn ahead_of(&self, namespace: &str, name: &str) -> Option<usize> {
        let id = self.entry_of(namespace, name)?;
        let place = self.entries.get(id)?.place?;
        let less = self.sort.less(place, &self.entries);
        let items = self.heap(place).items();
        let own = items.iter().find(|item| item.id == id)?;
        let ahead = items.iter().filter(|item| less(item, own));
        let pods = |item: &HeapItem| self.entries.get(item.id).map_or(1, |e| e.info.pods_len());
        Some(ahead.map(pods).sum())
    }

    /// The time at which the backoff of a pod ends, rounded down to the ordering window; `None` without one.
    pub fn backoff_expiry(&self, info: &QueuedPodInfo) -> Option<Time> {
        self.backoff.expiry(info)
    }

    /// Returns whether pods in backoff are popped if no pod is active.
    pub(super) fn pops_from_backoff(&self) -> bool {
        self.pops_from_backoff
    }

    /// Returns whether a pod in this place can be popped now.
    pub(super) fn is_poppable(&self, place: QueuedIn) -> bool {
        match place {
            QueuedIn::Active => true,
            QueuedIn::Backoff | QueuedIn::ErrorBackoff => self.pops_from_backoff,
            QueuedIn::Unschedulable | QueuedIn::Gated => false,
        }
    }

    /// The next pod to pop, with its place.
    pub(super) fn first_poppable(&self) -> Option<(EntryId, QueuedIn)> {
        let places = if self.pops_from_backoff {
            &[QueuedIn::Active, QueuedIn::Backoff][..]
        } else {
            &[QueuedIn::Active]
        };
        places
            .iter()
            .find_map(|place| Some((self.heap(*place).first()?.id, *place)))
    }

    // --- in and out ----------------------------------------------------------------------------------------

    /// Adds a pod to the queue without a place; the caller attaches it. No pod with its name is queued.
    pub(super) fn enter(&mut self, info: QueuedPodInfo) -> EntryId {
        let (namespace, name) = (info.pod.namespace(), info.pod.name());
        debug_assert_eq!(self.id_of(namespace, name), None, "a pod enters once");
        let name_hash = names::hash_of(namespace, name);
        self.arrivals += 1;
        let id = self.entries.insert(Entry {
            profile: self.profiles.by_name(&info.pod.spec.scheduler_name),
            info,
            place: None,
            name_hash,
            arrival: self.arrivals,
            is_of_member: false,
        });
        self.names.insert(id, name_hash, &self.entries);
        id
    }

    /// Removes a pod from the queue.
    pub(super) fn leave(&mut self, id: EntryId) -> Option<QueuedPodInfo> {
        self.detach(id);
        let Entry {
            info, name_hash, ..
        } = self.entries.remove(id)?;
        let removed = self.names.remove(id, name_hash);
        debug_assert!(removed, "a queued pod is known by its name");
        Some(info)
    }

    /// Removes a pod from its place. It stays in the queue and must be attached again.
    pub(super) fn detach(&mut self, id: EntryId) -> Option<QueuedIn> {
        let place = self.entries.get_mut(id)?.place.take()?;
        let entry = self.entries.get(id)?;
        self.groups.further_members[place as usize] -= entry.info.pods_len() - 1;
        if place.is_unschedulable_pool() {
            let turn = turn_of(&self.sort, entry, place);
            self.waiting.remove((id, entry), turn);
        }
        let less = self.sort.less(place, &self.entries);
        let removed = self.heaps[place as usize].remove(id, &mut self.positions, less);
        debug_assert!(removed.is_some(), "a pod is found where it was put");
        if place == QueuedIn::Gated && removed?.key.at != entry.info.timestamp {
            self.long_gated -= 1;
        }
        Some(place)
    }

    /// Takes every pod out of its place, in the order of arrival. Each must be attached again.
    pub(super) fn detach_all(&mut self) -> Vec<(EntryId, QueuedIn)> {
        let ids = self.entries.queued();
        let mut ids: Vec<(u64, EntryId)> = ids.map(|(id, entry)| (entry.arrival, id)).collect();
        ids.sort_unstable();
        let detached = ids
            .into_iter()
            .filter_map(|(_, id)| Some((id, self.detach(id)?)));
        detached.collect()
    }

    /// Follows another order, other backoffs and other profiles. Every pod is detached.
    pub(super) fn follow(&mut self, config: &QueueConfig, sort: Option<Arc<dyn QueueSort>>) {
        debug_assert!(self.heaps.iter().all(|heap| heap.len() == 0));
        self.sort = SortOrder::of(sort, self.pops_from_backoff);
        self.backoff = Backoff::new(config);
        for entry in self.entries.iter_mut() {
            entry.profile = self.profiles.by_name(&entry.info.pod.spec.scheduler_name);
        }
    }

    /// Attaches a detached pod to a place.
    pub(super) fn attach(&mut self, id: EntryId, place: QueuedIn) {
        let Some(entry) = self.entries.get_mut(id) else {
            debug_assert!(false, "only a queued pod gets a place");
            return;
        };
        debug_assert_eq!(entry.place, None, "a pod is in one place");
        debug_assert_eq!(
            place == QueuedIn::Gated,
            entry.info.is_gated() && !place.is_backoff(),
            "a gated pod waits behind its gate"
        );
        entry.place = Some(place);
        let info = &entry.info;
        self.groups.further_members[place as usize] += info.pods_len() - 1;
        // The key does not change while the entry is in its place: the flushes read the first item of each heap only.
        let key = Key {
            at: match place {
                QueuedIn::Active => Time::EPOCH,
                QueuedIn::Backoff | QueuedIn::ErrorBackoff => {
                    self.backoff.expiry(info).unwrap_or(Time::EPOCH)
                }
                QueuedIn::Unschedulable => info.timestamp,
                QueuedIn::Gated => info
                    .timestamp
                    .max(info.own.gate_flushed.unwrap_or(Time::EPOCH)),
            },
            sort: self.sort.key(place, info),
            arrival: entry.arrival,
        };
        if place.is_unschedulable_pool() {
            let turn = turn_of(&self.sort, entry, place);
            self.waiting.insert((id, entry), turn, &self.profiles);
        }
        if place == QueuedIn::Gated && key.at != info.timestamp {
            self.long_gated += 1;
        }
        let less = self.sort.less(place, &self.entries);
        self.heaps[place as usize].push(HeapItem { key, id }, &mut self.positions, less);
    }

    // --- templates -----------------------------------------------------------------------------------------

    /// Handles the wake-up of a pod by an event. Returns the next pod of its group, if it waits on behalf of others.
    pub(super) fn next_for(&mut self, id: EntryId, now: Time) -> EntryId {
        let represented = self.entries.get(id).and_then(|entry| {
            let template = entry.info.own.template.as_ref()?;
            self.waiting
                .templates
                .represents(template, id)
                .then(|| template.clone())
        });
        let next = represented.and_then(|template| self.appoint_next(&template, now));
        next.unwrap_or(id)
    }

    /// A pod of a due group, to be woken.
    pub(super) fn next_due(&mut self, now: Time) -> Option<EntryId> {
        let template = self.waiting.templates.take_due()?;
        self.appoint_next(&template, now)
    }

    /// An away representative has ended otherwise than by waiting again.
    pub(super) fn release(&mut self, uid: &str) {
        self.waiting.templates.release(uid);
    }

    /// Returns whether a pod is away on behalf of its template.
    pub(super) fn represents_while_away(
        &self,
        uid: &str,
        template: Option<&Arc<PodTemplateKey>>,
    ) -> bool {
        let represented = self.waiting.templates.represented_by(uid);
        represented.is_some() && represented == template
    }

    /// Makes the next pod of a group its representative: the first pod that is not in backoff.
    fn appoint_next(&mut self, template: &Arc<PodTemplateKey>, now: Time) -> Option<EntryId> {
        let is_ready = |id: &EntryId| {
            let entry = self.entries.get(*id);
            entry.is_some_and(|entry| !self.backoff.is_backing_off(&entry.info, now))
        };
        let members = || self.waiting.templates.members(template);
        let next = members().take(LOOKED_AT_MAX).find(is_ready);
        let next = next.or_else(|| members().next())?;
        let (entries, profiles) = (&self.entries, &self.profiles);
        self.waiting.appoint(template, next, entries, profiles);
        Some(next)
    }

    // --- members of gated groups ---------------------------------------------------------------------------

    /// Returns whether a member of a gated group is indexed.
    pub(super) fn has_member(&self, uid: &str) -> bool {
        self.members.contains_key(uid)
    }

    /// The index entry of a member of a gated group.
    pub(super) fn member_entry(&self, uid: &str) -> Option<EntryId> {
        self.members.get(uid).copied()
    }

    /// Indexes a member of a group in its current state, if it waits for events of its own.
    pub(super) fn file_member(&mut self, group: EntryId, uid: &Str) {
        let Some(of_group) = self.entries.get(group).map(|entry| &entry.info) else {
            return;
        };
        // Joins and events file the same members again and again: an unchanged index entry stays.
        let member = of_group.group().and_then(|group| group.members.get(uid));
        let member = member.filter(|member| of_group.has_own_reason(member));
        let known = self.members.get(uid).and_then(|id| self.entries.get(*id));
        let is_as_before = match known.zip(member) {
            Some((known, member)) => waits_for_the_same(&known.info, member),
            None => known.is_none() && member.is_none(),
        };
        if is_as_before {
            return;
        }
        let member = member.cloned();
        self.remove_member(uid);
        let gate = member.as_ref().and_then(|member| member.own.gate.as_ref());
        let is_of_group = gate.is_some_and(Gate::is_of_group);
        if let Some(entry) = self.entries.get_mut(group)
            && let Some(group) = entry.info.own.group.as_mut()
        {
            if is_of_group {
                group.with_reason_of_group.insert(uid.clone());
            } else {
                group.with_reason_of_group.remove(uid);
            }
        }
        if let Some(info) = member {
            self.insert_member(info);
        }
    }

    fn insert_member(&mut self, info: QueuedPodInfo) {
        let uid = info.pod.uid().clone();
        let id = self.entries.insert(Entry {
            profile: self.profiles.by_name(&info.pod.spec.scheduler_name),
            info,
            place: Some(QueuedIn::Gated),
            name_hash: 0,
            arrival: 0,
            is_of_member: true,
        });
        self.members.insert(uid, id);
        if let Some(entry) = self.entries.get(id) {
            self.waiting.insert((id, entry), None, &self.profiles);
        }
    }

    /// Removes a member that is in no gated group, or has no reason of its own. Does nothing for other pods.
    pub(super) fn remove_member(&mut self, uid: &str) {
        let id = self.members.remove(uid);
        if let Some((id, entry)) = id.and_then(|id| Some((id, self.entries.remove(id)?))) {
            self.waiting.remove((id, &entry), None);
        }
    }

    /// Removes every member of a gated group, before the profiles are replaced.
    pub(super) fn remove_members(&mut self) {
        let uids: Vec<Str> = self.members.keys().cloned().collect();
        uids.iter().for_each(|uid| self.remove_member(uid));
    }

    /// Checks the consistency of the records: each pod is in exactly one place, in the heap and the indexes of that
    /// place only, and known by its name. Walks everything; for tests and the simulator.
    ///
    /// # Errors
    /// The first disagreement.
    pub(super) fn check(&self, is_in_flight: impl Fn(&str) -> bool) -> Result<(), String> {
        for (id, entry) in self.entries.queued() {
            let pod = entry.info.pod.key();
            let Some(place) = entry.place else {
                return Err(format!("{pod} is in no place"));
            };
            // The heaps share one table of positions, so that a pod in two heaps would be lost in one of them.
            for other in QueuedIn::ALL {
                let is_there = self.heap(other).contains(id, &self.positions);
                if is_there != (other == place) {
                    return Err(format!(
                        "{pod} is in {place:?}; in the heap of {other:?}: {is_there}"
                    ));
                }
            }
            if self.id_of(entry.info.pod.namespace(), entry.info.pod.name()) != Some(id) {
                return Err(format!("{pod} is not known by its name"));
            }
            let gated = entry.info.is_gated();
            if gated && place == QueuedIn::Active
                || gated != (place == QueuedIn::Gated) && !place.is_backoff()
            {
                return Err(format!("{pod} is in {place:?}; gated: {gated}"));
            }
        }
        let queued = self.entries.queued().count();
        let heaps: usize = QueuedIn::ALL.iter().map(|p| self.heap(*p).len()).sum();
        if [self.names.len(), heaps] != [queued; 2] {
            let names = self.names.len();
            return Err(format!("{queued} entries, {names} names, {heaps} in heaps"));
        }
        self.check_members()?;
        self.waiting.check(&self.entries, &self.profiles, |entry| {
            let place = entry.place;
            place.is_some_and(|place| turn_of(&self.sort, entry, place).is_some())
        })?;
        let to_try = self.entries.queued().filter(|(_, entry)| {
            let place = entry.place;
            place.is_some_and(|place| place == QueuedIn::Active || place.is_backoff())
        });
        let to_try: FxHashSet<&Str> = to_try.map(|(_, entry)| entry.info.pod.uid()).collect();
        self.groups.check(|id| self.entries.get(id)?.info.group())?;
        self.waiting
            .templates
            .check(|uid| to_try.contains(&uid) || is_in_flight(uid))
    }

    /// Checks that exactly the members of gated groups with their own reasons are indexed, in their current state.
    fn check_members(&self) -> Result<(), String> {
        let mut expected = 0;
        for (_, entry) in self.entries.queued() {
            let Some(group) = entry.info.group() else {
                continue;
            };
            // The set of members with a reason of the group is derived from their gates, and must agree with them.
            let mut of_group = BTreeSet::new();
            for member in group.members().filter(|m| entry.info.has_own_reason(m)) {
                expected += 1;
                if member.own.gate.as_ref().is_some_and(Gate::is_of_group) {
                    of_group.insert(member.pod.uid());
                }
                let id = self.members.get(member.pod.uid());
                let known = id.and_then(|id| self.entries.get(*id));
                if !known.is_some_and(|known| waits_for_the_same(&known.info, member)) {
                    let pod = member.pod.key();
                    return Err(format!("the gated member {pod} is not indexed as it is"));
                }
            }
            if !group.with_reason_of_group.iter().eq(of_group) {
                let (key, stating) = (group.key(), &group.with_reason_of_group);
                return Err(format!("{key} has members with its reasons: {stating:?}"));
            }
        }
        if self.members.len() != expected {
            let len = self.members.len();
            return Err(format!("{len} gated members, expected {expected}"));
        }
        Ok(())
    }
}

/// The turn of a pod in this place among the waiting pods of its template.
fn turn_of<'a>(sort: &SortOrder, entry: &'a Entry, place: QueuedIn) -> Option<Turn<'a>> {
    let template = entry.info.own.template.as_ref();
    let template = template.filter(|_| place == QueuedIn::Unschedulable)?;
    let key = Key {
        at: Time::EPOCH,
        sort: sort.turn(&entry.info)?,
        arrival: entry.arrival,
    };
    Some((template, key))
}

/// Returns whether a member waits for the same as in its index entry.
fn waits_for_the_same(known: &QueuedPodInfo, now: &QueuedPodInfo) -> bool {
    Arc::ptr_eq(&known.pod, &now.pod)
        && known.own.gate == now.own.gate
        && known.rejectors().eq(now.rejectors())
}
