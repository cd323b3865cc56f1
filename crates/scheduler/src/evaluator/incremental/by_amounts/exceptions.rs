//! The nodes that ledgers distinguish one by one, kept from decision to decision: a decision looks at those that have
//! changed since the last one, however many there are.

use crate::evaluator::incremental::shape::{DomainCounts, GRADES};
use berth_api::Str;
use berth_framework::keep::{Class, TopologyKeys};
use berth_framework::plugin::Context;
use berth_framework::{NodeTable, Slot};
use rustc_hash::FxHashMap;

/// So many changed nodes are always looked at one by one; more are, if there are as many exceptions.
const CHANGED_ALWAYS: usize = 64;
/// The number of classes without nodes that are kept.
const IDLE_CLASSES_MAX: usize = 64;

pub(super) type ClassId = u32;

/// The outline of each ledger, by its place; `None` where it accepts every node and prefers none.
pub(super) type Outlines = Vec<Option<TopologyKeys>>;

/// The outlines of ledgers as they are now; `None` if one of them has none.
pub(super) fn outlines(cx: &Context<'_>, domain_counts: &[DomainCounts]) -> Option<Outlines> {
    let outlines = domain_counts.iter().map(|domain| {
        if domain.ledger.is_indifferent() {
            return Some(None);
        }
        domain.ledger.outline(cx).map(Some)
    });
    outlines.collect()
}

/// The classes of nodes, numbered: those to which all ledgers give the same answers.
#[derive(Debug, Default)]
pub(super) struct NodeClasses {
    /// The numbers of all ledgers, with room for the grades.
    keys: Vec<Class>,
    ids: FxHashMap<Class, ClassId>,
    /// A buffer whose memory is reused.
    key: Class,
}

impl NodeClasses {
    /// The number of classes.
    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    /// The numbers of the ledgers.
    pub(super) fn key(&self, class: ClassId) -> &Class {
        &self.keys[class as usize]
    }

    /// The class of a node that exists.
    pub(super) fn of(&mut self, domain_counts: &[DomainCounts], slot: Slot) -> ClassId {
        self.key.clear();
        self.key.resize(GRADES, 0);
        for domain in domain_counts {
            domain.ledger.class(slot, &mut self.key);
        }
        if let Some(known) = self.ids.get(&self.key) {
            return *known;
        }
        let id = self.keys.len() as ClassId;
        self.ids.insert(self.key.clone(), id);
        self.keys.push(self.key.clone());
        id
    }
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Exceptions {
    outlines: Outlines,
    /// In slot order, each once.
    nodes: Vec<Slot>,
    /// The class of each.
    of_nodes: Vec<ClassId>,
    pub(super) classes: NodeClasses,
}

impl Exceptions {
    /// Asks the ledgers for all of them.
    pub(super) fn new(
        cx: &Context<'_>,
        domain_counts: &[DomainCounts],
        outlines: Outlines,
    ) -> Self {
        let mut nodes = Vec::new();
        for (domain, outline) in domain_counts.iter().zip(&outlines) {
            if outline.is_some() {
                domain.ledger.push_exceptions(cx, &mut nodes);
            }
        }
        nodes.sort_unstable();
        nodes.dedup();
        nodes.retain(|slot| is_node(&cx.cluster.nodes, *slot));
        let mut classes = NodeClasses::default();
        let of_nodes = nodes.iter().map(|slot| classes.of(domain_counts, *slot));
        Self {
            outlines,
            of_nodes: of_nodes.collect(),
            nodes,
            classes,
        }
    }

    /// Whether they are still those from these outlines.
    pub(super) fn are_from(&self, outlines: &Outlines) -> bool {
        self.outlines == *outlines
    }

    /// Looks again at nodes that may have changed. Returns whether the exceptions are to be dropped, because it costs less
    /// to ask for all of them.
    pub(super) fn follow(
        &mut self,
        cx: &Context<'_>,
        domain_counts: &[DomainCounts],
        changed: &[Slot],
    ) -> bool {
        if changed.len() > self.nodes.len().max(CHANGED_ALWAYS) {
            return true;
        }
        for slot in changed {
            let mut outlined = domain_counts.iter().zip(&self.outlines);
            let is_exception = is_node(&cx.cluster.nodes, *slot)
                && outlined.any(|(domain, outline)| {
                    outline.is_some() && domain.ledger.is_exception(cx, *slot)
                });
            let class = is_exception.then(|| self.classes.of(domain_counts, *slot));
            match (self.nodes.binary_search(slot), class) {
                (Ok(at), Some(class)) => self.of_nodes[at] = class,
                (Ok(at), None) => {
                    self.nodes.remove(at);
                    self.of_nodes.remove(at);
                }
                (Err(at), Some(class)) => {
                    self.nodes.insert(at, *slot);
                    self.of_nodes.insert(at, class);
                }
                (Err(_), None) => {}
            }
        }
        self.classes.len() > self.nodes.len() + IDLE_CLASSES_MAX
    }

    /// The number of nodes.
    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// The nodes in slot order, with their classes.
    pub(super) fn nodes(&self) -> impl Iterator<Item = (Slot, ClassId)> {
        let classes = self.of_nodes.iter().copied();
        self.nodes.iter().copied().zip(classes)
    }

    /// The topology keys of all outlines.
    pub(super) fn topology_keys(&self) -> impl Iterator<Item = &Str> {
        self.outlines.iter().flatten().flatten()
    }

    /// Whether all ledgers accept every node and prefer none.
    pub(super) fn are_of_indifferent(&self) -> bool {
        self.outlines.iter().all(Option::is_none)
    }

    /// About how much memory they take, in bytes.
    pub(super) fn bytes(&self) -> usize {
        let per_node = size_of::<Slot>() + size_of::<ClassId>();
        let per_class = 2 * size_of::<Class>() + size_of::<ClassId>();
        self.nodes.capacity() * per_node + self.classes.len() * per_class
    }
}

fn is_node(table: &NodeTable, slot: Slot) -> bool {
    table.get(slot).is_some()
}
