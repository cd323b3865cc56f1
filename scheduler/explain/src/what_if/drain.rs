//! Draining nodes, and finding nodes that are not needed.

use super::{CopiedObjects, DisplacedPod, Fate, PlacedPod, Rebalance, WhatIfReport, WhatIfWorld};
use crate::spread::{WorkloadSpread, spreads};
use berth_api::resources::{CPU, MEMORY};
use berth_api::{Node, Object, Pod, PodDisruptionBudget, Selector, Str};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The number of nodes that are tried in a consolidation.
pub const CONSOLIDATION_NODES_MAX: usize = 500;

impl WhatIfWorld {
    /// Cordons a node and evicts its pods in sequence, as `kubectl drain` does: pods of a DaemonSet and static pods
    /// stay, pods without a controller block the drain, and a pod is evicted only while its disruption budgets allow
    /// it. A replacement counts as available once it has a node. Returns each pod of the node with its end.
    pub fn drain(&mut self, name: &str) -> Vec<DisplacedPod> {
        if let Some(node) = self.scheduler().cache().node(name) {
            let mut node = Node::clone(node);
            node.spec.unschedulable = true;
            self.engine.set(Object::Node(Arc::new(node)));
        }
        let on_node = self.pods().filter(|pod| pod.spec.node_name == *name);
        let mut on_node: Vec<Arc<Pod>> = on_node.cloned().collect();
        on_node.sort_by_cached_key(|pod| (pod.namespace().clone(), pod.name().clone()));
        let pods = on_node.iter().map(|pod| self.move_away(pod, name));
        pods.collect()
    }

    /// Deletes the pods that workloads have to lose to restore their allowed skew, and lets their replacements be
    /// scheduled. Disruption budgets and pods without a controller are respected as in a drain. Returns the initial
    /// spreads of all workloads with the skews at the end, and each deleted pod with its end.
    pub fn rebalance(&mut self) -> (Vec<Rebalance>, Vec<DisplacedPod>) {
        let before = spreads(self.scheduler().cache().cluster());
        let mut displaced = Vec::new();
        for name in before.iter().flat_map(|spread| &spread.surplus) {
            // Another constraint of the same workload may have moved it already.
            let is_moved = displaced
                .iter()
                .any(|moved: &DisplacedPod| moved.pod == *name);
            if let Some(pod) = self.pod(name).cloned()
                && !is_moved
            {
                let from = pod.spec.node_name.to_string();
                displaced.push(self.move_away(&pod, &from));
            }
        }
        let after = spreads(self.scheduler().cache().cluster());
        let skew_of = |of: &WorkloadSpread| {
            let is_same = |other: &&WorkloadSpread| {
                (&other.workload, &other.topology_key) == (&of.workload, &of.topology_key)
            };
            after
                .iter()
                .find(is_same)
                .map_or(0, |spread| spread.skew_after)
        };
        let rebalanced = before.into_iter().map(|spread| Rebalance {
            skew_rebalanced: skew_of(&spread),
            spread,
        });
        (rebalanced.collect(), displaced)
    }

    /// Evicts a pod from a drained node, and lets its replacement be scheduled.
    fn move_away(&mut self, pod: &Arc<Pod>, from: &str) -> DisplacedPod {
        let end = |fate: Fate, node: Option<String>, reason: String, blocks: bool| DisplacedPod {
            pod: pod.key(),
            from: from.to_owned(),
            fate,
            node,
            reason,
            blocks,
        };
        let stays = |reason: &str, blocks| end(Fate::Stays, None, reason.to_owned(), blocks);
        if pod.is_terminating() {
            // Its controller has replaced it already, and the drain waits for its end.
            self.engine.end_pod(pod.uid());
            let reason = "it is being deleted, and its controller has replaced it".to_owned();
            return end(Fate::Lost, None, reason, false);
        }
        match pod.metadata.controller().map(|owner| owner.kind.as_str()) {
            Some("DaemonSet") => {
                return stays("a pod of a DaemonSet is not evicted by a drain", false);
            }
            Some("Node") => return stays("a static pod is not evicted by a drain", false),
            Some(_) => {}
            None => return stays("it has no controller that would replace it", true),
        }
        if let Some(budget) = self.exhausted_budget(pod) {
            let reason = format!("PodDisruptionBudget {budget} allows no further disruption");
            return stays(&reason, true);
        }
        self.engine.end_pod(pod.uid());
        let mut replacement = Pod::clone(pod);
        replacement.spec.node_name = Str::default();
        replacement.metadata.uid = format!("{}-moved", pod.uid()).into();
        replacement.status = Default::default();
        replacement.status.phase = "Pending".into();
        self.engine.create_claims(&mut replacement);
        self.engine.set(Object::Pod(Arc::new(replacement)));
        self.placed.remove(&pod.key());
        self.run();
        match self.placed.remove(&pod.key()) {
            Some(node) => end(Fate::BoundElsewhere, Some(node), String::new(), false),
            None => {
                self.spend_budgets(pod);
                let reason = self.reason_of(&pod.key());
                let reason = format!("its replacement fits nowhere: {reason}");
                end(Fate::Waiting, None, reason, true)
            }
        }
    }

    /// The reason why a pod waits.
    pub(crate) fn reason_of(&self, pod: &str) -> String {
        let pod = self.pod(pod).filter(|pod| self.waits(pod));
        pod.map_or_else(String::new, |pod| self.reason_for(pod))
    }

    /// Each pod once, with its original node and its current end.
    pub(super) fn settle(&self, displaced: Vec<DisplacedPod>) -> Vec<DisplacedPod> {
        let mut known: BTreeMap<String, usize> = BTreeMap::new();
        let mut settled: Vec<DisplacedPod> = Vec::new();
        for mut pod in displaced {
            match known.get(&pod.pod) {
                // It was moved to a node that was drained later.
                Some(at) => {
                    pod.from = settled[*at].from.clone();
                    settled[*at] = pod;
                }
                None => {
                    known.insert(pod.pod.clone(), settled.len());
                    settled.push(pod);
                }
            }
        }
        for pod in &mut settled {
            if matches!(pod.fate, Fate::BoundElsewhere | Fate::Waiting) {
                self.end_of(pod);
            }
        }
        settled
    }

    fn end_of(&self, displaced: &mut DisplacedPod) {
        let Some(pod) = self.pod(&displaced.pod) else {
            displaced.fate = Fate::Evicted;
            displaced.node = None;
            displaced.reason = "a pod of a higher priority needs its place".to_owned();
            return;
        };
        match pod.spec.node_name.as_str() {
            "" => {
                displaced.fate = Fate::Waiting;
                displaced.node = None;
                if displaced.reason.is_empty() {
                    displaced.reason = self.reason_of(&displaced.pod);
                }
            }
            node => {
                displaced.fate = Fate::BoundElsewhere;
                displaced.node = Some(node.to_owned());
                displaced.reason.clear();
                displaced.blocks = false;
            }
        }
    }

    /// The budgets of a pod, by name.
    fn budgets_of(&self, pod: &Pod) -> Vec<Arc<PodDisruptionBudget>> {
        let budgets = self.scheduler().cache().cluster().budgets();
        let of_pod = budgets.of_namespace(pod.namespace()).filter(|budget| {
            let selector = Selector::from_label_selector(budget.spec.selector.as_ref());
            selector.is_ok_and(|selector| selector.matches(pod.labels()))
        });
        let mut of_pod: Vec<_> = of_pod.cloned().collect();
        of_pod.sort_by_cached_key(|budget| budget.metadata.name.clone());
        of_pod
    }

    fn exhausted_budget(&self, pod: &Pod) -> Option<String> {
        let budgets = self.budgets_of(pod);
        let mut exhausted = budgets.iter().filter(|b| b.status.disruptions_allowed <= 0);
        exhausted.next().map(|b| b.metadata.name.to_string())
    }

    /// A pod was deleted without replacement: its budgets allow one disruption less.
    fn spend_budgets(&mut self, pod: &Pod) {
        for budget in self.budgets_of(pod) {
            let mut budget = PodDisruptionBudget::clone(&budget);
            budget.status.disruptions_allowed -= 1;
            self.engine
                .set(Object::PodDisruptionBudget(Arc::new(budget)));
        }
    }

    /// Deletes a drained node. The pods that the drain left on it end with it.
    fn remove_drained(&mut self, node: &str, displaced: &mut [DisplacedPod]) {
        for pod in displaced.iter_mut().filter(|pod| pod.fate == Fate::Stays) {
            self.end(&pod.pod);
            pod.fate = Fate::Lost;
            pod.reason = "it ends with its node".to_owned();
        }
        self.engine.delete_node(node);
    }

    /// The nodes in ascending order of requests, without cordoned nodes.
    fn nodes_by_use(&self) -> Vec<String> {
        let mut nodes: Vec<(i64, i64, String)> = self
            .scheduler()
            .cache()
            .cluster()
            .nodes
            .iter()
            .filter(|view| !view.node().spec.unschedulable)
            .map(|view| {
                let name = view.name().to_string();
                (view.requested_of(CPU), view.requested_of(MEMORY), name)
            })
            .collect();
        nodes.sort();
        nodes.into_iter().map(|(_, _, name)| name).collect()
    }
}

/// Drains one node after the other, the least used first, and keeps each drain that causes no new waiting pod. `world`
/// creates a world from objects. Returns the report, with the nodes in the order of their drains, and the final world.
///
/// # Errors
/// The errors of `world`.
pub fn consolidate<E>(
    objects: CopiedObjects,
    world: impl Fn(CopiedObjects) -> Result<WhatIfWorld, E>,
) -> Result<(WhatIfReport, WhatIfWorld), E> {
    let mut present = world(objects)?;
    present.run();
    let before = present.usage();
    let mut report = WhatIfReport {
        before: before.clone(),
        ..WhatIfReport::default()
    };
    let nodes = present.nodes_by_use();
    let mut displaced: Vec<DisplacedPod> = Vec::new();
    if nodes.len() > CONSOLIDATION_NODES_MAX {
        let text = format!(
            "the {CONSOLIDATION_NODES_MAX} least used of {} nodes are tried",
            nodes.len()
        );
        report.notes.push(text);
    }
    for node in nodes.into_iter().take(CONSOLIDATION_NODES_MAX) {
        let mut tried = world(present.objects())?;
        tried.run();
        let waited = tried.pending().len();
        let mut of_node = tried.drain(&node);
        let is_fine = !of_node.iter().any(|pod| pod.blocks)
            && tried.evicted.is_empty()
            && tried.pending().len() <= waited;
        if is_fine {
            tried.remove_drained(&node, &mut of_node);
            displaced.extend(of_node);
            report.drained.push(node);
            present = tried;
        }
    }
    report.displaced = present.settle(displaced);
    // A pod that is moved several times is listed with its last node.
    let moved = report.displaced.iter().filter_map(|pod| {
        let node = pod.node.clone()?;
        let pod = pod.pod.clone();
        Some(PlacedPod { pod, node })
    });
    report.moved = moved.collect();
    report.after = present.usage();
    report.pending = present.pending();
    Ok((report, present))
}
