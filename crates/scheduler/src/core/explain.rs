//! Why pods are pending, the last diagnosis of each pod; and why others are on their nodes, the last decisions.

use super::decisions::Decisions;
use crate::evaluator::FitError;
use berth_api::{Str, Time};
use berth_framework::{Cluster, Code};
use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;
use std::ops::ControlFlow;

/// How many pods are remembered; the one that failed longest ago is forgotten first.
const PODS_MAX: usize = 16 * 1024;
/// How many nodes are named per reason.
const NODES_MAX: usize = 5;
/// How many nodes are looked at for those names.
const LOOKED_AT_MAX: usize = 256;

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
    /// What the pod's condition says, except for the numbers of nodes: these are the latest ones.
    pub message: String,
    /// The plugins that rejected it, sorted.
    pub unschedulable_plugins: Vec<Str>,
    /// The plugins that wait for something on its behalf, sorted.
    pub pending_plugins: Vec<Str>,
    /// What the nodes said, the most frequent reason first. Empty when something broke.
    pub reasons: Vec<Reason>,
}

/// The last explanations, by UID, and the last decisions.
#[derive(Debug, Default)]
pub(crate) struct Explanations {
    pub(crate) decisions: Decisions,
    by_uid: IndexMap<Str, Explanation, FxBuildHasher>,
}

impl Explanations {
    pub(crate) fn put(&mut self, uid: Str, explanation: Explanation) {
        // Removing the oldest of many moves the others, so a batch is dropped at once.
        if self.by_uid.len() >= PODS_MAX {
            self.by_uid.sort_by_key(|_, explanation| explanation.at);
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
    let statuses = &error.diagnosis.statuses;
    let mut sums: Vec<Reason> = Vec::new();
    statuses.totals(|status, nodes| {
        let plugin = status.plugin().map_or("", Str::as_str);
        for text in status.reasons() {
            match sums
                .iter_mut()
                .find(|r| r.plugin == *plugin && r.text == *text)
            {
                Some(sum) => sum.nodes += nodes,
                None => sums.push(Reason {
                    plugin: Str::new(plugin),
                    text: text.to_string(),
                    preemption_may_help: status.code() == Code::Unschedulable,
                    nodes,
                    examples: Vec::new(),
                }),
            }
        }
    });
    let mut looked_at = 0;
    statuses.each(|slot, status| {
        let name = cluster.nodes.get(slot).map(|view| view.name());
        let plugin = status.plugin().map_or("", Str::as_str);
        for text in status.reasons() {
            let sum = sums
                .iter_mut()
                .find(|r| r.plugin == *plugin && r.text == *text);
            if let (Some(sum), Some(name)) = (sum, name)
                && sum.examples.len() < NODES_MAX
            {
                sum.examples.push(name.clone());
            }
        }
        looked_at += 1;
        let is_enough = looked_at >= LOOKED_AT_MAX
            || sums
                .iter()
                .all(|sum| sum.examples.len() >= NODES_MAX.min(sum.nodes));
        if is_enough {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    for sum in &mut sums {
        sum.examples.sort_unstable();
    }
    let mut reasons = sums;
    let absent = error
        .nodes
        .saturating_sub(error.diagnosis.statuses.listed());
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
