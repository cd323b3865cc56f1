//! Resource claims (DRA): what the plugin answers for pods that have none.
//!
//! Claims are not allocated by this version. A pod that has some is turned down on every node with a reason that
//! says so: binding it without its devices would break it. So it is with an extended resource that a node does not
//! offer itself and a device class stands for.

mod args;

pub use args::DynamicResourcesArgs;

use crate::change::{is_same_pod, pods};
use crate::extended_resources::{class_of, may_need_devices};
use crate::wake::only_the_pod;
use berth_api::Pod;
use berth_api::requests::{Options, pod_resources};
use berth_framework::event::{ActionType, EventRegistration, EventResource, Hint};
use berth_framework::keep::{Fragment, Keep, Kept};
use berth_framework::plugin::{
    Context, EnqueueExtensions, Filter, MAX_NODE_SCORE, NodeStatuses, Nominating, Plugin,
    PostFilter, PostFilterContext, PostFilterResult, PreFilter, PreFilterResult, Score,
    default_normalize,
};
use berth_framework::{CycleState, Feature, FeatureGates, NodeView, PodInfo, Slot, Status};
use std::sync::Arc;

/// The plugin's name.
pub const NAME: &str = "DynamicResources";

/// What PostFilter says of a pod without claims.
pub const NOTHING_TO_DEALLOCATE: &str = "no new claims to deallocate";

/// Why a pod with claims is turned down.
pub const CLAIMS_NOT_SUPPORTED: &str = "resource claims are not supported by this version of Berth";

/// Why a node without the extended resource itself is turned down.
pub const DEVICES_NOT_SUPPORTED: &str =
    "devices for extended resources are not supported by this version of Berth";

/// Looks after resource claims.
#[derive(Debug, Default)]
pub struct DynamicResources;

/// Whether the pod requests something that a class of devices may stand for.
fn needs_classes(cx: &Context<'_>, pod: &Pod) -> bool {
    cx.features.enabled(Feature::DRAExtendedResource)
        && !cx.cluster.device_classes.is_empty()
        && may_need_devices(cx.cluster, &pod_resources(pod, Options::PENDING))
}

impl Plugin for DynamicResources {
    fn name(&self) -> &str {
        NAME
    }
}

impl PreFilter for DynamicResources {
    fn pre_filter(
        &self,
        cx: &Context<'_>,
        _state: &mut CycleState,
        pod: &PodInfo,
    ) -> PreFilterResult {
        if !pod.pod.spec.resource_claims.is_empty() {
            return PreFilterResult::Reject(Status::unresolvable(CLAIMS_NOT_SUPPORTED));
        }
        if needs_classes(cx, &pod.pod) {
            PreFilterResult::AllNodes
        } else {
            PreFilterResult::Skip
        }
    }
}

impl Filter for DynamicResources {
    /// Only asked for pods without claims, as PreFilter turns the others down.
    fn filter(
        &self,
        cx: &Context<'_>,
        _state: &CycleState,
        pod: &PodInfo,
        node: NodeView<'_>,
    ) -> Status {
        let requests = pod_resources(&pod.pod, Options::PENDING);
        let needs_devices = requests.scalars.iter().any(|(name, amount)| {
            *amount > 0 && node.allocatable_of(name) <= 0 && class_of(cx.cluster, name).is_some()
        });
        if needs_devices {
            Status::unresolvable(DEVICES_NOT_SUPPORTED)
        } else {
            Status::success()
        }
    }
}

impl PostFilter for DynamicResources {
    fn post_filter(
        &self,
        _cx: &mut PostFilterContext<'_>,
        _pod: &PodInfo,
        _statuses: &NodeStatuses,
    ) -> PostFilterResult {
        PostFilterResult {
            status: Status::unschedulable(NOTHING_TO_DEALLOCATE),
            nominating: Nominating::Keep,
        }
    }
}

impl Score for DynamicResources {
    /// A pod without claims prefers no node.
    fn score(
        &self,
        _cx: &Context<'_>,
        _state: &CycleState,
        _pod: &PodInfo,
        _node: NodeView<'_>,
    ) -> Result<i64, Status> {
        Ok(0)
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

impl Keep for DynamicResources {
    /// For pods without claims and devices, about which there is nothing to say.
    fn fragment(&self, cx: &Context<'_>, pod: &PodInfo, _fragment: &mut Fragment) -> Kept {
        if pod.pod.spec.resource_claims.is_empty() && !needs_classes(cx, &pod.pod) {
            Kept::ByFragment
        } else {
            Kept::Never
        }
    }
}

impl EnqueueExtensions for DynamicResources {
    fn events(self: Arc<Self>, _features: &FeatureGates) -> Vec<EventRegistration> {
        let node_actions =
            ActionType::ADD | ActionType::UPDATE_NODE_LABEL | ActionType::UPDATE_NODE_ALLOCATABLE;
        let add_or_update = ActionType::ADD | ActionType::UPDATE;
        vec![
            EventRegistration::always(EventResource::Node, node_actions),
            EventRegistration::with_hint(
                EventResource::Pod,
                ActionType::UPDATE_POD_GENERATED_RESOURCE_CLAIM,
                |_, pod, change| {
                    let (_, new) = pods(&change)?;
                    Ok(match new {
                        Some(new) if is_same_pod(new, pod) => Hint::Queue,
                        _ => Hint::Skip,
                    })
                },
            )
            .touching(|_, change| only_the_pod(change)),
            EventRegistration::always(EventResource::ResourceClaim, add_or_update),
            EventRegistration::always(EventResource::DeviceClass, add_or_update),
            EventRegistration::always(EventResource::ResourceSlice, add_or_update),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{World, pod_info};
    use serde_json::json;

    /// plugins 8.4 and 8.12: without claims PreFilter says Skip; with claims the pod is turned down.
    #[test]
    fn only_pods_without_claims_are_let_through() {
        let world = World::new().node("n", json!({}));
        let state = &mut CycleState::default();
        let without = pod_info("p", json!({}));
        let result = DynamicResources.pre_filter(&world.context(), state, &without);
        assert!(matches!(result, PreFilterResult::Skip), "{result:?}");

        let with = pod_info(
            "p",
            json!({"resourceClaims": [{"name": "gpu", "resourceClaimName": "c"}]}),
        );
        let result = DynamicResources.pre_filter(&world.context(), state, &with);
        let PreFilterResult::Reject(status) = result else {
            panic!("turned down, not {result:?}");
        };
        assert_eq!(status, Status::unresolvable(CLAIMS_NOT_SUPPORTED));
    }

    /// An extended resource that only a class of devices stands for is not there.
    #[test]
    fn devices_do_not_stand_in_yet() {
        let class: berth_api::DeviceClass = serde_json::from_value(json!({
            "metadata": {"name": "gpu"}, "spec": {"extendedResourceName": "example.com/gpu"},
        }))
        .expect("a class");
        let world = World::new()
            .node(
                "some",
                json!({"status": {"allocatable": {"example.com/gpu": 1}}}),
            )
            .node("none", json!({}))
            .with(class);
        let pod = pod_info(
            "p",
            json!({"containers": [{"name": "c", "resources": {"requests": {"example.com/gpu": 1}}}]}),
        );
        let expected = vec![None, crate::testing::unresolvable(DEVICES_NOT_SUPPORTED)];
        assert_eq!(world.filter(&DynamicResources, &pod), Ok(expected));
    }

    /// Every scored pod has an entry of this plugin, with 0.
    #[test]
    fn every_node_scores_zero() {
        let world = World::new().node("n1", json!({})).node("n2", json!({}));
        let pod = pod_info("p", json!({}));
        assert_eq!(world.normalized_scores(&DynamicResources, &pod), [0, 0]);
    }
}
