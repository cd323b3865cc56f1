//! Resource claims (DRA): keeps pods out until their claims are there, and hears of what may help them.
//!
//! ```text
//! a claim that was not made yet, or that is being deleted  → not queued at all
//! claims that are there, and not allocated                 → turned down: devices are not chosen here yet
//! claims that are there, and all allocated                 → turned down: nobody would hold them for the pod
//! ```
//!
//! This version neither allocates claims nor holds them for a pod. So a pod with claims is turned down on every node
//! with a reason that says which of both it lacks: binding it without its devices would break it. So it is with an
//! extended resource that a node does not offer itself and a device class stands for.

mod args;
mod claims;
mod classes;
mod hints;

pub use args::DynamicResourcesArgs;

use crate::extended_resources::{class_of, may_need_devices};
use berth_api::Pod;
use berth_api::requests::{Options, pod_resources};
use berth_framework::event::{ActionType, EventRegistration, EventResource};
use berth_framework::keep::{Fragment, Keep, Kept};
use berth_framework::plugin::{
    Context, EnqueueExtensions, Filter, MAX_NODE_SCORE, NodeStatuses, Nominating, Plugin,
    PostFilter, PostFilterContext, PostFilterStep, PreEnqueue, PreFilter, PreFilterResult, Score,
    default_normalize,
};
use berth_framework::registry::{ArgsKind, Extensions, Registration};
use berth_framework::stage::Wake;
use berth_framework::{
    Cluster, Code, CycleState, Feature, FeatureGates, NodeView, PodInfo, Slot, Status,
};
use std::sync::Arc;

/// The plugin's name.
pub const NAME: &str = "DynamicResources";

/// What PostFilter says of a pod without claims.
pub const NOTHING_TO_DEALLOCATE: &str = "no new claims to deallocate";

/// Why a pod is turned down some of whose claims have no devices.
pub const CLAIMS_NOT_ALLOCATED: &str = "resource claims are not allocated by this version of Berth";

/// Why a pod is turned down whose claims have devices already.
pub const CLAIMS_NOT_SUPPORTED: &str =
    "pods with resource claims are not placed by this version of Berth";

/// Why a node without the extended resource itself is turned down.
pub const DEVICES_NOT_SUPPORTED: &str =
    "devices for extended resources are not supported by this version of Berth";

/// Looks after resource claims.
#[derive(Debug, Default)]
pub struct DynamicResources;

/// Checks the claims of a pod, if it has some.
///
/// # Errors
/// What is wrong with them, or that they are not supported.
fn check_claims(cluster: &Cluster, pod: &Pod) -> Result<(), Status> {
    let claims =
        claims::resolve(cluster, pod).map_err(|lack| Status::unresolvable(lack.to_string()))?;
    let mut why = None;
    for claim in claims {
        if claim.is_allocated() {
            why = why.or(Some(CLAIMS_NOT_SUPPORTED));
        } else {
            classes::check_requests(cluster, claim)?;
            why = Some(CLAIMS_NOT_ALLOCATED);
        }
    }
    why.map_or(Ok(()), |why| Err(Status::unresolvable(why)))
}

/// Whether the pod requests something that a class of devices may stand for.
fn needs_classes(cx: &Context<'_>, pod: &Pod) -> bool {
    cx.features.enabled(Feature::DRAExtendedResource)
        && !cx.cluster.device_classes.is_empty()
        && may_need_devices(cx.cluster, &pod_resources(pod, Options::PENDING))
}

/// The plugin's entry in the registry.
pub fn registration() -> Registration {
    Registration::new(NAME, |cx| {
        DynamicResourcesArgs::decode(cx)?;
        Ok(Extensions::of(DynamicResources)
            .pre_enqueue()
            .pre_filter()
            .filter()
            .post_filter()
            .score()
            .events()
            .keep()
            .build())
    })
    .args(ArgsKind::Typed(args::complete))
    .by_default(Some(2))
}

impl Plugin for DynamicResources {
    fn name(&self) -> &str {
        NAME
    }
}

impl PreEnqueue for DynamicResources {
    /// A pod waits until all its claims are there. That says nothing of devices.
    fn pre_enqueue(&self, cx: &Context<'_>, pod: &Pod) -> Status {
        match claims::resolve(cx.cluster, pod) {
            Ok(_) => Status::success(),
            Err(lack) if cx.features.enabled(Feature::SchedulerPreEnqueuePodStatus) => {
                Status::unresolvable(lack.for_users())
            }
            Err(lack) => Status::unresolvable(lack.to_string()),
        }
    }
}

/// Written by PreFilter: in this cycle the plugin has looked at the pod.
struct PreFilterState;

impl PreFilter for DynamicResources {
    fn pre_filter(
        &self,
        cx: &Context<'_>,
        state: &mut CycleState,
        pod: &PodInfo,
    ) -> PreFilterResult {
        state.write(PreFilterState);
        if let Err(status) = check_claims(cx.cluster, &pod.pod) {
            return PreFilterResult::Reject(status);
        }
        if needs_classes(cx, &pod.pod) {
            PreFilterResult::AllNodes
        } else {
            PreFilterResult::Skip
        }
    }
}

impl Filter for DynamicResources {
    /// Only asked for pods without claims that request what a class of devices may stand for: PreFilter turns pods with
    /// claims down, and skips all others.
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
    /// As kube-scheduler, ends PostFilter when an earlier plugin has rejected the pod in PreFilter: no pods are preempted
    /// for it, and its nomination stays. There the plugin fails because it has no state, and its error (`not found`)
    /// ends the pod's message.
    fn post_filter(
        &self,
        cx: &mut PostFilterContext<'_>,
        _pod: &PodInfo,
        statuses: &NodeStatuses,
        _wake: Option<Wake<'_>>,
    ) -> PostFilterStep {
        let rejected_before =
            statuses.listed() == 0 && cx.dry_run.state().read::<PreFilterState>().is_none();
        let status = match rejected_before {
            true => Status::new(Code::UnschedulableAndUnresolvable, []),
            false => Status::unschedulable(NOTHING_TO_DEALLOCATE),
        };
        PostFilterStep::done(status, Nominating::Keep)
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
                |cluster, pod, change| hints::after_claims_made(cluster, pod, &change),
            )
            .supplemented_by(|_, pod, change| hints::claims_made_tell_more(pod, &change))
            .touching_itself(),
            EventRegistration::with_hint(
                EventResource::ResourceClaim,
                add_or_update,
                |cluster, pod, change| hints::after_claim_change(cluster, pod, &change),
            )
            .supplemented_by(|cluster, pod, change| {
                hints::claim_change_tells_more(cluster, pod, &change)
            })
            .narrowed_by(|cluster, change| hints::helped_by_claim_change(cluster, &change)),
            // A claim that goes helps nobody, but what is told of who waits for it changes.
            EventRegistration::supplementary(
                EventResource::ResourceClaim,
                ActionType::DELETE,
                |cluster, pod, change| hints::claim_change_tells_more(cluster, pod, &change),
            )
            .narrowed_by(|cluster, change| hints::helped_by_claim_change(cluster, &change)),
            EventRegistration::always(EventResource::DeviceClass, add_or_update),
            EventRegistration::always(EventResource::ResourceSlice, add_or_update),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{World, namespaced, pod, pod_info};
    use berth_api::ResourceClaim;
    use serde_json::{Value, json};

    /// A resource claim of this name (also its UID); its namespace is `default` unless the fields say another one.
    pub(super) fn claim(name: &str, fields: Value) -> ResourceClaim {
        namespaced(name, fields)
    }

    /// What a claim says that was made for a pod.
    pub(super) fn made_for(pod: &str) -> Value {
        json!({"metadata": {"ownerReferences": [{"kind": "Pod", "uid": pod, "controller": true}]}})
    }

    /// What a claim says that has its devices.
    pub(super) fn allocated() -> Value {
        let device = json!({"request": "r", "driver": "d", "pool": "p", "device": "dev-0"});
        json!({"status": {"allocation": {"devices": {"results": [device]}}}})
    }

    /// Q-28: a pod is kept out while its claims are not there, with upstream's words; devices make no difference.
    #[test]
    fn a_pod_is_kept_out_until_its_claims_are_there() {
        let spec = json!({"resourceClaims": [{"name": "gpu", "resourceClaimName": "c"}]});
        let waiting = pod("p", spec);
        let world = World::new();
        // Where nobody is told, upstream's words are for its log.
        let mut unreported = World::new();
        let report = Feature::SchedulerPreEnqueuePodStatus;
        unreported.features = unreported.features.with(report, false);
        let log = "could not find ResourceClaim \"default/c\"";
        for (world, expected) in [
            (
                world,
                Status::unresolvable("Waiting for resource claim \"c\" to be present"),
            ),
            (unreported, Status::unresolvable(log)),
            (World::new().with(claim("c", json!({}))), Status::success()),
            (
                World::new().with(claim("c", allocated())),
                Status::success(),
            ),
        ] {
            let status = DynamicResources.pre_enqueue(&world.context(), &waiting);
            assert_eq!(status, expected);
        }
        let without = pod("p", json!({}));
        let status = DynamicResources.pre_enqueue(&World::new().context(), &without);
        assert_eq!(status, Status::success());
    }

    /// PL-152: without claims PreFilter says Skip; with claims the pod is turned down, and what is wrong
    /// with them is said before that they are not supported.
    #[test]
    fn only_pods_without_claims_are_let_through() {
        let wants = |class: &str| json!({"spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": class}}]}}});
        let class = json!({"metadata": {"name": "gpu"}});
        let class: berth_api::DeviceClass = serde_json::from_value(class).expect("a class");
        let world = World::new()
            .node("n", json!({}))
            .with(class)
            .with(claim("c", wants("gpu")))
            .with(claim("d", wants("tpu")))
            .with(claim("taken", allocated()));
        let named = |name: &str| json!([{"name": "gpu", "resourceClaimName": name}]);
        let rejected = |why: &'static str| Some(Status::unresolvable(why));
        for (claims, expected) in [
            (json!([]), None),
            (named("c"), rejected(CLAIMS_NOT_ALLOCATED)),
            (named("taken"), rejected(CLAIMS_NOT_SUPPORTED)),
            (
                named("d"),
                rejected("request r: device class tpu does not exist"),
            ),
            (
                named("missing"),
                rejected("could not find ResourceClaim \"default/missing\""),
            ),
        ] {
            let state = &mut CycleState::default();
            let pod = pod_info("p", json!({"resourceClaims": claims}));
            let result = match DynamicResources.pre_filter(&world.context(), state, &pod) {
                PreFilterResult::Skip => None,
                PreFilterResult::Reject(status) => Some(status),
                other => panic!("{claims}: {other:?}"),
            };
            assert_eq!(result, expected, "{claims}");
        }
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
