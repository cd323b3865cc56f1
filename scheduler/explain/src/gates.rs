//! Scheduling gates: their ages, the usual ages at removal, and gates that probably no component removes.

use crate::answer::{GateAccount, GateUsage};
use berth_api::{Duration, Pod, Str, Time};
use berth_scheduler::queue::QueuedIn;
use berth_scheduler::{GateRemovals, Scheduler};
use std::cmp::Reverse;
use std::collections::HashMap;

/// A gate is orphaned when its age is more than this factor times the 99th percentile of its removals, and no removal
/// was seen for the same time.
const ORPHAN_FACTOR: u32 = 10;
/// The minimum age of an orphaned gate.
const ORPHAN_AGE_MIN: Duration = Duration::from_secs(60);
/// The number of listed gates, the gates of the most pods first.
const GATES_MAX: usize = 100;

/// The time at which a pod got its gates: they are set at its creation.
pub(crate) fn gated_since(pod: &Pod, queued: Time) -> Time {
    let created = pod.metadata.creation_timestamp;
    created.map_or(queued, |created| created.min(queued))
}

/// The removals of a gate for an answer.
pub(crate) fn usage(removals: &GateRemovals) -> GateUsage {
    let ages = removals.usual_ages();
    GateUsage {
        removals: removals.count,
        median_seconds: ages.map(|(median, _)| median.as_secs_f64()),
        p99_seconds: ages.map(|(_, p99)| p99.as_secs_f64()),
        last: removals.last.rfc3339(),
        recent: removals.recent.iter().cloned().collect(),
    }
}

/// Returns whether probably no component removes a gate any more.
pub(crate) fn is_orphaned(age: Duration, removals: Option<&GateRemovals>, now: Time) -> bool {
    let usual = removals.and_then(|removals| Some((removals.last, removals.usual_ages()?.1)));
    usual.is_some_and(|(last, p99)| {
        let limit = (p99 * ORPHAN_FACTOR).max(ORPHAN_AGE_MIN);
        age > limit && now.since(last) > limit
    })
}

struct Count {
    pods: usize,
    oldest: Time,
    example: String,
    orphans: usize,
}

/// The gates of waiting pods, the gate of the most pods first. The cost grows with the number of gated pods.
pub fn gate_accounts(scheduler: &Scheduler, now: Time) -> Vec<GateAccount> {
    let mut counts: HashMap<Str, Count> = HashMap::new();
    for (place, info) in scheduler.queue().places().pods() {
        if place != QueuedIn::Gated {
            continue;
        }
        let since = gated_since(&info.pod, info.added);
        for gate in &info.pod.spec.scheduling_gates {
            let count = counts.entry(gate.name.clone()).or_insert_with(|| Count {
                pods: 0,
                oldest: since,
                example: info.pod.key(),
                orphans: 0,
            });
            count.pods += 1;
            // The example is the pod with the longest wait.
            if since < count.oldest {
                count.oldest = since;
                count.example = info.pod.key();
            }
            let removals = scheduler.gate_removals(&gate.name);
            count.orphans += usize::from(is_orphaned(now.since(since), removals, now));
        }
    }
    let mut accounts: Vec<GateAccount> = counts
        .into_iter()
        .map(|(gate, count)| GateAccount {
            pods: count.pods,
            oldest: count.example,
            oldest_seconds: now.since(count.oldest).as_secs_f64(),
            orphans: count.orphans,
            usage: scheduler.gate_removals(&gate).map(usage),
            gate: gate.to_string(),
        })
        .collect();
    accounts.sort_by(|a, b| (Reverse(a.pods), &a.gate).cmp(&(Reverse(b.pods), &b.gate)));
    accounts.truncate(GATES_MAX);
    accounts
}
