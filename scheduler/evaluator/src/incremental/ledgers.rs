//! The ledgers of the plugins that judge by topology domains, for all pods with one fragment of theirs.

use super::cell::Rejection;
use super::column::neutral;
use super::plan::{Plan, Unkeepable};
use super::scratch::Scratch;
use crate::Evaluator;
use berth_framework::keep::{Ledger, LedgerChange};
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
#[derive(Debug, Default)]
pub(super) struct Ledgers {
    pub(super) all: Vec<OpenLedger>,
    /// The position in the changes of the table.
    seen: u64,
}

impl Ledgers {
    /// Counts domains for the evaluator's pod.
    pub(super) fn open(evaluator: &Evaluator<'_>, plan: &Plan) -> Self {
        let cx = evaluator.context();
        let pod = neutral(evaluator.pod);
        let mut start = 0;
        let opened = plan.domains.iter().enumerate().filter_map(|(member, of)| {
            let ledger = of.plugin.open(&cx, &pod)?;
            let numbers = start..start + ledger.state().class_len;
            start = numbers.end;
            Some(OpenLedger {
                member,
                ledger,
                numbers,
            })
        });
        Self {
            all: opened.collect(),
            seen: cx.cluster.nodes.log().end(),
        }
    }

    /// Passes on the changes of the table, and notes the nodes whose numbers may have changed. After an error the ledgers
    /// must not be used again.
    pub(super) fn follow(
        &mut self,
        evaluator: &Evaluator<'_>,
        scratch: &mut Scratch,
    ) -> Result<(), Unkeepable> {
        let cx = evaluator.context();
        let log = cx.cluster.nodes.log();
        if self.seen == log.end() || self.all.is_empty() {
            return Ok(());
        }
        for change in log.since(self.seen).ok_or(Unkeepable)? {
            if let TableChange::Node(slot) = change {
                scratch.note_changed(*slot);
            }
        }
        let mut moved = Vec::new();
        for of in &mut self.all {
            for (signatures, change) in log.with_signatures_since(self.seen).ok_or(Unkeepable)? {
                let (slot, pod, is_added) = match change {
                    TableChange::PodAdded(slot, pod) => (*slot, pod, true),
                    TableChange::PodRemoved(slot, pod) => (*slot, pod, false),
                    TableChange::Node(_) | TableChange::Storage(_) | TableChange::Claim { .. } => {
                        continue;
                    }
                };
                // A changed node is counted again as a whole.
                if !scratch.has_changed(slot) {
                    let change = LedgerChange::Pod {
                        pod,
                        signatures,
                        is_added,
                    };
                    of.ledger.follow(&cx, slot, change, &mut moved);
                }
            }
            for slot in scratch.noted() {
                of.ledger.follow(&cx, *slot, LedgerChange::Node, &mut moved);
            }
            if of.ledger.state().is_stale {
                return Err(Unkeepable);
            }
        }
        self.seen = log.end();
        for slot in moved {
            scratch.note(slot);
        }
        Ok(())
    }

    /// The number of numbers of a node.
    pub(super) fn class_len(&self) -> usize {
        self.all.last().map_or(0, |last| last.numbers.end)
    }

    /// Writes the numbers of nodes: number `k` of the node at place `n` to `classes[k * nodes.len() + n]`.
    pub(super) fn write_classes(&self, nodes: &[Slot], classes: &mut [i64]) {
        for of in &self.all {
            let numbers = of.numbers.start * nodes.len()..of.numbers.end * nodes.len();
            of.ledger.write_classes(nodes, &mut classes[numbers]);
        }
    }

    /// The rejection by the first filter that rejects the nodes with these numbers.
    pub(super) fn rejection(&self, plan: &Plan, numbers: &[i64]) -> Option<Rejection> {
        let rejections = self.all.iter().filter_map(|of| {
            let member = &plan.domains[of.member];
            let filter = member.filter?;
            let status = of.ledger.filter(&numbers[of.numbers.clone()]).err()?;
            let status = status.from_plugin(&member.name);
            Some(Rejection { status, filter })
        });
        rejections.min_by_key(|rejection| rejection.filter)
    }

    /// The rejection of a node by the first ledger that rejects it with the pods that are nominated to it (C-18).
    pub(super) fn rejection_with_nominated(
        &mut self,
        evaluator: &Evaluator<'_>,
        plan: &Plan,
        slot: Slot,
    ) -> Result<Option<Rejection>, Unkeepable> {
        let cx = evaluator.context();
        let nominated = evaluator.nominated_to(slot);
        for of in &mut self.all {
            let Some(filter) = plan.domains[of.member].filter else {
                continue;
            };
            let result = of.ledger.filter_with(&cx, slot, &nominated);
            if let Err(status) = result.ok_or(Unkeepable)? {
                return Ok(Some(Rejection { status, filter }));
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

    /// About how much memory they take, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.all.iter().map(|of| of.ledger.state().bytes).sum()
    }
}
