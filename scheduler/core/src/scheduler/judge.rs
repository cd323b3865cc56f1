//! The decision of the scheduler about a pod now, with every feasible node: for comparisons with another scheduler.
//!
//! Nothing is changed: neither the queue nor the cache, the random numbers, the kept answers or the metrics.

use super::Scheduler;
use berth_api::{Pod, Str};
use berth_evaluator::{Evaluation, Evaluator, Found};
use berth_framework::{PodInfo, Work};
use berth_telemetry::NoStopwatch;
use std::sync::Arc;

/// The decision about a pod.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PodVerdict {
    /// Every feasible node with its total score, the best first.
    pub feasible: Vec<(Str, i64)>,
    /// The text of the pod's condition if no node is feasible; empty otherwise.
    pub message: String,
    /// The plugins that rejected the pod if no node is feasible, sorted.
    pub plugins: Vec<Str>,
}

impl PodVerdict {
    /// The rank of a node among the feasible ones: 1 if no node has a higher score.
    pub fn rank(&self, node: &str) -> Option<usize> {
        let (_, score) = self.feasible.iter().find(|(name, _)| *name == *node)?;
        let better = self.feasible.iter().take_while(|(_, other)| other > score);
        Some(better.count() + 1)
    }

    /// The difference between the best score and that of a node.
    pub fn deficit(&self, node: &str) -> Option<i64> {
        let (_, score) = self.feasible.iter().find(|(name, _)| *name == *node)?;
        let (_, best) = self.feasible.first()?;
        Some(best.saturating_sub(*score))
    }
}

impl Scheduler {
    /// The decision about a pod now, by the profile of its scheduler name; `None` if there is no such profile.
    /// The pods `without`, by UID, are left out of the cluster. Every node is evaluated with the plain evaluator;
    /// neither extenders nor PostFilter plugins are called.
    pub fn judge(&mut self, pod: &Arc<Pod>, without: &[Str]) -> Option<PodVerdict> {
        let core = &mut self.core;
        let profile = core
            .framework
            .settings
            .profiles
            .get(&pod.spec.scheduler_name)?
            .clone();
        let mut pending = Pod::clone(pod);
        pending.spec.node_name = Str::default();
        // A nominated node would be evaluated alone.
        pending.status.nominated_node_name = Str::default();
        let info = Arc::new(PodInfo::new(Arc::new(pending)));
        let (mut evaluation, work) = (Evaluation::default(), Work::default());
        let nominator = core.queue.nominator();
        let mut evaluator = Evaluator {
            stopwatch: &NoStopwatch,
            ..core
                .framework
                .evaluator_of(nominator, &profile, &info, &work, &mut evaluation)
        };
        let cluster = &mut *evaluator.cluster;
        cluster.nodes.begin();
        for uid in without {
            let node = cluster.pods.get(uid).map(|pod| pod.spec.node_name.clone());
            if let Some(node) = node {
                // A pod on an unknown node is not counted.
                let _ = cluster.nodes.remove_pod(&node, uid);
            }
        }
        let found = evaluator.find(None, &mut 0, &mut fastrand::Rng::with_seed(0));
        let cluster = &mut *evaluator.cluster;
        let verdict = match found {
            Found::Placed(placement) => {
                let mut feasible: Vec<(Str, i64)> = match &placement.scores {
                    None => vec![(placement.name.clone(), 0)],
                    Some(scores) => {
                        let nodes = scores.nodes.iter().filter_map(|(slot, total)| {
                            Some((cluster.nodes.get(*slot)?.name().clone(), *total))
                        });
                        nodes.collect()
                    }
                };
                feasible.sort_unstable_by(|a, b| (b.1, &a.0).cmp(&(a.1, &b.0)));
                PodVerdict {
                    feasible,
                    ..PodVerdict::default()
                }
            }
            Found::Unfit(error) => PodVerdict {
                message: error.to_string(),
                plugins: error.diagnosis.unschedulable_plugins.clone(),
                ..PodVerdict::default()
            },
            Found::NoNodes(status) | Found::Failed(status) => PodVerdict {
                message: status.message(),
                ..PodVerdict::default()
            },
        };
        cluster.nodes.rollback();
        Some(verdict)
    }
}
