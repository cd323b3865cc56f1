//! Keeps pods to the nodes that `nodeSelector` and node affinity ask for, and prefers those that they prefer.
//!
//! ```text
//! nodeSelector: {disk: ssd}                                     → only nodes with that label
//! preferred: [{weight: 5, preference: zone In [a]}]             → nodes of zone a first
//! args: {addedAffinity: …}                                      → the same for every pod of the profile
//! ```
//!
//! Terms that name nodes (`metadata.name`) narrow the nodes that are filtered at all.

mod args;
mod keys;
#[cfg(test)]
mod tests;

pub use args::NodeAffinityArgs;

use crate::change::nodes;
use crate::required_node_affinity::RequiredNodeAffinity;
use berth_api::node_selector::{CompiledNodeSelector, CompiledPreferredTerms, ParseError};
use berth_api::pod::NodeAffinity as WireNodeAffinity;
use berth_api::{Node, Pod};
use berth_framework::event::{ActionType, Change, EventRegistration, EventResource, Hint};
use berth_framework::keep::{Fragment, Keep, Kept};
use berth_framework::plugin::{
    Context, EnqueueExtensions, Filter, MAX_NODE_SCORE, Plugin, PreFilter, PreFilterResult,
    PreScore, Score, default_normalize,
};
use berth_framework::registry::{ArgsKind, Extensions, Registration};
use berth_framework::{CycleState, FeatureGates, NodeView, PodInfo, Slot, Status};
use std::sync::Arc;

/// The plugin's name.
pub const NAME: &str = "NodeAffinity";

/// The reason on a node that the pod does not ask for.
pub const REASON_POD: &str = "node(s) didn't match Pod's node affinity/selector";
/// The reason on a node that the profile does not ask for.
pub const REASON_ENFORCED: &str = "node(s) didn't match scheduler-enforced node affinity";
/// The reason when the terms of the pod name no node at all.
pub const REASON_CONFLICT: &str = "pod affinity terms conflict";

/// Where upstream's messages say that a preferred term stands.
const PREFERRED_PATH: &str = "preferredDuringSchedulingIgnoredDuringExecution";

/// Keeps pods to the nodes that they ask for.
#[derive(Debug, Default)]
pub struct NodeAffinity {
    added_required: Option<CompiledNodeSelector>,
    added_preferred: CompiledPreferredTerms,
}

struct PreScoreState {
    preferred: CompiledPreferredTerms,
}

fn wire(pod: &Pod) -> Option<&WireNodeAffinity> {
    pod.spec.affinity.as_ref()?.node_affinity.as_ref()
}

fn preferred(pod: &Pod) -> Result<CompiledPreferredTerms, ParseError> {
    let terms = wire(pod).map_or(&[][..], |affinity| &affinity.preferred);
    CompiledPreferredTerms::new(terms, PREFERRED_PATH)
}

impl NodeAffinity {
    /// The plugin with these arguments.
    pub fn new(args: NodeAffinityArgs) -> Self {
        Self {
            added_required: args.added_required,
            added_preferred: args.added_preferred,
        }
    }

    /// Whether the profile lets pods onto the node. Terms that do not parse were refused at start-up.
    fn is_allowed(&self, node: &Node) -> bool {
        self.added_required.as_ref().is_none_or(|required| {
            required
                .matches(node.labels(), node.name())
                .unwrap_or(false)
        })
    }

    fn after_node_change(&self, pod: &Pod, change: &Change<'_>) -> Result<Hint, String> {
        let (old, new) = nodes(change)?;
        let Some(new) = new.filter(|node| self.is_allowed(node)) else {
            return Ok(Hint::Skip);
        };
        let required = RequiredNodeAffinity::of(pod);
        let matches = |node: &Node| required.matches(node).map_err(|error| error.to_string());
        if !matches(new)? {
            return Ok(Hint::Skip);
        }
        Ok(match old {
            // As upstream: when only the profile's own affinity came to match, this says Skip.
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
            .filter()
            .pre_score()
            .score()
            .events()
            .keep()
            .build())
    })
    .args(ArgsKind::Typed(|_, _| {}))
    .by_default(Some(2))
}

impl Plugin for NodeAffinity {
    fn name(&self) -> &str {
        NAME
    }
}

impl PreFilter for NodeAffinity {
    fn pre_filter(
        &self,
        _cx: &Context<'_>,
        state: &mut CycleState,
        pod: &PodInfo,
    ) -> PreFilterResult {
        let spec = &pod.pod.spec;
        let terms = wire(&pod.pod).and_then(|affinity| affinity.required.as_ref());
        if terms.is_none() && self.added_required.is_none() && spec.node_selector.is_none() {
            return PreFilterResult::Skip;
        }
        state.write(RequiredNodeAffinity::of(&pod.pod));
        match terms.and_then(|terms| terms.node_names()) {
            None => PreFilterResult::AllNodes,
            Some(names) if names.is_empty() => {
                PreFilterResult::Reject(Status::unresolvable(REASON_CONFLICT))
            }
            Some(names) => PreFilterResult::Nodes(names),
        }
    }
}

impl Filter for NodeAffinity {
    fn filter(
        &self,
        _cx: &Context<'_>,
        state: &CycleState,
        pod: &PodInfo,
        node: NodeView<'_>,
    ) -> Status {
        let node = node.node();
        if !self.is_allowed(node) {
            return Status::unresolvable(REASON_ENFORCED);
        }
        let matches = match state.read::<RequiredNodeAffinity>() {
            Some(required) => required.matches(node),
            None => RequiredNodeAffinity::of(&pod.pod).matches(node),
        };
        // A term that does not parse matches no node.
        if matches.unwrap_or(false) {
            Status::success()
        } else {
            Status::unresolvable(REASON_POD)
        }
    }
}

impl PreScore for NodeAffinity {
    fn pre_score(
        &self,
        _cx: &Context<'_>,
        state: &mut CycleState,
        pod: &PodInfo,
        _nodes: &[Slot],
    ) -> Status {
        match preferred(&pod.pod) {
            Err(error) => Status::error(error.to_string()),
            Ok(preferred)
                if self.added_preferred.is_empty()
                    && wire(&pod.pod).is_none_or(|affinity| affinity.preferred.is_empty()) =>
            {
                drop(preferred);
                Status::skip()
            }
            Ok(preferred) => {
                state.write(PreScoreState { preferred });
                Status::success()
            }
        }
    }
}

impl Score for NodeAffinity {
    fn score(
        &self,
        _cx: &Context<'_>,
        state: &CycleState,
        pod: &PodInfo,
        node: NodeView<'_>,
    ) -> Result<i64, Status> {
        let node = node.node();
        let score = |terms: &CompiledPreferredTerms| terms.score(node.labels(), node.name());
        let own = match state.read::<PreScoreState>() {
            Some(kept) => score(&kept.preferred),
            None => score(&preferred(&pod.pod).map_err(|error| Status::error(error.to_string()))?),
        };
        Ok(score(&self.added_preferred) + own)
    }

    fn normalize(
        &self,
        _cx: &Context<'_>,
        _state: &CycleState,
        _pod: &PodInfo,
        scores: &mut [(Slot, i64)],
    ) -> Status {
        default_normalize(MAX_NODE_SCORE, false, scores);
        Status::success()
    }
}

impl Keep for NodeAffinity {
    fn reads_pods(&self) -> bool {
        false
    }

    /// Preferred terms that do not parse break the cycle at PreScore, which nothing that is kept may do.
    fn fragment(&self, _cx: &Context<'_>, pod: &PodInfo, fragment: &mut Fragment) -> Kept {
        let affinity = wire(&pod.pod);
        let preferred = affinity.map_or(&[][..], |affinity| &affinity.preferred);
        if !preferred.is_empty() && CompiledPreferredTerms::new(preferred, "").is_err() {
            return Kept::Never;
        }
        fragment.put(&pod.pod.spec.node_selector);
        fragment.put(&affinity.and_then(|affinity| affinity.required.as_ref()));
        fragment.put(preferred);
        Kept::ByFragment
    }

    fn normalizes(&self) -> bool {
        true
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
