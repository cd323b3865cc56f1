//! The answers to the questions of the page, from the core.

use super::{CELLS_MAX, Question, ROWS_MAX};
use berth_api::{Pod, Str, Time};
use berth_framework::NodeView;
use berth_scheduler::Scheduler;
use berth_scheduler::metrics::{Families, Metric, Snapshot, Value as MetricValue};
use berth_scheduler::queue::{QueuedIn, QueuedPodInfo};
use serde_json::{Value, json};
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

/// How many reasons, gates and nominations are listed; the others are only counted.
const GROUPS_MAX: usize = 50;
/// The resources of the heat map that every node has.
const RESOURCES: [&str; 3] = ["cpu", "memory", "pods"];

/// Answers a question.
pub(crate) fn answer(scheduler: &Scheduler, question: &Question, now: Time) -> Value {
    match question {
        Question::State => state(scheduler, now),
        Question::Heat(resource) => heat(scheduler, resource),
        Question::Pods {
            place,
            plugin,
            search,
            from,
        } => pods(scheduler, (place, plugin, search), *from, now),
        Question::Nodes { search, from } => nodes(scheduler, search, *from),
        Question::Node(name) => node(scheduler, name),
        Question::Pod(name) => pod(scheduler, name, now),
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
struct Group<'a> {
    pods: usize,
    oldest: &'a QueuedPodInfo,
    reason: String,
}

fn state(scheduler: &Scheduler, now: Time) -> Value {
    let snapshot = scheduler.metrics();
    let cache = scheduler.cache();
    let counts = scheduler.queue().places().counts();
    let mut reasons: HashMap<Vec<Str>, Group<'_>> = HashMap::new();
    let mut gates: HashMap<(Str, String), Group<'_>> = HashMap::new();
    // Most pods have the rejectors of another one.
    let mut plugins: Vec<Str> = Vec::new();
    for (place, info) in scheduler.queue().places().pods() {
        if place == QueuedIn::Gated {
            let plugin = info.gating_plugin().cloned().unwrap_or_default();
            let waits_for = gate_text(info);
            let group = gates.entry((plugin, waits_for.clone()));
            let group = group.or_insert_with(|| Group::new(info, waits_for));
            group.add(info);
        } else if info.has_rejectors() {
            plugins.clear();
            plugins.extend(info.rejectors().cloned());
            if !reasons.contains_key(&plugins) {
                reasons.insert(plugins.clone(), Group::new(info, String::new()));
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

impl<'a> Group<'a> {
    fn new(info: &'a QueuedPodInfo, reason: String) -> Self {
        Self {
            pods: 0,
            oldest: info,
            reason,
        }
    }

    fn add(&mut self, info: &'a QueuedPodInfo) {
        self.pods += 1;
        if info.timestamp < self.oldest.timestamp {
            self.oldest = info;
        }
    }
}

/// The largest groups first.
fn listed<K>(
    groups: HashMap<K, Group<'_>>,
    now: Time,
    describe: impl Fn(&K, &Group<'_>) -> Value,
) -> Value {
    let total = groups.len();
    let mut groups: Vec<(K, Group<'_>)> = groups.into_iter().collect();
    groups.sort_by_cached_key(|(_, group)| (Reverse(group.pods), group.oldest.pod.key()));
    let rows: Vec<Value> = groups
        .iter()
        .take(GROUPS_MAX)
        .map(|(key, group)| {
            let mut row = describe(key, group);
            row["pods"] = group.pods.into();
            row["oldestSeconds"] = now.since(group.oldest.timestamp).as_secs().into();
            row["example"] = group.oldest.pod.key().into();
            row
        })
        .collect();
    json!({"total": total, "rows": rows})
}

/// What a gated pod waits for: its gates, or what the plugin reported.
fn gate_text(info: &QueuedPodInfo) -> String {
    let gates = &info.pod.spec.scheduling_gates;
    if !gates.is_empty() {
        let names: Vec<&str> = gates.iter().map(|gate| gate.name.as_str()).collect();
        return names.join(", ");
    }
    let condition = info.pod.condition("PodScheduled");
    condition.map_or_else(String::new, |condition| condition.message.to_string())
}

/// How much of a resource is requested, from 0 to 1; `None` if the node has none.
fn load(view: &NodeView<'_>, resource: &str) -> Option<f64> {
    let (requested, allocatable) = match resource {
        "pods" => (view.pods().len() as i64, view.allocatable_of("pods")),
        name => (view.requested_of(name), view.allocatable_of(name)),
    };
    (allocatable > 0).then(|| requested as f64 / allocatable as f64)
}

fn heat(scheduler: &Scheduler, resource: &str) -> Value {
    let table = &scheduler.cache().cluster().nodes;
    let mut views: Vec<NodeView<'_>> = table.iter().collect();
    views.sort_by(|a, b| a.name().cmp(b.name()));
    let mut resources: Vec<&str> = RESOURCES.to_vec();
    let mut scalars: Vec<&str> = Vec::new();
    for view in &views {
        for name in view.allocatable_scalars() {
            if let Err(at) = scalars.binary_search(&name.as_str()) {
                scalars.insert(at, name);
            }
        }
    }
    resources.extend(scalars);
    let resource = resources
        .iter()
        .find(|known| **known == resource)
        .unwrap_or(&"cpu");
    let per_cell = views.len().div_ceil(CELLS_MAX).max(1);
    let cells: Vec<Value> = views
        .chunks(per_cell)
        .map(|nodes| {
            let loads = nodes.iter().filter_map(|view| load(view, resource));
            let (count, sum) = loads.fold((0_u32, 0.0), |(n, sum), load| (n + 1, sum + load));
            let mean = (count > 0).then(|| (sum / f64::from(count) * 1000.0).round() / 1000.0);
            let cordoned = nodes.iter().any(|view| view.node().spec.unschedulable);
            json!([nodes[0].name().as_str(), mean, u8::from(cordoned)])
        })
        .collect();
    json!({"resource": resource, "resources": resources, "nodesPerCell": per_cell, "cells": cells})
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
        (a.timestamp, a.pod.uid()).cmp(&(b.timestamp, b.pod.uid()))
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
            "seconds": now.since(info.timestamp).as_secs(),
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

fn loads(view: &NodeView<'_>) -> BTreeMap<String, Value> {
    let scalars = view.allocatable_scalars().iter().map(|name| name.as_str());
    let names = RESOURCES.into_iter().chain(scalars);
    names
        .map(|name| {
            let requested = match name {
                "pods" => view.pods().len() as i64,
                name => view.requested_of(name),
            };
            let allocatable = view.allocatable_of(name);
            (
                name.to_owned(),
                json!({"requested": requested, "allocatable": allocatable, "load": load(view, name)}),
            )
        })
        .collect()
}

fn nodes(scheduler: &Scheduler, search: &str, from: usize) -> Value {
    let table = &scheduler.cache().cluster().nodes;
    let mut found: Vec<NodeView<'_>> = table
        .iter()
        .filter(|view| search.is_empty() || view.name().contains(search))
        .collect();
    found.sort_by(|a, b| a.name().cmp(b.name()));
    let total = found.len();
    let rows = found.iter().skip(from).take(ROWS_MAX);
    let rows = rows.map(|view| json!({"node": view.name().as_str(), "resources": loads(view)}));
    page(rows.collect(), total, from)
}

fn node(scheduler: &Scheduler, name: &str) -> Value {
    let Some(view) = scheduler.cache().cluster().nodes.node(name) else {
        return json!({"missing": true, "node": name});
    };
    let mut pods: Vec<&Pod> = view.pods().iter().map(|info| &*info.pod).collect();
    pods.sort_by(|a, b| (b.priority(), a.key()).cmp(&(a.priority(), b.key())));
    let taints = view.node().spec.taints.iter().map(ToString::to_string);
    json!({
        "node": view.name().as_str(),
        "unschedulable": view.node().spec.unschedulable,
        "taints": taints.collect::<Vec<_>>(),
        "resources": loads(&view),
        "podsTotal": pods.len(),
        "pods": pods.iter().take(ROWS_MAX).map(|pod| json!({
            "pod": pod.key(),
            "priority": pod.priority(),
        })).collect::<Vec<_>>(),
    })
}

fn pod(scheduler: &Scheduler, key: &str, now: Time) -> Value {
    let (namespace, name) = key.split_once('/').unwrap_or(("default", key));
    let (namespace, name) = (Str::new(namespace), Str::new(name));
    let cache = scheduler.cache();
    let Some(stored) = cache.stored_by_name(&namespace, &name) else {
        return json!({"missing": true, "pod": key});
    };
    let queued = scheduler.queue().get(&namespace, &name);
    let explanation = scheduler.explanation(stored.uid());
    json!({
        "pod": stored.key(),
        "node": stored.spec.node_name.as_str(),
        "assumedOn": cache.assumed_on(stored.uid()).map(|node| node.as_str()),
        "nominatedNode": stored.status.nominated_node_name.as_str(),
        "priority": stored.priority(),
        "place": queued.map(|(place, _)| place_name(place)),
        "seconds": queued.map(|(_, info)| now.since(info.timestamp).as_secs()),
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
