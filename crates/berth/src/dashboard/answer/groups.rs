//! Pods that are not bound, grouped: one row for pods of one owner that wait for the same.

use super::{GROUPS_MAX, place_name};
use berth_api::Time;
use berth_explain::gate_text;
use berth_scheduler::queue::{QueuedIn, QueuedPodInfo};
use berth_scheduler::{Explanation, Scheduler};
use serde_json::{Value, json};
use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};

/// The number of namespaces that are listed for the filter.
const NAMESPACES_MAX: usize = 500;
/// The number of reasons that a row has.
const REASONS_MAX: usize = 4;

/// The wanted groups.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct GroupFilter {
    /// The namespace; empty for all.
    pub(crate) namespace: String,
    /// A part of `Kind/name` of the owner; empty for all.
    pub(crate) owner: String,
    /// A part of the plugins, the message or a code; empty for all.
    pub(crate) reason: String,
    /// `active`, `backoff`, `unschedulable` or `gated`; empty for all.
    pub(crate) place: String,
}

#[derive(PartialEq, Eq, Hash)]
struct DashboardKey<'a> {
    place: &'static str,
    namespace: &'a str,
    owner: (&'a str, &'a str),
    plugins: Vec<&'a str>,
    /// The gates of gated pods.
    gates: String,
}

struct ListedGroup<'a> {
    pods: usize,
    oldest: &'a QueuedPodInfo,
}

/// Kind and name of the controller; empty without one.
pub(super) fn owner(pod: &berth_api::Pod) -> (&str, &str) {
    let owner = pod.metadata.controller();
    owner.map_or(("", ""), |owner| (owner.kind.as_str(), owner.name.as_str()))
}

/// `Kind/name`; empty without an owner.
pub(super) fn owner_text((kind, name): (&str, &str)) -> String {
    match kind {
        "" => String::new(),
        kind => format!("{kind}/{name}"),
    }
}

/// The reasons of an attempt with codes and resources, the most frequent first.
fn reasons(explanation: Option<&Explanation>) -> Vec<Value> {
    let reasons = explanation.into_iter().flat_map(|known| &known.reasons);
    let reasons = reasons.take(REASONS_MAX).map(|reason| {
        json!({
            "code": reason.code.as_str(),
            "resource": reason.code.resource(&reason.text),
            "text": reason.text,
            "nodes": reason.nodes,
        })
    });
    reasons.collect()
}

/// The groups, those of the most pods first.
pub(super) fn groups(scheduler: &Scheduler, filter: &GroupFilter, now: Time) -> Value {
    let mut groups: HashMap<DashboardKey<'_>, ListedGroup<'_>> = HashMap::new();
    let mut namespaces: BTreeSet<&str> = BTreeSet::new();
    for (place, info) in scheduler.queue().places().pods() {
        let namespace = info.pod.namespace().as_str();
        // The list of namespaces is for a menu; a longer one could not be used.
        if namespaces.len() < NAMESPACES_MAX {
            namespaces.insert(namespace);
        }
        let place_text = place_name(place);
        let owner = owner(&info.pod);
        let is_wanted = (filter.place.is_empty() || filter.place == place_text)
            && (filter.namespace.is_empty() || filter.namespace == namespace)
            && (filter.owner.is_empty() || owner_text(owner).contains(&filter.owner));
        if !is_wanted {
            continue;
        }
        let key = DashboardKey {
            place: place_text,
            namespace,
            owner,
            plugins: match info.gating_plugin() {
                Some(plugin) => vec![plugin.as_str()],
                None => info.rejectors().map(|plugin| plugin.as_str()).collect(),
            },
            gates: match place {
                QueuedIn::Gated => gate_text(info),
                _ => String::new(),
            },
        };
        let group = groups.entry(key).or_insert(ListedGroup {
            pods: 0,
            oldest: info,
        });
        // The group is as old as its oldest pod.
        group.pods += 1;
        if info.waits_since() < group.oldest.waits_since() {
            group.oldest = info;
        }
    }
    let mut rows: Vec<(usize, String, Value)> = groups
        .into_iter()
        .filter_map(|(key, group)| row(scheduler, filter, key, &group, now))
        .collect();
    rows.sort_by(|a, b| (Reverse(a.0), &a.1).cmp(&(Reverse(b.0), &b.1)));
    let total = rows.len();
    let rows: Vec<Value> = rows.into_iter().take(GROUPS_MAX).map(|row| row.2).collect();
    json!({"total": total, "rows": rows, "namespaces": namespaces})
}

fn row(
    scheduler: &Scheduler,
    filter: &GroupFilter,
    key: DashboardKey<'_>,
    group: &ListedGroup<'_>,
    now: Time,
) -> Option<(usize, String, Value)> {
    let pod = &group.oldest.pod;
    let explanation = scheduler.explanation(pod.uid());
    let message = if key.gates.is_empty() {
        explanation
            .map_or("", |known| known.message.as_str())
            .to_owned()
    } else {
        key.gates.clone()
    };
    // The filter applies to texts, codes and plugins, because users know any of them.
    let reasons = reasons(explanation);
    let is_named = |text: &str| text.contains(&filter.reason);
    let mut codes = reasons.iter().filter_map(|reason| reason["code"].as_str());
    let is_wanted = filter.reason.is_empty()
        || is_named(&message)
        || key.plugins.iter().any(|plugin| is_named(plugin))
        || codes.any(is_named);
    is_wanted.then(|| {
        let seconds = now.since(group.oldest.waits_since()).as_secs();
        let row = json!({
            "place": key.place,
            "namespace": key.namespace,
            "owner": owner_text(key.owner),
            "plugins": key.plugins,
            "reasons": reasons,
            "message": message,
            "pods": group.pods,
            "seconds": seconds,
            "example": pod.key(),
        });
        (group.pods, pod.key(), row)
    })
}
