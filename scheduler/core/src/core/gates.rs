//! Removals of scheduling gates: the ages of pods when a controller removes a gate.

use berth_api::{Duration, Pod, Str, Time};
use indexmap::IndexMap;
use rustc_hash::{FxBuildHasher, FxHashSet};
use std::collections::VecDeque;

/// The number of gates with recorded removals; the gate with the oldest last removal is dropped first.
const GATES_MAX: usize = 128;
/// The number of removals of a gate from which the usual age is computed.
const REMOVALS_MAX: usize = 512;
/// The number of pods that are listed per gate, those with the latest removals.
const RECENT_MAX: usize = 3;

/// The observed removals of a gate.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GateRemovals {
    /// The number.
    pub count: u64,
    /// The time of the last one.
    pub last: Time,
    /// The pods of the latest removals as `namespace/name`, the latest first.
    pub recent: VecDeque<String>,
    ages: VecDeque<Duration>,
}

impl GateRemovals {
    /// The median and the 99th percentile of the ages of pods at the last removals; `None` if no age is known.
    pub fn usual_ages(&self) -> Option<(Duration, Duration)> {
        let mut ages: Vec<Duration> = self.ages.iter().copied().collect();
        ages.sort_unstable();
        let at = |per_cent: usize| {
            let rank = (ages.len() * per_cent).div_ceil(100);
            ages.get(rank.saturating_sub(1)).copied()
        };
        Some((at(50)?, at(99)?))
    }
}

/// The removals by gate.
#[derive(Debug, Default)]
pub(crate) struct GateLog(IndexMap<Str, GateRemovals, FxBuildHasher>);

impl GateLog {
    /// Records the gates that an update of a pod removed.
    pub(crate) fn note(&mut self, old: &Pod, new: &Pod, now: Time) {
        // In nearly all updates the gates are equal.
        if old.spec.scheduling_gates == new.spec.scheduling_gates {
            return;
        }
        let left = new.spec.scheduling_gates.iter().map(|gate| &gate.name);
        let left: FxHashSet<&Str> = left.collect();
        for gate in &old.spec.scheduling_gates {
            if !left.contains(&gate.name) {
                self.removed(&gate.name, new, now);
            }
        }
    }

    fn removed(&mut self, gate: &Str, pod: &Pod, now: Time) {
        if !self.0.contains_key(gate) && self.0.len() >= GATES_MAX {
            let oldest = self.0.iter().min_by_key(|(_, removals)| removals.last);
            if let Some(oldest) = oldest.map(|(name, _)| name.clone()) {
                self.0.swap_remove(&oldest);
            }
        }
        let removals = self.0.entry(gate.clone()).or_default();
        removals.count = removals.count.saturating_add(1);
        removals.last = now;
        removals.recent.push_front(pod.key());
        removals.recent.truncate(RECENT_MAX);
        if let Some(created) = pod.metadata.creation_timestamp {
            removals.ages.push_front(now.since(created));
            removals.ages.truncate(REMOVALS_MAX);
        }
    }

    pub(crate) fn get(&self, gate: &str) -> Option<&GateRemovals> {
        self.0.get(gate)
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = (&Str, &GateRemovals)> {
        self.0.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_framework::testing::{PodBuilder, pod};

    #[test]
    fn removals_have_usual_ages() {
        let mut log = GateLog::default();
        for at in 1..=100 {
            let gated = pod(&format!("p{at}")).gate("example.com/quota");
            let gated = gated.with(|pod| pod.metadata.creation_timestamp = Some(Time::EPOCH));
            let gated = gated.build();
            let open = PodBuilder::of(&gated).ungated().build();
            log.note(&gated, &open, Time::from_secs(at));
            log.note(&open, &open, Time::from_secs(at));
        }
        let removals = log.get("example.com/quota").expect("removals");
        assert_eq!((removals.count, removals.last), (100, Time::from_secs(100)));
        let ages = removals.usual_ages();
        let seconds = Duration::from_secs;
        assert_eq!(ages, Some((seconds(50), seconds(99))));
        assert_eq!(removals.recent[0], "default/p100");
        assert_eq!(removals.recent.len(), RECENT_MAX);
        assert!(log.get("example.com/other").is_none());
    }

    #[test]
    fn no_more_gates_are_remembered_than_the_limit() {
        let mut log = GateLog::default();
        for at in 0..2 * GATES_MAX {
            let gated = pod("p").gate(&format!("example.com/{at}")).build();
            let open = PodBuilder::of(&gated).ungated().build();
            let now = Time::from_secs(i64::try_from(at).unwrap_or(i64::MAX));
            log.note(&gated, &open, now);
        }
        assert_eq!(log.all().count(), GATES_MAX);
        let last = format!("example.com/{}", 2 * GATES_MAX - 1);
        assert!(log.get(&last).is_some() && log.get("example.com/0").is_none());
    }
}
