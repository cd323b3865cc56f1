//! Admission: the entries at the head of the line that fit now.

use super::cohort::{self, Cohorts};
use super::line::{Entry, EntryKey, EntryState, LineKey, Quota, QuotaId};
use super::needs::{Need, Needs};
use super::spec::QuotaOrder;
use super::{Quotas, Ruled};
use berth_api::Str;
use std::collections::BTreeSet;

/// The reason why a quota does not admit an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Shortage {
    /// An earlier entry of the line waits.
    Order,
    /// The quota has reached its limit for a key, including the amount that it may borrow.
    Limit(usize),
    /// The cohort has nothing left of a key.
    Cohort(usize),
    /// Another quota of the cohort claims the remaining amount for its own limit.
    Claimed(usize, QuotaId),
}

/// Whether a sum of taken amounts is counted with the entry or without it.
#[derive(Debug, Clone, Copy)]
pub(super) enum Counted<'a> {
    /// The entry is not counted yet. These are its needs in all quotas that apply.
    Without(&'a Ruled, &'a Needs),
    /// The entry is counted already.
    With,
}

/// The amount that an entry counts in a cohort: the sum over the quotas of the cohort that apply to it.
pub(super) fn need_of_cohort(ruled: &Ruled, needs: &Needs, cohort: &Str, key: &Str) -> i64 {
    let counted = needs.iter().filter_map(|need| {
        let spec = &ruled.quotas.get(&need.quota)?.spec;
        let at = spec.limits.iter().position(|limit| limit.key == *key)?;
        let amount = need.amounts.get(at).copied()?;
        (spec.cohort.as_ref() == Some(cohort)).then_some(amount)
    });
    counted.fold(0, i64::saturating_add)
}

/// The first key of a quota that has no room.
pub(super) fn shortage_of_amounts(
    cohorts: &Cohorts,
    id: &QuotaId,
    quota: &Quota,
    need: &Need,
    counted: Counted<'_>,
) -> Option<Shortage> {
    let name = quota.spec.cohort.as_ref();
    let cohort = name.and_then(|name| Some((name, cohorts.get(name)?)));
    // A shortage of the quota's own limit, for any key, is reported before a shortage of the cohort.
    let mut shortage = None;
    for (at, amount) in need
        .amounts
        .iter()
        .enumerate()
        .filter(|(_, amount)| **amount > 0)
    {
        let Some(limit) = quota.spec.limits.get(at) else {
            continue;
        };
        let more = match counted {
            Counted::Without(..) => *amount,
            Counted::With => 0,
        };
        let after = quota.taken(at).saturating_add(more);
        if after > quota.spec.most(at) {
            return Some(Shortage::Limit(at));
        }
        let Some((name, cohort)) = cohort else {
            continue;
        };
        let more = match counted {
            Counted::Without(ruled, needs) => need_of_cohort(ruled, needs, name, &limit.key),
            Counted::With => 0,
        };
        if cohort.taken(&limit.key).saturating_add(more) > cohort.hard(&limit.key) {
            shortage = shortage.or(Some(Shortage::Cohort(at)));
        } else if matches!(counted, Counted::Without(..))
            && after > limit.hard
            && let Some(claimant) = cohort.claimant_except(id)
        {
            // While another quota waits for its own limit, this quota must not borrow (DQ-11).
            shortage = shortage.or_else(|| Some(Shortage::Claimed(at, claimant.clone())));
        }
    }
    shortage
}

/// The first quota that does not admit an entry, and the reason.
pub(super) fn shortage<'r>(
    ruled: &'r Ruled,
    cohorts: &Cohorts,
    namespace: &Str,
    entry: &Entry,
    place: Option<&LineKey>,
) -> Option<(&'r Str, Shortage)> {
    for need in &entry.needs {
        let Some((name, quota)) = ruled.quotas.get_key_value(&need.quota) else {
            continue;
        };
        let is_overtaking = quota.spec.order == QuotaOrder::Strict
            && place.is_some_and(|place| quota.first().is_some_and(|first| first < place));
        if is_overtaking {
            return Some((name, Shortage::Order));
        }
        let id = (namespace.clone(), name.clone());
        let counted = Counted::Without(ruled, &entry.needs);
        if let Some(shortage) = shortage_of_amounts(cohorts, &id, quota, need, counted) {
            return Some((name, shortage));
        }
    }
    None
}

impl Ruled {
    /// Moves an entry between the line, the admitted ones and neither.
    pub(super) fn set_state(
        &mut self,
        cohorts: &mut Cohorts,
        key: &EntryKey,
        state: EntryState,
    ) -> EntryState {
        let Some(entry) = self.entries.get_mut(key) else {
            return EntryState::Out;
        };
        let before = std::mem::replace(&mut entry.state, state.clone());
        let needs = entry.needs.clone();
        for need in &needs {
            let Some(quota) = self.quotas.get_mut(&need.quota) else {
                continue;
            };
            match &before {
                EntryState::Out => {}
                EntryState::Waiting(place) => quota.unfile(place, &needs, need),
                EntryState::Admitted => quota.count(cohorts, need, false, -1),
            }
            match &state {
                EntryState::Out => {}
                EntryState::Waiting(place) => quota.file(place, key, &needs, need),
                EntryState::Admitted => quota.count(cohorts, need, false, 1),
            }
        }
        before
    }
}

impl Quota {
    /// Counts amounts as used or as admitted.
    pub(super) fn count(&mut self, cohorts: &mut Cohorts, need: &Need, used: bool, sign: i64) {
        let amounts = if used {
            &mut self.used
        } else {
            &mut self.admitted
        };
        let counted = amounts.iter_mut().zip(&need.amounts).zip(&self.spec.limits);
        for ((sum, amount), limit) in counted {
            let amount = sign.saturating_mul(*amount);
            *sum = sum.saturating_add(amount);
            cohort::take(cohorts, self.spec.cohort.as_ref(), &limit.key, amount);
        }
    }
}

impl Quotas {
    /// The quotas to check after room was freed in `freed`: these quotas, and the quotas that wait for their cohorts.
    pub(super) fn with_cohorts(&self, freed: BTreeSet<QuotaId>) -> BTreeSet<QuotaId> {
        let mut all = freed.clone();
        for (namespace, name) in &freed {
            let quota = self
                .ruled(namespace)
                .and_then(|ruled| ruled.quotas.get(name));
            let cohort = quota.and_then(|quota| self.cohorts.get(quota.spec.cohort.as_ref()?));
            all.extend(cohort.into_iter().flat_map(cohort::Cohort::waiting));
        }
        all
    }

    /// Admits the entries of these quotas that fit, in order.
    pub(super) fn admit_all(&mut self, mut quotas: BTreeSet<QuotaId>) {
        // A quota is checked at most once more because another quota has an entry that waits for its cohort.
        let mut noted = BTreeSet::new();
        while let Some(id) = self.take_first(&mut quotas) {
            let others = self.admit_of(&id, &mut quotas);
            let news = others
                .into_iter()
                .filter(|other| noted.insert(other.clone()));
            quotas.extend(news);
        }
    }

    /// Takes the next quota to check: a quota that claims its own limit, otherwise the quota with the first entry.
    fn take_first(&self, quotas: &mut BTreeSet<QuotaId>) -> Option<QuotaId> {
        if quotas.len() <= 1 {
            return quotas.pop_first();
        }
        let rank = |id: &QuotaId| {
            let quota = self.ruled(&id.0).and_then(|ruled| ruled.quotas.get(&id.1));
            let cohort = quota.and_then(|quota| self.cohorts.get(quota.spec.cohort.as_ref()?));
            let claims = cohort.is_some_and(|cohort| cohort.is_claimant(id));
            let first = quota.and_then(Quota::first).cloned();
            (!claims, first.is_none(), first)
        };
        let first = quotas.iter().min_by_key(|id| rank(id)).cloned()?;
        quotas.take(&first)
    }

    /// Admits the entries of one quota. Returns the other quotas of the namespace for whose cohorts a candidate waits.
    fn admit_of(&mut self, id: &QuotaId, quotas: &mut BTreeSet<QuotaId>) -> BTreeSet<QuotaId> {
        let mut others = BTreeSet::new();
        let (blocked, claims) = loop {
            let Some(ruled) = self.ruled(&id.0) else {
                return others;
            };
            let Some(quota) = ruled.quotas.get(&id.1) else {
                return others;
            };
            let candidates = quota.candidates();
            let mut admitted = None;
            let mut looks = 0;
            let (mut blocked, mut claims) = (None, false);
            for key in candidates {
                looks += 1;
                let Some(entry) = ruled.entries.get(&key) else {
                    continue;
                };
                let EntryState::Waiting(place) = &entry.state else {
                    continue;
                };
                match shortage(ruled, &self.cohorts, &id.0, entry, Some(place)) {
                    None => {
                        admitted = Some(key);
                        break;
                    }
                    Some((name, Shortage::Cohort(_) | Shortage::Claimed(..))) if *name == id.1 => {
                        claims |= is_within_own(quota, entry, &id.1);
                        blocked.get_or_insert_with(|| place.clone());
                    }
                    // Records in the other quota that its candidate waits for the cohort.
                    Some((name, Shortage::Cohort(_) | Shortage::Claimed(..))) => {
                        others.insert((id.0.clone(), name.clone()));
                    }
                    Some(_) => {}
                }
            }
            self.looks += looks;
            match admitted {
                Some(key) => self.admit(id, &key, quotas),
                None => break (blocked, claims),
            }
        };
        let ruled = self.spaces.get_mut(&id.0);
        let ruled = ruled.and_then(|space| space.ruled.as_deref_mut());
        if let Some(quota) = ruled.and_then(|ruled| ruled.quotas.get_mut(&id.1))
            && cohort::block(&mut self.cohorts, id, quota, blocked, claims)
        {
            let cohort = quota.spec.cohort.as_ref();
            let cohort = cohort.and_then(|name| self.cohorts.get(name));
            quotas.extend(cohort.into_iter().flat_map(cohort::Cohort::waiting));
        }
        others
    }

    fn admit(&mut self, id: &QuotaId, key: &EntryKey, quotas: &mut BTreeSet<QuotaId>) {
        let Self {
            spaces,
            cohorts,
            changes,
            now,
            ..
        } = self;
        let space = spaces.get_mut(&id.0);
        let Some(ruled) = space.and_then(|space| space.ruled.as_deref_mut()) else {
            return;
        };
        ruled.set_state(cohorts, key, EntryState::Admitted);
        let Some(entry) = ruled.entries.get(key) else {
            return;
        };
        changes.waits.push(now.since(entry.since));
        let members = entry.members.iter().map(|member| member.uid.clone());
        changes.admitted.extend(members);
        for need in &entry.needs {
            let other = (id.0.clone(), need.quota.clone());
            changes.quotas.insert(other.clone());
            if need.quota != id.1 {
                quotas.insert(other);
            }
        }
    }
}

/// Returns whether an entry needs no more than the own limits of a quota.
fn is_within_own(quota: &Quota, entry: &Entry, name: &Str) -> bool {
    let need = entry.needs.iter().find(|need| need.quota == *name);
    need.is_some_and(|need| {
        let amounts = need.amounts.iter().enumerate();
        amounts
            .filter(|(_, amount)| **amount > 0)
            .all(|(at, amount)| {
                let limit = quota.spec.limits.get(at);
                limit.is_none_or(|limit| quota.taken(at).saturating_add(*amount) <= limit.hard)
            })
    })
}
