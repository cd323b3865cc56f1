//! From a pod to its resource claims, and what keeps it from having them.

use berth_api::pod::PodResourceClaim;
use berth_api::{Pod, ResourceClaim, Str};
use berth_framework::Cluster;
use smallvec::SmallVec;
use std::sync::Arc;

/// The claims of a pod, in the order of its spec.
pub(super) type Claims<'c> = SmallVec<[&'c Arc<ResourceClaim>; 2]>;

/// A claim as a pod refers to it.
struct Reference<'p> {
    name: &'p Str,
    /// Whether it must have been made for this very pod.
    is_own: bool,
}

/// What an entry of a pod refers to; nothing when its template asks for no claim.
fn reference<'p>(
    pod: &'p Pod,
    entry: &'p PodResourceClaim,
) -> Result<Option<Reference<'p>>, String> {
    if let Some(name) = &entry.resource_claim_name {
        return Ok(Some(Reference {
            name,
            is_own: false,
        }));
    }
    if entry.resource_claim_template_name.is_none() {
        return Err(format!(
            "pod {:?}, spec.resourceClaim {:?}: none of the supported fields are set",
            pod.key(),
            entry.name.as_str()
        ));
    }
    let mut made = pod.status.resource_claim_statuses.iter();
    match made.find(|made| made.name == entry.name) {
        None => Err(format!(
            "pod {:?}: ResourceClaim not created yet",
            pod.key()
        )),
        Some(made) => Ok(made
            .resource_claim_name
            .as_ref()
            .map(|name| Reference { name, is_own: true })),
    }
}

fn look_up<'c>(
    cluster: &'c Cluster,
    pod: &Pod,
    reference: &Reference<'_>,
) -> Result<&'c Arc<ResourceClaim>, String> {
    let (namespace, name) = (pod.namespace(), reference.name);
    let Some(claim) = cluster.resource_claims.get(namespace, name) else {
        return Err(format!(
            "could not find ResourceClaim {:?}",
            format!("{namespace}/{name}")
        ));
    };
    if claim.metadata.deletion_timestamp.is_some() {
        return Err(format!(
            "resourceclaim {:?} is being deleted",
            name.as_str()
        ));
    }
    let owner = claim.metadata.controller();
    if reference.is_own && owner.is_none_or(|owner| owner.uid != *pod.uid()) {
        return Err(format!(
            "ResourceClaim {} was not created for Pod {} (Pod is not owner)",
            claim.key(),
            pod.key()
        ));
    }
    Ok(claim)
}

/// The claims of a pod, all of them.
///
/// # Errors
/// What is wrong with the first that cannot be had, in upstream's words.
pub(super) fn resolve<'c>(cluster: &'c Cluster, pod: &Pod) -> Result<Claims<'c>, String> {
    let mut claims = Claims::new();
    for entry in &pod.spec.resource_claims {
        if let Some(reference) = reference(pod, entry)? {
            claims.push(look_up(cluster, pod, &reference)?);
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

    /// Q-28, plugins 8.1: what a pod refers to, and what is said when it is not to be had; the first obstacle counts.
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
            let found = resolve(&world.cluster, &pod);
            let found = found.map(|claims| {
                let names = claims.iter().map(|claim| claim.metadata.name.to_string());
                names.collect::<Vec<_>>()
            });
            let expected = expected.map(|names| names.iter().map(ToString::to_string).collect());
            assert_eq!(found, expected, "{situation}");
        }
    }
}
