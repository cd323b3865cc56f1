//! The ledgers of the plugins that judge by topology domains, for all pods with one fragment of theirs.

use super::changes::Changes;
use super::node_answers::{Known, neutral};
use super::plan::{Plan, Unkeepable};
use super::scratch::{Note, Scratch};
use super::store::Keepable;
use crate::Evaluator;
use berth_framework::keep::{Class, Ledger, LedgerChange, LedgerState};
use berth_framework::plugin::Context;
use berth_framework::table::TableChange;
use berth_framework::{PodInfo, Slot};
use std::ops::Range;

/// A ledger with its plugin's place among the plan's.
#[derive(Debug)]
pub(super) struct OpenLedger {
    pub(super) member: usize,
    pub(super) ledger: Box<dyn Ledger>,
    /// The numbers of the ledger among those of all.
    pub(super) numbers: Range<usize>,
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Ledgers {
    /// Never given to other ledgers; zero if no ledger was opened.
    pub(super) id: u64,
    pub(super) all: Vec<OpenLedger>,
    /// The position in the changes of the table.
    seen: u64,
    /// The nodes whose numbers may have changed.
    pub(super) changes: Changes,
}

impl Ledgers {
    /// Counts domains for the evaluator's pod.
    pub(super) fn open(id: u64, evaluator: &Evaluator<'_>, plan: &Plan) -> Self {
        let cx = evaluator.context();
        let pod = neutral(evaluator.pod);
        let mut numbers = Class::new();
        let opened = plan.domains.iter().enumerate().filter_map(|(member, of)| {
            let ledger = of.plugin.open(&cx, &pod)?;
            let start = numbers.len();
            ledger.class(cx.cluster.nodes.occupied().next()?, &mut numbers);
            Some(OpenLedger {
                member,
                ledger,
                numbers: start..numbers.len(),
            })
        });
        let all: Vec<OpenLedger> = opened.collect();
        Self {
            id: if all.is_empty() { 0 } else { id },
            all,
            seen: cx.cluster.nodes.log().end(),
            changes: Changes::default(),
        }
    }

    /// Passes on the changes of the table. After an error the ledgers must not be used again.
    pub(super) fn catch_up(
        &mut self,
        evaluator: &Evaluator<'_>,
        scratch: &mut Scratch,
    ) -> Result<(), Unkeepable> {
        let cx = evaluator.context();
        let log = cx.cluster.nodes.log();
        if self.seen == log.end() || self.all.is_empty() {
            return Ok(());
        }
        scratch.begin(cx.cluster.nodes.slots());
        if log.has_node_change(self.seen) {
            for change in log.since(self.seen).ok_or(Unkeepable)? {
                if let TableChange::Node(slot) = change {
                    scratch.note(*slot, Note::Node);
                }
            }
        }
        for of in &mut self.all {
            of.follow(&cx, self.seen, scratch)?;
        }
        self.seen = log.end();
        for slot in scratch.noted() {
            self.changes.push(*slot);
        }
        Ok(())
    }

    /// Returns whether all nodes have the same numbers now.
    pub(super) fn are_uniform(&self) -> bool {
        self.all.iter().all(|of| of.ledger.state().is_uniform)
    }

    /// Appends the numbers of a node.
    pub(super) fn class(&self, slot: Slot, class: &mut Class) {
        for of in &self.all {
            of.ledger.class(slot, class);
        }
    }

    /// The answer of the first filter that rejects the nodes with these numbers.
    pub(super) fn rejection(&self, plan: &Plan, numbers: &[i64]) -> Option<Known> {
        let rejections = self.all.iter().filter_map(|of| {
            let member = &plan.domains[of.member];
            let filter = member.filter?;
            let status = of.ledger.filter(&numbers[of.numbers.clone()]).err()?;
            Some(Known {
                status: status.from_plugin(&member.name),
                filter,
            })
        });
        rejections.min_by_key(|known| known.filter)
    }

    /// The answer of the first ledger that rejects a node with the pods that are nominated to it (C-18).
    pub(super) fn rejection_with_nominated(
        &mut self,
        evaluator: &Evaluator<'_>,
        plan: &Plan,
        slot: Slot,
    ) -> Result<Option<Known>, Unkeepable> {
        let cx = evaluator.context();
        let nominated = evaluator.nominated_to(slot);
        for of in &mut self.all {
            let Some(filter) = plan.domains[of.member].filter else {
                continue;
            };
            let result = of.ledger.filter_with(&cx, slot, &nominated);
            if let Err(status) = result.ok_or(Unkeepable)? {
                return Ok(Some(Known { status, filter }));
            }
        }
        Ok(None)
    }

    /// Returns whether a pod would change an answer if it were added to some node.
    pub(super) fn concern(&self, cx: &Context<'_>, pod: &PodInfo) -> bool {
        self.all.iter().any(|of| of.ledger.concerns(cx, pod))
    }

    /// Returns whether the plugins accept every node and prefer none, also if any of the current pods were removed.
    pub(super) fn are_indifferent(&self) -> bool {
        self.all.iter().all(|of| of.ledger.state().is_indifferent)
    }
}

impl Keepable for Ledgers {
    fn bytes(&self) -> usize {
        let ledgers = self.all.iter().map(|of| of.ledger.state().bytes);
        size_of::<Self>() + ledgers.sum::<usize>() + self.changes.bytes()
    }
}

impl OpenLedger {
    /// Passes the changes since `seen` to the ledger, and notes the nodes whose numbers may have changed. The nodes
    /// that have changed themselves are noted already: each is counted anew, as it is by now.
    fn follow(
        &mut self,
        cx: &Context<'_>,
        seen: u64,
        scratch: &mut Scratch,
    ) -> Result<(), Unkeepable> {
        let mut moved = std::mem::take(&mut scratch.moved);
        moved.clear();
        let changes = cx.cluster.nodes.log().with_marks_since(seen);
        for (marks, change) in changes.ok_or(Unkeepable)? {
            let (slot, pod, is_added) = match change {
                TableChange::PodAdded(slot, pod) => (*slot, pod, true),
                TableChange::PodRemoved(slot, pod) => (*slot, pod, false),
                TableChange::Node(_) | TableChange::Storage(_) | TableChange::Claim { .. } => {
                    continue;
                }
            };
            if scratch.note_of(slot) != Note::Node {
                let change = LedgerChange::Pod {
                    pod,
                    marks,
                    is_added,
                };
                self.ledger.follow(cx, slot, change, &mut moved);
            }
        }
        for slot in scratch.noted() {
            if scratch.note_of(*slot) == Note::Node {
                self.ledger
                    .follow(cx, *slot, LedgerChange::Node, &mut moved);
            }
        }
        for slot in &moved {
            scratch.note(*slot, Note::Answer);
        }
        scratch.moved = moved;
        match self.ledger.state() {
            LedgerState { is_stale: true, .. } => Err(Unkeepable),
            _ => Ok(()),
        }
    }
}
