//! Judges the admissions of deferred quotas: never more than the limits, in order, gangs as a whole, and no pod waits
//! although it fits.

use super::{Checker, Violation};
use crate::rules::{Account, Seen, Standing, needs};
use crate::shapes::{SLOW, Slow};
use berth_api::{Pod, Str, Time};
use std::collections::{BTreeMap, BTreeSet};

/// The state of the pods as shown by a scheduler.
#[derive(Debug, Default)]
pub(crate) struct QuotaSight {
    /// The scheduler names of the profiles with the plugin.
    pub(crate) deferring: Vec<Str>,
    /// All its scheduler names.
    pub(crate) schedulers: Vec<Str>,
    /// The standing of each pod, by UID.
    pub(crate) standings: BTreeMap<Str, Standing>,
    /// The UIDs of the pods with a node that the API does not show.
    pub(crate) assumed: BTreeSet<Str>,
}

/// The last observed state.
#[derive(Debug, Default)]
pub(super) struct QuotaChecks {
    /// The UIDs of the placed and the admitted pods; `None` before the first observation.
    with_room: Option<BTreeSet<Str>>,
    assumed: BTreeSet<Str>,
    /// The quota usage of each pod, by UID.
    needs: BTreeMap<Str, [i64; 4]>,
}

/// Returns whether a pod may wait at Reserve, where a quota may reject it later.
fn waits_at_reserve(pod: &Pod) -> bool {
    pod.labels().get(SLOW) == Some(Slow::Reserve.as_str())
}

impl Checker {
    /// The quotas with the pods that the scheduler knows.
    pub(crate) fn account(&mut self, sight: &QuotaSight) -> Account {
        let known = &self.pods;
        self.quotas.needs.retain(|uid, _| known.contains_key(uid));
        let living = self.pods.values().filter(|pod| !pod.is_terminal());
        let seen = living.filter_map(|pod| {
            let standing = match sight.standings.get(pod.uid()) {
                _ if pod.is_assigned() => Standing::Used,
                standing => *standing?,
            };
            let known = self.quotas.needs.entry(pod.uid().clone());
            let needs = *known.or_insert_with(|| needs(pod));
            Some(Seen {
                pod,
                standing,
                needs,
            })
        });
        let seen: Vec<Seen<'_>> = seen.collect();
        Account::of(&self.others, &seen, &sight.deferring, &sight.schedulers)
    }

    /// The scheduler has processed an input. With `news`, it was a single change, so newly admitted pods are judged by
    /// the current quotas. Returns the number of admitted entries.
    ///
    /// # Errors
    /// When a quota is exceeded, a pod was overtaken or waits although it fits, or a gang is admitted in part.
    pub(crate) fn judge_quotas(
        &mut self,
        sight: QuotaSight,
        news: bool,
        now: Time,
    ) -> Result<u64, Violation> {
        let account = self.account(&sight);
        account.judge_waits()?;
        let mut admissions = 0;
        if let Some(before) = self.quotas.with_room.as_ref().filter(|_| news) {
            let placed = sight.assumed.difference(&self.quotas.assumed);
            let placed = placed.filter(|uid| {
                let pod = self.pods.get(*uid);
                pod.is_some_and(|pod| !waits_at_reserve(pod))
            });
            let placed: BTreeSet<Str> = placed.cloned().collect();
            admissions = account.judge_new(before, &placed)?;
        }
        // Without quotas, skip the comparison of inputs.
        let has_quotas = !account.quotas.is_empty();
        self.quotas.with_room = has_quotas.then(|| account.with_room());
        self.quotas.assumed = sight.assumed;
        if self.others.set_quota_waits(account.waits()) {
            self.note_all_readiness(now);
        }
        Ok(admissions)
    }
}
