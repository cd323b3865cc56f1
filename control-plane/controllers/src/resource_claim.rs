//! Creates the resource claims of pods from their templates, and releases claims that no pod uses any more, like the
//! controller of the same name in kube-controller-manager.
//!
//! ```text
//! a pod with a template         → a claim `<pod>-<entry>-…` that it owns, named in its status
//! such a claim is deleted       → the next one
//! a pod that got a node without → holds its allocated claims (the scheduler does that for pods it places)
//!   the scheduler
//! a pod that has ended or gone  → holds its claims no longer; what was allocated for it is free again
//! a pod that has ended → its own claims are deleted; those of a pod that was deleted, the garbage collector takes
//! ```
//!
//! A claim of a PodGroup is made once and is shared by the pods of the group: it is owned and held by the group.
//!
//! The choice of devices is not this controller.

mod claim;
mod group;
mod pod;
#[cfg(test)]
mod tests;

use super::runtime::{CacheDifference, Controller, ControllerContext, Index, Watch, watching};
use berth_objects::access::{AccessError, GroupResource, StoredObject};
use berth_objects::object::{
    ControllerKey, ControllerKind, POD, POD_GROUP, RESOURCE_CLAIM, RESOURCE_CLAIM_TEMPLATE,
    controller_key, controller_of, items, name, namespace,
};
use berth_objects::pod::{claims_of, is_terminal, node_name};
use serde_json::Value;

/// The entry of the pod for which a claim was generated.
const POD_CLAIM_NAME: &str = "resource.kubernetes.io/pod-claim-name";
/// The finalizer of an allocated claim, set by the scheduler: the claim is not removed while its devices are allocated.
const DELETE_PROTECTION: &str = "resource.kubernetes.io/delete-protection";

/// See the module.
#[derive(Debug, Default)]
pub(super) struct ResourceClaims;

/// The key of the work.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum ClaimWork {
    /// A pod may need claims.
    Pod(ControllerKey),
    /// A claim that may have stale reservations.
    Claim(ControllerKey),
    /// A group may need claims.
    Group(ControllerKey),
}

type Cx = ControllerContext<ClaimWork>;

/// Returns whether the pod no longer uses its claims.
fn is_done(pod: &Value) -> bool {
    is_terminal(pod) || (berth_objects::object::is_deleting(pod) && node_name(pod).is_none())
}

/// The pod for which a claim was generated: its key and UID.
fn owning_pod(claim: &Value) -> Option<(ControllerKey, &str)> {
    let owner = controller_of(claim)?;
    let is_pod = owner["apiVersion"] == POD.api_version && owner["kind"] == POD.kind;
    let (pod, uid) = (owner["name"].as_str()?, owner["uid"].as_str()?);
    is_pod.then(|| (ControllerKey::new(namespace(claim), pod), uid))
}

impl ResourceClaims {
    fn pod_changed(cx: &mut Cx, diff: &CacheDifference) {
        let uses_claims = |pod: &Value| !items(&pod["spec"]["resourceClaims"]).is_empty();
        if let Some(pod) = diff.new.as_ref().filter(|pod| uses_claims(pod))
            && !is_done(pod)
        {
            cx.enqueue(ClaimWork::Pod(ControllerKey::of(pod)));
            return;
        }
        // A deleted or ended pod may free its claims.
        for pod in [&diff.old, &diff.new].into_iter().flatten() {
            for claim in claims_of(pod) {
                cx.enqueue(ClaimWork::Claim(ControllerKey::new(namespace(pod), claim)));
            }
        }
    }

    fn claim_changed(cx: &mut Cx, diff: &CacheDifference) {
        let Some(claim) = diff.new.as_ref().or(diff.old.as_ref()) else {
            return;
        };
        if diff.new.is_some() {
            cx.enqueue(ClaimWork::Claim(ControllerKey::of(claim)));
        }
        let users = cx.cache(POD).by(Index::ResourceClaim, name(claim));
        let users = users.filter(|pod| namespace(pod) == namespace(claim));
        let mut pods: Vec<ControllerKey> = users.map(|pod| ControllerKey::of(pod)).collect();
        pods.extend(owning_pod(claim).map(|(pod, _)| pod));
        if diff.new.is_none()
            && let Some(group) = controller_key(POD_GROUP, claim)
        {
            cx.enqueue(ClaimWork::Group(group));
        }
        for pod in pods {
            cx.enqueue(ClaimWork::Pod(pod));
        }
    }

    /// Pods without claims because of a missing template are reconciled.
    fn template_changed(cx: &mut Cx, diff: &CacheDifference) {
        let Some(template) = &diff.new else { return };
        let pods = cx
            .cache(POD)
            .by(Index::ResourceClaimTemplate, name(template));
        let pods = pods.filter(|pod| namespace(pod) == namespace(template));
        let pods: Vec<ControllerKey> = pods.map(|pod| ControllerKey::of(pod)).collect();
        for pod in pods {
            cx.enqueue(ClaimWork::Pod(pod));
        }
        let groups = cx
            .cache(POD_GROUP)
            .by(Index::Namespace, namespace(template));
        let asks = |group: &&StoredObject| {
            let mut claims = items(&group["spec"]["resourceClaims"]).iter();
            claims.any(|claim| claim["resourceClaimTemplateName"] == name(template))
        };
        let groups: Vec<ControllerKey> = groups
            .filter(asks)
            .map(|group| ControllerKey::of(group))
            .collect();
        for group in groups {
            cx.enqueue(ClaimWork::Group(group));
        }
    }
}

impl Controller for ResourceClaims {
    type Key = ClaimWork;
    const NAME: &'static str = "resource_claim";
    const WATCHES: &'static [Watch] = &[
        watching(
            POD,
            &[
                Index::ResourceClaim,
                Index::ResourceClaimTemplate,
                Index::PodGroup,
            ],
        ),
        watching(POD_GROUP, &[Index::Namespace]),
        watching(RESOURCE_CLAIM, &[Index::Controller]),
        watching(RESOURCE_CLAIM_TEMPLATE, &[]),
    ];

    fn observe(&mut self, cx: &mut Cx, kind: GroupResource, diff: &CacheDifference) {
        let is = |other: ControllerKind| kind == other.resource;
        if is(POD) {
            Self::pod_changed(cx, diff);
        } else if is(RESOURCE_CLAIM) {
            Self::claim_changed(cx, diff);
        } else if is(POD_GROUP) {
            group::changed(cx, diff.old.as_ref(), diff.new.as_ref());
        } else {
            Self::template_changed(cx, diff);
        }
    }

    fn reconcile(&mut self, cx: &mut Cx, key: &ClaimWork) -> Result<(), AccessError> {
        match key {
            ClaimWork::Pod(key) => pod::sync(cx, key),
            ClaimWork::Claim(key) => claim::sync(cx, key),
            ClaimWork::Group(key) => group::sync(cx, key),
        }
    }
}
