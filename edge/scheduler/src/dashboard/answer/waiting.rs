//! Pods that are not bound, by owner: one row for each pod group or controller, with every reason of its pods.

use super::reasons::WaitingReasons;
use super::{ROWS_MAX, place_name};
use berth_api::{Str, Time};
use berth_explain::{gate_text, owner_of};
use berth_framework::cluster::GroupKey;
use berth_scheduler::Scheduler;
use berth_scheduler::queue::{QueuedIn, QueuedPodInfo};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The number of namespaces that are listed for the filter.
const NAMESPACES_MAX: usize = 500;

/// The requested rows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WaitingFilter {
    /// The namespace; empty for all.
    pub namespace: String,
    /// A part of `Kind/name` of the owner; empty for all.
    pub owner: String,
    /// A part of a plugin, of a text or of a code; empty for all.
    pub reason: String,
    /// `active`, `backoff`, `unschedulable` or `gated`; empty for all.
    pub place: String,
    /// `oldest` or `owner`; otherwise owners are sorted by their number of pods, descending.
    pub sort: String,
    /// The number of rows; zero for the maximum.
    pub limit: usize,
}

/// The owner; for pods without an owner, their reasons.
#[derive(PartialEq, Eq, Hash)]
struct RowKey<'a> {
    namespace: &'a str,
    owner: Option<(Str, Str)>,
    alike: (Vec<&'a str>, String),
}

struct WaitingRow<'a> {
    pods: Vec<(QueuedIn, &'a QueuedPodInfo)>,
    oldest: &'a QueuedPodInfo,
}

/// `Kind/name`; empty without an owner.
pub(super) fn owner_text(owner: Option<&(Str, Str)>) -> String {
    owner.map_or_else(String::new, |(kind, name)| format!("{kind}/{name}"))
}

/// The order of pods, the oldest first. Pods of one age have an order, too, because rows are recognised by the oldest.
pub(super) fn age(info: &QueuedPodInfo) -> (Time, &str) {
    (info.waits_since(), info.pod.name().as_str())
}

fn alike(info: &QueuedPodInfo) -> (Vec<&str>, String) {
    let plugins = info.gating_plugin().into_iter().chain(info.rejectors());
    (
        plugins.map(|plugin| plugin.as_str()).collect(),
        gate_text(info),
    )
}

/// The rows.
pub(super) fn waiting(scheduler: &Scheduler, filter: &WaitingFilter, now: Time) -> Value {
    let cluster = scheduler.cache().cluster();
    let mut rows: HashMap<RowKey<'_>, WaitingRow<'_>> = HashMap::new();
    let mut namespaces: BTreeSet<&str> = BTreeSet::new();
    for (place, info) in scheduler.queue().places().pods() {
        let namespace = info.pod.namespace().as_str();
        // The list of namespaces is for a menu; a longer list would be unusable.
        if namespaces.len() < NAMESPACES_MAX {
            namespaces.insert(namespace);
        }
        let place_text = place_name(place);
        let is_wanted = (filter.place.is_empty() || filter.place == place_text)
            && (filter.namespace.is_empty() || filter.namespace == namespace);
        if !is_wanted {
            continue;
        }
        let owner = owner_of(cluster, &info.pod);
        if !filter.owner.is_empty() && !owner_text(owner.as_ref()).contains(&filter.owner) {
            continue;
        }
        let key = RowKey {
            namespace,
            alike: match &owner {
                Some(_) => Default::default(),
                None => alike(info),
            },
            owner,
        };
        let row = rows.entry(key).or_insert_with(|| WaitingRow {
            pods: Vec::new(),
            oldest: info,
        });
        row.pods.push((place, info));
        if age(info) < age(row.oldest) {
            row.oldest = info;
        }
    }
    if !filter.reason.is_empty() {
        rows.retain(|_, row| row.reasons(scheduler).contains(&filter.reason));
    }
    let total = rows.len();
    let pods: usize = rows.values().map(|row| row.pods.len()).sum();
    let mut rows: Vec<(RowKey<'_>, WaitingRow<'_>)> = rows.into_iter().collect();
    rows.sort_by_cached_key(|(key, row)| {
        let number = match filter.sort.as_str() {
            "oldest" => row.oldest.waits_since().as_nanos(),
            "owner" => 0,
            _ => -i64::try_from(row.pods.len()).unwrap_or(i64::MAX),
        };
        let owner = owner_text(key.owner.as_ref());
        (number, key.namespace, owner, row.oldest.pod.key())
    });
    rows.truncate(match filter.limit {
        0 => ROWS_MAX,
        limit => limit.min(ROWS_MAX),
    });
    let rows: Vec<Value> = rows
        .into_iter()
        .map(|(key, row)| row.described(scheduler, key, now))
        .collect();
    json!({"total": total, "pods": pods, "rows": rows, "namespaces": namespaces})
}

impl<'a> WaitingRow<'a> {
    /// The reasons of all pods. Only the reasons of listed rows are read, because that is most of the work.
    fn reasons(&self, scheduler: &'a Scheduler) -> WaitingReasons<'a> {
        let mut reasons = WaitingReasons::default();
        for (place, info) in &self.pods {
            reasons.add(scheduler, *place, info);
        }
        reasons
    }

    fn described(&self, scheduler: &Scheduler, key: RowKey<'_>, now: Time) -> Value {
        let cluster = scheduler.cache().cluster();
        // Members are known only while groups are scheduled as such.
        let group = GroupKey::of_pod(&self.oldest.pod).and_then(|key| {
            let members = cluster.pods.members(&key)?;
            let need = cluster.groups().spec(&key).and_then(|spec| spec.gang_min());
            let (known, scheduled) = (members.known(), members.scheduled().len());
            Some(json!({"need": need, "known": known, "scheduled": scheduled}))
        });
        let mut places: BTreeMap<&str, usize> = BTreeMap::new();
        for (place, _) in &self.pods {
            *places.entry(place_name(*place)).or_default() += 1;
        }
        let reasons = self.reasons(scheduler);
        json!({
            "namespace": key.namespace,
            "owner": owner_text(key.owner.as_ref()),
            "pods": self.pods.len(),
            "places": places,
            "oldest": self.oldest.pod.key(),
            "seconds": now.since(self.oldest.waits_since()).as_secs(),
            "reasons": if group.is_some() { reasons.of_group(scheduler) } else { reasons.listed(scheduler) },
            "group": group,
        })
    }
}
