//! Keeps pods off nodes to which a CSI driver can attach no more volumes.
//!
//! A volume counts once per node, however many pods use it. A claim without a volume yet counts as one volume of the
//! driver that will provision it. An in-tree volume of a migrated plugin counts for the plugin's CSI driver.

use crate::change::{is_assigned_or_nominated, pods};
use crate::volumes::{check_owner, look_up};
use crate::wake::{all_or_nobody, touched_by_claim, waits_for_claims};
use berth_api::pod::Volume;
use berth_api::storage::CsiVolume;
use berth_api::volumes::{PodClaim, shared_claims, uses_claim};
use berth_api::{CsiNode, Pod, Str};
use berth_framework::event::{
    ActionType, Change, EventRegistration, EventResource, Hint, Touched, WaitKey, Waits,
};
use berth_framework::keep::{Fragment, Keep, Kept};
use berth_framework::plugin::{
    Context, EnqueueExtensions, Filter, Plugin, PreFilter, PreFilterResult,
};
use berth_framework::registry::{ArgsKind, Extensions, Registration};
use berth_framework::{Cluster, CycleState, FeatureGates, NodeView, PodInfo, Status};
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::Arc;

/// The plugin's name.
pub const NAME: &str = "NodeVolumeLimits";

/// The reason on a node that has enough volumes.
pub const REASON: &str = "node(s) exceed max volume count";

/// Keeps pods to nodes that can take their volumes.
#[derive(Debug, Default)]
pub struct NodeVolumeLimits;

/// The volumes that a pod brings to its node.
#[derive(Debug, Default)]
struct Required {
    volumes: FxHashSet<CsiVolume>,
    /// What is wrong with a claim.
    problem: Option<Status>,
}

/// Whether the volume may be one that a CSI driver attaches.
fn may_attach(volume: &Volume) -> bool {
    volume.persistent_volume_claim.is_some()
        || volume.ephemeral.is_some()
        || volume.migrated().is_some()
}

impl Required {
    fn of(cluster: &Cluster, pod: &Pod) -> Self {
        let mut required = Self::default();
        for volume in &pod.spec.volumes {
            match csi_volume(cluster, pod, volume) {
                Ok(volume) => required.volumes.extend(volume),
                Err(problem) => {
                    required.problem = Some(problem);
                    break;
                }
            }
        }
        required
    }

    fn check(&self, node: NodeView<'_>) -> Status {
        if let Some(problem) = &self.problem {
            return problem.clone();
        }
        // As in kube-scheduler, a volume that is attached though no pod uses it counts even if the pod will use it.
        let new = || {
            self.volumes
                .iter()
                .filter(|volume| !node.uses_volume(volume))
        };
        let exceeds = |volume: &CsiVolume| {
            let driver = &volume.driver;
            node.volume_limit(driver).is_some_and(|limit| {
                let own = new().filter(|other| other.driver == *driver).count();
                let all = node.attached_volumes(driver).saturating_add(own);
                i64::try_from(all).unwrap_or(i64::MAX) > limit
            })
        };
        match new().any(exceeds) {
            true => Status::unschedulable(REASON),
            false => Status::success(),
        }
    }
}

/// The CSI volume behind a volume of a new pod.
///
/// # Errors
/// What is wrong with its claim.
fn csi_volume(cluster: &Cluster, pod: &Pod, volume: &Volume) -> Result<Option<CsiVolume>, Status> {
    let Some(used) = PodClaim::of(pod, volume) else {
        return Ok(volume.migrated());
    };
    if used.name.is_empty() {
        return Err(Status::error("PersistentVolumeClaim had no name"));
    }
    let claim = look_up(cluster, pod, &used.name).map_err(|error| {
        let claim = format!("{}/{}", pod.namespace(), used.name);
        Status::unresolvable(format!("looking up PVC {claim}: {error}"))
    })?;
    if used.is_ephemeral {
        check_owner(pod, claim).map_err(Status::error)?;
    }
    Ok(cluster.csi_volume_of(claim))
}

/// How many volumes each driver can attach to the node; drivers without a limit are left out.
fn limits(csi_node: &CsiNode) -> FxHashMap<&Str, i64> {
    let drivers = csi_node.spec.drivers.iter();
    drivers
        .filter_map(|driver| {
            let count = driver.allocatable.as_ref()?.count?;
            Some((&driver.name, i64::from(count)))
        })
        .collect()
}

/// The plugin's entry in the registry.
pub fn registration() -> Registration {
    Registration::new(NAME, |_| {
        Ok(Extensions::of(NodeVolumeLimits)
            .pre_filter()
            .filter()
            .events()
            .keep()
            .build())
    })
    .args(ArgsKind::None)
    .by_default(None)
}

impl Plugin for NodeVolumeLimits {
    fn name(&self) -> &str {
        NAME
    }
}

impl PreFilter for NodeVolumeLimits {
    fn pre_filter(
        &self,
        cx: &Context<'_>,
        state: &mut CycleState,
        pod: &PodInfo,
    ) -> PreFilterResult {
        if !pod.pod.spec.volumes.iter().any(may_attach) {
            return PreFilterResult::Skip;
        }
        state.write(Required::of(cx.cluster, &pod.pod));
        PreFilterResult::AllNodes
    }
}

impl Filter for NodeVolumeLimits {
    fn filter(
        &self,
        cx: &Context<'_>,
        state: &CycleState,
        pod: &PodInfo,
        node: NodeView<'_>,
    ) -> Status {
        match state.read::<Required>() {
            Some(required) => required.check(node),
            None => Required::of(cx.cluster, &pod.pod).check(node),
        }
    }
}

fn after_csi_node_update(change: &Change<'_>) -> Result<Hint, String> {
    let both = change.old.zip(change.new);
    let both = both.and_then(|(old, new)| Some((old.as_csi_node()?, new.as_csi_node()?)));
    let (old, new) = both.ok_or("expected two versions of a CSI node")?;
    let (old, new) = (limits(old), limits(new));
    let grows = |(driver, limit): (&&Str, &i64)| *limit > old.get(*driver).copied().unwrap_or(0);
    Ok(if new.iter().any(grows) {
        Hint::Queue
    } else {
        Hint::Skip
    })
}

fn after_pod_delete(change: &Change<'_>) -> Result<Hint, String> {
    let (deleted, _) = pods(change)?;
    let helps = deleted.is_some_and(|deleted| {
        is_assigned_or_nominated(deleted) && deleted.spec.volumes.iter().any(may_attach)
    });
    Ok(if helps { Hint::Queue } else { Hint::Skip })
}

fn after_detach(pod: &Pod, change: &Change<'_>) -> Result<Hint, String> {
    let attachment = change.old.and_then(|old| old.as_volume_attachment());
    let attacher = &attachment
        .ok_or("expected a volume attachment")?
        .spec
        .attacher;
    let has_claim = shared_claims(pod).next().is_some();
    let has_inline = || {
        let mut inline = pod.spec.volumes.iter().filter_map(Volume::migrated);
        inline.any(|volume| *attacher == volume.driver)
    };
    Ok(if has_claim || has_inline() {
        Hint::Queue
    } else {
        Hint::Skip
    })
}

impl Keep for NodeVolumeLimits {
    /// For pods without volumes that a driver may attach, about which there is nothing to say.
    fn fragment(&self, _cx: &Context<'_>, pod: &PodInfo, _fragment: &mut Fragment) -> Kept {
        if pod.pod.spec.volumes.iter().any(may_attach) {
            Kept::Never
        } else {
            Kept::ByFragment
        }
    }
}

/// Pods that have volumes of the driver written into them; without a driver, those that have claims.
fn attached_by(driver: Option<&str>) -> WaitKey {
    WaitKey::of(("attached by", driver))
}

/// What a pod that was turned down waits for of attachments.
fn waits_for_detaching(pod: &Pod) -> Waits {
    let claims = shared_claims(pod).next().map(|_| attached_by(None));
    let inline = pod.spec.volumes.iter().filter_map(Volume::migrated);
    let drivers = inline.map(|volume| attached_by(Some(&volume.driver)));
    claims.into_iter().chain(drivers).collect()
}

/// What an attachment leaves that is gone.
fn touched_by_detaching(change: &Change<'_>) -> Touched {
    let attachment = change.old.and_then(|old| old.as_volume_attachment());
    attachment.map_or_else(Touched::everything, |attachment| {
        [None, Some(attachment.spec.attacher.as_str())]
            .map(attached_by)
            .into_iter()
            .collect()
    })
}

impl EnqueueExtensions for NodeVolumeLimits {
    fn events(self: Arc<Self>, _features: &FeatureGates) -> Vec<EventRegistration> {
        vec![
            EventRegistration::always(EventResource::CsiNode, ActionType::ADD),
            // A node may come after its CSINode, or have none and so no limits.
            EventRegistration::supplementary(EventResource::Node, ActionType::ADD, |_, _, _| {
                Ok(Hint::Queue)
            }),
            EventRegistration::with_hint(
                EventResource::CsiNode,
                ActionType::UPDATE,
                |_, _, change| after_csi_node_update(&change),
            )
            .touching(|_, change| all_or_nobody(&after_csi_node_update(&change))),
            EventRegistration::with_hint(EventResource::Pod, ActionType::DELETE, |_, _, change| {
                after_pod_delete(&change)
            })
            .touching(|_, change| all_or_nobody(&after_pod_delete(&change))),
            EventRegistration::with_hint(
                EventResource::PersistentVolumeClaim,
                ActionType::ADD,
                |_, pod, change| {
                    let claim = change.new.and_then(|new| new.as_persistent_volume_claim());
                    let claim = claim.ok_or("expected a claim")?;
                    Ok(if uses_claim(pod, claim) {
                        Hint::Queue
                    } else {
                        Hint::Skip
                    })
                },
            )
            .found_by(waits_for_claims, |_, change| touched_by_claim(change)),
            EventRegistration::with_hint(
                EventResource::VolumeAttachment,
                ActionType::DELETE,
                |_, pod, change| after_detach(pod, &change),
            )
            .found_by(waits_for_detaching, |_, change| {
                touched_by_detaching(&change)
            }),
        ]
    }
}

#[cfg(test)]
#[path = "node_volume_limits_tests.rs"]
mod tests;
