//! Exports traces of scheduling attempts to an OpenTelemetry collector.
//!
//! The core hands over a trace when an attempt has ended. It never waits: the queue is bounded, and traces that exceed
//! it are dropped and counted. A task sends batches. Without an endpoint in the environment, the core records nothing.

mod encode;
mod options;

pub(crate) use options::TraceOptions;

use crate::exit::CommandFailure;
use crate::tasks;
use berth_client::otlp::{Collector, ExportError};
use berth_scheduler::AttemptTrace;
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout, timeout_at};

/// The maximum number of attempts to send a batch.
const TRIES: u32 = 4;
/// The pause after the first failure. It doubles.
const PAUSE: Duration = Duration::from_secs(1);
/// The longest pause, also if the collector requests a longer one.
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// Losses are logged this often at most.
const LOG_EVERY: Duration = Duration::from_secs(30);

/// A collector that can be used, and how.
#[derive(Clone)]
pub(crate) struct TraceExport {
    collector: Collector,
    options: TraceOptions,
}

impl std::fmt::Debug for TraceExport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("TraceExport").field(&self.options).finish()
    }
}

impl TraceExport {
    /// Reads the environment. `None` when traces are off.
    ///
    /// # Errors
    /// When a variable, or a file that it names, cannot be used.
    pub(crate) async fn of_environment() -> Result<Option<Self>, CommandFailure> {
        let options = TraceOptions::read(|name| std::env::var(name).ok());
        let Some(options) = options.map_err(CommandFailure::Usage)? else {
            return Ok(None);
        };
        let collector = Collector::new(&options.collector).await.map_err(|e| {
            CommandFailure::Usage(format!(
                "failed to export traces (OTEL_EXPORTER_OTLP_…): {e}"
            ))
        })?;
        Ok(Some(Self { collector, options }))
    }

    /// Starts to export within the current runtime.
    pub(crate) fn start(self) -> (TraceSender, Exporting) {
        let (queue, waiting) = mpsc::channel(self.options.queue_max);
        let dropped = Arc::<AtomicU64>::default();
        tracing::info!(
            url = self.options.collector.url,
            ratio = self.options.ratio,
            "exporting traces of scheduling attempts"
        );
        let sender = TraceSender {
            queue,
            ratio: self.options.ratio,
            dropped: Arc::clone(&dropped),
        };
        let task = tasks::spawn(export(self, waiting, dropped));
        (sender, Exporting(task))
    }
}

/// The sender of the traces of the core.
pub(crate) struct TraceSender {
    queue: mpsc::Sender<AttemptTrace>,
    ratio: f64,
    dropped: Arc<AtomicU64>,
}

impl TraceSender {
    /// Hands a trace over, unless the sampler excludes it or the queue is full.
    pub(crate) fn send(&self, trace: AttemptTrace) {
        let id = encode::trace_id(&trace.pod.uid);
        if encode::is_sampled(id, self.ratio) && self.queue.try_send(trace).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The task that exports. It ends when the sender is dropped and the queue is empty.
pub(crate) struct Exporting(JoinHandle<()>);

impl Exporting {
    /// Waits this long for traces that are not sent yet.
    pub(crate) async fn finish(self, patience: Duration) {
        let _ = timeout(patience, self.0).await;
    }
}

async fn export(
    export: TraceExport,
    mut waiting: mpsc::Receiver<AttemptTrace>,
    dropped: Arc<AtomicU64>,
) {
    let options = &export.options;
    let mut losses = Losses::default();
    let mut batch = Vec::new();
    while let Some(first) = waiting.recv().await {
        batch.push(first);
        let deadline = Instant::now() + options.delay;
        while batch.len() < options.batch_max {
            let more = options.batch_max - batch.len();
            let received = timeout_at(deadline, waiting.recv_many(&mut batch, more)).await;
            if !received.is_ok_and(|received| received > 0) {
                break;
            }
        }
        let sent = send(&export, &batch).await;
        losses.lost += dropped.swap(0, Ordering::Relaxed);
        if let Err(error) = sent {
            losses.lost += batch.len() as u64;
            losses.reason = error.to_string();
        }
        losses.log(Instant::now());
        batch.clear();
    }
}

/// Sends a batch, again while that may help.
async fn send(export: &TraceExport, batch: &[AttemptTrace]) -> Result<(), ExportError> {
    let options = &export.options;
    let mut body = encode::body(&options.resource, batch);
    if options.is_compressed {
        body = compressed(&body);
    }
    let body = Bytes::from(body);
    let mut pause = PAUSE;
    for tries in 1.. {
        let sent = export
            .collector
            .send(body.clone(), options.is_compressed)
            .await;
        let error = match sent {
            Err(error) if error.is_retryable && tries < TRIES => error,
            sent => return sent,
        };
        tracing::debug!(%error, "failed to export traces, retrying");
        sleep(error.retry_after.unwrap_or(pause).min(PAUSE_MAX)).await;
        pause *= 2;
    }
    Ok(())
}

fn compressed(body: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    // Writing to memory does not fail.
    let _ = encoder.write_all(body);
    encoder.finish().unwrap_or_default()
}

/// Traces that were not exported, until that is logged.
#[derive(Debug, Default)]
struct Losses {
    lost: u64,
    reason: String,
    logged: Option<Instant>,
}

impl Losses {
    fn log(&mut self, now: Instant) {
        let is_due = self
            .logged
            .is_none_or(|logged| now.saturating_duration_since(logged) >= LOG_EVERY);
        if self.lost == 0 || !is_due {
            return;
        }
        let reason = match &*self.reason {
            "" => "the queue was full",
            reason => reason,
        };
        tracing::warn!(
            traces = self.lost,
            reason,
            "traces of scheduling attempts were not exported"
        );
        *self = Self {
            logged: Some(now),
            ..Self::default()
        };
    }
}

#[cfg(test)]
mod tests;
