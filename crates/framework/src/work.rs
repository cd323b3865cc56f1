//! The work of one attempt to schedule a pod.
//!
//! A limit for each item (an expression, a device, a node) does not limit an attempt: a pod can have many items, and
//! there are many nodes. Plugins that search count their steps here, so that the sum over all nodes has a limit.
//!
//! **Architecture invariant:** steps are counted, not time, and the count does not depend on caches. The same attempt
//! always ends at the same step.

use berth_devices::SearchBudget;
use std::cell::Cell;

/// The remaining budget of the searches of one attempt, for all nodes together.
#[derive(Debug, Default)]
pub struct Work {
    used_up_before: u32,
    budget: Cell<Option<SearchBudget>>,
}

impl Work {
    /// The work of an attempt, after so many attempts in a row that used up their budget.
    pub fn after(used_up_before: u32) -> Self {
        Self {
            used_up_before,
            budget: Cell::new(None),
        }
    }

    /// The number of attempts of the pod in a row, right before this one, that used up their budget.
    pub fn used_up_before(&self) -> u32 {
        self.used_up_before
    }

    /// Runs a search within the budget that earlier searches of the attempt have left. The first search begins with
    /// `budget`.
    pub fn search<T>(
        &self,
        budget: SearchBudget,
        search: impl FnOnce(&mut SearchBudget) -> T,
    ) -> T {
        let mut left = self.budget.get().unwrap_or(budget);
        let result = search(&mut left);
        self.budget.set(Some(left));
        result
    }

    /// Returns whether a search ended because the budget is used up. Each later search of the attempt ends at once.
    pub fn is_used_up(&self) -> bool {
        let budget = self.budget.get();
        budget.is_some_and(|budget| budget.is_used_up())
    }

    /// Begins again, as if nothing had been searched.
    pub fn restart(&self) {
        self.budget.set(None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The second search has what the first one left, and no search has anything once the budget is used up.
    #[test]
    fn the_searches_of_an_attempt_share_one_budget() {
        let work = Work::after(2);
        assert_eq!(work.used_up_before(), 2);
        let spend = |steps| {
            work.search(SearchBudget::of_steps(10), |budget| {
                (0..steps).all(|_| budget.step().is_ok())
            })
        };
        assert!(spend(6));
        assert!(!work.is_used_up());
        assert!(!spend(5));
        assert!(work.is_used_up());
        assert!(!spend(1));
        work.restart();
        assert!(!work.is_used_up());
        assert!(spend(10));
    }
}
