//! The limit of a search. A search has no clock; its limit is a number of steps.

/// How much work a search may do. One step is about a microsecond of work: looking at one device, or 100 units of CEL
/// cost. The count does not depend on caches, so the same search always needs the same number of steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    left: u64,
}

/// How many steps stand for a second of search.
const STEPS_PER_SECOND: u64 = 1_000_000;

/// How many units of CEL cost one step pays for.
const COST_PER_STEP: u64 = 100;

/// The work of a search is used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OutOfSteps;

impl Budget {
    /// No limit.
    pub const fn unlimited() -> Self {
        Self { left: u64::MAX }
    }

    /// A budget of this many steps.
    pub const fn of_steps(steps: u64) -> Self {
        Self { left: steps }
    }

    /// The steps for a timeout, at least one. Zero means no limit.
    pub fn of_timeout(timeout: berth_api::Duration) -> Self {
        let nanos = timeout.as_nanos();
        if nanos == 0 {
            return Self::unlimited();
        }
        let steps = nanos.saturating_mul(u128::from(STEPS_PER_SECOND)) / 1_000_000_000;
        Self::of_steps(u64::try_from(steps).unwrap_or(u64::MAX).max(1))
    }

    /// Takes one step.
    pub(crate) fn step(&mut self) -> Result<(), OutOfSteps> {
        self.spend(1)
    }

    /// Takes the steps of a CEL evaluation.
    pub(crate) fn evaluate(&mut self, cost: u64) -> Result<(), OutOfSteps> {
        self.spend(cost / COST_PER_STEP)
    }

    fn spend(&mut self, steps: u64) -> Result<(), OutOfSteps> {
        if *self == Self::unlimited() {
            return Ok(());
        }
        self.left = self.left.checked_sub(steps).ok_or(OutOfSteps)?;
        Ok(())
    }
}
