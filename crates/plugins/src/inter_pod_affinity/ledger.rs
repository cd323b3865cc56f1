//! The plugin's answers, kept up pod by pod: for the evaluator that asks only about what has changed.
//!
//! All pods with one fragment share a ledger. A pod on a node counts by its own labels, its own terms, and what is
//! fixed for the ledger: the terms of the pods that it is for, and the labels that other pods' terms may look at. So
//! whatever a pod has added when it came is taken away, to the number, when it goes.
//!
//! One [book](Book) is kept per topology key that matters. A key with few large domains (zones) has a **column** in the
//! class of a node, which holds the node's domain: what happens in a domain changes no node's class, and is looked up
//! when the class is judged. A key with many small domains (hosts) is **folded**: the sums of its domains are worked
//! into two numbers of the class, and the few nodes of a domain get another class when they change.

mod book;
#[cfg(test)]
mod tests;

use super::InterPodAffinity;
use super::incoming::{self, Incoming};
use super::score::PointRange;
use super::terms::verdict;
use berth_api::Str;
use berth_framework::keep::{Class, Domains, FeasibleClass, Fragment, Kept, Ledger, Movement};
use berth_framework::plugin::Context;
use berth_framework::table::{Mark, PodMarks};
use berth_framework::{NodeTable, PodInfo, Slot, Status};
use book::{Book, Sums};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// The node lacks the topology key of a required affinity term.
const LACKS_KEY: i64 = 1;
/// Nothing is there, in some folded domain, that a required affinity term wants near.
const LONELY: i64 = 2;
/// Something is there, in some folded domain, that the pod does not want near.
const CROWDED: i64 = 4;
/// Something is there, in some folded domain, that does not want the pod near.
const UNWELCOME: i64 = 8;

/// The place of these marks in a class.
const MARKS: usize = 0;
/// The place of the points of the folded domains in a class.
const POINTS: usize = 1;
/// The index of the first column.
const COLUMNS: usize = 2;
/// The value of a column for a node in no domain.
const NOWHERE: i64 = -1;

/// The number of idle books that are kept open.
const IDLE_BOOKS_MAX: usize = 8;

/// The topology keys that have a column of their own.
#[derive(Debug, Clone, Copy)]
struct Layout {
    /// So few domains always have.
    few_domains: usize,
    /// So many never have: each is a class to be judged in every decision.
    many_domains: usize,
    /// Between them, domains of so many nodes have, for they are too large to give every node another class whenever a
    /// pod comes.
    nodes_per_domain: usize,
}

impl Default for Layout {
    fn default() -> Self {
        Self {
            few_domains: 8,
            many_domains: 256,
            nodes_per_domain: 8,
        }
    }
}

impl Layout {
    fn has_column(&self, book: &Book) -> bool {
        let (nodes, domains) = (book.topology.nodes(), book.topology.domains());
        domains <= self.few_domains
            || (domains <= self.many_domains
                && nodes >= domains.saturating_mul(self.nodes_per_domain))
    }

    /// Returns whether it should be the other way round by now, and clearly so.
    fn is_wrong(&self, book: &Book) -> bool {
        let (nodes, domains) = (book.topology.nodes(), book.topology.domains());
        let expected = domains.saturating_mul(self.nodes_per_domain);
        match book.column {
            Some(_) => {
                domains > self.many_domains.saturating_mul(2)
                    || (domains > self.few_domains.saturating_mul(8) && nodes < expected / 2)
            }
            None => {
                !book.is_idle()
                    && domains <= self.many_domains / 2
                    && nodes >= expected.saturating_mul(2).max(1)
            }
        }
    }
}

impl Domains for InterPodAffinity {
    fn fragment(&self, cx: &Context<'_>, pod: &PodInfo, fragment: &mut Fragment) -> Kept {
        incoming::write(cx.cluster, pod, fragment)
    }

    fn open(&self, cx: &Context<'_>, pod: &Arc<PodInfo>) -> Option<Box<dyn Ledger>> {
        let incoming = Incoming::new(&self.args, cx.cluster, pod);
        let ledger = AffinityLedger::open(incoming, &cx.cluster.nodes, Layout::default());
        Some(Box::new(ledger))
    }
}

/// The counts for all pods with one fragment.
#[derive(Debug)]
struct AffinityLedger {
    incoming: Incoming,
    books: Books,
    columns: usize,
    /// Over all books.
    total: Sums,
    layout: Layout,
    /// See [`Incoming::marks`].
    marks: SmallVec<[Mark; 4]>,
}

/// The number of books that are searched one by one.
const FEW: usize = 8;

/// The books by topology key. A pod can have thousands of terms, each with a key of its own.
#[derive(Debug, Default)]
struct Books {
    all: Vec<Book>,
    /// The places of the books.
    places: FxHashMap<Str, usize>,
}

impl Books {
    /// The book of a topology key; opened, folded, when it is new.
    fn of(&mut self, key: &Str, nodes: &NodeTable) -> &mut Book {
        let at = if self.all.len() <= FEW {
            self.all.iter().position(|book| book.key == *key)
        } else {
            self.places.get(key).copied()
        };
        let at = at.unwrap_or_else(|| {
            self.places.insert(key.clone(), self.all.len());
            self.all.push(Book::open(key, nodes));
            self.all.len() - 1
        });
        &mut self.all[at]
    }

    fn close(&mut self, is_closed: impl Fn(&Book) -> bool) {
        self.all.retain(|book| !is_closed(book));
        let keys = self.all.iter().map(|book| book.key.clone());
        self.places = keys.zip(0..).collect();
    }
}

impl Deref for Books {
    type Target = [Book];
    fn deref(&self) -> &[Book] {
        &self.all
    }
}

impl DerefMut for Books {
    fn deref_mut(&mut self) -> &mut [Book] {
        &mut self.all
    }
}

impl AffinityLedger {
    fn open(incoming: Incoming, nodes: &NodeTable, layout: Layout) -> Self {
        let mut books = Books::default();
        let mut total = Sums::default();
        for (key, is_wanted_near) in incoming.topology_keys() {
            let book = books.of(key, nodes);
            book.is_own = true;
            book.is_wanted_near |= is_wanted_near;
        }
        incoming.all_effects(nodes, |key, effect, crowd| {
            total += books.of(key, nodes).add(effect, crowd);
        });
        let mut columns = 0;
        for book in books.iter_mut() {
            if layout.has_column(book) {
                book.set_column(columns);
                columns += 1;
            }
        }
        Self {
            marks: incoming.marks().collect(),
            incoming,
            books,
            columns,
            total,
            layout,
        }
    }

    /// Closes empty books if there are many.
    fn close_idle_books(&mut self) {
        let is_idle = |book: &Book| !book.is_own && book.column.is_none() && book.is_idle();
        if self.books.iter().filter(|book| is_idle(book)).count() > IDLE_BOOKS_MAX {
            self.books.close(is_idle);
        }
    }

    /// The books with a column, and their entries for the domain that a node of the class is in.
    fn columns_of<'a>(&'a self, class: &'a [i64]) -> impl Iterator<Item = (&'a Book, Sums)> {
        self.books.iter().filter_map(|book| {
            let domain = class[COLUMNS + book.column?];
            Some((book, book.sums(u32::try_from(domain).ok()?)))
        })
    }

    /// The raw score of the nodes of a class.
    fn points(&self, class: &[i64]) -> i64 {
        let columns = self.columns_of(class);
        columns.fold(class[POINTS], |points, (_, sums)| {
            points.saturating_add(sums.points)
        })
    }
}

impl Ledger for AffinityLedger {
    /// By its labels if the terms match them, or by its own terms if they match the pods of the ledger.
    fn may_count(&self, pod: &PodMarks) -> bool {
        let mut marks = self.marks.iter();
        marks.any(|mark| mark.is_in(pod.own)) || self.incoming.may_be_matched_by(pod)
    }

    fn pod_moved(
        &mut self,
        cx: &Context<'_>,
        node: Slot,
        pod: &PodInfo,
        movement: Movement,
        changed: &mut Vec<Slot>,
    ) {
        let sign = match movement {
            Movement::PodAdded => 1,
            Movement::PodRemoved => -1,
        };
        let (books, total) = (&mut self.books, &mut self.total);
        self.incoming.effects(pod, |key, effect| {
            let book = books.of(key, &cx.cluster.nodes);
            let amount = Sums::of(effect, sign);
            if book.add_and_report(node, amount, changed) {
                *total += amount;
            }
        });
    }

    fn node_changed(&mut self, cx: &Context<'_>, node: Slot, changed: &mut Vec<Slot>) {
        let nodes = &cx.cluster.nodes;
        self.close_idle_books();
        let view = nodes.get(node);
        for book in self.books.iter_mut() {
            book.begin_recount(nodes);
        }
        let books = &mut self.books;
        if let Some(view) = view {
            for other in self.incoming.received(&view) {
                self.incoming.effects(other, |key, effect| {
                    books.of(key, nodes).recounted += Sums::of(effect, 1);
                });
            }
        }
        for book in self.books.iter_mut() {
            self.total += book.end_recount(node, changed);
        }
    }

    fn is_uniform(&self) -> bool {
        self.books.is_empty()
    }

    fn width(&self) -> usize {
        COLUMNS + self.columns
    }

    fn class(&self, node: Slot, class: &mut Class) {
        let start = class.len();
        // Marks and points are set at the end.
        class.extend_from_slice(&[0; COLUMNS]);
        for _ in 0..self.columns {
            class.push(NOWHERE);
        }
        let own = &mut class[start..];
        let (mut marks, mut points) = (0, 0_i64);
        for book in self.books.iter() {
            let Some(domain) = book.topology.domain(node) else {
                if book.is_wanted_near {
                    marks |= LACKS_KEY;
                }
                continue;
            };
            if let Some(column) = book.column {
                own[COLUMNS + column] = i64::from(domain);
                continue;
            }
            let sums = book.sums_around(node, domain);
            for (is_so, mark) in [
                (book.is_wanted_near && sums.affinity <= 0, LONELY),
                (sums.anti_affinity > 0, CROWDED),
                (sums.existing_anti_affinity > 0, UNWELCOME),
            ] {
                if is_so {
                    marks |= mark;
                }
            }
            points = points.saturating_add(sums.points);
        }
        // Nodes that are rejected in any case are not distinguished further.
        if marks & LACKS_KEY != 0 {
            marks = LACKS_KEY;
            own[COLUMNS..].fill(NOWHERE);
        }
        if marks & (LACKS_KEY | CROWDED | UNWELCOME) != 0 {
            points = 0;
        }
        (own[MARKS], own[POINTS]) = (marks, points);
    }

    fn filter(&self, class: &[i64]) -> Result<(), Status> {
        let has = |mark: i64| class[MARKS] & mark != 0;
        let in_columns = |is_so: fn(&Book, Sums) -> bool| {
            let mut columns = self.columns_of(class);
            columns.any(|(book, sums)| is_so(book, sums))
        };
        let is_alone =
            || has(LONELY) || in_columns(|book, sums| book.is_wanted_near && sums.affinity <= 0);
        // The first pod of a series.
        let may_be_first = || self.total.affinity == 0 && self.incoming.is_meant_by_itself;
        let status = verdict(
            !has(LACKS_KEY) && (!is_alone() || may_be_first()),
            || !has(CROWDED) && !in_columns(|_, sums| sums.anti_affinity > 0),
            || !has(UNWELCOME) && !in_columns(|_, sums| sums.existing_anti_affinity > 0),
        );
        if status.is_success() {
            Ok(())
        } else {
            Err(status)
        }
    }

    fn score(&self, classes: &[FeasibleClass<'_>], scores: &mut [i64]) -> bool {
        if self.total.entries == 0 {
            return false;
        }
        let range = PointRange::of(classes.iter().map(|class| self.points(class.class)));
        for (score, class) in scores.iter_mut().zip(classes) {
            *score = range.scale(self.points(class.class));
        }
        true
    }

    fn concerns(&self, _cx: &Context<'_>, pod: &PodInfo) -> bool {
        self.incoming.may_count(pod)
    }

    fn filter_with(
        &mut self,
        cx: &Context<'_>,
        node: Slot,
        pods: &[Arc<PodInfo>],
    ) -> Option<Result<(), Status>> {
        if self.total.existing_anti_affinity == 0 && self.incoming.required.is_empty() {
            // PreFilter returns Skip, so neither AddPod nor Filter is called.
            return Some(Ok(()));
        }
        if !pods.iter().all(|other| self.incoming.knows_count(other)) {
            return None;
        }
        let mut changed = Vec::new();
        let mut class = Class::new();
        for other in pods {
            self.pod_moved(cx, node, other, Movement::PodAdded, &mut changed);
        }
        self.class(node, &mut class);
        let result = self.filter(&class);
        for other in pods {
            self.pod_moved(cx, node, other, Movement::PodRemoved, &mut changed);
        }
        Some(result)
    }

    /// The pod has no affinity, and all books are empty: removed pods cannot change that.
    fn is_indifferent(&self) -> bool {
        let mut books = self.books.iter();
        books.all(|book| !book.is_wanted_near && book.is_idle())
    }

    fn is_stale(&self) -> bool {
        self.books.iter().any(|book| self.layout.is_wrong(book))
    }

    fn bytes(&self) -> usize {
        size_of::<Self>() + self.books.iter().map(Book::bytes).sum::<usize>()
    }
}
