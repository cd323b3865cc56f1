//! Makes room for pods whose resize is deferred, on the nodes on which they run (KEP-5836).
//!
//! ```text
//! the pod has no node                                  → nothing is filtered
//! the pod waits for a resize on node a                 → only node a
//! node a has a podPreemptionPolicy that disables it    → node had resize preemption disabled
//! node a has room for the resize                       → the pod waits until the kubelet has done it
//! ```

use berth_api::{Node, Pod, Str};
use berth_framework::event::{
    ActionType, Change, EventRegistration, EventResource, Hint, HintError,
};
use berth_framework::plugin::{
    Context, EnqueueExtensions, Filter, Permit, PermitStep, PreFilter, PreFilterResult,
};
use berth_framework::registry::{ArgsKind, Extensions, Registration};
use berth_framework::stage::{StageContext, Wake};
use berth_framework::{Cluster, CycleState, Feature, FeatureGates, NodeView, PodInfo, Status};
use std::sync::Arc;

/// The plugin's name.
pub const NAME: &str = "DeferredPodScheduling";

/// The reason on every other node.
pub const OTHER_NODE: &str = "pod assigned to different node";

/// The reason on a node whose policy does not want preemption for resizes.
pub const DISABLED: &str = "node had resize preemption disabled";

/// The reason of a pod whose resize fits.
pub const FITS: &str = "pod resize fits, waiting for Kubelet actuation";

/// Deferred resizes of pods.
#[derive(Debug, Default)]
pub struct DeferredPodScheduling;

/// The plugin's entry in the registry.
pub fn registration() -> Registration {
    Registration::new(NAME, |_| {
        Ok(Extensions::of(DeferredPodScheduling)
            .pre_filter()
            .filter()
            .permit()
            .events()
            .judges_resizes()
            .build())
    })
    .args(ArgsKind::None)
    .by_default(None)
    .gated_by(Feature::InPlacePodVerticalScalingSchedulerPreemption)
}

fn is_resize(features: &FeatureGates, pod: &Pod) -> bool {
    features.enabled(Feature::InPlacePodVerticalScalingSchedulerPreemption)
        && pod.has_deferred_resize()
}

impl PreFilter for DeferredPodScheduling {
    fn pre_filter(
        &self,
        cx: &Context<'_>,
        _state: &mut CycleState,
        pod: &PodInfo,
    ) -> PreFilterResult {
        if is_resize(cx.features, &pod.pod) {
            PreFilterResult::Nodes(vec![pod.pod.spec.node_name.clone()])
        } else {
            PreFilterResult::Skip
        }
    }
}

impl Filter for DeferredPodScheduling {
    fn filter(
        &self,
        cx: &Context<'_>,
        _state: &CycleState,
        pod: &PodInfo,
        node: NodeView<'_>,
    ) -> Status {
        if !is_resize(cx.features, &pod.pod) {
            return Status::success();
        }
        if *node.name() != pod.pod.spec.node_name {
            return Status::unresolvable(OTHER_NODE);
        }
        if node.node().allows_resize_preemption() {
            Status::success()
        } else {
            Status::unresolvable(DISABLED)
        }
    }
}

impl Permit for DeferredPodScheduling {
    fn permit(
        &self,
        cx: &mut StageContext<'_>,
        _state: &mut CycleState,
        pod: &PodInfo,
        _node: &Str,
        _wake: Option<Wake<'_>>,
    ) -> PermitStep {
        PermitStep::Done(if is_resize(cx.features, &pod.pod) {
            Status::unresolvable(FITS)
        } else {
            Status::success()
        })
    }
}

/// Returns whether the change is one of the node on which the pod runs, and of its policy: preemption is allowed now.
fn after_node_change(_cluster: &Cluster, pod: &Pod, change: Change<'_>) -> Result<Hint, HintError> {
    let (old, new) = change.nodes()?;
    let Some(new) = new.filter(|new| *new.name() == pod.spec.node_name) else {
        return Ok(Hint::Skip);
    };
    let was_allowed = old.is_some_and(Node::allows_resize_preemption);
    Ok(if new.allows_resize_preemption() && !was_allowed {
        Hint::Queue
    } else {
        Hint::Skip
    })
}

/// A pod was added or grew on the pod's node: a resize that fitted may not fit any more.
fn after_lost_room(_cluster: &Cluster, pod: &Pod, change: Change<'_>) -> Result<Hint, HintError> {
    let (_, new) = change.pods()?;
    let is_near = new.is_some_and(|new| new.spec.node_name == pod.spec.node_name);
    Ok(if pod.is_assigned() && is_near {
        Hint::Queue
    } else {
        Hint::Skip
    })
}

impl EnqueueExtensions for DeferredPodScheduling {
    fn events(self: Arc<Self>, _features: &FeatureGates) -> Vec<EventRegistration> {
        vec![
            EventRegistration::with_hint(
                EventResource::Node,
                ActionType::ADD | ActionType::UPDATE_NODE_PREEMPTION_POLICY,
                after_node_change,
            ),
            EventRegistration::supplementary(
                EventResource::AssignedPod,
                ActionType::ADD | ActionType::UPDATE_POD_SCALE_UP,
                after_lost_room,
            ),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{World, add, hint, node, pod, pod_info, unresolvable, update};
    use berth_framework::Code;
    use serde_json::{Value, json};

    fn gates() -> FeatureGates {
        FeatureGates::default().with(Feature::InPlacePodVerticalScalingSchedulerPreemption, true)
    }

    fn policy(reasons: Value) -> Value {
        json!({"spec": {"podPreemptionPolicy": {"disableResizePreemption": reasons}}})
    }

    fn waiting(reason: &str) -> Value {
        json!({
            "spec": {"nodeName": "b"},
            "status": {"conditions": [{"type": "PodResizePending", "status": "True", "reason": reason}]},
        })
    }

    /// PL-330: the pod's own node only, unless its policy disables preemption.
    #[test]
    fn only_the_own_node_is_possible() {
        for (policies, gate, reason, expected) in [
            (json!(null), true, "Deferred", None),
            (json!([]), true, "Deferred", None),
            (
                json!(["example.com/no"]),
                true,
                "Deferred",
                unresolvable(DISABLED),
            ),
            (json!(["example.com/no"]), false, "Deferred", None),
            (json!(["example.com/no"]), true, "Infeasible", None),
        ] {
            let mut world = World::new()
                .node("a", json!({}))
                .node("b", policy(policies.clone()));
            if gate {
                world.features = gates();
            }
            let pod = crate::testing::full_pod("p", waiting(reason));
            let got = world.filter(&DeferredPodScheduling, &PodInfo::new(Arc::new(pod)));
            let is_resize = gate && reason == "Deferred";
            // PreFilter leaves other nodes out.
            let other = is_resize.then(|| (Code::UnschedulableAndUnresolvable, Vec::new()));
            assert_eq!(got, Ok(vec![other, expected]), "{policies} {gate} {reason}");
        }
        let world = World::new().node("a", json!({}));
        let got = world.filter(&DeferredPodScheduling, &pod_info("p", json!({})));
        assert_eq!(got, Ok(vec![None]));
    }

    /// PL-331: the policy of the own node, when it allows preemption again.
    #[test]
    fn an_allowing_policy_wakes() {
        let own = |policies: Value| node("b", policy(policies));
        let other = |policies: Value| node("a", policy(policies));
        let (yes, no) = (json!([]), json!(["example.com/no"]));
        let changed = ActionType::UPDATE_NODE_PREEMPTION_POLICY;
        for (name, action, change, expected) in [
            (
                "allowed again",
                changed,
                update(own(no.clone()), own(yes.clone())),
                Hint::Queue,
            ),
            (
                "not any more",
                changed,
                update(own(yes.clone()), own(no.clone())),
                Hint::Skip,
            ),
            (
                "another node",
                changed,
                update(other(no.clone()), other(yes.clone())),
                Hint::Skip,
            ),
            ("added", ActionType::ADD, add(own(yes)), Hint::Queue),
            ("added without", ActionType::ADD, add(own(no)), Hint::Skip),
        ] {
            let pod = pod("p", json!({"nodeName": "b"}));
            let world = World::new();
            let node = EventResource::Node;
            let got = hint(DeferredPodScheduling, &world, node, action, &pod, change);
            assert_eq!(got, Ok(expected), "{name}");
        }
    }
}
