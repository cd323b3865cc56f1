//! The controller of resource claims: it creates a claim for each entry of a pod that names a template. The claim ends
//! with the pod.

use super::Simulation;
use super::events::PodIndex;
use crate::trace::Trace;
use berth_api::pod::PodResourceClaimStatus;
use berth_api::{Kind, Object, OwnerReference, Pod, ResourceClaim, Str};
use berth_framework::cluster::claim_names;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// The templates, by namespace and name.
#[derive(Debug, Default)]
pub(super) struct ClaimTemplates(FxHashMap<(Str, Str), Arc<ResourceClaim>>);

impl ClaimTemplates {
    pub(super) fn new(trace: &Trace) -> Self {
        let templates = trace.claim_templates.iter().map(|claim| {
            let metadata = &claim.metadata;
            let key = (metadata.namespace.clone(), metadata.name.clone());
            (key, claim.clone())
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

impl Simulation {
    /// Creates the claims of a new pod. A pod whose template does not exist waits for its claim.
    pub(super) fn create_claims(&mut self, index: PodIndex, pod: &mut Pod) {
        let shape = &self.plan.shapes[self.shape_of(index) as usize].pod;
        if self.ran_before(index) {
            // Its claims are objects of the trace.
            pod.status.resource_claim_statuses = shape.status.resource_claim_statuses.clone();
            return;
        }
        for entry in pod.spec.resource_claims.clone() {
            let Some(template) = entry.resource_claim_template_name else {
                continue;
            };
            let key = (pod.namespace().clone(), template);
            let Some(template) = self.claim_templates.0.get(&key) else {
                continue;
            };
            let name: Str = format!("{}-{}", pod.name(), entry.name).into();
            let mut claim = ResourceClaim::clone(template);
            claim.metadata.uid = format!("claim-{}-{}", pod.uid(), entry.name).into();
            claim.metadata.name = name.clone();
            claim.metadata.creation_timestamp = Some(self.engine.now());
            claim.metadata.owner_references = vec![owner(pod)].into();
            pod.status
                .resource_claim_statuses
                .push(PodResourceClaimStatus {
                    name: entry.name,
                    resource_claim_name: Some(name),
                });
            self.engine.set(Object::ResourceClaim(Arc::new(claim)));
        }
    }

    /// Deletes a pod with the claims that were created for it.
    pub(super) fn end_pod(&mut self, uid: &str) {
        let Some(pod) = self.engine.pod(uid).cloned() else {
            return;
        };
        self.delete_volume_claims(&pod);
        for name in claim_names(&pod) {
            let claim = self
                .engine
                .object(Kind::ResourceClaim, pod.namespace(), name);
            let owner = claim.and_then(|claim| claim.metadata().controller());
            // A pod of a cluster has another UID in the simulation.
            if owner.is_some_and(|owner| owner.kind == "Pod" && owner.name == *pod.name()) {
                self.engine
                    .delete(Kind::ResourceClaim, pod.namespace(), name);
            }
        }
        self.engine.delete_pod(uid);
    }
}
