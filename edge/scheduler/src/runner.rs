//! The edge of the scheduler: one thread for the core, and the tasks that watch the cluster, send calls and publish
//! events. All messages use bounded channels.

mod calls;
mod core;
#[cfg(test)]
mod evictions_tests;
pub(crate) mod explain;
mod extenders;
mod feed;
mod handover;
mod reconfigure;
mod record;

pub use explain::Explainer;
pub(crate) use extenders::{Webhooks, described_extenders};
pub(crate) use reconfigure::Reconfigurer;
pub(crate) use record::{BYTES_MAX, RecordOptions};

use crate::dashboard::{self, DashboardAnswers, PageQuestion, SAMPLE_EVERY, Sample, SampleHistory};
use crate::edge::Pauses;
use crate::exit::CommandFailure;
use crate::metrics::add_waiting;
use crate::shadow::{self, Cases, Shadow, SharedReport};
use crate::tasks;
use crate::traces::{Exporting, TraceExport};
use berth_api::{Pod, Time};
use berth_client::Transport;
use berth_client::clock;
use berth_client::events::{EventPublisher, Publishing};
use berth_client::reflector::Availability;
use berth_config::Config;
use berth_framework::extender::Extenders;
use berth_framework::registry::Registry;
use berth_framework::{call::CallId, call::CallResult, job::JobId, job::JobResult};
use berth_scheduler::Stopwatch;
use berth_scheduler::evaluator::EvaluatorKind;
use berth_scheduler::metrics::Snapshot;
use berth_scheduler::{ClusterChange, Scheduler, SchedulerOptions};
use feed::Feed;
use handover::Inputs;
use reconfigure::TakeOver;
use record::Recording;
use serde_json::Value;
use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

/// The time that a question to the core may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// The wait of a shutdown for unpublished events.
const EVENTS_PATIENCE: Duration = Duration::from_secs(1);
/// The wait of a shutdown for traces that are not exported yet.
const TRACES_PATIENCE: Duration = Duration::from_secs(1);
/// The wait of a shutdown for API calls in flight.
const CALLS_PATIENCE: Duration = Duration::from_secs(1);

/// The wait of a shutdown for the recording.
const RECORDING_PATIENCE: Duration = Duration::from_secs(5);

/// The inputs of the core.
enum CoreInput {
    /// The cluster has changed.
    Change(ClusterChange),
    /// A call has ended.
    Call(CallId, CallResult),
    /// A job has ended.
    Job(JobId, JobResult),
    /// The metrics are to begin at zero again.
    ResetMetrics,
    /// Another configuration is to be taken over.
    TakeOver(Box<TakeOver>),
    /// The scheduler is read.
    Look(SchedulerLook),
    /// From now on pods are scheduled.
    Lead,
    /// It is over.
    Stop,
}

/// Reads the scheduler between two steps, at the given time. It must be quick, because it delays scheduling.
type SchedulerLook = Box<dyn FnOnce(&Scheduler, Time) + Send>;

/// The options of a scheduler.
#[derive(Debug, Clone)]
pub struct RunOptions {
    /// Profiles, backoffs, feature gates and the rest of the configuration.
    pub config: Config,
    /// The time after which an unschedulable pod is tried again without an event.
    pub(crate) pod_max_in_unschedulable_pods_duration: Duration,
    /// The seed of every random choice.
    pub(crate) seed: u64,
    /// The evaluator that decides.
    pub(crate) evaluator: EvaluatorKind,
    /// The plugins that a profile may name.
    pub(crate) registry: Registry,
    /// The extenders.
    pub(crate) webhooks: Webhooks,
    /// The recording of the inputs of the core, if it is on.
    pub(crate) record: Option<RecordOptions>,
    /// The export of traces of attempts, if it is on.
    pub(crate) traces: Option<TraceExport>,
    /// The identity in leader election; generated at each start if there is none.
    pub(crate) candidate: Option<String>,
    /// Set in shadow mode: the place of the agreement and of saved cases.
    pub(crate) shadow: Option<ShadowOptions>,
    /// The file of `--config` of `berth up` and its text, which [`Scheduling::follow_config`] follows.
    ///
    /// [`Scheduling::follow_config`]: crate::scheduler::Scheduling::follow_config
    pub(crate) file: Option<(PathBuf, String)>,
}

/// The options of shadow mode.
#[derive(Debug, Clone)]
pub(crate) struct ShadowOptions {
    /// The report.
    pub(crate) shared: SharedReport,
    /// The directory of decision cases.
    pub(crate) cases: Option<PathBuf>,
}

/// The options of a core.
pub(crate) fn core_options(
    config: &Config,
    seed: u64,
    evaluator: EvaluatorKind,
    pod_max_in_unschedulable_pods_duration: Duration,
    extenders: Extenders,
) -> SchedulerOptions {
    let mut core = SchedulerOptions {
        seed,
        evaluator,
        extenders,
        stopwatch: Box::new(SinceStart(Instant::now())),
        ..SchedulerOptions::default()
    };
    config.set_options(&mut core);
    core.pod_max_in_unschedulable_pods_duration = pod_max_in_unschedulable_pods_duration;
    core
}

/// The connections of a scheduler: to the same server, each with its own limit on requests.
#[derive(Clone)]
pub(crate) struct Clients {
    /// For lists, watches and all writes of scheduling.
    pub(crate) api: Transport,
    /// For events.
    pub(crate) events: Transport,
}

/// A scheduler that runs. It watches the cluster after [`Runner::watch`] and schedules after [`Runner::lead`].
pub(crate) struct Runner {
    inputs: mpsc::Sender<CoreInput>,
    ready: Arc<AtomicBool>,
    availability: Arc<Availability>,
    feed: Arc<Mutex<Feed>>,
    sampling: Option<JoinHandle<()>>,
    history: SampleHistory,
    publisher: EventPublisher,
    exports: Exports,
    ended: oneshot::Receiver<()>,
    /// Ends with the last call in flight.
    calls: mpsc::Receiver<Infallible>,
}

/// The outputs other than API calls, which are flushed at the end.
struct Exports {
    events: Publishing,
    recording: Option<Recording>,
    traces: Option<Exporting>,
}

impl Runner {
    /// Starts all parts within the current runtime, except watching and scheduling.
    ///
    /// # Errors
    /// When the profiles are wrong or no thread can be had.
    pub(crate) fn start(clients: Clients, options: &RunOptions) -> Result<Self, CommandFailure> {
        let core = core_options(
            &options.config,
            options.seed,
            options.evaluator,
            options.pod_max_in_unschedulable_pods_duration,
            options.webhooks.extenders.clone(),
        );
        let now = clock::now();
        let mut scheduler =
            Scheduler::new(core, &options.registry, now).map_err(CommandFailure::usage)?;
        let recording = match &options.record {
            Some(record) => Some(record::start(record, options, &mut scheduler, now)?),
            None => None,
        };
        let shadow = match &options.shadow {
            Some(shadow) => Some(shadow_of(shadow, options)?),
            None => None,
        };
        let kinds = feed::WatchedKinds::of(&scheduler);
        let (inputs, queue) = Inputs::channel();
        let ready = Arc::new(AtomicBool::new(false));
        let (publisher, publishing) = EventPublisher::start(clients.events, hostname());
        let (call_alive, calls) = mpsc::channel(1);
        let (traces, tracing) = options.traces.clone().map(TraceExport::start).unzip();
        if traces.is_some() {
            scheduler.trace_attempts();
        }
        let (work, to_do) = mpsc::unbounded_channel();
        tasks::spawn(handover::carry_out(
            to_do,
            clients.api.clone(),
            inputs.clone(),
            call_alive,
        ));
        let edge = core::Edge {
            publisher: publisher.clone(),
            work,
            pauses: Pauses::current(),
            ready: Arc::clone(&ready),
            traces,
        };
        let (end, ended) = oneshot::channel();
        std::thread::Builder::new()
            .name("berth-core".to_owned())
            .spawn(move || {
                // Dropped when the thread ends, however it ends.
                let _end = end;
                core::run(scheduler, queue, edge, shadow);
            })
            .map_err(|e| {
                CommandFailure::Environment(format!("failed to start the scheduler's thread: {e}"))
            })?;
        let availability = Arc::<Availability>::default();
        let feed = Feed::new(
            clients.api,
            kinds,
            inputs.clone(),
            Arc::clone(&options.webhooks.raw),
            Arc::clone(&availability),
        );
        Ok(Self {
            inputs,
            ready,
            availability,
            feed: Arc::new(Mutex::new(feed)),
            sampling: None,
            history: SampleHistory::default(),
            publisher,
            exports: Exports {
                events: publishing,
                recording,
                traces: tracing,
            },
            ended,
            calls,
        })
    }

    /// Begins to watch the cluster. Further calls have no effect.
    pub(crate) fn watch(&mut self) {
        if locked(&self.feed).begin() {
            self.sampling = Some(tasks::spawn(sample(self.probe())));
        }
    }

    /// Starts scheduling as soon as the whole cluster has been listed.
    pub(crate) async fn lead(&self) {
        // A core that has ended is noticed elsewhere.
        let _ = self.inputs.send(CoreInput::Lead).await;
    }

    /// The publisher of events outside of scheduling.
    pub(crate) fn publisher(&self) -> &EventPublisher {
        &self.publisher
    }

    /// The handle for questions from outside while the scheduler runs.
    pub(crate) fn probe(&self) -> CoreProbe {
        CoreProbe {
            inputs: self.inputs.clone(),
            ready: Arc::clone(&self.ready),
            availability: Arc::clone(&self.availability),
            answers: DashboardAnswers::default(),
            history: self.history.clone(),
        }
    }

    /// The handle for other configurations while the scheduler runs. `options` are the options at its start.
    pub(crate) fn reconfigurer(&self, options: &RunOptions) -> Reconfigurer {
        Reconfigurer::new(self.inputs.clone(), Arc::clone(&self.feed), options.clone())
    }

    /// Explains the decisions of this scheduler.
    pub(crate) fn explainer(&self) -> Explainer {
        Explainer::new(self.probe())
    }

    /// Resolves when the core has ended unexpectedly: a bug.
    pub(crate) async fn ended(&mut self) {
        let _ = (&mut self.ended).await;
    }

    /// Stops scheduling: no pod is tried and no call is begun after this. Calls in flight get a moment.
    pub(crate) async fn halt(&mut self) {
        locked(&self.feed).end();
        if let Some(sampling) = &self.sampling {
            sampling.abort();
        }
        let _ = self.inputs.send(CoreInput::Stop).await;
        self.ended().await;
        let _ = tokio::time::timeout(CALLS_PATIENCE, self.calls.recv()).await;
    }

    /// Ends after [`Runner::halt`]: writes the end of the recording, and waits a moment for waiting events.
    pub(crate) async fn finish(self) {
        let Exports {
            events,
            recording,
            traces,
        } = self.exports;
        if let Some((status, thread)) = recording {
            end_recording(&status, thread).await;
        }
        drop(self.publisher);
        events.finish(EVENTS_PATIENCE).await;
        if let Some(traces) = traces {
            traces.finish(TRACES_PATIENCE).await;
        }
    }
}

/// Other tasks hold it only briefly.
fn locked(feed: &Mutex<Feed>) -> MutexGuard<'_, Feed> {
    feed.lock().unwrap_or_else(PoisonError::into_inner)
}

fn shadow_of(shadow: &ShadowOptions, options: &RunOptions) -> Result<Shadow, CommandFailure> {
    let cases = match &shadow.cases {
        None => None,
        Some(dir) => Some(
            Cases::new(dir.clone(), options.config.to_value()).map_err(|error| {
                CommandFailure::Environment(format!(
                    "failed to save decision cases in {}: {error}; give another directory with --shadow-cases DIR",
                    dir.display()
                ))
            })?,
        ),
    };
    let extenders = options.webhooks.extenders.clone();
    for line in shadow::left_out(&extenders) {
        tracing::warn!("{line}");
    }
    Ok(Shadow::new(shadow.shared.clone(), cases, extenders))
}

/// Waits until the recording is on the disk.
async fn end_recording(
    status: &berth_recording::RecordingStatus,
    thread: std::thread::JoinHandle<()>,
) {
    let written = tokio::task::spawn_blocking(move || thread.join());
    if tokio::time::timeout(RECORDING_PATIENCE, written)
        .await
        .is_err()
    {
        tracing::warn!("the end of the recording is not written yet and may be missing");
    }
    tracing::info!(
        entries = status.entries(),
        bytes = status.bytes(),
        dropped = status.dropped(),
        "the recording has ended"
    );
}

/// Asks the core.
#[derive(Clone)]
pub struct CoreProbe {
    inputs: mpsc::Sender<CoreInput>,
    ready: Arc<AtomicBool>,
    availability: Arc<Availability>,
    answers: DashboardAnswers,
    history: SampleHistory,
}

/// Takes samples for the time series of the dashboard until the core ends.
async fn sample(probe: CoreProbe) {
    while !probe.inputs.is_closed() {
        if let Some(sample) = probe.look(Sample::take).await {
            probe.history.push(sample);
        }
        tokio::time::sleep(SAMPLE_EVERY).await;
    }
}

impl CoreProbe {
    /// Returns whether the core has seen the whole cluster.
    pub fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Relaxed) && !self.inputs.is_closed()
    }

    /// The same, to be kept.
    pub(crate) fn ready(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.ready)
    }

    /// The features that are disabled because the API server does not have them or does not permit Berth to read them,
    /// each in a sentence.
    pub(crate) fn unavailable(&self) -> Vec<String> {
        self.availability.list()
    }

    /// The number of objects that cannot be read, by kind.
    pub(crate) fn unreadable_objects(&self) -> Vec<(&'static str, usize)> {
        self.availability.unreadable_objects()
    }

    /// The metrics; `None` when the core does not answer.
    pub async fn metrics(&self) -> Option<Snapshot> {
        self.look(|scheduler, now| {
            let mut snapshot = scheduler.metrics();
            add_waiting(&mut snapshot, scheduler, now);
            snapshot
        })
        .await
    }

    /// Every pod that is known; `None` when the core does not answer.
    pub(crate) async fn pods(&self) -> Option<Vec<Arc<Pod>>> {
        self.look(|scheduler, _| scheduler.cache().stored_pods().cloned().collect())
            .await
    }

    /// The answer of the dashboard; `None` when the core does not answer.
    pub(crate) async fn dashboard(&self, question: PageQuestion) -> Option<Value> {
        if question == PageQuestion::History {
            return Some(self.history.answer());
        }
        if let Some(answer) = self.answers.get(&question, Instant::now()) {
            return Some(answer);
        }
        let asked = question.clone();
        let look = move |scheduler: &Scheduler, now| dashboard::answer(scheduler, &asked, now);
        let answer = self.look(look).await?;
        self.answers.put(question, answer.clone(), Instant::now());
        Some(answer)
    }

    /// Begins to count from zero.
    pub(crate) async fn reset_metrics(&self) {
        let _ = self.inputs.send(CoreInput::ResetMetrics).await;
    }

    /// Reads the scheduler between two steps; `None` when the core does not answer.
    pub(crate) async fn look<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Scheduler, Time) -> T + Send + 'static,
    ) -> Option<T> {
        let (answer, answered) = oneshot::channel();
        let look = move |scheduler: &Scheduler, now: Time| {
            // The requester may have stopped waiting.
            drop(answer.send(read(scheduler, now)));
        };
        let asked = async {
            self.inputs
                .send(CoreInput::Look(Box::new(look)))
                .await
                .ok()?;
            answered.await.ok()
        };
        tokio::time::timeout(ANSWER_TIMEOUT, asked).await.ok()?
    }

    /// A core that has ended.
    #[cfg(test)]
    pub(crate) fn ended() -> Self {
        Self::with(mpsc::channel(1).0)
    }

    /// A core that receives questions through a channel.
    #[cfg(test)]
    fn with(inputs: mpsc::Sender<CoreInput>) -> Self {
        Self {
            inputs,
            ready: Arc::default(),
            availability: Arc::default(),
            answers: DashboardAnswers::default(),
            history: SampleHistory::default(),
        }
    }
}

/// Measures durations of the core for its metrics.
struct SinceStart(Instant);

impl Stopwatch for SinceStart {
    fn nanos(&self) -> u64 {
        u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

/// The name of this machine, or of the pod on it.
pub(crate) fn hostname() -> String {
    let named = std::fs::read_to_string("/proc/sys/kernel/hostname");
    let named = named.ok().map(|name| name.trim().to_owned());
    named
        .or_else(|| std::env::var("HOSTNAME").ok())
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| "berth".to_owned())
}
