//! The nodes that lack the least for a pod. The plugins that reject a node return the missing amounts as values
//! ([`Filter::lacking`](berth_framework::plugin::Filter::lacking)); a plugin without values is shown with its reasons.

use crate::answer::{ClosestNode, LackView, Reason, Verdict};
use crate::examine::{Examination, Rejecting, coded_texts, plugin_of};
use crate::limits::CLOSEST_MAX;
use crate::snapshot::Snapshot;
use berth_api::Str;
use berth_framework::{Code, Lack, PodInfo, ReasonCode, Slot, Status};
use berth_scheduler::evaluator::Evaluator;
use berth_scheduler::profile::Profile;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A rejecting node with its lacks.
#[derive(Debug, Clone)]
pub(crate) struct Distance {
    pub(crate) node: Slot,
    pub(crate) lacks: Vec<LackView>,
}

/// The things that a node lacks, by the rejection.
type Lacking<'a> = Vec<(&'a Status, Vec<Lack>)>;

/// The lacks behind the rejections of a node. PreFilter has run.
fn lacking<'a>(evaluator: &mut Evaluator<'_>, rejecting: &'a Rejecting) -> Lacking<'a> {
    let lacks = evaluator.lacking(rejecting.node, &rejecting.statuses);
    rejecting.statuses.iter().zip(lacks).collect()
}

/// The distance of a node from fitting: the number of lacks, and the sum of missing amounts, in thousandths of the
/// requests.
fn measured(lacking: &Lacking<'_>) -> (usize, i64) {
    let counts = lacking.iter().map(|(status, lacks)| match lacks.len() {
        0 => status.reasons().len().max(1),
        count => count,
    });
    let lacks = lacking.iter().flat_map(|(_, lacks)| lacks);
    let per_mille = lacks.fold(0_i64, |sum, lack| sum.saturating_add(lack.per_mille()));
    (counts.sum(), per_mille)
}

/// The same in words.
fn in_words(lacking: Lacking<'_>) -> Vec<LackView> {
    let mut views = Vec::new();
    for (status, lacks) in lacking {
        let view = |code: ReasonCode, text: String| LackView {
            plugin: plugin_of(status),
            text,
            code: code.to_string(),
            preemption_may_help: status.code() == Code::Unschedulable,
            ..LackView::default()
        };
        if lacks.is_empty() {
            views.extend(coded_texts(status).map(|(code, text)| view(code, text.into_owned())));
        }
        views.extend(lacks.into_iter().map(|lack| LackView {
            resource: match &lack {
                Lack::Resource { resource, .. } => Some(resource.to_string()),
                _ => None,
            },
            short: matches!(lack, Lack::Resource { .. }).then(|| lack.short()),
            value: Some(lack.clone()),
            ..view(lack.code(), lack.to_string())
        }));
    }
    views
}

/// The lacks of a rejecting node. PreFilter has run.
pub(crate) fn distance(evaluator: &mut Evaluator<'_>, rejecting: &Rejecting) -> Distance {
    Distance {
        node: rejecting.node,
        lacks: in_words(lacking(evaluator, rejecting)),
    }
}

/// The distances of at most `max` rejecting nodes, the closest first. Only these nodes are described.
pub(crate) fn closest(
    snapshot: &mut Snapshot,
    profile: &Profile,
    pod: &Arc<PodInfo>,
    examination: &Examination,
    max: usize,
) -> Vec<Distance> {
    if examination.rejecting.is_empty() {
        return Vec::new();
    }
    snapshot.evaluate(profile, pod, |evaluator| {
        // PreFilter runs again, to restore the plugins' state for the pod.
        if evaluator.pre_filter().is_err() {
            return Vec::new();
        }
        // Ordered by the number of lacks, then by the missing amounts, then by name.
        let mut closest: BTreeMap<((usize, i64), Str), (Slot, Lacking<'_>)> = BTreeMap::new();
        for rejecting in &examination.rejecting {
            let lacking = lacking(evaluator, rejecting);
            if let Some(view) = evaluator.cluster.nodes.get(rejecting.node) {
                let key = (measured(&lacking), view.name().clone());
                closest.insert(key, (rejecting.node, lacking));
            }
            if closest.len() > max {
                closest.pop_last();
            }
        }
        let closest = closest.into_values();
        let distances = closest.map(|(node, lacking)| Distance {
            node,
            lacks: in_words(lacking),
        });
        distances.collect()
    })
}

/// Fills in missing codes of reasons from the lacks of the closest nodes, because a plugin may return statuses with
/// texts only.
pub(crate) fn complete_codes(verdict: &mut Verdict, closest: &[Distance]) {
    let is_open = |reason: &&mut Reason| reason.code == ReasonCode::Other.as_str();
    for reason in verdict.reasons.iter_mut().filter(is_open) {
        let mut lacks = closest.iter().flat_map(|distance| &distance.lacks);
        let lack = lacks.find(|lack| lack.plugin == reason.plugin && lack.value.is_some());
        let Some(lack) = lack else { continue };
        reason.code.clone_from(&lack.code);
        if let Some(Lack::Resource {
            resource,
            wanted,
            free,
        }) = &lack.value
        {
            reason.resource = Some(resource.to_string());
            (reason.wanted, reason.free) = (Some(*wanted), Some(*free));
        }
    }
}

/// The closest nodes for the answer.
pub(crate) fn listed(snapshot: &Snapshot, closest: &[Distance]) -> Vec<ClosestNode> {
    let nodes = &snapshot.cluster.nodes;
    let listed = closest.iter().take(CLOSEST_MAX).filter_map(|distance| {
        Some(ClosestNode {
            node: nodes.get(distance.node)?.name().to_string(),
            lacks: distance.lacks.clone(),
        })
    });
    listed.collect()
}
