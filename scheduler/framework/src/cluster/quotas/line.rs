//! One quota: its usage, and the line of waiting pods.

use super::needs::{Amounts, Need, Needs};
use super::spec::{QuotaOrder, QuotaSpec};
use crate::cluster::GroupKey;
use berth_api::{CustomObject, Pod, Str, Time};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The maximum number of different requests in a line with order BestEffort whose first pods are checked, and of quotas
/// in a cohort that are checked when another one frees something (DQ-8, DQ-11).
pub const LOOKS_MAX: usize = 64;

/// A place in line: by priority, then by creation time, then by UID.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LineKey {
    priority: Reverse<i32>,
    /// The creation time.
    pub created: Option<Time>,
    /// The UID of the pod.
    pub uid: Str,
}

impl LineKey {
    /// The place of a pod.
    pub fn of(pod: &Pod) -> Self {
        Self {
            priority: Reverse(pod.priority()),
            created: pod.metadata.creation_timestamp,
            uid: pod.uid().clone(),
        }
    }
}

/// An entry of the line: a pod, or all waiting pods of a gang.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EntryKey {
    /// A pod, by its UID.
    Pod(Str),
    /// The gang of this group, which has no parent.
    Gang(GroupKey),
}

/// Namespace and name of a quota.
pub(super) type QuotaId = (Str, Str);

/// The state of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum EntryState {
    /// Not in line: a member is gated, or the gang is not complete.
    Out,
    /// In line under this key.
    Waiting(LineKey),
    /// The quotas have room for it.
    Admitted,
}

/// An entry, in line or not.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) members: BTreeSet<LineKey>,
    /// The number of members that are not ready, such as gated ones.
    pub(super) unready: usize,
    pub(super) needs: Needs,
    pub(super) state: EntryState,
    /// The time at which it entered the line.
    pub(super) since: Time,
}

impl Default for Entry {
    fn default() -> Self {
        Self {
            members: BTreeSet::new(),
            unready: 0,
            needs: Needs::new(),
            state: EntryState::Out,
            since: Time::EPOCH,
        }
    }
}

/// A quota whose spec can be read.
#[derive(Debug, Clone)]
pub(super) struct Quota {
    pub(super) object: Arc<CustomObject>,
    pub(super) spec: Arc<QuotaSpec>,
    /// The amounts of pods with a node.
    pub(super) used: Amounts,
    /// The amounts of admitted pods without a node.
    pub(super) admitted: Amounts,
    line: BTreeMap<LineKey, EntryKey>,
    /// With order BestEffort: the waiting entries by their needs, and the first entry of each by its place.
    alike: BTreeMap<Needs, BTreeMap<LineKey, EntryKey>>,
    firsts: BTreeMap<LineKey, EntryKey>,
    ages: BTreeSet<(Option<Time>, LineKey)>,
    pub(super) waiting_pods: usize,
    /// The place of the first entry that waits for the cohort.
    pub(super) blocked_at: Option<LineKey>,
}

impl Quota {
    pub(super) fn new(object: Arc<CustomObject>, spec: Arc<QuotaSpec>) -> Self {
        let nothing: Amounts = spec.limits.iter().map(|_| 0).collect();
        Self {
            object,
            spec,
            used: nothing.clone(),
            admitted: nothing,
            line: BTreeMap::new(),
            alike: BTreeMap::new(),
            firsts: BTreeMap::new(),
            ages: BTreeSet::new(),
            waiting_pods: 0,
            blocked_at: None,
        }
    }

    /// The used and admitted amount of a key.
    pub(super) fn taken(&self, at: usize) -> i64 {
        let of = |amounts: &Amounts| amounts.get(at).copied().unwrap_or(0);
        of(&self.used).saturating_add(of(&self.admitted))
    }

    /// Puts an entry into the line.
    pub(super) fn file(&mut self, place: &LineKey, key: &EntryKey, needs: &Needs, need: &Need) {
        self.line.insert(place.clone(), key.clone());
        self.ages.insert((place.created, place.clone()));
        self.waiting_pods += need.pods;
        if self.spec.order == QuotaOrder::BestEffort {
            let alike = self.alike.entry(needs.clone()).or_default();
            let first = alike.keys().next().cloned();
            alike.insert(place.clone(), key.clone());
            if first.as_ref().is_none_or(|first| place < first) {
                first.map(|first| self.firsts.remove(&first));
                self.firsts.insert(place.clone(), key.clone());
            }
        }
    }

    /// Takes an entry out of the line.
    pub(super) fn unfile(&mut self, place: &LineKey, needs: &Needs, need: &Need) {
        self.line.remove(place);
        self.ages.remove(&(place.created, place.clone()));
        self.waiting_pods = self.waiting_pods.saturating_sub(need.pods);
        if self.spec.order == QuotaOrder::BestEffort
            && let Some(alike) = self.alike.get_mut(needs)
        {
            alike.remove(place);
            let next = alike.iter().next();
            let next = next.map(|(place, key)| (place.clone(), key.clone()));
            if self.firsts.remove(place).is_some() {
                self.firsts.extend(next.clone());
            }
            if next.is_none() {
                self.alike.remove(needs);
            }
        }
    }

    /// The entries that may be admitted next: the first of the line, or with order BestEffort the first of each kind of
    /// request.
    pub(super) fn candidates(&self) -> Vec<EntryKey> {
        match self.spec.order {
            QuotaOrder::Strict => self.line.values().next().into_iter().cloned().collect(),
            QuotaOrder::BestEffort => self.firsts.values().take(LOOKS_MAX).cloned().collect(),
        }
    }

    /// Returns whether an entry in line is one of the [`Quota::candidates`].
    pub(super) fn is_candidate(&self, place: &LineKey) -> bool {
        match self.spec.order {
            QuotaOrder::Strict => self.first() == Some(place),
            QuotaOrder::BestEffort => {
                let mut firsts = self.firsts.keys().take(LOOKS_MAX);
                firsts.any(|first| first == place)
            }
        }
    }

    /// The place of the first entry in line.
    pub(super) fn first(&self) -> Option<&LineKey> {
        self.line.keys().next()
    }

    /// The entries in line, the first one first.
    pub(super) fn line(&self) -> impl Iterator<Item = (&LineKey, &EntryKey)> {
        self.line.iter()
    }

    /// The number of entries in line before a place, at most `most`.
    pub(super) fn before(&self, place: &LineKey, most: usize) -> usize {
        self.line.range(..place).take(most).count()
    }

    /// The creation time of the oldest pod in line.
    pub(super) fn oldest(&self) -> Option<Time> {
        self.ages.first()?.0
    }
}
