//! Resource claims, with an index of the claims that a scheduler created for the extended resources of pods (KEP-5004).

use super::Namespaced;
use berth_api::devices::EXTENDED_RESOURCE_CLAIM_ANNOTATION;
use berth_api::{Pod, ResourceClaim, Str};
use std::collections::BTreeSet;
use std::ops::Deref;
use std::sync::Arc;

/// Resource claims, read through [`Namespaced`].
#[derive(Debug, Clone, Default)]
pub struct ResourceClaims {
    claims: Namespaced<ResourceClaim>,
    /// The UID of a pod, and namespace and name of a claim that was created for its extended resources.
    extended: BTreeSet<(Str, Str, Str)>,
}

impl Deref for ResourceClaims {
    type Target = Namespaced<ResourceClaim>;

    fn deref(&self) -> &Self::Target {
        &self.claims
    }
}

/// The entry of a claim that was created for the extended resources of a pod.
fn entry(claim: &ResourceClaim) -> Option<(Str, Str, Str)> {
    let meta = &claim.metadata;
    let is_extended = meta.annotations.get(EXTENDED_RESOURCE_CLAIM_ANNOTATION) == Some("true");
    let pod = meta.controller().filter(|_| is_extended)?;
    Some((pod.uid.clone(), meta.namespace.clone(), meta.name.clone()))
}

impl ResourceClaims {
    /// Sets or removes a claim. Returns the previous version.
    pub(super) fn put(
        &mut self,
        claim: &Arc<ResourceClaim>,
        is_there: bool,
    ) -> Option<Arc<ResourceClaim>> {
        let before = self.claims.put(&claim.metadata, claim, is_there);
        if let Some(old) = before.as_deref().and_then(entry) {
            self.extended.remove(&old);
        }
        self.extended.extend(entry(claim).filter(|_| is_there));
        before
    }

    /// A claim that was created for the extended resources of the pod.
    pub fn extended_of(&self, pod: &Pod) -> Option<&Arc<ResourceClaim>> {
        if self.extended.is_empty() {
            return None;
        }
        let start = (pod.uid().clone(), pod.namespace().clone(), Str::default());
        let (uid, namespace, name) = self.extended.range(start..).next()?;
        let is_its = uid == pod.uid() && namespace == pod.namespace();
        is_its.then(|| self.claims.get(namespace, name)).flatten()
    }
}
