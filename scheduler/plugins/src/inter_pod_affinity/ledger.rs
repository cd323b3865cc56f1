//! The plugin's answers, updated pod by pod, for the incremental evaluator.
//!
//! All pods with one fragment share a ledger. A pod on a node counts by its own labels, its own terms, and values that
//! are fixed for the ledger: the terms of the incoming pods, and the labels that the terms of other pods may read. So
//! the removal of a pod subtracts exactly the amounts that its addition added.
//!
//! [Counts](KeyCounts) are kept for each topology key in use. A key with few large domains (zones) has a **column** in
//! the class of a node, which holds the node's domain: a change in a domain changes no node's class, and its counts are
//! read when the class is judged. A key with many small domains (hosts) has no column: the sums of its domains are
//! included in two numbers of the class, and the few nodes of a domain get another class when the sums change.

mod key_counts;
#[cfg(test)]
mod tests;

use super::InterPodAffinity;
use super::incoming::{self, Incoming};
use super::score::PointRange;
use super::terms::verdict;
use berth_api::Str;
use berth_framework::keep::{
    Class, Domains, FeasibleClass, Fragment, Kept, Ledger, LedgerChange, LedgerState,
};
use berth_framework::plugin::Context;
use berth_framework::pod_info::LabelSignature;
use berth_framework::{NodeTable, PodInfo, Slot, Status};
use key_counts::{KeyCounts, Sums};
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The node lacks the topology key of a required affinity term.
const MISSING_KEY: i64 = 1;
/// In some domain without a column, no pod matches a required affinity term.
const NO_AFFINITY: i64 = 2;
/// In some domain without a column, a pod matches a required anti-affinity term.
const ANTI_AFFINITY: i64 = 4;
/// In some domain without a column, a pod has required anti-affinity to the incoming pod.
const EXISTING_ANTI_AFFINITY: i64 = 8;

/// The place of these marks in a class.
const MARKS: usize = 0;
/// The place of the points of domains without a column in a class.
const POINTS: usize = 1;
/// The index of the first column.
const COLUMNS: usize = 2;
/// The value of a column for a node in no domain.
const NOWHERE: i64 = -1;

/// The number of topology keys whose counts are kept although no pod counts.
const IDLE_KEYS_MAX: usize = 8;

/// The topology keys that have a column of their own.
#[derive(Debug, Clone, Copy)]
struct Layout {
    /// A key with at most this number of domains always has a column.
    few_domains: usize,
    /// A key with at least this number of domains has no column, because each domain is a class to be judged in every
    /// decision.
    many_domains: usize,
    /// A key in between has a column if its domains have this number of nodes on average: without one, every added pod
    /// would change the class of all these nodes.
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
    fn has_column(&self, counts: &KeyCounts) -> bool {
        let (nodes, domains) = (counts.topology.nodes(), counts.topology.domains());
        domains <= self.few_domains
            || (domains <= self.many_domains
                && nodes >= domains.saturating_mul(self.nodes_per_domain))
    }

    /// Returns whether a key should gain or lose its column, with a clear margin.
    fn is_wrong(&self, counts: &KeyCounts) -> bool {
        let (nodes, domains) = (counts.topology.nodes(), counts.topology.domains());
        let expected = domains.saturating_mul(self.nodes_per_domain);
        match counts.column {
            Some(_) => {
                domains > self.many_domains.saturating_mul(2)
                    || (domains > self.few_domains.saturating_mul(8) && nodes < expected / 2)
            }
            None => {
                !counts.is_idle()
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
    counts: CountsByKey,
    columns: usize,
    /// Over all topology keys.
    total: Sums,
    layout: Layout,
    /// See [`Incoming::signatures`].
    signatures: SmallVec<[LabelSignature; 4]>,
}

/// The counts by topology key. A pod can have thousands of terms, each with a key of its own.
type CountsByKey = BTreeMap<Str, KeyCounts>;

/// The counts of a topology key; opened, without a column, when it is new.
fn counts_of<'a>(all: &'a mut CountsByKey, key: &Str, nodes: &NodeTable) -> &'a mut KeyCounts {
    all.entry(key.clone())
        .or_insert_with(|| KeyCounts::open(key, nodes))
}

impl AffinityLedger {
    fn open(incoming: Incoming, nodes: &NodeTable, layout: Layout) -> Self {
        let mut counts = CountsByKey::default();
        let mut total = Sums::default();
        for (key, is_wanted_near) in incoming.topology_keys() {
            let counts = counts_of(&mut counts, key, nodes);
            counts.is_own = true;
            counts.is_wanted_near |= is_wanted_near;
        }
        incoming.all_effects(nodes, |key, effect, per_node| {
            total += counts_of(&mut counts, key, nodes).add(effect, per_node);
        });
        let mut columns = 0;
        for counts in counts.values_mut() {
            if layout.has_column(counts) {
                counts.column = Some(columns);
                columns += 1;
            }
        }
        Self {
            signatures: incoming.signatures().collect(),
            incoming,
            counts,
            columns,
            total,
            layout,
        }
    }

    /// Closes the counts of topology keys for which no pod counts, if there are many.
    fn close_idle_keys(&mut self) {
        let is_idle =
            |counts: &KeyCounts| !counts.is_own && counts.column.is_none() && counts.is_idle();
        if self
            .counts
            .values()
            .filter(|counts| is_idle(counts))
            .count()
            > IDLE_KEYS_MAX
        {
            self.counts.retain(|_, counts| !is_idle(counts));
        }
    }

    /// The counts with a column, and their entries for the domain that a node of the class is in.
    fn columns_of<'a>(&'a self, class: &'a [i64]) -> impl Iterator<Item = (&'a KeyCounts, Sums)> {
        self.counts.values().filter_map(|counts| {
            let domain = class[COLUMNS + counts.column?];
            Some((counts, counts.sums(u32::try_from(domain).ok()?)))
        })
    }

    /// The raw score of the nodes of a class.
    fn points(&self, class: &[i64]) -> i64 {
        let columns = self.columns_of(class);
        columns.fold(class[POINTS], |points, (_, sums)| {
            points.saturating_add(sums.points)
        })
    }

    /// Counts a pod that was added to a node (`sign` is 1) or removed (-1).
    fn pod_moved(
        &mut self,
        cx: &Context<'_>,
        node: Slot,
        pod: &PodInfo,
        sign: i32,
        changed: &mut Vec<Slot>,
    ) {
        let (counts, total) = (&mut self.counts, &mut self.total);
        let mut add = |key: &Str, amount: Sums| {
            let counts = counts_of(counts, key, &cx.cluster.nodes);
            if counts.add_and_report(node, amount, changed) {
                *total += amount;
            }
        };
        // Consecutive effects often have the same key: it is looked up once.
        let mut last: Option<(Str, Sums)> = None;
        self.incoming.effects(pod, |key, effect| {
            let amount = Sums::of(effect, sign);
            match &mut last {
                Some((known, sums)) if known == key => *sums += amount,
                _ => {
                    if let Some((key, sums)) = last.replace((key.clone(), amount)) {
                        add(&key, sums);
                    }
                }
            }
        });
        if let Some((key, sums)) = last {
            add(&key, sums);
        }
    }

    /// Counts all pods of a node again.
    fn node_changed(&mut self, cx: &Context<'_>, node: Slot, changed: &mut Vec<Slot>) {
        let nodes = &cx.cluster.nodes;
        self.close_idle_keys();
        let view = nodes.get(node);
        for counts in self.counts.values_mut() {
            counts.begin_recount(nodes);
        }
        let counts = &mut self.counts;
        if let Some(view) = view {
            for other in self.incoming.received(&view) {
                self.incoming.effects(other, |key, effect| {
                    counts_of(counts, key, nodes).recounted += Sums::of(effect, 1);
                });
            }
        }
        for counts in self.counts.values_mut() {
            self.total += counts.end_recount(node, changed);
        }
    }
}

impl Ledger for AffinityLedger {
    fn follow(
        &mut self,
        cx: &Context<'_>,
        node: Slot,
        change: LedgerChange<'_>,
        changed: &mut Vec<Slot>,
    ) {
        match change {
            LedgerChange::Node => self.node_changed(cx, node, changed),
            LedgerChange::Pod {
                pod,
                signatures,
                is_added,
            } => {
                // By its labels if the terms match them, or by its own terms if they match the pods of the ledger.
                let mut own = self.signatures.iter();
                if own.any(|signature| signature.is_in(signatures.own))
                    || self.incoming.may_be_matched_by(signatures)
                {
                    let sign = if is_added { 1 } else { -1 };
                    self.pod_moved(cx, node, pod, sign, changed);
                }
            }
        }
    }

    fn state(&self) -> LedgerState {
        let mut counts = self.counts.values();
        LedgerState {
            // The pod has no affinity, and no pod counts: removed pods cannot change that.
            is_indifferent: counts.all(|counts| !counts.is_wanted_near && counts.is_idle()),
            is_stale: self
                .counts
                .values()
                .any(|counts| self.layout.is_wrong(counts)),
            bytes: size_of::<Self>() + self.counts.values().map(KeyCounts::bytes).sum::<usize>(),
        }
    }

    fn class_len(&self) -> usize {
        COLUMNS + self.columns
    }

    fn write_classes(&self, nodes: &[Slot], classes: &mut [i64]) {
        let (marks, rest) = classes.split_at_mut(nodes.len());
        let (points, columns) = rest.split_at_mut(nodes.len());
        marks.fill(0);
        points.fill(0);
        columns.fill(NOWHERE);
        for counts in self.counts.values() {
            let mut column = counts
                .column
                .and_then(|column| columns.chunks_mut(nodes.len()).nth(column));
            // Most keys of hosts have no sums: the lookups for the single nodes are saved.
            let no_sums = counts.has_no_sums().then(Sums::default);
            for (at, node) in nodes.iter().enumerate() {
                let Some(domain) = counts.topology.domain(*node) else {
                    if counts.is_wanted_near {
                        marks[at] |= MISSING_KEY;
                    }
                    continue;
                };
                if let Some(column) = &mut column {
                    column[at] = i64::from(domain);
                    continue;
                }
                let sums = no_sums.unwrap_or_else(|| counts.sums(domain));
                for (is_so, mark) in [
                    (counts.is_wanted_near && sums.affinity <= 0, NO_AFFINITY),
                    (sums.anti_affinity > 0, ANTI_AFFINITY),
                    (sums.existing_anti_affinity > 0, EXISTING_ANTI_AFFINITY),
                ] {
                    if is_so {
                        marks[at] |= mark;
                    }
                }
                points[at] = points[at].saturating_add(sums.points);
            }
        }
        // Nodes that are rejected in any case are not distinguished further.
        for (at, marks) in marks.iter_mut().enumerate() {
            if *marks & MISSING_KEY != 0 {
                *marks = MISSING_KEY;
                for column in columns.chunks_mut(nodes.len()) {
                    column[at] = NOWHERE;
                }
            }
            if *marks & (MISSING_KEY | ANTI_AFFINITY | EXISTING_ANTI_AFFINITY) != 0 {
                points[at] = 0;
            }
        }
    }

    fn filter(&self, class: &[i64]) -> Result<(), Status> {
        let has = |mark: i64| class[MARKS] & mark != 0;
        let in_columns = |is_so: fn(&KeyCounts, Sums) -> bool| {
            let mut columns = self.columns_of(class);
            columns.any(|(counts, sums)| is_so(counts, sums))
        };
        let is_alone = || {
            has(NO_AFFINITY)
                || in_columns(|counts, sums| counts.is_wanted_near && sums.affinity <= 0)
        };
        // The first pod of a series.
        let may_be_first = || self.total.affinity == 0 && self.incoming.is_meant_by_itself;
        let status = verdict(
            !has(MISSING_KEY) && (!is_alone() || may_be_first()),
            || !has(ANTI_AFFINITY) && !in_columns(|_, sums| sums.anti_affinity > 0),
            || {
                !has(EXISTING_ANTI_AFFINITY)
                    && !in_columns(|_, sums| sums.existing_anti_affinity > 0)
            },
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
            self.pod_moved(cx, node, other, 1, &mut changed);
        }
        self.class(node, &mut class);
        let result = self.filter(&class);
        for other in pods {
            self.pod_moved(cx, node, other, -1, &mut changed);
        }
        Some(result)
    }
}
