//! Persistent volumes with the indexes that are looked up per pod, and what follows from storage objects for nodes:
//! which CSI volume is behind a claim, what is attached to a node, and how much each driver can attach.

use super::placed::{HasPlace, Placed};
use super::pods::VolumeSource;
use super::{ByName, Cluster};
use crate::table::{ClaimKey, Slot};
use berth_api::storage::CsiVolume;
use berth_api::{
    CsiNode, CsiStorageCapacity, Labels, ObjectMeta, PersistentVolume, PersistentVolumeClaim,
    Quantity, StorageClass, Str, VolumeAttachment,
};
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;
use std::sync::Arc;

/// Persistent volumes by name. Reading is that of a map.
#[derive(Debug, Clone, Default)]
pub struct PersistentVolumes {
    by_name: ByName<PersistentVolume>,
    /// The volumes that are for no claim, by class, the smallest first.
    free: FxHashMap<Str, Placed<(Quantity, Str), PersistentVolume>>,
    /// See [`PersistentVolumes::free_version`].
    free_version: u64,
    /// The volumes that are for a claim, by the claim and the volume's name.
    given: BTreeMap<(ClaimKey, Str), Arc<PersistentVolume>>,
}

impl Deref for PersistentVolumes {
    type Target = ByName<PersistentVolume>;

    fn deref(&self) -> &Self::Target {
        &self.by_name
    }
}

impl PersistentVolumes {
    /// Sets a volume under its name. Returns the one before.
    pub fn insert(&mut self, volume: Arc<PersistentVolume>) -> Option<Arc<PersistentVolume>> {
        let before = self.remove(&volume.metadata.name);
        let name = volume.metadata.name.clone();
        match &volume.spec.claim_ref {
            Some(claim) => {
                let claim = (claim.namespace.clone(), claim.name.clone());
                self.given.insert((claim, name.clone()), volume.clone());
            }
            None => {
                let class = self.free.entry(Str::new(volume.class())).or_default();
                class.insert(&(volume.capacity(), name.clone()), &volume);
            }
        }
        self.by_name.insert(name, volume);
        before
    }

    /// Removes a volume.
    pub fn remove(&mut self, name: &str) -> Option<Arc<PersistentVolume>> {
        let (name, volume) = self.by_name.remove_entry(name)?;
        match &volume.spec.claim_ref {
            Some(claim) => {
                let claim = (claim.namespace.clone(), claim.name.clone());
                self.given.remove(&(claim, name));
            }
            None => {
                if let Some(class) = self.free.get_mut(volume.class()) {
                    class.remove(&(volume.capacity(), name), &volume);
                    if class.is_empty() {
                        self.free.remove(volume.class());
                    }
                }
            }
        }
        Some(volume)
    }

    /// The first volume, by size and name, of those of a class that are for no claim, have at least this size and are
    /// `suitable`. Volumes whose node affinity certainly does not match the labels are left out; the caller checks the
    /// others.
    pub fn first_free(
        &self,
        class: &str,
        size: Quantity,
        labels: &Labels,
        suitable: impl Fn(&PersistentVolume) -> bool,
    ) -> Option<&Arc<PersistentVolume>> {
        let class = self.free.get(class)?;
        class.first(&(size, Str::default()), labels, suitable)
    }

    /// Changes whenever a volume that is for no claim is added, changed or removed, unless that matters to one node
    /// alone: then the log of the node table has a change of this node. `None` while the class has no such volume.
    pub fn free_version(&self, class: &str) -> Option<u64> {
        self.free.get(class).map(|_| self.free_version)
    }

    /// The volumes whose `claimRef` names the claim, by name.
    pub fn given_to(&self, claim: &ObjectMeta) -> impl Iterator<Item = &Arc<PersistentVolume>> {
        let key = (claim.namespace.clone(), claim.name.clone());
        self.given
            .range((key.clone(), Str::default())..)
            .take_while(move |((claim, _), _)| *claim == key)
            .map(|(_, volume)| volume)
    }
}

/// Which objects have to be looked at again when a volume changes.
#[derive(Debug, Clone, Default)]
pub(super) struct VolumeUsers {
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

impl Cluster {
    /// The CSI volume behind a claim: that of its volume, or one that its class will provision.
    pub fn csi_volume_of(&self, claim: &PersistentVolumeClaim) -> Option<CsiVolume> {
        match self.persistent_volumes.get(&claim.spec.volume_name) {
            Some(volume) => volume.csi_volume(),
            None => {
                let class = self.storage_classes.get(claim.class())?;
                class.volume_to_provision(claim)
            }
        }
    }

    /// Whether no pod but one, on a node or not, can use the volume behind a claim. The pod is one that uses the claim.
    pub fn is_used_by_one(&self, claim: &ObjectMeta, volume: &CsiVolume) -> bool {
        let claim = VolumeSource::Claim(key(claim));
        let inline = VolumeSource::Inline(volume.clone());
        self.pods.volume_users(&claim) <= 1
            && self.pods.volume_users(&inline) == 0
            && self.nodes.volumes().sources(volume) <= 1
    }

    /// To be called with both versions of a volume that was set or removed.
    pub(super) fn follow_free_volume(&mut self, versions: [Option<&Arc<PersistentVolume>>; 2]) {
        let versions = versions.into_iter().flatten();
        for volume in versions.filter(|volume| volume.spec.claim_ref.is_none()) {
            match self.only_node_near(&**volume) {
                Some(slot) => self.nodes.storage_changed(slot),
                None => self.persistent_volumes.free_version += 1,
            }
        }
    }

    /// To be called with both versions of a capacity that was set or removed.
    pub(super) fn follow_capacity(&mut self, versions: [Option<&Arc<CsiStorageCapacity>>; 2]) {
        for capacity in versions.into_iter().flatten() {
            match self.only_node_near(&**capacity) {
                Some(slot) => self.nodes.storage_changed(slot),
                None => self.csi_storage_capacities.renew(),
            }
        }
    }

    /// The only node that may be able to access an object, if that is the one with the name of the value of the label
    /// that nodes must have. It is, for volumes that are local to a node.
    fn only_node_near(&self, object: &impl HasPlace) -> Option<Slot> {
        let (label, [value]) = object.place()? else {
            return None;
        };
        let node = self.nodes.node(value)?;
        if node.labels().get_str(label) != Some(value) {
            return None;
        }
        let topology = self.nodes.topology(label);
        let domain = topology.domain(node.slot())?;
        (topology.nodes_of()[domain as usize] == 1).then(|| node.slot())
    }

    fn follow_volume_of(&mut self, key: &ClaimKey) {
        let claim = self.persistent_volume_claims.get(&key.0, &key.1);
        let volume = claim.and_then(|claim| self.csi_volume_of(claim));
        self.nodes.set_claim_volume(key, volume);
    }

    pub(super) fn follow_claim(
        &mut self,
        before: Option<Arc<PersistentVolumeClaim>>,
        now: &PersistentVolumeClaim,
    ) {
        let key = key(&now.metadata);
        let named = |claim: &PersistentVolumeClaim| (claim.spec.volume_name.clone(), key.clone());
        if let Some(before) = before {
            self.volume_users.claims.remove(&named(&before));
        }
        let is_there = self.persistent_volume_claims.get(&key.0, &key.1).is_some();
        if is_there && !now.spec.volume_name.is_empty() {
            self.volume_users.claims.insert(named(now));
        }
        self.follow_volume_of(&key);
    }

    pub(super) fn follow_volume(&mut self, name: &Str) {
        for claim in under(&self.volume_users.claims, name) {
            self.follow_volume_of(&claim);
        }
        for node in under(&self.volume_users.nodes, name) {
            self.follow_attachments(&node);
        }
    }

    /// Classes rarely change in a way that matters to their claims, so these are looked for.
    pub(super) fn follow_class(&mut self, before: Option<Arc<StorageClass>>, name: &Str) {
        let provisioner = |class: &Arc<StorageClass>| class.provisioner.clone();
        let now = self.storage_classes.get(name);
        if before.as_ref().map(provisioner) == now.map(provisioner) {
            return;
        }
        let claims = self.persistent_volume_claims.iter();
        let of_class = claims.filter(|claim| claim.class() == name.as_str());
        let keys: Vec<ClaimKey> = of_class.map(|claim| key(&claim.metadata)).collect();
        for key in keys {
            self.follow_volume_of(&key);
        }
    }

    pub(super) fn follow_attachment(
        &mut self,
        before: Option<Arc<VolumeAttachment>>,
        now: &VolumeAttachment,
    ) {
        let name = &now.metadata.name;
        let is_there = self.volume_attachments.contains_key(name);
        let versions = [
            before.as_deref().map(|before| (before, false)),
            is_there.then_some((now, true)),
        ];
        for (attachment, is_there) in versions.into_iter().flatten() {
            let node = &attachment.spec.node_name;
            let of_node = (node.clone(), name.clone());
            let volume = attachment.spec.source.persistent_volume_name.clone();
            let of_volume = volume.map(|volume| (volume, node.clone()));
            let users = &mut self.volume_users;
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
            self.follow_attachments(&node.clone());
        }
    }

    fn follow_attachments(&mut self, node: &Str) {
        let mut volumes = Vec::new();
        for name in under(&self.volume_users.attachments, node) {
            let Some(attachment) = self.volume_attachments.get(&name) else {
                continue;
            };
            let spec = &attachment.spec;
            let Some(name) = spec.source.persistent_volume_name.as_ref() else {
                continue;
            };
            self.volume_users.nodes.insert((name.clone(), node.clone()));
            let volume = self.persistent_volumes.get(name);
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
        self.nodes.set_attachments(node, volumes);
    }

    pub(super) fn follow_csi_node(&mut self, name: &Str) {
        let node: Option<&CsiNode> = self.csi_nodes.get(name).map(AsRef::as_ref);
        let drivers = node.map_or(&[][..], |node| &node.spec.drivers);
        let limits = drivers.iter().filter_map(|driver| {
            let count = driver.allocatable.as_ref()?.count?;
            Some((driver.name.clone(), i64::from(count)))
        });
        let limits = limits.collect();
        self.nodes.set_volume_limits(name, limits);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{node, pod};
    use berth_api::{Kind, Object};
    use fastrand::Rng;
    use serde_json::{Value, json};

    fn object(kind: Kind, fields: Value) -> Object {
        let json = fields.to_string();
        let object = kind.decode(json.as_bytes());
        object.unwrap_or_else(|e| panic!("{kind:?} {json}: {e}"))
    }

    fn volume(name: &str, class: &str, gib: u32, claim: Option<&str>) -> Object {
        let claim = claim.map(|claim| json!({"namespace": "default", "name": claim}));
        let spec = json!({
            "capacity": {"storage": format!("{gib}Gi")}, "storageClassName": class, "claimRef": claim,
        });
        object(
            Kind::PersistentVolume,
            json!({"metadata": {"name": name}, "spec": spec}),
        )
    }

    /// Volumes are found by class and size, and by the claim that they are for.
    #[test]
    fn volumes_are_found_by_class_and_by_claim() {
        let mut cluster = Cluster::default();
        for volume in [
            volume("c", "fast", 1, None),
            volume("b", "fast", 2, None),
            volume("a", "fast", 2, None),
            volume("slow", "slow", 1, None),
            volume("taken", "fast", 1, Some("x")),
            volume("also-taken", "fast", 9, Some("x")),
        ] {
            cluster.set(&volume);
        }
        let free = |cluster: &Cluster, class: &str, size: &str| -> Vec<String> {
            let size = size.parse().expect("a quantity");
            let mut names: Vec<String> = Vec::new();
            let next = |names: &[String]| {
                let volumes = &cluster.persistent_volumes;
                let is_new = |volume: &PersistentVolume| {
                    !names.iter().any(|name| *volume.metadata.name == **name)
                };
                let volume = volumes.first_free(class, size, &Labels::default(), is_new);
                volume.map(|volume| volume.metadata.name.to_string())
            };
            while let Some(name) = next(&names) {
                names.push(name);
            }
            names
        };
        let given = |cluster: &Cluster, claim: &str| -> Vec<String> {
            let meta = ObjectMeta {
                name: claim.into(),
                namespace: "default".into(),
                ..ObjectMeta::default()
            };
            let volumes = cluster.persistent_volumes.given_to(&meta);
            volumes.map(|v| v.metadata.name.to_string()).collect()
        };
        assert_eq!(free(&cluster, "fast", "0"), ["c", "a", "b"]);
        assert_eq!(free(&cluster, "fast", "1500Mi"), ["a", "b"]);
        assert_eq!(free(&cluster, "none", "0"), [""; 0]);
        assert_eq!(given(&cluster, "x"), ["also-taken", "taken"]);
        cluster.set(&volume("a", "fast", 2, Some("y")));
        cluster.set(&volume("taken", "fast", 1, None));
        cluster.unset(&volume("b", "fast", 2, None));
        assert_eq!(free(&cluster, "fast", "0"), ["c", "taken"]);
        assert_eq!(given(&cluster, "y"), ["a"]);
        assert_eq!(given(&cluster, "x"), ["also-taken"]);
        for name in ["a", "c", "taken", "also-taken", "slow"] {
            cluster.unset(&volume(name, "", 1, None));
        }
        assert!(cluster.persistent_volumes.free.is_empty());
        assert!(cluster.persistent_volumes.given.is_empty());
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
                let claims = &cluster.persistent_volume_claims;
                let claim = claims.get(pod.pod.namespace(), &claim.name);
                used.extend(
                    claim
                        .and_then(|claim| cluster.csi_volume_of(claim))
                        .map(name),
                );
            }
        }
        let mut all = used.clone();
        for attachment in cluster.volume_attachments.values() {
            let volume = attachment.spec.source.persistent_volume_name.as_ref();
            let volume = volume.and_then(|name| cluster.persistent_volumes.get(name));
            if let Some(csi) = volume.and_then(|volume| volume.spec.csi.as_ref())
                && attachment.spec.node_name == *node.name()
            {
                all.insert((attachment.spec.attacher.clone(), csi.volume_handle.clone()));
            }
        }
        (used, all)
    }

    /// Whatever objects, nodes and pods come, change and go in whatever order: the volumes of each node are those that
    /// a walk over everything finds, and a change of them is in the table's log.
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
                    let logged = changes.filter(|change| change.slot() == slot).count() > 0;
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
                        let limit = cluster.csi_nodes.get(node.name()).and_then(|csi| {
                            let of = csi.spec.drivers.iter().find(|of| of.name == driver)?;
                            of.allocatable.as_ref()?.count.map(i64::from)
                        });
                        assert_eq!(node.volume_limit(driver), limit, "seed {seed}, step {step}");
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
