//! Disruption budgets: the number of pods that may be evicted, computed like in the disruption controller.
//!
//! A pod is healthy from the start of its containers until it is deleted. The expected pods are the pods of the trace
//! that have arrived and not ended permanently.

use super::Simulation;
use super::events::{Event, PodIndex};
use super::plan::Plan;
use crate::trace::{BudgetBound, DisruptionBudget, PodShare, Trace};
use berth_api::{Duration, Object, PodDisruptionBudget, Selector};
use std::sync::Arc;

/// The time after which a drain retries a refused eviction, as `kubectl drain` does.
const DRAIN_RETRY: Duration = Duration::from_secs(5);

/// A budget with the numbers of its pods.
#[derive(Debug)]
struct SimulatedBudget {
    of: DisruptionBudget,
    expected: u32,
    healthy: u32,
    /// The number of pods that may be evicted, as the object has it.
    allowed: u32,
}

impl SimulatedBudget {
    fn allowed_now(&self) -> u32 {
        let amount = |share| match share {
            PodShare::Pods(pods) => pods,
            PodShare::Percent(percent) => {
                let pods = (u64::from(percent) * u64::from(self.expected)).div_ceil(100);
                u32::try_from(pods).unwrap_or(u32::MAX)
            }
        };
        let desired = match self.of.bound {
            BudgetBound::MinAvailable(share) => amount(share),
            BudgetBound::MaxUnavailable(share) => self.expected.saturating_sub(amount(share)),
        };
        self.healthy.saturating_sub(desired)
    }

    /// The object with its current status.
    fn object(&self) -> Object {
        let mut object = PodDisruptionBudget::clone(&self.of.object);
        object.status = Default::default();
        object.status.disruptions_allowed = i32::try_from(self.allowed).unwrap_or(i32::MAX);
        Object::PodDisruptionBudget(Arc::new(object))
    }
}

/// All budgets.
#[derive(Debug)]
pub(super) struct Budgets {
    all: Vec<SimulatedBudget>,
    /// The budgets of the pods of each shape.
    of_shape: Vec<Vec<u32>>,
}

impl Budgets {
    pub(super) fn new(trace: &Trace, plan: &Plan) -> Self {
        let all = trace.budgets.iter().map(|budget| SimulatedBudget {
            of: budget.clone(),
            expected: 0,
            healthy: 0,
            allowed: 0,
        });
        let selectors = trace.budgets.iter().map(|budget| {
            let selector = Selector::from_label_selector(budget.object.spec.selector.as_ref());
            (&budget.object.metadata.namespace, selector)
        });
        let selectors: Vec<_> = selectors.collect();
        let of_shape = plan.shapes.iter().map(|shape| {
            let selects = selectors.iter().map(|(namespace, selector)| {
                let is_matching = |of: &Selector| of.matches(shape.pod.labels());
                *namespace == shape.pod.namespace() && selector.as_ref().is_ok_and(is_matching)
            });
            let found = (0..).zip(selects).filter(|(_, selects)| *selects);
            found.map(|(budget, _)| budget).collect()
        });
        Self {
            of_shape: of_shape.collect(),
            all: all.collect(),
        }
    }
}

impl Simulation {
    /// Creates the objects of the budgets, which have no pods yet.
    pub(super) fn add_budgets(&mut self) {
        let objects: Vec<Object> = self
            .budgets
            .all
            .iter()
            .map(SimulatedBudget::object)
            .collect();
        for object in objects {
            self.engine.set(object);
        }
    }

    /// Returns whether all budgets of a healthy pod allow its eviction.
    pub(super) fn may_evict(&self, pod: PodIndex) -> bool {
        let budgets = &self.budgets.of_shape[self.shape_of(pod) as usize];
        let mut budgets = budgets.iter().map(|at| &self.budgets.all[*at as usize]);
        budgets.all(|budget| budget.allowed > 0)
    }

    /// Updates the numbers of expected and healthy pods after a change of a pod.
    pub(super) fn budgets_change(&mut self, pod: PodIndex, expected: i32, healthy: i32) {
        let shape = self.shape_of(pod) as usize;
        for at in 0..self.budgets.of_shape[shape].len() {
            let budget = self.budgets.of_shape[shape][at] as usize;
            let budget = &mut self.budgets.all[budget];
            budget.expected = budget.expected.saturating_add_signed(expected);
            budget.healthy = budget.healthy.saturating_add_signed(healthy);
            let allowed = budget.allowed_now();
            if allowed == budget.allowed {
                continue;
            }
            let allows_more = allowed > budget.allowed;
            budget.allowed = allowed;
            let object = budget.object();
            self.engine.set(object);
            if allows_more {
                self.plan_drains();
            }
        }
    }

    /// Retries drains with refused evictions.
    fn plan_drains(&mut self) {
        for node in self.nodes.draining.clone() {
            if self.nodes.all[node as usize].drain_is_refused {
                self.nodes.all[node as usize].drain_is_refused = false;
                let at = self.engine.now() + DRAIN_RETRY;
                self.events.push(at, Event::RetryDrain { node });
            }
        }
    }
}
