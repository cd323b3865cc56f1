//! Dynamic Resource Allocation: allocates devices to the resource claims of a pod (KEP-4381).
//!
//! ```text
//! a claim that does not exist, or is being deleted   → PreEnqueue rejects the pod
//! a claim without devices                            → nodes that have the devices; Reserve allocates them
//! a claim with devices                               → nodes that can use them; the pod joins the claim's users
//! a claim with devices that no node can use          → PostFilter frees them
//! ```
//!
//! The allocator is the crate `berth-devices`. Filter asks it about each node, Reserve has it choose the devices, and
//! PreBind writes them to the claims (`bind`).

mod args;
mod bind;
mod bind_error;
mod claims;
mod classes;
mod conditions;
mod extended;
mod filter;
mod group;
mod hints;
mod lacking;
mod node_allocatable;
mod post_filter;
mod shared;
mod state;
mod writes;

pub use args::DynamicResourcesArgs;
pub(crate) use writes::CALLS;

use crate::extended_resources::without_backing_classes;
use berth_api::{Kind, Pod, Str};
use berth_framework::cluster::GroupKey;
use berth_framework::event::{ActionType, EventRegistration, EventResource};
use berth_framework::keep::{FollowOutcome, Fragment, Keep, Kept};
use berth_framework::plugin::{
    Context, EnqueueExtensions, Filter, GroupPostFilterResult, MAX_NODE_SCORE, NodeStatuses,
    Nominating, PodGroupPostFilter, PodGroupPostFilterContext, PostFilter, PostFilterContext,
    PostFilterStep, PreBind, PreEnqueue, PreFilter, PreFilterResult, Reserve, Score,
    default_normalize,
};
use berth_framework::registry::{ArgsKind, Extensions, Registration};
use berth_framework::stage::{StageContext, Step, Wake};
use berth_framework::table::Columns;
use berth_framework::{
    Code, CycleState, Feature, FeatureGates, Lack, NodeView, PodInfo, ReasonCode, Slot, Status,
};
use state::ClaimsState;
use std::sync::Arc;

/// The plugin's name.
pub const NAME: &str = "DynamicResources";

/// The message of PostFilter for a pod without claims.
pub const NOTHING_TO_DEALLOCATE: &str = "no new claims to deallocate";

/// Allocates devices to resource claims.
#[derive(Debug, Default)]
pub struct DynamicResources {
    args: DynamicResourcesArgs,
}

/// The plugin's entry in the registry.
pub fn registration() -> Registration {
    Registration::new(NAME, |cx| {
        let args = DynamicResourcesArgs::decode(cx)?;
        Ok(Extensions::of(DynamicResources { args })
            .pre_enqueue()
            .pre_filter()
            .filter()
            .post_filter()
            .pod_group_post_filter()
            .score()
            .reserve()
            .pre_bind()
            .events()
            .keep()
            .calls(CALLS)
            .fragment_version(without_backing_classes)
            .build())
    })
    .args(ArgsKind::Typed(args::complete))
    .by_default(Some(2))
}

impl PreEnqueue for DynamicResources {
    /// A pod waits until all its claims exist, whatever the devices.
    fn pre_enqueue(&self, cx: &Context<'_>, pod: &Pod) -> Status {
        match claims::resolve(cx.cluster, cx.features, pod) {
            Ok(_) => Status::success(),
            Err(lack) if cx.features.enabled(Feature::SchedulerPreEnqueuePodStatus) => {
                Status::unresolvable(ReasonCode::ClaimMissing.reason(lack.for_users()))
            }
            Err(lack) => Status::unresolvable(ReasonCode::ClaimMissing.reason(lack.to_string())),
        }
    }
}

impl PreFilter for DynamicResources {
    fn pre_filter(
        &self,
        cx: &Context<'_>,
        state: &mut CycleState,
        pod: &PodInfo,
    ) -> PreFilterResult {
        // Later extension points find a state without claims if the pod is rejected here.
        state.write(ClaimsState::default());
        match ClaimsState::prepare(&self.args, cx, &pod.pod) {
            Err(status) => PreFilterResult::Reject(status),
            Ok(prepared) if prepared.is_empty() => PreFilterResult::Skip,
            Ok(prepared) => {
                state.write(prepared);
                PreFilterResult::AllNodes
            }
        }
    }
}

impl Filter for DynamicResources {
    fn filter(
        &self,
        cx: &Context<'_>,
        state: &CycleState,
        pod: &PodInfo,
        node: NodeView<'_>,
    ) -> Status {
        let Some(state) = state.read::<ClaimsState>() else {
            return Status::error("DynamicResources: Filter ran without PreFilter");
        };
        filter::filter(&self.args, cx, state, &pod.pod, node)
    }

    fn lacking(
        &self,
        cx: &Context<'_>,
        state: &CycleState,
        _pod: &PodInfo,
        node: NodeView<'_>,
    ) -> Vec<Lack> {
        let state = state.read::<ClaimsState>();
        state.map_or_else(Vec::new, |state| lacking::lacks(cx, state, node))
    }
}

impl PodGroupPostFilter for DynamicResources {
    fn post_filter_group(
        &self,
        cx: &mut PodGroupPostFilterContext<'_>,
        group: &GroupKey,
    ) -> GroupPostFilterResult {
        group::post_filter_group(cx, group)
    }
}

impl PostFilter for DynamicResources {
    /// As in kube-scheduler, ends PostFilter when an earlier plugin has rejected the pod in PreFilter: no pods are
    /// preempted for it, and its nomination is kept. kube-scheduler's plugin fails because it has no state, and its
    /// error (`not found`) ends the pod's message.
    fn post_filter(
        &self,
        cx: &mut PostFilterContext<'_>,
        pod: &PodInfo,
        statuses: &NodeStatuses,
        wake: Option<Wake<'_>>,
    ) -> PostFilterStep {
        let rejected_before =
            statuses.listed() == 0 && cx.dry_run.state().read::<ClaimsState>().is_none();
        if wake.is_none() && rejected_before {
            let status = Status::new(Code::UnschedulableAndUnresolvable, []);
            return PostFilterStep::done(status, Nominating::Keep);
        }
        post_filter::post_filter(&self.args, cx, &pod.pod, statuses, wake)
    }

    /// Only claims make a difference between pods of one template. A pod with claims has no template, and the answers
    /// about a pod with a claim of an earlier attempt are not kept.
    fn judges_by_template(&self) -> bool {
        true
    }
}

impl Score for DynamicResources {
    fn score(
        &self,
        _cx: &Context<'_>,
        state: &CycleState,
        _pod: &PodInfo,
        node: NodeView<'_>,
    ) -> Result<i64, Status> {
        let state = state.read::<ClaimsState>();
        Ok(state.map_or(0, |state| state.score(node.slot())))
    }

    fn score_many(
        &self,
        _cx: &Context<'_>,
        state: &CycleState,
        _pod: &PodInfo,
        nodes: &[Slot],
        scores: &mut Vec<i64>,
    ) -> Result<(), Status> {
        match state.read::<ClaimsState>() {
            Some(state) if state.has_lists => {
                scores.extend(nodes.iter().map(|slot| state.score(*slot)));
            }
            // All nodes score the same.
            state => {
                let score = state.map_or(0, |state| state.preference);
                scores.resize(scores.len() + nodes.len(), score);
            }
        }
        Ok(())
    }

    fn score_amounts(&self, state: &CycleState, amounts: &Columns, scores: &mut Vec<i64>) -> bool {
        // With claims, answers depend on more than amounts; without, all nodes score zero.
        let state = state.read::<ClaimsState>();
        let is_equal = state.is_none_or(ClaimsState::is_empty);
        if is_equal {
            scores.resize(scores.len() + amounts.slots(), 0);
        }
        is_equal
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

impl Reserve for DynamicResources {
    fn reserve(
        &self,
        cx: &mut StageContext<'_>,
        state: &mut CycleState,
        pod: &PodInfo,
        node: &Str,
        _wake: Option<Wake<'_>>,
    ) -> Step {
        // PreFilter has not run for a pod that shares the answers of a similar pod.
        if state.read::<ClaimsState>().is_none() {
            let context = Context {
                now: cx.now,
                cluster: cx.cluster,
                features: cx.features,
                work: None,
            };
            match ClaimsState::prepare(&self.args, &context, &pod.pod) {
                Ok(prepared) => state.write(prepared),
                Err(status) => return Step::Done(status),
            }
        }
        Step::Done(match state.read_mut::<ClaimsState>() {
            Some(state) => bind::reserve(self, cx, state, &pod.pod, node),
            None => Status::success(),
        })
    }

    fn unreserve(
        &self,
        cx: &mut StageContext<'_>,
        state: &mut CycleState,
        pod: &PodInfo,
        _node: &Str,
    ) {
        if let Some(state) = state.read_mut::<ClaimsState>() {
            bind::unreserve(cx, state, &pod.pod);
        }
    }
}

/// The decision of Reserve for the node, if the pod has claims.
fn reserved<'s>(state: &'s mut CycleState, node: &str) -> Option<&'s mut bind::Reserved> {
    let reserved = state.read_mut::<ClaimsState>()?.reserved.as_mut();
    reserved.filter(|reserved| reserved.is_for(node) && !reserved.is_empty())
}

impl PreBind for DynamicResources {
    fn pre_flight(
        &self,
        _cx: &mut StageContext<'_>,
        state: &mut CycleState,
        _pod: &PodInfo,
        node: &Str,
    ) -> Status {
        match reserved(state, node) {
            Some(_) => Status::success(),
            None => Status::skip(),
        }
    }

    fn runs_in_parallel(&self, _state: &CycleState, _pod: &PodInfo) -> bool {
        true
    }

    fn pre_bind(
        &self,
        cx: &mut StageContext<'_>,
        state: &mut CycleState,
        pod: &PodInfo,
        node: &Str,
        wake: Option<Wake<'_>>,
    ) -> Step {
        match reserved(state, node) {
            Some(reserved) => reserved.pre_bind(self, cx, &pod.pod, wake),
            None => Step::success(),
        }
    }
}

impl Keep for DynamicResources {
    /// Answers depend on the requests of the claims, on the nodes that can use the allocated devices, and on the
    /// devices of the node. Devices that several nodes can use are part of the fragment, and their allocations are
    /// tracked. Reserve looks the claims up again.
    fn fragment(&self, cx: &Context<'_>, pod: &PodInfo, fragment: &mut Fragment) -> Kept {
        ClaimsState::fragment(cx, &pod.pod, fragment)
    }

    fn follow(
        &self,
        cx: &Context<'_>,
        state: &mut CycleState,
        changed: &mut Vec<Slot>,
    ) -> FollowOutcome {
        let claims = state.read_mut::<ClaimsState>();
        claims.map_or(FollowOutcome::Nothing, |claims| {
            claims.follow(&self.args, cx, changed)
        })
    }

    /// By the alternatives of lists.
    fn normalizes(&self) -> bool {
        true
    }
}

impl EnqueueExtensions for DynamicResources {
    fn events(self: Arc<Self>, features: &FeatureGates) -> Vec<EventRegistration> {
        let node_actions =
            ActionType::ADD | ActionType::UPDATE_NODE_LABEL | ActionType::UPDATE_NODE_ALLOCATABLE;
        let add_or_update = ActionType::ADD | ActionType::UPDATE;
        let mut events = vec![
            EventRegistration::always(EventResource::Node, node_actions),
            EventRegistration::with_hint(
                EventResource::Pod,
                ActionType::UPDATE_POD_GENERATED_RESOURCE_CLAIM,
                |cluster, pod, change| hints::after_claims_made(cluster, pod, &change),
            )
            .supplemented_by(|_, pod, change| hints::claims_made_show_more(pod, &change))
            .touching_itself(),
            EventRegistration::with_hint(
                EventResource::ResourceClaim,
                add_or_update,
                |cluster, pod, change| hints::after_claim_change(cluster, pod, &change),
            )
            .supplemented_by(|cluster, pod, change| {
                hints::claim_change_shows_more(cluster, pod, &change)
            })
            .narrowed_by(|cluster, change| hints::helped_by_claim_change(cluster, &change)),
            // A claim that is deleted with its devices frees them. For pods that use another claim, the message
            // changes.
            EventRegistration::supplementary(
                EventResource::ResourceClaim,
                ActionType::DELETE,
                |cluster, pod, change| hints::claim_change_shows_more(cluster, pod, &change),
            )
            .narrowed_by(|cluster, change| hints::helped_by_claim_change(cluster, &change)),
            EventRegistration::always(EventResource::DeviceClass, add_or_update),
            EventRegistration::always(EventResource::ResourceSlice, add_or_update),
            // A pool is complete only with the number of slices that its slices state, so a deletion can complete it.
            EventRegistration::supplementary(
                EventResource::ResourceSlice,
                ActionType::DELETE,
                |cluster, _, change| hints::after_slice_deletion(cluster, &change),
            ),
        ];
        if features.enabled(Feature::DRAExtendedResource) {
            events.push(EventRegistration::supplementary(
                EventResource::DeviceClass,
                ActionType::DELETE,
                |cluster, pod, change| hints::after_class_deletion(cluster, pod, &change),
            ));
        }
        if features.enabled(Feature::DRADeviceTaintRules) {
            // kube-scheduler reports such a change as a change of slices. A new rule makes no device available.
            events.push(EventRegistration::always(
                EventResource::of_kind(Kind::DeviceTaintRule),
                ActionType::UPDATE | ActionType::DELETE,
            ));
        }
        events
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{World, delete, full_hint, namespaced, pod, pod_info};
    use berth_api::ResourceClaim;
    use berth_framework::event::Hint;
    use serde_json::{Value, json};

    /// A resource claim of this name (also its UID); its namespace is `default` unless the fields contain another one.
    pub(super) fn claim(name: &str, fields: Value) -> ResourceClaim {
        namespaced(name, fields)
    }

    /// The fields of a claim that was made for a pod.
    pub(super) fn made_for(pod: &str) -> Value {
        json!({"metadata": {"ownerReferences": [{"kind": "Pod", "uid": pod, "controller": true}]}})
    }

    /// The fields of a claim that has its devices.
    pub(super) fn allocated() -> Value {
        let device = json!({"request": "r", "driver": "d", "pool": "p", "device": "dev-0"});
        json!({"status": {"allocation": {"devices": {"results": [device]}}}})
    }

    /// Q-28: PreEnqueue blocks a pod while its claims do not exist, with upstream's message; devices make no
    /// difference.
    #[test]
    fn a_pod_is_rejected_until_its_claims_exist() {
        let spec = json!({"resourceClaims": [{"name": "gpu", "resourceClaimName": "c"}]});
        let waiting = pod("p", spec);
        let world = World::new();
        // Without the gate, the status is not reported to users, and the message is upstream's log line.
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
            let status = DynamicResources::default().pre_enqueue(&world.context(), &waiting);
            assert_eq!(status, expected);
        }
        let without = pod("p", json!({}));
        let status = DynamicResources::default().pre_enqueue(&World::new().context(), &without);
        assert_eq!(status, Status::success());
    }

    /// A slice with these devices of a node.
    fn slice(node: &str, devices: Value) -> berth_api::ResourceSlice {
        let pool = json!({"name": node, "generation": 1, "resourceSliceCount": 1});
        let spec = json!({"driver": "d", "pool": pool, "nodeName": node, "devices": devices});
        namespaced(node, json!({"spec": spec}))
    }

    /// PL-166: a slice that is deleted may complete its pool, or make an earlier generation count again.
    #[test]
    fn a_deleted_slice_wakes_if_its_pool_remains() {
        let spec = json!({"resourceClaims": [{"name": "gpu", "resourceClaimName": "c"}]});
        let pod = pod("p", spec);
        let named = |name: &str, pool: &str| {
            let mut other = slice(pool, json!([]));
            other.metadata.name = name.into();
            other
        };
        for (name, world, expected) in [
            ("the last one", World::new(), Hint::Skip),
            (
                "still there",
                World::new().with(named("a", "n")),
                Hint::Skip,
            ),
            (
                "one of two",
                World::new().with(named("b", "n")),
                Hint::Queue,
            ),
            (
                "of another pool",
                World::new().with(named("b", "m")),
                Hint::Skip,
            ),
        ] {
            let changed = delete(named("a", "n"));
            let hint = full_hint(DynamicResources::default(), &world, &pod, &changed);
            assert_eq!(hint, expected, "{name}");
        }
    }

    fn class(name: &str) -> berth_api::DeviceClass {
        namespaced(name, json!({}))
    }

    /// The fields of a claim that requests one device of a class.
    fn wants(class: &str) -> Value {
        let exactly = json!({"deviceClassName": class, "allocationMode": "ExactCount", "count": 1});
        json!({"spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}})
    }

    /// A pod with these claims.
    fn with_claims(claims: &[&str]) -> PodInfo {
        let claims = claims
            .iter()
            .map(|name| json!({"name": name, "resourceClaimName": name}));
        pod_info("p", json!({"resourceClaims": claims.collect::<Vec<_>>()}))
    }

    /// PL-152, PL-157: without claims PreFilter returns Skip; a problem with a claim rejects the pod.
    #[test]
    fn pods_are_rejected_for_claims_that_cannot_be_allocated() {
        let mut in_flight = claim("in-flight", allocated());
        in_flight.status.is_assumed = true;
        let world = World::new()
            .node("n", json!({}))
            .with(class("gpu"))
            .with(claim("c", wants("gpu")))
            .with(claim("d", wants("tpu")))
            .with(claim("taken", allocated()))
            .with(in_flight);
        let rejected = |why: &'static str| Some(Status::unresolvable(why));
        for (claims, expected) in [
            (vec![], None),
            (vec!["c"], Some(Status::success())),
            (vec!["taken"], Some(Status::success())),
            (
                vec!["d"],
                rejected("request r: device class tpu does not exist"),
            ),
            (
                vec!["c", "missing"],
                rejected("could not find ResourceClaim \"default/missing\""),
            ),
            (
                vec!["in-flight"],
                rejected("resource claim default/in-flight is in the process of being allocated"),
            ),
        ] {
            let state = &mut CycleState::default();
            let plugin = DynamicResources::default();
            let result = match plugin.pre_filter(&world.context(), state, &with_claims(&claims)) {
                PreFilterResult::Skip => None,
                PreFilterResult::Reject(status) => Some(status),
                PreFilterResult::AllNodes => Some(Status::success()),
                other => panic!("{claims:?}: {other:?}"),
            };
            assert_eq!(result, expected, "{claims:?}");
        }
    }

    /// PL-158: nodes with matching devices, and nodes that can use the allocated devices.
    #[test]
    fn a_node_fits_if_it_has_or_can_use_the_devices() {
        let mut elsewhere = allocated();
        elsewhere["status"]["allocation"]["nodeSelector"] = json!({"nodeSelectorTerms": [
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["empty"]}]}]});
        let mut taken = allocated();
        let result = json!({"request": "r", "driver": "d", "pool": "full", "device": "a"});
        taken["status"]["allocation"]["devices"]["results"] = json!([result]);
        let world = World::new()
            .node("empty", json!({}))
            .node("full", json!({}))
            .node("free", json!({}))
            .with(class("gpu"))
            .with(slice("full", json!([{"name": "a"}])))
            .with(slice("free", json!([{"name": "a"}])))
            .with(claim("taken", taken))
            .with(claim("there", elsewhere))
            .with(claim("one", wants("gpu")))
            .with(claim("two", wants("gpu")));
        let lacks = || crate::testing::unresolvable(filter::CANNOT_ALLOCATE);
        let other = || crate::testing::unresolvable(filter::NOT_AVAILABLE);
        for (claims, expected) in [
            (vec!["one"], [lacks(), lacks(), None]),
            (vec!["one", "two"], [lacks(), lacks(), lacks()]),
            (vec!["there"], [None, other(), other()]),
            (vec!["taken"], [None, None, None]),
            (vec!["there", "one"], [lacks(), lacks(), other()]),
        ] {
            let got = world.filter(&DynamicResources::default(), &with_claims(&claims));
            assert_eq!(got, Ok(expected.to_vec()), "{claims:?}");
        }
    }

    /// PL-178: the devices that Reserve has chosen reject other pods, and not the pod itself.
    #[test]
    fn chosen_devices_do_not_reject_their_pod() {
        let stored = claim("c", wants("gpu"));
        let pod = with_claims(&["c"]);
        let other = crate::testing::pod("q", json!({}));
        let results = json!([{"request": "r", "driver": "d", "pool": "n", "device": "a"}]);
        let chosen = serde_json::from_value(json!({"devices": {"results": results}}));
        let chosen = chosen.expect("an allocation");
        let why = "resource claim default/c is in the process of being allocated";
        for (chosen_for, expected) in [
            (&*pod.pod, Ok(vec![None])),
            (&other, Err(crate::testing::unresolvable(why))),
        ] {
            let write = writes::assume(
                &stored,
                &chosen,
                chosen_for,
                &claims::pod_consumer(chosen_for),
            );
            let object = berth_api::Object::ResourceClaim(Arc::new(stored.clone()));
            let shown = write.applied_to(&object);
            let shown = shown.as_resource_claim().expect("a claim");
            let world = World::new()
                .node("n", json!({}))
                .with(class("gpu"))
                .with(slice("n", json!([{"name": "a"}])))
                .with(ResourceClaim::clone(shown));
            assert_eq!(world.filter(&DynamicResources::default(), &pod), expected);
        }
    }

    /// PL-159: a search that is too long and a selector that fails are errors, which retry the pod after a backoff.
    #[test]
    fn searches_without_an_answer_are_errors() {
        let mut failing = wants("gpu");
        let selector = json!({"cel": {"expression": "device.attributes[\"d\"].model == \"x\""}});
        failing["spec"]["devices"]["requests"][0]["exactly"]["selectors"] = json!([selector]);
        let world = World::new()
            .node("n", json!({}))
            .with(class("gpu"))
            .with(slice("n", json!([{"name": "a"}])))
            .with(claim("fails", failing))
            .with(claim("one", wants("gpu")));
        let hurried = DynamicResources {
            args: DynamicResourcesArgs {
                filter_timeout: "1ns".parse().expect("a duration"),
                ..DynamicResourcesArgs::default()
            },
        };
        let runtime = "claim default/fails: selector #0: CEL runtime error: no such key: model";
        let late = "node n: timed out trying to allocate devices";
        for (plugin, claim, expected) in [
            (DynamicResources::default(), "fails", runtime),
            (hurried, "one", late),
        ] {
            let got = world.filter(&plugin, &with_claims(&[claim]));
            let expected = vec![Some((Code::Error, vec![expected.to_owned()]))];
            assert_eq!(got, Ok(expected), "{claim}");
        }
    }

    /// Every scored pod has an entry of this plugin, with 0.
    #[test]
    fn every_node_scores_zero() {
        let world = World::new().node("n1", json!({})).node("n2", json!({}));
        let pod = pod_info("p", json!({}));
        assert_eq!(
            world.normalized_scores(&DynamicResources::default(), &pod),
            [0, 0]
        );
    }
}
