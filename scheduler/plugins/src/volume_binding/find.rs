//! The volumes that a pod gets on a node: its own, available ones, or provisioned ones.

use super::claims::{Claims, Delayed};
use crate::volumes::VolumeError;
use berth_api::node_selector::CompiledNodeSelector;
use berth_api::storage::SELECTED_NODE_ANNOTATION;
use berth_api::{
    CsiStorageCapacity, Labels, Node, PersistentVolume, PersistentVolumeClaim, Selector,
    StorageClass, Str,
};
use berth_framework::Cluster;
use rustc_hash::FxHashSet;
use smallvec::SmallVec;
use std::sync::Arc;

/// The reason why a node is rejected.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Obstacles {
    /// The volume that the node cannot access.
    pub(super) node_conflict: Option<Str>,
    /// The claim for which there is no volume, and none can be provisioned.
    pub(super) bind_conflict: Option<Str>,
    /// The claim for whose new volume there is not enough capacity.
    pub(super) not_enough_space: Option<Str>,
    /// The volume of a bound claim does not exist.
    pub(super) volume_missing: bool,
}

/// The volumes of one kind of claims that is to be bound on the node.
#[derive(Debug, Default)]
pub(super) struct FoundVolumes {
    /// Claims with the volume that was chosen for each.
    pub(super) bindings: Vec<(Arc<PersistentVolumeClaim>, Arc<PersistentVolume>)>,
    /// Claims for which a volume is to be provisioned.
    pub(super) provisions: Vec<Provision>,
}

/// A claim for which a volume is to be provisioned.
#[derive(Debug)]
pub(super) struct Provision {
    pub(super) claim: Arc<PersistentVolumeClaim>,
    /// The capacity object for the volume, if the driver reports capacity.
    pub(super) capacity: Option<Arc<CsiStorageCapacity>>,
}

impl Provision {
    fn of(claim: &Arc<PersistentVolumeClaim>) -> Self {
        Self {
            claim: claim.clone(),
            capacity: None,
        }
    }
}

/// Returns whether a node with these labels can access a volume that is free. As in kube-scheduler, the volume is not
/// translated to a CSI driver.
fn is_reachable(volume: &PersistentVolume, labels: &Labels) -> bool {
    let Some(required) = volume.required_affinity() else {
        return true;
    };
    // The affinity of volumes has no node names; a term that does not parse matches no node.
    CompiledNodeSelector::new(required)
        .matches(labels, "")
        .unwrap_or(false)
}

fn is_for(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    volume.spec.claim_ref.as_ref().is_some_and(|for_claim| {
        for_claim.name == claim.metadata.name
            && for_claim.namespace == claim.metadata.namespace
            && (for_claim.uid.is_empty() || for_claim.uid == claim.metadata.uid)
    })
}

fn mode(mode: Option<&Str>) -> &str {
    mode.map_or("Filesystem", Str::as_str)
}

fn or_empty(name: Option<&Str>) -> &str {
    name.map_or("", Str::as_str)
}

/// Returns whether the volume is large enough and of the right kind, whatever its claim.
fn is_suitable(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let (offered, wanted) = (&volume.spec, &claim.spec);
    volume.capacity() >= claim.request().unwrap_or_default()
        && volume.metadata.deletion_timestamp.is_none()
        && mode(offered.volume_mode.as_ref()) == mode(wanted.volume_mode.as_ref())
        && or_empty(offered.volume_attributes_class_name.as_ref())
            == or_empty(wanted.volume_attributes_class_name.as_ref())
}

/// The volume that is reserved for a claim, if it is suitable.
pub(super) fn given_volume(
    cluster: &Cluster,
    claim: &PersistentVolumeClaim,
) -> Option<Arc<PersistentVolume>> {
    let mut given = cluster.storage().volumes().given_to(&claim.metadata);
    let found = given.find(|volume| {
        volume.class() == claim.class() && is_for(volume, claim) && is_suitable(volume, claim)
    });
    found.cloned()
}

/// The volume for a claim on a node: the volume that is reserved for it, otherwise the smallest matching one.
///
/// # Errors
/// When the claim's selector does not parse.
fn matching_volume<'a>(
    cluster: &'a Cluster,
    Delayed { claim, given }: &'a Delayed,
    labels: &Labels,
    taken: &FxHashSet<&Str>,
) -> Result<Option<&'a Arc<PersistentVolume>>, VolumeError> {
    let selector = match &claim.spec.selector {
        None => Selector::everything(),
        Some(selector) => Selector::from_label_selector(Some(selector))?,
    };
    if let Some(volume) = given {
        return Ok(is_reachable(volume, labels).then_some(volume));
    }
    let is_taken = |volume: &PersistentVolume| taken.contains(&volume.metadata.name);
    let has_modes = |volume: &PersistentVolume| {
        let mut modes = claim.spec.access_modes.iter();
        modes.all(|mode| volume.spec.access_modes.contains(mode))
    };
    let size = claim.request().unwrap_or_default();
    let volumes = cluster.storage().volumes();
    Ok(volumes.first_free(claim.class(), size, labels, |volume| {
        volume.status.phase == "Available"
            && !is_taken(volume)
            && is_suitable(volume, claim)
            && selector.matches(&volume.metadata.labels)
            && has_modes(volume)
            && is_reachable(volume, labels)
    }))
}

/// Returns whether the class can provision volumes for nodes with these labels.
fn allows(class: &StorageClass, labels: &Labels) -> bool {
    class.allowed_topologies.is_empty()
        || class.allowed_topologies.iter().any(|term| {
            let expressions = &term.match_label_expressions;
            !expressions.is_empty()
                && expressions.iter().all(|expression| {
                    let value = labels.get_str(&expression.key);
                    value.is_some_and(|value| expression.values.contains(value))
                })
        })
}

/// Returns whether a node with these labels can access the capacity.
fn reaches(capacity: &CsiStorageCapacity, labels: &Labels) -> bool {
    Selector::from_label_selector(capacity.node_topology.as_ref())
        .is_ok_and(|selector| selector.matches(labels))
}

/// Returns whether the driver of the class reports how much capacity is left.
pub(super) fn reports_capacity(cluster: &Cluster, class: &StorageClass) -> bool {
    let driver = cluster.storage().csi_drivers().get(&class.provisioner);
    driver.is_some_and(|driver| driver.spec.storage_capacity == Some(true))
}

/// Returns whether there is enough capacity for a new volume. It is checked only for drivers that report capacity. Of
/// several capacities, the first by name is recorded.
fn has_space(
    cluster: &Cluster,
    provision: &mut Provision,
    class: &StorageClass,
    labels: &Labels,
) -> bool {
    let Some(size) = provision.claim.request() else {
        return true;
    };
    if !reports_capacity(cluster, class) {
        return true;
    }
    let name = &class.metadata.name;
    let capacities = cluster.storage().capacities();
    let sufficient = capacities.at_least(name, size.value(), labels);
    let reachable = sufficient.filter(|capacity| reaches(capacity, labels));
    let by_name = |capacity: &&Arc<CsiStorageCapacity>| {
        let meta = &capacity.metadata;
        (meta.namespace.clone(), meta.name.clone())
    };
    provision.capacity = reachable.min_by_key(by_name).cloned();
    provision.capacity.is_some()
}

/// Checks the claims that have a volume.
fn check_bound(
    cluster: &Cluster,
    claims: &Claims,
    node: &Node,
    obstacles: &mut Obstacles,
) -> Result<(), VolumeError> {
    for volume in &claims.bound {
        let Some(volume) = volume else {
            obstacles.volume_missing = true;
            return Ok(());
        };
        if !volume.is_reachable(cluster.storage(), node)? {
            obstacles.node_conflict = Some(volume.name().clone());
            return Ok(());
        }
    }
    Ok(())
}

/// Checks that volumes can be provisioned.
fn check_provisions(
    cluster: &Cluster,
    provisions: &mut [Provision],
    labels: &Labels,
    obstacles: &mut Obstacles,
) -> Result<(), VolumeError> {
    for provision in provisions {
        let claim = &provision.claim;
        let name = claim.class();
        if name.is_empty() {
            let meta = &claim.metadata;
            let key = format!("{}/{}", meta.namespace, meta.name);
            return Err(VolumeError::NoClass(key));
        }
        let class = cluster.storage().classes().get(name);
        let class = class.ok_or_else(|| VolumeError::ClassMissing(name.to_owned()))?;
        let has_provisioner =
            !class.provisioner.is_empty() && class.provisioner != "kubernetes.io/no-provisioner";
        if !has_provisioner || !allows(class, labels) {
            obstacles.bind_conflict = Some(claim.metadata.name.clone());
            return Ok(());
        }
        if !has_space(cluster, provision, class, labels) {
            obstacles.not_enough_space = Some(provision.claim.metadata.name.clone());
            return Ok(());
        }
    }
    Ok(())
}

/// The volumes of a pod on a node, or why it is rejected.
///
/// # Errors
/// The value that cannot be determined.
pub(super) fn find(
    cluster: &Cluster,
    claims: &Claims,
    node: &Node,
) -> Result<(FoundVolumes, Obstacles), VolumeError> {
    let labels = node.labels();
    let mut obstacles = Obstacles::default();
    let mut found = FoundVolumes::default();
    check_bound(cluster, claims, node, &mut obstacles)?;
    let mut to_match: SmallVec<[&Delayed; 4]> = SmallVec::new();
    for delayed in &claims.delayed {
        let claim = &delayed.claim;
        // A volume is being provisioned on the selected node, so the claim fits no other node (PL-134).
        match claim.metadata.annotations.get(SELECTED_NODE_ANNOTATION) {
            None => to_match.push(delayed),
            Some(selected) if selected == node.name().as_str() => {
                found.provisions.push(Provision::of(claim));
            }
            Some(_) => {
                obstacles.bind_conflict = Some(claim.metadata.name.clone());
                return Ok((found, obstacles));
            }
        }
    }
    // Two claims do not take the same volume. Claims are sorted, the smallest first (PL-132).
    let mut taken: FxHashSet<&Str> = FxHashSet::default();
    for delayed in to_match {
        match matching_volume(cluster, delayed, labels, &taken)? {
            None => found.provisions.push(Provision::of(&delayed.claim)),
            Some(volume) => {
                taken.insert(&volume.metadata.name);
                let binding = (delayed.claim.clone(), volume.clone());
                found.bindings.push(binding);
            }
        }
    }
    check_provisions(cluster, &mut found.provisions, labels, &mut obstacles)?;
    Ok((found, obstacles))
}
