//! The work of one attempt to schedule a pod.
//!
//! A limit for each item (an expression, a device, a node) does not limit an attempt: a pod can have many items, and
//! there are many nodes. Plugins that search count their steps here, so that the sum over all nodes has a limit. So do
//! the evaluator and the plugins that compare each item of a large pod with each node or pod.
//!
//! **Architecture invariant:** steps are counted, not time, and the count does not depend on caches. The same attempt
//! always ends at the same step.

use berth_devices::SearchBudget;
use std::cell::Cell;

/// The maximum number of items read in an attempt: about a second. Plugins read most items of a pod once per node, in
/// 10 to 50 ns each.
const ITEMS_MAX: u64 = 20_000_000;
/// The number of items up to which a pod is not large. Such pods are not counted: 1,000 items of 5,000 nodes take about a
/// tenth of a second.
const ITEMS_OF_SMALL_PODS: usize = 1_000;
/// The part of the budget from which on an attempt is costly.
const COSTLY_PART: u64 = 10;

/// The attempt has reached its limit of items.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutOfItems;

/// The remaining budget of the searches of one attempt, for all nodes together.
#[derive(Debug, Default)]
pub struct Work {
    used_up_before: u32,
    budget: Cell<Option<SearchBudget>>,
    /// The number of items read so far.
    items: Cell<u64>,
}

impl Work {
    /// The work of an attempt after `used_up_before` consecutive attempts that used up their budget.
    pub fn after(used_up_before: u32) -> Self {
        Self {
            used_up_before,
            budget: Cell::new(None),
            items: Cell::new(0),
        }
    }

    /// Counts `items` of a pod, each read `times` times. Pods with few items are not counted.
    ///
    /// # Errors
    /// The attempt has reached its limit of items; no budget is left.
    pub fn look_at(&self, items: usize, times: usize) -> Result<(), OutOfItems> {
        if !is_large(items) {
            return Ok(());
        }
        let count = u64::try_from(items.saturating_mul(times)).unwrap_or(u64::MAX);
        self.items.set(self.items.get().saturating_add(count));
        if self.is_out_of_items() {
            Err(OutOfItems)
        } else {
            Ok(())
        }
    }

    /// Returns whether the attempt has reached its limit of items.
    pub fn is_out_of_items(&self) -> bool {
        self.items.get() > ITEMS_MAX
    }

    /// Returns whether the attempt was expensive enough for a longer wait before the next one.
    pub fn is_costly(&self) -> bool {
        self.items.get() > ITEMS_MAX / COSTLY_PART || self.is_used_up()
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
        budget.is_some_and(|budget| budget.is_used_up()) || self.is_out_of_items()
    }

    /// Resets the budget and the number of items.
    pub fn restart(&self) {
        self.budget.set(None);
        self.items.set(0);
    }
}

/// Returns whether the work of a pod with this number of items is counted.
fn is_large(items: usize) -> bool {
    items > ITEMS_OF_SMALL_PODS
}

/// Returns whether the answers of `nodes` nodes about a pod with `items` items are worth keeping: computing them costs
/// no more than a costly attempt.
pub fn may_keep(items: usize, nodes: usize) -> bool {
    let all = u64::try_from(items.saturating_mul(nodes)).unwrap_or(u64::MAX);
    !is_large(items) || all <= ITEMS_MAX / COSTLY_PART
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The second search has the budget that the first one left. Once the budget is used up, every search ends at once.
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

    /// Small pods are free, whatever the number of nodes; the others have one budget for the attempt, and are costly
    /// before it ends.
    #[test]
    fn the_items_of_large_pods_are_counted() {
        let work = Work::default();
        assert_eq!(work.look_at(ITEMS_OF_SMALL_PODS, usize::MAX), Ok(()));
        assert_eq!(work.look_at(2_000, 1_000), Ok(()));
        assert!(!work.is_costly());
        assert_eq!(work.look_at(2_000, 9_000), Ok(()));
        assert!(work.is_costly() && !work.is_used_up());
        assert_eq!(work.look_at(2_000, 1), Err(OutOfItems));
        assert!(work.is_costly() && work.is_used_up());
        work.restart();
        assert!(!work.is_costly() && !work.is_used_up());
        for (items, nodes, is_kept) in [
            (ITEMS_OF_SMALL_PODS, usize::MAX, true),
            (20_000, 100, true),
            (20_000, 101, false),
        ] {
            assert_eq!(
                may_keep(items, nodes),
                is_kept,
                "{items} items, {nodes} nodes"
            );
        }
    }
}
