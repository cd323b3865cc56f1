//! The best nodes of a tree, by bounds of whole regions.

use super::row_nodes::{self, RowNodes};
use super::tree::{Content, RegionId, RowId, Tree};
use berth_framework::Slot;
use berth_framework::amounts::{Amounts, Fits, FitsByAmounts, ScoresByAmounts};

/// The answers of the plugins about amounts.
#[derive(Default)]
pub(super) struct Judges<'a> {
    pub(super) fits: Vec<FitsByAmounts<'a>>,
    /// With the weights.
    pub(super) scores: Vec<(i64, ScoresByAmounts<'a>)>,
}

/// The bounds of a region or of a row.
#[derive(Debug, Clone, Copy)]
struct RegionBounds {
    fits: Fits,
    least: i64,
    most: i64,
}

/// Nodes that are all among the best.
#[derive(Debug, Clone, Copy)]
enum Tied {
    Region(RegionId),
    Row(RowId),
}

/// See the [module](self).
pub(super) struct Search<'a> {
    tree: &'a Tree,
    judges: &'a Judges<'a>,
    /// The least score of the best node.
    best: i64,
    tied: Vec<Tied>,
    feasible: usize,
    /// A plugin gave no exact answer about a single row.
    is_vague: bool,
}

/// The best nodes.
#[derive(Debug)]
pub(super) struct Best {
    tied: Vec<Tied>,
    /// The number of feasible nodes.
    pub(super) feasible: usize,
}

impl Judges<'_> {
    fn bounds(&self, amounts: &Amounts<'_>, is_known_to_fit: bool) -> RegionBounds {
        let mut bounds = RegionBounds {
            fits: Fits::All,
            least: 0,
            most: 0,
        };
        if !is_known_to_fit {
            bounds.fits = self.fits(amounts);
        }
        if bounds.fits == Fits::None {
            return bounds;
        }
        for (weight, scores) in &self.scores {
            let (least, most) = scores(amounts);
            bounds.least += weight * least;
            bounds.most += weight * most;
        }
        bounds
    }

    fn fits(&self, amounts: &Amounts<'_>) -> Fits {
        let mut all = Fits::All;
        for fits in &self.fits {
            match fits(amounts) {
                Fits::None => return Fits::None,
                Fits::Some => all = Fits::Some,
                Fits::All => {}
            }
        }
        all
    }
}

impl<'a> Search<'a> {
    pub(super) fn new(tree: &'a Tree, judges: &'a Judges<'a>) -> Self {
        Self {
            tree,
            judges,
            best: i64::MIN,
            tied: Vec::new(),
            feasible: 0,
            is_vague: false,
        }
    }

    /// The best nodes; `None` without a feasible one, or when a plugin was not exact.
    pub(super) fn run(mut self) -> Option<Best> {
        for offer in &self.tree.offers {
            if let Some(root) = offer.root {
                let bounds = self.of_region(root, &offer.offered, false);
                self.visit(root, &offer.offered, bounds, false);
            }
        }
        (self.feasible > 0 && !self.is_vague).then_some(Best {
            tied: self.tied,
            feasible: self.feasible,
        })
    }

    fn of_region(&self, id: RegionId, offered: &[i64], is_known_to_fit: bool) -> RegionBounds {
        let region = self.tree.region(id);
        let amounts = Amounts::new(offered, &region.least, &region.most);
        self.judges.bounds(&amounts, is_known_to_fit)
    }

    /// Looks for better nodes in a region. `is_counted`: all of its nodes are feasible, and have been counted.
    fn visit(&mut self, id: RegionId, offered: &[i64], bounds: RegionBounds, mut is_counted: bool) {
        if !is_counted {
            match bounds.fits {
                Fits::None => return,
                Fits::All => {
                    self.feasible += self.tree.region(id).nodes;
                    is_counted = true;
                }
                Fits::Some => {}
            }
        }
        if bounds.most < self.best {
            if !is_counted {
                self.count(id, offered);
            }
            return;
        }
        if is_counted {
            self.raise(bounds.least);
            if bounds.least == bounds.most {
                self.tied.push(Tied::Region(id));
                return;
            }
        }
        match &self.tree.region(id).content {
            Content::Rows(rows) => {
                for row in rows {
                    self.visit_row(*row, offered, is_counted);
                }
            }
            Content::Halves(halves, ..) => {
                let mut both = halves.map(|half| (half, self.of_region(half, offered, is_counted)));
                // The half that may be better comes first: it may spare the other.
                if both[1].1.most > both[0].1.most {
                    both.swap(0, 1);
                }
                for (half, bounds) in both {
                    self.visit(half, offered, bounds, is_counted);
                }
            }
        }
    }

    fn visit_row(&mut self, id: RowId, offered: &[i64], is_counted: bool) {
        let row = self.tree.row(id);
        let amounts = Amounts::new(offered, &row.held, &row.held);
        let bounds = self.judges.bounds(&amounts, is_counted);
        if !is_counted {
            match bounds.fits {
                Fits::None => return,
                Fits::All => self.feasible += row.nodes.len(),
                Fits::Some => self.is_vague = true,
            }
        }
        self.is_vague |= bounds.least != bounds.most;
        if bounds.most >= self.best {
            self.raise(bounds.least);
            self.tied.push(Tied::Row(id));
        }
    }

    /// The best node has at least this.
    fn raise(&mut self, least: i64) {
        if least > self.best {
            self.best = least;
            self.tied.clear();
        }
    }

    /// Counts the feasible nodes of a region in which none can be among the best.
    fn count(&mut self, id: RegionId, offered: &[i64]) {
        let region = self.tree.region(id);
        let amounts = Amounts::new(offered, &region.least, &region.most);
        match (self.judges.fits(&amounts), &region.content) {
            (Fits::None, _) => {}
            (Fits::All, _) => self.feasible += region.nodes,
            (Fits::Some, Content::Halves(halves, ..)) => {
                for half in halves {
                    self.count(*half, offered);
                }
            }
            (Fits::Some, Content::Rows(rows)) => {
                for row in rows {
                    let row = self.tree.row(*row);
                    let amounts = Amounts::new(offered, &row.held, &row.held);
                    match self.judges.fits(&amounts) {
                        Fits::None => {}
                        Fits::All => self.feasible += row.nodes.len(),
                        Fits::Some => self.is_vague = true,
                    }
                }
            }
        }
    }
}

impl Best {
    /// The number of the best nodes.
    pub(super) fn nodes(&self, tree: &Tree) -> usize {
        let each = self.tied.iter().map(|tied| match tied {
            Tied::Region(id) => tree.region(*id).nodes,
            Tied::Row(id) => tree.row(*id).nodes.len(),
        });
        each.sum()
    }

    /// The `n`th of them in slot order; `bits` is room to work in.
    pub(super) fn nth(&self, tree: &Tree, n: usize, bits: &mut Vec<u64>) -> Option<Slot> {
        let mut rows: Vec<&RowNodes> = Vec::new();
        for tied in &self.tied {
            match tied {
                Tied::Region(id) => each_row(tree, *id, &mut |row| rows.push(&tree.row(row).nodes)),
                Tied::Row(id) => rows.push(&tree.row(*id).nodes),
            }
        }
        row_nodes::nth(rows.into_iter(), tree.slots(), n, bits)
    }
}

/// Calls a function for each row of a region.
fn each_row(tree: &Tree, id: RegionId, call: &mut impl FnMut(RowId)) {
    match &tree.region(id).content {
        Content::Rows(rows) => rows.iter().for_each(|row| call(*row)),
        Content::Halves(halves, ..) => halves.iter().for_each(|half| each_row(tree, *half, call)),
    }
}
