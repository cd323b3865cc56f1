//! The kept answer of a group of plugins about a node, or about the nodes of a row.

use berth_framework::Status;

/// The answer about a node: [`NO_NODE`], a rejection from [`REJECTED`] on, or below it the grade of a feasible node, which
/// stands for its raw scores to be normalised.
pub(super) type Answer = u16;

/// The grade of feasible nodes without such scores.
pub(super) const FEASIBLE: Answer = 0;

/// The first answer that is a rejection, and the maximum number of grades and of rejections of a column. Beyond it, kept answers
/// save nothing.
pub(super) const REJECTED: Answer = 4096;

/// There is no node.
pub(super) const NO_NODE: Answer = Answer::MAX;

/// A rejection of nodes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Rejection {
    pub(super) status: Status,
    /// The place of the filter in the profile.
    pub(super) filter: usize,
}

/// The kept state of a node, or of the nodes of a row. Of a feasible node, the sum of the scores that are not normalised,
/// weights included: at most half of the greatest number, so that the sums of two columns can be added. Otherwise the
/// rejection, as a negative number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cell(i32);

impl Cell {
    pub(super) const NO_NODE: Self = Self::infeasible(NO_NODE);

    #[inline(always)]
    pub(super) const fn feasible(sum: i32) -> Self {
        Self(sum)
    }

    /// The cell if `is_feasible`, otherwise that of a slot without a node.
    #[inline(always)]
    pub(super) fn or_no_node(self, is_feasible: bool) -> Self {
        let mask = -i32::from(is_feasible);
        Self(self.0 & mask | Self::NO_NODE.0 & !mask)
    }

    /// For a rejection.
    pub(super) const fn infeasible(answer: Answer) -> Self {
        Self(-(answer as i32))
    }

    /// The rejection, or [`FEASIBLE`] of all feasible nodes.
    #[inline(always)]
    pub(super) fn answer(self) -> Answer {
        // Without branches: which nodes are feasible is hard to foresee. `FEASIBLE` is zero.
        -self.0.min(0) as Answer
    }

    /// The sum; zero if the node is not feasible.
    #[inline(always)]
    pub(super) fn sum(self) -> i32 {
        self.0.max(0)
    }
}
