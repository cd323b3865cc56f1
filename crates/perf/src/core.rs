//! The core alone: no socket, no API server, every call answered at once.

use crate::generate;
use berth_api::{Duration, Namespace, Object, Pod, Str, Time};
use berth_framework::ApiCall;
use berth_scheduler::{ClusterChange, CycleResult, Outcome, Scheduler, SchedulerOptions};
use serde::Serialize;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

/// What to measure.
#[derive(Debug, Clone)]
pub struct Options {
    /// Nodes of each cluster; one row each.
    pub nodes: Vec<usize>,
    /// Pods to schedule in each.
    pub pods: usize,
    /// Where all that is random comes from.
    pub seed: u64,
}

/// What was measured in one cluster.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    /// Nodes.
    pub nodes: usize,
    /// Pods that were to be scheduled.
    pub pods: usize,
    /// Pods that got a node.
    pub scheduled: usize,
    /// From the first decision to the last confirmed binding, in seconds.
    pub seconds: f64,
    /// Decisions per second over that time.
    pub decisions_per_second: f64,
    /// The median time of a decision, in microseconds.
    pub decision_micros_median: f64,
    /// The time that 99 of 100 decisions stay under, in microseconds.
    pub decision_micros_p99: f64,
}

/// Why nothing could be measured.
#[derive(Debug, thiserror::Error)]
pub enum PerfError {
    /// The default profile cannot be built: a bug.
    #[error("failed to set up the scheduler: {0}")]
    Setup(String),
    /// The core stopped before all pods were dealt with: a bug.
    #[error("the scheduler came to rest with {left} of {pods} pods undecided on {nodes} nodes")]
    Stuck {
        /// Nodes of the cluster.
        nodes: usize,
        /// Pods of the cluster.
        pods: usize,
        /// Pods that nobody decided on.
        left: usize,
    },
}

/// Measures each cluster in turn; `progress` hears of every decision as (nodes, decisions so far).
///
/// # Errors
/// When the core does not do its work; nothing that a caller can mend.
pub fn run(
    options: &Options,
    mut progress: impl FnMut(usize, usize),
) -> Result<Vec<Row>, PerfError> {
    options
        .nodes
        .iter()
        .map(|nodes| measure(*nodes, options, &mut progress))
        .collect()
}

fn measure(
    nodes: usize,
    options: &Options,
    progress: &mut impl FnMut(usize, usize),
) -> Result<Row, PerfError> {
    let mut now = Time::from_secs(1_000);
    let mut scheduler = Scheduler::new(
        SchedulerOptions {
            seed: options.seed,
            ..SchedulerOptions::default()
        },
        &berth_plugins::in_tree(),
        now,
    )
    .map_err(|e| PerfError::Setup(e.to_string()))?;
    let mut namespace = Namespace::default();
    namespace.metadata.name = "default".into();
    let namespace = Object::Namespace(Arc::new(namespace));
    scheduler.apply(ClusterChange::Applied(namespace), now);
    for index in 0..nodes {
        scheduler.apply(ClusterChange::Applied(generate::node(index)), now);
    }
    let mut rng = fastrand::Rng::with_seed(options.seed);
    let mut pods: HashMap<Str, Arc<Pod>> = HashMap::with_capacity(options.pods);
    for index in 0..options.pods {
        let pod = Arc::new(generate::pod(index, &mut rng));
        pods.insert(pod.uid().clone(), pod.clone());
        scheduler.apply(ClusterChange::Applied(Object::Pod(pod)), now);
    }

    let mut micros = Vec::with_capacity(options.pods);
    let mut scheduled = 0;
    let begun = Instant::now();
    while micros.len() < options.pods {
        now = now + Duration::from_micros(10);
        let decision = Instant::now();
        let outcome = scheduler.schedule_one(now);
        let took = decision.elapsed();
        match outcome {
            Outcome::Done { result, .. } => {
                micros.push(took.as_secs_f64() * 1e6);
                scheduled += usize::from(matches!(result, CycleResult::Placed { .. }));
                progress(nodes, micros.len());
            }
            Outcome::Idle { .. } | Outcome::Parked(_) => {
                return Err(PerfError::Stuck {
                    nodes,
                    pods: options.pods,
                    left: options.pods - micros.len(),
                });
            }
        }
        answer(&mut scheduler, &mut pods, now);
    }
    let seconds = begun.elapsed().as_secs_f64();
    micros.sort_by(f64::total_cmp);
    let at = |share: f64| {
        let last = micros.len().saturating_sub(1);
        micros
            .get((last as f64 * share) as usize)
            .copied()
            .unwrap_or_default()
    };
    Ok(Row {
        nodes,
        pods: options.pods,
        scheduled,
        seconds,
        decisions_per_second: options.pods as f64 / seconds.max(f64::EPSILON),
        decision_micros_median: at(0.5),
        decision_micros_p99: at(0.99),
    })
}

/// Answers every call at once with success, and shows the core what came of it as a watch would.
fn answer(scheduler: &mut Scheduler, pods: &mut HashMap<Str, Arc<Pod>>, now: Time) {
    loop {
        let calls = scheduler.take_outputs(now).calls;
        if calls.is_empty() {
            return;
        }
        for (id, call) in calls {
            scheduler.complete(id, Ok(()), now);
            let ApiCall::BindPod { pod, node } = call else {
                continue;
            };
            let Some(bound) = pods.get_mut(&pod.uid) else {
                continue;
            };
            let changed = Arc::make_mut(bound);
            changed.spec.node_name = node;
            changed.metadata.resource_version = "2".into();
            scheduler.apply(ClusterChange::Applied(Object::Pod(bound.clone())), now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pod_is_decided_on_and_full_clusters_say_so() {
        let options = Options {
            nodes: vec![1, 20],
            pods: 200,
            seed: 7,
        };
        let mut heard = 0;
        let rows = run(&options, |_, _| heard += 1).expect("the core does its work");
        assert_eq!(heard, 400);
        // One node takes 110 pods at most, and fewer when its 4 CPU are gone before.
        assert!(
            rows[0].scheduled > 0 && rows[0].scheduled <= 110,
            "{rows:?}"
        );
        assert_eq!(rows[1].scheduled, 200);
    }
}
