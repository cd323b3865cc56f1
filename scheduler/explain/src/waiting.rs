//! Waiting pods by code and owner, for metrics.

use crate::owner::owner_of;
use berth_api::Time;
use berth_framework::ReasonCode;
use berth_scheduler::Scheduler;
use berth_scheduler::queue::{QueuedIn, QueuedPodInfo};
use std::cmp::Reverse;
use std::collections::HashMap;

/// The maximum number of rows. The pods of further rows are combined in one row for each code.
const ROWS_MAX: usize = 200;

/// Pods with the same reason and owner.
#[derive(Debug, Clone, PartialEq)]
pub struct WaitingPods {
    /// The code.
    pub code: ReasonCode,
    /// The missing resource; empty for none.
    pub resource: String,
    /// The namespace; empty in the combined row.
    pub namespace: String,
    /// Kind and name of the pod group, otherwise of the controller, such as `Deployment/web`; empty for pods without
    /// either.
    pub owner: String,
    /// The number of pods.
    pub pods: usize,
    /// The longest wait of these pods, in seconds.
    pub oldest_seconds: f64,
}

type WaitingKey = (ReasonCode, String, String, String);

/// The reasons of a pod, each once.
fn reasons(
    scheduler: &Scheduler,
    place: QueuedIn,
    info: &QueuedPodInfo,
) -> Vec<(ReasonCode, String)> {
    if place == QueuedIn::Gated {
        return vec![(info.gate_code(), String::new())];
    }
    let known = scheduler.explanation(info.pod.uid());
    let reasons = known.into_iter().flat_map(|known| &known.reasons);
    let mut codes: Vec<(ReasonCode, String)> = reasons
        .map(|reason| {
            let resource = reason.code.resource(&reason.text);
            (reason.code, resource.unwrap_or_default().to_owned())
        })
        .collect();
    if codes.is_empty() && info.has_rejectors() {
        let code = known.map(|known| known.code).unwrap_or_default();
        codes.push((code, String::new()));
    }
    codes.sort();
    codes.dedup();
    codes
}

/// The pods that plugins have rejected, by reason and owner. A pod with several reasons is in several rows. The cost
/// grows with the number of waiting pods.
pub fn waiting_pods(scheduler: &Scheduler, now: Time) -> Vec<WaitingPods> {
    let mut rows: HashMap<WaitingKey, WaitingPods> = HashMap::new();
    for (place, info) in scheduler.queue().places().pods() {
        let seconds = now.since(info.waits_since()).as_secs_f64();
        for (code, resource) in reasons(scheduler, place, info) {
            let owner = owner_of(scheduler.cache().cluster(), &info.pod);
            let owner = owner.map_or_else(String::new, |(kind, name)| format!("{kind}/{name}"));
            let namespace = info.pod.namespace().to_string();
            add(&mut rows, (code, resource, namespace, owner), 1, seconds);
        }
    }
    let mut rows: Vec<WaitingPods> = rows.into_values().collect();
    let name = |row: &WaitingPods| {
        (
            row.code.as_str(),
            row.resource.clone(),
            row.namespace.clone(),
            row.owner.clone(),
        )
    };
    rows.sort_by_cached_key(|row| (Reverse(row.pods), name(row)));
    // The number of series is limited. The combined rows keep their codes.
    let others = rows.split_off(rows.len().min(ROWS_MAX));
    let mut sums: HashMap<WaitingKey, WaitingPods> = HashMap::new();
    for row in others {
        let key = (
            row.code,
            String::new(),
            String::new(),
            ReasonCode::Other.to_string(),
        );
        add(&mut sums, key, row.pods, row.oldest_seconds);
    }
    rows.extend(sums.into_values());
    rows
}

fn add(rows: &mut HashMap<WaitingKey, WaitingPods>, key: WaitingKey, pods: usize, seconds: f64) {
    let row = rows.entry(key.clone()).or_insert_with(|| WaitingPods {
        code: key.0,
        resource: key.1,
        namespace: key.2,
        owner: key.3,
        pods: 0,
        oldest_seconds: 0.0,
    });
    row.pods += pods;
    row.oldest_seconds = row.oldest_seconds.max(seconds);
}
