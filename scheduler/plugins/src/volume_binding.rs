//! Rejects nodes that cannot access the volumes of the pod, or on which no volume can be found or provisioned for a
//! claim.
//!
//! ```text
//! a claim with a volume                         → nodes that the volume's affinity allows
//! a claim of a class WaitForFirstConsumer       → nodes with a free volume, or where one can be provisioned
//! a claim of a class Immediate, without volume  → no node until it has one
//! ```
//!
//! Volumes are chosen for the node that the pod gets, and the pod is bound once its claims are (`bind`). With the gate
//! StorageCapacityScoring, nodes are scored by the part of their storage that the pod would use (`score`).

mod args;
mod bind;
mod claims;
mod find;
mod hints;
mod keep;
mod score;
mod writes;

pub use args::VolumeBindingArgs;
pub(crate) use writes::CALLS;

use crate::volumes::{claim_names, when_own_claim};
use berth_framework::event::{ActionType, EventRegistration, EventResource, Hint};
use berth_framework::keep::constant;
use berth_framework::lack::VolumeLack;
use berth_framework::plugin::{Context, EnqueueExtensions, Filter, PreFilter, PreFilterResult};
use berth_framework::registry::{ArgsKind, Extensions, Registration};
use berth_framework::{
    Code, CycleState, FeatureGates, Lack, NodeView, PodInfo, Reason, ReasonCode, Status,
};
use claims::Claims;
use find::{Obstacles, find};
use std::sync::Arc;

/// The plugin's name.
pub const NAME: &str = "VolumeBinding";

/// The reason if a claim has no volume and its class binds at once.
pub const REASON_IMMEDIATE: &str = "pod has unbound immediate PersistentVolumeClaims";
/// The reason on a node that cannot access a volume.
pub const REASON_NODE_CONFLICT: &str = "node(s) didn't match PersistentVolume's node affinity";
/// The reason on a node without a volume for a claim.
pub const REASON_BIND_CONFLICT: &str = "node(s) didn't find available persistent volumes to bind";
/// The reason on a node without enough storage capacity.
pub const REASON_NO_SPACE: &str = "node(s) did not have enough free storage";
/// The reason if the volume of a claim does not exist.
pub const REASON_VOLUME_MISSING: &str =
    "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)";

/// Volumes of claims.
#[derive(Debug, Clone, Default)]
pub struct VolumeBinding {
    args: VolumeBindingArgs,
}

struct VolumePreFilterState {
    claims: Claims,
}

impl VolumeBinding {
    /// The plugin with these arguments.
    pub fn new(args: VolumeBindingArgs) -> Self {
        Self { args }
    }

    /// The arguments.
    pub fn args(&self) -> &VolumeBindingArgs {
        &self.args
    }
}

impl Obstacles {
    /// The reasons in upstream's order.
    fn into_status(self) -> Status {
        let reasons: Vec<Reason> = [
            self.node_conflict
                .as_ref()
                .map(|_| ReasonCode::VolumeNodeAffinity.reason(REASON_NODE_CONFLICT)),
            self.bind_conflict
                .as_ref()
                .map(|_| ReasonCode::VolumeUnavailable.reason(REASON_BIND_CONFLICT)),
            self.not_enough_space
                .as_ref()
                .map(|_| ReasonCode::StorageFull.reason(REASON_NO_SPACE)),
            self.volume_missing
                .then(|| ReasonCode::VolumeMissing.reason(REASON_VOLUME_MISSING)),
        ]
        .into_iter()
        .flatten()
        .collect();
        if reasons.is_empty() {
            Status::success()
        } else {
            Status::new(Code::UnschedulableAndUnresolvable, reasons)
        }
    }

    fn into_lacks(self) -> Vec<Lack> {
        let missing = self.volume_missing.then_some(VolumeLack::Missing);
        let lacks = [
            self.node_conflict
                .map(|volume| VolumeLack::NodeAffinity { volume }),
            self.bind_conflict
                .map(|claim| VolumeLack::Unavailable { claim }),
            self.not_enough_space
                .map(|claim| VolumeLack::Storage { claim }),
            missing,
        ];
        lacks.into_iter().flatten().map(Lack::Volume).collect()
    }
}

/// The plugin's entry in the registry.
pub fn registration() -> Registration {
    Registration::new(NAME, |cx| {
        let args = VolumeBindingArgs::decode(cx.args, cx.features)?;
        let scores = args.shape.is_some();
        // PreScore skips every pod without the gate, and is reported as skipped.
        let extensions = Extensions::of(VolumeBinding::new(args))
            .pre_filter()
            .filter()
            .pre_score();
        let extensions = if scores {
            extensions.score()
        } else {
            extensions
        };
        Ok(extensions
            .reserve()
            .pre_bind()
            .events()
            .keep()
            .calls(CALLS)
            .fragment_version(constant)
            .build())
    })
    .args(ArgsKind::Typed(args::complete))
    .by_default(None)
}

impl PreFilter for VolumeBinding {
    fn pre_filter(
        &self,
        cx: &Context<'_>,
        state: &mut CycleState,
        pod: &PodInfo,
    ) -> PreFilterResult {
        match claims::check_all(cx.cluster, &pod.pod) {
            Err(error) => {
                return PreFilterResult::Reject(Status::unresolvable(error));
            }
            Ok(false) => {
                state.write(VolumePreFilterState {
                    claims: Claims::default(),
                });
                return PreFilterResult::Skip;
            }
            Ok(true) => {}
        }
        match Claims::of(cx.cluster, &pod.pod) {
            Err(error) => PreFilterResult::Reject(Status::error(error.to_string())),
            Ok(claims) if claims.has_immediate => PreFilterResult::Reject(Status::unresolvable(
                ReasonCode::ClaimUnbound.reason(REASON_IMMEDIATE),
            )),
            Ok(claims) => {
                state.write(VolumePreFilterState { claims });
                PreFilterResult::AllNodes
            }
        }
    }
}

impl Filter for VolumeBinding {
    fn filter(
        &self,
        cx: &Context<'_>,
        state: &CycleState,
        _pod: &PodInfo,
        node: NodeView<'_>,
    ) -> Status {
        let Some(kept) = state.read::<VolumePreFilterState>() else {
            return Status::error("VolumeBinding: Filter ran without PreFilter");
        };
        match find(cx.cluster, &kept.claims, node.node()) {
            Ok((_, obstacles)) => obstacles.into_status(),
            Err(error) => Status::error(error.to_string()),
        }
    }

    fn lacking(
        &self,
        cx: &Context<'_>,
        state: &CycleState,
        _pod: &PodInfo,
        node: NodeView<'_>,
    ) -> Vec<Lack> {
        let kept = state.read::<VolumePreFilterState>();
        let found = kept.and_then(|kept| find(cx.cluster, &kept.claims, node.node()).ok());
        found.map_or_else(Vec::new, |(_, obstacles)| obstacles.into_lacks())
    }
}

impl EnqueueExtensions for VolumeBinding {
    fn events(self: Arc<Self>, _features: &FeatureGates) -> Vec<EventRegistration> {
        let add_or_update = ActionType::ADD | ActionType::UPDATE;
        vec![
            EventRegistration::when(
                EventResource::StorageClass,
                add_or_update,
                hints::changes_class,
            ),
            when_own_claim(add_or_update, claim_names),
            EventRegistration::always(EventResource::PersistentVolume, add_or_update),
            EventRegistration::always(
                EventResource::Node,
                ActionType::ADD | ActionType::UPDATE_NODE_LABEL,
            ),
            EventRegistration::when(
                EventResource::CsiNode,
                add_or_update,
                hints::changes_migration,
            ),
            EventRegistration::matching(
                EventResource::CsiDriver,
                ActionType::UPDATE,
                hints::inline_drivers,
                hints::stops_counting,
            ),
            // kube-scheduler checks only inline volumes, whose capacity is not checked, and misses deleted drivers.
            EventRegistration::supplementary(
                EventResource::CsiDriver,
                ActionType::UPDATE | ActionType::DELETE,
                |_, _, change| hints::no_longer_counts(&change).map(Hint::queue_if),
            ),
            // Without a CSINode, in-tree volumes are checked by their own labels.
            EventRegistration::supplementary(
                EventResource::CsiNode,
                ActionType::DELETE,
                |_, _, _| Ok(Hint::Queue),
            ),
            EventRegistration::when(
                EventResource::CsiStorageCapacity,
                add_or_update,
                hints::adds_capacity,
            ),
        ]
    }
}

#[cfg(test)]
mod bind_tests;
#[cfg(test)]
mod hint_tests;
#[cfg(test)]
mod score_tests;
#[cfg(test)]
mod tests;
