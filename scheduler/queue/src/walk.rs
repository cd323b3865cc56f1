//! A walk over the pods that an event can help.

use super::entry::EntryId;
use super::hints::{AskedPods, EventQuestion, HintTally, MoveStrategy};
use super::place::QueuePlaces;
use super::pool::Pool;
use super::wait_index::WaitScope;
use berth_api::Pod;
use berth_telemetry::Log;

/// The state that is reused between walks, to avoid allocation.
#[derive(Debug, Default)]
pub(super) struct Walk {
    /// The number of the walk that last visited each entry.
    visited: Vec<u64>,
    number: u64,
    /// The number of pods examined in this walk.
    pub(super) examined: usize,
    /// The pods that the event helps. The caller empties it.
    pub(super) to_move: Vec<(EntryId, MoveStrategy)>,
}

/// The pods of a walk, of the profile of the event.
#[derive(Clone, Copy)]
pub(super) struct ExaminedPods<'a> {
    /// Pods behind this gate, or without a gate.
    pub(super) gate: Option<&'a str>,
    /// Only pods that pass this check.
    pub(super) pre_check: Option<&'a dyn Fn(&Pod) -> bool>,
}

impl Walk {
    /// Starts a walk.
    pub(super) fn begin(&mut self) {
        self.number += 1;
        self.examined = 0;
    }

    /// Evaluates an event for these pods of a pool, and records the pods that it helps.
    pub(super) fn ask(
        &mut self,
        question: &EventQuestion<'_>,
        ExaminedPods { gate, pre_check }: ExaminedPods<'_>,
        places: &QueuePlaces,
        pool: &Pool,
        tally: &mut HintTally,
        log: &mut Log,
    ) {
        let id_of_profile = question.profile.map(|(id, _)| id);
        if !pool.has(gate, id_of_profile) {
            return;
        }
        let mut put_to = |id: EntryId| {
            if self.visited.len() <= id.index() {
                self.visited.resize(id.index() + 1, 0);
            }
            // Several registrations can find the same pod. Their results are merged, so the pod is evaluated once.
            if std::mem::replace(&mut self.visited[id.index()], self.number) == self.number {
                return;
            }
            let Some(entry) = places.waiting_entry(id) else {
                debug_assert!(false, "the index names waiting pods only");
                return;
            };
            let info = &entry.info;
            if question.is_rejected_regardless(info)
                || pre_check.is_some_and(|passes| !passes(&info.pod))
            {
                return;
            }
            self.examined += 1;
            let strategy = question.put_to(info, Some(id), tally, log);
            if strategy != MoveStrategy::Skip {
                self.to_move.push((id, strategy));
            }
        };
        // A wildcard event, and an event for pods without profile, has no registrations that narrow it.
        let profile = question.profile.filter(|_| !question.matched.is_wildcard);
        let Some((profile, known)) = profile else {
            pool.all(gate, id_of_profile).for_each(put_to);
            return;
        };
        for (asked, matching) in question.narrowed.iter().zip(question.matching()) {
            let Some(registration) = known.registrations.get(*matching) else {
                continue;
            };
            let plugin = &registration.plugin;
            // Entries that are found by name or key can be in the scope of another gate, profile or plugin.
            let is_meant = |id: &EntryId| {
                places.waiting_entry(*id).is_some_and(|entry| {
                    entry.profile == Some(profile)
                        && entry.info.gating_plugin().map(|gate| gate.as_str()) == gate
                        && entry.info.is_rejected_by(plugin)
                })
            };
            match asked {
                AskedPods::All => {
                    let all = pool.rejected_by(gate, Some(profile), plugin);
                    all.for_each(&mut put_to);
                }
                AskedPods::Listed(listed) => {
                    let listed = listed.iter().copied();
                    listed.filter(is_meant).for_each(&mut put_to);
                }
                AskedPods::Waiting(touched) => {
                    if let Some((namespace, name)) = touched.pod() {
                        let named = places.named(namespace, name);
                        named.filter(is_meant).for_each(&mut put_to);
                    }
                    let scope = WaitScope {
                        profile,
                        gate,
                        registration: *matching,
                    };
                    pool.by_wait.find(scope, touched, |id| {
                        if is_meant(&id) {
                            put_to(id);
                        }
                    });
                }
            }
        }
        pool.rejected_by(gate, Some(profile), "").for_each(put_to);
    }
}
