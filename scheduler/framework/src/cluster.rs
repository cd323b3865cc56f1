//! The cluster as the scheduler knows it.

mod budgets;
mod capacity;
mod claims;
mod devices;
mod groups;
mod namespaced;
mod namespaces;
mod placed;
mod pods;
mod quotas;
mod rejections;
mod services;
mod storage;
mod volumes;
mod workloads;

pub use budgets::Budgets;
pub use capacity::StorageCapacities;
pub use claims::ResourceClaims;
pub use devices::Devices;
pub use groups::{
    GROUP_GATE_PLUGIN, GroupKey, GroupKind, GroupView, Groups, HIERARCHY_DEPTH_MAX, NoRoot,
};
pub use namespaced::{ByName, Namespaced};
pub use namespaces::ClusterNamespaces;
pub use pods::{ClusterPods, GroupMembers, claim_names};
pub use quotas::{
    BEFORE_MAX, DEFERRED_QUOTA, DEFERRED_QUOTA_KIND, EntryKey, LOOKS_MAX, LackOf, LineKey,
    OutOfLine, QUOTA_GATE_PLUGIN, QuotaAmount, QuotaChanges, QuotaLack, QuotaLimit, QuotaObstacle,
    QuotaOrder, QuotaResource, QuotaSpec, QuotaView, Quotas, RemovedQuota, SavedQuotas,
};
pub use rejections::{
    NodeRejections, REJECTION_WEIGHT, REJECTIONS_MAX, RejectionPolicy, Rejections, rejection_label,
    rejection_of,
};
pub use services::Services;
pub use storage::Storage;
pub use volumes::PersistentVolumes;
pub use workloads::Workloads;

use crate::features::{Behaviour, FeatureGates};
use crate::table::{ClaimKey, NodeTable};
use berth_api::requests::Footprint;
use berth_api::storage::CsiVolume;
use berth_api::{CustomKind, CustomObject, Object, ObjectMeta, Pod, Str};
use pods::VolumeSource;
use quotas::Facts;
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::Arc;

/// The nodes with their pods, and all other objects that plugins read.
///
/// Scheduling decisions use the cluster in place, without a copy. Explanations use a clone: they change it and read it
/// on another thread while the scheduler continues. A clone shares the objects and costs a few references per pod.
#[derive(Debug, Clone, Default)]
pub struct Cluster {
    /// The nodes and their pods, assumed pods included.
    pub nodes: NodeTable,
    /// Every pod, by UID: the stored object with the scheduler's unconfirmed writes applied.
    pub pods: ClusterPods,
    /// Pods, by UID, whose victims are not all evicted yet; see
    /// [`Outbox::start_preemption`](crate::stage::Outbox::start_preemption).
    pub preempting: FxHashSet<Str>,
    /// The counted resources of pods during an in-place resize. Set before pods are added.
    pub footprint: Footprint,
    groups: Groups,
    quotas: Quotas,
    rejections: Rejections,
    namespaces: ClusterNamespaces,
    workloads: Workloads,
    budgets: Budgets,
    storage: Storage,
    devices: Devices,
    custom: FxHashMap<CustomKind, Namespaced<CustomObject>>,
}

impl Cluster {
    /// Follows the release of these gates for objects that are set from now on. The initial release is the oldest one.
    pub fn follow(&mut self, features: &FeatureGates) {
        self.devices.follow(features);
        self.pods.follow(features);
        self.footprint = if features.has(Behaviour::ResizeFootprintOfPod) {
            Footprint::Pod
        } else {
            Footprint::Containers
        };
    }

    /// Pod groups and composite pod groups.
    pub fn groups(&self) -> &Groups {
        &self.groups
    }

    /// Returns whether a group exists and has enough members to be tried: pods for a pod group, ready children for a
    /// composite group.
    pub fn is_ready(&self, key: &GroupKey) -> bool {
        is_group_ready(&self.pods, &self.groups, key)
    }

    /// Deferred quotas.
    pub fn quotas(&self) -> &Quotas {
        &self.quotas
    }

    /// The deferred quotas, for taking their changes.
    pub fn quotas_mut(&mut self) -> &mut Quotas {
        &mut self.quotas
    }

    /// The pods that kubelets rejected.
    pub fn rejections(&self) -> &Rejections {
        &self.rejections
    }

    /// The rejections of pods by kubelets, for updates.
    pub fn rejections_mut(&mut self) -> &mut Rejections {
        &mut self.rejections
    }

    /// Changes the quotas, with the objects that they are computed from.
    fn with_quotas(&mut self, change: impl FnOnce(&mut Quotas, &Facts<'_>)) {
        let Self {
            pods,
            groups,
            devices,
            footprint,
            quotas,
            ..
        } = self;
        let facts = Facts {
            pods,
            groups,
            claims: devices.claims(),
            footprint: *footprint,
        };
        change(quotas, &facts);
    }

    /// Sets a pod under its UID and updates the quotas. Returns the previous version.
    pub fn set_pod(&mut self, uid: Str, pod: Arc<Pod>) -> Option<Arc<Pod>> {
        let namespace = pod.namespace().clone();
        let before = self.pods.insert(uid.clone(), pod);
        if !self.quotas.is_idle() {
            self.with_quotas(|quotas, facts| {
                quotas.pod_changed(&namespace, &uid, before.as_deref(), facts);
            });
        }
        before
    }

    /// Removes a pod; quotas follow.
    pub fn unset_pod(&mut self, uid: &str) -> Option<Arc<Pod>> {
        let pod = self.pods.remove(uid)?;
        if !self.quotas.is_idle() {
            let (namespace, uid) = (pod.namespace(), pod.uid());
            self.with_quotas(|quotas, facts| quotas.pod_changed(namespace, uid, Some(&pod), facts));
        }
        Some(pod)
    }

    /// Sets the schedulers whose pending pods wait for deferred quotas. Walks the pods of all namespaces with quotas.
    pub fn defer_pods_of(&mut self, schedulers: Vec<Str>) {
        self.with_quotas(|quotas, facts| quotas.defer_pods_of(schedulers, facts));
    }

    /// Namespaces.
    pub fn namespaces(&self) -> &ClusterNamespaces {
        &self.namespaces
    }

    /// Services and the controllers of pods.
    pub fn workloads(&self) -> &Workloads {
        &self.workloads
    }

    /// Disruption budgets.
    pub fn budgets(&self) -> &Budgets {
        &self.budgets
    }

    /// The objects of volumes.
    pub fn storage(&self) -> &Storage {
        &self.storage
    }

    /// Claims for devices, their classes, and the devices.
    pub fn devices(&self) -> &Devices {
        &self.devices
    }

    /// The objects of a custom kind; `None` before the first one.
    pub fn custom(&self, kind: CustomKind) -> Option<&Namespaced<CustomObject>> {
        self.custom.get(&kind)
    }

    /// Returns whether only one pod, the user of the claim, can use the volume behind a claim. Pods with and without a
    /// node count.
    pub fn is_used_by_one(&self, claim: &ObjectMeta, volume: &CsiVolume) -> bool {
        let claim = VolumeSource::Claim((claim.namespace.clone(), claim.name.clone()));
        let inline = VolumeSource::Inline(volume.clone());
        self.pods.volume_users(&claim) <= 1
            && self.pods.volume_users(&inline) == 0
            && self.nodes.volumes().sources(volume) <= 1
    }

    /// Returns whether any node has a limit for the volumes of a CSI driver. Nodes without a node object count, too.
    pub fn has_volume_limit(&self, driver: &str) -> bool {
        self.nodes.volumes().has_limit(driver)
    }

    /// Sets an object, and returns whether it was set. Pods and nodes are not, because the owner of the table sets
    /// them.
    pub fn set(&mut self, object: &Object) -> bool {
        self.put(object, true)
    }

    /// Removes an object, and returns whether it was removed. Pods and nodes are not.
    pub fn unset(&mut self, object: &Object) -> bool {
        self.put(object, false)
    }

    fn put(&mut self, object: &Object, is_there: bool) -> bool {
        match object {
            Object::Pod(_) | Object::Node(_) => false,
            Object::Namespace(namespace) => {
                self.namespaces.put(namespace, is_there);
                true
            }
            Object::PodDisruptionBudget(budget) => {
                self.budgets.put(budget, is_there);
                true
            }
            Object::Custom(custom) => {
                let kind = self.custom.entry(custom.kind).or_default();
                kind.put(object.metadata(), custom, is_there);
                if custom.kind == DEFERRED_QUOTA {
                    self.with_quotas(|quotas, facts| quotas.put(custom, is_there, facts));
                }
                true
            }
            Object::PodGroup(_) | Object::CompositePodGroup(_) if !self.quotas.is_idle() => {
                let Some(key) = GroupKey::of_object(object) else {
                    return false;
                };
                // A changed group can move leaf groups to another parent: the leaves before and after the change are
                // updated.
                let mut leaves = self.quotas.leaves_of(&key, &self.groups);
                self.groups.put(object, is_there);
                leaves.extend(self.quotas.leaves_of(&key, &self.groups));
                self.with_quotas(|quotas, facts| quotas.groups_changed(leaves, facts));
                true
            }
            Object::ResourceClaim(claim) if !self.quotas.is_idle() => {
                self.devices.put(object, is_there, &mut self.nodes);
                self.with_quotas(|quotas, facts| quotas.claim_changed(claim, facts));
                true
            }
            _ => {
                self.workloads.put(object, is_there)
                    || self.groups.put(object, is_there)
                    || self.storage.put(object, is_there, &mut self.nodes)
                    || self.devices.put(object, is_there, &mut self.nodes)
            }
        }
    }
}

/// Returns whether enough members of a group are known; see [`Cluster::is_ready`].
fn is_group_ready(pods: &ClusterPods, groups: &Groups, key: &GroupKey) -> bool {
    is_ready_below(pods, groups, key, 0)
}

fn is_ready_below(pods: &ClusterPods, groups: &Groups, key: &GroupKey, level: usize) -> bool {
    let Some(spec) = groups.spec(key) else {
        return false;
    };
    let min = spec.min();
    match key.kind {
        GroupKind::PodGroup => pods.members(key).map_or(0, GroupMembers::known) >= min,
        // Deeper levels are a cycle, whose groups are never tried.
        GroupKind::CompositePodGroup if level > 2 * HIERARCHY_DEPTH_MAX => false,
        GroupKind::CompositePodGroup => {
            let children = groups.children_unordered(key);
            let ready = children.filter(|child| is_ready_below(pods, groups, child, level + 1));
            ready.take(min).count() >= min
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_api::Kind;

    #[test]
    fn every_kind_but_pods_and_nodes_is_kept_here() {
        let mut cluster = Cluster::default();
        let foos = CustomKind::of("foos.v1.example.com").unwrap();
        let kinds = || Kind::ALL.iter().copied().chain([Kind::Custom(foos)]);
        for kind in kinds() {
            let json = br#"{"metadata":{"name":"n","namespace":"s"}}"#;
            let object = kind.decode(json).unwrap();
            let elsewhere = matches!(kind, Kind::Pod | Kind::Node);
            assert_eq!(cluster.set(&object), !elsewhere, "{kind:?}");
        }
        assert!(cluster.workloads.services().get("s", "n").is_some());
        assert_eq!(
            cluster.workloads.services().of_namespace("other").count(),
            0
        );
        assert!(cluster.storage.classes().contains_key("n"));
        assert!(cluster.custom[&foos].get("s", "n").is_some());
        for kind in kinds() {
            let json = br#"{"metadata":{"name":"n","namespace":"s"}}"#;
            cluster.unset(&kind.decode(json).unwrap());
        }
        assert!(cluster.workloads.services().get("s", "n").is_none());
        assert_eq!(cluster.workloads.services().iter().count(), 0);
        assert!(cluster.storage.classes().is_empty());
        assert_eq!(cluster.custom[&foos].iter().count(), 0);
    }
}
