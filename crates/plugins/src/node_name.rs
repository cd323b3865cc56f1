//! Keeps a pod with `spec.nodeName` to that node.
//!
//! Such pods are normally not scheduled at all; the filter matters to simulators and to what-if questions.

use berth_framework::event::{ActionType, EventRegistration, EventResource};
use berth_framework::keep::{Fragment, Keep, Kept};
use berth_framework::plugin::{Context, EnqueueExtensions, Filter, Plugin};
use berth_framework::registry::{ArgsKind, Extensions, Registration};
use berth_framework::{CycleState, FeatureGates, NodeView, PodInfo, Slot, Status};
use std::sync::Arc;

/// The plugin's name.
pub const NAME: &str = "NodeName";

/// The reason on every other node.
pub const REASON: &str = "node(s) didn't match the requested node name";

/// Keeps pods to the node that they name.
#[derive(Debug, Default)]
pub struct NodeName;

/// The plugin's entry in the registry.
pub fn registration() -> Registration {
    Registration::new(NAME, |_| {
        Ok(Extensions::of(NodeName).filter().events().keep().build())
    })
    .args(ArgsKind::None)
    .by_default(None)
}

impl Plugin for NodeName {
    fn name(&self) -> &str {
        NAME
    }
}

impl Filter for NodeName {
    fn filter(
        &self,
        _cx: &Context<'_>,
        _state: &CycleState,
        pod: &PodInfo,
        node: NodeView<'_>,
    ) -> Status {
        let wanted = &pod.pod.spec.node_name;
        if wanted.is_empty() || wanted == node.name() {
            Status::success()
        } else {
            Status::unresolvable(REASON)
        }
    }

    /// A pod that names no node may run on any.
    fn filter_many(
        &self,
        cx: &Context<'_>,
        _state: &CycleState,
        pod: &PodInfo,
        nodes: &mut Vec<Slot>,
        reject: &mut dyn FnMut(Slot, Status),
    ) {
        let wanted = &pod.pod.spec.node_name;
        let table = &cx.cluster.nodes;
        let named = table.slot(wanted);
        nodes.retain(|slot| {
            if !table.is_untainted(*slot) && table.get(*slot).is_none() {
                return false;
            }
            let fits = wanted.is_empty() || Some(*slot) == named;
            if !fits {
                reject(*slot, Status::unresolvable(REASON));
            }
            fits
        });
    }
}

impl Keep for NodeName {
    fn reads_pods(&self) -> bool {
        false
    }

    fn fragment(&self, _cx: &Context<'_>, pod: &PodInfo, fragment: &mut Fragment) -> Kept {
        fragment.put(&pod.pod.spec.node_name);
        Kept::ByFragment
    }
}

impl EnqueueExtensions for NodeName {
    /// Only new nodes: the name of a node never changes.
    fn events(self: Arc<Self>, _features: &FeatureGates) -> Vec<EventRegistration> {
        vec![EventRegistration::always(
            EventResource::Node,
            ActionType::ADD,
        )]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{World, pod_info, unresolvable};
    use serde_json::json;

    /// plugins 2.4: no name fits everywhere; a name fits that node alone.
    #[test]
    fn a_pod_goes_to_the_node_that_it_names() {
        let world = World::new().node("n1", json!({})).node("n2", json!({}));
        for (spec, expected) in [
            (json!({}), vec![None, None]),
            (json!({"nodeName": "n1"}), vec![None, unresolvable(REASON)]),
            (
                json!({"nodeName": "n3"}),
                vec![unresolvable(REASON), unresolvable(REASON)],
            ),
        ] {
            let pod = pod_info("p", spec.clone());
            assert_eq!(world.filter_only(&NodeName, &pod), expected, "{spec}");
        }
    }
}
