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
    Domains, FeasibleClass, Fragment, Kept, Ledger, LedgerChange, LedgerState,
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

/// The maximum number of topology keys without counted pods, besides those of the ledger's own terms. Beyond it, the ledger is
/// opened again.
const IDLE_KEYS_MAX: usize = 8;

/// The cost of a domain of a key with a column, in nodes: each domain is a class to be judged in each decision, whereas
/// without a column a pod changes the classes of the nodes of its domain.
const DOMAIN_COST: usize = 1;

impl Domains for InterPodAffinity {
    fn fragment(&self, cx: &Context<'_>, pod: &PodInfo, fragment: &mut Fragment) -> Kept {
        incoming::write(cx.cluster, pod, fragment)
    }

    fn open(&self, cx: &Context<'_>, pod: &Arc<PodInfo>) -> Option<Box<dyn Ledger>> {
        let incoming = Incoming::new(&self.args, cx.cluster, pod);
        let ledger = AffinityLedger::open(incoming, &cx.cluster.nodes, DOMAIN_COST);
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
    /// See [`DOMAIN_COST`].
    domain_cost: usize,
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
    fn open(incoming: Incoming, nodes: &NodeTable, domain_cost: usize) -> Self {
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
        let mut ledger = Self {
            signatures: incoming.signatures().collect(),
            incoming,
            counts: CountsByKey::default(),
            columns: 0,
            total,
            domain_cost,
        };
        for counts in counts.values_mut() {
            if ledger.pays_off(counts.topology.nodes(), counts.topology.domains()) {
                counts.column = Some(ledger.columns);
                ledger.columns += 1;
            }
        }
        ledger.counts = counts;
        ledger
    }

    /// Returns whether a key should have a column: whether its domains cost less than the nodes of one of them.
    fn pays_off(&self, nodes: usize, domains: usize) -> bool {
        nodes
            >= domains
                .saturating_mul(domains)
                .saturating_mul(self.domain_cost)
    }

    /// Returns whether a key should gain or lose its column, with a clear margin.
    fn is_misplaced(&self, counts: &KeyCounts) -> bool {
        let (nodes, domains) = (counts.topology.nodes(), counts.topology.domains());
        match counts.column {
            Some(_) => !self.pays_off(nodes.saturating_mul(4), domains),
            None => !counts.is_idle() && self.pays_off(nodes / 4, domains),
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
        let mut amounts: SmallVec<[(Str, Sums); 4]> = SmallVec::new();
        self.incoming.effects(pod, |key, effect| {
            let amount = Sums::of(effect, sign);
            // Consecutive effects often have the same key: it is looked up once.
            match amounts.last_mut() {
                Some((known, sums)) if known == key => *sums += amount,
                _ => amounts.push((key.clone(), amount)),
            }
        });
        for (key, amount) in amounts {
            let counts = counts_of(&mut self.counts, &key, &cx.cluster.nodes);
            if counts.add_and_report(node, amount, changed) {
                self.total += amount;
            }
        }
    }

    /// Counts all pods of a node again.
    fn node_changed(&mut self, cx: &Context<'_>, node: Slot, changed: &mut Vec<Slot>) {
        let nodes = &cx.cluster.nodes;
        for counts in self.counts.values_mut() {
            self.total += -counts.forget(node, nodes, changed);
        }
        if let Some(view) = nodes.get(node) {
            for other in self.incoming.received(&view) {
                self.pod_moved(cx, node, other, 1, changed);
            }
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
        let counts = || self.counts.values();
        let idle = counts().filter(|counts| !counts.is_own && counts.is_idle());
        LedgerState {
            class_len: COLUMNS + self.columns,
            // The pod has no affinity, and no pod counts: removed pods cannot change that.
            is_indifferent: counts().all(|counts| !counts.is_wanted_near && counts.is_idle()),
            is_stale: idle.count() > IDLE_KEYS_MAX
                || counts().any(|counts| self.is_misplaced(counts)),
            bytes: size_of::<Self>() + counts().map(KeyCounts::bytes).sum::<usize>(),
        }
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
        let may_be_first = || self.total.affinity == 0 && self.incoming.matches_itself;
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
        let mut class = vec![0; COLUMNS + self.columns];
        for other in pods {
            self.pod_moved(cx, node, other, 1, &mut changed);
        }
        self.write_classes(&[node], &mut class);
        let result = self.filter(&class);
        for other in pods {
            self.pod_moved(cx, node, other, -1, &mut changed);
        }
        Some(result)
    }
}
