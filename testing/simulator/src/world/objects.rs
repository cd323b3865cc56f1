//! Nodes, and all objects other than pods and nodes.

use super::{Devices, Refusal, World};
use crate::shapes::{
    Budget, DEFERRED_QUOTA, DEVICE_CLASSES, GroupShape, NAMESPACES, NodeChange, NodeShape,
    device_class, namespace, storage_class,
};
use berth_api::groups::PodGroup;
use berth_api::storage::{CsiNode, PersistentVolume, PersistentVolumeClaim, VolumeNodeResources};
use berth_api::{
    CustomObject, DeviceClass, Kind, Namespace, Node, Object, Pod, ResourceClaim, Str,
};
use berth_framework::write::Write;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Objects that are neither pods nor nodes.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Others {
    /// By kind, namespace and name.
    objects: BTreeMap<(Kind, Str, Str), Object>,
    /// The UIDs of the pods that wait for deferred quotas.
    quota_waits: BTreeSet<Str>,
}

impl Others {
    /// Adds an object, or replaces its state.
    pub fn put(&mut self, object: Object) {
        self.objects.insert(key_of(&object), object);
    }

    /// Removes an object.
    pub fn remove(&mut self, object: &Object) {
        self.objects.remove(&key_of(object));
    }

    /// Replaces all objects of the kind.
    pub fn replace(&mut self, kind: Kind, objects: Vec<Object>) {
        self.objects.retain(|(other, _, _), _| *other != kind);
        objects.into_iter().for_each(|object| self.put(object));
    }

    /// The objects of a kind.
    pub fn of_kind(&self, kind: Kind) -> impl Iterator<Item = &Object> {
        let all = self.objects.iter();
        all.filter(move |((other, _, _), _)| *other == kind)
            .map(|(_, object)| object)
    }

    fn get(&self, kind: Kind, namespace: &str, name: &str) -> Option<&Object> {
        self.objects.get(&(kind, namespace.into(), name.into()))
    }

    /// Returns whether a pod waits for deferred quotas.
    pub fn waits_for_quota(&self, uid: &str) -> bool {
        self.quota_waits.contains(uid)
    }

    /// Sets the pods that wait for quotas. Returns whether they changed.
    pub fn set_quota_waits(&mut self, waits: BTreeSet<Str>) -> bool {
        let has_changed = self.quota_waits != waits;
        self.quota_waits = waits;
        has_changed
    }

    /// A deferred quota.
    pub fn quota(&self, namespace: &str, name: &str) -> Option<&Arc<CustomObject>> {
        let kind = Kind::Custom(DEFERRED_QUOTA);
        self.get(kind, namespace, name)?.as_custom()
    }

    /// A claim.
    pub fn claim(&self, namespace: &str, name: &str) -> Option<&Arc<PersistentVolumeClaim>> {
        match self.get(Kind::PersistentVolumeClaim, namespace, name)? {
            Object::PersistentVolumeClaim(claim) => Some(claim),
            _ => None,
        }
    }

    /// A resource claim.
    pub fn device_claim(&self, namespace: &str, name: &str) -> Option<&Arc<ResourceClaim>> {
        match self.get(Kind::ResourceClaim, namespace, name)? {
            Object::ResourceClaim(claim) => Some(claim),
            _ => None,
        }
    }

    /// A group of pods.
    pub fn group(&self, namespace: &str, name: &str) -> Option<&Arc<PodGroup>> {
        match self.get(Kind::PodGroup, namespace, name)? {
            Object::PodGroup(group) => Some(group),
            _ => None,
        }
    }

    /// A volume.
    pub fn volume(&self, name: &str) -> Option<&Arc<PersistentVolume>> {
        match self.get(Kind::PersistentVolume, "", name)? {
            Object::PersistentVolume(volume) => Some(volume),
            _ => None,
        }
    }

    /// The CSINode of a node, with its volume limits.
    pub fn csi_node(&self, name: &str) -> Option<&Arc<CsiNode>> {
        match self.get(Kind::CsiNode, "", name)? {
            Object::CsiNode(csi) => Some(csi),
            _ => None,
        }
    }

    /// A namespace.
    pub fn namespace(&self, name: &str) -> Option<&Arc<Namespace>> {
        match self.get(Kind::Namespace, "", name)? {
            Object::Namespace(namespace) => Some(namespace),
            _ => None,
        }
    }
}

fn key_of(object: &Object) -> (Kind, Str, Str) {
    let metadata = object.metadata();
    (
        object.kind(),
        metadata.namespace.clone(),
        metadata.name.clone(),
    )
}

impl World {
    /// A world with the initial objects of every cluster: namespaces and classes.
    pub fn furnished() -> Self {
        let mut world = Self::default();
        for (name, team) in NAMESPACES.into_iter().zip(["x", "y"]) {
            let mut object = namespace(name, team);
            world.store.create(&mut object.metadata);
            world.store.put(Object::Namespace(Arc::new(object)));
        }
        for name in [crate::shapes::CLASS_LATE, crate::shapes::CLASS_MADE] {
            let mut class = storage_class(name);
            world.store.create(&mut class.metadata);
            world.store.put(Object::StorageClass(Arc::new(class)));
        }
        for name in DEVICE_CLASSES {
            let class = serde_json::from_value::<DeviceClass>(device_class(name));
            let mut class = class.unwrap_or_else(|error| panic!("class {name}: {error}"));
            world.store.create(&mut class.metadata);
            world.store.put(Object::DeviceClass(Arc::new(class)));
        }
        world
    }

    // --- groups ------------------------------------------------------------------------------------------

    /// Creates a group, unless the name exists.
    pub fn create_group(&mut self, name: &str, shape: &GroupShape) {
        if self.others().group(NAMESPACES[0], name).is_some() {
            return;
        }
        let mut group = shape.build(name);
        self.store.create(&mut group.metadata);
        self.store.put(Object::PodGroup(Arc::new(group)));
    }

    /// Returns whether a pod is a member of a group.
    pub fn is_member(&self, pod: &str) -> bool {
        let pod = self.pods().get(pod);
        pod.is_some_and(|pod| pod.spec.scheduling_group.is_some())
    }

    /// Deletes a group. While it has pods that have not ended, the protection controller keeps it.
    pub fn delete_group(&mut self, name: &str) {
        let is_member = |pod: &Pod| {
            let group = pod.spec.scheduling_group.as_ref();
            group.is_some_and(|group| *group.pod_group_name == *name)
        };
        let mut pods = self.pods().values();
        if pods.any(|pod| !pod.is_terminal() && is_member(pod)) {
            return;
        }
        if let Some(group) = self.others().group(NAMESPACES[0], name).cloned() {
            self.store.remove(Object::PodGroup(group));
        }
    }

    /// The scheduler writes the status of a group.
    ///
    /// # Errors
    /// When the group was deleted or replaced, or has another version.
    pub fn write_group(&mut self, write: &Write) -> Result<(), Refusal> {
        let object = write.object();
        let stored = self.others().group(&object.namespace, &object.name);
        let stored = stored.ok_or(Refusal::NotFound)?.clone();
        let version = &stored.metadata.resource_version;
        let is_other = !write.uid().is_empty() && *write.uid() != stored.metadata.uid;
        if is_other || write.resource_version().is_some_and(|of| of != version) {
            return Err(Refusal::Conflict);
        }
        let Object::PodGroup(mut group) = write.applied_to(&Object::PodGroup(stored)) else {
            return Err(Refusal::Conflict);
        };
        self.store.change(&mut Arc::make_mut(&mut group).metadata);
        self.store.put(Object::PodGroup(group));
        Ok(())
    }

    // --- nodes -------------------------------------------------------------------------------------------

    /// Adds a node, unless the name exists. The volume limits of its kubelet are added with it.
    pub fn create_node(&mut self, name: &str, shape: &NodeShape) {
        if self.nodes().contains_key(name) {
            return;
        }
        let mut node = shape.build(name);
        self.store.create(&mut node.metadata);
        self.store.put(Object::Node(Arc::new(node)));
        if let Some(csi) = shape.build_csi(name) {
            self.put_csi_node(csi);
        }
    }

    /// Changes a node, or its CSINode.
    pub fn change_node(&mut self, name: &str, change: &NodeChange) {
        let Some(old) = self.nodes().get(name) else {
            return;
        };
        if let NodeChange::Attachable(limit) = change {
            let shape = NodeShape {
                attachable: Some(*limit),
                ..NodeShape::default()
            };
            match self.others().csi_node(name).cloned() {
                None => shape
                    .build_csi(name)
                    .map_or((), |csi| self.put_csi_node(csi)),
                Some(csi) => {
                    let mut csi = CsiNode::clone(&csi);
                    for driver in &mut csi.spec.drivers {
                        driver.allocatable = Some(VolumeNodeResources {
                            count: Some(*limit),
                        });
                    }
                    self.store.change(&mut csi.metadata);
                    self.store.put(Object::CsiNode(Arc::new(csi)));
                }
            }
            return;
        }
        let mut node = Node::clone(old);
        change.apply_to(&mut node);
        self.store.change(&mut node.metadata);
        self.store.put(Object::Node(Arc::new(node)));
    }

    fn put_csi_node(&mut self, mut csi: CsiNode) {
        self.store.create(&mut csi.metadata);
        self.store.put(Object::CsiNode(Arc::new(csi)));
    }

    /// Removes a node. Its pods stay until the garbage collector removes them, and so does its CSINode.
    pub fn delete_node(&mut self, name: &str) {
        if let Some(node) = self.nodes().get(name) {
            let mut last = Node::clone(node);
            self.store.change(&mut last.metadata);
            self.store.remove(Object::Node(Arc::new(last)));
        }
    }

    /// Removes the pods of deleted nodes, and the CSINodes of these nodes.
    pub fn collect_garbage(&mut self) {
        self.delete_pods(|world, pod| {
            pod.is_assigned() && !world.nodes().contains_key(&pod.spec.node_name)
        });
        let csi_nodes = self.others().of_kind(Kind::CsiNode);
        let orphans = csi_nodes.filter(|csi| !self.nodes().contains_key(&csi.metadata().name));
        for orphan in orphans.cloned().collect::<Vec<_>>() {
            self.store.remove(orphan);
        }
        Devices::of(self).collect();
    }

    // --- namespaces and budgets --------------------------------------------------------------------------

    /// Sets or removes a label of a namespace.
    pub fn label_namespace(&mut self, name: &str, key: &str, value: Option<&str>) {
        let Some(old) = self.others().namespace(name) else {
            return;
        };
        let labels = &old.metadata.labels;
        let labels = match value {
            Some(value) => labels.with(key, value),
            None => labels.without(key),
        };
        if labels != old.metadata.labels {
            let mut changed = Namespace::clone(old);
            changed.metadata.labels = labels;
            self.store.change(&mut changed.metadata);
            self.store.put(Object::Namespace(Arc::new(changed)));
        }
    }

    /// Sets the number of pods of an application that may be disrupted.
    pub fn set_budget(&mut self, budget: &Budget) {
        let mut object = budget.build();
        let known = self.get_budget(budget.app).map(|b| b.metadata().clone());
        match known {
            Some(metadata) => {
                object.metadata = metadata;
                self.store.change(&mut object.metadata);
            }
            None => self.store.create(&mut object.metadata),
        }
        self.store
            .put(Object::PodDisruptionBudget(Arc::new(object)));
    }

    fn get_budget(&self, app: &str) -> Option<&Object> {
        self.others()
            .get(Kind::PodDisruptionBudget, NAMESPACES[0], app)
    }

    /// Removes the disruption budget of an application.
    pub fn remove_budget(&mut self, app: &str) {
        if let Some(budget) = self.get_budget(app).cloned() {
            self.store.remove(budget);
        }
    }
}
