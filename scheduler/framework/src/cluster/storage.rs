//! Storage objects and the values derived from them for nodes: the CSI volume behind a claim, the volumes attached to a
//! node, and the attach limit of each driver.

use super::namespaced::{ByName, put};
use super::placed::HasPlace;
use super::{Namespaced, PersistentVolumes, StorageCapacities};
use crate::table::{ClaimKey, NodeTable, Slot};
use berth_api::storage::CsiVolume;
use berth_api::volumes::MIGRATED_PLUGINS_ANNOTATION;
use berth_api::{
    CsiDriver, CsiNode, CsiStorageCapacity, Object, ObjectMeta, PersistentVolume,
    PersistentVolumeClaim, StorageClass, Str, VolumeAttachment,
};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The objects that are checked again when a volume changes.
#[derive(Debug, Clone, Default)]
struct VolumeUsers {
    /// The name of a volume with each claim whose `volumeName` it is.
    claims: BTreeSet<(Str, ClaimKey)>,
    /// The name of a volume with each node to which it is attached.
    nodes: BTreeSet<(Str, Str)>,
    /// The name of a node with each of its attachments.
    attachments: BTreeSet<(Str, Str)>,
}

/// The entries of a set of pairs that begin with `first`.
fn under<T: Ord + Clone + Default>(set: &BTreeSet<(Str, T)>, first: &Str) -> Vec<T> {
    let range = set.range((first.clone(), T::default())..);
    let own = range.take_while(|(key, _)| key == first);
    own.map(|(_, value)| value.clone()).collect()
}

fn key(meta: &ObjectMeta) -> ClaimKey {
    (meta.namespace.clone(), meta.name.clone())
}

/// The only node that may be able to access an object, as for volumes that are local to a node. It is found if the
/// value of the required node label is also the name of the node, as for `kubernetes.io/hostname`; `None` otherwise.
fn only_node_near(object: &impl HasPlace, table: &NodeTable) -> Option<Slot> {
    let (label, [value]) = object.place()? else {
        return None;
    };
    let node = table.node(value)?;
    if node.labels().get_str(label) != Some(value) {
        return None;
    }
    let topology = table.topology(label);
    let domain = topology.domain(node.slot())?;
    (topology.nodes_of()[domain as usize] == 1).then(|| node.slot())
}

/// The objects of volumes.
#[derive(Debug, Clone, Default)]
pub struct Storage {
    volumes: PersistentVolumes,
    claims: Namespaced<PersistentVolumeClaim>,
    classes: ByName<StorageClass>,
    csi_nodes: ByName<CsiNode>,
    csi_drivers: ByName<CsiDriver>,
    capacities: StorageCapacities,
    attachments: ByName<VolumeAttachment>,
    users: VolumeUsers,
}

impl Storage {
    /// Volumes, with the scheduler's unconfirmed writes applied.
    pub fn volumes(&self) -> &PersistentVolumes {
        &self.volumes
    }

    /// Claims, with the scheduler's unconfirmed writes applied.
    pub fn claims(&self) -> &Namespaced<PersistentVolumeClaim> {
        &self.claims
    }

    /// Storage classes by name.
    pub fn classes(&self) -> &ByName<StorageClass> {
        &self.classes
    }

    /// CSI drivers by name.
    pub fn csi_drivers(&self) -> &ByName<CsiDriver> {
        &self.csi_drivers
    }

    /// The CSI drivers of nodes, by the name of the node.
    pub fn csi_nodes(&self) -> &ByName<CsiNode> {
        &self.csi_nodes
    }

    /// The capacity of CSI drivers.
    pub fn capacities(&self) -> &StorageCapacities {
        &self.capacities
    }

    /// The CSI volume behind a claim: its bound volume, or a volume that its class will provision.
    pub fn csi_volume_of(&self, claim: &PersistentVolumeClaim) -> Option<CsiVolume> {
        match self.volumes.get(&claim.spec.volume_name) {
            Some(volume) => volume.csi_volume(),
            None => {
                let class = self.classes.get(claim.class())?;
                class.volume_to_provision(claim)
            }
        }
    }

    /// Returns whether the volume behind a claim is of an in-tree plugin, and so a CSI volume only on nodes with CSI
    /// drivers.
    pub fn is_in_tree(&self, claim: &PersistentVolumeClaim) -> bool {
        match self.volumes.get(&claim.spec.volume_name) {
            Some(volume) => volume.spec.csi.is_none(),
            None => {
                let class = self.classes.get(claim.class());
                class.is_some_and(|class| class.provisioner.starts_with("kubernetes.io/"))
            }
        }
    }

    /// Sets or removes an object, and returns whether its kind is kept here. Updates the volumes of nodes in
    /// the table, and its log.
    pub(super) fn put(&mut self, object: &Object, is_there: bool, table: &mut NodeTable) -> bool {
        let meta = object.metadata();
        let name = &meta.name;
        match object {
            Object::PersistentVolume(volume) => {
                let before = self.volumes.put(volume, is_there);
                self.follow_free_volume([before.as_ref(), is_there.then_some(volume)], table);
                self.follow_volume(name, table);
            }
            Object::PersistentVolumeClaim(claim) => {
                let before = self.claims.put(meta, claim, is_there);
                self.follow_claim(before, claim, table);
            }
            Object::StorageClass(class) => {
                let before = put(&mut self.classes, name, class, is_there);
                self.follow_class(before, name, table);
            }
            Object::CsiNode(node) => {
                let before = put(&mut self.csi_nodes, name, node, is_there);
                self.follow_csi_node(before.as_deref(), name, table);
            }
            // A driver object changes neither the volumes nor the limits of nodes.
            Object::CsiDriver(driver) => drop(put(&mut self.csi_drivers, name, driver, is_there)),
            Object::CsiStorageCapacity(capacity) => {
                let before = self.capacities.put(capacity, is_there);
                self.follow_capacity([before.as_ref(), is_there.then_some(capacity)], table);
            }
            Object::VolumeAttachment(attachment) => {
                let before = put(&mut self.attachments, name, attachment, is_there);
                self.follow_attachment(before, attachment, table);
            }
            _ => return false,
        }
        true
    }

    /// To be called with both versions of a volume that was set or removed.
    fn follow_free_volume(
        &mut self,
        versions: [Option<&Arc<PersistentVolume>>; 2],
        table: &mut NodeTable,
    ) {
        let versions = versions.into_iter().flatten();
        for volume in versions.filter(|volume| volume.spec.claim_ref.is_none()) {
            match only_node_near(&**volume, table) {
                Some(slot) => table.storage_changed(slot),
                None => self.volumes.renew_free(),
            }
        }
    }

    /// To be called with both versions of a capacity that was set or removed.
    fn follow_capacity(
        &mut self,
        versions: [Option<&Arc<CsiStorageCapacity>>; 2],
        table: &mut NodeTable,
    ) {
        for capacity in versions.into_iter().flatten() {
            match only_node_near(&**capacity, table) {
                Some(slot) => table.storage_changed(slot),
                None => self.capacities.renew(),
            }
        }
    }

    fn follow_volume_of(&self, key: &ClaimKey, table: &mut NodeTable) {
        let claim = self.claims.get(&key.0, &key.1);
        let volume = claim.and_then(|claim| self.csi_volume_of(claim));
        table.set_claim_volume(key, volume);
    }

    fn follow_claim(
        &mut self,
        before: Option<Arc<PersistentVolumeClaim>>,
        now: &PersistentVolumeClaim,
        table: &mut NodeTable,
    ) {
        let key = key(&now.metadata);
        let named = |claim: &PersistentVolumeClaim| (claim.spec.volume_name.clone(), key.clone());
        if let Some(before) = before {
            self.users.claims.remove(&named(&before));
        }
        let is_there = self.claims.get(&key.0, &key.1).is_some();
        if is_there && !now.spec.volume_name.is_empty() {
            self.users.claims.insert(named(now));
        }
        self.follow_volume_of(&key, table);
    }

    fn follow_volume(&mut self, name: &Str, table: &mut NodeTable) {
        for claim in under(&self.users.claims, name) {
            self.follow_volume_of(&claim, table);
        }
        for node in under(&self.users.nodes, name) {
            self.follow_attachments(&node, table);
        }
    }

    /// Changes of a class that matter to its claims are rare, so the claims are searched and not indexed.
    fn follow_class(&self, before: Option<Arc<StorageClass>>, name: &Str, table: &mut NodeTable) {
        let provisioner = |class: &Arc<StorageClass>| class.provisioner.clone();
        let now = self.classes.get(name);
        if before.as_ref().map(provisioner) == now.map(provisioner) {
            return;
        }
        let claims = self.claims.iter();
        for claim in claims.filter(|claim| claim.class() == name.as_str()) {
            self.follow_volume_of(&key(&claim.metadata), table);
        }
    }

    fn follow_attachment(
        &mut self,
        before: Option<Arc<VolumeAttachment>>,
        now: &VolumeAttachment,
        table: &mut NodeTable,
    ) {
        let name = &now.metadata.name;
        let is_there = self.attachments.contains_key(name);
        let versions = [
            before.as_deref().map(|before| (before, false)),
            is_there.then_some((now, true)),
        ];
        for (attachment, is_there) in versions.into_iter().flatten() {
            let node = &attachment.spec.node_name;
            let of_node = (node.clone(), name.clone());
            let volume = attachment.spec.source.persistent_volume_name.clone();
            let of_volume = volume.map(|volume| (volume, node.clone()));
            let users = &mut self.users;
            if is_there {
                users.attachments.insert(of_node);
                users.nodes.extend(of_volume);
            } else {
                users.attachments.remove(&of_node);
                // Another attachment of the volume to the node may be left.
                of_volume.iter().for_each(|entry| {
                    users.nodes.remove(entry);
                });
            }
            self.follow_attachments(&node.clone(), table);
        }
    }

    fn follow_attachments(&mut self, node: &Str, table: &mut NodeTable) {
        let mut volumes = Vec::new();
        for name in under(&self.users.attachments, node) {
            let Some(attachment) = self.attachments.get(&name) else {
                continue;
            };
            let spec = &attachment.spec;
            let Some(name) = spec.source.persistent_volume_name.as_ref() else {
                continue;
            };
            self.users.nodes.insert((name.clone(), node.clone()));
            let volume = self.volumes.get(name);
            // As in kube-scheduler, only volumes of CSI drivers count, under the attacher's name.
            if let Some(csi) = volume.and_then(|volume| volume.spec.csi.as_ref())
                && !spec.attacher.is_empty()
            {
                volumes.push(CsiVolume {
                    driver: spec.attacher.clone(),
                    volume_handle: csi.volume_handle.clone(),
                });
            }
        }
        table.set_attachments(node, volumes);
    }

    /// To be called with the version before.
    fn follow_csi_node(&self, before: Option<&CsiNode>, name: &Str, table: &mut NodeTable) {
        let node: Option<&CsiNode> = self.csi_nodes.get(name).map(AsRef::as_ref);
        let migrated = |node: Option<&CsiNode>| {
            let annotations = node.map(|node| &node.metadata.annotations);
            annotations.and_then(|a| a.get_str(MIGRATED_PLUGINS_ANNOTATION).cloned())
        };
        if migrated(before) != migrated(node)
            && let Some(view) = table.node(name)
        {
            let slot = view.slot();
            table.storage_changed(slot);
        }
        let drivers = node.map_or(&[][..], |node| &node.spec.drivers);
        let drivers = drivers.iter().map(|driver| {
            let count = driver.allocatable.as_ref().and_then(|limits| limits.count);
            (driver.name.clone(), count.map(i64::from))
        });
        table.set_csi_drivers(name, drivers.collect());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::Cluster;
    use crate::testing::{node, pod};
    use berth_api::Kind;
    use fastrand::Rng;
    use serde_json::{Value, json};

    fn object(kind: Kind, fields: Value) -> Object {
        let json = fields.to_string();
        let object = kind.decode(json.as_bytes());
        object.unwrap_or_else(|e| panic!("{kind:?} {json}: {e}"))
    }

    fn some_object(rng: &mut Rng) -> Object {
        let pick = |rng: &mut Rng, of: &[&str]| of[rng.usize(..of.len())].to_owned();
        let name = pick(rng, &["a", "b", "c"]);
        let driver = pick(rng, &["d1", "d2"]);
        match rng.u8(..5) {
            0 => {
                let source = match rng.u8(..3) {
                    0 => json!({}),
                    1 => json!({"awsElasticBlockStore": {"volumeID": pick(rng, &["h1", "h2"])}}),
                    _ => {
                        json!({"csi": {"driver": driver, "volumeHandle": pick(rng, &["h1", "h2"])}})
                    }
                };
                object(
                    Kind::PersistentVolume,
                    json!({"metadata": {"name": name}, "spec": source}),
                )
            }
            1 => object(
                Kind::PersistentVolumeClaim,
                json!({
                    "metadata": {"name": name, "namespace": "default"},
                    "spec": {"volumeName": pick(rng, &["", "a", "b", "c"]), "storageClassName": pick(rng, &["a", "b"])},
                }),
            ),
            2 => object(
                Kind::StorageClass,
                json!({"metadata": {"name": name}, "provisioner": driver}),
            ),
            3 => object(
                Kind::VolumeAttachment,
                json!({"metadata": {"name": name}, "spec": {
                    "attacher": driver, "nodeName": pick(rng, &["n1", "n2"]),
                    "source": {"persistentVolumeName": pick(rng, &["a", "b", "c"])},
                }}),
            ),
            _ => object(
                Kind::CsiNode,
                json!({"metadata": {"name": pick(rng, &["n1", "n2"])}, "spec": {"drivers": [
                    {"name": driver, "allocatable": {"count": rng.u8(..3)}},
                ]}}),
            ),
        }
    }

    /// Driver and handle of each volume.
    type Volumes = BTreeSet<(Str, Str)>;

    /// The volumes of a node, worked out from all objects.
    fn expected(cluster: &Cluster, name: &str) -> (Volumes, Volumes) {
        let node = cluster.nodes.node(name).expect("it exists");
        let name = |volume: CsiVolume| (volume.driver, volume.volume_handle);
        let mut used = BTreeSet::new();
        for pod in node.pods() {
            for claim in berth_api::volumes::claims(&pod.pod) {
                let claims = &cluster.storage.claims;
                let claim = claims.get(pod.pod.namespace(), &claim.name);
                used.extend(
                    claim
                        .and_then(|claim| cluster.storage.csi_volume_of(claim))
                        .map(name),
                );
            }
        }
        let mut all = used.clone();
        for attachment in cluster.storage.attachments.values() {
            let volume = attachment.spec.source.persistent_volume_name.as_ref();
            let volume = volume.and_then(|name| cluster.storage.volumes.get(name));
            if let Some(csi) = volume.and_then(|volume| volume.spec.csi.as_ref())
                && attachment.spec.node_name == *node.name()
            {
                all.insert((attachment.spec.attacher.clone(), csi.volume_handle.clone()));
            }
        }
        (used, all)
    }

    /// For every order of changes of objects, nodes and pods: the volumes of each node are equal to the result of a
    /// full walk, and a change of them is in the table's log.
    #[test]
    fn the_volumes_of_nodes_follow_all_objects() {
        let mut found = 0;
        for seed in 0..60 {
            let rng = &mut Rng::with_seed(seed);
            let mut cluster = Cluster::default();
            for step in 0..200 {
                let before = cluster.nodes.log().end();
                let shown: Vec<_> = ["n1", "n2"]
                    .into_iter()
                    .filter_map(|name| {
                        Some((
                            name,
                            cluster.nodes.node(name)?.slot(),
                            expected(&cluster, name),
                        ))
                    })
                    .collect();
                let node_name = ["n1", "n2"][rng.usize(..2)];
                match rng.u8(..12) {
                    0 => drop(cluster.nodes.remove_node(node_name)),
                    1 => drop(cluster.nodes.set_node(node(node_name).arc())),
                    2 | 3 => {
                        let claim = ["a", "b", "c"][rng.usize(..3)];
                        let name = format!("p{}", rng.u8(..4));
                        let _ = cluster.nodes.remove_pod(node_name, &format!("uid-{name}"));
                        let volumes =
                            json!([{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]);
                        let using = pod(&name).with(|pod| {
                            let volumes = serde_json::from_value(volumes);
                            pod.spec.volumes = volumes.expect("volumes");
                        });
                        if rng.bool() {
                            cluster.nodes.add_pod(
                                &node_name.into(),
                                using.uid(&format!("uid-{name}")).info(),
                            );
                        }
                    }
                    4..6 => {
                        let object = some_object(rng);
                        cluster.unset(&object);
                    }
                    _ => {
                        let object = some_object(rng);
                        cluster.set(&object);
                    }
                }
                for (name, slot, before_change) in shown {
                    let Some(node) = cluster.nodes.node(name) else {
                        continue;
                    };
                    let changed = expected(&cluster, name) != before_change;
                    let changes = cluster.nodes.log().since(before).expect("few changes");
                    let logged = changes.filter(|change| change.slot() == Some(slot)).count() > 0;
                    assert!(
                        logged || !changed || node.slot() != slot,
                        "seed {seed}, step {step}: {name}"
                    );
                }
                for node in cluster.nodes.iter() {
                    let (used, all) = expected(&cluster, node.name());
                    found += used.len();
                    for driver in ["d1", "d2", "ebs.csi.aws.com"] {
                        let of_driver = all.iter().filter(|(of, _)| of == driver).count();
                        assert_eq!(
                            node.attached_volumes(driver),
                            of_driver,
                            "seed {seed}, step {step}: {driver} on {}: {all:?}",
                            node.name()
                        );
                        let limit = cluster.storage.csi_nodes.get(node.name()).and_then(|csi| {
                            let of = csi.spec.drivers.iter().find(|of| of.name == driver)?;
                            of.allocatable.as_ref()?.count.map(i64::from)
                        });
                        assert_eq!(node.volume_limit(driver), limit, "seed {seed}, step {step}");
                        let is_there = cluster
                            .storage
                            .csi_nodes
                            .get(node.name())
                            .is_some_and(|csi| csi.spec.drivers.iter().any(|of| of.name == driver));
                        assert_eq!(
                            node.has_csi_driver(driver),
                            is_there,
                            "seed {seed}, step {step}"
                        );
                        for handle in ["h1", "h2"] {
                            let volume = CsiVolume {
                                driver: driver.into(),
                                volume_handle: handle.into(),
                            };
                            let is_used = used.contains(&(driver.into(), handle.into()));
                            assert_eq!(
                                node.uses_volume(&volume),
                                is_used,
                                "seed {seed}, step {step}"
                            );
                        }
                    }
                    for claim in ["a", "b", "c"] {
                        let uses = |pod: &std::sync::Arc<crate::PodInfo>| {
                            let mut claims = berth_api::volumes::shared_claims(&pod.pod);
                            claims.any(|name| name == claim)
                        };
                        let is_used = cluster
                            .nodes
                            .iter()
                            .any(|node| node.pods().iter().any(uses));
                        let known = cluster
                            .nodes
                            .is_claim_used(&"default".into(), &claim.into());
                        assert_eq!(known, is_used, "seed {seed}, step {step}: {claim}");
                    }
                }
            }
        }
        assert!(found > 1_000, "{found}");
    }
}
