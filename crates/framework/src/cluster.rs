//! The cluster as the scheduler knows it.

mod pods;

pub use pods::{Pods, claim_names};

use crate::table::NodeTable;
use berth_api::{
    CsiDriver, CsiNode, CsiStorageCapacity, CustomKind, CustomObject, DeviceClass, Labels,
    Namespace, Object, PersistentVolume, PersistentVolumeClaim, PodDisruptionBudget, ReplicaSet,
    ReplicationController, ResourceClaim, ResourceSlice, Service, StatefulSet, StorageClass, Str,
    VolumeAttachment,
};
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::Arc;

/// Cluster-scoped objects of one kind, by name.
pub type ByName<T> = FxHashMap<Str, Arc<T>>;

/// Namespaced objects of one kind.
#[derive(Debug)]
pub struct Namespaced<T> {
    namespaces: FxHashMap<Str, ByName<T>>,
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

    /// Takes an object out.
    pub fn remove(&mut self, namespace: &str, name: &str) -> Option<Arc<T>> {
        let objects = self.namespaces.get_mut(namespace)?;
        let removed = objects.remove(name);
        if objects.is_empty() {
            self.namespaces.remove(namespace);
        }
        removed
    }
}

/// Nodes with their pods, and every other object that plugins may look up.
#[derive(Debug, Default)]
pub struct Cluster {
    /// The nodes and what runs on them, assumed pods included.
    pub nodes: NodeTable,
    /// Namespaces by name. Changed through [`Cluster::set`] and [`Cluster::unset`].
    pub namespaces: ByName<Namespace>,
    namespaces_version: u64,
    budgets_version: u64,
    /// Every pod that is known, by UID: the stored object with our unconfirmed writes applied.
    pub pods: Pods,
    /// Services.
    pub services: Namespaced<Service>,
    /// Replication controllers.
    pub replication_controllers: Namespaced<ReplicationController>,
    /// Replica sets.
    pub replica_sets: Namespaced<ReplicaSet>,
    /// Stateful sets.
    pub stateful_sets: Namespaced<StatefulSet>,
    /// Disruption budgets. Changed through [`Cluster::set`] and [`Cluster::unset`].
    pub pod_disruption_budgets: Namespaced<PodDisruptionBudget>,
    /// Volumes by name, with our unconfirmed writes applied.
    pub persistent_volumes: ByName<PersistentVolume>,
    /// Claims, with our unconfirmed writes applied.
    pub persistent_volume_claims: Namespaced<PersistentVolumeClaim>,
    /// Storage classes by name.
    pub storage_classes: ByName<StorageClass>,
    /// The CSI drivers of nodes, by the node's name.
    pub csi_nodes: ByName<CsiNode>,
    /// CSI drivers by name.
    pub csi_drivers: ByName<CsiDriver>,
    /// The space of CSI drivers.
    pub csi_storage_capacities: Namespaced<CsiStorageCapacity>,
    /// Attached volumes by the name of the attachment.
    pub volume_attachments: ByName<VolumeAttachment>,
    /// Classes of devices by name.
    pub device_classes: ByName<DeviceClass>,
    /// Claims on devices, with our unconfirmed writes applied.
    pub resource_claims: Namespaced<ResourceClaim>,
    /// What drivers publish of their devices, by name.
    pub resource_slices: ByName<ResourceSlice>,
    /// Objects of kinds that only plugins know.
    pub custom: FxHashMap<CustomKind, Namespaced<CustomObject>>,
    /// Pods, by UID, whose victims have not all been told to go yet; see
    /// [`Outbox::start_preemption`](crate::stage::Outbox::start_preemption).
    pub preempting: FxHashSet<Str>,
}

macro_rules! stores {
    ($cluster:ident, $object:ident, $by_name:ident, $namespaced:ident, $otherwise:expr) => {
        match $object {
            Object::Pod(_) | Object::Node(_) => $otherwise,
            Object::Namespace(object) => $by_name!($cluster.namespaces, object),
            Object::Service(object) => $namespaced!($cluster.services, object),
            Object::ReplicationController(object) => {
                $namespaced!($cluster.replication_controllers, object)
            }
            Object::ReplicaSet(object) => $namespaced!($cluster.replica_sets, object),
            Object::StatefulSet(object) => $namespaced!($cluster.stateful_sets, object),
            Object::PodDisruptionBudget(object) => {
                $namespaced!($cluster.pod_disruption_budgets, object)
            }
            Object::PersistentVolume(object) => $by_name!($cluster.persistent_volumes, object),
            Object::PersistentVolumeClaim(object) => {
                $namespaced!($cluster.persistent_volume_claims, object)
            }
            Object::StorageClass(object) => $by_name!($cluster.storage_classes, object),
            Object::CsiNode(object) => $by_name!($cluster.csi_nodes, object),
            Object::CsiDriver(object) => $by_name!($cluster.csi_drivers, object),
            Object::CsiStorageCapacity(object) => {
                $namespaced!($cluster.csi_storage_capacities, object)
            }
            Object::VolumeAttachment(object) => $by_name!($cluster.volume_attachments, object),
            Object::DeviceClass(object) => $by_name!($cluster.device_classes, object),
            Object::ResourceClaim(object) => $namespaced!($cluster.resource_claims, object),
            Object::ResourceSlice(object) => $by_name!($cluster.resource_slices, object),
            Object::Custom(object) => {
                $namespaced!($cluster.custom.entry(object.kind).or_default(), object)
            }
        }
    };
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

    /// Before a namespace gets these labels, or goes.
    fn relabel_namespace(&mut self, object: &Object, is_there: bool) {
        let Object::Namespace(namespace) = object else {
            return;
        };
        let labels = match is_there {
            true => namespace.metadata.labels.clone(),
            false => Labels::default(),
        };
        let before = self.namespace_labels(&namespace.metadata.name);
        self.namespaces_version += u64::from(before != labels);
    }

    /// Sets an object that is neither a pod nor a node, and says whether that is done: pods and nodes need the care
    /// of whoever owns the table.
    pub fn set(&mut self, object: &Object) -> bool {
        self.relabel_namespace(object, true);
        self.budgets_version += u64::from(matches!(object, Object::PodDisruptionBudget(_)));
        macro_rules! by_name {
            ($store:expr, $object:ident) => {{
                $store.insert($object.metadata.name.clone(), $object.clone());
                true
            }};
        }
        macro_rules! namespaced {
            ($store:expr, $object:ident) => {{
                let meta = &$object.metadata;
                $store.insert(&meta.namespace, &meta.name, $object.clone());
                true
            }};
        }
        stores!(self, object, by_name, namespaced, false)
    }

    /// Takes out an object that is neither a pod nor a node, and says whether that is done.
    pub fn unset(&mut self, object: &Object) -> bool {
        self.relabel_namespace(object, false);
        self.budgets_version += u64::from(matches!(object, Object::PodDisruptionBudget(_)));
        macro_rules! by_name {
            ($store:expr, $object:ident) => {{
                $store.remove(&$object.metadata.name);
                true
            }};
        }
        macro_rules! namespaced {
            ($store:expr, $object:ident) => {{
                let meta = &$object.metadata;
                $store.remove(&meta.namespace, &meta.name);
                true
            }};
        }
        stores!(self, object, by_name, namespaced, false)
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
