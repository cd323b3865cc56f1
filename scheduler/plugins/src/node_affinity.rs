//! Rejects nodes that do not match `nodeSelector` and required node affinity, and scores by preferred node affinity.
//!
//! ```text
//! nodeSelector: {disk: ssd}                                     → only nodes with that label
//! preferred: [{weight: 5, preference: zone In [a]}]             → nodes of zone a first
//! args: {addedAffinity: …}                                      → the same for every pod of the profile
//! ```
//!
//! Terms that name nodes (`metadata.name`) limit the nodes that are filtered.

mod args;
mod keys;
#[cfg(test)]
mod tests;

pub use args::NodeAffinityArgs;

use crate::required_node_affinity::RequiredNodeAffinity;
use berth_api::node_selector::{CompiledNodeSelector, CompiledPreferredTerms};
use berth_api::pod::NodeAffinity as WireNodeAffinity;
use berth_api::{Node, Pod, Str};
use berth_framework::event::{
    ActionType, Change, EventRegistration, EventResource, Hint, HintError,
};
use berth_framework::keep::constant;
use berth_framework::plugin::{Context, EnqueueExtensions};
use berth_framework::registry::{ArgsKind, Extensions, Registration};
use berth_framework::requirement::{NodeFilter, NodeScore, ScoreScale};
use berth_framework::{FeatureGates, Lack, NodeTable, NodeView, PodInfo, ReasonCode, Slot, Status};
use std::sync::Arc;

/// The plugin's name.
pub const NAME: &str = "NodeAffinity";

/// The reason on a node that the pod's affinity does not match.
pub const REASON_POD: &str = "node(s) didn't match Pod's node affinity/selector";
/// The reason on a node that the affinity in the arguments does not match.
pub const REASON_ENFORCED: &str = "node(s) didn't match scheduler-enforced node affinity";
/// The reason when the terms of the pod name no node at all.
pub const REASON_CONFLICT: &str = "pod affinity terms conflict";

/// The path of preferred terms in kube-scheduler's messages.
const PREFERRED_PATH: &str = "preferredDuringSchedulingIgnoredDuringExecution";

/// Node affinity.
#[derive(Debug, Default)]
pub struct NodeAffinity {
    added_required: Option<CompiledNodeSelector>,
    added_preferred: CompiledPreferredTerms,
}

fn wire(pod: &Pod) -> Option<&WireNodeAffinity> {
    pod.spec.affinity.as_ref()?.node_affinity.as_ref()
}

impl NodeAffinity {
    /// The plugin with these arguments.
    pub fn new(args: NodeAffinityArgs) -> Self {
        Self {
            added_required: args.added_required,
            added_preferred: args.added_preferred,
        }
    }

    /// Returns whether the node matches the affinity in the arguments. Terms that do not parse were refused at
    /// start-up.
    fn is_allowed(&self, node: &Node) -> bool {
        self.added_required.as_ref().is_none_or(|required| {
            required
                .matches(node.labels(), node.name())
                .unwrap_or(false)
        })
    }

    fn after_node_change(&self, pod: &Pod, change: &Change<'_>) -> Result<Hint, HintError> {
        let (old, new) = change.nodes()?;
        let Some(new) = new.filter(|node| self.is_allowed(node)) else {
            return Ok(Hint::Skip);
        };
        let required = RequiredNodeAffinity::of(pod);
        let matches = |node: &Node| {
            let matches = required.matches(node);
            matches.map_err(|error| HintError::Failed(error.to_string()))
        };
        if !matches(new)? {
            return Ok(Hint::Skip);
        }
        Ok(match old {
            // As in kube-scheduler: Skip if only the affinity in the arguments matches newly.
            Some(old) if matches(old)? => Hint::Skip,
            _ => Hint::Queue,
        })
    }
}

/// The plugin's entry in the registry.
pub fn registration() -> Registration {
    Registration::new(NAME, |cx| {
        let args = NodeAffinityArgs::decode(cx.args)?;
        Ok(Extensions::of(NodeAffinity::new(args))
            .pre_filter()
            .node_filter()
            .pre_score()
            .node_score()
            .events()
            .fragment_version(constant)
            .build())
    })
    .args(ArgsKind::Typed(|_, _| {}))
    .by_default(Some(2))
}

impl NodeFilter for NodeAffinity {
    type Requirement = RequiredNodeAffinity;

    const READS_PODS: bool = false;

    fn requirement(
        &self,
        _cx: &Context<'_>,
        pod: &PodInfo,
    ) -> Result<Option<RequiredNodeAffinity>, Status> {
        let required = RequiredNodeAffinity::of(&pod.pod);
        match required.terms() {
            None if self.added_required.is_none() && pod.pod.spec.node_selector.is_none() => {
                Ok(None)
            }
            Some(terms) if terms.node_names().is_some_and(|names| names.is_empty()) => Err(
                Status::unresolvable(ReasonCode::NodeAffinityMismatch.reason(REASON_CONFLICT)),
            ),
            _ => Ok(Some(required)),
        }
    }

    fn only_nodes(&self, required: &RequiredNodeAffinity) -> Option<Vec<Str>> {
        required.terms()?.node_names()
    }

    fn check(&self, required: &RequiredNodeAffinity, node: NodeView<'_>) -> Status {
        if !self.is_allowed(node.node()) {
            return Status::unresolvable(ReasonCode::NodeAffinityMismatch.reason(REASON_ENFORCED));
        }
        // A term that does not parse matches no node.
        if required.matches(node.node()).unwrap_or(false) {
            Status::success()
        } else {
            Status::unresolvable(ReasonCode::NodeAffinityMismatch.reason(REASON_POD))
        }
    }

    /// The affinity in the arguments is not part of the pod, so only the reason names it.
    fn lacks(&self, required: &RequiredNodeAffinity, node: NodeView<'_>) -> Vec<Lack> {
        let (pairs, node) = (required.missing_labels(node.node()), node.node());
        let labels = pairs.map(|(key, value)| Lack::Label {
            key: key.clone(),
            value: value.clone(),
            found: node.labels().get_str(key).cloned(),
        });
        let terms = required.terms().cloned();
        let terms = terms.filter(|_| !required.matches_terms(node).unwrap_or(false));
        let affinity = terms.map(|required| Lack::NodeAffinity { required });
        labels.chain(affinity).collect()
    }
}

impl NodeScore for NodeAffinity {
    type Preference = CompiledPreferredTerms;

    const READS_PODS: bool = false;
    const SCALE: ScoreScale = ScoreScale::Greatest;

    fn preference(
        &self,
        _cx: &Context<'_>,
        pod: &PodInfo,
    ) -> Result<Option<CompiledPreferredTerms>, Status> {
        let terms = wire(&pod.pod).map_or(&[][..], |affinity| &affinity.preferred);
        if terms.is_empty() && self.added_preferred.is_empty() {
            return Ok(None);
        }
        let preferred = CompiledPreferredTerms::new(terms, PREFERRED_PATH);
        preferred
            .map(Some)
            .map_err(|error| Status::error(error.to_string()))
    }

    fn rate<'a>(
        &'a self,
        preferred: &'a CompiledPreferredTerms,
        nodes: &'a NodeTable,
    ) -> impl Fn(Slot) -> i64 + 'a {
        |slot| {
            nodes.get(slot).map_or(0, |node| {
                let score =
                    |terms: &CompiledPreferredTerms| terms.score(node.labels(), node.name());
                score(&self.added_preferred) + score(preferred)
            })
        }
    }
}

impl EnqueueExtensions for NodeAffinity {
    fn events(self: Arc<Self>, _features: &FeatureGates) -> Vec<EventRegistration> {
        let plugin = self.clone();
        vec![
            EventRegistration::with_hint(
                EventResource::Node,
                ActionType::ADD | ActionType::UPDATE_NODE_LABEL,
                move |_, pod, change| self.after_node_change(pod, &change),
            )
            .found_by(keys::waits, move |_, change| plugin.touched(&change)),
        ]
    }
}
