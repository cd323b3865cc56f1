//! The controller of resource claims: it creates a claim for each entry of a pod that names a template. The claim ends
//! with the pod.

use super::Engine;
use berth_api::devices::ConsumerReference;
use berth_api::pod::PodResourceClaimStatus;
use berth_api::{Kind, Object, OwnerReference, Pod, ResourceClaim, Str};
use berth_framework::cluster::claim_names;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// ResourceClaimTemplates by namespace and name.
#[derive(Debug, Clone, Default)]
pub struct ClaimTemplates(FxHashMap<(Str, Str), Arc<ResourceClaim>>);

impl ClaimTemplates {
    /// The templates, each as a claim with the namespace and name of the template.
    pub fn new(templates: impl IntoIterator<Item = Arc<ResourceClaim>>) -> Self {
        let templates = templates.into_iter().map(|claim| {
            let metadata = &claim.metadata;
            let key = (metadata.namespace.clone(), metadata.name.clone());
            (key, claim)
        });
        Self(templates.collect())
    }
}

/// The reference of a claim to the pod with which it ends.
pub(super) fn owner(pod: &Pod) -> OwnerReference {
    OwnerReference {
        api_version: "v1".into(),
        kind: "Pod".into(),
        name: pod.name().clone(),
        uid: pod.uid().clone(),
        controller: Some(true),
    }
}

impl Engine {
    /// Sets the templates of the claims of new pods.
    pub fn set_claim_templates(&mut self, templates: ClaimTemplates) {
        self.claim_templates = templates;
    }

    /// Creates the claims of a new pod that it does not have: those of templates, and those of ephemeral volumes. A pod
    /// whose template does not exist waits for its claim.
    pub fn create_claims(&mut self, pod: &mut Pod) {
        for entry in pod.spec.resource_claims.clone() {
            let made = &pod.status.resource_claim_statuses;
            let Some(template) = entry
                .resource_claim_template_name
                .filter(|_| !made.iter().any(|known| known.name == entry.name))
            else {
                continue;
            };
            let key = (pod.namespace().clone(), template);
            let Some(template) = self.claim_templates.0.get(&key) else {
                continue;
            };
            let mut claim = ResourceClaim::clone(template);
            let mut name: Str = format!("{}-{}", pod.name(), entry.name).into();
            while self
                .object(Kind::ResourceClaim, pod.namespace(), &name)
                .is_some()
            {
                // A claim of another pod or of a user has the name.
                name = format!("{name}-0").into();
            }
            claim.metadata.uid = format!("claim-{}-{}", pod.uid(), entry.name).into();
            claim.metadata.name = name.clone();
            claim.metadata.creation_timestamp = Some(self.now);
            claim.metadata.owner_references = vec![owner(pod)].into();
            pod.status
                .resource_claim_statuses
                .push(PodResourceClaimStatus {
                    name: entry.name,
                    resource_claim_name: Some(name),
                });
            self.set(Object::ResourceClaim(Arc::new(claim)));
        }
        self.create_volume_claims(pod);
    }

    /// Deletes a pod with the claims that were created for it.
    pub fn end_pod(&mut self, uid: &str) {
        if let Some(pod) = self.pod(uid).cloned() {
            self.delete_claims(&pod);
            self.delete_pod(uid);
        }
    }

    /// Deletes the claims that were created for a deleted pod, and releases its other claims.
    pub(crate) fn delete_claims(&mut self, pod: &Pod) {
        self.delete_volume_claims(pod);
        for name in claim_names(pod) {
            let claim = self.object(Kind::ResourceClaim, pod.namespace(), name);
            let owner = claim.and_then(|claim| claim.metadata().controller());
            // A pod of a cluster may have another UID in the engine.
            if owner.is_some_and(|owner| owner.kind == "Pod" && owner.name == *pod.name()) {
                self.delete(Kind::ResourceClaim, pod.namespace(), name);
            }
        }
        self.release_claims(pod);
    }

    /// Releases the devices of the claims of a deleted pod that no other pod uses.
    pub(super) fn release_claims(&mut self, pod: &Pod) {
        for name in claim_names(pod) {
            let claim = self.object(Kind::ResourceClaim, pod.namespace(), name);
            let Some(Object::ResourceClaim(claim)) = claim else {
                continue;
            };
            // A pod of a cluster may have another UID in the engine.
            let is_user = |user: &ConsumerReference| user.name == *pod.name();
            if claim.status.reserved_for.iter().any(is_user) {
                let mut claim = ResourceClaim::clone(claim);
                claim.status.reserved_for.retain(|user| !is_user(user));
                if claim.status.reserved_for.is_empty() {
                    claim.status.allocation = None;
                }
                self.set(Object::ResourceClaim(Arc::new(claim)));
            }
        }
    }
}
