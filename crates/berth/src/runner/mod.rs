//! The edge of the scheduler: one thread for the core, and around it the tasks that watch the cluster, send calls and
//! publish events. Everything goes over bounded channels.

mod calls;
mod core;
#[cfg(test)]
mod evictions_tests;
mod extenders;
mod feed;

pub(crate) use extenders::Webhooks;

use crate::exit::Failure;
use berth_client::Transport;
use berth_client::events::{self, EventPublisher, Publishing};
use berth_framework::registry::Registry;
use berth_framework::{call::CallAnswer, call::CallId, stage::JobId, stage::JobResult};
use berth_scheduler::config::Config;
use berth_scheduler::evaluator::{EvaluatorKind, Stopwatch};
use berth_scheduler::{ClusterChange, Scheduler, SchedulerOptions};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

/// How many inputs may wait for the core. Whoever brings more waits.
const INPUTS_MAX: usize = 8 * 1024;
/// How long anybody waits for the core to answer a question.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// How long events that are not published yet may hold up the end.
const EVENTS_PATIENCE: Duration = Duration::from_secs(1);

/// What comes into the core.
enum Input {
    /// The cluster has changed.
    Change(ClusterChange),
    /// A call has ended.
    Call(CallId, CallAnswer),
    /// A job has ended.
    Job(JobId, JobResult),
    /// Somebody wants the metrics.
    Metrics(oneshot::Sender<String>),
    /// It is over.
    Stop,
}

/// How a scheduler is run.
#[derive(Debug, Clone)]
pub(crate) struct RunOptions {
    /// Profiles, backoffs, feature gates and the rest of the configuration.
    pub(crate) config: Config,
    /// The seed of every random choice.
    pub(crate) seed: u64,
    /// Which evaluator decides.
    pub(crate) evaluator: EvaluatorKind,
    /// The plugins that a profile may name.
    pub(crate) registry: Registry,
    /// Who takes part beside the plugins.
    pub(crate) webhooks: Webhooks,
}

/// A scheduler that runs.
pub(crate) struct Runner {
    inputs: mpsc::Sender<Input>,
    ready: Arc<AtomicBool>,
    watches: Vec<JoinHandle<()>>,
    publishing: Publishing,
    ended: oneshot::Receiver<()>,
}

impl Runner {
    /// Starts everything within the current runtime.
    ///
    /// # Errors
    /// When the profiles are wrong or no thread can be had.
    pub(crate) fn start(transport: &Transport, options: &RunOptions) -> Result<Self, Failure> {
        let mut core = SchedulerOptions {
            seed: options.seed,
            evaluator: options.evaluator,
            extenders: options.webhooks.extenders.clone(),
            stopwatch: Box::new(SinceStart(Instant::now())),
            ..SchedulerOptions::default()
        };
        options.config.set_options(&mut core);
        let scheduler =
            Scheduler::new(core, &options.registry, events::now()).map_err(Failure::usage)?;
        let kinds = feed::kinds(&scheduler);
        let (inputs, queue) = mpsc::channel(INPUTS_MAX);
        let ready = Arc::new(AtomicBool::new(false));
        let (publisher, publishing) = EventPublisher::start(transport.clone(), instance());
        let edge = core::Edge {
            transport: transport.clone(),
            publisher,
            inputs: inputs.clone(),
            runtime: tokio::runtime::Handle::current(),
            ready: Arc::clone(&ready),
        };
        let (end, ended) = oneshot::channel();
        std::thread::Builder::new()
            .name("berth-core".to_owned())
            .spawn(move || {
                // Dropped when the thread ends, however it ends.
                let _end = end;
                core::run(scheduler, queue, edge);
            })
            .map_err(|e| {
                Failure::Environment(format!("failed to start the scheduler's thread: {e}"))
            })?;
        let watches = feed::start(transport, &kinds, &inputs, &options.webhooks.raw);
        Ok(Self {
            inputs,
            ready,
            watches,
            publishing,
            ended,
        })
    }

    /// What is asked from outside while the scheduler runs.
    pub(crate) fn probe(&self) -> CoreProbe {
        CoreProbe {
            inputs: self.inputs.clone(),
            ready: Arc::clone(&self.ready),
        }
    }

    /// Resolves when the core has ended without being asked to: a bug.
    pub(crate) async fn ended(&mut self) {
        let _ = (&mut self.ended).await;
    }

    /// Stops. Calls under way are not waited for: whoever schedules next finds out what became of them. Nobody would
    /// find out about an event, so those that wait have a moment to be published.
    pub(crate) async fn stop(self) {
        for watch in &self.watches {
            watch.abort();
        }
        let _ = self.inputs.send(Input::Stop).await;
        let _ = self.ended.await;
        self.publishing.finish(EVENTS_PATIENCE).await;
    }
}

/// Asks the core.
pub(crate) struct CoreProbe {
    inputs: mpsc::Sender<Input>,
    ready: Arc<AtomicBool>,
}

impl CoreProbe {
    /// Whether the core has seen the whole cluster.
    pub(crate) fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Relaxed) && !self.inputs.is_closed()
    }
}

impl crate::serve::Probe for CoreProbe {
    fn ready(&self) -> bool {
        self.is_ready()
    }

    async fn metrics(&self) -> Option<String> {
        let (answer, metrics) = oneshot::channel();
        let asked = async {
            self.inputs.send(Input::Metrics(answer)).await.ok()?;
            metrics.await.ok()
        };
        tokio::time::timeout(ANSWER_TIMEOUT, asked).await.ok()?
    }
}

/// Times what the core does, for its metrics.
struct SinceStart(Instant);

impl Stopwatch for SinceStart {
    fn nanos(&self) -> u64 {
        u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

/// Tells this process from others that schedule the same cluster.
fn instance() -> String {
    let host = std::env::var("HOSTNAME").unwrap_or_else(|_| "berth".to_owned());
    format!("{host}-{}", std::process::id())
}
