//! CEL selectors: compiled once per expression, and evaluated once per expression and device.
//!
//! Both results are remembered per thread. They are pure functions of the expression and of the slice, so they never
//! depend on the cache. Results of a slice are dropped when the slice changes.

use crate::budget::{OutOfSteps, SearchBudget};
use crate::slice::{PreparedSlice, SliceId};
use berth_api::Str;
use berth_cel::{COST_MAX, CelSelector, CompileError, Environment};
use rustc_hash::FxHashMap;
use std::cell::RefCell;
use std::sync::Arc;

/// The maximum number of remembered expressions. Above it, all are dropped.
const EXPRESSIONS_MAX: usize = 4096;
/// The maximum number of pairs of an expression and a slice with remembered results. Above it, all are dropped.
const RESULTS_MAX: usize = 1 << 18;

/// A compiled expression, or its compile error.
pub(crate) type Compiled = Result<Arc<Expression>, Arc<CompileError>>;

/// A compiled expression with an identity for caches.
#[derive(Debug)]
pub(crate) struct Expression {
    id: u64,
    environment: Environment,
    selector: CelSelector,
}

/// Results for the devices of a slice: the work of the evaluation and whether it was true; zero if unknown.
type Results = Box<[u32]>;

#[derive(Default)]
struct Remembered {
    last_id: u64,
    expressions: FxHashMap<(Str, bool), Compiled>,
    results: FxHashMap<SliceId, FxHashMap<u64, Results>>,
    results_count: usize,
}

thread_local! {
    static REMEMBERED: RefCell<Remembered> = RefCell::default();
}

/// The compiled expression.
pub(crate) fn compile(expression: &Str, environment: Environment) -> Compiled {
    let key = (expression.clone(), environment.list_attributes);
    REMEMBERED.with_borrow_mut(|remembered| {
        if let Some(known) = remembered.expressions.get(&key) {
            return known.clone();
        }
        if remembered.expressions.len() >= EXPRESSIONS_MAX {
            remembered.expressions.clear();
        }
        remembered.last_id += 1;
        let compiled = match CelSelector::compile(expression, environment) {
            Ok(selector) => Ok(Arc::new(Expression {
                id: remembered.last_id,
                environment,
                selector,
            })),
            Err(error) => Err(Arc::new(error)),
        };
        let known = compiled.clone();
        remembered.expressions.insert(key, known);
        compiled
    })
}

/// Drops the results of a slice.
pub(crate) fn forget(slice: SliceId) {
    REMEMBERED.with_borrow_mut(|remembered| {
        if let Some(results) = remembered.results.remove(&slice) {
            remembered.results_count -= results.len();
        }
    });
}

/// The reason why a device could not be evaluated.
#[derive(Debug)]
pub(crate) enum MatchError {
    OutOfSteps,
    Failed(String),
}

impl From<OutOfSteps> for MatchError {
    fn from(_: OutOfSteps) -> Self {
        Self::OutOfSteps
    }
}

impl Expression {
    /// Returns whether a device is selected.
    pub(crate) fn matches(
        &self,
        slice: &PreparedSlice,
        index: usize,
        budget: &mut SearchBudget,
    ) -> Result<bool, MatchError> {
        REMEMBERED.with_borrow_mut(|remembered| {
            // The results are a cache; dropping all of them bounds its memory.
            if remembered.results_count >= RESULTS_MAX {
                remembered.results.clear();
                remembered.results_count = 0;
            }
            let count = &mut remembered.results_count;
            let of_slice = remembered.results.entry(slice.id()).or_default();
            let results = of_slice.entry(self.id).or_insert_with(|| {
                *count += 1;
                vec![0; slice.devices().len()].into_boxed_slice()
            });
            // A known result costs the same work, so that budgets do not depend on the cache.
            if let Some(known) = results.get(index).filter(|known| **known != 0) {
                budget.evaluate(u64::from((known - 1) >> 1))?;
                return Ok((known - 1) & 1 == 1);
            }
            let (result, spent) = self
                .selector
                .matches_within(slice.value(index, self.environment), COST_MAX);
            budget.evaluate(spent.work)?;
            let matches = result.map_err(|error| MatchError::Failed(error.to_string()))?;
            let work = u32::try_from(spent.work)
                .unwrap_or(u32::MAX >> 2)
                .min(u32::MAX >> 2);
            results[index] = 1 + ((work << 1) | u32::from(matches));
            Ok(matches)
        })
    }
}
