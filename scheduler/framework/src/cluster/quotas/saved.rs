//! Copies of the quota state, for explanations that try changes and revert them.

use super::cohort::Cohort;
use super::{QuotaChanges, Quotas, Space};
use berth_api::Str;
use std::collections::BTreeSet;

/// The state of the quotas that a change in some namespaces can reach.
#[derive(Debug)]
pub struct SavedQuotas {
    is_active: bool,
    spaces: Vec<(Str, Option<Space>)>,
    cohorts: Vec<(Str, Option<Cohort>)>,
    changes: QuotaChanges,
}

impl Quotas {
    /// Copies the state that changes in these namespaces can affect: the state of the namespaces and of their cohorts. The
    /// changes may not put a quota into another cohort.
    pub fn saved<'n>(&self, namespaces: impl Iterator<Item = &'n Str>) -> SavedQuotas {
        let mut left: Vec<Str> = namespaces.cloned().collect();
        let mut reached = BTreeSet::new();
        let mut cohorts = BTreeSet::new();
        // Quotas of several namespaces can share a cohort, so the state of all connected namespaces is copied.
        while let Some(namespace) = left.pop() {
            if !reached.insert(namespace.clone()) {
                continue;
            }
            let quotas = self.ruled(&namespace).map(|ruled| ruled.quotas.values());
            let named = quotas.into_iter().flatten();
            for name in named.filter_map(|quota| quota.spec.cohort.as_ref()) {
                if cohorts.insert(name.clone())
                    && let Some(cohort) = self.cohorts.get(name)
                {
                    left.extend(cohort.namespaces().cloned());
                }
            }
        }
        let spaces = reached.into_iter().map(|name| {
            let space = self.spaces.get(&name).cloned();
            (name, space)
        });
        let cohorts = cohorts.into_iter().map(|name| {
            let cohort = self.cohorts.get(&name).cloned();
            (name, cohort)
        });
        SavedQuotas {
            is_active: self.is_active,
            spaces: spaces.collect(),
            cohorts: cohorts.collect(),
            changes: self.changes.clone(),
        }
    }

    /// Restores copied state. Changes of other namespaces since then are kept.
    pub fn restore(&mut self, saved: SavedQuotas) {
        self.is_active = saved.is_active;
        self.changes = saved.changes;
        for (name, space) in saved.spaces {
            match space {
                Some(space) => drop(self.spaces.insert(name, space)),
                None => drop(self.spaces.remove(&name)),
            }
        }
        for (name, cohort) in saved.cohorts {
            match cohort {
                Some(cohort) => drop(self.cohorts.insert(name, cohort)),
                None => drop(self.cohorts.remove(&name)),
            }
        }
    }
}
