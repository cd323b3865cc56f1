//! Rejects cordoned nodes for pods that do not tolerate the taint `node.kubernetes.io/unschedulable:NoSchedule`.

use berth_api::taint::tolerates_taint;
use berth_api::{Pod, Taint, TaintEffect};
use berth_framework::event::{ActionType, Change, EventRegistration, EventResource, HintError};
use berth_framework::keep::constant;
use berth_framework::plugin::{Context, EnqueueExtensions};
use berth_framework::registry::{ArgsKind, Extensions, Registration};
use berth_framework::requirement::NodeFilter;
use berth_framework::{
    Feature, FeatureGates, Lack, NodeTable, NodeView, PodInfo, ReasonCode, Slot, Status,
};
use std::sync::Arc;

/// The plugin's name.
pub const NAME: &str = "NodeUnschedulable";

/// The reason on a cordoned node.
pub const REASON: &str = "node(s) were unschedulable";

/// The key of the taint of a cordoned node.
const TAINT_KEY: &str = "node.kubernetes.io/unschedulable";

/// Cordoned nodes.
#[derive(Debug)]
pub struct NodeUnschedulable {
    cordon: Taint,
}

impl Default for NodeUnschedulable {
    fn default() -> Self {
        Self {
            cordon: Taint::new(TAINT_KEY, "", TaintEffect::NoSchedule),
        }
    }
}

impl NodeUnschedulable {
    fn is_tolerated(&self, pod: &Pod, features: &FeatureGates) -> bool {
        let comparison = features.enabled(Feature::TaintTolerationComparisonOperators);
        tolerates_taint(&pod.spec.tolerations, &self.cordon, comparison)
    }
}

/// A node was uncordoned, or a node that is not cordoned was added.
fn opens(change: &Change<'_>) -> Result<bool, HintError> {
    let (old, new) = change.nodes()?;
    Ok(old.is_none_or(|node| node.spec.unschedulable)
        && new.is_some_and(|node| !node.spec.unschedulable))
}

/// The plugin's entry in the registry.
pub fn registration() -> Registration {
    Registration::new(NAME, |_| {
        Ok(Extensions::of(NodeUnschedulable::default())
            .node_filter()
            .events()
            .fragment_version(constant)
            .build())
    })
    .args(ArgsKind::None)
    .by_default(None)
}

/// The requirement that a node is not cordoned.
#[derive(Debug, Hash)]
pub struct Uncordoned;

impl NodeFilter for NodeUnschedulable {
    type Requirement = Uncordoned;

    const READS_PODS: bool = false;

    fn requirement(&self, cx: &Context<'_>, pod: &PodInfo) -> Result<Option<Uncordoned>, Status> {
        Ok((!self.is_tolerated(&pod.pod, cx.features)).then_some(Uncordoned))
    }

    fn check(&self, _: &Uncordoned, node: NodeView<'_>) -> Status {
        if node.node().spec.unschedulable {
            Status::unresolvable(ReasonCode::NodeCordoned.reason(REASON))
        } else {
            Status::success()
        }
    }

    fn lacks(&self, _: &Uncordoned, node: NodeView<'_>) -> Vec<Lack> {
        let is_cordoned = node.node().spec.unschedulable;
        is_cordoned.then_some(Lack::Cordon).into_iter().collect()
    }

    fn quick_check<'a>(
        &'a self,
        _: &'a Uncordoned,
        nodes: &'a NodeTable,
    ) -> impl Fn(Slot) -> bool + 'a {
        |slot| nodes.is_untainted(slot)
    }
}

impl EnqueueExtensions for NodeUnschedulable {
    fn events(self: Arc<Self>, features: &FeatureGates) -> Vec<EventRegistration> {
        let features = *features;
        vec![
            EventRegistration::when(
                EventResource::Node,
                ActionType::ADD | ActionType::UPDATE_NODE_TAINT,
                opens,
            ),
            EventRegistration::when_itself(ActionType::UPDATE_POD_TOLERATION, move |_, new| {
                self.is_tolerated(new, &features)
            }),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{World, add, hint, node, pod, pod_info, unresolvable, update};
    use berth_framework::Hint;
    use serde_json::json;

    /// PL-35: a cordoned node rejects pods that do not tolerate its taint.
    #[test]
    fn a_cordon_keeps_pods_off() {
        let world = World::new()
            .node("open", json!({}))
            .node("cordoned", json!({"spec": {"unschedulable": true}}));
        for (tolerations, expected) in [
            (json!([]), unresolvable(REASON)),
            (json!([{"key": TAINT_KEY, "operator": "Exists"}]), None),
            (json!([{"key": TAINT_KEY, "effect": "NoSchedule"}]), None),
            (
                json!([{"key": TAINT_KEY, "effect": "NoExecute"}]),
                unresolvable(REASON),
            ),
            (json!([{"operator": "Exists"}]), None),
        ] {
            let pod = pod_info("p", json!({"tolerations": tolerations}));
            let got = world.filter_only(&NodeUnschedulable::default(), &pod);
            assert_eq!(got, [None, expected], "{tolerations}");
        }
    }

    /// PL-36: opening a node helps, and so does a new open node.
    #[test]
    fn uncordoning_wakes() {
        let open = || node("n", json!({}));
        let closed = || node("n", json!({"spec": {"unschedulable": true}}));
        for (name, action, change, expected) in [
            ("new and open", ActionType::ADD, add(open()), Hint::Queue),
            ("new and closed", ActionType::ADD, add(closed()), Hint::Skip),
            (
                "opened",
                ActionType::UPDATE_NODE_TAINT,
                update(closed(), open()),
                Hint::Queue,
            ),
            (
                "closed",
                ActionType::UPDATE_NODE_TAINT,
                update(open(), closed()),
                Hint::Skip,
            ),
            (
                "still open",
                ActionType::UPDATE_NODE_TAINT,
                update(open(), open()),
                Hint::Skip,
            ),
        ] {
            let got = hint(
                NodeUnschedulable::default(),
                &World::new(),
                EventResource::Node,
                action,
                &pod("p", json!({})),
                change,
            );
            assert_eq!(got, Ok(expected), "{name}");
        }
    }

    /// PL-37: the pod's own new toleration helps when it is about the cordon.
    #[test]
    fn tolerating_the_cordon_wakes() {
        let tolerant = json!({"tolerations": [{"operator": "Exists"}]});
        let other = json!({"tolerations": [{"key": "gpu", "operator": "Exists"}]});
        for (name, who, spec, expected) in [
            ("its own", "p", tolerant.clone(), Hint::Queue),
            ("another pod's", "q", tolerant, Hint::Skip),
            ("about something else", "p", other, Hint::Skip),
        ] {
            let got = hint(
                NodeUnschedulable::default(),
                &World::new(),
                EventResource::Pod,
                ActionType::UPDATE_POD_TOLERATION,
                &pod("p", json!({})),
                update(pod(who, json!({})), pod(who, spec)),
            );
            assert_eq!(got, Ok(expected), "{name}");
        }
    }
}
