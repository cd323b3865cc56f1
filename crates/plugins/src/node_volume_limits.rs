//! Keeps pods off nodes to which a CSI driver can attach no more volumes.
//!
//! A volume counts once per node, however many pods use it. A claim without a volume yet counts as one volume of the
//! driver that will provision it. An in-tree volume of a migrated plugin counts for the plugin's CSI driver.

use crate::change::{is_assigned_or_nominated, pods};
use crate::volumes::{
    InTree, check_owner, claim_of, driver_of_plugin, inline_in_tree, look_up, shared_claims,
    uses_claim, volume_in_tree,
};
use crate::wake::{all_or_nobody, touched_by_claim, waits_for_claims};
use berth_api::pod::Volume;
use berth_api::{CsiNode, PersistentVolumeClaim, Pod, Str};
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

/// A volume by its driver and what the driver calls it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Attached {
    driver: Str,
    handle: String,
}

impl From<InTree> for Attached {
    fn from(volume: InTree) -> Self {
        Self {
            driver: Str::new(volume.driver),
            handle: volume.handle,
        }
    }
}

type Volumes = FxHashSet<Attached>;

/// The attachments of each node that have a CSI volume.
struct PreFilterState {
    attachments: FxHashMap<Str, Vec<Attached>>,
}

/// Whether the volume may be one that a CSI driver attaches.
fn may_attach(volume: &Volume) -> bool {
    volume.persistent_volume_claim.is_some()
        || volume.ephemeral.is_some()
        || inline_in_tree(volume).is_some()
}

/// What goes wrong with the volumes of a new pod.
enum Trouble {
    /// A claim is not there; the pod waits for it.
    NotFound(String),
    /// Something that must not be.
    Broken(String),
}

impl Trouble {
    fn into_status(self) -> Status {
        match self {
            Self::NotFound(text) => Status::unresolvable(text),
            Self::Broken(text) => Status::error(text),
        }
    }
}

/// Finds the CSI volumes behind the volumes of pods.
struct Finder<'a> {
    cluster: &'a Cluster,
}

impl Finder<'_> {
    /// Adds the volumes of a pod. Of pods that are there already, claims that are gone do not count.
    fn add(&self, pod: &Pod, is_new: bool, volumes: &mut Volumes) -> Result<(), Trouble> {
        for volume in &pod.spec.volumes {
            let Some(used) = claim_of(pod, volume) else {
                volumes.extend(self.of_inline(volume));
                continue;
            };
            if used.name.is_empty() {
                return Err(Trouble::Broken(
                    "PersistentVolumeClaim had no name".to_owned(),
                ));
            }
            let claim = match look_up(self.cluster, pod, &used.name) {
                Ok(claim) => claim,
                Err(error) if is_new => {
                    return Err(Trouble::NotFound(format!(
                        "looking up PVC {}/{}: {error}",
                        pod.namespace(),
                        used.name
                    )));
                }
                Err(_) => continue,
            };
            if used.is_ephemeral {
                check_owner(pod, claim).map_err(Trouble::Broken)?;
            }
            volumes.extend(self.of_claim(claim));
        }
        Ok(())
    }

    /// A migrated in-tree volume counts for its driver on every node. As in kube-scheduler, the annotation of the
    /// CSINode that lists migrated plugins does not matter; a node without a CSINode has no limits.
    fn of_inline(&self, volume: &Volume) -> Option<Attached> {
        inline_in_tree(volume).map(Attached::from)
    }

    fn of_claim(&self, claim: &PersistentVolumeClaim) -> Option<Attached> {
        let Some(volume) = self.cluster.persistent_volumes.get(&claim.spec.volume_name) else {
            return self.to_be_provisioned(claim);
        };
        if let Some(csi) = &volume.spec.csi {
            let known = !(csi.driver.is_empty() || csi.volume_handle.is_empty());
            return known.then(|| Attached {
                driver: csi.driver.clone(),
                handle: csi.volume_handle.to_string(),
            });
        }
        volume_in_tree(volume).map(Attached::from)
    }

    /// One volume of the class's driver, under a name that no driver gives.
    fn to_be_provisioned(&self, claim: &PersistentVolumeClaim) -> Option<Attached> {
        let class = self.cluster.storage_classes.get(claim.class())?;
        let meta = &claim.metadata;
        let handle = format!("\0{}/{}", meta.namespace, meta.name);
        let provisioner = &class.provisioner;
        let driver = driver_of_plugin(provisioner).map_or_else(|| provisioner.clone(), Str::new);
        (!driver.is_empty()).then_some(Attached { driver, handle })
    }
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

fn check(
    cluster: &Cluster,
    attachments: &[Attached],
    pod: &Pod,
    node: NodeView<'_>,
) -> Result<bool, Trouble> {
    let csi_node = cluster.csi_nodes.get(node.name()).map(AsRef::as_ref);
    let finder = Finder { cluster };
    let mut new = Volumes::default();
    finder.add(pod, true, &mut new)?;
    if new.is_empty() {
        return Ok(true);
    }
    let limits = csi_node.map(limits).unwrap_or_default();
    if limits.is_empty() {
        return Ok(true);
    }
    let mut there = Volumes::default();
    for other in node.pods() {
        finder.add(&other.pod, false, &mut there)?;
    }
    new.retain(|volume| !there.contains(volume));
    // As upstream, a volume that is attached though no pod uses it counts even if the pod will use it.
    let also: FxHashSet<&Attached> = attachments
        .iter()
        .filter(|volume| !there.contains(volume))
        .collect();
    let count_of = |driver: &Str, volumes: &mut dyn Iterator<Item = &Attached>| {
        i64::try_from(volumes.filter(|volume| volume.driver == *driver).count()).unwrap_or(i64::MAX)
    };
    Ok(limits.iter().all(|(driver, limit)| {
        let wanted = count_of(driver, &mut new.iter());
        let held = count_of(driver, &mut there.iter())
            .saturating_add(count_of(driver, &mut also.iter().copied()));
        wanted == 0 || held.saturating_add(wanted) <= *limit
    }))
}

fn attachments(cluster: &Cluster) -> FxHashMap<Str, Vec<Attached>> {
    let mut by_node: FxHashMap<Str, Vec<Attached>> = FxHashMap::default();
    for attachment in cluster.volume_attachments.values() {
        let spec = &attachment.spec;
        let volume = spec
            .source
            .persistent_volume_name
            .as_ref()
            .and_then(|name| cluster.persistent_volumes.get(name));
        if let Some(csi) = volume.and_then(|volume| volume.spec.csi.as_ref()) {
            by_node
                .entry(spec.node_name.clone())
                .or_default()
                .push(Attached {
                    driver: spec.attacher.clone(),
                    handle: csi.volume_handle.to_string(),
                });
        }
    }
    by_node
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
        state.write(PreFilterState {
            attachments: attachments(cx.cluster),
        });
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
        let Some(kept) = state.read::<PreFilterState>() else {
            return Status::error("NodeVolumeLimits: Filter ran without PreFilter");
        };
        let attachments = kept
            .attachments
            .get(node.name())
            .map_or(&[][..], Vec::as_slice);
        match check(cx.cluster, attachments, &pod.pod, node) {
            Ok(true) => Status::success(),
            Ok(false) => Status::unschedulable(REASON),
            Err(trouble) => trouble.into_status(),
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
        let mut inline = pod.spec.volumes.iter().filter_map(inline_in_tree);
        inline.any(|volume| attacher == volume.driver)
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
    let inline = pod.spec.volumes.iter().filter_map(inline_in_tree);
    let drivers = inline.map(|volume| attached_by(Some(volume.driver)));
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
