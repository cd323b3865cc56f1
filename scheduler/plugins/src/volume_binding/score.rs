//! Scores nodes by the part of their storage that the pod would use (KEP-4049).
//!
//! ```text
//! 50Gi of 100Gi  → utilization  50 → score 50     with the default shape, which prefers free space
//! 50Gi of 200Gi  → utilization  25 → score 75
//! ```

use super::find::{FoundVolumes, find};
use super::{VolumeBinding, VolumePreFilterState};
use crate::node_resources::shape::ScoreShape;
use berth_api::Str;
use berth_framework::plugin::{Context, PreScore, Score};
use berth_framework::{CycleState, NodeView, PodInfo, Slot, Status};
use std::collections::BTreeMap;

/// The utilization of a class whose capacity does not suffice, in percent.
const FULL: i64 = 100;

/// The amount that the pod requests of a storage class on a node, in bytes. The sums of many volumes may exceed 64
/// bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct ClassStorage {
    requested: i128,
    capacity: i128,
}

impl ClassStorage {
    /// The requested part of the capacity, in percent, rounded down.
    fn utilization(self) -> i64 {
        if self.capacity == 0 || self.requested > self.capacity {
            return FULL;
        }
        i64::try_from(self.requested * i128::from(FULL) / self.capacity).unwrap_or(FULL)
    }
}

/// The storage by class: of the existing volumes if there are any, otherwise of the volumes to provision with a known
/// capacity.
fn by_class(found: &FoundVolumes) -> BTreeMap<Str, ClassStorage> {
    let mut classes: BTreeMap<Str, ClassStorage> = BTreeMap::new();
    for (claim, volume) in &found.bindings {
        let class = classes.entry(Str::new(volume.class())).or_default();
        class.requested += i128::from(claim.request().unwrap_or_default().value());
        class.capacity += i128::from(volume.capacity().value());
    }
    if !found.bindings.is_empty() {
        return classes;
    }
    for provision in &found.provisions {
        let Some(capacity) = &provision.capacity else {
            continue;
        };
        let claim = &provision.claim;
        let class = classes.entry(Str::new(claim.class())).or_default();
        class.requested += i128::from(claim.request().unwrap_or_default().value());
        // All claims of the class take from one capacity.
        let capacity = capacity.capacity.as_ref();
        class.capacity = i128::from(capacity.map_or(0, |quantity| quantity.value()));
    }
    classes
}

/// The mean of the scores of the classes, rounded half away from zero.
fn score(classes: &BTreeMap<Str, ClassStorage>, shape: &ScoreShape) -> i64 {
    let Ok(count @ 1..) = i64::try_from(classes.len()) else {
        return 0;
    };
    let scores = classes
        .values()
        .map(|class| shape.score(class.utilization()));
    let sum: i64 = scores.sum();
    (2 * sum + count) / (2 * count)
}

impl PreScore for VolumeBinding {
    /// Skips all pods without the gate, and with it pods whose claims all have volumes: every node scores zero.
    fn pre_score(
        &self,
        _cx: &Context<'_>,
        state: &mut CycleState,
        _pod: &PodInfo,
        _nodes: &[Slot],
    ) -> Status {
        match state.read::<VolumePreFilterState>() {
            _ if self.args.shape.is_none() => Status::skip(),
            None => Status::error("VolumeBinding: PreScore ran without PreFilter"),
            Some(kept) if kept.claims.delayed.is_empty() => Status::skip(),
            Some(_) => Status::success(),
        }
    }
}

impl Score for VolumeBinding {
    fn score(
        &self,
        cx: &Context<'_>,
        state: &CycleState,
        _pod: &PodInfo,
        node: NodeView<'_>,
    ) -> Result<i64, Status> {
        let (Some(kept), Some(shape)) = (state.read::<VolumePreFilterState>(), &self.args.shape)
        else {
            return Err(Status::error("VolumeBinding: Score ran without PreFilter"));
        };
        let (found, _) = find(cx.cluster, &kept.claims, node.node())
            .map_err(|error| Status::error(error.to_string()))?;
        Ok(score(&by_class(&found), shape))
    }
}
