//! PodGroupPostFilter: deallocates the claim of a group that cannot start, so that other devices can be allocated
//! (G-33).

use super::claims::group_consumer;
use super::writes;
use berth_api::{ResourceClaim, Str};
use berth_framework::cluster::GroupKey;
use berth_framework::plugin::{GroupPostFilterResult, PodGroupPostFilterContext};
use berth_framework::{ApiCall, Cluster, Code, Feature, Status};
use std::sync::Arc;

const UNRESERVED: &str = "ResourceClaim unreserved for PodGroup";
const DEALLOCATED: &str = "deallocation of ResourceClaim completed";

/// The claims of a pod group that have devices which no other user holds.
fn held_alone<'c>(
    cluster: &'c Cluster,
    key: &'c GroupKey,
) -> impl Iterator<Item = (&'c Arc<ResourceClaim>, bool)> {
    let group = cluster.groups().get(key);
    let entries = group
        .iter()
        .flat_map(|group| &group.spec.resource_claims)
        .collect::<Vec<_>>();
    entries.into_iter().filter_map(move |entry| {
        let group = cluster.groups().get(key)?;
        let made = group.status.resource_claim_statuses.iter();
        let made = made
            .filter(|made| made.name == entry.name)
            .find_map(|made| made.resource_claim_name.as_ref());
        let name: &Str = entry.resource_claim_name.as_ref().or(made)?;
        let claim = cluster.devices().claims().get(&key.namespace, name)?;
        let status = &claim.status;
        let is_own = |uid: &Str| *uid == group.metadata.uid;
        let is_alone = status.reserved_for.iter().all(|user| is_own(&user.uid));
        let is_written = claim.is_allocated() && !status.is_assumed;
        (is_written && is_alone).then_some((claim, !status.reserved_for.is_empty()))
    })
}

/// One claim at a time loses its reservation, then its devices. Either change of the claim wakes the group.
pub(super) fn post_filter_group(
    cx: &mut PodGroupPostFilterContext<'_>,
    root: &GroupKey,
) -> GroupPostFilterResult {
    let nothing = GroupPostFilterResult::of(Status::skip());
    if !cx.features.enabled(Feature::DRAWorkloadResourceClaims) {
        return nothing;
    }
    let cluster = cx.dry_run.cluster();
    for leaf in cluster.groups().leaves(root) {
        let members = cluster.pods.members(&leaf);
        if members.is_some_and(|members| !members.scheduled().is_empty()) {
            continue;
        }
        let Some(group) = cluster.groups().get(&leaf) else {
            continue;
        };
        let user = group_consumer(&group.metadata.name, &group.metadata.uid);
        let mut held: Vec<_> = held_alone(cluster, &leaf).collect();
        // A claim without reservation is freed before another one loses its own.
        held.sort_by_key(|(_, is_reserved)| *is_reserved);
        let Some((claim, is_reserved)) = held.first() else {
            continue;
        };
        let (write, text) = if *is_reserved {
            (writes::release(claim, &user), UNRESERVED)
        } else {
            (writes::deallocate(claim), DEALLOCATED)
        };
        let status = Status::new(Code::UnschedulableAndUnresolvable, [text.into()]);
        let mut result = GroupPostFilterResult::of(status);
        result.calls.push(ApiCall::from(write));
        return result;
    }
    nothing
}
