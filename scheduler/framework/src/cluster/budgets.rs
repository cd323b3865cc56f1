//! Disruption budgets.

use super::Namespaced;
use berth_api::PodDisruptionBudget;
use std::ops::Deref;
use std::sync::Arc;

/// Disruption budgets, read through [`Namespaced`].
#[derive(Debug, Clone, Default)]
pub struct Budgets {
    all: Namespaced<PodDisruptionBudget>,
    version: u64,
}

impl Deref for Budgets {
    type Target = Namespaced<PodDisruptionBudget>;

    fn deref(&self) -> &Self::Target {
        &self.all
    }
}

impl Budgets {
    /// Changes with every change of a disruption budget.
    pub fn version(&self) -> u64 {
        self.version
    }

    pub(super) fn put(&mut self, budget: &Arc<PodDisruptionBudget>, is_there: bool) {
        self.version += 1;
        self.all.put(&budget.metadata, budget, is_there);
    }
}
