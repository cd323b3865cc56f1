//! Decisions with kept answers, and the comparison with those of the plain evaluator.

use super::AnswerCache;
use crate::{Diagnosis, Evaluation, Evaluator, Found, Placement};
use berth_framework::{Slot, Work};

impl Evaluator<'_> {
    /// Finds a node for the pod as [`Evaluator::find`] does or, with a scope, [`Evaluator::find_within`], from kept answers
    /// where there are any.
    ///
    /// # Panics
    /// When `compare` is set and the plain evaluator decides otherwise: a bug.
    pub fn find_with(
        &mut self,
        answer_cache: &mut AnswerCache,
        compare: bool,
        scope: Option<&[Slot]>,
        percentage_of_nodes: Option<i32>,
        start: &mut usize,
        rng: &mut fastrand::Rng,
    ) -> Found {
        let (rng_before, start_before) = (rng.clone(), *start);
        match answer_cache.find(self, scope, percentage_of_nodes, start, rng) {
            Some(found) => {
                if compare {
                    let after =
                        self.compare(&found, scope, percentage_of_nodes, rng_before, start_before);
                    assert!(
                        after.is_none_or(|after| after == (rng.clone(), *start)),
                        "the evaluators have used the generator or the start differently for pod {}",
                        self.pod.pod.key()
                    );
                }
                found
            }
            None => {
                // The plain evaluator decides the same whatever was asked before.
                if let Some(work) = self.work {
                    work.restart();
                }
                self.find_plainly(scope, percentage_of_nodes, start, rng)
            }
        }
    }

    /// Calls the plugins on every node, or on every node of the scope.
    pub fn find_plainly(
        &mut self,
        scope: Option<&[Slot]>,
        percentage_of_nodes: Option<i32>,
        start: &mut usize,
        rng: &mut fastrand::Rng,
    ) -> Found {
        match scope {
            None => self.find(percentage_of_nodes, start, rng),
            Some(nodes) => self.find_within(nodes, percentage_of_nodes, start, rng),
        }
    }

    /// Makes the decision once more, plainly. Returns the generator and the start after that; `None` if the budget of the
    /// attempt is used up, which kept answers do not need.
    fn compare(
        &mut self,
        found: &Found,
        scope: Option<&[Slot]>,
        percentage_of_nodes: Option<i32>,
        mut rng: fastrand::Rng,
        mut start: usize,
    ) -> Option<(fastrand::Rng, usize)> {
        let mut evaluation = Evaluation::default();
        // The budget is what the first decision had: its own work does not count.
        let work = Work::after(self.work.map_or(0, Work::used_up_before));
        let plain = Evaluator {
            cluster: self.cluster,
            evaluation: &mut evaluation,
            work: self.work.map(|_| &work),
            ..*self
        }
        .find_plainly(scope, percentage_of_nodes, &mut start, &mut rng);
        if work.is_used_up() {
            return None;
        }
        if let Some(difference) = difference(found, &plain) {
            panic!(
                "the incremental evaluator differs from the plain one about pod {}: {difference}",
                self.pod.pod.key()
            );
        }
        Some((rng, start))
    }
}

/// The difference of two decisions about one pod.
fn difference(found: &Found, plain: &Found) -> Option<String> {
    match (found, plain) {
        (Found::Placed(found), Found::Placed(plain)) => {
            let stated = |of: &Placement| {
                let (name, feasible, evaluated) = (&of.name, of.feasible, of.evaluated);
                format!("{name}, {feasible} of {evaluated} feasible")
            };
            let (found, plain) = (stated(found), stated(plain));
            (found != plain).then(|| format!("{found} instead of {plain}"))
        }
        (Found::Unfit(found), Found::Unfit(plain)) => {
            let (text, plainly) = (found.to_string(), plain.to_string());
            if text != plainly {
                return Some(format!("{text:?} instead of {plainly:?}"));
            }
            let (found, plain) = (&found.diagnosis, &plain.diagnosis);
            let plugins = |of: &Diagnosis| {
                format!("{:?}, {:?}", of.unschedulable_plugins, of.pending_plugins)
            };
            let (by, plainly) = (plugins(found), plugins(plain));
            if by != plainly {
                return Some(format!("rejected by {by} instead of {plainly}"));
            }
            let mut differs = None;
            plain.statuses.each(|slot, status| {
                let got = found.statuses.get(slot);
                if got == status {
                    return std::ops::ControlFlow::Continue(());
                }
                differs = Some(format!("slot {slot:?}: {got:?} instead of {status:?}"));
                std::ops::ControlFlow::Break(())
            });
            differs
        }
        (found, plain) => Some(format!("{found:?} instead of {plain:?}")),
    }
}
