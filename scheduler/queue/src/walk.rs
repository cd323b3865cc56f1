//! A walk over the pods that an event can help.

use super::entry::{EntryId, QueuedIn, QueuedPodInfo};
use super::hints::{AskedPods, EventQuestion, HintTally, MoveStrategy};
use super::hooks::ProfileId;
use super::place::QueuePlaces;
use super::pool::Pool;
use super::wait_index::Drawer;
use berth_api::{Pod, Str};
use berth_telemetry::Log;

/// The waiting pods, by their numbers in a [`Pool`].
pub(super) trait WaitingPods {
    /// A waiting pod and its profile.
    fn waiting(&self, id: EntryId) -> Option<(&QueuedPodInfo, Option<ProfileId>)>;

    /// The number of a pod, or of its entry.
    fn named(&self, namespace: &str, name: &str) -> Option<EntryId>;
}

impl WaitingPods for QueuePlaces {
    fn waiting(&self, id: EntryId) -> Option<(&QueuedPodInfo, Option<ProfileId>)> {
        let entry = self.get(id)?;
        let waits = entry.place.is_some_and(QueuedIn::is_unschedulable_pool);
        waits.then_some((&entry.info, entry.profile))
    }

    fn named(&self, namespace: &str, name: &str) -> Option<EntryId> {
        self.entry_of(namespace, name)
    }
}

/// The state that is reused between walks, to avoid allocation.
#[derive(Debug, Default)]
pub(super) struct Walk {
    /// The number of the walk that last visited each entry.
    visited: Vec<u64>,
    number: u64,
    /// The number of pods that were asked in this walk.
    examined: usize,
    to_move: Vec<(EntryId, MoveStrategy)>,
}

/// The pods of a walk.
pub(super) struct ExaminedPods<'a> {
    pub(super) profile: Option<ProfileId>,
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

    /// The number of pods that were asked in this walk.
    pub(super) fn examined(&self) -> usize {
        self.examined
    }

    /// Ends the walk and returns the pods to move. [Return](Self::keep) the list after use.
    pub(super) fn end(&mut self) -> Vec<(EntryId, MoveStrategy)> {
        std::mem::take(&mut self.to_move)
    }

    /// Keeps the memory of an emptied list.
    pub(super) fn keep(&mut self, emptied: Vec<(EntryId, MoveStrategy)>) {
        self.to_move = emptied;
    }

    /// Evaluates a question for these pods of a pool, and records the pods that it helps.
    pub(super) fn ask(
        &mut self,
        (question, pods): (&EventQuestion<'_>, &ExaminedPods<'_>),
        waiting: &impl WaitingPods,
        pool: &Pool,
        tally: &mut HintTally,
        log: &mut Log,
    ) {
        let ExaminedPods {
            profile,
            gate,
            pre_check,
        } = *pods;
        if !pool.has(gate, profile) {
            return;
        }
        let Self {
            visited,
            number,
            examined,
            to_move,
        } = self;
        let mut put_to = |id: EntryId| {
            if visited.len() <= id.index() {
                visited.resize(id.index() + 1, 0);
            }
            if std::mem::replace(&mut visited[id.index()], *number) == *number {
                return;
            }
            let Some((info, _)) = waiting.waiting(id) else {
                debug_assert!(false, "the index names waiting pods only");
                return;
            };
            if question.is_rejected_regardless(info)
                || pre_check.is_some_and(|passes| !passes(&info.pod))
            {
                return;
            }
            *examined += 1;
            let strategy = question.put_to(info, Some(id), tally, log);
            if strategy != MoveStrategy::Skip {
                to_move.push((id, strategy));
            }
        };
        let Some(known) = question.profile.filter(|_| !question.matched.is_wildcard) else {
            pool.all(gate, profile).for_each(put_to);
            return;
        };
        for (asked, matching) in question.narrowed.iter().zip(question.matching) {
            let Some((registration, profile_id)) = known.registrations.get(*matching).zip(profile)
            else {
                continue;
            };
            let plugin = &registration.plugin;
            let is_meant = |id: &EntryId| waits_for(waiting.waiting(*id), gate, profile_id, plugin);
            match asked {
                AskedPods::All => {
                    let all = pool.rejected_by(gate, profile, plugin);
                    all.for_each(&mut put_to);
                }
                AskedPods::Listed(listed) => {
                    let listed = listed.iter().copied();
                    listed.filter(is_meant).for_each(&mut put_to);
                }
                AskedPods::Waiting(touched) => {
                    let pod = touched.pod();
                    let pod = pod.and_then(|(namespace, name)| waiting.named(namespace, name));
                    pod.into_iter().filter(is_meant).for_each(&mut put_to);
                    let drawer = Drawer {
                        profile: profile_id,
                        gate,
                        registration: *matching,
                    };
                    pool.by_wait.find(drawer, touched, |id| {
                        if is_meant(&id) {
                            put_to(id);
                        }
                    });
                }
            }
        }
        pool.rejected_by(gate, profile, "").for_each(put_to);
    }
}

/// Returns whether a pod waits behind `gate` (or without a gate) and `plugin` rejected it.
fn waits_for(
    waiting: Option<(&QueuedPodInfo, Option<ProfileId>)>,
    gate: Option<&str>,
    profile: ProfileId,
    plugin: &str,
) -> bool {
    waiting.is_some_and(|(info, of)| {
        of == Some(profile)
            && info.gating_plugin().map(Str::as_str) == gate
            && info.is_rejected_by(plugin)
    })
}
