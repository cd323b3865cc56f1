//! Nodes by amounts: those with equal amounts are a row, and rows with similar amounts are in one region.
//!
//! The regions of the nodes of one part that offer the same are a tree. A region is cut in two, by the amount in which its rows
//! differ most, when it has more than [`ROWS_MAX`] rows. It knows how many nodes it has and the least and the most of
//! each amount.

use super::partition::PartId;
use super::row_nodes::RowNodes;
use berth_framework::Slot;
use berth_framework::table::Columns;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// The greatest number of rows of a region that is not cut.
const ROWS_MAX: usize = 12;
/// How deep a tree may be before all are made again.
const DEPTH_MAX: usize = 40;

/// The least of each amount, then the most of each.
type AmountBounds = SmallVec<[i64; 16]>;

const NOWHERE: u32 = u32::MAX;

pub(super) type RowId = u32;
pub(super) type RegionId = u32;
/// Grows with each change of amounts. Equal stamps of a row or region: its amounts are the same.
pub(super) type Stamp = u64;

/// The nodes with the same amounts.
#[derive(Debug)]
pub(super) struct Row {
    offer: u32,
    region: RegionId,
    pub(super) stamp: Stamp,
    pub(super) nodes: RowNodes,
}

/// The contents of a region.
#[derive(Debug)]
pub(super) enum Content {
    Rows(Vec<RowId>),
    /// Two halves: where the amount at a place is at most the number, and the others.
    Halves([RegionId; 2], usize, i64),
}

/// Rows with similar amounts.
#[derive(Debug)]
pub(super) struct Region {
    parent: RegionId,
    pub(super) stamp: Stamp,
    pub(super) nodes: usize,
    pub(super) content: Content,
}

/// The nodes of one part that offer the same.
#[derive(Debug)]
pub(super) struct Offer {
    pub(super) part: PartId,
    pub(super) offered: Box<[i64]>,
    /// The region of all of them, if there are any.
    pub(super) root: Option<RegionId>,
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Tree {
    pub(super) offers: Vec<Offer>,
    /// By part and what is offered.
    offer_ids: FxHashMap<Box<[i64]>, u32>,
    /// The number of amounts that a node holds.
    width: usize,
    rows: Vec<Row>,
    /// By row: the requests of the pods of each of its nodes. All rows are in one list, since a search reads many of them.
    held: Vec<i64>,
    free_rows: Vec<RowId>,
    row_ids: FxHashMap<Box<[i64]>, RowId>,
    regions: Vec<Region>,
    /// By region: the least of each amount, then the most of each.
    bounds: Vec<i64>,
    free_regions: Vec<RegionId>,
    /// By slot: its row.
    row_of: Vec<RowId>,
    /// The number of rows that were added since the regions were made.
    added: usize,
    is_too_deep: bool,
    /// The last stamp.
    stamp: Stamp,
    key: Vec<i64>,
    offered: Vec<i64>,
}

impl Tree {
    /// A row.
    pub(super) fn row(&self, id: RowId) -> &Row {
        &self.rows[id as usize]
    }

    /// The requests of the pods of each node of a row.
    pub(super) fn held(&self, id: RowId) -> &[i64] {
        let at = id as usize * self.width;
        &self.held[at..at + self.width]
    }

    /// The least and the most of each amount in a region.
    pub(super) fn bounds(&self, id: RegionId) -> (&[i64], &[i64]) {
        let at = id as usize * 2 * self.width;
        self.bounds[at..at + 2 * self.width].split_at(self.width)
    }

    fn bounds_mut(&mut self, id: RegionId) -> (&mut [i64], &mut [i64]) {
        let at = id as usize * 2 * self.width;
        self.bounds[at..at + 2 * self.width].split_at_mut(self.width)
    }

    /// The row that a node is in, if it is in the tree.
    pub(super) fn row_of(&self, slot: Slot) -> Option<RowId> {
        let row = self.row_of.get(slot.index()).copied()?;
        (row != NOWHERE).then_some(row)
    }

    /// The amounts that the nodes of a row offer, and their part.
    pub(super) fn offer_of(&self, row: &Row) -> &Offer {
        &self.offers[row.offer as usize]
    }

    /// The region of a row, and all regions around it.
    pub(super) fn regions_around(&self, row: RowId) -> impl Iterator<Item = RegionId> {
        let known = |id: RegionId| (id != NOWHERE).then_some(id);
        let first = known(self.row(row).region);
        std::iter::successors(first, move |id| known(self.region(*id).parent))
    }

    /// A region.
    pub(super) fn region(&self, id: RegionId) -> &Region {
        &self.regions[id as usize]
    }

    /// The number of nodes.
    pub(super) fn nodes(&self) -> usize {
        let roots = self.offers.iter().filter_map(|offer| offer.root);
        roots.map(|root| self.region(root).nodes).sum()
    }

    /// One of the nodes.
    pub(super) fn some_node(&self) -> Option<Slot> {
        let mut rows = self.rows.iter();
        rows.find_map(|row| row.nodes.slots().next())
    }

    /// One of the nodes of a part that is suitable.
    pub(super) fn some_node_of(
        &self,
        part: PartId,
        is_suitable: impl Fn(Slot) -> bool,
    ) -> Option<Slot> {
        let offers = self.offers.iter().filter(|offer| offer.part == part);
        let mut regions: Vec<RegionId> = offers.filter_map(|offer| offer.root).collect();
        while let Some(region) = regions.pop() {
            match &self.region(region).content {
                Content::Halves(halves, ..) => regions.extend(halves),
                Content::Rows(rows) => {
                    let nodes = rows.iter().flat_map(|row| self.row(*row).nodes.slots());
                    let found = { nodes }.find(|slot| is_suitable(*slot));
                    if found.is_some() {
                        return found;
                    }
                }
            }
        }
        None
    }

    fn next_stamp(&mut self) -> Stamp {
        self.stamp += 1;
        self.stamp
    }

    /// The number of rows and regions.
    pub(super) fn size(&self) -> usize {
        self.rows.len() + self.regions.len()
    }

    /// The number of slots that have been seen.
    pub(super) fn slots(&self) -> usize {
        self.row_of.len()
    }

    /// About how much memory the tree takes, in bytes.
    pub(super) fn bytes(&self) -> usize {
        let amounts = self.width * size_of::<i64>();
        let row = size_of::<Row>() + 2 * amounts + size_of::<i64>() + size_of::<RowId>();
        let region = size_of::<Region>() + 2 * amounts;
        self.rows.len() * row
            + self.regions.len() * region
            + self.row_of.capacity() * (size_of::<RowId>() + RowNodes::BYTES_PER_SLOT_MAX)
    }

    /// Puts a node of a part where its amounts belong, or takes it out when it is in none.
    pub(super) fn put(&mut self, columns: &Columns, slot: Slot, part: Option<PartId>) {
        let at = slot.index();
        if self.row_of.len() <= at {
            self.row_of.resize(at + 1, NOWHERE);
        }
        let before = self.row_of[at];
        let Some(part) = part else {
            if before != NOWHERE {
                self.take_out(slot, before);
            }
            return;
        };
        self.offered.clear();
        self.offered.push(i64::from(part));
        self.offered.extend(columns.offered(slot));
        let offer = match self.offer_ids.get(&self.offered[..]) {
            Some(offer) => *offer,
            None => self.add_offer(part),
        };
        self.key.clear();
        self.key.push(i64::from(offer));
        self.key.extend(columns.held(slot));
        self.width = self.key.len() - 1;
        let row = self.row_ids.get(&self.key[..]).copied();
        if row == Some(before) {
            return;
        }
        if before != NOWHERE {
            self.take_out(slot, before);
        }
        let row = match row {
            Some(row) => row,
            None => self.add_row(offer),
        };
        let slots = self.row_of.len();
        self.rows[row as usize].nodes.insert(slot, slots);
        self.row_of[at] = row;
        self.count(self.rows[row as usize].region, 1);
    }

    /// Adds what was looked up last.
    fn add_offer(&mut self, part: PartId) -> u32 {
        let id = self.offers.len() as u32;
        self.offer_ids.insert(self.offered[..].into(), id);
        self.offers.push(Offer {
            part,
            offered: self.offered[1..].into(),
            root: None,
        });
        id
    }

    /// One node more, or less, in a region and all around it.
    fn count(&mut self, region: RegionId, change: isize) {
        let mut at = region;
        while at != NOWHERE {
            let region = &mut self.regions[at as usize];
            region.nodes = region.nodes.saturating_add_signed(change);
            at = region.parent;
        }
    }

    /// Adds a row without nodes, with the amounts that were looked up last.
    fn add_row(&mut self, offer: u32) -> RowId {
        let row = Row {
            offer,
            region: NOWHERE,
            stamp: self.next_stamp(),
            nodes: RowNodes::default(),
        };
        let held = &self.key[1..];
        let id = match self.free_rows.pop() {
            Some(id) => {
                let at = id as usize * self.width;
                self.held[at..at + self.width].copy_from_slice(held);
                self.rows[id as usize] = row;
                id
            }
            None => {
                self.held.extend_from_slice(held);
                self.rows.push(row);
                self.rows.len() as RowId - 1
            }
        };
        self.row_ids.insert(self.key[..].into(), id);
        self.added += 1;
        self.file(id);
        id
    }

    /// Puts a row into the region where it belongs.
    fn file(&mut self, id: RowId) {
        let offer = self.rows[id as usize].offer as usize;
        let Some(root) = self.offers[offer].root else {
            let region = self.half(NOWHERE, vec![id]);
            self.offers[offer].root = Some(region);
            return;
        };
        let (mut at, mut depth) = (root, 0);
        let (width, stamp) = (self.width, self.next_stamp());
        let held = &self.held[id as usize * width..][..width];
        loop {
            let region = &mut self.regions[at as usize];
            let bounds = &mut self.bounds[at as usize * 2 * width..][..2 * width];
            let (least, most) = bounds.split_at_mut(width);
            for (place, amount) in held.iter().enumerate() {
                if *amount < least[place] {
                    least[place] = *amount;
                    region.stamp = stamp;
                }
                if *amount > most[place] {
                    most[place] = *amount;
                    region.stamp = stamp;
                }
            }
            match &mut region.content {
                Content::Halves(halves, place, cut) => {
                    at = halves[usize::from(held[*place] > *cut)];
                    depth += 1;
                }
                Content::Rows(rows) => {
                    rows.push(id);
                    break;
                }
            }
        }
        self.is_too_deep |= depth > DEPTH_MAX;
        self.rows[id as usize].region = at;
        self.cut(at);
    }

    /// Adds a region with the bounds of its rows, which are not in it yet.
    fn add_region(&mut self, region: Region, bounds: &[i64]) -> RegionId {
        match self.free_regions.pop() {
            Some(id) => {
                let at = id as usize * bounds.len();
                self.bounds[at..at + bounds.len()].copy_from_slice(bounds);
                self.regions[id as usize] = region;
                id
            }
            None => {
                self.bounds.extend_from_slice(bounds);
                self.regions.push(region);
                self.regions.len() as RegionId - 1
            }
        }
    }

    /// Cuts a region with too many rows in two.
    fn cut(&mut self, id: RegionId) {
        let region = &self.regions[id as usize];
        let Content::Rows(rows) = &region.content else {
            return;
        };
        if rows.len() <= ROWS_MAX {
            return;
        }
        let Some(row) = rows.first().map(|row| self.row(*row)) else {
            return;
        };
        let offered = &self.offers[row.offer as usize].offered;
        let (least, most) = self.bounds(id);
        let spread = |place: usize| {
            // CPU and memory come first once more, as they count in scores.
            let resource = if place < 2 { place } else { place - 2 };
            let whole = offered.get(resource).copied().unwrap_or(1).max(1);
            (most[place] as f64 - least[place] as f64) / whole as f64
        };
        let places = 0..self.width;
        let Some(place) = places.max_by(|a, b| spread(*a).total_cmp(&spread(*b))) else {
            return;
        };
        let mut amounts: Vec<i64> = rows.iter().map(|row| self.held(*row)[place]).collect();
        amounts.sort_unstable();
        let (middle, most) = (amounts[(amounts.len() - 1) / 2], most[place]);
        let below = amounts.iter().rev().find(|amount| **amount < most);
        let Some(cut) = below.map(|below| middle.min(*below)) else {
            return;
        };
        let is_above = |row: &RowId| self.held(*row)[place] > cut;
        let (above, up_to) = rows.iter().copied().partition(is_above);
        let halves = [up_to, above].map(|rows| self.half(id, rows));
        self.regions[id as usize].content = Content::Halves(halves, place, cut);
        for half in halves {
            self.cut(half);
        }
    }

    /// A region of these rows, which is half of its parent if there is one.
    fn half(&mut self, parent: RegionId, rows: Vec<RowId>) -> RegionId {
        let half = Region {
            parent,
            stamp: self.next_stamp(),
            nodes: rows.iter().map(|row| self.row(*row).nodes.len()).sum(),
            content: Content::Rows(Vec::new()),
        };
        let bounds = self.bounds_of(&rows);
        let id = self.add_region(half, &bounds);
        for row in &rows {
            self.rows[*row as usize].region = id;
        }
        self.regions[id as usize].content = Content::Rows(rows);
        id
    }

    /// The least of each amount in some rows, then the most of each.
    fn bounds_of(&self, rows: &[RowId]) -> AmountBounds {
        let mut all = rows.iter().map(|row| self.held(*row));
        let mut bounds = AmountBounds::new();
        let Some(first) = all.next() else {
            return bounds;
        };
        bounds.extend_from_slice(first);
        bounds.extend_from_slice(first);
        let (least, most) = bounds.split_at_mut(self.width);
        for held in all {
            for (place, amount) in held.iter().enumerate() {
                least[place] = least[place].min(*amount);
                most[place] = most[place].max(*amount);
            }
        }
        bounds
    }

    /// The bounds of two halves together.
    fn bounds_of_halves(&self, halves: [RegionId; 2]) -> AmountBounds {
        let [(least, most), (other_least, other_most)] = halves.map(|half| self.bounds(half));
        let least = least.iter().zip(other_least).map(|(a, b)| *a.min(b));
        let most = most.iter().zip(other_most).map(|(a, b)| *a.max(b));
        least.chain(most).collect()
    }

    /// Takes a node out of its row, and the row out of its region if it was the last one.
    fn take_out(&mut self, slot: Slot, id: RowId) {
        self.row_of[slot.index()] = NOWHERE;
        let slots = self.row_of.len();
        let row = &mut self.rows[id as usize];
        row.nodes.remove(slot, slots);
        let (region, is_empty) = (row.region, row.nodes.len() == 0);
        self.count(region, -1);
        if !is_empty {
            return;
        }
        let offer = self.rows[id as usize].offer;
        let mut key = SmallVec::<[i64; 16]>::new();
        key.push(i64::from(offer));
        key.extend_from_slice(self.held(id));
        self.row_ids.remove(&key[..]);
        self.free_rows.push(id);
        let Content::Rows(rows) = &mut self.regions[region as usize].content else {
            debug_assert!(false, "rows are in regions that are not cut");
            return;
        };
        rows.retain(|row| *row != id);
        if rows.is_empty() {
            self.give_up(region, offer);
        } else {
            let rows = std::mem::take(rows);
            let bounds = self.bounds_of(&rows);
            self.regions[region as usize].content = Content::Rows(rows);
            self.narrow(region, bounds);
        }
    }

    /// A region has other bounds; so may those around it.
    fn narrow(&mut self, region: RegionId, mut bounds: AmountBounds) {
        let (mut at, stamp) = (region, self.next_stamp());
        loop {
            let (least, most) = self.bounds_mut(at);
            let (new_least, new_most) = bounds.split_at(least.len());
            if least == new_least && most == new_most {
                return;
            }
            least.copy_from_slice(new_least);
            most.copy_from_slice(new_most);
            self.regions[at as usize].stamp = stamp;
            at = self.regions[at as usize].parent;
            if at == NOWHERE {
                return;
            }
            let Content::Halves(halves, ..) = self.regions[at as usize].content else {
                return;
            };
            bounds = self.bounds_of_halves(halves);
        }
    }

    /// Gives up a region without rows: the other half takes the place of both.
    fn give_up(&mut self, id: RegionId, offer: u32) {
        let parent = self.regions[id as usize].parent;
        self.free_regions.push(id);
        if parent == NOWHERE {
            self.offers[offer as usize].root = None;
            return;
        }
        let around = &self.regions[parent as usize];
        let above = around.parent;
        let Content::Halves(halves, ..) = &around.content else {
            debug_assert!(false, "a parent has two halves");
            return;
        };
        let other = if halves[0] == id {
            halves[1]
        } else {
            halves[0]
        };
        self.free_regions.push(parent);
        self.regions[other as usize].parent = above;
        if above == NOWHERE {
            self.offers[offer as usize].root = Some(other);
            return;
        }
        let Content::Halves(halves, ..) = &mut self.regions[above as usize].content else {
            debug_assert!(false, "a parent has two halves");
            return;
        };
        let replaced = usize::from(halves[1] == parent);
        halves[replaced] = other;
        // As if the region above had been that of the other half before: its bounds are to be found again.
        let halves = *halves;
        let bounds = self.bounds_of_halves(halves);
        self.narrow(above, bounds);
    }

    /// Makes the regions again when many rows have come since, or a tree is too deep: in each, the nodes that are fuller
    /// than all before are on one side.
    pub(super) fn balance(&mut self) {
        let rows = self.rows.len() - self.free_rows.len();
        if !self.is_too_deep && self.added <= rows / 2 + 4096 {
            return;
        }
        self.added = 0;
        self.is_too_deep = false;
        self.regions.clear();
        self.bounds.clear();
        self.free_regions.clear();
        let mut of_offers: Vec<Vec<RowId>> = vec![Vec::new(); self.offers.len()];
        for (id, row) in (0..).zip(&self.rows) {
            if row.nodes.len() > 0 {
                of_offers[row.offer as usize].push(id);
            }
        }
        for (offer, rows) in of_offers.into_iter().enumerate() {
            let root = (!rows.is_empty()).then(|| self.half(NOWHERE, rows));
            self.offers[offer].root = root;
            root.into_iter().for_each(|root| self.cut(root));
        }
    }
}
