//! The kept answer of a group of plugins about a node, or about the nodes of a row.

use berth_framework::Status;

/// The answer about a node: [`FEASIBLE`], [`NO_NODE`], or the place of a rejection, counted from one.
pub(super) type Answer = u16;

/// No filter rejects the node.
pub(super) const FEASIBLE: Answer = 0;

/// There is no node.
pub(super) const NO_NODE: Answer = Answer::MAX;

/// A rejection of nodes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Rejection {
    pub(super) status: Status,
    /// The place of the filter in the profile.
    pub(super) filter: usize,
}

/// The kept state of a node, or of the nodes of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cell {
    pub(super) answer: Answer,
    /// The place of the raw scores that are normalised; of feasible nodes only.
    pub(super) grade: u16,
    /// The sum of the other scores, weights included; of feasible nodes only. Below a half of the greatest number, so that the
    /// sums of two columns can be added.
    pub(super) sum: i32,
}

impl Cell {
    pub(super) const NO_NODE: Self = Self::without_score(NO_NODE);

    /// `sum` is far from the greatest number: see [`Column`](super::column::Column).
    pub(super) const fn feasible(grade: u16, sum: i32) -> Self {
        let answer = FEASIBLE;
        Self { answer, grade, sum }
    }

    pub(super) const fn without_score(answer: Answer) -> Self {
        let (grade, sum) = (0, 0);
        Self { answer, grade, sum }
    }
}
