//! The consistency of the places. Walks everything; for tests and the simulator.

use super::gated_members::waits_for_the_same;
use super::{QueuePlaces, turn_of};
use crate::entry::{Gate, QueuedIn};
use berth_api::Str;
use rustc_hash::FxHashSet;
use std::collections::BTreeSet;

impl QueuePlaces {
    /// Checks the consistency of the records: each pod is in exactly one place, in the heap and the indexes of that
    /// place only, and known by its name. Walks everything; for tests and the simulator.
    ///
    /// # Errors
    /// The first disagreement.
    pub(crate) fn check(&self, is_in_flight: impl Fn(&str) -> bool) -> Result<(), String> {
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
