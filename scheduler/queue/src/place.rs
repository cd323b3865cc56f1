//! The queued pods, each in its place. No other code changes the heaps and the indexes.

mod check;
mod contents;
mod gated_members;

use super::QueueConfig;
use super::backoff::Backoff;
use super::entry::{Entry, EntryId, PodTemplateKey, QueueEntries, QueuedIn, QueuedPodInfo};
use super::groups::Groups;
use super::heap::{Heap, HeapItem, Key, Positions};
use super::hooks::{Profiles, QueueProfile};
use super::names::{self, Names};
use super::sort_order::SortOrder;
use super::waiting::{Turn, WaitingPods};
use berth_api::{Pod, Str, Time};
use berth_framework::Feature;
use berth_framework::plugin::QueueSort;
use rustc_hash::FxHashMap;
use std::sync::Arc;

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

    // --- entries ----------------------------------------------------------------------------------------------

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

    /// The entries that an event about the pod of this name can help: its own entry, or the entries of its group and of
    /// the member.
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

    /// The place of a member of a group, and the member as it is queued, pending or incomplete.
    pub(super) fn member(&self, uid: &str) -> Option<(QueuedIn, &QueuedPodInfo)> {
        let queued = || {
            let entry = self.entries.get(self.groups.entry_of(uid)?)?;
            Some((entry.place?, entry.info.group()?.members.get(uid)?))
        };
        self.groups.find_outside(uid).or_else(queued)
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

    // --- moves ------------------------------------------------------------------------------------------------

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
            self.waiting.remove(id, entry, turn);
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

    /// Applies another order, other backoffs and other profiles. Every pod must be detached.
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
            self.waiting.insert(id, entry, turn, &self.profiles);
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
