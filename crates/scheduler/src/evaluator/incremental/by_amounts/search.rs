//! The best nodes of a tree, by bounds of whole regions.

use super::known_bounds::KnownBounds;
use super::partition::PartId;
use super::row_nodes::{self, SelectedNodes, ShortLists};
use super::tree::{Content, RegionId, RowId, Tree};
use berth_framework::Slot;
use berth_framework::amounts::{Amounts, Fits, FitsByAmounts, ScoresByAmounts};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use std::collections::hash_map::Entry;

/// The answers of the plugins about amounts.
#[derive(Default)]
pub(super) struct Judges<'a> {
    pub(super) fits: Vec<FitsByAmounts<'a>>,
    /// With the weights.
    pub(super) scores: Vec<(i64, ScoresByAmounts<'a>)>,
}

/// The bounds of a region or of a row.
#[derive(Debug, Clone, Copy)]
pub(super) struct RegionBounds {
    pub(super) fits: Fits,
    pub(super) least: i64,
    pub(super) most: i64,
}

impl Default for RegionBounds {
    fn default() -> Self {
        Self {
            fits: Fits::None,
            least: 0,
            most: 0,
        }
    }
}

/// Nodes that are all among the best.
#[derive(Debug, Clone, Copy)]
enum Tied {
    Region(RegionId),
    Row(RowId),
    Node(Slot),
}

/// Nodes that a search does not find with their rows: they are judged one by one.
#[derive(Debug, Default)]
pub(super) struct Apart {
    /// In slot order.
    pub(super) nodes: Vec<Slot>,
    of_rows: Counts,
    of_regions: Counts,
}

/// A number for each row, or for each region. Most are zero: the others are known, so that there may be many.
#[derive(Debug, Default)]
struct Counts {
    counts: Vec<u32>,
    above_zero: Vec<u32>,
}

impl Counts {
    fn clear(&mut self) {
        for id in self.above_zero.drain(..) {
            self.counts[id as usize] = 0;
        }
    }

    fn add(&mut self, id: u32, nodes: u32) {
        let at = id as usize;
        if self.counts.len() <= at {
            self.counts.resize(at + 1, 0);
        }
        if self.counts[at] == 0 {
            self.above_zero.push(id);
        }
        self.counts[at] += nodes;
    }

    fn of(&self, id: u32) -> usize {
        self.counts.get(id as usize).map_or(0, |n| *n as usize)
    }
}

impl Apart {
    /// Takes the place of those before. The nodes are in slot order, each once, with their rows.
    pub(super) fn set(&mut self, tree: &Tree, nodes: impl Iterator<Item = (Slot, RowId)>) {
        self.nodes.clear();
        self.of_rows.clear();
        self.of_regions.clear();
        for (slot, row) in nodes {
            self.nodes.push(slot);
            self.of_rows.add(row, 1);
        }
        for row in &self.of_rows.above_zero {
            let nodes = self.of_rows.counts[*row as usize];
            for region in tree.regions_around(*row) {
                self.of_regions.add(region, nodes);
            }
        }
    }

    fn of_row(&self, row: RowId) -> usize {
        self.of_rows.of(row)
    }

    fn of_region(&self, region: RegionId) -> usize {
        self.of_regions.of(region)
    }
}

/// The nodes of a tree that a search looks at, and what they score besides the scores by amounts.
#[derive(Debug, Clone, Copy)]
pub(super) struct Filed<'a> {
    pub(super) tree: &'a Tree,
    /// By part: the further score of its nodes; `None` when they are rejected.
    pub(super) parts: &'a [Option<i64>],
    pub(super) apart: &'a Apart,
}

impl Filed<'_> {
    fn nodes_of_region(&self, id: RegionId) -> usize {
        self.tree.region(id).nodes - self.apart.of_region(id)
    }

    fn nodes_of_row(&self, id: RowId) -> usize {
        self.tree.row(id).nodes.len() - self.apart.of_row(id)
    }
}

/// The amounts that all nodes of a tree offer, and their score besides the scores by amounts.
#[derive(Debug, Clone, Copy)]
struct Offered<'a> {
    amounts: &'a [i64],
    further: i64,
}

/// See the [module](self).
pub(super) struct Search<'a> {
    filed: Filed<'a>,
    judges: &'a Judges<'a>,
    /// The bounds that earlier searches for pods with the same requests have found.
    known: Option<&'a mut KnownBounds>,
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
    pub(super) fn new(filed: Filed<'a>, judges: &'a Judges<'a>) -> Self {
        Self {
            filed,
            judges,
            known: None,
            best: i64::MIN,
            tied: Vec::new(),
            feasible: 0,
            is_vague: false,
        }
    }

    /// With the bounds that are known for pods with the same requests.
    pub(super) fn knowing(mut self, known: Option<&'a mut KnownBounds>) -> Self {
        self.known = known;
        self
    }

    /// The best nodes: of the rows, and of those apart, given with their further scores. `None` without a feasible one, or
    /// when a plugin was not exact.
    pub(super) fn run(mut self, apart: &[(Slot, i64)]) -> Option<Best> {
        let mut roots: SmallVec<[_; 8]> = SmallVec::new();
        for offer in &self.filed.tree.offers {
            let further = self.filed.parts.get(usize::from(offer.part));
            if let (Some(root), Some(Some(further))) = (offer.root, further) {
                let offered = Offered {
                    amounts: &offer.offered,
                    further: *further,
                };
                roots.push((root, offered, self.of_region(root, offered, false)));
            }
        }
        // The tree that may have the best nodes comes first: it may spare the others.
        roots.sort_by_key(|(_, _, bounds)| std::cmp::Reverse(bounds.most));
        for (root, offered, bounds) in roots {
            self.visit(root, offered, bounds, false);
        }
        let mut of_rows: FxHashMap<RowId, RegionBounds> = FxHashMap::default();
        for (slot, further) in apart {
            let Some(id) = self.filed.tree.row_of(*slot) else {
                continue;
            };
            let bounds = match of_rows.entry(id) {
                Entry::Occupied(known) => *known.get(),
                Entry::Vacant(entry) => {
                    let tree = self.filed.tree;
                    let offered = &tree.offer_of(tree.row(id)).offered;
                    *entry.insert(self.of_row(id, offered, false))
                }
            };
            if !self.is_exact(bounds) {
                continue;
            }
            self.feasible += 1;
            let total = bounds.least + further;
            if total >= self.best {
                self.raise(total);
                self.tied.push(Tied::Node(*slot));
            }
        }
        (self.feasible > 0 && !self.is_vague).then_some(Best {
            tied: self.tied,
            feasible: self.feasible,
        })
    }

    /// The number of feasible nodes in the rows of a part; `None` when a plugin was not exact.
    pub(super) fn feasible_in(mut self, part: PartId) -> Option<usize> {
        let offers = &self.filed.tree.offers;
        for offer in offers.iter().filter(|offer| offer.part == part) {
            if let Some(root) = offer.root {
                self.count(root, &offer.offered);
            }
        }
        (!self.is_vague).then_some(self.feasible)
    }

    /// Whether the pod fits on a node apart; `None` when a plugin was not exact.
    pub(super) fn fits(&self, slot: Slot) -> Option<bool> {
        let tree = self.filed.tree;
        let row = tree.row_of(slot)?;
        let offered = &tree.offer_of(tree.row(row)).offered;
        let amounts = Amounts::exactly(offered, tree.held(row));
        match self.judges.fits(&amounts) {
            Fits::All => Some(true),
            Fits::None => Some(false),
            Fits::Some => None,
        }
    }

    fn of_region(
        &mut self,
        id: RegionId,
        offered: Offered<'_>,
        is_known_to_fit: bool,
    ) -> RegionBounds {
        let (tree, judges) = (self.filed.tree, self.judges);
        let find = || {
            let (least, most) = tree.bounds(id);
            let amounts = Amounts::new(offered.amounts, least, most);
            judges.bounds(&amounts, is_known_to_fit)
        };
        let mut bounds = match &mut self.known {
            Some(known) => known.regions.get_or_find(id, tree.region(id).stamp, find),
            None => find(),
        };
        bounds.least += offered.further;
        bounds.most += offered.further;
        bounds
    }

    fn of_row(&mut self, id: RowId, offered: &[i64], is_known_to_fit: bool) -> RegionBounds {
        let (tree, judges) = (self.filed.tree, self.judges);
        let find = || {
            let amounts = Amounts::exactly(offered, tree.held(id));
            judges.bounds(&amounts, is_known_to_fit)
        };
        match &mut self.known {
            Some(known) => known.rows.get_or_find(id, tree.row(id).stamp, find),
            None => find(),
        }
    }

    /// Returns whether nodes fit with a known score; notes it when that is not known.
    fn is_exact(&mut self, bounds: RegionBounds) -> bool {
        if bounds.fits != Fits::None {
            self.is_vague |= bounds.fits == Fits::Some || bounds.least != bounds.most;
        }
        bounds.fits == Fits::All
    }

    /// Looks for better nodes in a region. `is_counted`: all of its nodes are feasible, and have been counted.
    fn visit(
        &mut self,
        id: RegionId,
        offered: Offered<'_>,
        bounds: RegionBounds,
        mut is_counted: bool,
    ) {
        let nodes = self.filed.nodes_of_region(id);
        if nodes == 0 {
            return;
        }
        if !is_counted {
            match bounds.fits {
                Fits::None => return,
                Fits::All => {
                    self.feasible += nodes;
                    is_counted = true;
                }
                Fits::Some => {}
            }
        }
        if bounds.most < self.best {
            if !is_counted {
                self.count(id, offered.amounts);
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
        match &self.filed.tree.region(id).content {
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

    fn visit_row(&mut self, id: RowId, offered: Offered<'_>, is_counted: bool) {
        let nodes = self.filed.nodes_of_row(id);
        if nodes == 0 {
            return;
        }
        let bounds = self.of_row(id, offered.amounts, is_counted);
        if !self.is_exact(bounds) {
            return;
        }
        if !is_counted {
            self.feasible += nodes;
        }
        let total = bounds.most + offered.further;
        if total >= self.best {
            self.raise(total);
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
        let nodes = self.filed.nodes_of_region(id);
        if nodes == 0 {
            return;
        }
        let tree = self.filed.tree;
        let (least, most) = tree.bounds(id);
        let amounts = Amounts::new(offered, least, most);
        match (self.judges.fits(&amounts), &tree.region(id).content) {
            (Fits::None, _) => {}
            (Fits::All, _) => self.feasible += nodes,
            (Fits::Some, Content::Halves(halves, ..)) => {
                for half in halves {
                    self.count(*half, offered);
                }
            }
            (Fits::Some, Content::Rows(rows)) => {
                for id in rows {
                    let amounts = Amounts::exactly(offered, tree.held(*id));
                    match self.judges.fits(&amounts) {
                        Fits::None => {}
                        Fits::All => self.feasible += self.filed.nodes_of_row(*id),
                        Fits::Some => self.is_vague = true,
                    }
                }
            }
        }
    }
}

impl Best {
    /// The number of the best nodes, of those that were searched.
    pub(super) fn nodes(&self, filed: Filed<'_>) -> usize {
        let each = self.tied.iter().map(|tied| match tied {
            Tied::Region(id) => filed.nodes_of_region(*id),
            Tied::Row(id) => filed.nodes_of_row(*id),
            Tied::Node(_) => 1,
        });
        each.sum()
    }

    /// The `n`th of them in slot order; `short` is a buffer.
    pub(super) fn nth(&self, filed: Filed<'_>, n: usize, short: &mut ShortLists) -> Option<Slot> {
        let Filed { tree, apart, .. } = filed;
        let (mut rows, mut more) = (Vec::new(), Vec::new());
        // The rows of which some nodes are judged one by one.
        let mut divided = FxHashSet::default();
        let mut add = |id: RowId| {
            rows.push(&tree.row(id).nodes);
            if apart.of_row(id) > 0 {
                divided.insert(id);
            }
        };
        for tied in &self.tied {
            match tied {
                Tied::Region(id) => each_row(tree, *id, &mut add),
                Tied::Row(id) => add(*id),
                Tied::Node(slot) => more.push(*slot),
            }
        }
        let mut without = Vec::new();
        if !divided.is_empty() {
            let is_divided =
                |slot: &Slot| tree.row_of(*slot).is_some_and(|id| divided.contains(&id));
            without.extend(apart.nodes.iter().copied().filter(is_divided));
        }
        let selected = SelectedNodes {
            rows,
            without,
            more,
        };
        row_nodes::nth(&selected, tree.slots(), n, short)
    }
}

/// Calls a function for each row of a region.
fn each_row(tree: &Tree, id: RegionId, call: &mut impl FnMut(RowId)) {
    match &tree.region(id).content {
        Content::Rows(rows) => rows.iter().for_each(|row| call(*row)),
        Content::Halves(halves, ..) => halves.iter().for_each(|half| each_row(tree, *half, call)),
    }
}
