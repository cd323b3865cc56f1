//! Rejects all nodes except `spec.nodeName`, if it is set.
//!
//! Pods with a node are normally not scheduled; the filter is for simulators and what-if questions.

use berth_api::Str;
use berth_framework::event::{ActionType, EventRegistration, EventResource};
use berth_framework::keep::constant;
use berth_framework::plugin::{Context, EnqueueExtensions};
use berth_framework::registry::{ArgsKind, Extensions, Registration};
use berth_framework::requirement::NodeFilter;
use berth_framework::{FeatureGates, Lack, NodeView, PodInfo, ReasonCode, Status};
use std::sync::Arc;

/// The plugin's name.
pub const NAME: &str = "NodeName";

/// The reason on every other node.
pub const REASON: &str = "node(s) didn't match the requested node name";

/// The node name of a pod.
#[derive(Debug, Default)]
pub struct NodeName;

/// The plugin's entry in the registry.
pub fn registration() -> Registration {
    Registration::new(NAME, |_| {
        Ok(Extensions::of(NodeName)
            .node_filter()
            .events()
            .judges_resizes()
            .fragment_version(constant)
            .build())
    })
    .args(ArgsKind::None)
    .by_default(None)
}

impl NodeFilter for NodeName {
    type Requirement = Str;

    const READS_PODS: bool = false;

    fn requirement(&self, _cx: &Context<'_>, pod: &PodInfo) -> Result<Option<Str>, Status> {
        let name = &pod.pod.spec.node_name;
        Ok((!name.is_empty()).then(|| name.clone()))
    }

    fn check(&self, name: &Str, node: NodeView<'_>) -> Status {
        if name == node.name() {
            Status::success()
        } else {
            Status::unresolvable(ReasonCode::NodeNameMismatch.reason(REASON))
        }
    }

    fn lacks(&self, name: &Str, node: NodeView<'_>) -> Vec<Lack> {
        let is_other = name != node.name();
        let lack = is_other.then(|| Lack::NodeName { name: name.clone() });
        lack.into_iter().collect()
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

    /// PL-34: no name fits everywhere; a name fits that node alone.
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
