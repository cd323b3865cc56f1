//! The cluster as the scheduler knows it.

mod capacity;
mod claims;
mod placed;
mod pods;
mod services;
mod storage;

pub use capacity::StorageCapacities;
pub use claims::ResourceClaims;
pub use pods::{Pods, claim_names};
pub use services::Services;
pub use storage::PersistentVolumes;

use crate::table::{ClaimKey, NodeTable};
use berth_api::{
    CsiDriver, CsiNode, CustomKind, CustomObject, DeviceClass, Labels, Namespace, Object,
    PersistentVolumeClaim, PodDisruptionBudget, ReplicaSet, ReplicationController, StatefulSet,
    StorageClass, Str, VolumeAttachment,
};
use berth_devices::Inventory;
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::Arc;
use storage::VolumeUsers;

/// Cluster-scoped objects of one kind, by name.
pub type ByName<T> = FxHashMap<Str, Arc<T>>;

/// Namespaced objects of one kind.
#[derive(Debug)]
pub struct Namespaced<T> {
    namespaces: FxHashMap<Str, ByName<T>>,
}

impl<T> Clone for Namespaced<T> {
    fn clone(&self) -> Self {
        Self {
            namespaces: self.namespaces.clone(),
        }
    }
}

impl<T> Default for Namespaced<T> {
    fn default() -> Self {
        Self {
            namespaces: FxHashMap::default(),
        }
    }
}

impl<T> Namespaced<T> {
    /// An object.
    pub fn get(&self, namespace: &str, name: &str) -> Option<&Arc<T>> {
        self.namespaces.get(namespace)?.get(name)
    }

    /// The objects of a namespace, in no particular order.
    pub fn of_namespace(&self, namespace: &str) -> impl Iterator<Item = &Arc<T>> {
        self.namespaces
            .get(namespace)
            .into_iter()
            .flat_map(ByName::values)
    }

    /// All objects, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<T>> {
        self.namespaces.values().flat_map(ByName::values)
    }

    /// Sets an object.
    pub fn insert(&mut self, namespace: &Str, name: &Str, object: Arc<T>) -> Option<Arc<T>> {
        self.namespaces
            .entry(namespace.clone())
            .or_default()
            .insert(name.clone(), object)
    }

    /// Removes an object.
    pub fn remove(&mut self, namespace: &str, name: &str) -> Option<Arc<T>> {
        let objects = self.namespaces.get_mut(namespace)?;
        let removed = objects.remove(name);
        if objects.is_empty() {
            self.namespaces.remove(namespace);
        }
        removed
    }
}

/// Nodes with their pods, and every other object that plugins read.
///
/// Decisions are made in place and never on a copy. A clone is for explanations: they change the copy and read it on
/// another thread while the scheduler goes on. It shares the objects and costs a few references for each pod.
#[derive(Debug, Clone, Default)]
pub struct Cluster {
    /// The nodes and their pods, assumed pods included.
    pub nodes: NodeTable,
    /// Namespaces by name. Changed through [`Cluster::set`] and [`Cluster::unset`].
    pub namespaces: ByName<Namespace>,
    namespaces_version: u64,
    budgets_version: u64,
    /// Every pod, by UID: the stored object with the scheduler's unconfirmed writes applied.
    pub pods: Pods,
    /// Services. Changed through [`Cluster::set`] and [`Cluster::unset`].
    pub services: Services,
    /// Replication controllers.
    pub replication_controllers: Namespaced<ReplicationController>,
    /// Replica sets.
    pub replica_sets: Namespaced<ReplicaSet>,
    /// Stateful sets.
    pub stateful_sets: Namespaced<StatefulSet>,
    /// Disruption budgets. Changed through [`Cluster::set`] and [`Cluster::unset`].
    pub pod_disruption_budgets: Namespaced<PodDisruptionBudget>,
    /// Volumes by name, with the scheduler's unconfirmed writes applied. These and the other storage objects are
    /// changed through [`Cluster::set`] and [`Cluster::unset`].
    pub persistent_volumes: PersistentVolumes,
    /// Claims, with the scheduler's unconfirmed writes applied.
    pub persistent_volume_claims: Namespaced<PersistentVolumeClaim>,
    /// Storage classes by name.
    pub storage_classes: ByName<StorageClass>,
    /// The CSI drivers of nodes, by the node's name.
    pub csi_nodes: ByName<CsiNode>,
    /// CSI drivers by name.
    pub csi_drivers: ByName<CsiDriver>,
    /// The capacity of CSI drivers.
    pub csi_storage_capacities: StorageCapacities,
    /// Attached volumes by the name of the attachment.
    pub volume_attachments: ByName<VolumeAttachment>,
    /// Classes of devices by name.
    pub device_classes: ByName<DeviceClass>,
    /// Claims for devices, with the scheduler's unconfirmed writes applied.
    pub resource_claims: ResourceClaims,
    /// The devices that drivers publish and that are allocated. Follows the slices and claims.
    pub devices: Inventory,
    /// Objects of kinds that only plugins read.
    pub custom: FxHashMap<CustomKind, Namespaced<CustomObject>>,
    /// Pods, by UID, whose victims are not all evicted yet; see
    /// [`Outbox::start_preemption`](crate::stage::Outbox::start_preemption).
    pub preempting: FxHashSet<Str>,
    volume_users: VolumeUsers,
}

impl Cluster {
    /// The labels of a namespace; none when it is not known.
    pub fn namespace_labels(&self, name: &str) -> Labels {
        self.namespaces
            .get(name)
            .map(|namespace| namespace.metadata.labels.clone())
            .unwrap_or_default()
    }

    /// Changes whenever a namespace has other labels than before.
    pub fn namespaces_version(&self) -> u64 {
        self.namespaces_version
    }

    /// Changes with every change of a disruption budget.
    pub fn budgets_version(&self) -> u64 {
        self.budgets_version
    }

    /// To be called before a namespace is set or removed.
    fn relabel_namespace(&mut self, namespace: &Namespace, is_there: bool) {
        let labels = match is_there {
            true => namespace.metadata.labels.clone(),
            false => Labels::default(),
        };
        let before = self.namespace_labels(&namespace.metadata.name);
        self.namespaces_version += u64::from(before != labels);
    }

    /// Sets an object that is neither a pod nor a node, and returns whether that was done: pods and nodes are set by
    /// the owner of the table.
    pub fn set(&mut self, object: &Object) -> bool {
        self.store(object, true)
    }

    /// Removes an object that is neither a pod nor a node, and returns whether that was done.
    pub fn unset(&mut self, object: &Object) -> bool {
        self.store(object, false)
    }

    /// The devices of these nodes changed, or which of them are allocated.
    fn devices_changed(&mut self, nodes: &[Str]) {
        for node in nodes {
            if let Some(slot) = self.nodes.slot(node) {
                self.nodes.storage_changed(slot);
            }
        }
    }

    fn store(&mut self, object: &Object, is_there: bool) -> bool {
        let meta = object.metadata();
        let (namespace, name) = (&meta.namespace, &meta.name);
        macro_rules! by_name {
            ($store:ident, $object:ident) => {
                match is_there {
                    true => self.$store.insert(name.clone(), $object.clone()),
                    false => self.$store.remove(name),
                }
            };
        }
        macro_rules! namespaced {
            ($store:expr, $object:ident) => {
                match is_there {
                    true => $store.insert(namespace, name, $object.clone()),
                    false => $store.remove(namespace, name),
                }
            };
        }
        match object {
            Object::Pod(_) | Object::Node(_) => return false,
            Object::Namespace(object) => {
                self.relabel_namespace(object, is_there);
                by_name!(namespaces, object);
            }
            Object::Service(object) => {
                namespaced!(self.services, object);
            }
            Object::ReplicationController(object) => {
                namespaced!(self.replication_controllers, object);
            }
            Object::ReplicaSet(object) => {
                namespaced!(self.replica_sets, object);
            }
            Object::StatefulSet(object) => {
                namespaced!(self.stateful_sets, object);
            }
            Object::PodDisruptionBudget(object) => {
                self.budgets_version += 1;
                namespaced!(self.pod_disruption_budgets, object);
            }
            Object::PersistentVolume(object) => {
                let before = match is_there {
                    true => self.persistent_volumes.insert(object.clone()),
                    false => self.persistent_volumes.remove(name),
                };
                self.follow_free_volume([before.as_ref(), is_there.then_some(object)]);
                self.follow_volume(name);
            }
            Object::PersistentVolumeClaim(object) => {
                let before = namespaced!(self.persistent_volume_claims, object);
                self.follow_claim(before, object);
            }
            Object::StorageClass(object) => {
                let before = by_name!(storage_classes, object);
                self.follow_class(before, name);
            }
            Object::CsiNode(object) => {
                by_name!(csi_nodes, object);
                self.follow_csi_node(name);
            }
            Object::CsiDriver(object) => {
                by_name!(csi_drivers, object);
            }
            Object::CsiStorageCapacity(object) => {
                let before = self.csi_storage_capacities.set(object, is_there);
                self.follow_capacity([before.as_ref(), is_there.then_some(object)]);
            }
            Object::VolumeAttachment(object) => {
                let before = by_name!(volume_attachments, object);
                self.follow_attachment(before, object);
            }
            Object::DeviceClass(object) => {
                by_name!(device_classes, object);
            }
            Object::ResourceClaim(object) => {
                let before = namespaced!(self.resource_claims, object);
                let before = before.as_ref().and_then(|c| c.status.allocation.as_ref());
                let after = object.status.allocation.as_ref().filter(|_| is_there);
                let nodes = self.devices.set_allocation(before, after);
                self.devices_changed(&nodes);
            }
            Object::ResourceSlice(object) => {
                let nodes = match is_there {
                    true => self.devices.set_slice(object),
                    false => self.devices.remove_slice(name),
                };
                self.devices_changed(&nodes);
            }
            Object::DeviceTaintRule(object) => {
                let nodes = match is_there {
                    true => self.devices.set_taint_rule(object),
                    false => self.devices.remove_taint_rule(name),
                };
                self.devices_changed(&nodes);
            }
            Object::Custom(object) => {
                let kind = self.custom.entry(object.kind).or_default();
                namespaced!(kind, object);
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_api::Kind;

    #[test]
    fn the_version_of_namespaces_follows_their_labels() {
        let mut cluster = Cluster::default();
        let namespace = |name: &str, labels: &str| {
            let json = format!(r#"{{"metadata":{{"name":"{name}","labels":{labels}}}}}"#);
            Kind::Namespace.decode(json.as_bytes()).unwrap()
        };
        for (what, object, is_there, version) in [
            ("without labels", namespace("a", "{}"), true, 0),
            ("with a label", namespace("b", r#"{"team":"red"}"#), true, 1),
            (
                "the same again",
                namespace("b", r#"{"team":"red"}"#),
                true,
                1,
            ),
            (
                "another label",
                namespace("b", r#"{"team":"blue"}"#),
                true,
                2,
            ),
            ("gone without labels", namespace("a", "{}"), false, 2),
            ("gone with a label", namespace("b", "{}"), false, 3),
            ("gone already", namespace("b", "{}"), false, 3),
        ] {
            match is_there {
                true => cluster.set(&object),
                false => cluster.unset(&object),
            };
            assert_eq!(cluster.namespaces_version(), version, "{what}");
        }
    }

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
        assert!(cluster.services.get("s", "n").is_some());
        assert_eq!(cluster.services.of_namespace("other").count(), 0);
        assert!(cluster.storage_classes.contains_key("n"));
        assert!(cluster.custom[&foos].get("s", "n").is_some());
        for kind in kinds() {
            let json = br#"{"metadata":{"name":"n","namespace":"s"}}"#;
            cluster.unset(&kind.decode(json).unwrap());
        }
        assert!(cluster.services.get("s", "n").is_none());
        assert_eq!(cluster.services.iter().count(), 0);
        assert!(cluster.storage_classes.is_empty());
        assert_eq!(cluster.custom[&foos].iter().count(), 0);
    }
}
