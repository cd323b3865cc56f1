//! The results of dry runs by node, and the search among them.
//!
//! The results are kept for the pods of a shape, so there is one dry run per node and change. Nodes are in blocks of 64
//! with sums and the cheapest candidates: a search that compares a tenth of 100,000 nodes reads about 200 blocks.

use super::victims::{DryRunVictims, started};
use berth_api::{Str, Time};
use berth_framework::{Slot, Status};
use std::cmp::Reverse;

/// The failure of a dry run on a node.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum NodeError {
    /// No pod would have to be evicted.
    #[error("expected at least one victim pod on node {0:?}")]
    NoVictims(Str),
    /// A plugin failed.
    #[error("{0}")]
    Failed(String),
}

/// The number of nodes that are in a block.
const BLOCK: usize = 64;

/// The cost of a candidate; the least is chosen. The parts are compared one after another, the name of the node last,
/// so that a run can be repeated.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Cost {
    violations: usize,
    highest_priority: i32,
    /// The sum of the victims' priorities, each with an offset so that the lowest is zero.
    sum_of_priorities: i64,
    victims: usize,
    /// A later start of the oldest of the most important victims is better.
    earliest_start: Reverse<Time>,
    node: Str,
}

impl Cost {
    pub(super) fn of(victims: &DryRunVictims, node: &Str) -> Self {
        let pods = &victims.pods;
        let highest = pods.first().map_or(i32::MIN, |first| first.pod.priority());
        let starts = pods
            .iter()
            .filter(|victim| victim.pod.priority() == highest)
            .map(|victim| started(&victim.pod));
        let sum = pods
            .iter()
            .map(|victim| i64::from(victim.pod.priority()) - i64::from(i32::MIN));
        Self {
            violations: victims.violations,
            highest_priority: highest,
            sum_of_priorities: sum.fold(0, i64::saturating_add),
            victims: pods.len(),
            earliest_start: Reverse(starts.min().unwrap_or(Time::MAX)),
            node: node.clone(),
        }
    }
}

/// The state of a node.
#[derive(Debug)]
enum NodeState {
    /// The filters state that no eviction helps.
    RuledOut,
    /// No dry run since the last change of the node.
    Unknown,
    /// Preemption does not help, for the reason with this index.
    Hopeless(usize),
    Candidate(Box<(Cost, DryRunVictims)>),
}

/// The sums of a block.
#[derive(Debug, Clone, Copy, Default)]
struct Block {
    /// The nodes that are not ruled out.
    potential: usize,
    /// The other fields have to be computed again.
    is_old: bool,
    unknown: usize,
    /// The number of candidates without and with budget violations.
    counts: [usize; 2],
    cheapest: [Option<usize>; 2],
}

/// The results by node.
#[derive(Debug, Default)]
pub(super) struct Results {
    nodes: Vec<NodeState>,
    blocks: Vec<Block>,
    potential: usize,
    /// The reason why preemption does not help, with the number of nodes.
    hopeless: Vec<(Status, usize)>,
}

/// The candidates that a search has found, by whether they violate budgets.
#[derive(Debug, Default)]
struct CandidateRange {
    enough: usize,
    counts: [usize; 2],
    cheapest: [Option<usize>; 2],
}

impl CandidateRange {
    /// Returns whether there are enough candidates, including one without budget violations.
    fn is_enough(&self) -> bool {
        self.counts[0] > 0 && self.counts[0] + self.counts[1] >= self.enough
    }

    /// Returns whether the search covers the whole block, so that its sums can be used: either all its candidates
    /// count, or enough candidates with violations were found before and no further ones count.
    fn takes(&self, block: &Block) -> bool {
        let [within, violating] = [0, 1].map(|at| self.counts[at] + block.counts[at]);
        let is_full = self.counts[1] >= self.enough;
        block.unknown == 0
            && (within + violating < self.enough
                || (within == 0 && (is_full || violating <= self.enough)))
    }
}

impl Results {
    /// A node has changed. `may_help` states whether the filters leave room for preemption.
    pub(super) fn changed(&mut self, node: Slot, may_help: bool) {
        let state = if may_help {
            NodeState::Unknown
        } else {
            NodeState::RuledOut
        };
        self.set(node.index(), state);
    }

    /// The number of nodes that are not ruled out.
    pub(super) fn potential(&self) -> usize {
        self.potential
    }

    /// The reason why preemption does not help on nodes that are not ruled out, with the number of nodes.
    pub(super) fn hopeless(&self) -> impl Iterator<Item = (Status, usize)> + '_ {
        let reasons = self.hopeless.iter().filter(|(_, nodes)| *nodes > 0);
        reasons.cloned()
    }

    /// Searches from the `start`th node that is not ruled out, until there are `enough` candidates, including one
    /// without budget violations. Returns the cheapest candidate, or with `all` every candidate, candidates without
    /// violations first. `dry_run` is called for nodes without a known result; a result that cannot be kept is an
    /// error.
    pub(super) fn search(
        &mut self,
        start: usize,
        enough: usize,
        all: bool,
        mut dry_run: impl FnMut(Slot) -> Result<(Str, Result<DryRunVictims, Status>), NodeError>,
        errors: &mut Vec<NodeError>,
    ) -> Vec<(Slot, DryRunVictims)> {
        let mut range = CandidateRange {
            enough,
            ..CandidateRange::default()
        };
        let mut listed: [Vec<usize>; 2] = Default::default();
        let first = self.nth_potential(start);
        // From the start to the end, then from the first node to the start (P-9).
        'search: for (mut at, end) in [(first, self.nodes.len()), (0, first)] {
            while at < end {
                if range.is_enough() {
                    break 'search;
                }
                // A block with known results is added by its sums, without visiting its nodes. With `all`, each
                // candidate is needed.
                if at % BLOCK == 0 && at + BLOCK <= end && !all {
                    let block = self.block(at / BLOCK);
                    if range.takes(&block) {
                        for kind in [0, 1] {
                            if range.counts[kind] < enough {
                                range.counts[kind] += block.counts[kind];
                                range.cheapest[kind] =
                                    self.cheaper(range.cheapest[kind], block.cheapest[kind]);
                            }
                        }
                        at += BLOCK;
                        continue;
                    }
                }
                if let NodeState::Unknown = self.nodes[at] {
                    match dry_run(Slot::from_index(at as u32)) {
                        Ok((name, Ok(victims))) => {
                            let cost = Cost::of(&victims, &name);
                            self.set(at, NodeState::Candidate(Box::new((cost, victims))));
                        }
                        Ok((_, Err(status))) => {
                            let reason = self.reason(status);
                            self.set(at, NodeState::Hopeless(reason));
                        }
                        Err(error) => errors.push(error),
                    }
                }
                if let NodeState::Candidate(candidate) = &self.nodes[at] {
                    let kind = usize::from(candidate.1.violations > 0);
                    // At most `enough` candidates of each kind count (P-9).
                    if range.counts[kind] < enough {
                        range.counts[kind] += 1;
                        range.cheapest[kind] = self.cheaper(range.cheapest[kind], Some(at));
                        listed[kind].push(at);
                    }
                }
                at += 1;
            }
        }
        let [within, violating] = range.cheapest;
        let chosen: Vec<usize> = if all {
            listed.concat()
        } else {
            // A candidate without violations is better than any other, whatever its cost (P-15).
            within.or(violating).into_iter().collect()
        };
        let victims = chosen.into_iter().filter_map(|at| match &self.nodes[at] {
            NodeState::Candidate(candidate) => {
                Some((Slot::from_index(at as u32), candidate.1.clone()))
            }
            _ => None,
        });
        victims.collect()
    }

    /// The place of the `nth` node that is not ruled out.
    fn nth_potential(&self, nth: usize) -> usize {
        let mut left = nth;
        for (at, block) in self.blocks.iter().enumerate() {
            if left >= block.potential {
                left -= block.potential;
                continue;
            }
            let nodes = (at * BLOCK..).take(BLOCK);
            let mut potential = nodes.filter(|at| !matches!(self.nodes[*at], NodeState::RuledOut));
            return potential.nth(left).unwrap_or_default();
        }
        0
    }

    fn cheaper(&self, one: Option<usize>, other: Option<usize>) -> Option<usize> {
        let cost = |at: &usize| match &self.nodes[*at] {
            NodeState::Candidate(candidate) => Some(&candidate.0),
            _ => None,
        };
        one.into_iter().chain(other).min_by_key(cost)
    }

    /// The sums of a block, computed again if one of its nodes has changed.
    fn block(&mut self, at: usize) -> Block {
        let Block {
            potential, is_old, ..
        } = self.blocks[at];
        if is_old {
            let mut block = Block {
                potential,
                ..Block::default()
            };
            for place in (at * BLOCK..).take(BLOCK) {
                match &self.nodes[place] {
                    NodeState::RuledOut | NodeState::Hopeless(_) => {}
                    NodeState::Unknown => block.unknown += 1,
                    NodeState::Candidate(candidate) => {
                        let kind = usize::from(candidate.1.violations > 0);
                        block.counts[kind] += 1;
                        block.cheapest[kind] = self.cheaper(block.cheapest[kind], Some(place));
                    }
                }
            }
            self.blocks[at] = block;
        }
        self.blocks[at]
    }

    fn reason(&mut self, status: Status) -> usize {
        let known = self.hopeless.iter().position(|(known, _)| *known == status);
        known.unwrap_or_else(|| {
            self.hopeless.push((status, 0));
            self.hopeless.len() - 1
        })
    }

    fn set(&mut self, at: usize, node: NodeState) {
        if at >= self.nodes.len() {
            let blocks = at / BLOCK + 1;
            self.nodes
                .resize_with(blocks * BLOCK, || NodeState::RuledOut);
            self.blocks.resize_with(blocks, Block::default);
        }
        let is_potential = |node: &NodeState| usize::from(!matches!(node, NodeState::RuledOut));
        let comes = is_potential(&node);
        if let NodeState::Hopeless(reason) = node {
            self.hopeless[reason].1 += 1;
        }
        let before = std::mem::replace(&mut self.nodes[at], node);
        if let NodeState::Hopeless(reason) = before {
            self.hopeless[reason].1 -= 1;
        }
        let goes = is_potential(&before);
        self.potential = self.potential + comes - goes;
        let block = &mut self.blocks[at / BLOCK];
        block.potential = block.potential + comes - goes;
        block.is_old = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_framework::PodInfo;
    use std::sync::Arc;

    /// The result of a dry run: a candidate of a certain cost, no help, or an error.
    #[derive(Debug, Clone, Copy, PartialEq)]
    enum Trial {
        RuledOut,
        Helps { priority: i32, violations: usize },
        Hopeless(bool),
        Fails,
    }

    fn trial(rng: &mut fastrand::Rng) -> Trial {
        match rng.u32(..13) {
            0..2 => Trial::RuledOut,
            kind @ 2..10 => Trial::Helps {
                priority: rng.i32(..3),
                violations: if kind < 6 { 0 } else { rng.usize(1..3) },
            },
            10..12 => Trial::Hopeless(rng.bool()),
            _ => Trial::Fails,
        }
    }

    fn victims(priority: i32, violations: usize) -> DryRunVictims {
        let mut pod = berth_api::Pod::default();
        pod.spec.priority = Some(priority);
        DryRunVictims {
            pods: vec![Arc::new(PodInfo::new(Arc::new(pod)))],
            violations,
        }
    }

    fn name_of(at: usize) -> Str {
        format!("n{:03}", at * 7 % 1000).into()
    }

    fn dry_run(
        result: Trial,
        at: usize,
    ) -> Result<(Str, Result<DryRunVictims, Status>), NodeError> {
        match result {
            Trial::Helps {
                priority,
                violations,
            } => Ok((name_of(at), Ok(victims(priority, violations)))),
            Trial::Hopeless(one) => {
                let why = if one { "one" } else { "other" };
                Ok((name_of(at), Err(Status::unresolvable(why))))
            }
            Trial::Fails => Err(NodeError::Failed("fails".to_owned())),
            Trial::RuledOut => panic!("a node that is ruled out is not tried"),
        }
    }

    /// P-8, P-9, P-15 written out directly: one node after another; candidates within budgets first.
    fn plainly(nodes: &[Trial], start: usize, enough: usize) -> Vec<usize> {
        let potential: Vec<usize> = (0..nodes.len())
            .filter(|at| nodes[*at] != Trial::RuledOut)
            .collect();
        let (mut within, mut violating) = (Vec::new(), Vec::new());
        for at in potential[start..].iter().chain(&potential[..start]) {
            if !within.is_empty() && within.len() + violating.len() >= enough {
                break;
            }
            if let Trial::Helps { violations, .. } = nodes[*at] {
                let list = match violations {
                    0 => &mut within,
                    _ => &mut violating,
                };
                if list.len() < enough {
                    list.push(*at);
                }
            }
        }
        [within, violating].concat()
    }

    /// P-8, P-9, P-15: with kept results and blocks the same candidates are found as node by node, and the same one is
    /// chosen, also after nodes have changed.
    #[test]
    fn kept_results_choose_as_a_search_node_by_node() {
        for seed in 0..400 {
            let rng = &mut fastrand::Rng::with_seed(seed);
            let guarded = rng.bool();
            let mut nodes: Vec<Trial> = (0..rng.usize(1..300)).map(|_| trial(rng)).collect();
            if guarded {
                // Few candidates violate no budget, so the search continues past the wanted number.
                nodes.retain(|node| !matches!(node, Trial::Helps { violations: 0, .. }));
            }
            let mut results = Results::default();
            for (at, node) in nodes.iter().enumerate() {
                results.changed(Slot::from_index(at as u32), *node != Trial::RuledOut);
            }
            for round in 0..8 {
                for _ in 0..rng.usize(..4) {
                    let Some(at) = (!nodes.is_empty()).then(|| rng.usize(..nodes.len())) else {
                        continue;
                    };
                    nodes[at] = trial(rng);
                    let may_help = nodes[at] != Trial::RuledOut;
                    results.changed(Slot::from_index(at as u32), may_help);
                }
                let case = format!("seed {seed}, round {round}");
                let is_potential = |node: &&Trial| **node != Trial::RuledOut;
                let potential = nodes.iter().filter(is_potential).count();
                assert_eq!(results.potential(), potential, "{case}");
                if potential == 0 {
                    continue;
                }
                let (start, enough) = (rng.usize(..potential), rng.usize(1..200));
                let expected = plainly(&nodes, start, enough);
                let cheapest = expected.iter().min_by_key(|at| match nodes[**at] {
                    Trial::Helps {
                        priority,
                        violations,
                    } => Cost::of(&victims(priority, violations), &name_of(**at)),
                    other => panic!("{other:?} is no candidate"),
                });
                for all in [false, true] {
                    let run = |slot: Slot| dry_run(nodes[slot.index()], slot.index());
                    let found = results.search(start, enough, all, run, &mut Vec::new());
                    let found: Vec<usize> = found.iter().map(|(slot, _)| slot.index()).collect();
                    if all {
                        assert_eq!(found, expected, "{case}")
                    } else {
                        assert_eq!(found.first(), cheapest, "{case}")
                    }
                }
                if expected.is_empty() {
                    let hopeless = nodes.iter().filter(|n| matches!(n, Trial::Hopeless(_)));
                    let counted: usize = results.hopeless().map(|(_, nodes)| nodes).sum();
                    assert_eq!(counted, hopeless.count(), "{case}");
                }
            }
        }
    }
}
