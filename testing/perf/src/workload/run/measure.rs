//! A measurement: from the beginning of an operation, or of several, to their end.

use crate::stats::{Buckets, milliseconds};
use crate::workload::api::WorkloadApi;
use crate::workload::cluster::RunningCluster;
use crate::workload::ops::LabelSet;
use crate::workload::process::{Process, Usage};
use crate::workload::prometheus::{Labels, Scrape};
use crate::workload::throughput::{SAMPLE_INTERVAL, Throughput};
use crate::workload::view::{PodFilter, WatchView};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval_at};

/// The histograms of the scheduler that upstream's harness collects, with the labels that distinguish series.
const HISTOGRAMS: [(&str, &[&str]); 4] = [
    (
        "scheduler_framework_extension_point_duration_seconds",
        &["extension_point"],
    ),
    ("scheduler_scheduling_attempt_duration_seconds", &["result"]),
    ("scheduler_pod_scheduling_sli_duration_seconds", &[]),
    (
        "scheduler_plugin_execution_duration_seconds",
        &["plugin", "extension_point"],
    ),
];

/// The measurements.
#[derive(Debug, Clone)]
pub struct WorkloadMeasured {
    /// The name of the namespace, or the name in startCollectingMetrics.
    pub name: String,
    /// Pods per second by upstream's rule; none if the measurement ended before two readings with pods.
    pub throughput: Option<Buckets>,
    /// The number of samples of the throughput.
    pub samples: usize,
    /// Pods that were scheduled.
    pub scheduled: u64,
    /// From the first to the last pod that was scheduled.
    pub span: Duration,
    /// From the beginning to the end of the measurement.
    pub duration: Duration,
    /// From sending the creation of a pod to observing its binding, in milliseconds.
    pub latency: Option<Buckets>,
    /// The usage of each process.
    pub processes: Vec<ProcessUsage>,
    /// Requests that the API server answered, without watches and the runner's own writes; none if it does not report
    /// them.
    pub api_calls: Option<u64>,
    /// Writes of the runner itself.
    pub own_writes: u64,
    /// Scheduling attempts; none if the scheduler's metrics cannot be read.
    pub attempts: Option<u64>,
    /// Calls of queueing hints; none if the scheduler's metrics cannot be read.
    pub hint_calls: Option<u64>,
    /// Histograms of the scheduler, in milliseconds.
    pub histograms: Vec<Histogram>,
}

impl WorkloadMeasured {
    /// Pods per second between the first and the last scheduled pod; none for fewer than two pods.
    pub fn overall(&self) -> Option<f64> {
        let seconds = self.span.as_secs_f64();
        (self.scheduled > 1 && seconds > 0.0).then(|| (self.scheduled - 1) as f64 / seconds)
    }

    /// Scheduling attempts per bound pod.
    pub fn attempts_per_pod(&self) -> Option<f64> {
        self.per_pod(self.attempts)
    }

    /// Calls of queueing hints per bound pod.
    pub fn hint_calls_per_pod(&self) -> Option<f64> {
        self.per_pod(self.hint_calls)
    }

    /// The count per bound pod.
    pub fn count_per_pod(&self, of: PodCount) -> Option<f64> {
        match of {
            PodCount::Attempts => self.attempts_per_pod(),
            PodCount::HintCalls => self.hint_calls_per_pod(),
        }
    }

    fn per_pod(&self, count: Option<u64>) -> Option<f64> {
        let count = count? as f64;
        (self.scheduled > 0).then(|| count / self.scheduled as f64)
    }
}

/// A count per bound pod. It depends on the scheduler's work and not on the speed of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub enum PodCount {
    /// Scheduling attempts.
    #[serde(rename = "AttemptsPerPod")]
    Attempts,
    /// Calls of queueing hints.
    #[serde(rename = "HintCallsPerPod")]
    HintCalls,
}

impl PodCount {
    /// Every count.
    pub const ALL: [Self; 2] = [Self::Attempts, Self::HintCalls];

    /// The name in workload files and in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Attempts => "AttemptsPerPod",
            Self::HintCalls => "HintCallsPerPod",
        }
    }

    /// The unit in results.
    pub fn unit(self) -> &'static str {
        match self {
            Self::Attempts => "attempts",
            Self::HintCalls => "calls",
        }
    }
}

/// The usage of a process during a measurement.
#[derive(Debug, Clone)]
pub struct ProcessUsage {
    /// The name of the process.
    pub name: String,
    /// CPU time during the measurement, in seconds.
    pub cpu_seconds: f64,
    /// The same by the name of the thread. Threads that ended are missing.
    pub threads: BTreeMap<String, f64>,
    /// The peak memory since the process started, in bytes.
    pub peak_bytes: u64,
}

/// The increase of a histogram during a measurement.
#[derive(Debug, Clone)]
pub struct Histogram {
    /// The metric.
    pub metric: &'static str,
    /// The labels of the series.
    pub labels: Labels,
    /// In milliseconds.
    pub buckets: Buckets,
}

/// A measurement in progress.
pub(super) struct Collecting {
    name: String,
    begun: Instant,
    sampling: JoinHandle<Throughput>,
    /// Ends the sampling.
    stop: oneshot::Sender<()>,
    before: Readings,
}

/// Counters at a point of time.
struct Readings {
    usage: BTreeMap<String, (Process, Usage)>,
    scheduler: Option<Scrape>,
    server: Option<Scrape>,
    own_writes: u64,
}

impl Readings {
    async fn take(api: &WorkloadApi, cluster: &dyn RunningCluster) -> Self {
        let usage = cluster.processes().into_iter().filter_map(|process| {
            let usage = process.usage()?;
            Some((process.name.clone(), (process, usage)))
        });
        Self {
            usage: usage.collect(),
            scheduler: cluster.scheduler_metrics().await.map(|t| Scrape::parse(&t)),
            server: api.text("/metrics").await.map(|text| Scrape::parse(&text)),
            own_writes: api.writes(),
        }
    }
}

impl Collecting {
    pub(super) async fn begin(
        api: &WorkloadApi,
        view: &Arc<WatchView>,
        cluster: &dyn RunningCluster,
        name: String,
        namespaces: Vec<String>,
        labels: LabelSet,
    ) -> Self {
        let before = Readings::take(api, cluster).await;
        view.measure(PodFilter {
            namespaces: namespaces.into_iter().collect(),
            labels,
        });
        let (stop, stopped) = oneshot::channel();
        let begun = Instant::now();
        Self {
            name,
            begun,
            sampling: tokio::spawn(sample(Arc::clone(view), begun, stopped)),
            stop,
            before,
        }
    }

    pub(super) async fn end(
        self,
        api: &WorkloadApi,
        view: &WatchView,
        cluster: &dyn RunningCluster,
    ) -> WorkloadMeasured {
        let duration = self.begun.elapsed();
        // The task ends by itself only when the view was dropped.
        let _ = self.stop.send(());
        let throughput = self.sampling.await.unwrap_or_default();
        let measurement = view.measured();
        let after = Readings::take(api, cluster).await;
        let own_writes = after.own_writes.saturating_sub(self.before.own_writes);
        let processes = after.usage.iter().map(|(name, (_, usage))| {
            let before = self.before.usage.get(name);
            ProcessUsage {
                name: name.clone(),
                cpu_seconds: usage.cpu_seconds - before.map_or(0.0, |(_, u)| u.cpu_seconds),
                threads: threads_since(before.map(|(_, usage)| usage), usage),
                peak_bytes: usage.peak_bytes,
            }
        });
        WorkloadMeasured {
            name: self.name,
            throughput: throughput.result(),
            samples: throughput.samples(),
            scheduled: measurement.scheduled,
            span: measurement.span,
            duration,
            latency: milliseconds(&measurement.latencies),
            processes: processes.collect(),
            api_calls: since(&self.before.server, &after.server, requests)
                .map(|calls| calls.saturating_sub(own_writes)),
            own_writes,
            attempts: since(&self.before.scheduler, &after.scheduler, attempts),
            hint_calls: since(&self.before.scheduler, &after.scheduler, hint_calls),
            histograms: histograms(&self.before.scheduler, &after.scheduler),
        }
    }
}

async fn sample(
    view: Arc<WatchView>,
    begun: Instant,
    mut stopped: oneshot::Receiver<()>,
) -> Throughput {
    let mut throughput = Throughput::default();
    let start = tokio::time::Instant::from_std(begun) + SAMPLE_INTERVAL;
    let mut ticker = interval_at(start, SAMPLE_INTERVAL);
    ticker.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        tokio::select! {
            _ = &mut stopped => return throughput,
            _ = ticker.tick() => throughput.read(begun.elapsed(), view.scheduled()),
        }
    }
}

/// The CPU time of threads after a reading, in seconds, by their name.
fn threads_since(before: Option<&Usage>, after: &Usage) -> BTreeMap<String, f64> {
    let before = |name: &String| before.and_then(|usage| usage.threads.get(name)).copied();
    let threads = after.threads.iter();
    threads
        .map(|(name, seconds)| {
            let seconds = seconds - before(name).unwrap_or_default();
            (name.clone(), seconds.max(0.0))
        })
        .collect()
}

fn since(
    before: &Option<Scrape>,
    after: &Option<Scrape>,
    read: impl Fn(&Scrape) -> f64,
) -> Option<u64> {
    let (before, after) = (before.as_ref()?, after.as_ref()?);
    Some((read(after) - read(before)).max(0.0) as u64)
}

fn attempts(scrape: &Scrape) -> f64 {
    scrape.sum("scheduler_schedule_attempts_total", |_| true)
}

fn hint_calls(scrape: &Scrape) -> f64 {
    let calls = "scheduler_queueing_hint_execution_duration_seconds_count";
    scrape.sum(calls, |_| true)
}

fn requests(scrape: &Scrape) -> f64 {
    scrape.sum("apiserver_request_total", |labels| {
        labels.get("verb").is_none_or(|verb| verb != "WATCH")
    })
}

fn histograms(before: &Option<Scrape>, after: &Option<Scrape>) -> Vec<Histogram> {
    let (Some(before), Some(after)) = (before, after) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for (metric, by) in HISTOGRAMS {
        for (labels, buckets) in after.histograms_since(before, metric, by) {
            found.push(Histogram {
                metric,
                labels,
                buckets,
            });
        }
    }
    found
}
