//! The pods that wait for events, indexed for the events: the pods that every event can examine, and the pods that another
//! pod of their template represents.

use super::entry::{Entry, EntryId, PodTemplateKey, QueueEntries, QueuedIn};
use super::heap::Key;
use super::hooks::Profiles;
use super::pool::Pool;
use super::templates::PodTemplates;
use std::sync::Arc;

/// The template of a waiting pod, and its turn among the pods of the template.
pub(super) type Turn<'a> = (&'a Arc<PodTemplateKey>, Key);

/// The pods that wait for events.
#[derive(Debug, Default)]
pub(super) struct WaitingPods {
    /// The pods that every event can examine.
    examined: Pool,
    /// The pods that another pod of their template represents for events about nodes and pods on nodes.
    represented: Pool,
    pub(super) templates: PodTemplates,
}

impl WaitingPods {
    /// The indexes: the pods that every event can examine; then, unless only representatives are examined, the others.
    pub(super) fn pools(&self, only_representatives: bool) -> impl Iterator<Item = &Pool> {
        let others = (!only_representatives).then_some(&self.represented);
        std::iter::once(&self.examined).chain(others)
    }

    fn pool_mut(&mut self, is_represented: bool) -> &mut Pool {
        if is_represented {
            &mut self.represented
        } else {
            &mut self.examined
        }
    }

    /// Indexes a pod that starts to wait. A pod without a turn represents only itself.
    pub(super) fn insert(
        &mut self,
        id: EntryId,
        entry: &Entry,
        turn: Option<Turn<'_>>,
        profiles: &Profiles,
    ) {
        let is_represented = turn.is_some_and(|(template, key)| {
            let uid = entry.info.pod.uid();
            !self.templates.join(template, uid, key, id)
        });
        let pool = self.pool_mut(is_represented);
        pool.insert(id, profiles.known(entry.profile), &entry.info);
    }

    /// Removes a pod. Its state must not have changed since it was indexed.
    pub(super) fn remove(&mut self, id: EntryId, entry: &Entry, turn: Option<Turn<'_>>) {
        let is_represented = turn.is_some_and(|(template, key)| {
            let uid = entry.info.pod.uid();
            !self.templates.leave(template, uid, key, id)
        });
        let pool = self.pool_mut(is_represented);
        pool.remove(id, entry.profile, &entry.info);
    }

    /// Makes a waiting pod the representative of its template.
    pub(super) fn appoint(
        &mut self,
        template: &Arc<PodTemplateKey>,
        next: EntryId,
        entries: &QueueEntries,
        profiles: &Profiles,
    ) {
        let before = self.templates.appoint(template, next);
        if before == Some(next) {
            return;
        }
        let refile = |id: EntryId, from: &mut Pool, to: &mut Pool| {
            if let Some(entry) = entries.get(id) {
                from.remove(id, entry.profile, &entry.info);
                to.insert(id, profiles.known(entry.profile), &entry.info);
            }
        };
        if let Some(before) = before {
            refile(before, &mut self.examined, &mut self.represented);
        }
        refile(next, &mut self.represented, &mut self.examined);
    }

    /// Checks that the indexes contain exactly the waiting pods, in their current state. `has_turn` returns whether a pod
    /// waits with the pods of its template.
    ///
    /// # Errors
    /// The first disagreement.
    pub(super) fn check(
        &self,
        entries: &QueueEntries,
        profiles: &Profiles,
        has_turn: impl Fn(&Entry) -> bool,
    ) -> Result<(), String> {
        let mut expected = [Pool::default(), Pool::default()];
        let mut with_turn = 0;
        for (id, entry) in entries.all() {
            if !entry.place.is_some_and(QueuedIn::is_unschedulable_pool) {
                continue;
            }
            let template = entry.info.own.template.as_ref();
            let template = template.filter(|_| has_turn(entry));
            with_turn += usize::from(template.is_some());
            let is_represented =
                template.is_some_and(|template| !self.templates.represents(template, id));
            let known = profiles.known(entry.profile);
            expected[usize::from(is_represented)].insert(id, known, &entry.info);
        }
        for (pool, expected) in self.pools(false).zip(&expected) {
            pool.check(expected)?;
        }
        if self.templates.len() != with_turn {
            let len = self.templates.len();
            return Err(format!("{len} pods in templates, expected {with_turn}"));
        }
        Ok(())
    }
}
