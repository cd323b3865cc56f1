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
mod json;
mod lacking;
mod node_allocatable;
mod post_filter;
mod shared;
mod state;
#[cfg(test)]
mod tests;
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

    fn score_amounts(&self, state: &CycleState, _amounts: &Columns, scores: &mut [i32]) -> bool {
        // With claims, answers depend on more than amounts; without, all nodes score zero.
        let state = state.read::<ClaimsState>();
        let is_equal = state.is_none_or(ClaimsState::is_empty);
        if is_equal {
            scores.fill(0);
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
            match ClaimsState::prepare(&self.args, &Context::of_step(cx), &pod.pod) {
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
