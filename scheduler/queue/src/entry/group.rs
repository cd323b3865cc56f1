//! The entry of a group.
//!
//! A queued group is an entry like a pod's entry, whose pod is a **placeholder** with the priority of the group. Its
//! members are in no heap.

use super::{PodTemplateKey, QueuedPodInfo};
use berth_api::{Pod, Str};
use berth_framework::cluster::GroupKey;
use indexmap::IndexMap;
use rustc_hash::{FxBuildHasher, FxHashMap, FxHashSet};
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Members by UID.
pub(crate) type Members = IndexMap<Str, QueuedPodInfo, FxBuildHasher>;

/// The maximum number of different members that are evaluated for an event. A group with more is woken by every event
/// that can help.
const REPRESENTATIVES_MAX: usize = 32;

/// The members of a queued group.
#[derive(Debug, Clone)]
pub struct QueuedGroup {
    /// The group without parent.
    key: GroupKey,
    pub(crate) members: Members,
    /// The member at which PreEnqueue stopped.
    pub(crate) blocker: Option<Str>,
    /// The members for which PreEnqueue plugins did not run.
    pub(crate) unasked: Vec<Str>,
    /// The members with a reason of the whole group that is not the reason of the blocker.
    pub(crate) with_reason_of_group: BTreeSet<Str>,
    /// The members that are evaluated for an event on behalf of all, by UID.
    representatives: Vec<Str>,
    /// Whether the number of different members exceeds the limit.
    has_too_many: bool,
}

impl QueuedGroup {
    pub(crate) fn new(key: GroupKey) -> Self {
        Self {
            key,
            members: Members::default(),
            blocker: None,
            unasked: Vec::new(),
            with_reason_of_group: BTreeSet::new(),
            representatives: Vec::new(),
            has_too_many: false,
        }
    }

    /// The group without parent, the only queued group of its hierarchy.
    pub fn key(&self) -> &GroupKey {
        &self.key
    }

    /// The number of queued members.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Returns whether no member is queued.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// The queued members, in the order of their arrival.
    pub fn members(&self) -> impl Iterator<Item = &QueuedPodInfo> {
        self.members.values()
    }

    /// The queued members in the order of attempts: similar pods together; more attempts first, then earlier pods, then
    /// by name.
    pub fn into_ordered(self) -> Vec<QueuedPodInfo> {
        let rank = |info: &QueuedPodInfo| {
            let pod = &info.pod;
            let name = (pod.namespace().clone(), pod.name().clone());
            (Reverse(info.attempts), info.timestamp, name)
        };
        let mut alike: FxHashMap<Option<PodTemplateKey>, Vec<QueuedPodInfo>> = FxHashMap::default();
        for (_, info) in self.members {
            alike
                .entry(PodTemplateKey::of(&info.pod))
                .or_default()
                .push(info);
        }
        let mut alike: Vec<Vec<QueuedPodInfo>> = alike.into_values().collect();
        for members in &mut alike {
            members.sort_by_cached_key(rank);
        }
        alike.sort_by_cached_key(|members| members.first().map(rank));
        alike.into_iter().flatten().collect()
    }

    /// The pods that are evaluated for an event on behalf of all: the member at which PreEnqueue stopped, or one of
    /// each kind.
    pub(crate) fn asked(&self) -> impl Iterator<Item = &Arc<Pod>> {
        let asked = match &self.blocker {
            Some(blocker) => std::slice::from_ref(blocker),
            None => &self.representatives[..],
        };
        let infos = asked.iter().filter_map(|uid| self.members.get(uid));
        infos.map(|info| &info.pod)
    }

    /// Returns whether the group is woken by every event that can help one of its plugins.
    pub(crate) fn is_woken_by_anything(&self) -> bool {
        self.blocker.is_none() && self.has_too_many
    }

    /// All members are evaluated again the next time.
    pub(crate) fn forget_answers(&mut self) {
        self.with_reason_of_group.clear();
        self.unasked = self.members.keys().cloned().collect();
    }

    /// Forgets the answers about removed members. Returns whether the blocker was removed.
    pub(crate) fn forget_removed(&mut self) -> bool {
        let members = &self.members;
        self.unasked.retain(|uid| members.contains_key(uid));
        self.with_reason_of_group
            .retain(|uid| members.contains_key(uid));
        let blocker = self.blocker.take_if(|uid| !members.contains_key(uid));
        blocker.is_some()
    }

    /// Selects the members that are evaluated from now on.
    pub(crate) fn choose_representatives(&mut self) {
        let mut seen: FxHashSet<PodTemplateKey> = FxHashSet::default();
        self.representatives.clear();
        self.has_too_many = false;
        for (uid, info) in &self.members {
            let is_new = PodTemplateKey::of(&info.pod).is_none_or(|template| seen.insert(template));
            if !is_new {
                continue;
            }
            if self.representatives.len() >= REPRESENTATIVES_MAX {
                self.has_too_many = true;
                return;
            }
            self.representatives.push(uid.clone());
        }
    }
}

/// The placeholder of a queued group; no pod has its name.
pub(crate) fn placeholder(key: &GroupKey, priority: i32, scheduler: &Str) -> Arc<Pod> {
    let mut pod = Pod::default();
    pod.metadata.namespace = key.namespace.clone();
    pod.metadata.name = Str::from(format!("{}/{}", key.kind.as_str(), key.name));
    pod.metadata.uid = Str::from(key.to_string());
    pod.spec.priority = Some(priority);
    pod.spec.scheduler_name = scheduler.clone();
    Arc::new(pod)
}
