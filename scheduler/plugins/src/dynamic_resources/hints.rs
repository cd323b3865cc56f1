//! The changes that help a pod that waits for its claims, and the pods that a change of a claim can help.

use super::claims::{self as of_pod, Claims, Lack};
use crate::extended_resources::class_of;
use berth_api::devices::EXTENDED_RESOURCE_CLAIM_ANNOTATION;
use berth_api::requests::{SumOptions, pod_resources};
use berth_api::{Object, Pod, ResourceClaim, Str};
use berth_framework::cluster::claim_names;
use berth_framework::event::{Change, Hint, HintError, Narrowed, Versions};
use berth_framework::{Cluster, Feature, FeatureGates};

type HintClaim<'a> = Option<&'a ResourceClaim>;

/// The claims of a pod, including the claims of its group. A pod that is woken without need is evaluated again.
fn resolve<'c>(cluster: &'c Cluster, pod: &'c Pod) -> Result<Claims<'c>, Lack<'c>> {
    let features = FeatureGates::default().with(Feature::DRAWorkloadResourceClaims, true);
    of_pod::resolve(cluster, &features, pod)
}

/// The claim before and after the change.
fn claims<'a>(change: &Change<'a>) -> Result<Versions<'a, ResourceClaim>, HintError> {
    change.versions(Object::as_resource_claim, "a resource claim")
}

/// A slice was deleted: that may complete its pool, or make an earlier generation count again.
pub(super) fn after_slice_deletion(
    cluster: &Cluster,
    change: &Change<'_>,
) -> Result<Hint, HintError> {
    let (old, _) = change.versions(Object::as_resource_slice, "a resource slice")?;
    let inventory = cluster.devices().inventory();
    let remains = old.is_some_and(|deleted| inventory.has_more_slices(deleted));
    Ok(Hint::queue_if(remains))
}

/// A class was deleted: another class may provide its extended resource now.
pub(super) fn after_class_deletion(
    cluster: &Cluster,
    pod: &Pod,
    change: &Change<'_>,
) -> Result<Hint, HintError> {
    let (old, _) = change.versions(Object::as_device_class, "a device class")?;
    let resource = old.and_then(|deleted| deleted.spec.extended_resource_name.as_ref());
    let is_provided = |resource: &&Str| class_of(cluster, resource).is_some();
    let Some(resource) = resource.filter(is_provided) else {
        return Ok(Hint::Skip);
    };
    let requests = pod_resources(pod, SumOptions::PENDING).scalars;
    let mut requests = requests.iter();
    let is_requested = requests.any(|(name, amount)| name == resource && *amount != 0);
    Ok(Hint::queue_if(is_requested))
}

/// Returns whether the change frees devices. kube-scheduler expects that a claim is deallocated before it is deleted;
/// the claim for extended resources of a pod is deleted with its devices.
fn frees_devices(old: HintClaim<'_>, new: HintClaim<'_>) -> bool {
    let is_allocated = |claim: HintClaim<'_>| claim.is_some_and(|claim| claim.is_allocated());
    let is_extended = old.is_some_and(|old| {
        let annotations = &old.metadata.annotations;
        annotations.get(EXTENDED_RESOURCE_CLAIM_ANNOTATION) == Some("true")
    });
    is_allocated(old) && !is_allocated(new) || new.is_none() && is_extended
}

/// Returns whether the devices of the claim are free again.
fn is_deallocation(old: HintClaim<'_>, new: &ResourceClaim) -> bool {
    old.is_some_and(|old| old.is_allocated()) && !new.is_allocated()
}

/// After a claim was created or changed: it helps its users, once all their claims exist. Freed devices may help every
/// pod whose claims exist.
pub(super) fn after_claim_change(
    cluster: &Cluster,
    pod: &Pod,
    change: &Change<'_>,
) -> Result<Hint, HintError> {
    let (old, Some(new)) = claims(change)? else {
        return Ok(Hint::Skip);
    };
    // A claim that took the name of another one is new.
    let before = old.filter(|old| old.metadata.uid == new.metadata.uid);
    let Ok(own) = resolve(cluster, pod) else {
        return Ok(Hint::Skip);
    };
    if is_deallocation(old, new) {
        return Ok(Hint::Queue);
    }
    let is_own = own
        .iter()
        .any(|claim| claim.metadata.uid == new.metadata.uid);
    Ok(match before {
        _ if !is_own => Hint::Skip,
        Some(before) if before.status == new.status => Hint::Skip,
        _ => Hint::Queue,
    })
}

/// The answer about a pod that still lacks a claim, after a change of a claim that it uses: it may lack another claim
/// now, and the message must name it. kube-scheduler keeps the first message. A claim whose owner becomes the pod also
/// helps, although its status does not change.
pub(super) fn claim_change_shows_more(
    cluster: &Cluster,
    pod: &Pod,
    change: &Change<'_>,
) -> Result<Hint, HintError> {
    let (old, new) = claims(change)?;
    let Some(claim) = new.or(old) else {
        return Ok(Hint::Skip);
    };
    let meta = &claim.metadata;
    // A deletion frees the devices for every pod whose claims exist (PL-153).
    if new.is_none() && frees_devices(old, new) {
        let was_created_for = meta.controller().is_some_and(|o| o.uid == *pod.uid());
        if was_created_for || resolve(cluster, pod).is_ok() {
            return Ok(Hint::Queue);
        }
    }
    let is_used =
        meta.namespace == *pod.namespace() && claim_names(pod).any(|claim| *claim == meta.name);
    let owner = |claim: &ResourceClaim| claim.metadata.controller().map(|owner| owner.uid.clone());
    let is_made_over = old.zip(new).is_some_and(|(old, new)| {
        let owner_now = owner(new);
        owner_now.as_ref() == Some(pod.uid()) && owner_now != owner(old)
    });
    Ok(
        if is_used && (is_made_over || resolve(cluster, pod).is_err()) {
            Hint::Queue
        } else {
            Hint::Skip
        },
    )
}

/// The same after claims were created for the pod itself.
pub(super) fn claims_made_show_more(pod: &Pod, change: &Change<'_>) -> Result<Hint, HintError> {
    let (_, new) = change.pods()?;
    Ok(match new {
        Some(new) if new.uid() == pod.uid() => Hint::Queue,
        _ => Hint::Skip,
    })
}

/// The pods that a change of a claim can help (KEP-6132): the pods that use it, or all pods if devices were freed, as
/// by every deletion. An empty list is a valid answer: linking the claim to a pod later is a change of that pod.
pub(super) fn helped_by_claim_change(
    cluster: &Cluster,
    change: &Change<'_>,
) -> Result<Narrowed, HintError> {
    let (old, new) = claims(change)?;
    let Some(claim) = new.or(old) else {
        return Ok(Narrowed::AllPods);
    };
    if new.is_none() || frees_devices(old, new) {
        return Ok(Narrowed::AllPods);
    }
    let meta = &claim.metadata;
    let users = cluster.pods.using_claim(&meta.namespace, &meta.name);
    let names = users.map(|pod| (pod.namespace().clone(), pod.name().clone()));
    Ok(Narrowed::Pods(names.collect()))
}

/// After the pod's own claims were created.
pub(super) fn after_claims_made(
    cluster: &Cluster,
    pod: &Pod,
    change: &Change<'_>,
) -> Result<Hint, HintError> {
    let (_, new) = change.pods()?;
    Ok(match new {
        Some(new) if new.uid() == pod.uid() && resolve(cluster, new).is_ok() => Hint::Queue,
        _ => Hint::Skip,
    })
}

#[cfg(test)]
mod tests {
    use super::super::DynamicResources;
    use super::super::tests::{allocated, claim, made_for};
    use super::*;
    use crate::testing::{World, add, full_pod, hint, node, update};
    use berth_api::Kind;
    use berth_framework::{ActionType, EventResource};
    use serde_json::{Value, json};
    use std::sync::Arc;

    fn reserved(uid: &str) -> Value {
        let mut fields = allocated();
        fields["status"]["reservedFor"] = json!([{"resource": "pods", "name": "x", "uid": uid}]);
        fields
    }

    fn with(mut fields: Value, pointer: [&str; 2], value: Value) -> Value {
        let [outer, inner] = pointer;
        fields[outer][inner] = value;
        fields
    }

    /// Q-52, PL-153: the effect of a change of a claim on a pod that uses `mine` and, in some cases, another claim.
    #[test]
    fn a_claim_helps_its_pods_and_freed_devices_help_all() {
        let free = || json!({});
        let finalizer = || with(allocated(), ["metadata", "finalizers"], json!(["f"]));
        let labelled = || with(free(), ["metadata", "labels"], json!({"a": "b"}));
        let being_deleted = || {
            with(
                allocated(),
                ["metadata", "deletionTimestamp"],
                json!("2026-01-01T00:00:00Z"),
            )
        };
        for (situation, other, name, old, new, expected) in [
            ("its claim is made", None, "mine", None, free(), Hint::Queue),
            (
                "another's claim is made",
                None,
                "others",
                None,
                free(),
                Hint::Skip,
            ),
            (
                "one of two is made",
                Some("missing"),
                "mine",
                None,
                free(),
                Hint::Skip,
            ),
            (
                "the last of two is made",
                Some("there"),
                "mine",
                None,
                free(),
                Hint::Queue,
            ),
            (
                "its claim is allocated",
                None,
                "mine",
                Some(free()),
                allocated(),
                Hint::Queue,
            ),
            (
                "another's is allocated",
                None,
                "others",
                Some(free()),
                allocated(),
                Hint::Skip,
            ),
            (
                "its claim is deallocated",
                None,
                "mine",
                Some(allocated()),
                free(),
                Hint::Queue,
            ),
            (
                "another's is deallocated",
                None,
                "others",
                Some(allocated()),
                free(),
                Hint::Queue,
            ),
            (
                "one is deallocated, one missing",
                Some("missing"),
                "others",
                Some(allocated()),
                free(),
                Hint::Skip,
            ),
            (
                "it is held",
                None,
                "mine",
                Some(allocated()),
                reserved("x"),
                Hint::Queue,
            ),
            (
                "its status is as it was",
                None,
                "mine",
                Some(allocated()),
                finalizer(),
                Hint::Skip,
            ),
            (
                "its labels change",
                None,
                "mine",
                Some(free()),
                labelled(),
                Hint::Skip,
            ),
            (
                "it is being deleted",
                None,
                "mine",
                Some(allocated()),
                being_deleted(),
                Hint::Skip,
            ),
        ] {
            let new = claim(name, new);
            let world = World::new()
                .with(claim("there", json!({})))
                .with(new.clone());
            let mut claims = vec![json!({"name": "a", "resourceClaimName": "mine"})];
            claims.extend(other.map(|name| json!({"name": "b", "resourceClaimName": name})));
            let world = if name == "mine" {
                world
            } else {
                world.with(claim("mine", json!({})))
            };
            let waiting = full_pod("p", json!({"spec": {"resourceClaims": claims}}));
            let action = if old.is_some() {
                ActionType::UPDATE
            } else {
                ActionType::ADD
            };
            let change = match old {
                Some(old) => update(claim(name, old), new),
                None => add(new),
            };
            let stated = hint(
                DynamicResources::default(),
                &world,
                EventResource::ResourceClaim,
                action,
                &waiting,
                change,
            );
            assert_eq!(stated, Ok(expected), "{situation}");
        }
    }

    /// a change of something else is an error, and errors queue.
    #[test]
    fn what_is_no_claim_is_an_error() {
        let waiting = full_pod("p", json!({}));
        let change = add(node("n", json!({})));
        let claims = EventResource::ResourceClaim;
        let stated = hint(
            DynamicResources::default(),
            &World::new(),
            claims,
            ActionType::ADD,
            &waiting,
            change,
        );
        assert_eq!(
            stated,
            Err(HintError::OtherKind {
                expected: "a resource claim",
                found: Kind::Node,
            })
        );
    }

    /// Q-61, case 126, PL-153: an update of the pod itself names its claims; the hint queues the pod once all claims
    /// exist.
    #[test]
    fn a_pod_is_helped_when_all_its_claims_have_been_made() {
        let world = World::new().with(claim("made", made_for("p")));
        let template = json!({"name": "a", "resourceClaimTemplateName": "t"});
        let pod = |name: &str, made: Value| {
            let fields = json!({"spec": {"resourceClaims": [template]}, "status": {"resourceClaimStatuses": made}});
            full_pod(name, fields)
        };
        let link = |claim: &str| json!([{"name": "a", "resourceClaimName": claim}]);
        for (situation, changed, made, expected) in [
            ("linked", "p", link("made"), Hint::Queue),
            ("linked, and not seen yet", "p", link("late"), Hint::Skip),
            ("none is needed", "p", json!([{"name": "a"}]), Hint::Queue),
            ("not linked", "p", json!([]), Hint::Skip),
            ("another pod", "q", json!([{"name": "a"}]), Hint::Skip),
            (
                "a pod that had the name before",
                "p@old",
                link("made"),
                Hint::Skip,
            ),
        ] {
            let waiting = pod("p", json!([]));
            let (name, uid) = changed.split_once('@').unwrap_or((changed, changed));
            let changed = |made| {
                let mut pod = pod(name, made);
                pod.metadata.uid = uid.into();
                pod
            };
            let change = update(changed(json!([])), changed(made));
            let action = ActionType::UPDATE_POD_GENERATED_RESOURCE_CLAIM;
            let stated = hint(
                DynamicResources::default(),
                &world,
                EventResource::Pod,
                action,
                &waiting,
                change,
            );
            assert_eq!(stated, Ok(expected), "{situation}");
        }
    }

    /// Q-96, case 179: freed devices and deleted claims may help all pods, any other change only the pods that use the
    /// claim.
    #[test]
    fn a_change_names_the_pods_that_use_the_claim() {
        let mut world = World::new();
        for (name, claim) in [("a", "mine"), ("b", "others"), ("c", "mine")] {
            let entry = json!({"name": "x", "resourceClaimName": claim});
            let pod = full_pod(name, json!({"spec": {"resourceClaims": [entry]}}));
            world.cluster.pods.insert(name.into(), Arc::new(pod));
        }
        let named = |names: &[&str]| {
            let names = names.iter().map(|name| ("default".into(), (*name).into()));
            Narrowed::Pods(names.collect())
        };
        let object =
            |name: &str, fields| berth_api::Object::ResourceClaim(Arc::new(claim(name, fields)));
        let is_free = json!({});
        for (situation, old, new, expected) in [
            (
                "made",
                None,
                Some(object("mine", is_free.clone())),
                named(&["a", "c"]),
            ),
            (
                "made, and no pod uses it",
                None,
                Some(object("new", is_free.clone())),
                named(&[]),
            ),
            (
                "allocated",
                Some(object("others", is_free.clone())),
                Some(object("others", allocated())),
                named(&["b"]),
            ),
            (
                "deallocated",
                Some(object("others", allocated())),
                Some(object("others", is_free.clone())),
                Narrowed::AllPods,
            ),
            (
                "deleted with its devices",
                Some(object("mine", allocated())),
                None,
                Narrowed::AllPods,
            ),
            (
                "deleted without devices",
                Some(object("mine", is_free.clone())),
                None,
                Narrowed::AllPods,
            ),
        ] {
            let change = Change {
                old: old.as_ref(),
                new: new.as_ref(),
            };
            let got = helped_by_claim_change(&world.cluster, &change);
            assert_eq!(got, Ok(expected), "{situation}");
        }
    }
}
