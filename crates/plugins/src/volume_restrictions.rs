//! Keeps pods apart that cannot share a volume.
//!
//! ```text
//! the same EBS volume on a node                             → had no available disk
//! the same GCE disk, RBD image or iSCSI target, both read   → fine
//! a claim ReadWriteOncePod that some pod uses anywhere      → no node, until that pod is gone
//! ```

use crate::change::pods;
use crate::volumes::look_up;
use crate::wake::{claim_key, touched_by_claim, waits_for_claims};
use berth_api::pod::Volume;
use berth_api::volumes::{shared_claims, uses_claim};
use berth_api::{Pod, Str};
use berth_framework::event::{
    ActionType, Change, EventRegistration, EventResource, Hint, Touched, WaitKey, Waits,
};
use berth_framework::keep::{Fragment, Keep, Kept};
use berth_framework::plugin::{
    Context, EnqueueExtensions, Filter, Plugin, PreFilter, PreFilterResult,
};
use berth_framework::registry::{ArgsKind, Extensions, Registration};
use berth_framework::{Cluster, CycleState, FeatureGates, NodeView, PodInfo, Status};
use std::sync::Arc;

/// The plugin's name.
pub const NAME: &str = "VolumeRestrictions";

/// The reason on a node where the disk is in use.
pub const REASON_DISK: &str = "node(s) had no available disk";
/// The reason on every node while another pod uses a claim that only one pod may use.
pub const REASON_ONE_POD: &str = "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod";

/// Keeps pods apart that cannot share a volume.
#[derive(Debug, Default)]
pub struct VolumeRestrictions;

/// The pod's claims that only one pod may use.
struct OnePodClaims(Vec<Str>);

fn is_disk(volume: &Volume) -> bool {
    volume.gce_persistent_disk.is_some()
        || volume.aws_elastic_block_store.is_some()
        || volume.rbd.is_some()
        || volume.iscsi.is_some()
}

/// Whether two volumes cannot be on one node.
fn conflict(a: &Volume, b: &Volume) -> bool {
    if let (Some(a), Some(b)) = (&a.gce_persistent_disk, &b.gce_persistent_disk)
        && a.pd_name == b.pd_name
        && !(a.read_only && b.read_only)
    {
        return true;
    }
    if let (Some(a), Some(b)) = (&a.aws_elastic_block_store, &b.aws_elastic_block_store)
        && a.volume_id == b.volume_id
    {
        return true;
    }
    if let (Some(a), Some(b)) = (&a.iscsi, &b.iscsi)
        && a.iqn == b.iqn
        && !(a.read_only && b.read_only)
    {
        return true;
    }
    if let (Some(a), Some(b)) = (&a.rbd, &b.rbd)
        && a.monitors
            .iter()
            .any(|monitor| b.monitors.contains(monitor))
        && a.pool == b.pool
        && a.image == b.image
        && !(a.read_only && b.read_only)
    {
        return true;
    }
    false
}

/// Whether some disk of `pod` cannot be on a node with `other`.
fn disks_conflict(pod: &Pod, other: &Pod) -> bool {
    let disks = || pod.spec.volumes.iter().filter(|volume| is_disk(volume));
    let mut others = other.spec.volumes.iter();
    others.any(|theirs| disks().any(|ours| conflict(ours, theirs)))
}

/// The pod's claims that only one pod may use.
///
/// # Errors
/// When a claim does not exist.
fn one_pod_claims(cluster: &Cluster, pod: &Pod) -> Result<Vec<Str>, String> {
    let mut names = Vec::new();
    for name in shared_claims(pod) {
        let mut modes = look_up(cluster, pod, name)?.spec.access_modes.iter();
        if modes.any(|mode| mode == "ReadWriteOncePod") {
            names.push(name.clone());
        }
    }
    Ok(names)
}

fn after_pod_delete(pod: &Pod, change: &Change<'_>) -> Result<Hint, String> {
    let (deleted, _) = pods(change)?;
    let Some(deleted) = deleted.filter(|deleted| deleted.namespace() == pod.namespace()) else {
        return Ok(Hint::Skip);
    };
    let shares_claim =
        || shared_claims(deleted).any(|theirs| shared_claims(pod).any(|ours| ours == theirs));
    Ok(if disks_conflict(pod, deleted) || shares_claim() {
        Hint::Queue
    } else {
        Hint::Skip
    })
}

/// What a pod has that it may have to have for itself.
fn exclusive(pod: &Pod) -> impl Iterator<Item = WaitKey> {
    let namespace = pod.namespace().as_str();
    let disks = pod.spec.volumes.iter().flat_map(move |volume| {
        let disk = |kind: &str, name: &str| WaitKey::of((kind, namespace, name));
        let gce = volume.gce_persistent_disk.as_ref();
        let ebs = volume.aws_elastic_block_store.as_ref();
        [
            gce.map(|gce| disk("gce", &gce.pd_name)),
            ebs.map(|ebs| disk("ebs", &ebs.volume_id)),
            volume.iscsi.as_ref().map(|iscsi| disk("iscsi", &iscsi.iqn)),
            volume.rbd.as_ref().map(|rbd| disk("rbd", &rbd.image)),
        ]
    });
    let claims = shared_claims(pod);
    let claims = claims.map(move |name| claim_key(namespace, name));
    disks.flatten().chain(claims)
}

/// What a pod that was turned down waits for of pods.
fn waits_for_pods(pod: &Pod) -> Waits {
    exclusive(pod).collect()
}

/// What a pod leaves.
fn touched_by_pod(change: &Change<'_>) -> Touched {
    match pods(change) {
        Ok((Some(deleted), _)) => exclusive(deleted).collect(),
        Ok((None, _)) => Touched::nobody(),
        Err(_) => Touched::everything(),
    }
}

/// The plugin's entry in the registry.
pub fn registration() -> Registration {
    Registration::new(NAME, |_| {
        Ok(Extensions::of(VolumeRestrictions)
            .pre_filter()
            .filter()
            .events()
            .keep()
            .build())
    })
    .args(ArgsKind::None)
    .by_default(None)
}

impl Plugin for VolumeRestrictions {
    fn name(&self) -> &str {
        NAME
    }
}

impl PreFilter for VolumeRestrictions {
    /// As upstream, Skip also when a claim of one pod is free: pods that are nominated are not looked at then.
    fn pre_filter(
        &self,
        cx: &Context<'_>,
        state: &mut CycleState,
        pod: &PodInfo,
    ) -> PreFilterResult {
        let pod = &pod.pod;
        let one_pod = match one_pod_claims(cx.cluster, pod) {
            Ok(names) => names,
            Err(error) => return PreFilterResult::Reject(Status::unresolvable(error)),
        };
        let nodes = &cx.cluster.nodes;
        let mut one = one_pod.iter();
        let conflicts = one.any(|name| nodes.is_claim_used(pod.namespace(), name));
        if !conflicts && !pod.spec.volumes.iter().any(is_disk) {
            return PreFilterResult::Skip;
        }
        state.write(OnePodClaims(one_pod));
        PreFilterResult::AllNodes
    }
}

impl Filter for VolumeRestrictions {
    /// Pods that are supposed to come or go count as well: the table knows which claims are used.
    fn filter(
        &self,
        _cx: &Context<'_>,
        state: &CycleState,
        pod: &PodInfo,
        node: NodeView<'_>,
    ) -> Status {
        let pod = &pod.pod;
        let mut others = node.pods().iter();
        if others.any(|other| disks_conflict(pod, &other.pod)) {
            return Status::unschedulable(REASON_DISK);
        }
        let Some(OnePodClaims(claims)) = state.read() else {
            return Status::error("VolumeRestrictions: Filter ran without PreFilter");
        };
        let mut claims = claims.iter();
        match claims.any(|name| node.is_claim_used(pod.namespace(), name)) {
            true => Status::unschedulable(REASON_ONE_POD),
            false => Status::success(),
        }
    }
}

impl Keep for VolumeRestrictions {
    /// For pods without disks and claims, about which there is nothing to say.
    fn fragment(&self, _cx: &Context<'_>, pod: &PodInfo, _fragment: &mut Fragment) -> Kept {
        let pod = &pod.pod;
        if pod.spec.volumes.iter().any(is_disk) || shared_claims(pod).next().is_some() {
            Kept::Never
        } else {
            Kept::ByFragment
        }
    }
}

impl EnqueueExtensions for VolumeRestrictions {
    fn events(self: Arc<Self>, _features: &FeatureGates) -> Vec<EventRegistration> {
        vec![
            EventRegistration::with_hint(
                EventResource::Pod,
                ActionType::DELETE,
                |_, pod, change| after_pod_delete(pod, &change),
            )
            .found_by(waits_for_pods, |_, change| touched_by_pod(&change)),
            EventRegistration::always(EventResource::Node, ActionType::ADD),
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
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{
        World, add, claim, delete, full_pod, hint, pod, pod_info, unresolvable, unschedulable,
    };
    use serde_json::{Value, json};

    fn with_volume(volume: Value) -> Value {
        let mut volume = volume;
        volume["name"] = json!("v");
        json!({"volumes": [volume]})
    }

    fn with_claim(name: &str) -> Value {
        with_volume(json!({"persistentVolumeClaim": {"claimName": name}}))
    }

    /// plugins 7.1, 15.1 and 16 (VolumeRestrictions): which disks two pods of a node can share.
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

    /// plugins 7.1 and 16 (VolumeRestrictions): a claim for one pod; pods that come and go; a claim that is not there.
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

    /// plugins 7.1: a pod whose claim nobody uses is left alone altogether, pods that are supposed to come as well.
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

    /// plugins 7.1: what frees a disk or a claim.
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
