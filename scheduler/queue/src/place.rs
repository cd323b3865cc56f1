//! The queued pods, each in its place. No other code changes the heaps and the indexes.

use super::QueueConfig;
use super::backoff::Backoff;
use super::counts::QueueCounts;
use super::entry::{Entry, EntryId, PodTemplateKey, QueueEntries, QueuedIn, QueuedPodInfo};
use super::group::{GroupStore, RootPlace};
use super::heap::{Heap, HeapItem, Key, Positions};
use super::hooks::{Profiles, QueueProfile};
use super::names::{self, Names};
use super::pool::Pool;
use super::templates::PodTemplates;
use berth_api::{Str, Time};
use berth_framework::Feature;
use berth_framework::plugin::{QueueSort, QueuedPod, SortKey};
use rustc_hash::FxHashSet;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The order of one heap.
struct Order<'a> {
    entries: &'a QueueEntries,
    /// The queue sort, if this heap uses it and it has no keys.
    sort: Option<&'a dyn QueueSort>,
}

impl Order<'_> {
    fn less(&self, a: &HeapItem, b: &HeapItem) -> bool {
        let Some(sort) = self.sort else {
            return a.key < b.key;
        };
        match a.key.at.cmp(&b.key.at) {
            Ordering::Less => true,
            Ordering::Greater => false,
            Ordering::Equal => {
                let (Some(first), Some(second)) = (self.entries.get(a.id), self.entries.get(b.id))
                else {
                    return a.key < b.key;
                };
                let (first, second) = (view(&first.info), view(&second.info));
                sort.less(first, second)
                    || (!sort.less(second, first) && a.key.arrival < b.key.arrival)
            }
        }
    }
}

fn view(info: &QueuedPodInfo) -> QueuedPod<'_> {
    QueuedPod {
        pod: &info.pod,
        timestamp: info.timestamp,
    }
}

/// Returns whether a place is ordered by the queue sort.
fn follows_sort(place: QueuedIn, windowed: bool) -> bool {
    match place {
        QueuedIn::Active => true,
        QueuedIn::Backoff => windowed,
        QueuedIn::ErrorBackoff | QueuedIn::Unschedulable | QueuedIn::Gated => false,
    }
}

/// The pods of an entry: the pod, or the members of a group.
fn members_of(info: &QueuedPodInfo) -> impl Iterator<Item = &QueuedPodInfo> {
    let alone = info.own.group.is_none().then_some(info);
    let members = info.own.group.iter().flat_map(|group| group.members());
    alone.into_iter().chain(members)
}

/// The maximum number of pods whose backoff is checked before one of them is woken for its template.
const LOOKED_AT_MAX: usize = 16;

/// The template group of a pod in this place, and its order, as in the active queue. A queue sort without keys can
/// compare any field, so pods are not grouped in this case.
fn group(
    entry: &Entry,
    place: QueuedIn,
    sort_key: Option<fn(QueuedPod<'_>) -> SortKey>,
) -> Option<(&Arc<PodTemplateKey>, Key)> {
    let template = entry.info.own.template.as_ref();
    let template = template.filter(|_| place == QueuedIn::Unschedulable)?;
    let key = Key {
        at: Time::EPOCH,
        sort: sort_key?(view(&entry.info)),
        arrival: entry.arrival,
    };
    Some((template, key))
}

/// The order of the queue sort.
struct SortOrder {
    /// The plugin, if it has no keys.
    plugin: Option<Arc<dyn QueueSort>>,
    /// The key of a pod.
    key: Option<fn(QueuedPod<'_>) -> SortKey>,
}

impl SortOrder {
    /// The order of a plugin; without one, by how long pods wait.
    fn of(sort: Option<Arc<dyn QueueSort>>) -> Self {
        let by_timestamp: fn(QueuedPod<'_>) -> SortKey = |pod| SortKey(pod.timestamp.as_nanos(), 0);
        let key = match &sort {
            Some(sort) => sort.sort_key(),
            None => Some(by_timestamp),
        };
        Self {
            plugin: sort.filter(|_| key.is_none()),
            key,
        }
    }
}

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
    /// The pods that every event can examine.
    pool: Pool,
    /// The pods that another pod of their template represents.
    represented: Pool,
    templates: PodTemplates,
    arrivals: u64,
    /// The groups, and members without an entry.
    pub(super) groups: GroupStore,
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
        Self {
            sort: SortOrder::of(sort),
            pops_from_backoff: config.features.enabled(Feature::SchedulerPopFromBackoffQ),
            backoff: Backoff::new(config),
            profiles,
            entries: QueueEntries::default(),
            names: Names::default(),
            heaps: Default::default(),
            positions: Positions::default(),
            pool: Pool::default(),
            represented: Pool::default(),
            templates: PodTemplates::default(),
            arrivals: 0,
            groups: GroupStore::default(),
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

    /// The indexes of waiting pods: the pods that every event can examine; then, unless only representatives are
    /// examined, the others.
    pub(super) fn pools(&self, only_representatives: bool) -> impl Iterator<Item = &Pool> {
        let others = (!only_representatives).then_some(&self.represented);
        std::iter::once(&self.pool).chain(others)
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
        alone.or_else(|| self.groups.entry_of(namespace, name))
    }

    pub(super) fn get(&self, id: EntryId) -> Option<&Entry> {
        self.entries.get(id)
    }

    /// A mutable entry. Fields that its indexes depend on may change only while it is detached.
    pub(super) fn get_mut(&mut self, id: EntryId) -> Option<&mut Entry> {
        self.entries.get_mut(id)
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
        QueueCounts {
            active: len(QueuedIn::Active),
            backoff: len(QueuedIn::Backoff) + len(QueuedIn::ErrorBackoff),
            unschedulable: len(QueuedIn::Unschedulable),
            gated: len(QueuedIn::Gated),
            incomplete: self.groups.incomplete_len(),
            pending: self.groups.pending().count(),
        }
    }

    /// Every queued pod, in no particular order.
    pub fn pods(&self) -> impl Iterator<Item = (QueuedIn, &QueuedPodInfo)> {
        let queued = self.entries.iter().filter_map(|(_, entry)| {
            let place = entry.place?;
            Some(members_of(&entry.info).map(move |info| (place, info)))
        });
        let incomplete = self.groups.incomplete.values().flat_map(|m| m.values());
        let pending = self.groups.pending();
        queued
            .flatten()
            .chain(incomplete.map(|info| (QueuedIn::Gated, info)))
            .chain(pending.map(|info| (QueuedIn::Active, info)))
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
        let queued = self.groups.roots.values().filter_map(|place| match place {
            RootPlace::Queued(id) => Some(*id),
            RootPlace::InFlight(_) => None,
        });
        queued.filter_map(|id| {
            let entry = self.entries.get(id)?;
            Some((entry.place?, &entry.info))
        })
    }

    /// The pods of a place: active pods and pods in backoff in the order of pops, waiting pods by waiting time. Sorts;
    /// for explanations and tests.
    pub fn pods_in(&self, place: QueuedIn) -> Vec<&QueuedPodInfo> {
        let order = self.order(place);
        let mut items = self.heap(place).items().to_vec();
        items.sort_by(|a, b| {
            if order.less(a, b) {
                Ordering::Less
            } else {
                Ordering::Greater
            }
        });
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
        let order = self.order(place);
        let items = self.heap(place).items();
        let own = items.iter().find(|item| item.id == id)?;
        let ahead = items.iter().filter(|item| order.less(item, own));
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

    fn order(&self, place: QueuedIn) -> Order<'_> {
        let follows_sort = follows_sort(place, self.pops_from_backoff);
        Order {
            entries: &self.entries,
            sort: self.sort.plugin.as_deref().filter(|_| follows_sort),
        }
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
        let entry = self.entries.get_mut(id)?;
        let place = entry.place.take()?;
        let entry = self.entries.get(id)?;
        self.groups.further_members[place as usize] -= entry.info.pods_len() - 1;
        if place.is_unschedulable_pool() {
            let mut pool = &mut self.pool;
            if let Some((template, turn)) = group(entry, place, self.sort.key) {
                if !self.templates.represents(template, id) {
                    pool = &mut self.represented;
                }
                self.templates
                    .leave(template, entry.info.pod.uid(), (turn, id));
            }
            pool.remove(id, entry.profile, &entry.info);
        }
        let follows_sort = follows_sort(place, self.pops_from_backoff);
        let order = Order {
            entries: &self.entries,
            sort: self.sort.plugin.as_deref().filter(|_| follows_sort),
        };
        let removed =
            self.heaps[place as usize].remove(id, &mut self.positions, |a, b| order.less(a, b));
        debug_assert!(removed.is_some(), "a pod is found where it was put");
        if place == QueuedIn::Gated
            && let (Some(item), Some(entry)) = (removed, self.entries.get(id))
            && item.key.at != entry.info.timestamp
        {
            self.long_gated -= 1;
        }
        Some(place)
    }

    /// Takes every pod out of its place, in the order of arrival. Each must be attached again.
    pub(super) fn detach_all(&mut self) -> Vec<(EntryId, QueuedIn)> {
        let mut ids: Vec<(u64, EntryId)> = self
            .entries
            .iter()
            .map(|(id, entry)| (entry.arrival, id))
            .collect();
        ids.sort_unstable();
        let detached = ids
            .into_iter()
            .filter_map(|(_, id)| Some((id, self.detach(id)?)));
        detached.collect()
    }

    /// Follows another order, other backoffs and other profiles. Every pod is detached.
    pub(super) fn follow(&mut self, config: &QueueConfig, sort: Option<Arc<dyn QueueSort>>) {
        debug_assert!(self.heaps.iter().all(|heap| heap.len() == 0));
        self.sort = SortOrder::of(sort);
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
        let follows_sort = follows_sort(place, self.pops_from_backoff);
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
            sort: match self.sort.key {
                Some(sort_key) if follows_sort => sort_key(view(info)),
                _ => SortKey::default(),
            },
            arrival: entry.arrival,
        };
        if place.is_unschedulable_pool() {
            let profile = entry.profile.zip(self.profiles.get(entry.profile));
            let mut pool = &mut self.pool;
            if let Some((template, turn)) = group(entry, place, self.sort.key)
                && !self.templates.join(template, info.pod.uid(), (turn, id))
            {
                pool = &mut self.represented;
            }
            pool.insert(id, profile, info);
        }
        if place == QueuedIn::Gated && key.at != info.timestamp {
            self.long_gated += 1;
        }
        let order = Order {
            entries: &self.entries,
            sort: self.sort.plugin.as_deref().filter(|_| follows_sort),
        };
        self.heaps[place as usize].push(HeapItem { key, id }, &mut self.positions, |a, b| {
            order.less(a, b)
        });
    }

    // --- templates -----------------------------------------------------------------------------------------

    /// Handles the wake-up of a pod by an event. Returns the next pod of its group, if it waits on behalf of others.
    pub(super) fn next_for(&mut self, id: EntryId, now: Time) -> EntryId {
        let represented = self.entries.get(id).and_then(|entry| {
            let template = entry.info.own.template.as_ref()?;
            self.templates
                .represents(template, id)
                .then(|| template.clone())
        });
        let next = represented.and_then(|template| self.appoint_next(&template, now));
        next.unwrap_or(id)
    }

    /// A pod of a due group, to be woken.
    pub(super) fn next_due(&mut self, now: Time) -> Option<EntryId> {
        let template = self.templates.take_due()?;
        self.appoint_next(&template, now)
    }

    /// An away representative has ended otherwise than by waiting again.
    pub(super) fn release(&mut self, uid: &str) {
        self.templates.release(uid);
    }

    /// Returns whether a pod is away on behalf of its template.
    pub(super) fn represents_while_away(
        &self,
        uid: &str,
        template: Option<&Arc<PodTemplateKey>>,
    ) -> bool {
        let represented = self.templates.represented_by(uid);
        represented.is_some() && represented == template
    }

    /// Makes the next pod of a group its representative: the first pod that is not in backoff.
    fn appoint_next(&mut self, template: &Arc<PodTemplateKey>, now: Time) -> Option<EntryId> {
        let is_ready = |id: &EntryId| {
            let entry = self.entries.get(*id);
            entry.is_some_and(|entry| !self.backoff.is_backing_off(&entry.info, now))
        };
        let members = || self.templates.members(template);
        let next = members().take(LOOKED_AT_MAX).find(is_ready);
        let next = next.or_else(|| members().next())?;
        let before = self.templates.appoint(template, next);
        if before == Some(next) {
            return before;
        }
        let Self {
            pool,
            represented,
            profiles,
            entries,
            ..
        } = self;
        let refile = |id: EntryId, from: &mut Pool, to: &mut Pool| {
            if let Some(entry) = entries.get(id) {
                let profile = entry.profile.zip(profiles.get(entry.profile));
                from.remove(id, entry.profile, &entry.info);
                to.insert(id, profile, &entry.info);
            }
        };
        if let Some(before) = before {
            refile(before, pool, represented);
        }
        refile(next, represented, pool);
        Some(next)
    }

    /// Checks the consistency of the records: each pod is in exactly one place, in the heap and the indexes of that
    /// place only, and known by its name. Walks everything; for tests and the simulator.
    ///
    /// # Errors
    /// The first disagreement.
    pub(super) fn check(&self, is_in_flight: impl Fn(&str) -> bool) -> Result<(), String> {
        let (mut links, mut filed, mut grouped) = (0, 0, 0);
        for (id, entry) in self.entries.iter() {
            let pod = entry.info.pod.key();
            let Some(place) = entry.place else {
                return Err(format!("{pod} is in no place"));
            };
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
            if place.is_unschedulable_pool() {
                let mut pool = &self.pool;
                if let Some((template, _)) = group(entry, place, self.sort.key) {
                    grouped += 1;
                    if !self.templates.represents(template, id) {
                        pool = &self.represented;
                    }
                }
                links += entry.info.rejectors().count().max(1);
                let gate = entry.info.gating_plugin().map(Str::as_str);
                let no_plugin = (!entry.info.has_rejectors()).then_some("");
                for plugin in entry.info.rejectors().map(Str::as_str).chain(no_plugin) {
                    if !pool.contains(gate, entry.profile, plugin, id) {
                        return Err(format!("{pod} is not indexed under {plugin:?}"));
                    }
                }
                let profile = entry.profile.zip(self.profiles.get(entry.profile));
                let checked = pool.by_wait.check(id, profile, &entry.info);
                filed += checked.map_err(|problem| format!("{pod} {problem}"))?;
            }
        }
        let places: usize = QueuedIn::ALL.iter().map(|p| self.heap(*p).len()).sum();
        for (what, count, expected) in [
            ("names", self.names.len(), self.entries.len()),
            ("places", places, self.entries.len()),
            ("pods in groups", self.templates.len(), grouped),
            (
                "index links",
                self.pools(false).map(Pool::links).sum(),
                links,
            ),
            (
                "places in the index",
                self.pools(false).map(|pool| pool.by_wait.len()).sum(),
                filed,
            ),
        ] {
            if count != expected {
                return Err(format!("{count} {what}, expected {expected}"));
            }
        }
        let to_try = self.entries.iter().filter(|(_, entry)| {
            let place = entry.place;
            place.is_some_and(|place| place == QueuedIn::Active || place.is_backoff())
        });
        let to_try: FxHashSet<&Str> = to_try.map(|(_, entry)| entry.info.pod.uid()).collect();
        self.groups
            .check(|id| self.entries.get(id)?.info.own.group.as_deref())?;
        self.templates
            .check(|uid| to_try.contains(uid) || is_in_flight(uid))
    }
}
