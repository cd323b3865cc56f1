//! Domain counts for constraints, which follow the cluster pod by pod.
//!
//! A node's class is one number per constraint: first of the hard ones, then of the soft ones. For large domains it is
//! the number of the domain, and the count is read when a class is judged, so that a new pod in a zone changes the
//! class of no node. For hosts, and other domains of few nodes, it is the number of their pods: there are few classes
//! for any number of hosts, and a new pod changes the class of its node and of the few others of the domain.

mod counts;
#[cfg(test)]
mod tests;

use super::PodTopologySpread;
use super::constraints::{Constraint, DO_NOT_SCHEDULE, Inclusion, SCHEDULE_ANYWAY, is_countable};
use super::score::{normalized, weight};
use super::tally::SelectorTally;
use berth_api::Pod;
use berth_api::selector::SelectorError;
use berth_framework::keep::{
    Domains, FeasibleClass, Fragment, Kept, Ledger, LedgerChange, LedgerState,
};
use berth_framework::plugin::Context;
use berth_framework::table::Topology;
use berth_framework::{NodeTable, PodInfo, Slot, Status};
use counts::{ConstraintCounts, IGNORED, Place};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::sync::Arc;

/// The counts for all pods with one fragment.
#[derive(Debug)]
struct SpreadLedger {
    pod: Arc<PodInfo>,
    inclusion: Inclusion,
    /// Whether nodes without all labels of the soft constraints do not score.
    all_keys: bool,
    tallies: Vec<SelectorTally>,
    /// Of the hard constraints, then of the soft ones.
    counts: Vec<ConstraintCounts>,
    /// The number of hard constraints.
    hard: usize,
}

/// The topologies of all constraints, in their order.
type Topologies = SmallVec<[Arc<Topology>; 2]>;

impl SpreadLedger {
    fn new(
        cx: &Context<'_>,
        pod: &Arc<PodInfo>,
        [hard, soft]: [Vec<Constraint>; 2],
        all_keys: bool,
    ) -> Self {
        let nodes = &cx.cluster.nodes;
        let mut ledger = Self {
            pod: pod.clone(),
            inclusion: Inclusion::of(&pod.pod, cx.features),
            all_keys,
            tallies: Vec::new(),
            counts: Vec::new(),
            hard: hard.len(),
        };
        // A pod can have thousands of constraints, each with a selector of its own.
        let mut known = FxHashMap::default();
        for (at, constraint) in hard.into_iter().chain(soft).enumerate() {
            let counted = &constraint.counted;
            let tally = *known.entry(counted.clone()).or_insert_with(|| {
                let tally = SelectorTally::open(counted, pod.pod.namespace(), nodes);
                ledger.tallies.push(tally);
                ledger.tallies.len() - 1
            });
            let own = constraint.selector.matches(pod.pod.labels());
            let topology = nodes.topology(&constraint.topology_key);
            let is_hard = at < ledger.hard;
            let counts = ConstraintCounts::new(constraint, is_hard, tally, own, &topology);
            ledger.counts.push(counts);
        }
        let topologies = ledger.topologies(nodes);
        for slot in (0..).map(Slot::from_index).take(nodes.slots()) {
            ledger.place(nodes, &topologies, slot, &[], None);
        }
        ledger
            .counts
            .iter_mut()
            .for_each(ConstraintCounts::count_domains);
        ledger
    }

    fn topologies(&self, nodes: &NodeTable) -> Topologies {
        let keys = self.counts.iter().map(|of| &of.constraint.topology_key);
        keys.map(|key| nodes.topology(key)).collect()
    }

    /// Puts a node into its domain for each constraint. It had `before` pods of each tally, or none. Adds the other nodes to
    /// `changed` whose class has changed; without it, the node is the next of a new ledger.
    fn place(
        &mut self,
        nodes: &NodeTable,
        topologies: &Topologies,
        slot: Slot,
        before: &[i64],
        mut changed: Option<&mut Vec<Slot>>,
    ) {
        let view = nodes.get(slot);
        let (inclusion, pod) = (&self.inclusion, &self.pod.pod);
        let included = view.map(|view| inclusion.on_node(pod, view.node()));
        let is_in_all = |of: &[Arc<Topology>]| of.iter().all(|of| of.domain(slot).is_some());
        let (of_hard, of_soft) = topologies.split_at(self.hard);
        let (in_all_hard, in_all_soft) = (is_in_all(of_hard), is_in_all(of_soft));
        for (at, counts) in self.counts.iter_mut().enumerate() {
            let number = topologies[at].domain(slot);
            // A hard constraint rejects nodes without its label. A soft one ignores them, or all nodes without some label.
            let (is_there, may_count) = if at < self.hard {
                (number.is_some(), in_all_hard)
            } else {
                (in_all_soft || !self.all_keys, true)
            };
            let to = match &included {
                Some(included) if is_there => {
                    Place::new(number, may_count && included.includes(&counts.constraint))
                }
                _ => Place::NOWHERE,
            };
            let after = self.tallies[counts.tally].count(slot);
            let Some(changed) = changed.as_deref_mut() else {
                counts.place_next(to, after);
                continue;
            };
            let before = before.get(counts.tally).copied().unwrap_or(0);
            counts.node_moved(slot, to, before, after, changed);
        }
    }

    /// By tally: whether the pod counts.
    fn counted(&self, pod: &Pod) -> SmallVec<[bool; 8]> {
        if !is_countable(pod, self.pod.pod.namespace()) {
            return SmallVec::new();
        }
        let tallies = self.tallies.iter();
        tallies.map(|tally| tally.matches(pod.labels())).collect()
    }

    fn soft(&self) -> &[ConstraintCounts] {
        &self.counts[self.hard..]
    }

    fn raw_score(&self, class: &[i64], weights: &[f64]) -> i64 {
        let mut score = 0.0;
        for ((soft, class), weight) in self.soft().iter().zip(class).zip(weights) {
            if let Some(pods) = soft.pods(*class) {
                score += soft.constraint.cost(pods, *weight);
            }
        }
        score.round() as i64
    }

    /// The numbers of the soft constraints; `None` for nodes that do not score.
    fn scoring<'a>(&self, class: &'a [i64]) -> Option<&'a [i64]> {
        let class = class.get(self.hard..)?;
        (class.first() != Some(&IGNORED)).then_some(class)
    }

    /// Counts a pod that was added to a node (`pods` is 1) or removed (-1).
    fn pod_moved(&mut self, node: Slot, pod: &PodInfo, pods: i32, changed: &mut Vec<Slot>) {
        let counted = self.counted(&pod.pod);
        for (tally, counted) in self.tallies.iter_mut().zip(&counted) {
            if *counted && let Some(count) = tally.counts.get_mut(node.index()) {
                *count = count.saturating_add_signed(pods);
            }
        }
        let mut is_changed = false;
        for counts in &mut self.counts {
            if counted.get(counts.tally) == Some(&true) {
                is_changed |= counts.pods_moved(node, i64::from(pods), changed);
            }
        }
        if is_changed {
            changed.push(node);
        }
    }

    /// Counts all pods of a node again.
    fn node_changed(&mut self, cx: &Context<'_>, node: Slot, changed: &mut Vec<Slot>) {
        let before: SmallVec<[i64; 4]> = self.tallies.iter().map(|t| t.count(node)).collect();
        for tally in &mut self.tallies {
            let slots = tally.counts.len().max(node.index() + 1);
            tally.counts.resize(slots, 0);
            tally.counts[node.index()] = 0;
        }
        let view = cx.cluster.nodes.get(node);
        for other in view.iter().flat_map(|view| view.pods()) {
            let counted = self.counted(&other.pod);
            for (tally, counted) in self.tallies.iter_mut().zip(counted) {
                tally.counts[node.index()] += u32::from(counted);
            }
        }
        let topologies = self.topologies(&cx.cluster.nodes);
        self.place(&cx.cluster.nodes, &topologies, node, &before, Some(changed));
    }
}

impl Ledger for SpreadLedger {
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
                let mut tallies = self.tallies.iter();
                if tallies.any(|tally| tally.signature.is_in(signatures.own)) {
                    let pods = if is_added { 1 } else { -1 };
                    self.pod_moved(node, pod, pods, changed);
                }
            }
        }
    }

    fn state(&self) -> LedgerState {
        let tallies = self.tallies.iter();
        let tallies = tallies.map(|tally| tally.counts.capacity() * size_of::<u32>());
        LedgerState {
            class_len: self.counts.len(),
            is_indifferent: false,
            is_stale: false,
            bytes: size_of::<Self>()
                + tallies.sum::<usize>()
                + self
                    .counts
                    .iter()
                    .map(ConstraintCounts::bytes)
                    .sum::<usize>(),
        }
    }

    fn write_classes(&self, nodes: &[Slot], classes: &mut [i64]) {
        for (counts, classes) in self.counts.iter().zip(classes.chunks_mut(nodes.len())) {
            let tally = &self.tallies[counts.tally];
            for (node, class) in nodes.iter().zip(classes) {
                *class = counts.class(*node, tally.count(*node));
            }
        }
    }

    fn filter(&self, class: &[i64]) -> Result<(), Status> {
        let mut hard = self.counts[..self.hard].iter().zip(class);
        hard.try_for_each(|(hard, class)| hard.filter(*class))
    }

    fn score(&self, classes: &[FeasibleClass<'_>], scores: &mut [i64]) -> bool {
        if self.soft().is_empty() {
            // PreScore skips pods without soft constraints (PL-106).
            return false;
        }
        let scoring = classes
            .iter()
            .filter(|feasible| self.scoring(feasible.class).is_some());
        // Each scored host is a domain.
        let hosts = scoring.map(|feasible| feasible.nodes).sum();
        let weights: SmallVec<[f64; 4]> = (0..)
            .zip(self.soft())
            .map(|(at, soft)| {
                if soft.is_per_host() {
                    return weight(hosts);
                }
                let among = classes
                    .iter()
                    .filter_map(|feasible| self.scoring(feasible.class));
                weight(soft.domains_among(among.map(|class| class[at])))
            })
            .collect();
        let (mut least, mut greatest) = (i64::MAX, i64::MIN);
        for (feasible, score) in classes.iter().zip(scores.iter_mut()) {
            if let Some(class) = self.scoring(feasible.class) {
                *score = self.raw_score(class, &weights);
                least = least.min(*score);
                greatest = greatest.max(*score);
            }
        }
        // The normalization needs the extremes of all feasible classes.
        for (feasible, score) in classes.iter().zip(scores) {
            *score = match self.scoring(feasible.class) {
                Some(_) => normalized(*score, least, greatest),
                None => 0,
            };
        }
        true
    }

    fn concerns(&self, _cx: &Context<'_>, pod: &PodInfo) -> bool {
        // A pod that is only supposed to be there counts even while it is being deleted (see `PreFilterState::change`).
        let is_ours = pod.pod.namespace() == self.pod.pod.namespace();
        let hard = self.counts[..self.hard].iter();
        let of_hard = hard.map(|hard| &hard.constraint.selector);
        let of_tallies = self.tallies.iter().map(|tally| &tally.selector);
        let mut selectors = of_hard.chain(of_tallies);
        is_ours && selectors.any(|selector| selector.matches(pod.pod.labels()))
    }

    fn filter_with(
        &mut self,
        _cx: &Context<'_>,
        node: Slot,
        pods: &[Arc<PodInfo>],
    ) -> Option<Result<(), Status>> {
        let namespace = self.pod.pod.namespace();
        let others = pods.iter().map(|other| &other.pod);
        let others = others.filter(|other| other.namespace() == namespace);
        let mut changed = Vec::new();
        let mut result = Ok(());
        for hard in &mut self.counts[..self.hard] {
            // Also pods that are being deleted, as in `PreFilterState::change`.
            let selector = &hard.constraint.selector;
            let matching = others.clone().filter(|o| selector.matches(o.labels()));
            let added = i64::try_from(matching.count()).unwrap_or(i64::MAX);
            hard.pods_moved(node, added, &mut changed);
            let class = hard.class(node, 0);
            result = result.and_then(|()| hard.filter(class));
            hard.pods_moved(node, -added, &mut changed);
        }
        Some(result)
    }
}

impl PodTopologySpread {
    /// The hard and the soft constraints of a pod.
    fn both(&self, cx: &Context<'_>, pod: &Pod) -> Result<[Vec<Constraint>; 2], SelectorError> {
        let of = |action| self.constraints(cx.cluster, cx.features, pod, action);
        Ok([of(DO_NOT_SCHEDULE)?, of(SCHEDULE_ANYWAY)?])
    }
}

impl Domains for PodTopologySpread {
    /// The constraints with resolved selectors, so that a change of services leads to another fragment, and the values
    /// that the node inclusion policies read, if a constraint has such policies.
    fn fragment(&self, cx: &Context<'_>, pod: &PodInfo, fragment: &mut Fragment) -> Kept {
        let pod = &pod.pod;
        let Ok([hard, soft]) = self.both(cx, pod) else {
            return Kept::Never;
        };
        let has_any = !hard.is_empty() || !soft.is_empty();
        fragment.put(&has_any);
        if !has_any {
            return Kept::ByFragment;
        }
        fragment.put(pod.namespace());
        fragment.put(&hard[..]);
        fragment.put(&soft[..]);
        for constraint in &hard {
            fragment.put(&constraint.selector.matches(pod.labels()));
        }
        fragment.put(&self.wants_all_keys(pod));
        let any = |of: fn(&Constraint) -> bool| hard.iter().chain(&soft).any(of);
        if any(|constraint| constraint.honor_affinity) {
            let affinity = pod.spec.affinity.as_ref();
            let affinity = affinity.and_then(|affinity| affinity.node_affinity.as_ref());
            fragment.put(&pod.spec.node_selector);
            fragment.put(&affinity.and_then(|affinity| affinity.required.as_ref()));
        }
        if any(|constraint| constraint.honor_taints) {
            fragment.put(&pod.spec.tolerations);
        }
        Kept::ByFragment
    }

    fn open(&self, cx: &Context<'_>, pod: &Arc<PodInfo>) -> Option<Box<dyn Ledger>> {
        let both = self.both(cx, &pod.pod).ok()?;
        if both.iter().all(Vec::is_empty) {
            return None;
        }
        let all_keys = self.wants_all_keys(&pod.pod);
        Some(Box::new(SpreadLedger::new(cx, pod, both, all_keys)))
    }
}
