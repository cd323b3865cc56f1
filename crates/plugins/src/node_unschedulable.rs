//! Keeps pods off cordoned nodes, unless they tolerate the taint `node.kubernetes.io/unschedulable:NoSchedule`.

use crate::change::{is_same_pod, nodes, pods};
use crate::wake::{all_or_nobody, only_the_pod};
use berth_api::taint::tolerates_taint;
use berth_api::{Pod, Taint, TaintEffect};
use berth_framework::event::{ActionType, Change, EventRegistration, EventResource, Hint};
use berth_framework::keep::{Fragment, Keep, Kept};
use berth_framework::plugin::{Context, EnqueueExtensions, Filter, Plugin};
use berth_framework::registry::{ArgsKind, Extensions, Registration};
use berth_framework::{CycleState, Feature, FeatureGates, NodeView, PodInfo, Slot, Status};
use std::sync::Arc;

/// The plugin's name.
pub const NAME: &str = "NodeUnschedulable";

/// The reason on a cordoned node.
pub const REASON: &str = "node(s) were unschedulable";

/// The key of the taint that stands for being cordoned.
const TAINT_KEY: &str = "node.kubernetes.io/unschedulable";

/// Keeps pods off cordoned nodes.
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
    fn is_tolerated(&self, pod: &Pod, comparison_operators: bool) -> bool {
        tolerates_taint(&pod.spec.tolerations, &self.cordon, comparison_operators)
    }

    fn after_node_change(change: &Change<'_>) -> Result<Hint, String> {
        let (old, new) = nodes(change)?;
        let was_cordoned = old.is_none_or(|node| node.spec.unschedulable);
        let is_open = new.is_some_and(|node| !node.spec.unschedulable);
        Ok(if was_cordoned && is_open {
            Hint::Queue
        } else {
            Hint::Skip
        })
    }
}

/// The plugin's entry in the registry.
pub fn registration() -> Registration {
    Registration::new(NAME, |_| {
        Ok(Extensions::of(NodeUnschedulable::default())
            .filter()
            .events()
            .keep()
            .build())
    })
    .args(ArgsKind::None)
    .by_default(None)
}

impl Plugin for NodeUnschedulable {
    fn name(&self) -> &str {
        NAME
    }
}

impl Filter for NodeUnschedulable {
    fn filter(
        &self,
        cx: &Context<'_>,
        _state: &CycleState,
        pod: &PodInfo,
        node: NodeView<'_>,
    ) -> Status {
        let comparison = cx
            .features
            .enabled(Feature::TaintTolerationComparisonOperators);
        if node.node().spec.unschedulable && !self.is_tolerated(&pod.pod, comparison) {
            Status::unresolvable(REASON)
        } else {
            Status::success()
        }
    }

    /// Most nodes have nothing to be tolerated.
    fn filter_many(
        &self,
        cx: &Context<'_>,
        state: &CycleState,
        pod: &PodInfo,
        nodes: &mut Vec<Slot>,
        reject: &mut dyn FnMut(Slot, Status),
    ) {
        let table = &cx.cluster.nodes;
        nodes.retain(|slot| {
            if table.is_untainted(*slot) {
                return true;
            }
            let Some(view) = table.get(*slot) else {
                return false;
            };
            let status = self.filter(cx, state, pod, view);
            let fits = status.is_success();
            if !fits {
                reject(*slot, status);
            }
            fits
        });
    }
}

impl Keep for NodeUnschedulable {
    fn reads_pods(&self) -> bool {
        false
    }

    fn fragment(&self, cx: &Context<'_>, pod: &PodInfo, fragment: &mut Fragment) -> Kept {
        let comparison = cx
            .features
            .enabled(Feature::TaintTolerationComparisonOperators);
        fragment.put(&self.is_tolerated(&pod.pod, comparison));
        Kept::ByFragment
    }
}

impl EnqueueExtensions for NodeUnschedulable {
    fn events(self: Arc<Self>, features: &FeatureGates) -> Vec<EventRegistration> {
        let comparison = features.enabled(Feature::TaintTolerationComparisonOperators);
        vec![
            EventRegistration::with_hint(
                EventResource::Node,
                ActionType::ADD | ActionType::UPDATE_NODE_TAINT,
                |_, _, change| Self::after_node_change(&change),
            )
            .touching(|_, change| all_or_nobody(&Self::after_node_change(&change))),
            EventRegistration::with_hint(
                EventResource::Pod,
                ActionType::UPDATE_POD_TOLERATION,
                move |_, pod, change| {
                    let (_, new) = pods(&change)?;
                    let helped = new.is_some_and(|new| {
                        is_same_pod(new, pod) && self.is_tolerated(new, comparison)
                    });
                    Ok(if helped { Hint::Queue } else { Hint::Skip })
                },
            )
            .touching(|_, change| only_the_pod(change)),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{World, add, hint, node, pod, pod_info, unresolvable, update};
    use serde_json::json;

    /// plugins 2.5: a cordon keeps off whoever does not tolerate its taint.
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

    /// plugins 2.5: opening a node helps, and so does a new open node.
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

    /// plugins 2.5: the pod's own new toleration helps when it is about the cordon.
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
