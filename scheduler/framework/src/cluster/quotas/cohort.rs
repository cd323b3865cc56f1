//! Cohorts: quotas that lend each other their unused amounts.

use super::line::{LOOKS_MAX, LineKey, Quota, QuotaId};
use berth_api::Str;
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};

/// The quotas of a cohort, with the sums of their limits and of their taken amounts.
#[derive(Debug, Clone, Default)]
pub(super) struct Cohort {
    members: BTreeSet<QuotaId>,
    hard: BTreeMap<Str, i128>,
    taken: BTreeMap<Str, i128>,
    /// The quotas whose first candidate waits for the cohort, by its place in line.
    blocked: BTreeSet<(LineKey, QuotaId)>,
    /// The waiting quotas whose candidate needs no more than their own limit.
    claimants: BTreeSet<QuotaId>,
}

impl Cohort {
    /// The sum of the limits of a key.
    pub(super) fn hard(&self, key: &str) -> i64 {
        clamped(self.hard.get(key))
    }

    /// The sum of the used and admitted amounts of a key.
    pub(super) fn taken(&self, key: &str) -> i64 {
        clamped(self.taken.get(key))
    }

    /// Another quota with an own limit that others have borrowed.
    pub(super) fn claimant_except(&self, id: &QuotaId) -> Option<&QuotaId> {
        self.claimants.iter().find(|claimant| *claimant != id)
    }

    /// The first quotas that wait for the cohort: quotas that claim their own limit, then the others in order.
    pub(super) fn waiting(&self) -> Vec<QuotaId> {
        let claimants = self.claimants.iter().take(LOOKS_MAX);
        let blocked = self.blocked.iter().map(|(_, id)| id).take(LOOKS_MAX);
        claimants.chain(blocked).cloned().collect()
    }

    /// Returns whether a quota claims its own limit.
    pub(super) fn is_claimant(&self, id: &QuotaId) -> bool {
        self.claimants.contains(id)
    }

    /// The namespaces of the quotas. One may be named several times.
    pub(super) fn namespaces(&self) -> impl Iterator<Item = &Str> {
        self.members.iter().map(|(namespace, _)| namespace)
    }

    fn is_empty(&self) -> bool {
        self.members.is_empty()
    }
}

fn clamped(sum: Option<&i128>) -> i64 {
    let sum = sum.copied().unwrap_or(0);
    i64::try_from(sum).unwrap_or(if sum < 0 { i64::MIN } else { i64::MAX })
}

/// The cohorts by name.
pub(super) type Cohorts = FxHashMap<Str, Cohort>;

/// A quota joins or leaves its cohort, with its limits and its taken amounts.
pub(super) fn join(cohorts: &mut Cohorts, id: &QuotaId, quota: &Quota, joins: bool) {
    let Some(name) = &quota.spec.cohort else {
        return;
    };
    let cohort = cohorts.entry(name.clone()).or_default();
    let sign: i128 = if joins { 1 } else { -1 };
    for (at, limit) in quota.spec.limits.iter().enumerate() {
        *cohort.hard.entry(limit.key.clone()).or_default() += sign * i128::from(limit.hard);
        let taken = i128::from(quota.taken(at));
        *cohort.taken.entry(limit.key.clone()).or_default() += sign * taken;
    }
    if joins {
        cohort.members.insert(id.clone());
    } else {
        cohort.members.remove(id);
        cohort.claimants.remove(id);
        if let Some(place) = &quota.blocked_at {
            cohort.blocked.remove(&(place.clone(), id.clone()));
        }
    }
    if cohort.is_empty() {
        cohorts.remove(name);
    }
}

/// Changes the taken amount of a key.
pub(super) fn take(cohorts: &mut Cohorts, cohort: Option<&Str>, key: &Str, amount: i64) {
    let cohort = cohort.and_then(|name| cohorts.get_mut(name));
    if let Some(taken) = cohort.and_then(|cohort| cohort.taken.get_mut(key)) {
        *taken += i128::from(amount);
    }
}

/// Sets the place of the quota's candidate that waits for the cohort, if there is one. Returns whether a claim has
/// ended, so that others may borrow.
pub(super) fn block(
    cohorts: &mut Cohorts,
    id: &QuotaId,
    quota: &mut Quota,
    place: Option<LineKey>,
    claims: bool,
) -> bool {
    let name = quota.spec.cohort.as_ref();
    let Some(cohort) = name.and_then(|name| cohorts.get_mut(name)) else {
        return false;
    };
    if quota.blocked_at != place {
        if let Some(before) = quota.blocked_at.take() {
            cohort.blocked.remove(&(before, id.clone()));
        }
        if let Some(place) = &place {
            cohort.blocked.insert((place.clone(), id.clone()));
        }
        quota.blocked_at = place;
    }
    if claims {
        cohort.claimants.insert(id.clone());
        return false;
    }
    // The last claimant may borrow, too.
    cohort.claimants.remove(id) && cohort.claimants.len() <= 1
}
