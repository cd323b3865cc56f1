//! Runs a workload: its operations one after the other, as upstream's harness runs them.

mod change;
mod create;
mod devices;
mod measure;

pub use measure::{Histogram, PodCount, ProcessUsage, WorkloadMeasured};

use super::api::{WorkloadApi, failed};
use super::cluster::{ClusterFuture, RunningCluster, WorkloadSetup, WorkloadTarget};
use super::decode::Workload;
use super::error::RunError;
use super::ops::{Barrier, BarrierStage, LabelSet, Op};
use super::verify::{Surroundings, verify};
use super::view::WatchView;
use super::watch::{Followed, follow};
use create::Generator;
use measure::Collecting;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use tokio::time::sleep;

/// The maximum interval at which a wait checks the pods, as in upstream.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// The first pause of a wait. Each further one is twice as long, up to [`POLL_INTERVAL`]. Some workloads create a few
/// pods in each of a hundred namespaces, one namespace after another.
const POLL_INTERVAL_MIN: Duration = Duration::from_millis(20);
/// Requests in flight while objects are created.
const WORKERS: usize = 30;

/// The options of a run.
#[derive(Debug, Clone)]
pub struct RunOptions {
    /// The time for which an operation waits for pods.
    pub wait_limit: Duration,
    /// The time that a workload may take.
    pub workload_limit: Duration,
    /// The seed of generated names.
    pub seed: u64,
    /// The number of measured pods created per second; without it, as fast as the API server answers.
    pub pods_per_second: Option<NonZeroU32>,
}

impl Default for RunOptions {
    /// Upstream's limits.
    fn default() -> Self {
        Self {
            wait_limit: Duration::from_secs(600),
            workload_limit: Duration::from_secs(1800),
            seed: 1,
            pods_per_second: None,
        }
    }
}

/// The progress of a workload.
#[derive(Debug, Clone, Copy)]
pub struct WorkloadProgress {
    /// The operation that runs, from 0.
    pub op: usize,
    /// The number of operations.
    pub ops: usize,
    /// Its opcode.
    pub opcode: &'static str,
    /// Pods that exist.
    pub pods: usize,
    /// Pods with a node.
    pub bound: usize,
}

/// The result of a workload.
#[derive(Debug, Clone)]
pub struct WorkloadOutcome {
    /// The measurements, in the order of the operations.
    pub measured: Vec<WorkloadMeasured>,
    /// The number of bindings that the verifier checked.
    pub bindings_verified: usize,
    /// The time that the operations took.
    pub took: Duration,
    /// The version that the API server reports.
    pub server_version: String,
}

/// Runs a workload on a cluster of its own.
///
/// # Errors
/// When the workload has no result, or the verifier found violations.
pub fn run<'a>(
    target: &'a dyn WorkloadTarget,
    workload: &'a Workload,
    options: &'a RunOptions,
    progress: &'a dyn Fn(WorkloadProgress),
) -> ClusterFuture<'a, Result<WorkloadOutcome, RunError>> {
    Box::pin(start_and_run(target, workload, options, progress))
}

async fn start_and_run(
    target: &dyn WorkloadTarget,
    workload: &Workload,
    options: &RunOptions,
    progress: &dyn Fn(WorkloadProgress),
) -> Result<WorkloadOutcome, RunError> {
    let setup = WorkloadSetup {
        feature_gates: workload.feature_gates.clone(),
        scheduler_config: workload.scheduler_config.clone(),
    };
    let mut cluster = target.start(&setup).await?;
    let api = Arc::new(WorkloadApi::new(cluster.transport().clone()));
    let result = run_on(&mut *cluster, &api, workload, options, progress).await;
    cluster.stop().await;
    result
}

async fn run_on(
    cluster: &mut dyn RunningCluster,
    api: &Arc<WorkloadApi>,
    workload: &Workload,
    options: &RunOptions,
    progress: &dyn Fn(WorkloadProgress),
) -> Result<WorkloadOutcome, RunError> {
    let view = Arc::new(WatchView::default());
    let version = api.text("/version").await.unwrap_or_default();
    let version: serde_json::Value = serde_json::from_str(&version).unwrap_or_default();
    let following = (
        follow(Arc::clone(api), Followed::Nodes, Arc::clone(&view)).await,
        follow(Arc::clone(api), Followed::Pods, Arc::clone(&view)).await,
    );
    let _following = match following {
        (Ok(nodes), Ok(pods)) => (nodes, pods),
        (Err(reason), _) | (_, Err(reason)) => return Err(RunError::Start(reason)),
    };
    let mut executor = Executor {
        api: Arc::clone(api),
        view: Arc::clone(&view),
        options,
        workload,
        waiting: BTreeMap::new(),
        namespaces: BTreeSet::new(),
        collecting: None,
        measured: Vec::new(),
        background: JoinSet::new(),
        created: Arc::default(),
        generator: Generator::new(options.seed),
        at: At::default(),
    };
    let begun = Instant::now();
    let ran = executor.run(cluster, progress).await;
    let took = begun.elapsed();
    executor.background.shutdown().await;
    let result = match ran {
        Err(error) => Err(error),
        Ok(()) => match view.why_lost() {
            Some(reason) => Err(RunError::Watch(reason)),
            None => judge(api, &view).await,
        },
    };
    if cluster.is_shared() {
        executor.clean_up().await;
    }
    Ok(WorkloadOutcome {
        bindings_verified: result?,
        measured: executor.measured,
        took,
        server_version: version["gitVersion"]
            .as_str()
            .unwrap_or("unknown")
            .to_owned(),
    })
}

/// The kinds of objects that rules refer to, other than pods and nodes.
const SURROUNDINGS: [(&str, &str); 6] = [
    ("/api/v1", "namespaces"),
    ("/api/v1", "persistentvolumes"),
    ("/api/v1", "persistentvolumeclaims"),
    ("/apis/storage.k8s.io/v1", "csinodes"),
    ("/apis/resource.k8s.io/v1", "resourceclaims"),
    ("/apis/resource.k8s.io/v1", "deviceclasses"),
];

/// Verifies the bindings of the run. Returns their number.
async fn judge(api: &WorkloadApi, view: &WatchView) -> Result<usize, RunError> {
    let mut surroundings = Surroundings::default();
    for (root, plural) in SURROUNDINGS {
        match api.list(&format!("{root}/{plural}")).await {
            Ok((items, _)) => items.iter().for_each(|item| surroundings.add(plural, item)),
            // A server without the kind has no objects of it.
            Err(error) if error.is_not_found() => {}
            Err(error) => {
                return Err(RunError::Watch(format!(
                    "{plural}, which the verifier needs: {error}"
                )));
            }
        }
    }
    let verdict = verify(view.take_log(), &surroundings);
    match verdict.violations.first() {
        None => Ok(verdict.bindings),
        Some(first) => Err(RunError::Violations {
            count: verdict.violations.len(),
            first: first.to_string(),
        }),
    }
}

/// The state that the operations share.
struct Executor<'a> {
    api: Arc<WorkloadApi>,
    view: Arc<WatchView>,
    options: &'a RunOptions,
    workload: &'a Workload,
    /// Pods that were not waited for, by namespace.
    waiting: BTreeMap<String, usize>,
    /// Namespaces that exist.
    namespaces: BTreeSet<String>,
    collecting: Option<Collecting>,
    measured: Vec<WorkloadMeasured>,
    background: JoinSet<Result<(), RunError>>,
    /// The paths of objects without a namespace that were created.
    created: Arc<Mutex<Vec<String>>>,
    generator: Generator,
    at: At,
}

/// The operation that runs.
#[derive(Debug, Clone, Copy, Default)]
struct At {
    op: usize,
    opcode: &'static str,
}

impl Executor<'_> {
    async fn run(
        &mut self,
        cluster: &mut dyn RunningCluster,
        progress: &dyn Fn(WorkloadProgress),
    ) -> Result<(), RunError> {
        let limit = self.options.workload_limit;
        let deadline = Instant::now() + limit;
        for (index, op) in self.workload.ops.iter().enumerate() {
            (self.at.op, self.at.opcode) = (index, op.opcode());
            let opcode = self.at.opcode;
            let ops = self.workload.ops.len();
            let view = Arc::clone(&self.view);
            let report = || {
                let (pods, bound) = view.totals();
                progress(WorkloadProgress {
                    op: index,
                    ops,
                    opcode,
                    pods,
                    bound,
                });
            };
            report();
            if matches!(op, Op::StartCollectingMetrics(_)) || op.collects_metrics() {
                self.measure(cluster, op, Ending::Before).await?;
            }
            {
                let running = self.run_op(op);
                tokio::pin!(running);
                loop {
                    tokio::select! {
                        result = &mut running => break result?,
                        reason = cluster.ended() => return Err(RunError::Ended(reason)),
                        () = tokio::time::sleep_until(deadline.into()) => {
                            let message = format!("the workload took longer than {} s", limit.as_secs());
                            return Err(failed(index, opcode, message));
                        }
                        () = sleep(POLL_INTERVAL) => report(),
                    }
                }
            }
            if op.collects_metrics() {
                self.measure(cluster, op, Ending::After).await?;
            }
            while let Some(ended) = self.background.try_join_next() {
                ended.map_err(|e| failed(index, opcode, e))??;
            }
        }
        if self.collecting.is_some() {
            return Err(self.failed(
                "the workload ended while metrics were collected; add stopCollectingMetrics",
            ));
        }
        Ok(())
    }

    /// Begins and ends measurements around an operation.
    async fn measure(
        &mut self,
        cluster: &dyn RunningCluster,
        op: &Op,
        ending: Ending,
    ) -> Result<(), RunError> {
        let begins = match (op, ending) {
            (Op::StartCollectingMetrics(start), Ending::Before) => Some((
                start.name.clone(),
                start.namespaces.clone(),
                start.label_selector.clone(),
            )),
            (Op::CreatePods(pods), Ending::Before) => {
                let namespace = self.namespace_of(pods.namespace.as_ref());
                Some((namespace.clone(), vec![namespace], LabelSet::new()))
            }
            _ => None,
        };
        match (begins, ending) {
            (Some(_), _) if self.collecting.is_some() => Err(self.failed(
                "metrics are being collected already; stop the first measurement before this one",
            )),
            (Some((name, namespaces, labels)), _) => {
                let begun =
                    Collecting::begin(&self.api, &self.view, cluster, name, namespaces, labels);
                self.collecting = Some(begun.await);
                Ok(())
            }
            (None, Ending::Before) => Ok(()),
            (None, Ending::After) => match self.collecting.take() {
                None => Err(self.failed("no startCollectingMetrics before this operation")),
                Some(collecting) => {
                    let measured = collecting.end(&self.api, &self.view, cluster).await;
                    self.measured.push(measured);
                    Ok(())
                }
            },
        }
    }

    async fn run_op(&mut self, op: &Op) -> Result<(), RunError> {
        match op {
            Op::CreateNodes(op) => self.create_nodes(op).await,
            Op::CreateNamespaces(op) => self.create_namespaces(op).await,
            Op::CreatePods(op) => self.create_pods(op).await,
            Op::DeletePods(op) => self.delete_pods(op).await,
            Op::Churn(op) => self.churn(op).await,
            Op::Barrier(op) => self.barrier(op).await,
            Op::Sleep { duration } => {
                sleep(*duration).await;
                Ok(())
            }
            Op::StartCollectingMetrics(_) | Op::StopCollectingMetrics {} => Ok(()),
            Op::CreatePodSets(_) => Err(self.failed("it was not decoded")),
            Op::CreateAny(op) | Op::CreatePodGroups(op) | Op::CreateCompositePodGroups(op) => {
                self.create_any(&op.namespace, &op.template, op.count).await
            }
            Op::CreateResourceClaims(op) => {
                self.create_any(&op.namespace, &op.template, op.count).await
            }
            Op::WaitForPodGroups { namespace, count } => {
                self.wait_for_groups(namespace, *count).await
            }
            Op::UpdateAny(op) => self.update_any(op).await,
            Op::CreateResourceDriver(op) => self.create_driver(op).await,
            Op::AllocResourceClaims { namespace } => self.allocate_claims(namespace).await,
        }
    }

    fn failed(&self, message: impl ToString) -> RunError {
        failed(self.at.op, self.at.opcode, message)
    }

    /// The namespace of an operation that may have its own.
    fn namespace_of(&self, given: Option<&String>) -> String {
        given
            .cloned()
            .unwrap_or_else(|| format!("namespace-{}", self.at.op))
    }

    /// Waits until a number of pods of a namespace is scheduled or attempted.
    async fn wait(
        &self,
        namespace: &str,
        labels: &LabelSet,
        wanted: usize,
        stage: BarrierStage,
    ) -> Result<(), RunError> {
        let limit = self.options.wait_limit;
        let deadline = Instant::now() + limit;
        let mut pause = POLL_INTERVAL_MIN;
        loop {
            let counts = self.view.count(namespace, labels);
            let reached = match stage {
                BarrierStage::Scheduled => counts.scheduled,
                BarrierStage::Attempted => counts.scheduled + counts.attempted,
            };
            if reached >= wanted {
                return Ok(());
            }
            if let Some(reason) = self.view.why_lost() {
                return Err(RunError::Watch(reason));
            }
            if Instant::now() >= deadline {
                let detail = match counts.pending {
                    None => "the other pods do not exist".to_owned(),
                    Some((pod, None)) => format!("pod {pod} was not attempted"),
                    Some((pod, Some(message))) => format!("pod {pod} is pending: {message}"),
                };
                return Err(RunError::Wait {
                    op: self.at.op,
                    opcode: self.at.opcode,
                    stage: stage.as_str(),
                    namespace: namespace.to_owned(),
                    reached,
                    wanted,
                    limit_seconds: limit.as_secs(),
                    detail,
                });
            }
            sleep(pause).await;
            pause = (pause * 2).min(POLL_INTERVAL);
        }
    }

    async fn barrier(&mut self, op: &Barrier) -> Result<(), RunError> {
        let namespaces = if op.namespaces.is_empty() {
            self.waiting.keys().cloned().collect()
        } else {
            op.namespaces.clone()
        };
        for namespace in &namespaces {
            let Some(wanted) = self.waiting.get(namespace).copied() else {
                return Err(self.failed(format!(
                    "no operation before this one left pods in namespace {namespace:?}"
                )));
            };
            self.wait(namespace, &op.label_selector, wanted, op.stage_requirement)
                .await?;
        }
        if op.stage_requirement == BarrierStage::Scheduled {
            self.waiting.retain(|name, _| !namespaces.contains(name));
        }
        Ok(())
    }

    /// Deletes the objects that the run created, as far as possible.
    async fn clean_up(&self) {
        let created =
            std::mem::take(&mut *self.created.lock().unwrap_or_else(PoisonError::into_inner));
        let at_once = json!({"gracePeriodSeconds": 0, "propagationPolicy": "Background"});
        for namespace in &self.namespaces {
            for collection in [
                "/api/v1/namespaces/NS/pods",
                "/api/v1/namespaces/NS/persistentvolumeclaims",
                "/apis/resource.k8s.io/v1/namespaces/NS/resourceclaims",
            ] {
                // The rest is deleted with the namespace.
                let path = collection.replace("NS", namespace);
                let _ = self.api.delete_collection(path, &at_once).await;
            }
            let path = format!("/api/v1/namespaces/{namespace}");
            let _ = self.api.delete(path).await;
        }
        let api = Arc::clone(&self.api);
        let paths = Arc::new(created);
        let count = paths.len();
        let _ = parallel(count, move |index| {
            let (api, paths) = (Arc::clone(&api), Arc::clone(&paths));
            async move { api.delete(paths[index].clone()).await }
        })
        .await;
    }
}

/// The time of a measurement: before or after the operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    Before,
    After,
}

/// The schedule of actions at a rate: the first immediately, each further one after an interval.
#[derive(Debug, Clone, Copy)]
struct Pace {
    begun: tokio::time::Instant,
    interval: Duration,
}

impl Pace {
    fn of(per_second: NonZeroU32) -> Self {
        Self {
            begun: tokio::time::Instant::now(),
            interval: Duration::from_secs(1) / per_second.get(),
        }
    }

    /// Waits until the time of this index.
    async fn wait(self, index: usize) {
        let index = u32::try_from(index).unwrap_or(u32::MAX);
        tokio::time::sleep_until(self.begun + self.interval * index).await;
    }
}

/// Runs an action `count` times in the order of the index, with limited concurrency. The first failure ends it.
async fn parallel<F, R, E>(count: usize, work: F) -> Result<(), E>
where
    F: Fn(usize) -> R + Send + Sync + 'static,
    R: Future<Output = Result<(), E>> + Send,
    E: Send + 'static,
{
    use std::sync::atomic::{AtomicUsize, Ordering};
    let next = Arc::new(AtomicUsize::new(0));
    let work = Arc::new(work);
    let mut workers = JoinSet::new();
    for _ in 0..count.min(WORKERS) {
        let (next, work) = (Arc::clone(&next), Arc::clone(&work));
        workers.spawn(async move {
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                if index >= count {
                    return Ok(());
                }
                work(index).await?;
            }
        });
    }
    while let Some(ended) = workers.join_next().await {
        match ended {
            Ok(result) => result?,
            Err(panic) if panic.is_panic() => std::panic::resume_unwind(panic.into_panic()),
            Err(_) => {}
        }
    }
    Ok(())
}
