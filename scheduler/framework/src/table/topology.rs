//! Topology domains: a number for each value that nodes have of a label.
//!
//! A column is created when a label is first read, and follows the nodes from then on. The columns of hosts and zones
//! are created at the start, so that no pod waits for them in a very large cluster. While a reader holds a column, its
//! numbers do not change: a domain keeps its number while it has a node.

use super::{NodeRow, Slot};
use berth_api::{Labels, Str};
use hashbrown::HashTable;
use rustc_hash::FxBuildHasher;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// Above this number of columns, columns without a reader are dropped.
const COLUMNS_MAX: usize = 64;
/// The labels of columns that always exist.
const COMMON: [&str; 2] = ["kubernetes.io/hostname", "topology.kubernetes.io/zone"];

/// The domain of each node, by the values of one label, at the time of reading.
#[derive(Debug, Clone)]
pub struct Topology {
    domain_of: Vec<u32>,
    nodes_of: Vec<u32>,
    nodes: usize,
    domains: usize,
    held: Held,
}

/// Keeps the numbers of a [`Topology`], without its contents.
#[derive(Debug, Clone, Default)]
pub struct Held(Arc<()>);

impl Topology {
    /// The number for nodes without the label, and for slots without a node.
    pub const NOWHERE: u32 = u32::MAX;
    /// The number of the domain of the empty value.
    pub const EMPTY: u32 = 0;

    fn new(slots: usize) -> Self {
        Self {
            domain_of: vec![Self::NOWHERE; slots],
            nodes_of: vec![0],
            nodes: 0,
            domains: 0,
            held: Held::default(),
        }
    }

    /// The domain of each node, by slot; further nodes are in none.
    pub fn by_slot(&self) -> &[u32] {
        &self.domain_of
    }

    /// The domain that a node is in.
    pub fn domain(&self, slot: Slot) -> Option<u32> {
        let domain = *self.domain_of.get(slot.index())?;
        (domain != Self::NOWHERE).then_some(domain)
    }

    /// The number of nodes that are in each domain, by number; zero for an unused number.
    pub fn nodes_of(&self) -> &[u32] {
        &self.nodes_of
    }

    /// The number of nodes that have the label.
    pub fn nodes(&self) -> usize {
        self.nodes
    }

    /// The number of values.
    pub fn domains(&self) -> usize {
        self.domains
    }

    /// A handle that keeps the numbers.
    pub fn hold(&self) -> Held {
        self.held.clone()
    }

    fn enter(&mut self, slot: Slot, domain: u32) {
        let of = domain as usize;
        if self.nodes_of.len() <= of {
            self.nodes_of.resize(of + 1, 0);
        }
        self.domains += usize::from(self.nodes_of[of] == 0);
        self.nodes_of[of] += 1;
        self.nodes += 1;
        if self.domain_of.len() <= slot.index() {
            self.domain_of.resize(slot.index() + 1, Self::NOWHERE);
        }
        self.domain_of[slot.index()] = domain;
    }

    /// Returns whether the domain is empty afterwards.
    fn leave(&mut self, slot: Slot, domain: u32) -> bool {
        let nodes = &mut self.nodes_of[domain as usize];
        *nodes -= 1;
        let is_empty = *nodes == 0;
        self.domains -= usize::from(is_empty);
        self.nodes -= 1;
        self.domain_of[slot.index()] = Self::NOWHERE;
        is_empty
    }
}

/// A topology that follows the nodes.
#[derive(Debug)]
struct TopologyColumn {
    key: Str,
    topology: Arc<Topology>,
    /// By domain.
    values: Vec<Str>,
    by_value: HashTable<u32>,
    free: Vec<u32>,
}

fn hash(value: &str) -> u64 {
    FxBuildHasher.hash_one(value)
}

impl TopologyColumn {
    fn new(key: &Str, slots: usize) -> Self {
        Self {
            key: key.clone(),
            topology: Arc::new(Topology::new(slots)),
            values: vec![Str::default()],
            by_value: HashTable::new(),
            free: Vec::new(),
        }
    }

    fn is_held(&self) -> bool {
        Arc::strong_count(&self.topology) > 1 || Arc::strong_count(&self.topology.held.0) > 1
    }

    /// Updates the column for a node's labels; none if it was deleted.
    fn set(&mut self, slot: Slot, labels: Option<&Labels>) {
        let value = labels.and_then(|labels| labels.get_str(&self.key));
        let before = self.topology.domain(slot);
        if before.map(|domain| &self.values[domain as usize]) == value {
            return;
        }
        // Readers keep the old contents.
        Arc::make_mut(&mut self.topology);
        if let Some(before) = before {
            self.leave(slot, before);
        }
        if let Some(value) = value {
            let domain = self.number(value);
            Arc::make_mut(&mut self.topology).enter(slot, domain);
        }
    }

    fn leave(&mut self, slot: Slot, domain: u32) {
        let is_empty = Arc::make_mut(&mut self.topology).leave(slot, domain);
        if !is_empty || domain == Topology::EMPTY {
            return;
        }
        let value = std::mem::take(&mut self.values[domain as usize]);
        let known = self.by_value.find_entry(hash(&value), |of| *of == domain);
        if let Ok(entry) = known {
            entry.remove();
        }
        self.free.push(domain);
    }

    /// The number for a value, created if needed.
    fn number(&mut self, value: &Str) -> u32 {
        if value.is_empty() {
            return Topology::EMPTY;
        }
        let values = &mut self.values;
        let is_it = |domain: &u32| values[*domain as usize] == *value;
        if let Some(domain) = self.by_value.find(hash(value), is_it) {
            return *domain;
        }
        let domain = match self.free.pop() {
            Some(domain) => {
                values[domain as usize] = value.clone();
                domain
            }
            None => {
                values.push(value.clone());
                u32::try_from(values.len() - 1).unwrap_or(Topology::EMPTY)
            }
        };
        self.by_value.insert_unique(hash(value), domain, |domain| {
            hash(&values[*domain as usize])
        });
        domain
    }
}

/// A column, and the place of the next one.
#[derive(Debug)]
struct Link {
    column: TopologyColumn,
    next: NextNumber,
}

type NextNumber = OnceLock<Box<Link>>;

/// The number of columns in the first list.
const FEW: usize = 8;
/// The number of the other lists.
const LISTS: usize = 256;

/// The columns that were read: lists, so that a reader of the table can add one. The first [`FEW`] are in one list, the
/// others in lists by the hash of the label: a pod can name thousands of labels.
#[derive(Debug)]
pub(super) struct Topologies {
    first: NextNumber,
    others: Box<[NextNumber]>,
    columns: AtomicUsize,
    /// The number of columns that are kept until some are dropped.
    columns_max: usize,
}

impl Default for Topologies {
    fn default() -> Self {
        let topologies = Self::empty();
        for key in COMMON {
            topologies.get(&Str::new(key), &[]);
        }
        topologies
    }
}

/// A clone starts without columns and creates the columns that it reads.
impl Clone for Topologies {
    fn clone(&self) -> Self {
        Self::empty()
    }
}

/// The list of a label.
fn list_of(key: &Str) -> usize {
    FxBuildHasher.hash_one(key) as usize % LISTS
}

impl Topologies {
    fn empty() -> Self {
        Self {
            first: NextNumber::new(),
            others: (0..LISTS).map(|_| NextNumber::new()).collect(),
            columns: AtomicUsize::new(0),
            columns_max: COLUMNS_MAX,
        }
    }

    /// The topology of a label; created from all nodes the first time.
    pub(super) fn get(&self, key: &Str, rows: &[NodeRow]) -> Arc<Topology> {
        let (mut next, mut walked) = (&self.first, 0);
        loop {
            if walked == FEW {
                next = &self.others[list_of(key)];
            }
            walked += 1;
            let link = next.get_or_init(|| {
                let mut column = TopologyColumn::new(key, rows.len());
                for (row, index) in rows.iter().zip(0..) {
                    if let Some(node) = &row.node {
                        column.set(Slot(index), Some(node.labels()));
                    }
                }
                self.columns.fetch_add(1, Ordering::Relaxed);
                Box::new(Link {
                    column,
                    next: NextNumber::new(),
                })
            });
            if link.column.key == *key {
                return link.column.topology.clone();
            }
            next = &link.next;
        }
    }

    /// Updates all columns for a node's labels; none if it was deleted.
    pub(super) fn set(&mut self, slot: Slot, labels: Option<&Labels>) {
        for mut next in [&mut self.first].into_iter().chain(&mut self.others) {
            while let Some(link) = next.get_mut() {
                link.column.set(slot, labels);
                next = &mut link.next;
            }
        }
    }

    /// Drops columns without a reader if there are many.
    pub(super) fn tidy(&mut self) {
        if *self.columns.get_mut() <= self.columns_max {
            return;
        }
        let mut columns = 0;
        let lists = [&mut self.first].into_iter().chain(&mut self.others);
        let lists: Vec<NextNumber> = lists.map(std::mem::take).collect();
        for mut list in lists {
            let mut rest = list.take();
            while let Some(mut link) = rest {
                rest = link.next.take();
                if link.column.is_held() || COMMON.contains(&link.column.key.as_str()) {
                    // The first list is filled first.
                    let list = if columns < FEW {
                        &mut self.first
                    } else {
                        &mut self.others[list_of(&link.column.key)]
                    };
                    link.next = std::mem::take(list);
                    *list = NextNumber::from(link);
                    columns += 1;
                }
            }
        }
        *self.columns.get_mut() = columns;
        self.columns_max = COLUMNS_MAX.max(columns.saturating_mul(2));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::NodeTable;
    use crate::testing::node;
    use fastrand::Rng;
    use std::collections::BTreeMap;

    fn key(at: usize) -> Str {
        format!("key-{at}").into()
    }

    /// The sets of nodes in one domain, independent of the numbers.
    fn groups(topology: &Topology, table: &NodeTable, key: &Str) {
        let mut numbers: BTreeMap<String, u32> = BTreeMap::new();
        let (mut nodes, mut known) = (0, 0);
        for view in table.iter() {
            known += 1;
            let domain = topology.domain(view.slot());
            let value = view.labels().get(key);
            assert_eq!(domain.is_some(), value.is_some(), "{}", view.name());
            let (Some(domain), Some(value)) = (domain, value) else {
                continue;
            };
            nodes += 1;
            assert_eq!(domain == Topology::EMPTY, value.is_empty());
            assert_eq!(*numbers.entry(value.to_owned()).or_insert(domain), domain);
        }
        let in_slots = (0..).map(Slot).take(table.slots());
        assert!(
            in_slots
                .filter(|slot| topology.domain(*slot).is_some())
                .count()
                <= known
        );
        assert_eq!(
            (topology.nodes(), topology.domains()),
            (nodes, numbers.len())
        );
        let counted = numbers.values().map(|of| topology.nodes_of()[*of as usize]);
        assert_eq!(counted.sum::<u32>() as usize, nodes);
        let mut different: Vec<u32> = numbers.into_values().collect();
        different.sort_unstable();
        different.dedup();
        assert_eq!(different.len(), topology.domains());
    }

    #[test]
    fn columns_follow_the_nodes_and_domains_keep_their_numbers() {
        let rng = &mut Rng::with_seed(1);
        let mut table = NodeTable::default();
        let early = table.topology(&key(0));
        for _ in 0..3_000 {
            let name = format!("n{}", rng.u32(..20));
            if rng.u32(..4) == 0 {
                table.remove_node(&name);
            } else {
                let mut made = node(&name);
                for at in 0..3 {
                    let value = ["", "a", "b", "c", "d"][rng.usize(..5)];
                    if rng.u32(..4) > 0 {
                        made = made.label(&format!("key-{at}"), value);
                    }
                }
                let before = table.topology(&key(1));
                let was = Topology::clone(&before);
                let slot = table.set_node(made.arc());
                let after = table.topology(&key(1));
                for other in (0..).map(Slot).take(table.slots()) {
                    assert!(other == slot || before.domain(other) == after.domain(other));
                }
                assert_eq!(before.by_slot(), was.by_slot(), "it shows what was");
            }
            for at in 0..3 {
                groups(&table.topology(&key(at)), &table, &key(at));
            }
        }
        assert_eq!(early.nodes(), 0);
    }

    #[test]
    fn columns_that_are_not_held_are_forgotten() {
        let mut table = NodeTable::default();
        table.set_node(node("n").label("key-7", "a").arc());
        let held = table.topology(&key(7)).hold();
        let columns = |table: &NodeTable| table.topologies.columns.load(Ordering::Relaxed);
        for at in 0..COLUMNS_MAX * 3 {
            table.topology(&key(at));
        }
        assert_eq!(columns(&table), COMMON.len() + COLUMNS_MAX * 3);
        table.set_node(node("m").label("key-7", "a").arc());
        let kept = COMMON.len() + 1;
        assert_eq!(columns(&table), kept);
        let shown = table.topology(&key(7));
        assert_eq!(columns(&table), kept);
        assert_eq!((shown.nodes(), shown.domains()), (2, 1));
        drop(held);
        table.topology(&key(8));
        assert_eq!(columns(&table), kept + 1);
    }
}
