//! Volumes: reachability, attach limits and sharing.

use super::{Forbids, Scene};
use crate::shapes::CLASS_MADE;
use crate::world::Others;
use berth_api::storage::PersistentVolumeClaim;
use berth_api::{Node, Pod, Str};
use std::collections::BTreeSet;

pub(super) fn forbids(scene: &Scene<'_>, pod: &Pod, node: &Node) -> Option<Forbids> {
    let mut unclear = false;
    for name in claims(pod) {
        let Some(claim) = scene.others.claim(pod.namespace(), name) else {
            return Some(Forbids::Rule("a claim is not there"));
        };
        if is_for_one_pod(claim) && used_by_others(scene, pod, name) {
            return Some(Forbids::Lacks(format!("claim {name} (ReadWriteOncePod)")));
        }
        if !claim.is_fully_bound() {
            unclear = true;
            continue;
        }
        let Some(volume) = scene.others.volume(&claim.spec.volume_name) else {
            return Some(Forbids::Rule("a volume is not there"));
        };
        let migration = volume.migration().filter(|migration| {
            let csi = scene.others.csi_node(node.name());
            csi.is_some_and(|csi| csi.has_migrated(migration.plugin))
        });
        let reach = match &migration {
            None => volume.required_affinity(),
            Some(migration) => match &migration.affinity {
                Ok(required) => required.as_ref(),
                Err(_) => return Some(Forbids::Rule("a volume cannot be migrated")),
            },
        };
        if reach.is_some_and(|required| !berth_oracle::matches_terms(required, node)) {
            return Some(Forbids::Rule("a volume cannot be reached"));
        }
    }
    let own = attached(scene.others, pod);
    let limit = limit_of(scene.others, node);
    if let Some(limit) = limit {
        let held: BTreeSet<String> = scene
            .on(node, pod)
            .flat_map(|other| attached(scene.others, other))
            .collect();
        let more = own.difference(&held).count();
        if more > 0 && held.len() + more > limit {
            return Some(Forbids::Lacks("attachable volumes".to_owned()));
        }
    }
    unclear.then_some(Forbids::Unclear)
}

/// Returns whether a claim of the pod does not exist, is being deleted, is bound to a volume that does not exist, or
/// waits for the volume that it names. Such a pod does not reach Filter.
pub(crate) fn lacks_claim(others: &Others, pod: &Pod) -> bool {
    claims(pod).any(|name| {
        others.claim(pod.namespace(), name).is_none_or(|claim| {
            let volume = &claim.spec.volume_name;
            claim.metadata.deletion_timestamp.is_some()
                || (!volume.is_empty()
                    && (!claim.is_fully_bound() || others.volume(volume).is_none()))
        })
    })
}

fn claims(pod: &Pod) -> impl Iterator<Item = &Str> {
    let volumes = pod.spec.volumes.iter();
    volumes.filter_map(|v| Some(&v.persistent_volume_claim.as_ref()?.claim_name))
}

fn is_for_one_pod(claim: &PersistentVolumeClaim) -> bool {
    claim
        .spec
        .access_modes
        .iter()
        .any(|m| *m == "ReadWriteOncePod")
}

fn used_by_others(scene: &Scene<'_>, pod: &Pod, name: &Str) -> bool {
    scene.elsewhere(pod).any(|(other, _)| {
        other.namespace() == pod.namespace() && claims(other).any(|used| used == name)
    })
}

/// The handles of the volumes that a pod adds to its node. A volume that is still to be created is identified by its
/// claim.
fn attached(others: &Others, pod: &Pod) -> BTreeSet<String> {
    let handle = |claim: &PersistentVolumeClaim| {
        let volume = others.volume(&claim.spec.volume_name);
        match volume.and_then(|volume| volume.spec.csi.as_ref()) {
            Some(csi) => Some(csi.volume_handle.to_string()),
            None if claim.class() == CLASS_MADE => {
                Some(format!("of claim {}", claim.metadata.name))
            }
            None => None,
        }
    };
    claims(pod)
        .filter_map(|name| others.claim(pod.namespace(), name))
        .filter_map(|claim| handle(claim))
        .collect()
}

/// The number of volumes attached to the node.
fn limit_of(others: &Others, node: &Node) -> Option<usize> {
    let csi = others.csi_node(node.name())?;
    let mut drivers = csi.spec.drivers.iter();
    let count = drivers.find_map(|driver| driver.allocatable.as_ref()?.count)?;
    usize::try_from(count).ok()
}
