//! The limit of searches. A search has no clock; its limit is a number of steps.

use std::fmt;

/// The budget of searches, in two parts: for checking devices, and for evaluating CEL. The counts do not depend on
/// caches, so the same search always needs the same number of steps.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SearchBudget {
    /// Devices and slices to check.
    steps: u64,
    /// Units of CEL cost.
    cost: u64,
    is_used_up: bool,
}

/// The number of steps that count as a second of search.
const STEPS_PER_SECOND: u64 = 1_000_000;

/// The units of CEL cost that count as a second of search. Optimized builds evaluate 1.4 million (`url`) to 28 million
/// units (`matches`) per second on one of two shared cores, and three times as many on an idle core. Kubernetes' own
/// count of the cost is not usable: it omits, for instance, the list that `split` forms.
const COST_PER_SECOND: u64 = 10_000_000;

/// The first attempt gets this part of the CEL cost. Results are remembered, so that an attempt evaluates only the rest
/// of the previous one: the budget grows by this part with each attempt, and no attempt takes long.
const ATTEMPTS_FOR_ALL: u64 = 50;

/// The units of CEL cost for compiling one byte of an expression.
const COST_PER_BYTE: u64 = 10;

/// The budget of a search is used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutOfSteps;

impl SearchBudget {
    /// No limit.
    pub const fn unlimited() -> Self {
        Self {
            steps: u64::MAX,
            cost: u64::MAX,
            is_used_up: false,
        }
    }

    /// A budget of this number of steps and the same number of units of CEL cost.
    pub const fn of_steps(steps: u64) -> Self {
        Self {
            steps,
            cost: steps,
            is_used_up: false,
        }
    }

    /// The budget for a timeout, at least one step. Zero means no limit.
    pub fn of_timeout(timeout: berth_api::Duration) -> Self {
        let nanos = timeout.as_nanos();
        if nanos == 0 {
            return Self::unlimited();
        }
        let amount = |per_second: u64| {
            let amount = nanos.saturating_mul(u128::from(per_second)) / 1_000_000_000;
            u64::try_from(amount).unwrap_or(u64::MAX).max(1)
        };
        Self {
            steps: amount(STEPS_PER_SECOND),
            cost: amount(COST_PER_SECOND),
            is_used_up: false,
        }
    }

    /// The budget of an attempt, given the number of consecutive attempts before it that used up theirs.
    #[must_use]
    pub fn of_attempt_after(self, used_up: u32) -> Self {
        if self == Self::unlimited() {
            return self;
        }
        let attempts = u64::from(used_up).saturating_add(1);
        let cost = (self.cost / ATTEMPTS_FOR_ALL).saturating_mul(attempts);
        Self {
            cost: cost.clamp(1, self.cost),
            ..self
        }
    }

    /// Returns whether a search needed more than the budget. Nothing is left then.
    pub fn is_used_up(&self) -> bool {
        self.is_used_up
    }

    /// Takes one step.
    ///
    /// # Errors
    /// No step is left.
    pub fn step(&mut self) -> Result<(), OutOfSteps> {
        self.spend(1, 0)
    }

    /// Takes several steps.
    pub(crate) fn steps(&mut self, steps: usize) -> Result<(), OutOfSteps> {
        self.spend(u64::try_from(steps).unwrap_or(u64::MAX), 0)
    }

    /// Takes the cost of a CEL evaluation.
    pub(crate) fn evaluate(&mut self, cost: u64) -> Result<(), OutOfSteps> {
        self.spend(0, cost)
    }

    /// Charges for compiling CEL expressions of this length in bytes.
    ///
    /// # Errors
    /// The budget is used up.
    pub fn compile(&mut self, bytes: usize) -> Result<(), OutOfSteps> {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        self.evaluate(bytes.saturating_mul(COST_PER_BYTE))
    }

    fn spend(&mut self, steps: u64, cost: u64) -> Result<(), OutOfSteps> {
        if *self == Self::unlimited() {
            return Ok(());
        }
        let left = (!self.is_used_up)
            .then(|| Some((self.steps.checked_sub(steps)?, self.cost.checked_sub(cost)?)))
            .flatten();
        match left {
            Some((steps, cost)) => {
                (self.steps, self.cost) = (steps, cost);
                Ok(())
            }
            None => {
                *self = Self {
                    steps: 0,
                    cost: 0,
                    is_used_up: true,
                };
                Err(OutOfSteps)
            }
        }
    }
}

impl fmt::Debug for SearchBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::unlimited() {
            f.write_str("Budget(unlimited)")
        } else {
            f.debug_struct("Budget")
                .field("steps", &self.steps)
                .field("cost", &self.cost)
                .finish_non_exhaustive()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_api::Duration;

    /// Each consecutive attempt that used up its budget increases the CEL cost by the first budget, up to the timeout.
    #[test]
    fn the_cost_of_attempts_grows_up_to_the_timeout() {
        let ten_seconds = SearchBudget::of_timeout(Duration::from_secs(10));
        assert_eq!(ten_seconds.steps, 10_000_000);
        assert_eq!(ten_seconds.cost, 100_000_000);
        for (used_up, cost) in [
            (0, 2_000_000),
            (1, 4_000_000),
            (48, 98_000_000),
            (49, 100_000_000),
            (u32::MAX, 100_000_000),
        ] {
            let budget = ten_seconds.of_attempt_after(used_up);
            assert_eq!(budget.cost, cost, "after {used_up}");
            assert_eq!(budget.steps, 10_000_000, "after {used_up}");
        }
        let unlimited = SearchBudget::of_timeout(Duration::ZERO);
        assert_eq!(unlimited.of_attempt_after(0), SearchBudget::unlimited());
    }

    /// A budget that was exceeded once has nothing left, not even for a smaller search.
    #[test]
    fn a_budget_that_is_used_up_stays_used_up() {
        let mut budget = SearchBudget::of_steps(5);
        assert_eq!(budget.evaluate(6), Err(OutOfSteps));
        assert!(budget.is_used_up());
        assert_eq!(budget.step(), Err(OutOfSteps));
    }
}
