//! The reasons why pods are pending, from the last diagnosis of each pod.

use super::gates::GateLog;
use super::run_times::RunTimes;
use berth_api::{Str, Time};
use berth_evaluator::FitError;
use berth_framework::{Cluster, Code, Reason, ReasonCode, Status};
use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;
use std::ops::ControlFlow;

/// The number of recorded pods; the pod with the oldest failure is dropped first.
const PODS_MAX: usize = 16 * 1024;
/// The number of example nodes per reason.
const NODES_MAX: usize = 5;
/// The number of nodes searched for examples.
const LOOKED_AT_MAX: usize = 256;
/// The number of recorded attempts of a pod before the last one.
const EARLIER_MAX: usize = 3;
/// The bytes of a map entry in addition to key and value: its hash and its index.
const HASH_BYTES: usize = 16;

/// Nodes that rejected a pod for one reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RejectionReason {
    /// The plugin.
    pub plugin: Str,
    /// Its reason.
    pub text: String,
    /// The code of the reason.
    pub code: ReasonCode,
    /// Whether removing other pods could help.
    pub preemption_may_help: bool,
    /// The number of nodes with this reason.
    pub nodes: usize,
    /// Some of them by name, sorted.
    pub examples: Vec<Str>,
}

/// The reason why the last attempt of a pod failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    /// The time.
    pub at: Time,
    /// The number of attempts.
    pub attempts: u32,
    /// The message of the condition of the pod, with the latest numbers of nodes.
    pub message: String,
    /// The code of a rejection without answers of nodes.
    pub code: ReasonCode,
    /// The plugins that rejected it, sorted.
    pub unschedulable_plugins: Vec<Str>,
    /// The plugins that wait for an external event for the pod, sorted.
    pub pending_plugins: Vec<Str>,
    /// The answers of the nodes, the most frequent reason first. Empty after an error.
    pub reasons: Vec<RejectionReason>,
    /// Earlier failed attempts with different messages, the oldest first.
    pub earlier: Vec<EarlierAttempt>,
}

/// An attempt of a pod that failed before the last one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EarlierAttempt {
    /// The time.
    pub at: Time,
    /// The number of attempts.
    pub attempts: u32,
    /// The message of the condition of the pod.
    pub message: String,
}

impl Explanation {
    /// The approximate number of bytes on the heap. Names are shared with the cluster and not counted.
    fn heap_bytes(&self) -> usize {
        let plugins = self.unschedulable_plugins.capacity() + self.pending_plugins.capacity();
        let reasons = self.reasons.iter().map(|reason| {
            size_of::<RejectionReason>()
                + reason.text.capacity()
                + reason.examples.capacity() * size_of::<Str>()
        });
        let earlier = self
            .earlier
            .iter()
            .map(|earlier| earlier.message.capacity());
        let earlier =
            earlier.sum::<usize>() + self.earlier.capacity() * size_of::<EarlierAttempt>();
        self.message.capacity() + plugins * size_of::<Str>() + reasons.sum::<usize>() + earlier
    }

    /// Takes over the record of the earlier attempts.
    fn follow(&mut self, before: &mut Self) {
        self.earlier = std::mem::take(&mut before.earlier);
        if before.message == self.message {
            return;
        }
        if self.earlier.len() >= EARLIER_MAX {
            self.earlier.remove(0);
        }
        self.earlier.push(EarlierAttempt {
            at: before.at,
            attempts: before.attempts,
            message: std::mem::take(&mut before.message),
        });
    }
}

/// The last explanations, by UID.
#[derive(Debug, Default)]
pub(crate) struct Explanations {
    pub(crate) gates: GateLog,
    pub(crate) run_times: RunTimes,
    by_uid: IndexMap<Str, Explanation, FxBuildHasher>,
}

impl Explanations {
    /// Records the last attempt of a pod. The previous record becomes an earlier attempt.
    pub(crate) fn put(&mut self, uid: Str, mut explanation: Explanation) {
        if let Some(before) = self.by_uid.get_mut(&uid) {
            explanation.follow(before);
            *before = explanation;
            return;
        }
        // Removing the oldest entry moves all others, so entries are dropped in batches.
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

    /// The approximate number of bytes of the records.
    pub(crate) fn bytes(&self) -> usize {
        let entries = self.by_uid.capacity() * (size_of::<(Str, Explanation)>() + HASH_BYTES);
        let of_pods = self.by_uid.values().map(Explanation::heap_bytes);
        entries + of_pods.sum::<usize>()
    }
}

/// A summary of the answers of the nodes.
pub(crate) fn reasons(error: &FitError, cluster: &Cluster) -> Vec<RejectionReason> {
    let statuses = &error.diagnosis.statuses;
    // By plugin and text. Each of many nodes can have different reasons.
    let mut sums: IndexMap<(Str, String), RejectionReason, FxBuildHasher> = IndexMap::default();
    let key = |status: &Status, reason: &Reason| {
        let plugin = status.plugin().cloned().unwrap_or_default();
        (plugin, reason.to_string())
    };
    statuses.totals(|status, nodes| {
        for reason in status.reasons() {
            let key = key(status, reason);
            let (plugin, text) = key.clone();
            let sum = sums.entry(key).or_insert_with(|| RejectionReason {
                plugin,
                text,
                code: reason.code(),
                preemption_may_help: status.code() == Code::Unschedulable,
                nodes: 0,
                examples: Vec::new(),
            });
            sum.nodes += nodes;
        }
    });
    let (mut looked_at, mut without_examples) = (0, sums.len());
    statuses.each(|slot, status| {
        let name = cluster.nodes.get(slot).map(|view| view.name());
        for reason in status.reasons() {
            if let (Some(sum), Some(name)) = (sums.get_mut(&key(status, reason)), name)
                && sum.examples.len() < NODES_MAX
            {
                sum.examples.push(name.clone());
                if sum.examples.len() == NODES_MAX.min(sum.nodes) {
                    without_examples -= 1;
                }
            }
        }
        looked_at += 1;
        if looked_at >= LOOKED_AT_MAX || without_examples == 0 {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    let mut reasons: Vec<RejectionReason> = sums.into_values().collect();
    for reason in &mut reasons {
        reason.examples.sort_unstable();
    }
    let absent = error
        .nodes
        .saturating_sub(error.diagnosis.statuses.listed());
    let status = &error.diagnosis.statuses.absent;
    if absent > 0 {
        reasons.extend(status.reasons().iter().map(|text| RejectionReason {
            plugin: status.plugin().cloned().unwrap_or_default(),
            text: text.to_string(),
            code: text.code(),
            preemption_may_help: status.code() == Code::Unschedulable,
            nodes: absent,
            examples: Vec::new(),
        }));
    }
    reasons.sort_by(|a, b| (b.nodes, &a.text, &a.plugin).cmp(&(a.nodes, &b.text, &b.plugin)));
    reasons
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(attempts: u32, message: &str) -> Explanation {
        Explanation {
            at: Time::from_secs(attempts.into()),
            attempts,
            message: message.to_owned(),
            code: ReasonCode::Other,
            unschedulable_plugins: Vec::new(),
            pending_plugins: Vec::new(),
            reasons: Vec::new(),
            earlier: Vec::new(),
        }
    }

    #[test]
    fn the_last_different_attempts_are_remembered() {
        let mut explanations = Explanations::default();
        let uid = Str::new("uid");
        for (attempts, message) in [
            (1, "a"),
            (2, "a"),
            (3, "b"),
            (4, "c"),
            (5, "c"),
            (6, "d"),
            (7, "e"),
        ] {
            explanations.put(uid.clone(), failed(attempts, message));
        }
        let last = explanations.get(&uid).expect("the pod");
        assert_eq!((last.attempts, last.message.as_str()), (7, "e"));
        let earlier: Vec<(u32, &str)> = last
            .earlier
            .iter()
            .map(|earlier| (earlier.attempts, earlier.message.as_str()))
            .collect();
        assert_eq!(earlier, [(3, "b"), (5, "c"), (6, "d")]);
        assert!(explanations.bytes() > 0);
        explanations.forget(&uid);
        assert!(explanations.get(&uid).is_none());
    }

    /// If there are too many pods, the oldest failures are dropped first.
    #[test]
    fn no_more_pods_are_remembered_than_the_limit() {
        let mut explanations = Explanations::default();
        for at in 0..2 * PODS_MAX {
            let attempts = u32::try_from(at).unwrap_or(u32::MAX);
            explanations.put(format!("uid-{at}").into(), failed(attempts, "no"));
        }
        assert!(explanations.by_uid.len() <= PODS_MAX);
        let last = format!("uid-{}", 2 * PODS_MAX - 1);
        assert!(explanations.get(&last).is_some() && explanations.get("uid-0").is_none());
    }
}
