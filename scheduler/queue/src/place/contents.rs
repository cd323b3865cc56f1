//! Counts, lists and explanations of the queued pods.

use super::QueuePlaces;
use crate::counts::QueueCounts;
use crate::entry::{QueuedIn, QueuedPodInfo};
use crate::heap::HeapItem;
use berth_api::Time;
use std::collections::BTreeMap;

impl QueuePlaces {
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
}

/// The pods of an entry: the pod, or the members of a group.
fn members_of(info: &QueuedPodInfo) -> impl Iterator<Item = &QueuedPodInfo> {
    let alone = info.own.group.is_none().then_some(info);
    let members = info.own.group.iter().flat_map(|group| group.members());
    alone.into_iter().chain(members)
}
