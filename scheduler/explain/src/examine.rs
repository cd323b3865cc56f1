//! The answers of every filter about every node.

use crate::amounts::{free, wanted};
use crate::answer::{Reason, Verdict};
use crate::limits::EXAMPLES_MAX;
use crate::snapshot::Snapshot;
use berth_framework::plugin::NodeStatuses;
use berth_framework::{Cluster, Code, PodInfo, ReasonCode, Slot, Status};
use berth_scheduler::profile::Profile;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A rejecting node, with the answers of all rejecting filters.
#[derive(Debug)]
pub(crate) struct Rejecting {
    pub(crate) node: Slot,
    pub(crate) statuses: Vec<Status>,
}

/// The answers about a pod.
#[derive(Debug, Default)]
pub(crate) struct Examination {
    pub(crate) nodes: usize,
    /// The rejection of the pod by PreFilter on every node. In this case no filter was run.
    pub(crate) pre_filter: Option<Status>,
    pub(crate) feasible: Vec<Slot>,
    pub(crate) rejecting: Vec<Rejecting>,
}

/// Asks all filters about all nodes.
pub(crate) fn examine(
    snapshot: &mut Snapshot,
    profile: &Profile,
    pod: &Arc<PodInfo>,
) -> Examination {
    examine_nodes(snapshot, profile, pod, None)
}

/// Runs all filters for these nodes, or for all nodes.
pub(crate) fn examine_nodes(
    snapshot: &mut Snapshot,
    profile: &Profile,
    pod: &Arc<PodInfo>,
    nodes: Option<&[Slot]>,
) -> Examination {
    snapshot.evaluate(profile, pod, |evaluator| {
        let nodes: Arc<[Slot]> = match nodes {
            Some(nodes) => nodes.into(),
            None => evaluator.cluster.nodes.in_order().to_vec().into(),
        };
        let mut examination = Examination {
            nodes: nodes.len(),
            ..Examination::default()
        };
        let possible = match evaluator.pre_filter() {
            // PreFilter rejects the pod on every node, so no filter is called.
            Ok(possible) => possible,
            Err((status, _)) => {
                examination.pre_filter = Some(status);
                return examination;
            }
        };
        for node in nodes.iter().copied() {
            let mut statuses = evaluator.filter_node_by_all(node);
            // A node that PreFilter excludes has no answer of a filter.
            if statuses.is_empty() && !is_possible(evaluator.cluster, &possible.nodes, node) {
                let by = possible.narrowed_by.first();
                let text = "node(s) are not among those of the pod";
                let status = Status::unresolvable(ReasonCode::NodeAffinityMismatch.reason(text));
                statuses.push(status.by(by.map_or("", |name| name.as_str())));
            }
            if statuses.is_empty() {
                examination.feasible.push(node)
            } else {
                examination.rejecting.push(Rejecting { node, statuses })
            }
        }
        examination
    })
}

/// The feasible nodes, and the number of filtered nodes. Filtering of a node stops at the first rejection.
pub(crate) fn feasible(
    snapshot: &mut Snapshot,
    profile: &Profile,
    pod: &Arc<PodInfo>,
    nodes: &[Slot],
) -> (Vec<Slot>, usize) {
    snapshot.evaluate(profile, pod, |evaluator| {
        let mut found = Vec::new();
        let Ok(possible) = evaluator.pre_filter() else {
            return (found, 1);
        };
        let mut runs = 0;
        for node in nodes.iter().copied() {
            runs += 1;
            if is_possible(evaluator.cluster, &possible.nodes, node)
                && evaluator.filter_node(node).is_success()
            {
                found.push(node);
            }
        }
        (found, runs)
    })
}

/// Returns whether PreFilter keeps the node.
pub(crate) fn is_possible(
    cluster: &Cluster,
    possible: &Option<Vec<berth_api::Str>>,
    node: Slot,
) -> bool {
    let Some(view) = cluster.nodes.get(node) else {
        return false;
    };
    let names = possible.as_ref();
    names.is_none_or(|names| names.binary_search(view.name()).is_ok())
}

impl Examination {
    /// The statuses in the form for PostFilter: for each node, the rejection of the first filter.
    pub(crate) fn statuses(&self) -> NodeStatuses {
        let mut statuses = NodeStatuses::new();
        if let Some(status) = &self.pre_filter {
            statuses.absent = status.clone();
        }
        for rejecting in &self.rejecting {
            if let Some(first) = rejecting.statuses.first() {
                statuses.insert(rejecting.node, first.clone());
            }
        }
        statuses
    }

    /// The rejections, summarized by plugin and reason.
    pub(crate) fn verdict(&self, cluster: &Cluster, pod: &PodInfo) -> Verdict {
        let name = |node: &Slot| Some(cluster.nodes.get(*node)?.name().to_string());
        let mut sums: BTreeMap<(&str, Cow<'_, str>), Reason> = BTreeMap::new();
        for rejecting in &self.rejecting {
            for status in &rejecting.statuses {
                let plugin = status.plugin().map_or("", |plugin| plugin.as_str());
                for (code, text) in coded_texts(status) {
                    let sum = sums.entry((plugin, text.clone()));
                    let sum = sum.or_insert_with(|| Reason {
                        preemption_may_help: status.code() == Code::Unschedulable,
                        ..Reason::coded(plugin, &text, code, pod)
                    });
                    sum.nodes += 1;
                    let view = cluster.nodes.get(rejecting.node);
                    if let Some((resource, view)) = sum.resource.as_deref().zip(view) {
                        // The greatest free amount shows how far the best node is from fitting.
                        sum.free = sum.free.max(Some(free(view, resource)));
                    }
                    if sum.examples.len() < EXAMPLES_MAX {
                        sum.examples.extend(name(&rejecting.node));
                    }
                }
            }
        }
        let mut reasons: Vec<Reason> = sums.into_values().collect();
        reasons.sort_by_key(|reason| std::cmp::Reverse(reason.nodes));
        let examples = self.feasible.iter().take(EXAMPLES_MAX);
        Verdict {
            nodes: self.nodes,
            feasible: self.feasible.len(),
            feasible_examples: examples.filter_map(name).collect(),
            pre_filter: self.pre_filter.as_ref().map(|status| Reason {
                nodes: self.nodes,
                preemption_may_help: status.code() == Code::Unschedulable,
                ..Reason::of_status(status, pod)
            }),
            reasons,
        }
    }
}

impl Reason {
    /// A reason of a plugin with its code, and the pod's requested amount of the resource in the reason.
    pub(crate) fn coded(plugin: &str, text: &str, code: ReasonCode, pod: &PodInfo) -> Self {
        let resource = code.resource(text);
        Self {
            plugin: plugin.to_owned(),
            reason: text.to_owned(),
            code: code.to_string(),
            wanted: resource.map(|resource| wanted(pod, resource)),
            resource: resource.map(str::to_owned),
            ..Self::default()
        }
    }

    /// The message of a status as one reason.
    pub(crate) fn of_status(status: &Status, pod: &PodInfo) -> Self {
        let (plugin, text) = (plugin_of(status), status.message());
        Self::coded(&plugin, &text, status.reason_code(), pod)
    }
}

/// The plugin of a status.
pub(crate) fn plugin_of(status: &Status) -> String {
    status.plugin().map(ToString::to_string).unwrap_or_default()
}

/// The reasons of a status with their codes; its message if it has none.
pub(crate) fn coded_texts(status: &Status) -> impl Iterator<Item = (ReasonCode, Cow<'_, str>)> {
    let reasons = status.reasons().iter();
    let message = status.reasons().is_empty().then(|| status.message());
    reasons
        .map(|reason| (reason.code(), Cow::Borrowed(reason.as_ref())))
        .chain(message.map(|message| (ReasonCode::Other, Cow::Owned(message))))
}
