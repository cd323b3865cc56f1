//! Rejects nodes, or all nodes, while another pod uses a volume that the pod cannot share.
//!
//! ```text
//! the same EBS volume on a node                             → had no available disk
//! the same GCE disk, RBD image or iSCSI target, both read   → fine
//! a claim ReadWriteOncePod that some pod uses anywhere      → no node, until that pod is deleted
//! ```

use crate::volumes::{VolumeError, claim_names, look_up, when_own_claim};
use berth_api::pod::Volume;
use berth_api::volumes::shared_claims;
use berth_api::{Pod, Str};
use berth_framework::event::{
    ActionType, Change, EventRegistration, EventResource, HintError, WaitKey, Wanted,
};
use berth_framework::keep::constant;
use berth_framework::lack::VolumeLack;
use berth_framework::plugin::{Context, EnqueueExtensions};
use berth_framework::registry::{ArgsKind, Extensions, Registration};
use berth_framework::requirement::NodeFilter;
use berth_framework::{Cluster, FeatureGates, Lack, NodeView, PodInfo, ReasonCode, Status};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use std::sync::Arc;

/// The plugin's name.
pub const NAME: &str = "VolumeRestrictions";

/// The reason on a node where the disk is in use.
pub const REASON_DISK: &str = "node(s) had no available disk";
/// The reason on every node while another pod uses a claim that only one pod may use.
pub const REASON_ONE_POD: &str = "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod";

/// Volumes that pods cannot share.
#[derive(Debug, Default)]
pub struct VolumeRestrictions;

/// A disk in a pod's spec.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Disk {
    Gce { name: Str, read_only: bool },
    Ebs { id: Str },
    Iscsi { iqn: Str, read_only: bool },
    Rbd(Rbd),
}

/// An RBD image.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Rbd {
    monitors: Vec<Str>,
    pool: Str,
    image: Str,
    read_only: bool,
}

/// The disks of a volume: at most one in a valid pod.
fn disks_of(volume: &Volume) -> impl Iterator<Item = Disk> {
    let gce = volume.gce_persistent_disk.as_ref().map(|gce| Disk::Gce {
        name: gce.pd_name.clone(),
        read_only: gce.read_only,
    });
    let ebs = volume.aws_elastic_block_store.as_ref();
    let ebs = ebs.map(|ebs| Disk::Ebs {
        id: ebs.volume_id.clone(),
    });
    let iscsi = volume.iscsi.as_ref().map(|iscsi| Disk::Iscsi {
        iqn: iscsi.iqn.clone(),
        read_only: iscsi.read_only,
    });
    let rbd = volume.rbd.as_ref().map(|rbd| {
        Disk::Rbd(Rbd {
            monitors: rbd.monitors.clone(),
            pool: rbd.pool.clone(),
            image: rbd.image.clone(),
            read_only: rbd.read_only,
        })
    });
    [gce, ebs, iscsi, rbd].into_iter().flatten()
}

fn disks(pod: &Pod) -> impl Iterator<Item = Disk> {
    pod.spec.volumes.iter().flat_map(disks_of)
}

impl Disk {
    /// The name that equal disks share.
    fn name(&self) -> &Str {
        match self {
            Self::Gce { name, .. } => name,
            Self::Ebs { id } => id,
            Self::Iscsi { iqn, .. } => iqn,
            Self::Rbd(rbd) => &rbd.image,
        }
    }

    /// Returns whether two pods on one node cannot both have the disks.
    fn conflicts_with(&self, other: &Self) -> bool {
        let (is_same, both_read) = match (self, other) {
            // As upstream, two pods cannot share an EBS volume even if both only read it (PL-120).
            (Self::Ebs { id: a }, Self::Ebs { id: b }) => (a == b, false),
            (
                Self::Gce {
                    name: a,
                    read_only: reads,
                },
                Self::Gce {
                    name: b,
                    read_only: other_reads,
                },
            )
            | (
                Self::Iscsi {
                    iqn: a,
                    read_only: reads,
                },
                Self::Iscsi {
                    iqn: b,
                    read_only: other_reads,
                },
            ) => (a == b, *reads && *other_reads),
            (Self::Rbd(a), Self::Rbd(b)) => {
                let is_same =
                    (&a.pool, &a.image) == (&b.pool, &b.image) && meets(&a.monitors, &b.monitors);
                (is_same, a.read_only && b.read_only)
            }
            _ => return false,
        };
        is_same && !both_read
    }
}

/// The number of disks or monitors that are compared one by one.
const FEW: usize = 8;

/// Returns whether a name is in both lists.
fn meets(a: &[Str], b: &[Str]) -> bool {
    if a.len().min(b.len()) <= FEW {
        return a.iter().any(|name| b.contains(name));
    }
    let b: FxHashSet<&Str> = b.iter().collect();
    a.iter().any(|name| b.contains(name))
}

/// The objects that a pod may need exclusively: the disks, and the claims that only one pod may use.
#[derive(Debug, Hash)]
pub struct Exclusive {
    disks: Vec<Disk>,
    namespace: Str,
    one_pod_claims: Vec<Str>,
    /// Whether a pod on some node uses one of the claims. In that case every node is rejected.
    is_used: bool,
}

impl Exclusive {
    /// The disks of the node's pods that conflict with disks of the pod.
    fn conflicts<'a>(
        &'a self,
        node: NodeView<'a>,
    ) -> impl Iterator<Item = (&'a Arc<PodInfo>, Disk)> + 'a {
        let others = node.pods_with_disks().filter(|_| !self.disks.is_empty());
        let used = others.flat_map(|other| disks(&other.pod).map(move |disk| (other, disk)));
        // A pod can have thousands of disks, and so can the pods of the node. Disks that conflict have one name.
        let mut by_name: FxHashMap<&Str, SmallVec<[&Disk; 1]>> = FxHashMap::default();
        if self.disks.len() > FEW {
            for disk in &self.disks {
                by_name.entry(disk.name()).or_default().push(disk);
            }
        }
        used.filter(move |(_, used)| {
            let conflicts = |disk: &Disk| disk.conflicts_with(used);
            if by_name.is_empty() {
                return self.disks.iter().any(conflicts);
            }
            let named = by_name.get(used.name()).into_iter().flatten();
            named.copied().any(conflicts)
        })
    }

    /// The claims that pods of the node use. The table counts pods that a dry run adds or removes.
    fn used_claims<'a>(&'a self, node: NodeView<'a>) -> impl Iterator<Item = &'a Str> {
        let claims = self.one_pod_claims.iter();
        claims.filter(move |name| node.is_claim_used(&self.namespace, name))
    }
}

/// The pod's claims that only one pod may use.
///
/// # Errors
/// When a claim does not exist.
fn one_pod_claims(cluster: &Cluster, pod: &Pod) -> Result<Vec<Str>, VolumeError> {
    let mut names = Vec::new();
    for name in shared_claims(pod) {
        let mut modes = look_up(cluster, pod, name)?.spec.access_modes.iter();
        if modes.any(|mode| mode == "ReadWriteOncePod") {
            names.push(name.clone());
        }
    }
    Ok(names)
}

/// A disk or claim that a pod waits for, or that a deleted pod leaves, with its namespace.
enum Freed {
    Disk(Str, Disk),
    Claim(Str, Str),
}

impl Wanted for Freed {
    fn key(&self) -> WaitKey {
        match self {
            Self::Disk(namespace, disk) => WaitKey::of(("disk", namespace, disk.name())),
            Self::Claim(namespace, name) => WaitKey::of(("claim", namespace, name)),
        }
    }

    /// As in kube-scheduler, disks of other namespaces do not count, and claims count whatever their access mode.
    fn is_met_by(&self, freed: &Self) -> bool {
        match (self, freed) {
            (Self::Disk(namespace, disk), Self::Disk(other, freed)) => {
                namespace == other && disk.conflicts_with(freed)
            }
            (Self::Claim(..), Self::Claim(..)) => self.key() == freed.key(),
            _ => false,
        }
    }
}

fn held(pod: &Pod) -> Vec<Freed> {
    let namespace = pod.namespace();
    let disks = disks(pod).map(|disk| Freed::Disk(namespace.clone(), disk));
    let claims = shared_claims(pod).map(|name| Freed::Claim(namespace.clone(), name.clone()));
    disks.chain(claims).collect()
}

fn freed(change: &Change<'_>) -> Result<Vec<Freed>, HintError> {
    let (deleted, _) = change.pods()?;
    Ok(deleted.map(held).unwrap_or_default())
}

/// The plugin's entry in the registry.
pub fn registration() -> Registration {
    Registration::new(NAME, |_| {
        Ok(Extensions::of(VolumeRestrictions)
            .pre_filter()
            .node_filter()
            .events()
            .fragment_version(constant)
            .build())
    })
    .args(ArgsKind::None)
    .by_default(None)
}

impl NodeFilter for VolumeRestrictions {
    type Requirement = Exclusive;

    /// No requirement if every claim for one pod is free, as in kube-scheduler: nominated pods do not count then.
    fn requirement(&self, cx: &Context<'_>, pod: &PodInfo) -> Result<Option<Exclusive>, Status> {
        let pod = &pod.pod;
        let one_pod_claims = one_pod_claims(cx.cluster, pod);
        let one_pod_claims = one_pod_claims.map_err(Status::unresolvable)?;
        let disks: Vec<Disk> = disks(pod).collect();
        let namespace = pod.namespace();
        let nodes = &cx.cluster.nodes;
        let mut claims = one_pod_claims.iter();
        let is_used = claims.any(|name| nodes.is_claim_used(namespace, name));
        Ok((is_used || !disks.is_empty()).then(|| Exclusive {
            disks,
            namespace: namespace.clone(),
            one_pod_claims,
            is_used,
        }))
    }

    fn check(&self, exclusive: &Exclusive, node: NodeView<'_>) -> Status {
        if exclusive.conflicts(node).next().is_some() {
            return Status::unschedulable(ReasonCode::DiskTaken.reason(REASON_DISK));
        }
        if exclusive.used_claims(node).next().is_some() {
            Status::unschedulable(ReasonCode::ReadWriteOncePodTaken.reason(REASON_ONE_POD))
        } else {
            Status::success()
        }
    }

    fn lacks(&self, exclusive: &Exclusive, node: NodeView<'_>) -> Vec<Lack> {
        let disks = exclusive.conflicts(node).map(|(other, disk)| {
            let holder = Str::new(&other.pod.key());
            let disk = disk.name().clone();
            VolumeLack::DiskInUse { disk, holder }
        });
        let claims = exclusive.used_claims(node).map(|claim| {
            let uses = |other: &&Arc<PodInfo>| {
                other.pod.namespace() == &exclusive.namespace
                    && shared_claims(&other.pod).any(|name| name == claim)
            };
            let holders = node.pods().iter().filter(uses);
            VolumeLack::ClaimInUse {
                claim: claim.clone(),
                holder: holders.map(|other| Str::new(&other.pod.key())).min(),
            }
        });
        disks.chain(claims).map(Lack::Volume).collect()
    }
}

impl EnqueueExtensions for VolumeRestrictions {
    fn events(self: Arc<Self>, _features: &FeatureGates) -> Vec<EventRegistration> {
        vec![
            EventRegistration::matching(EventResource::Pod, ActionType::DELETE, held, freed),
            EventRegistration::always(EventResource::Node, ActionType::ADD),
            when_own_claim(ActionType::ADD, claim_names),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{
        World, add, claim, delete, full_pod, hint, pod, pod_info, unresolvable, unschedulable,
    };
    use berth_framework::CycleState;
    use berth_framework::Hint;
    use berth_framework::plugin::PreFilter;
    use berth_framework::plugin::PreFilterResult;
    use serde_json::{Value, json};

    fn with_volume(volume: Value) -> Value {
        let mut volume = volume;
        volume["name"] = json!("v");
        json!({"volumes": [volume]})
    }

    fn with_claim(name: &str) -> Value {
        with_volume(json!({"persistentVolumeClaim": {"claimName": name}}))
    }

    /// PL-120: which disks two pods of a node can share.
    #[test]
    fn disks_that_cannot_be_shared() {
        let gce = |name: &str, read_only: bool| json!({"gcePersistentDisk": {"pdName": name, "readOnly": read_only}});
        let ebs = |id: &str| json!({"awsElasticBlockStore": {"volumeID": id}});
        let iscsi = |iqn: &str, read_only: bool| json!({"iscsi": {"iqn": iqn, "readOnly": read_only, "lun": 1}});
        let rbd = |monitors: Value, image: &str, read_only: bool| json!({"rbd": {"monitors": monitors, "pool": "p", "image": image, "readOnly": read_only}});
        for (ours, theirs, taken) in [
            (gce("a", false), gce("a", false), true),
            (gce("a", true), gce("a", false), true),
            (gce("a", true), gce("a", true), false),
            (gce("a", false), gce("b", false), false),
            (ebs("v"), ebs("v"), true),
            (ebs("v"), ebs("w"), false),
            (iscsi("i", true), iscsi("i", false), true),
            (iscsi("i", true), iscsi("i", true), false),
            (
                rbd(json!(["m1", "m2"]), "i", false),
                rbd(json!(["m2"]), "i", true),
                true,
            ),
            (
                rbd(json!(["m1"]), "i", false),
                rbd(json!(["m2"]), "i", false),
                false,
            ),
            (
                rbd(json!(["m1"]), "i", false),
                rbd(json!(["m1"]), "j", false),
                false,
            ),
            (
                rbd(json!(["m1"]), "i", true),
                rbd(json!(["m1"]), "i", true),
                false,
            ),
            (gce("a", false), ebs("a"), false),
            // Not even two that only read: the disk can be attached once.
            (
                json!({"awsElasticBlockStore": {"volumeID": "v", "readOnly": true}}),
                json!({"awsElasticBlockStore": {"volumeID": "v", "readOnly": true}}),
                true,
            ),
            // Neither the portal nor the unit of a target counts, only its name.
            (
                json!({"iscsi": {"iqn": "i", "targetPortal": "a", "lun": 1}}),
                json!({"iscsi": {"iqn": "i", "targetPortal": "b", "lun": 2}}),
                true,
            ),
            (iscsi("i", false), iscsi("j", false), false),
            (
                json!({"rbd": {"monitors": ["m1"], "pool": "q", "image": "i"}}),
                json!({"rbd": {"monitors": ["m1"], "pool": "p", "image": "i"}}),
                false,
            ),
            (gce("a", false), json!({"configMap": {"name": "a"}}), false),
        ] {
            let world = World::new()
                .node("used", json!({}))
                .node("free", json!({}))
                .bound("used", "other", with_volume(theirs.clone()));
            let expected = if taken {
                unschedulable(REASON_DISK)
            } else {
                None
            };
            let got = world.filter(
                &VolumeRestrictions,
                &pod_info("p", with_volume(ours.clone())),
            );
            assert_eq!(got, Ok(vec![expected, None]), "{ours} {theirs}");
        }
    }

    fn one_pod(name: &str) -> berth_api::PersistentVolumeClaim {
        claim(name, json!({"spec": {"accessModes": ["ReadWriteOncePod"]}}))
    }

    /// PL-121: a claim for one pod; added and removed pods; a missing claim.
    #[test]
    fn a_claim_for_one_pod() {
        let everywhere = || Ok(vec![unschedulable(REASON_ONE_POD); 2]);
        let base = || {
            World::new()
                .node("n1", json!({}))
                .node("n2", json!({}))
                .with(one_pod("c"))
        };
        let mut stranger = pod("s", with_claim("c"));
        stranger.metadata.namespace = "other".into();
        let shared = claim("c", json!({"spec": {"accessModes": ["ReadWriteOnce"]}}));
        for (name, world, expected) in [
            ("free", base(), Ok(vec![None; 2])),
            (
                "used",
                base().bound("n1", "o", with_claim("c")),
                everywhere(),
            ),
            (
                "of another namespace",
                base().bound_pod("n1", stranger),
                Ok(vec![None; 2]),
            ),
            (
                "may be shared",
                base().with(shared).bound("n1", "o", with_claim("c")),
                Ok(vec![None; 2]),
            ),
            (
                "used by a pod that is going",
                base().bound_pod("n1", {
                    let mut going = pod("o", with_claim("c"));
                    going.metadata.deletion_timestamp = Some(berth_api::Time::EPOCH);
                    going
                }),
                everywhere(),
            ),
            (
                "not there",
                World::new().node("n1", json!({})),
                Err(unresolvable("persistentvolumeclaim \"c\" not found")),
            ),
        ] {
            let got = world.filter(&VolumeRestrictions, &pod_info("p", with_claim("c")));
            assert_eq!(got, expected, "{name}");
        }

        // A pod that is only supposed to leave.
        let mut world = base().bound("n1", "o", with_claim("c"));
        let waiting = pod_info("p", with_claim("c"));
        let mut state = CycleState::default();
        let _ = VolumeRestrictions.pre_filter(&world.context(), &mut state, &waiting);
        world.cluster.nodes.begin();
        assert!(world.cluster.nodes.remove_pod("n1", "o").is_ok());
        assert_eq!(
            world.filter_with(&VolumeRestrictions, &state, &waiting),
            [None, None]
        );
        world.cluster.nodes.rollback();
        assert_eq!(
            Ok(world.filter_with(&VolumeRestrictions, &state, &waiting)),
            everywhere()
        );
    }

    /// PL-122: PreFilter skips a pod whose claim no other pod uses, so nominated pods are not checked either.
    #[test]
    fn a_free_claim_is_skipped() {
        let world = World::new().node("n1", json!({})).with(one_pod("c"));
        let ask = |spec: Value| {
            let mut state = CycleState::default();
            VolumeRestrictions.pre_filter(&world.context(), &mut state, &pod_info("p", spec))
        };
        for (name, spec, skipped) in [
            ("a free claim", with_claim("c"), true),
            ("no volumes", json!({}), true),
            (
                "a disk that may conflict",
                with_volume(json!({"gcePersistentDisk": {"pdName": "a"}})),
                false,
            ),
            (
                "an ephemeral claim",
                with_volume(json!({"ephemeral": {}})),
                true,
            ),
        ] {
            assert_eq!(
                matches!(ask(spec), PreFilterResult::Skip),
                skipped,
                "{name}"
            );
        }
    }

    /// PL-123: the changes that free a disk or a claim.
    #[test]
    fn what_wakes() {
        let ebs = || with_volume(json!({"awsElasticBlockStore": {"volumeID": "v"}}));
        let far = full_pod(
            "o",
            json!({"metadata": {"namespace": "other"}, "spec": ebs()}),
        );
        for (name, waiting, deleted, expected) in [
            ("the same disk", ebs(), pod("o", ebs()), Hint::Queue),
            ("the same disk, another namespace", ebs(), far, Hint::Skip),
            (
                "the same claim",
                with_claim("c"),
                pod("o", with_claim("c")),
                Hint::Queue,
            ),
            (
                "another claim",
                with_claim("c"),
                pod("o", with_claim("d")),
                Hint::Skip,
            ),
            ("no volumes", ebs(), pod("o", json!({})), Hint::Skip),
            (
                "a disk that both only read",
                with_volume(json!({"gcePersistentDisk": {"pdName": "a", "readOnly": true}})),
                pod(
                    "o",
                    with_volume(json!({"gcePersistentDisk": {"pdName": "a", "readOnly": true}})),
                ),
                Hint::Skip,
            ),
        ] {
            let waiting = pod("p", waiting);
            let got = hint(
                VolumeRestrictions,
                &World::new(),
                EventResource::Pod,
                ActionType::DELETE,
                &waiting,
                delete(deleted),
            );
            assert_eq!(got, Ok(expected), "{name}");
        }
        for (name, expected) in [("c", Hint::Queue), ("d", Hint::Skip)] {
            let waiting = pod("p", with_claim("c"));
            let got = hint(
                VolumeRestrictions,
                &World::new(),
                EventResource::PersistentVolumeClaim,
                ActionType::ADD,
                &waiting,
                add(one_pod(name)),
            );
            assert_eq!(got, Ok(expected), "{name}");
        }
    }
}
