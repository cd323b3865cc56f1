//! Waiting pods of one template: one pod waits for events on behalf of all.
//!
//! ```text
//! 10,000 pods of a Deployment wait for room, and a pod is deleted
//!     → the event wakes one of them, the **representative**
//!     → it is placed: the next pod is woken. It does not fit: the others continue to wait without an evaluation
//! ```
//!
//! Pods with equal [`PodTemplateKey`]s get equal answers from all plugins: if the representative is rejected, every
//! other pod of the group would be rejected. Events about nodes and assigned pods are evaluated only for
//! representatives. If a representative stops waiting for any other reason than a repeated rejection (it is placed,
//! gated, deleted, changed, or rejected differently), its group is **due**: the next pod becomes the representative and
//! is woken.
//!
//! **Architecture invariant:** a group with waiting pods has a representative that waits for events or is away (active,
//! in backoff, in flight), or it is due.

use super::entry::{EntryId, PodTemplateKey};
use super::heap::Key;
use berth_api::Str;
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The pod that waits for events on behalf of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Representative {
    /// This waiting pod.
    Waits(EntryId),
    /// A woken pod whose attempt has not ended.
    IsAway,
    /// The next pod must be woken.
    IsDue,
}

#[derive(Debug)]
struct Group {
    representative: Representative,
    /// The waiting pods, in the order of the queue.
    members: BTreeSet<(Key, EntryId)>,
}

/// The waiting pods by template.
#[derive(Debug, Default)]
pub(super) struct PodTemplates {
    groups: FxHashMap<Arc<PodTemplateKey>, Group>,
    /// The representatives that are away, by UID.
    away: FxHashMap<Str, Arc<PodTemplateKey>>,
    /// The groups that are due.
    due: Vec<Arc<PodTemplateKey>>,
}

impl PodTemplates {
    /// Adds a waiting pod. Returns whether it waits for events on behalf of its group.
    pub(super) fn join(
        &mut self,
        template: &Arc<PodTemplateKey>,
        uid: &str,
        key: Key,
        id: EntryId,
    ) -> bool {
        let is_back = self.away.get(uid) == Some(template);
        if is_back {
            self.away.remove(uid);
        }
        let is_new = !self.groups.contains_key(template);
        let group = self.groups.entry(template.clone()).or_insert(Group {
            representative: Representative::Waits(id),
            members: BTreeSet::new(),
        });
        group.members.insert((key, id));
        if is_back {
            group.representative = Representative::Waits(id);
        }
        is_back || is_new
    }

    /// Removes a waiting pod. A representative is away from now on. Returns whether the pod was the representative.
    pub(super) fn leave(
        &mut self,
        template: &Arc<PodTemplateKey>,
        uid: &Str,
        key: Key,
        id: EntryId,
    ) -> bool {
        let Some(group) = self.groups.get_mut(template) else {
            debug_assert!(false, "a waiting pod is in the group of its template");
            return true;
        };
        let removed = group.members.remove(&(key, id));
        debug_assert!(removed, "a waiting pod is found where it was put");
        let represents = group.representative == Representative::Waits(id);
        if represents {
            group.representative = Representative::IsAway;
            self.away.insert(uid.clone(), template.clone());
        }
        represents
    }

    /// Returns whether the pod waits for events on behalf of its group.
    pub(super) fn represents(&self, template: &Arc<PodTemplateKey>, id: EntryId) -> bool {
        let group = self.groups.get(template);
        group.is_some_and(|group| group.representative == Representative::Waits(id))
    }

    /// The waiting pods of a group, in the order of the queue.
    pub(super) fn members(
        &self,
        template: &Arc<PodTemplateKey>,
    ) -> impl Iterator<Item = EntryId> + '_ {
        let members = self.groups.get(template).map(|group| &group.members);
        members.into_iter().flatten().map(|(_, id)| *id)
    }

    /// Makes a waiting pod the representative of its group. Returns the previous representative.
    pub(super) fn appoint(
        &mut self,
        template: &Arc<PodTemplateKey>,
        id: EntryId,
    ) -> Option<EntryId> {
        let group = self.groups.get_mut(template)?;
        let before = std::mem::replace(&mut group.representative, Representative::Waits(id));
        match before {
            Representative::Waits(before) => Some(before),
            Representative::IsAway | Representative::IsDue => None,
        }
    }

    /// The template that an away pod represents.
    pub(super) fn represented_by(&self, uid: &str) -> Option<&Arc<PodTemplateKey>> {
        self.away.get(uid)
    }

    /// The attempt of an away representative has ended: its group is due. Does nothing for other pods.
    pub(super) fn release(&mut self, uid: &str) {
        let Some(template) = self.away.remove(uid) else {
            return;
        };
        match self.groups.get_mut(&template) {
            Some(group) if !group.members.is_empty() => {
                group.representative = Representative::IsDue;
                self.due.push(template);
            }
            _ => {
                self.groups.remove(&template);
            }
        }
    }

    /// The next due group with waiting pods.
    pub(super) fn take_due(&mut self) -> Option<Arc<PodTemplateKey>> {
        while let Some(template) = self.due.pop() {
            match self.groups.get(&template) {
                Some(group) if group.members.is_empty() => {
                    self.groups.remove(&template);
                }
                Some(group) if group.representative == Representative::IsDue => {
                    return Some(template);
                }
                _ => {}
            }
        }
        None
    }

    /// The number of pods in groups.
    pub(super) fn len(&self) -> usize {
        self.groups.values().map(|group| group.members.len()).sum()
    }

    /// Checks that every group has a representative or is due. `is_away` returns whether a pod is active, in backoff or
    /// in flight.
    pub(super) fn check(&self, is_away: impl Fn(&Str) -> bool) -> Result<(), String> {
        for group in self.groups.values() {
            if let Representative::Waits(id) = group.representative
                && !group.members.iter().any(|(_, member)| *member == id)
            {
                return Err(format!("the representative of {group:?} does not wait"));
            }
        }
        let count = |wanted| {
            let groups = self.groups.values();
            groups
                .filter(|group| group.representative == wanted)
                .count()
        };
        let (away, due) = (count(Representative::IsAway), count(Representative::IsDue));
        if away != self.away.len() || due > self.due.len() {
            return Err(format!(
                "{away} representatives are away and {due} groups are due, {} and {} are noted",
                self.away.len(),
                self.due.len()
            ));
        }
        match self.away.keys().find(|uid| !is_away(uid)) {
            Some(uid) => Err(format!(
                "representative {uid} is neither queued nor in flight"
            )),
            None => Ok(()),
        }
    }
}
