//! Domain counts for constraints, which follow the cluster pod by pod.
//!
//! A node's class is one number per constraint: first of the hard ones, then of the soft ones. For large domains it is
//! the number of the domain, and the count is read when a class is judged, so that a new pod in a zone changes the
//! class of no node. For hosts, and other domains of few nodes, it is the number of their pods: there are few classes
//! for any number of hosts, and a new pod changes the class of its node and of the few others of the domain.

mod hard;
mod places;
mod soft;
#[cfg(test)]
mod tests;

use super::PodTopologySpread;
use super::constraints::{
    Constraint, DO_NOT_SCHEDULE, Inclusion, SCHEDULE_ANYWAY, has_all_keys, is_countable,
};
use super::score::{normalized, weight};
use super::tally::{SelectorTally, Tallies};
use berth_api::Pod;
use berth_api::selector::SelectorError;
use berth_framework::keep::{
    Class, Domains, FeasibleClass, Fragment, Kept, Ledger, LedgerChange, LedgerState,
};
use berth_framework::plugin::Context;
use berth_framework::table::Topology;
use berth_framework::{NodeTable, PodInfo, Slot, Status};
use hard::Hard;
use places::{DomainPlaces, NodeEntry, Number, Place};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use soft::Soft;
use std::sync::Arc;

/// The class of nodes without the label.
const MISSING: i64 = -1;
/// The class, for every soft constraint, of nodes without all of the labels where those do not score.
const IGNORED: i64 = i64::MIN;

/// The state of the node of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Presence {
    /// There is none.
    Absent,
    /// It does not score: it lacks a label of the soft constraints.
    Ignored,
    There,
}

/// The counts for all pods with one fragment.
#[derive(Debug)]
struct SpreadLedger {
    pod: Arc<PodInfo>,
    inclusion: Inclusion,
    /// Whether nodes without all labels of the soft constraints do not score.
    all_keys: bool,
    tallies: SmallVec<[SelectorTally; 1]>,
    hard: Vec<Hard>,
    soft: Vec<Soft>,
    presence: Vec<Presence>,
}

fn topologies(constraints: &[Constraint], nodes: &NodeTable) -> SmallVec<[Arc<Topology>; 2]> {
    let keys = constraints.iter().map(|of| &of.topology_key);
    keys.map(|key| nodes.topology(key)).collect()
}

/// Returns whether a node is in a domain of each.
fn is_in_all(topologies: &[Arc<Topology>], slot: Slot) -> bool {
    let mut topologies = topologies.iter();
    topologies.all(|topology| topology.domain(slot).is_some())
}

impl SpreadLedger {
    fn new(
        cx: &Context<'_>,
        pod: &Arc<PodInfo>,
        hard: Vec<Constraint>,
        soft: Vec<Constraint>,
        all_keys: bool,
    ) -> Self {
        let nodes = &cx.cluster.nodes;
        let inclusion = Inclusion::of(&pod.pod, cx.features);
        let includes = |constraint: &Constraint, slot: Slot| {
            let view = nodes.get(slot);
            view.is_some_and(|view| {
                inclusion
                    .on_node(&pod.pod, view.node())
                    .includes(constraint)
            })
        };
        let mut tallies = Tallies {
            opened: SmallVec::new(),
            places: FxHashMap::default(),
            namespace: pod.pod.namespace(),
            nodes,
        };
        let everywhere = |topologies: &[Arc<Topology>]| {
            let mut topologies = topologies.iter();
            topologies.all(|topology| topology.nodes() == nodes.len())
        };

        let of_hard = topologies(&hard, nodes);
        let in_all = of_hard.len() < 2 || everywhere(&of_hard);
        let mut hard_counts = Vec::with_capacity(hard.len());
        for (constraint, topology) in hard.into_iter().zip(&of_hard) {
            let place = |slot: Slot, number: Number| {
                let is_labelled = number != Topology::NOWHERE;
                let entry = is_labelled.then(|| NodeEntry {
                    number,
                    is_unlabelled: false,
                    counts: is_in_all(&of_hard, slot) && includes(&constraint, slot),
                });
                entry.as_ref().map_or(Place::NOWHERE, Place::of)
            };
            let is_plain = in_all && inclusion.includes_all(&constraint);
            let place_of = (!is_plain).then_some(&place as &dyn Fn(Slot, Number) -> Place);
            let tally = tallies.of(&constraint.counted);
            let places =
                DomainPlaces::open(topology, nodes.slots(), place_of, tallies.counts(tally));
            let own = constraint.selector.matches(pod.pod.labels());
            hard_counts.push(Hard::new(constraint, tally, own, places));
        }

        let of_soft = topologies(&soft, nodes);
        let in_all = everywhere(&of_soft);
        let presence_of = |slot: Slot| match nodes.is_node()[slot.index()] {
            false => Presence::Absent,
            true if !all_keys || in_all || is_in_all(&of_soft, slot) => Presence::There,
            true => Presence::Ignored,
        };
        let slots = (0..).map(Slot::from_index).take(nodes.slots());
        let presence: Vec<Presence> = slots.map(presence_of).collect();
        let mut soft_counts = Vec::with_capacity(soft.len());
        for (constraint, topology) in soft.into_iter().zip(&of_soft) {
            let place = |slot: Slot, number: Number| {
                let is_unlabelled = number == Topology::NOWHERE;
                let is_there = presence[slot.index()] == Presence::There;
                let entry = is_there.then(|| NodeEntry {
                    number: if is_unlabelled {
                        Topology::EMPTY
                    } else {
                        number
                    },
                    is_unlabelled,
                    counts: includes(&constraint, slot),
                });
                entry.as_ref().map_or(Place::NOWHERE, Place::of)
            };
            let is_plain = in_all && inclusion.includes_all(&constraint);
            let place_of = (!is_plain).then_some(&place as &dyn Fn(Slot, Number) -> Place);
            let tally = tallies.of(&constraint.counted);
            let places =
                || DomainPlaces::open(topology, nodes.slots(), place_of, tallies.counts(tally));
            soft_counts.push(Soft::new(constraint.clone(), tally, topology, places));
        }

        let tallies = tallies.opened.into_iter().map(|(tally, _)| tally).collect();
        let mut ledger = Self {
            pod: pod.clone(),
            inclusion,
            all_keys,
            tallies,
            hard: hard_counts,
            soft: soft_counts,
            presence,
        };
        ledger.grow(nodes.slots());
        ledger
    }

    fn grow(&mut self, slots: usize) {
        if self.presence.len() < slots {
            self.presence.resize(slots, Presence::Absent);
        }
        for tally in &mut self.tallies {
            if tally.counts.len() < slots {
                tally.counts.resize(slots, 0);
            }
        }
        for hard in &mut self.hard {
            hard.grow(slots);
        }
        for soft in &mut self.soft {
            soft.grow(slots);
        }
    }

    fn presence(&self, slot: Slot) -> Presence {
        let known = self.presence.get(slot.index());
        known.copied().unwrap_or(Presence::Absent)
    }

    /// By tally: whether the pod counts.
    fn counted(&self, pod: &Pod) -> SmallVec<[bool; 8]> {
        if !is_countable(pod, self.pod.pod.namespace()) {
            return SmallVec::new();
        }
        let tallies = self.tallies.iter();
        tallies.map(|tally| tally.matches(pod.labels())).collect()
    }

    fn raw_score(&self, class: &[i64], weights: &[f64]) -> i64 {
        let mut score = 0.0;
        for ((soft, class), weight) in self.soft.iter().zip(class).zip(weights) {
            if let Some(count) = soft.count(*class) {
                score += soft.constraint.cost(count, *weight);
            }
        }
        score.round() as i64
    }

    /// The numbers of the soft constraints; nothing for nodes that do not score.
    fn scoring<'a>(&self, class: &'a [i64]) -> Option<&'a [i64]> {
        let class = class.get(self.hard.len()..)?;
        (class.first() != Some(&IGNORED)).then_some(class)
    }
}

impl SpreadLedger {
    /// Counts pods that were added to a node (`pods` is 1) or removed (-1).
    fn pod_moved(&mut self, node: Slot, pod: &PodInfo, pods: i32, changed: &mut Vec<Slot>) {
        if self.presence(node) == Presence::Absent {
            return;
        }
        let counted = self.counted(&pod.pod);
        if !counted.contains(&true) {
            return;
        }
        for (tally, counted) in self.tallies.iter_mut().zip(&counted) {
            if *counted {
                let count = &mut tally.counts[node.index()];
                *count = count.saturating_add_signed(pods);
            }
        }
        let pods = i64::from(pods);
        let mut is_changed = false;
        for hard in self.hard.iter_mut().filter(|hard| counted[hard.tally]) {
            is_changed |= hard.pod_moved(node, pods, changed);
        }
        for soft in self.soft.iter_mut().filter(|soft| counted[soft.tally]) {
            is_changed |= soft.pod_moved(node, pods);
        }
        if is_changed {
            changed.push(node);
        }
    }

    /// Counts all pods of a node again.
    fn node_changed(&mut self, cx: &Context<'_>, node: Slot, changed: &mut Vec<Slot>) {
        self.grow(node.index() + 1);
        let before: SmallVec<[i64; 4]> = self.tallies.iter().map(|t| t.count(node)).collect();
        for tally in &mut self.tallies {
            tally.counts[node.index()] = 0;
        }
        let view = cx.cluster.nodes.get(node);
        for other in view.iter().flat_map(|view| view.pods()) {
            let counted = self.counted(&other.pod);
            for (tally, counted) in self.tallies.iter_mut().zip(counted) {
                tally.counts[node.index()] += u32::from(counted);
            }
        }
        let (inclusion, pod) = (&self.inclusion, &self.pod.pod);
        let included = view.map(|view| inclusion.on_node(pod, view.node()));
        let entry = |constraint: &Constraint, in_all: bool, unlabelled_too: bool| {
            let included = included.as_ref()?;
            let topology = cx.cluster.nodes.topology(&constraint.topology_key);
            let number = topology.domain(node);
            Some(NodeEntry {
                number: number.or(unlabelled_too.then_some(Topology::EMPTY))?,
                is_unlabelled: number.is_none(),
                counts: in_all && included.includes(constraint),
            })
        };
        let in_all = view.is_some_and(|view| {
            let constraints = self.hard.iter().map(|hard| &hard.constraint);
            has_all_keys(constraints, view.labels())
        });
        for hard in &mut self.hard {
            let entry = entry(&hard.constraint, in_all, false);
            let after = self.tallies[hard.tally].count(node);
            hard.node_changed(node, entry, before[hard.tally], after, changed);
        }
        let scores = view.is_some_and(|view| {
            let constraints = self.soft.iter().map(|soft| &soft.constraint);
            !self.all_keys || has_all_keys(constraints, view.labels())
        });
        for soft in &mut self.soft {
            let entry = entry(&soft.constraint, true, !self.all_keys).filter(|_| scores);
            let after = self.tallies[soft.tally].count(node);
            soft.node_changed(node, entry, before[soft.tally], after);
        }
        self.presence[node.index()] = match view {
            None => Presence::Absent,
            Some(_) if scores => Presence::There,
            Some(_) => Presence::Ignored,
        };
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
            is_indifferent: false,
            is_stale: false,
            bytes: size_of::<Self>()
                + tallies.sum::<usize>()
                + self.hard.iter().map(Hard::bytes).sum::<usize>()
                + self.soft.iter().map(Soft::bytes).sum::<usize>()
                + self.presence.capacity(),
        }
    }

    fn class(&self, node: Slot, class: &mut Class) {
        class.extend(self.hard.iter().map(|hard| hard.class(node)));
        let scores = self.presence(node) == Presence::There;
        class.extend(self.soft.iter().map(|soft| {
            if scores {
                soft.class(node, self.tallies[soft.tally].count(node))
            } else {
                IGNORED
            }
        }));
    }

    fn filter(&self, class: &[i64]) -> Result<(), Status> {
        let mut hard = self.hard.iter().zip(class);
        hard.try_for_each(|(hard, class)| hard.filter(*class))
    }

    fn score(&self, classes: &[FeasibleClass<'_>], scores: &mut [i64]) -> bool {
        if self.soft.is_empty() {
            return false;
        }
        let scoring = classes
            .iter()
            .filter(|feasible| self.scoring(feasible.class).is_some());
        let hosts = scoring.map(|feasible| feasible.nodes).sum();
        let weights: SmallVec<[f64; 4]> = (0..)
            .zip(&self.soft)
            .map(|(at, soft)| {
                if soft.is_per_host() {
                    return weight(hosts);
                }
                let among = classes
                    .iter()
                    .filter_map(|feasible| self.scoring(feasible.class));
                weight(soft.domains(among.map(|class| class[at])))
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
        let of_hard = self.hard.iter().map(|hard| &hard.constraint.selector);
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
        for hard in &mut self.hard {
            // Also pods that are being deleted, as in `PreFilterState::change`.
            let selector = &hard.constraint.selector;
            let matching = others.clone().filter(|o| selector.matches(o.labels()));
            let added = i64::try_from(matching.count()).unwrap_or(i64::MAX);
            hard.pod_moved(node, added, &mut changed);
            let class = hard.class(node);
            result = result.and_then(|()| hard.filter(class));
            hard.pod_moved(node, -added, &mut changed);
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
    /// The constraints with their selectors resolved, so that other services make another fragment; and what the
    /// policies look at, where a constraint has such.
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
        let [hard, soft] = self.both(cx, &pod.pod).ok()?;
        if hard.is_empty() && soft.is_empty() {
            return None;
        }
        let all_keys = self.wants_all_keys(&pod.pod);
        Some(Box::new(SpreadLedger::new(cx, pod, hard, soft, all_keys)))
    }
}
