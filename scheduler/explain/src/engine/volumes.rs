//! Volumes, bound and provisioned like by their controllers.
//!
//! A claim with a selected node gets a volume that is accessible in the zone of the node. A volume that the scheduler
//! has reserved for a claim is bound to it. A claim of a class with immediate binding gets a volume at once. The claims of
//! ephemeral volumes are created with their pod, and deleted with it together with their volumes.

use super::Engine;
use super::claims::owner;
use berth_api::node_selector::{NodeSelector, NodeSelectorRequirement, NodeSelectorTerm};
use berth_api::storage::{
    BIND_COMPLETED_ANNOTATION, ClaimRef, SELECTED_NODE_ANNOTATION, VolumeNodeAffinity,
};
use berth_api::volumes::claims;
use berth_api::{Kind, Object, PersistentVolume, PersistentVolumeClaim, Pod, Str};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

const ZONE: &str = "topology.kubernetes.io/zone";
/// The provisioner of classes whose volumes are created by hand.
const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";
/// The annotation of the default class.
const DEFAULT_CLASS_ANNOTATION: &str = "storageclass.kubernetes.io/is-default-class";
const WAIT_FOR_FIRST_CONSUMER: &str = "WaitForFirstConsumer";

/// The name of the volume provisioned for a claim.
fn provisioned(claim: &PersistentVolumeClaim) -> Str {
    let metadata = &claim.metadata;
    format!("pvc-{}-{}", metadata.namespace, metadata.name).into()
}

/// The annotation of a pod with the templates of the claims of its ephemeral volumes, which [`Pod`] does not have because
/// the scheduler does not read them: a JSON object of PersistentVolumeClaims by the name of the volume.
pub const VOLUME_CLAIM_TEMPLATES_ANNOTATION: &str = "simulation.berth.dev/volume-claim-templates";

/// The namespace and name of the claim whose controllers react to the scheduler's write of a claim or volume.
pub fn claim_to_bind(written: &Object) -> Option<(Str, Str)> {
    match written {
        Object::PersistentVolumeClaim(claim) if !claim.is_fully_bound() => {
            let metadata = &claim.metadata;
            Some((metadata.namespace.clone(), metadata.name.clone()))
        }
        Object::PersistentVolume(volume) => {
            let of = volume.spec.claim_ref.as_ref()?;
            Some((of.namespace.clone(), of.name.clone()))
        }
        _ => None,
    }
}

impl Engine {
    /// Provisions the volumes of claims that do not wait for a pod.
    pub fn provision_at_once(&mut self) {
        for (namespace, name, _) in self.cache().identities(Kind::PersistentVolumeClaim) {
            if let Some(claim) = self.claim(&namespace, &name)
                && claim.spec.volume_name.is_empty()
                && self.provisioner_of(&claim) == Some(false)
            {
                self.provision(&claim, None);
            }
        }
    }

    fn claim(&self, namespace: &Str, name: &Str) -> Option<Arc<PersistentVolumeClaim>> {
        let kind = Kind::PersistentVolumeClaim;
        match self.object(kind, namespace, name)? {
            Object::PersistentVolumeClaim(claim) => Some(claim.clone()),
            _ => None,
        }
    }

    /// Creates the claims of the ephemeral volumes of a pod, except existing claims.
    pub(super) fn create_volume_claims(&mut self, pod: &Pod) {
        let annotations = &pod.metadata.annotations;
        let templates = annotations.get(VOLUME_CLAIM_TEMPLATES_ANNOTATION);
        let templates = templates.and_then(|text| serde_json::from_str(text).ok());
        let templates: BTreeMap<Str, PersistentVolumeClaim> = templates.unwrap_or_default();
        for (volume, mut claim) in templates {
            let name: Str = format!("{}-{volume}", pod.name()).into();
            let namespace = pod.namespace().clone();
            if self.claim(&namespace, &name).is_some() {
                continue;
            }
            let metadata = &mut claim.metadata;
            metadata.uid = format!("claim-{}-{volume}", pod.uid()).into();
            (metadata.namespace, metadata.name) = (namespace, name);
            metadata.creation_timestamp = Some(self.now);
            metadata.owner_references = vec![owner(pod)].into();
            if claim.spec.storage_class_name.is_none() {
                claim.spec.storage_class_name = self.default_class();
            }
            let object = Object::PersistentVolumeClaim(Arc::new(claim.clone()));
            self.set(object);
            if self.provisioner_of(&claim) == Some(false) {
                self.provision(&claim, None);
            }
        }
    }

    /// Deletes the claims of the ephemeral volumes of a removed pod, and their provisioned volumes.
    pub(super) fn delete_volume_claims(&mut self, pod: &Pod) {
        for used in claims(pod).filter(|used| used.is_ephemeral) {
            let namespace = pod.namespace();
            let Some(claim) = self.claim(namespace, &used.name) else {
                continue;
            };
            let kind = Kind::PersistentVolumeClaim;
            self.delete(kind, namespace, &used.name);
            let (kind, volume) = (Kind::PersistentVolume, &claim.spec.volume_name);
            self.delete(kind, &Str::default(), volume);
        }
    }

    /// The name of the default class: the newest one, then the first by name.
    fn default_class(&self) -> Option<Str> {
        let storage = self.cache().cluster().storage();
        let all = storage.classes().values().map(|class| &class.metadata);
        let default =
            all.filter(|class| class.annotations.get(DEFAULT_CLASS_ANNOTATION) == Some("true"));
        let default = default.max_by_key(|class| (class.creation_timestamp, Reverse(&class.name)));
        default.map(|class| class.name.clone())
    }

    /// Whether the provisioner of the class of a claim waits for the first pod; `None` without a provisioner.
    fn provisioner_of(&self, claim: &PersistentVolumeClaim) -> Option<bool> {
        let storage = self.cache().cluster().storage();
        let class = storage.classes().get(claim.class())?;
        let mode = class.volume_binding_mode.as_deref();
        (class.provisioner != NO_PROVISIONER).then_some(mode == Some(WAIT_FOR_FIRST_CONSUMER))
    }

    /// Binds a claim to the volume reserved for it, or provisions one for its selected node.
    pub fn bind_volume(&mut self, (namespace, name): &(Str, Str)) {
        let Some(claim) = self.claim(namespace, name) else {
            return;
        };
        if claim.is_fully_bound() {
            return;
        }
        if let Some(volume) = self.reserved_volume(&claim) {
            return self.bind(&claim, volume);
        }
        let annotations = &claim.metadata.annotations;
        let Some(node) = annotations.get(SELECTED_NODE_ANNOTATION) else {
            return;
        };
        let zone = self.cache().node(node).map(|node| {
            let zone = node.metadata.labels.get(ZONE);
            zone.map(Str::from)
        });
        match zone {
            Some(zone) if self.provisioner_of(&claim).is_some() => self.provision(&claim, zone),
            Some(_) => {}
            // The node has left: the scheduler selects another node.
            None => {
                let mut changed = PersistentVolumeClaim::clone(&claim);
                let annotations = &mut changed.metadata.annotations;
                *annotations = annotations.without(SELECTED_NODE_ANNOTATION);
                self.set(Object::PersistentVolumeClaim(Arc::new(changed)));
            }
        }
    }

    /// The first stored volume that is reserved for a claim.
    fn reserved_volume(&self, claim: &PersistentVolumeClaim) -> Option<PersistentVolume> {
        let metadata = &claim.metadata;
        let volumes = self.scheduler().cache().cluster().storage().volumes();
        let stored = volumes.given_to(metadata).filter_map(|volume| {
            let name = &volume.metadata.name;
            let stored = self.object(Kind::PersistentVolume, &Str::default(), name)?;
            stored.as_persistent_volume()
        });
        // The scheduler may have reserved a volume by a write that is still in flight.
        let is_reserved = |volume: &&Arc<PersistentVolume>| {
            let of = volume.spec.claim_ref.as_ref();
            of.is_some_and(|of| (&of.namespace, &of.name) == (&metadata.namespace, &metadata.name))
        };
        let mut reserved = stored.filter(is_reserved);
        Some(PersistentVolume::clone(reserved.next()?))
    }

    /// Creates a volume for a claim, in a zone if its node has one.
    fn provision(&mut self, claim: &PersistentVolumeClaim, zone: Option<Str>) {
        let mut volume = PersistentVolume::default();
        let metadata = &claim.metadata;
        volume.metadata.name = provisioned(claim);
        volume.metadata.uid = volume.metadata.name.clone();
        volume.spec.access_modes = claim.spec.access_modes.clone();
        volume.spec.storage_class_name = Some(claim.class().into());
        volume.spec.volume_mode = claim.spec.volume_mode.clone();
        volume.spec.capacity = claim.spec.resources.requests.clone();
        volume.spec.claim_ref = Some(ClaimRef {
            namespace: metadata.namespace.clone(),
            name: metadata.name.clone(),
            uid: metadata.uid.clone(),
        });
        volume.spec.node_affinity = zone.map(|zone| VolumeNodeAffinity {
            required: Some(NodeSelector {
                node_selector_terms: vec![NodeSelectorTerm {
                    match_expressions: vec![NodeSelectorRequirement {
                        key: ZONE.into(),
                        operator: "In".into(),
                        values: vec![zone],
                    }],
                    match_fields: Vec::new(),
                }],
            }),
        });
        self.bind(claim, volume);
    }

    fn bind(&mut self, claim: &PersistentVolumeClaim, mut volume: PersistentVolume) {
        let mut changed = claim.clone();
        changed.spec.volume_name = volume.metadata.name.clone();
        let annotations = &mut changed.metadata.annotations;
        *annotations = annotations.with(BIND_COMPLETED_ANNOTATION, "yes");
        changed.status.phase = "Bound".into();
        volume.status.phase = "Bound".into();
        self.set(Object::PersistentVolume(Arc::new(volume)));
        self.set(Object::PersistentVolumeClaim(Arc::new(changed)));
    }
}
