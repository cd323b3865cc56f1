//! Why pods are pending: the last diagnosis of each, for people who ask.

use crate::evaluator::FitError;
use berth_api::{Str, Time};
use berth_framework::{Cluster, Code};
use indexmap::IndexMap;
use rustc_hash::{FxBuildHasher, FxHashMap};

/// How many pods are remembered; the one that failed longest ago is forgotten first.
const PODS_MAX: usize = 16 * 1024;
/// How many nodes are named per reason.
const NODES_MAX: usize = 5;

/// Nodes that turned a pod down for one reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reason {
    /// The plugin.
    pub plugin: Str,
    /// Its reason.
    pub text: String,
    /// Whether removing other pods could help.
    pub preemption_may_help: bool,
    /// How many nodes said so.
    pub nodes: usize,
    /// Some of them by name, sorted.
    pub examples: Vec<Str>,
}

/// Why the last attempt of a pod failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    /// When.
    pub at: Time,
    /// How often it has been tried.
    pub attempts: u32,
    /// What the pod's condition says.
    pub message: String,
    /// The plugins that turned it down, sorted.
    pub unschedulable_plugins: Vec<Str>,
    /// The plugins that wait for something on its behalf, sorted.
    pub pending_plugins: Vec<Str>,
    /// What the nodes said, the most frequent reason first. Empty when something broke.
    pub reasons: Vec<Reason>,
}

/// The last explanations, by UID.
#[derive(Debug, Default)]
pub(crate) struct Explanations {
    by_uid: IndexMap<Str, Explanation, FxBuildHasher>,
}

impl Explanations {
    pub(crate) fn put(&mut self, uid: Str, explanation: Explanation) {
        self.by_uid.shift_remove(&uid);
        // Removing the first of many moves the others, so a batch is dropped at once.
        if self.by_uid.len() >= PODS_MAX {
            self.by_uid.drain(..PODS_MAX / 8);
        }
        self.by_uid.insert(uid, explanation);
    }

    pub(crate) fn forget(&mut self, uid: &str) {
        self.by_uid.swap_remove(uid);
    }

    pub(crate) fn get(&self, uid: &str) -> Option<&Explanation> {
        self.by_uid.get(uid)
    }
}

/// What the nodes said, summed up.
pub(crate) fn reasons(error: &FitError, cluster: &Cluster) -> Vec<Reason> {
    let mut sums: FxHashMap<(&str, &str), Reason> = FxHashMap::default();
    for (slot, status) in &error.diagnosis.statuses.by_node {
        let name = cluster.nodes.get(*slot).map(|view| view.name().clone());
        let plugin = status.plugin().map_or("", Str::as_str);
        for text in status.reasons() {
            let sum = sums.entry((plugin, text)).or_insert_with(|| Reason {
                plugin: Str::new(plugin),
                text: text.to_string(),
                preemption_may_help: status.code() == Code::Unschedulable,
                nodes: 0,
                examples: Vec::new(),
            });
            sum.nodes += 1;
            if let Some(name) = &name {
                let at = sum.examples.partition_point(|other| other < name);
                if at < NODES_MAX {
                    sum.examples.insert(at, name.clone());
                    sum.examples.truncate(NODES_MAX);
                }
            }
        }
    }
    let mut reasons: Vec<Reason> = sums.into_values().collect();
    let absent = error
        .nodes
        .saturating_sub(error.diagnosis.statuses.by_node.len());
    let status = &error.diagnosis.statuses.absent;
    if absent > 0 {
        reasons.extend(status.reasons().iter().map(|text| Reason {
            plugin: status.plugin().cloned().unwrap_or_default(),
            text: text.to_string(),
            preemption_may_help: status.code() == Code::Unschedulable,
            nodes: absent,
            examples: Vec::new(),
        }));
    }
    reasons.sort_by(|a, b| (b.nodes, &a.text, &a.plugin).cmp(&(a.nodes, &b.text, &b.plugin)));
    reasons
}
