//! Answers about many nodes at once, for plugins that read nothing of a node but amounts of resources.
//!
//! Where no two pods are alike, answers are of no use to the next pod. Nodes are: those that offer the same and hold
//! nearly the same get nearly the same answers. A plugin gives its answers about all nodes between two sums of
//! requests here, so that the evaluator need not ask about each of them.

use crate::state::CycleState;
use crate::table::ResourceId;

/// CPU and memory as scores count them come before the resources.
pub(crate) const NON_ZERO: usize = 2;

/// Nodes that offer the same, and what their pods request, at least and at most.
#[derive(Debug, Clone, Copy)]
pub struct Amounts<'a> {
    /// By resource.
    pub(crate) offered: &'a [i64],
    pub(crate) least: &'a [i64],
    pub(crate) most: &'a [i64],
}

impl<'a> Amounts<'a> {
    /// Nodes that offer `offered` and hold between `least` and `most`, in the order of
    /// [`Columns::offered`](crate::table::Columns::offered) and [`Columns::held`](crate::table::Columns::held).
    pub fn new(offered: &'a [i64], least: &'a [i64], most: &'a [i64]) -> Self {
        Self {
            offered,
            least,
            most,
        }
    }

    /// Nodes that offer `offered` and hold exactly `held`.
    pub fn exactly(offered: &'a [i64], held: &'a [i64]) -> Self {
        Self::new(offered, held, held)
    }

    /// Whether the least and the most of each amount are equal, because the nodes were given so. An answer is computed once
    /// then, not for both ends.
    #[inline]
    pub fn are_exact(&self) -> bool {
        std::ptr::eq(self.least, self.most)
    }

    /// The amount of a resource that each of the nodes offers.
    #[inline]
    pub fn offered(&self, id: ResourceId) -> i64 {
        self.offered.get(id.index()).copied().unwrap_or(0)
    }

    /// The amount of a resource that the pods of a node request, at least and at most.
    #[inline]
    pub fn requested(&self, id: ResourceId) -> (i64, i64) {
        self.held(NON_ZERO + id.index())
    }

    /// CPU in milli-CPU that the pods of a node count for in scores, at least and at most.
    #[inline]
    pub fn non_zero_milli_cpu(&self) -> (i64, i64) {
        self.held(0)
    }

    /// Memory in bytes that the pods of a node count for in scores, at least and at most.
    #[inline]
    pub fn non_zero_memory(&self) -> (i64, i64) {
        self.held(1)
    }

    #[inline]
    fn held(&self, at: usize) -> (i64, i64) {
        match (self.least.get(at), self.most.get(at)) {
            (Some(least), Some(most)) => (*least, *most),
            _ => (0, 0),
        }
    }
}

/// On how many of some nodes a pod fits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fits {
    /// On each of them.
    All,
    /// That differs, or is not known.
    Some,
    /// On none of them.
    None,
}

/// Judges nodes by amounts. When the least and the most are equal, the answer must be [`Fits::All`] or [`Fits::None`].
pub type FitsByAmounts<'a> = Box<dyn Fn(&Amounts<'_>) -> Fits + 'a>;

/// Scores nodes by amounts: bounds of the scores. When the least and the most are equal, so should the bounds be;
/// otherwise the evaluator asks about each node.
pub type ScoresByAmounts<'a> = Box<dyn Fn(&Amounts<'_>) -> (i64, i64) + 'a>;

/// A plugin whose answers about a node follow from the amounts that the node offers and that its pods request.
pub trait ByAmounts: Send + Sync + 'static {
    /// The answer of Filter about the pod of the cycle, for which PreFilter has run. `None` if that depends on more
    /// than amounts.
    fn fits<'a>(&'a self, _state: &'a CycleState) -> Option<FitsByAmounts<'a>> {
        None
    }

    /// Whether Score gives all nodes the same for the pod of the cycle, also when the scores are brought to scale. They
    /// are not asked for then.
    fn is_indifferent(&self, _state: &CycleState) -> bool {
        false
    }

    /// The answer of Score about the pod of the cycle, for which PreScore has run. `None` if that depends on more
    /// than amounts.
    fn scores<'a>(&'a self, _state: &'a CycleState) -> Option<ScoresByAmounts<'a>> {
        None
    }
}
