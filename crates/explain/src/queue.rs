//! What the queue waits for, grouped.

use crate::answer::{QueueAnswer, QueueGroup};
use crate::limits::GROUPS_MAX;
use crate::pod::{ago, seconds, state_of};
use berth_api::{Duration, Pod, Str, Time};
use berth_scheduler::queue::{QueueCounts, QueuedIn, QueuedPodInfo};
use berth_scheduler::{DECISIONS_MAX, Scheduler};
use std::collections::HashMap;
use std::sync::Arc;

/// Over how long the rate of decisions is computed.
const RATE_OVER: Duration = Duration::from_secs(60);

/// What makes waiting pods alike.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct GroupKey {
    place: QueuedIn,
    /// The gating plugin, or the plugins that rejected the pods.
    plugins: Vec<Str>,
    namespace: Str,
    /// Kind and name of the controller.
    owner: Option<(Str, Str)>,
}

impl GroupKey {
    fn of(place: QueuedIn, info: &QueuedPodInfo) -> Self {
        let plugins = match info.gating_plugin() {
            Some(gate) => vec![gate.clone()],
            None => info.rejectors().cloned().collect(),
        };
        let owner = info.pod.metadata.controller();
        Self {
            place,
            plugins,
            namespace: info.pod.namespace().clone(),
            owner: owner.map(|owner| (owner.kind.clone(), owner.name.clone())),
        }
    }
}

/// Pods that wait for the same.
#[derive(Debug, Clone)]
pub(crate) struct Group {
    key: GroupKey,
    pub(crate) pods: usize,
    /// The pod that waits longest.
    pub(crate) oldest: Arc<Pod>,
    since: Time,
    message: String,
}

/// What a scheduler knows of its queue. The cost of taking it grows with the number of waiting pods.
#[derive(Debug, Clone)]
pub struct QueueFacts {
    now: Time,
    counts: QueueCounts,
    in_flight: usize,
    /// The group with the oldest pod first.
    pub(crate) groups: Vec<Group>,
    placed: usize,
    is_rate_of_less: bool,
    flush_rescues: u64,
}

/// Since when a pod waits: its first attempt, or its arrival while it is gated.
fn waits_since(info: &QueuedPodInfo) -> Time {
    info.initial_attempt_timestamp.unwrap_or(info.timestamp)
}

impl QueueFacts {
    /// Takes the facts.
    pub fn take(scheduler: &Scheduler, now: Time) -> Self {
        let places = scheduler.queue().places();
        let mut groups: HashMap<GroupKey, Group> = HashMap::new();
        for (place, info) in places.pods() {
            let since = waits_since(info);
            let key = GroupKey::of(place, info);
            let group = groups.entry(key.clone()).or_insert_with(|| Group {
                key,
                pods: 0,
                oldest: info.pod.clone(),
                since,
                message: String::new(),
            });
            group.pods += 1;
            let is_older = (since, info.pod.name()) < (group.since, group.oldest.name());
            if is_older {
                group.since = since;
                group.oldest = info.pod.clone();
            }
        }
        let mut groups: Vec<Group> = groups.into_values().collect();
        for group in &mut groups {
            let explanation = scheduler.explanation(group.oldest.uid());
            group.message = explanation.map_or_else(String::new, |e| e.message.clone());
        }
        groups.sort_by_key(|group| (group.since, group.oldest.key()));
        let from = Time::from_nanos(
            now.as_nanos()
                .saturating_sub(i64::try_from(RATE_OVER.as_nanos()).unwrap_or(i64::MAX)),
        );
        let placed = scheduler.decisions().rev();
        let placed = placed.take_while(|decision| decision.at >= from).count();
        Self {
            now,
            counts: places.counts(),
            in_flight: scheduler.queue().in_flight().len(),
            groups,
            placed,
            is_rate_of_less: placed == DECISIONS_MAX,
            flush_rescues: scheduler.flush_rescues(),
        }
    }
}

/// What the queue waits for.
pub fn explain_queue(facts: &QueueFacts) -> QueueAnswer {
    let groups = facts.groups.iter().take(GROUPS_MAX).map(|group| {
        let owner = group.key.owner.as_ref();
        let plugins: Vec<&str> = group.key.plugins.iter().map(Str::as_str).collect();
        QueueGroup {
            place: state_of(group.key.place),
            reason: match plugins.is_empty() {
                true => match group.key.place {
                    QueuedIn::Active => String::new(),
                    _ => "an error".to_owned(),
                },
                false => plugins.join(", "),
            },
            owner: owner.map_or_else(String::new, |(kind, name)| format!("{kind}/{name}")),
            namespace: group.key.namespace.to_string(),
            pods: group.pods,
            oldest: group.oldest.name().to_string(),
            since: group.since.rfc3339(),
            seconds: seconds(group.since, facts.now),
            message: group.message.clone(),
        }
    });
    let counts = &facts.counts;
    let oldest = facts.groups.first().map_or_else(String::new, |group| {
        format!(
            "; {} waits longest, for {}",
            group.oldest.key(),
            ago(seconds(group.since, facts.now))
        )
    });
    QueueAnswer {
        at: facts.now.rfc3339(),
        summary: match counts.total() {
            1 => format!("1 pod waits{oldest}."),
            pods => format!("{pods} pods wait{oldest}."),
        },
        active: counts.active,
        backoff: counts.backoff,
        unschedulable: counts.unschedulable,
        gated: counts.gated,
        in_flight: facts.in_flight,
        groups: groups.collect(),
        group_count: facts.groups.len(),
        placed_per_second: facts.placed as f64 / RATE_OVER.as_secs_f64(),
        is_rate_of_less: facts.is_rate_of_less,
        flush_rescues: facts.flush_rescues,
    }
}
