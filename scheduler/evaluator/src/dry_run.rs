//! Supposing that pods come and go, for nominated pods and for preemption.
//!
//! Table and plugins change together, pod by pod, and change back in the opposite order, so that every plugin's
//! `remove_pod` sees the node as it was right after its `add_pod`.

use super::{Evaluator, Memos};
use berth_framework::plugin::{Context, DryRun};
use berth_framework::{Cluster, CycleState, PodInfo, Slot, Status};
use std::any::Any;
use std::sync::Arc;

/// A change that is to be reverted.
#[derive(Debug)]
pub(super) enum Supposed {
    /// The start of a set of changes.
    Mark,
    /// A pod that is supposed to be on a node.
    Added(Slot, Arc<PodInfo>),
    /// A pod that is assumed to be removed from a node.
    Removed(Slot, Arc<PodInfo>),
}

#[derive(Clone, Copy)]
enum Direction {
    Add,
    Remove,
}

impl Evaluator<'_> {
    /// Runs PreFilter if the decision was made without it. It let all nodes through then, and does so now.
    fn make_ready(&mut self) {
        if std::mem::take(&mut self.evaluation.unprepared) {
            let _ = self.run_pre_filter();
        }
    }

    /// Notifies the plugins that a pod was added to a node or removed from it.
    fn report_plugins(&mut self, node: Slot, other: &PodInfo, direction: Direction) -> Status {
        let cx = Context {
            now: self.now,
            cluster: self.cluster,
            features: self.features,
            work: self.work,
        };
        let Some(view) = cx.cluster.nodes.get(node) else {
            return Status::error("a pod was supposed on a node that does not exist");
        };
        let state = &mut self.evaluation.state;
        for member in &self.profile.pre_filter {
            if self.evaluation.skip_filter.contains(member.id) {
                continue;
            }
            let began = self.evaluation.tally.begin(self.stopwatch);
            let (status, point) = match direction {
                Direction::Add => (
                    member.plugin.add_pod(&cx, state, self.pod, other, view),
                    "PreFilterExtensionAddPod",
                ),
                Direction::Remove => (
                    member.plugin.remove_pod(&cx, state, self.pod, other, view),
                    "PreFilterExtensionRemovePod",
                ),
            };
            let called = (member.name.as_str(), point);
            let tally = &mut self.evaluation.tally;
            tally.called(began, self.stopwatch, called, status.code());
            if !status.is_success() {
                let point = match direction {
                    Direction::Add => "AddPod",
                    Direction::Remove => "RemovePod",
                };
                return Status::error(format!(
                    "running {point} on PreFilter plugin {:?}: {}",
                    member.name.as_str(),
                    status.as_error().unwrap_or_default()
                ))
                .from_plugin(&member.name);
            }
        }
        Status::success()
    }

    /// The status of a change, or the error that the attempt may not look at more items. The change was made in any
    /// case, so that it can be reverted.
    fn counted(&self, status: Status) -> Status {
        match self.context().look_at(self.pod.items(), 1) {
            Err(error) if status.is_success() => error,
            _ => status,
        }
    }

    /// Reverts the assumptions since the last mark.
    fn revert(&mut self) {
        while let Some(change) = self.evaluation.supposed.pop() {
            let (node, pod, direction) = match change {
                Supposed::Mark => return,
                Supposed::Added(node, pod) => (node, pod, Direction::Remove),
                Supposed::Removed(node, pod) => (node, pod, Direction::Add),
            };
            self.cluster.nodes.rollback();
            let status = self.report_plugins(node, &pod, direction);
            if !status.is_success() {
                self.evaluation.broken = Some(status);
            }
        }
    }
}

impl DryRun for Evaluator<'_> {
    fn cluster(&self) -> &Cluster {
        self.cluster
    }

    fn state(&mut self) -> &mut CycleState {
        self.make_ready();
        &mut self.evaluation.state
    }

    fn take_kept(&mut self) -> (Option<Box<dyn Any + Send + Sync>>, Vec<Slot>) {
        let memos = self.evaluation.memos.as_mut();
        memos.map(Memos::take).unwrap_or_default()
    }

    fn keep(&mut self, results: Box<dyn Any + Send + Sync>) {
        if let Some(memos) = &mut self.evaluation.memos {
            memos.put(results);
        }
    }

    fn look_again(&mut self, may: &dyn Fn(Slot) -> bool) -> Result<Option<Slot>, Status> {
        self.evaluation.begin_anew();
        let possible = self.pre_filter().map_err(|(status, _)| status)?;
        let nodes = self.cluster.nodes.in_order();
        for node in nodes.iter().copied() {
            let is_possible = match (&possible.nodes, self.cluster.nodes.get(node)) {
                (_, None) => false,
                (None, Some(_)) => true,
                (Some(names), Some(view)) => names.binary_search(view.name()).is_ok(),
            };
            if !is_possible || !may(node) {
                continue;
            }
            // A failure of a filter is not room.
            if self.filter_node(node).is_success() {
                return Ok(Some(node));
            }
        }
        Ok(None)
    }

    fn nominated_to(&self, node: Slot) -> Vec<Arc<PodInfo>> {
        let mut pods = Vec::new();
        if let Some(view) = self.cluster.nodes.get(node) {
            self.nominated
                .on_node(view.name(), &mut |pod| pods.push(pod.clone()));
        }
        pods
    }

    fn begin(&mut self) {
        self.make_ready();
        self.evaluation.supposed.push(Supposed::Mark);
    }

    fn add_pod(&mut self, node: Slot, pod: &Arc<PodInfo>) -> Status {
        if self.cluster.nodes.get(node).is_none() {
            return Status::error("a pod was supposed on a node that does not exist");
        }
        self.cluster.nodes.begin();
        self.cluster.nodes.add_pod_at(node, pod.clone());
        self.evaluation
            .supposed
            .push(Supposed::Added(node, pod.clone()));
        let status = self.report_plugins(node, pod, Direction::Add);
        self.counted(status)
    }

    fn remove_pod(&mut self, node: Slot, pod: &Arc<PodInfo>) -> Status {
        if self.cluster.nodes.get(node).is_none() {
            return Status::error("a pod was supposed gone from a node that does not exist");
        }
        self.cluster.nodes.begin();
        if self
            .cluster
            .nodes
            .remove_pod_at(node, pod.pod.uid())
            .is_none()
        {
            self.cluster.nodes.rollback();
            return Status::error(format!(
                "no corresponding pod {} in pods of the node",
                pod.pod.name()
            ));
        }
        self.evaluation
            .supposed
            .push(Supposed::Removed(node, pod.clone()));
        let status = self.report_plugins(node, pod, Direction::Remove);
        self.counted(status)
    }

    fn rollback(&mut self) {
        self.revert();
    }

    fn filter(&mut self, node: Slot) -> Status {
        self.make_ready();
        self.filter_node(node)
    }
}
