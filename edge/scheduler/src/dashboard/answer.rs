//! The answers to the questions of the page, from the core.

mod nodes;
mod reasons;
mod waiting;

pub use waiting::WaitingFilter;

use super::{CELLS_MAX, NAMED_NODES_MAX, PageQuestion, ROWS_MAX};
use berth_api::{Pod, Str, Time};
use berth_explain::{gate_text, owner_of, placed_per_second, quota_lines};
use berth_scheduler::Scheduler;
use berth_scheduler::metrics::{Families, Metric, SeriesValue as MetricValue, Snapshot};
use berth_scheduler::queue::{QueuedIn, QueuedPodInfo};
use reasons::WaitingReasons;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use waiting::{age, owner_text};

/// The number of nominations that are listed; the others are only counted.
const NOMINATIONS_MAX: usize = 50;

/// Answers a question.
pub(crate) fn answer(scheduler: &Scheduler, question: &PageQuestion, now: Time) -> Value {
    match question {
        PageQuestion::State => state(scheduler, now),
        PageQuestion::Heat(resource) => nodes::heat(scheduler, resource),
        PageQuestion::Waiting(filter) => waiting::waiting(scheduler, filter, now),
        PageQuestion::Search(text) => nodes::search(scheduler, text),
        PageQuestion::Owner(key) => nodes::owner_page(scheduler, key, now),
        // Samples are stored outside of the core.
        PageQuestion::History => Value::Null,
        PageQuestion::Pods { place, from } => pods(scheduler, place, *from, now),
        PageQuestion::Nodes(from) => nodes::nodes(scheduler, *from),
        PageQuestion::Node(name) => nodes::node(scheduler, name),
        PageQuestion::Pod(name) => pod(scheduler, name, now),
    }
}

fn place_name(place: QueuedIn) -> &'static str {
    match place {
        QueuedIn::Active => "active",
        QueuedIn::Backoff | QueuedIn::ErrorBackoff => "backoff",
        QueuedIn::Unschedulable => "unschedulable",
        QueuedIn::Gated => "gated",
    }
}

/// The sum of a metric over all series with these labels, by the value of the label at `by`.
fn sums(snapshot: &Snapshot, metric: &str, by: usize) -> BTreeMap<String, f64> {
    let mut all = BTreeMap::new();
    let families = snapshot.families.iter();
    for family in families.filter(|family| family.family.name == metric) {
        for (labels, value) in &family.series {
            let label = labels.get(by).map(ToString::to_string);
            if let MetricValue::Number(number) = value {
                *all.entry(label.unwrap_or_default()).or_default() += number;
            }
        }
    }
    all
}

fn state(scheduler: &Scheduler, now: Time) -> Value {
    let snapshot = scheduler.metrics();
    let cache = scheduler.cache();
    let counts = scheduler.queue().places().counts();
    let (placed_per_second, is_rate_of_less) = placed_per_second(scheduler, now);
    let tried = scheduler.queue().places().pods();
    let tried = tried.filter(|(place, _)| *place != QueuedIn::Gated);
    let tried = tried.map(|(_, info)| info);
    let oldest = tried.min_by(|a, b| age(a).cmp(&age(b)));
    let nominator = scheduler.queue().nominator();
    let nominated: usize = nominator
        .nodes()
        .map(|node| nominator.pods_on(node).len())
        .sum();
    let nominations: Vec<Value> = nominator
        .nodes()
        .flat_map(|node| nominator.pods_on(node).iter().map(move |pod| (node, pod)))
        .take(NOMINATIONS_MAX)
        .map(|(node, pod)| json!({"pod": pod.pod.key(), "node": node.as_str(), "priority": pod.pod.priority()}))
        .collect();
    let dispatcher = scheduler.dispatcher();
    let calls = dispatcher.counts();
    json!({
        "at": now.rfc3339_micros(),
        "nodes": cache.cluster().nodes.len(),
        "pods": cache.stored_pods().count(),
        "queue": {
            "active": counts.active + counts.pending,
            "backoff": counts.backoff,
            "unschedulable": counts.unschedulable,
            "gated": counts.gated + counts.incomplete,
        },
        "oldest": oldest.map(|info| json!({
            "pod": info.pod.key(),
            "seconds": now.since(info.waits_since()).as_secs(),
        })),
        "placedPerSecond": placed_per_second,
        "isRateOfLess": is_rate_of_less,
        "attempts": sums(&snapshot, Metric::ScheduleAttempts.family().name, 0),
        "flushRescues": scheduler.flush_rescues(),
        "nominations": {"total": nominated, "rows": nominations},
        "quotas": quotas(scheduler, now),
        "calls": {
            "pending": dispatcher.pending(),
            "executed": sums(&snapshot, Metric::AsyncApiCallExecutions.family().name, 0),
            "failed": failed_calls(&snapshot),
            "retried": calls.retried,
            "overwritten": calls.overwritten,
            "skipped": calls.skipped,
        },
    })
}

/// The deferred quotas for which pods wait.
fn quotas(scheduler: &Scheduler, now: Time) -> Vec<Value> {
    let lines = quota_lines(scheduler.cache().cluster(), now).into_iter();
    let rows = lines.map(|line| {
        json!({
            "quota": format!("{}/{}", line.namespace, line.quota),
            "waiting": line.waiting,
            "seconds": line.oldest_seconds,
            "first": format!("{}/{}", line.namespace, line.first),
            "reason": line.message,
            "isStuck": line.is_stuck,
        })
    });
    rows.collect()
}

/// The failed calls by type.
fn failed_calls(snapshot: &Snapshot) -> BTreeMap<String, f64> {
    let mut all = BTreeMap::new();
    let name = Metric::AsyncApiCallExecutions.family().name;
    let families = snapshot.families.iter();
    for family in families.filter(|family| family.family.name == name) {
        for (labels, value) in &family.series {
            let mut labels = labels.iter().map(ToString::to_string);
            let (call_type, result) = (labels.next(), labels.next());
            if let (Some(call_type), Some(result), MetricValue::Number(number)) =
                (call_type, result, value)
                && result != "success"
            {
                *all.entry(call_type).or_default() += number;
            }
        }
    }
    all
}

/// A page of rows, and how many there are.
fn page(rows: Vec<Value>, total: usize, from: usize) -> Value {
    json!({"rows": rows, "total": total, "from": from, "pageSize": ROWS_MAX})
}

fn pods(scheduler: &Scheduler, place: &str, from: usize, now: Time) -> Value {
    let queued = scheduler.queue().places().pods();
    let wanted = queued.filter(|(at, _)| place.is_empty() || place_name(*at) == place);
    let mut found: Vec<(QueuedIn, &QueuedPodInfo)> = wanted.collect();
    let order = |(_, a): &(QueuedIn, &QueuedPodInfo), (_, b): &(QueuedIn, &QueuedPodInfo)| {
        (a.waits_since(), a.pod.uid()).cmp(&(b.waits_since(), b.pod.uid()))
    };
    let total = found.len();
    let from = from.min(total);
    let to = (from + ROWS_MAX).min(total);
    // Only the rows of the page are sorted completely.
    if to > 0 && to < total {
        found.select_nth_unstable_by(to, order);
        found.truncate(to);
    }
    found.sort_unstable_by(order);
    let cluster = scheduler.cache().cluster();
    let rows = found[from..].iter().map(|(at, info)| {
        json!({
            "pod": info.pod.key(),
            "owner": owner_text(owner_of(cluster, &info.pod).as_ref()),
            "place": place_name(*at),
            "seconds": now.since(info.waits_since()).as_secs(),
            "attempts": info.attempts,
            "priority": info.pod.priority(),
            "reasons": WaitingReasons::of(scheduler, (*at, info)).listed(scheduler),
        })
    });
    page(rows.collect(), total, from)
}

fn is_named(pod: &Pod, search: &str) -> bool {
    match search.split_once('/') {
        Some((namespace, name)) => {
            pod.namespace().ends_with(namespace) && pod.name().starts_with(name)
        }
        None => pod.name().contains(search) || pod.namespace().contains(search),
    }
}

fn pod(scheduler: &Scheduler, key: &str, now: Time) -> Value {
    let (namespace, name) = key.split_once('/').unwrap_or(("default", key));
    let (namespace, name) = (Str::new(namespace), Str::new(name));
    let cache = scheduler.cache();
    let Some(stored) = cache.stored_by_name(&namespace, &name) else {
        return json!({"missing": true, "pod": key});
    };
    let queued = scheduler.queue().get(&namespace, &name);
    // The explanation refers to the last attempt, which may be older than the state.
    let explanation = scheduler.explanation(stored.uid());
    json!({
        "pod": stored.key(),
        "node": stored.spec.node_name.as_str(),
        "assumedOn": cache.assumed_on(stored.uid()).map(|node| node.as_str()),
        "nominatedNode": stored.status.nominated_node_name.as_str(),
        "priority": stored.priority(),
        "owner": owner_text(owner_of(cache.cluster(), stored).as_ref()),
        "group": stored.pod_group_name().map(|name| name.as_str()),
        "place": queued.map(|(place, _)| place_name(place)),
        "seconds": queued.map(|(_, info)| now.since(info.waits_since()).as_secs()),
        "attempts": queued.map(|(_, info)| info.attempts),
        "gate": queued.filter(|(place, _)| *place == QueuedIn::Gated).map(|(_, info)| gate_text(info)),
        "message": explanation.map(|e| e.message.as_str()),
        "reasons": explanation.map(|e| e.reasons.iter().map(|reason| json!({
            "plugin": reason.plugin.as_str(),
            "text": reason.text,
            "nodes": reason.nodes,
            "examples": reason.examples.iter().map(|node| node.as_str()).collect::<Vec<_>>(),
        })).collect::<Vec<_>>()),
    })
}
