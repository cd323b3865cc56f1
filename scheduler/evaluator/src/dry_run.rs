//! Supposing that pods come and go, for nominated pods and for preemption.
//!
//! Table and plugins change together, pod by pod, and change back in the opposite order, so that every plugin's
//! `remove_pod` sees the node as it was right after its `add_pod`.

use super::search::broken;
use super::{Evaluation, Evaluator, Memos};
use berth_framework::plugin::DryRun;
use berth_framework::{Cluster, CycleState, PodInfo, Slot, Status};
use std::any::Any;
use std::sync::Arc;

/// A change that is to be reverted.
#[derive(Debug)]
pub(super) enum Supposed {
    /// The start of a set of changes.
    Start,
    /// A pod that is supposed to be on a node (true), or to be removed from it.
    Changed(Slot, Arc<PodInfo>, bool),
}

impl Evaluator<'_> {
    /// Runs PreFilter if the decision was made without it. It let all nodes through then, and does so now.
    fn make_ready(&mut self) {
        if std::mem::take(&mut self.evaluation.unprepared) {
            let _ = self.run_pre_filter();
        }
    }

    /// Notifies the plugins that a pod was added to a node or removed from it.
    fn report_plugins(&mut self, node: Slot, other: &PodInfo, is_added: bool) -> Status {
        let (profile, this, stopwatch) = (self.profile, self.pod, self.stopwatch);
        let (cx, evaluation) = self.split();
        let Some(view) = cx.cluster.nodes.get(node) else {
            return Status::error("a pod was supposed on a node that does not exist");
        };
        for member in &profile.pre_filter {
            // After Skip, a plugin has no state that a pod changes.
            if evaluation.skip_filter.contains(member.id) {
                continue;
            }
            let Evaluation { state, tally, .. } = &mut *evaluation;
            let plugin = &member.plugin;
            let point = if is_added {
                "PreFilterExtensionAddPod"
            } else {
                "PreFilterExtensionRemovePod"
            };
            let status = tally.timed(stopwatch, &member.name, point, Status::code, || {
                if is_added {
                    plugin.add_pod(&cx, state, this, other, view)
                } else {
                    plugin.remove_pod(&cx, state, this, other, view)
                }
            });
            if !status.is_success() {
                let point = point.trim_start_matches("PreFilterExtension");
                let plugin = member.name.as_str();
                let what = format!("running {point} on PreFilter plugin {plugin:?}");
                return broken(&what, &member.name, &status);
            }
        }
        Status::success()
    }

    /// Notes a change of the cluster for [`Evaluator::revert`], and notifies the plugins. The result is their status, or the
    /// error that the attempt may not look at more items.
    fn suppose(&mut self, node: Slot, pod: &Arc<PodInfo>, is_added: bool) -> Status {
        let supposed = Supposed::Changed(node, pod.clone(), is_added);
        self.evaluation.supposed.push(supposed);
        let status = self.report_plugins(node, pod, is_added);
        match self.context().look_at(self.pod.items(), 1) {
            Err(error) if status.is_success() => error,
            _ => status,
        }
    }

    /// Reverts the assumptions since the last mark.
    fn revert(&mut self) {
        while let Some(change) = self.evaluation.supposed.pop() {
            let Supposed::Changed(node, pod, is_added) = change else {
                return;
            };
            self.cluster.nodes.rollback();
            let status = self.report_plugins(node, &pod, !is_added);
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
            if !possible.allows(&self.cluster.nodes, node) || !may(node) {
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
        self.evaluation.supposed.push(Supposed::Start);
    }

    fn add_pod(&mut self, node: Slot, pod: &Arc<PodInfo>) -> Status {
        if self.cluster.nodes.get(node).is_none() {
            return Status::error("a pod was supposed on a node that does not exist");
        }
        self.cluster.nodes.begin();
        self.cluster.nodes.add_pod_at(node, pod.clone());
        self.suppose(node, pod, true)
    }

    fn remove_pod(&mut self, node: Slot, pod: &Arc<PodInfo>) -> Status {
        if self.cluster.nodes.get(node).is_none() {
            return Status::error("a pod was supposed gone from a node that does not exist");
        }
        self.cluster.nodes.begin();
        let removed = self.cluster.nodes.remove_pod_at(node, pod.pod.uid());
        if removed.is_none() {
            self.cluster.nodes.rollback();
            return Status::error(format!(
                "no corresponding pod {} in pods of the node",
                pod.pod.name()
            ));
        }
        self.suppose(node, pod, false)
    }

    fn rollback(&mut self) {
        self.revert();
    }

    fn filter(&mut self, node: Slot) -> Status {
        self.make_ready();
        self.filter_node(node)
    }
}
