//! The facts about a group that are not part of the cluster: the state of the group and of its members in the queue.

use crate::answer::GroupConditionView;
use berth_api::groups::{COMPOSITE_INITIALLY_SCHEDULED, GroupSpec, POD_GROUP_INITIALLY_SCHEDULED};
use berth_api::{Pod, Str, Time};
use berth_framework::cluster::{GroupKey, GroupKind, NoRoot};
use berth_scheduler::Scheduler;
use berth_scheduler::queue::{QueuedIn, QueuedPodInfo};
use std::cmp::Reverse;
use std::sync::Arc;

/// A group of a hierarchy.
#[derive(Debug, Clone)]
pub(crate) struct GroupFact {
    pub(crate) key: GroupKey,
    pub(crate) parent: Option<GroupKey>,
    pub(crate) spec: GroupSpec,
    /// The pods of a pod group, in every state.
    pub(crate) known: usize,
    /// Those with a node.
    pub(crate) scheduled: usize,
}

/// A pod of a group.
#[derive(Debug, Clone)]
pub(crate) struct MemberFact {
    pub(crate) leaf: GroupKey,
    pub(crate) pod: Arc<Pod>,
    pub(crate) place: Option<QueuedIn>,
    attempts: u32,
    since: Time,
}

/// The scheduler's facts about a group that are not part of the cluster.
#[derive(Debug, Clone)]
pub struct GroupFacts {
    pub(crate) key: GroupKey,
    /// The root, or why there is none.
    pub(crate) root: Result<GroupKey, NoRoot>,
    /// The groups of the hierarchy, each before its children. Without a root, the groups from the requested one on.
    pub(crate) tree: Vec<GroupFact>,
    /// The pods of the hierarchy, in the order of their attempts.
    pub(crate) members: Vec<MemberFact>,
    pub(crate) queued: Option<(QueuedIn, QueuedPodInfo)>,
    pub(crate) backoff_expiry: Option<Time>,
    pub(crate) condition: Option<GroupConditionView>,
}

impl GroupFacts {
    /// Takes the facts about a group; `None` if neither the group nor a pod of it is known.
    pub fn take(
        scheduler: &Scheduler,
        kind: GroupKind,
        namespace: &str,
        name: &str,
    ) -> Option<Self> {
        let (namespace, name) = (Str::new(namespace), Str::new(name));
        let key = GroupKey {
            kind,
            namespace,
            name,
        };
        let cluster = scheduler.cache().cluster();
        let groups = cluster.groups();
        // A missing group is explained if pods or child groups refer to it.
        let is_named = cluster.pods.members(&key).is_some()
            || groups.children_unordered(&key).next().is_some();
        if groups.get(&key).is_none() && !is_named {
            return None;
        }
        let root = groups.root_of(&key);
        // The hierarchy is queued and tried as one, so the facts start at its root.
        let from = root.as_ref().unwrap_or(&key);
        let keys = groups.tree(from);
        let tree = keys.iter().map(|key| {
            let members = cluster.pods.members(key);
            GroupFact {
                key: key.clone(),
                parent: groups.parent(key),
                spec: groups.spec(key).cloned().unwrap_or_default(),
                known: members.map_or(0, |members| members.known()),
                scheduled: members.map_or(0, |members| members.scheduled().len()),
            }
        });
        let tree = tree.collect();
        let places = scheduler.queue().places();
        let mut entries = places.groups();
        let entry = entries.find(|(_, info)| {
            let group = info.group();
            group.is_some_and(|group| group.key() == from)
        });
        Some(Self {
            tree,
            members: keys
                .iter()
                .flat_map(|key| members(scheduler, key))
                .collect(),
            backoff_expiry: entry
                .filter(|(place, _)| place.is_backoff())
                .and_then(|(_, info)| places.backoff_expiry(info)),
            queued: entry.map(|(place, info)| (place, info.clone())),
            condition: groups.get(&key).and_then(|group| {
                let kind = match key.kind {
                    GroupKind::PodGroup => POD_GROUP_INITIALLY_SCHEDULED,
                    GroupKind::CompositePodGroup => COMPOSITE_INITIALLY_SCHEDULED,
                };
                let condition = group.status.condition(kind)?;
                Some(GroupConditionView {
                    status: condition.status.to_string(),
                    reason: condition.reason.to_string(),
                    message: condition.message.to_string(),
                    since: condition.last_transition_time.map(Time::rfc3339),
                })
            }),
            root,
            key,
        })
    }

    /// A group of the hierarchy.
    pub(crate) fn of(&self, key: &GroupKey) -> Option<&GroupFact> {
        self.tree.iter().find(|group| group.key == *key)
    }

    /// The groups with this group as their parent.
    pub(crate) fn children<'a>(&'a self, key: &'a GroupKey) -> impl Iterator<Item = &'a GroupFact> {
        let children = self.tree.iter();
        children.filter(move |group| group.parent.as_ref() == Some(key))
    }

    /// Returns whether enough members of a group have a node.
    pub(crate) fn has_started(&self, key: &GroupKey) -> bool {
        let Some(group) = self.of(key) else {
            return false;
        };
        self.scheduled(group) >= group.spec.min()
    }

    /// The number of members with a node: pods, or children that have started.
    pub(crate) fn scheduled(&self, group: &GroupFact) -> usize {
        match group.key.kind {
            GroupKind::PodGroup => group.scheduled,
            // The tree has a limited depth.
            GroupKind::CompositePodGroup => self
                .children(&group.key)
                .filter(|child| self.has_started(&child.key))
                .count(),
        }
    }

    /// The number of known members: pods, or children.
    pub(crate) fn known(&self, group: &GroupFact) -> usize {
        match group.key.kind {
            GroupKind::PodGroup => group.known,
            GroupKind::CompositePodGroup => self.children(&group.key).count(),
        }
    }

    /// Returns whether a group is the requested one, or below it.
    pub(crate) fn is_below(&self, key: &GroupKey) -> bool {
        let mut at = Some(key);
        for _ in 0..=self.tree.len() {
            match at {
                Some(key) if *key == self.key => return true,
                Some(key) => at = self.of(key).and_then(|group| group.parent.as_ref()),
                None => return false,
            }
        }
        false
    }
}

/// The members of a pod group: waiting members in the order of their attempts, then members with a node by name.
fn members(scheduler: &Scheduler, leaf: &GroupKey) -> Vec<MemberFact> {
    let cluster = scheduler.cache().cluster();
    let Some(members) = cluster.pods.members(leaf) else {
        return Vec::new();
    };
    let uids = members.unscheduled().iter().chain(members.scheduled());
    let mut members: Vec<MemberFact> = uids
        .filter_map(|uid| cluster.pods.get(uid))
        .map(|pod| {
            let queued = scheduler.queue().get(pod.namespace(), pod.name());
            let queued = queued.filter(|(_, info)| info.pod.uid() == pod.uid());
            MemberFact {
                leaf: leaf.clone(),
                pod: pod.clone(),
                place: queued.map(|(place, _)| place),
                attempts: queued.map_or(0, |(_, info)| info.attempts),
                since: queued.map_or(Time::EPOCH, |(_, info)| info.timestamp),
            }
        })
        .collect();
    members.sort_by_cached_key(|member| {
        let name = member.pod.name().clone();
        let rank = (Reverse(member.attempts), member.since, name);
        (member.pod.is_assigned(), rank)
    });
    members
}
