//! The resource claims of a pod, and the reasons why a pod does not have them.

use berth_api::devices::ConsumerReference;
use berth_api::pod::PodResourceClaim;
use berth_api::{Pod, ResourceClaim, Str};
use berth_framework::cluster::GroupKey;
use berth_framework::{Cluster, Feature, FeatureGates};
use smallvec::SmallVec;
use std::fmt;
use std::sync::Arc;

/// The claims of a pod, in the order of its spec.
pub(super) type Claims<'c> = SmallVec<[&'c Arc<ResourceClaim>; 2]>;

/// A claim of a pod. It is reserved for the pod, or once for all members of its group (G-32).
pub(super) struct FoundClaim<'c> {
    pub(super) claim: &'c Arc<ResourceClaim>,
    /// The group for which the claim is reserved.
    group: Option<ConsumerReference>,
}

impl FoundClaim<'_> {
    /// The UID of the pod or the group for which the claim is reserved.
    pub(super) fn consumer_uid<'a>(&'a self, pod: &'a Pod) -> &'a Str {
        match &self.group {
            Some(group) => &group.uid,
            None => pod.uid(),
        }
    }

    /// The pod or the group for which the claim is reserved.
    pub(super) fn into_consumer(self, pod: &Pod) -> ConsumerReference {
        self.group.unwrap_or_else(|| pod_consumer(pod))
    }
}

/// The API group of pod groups.
const SCHEDULING_GROUP: &str = "scheduling.k8s.io";

/// The pod as a user of a claim.
pub(super) fn pod_consumer(pod: &Pod) -> ConsumerReference {
    ConsumerReference {
        api_group: Str::default(),
        resource: "pods".into(),
        name: pod.name().clone(),
        uid: pod.uid().clone(),
    }
}

/// A pod group as the user of a claim.
pub(super) fn group_consumer(name: &Str, uid: &Str) -> ConsumerReference {
    ConsumerReference {
        api_group: SCHEDULING_GROUP.into(),
        resource: "podgroups".into(),
        name: name.clone(),
        uid: uid.clone(),
    }
}

/// Returns whether a claim is reserved for a group.
pub(super) fn is_of_group(consumer: &ConsumerReference) -> bool {
    consumer.resource == "podgroups"
}

/// The group as the user of an entry's claim, if the group has the same entry.
/// Returns whether the claim is reserved for the pod or group with this UID.
pub(super) fn is_reserved_for(claim: &ResourceClaim, uid: &str) -> bool {
    let mut consumers = claim.status.reserved_for.iter();
    consumers.any(|consumer| *consumer.uid == *uid)
}

/// Returns whether the claim is reserved for another user than the pod.
pub(super) fn is_used_by_others(claim: &ResourceClaim, pod: &Pod) -> bool {
    let mut consumers = claim.status.reserved_for.iter();
    consumers.any(|consumer| consumer.uid != *pod.uid())
}

fn group_of_entry(
    cluster: &Cluster,
    pod: &Pod,
    entry: &PodResourceClaim,
) -> Option<ConsumerReference> {
    let key = GroupKey::of_pod(pod)?;
    let group = cluster.groups().get(&key)?;
    let spec = cluster.groups().spec(&key)?;
    let is_same = spec.resource_claims.iter().any(|of_group| {
        of_group.name == entry.name
            && of_group.resource_claim_name == entry.resource_claim_name
            && of_group.resource_claim_template_name == entry.resource_claim_template_name
    });
    let meta = group.metadata;
    is_same.then(|| group_consumer(&meta.name, &meta.uid))
}

/// A claim as a pod refers to it.
struct Reference<'p> {
    name: &'p Str,
    /// Whether it must have been created for this pod or its group.
    is_own: bool,
}

/// The reason why a pod does not have one of its claims. It reads as in upstream; see [`Lack::for_users`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Lack<'p> {
    pod: &'p Pod,
    entry: &'p PodResourceClaim,
    what: What<'p>,
}

/// The problem of a claim. Names are claim names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What<'p> {
    /// The pod refers to nothing.
    NotNamed,
    /// It was not created from its template yet.
    NotMade,
    /// It does not exist.
    NotThere(&'p Str),
    /// It is being deleted.
    Going(&'p Str),
    /// It was created for another pod.
    NotOwned(&'p Str),
    /// It was created neither for the pod nor for its group.
    OwnedByNeither(&'p Str),
    /// It was not created for the pod's group.
    NotOfGroup(&'p Str),
}

impl fmt::Display for Lack<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let namespace = self.pod.namespace();
        match self.what {
            What::NotNamed => write!(
                f,
                "pod {:?}, spec.resourceClaim {:?}: none of the supported fields are set",
                self.pod.key(),
                self.entry.name.as_str()
            ),
            What::NotMade => {
                write!(f, "pod {:?}: ResourceClaim not created yet", self.pod.key())
            }
            What::NotThere(name) => {
                let key = format!("{namespace}/{name}");
                write!(f, "could not find ResourceClaim {key:?}")
            }
            What::Going(name) => write!(f, "resourceclaim {:?} is being deleted", name.as_str()),
            What::NotOwned(name) => write!(
                f,
                "ResourceClaim {namespace}/{name} was not created for Pod {} (Pod is not owner)",
                self.pod.key()
            ),
            What::OwnedByNeither(name) => write!(
                f,
                "ResourceClaim {namespace}/{name} was not created for Pod {} (neither Pod nor PodGroup {} is the owner)",
                self.pod.key(),
                self.group()
            ),
            What::NotOfGroup(name) => write!(
                f,
                "ResourceClaim {namespace}/{name} was not created for PodGroup {namespace}/{} (PodGroup is not owner)",
                self.group()
            ),
        }
    }
}

impl Lack<'_> {
    /// The name of the pod's group.
    fn group(&self) -> &str {
        let name = self.pod.pod_group_name();
        name.map(Str::as_str).unwrap_or_default()
    }
}

impl Lack<'_> {
    /// The text for the pod's status: the event that the pod's owner waits for (KEP-5501). Upstream's text is for its
    /// log.
    pub(super) fn for_users(&self) -> String {
        let template = self.entry.resource_claim_template_name.as_ref();
        let template = template.map(Str::as_str).unwrap_or_default();
        match self.what {
            What::NotNamed => format!(
                "The pod's resource claim {:?} names neither a ResourceClaim nor a ResourceClaimTemplate",
                self.entry.name.as_str()
            ),
            What::NotMade => format!(
                "Waiting for a resource claim to be created from ResourceClaimTemplate {template:?}"
            ),
            What::NotThere(name) => {
                format!(
                    "Waiting for resource claim {:?} to be present",
                    name.as_str()
                )
            }
            What::Going(name) => format!(
                "Resource claim {:?} is being deleted: waiting for a new one of that name",
                name.as_str()
            ),
            What::NotOfGroup(name) => format!(
                "Resource claim {:?} was created for something else: waiting for one that is created for pod group \
                 {:?} from ResourceClaimTemplate {template:?}",
                name.as_str(),
                self.group()
            ),
            What::NotOwned(name) | What::OwnedByNeither(name) => format!(
                "Resource claim {:?} was created for something else: waiting for one that is created for this pod \
                 from ResourceClaimTemplate {template:?}",
                name.as_str()
            ),
        }
    }
}

/// The reference of an entry of a pod; nothing when its template asks for no claim.
fn reference<'p>(
    pod: &'p Pod,
    entry: &'p PodResourceClaim,
) -> Result<Option<Reference<'p>>, What<'p>> {
    if let Some(name) = &entry.resource_claim_name {
        return Ok(Some(Reference {
            name,
            is_own: false,
        }));
    }
    if entry.resource_claim_template_name.is_none() {
        return Err(What::NotNamed);
    }
    let mut made = pod.status.resource_claim_statuses.iter();
    let made = made.find(|made| made.name == entry.name);
    let made = made.ok_or(What::NotMade)?;
    let name = made.resource_claim_name.as_ref();
    Ok(name.map(|name| Reference { name, is_own: true }))
}

fn look_up<'c>(
    cluster: &'c Cluster,
    pod: &Pod,
    reference: &Reference<'c>,
    group: Option<&ConsumerReference>,
    has_group_claims: bool,
) -> Result<&'c Arc<ResourceClaim>, What<'c>> {
    let name = reference.name;
    let claim = cluster.devices().claims().get(pod.namespace(), name);
    let claim = claim.ok_or(What::NotThere(name))?;
    if claim.metadata.deletion_timestamp.is_some() {
        return Err(What::Going(name));
    }
    let owner = claim.metadata.controller();
    // A pod without a UID represents all similar pods, whose answers are kept.
    let must_own = reference.is_own && !pod.uid().is_empty();
    let is_owned_by = |uid: &Str| owner.is_some_and(|owner| owner.uid == *uid);
    match group {
        _ if !must_own => Ok(claim),
        Some(group) if is_owned_by(&group.uid) => Ok(claim),
        Some(_) => Err(What::NotOfGroup(name)),
        None if is_owned_by(pod.uid()) => Ok(claim),
        None if has_group_claims && pod.pod_group_name().is_some() => {
            Err(What::OwnedByNeither(name))
        }
        None => Err(What::NotOwned(name)),
    }
}

/// The claims of a pod, all of them.
///
/// # Errors
/// The fault of the first one that is not available.
pub(super) fn resolve<'c>(
    cluster: &'c Cluster,
    features: &FeatureGates,
    pod: &'c Pod,
) -> Result<Claims<'c>, Lack<'c>> {
    let found = resolve_all(cluster, features, pod)?;
    Ok(found.into_iter().map(|found| found.claim).collect())
}

/// The same, with the pod or the group for which each claim is reserved.
///
/// # Errors
/// The fault of the first one that is not available.
pub(super) fn resolve_all<'c>(
    cluster: &'c Cluster,
    features: &FeatureGates,
    pod: &'c Pod,
) -> Result<SmallVec<[FoundClaim<'c>; 1]>, Lack<'c>> {
    let mut claims = SmallVec::new();
    let has_group_claims = features.enabled(Feature::DRAWorkloadResourceClaims);
    for entry in &pod.spec.resource_claims {
        let lack = |what| Lack { pod, entry, what };
        if let Some(reference) = reference(pod, entry).map_err(lack)? {
            let group = if has_group_claims {
                group_of_entry(cluster, pod, entry)
            } else {
                None
            };
            let claim = look_up(cluster, pod, &reference, group.as_ref(), has_group_claims);
            claims.push(FoundClaim {
                claim: claim.map_err(lack)?,
                group,
            });
        }
    }
    Ok(claims)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{claim, made_for};
    use super::*;
    use crate::testing::{World, full_pod};
    use serde_json::{Value, json};

    /// Q-28, PL-150: the references of a pod, and the message for an unavailable object; the first problem is reported.
    #[test]
    fn a_pod_has_its_claims_or_a_reason_why_not() {
        let world = World::new()
            .with(claim("shared", json!({})))
            .with(claim(
                "going",
                json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}),
            ))
            .with(claim("made", made_for("p")))
            .with(claim("made-for-q", made_for("q")))
            .with(claim(
                "owned",
                json!({"metadata": {"ownerReferences": [{"uid": "p", "controller": false}]}}),
            ))
            .with(claim(
                "elsewhere",
                json!({"metadata": {"namespace": "other"}}),
            ));
        let named = |name: &str| json!({"name": name, "resourceClaimName": name});
        let template = |name: &str| json!({"name": name, "resourceClaimTemplateName": "t"});
        let status = |name: &str, claim: Value| json!({"name": name, "resourceClaimName": claim});
        let not_owner = |name: &str| {
            format!(
                "ResourceClaim default/{name} was not created for Pod default/p (Pod is not owner)"
            )
        };
        for (situation, claims, made, expected) in [
            ("none", json!([]), json!([]), Ok(vec![])),
            ("by name", json!([named("shared")]), json!([]), Ok(vec!["shared"])),
            ("of another pod, by name", json!([named("made-for-q")]), json!([]), Ok(vec!["made-for-q"])),
            ("from a template", json!([template("a")]), json!([status("a", json!("made"))]), Ok(vec!["made"])),
            ("the template asks for none", json!([template("a")]), json!([status("a", Value::Null)]), Ok(vec![])),
            (
                "several, in order",
                json!([template("a"), template("none"), named("shared")]),
                json!([status("none", Value::Null), status("a", json!("made"))]),
                Ok(vec!["made", "shared"]),
            ),
            (
                "not made yet",
                json!([template("a")]),
                json!([status("b", json!("made"))]),
                Err("pod \"default/p\": ResourceClaim not created yet".to_owned()),
            ),
            (
                "not there",
                json!([named("missing")]),
                json!([]),
                Err("could not find ResourceClaim \"default/missing\"".to_owned()),
            ),
            (
                "in another namespace",
                json!([named("elsewhere")]),
                json!([]),
                Err("could not find ResourceClaim \"default/elsewhere\"".to_owned()),
            ),
            (
                "made, and not seen yet",
                json!([template("a")]),
                json!([status("a", json!("late"))]),
                Err("could not find ResourceClaim \"default/late\"".to_owned()),
            ),
            (
                "being deleted",
                json!([named("going")]),
                json!([]),
                Err("resourceclaim \"going\" is being deleted".to_owned()),
            ),
            (
                "made for another pod",
                json!([template("a")]),
                json!([status("a", json!("made-for-q"))]),
                Err(not_owner("made-for-q")),
            ),
            (
                "owned, and not controlled",
                json!([template("a")]),
                json!([status("a", json!("owned"))]),
                Err(not_owner("owned")),
            ),
            (
                "of neither sort",
                json!([{"name": "a"}]),
                json!([]),
                Err("pod \"default/p\", spec.resourceClaim \"a\": none of the supported fields are set".to_owned()),
            ),
            (
                "the first of several obstacles",
                json!([named("shared"), named("going"), named("missing")]),
                json!([]),
                Err("resourceclaim \"going\" is being deleted".to_owned()),
            ),
        ] {
            let fields = json!({"spec": {"resourceClaims": claims}, "status": {"resourceClaimStatuses": made}});
            let pod = full_pod("p", fields);
            let found = resolve(&world.cluster, &FeatureGates::default(), &pod).map_err(|lack| lack.to_string());
            let found = found.map(|claims| {
                let names = claims.iter().map(|claim| claim.metadata.name.to_string());
                names.collect::<Vec<_>>()
            });
            let expected = expected.map(|names| names.iter().map(ToString::to_string).collect());
            assert_eq!(found, expected, "{situation}");
        }
    }

    /// KEP-5501: the text for users names the awaited event and stays correct until it occurs.
    #[test]
    fn the_status_states_what_a_pod_waits_for() {
        let going = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
        let world = World::new()
            .with(claim("going", going))
            .with(claim("made-for-q", made_for("q")));
        let template = json!({"name": "gpu", "resourceClaimTemplateName": "gpus"});
        let named = |name: &str| json!({"name": "gpu", "resourceClaimName": name});
        for (entry, made, notified) in [
            (
                named("mine"),
                json!([]),
                "Waiting for resource claim \"mine\" to be present",
            ),
            (
                named("going"),
                json!([]),
                "Resource claim \"going\" is being deleted: waiting for a new one of that name",
            ),
            (
                template.clone(),
                json!([]),
                "Waiting for a resource claim to be created from ResourceClaimTemplate \"gpus\"",
            ),
            (
                template,
                json!([{"name": "gpu", "resourceClaimName": "made-for-q"}]),
                "Resource claim \"made-for-q\" was created for something else: waiting for one that is created for \
                 this pod from ResourceClaimTemplate \"gpus\"",
            ),
            (
                json!({"name": "gpu"}),
                json!([]),
                "The pod's resource claim \"gpu\" names neither a ResourceClaim nor a ResourceClaimTemplate",
            ),
        ] {
            let fields = json!({"spec": {"resourceClaims": [entry]}, "status": {"resourceClaimStatuses": made}});
            let pod = full_pod("p", fields);
            let lack = resolve(&world.cluster, &FeatureGates::default(), &pod)
                .map_err(|lack| lack.for_users());
            assert_eq!(lack, Err(notified.to_owned()));
        }
    }
}
