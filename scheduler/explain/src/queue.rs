//! The waiting pods of the queue, grouped.

use crate::answer::{GateAccount, PodState, QueueAnswer, QueueGroup, QuotaLine};
use crate::devices::requests_text;
use crate::gates::gate_accounts;
use crate::limits::GROUPS_MAX;
use crate::owner::owner_of;
use crate::quota::quota_lines;
use crate::words::{ago, seconds};
use berth_api::{Duration, Pod, Str, Time};
use berth_scheduler::queue::{QueueCounts, QueuedIn, QueuedPodInfo};
use berth_scheduler::{DECISIONS_MAX, Scheduler};
use std::collections::HashMap;
use std::sync::Arc;

/// The period of the rate of decisions.
const RATE_OVER: Duration = Duration::from_secs(60);

/// The key of equal waiting pods.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct GroupKey {
    place: QueuedIn,
    /// The gating plugin, or the plugins that rejected the pods.
    plugins: Vec<Str>,
    namespace: Str,
    /// Kind and name of the pod group, otherwise of the controller.
    owner: Option<(Str, Str)>,
    /// The requested devices of each pod.
    requests: String,
}

impl GroupKey {
    fn of(scheduler: &Scheduler, place: QueuedIn, info: &QueuedPodInfo) -> Self {
        let plugins = match info.gating_plugin() {
            Some(gate) => vec![gate.clone()],
            None => info.rejectors().cloned().collect(),
        };
        Self {
            place,
            plugins,
            namespace: info.pod.namespace().clone(),
            owner: owner_of(scheduler.cache().cluster(), &info.pod),
            requests: if info.pod.spec.resource_claims.is_empty() {
                String::new()
            } else {
                requests_text(scheduler.cache().cluster(), &info.pod)
            },
        }
    }
}

/// Pods that wait for the same.
#[derive(Debug, Clone)]
pub(crate) struct WaitingGroup {
    key: GroupKey,
    pub(crate) pods: usize,
    /// The pod that waits longest.
    pub(crate) oldest: Arc<Pod>,
    since: Time,
    message: String,
}

/// The rate of placed pods during the last minute, per second, and whether the record was full, so that the rate covers
/// less than a minute.
pub fn placed_per_second(scheduler: &Scheduler, now: Time) -> (f64, bool) {
    let over = i64::try_from(RATE_OVER.as_nanos()).unwrap_or(i64::MAX);
    let from = Time::from_nanos(now.as_nanos().saturating_sub(over));
    let placed = scheduler.decisions().rev();
    let placed = placed.take_while(|decision| decision.at >= from).count();
    let rate = placed as f64 / RATE_OVER.as_secs_f64();
    (rate, placed == DECISIONS_MAX)
}

/// The facts of a scheduler about its queue. The cost grows with the number of waiting pods.
#[derive(Debug, Clone)]
pub struct QueueFacts {
    now: Time,
    counts: QueueCounts,
    in_flight: usize,
    /// The group with the oldest pod first.
    pub(crate) groups: Vec<WaitingGroup>,
    gates: Vec<GateAccount>,
    quotas: Vec<QuotaLine>,
    placed_per_second: f64,
    is_rate_of_less: bool,
    flush_rescues: u64,
}

/// The reason why a gated pod waits: its gates, or the message of the PreEnqueue plugin. Empty for other pods.
pub fn gate_text(info: &QueuedPodInfo) -> String {
    if !info.is_gated() {
        return String::new();
    }
    let gates = &info.pod.spec.scheduling_gates;
    if !gates.is_empty() {
        let names: Vec<&str> = gates.iter().map(|gate| gate.name.as_str()).collect();
        return names.join(", ");
    }
    match info.gate_message() {
        "" => {
            let condition = info.pod.condition("PodScheduled");
            condition.map_or_else(String::new, |condition| condition.message.to_string())
        }
        message => message.to_owned(),
    }
}

impl QueueFacts {
    /// Takes the facts.
    pub fn take(scheduler: &Scheduler, now: Time) -> Self {
        let places = scheduler.queue().places();
        let mut groups: HashMap<GroupKey, WaitingGroup> = HashMap::new();
        for (place, info) in places.pods() {
            let since = info.waits_since();
            let key = GroupKey::of(scheduler, place, info);
            let group = groups.entry(key.clone()).or_insert_with(|| WaitingGroup {
                key,
                pods: 0,
                oldest: info.pod.clone(),
                since,
                message: gate_text(info),
            });
            group.pods += 1;
            let is_older = (since, info.pod.name()) < (group.since, group.oldest.name());
            if is_older {
                group.since = since;
                group.oldest = info.pod.clone();
                group.message = gate_text(info);
            }
        }
        let mut groups: Vec<WaitingGroup> = groups.into_values().collect();
        for group in &mut groups {
            let explanation = scheduler.explanation(group.oldest.uid());
            if let Some(explanation) = explanation.filter(|_| group.message.is_empty()) {
                group.message = explanation.message.clone();
            }
        }
        groups.sort_by_key(|group| (group.since, group.oldest.key()));
        let (placed_per_second, is_rate_of_less) = placed_per_second(scheduler, now);
        Self {
            now,
            counts: places.counts(),
            in_flight: scheduler.queue().in_flight().len(),
            groups,
            gates: gate_accounts(scheduler, now),
            quotas: quota_lines(scheduler.cache().cluster(), now),
            placed_per_second,
            is_rate_of_less,
            flush_rescues: scheduler.flush_rescues(),
        }
    }
}

/// The waiting pods of the queue.
pub fn explain_queue(facts: &QueueFacts) -> QueueAnswer {
    let groups = facts.groups.iter().take(GROUPS_MAX).map(|group| {
        let owner = group.key.owner.as_ref();
        let plugins: Vec<&str> = group.key.plugins.iter().map(Str::as_str).collect();
        QueueGroup {
            place: PodState::from(group.key.place),
            reason: if plugins.is_empty() {
                match group.key.place {
                    QueuedIn::Active => String::new(),
                    _ => "an error".to_owned(),
                }
            } else {
                plugins.join(", ")
            },
            requests: group.key.requests.clone(),
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
        incomplete: counts.incomplete,
        pending_members: counts.pending,
        in_flight: facts.in_flight,
        groups: groups.collect(),
        group_count: facts.groups.len(),
        gates: facts.gates.clone(),
        quotas: facts.quotas.clone(),
        placed_per_second: facts.placed_per_second,
        is_rate_of_less: facts.is_rate_of_less,
        flush_rescues: facts.flush_rescues,
    }
}
