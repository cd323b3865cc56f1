//! The answers to the questions of the page, from the core.

mod groups;
mod nodes;

pub(crate) use groups::GroupFilter;

use super::{CELLS_MAX, PageQuestion, ROWS_MAX};
use berth_api::{Pod, Str, Time};
use berth_explain::gate_text;
use berth_scheduler::Scheduler;
use berth_scheduler::metrics::{Families, Metric, SeriesValue as MetricValue, Snapshot};
use berth_scheduler::queue::{QueuedIn, QueuedPodInfo};
use serde_json::{Value, json};
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

/// The number of reasons, gates and nominations that are listed; the others are only counted.
const GROUPS_MAX: usize = 50;

/// Answers a question.
pub(crate) fn answer(scheduler: &Scheduler, question: &PageQuestion, now: Time) -> Value {
    match question {
        PageQuestion::State => state(scheduler, now),
        PageQuestion::Heat(resource) => nodes::heat(scheduler, resource),
        PageQuestion::Groups(filter) => groups::groups(scheduler, filter, now),
        PageQuestion::Search(text) => nodes::search(scheduler, text),
        PageQuestion::Owner(key) => nodes::owner_page(scheduler, key, now),
        // Samples are kept beside the core.
        PageQuestion::History => Value::Null,
        PageQuestion::Pods {
            place,
            plugin,
            search,
            from,
        } => pods(scheduler, (place, plugin, search), *from, now),
        PageQuestion::Nodes { search, from } => nodes::nodes(scheduler, search, *from),
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

/// Pods that wait for one reason.
struct ReasonGroup<'a> {
    pods: usize,
    oldest: &'a QueuedPodInfo,
    reason: String,
}

fn state(scheduler: &Scheduler, now: Time) -> Value {
    let snapshot = scheduler.metrics();
    let cache = scheduler.cache();
    let counts = scheduler.queue().places().counts();
    let mut reasons: HashMap<Vec<Str>, ReasonGroup<'_>> = HashMap::new();
    let mut gates: HashMap<(Str, String), ReasonGroup<'_>> = HashMap::new();
    // Most pods have the rejectors of another one.
    let mut plugins: Vec<Str> = Vec::new();
    for (place, info) in scheduler.queue().places().pods() {
        if place == QueuedIn::Gated {
            let plugin = info.gating_plugin().cloned().unwrap_or_default();
            let waits_for = gate_text(info);
            let group = gates.entry((plugin, waits_for.clone()));
            let group = group.or_insert_with(|| ReasonGroup::new(info, waits_for));
            group.add(info);
        } else if info.has_rejectors() {
            plugins.clear();
            plugins.extend(info.rejectors().cloned());
            if !reasons.contains_key(&plugins) {
                reasons.insert(plugins.clone(), ReasonGroup::new(info, String::new()));
            }
            let Some(group) = reasons.get_mut(&plugins) else {
                continue;
            };
            group.add(info);
            if group.reason.is_empty() {
                let explanation = scheduler.explanation(info.pod.uid());
                group.reason = explanation.map_or_else(String::new, |e| e.message.clone());
            }
        }
    }
    let nominator = scheduler.queue().nominator();
    let nominated: usize = nominator
        .nodes()
        .map(|node| nominator.pods_on(node).len())
        .sum();
    let nominations: Vec<Value> = nominator
        .nodes()
        .flat_map(|node| nominator.pods_on(node).iter().map(move |pod| (node, pod)))
        .take(GROUPS_MAX)
        .map(|(node, pod)| json!({"pod": pod.pod.key(), "node": node.as_str(), "priority": pod.pod.priority()}))
        .collect();
    let dispatcher = scheduler.dispatcher();
    let calls = dispatcher.counts();
    json!({
        "at": now.rfc3339_micros(),
        "nodes": cache.cluster().nodes.len(),
        "pods": cache.stored_pods().count(),
        "queue": {
            "active": counts.active,
            "backoff": counts.backoff,
            "unschedulable": counts.unschedulable,
            "gated": counts.gated,
            "inFlight": scheduler.queue().in_flight().pods().count(),
            "binding": scheduler.bindings_in_flight(),
        },
        "attempts": sums(&snapshot, Metric::ScheduleAttempts.family().name, 0),
        "flushRescues": sums(&snapshot, Metric::PodScheduledAfterFlush.family().name, 0).values().sum::<f64>() as u64,
        "reasons": listed(reasons, now, |plugins, group| json!({
            "plugins": plugins.iter().map(|p| p.as_str()).collect::<Vec<_>>(),
            "reason": group.reason,
        })),
        "gates": listed(gates, now, |(plugin, _), group| json!({
            "plugin": plugin.as_str(),
            "reason": group.reason,
        })),
        "nominations": {"total": nominated, "rows": nominations},
        "preempting": cache.cluster().preempting.len(),
        "calls": {
            "pending": dispatcher.pending(),
            "executed": sums(&snapshot, Metric::AsyncApiCallExecutions.family().name, 0),
            "failed": failed_calls(&snapshot),
            "sent": calls.sent,
            "retried": calls.retried,
            "overwritten": calls.overwritten,
            "skipped": calls.skipped,
            "refused": calls.refused,
        },
    })
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

impl<'a> ReasonGroup<'a> {
    fn new(info: &'a QueuedPodInfo, reason: String) -> Self {
        Self {
            pods: 0,
            oldest: info,
            reason,
        }
    }

    fn add(&mut self, info: &'a QueuedPodInfo) {
        self.pods += 1;
        if info.waits_since() < self.oldest.waits_since() {
            self.oldest = info;
        }
    }
}

/// The largest groups first.
fn listed<K>(
    groups: HashMap<K, ReasonGroup<'_>>,
    now: Time,
    describe: impl Fn(&K, &ReasonGroup<'_>) -> Value,
) -> Value {
    let total = groups.len();
    let mut groups: Vec<(K, ReasonGroup<'_>)> = groups.into_iter().collect();
    groups.sort_by_cached_key(|(_, group)| (Reverse(group.pods), group.oldest.pod.key()));
    let rows: Vec<Value> = groups
        .iter()
        .take(GROUPS_MAX)
        .map(|(key, group)| {
            let mut row = describe(key, group);
            row["pods"] = group.pods.into();
            row["oldestSeconds"] = now.since(group.oldest.waits_since()).as_secs().into();
            row["example"] = group.oldest.pod.key().into();
            row
        })
        .collect();
    json!({"total": total, "rows": rows})
}

/// A page of rows, and how many there are.
fn page(rows: Vec<Value>, total: usize, from: usize) -> Value {
    json!({"rows": rows, "total": total, "from": from, "pageSize": ROWS_MAX})
}

fn pods(
    scheduler: &Scheduler,
    (place, plugin, search): (&str, &str, &str),
    from: usize,
    now: Time,
) -> Value {
    let mut found: Vec<(QueuedIn, &QueuedPodInfo)> = scheduler
        .queue()
        .places()
        .pods()
        .filter(|(at, _)| place.is_empty() || place_name(*at) == place)
        .filter(|(_, info)| {
            // Several plugins are separated by commas; each of them rejects the pod.
            let mut plugins = plugin.split(',').filter(|plugin| !plugin.is_empty());
            plugins.all(|plugin| {
                info.is_rejected_by(plugin)
                    || info.gating_plugin().is_some_and(|gate| *gate == *plugin)
            })
        })
        .filter(|(_, info)| search.is_empty() || is_named(&info.pod, search))
        .collect();
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
    let rows = found[from..].iter().map(|(at, info)| {
        let explanation = scheduler.explanation(info.pod.uid());
        let reason = match at {
            QueuedIn::Gated => gate_text(info),
            _ => explanation.map_or_else(String::new, |e| e.message.clone()),
        };
        json!({
            "pod": info.pod.key(),
            "place": place_name(*at),
            "seconds": now.since(info.waits_since()).as_secs(),
            "attempts": info.attempts,
            "priority": info.pod.priority(),
            "plugins": match info.gating_plugin() {
                Some(plugin) => vec![plugin.as_str()],
                None => info.rejectors().map(|p| p.as_str()).collect(),
            },
            "reason": reason,
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
    // The explanation is that of the last attempt, which may be older than the state.
    let explanation = scheduler.explanation(stored.uid());
    json!({
        "pod": stored.key(),
        "node": stored.spec.node_name.as_str(),
        "assumedOn": cache.assumed_on(stored.uid()).map(|node| node.as_str()),
        "nominatedNode": stored.status.nominated_node_name.as_str(),
        "priority": stored.priority(),
        "owner": groups::owner_text(groups::owner(stored)),
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
