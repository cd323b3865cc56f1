//! Rejects nodes to which a CSI driver cannot attach the volumes of the pod.
//!
//! A volume counts once per node, however many pods use it. A claim without a volume yet counts as one volume of the
//! driver that will provision it. An in-tree volume of a migrated plugin counts for the plugin's CSI driver.
//!
//! With the gate VolumeLimitScaling (KEP-5030), nodes without the driver are rejected, too, if the CSIDriver asks for
//! that.

use crate::change::is_assigned_or_nominated;
use crate::volumes::{check_owner, claim_names, look_up, when_own_claim};
use berth_api::pod::Volume;
use berth_api::storage::CsiVolume;
use berth_api::volumes::{PodClaim, shared_claims};
use berth_api::{CsiDriver, CsiNode, Object, Pod, Str};
use berth_framework::event::{
    ActionType, Change, EventRegistration, EventResource, Hint, HintError, WaitKey, Wanted,
};
use berth_framework::keep::constant;
use berth_framework::plugin::{Context, EnqueueExtensions};
use berth_framework::registry::{ArgsKind, Extensions, Registration};
use berth_framework::requirement::NodeFilter;
use berth_framework::{
    Cluster, Feature, FeatureGates, Lack, NodeView, PodInfo, ReasonCode, Status,
};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The plugin's name.
pub const NAME: &str = "NodeVolumeLimits";

/// The reason on a node at its limit.
pub const REASON: &str = "node(s) exceed max volume count";

/// Attach limits of CSI drivers.
#[derive(Debug, Default)]
pub struct NodeVolumeLimits;

/// The reason on a node without a CSI driver.
fn not_installed(driver: &Str) -> String {
    format!("{driver} CSI driver is not installed on the node")
}

/// The volumes of a pod whose driver has a limit on some node.
#[derive(Debug, Default, Hash)]
pub struct RequiredVolumes {
    /// The drivers of the pod's volumes that must be installed on a node, sorted, and whether the volumes are in-tree
    /// volumes, which are CSI volumes only on nodes with CSI drivers.
    installed: Vec<(Str, bool)>,
    /// The volumes that other pods may use too, without duplicates.
    volumes: Vec<CsiVolume>,
    /// The drivers of volumes that no other pod uses, with the number of these volumes. It is equal for the pods of a
    /// template with claims of their own.
    own: Vec<(Str, usize)>,
    /// The fault of a claim.
    problem: Option<Status>,
}

/// Returns whether the volume may be one that a CSI driver attaches.
fn may_attach(volume: &Volume) -> bool {
    volume.persistent_volume_claim.is_some()
        || volume.ephemeral.is_some()
        || volume.migrated().is_some()
}

impl RequiredVolumes {
    fn of(cx: &Context<'_>, pod: &Pod) -> Self {
        let cluster = cx.cluster;
        let needs_drivers = cx.features.enabled(Feature::VolumeLimitScaling);
        let mut required = Self::default();
        let mut own: Vec<CsiVolume> = Vec::new();
        let mut known = FxHashSet::default();
        for volume in &pod.spec.volumes {
            let NewVolume {
                volume,
                is_own,
                is_in_tree,
            } = match csi_volume(cluster, pod, volume) {
                Ok(Some(found)) => found,
                Ok(None) => continue,
                Err(problem) => {
                    // The problem rejects the pod on every node, so the other volumes do not matter.
                    required.problem = Some(problem);
                    break;
                }
            };
            if needs_drivers && must_be_installed(cluster, &volume.driver) {
                required.installed.push((volume.driver.clone(), is_in_tree));
            }
            // Volumes of drivers without a limit are omitted, so that pods that differ only in them share their
            // answers.
            if !cluster.has_volume_limit(&volume.driver) {
                continue;
            }
            let volumes = if is_own {
                &mut own
            } else {
                &mut required.volumes
            };
            // A volume counts once, even if the pod refers to it twice (PL-127).
            if known.insert((is_own, volume.clone())) {
                volumes.push(volume);
            }
        }
        required.installed.sort_unstable();
        required.installed.dedup();
        // Only the number of own volumes is kept: their names would distinguish the pods of a template.
        let mut counts: BTreeMap<Str, usize> = BTreeMap::new();
        for volume in own {
            *counts.entry(volume.driver).or_default() += 1;
        }
        required.own = counts.into_iter().collect();
        required
    }

    /// The required drivers that the node does not have.
    fn missing_drivers<'a>(&'a self, node: NodeView<'a>) -> impl Iterator<Item = &'a Str> {
        let missing = self.installed.iter().filter(move |(driver, is_in_tree)| {
            !node.has_csi_driver(driver) && (!is_in_tree || node.has_csi_drivers())
        });
        missing.map(|(driver, _)| driver)
    }

    /// The volumes that the pod adds to the node: the drivers, each with the number of its volumes.
    fn added<'a>(&'a self, node: NodeView<'_>) -> SmallVec<[(&'a Str, usize); 4]> {
        // A pod can have thousands of volumes, so they are counted once, not for each driver. As in kube-scheduler, an
        // attached volume that no pod uses counts even if the pod will use it.
        let shared = self.volumes.iter();
        let shared = shared.filter(|volume| !node.uses_volume(volume));
        let shared = shared.map(|volume| (&volume.driver, 1));
        let own = self.own.iter().map(|(driver, count)| (driver, *count));
        let mut added: SmallVec<[(&Str, usize); 4]> = own.chain(shared).collect();
        added.sort_unstable();
        added.dedup_by(|(driver, count), (kept, sum)| {
            let is_same = driver == kept;
            if is_same {
                *sum += *count;
            }
            is_same
        });
        added
    }

    fn check(&self, node: NodeView<'_>) -> Status {
        if let Some(problem) = &self.problem {
            return problem.clone();
        }
        // kube-scheduler names any missing driver, Berth the first.
        if let Some(missing) = self.missing_drivers(node).next() {
            return Status::unschedulable(ReasonCode::VolumeLimit.reason(not_installed(missing)));
        }
        let added = self.added(node);
        let mut added = added.iter();
        if added.any(|(driver, count)| Excess::of(driver, *count, node).is_some()) {
            Status::unschedulable(ReasonCode::VolumeLimit.reason(REASON))
        } else {
            Status::success()
        }
    }

    fn lacks(&self, node: NodeView<'_>) -> Vec<Lack> {
        if self.problem.is_some() {
            return Vec::new();
        }
        let missing = self.missing_drivers(node).map(|driver| Lack::CsiDriver {
            driver: driver.clone(),
        });
        let mut lacks: Vec<Lack> = missing.collect();
        let added = self.added(node);
        for (driver, count) in added {
            let excess = Excess::of(driver, count, node);
            lacks.extend(excess.map(|excess| Lack::Volumes {
                driver: driver.clone(),
                wanted: excess.added,
                attached: excess.attached,
                limit: excess.limit,
            }));
        }
        lacks
    }
}

/// More volumes of a driver than it can attach to a node.
struct Excess {
    added: usize,
    attached: usize,
    limit: i64,
}

impl Excess {
    fn of(driver: &Str, added: usize, node: NodeView<'_>) -> Option<Self> {
        let limit = node.volume_limit(driver)?;
        let excess = Self {
            added,
            attached: node.attached_volumes(driver),
            limit,
        };
        let all = excess.attached.saturating_add(excess.added);
        (i64::try_from(all).unwrap_or(i64::MAX) > limit).then_some(excess)
    }
}

/// Returns whether pods with volumes of the driver may run only on nodes that have it.
fn must_be_installed(cluster: &Cluster, driver: &str) -> bool {
    let driver = cluster.storage().csi_drivers().get(driver);
    driver.is_some_and(|driver| driver.spec.prevent_pod_scheduling_if_missing == Some(true))
}

/// A CSI volume of a new pod.
struct NewVolume {
    volume: CsiVolume,
    /// Whether no other pod can use it.
    is_own: bool,
    /// Whether it is a volume of an in-tree plugin.
    is_in_tree: bool,
}

/// The CSI volume behind a volume of a new pod.
///
/// # Errors
/// The problem of its claim.
fn csi_volume(cluster: &Cluster, pod: &Pod, volume: &Volume) -> Result<Option<NewVolume>, Status> {
    let Some(used) = PodClaim::of(pod, volume) else {
        return Ok(volume.migrated().map(|volume| NewVolume {
            volume,
            is_own: false,
            is_in_tree: true,
        }));
    };
    // As upstream: a missing claim is unresolvable, the other problems are errors.
    if used.name.is_empty() {
        return Err(Status::error("PersistentVolumeClaim had no name"));
    }
    let claim = look_up(cluster, pod, &used.name).map_err(|error| {
        let claim = format!("{}/{}", pod.namespace(), used.name);
        Status::unresolvable(
            error
                .code()
                .reason(format!("looking up PVC {claim}: {error}")),
        )
    })?;
    if used.is_ephemeral {
        check_owner(pod, claim).map_err(|error| Status::error(error.to_string()))?;
    }
    Ok(cluster.storage().csi_volume_of(claim).map(|volume| {
        let is_own = cluster.is_used_by_one(&claim.metadata, &volume);
        NewVolume {
            volume,
            is_own,
            is_in_tree: cluster.storage().is_in_tree(claim),
        }
    }))
}

/// The number of volumes that each driver can attach to the node; drivers without a limit are left out.
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
            .node_filter()
            .events()
            .fragment_version(constant)
            .build())
    })
    .args(ArgsKind::None)
    .by_default(None)
}

impl NodeFilter for NodeVolumeLimits {
    type Requirement = RequiredVolumes;

    fn requirement(
        &self,
        cx: &Context<'_>,
        pod: &PodInfo,
    ) -> Result<Option<RequiredVolumes>, Status> {
        let pod = &pod.pod;
        let may_attach = pod.spec.volumes.iter().any(may_attach);
        Ok(may_attach.then(|| RequiredVolumes::of(cx, pod)))
    }

    fn check(&self, required: &RequiredVolumes, node: NodeView<'_>) -> Status {
        required.check(node)
    }

    fn lacks(&self, required: &RequiredVolumes, node: NodeView<'_>) -> Vec<Lack> {
        required.lacks(node)
    }
}

/// The node has a driver that it did not have before.
fn adds_driver(change: &Change<'_>) -> Result<bool, HintError> {
    let (Some(old), Some(new)) = change.versions(Object::as_csi_node, "a CSI node")? else {
        return Err(HintError::OneVersion {
            expected: "a CSI node",
        });
    };
    let is_known = |name: &Str| old.spec.drivers.iter().any(|driver| driver.name == *name);
    Ok(new
        .spec
        .drivers
        .iter()
        .any(|driver| !is_known(&driver.name)))
}

/// A driver of the node has no limit any more, or the node no longer has it.
fn lifts_limit(change: &Change<'_>) -> Result<bool, HintError> {
    let (Some(old), Some(new)) = change.versions(Object::as_csi_node, "a CSI node")? else {
        return Err(HintError::OneVersion {
            expected: "a CSI node",
        });
    };
    let now = limits(new);
    Ok(limits(old).keys().any(|driver| !now.contains_key(*driver)))
}

/// The drivers for which a pod no longer needs a node that has them.
fn stops_requiring(change: &Change<'_>) -> Result<bool, HintError> {
    let (old, new) = change.versions(Object::as_csi_driver, "a CSI driver")?;
    let requires = |driver: &CsiDriver| driver.spec.prevent_pod_scheduling_if_missing == Some(true);
    Ok(old.is_some_and(requires) && !new.is_some_and(requires))
}

/// A driver of the node can attach more volumes than before.
fn raises_limit(change: &Change<'_>) -> Result<bool, HintError> {
    let (Some(old), Some(new)) = change.versions(Object::as_csi_node, "a CSI node")? else {
        return Err(HintError::OneVersion {
            expected: "a CSI node",
        });
    };
    let (old, new) = (limits(old), limits(new));
    let grows = |(driver, limit): (&&Str, &i64)| *limit > old.get(*driver).copied().unwrap_or(0);
    Ok(new.iter().any(grows))
}

/// A pod with volumes that a driver may attach was deleted.
fn deletes_user(change: &Change<'_>) -> Result<bool, HintError> {
    let (deleted, _) = change.pods()?;
    Ok(deleted.is_some_and(|deleted| {
        is_assigned_or_nominated(deleted) && deleted.spec.volumes.iter().any(may_attach)
    }))
}

/// The driver of an attachment that a pod waits for; `None` for the unknown driver of a claim.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Attacher(Option<Str>);

impl Wanted for Attacher {
    fn key(&self) -> WaitKey {
        WaitKey::of(self)
    }

    fn is_met_by(&self, detached: &Self) -> bool {
        self == detached
    }
}

fn attachers(pod: &Pod) -> Vec<Attacher> {
    let claims = shared_claims(pod).next().map(|_| Attacher(None));
    let inline = pod.spec.volumes.iter().filter_map(Volume::migrated);
    let drivers = inline.map(|volume| Attacher(Some(volume.driver)));
    claims.into_iter().chain(drivers).collect()
}

/// A deleted attachment helps pods with volumes of its driver in their spec, and all pods with claims.
fn detached(change: &Change<'_>) -> Result<Vec<Attacher>, HintError> {
    let (attachment, _) = change.versions(Object::as_volume_attachment, "a volume attachment")?;
    let attacher = attachment.map(|attachment| attachment.spec.attacher.clone());
    Ok([None, attacher].map(Attacher).into())
}

impl EnqueueExtensions for NodeVolumeLimits {
    fn events(self: Arc<Self>, features: &FeatureGates) -> Vec<EventRegistration> {
        let needs_drivers = features.enabled(Feature::VolumeLimitScaling);
        let mut events = vec![
            EventRegistration::always(EventResource::CsiNode, ActionType::ADD),
            EventRegistration::when(EventResource::CsiNode, ActionType::UPDATE, raises_limit),
            // kube-scheduler misses limits that are lifted, and drivers without a limit that are added.
            EventRegistration::supplementary(
                EventResource::CsiNode,
                ActionType::UPDATE,
                move |_, _, change| {
                    let helps = lifts_limit(&change)? || needs_drivers && adds_driver(&change)?;
                    Ok(Hint::queue_if(helps))
                },
            ),
            // A node without a CSINode has no limits. The CSINode of a deleted node may be deleted when a new node of that
            // name exists already.
            EventRegistration::supplementary(
                EventResource::CsiNode,
                ActionType::DELETE,
                |_, _, _| Ok(Hint::Queue),
            ),
            // A node may be added after its CSINode, or have no CSINode and therefore no limits.
            EventRegistration::supplementary(EventResource::Node, ActionType::ADD, |_, _, _| {
                Ok(Hint::Queue)
            }),
            EventRegistration::when(EventResource::Pod, ActionType::DELETE, deletes_user),
            when_own_claim(ActionType::ADD, claim_names),
            EventRegistration::matching(
                EventResource::VolumeAttachment,
                ActionType::DELETE,
                attachers,
                detached,
            ),
        ];
        if needs_drivers {
            // kube-scheduler misses changes of a driver's object.
            events.push(EventRegistration::supplementary(
                EventResource::CsiDriver,
                ActionType::UPDATE | ActionType::DELETE,
                |_, _, change| stops_requiring(&change).map(Hint::queue_if),
            ));
        }
        events
    }
}

#[cfg(test)]
#[path = "node_volume_limits_tests.rs"]
mod tests;
