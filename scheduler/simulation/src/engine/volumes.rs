//! Volumes, as their controllers bind and provision them.
//!
//! A claim with a selected node gets a volume that the zone of the node can reach. A volume that the scheduler has reserved
//! for a claim is bound to it. A claim of a class with immediate binding gets a volume when the simulation begins.

use super::Simulation;
use super::events::Event;
use berth_api::node_selector::{NodeSelector, NodeSelectorRequirement, NodeSelectorTerm};
use berth_api::storage::{
    BIND_COMPLETED_ANNOTATION, ClaimRef, SELECTED_NODE_ANNOTATION, VolumeNodeAffinity,
};
use berth_api::{Kind, Object, PersistentVolume, PersistentVolumeClaim, Str};
use std::sync::Arc;

const ZONE: &str = "topology.kubernetes.io/zone";
/// The provisioner of classes whose volumes are created by hand.
const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";
const WAIT_FOR_FIRST_CONSUMER: &str = "WaitForFirstConsumer";

impl Simulation {
    /// Provisions the volumes of claims that do not wait for a pod.
    pub(super) fn provision_at_once(&mut self) {
        let claims = self.objects.values().filter_map(|object| match object {
            Object::PersistentVolumeClaim(claim) if claim.spec.volume_name.is_empty() => {
                Some(claim)
            }
            _ => None,
        });
        let claims: Vec<Arc<PersistentVolumeClaim>> = claims.cloned().collect();
        for claim in claims {
            if self.provisioner_of(&claim) == Some(false) {
                self.provision(&claim, None);
            }
        }
    }

    /// Whether the class of a claim has a provisioner, and if so, whether it waits for the first pod.
    fn provisioner_of(&self, claim: &PersistentVolumeClaim) -> Option<bool> {
        let key = (Kind::StorageClass, Str::default(), claim.class().into());
        let Some(Object::StorageClass(class)) = self.objects.get(&key) else {
            return None;
        };
        let mode = class.volume_binding_mode.as_deref();
        (class.provisioner != NO_PROVISIONER).then_some(mode == Some(WAIT_FOR_FIRST_CONSUMER))
    }

    /// Plans what the controllers do after the scheduler has written a claim or volume.
    pub(super) fn plan_binding(&mut self, written: &Object) {
        let claim = match written {
            Object::PersistentVolumeClaim(claim) if !claim.is_fully_bound() => {
                let metadata = &claim.metadata;
                (metadata.namespace.clone(), metadata.name.clone())
            }
            Object::PersistentVolume(volume) => match &volume.spec.claim_ref {
                Some(of) => (of.namespace.clone(), of.name.clone()),
                None => return,
            },
            _ => return,
        };
        let latency = self.plan.world.api_latency.draw(&mut self.rng);
        let at = self.now + latency;
        self.events.push(at, Event::BindVolume(Box::new(claim)));
    }

    /// Binds a claim to the volume that is reserved for it, or provisions one for its selected node.
    pub(super) fn bind_volume(&mut self, (namespace, name): (Str, Str)) {
        let key = (Kind::PersistentVolumeClaim, namespace, name);
        let Some(Object::PersistentVolumeClaim(claim)) = self.objects.get(&key).cloned() else {
            return;
        };
        if claim.is_fully_bound() {
            return;
        }
        let is_reserved = |volume: &PersistentVolume| {
            let of = volume.spec.claim_ref.as_ref();
            of.is_some_and(|of| of.namespace == key.1 && of.name == key.2)
        };
        let reserved = self.objects.values().find_map(|object| match object {
            Object::PersistentVolume(volume) if is_reserved(volume) => Some(volume.clone()),
            _ => None,
        });
        if let Some(volume) = reserved {
            return self.bind(&claim, PersistentVolume::clone(&volume));
        }
        let annotations = &claim.metadata.annotations;
        let Some(node) = annotations.get(SELECTED_NODE_ANNOTATION) else {
            return;
        };
        let zone = self.nodes.index_of(node).map(|node| {
            let template = &self.nodes.get(node).template;
            template.labels().get(ZONE).map(Str::from)
        });
        match zone {
            Some(zone) if self.provisioner_of(&claim).is_some() => self.provision(&claim, zone),
            Some(_) => {}
            // The node has left: the scheduler selects another one.
            None => {
                let mut changed = PersistentVolumeClaim::clone(&claim);
                let annotations = &mut changed.metadata.annotations;
                *annotations = annotations.without(SELECTED_NODE_ANNOTATION);
                self.set(Object::PersistentVolumeClaim(Arc::new(changed)));
            }
        }
    }

    /// Creates a volume for a claim, in a zone if its node has one.
    fn provision(&mut self, claim: &PersistentVolumeClaim, zone: Option<Str>) {
        let mut volume = PersistentVolume::default();
        let metadata = &claim.metadata;
        volume.metadata.name = format!("pvc-{}-{}", metadata.namespace, metadata.name).into();
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
