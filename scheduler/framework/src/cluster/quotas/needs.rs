//! The amounts of a pod in a quota.

use super::Facts;
use super::spec::{QuotaResource, QuotaSpec};
use berth_api::devices::{AllocationMode, RequestedDevices};
use berth_api::requests::{SumOptions, pod_requests};
use berth_api::{Pod, ResourceClaim, ResourceList, Str};
use smallvec::SmallVec;

/// Amounts, one for each limit of a quota.
pub(super) type Amounts = SmallVec<[i64; 4]>;

/// The amounts of an entry in one quota.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Need {
    pub(super) quota: Str,
    pub(super) amounts: Amounts,
    pub(super) pods: usize,
}

/// The amounts of an entry in all quotas that apply, by the name of the quota.
pub(super) type Needs = SmallVec<[Need; 1]>;

/// Adds the needs of another pod, or subtracts them.
pub(super) fn add(total: &mut Needs, needs: &Needs, sign: i64) {
    for need in needs {
        let at = total.binary_search_by(|known| known.quota.cmp(&need.quota));
        let at = at.unwrap_or_else(|at| {
            let amounts = need.amounts.iter().map(|_| 0).collect();
            let empty = Need {
                quota: need.quota.clone(),
                amounts,
                pods: 0,
            };
            total.insert(at, empty);
            at
        });
        if let Some(known) = total.get_mut(at) {
            for (sum, amount) in known.amounts.iter_mut().zip(&need.amounts) {
                *sum = sum.saturating_add(sign.saturating_mul(*amount));
            }
            known.pods = match sign {
                1 => known.pods + need.pods,
                _ => known.pods.saturating_sub(need.pods),
            };
        }
    }
    total.retain(|need| need.pods > 0);
}

/// The greatest number of devices in an allocation. As in ResourceQuota, a request for all devices counts for it.
const ALL_DEVICES: i64 = 32;

fn devices(request: &RequestedDevices, class: &str) -> i64 {
    match request.allocation_mode {
        _ if request.device_class_name != *class => 0,
        AllocationMode::All => ALL_DEVICES,
        _ => request.count.max(1),
    }
}

/// The devices of a class that a claim can get: of alternatives, the largest number counts.
fn devices_of_claim(claim: &ResourceClaim, class: &str) -> i64 {
    let requests = claim.spec.devices.requests.iter();
    requests
        .map(|request| match &request.exactly {
            Some(exactly) => devices(exactly, class),
            None => {
                let alternatives = request.first_available.iter();
                alternatives
                    .map(|one| devices(one, class))
                    .max()
                    .unwrap_or(0)
            }
        })
        .fold(0, i64::saturating_add)
}

/// The claims that the pod names, and the claims that were created for it from templates. A claim for extended
/// resources is excluded, because these count as requests.
fn claim_names(pod: &Pod) -> impl Iterator<Item = &Str> {
    let named = pod.spec.resource_claims.iter();
    let made = pod.status.resource_claim_statuses.iter();
    let named = named.filter_map(|claim| claim.resource_claim_name.as_ref());
    named.chain(made.filter_map(|claim| claim.resource_claim_name.as_ref()))
}

/// Returns whether all claims of the pod exist, so that their devices are known.
pub(super) fn has_all_claims(pod: &Pod, facts: &Facts<'_>) -> bool {
    let known = claim_names(pod).all(|name| facts.claims.get(pod.namespace(), name).is_some());
    let made = pod.status.resource_claim_statuses.len();
    let wanted = pod.spec.resource_claims.iter();
    let wanted = wanted.filter(|claim| claim.resource_claim_name.is_none());
    known && made >= wanted.count()
}

/// The amounts of a pod in a quota that applies to it. Resizes and overhead count as in ResourceQuota.
pub(super) fn of_pod(spec: &QuotaSpec, pod: &Pod, facts: &Facts<'_>) -> Amounts {
    let mut requests: Option<ResourceList> = None;
    let limits = spec.limits.iter();
    limits
        .map(|limit| match &limit.resource {
            QuotaResource::Pods => 1,
            QuotaResource::Requests(resource) => {
                let options = SumOptions::PLACED.counting(facts.footprint);
                let requests = requests.get_or_insert_with(|| pod_requests(pod, options));
                let requested = requests.get(resource);
                requested.map_or(0, |quantity| limit.resource.amount(*quantity).max(0))
            }
            QuotaResource::Devices(class) => {
                let mut names: SmallVec<[&Str; 4]> = claim_names(pod).collect();
                names.sort_unstable();
                names.dedup();
                let claims = names
                    .into_iter()
                    .filter_map(|name| facts.claims.get(pod.namespace(), name));
                claims
                    .map(|claim| devices_of_claim(claim, class))
                    .fold(0, i64::saturating_add)
            }
        })
        .collect()
}
