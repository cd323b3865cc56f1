//! The measurements of an API server, and their output.

use crate::stats::milliseconds;
use crate::workload::Usage;
use serde::Serialize;
use std::fmt;
use std::time::Duration;

/// The measurements.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ApiReport {
    /// Rates, in the order of the measurements.
    pub rates: Vec<Rate>,
    /// Amounts of memory.
    pub memory: Vec<MemoryAmount>,
}

/// The number of completed actions within a time.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Rate {
    /// The action.
    pub what: String,
    /// The number of times.
    pub count: usize,
    /// In which time, in seconds.
    pub seconds: f64,
    /// The number of times per second.
    pub per_second: f64,
    /// CPU time of the server per action, in microseconds.
    pub server_cpu_micros: f64,
    /// CPU time of the clients, which are this process, per action, in microseconds.
    pub client_cpu_micros: f64,
    /// The median latency, in milliseconds, if requests were timed.
    pub latency_millis_median: Option<f64>,
    /// The 99th percentile of the latency, in milliseconds, if requests were timed.
    pub latency_millis_p99: Option<f64>,
}

/// An amount of memory.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MemoryAmount {
    /// The description of the measured memory.
    pub what: String,
    /// In bytes.
    pub bytes: u64,
}

/// CPU time of the server and the clients, in seconds.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Cpu {
    pub(super) server: f64,
    pub(super) client: f64,
}

impl Cpu {
    pub(super) fn of(server: Option<Usage>, client: Option<Usage>) -> Self {
        let seconds = |usage: Option<Usage>| usage.map_or(0.0, |u| u.cpu_seconds);
        Self {
            server: seconds(server),
            client: seconds(client),
        }
    }
}

impl Rate {
    pub(super) fn new(
        what: impl Into<String>,
        count: usize,
        took: Duration,
        before: Cpu,
        after: Cpu,
    ) -> Self {
        let seconds = took.as_secs_f64().max(f64::EPSILON);
        let each = |seconds: f64| seconds * 1e6 / count.max(1) as f64;
        Self {
            what: what.into(),
            count,
            seconds,
            per_second: count as f64 / seconds,
            server_cpu_micros: each(after.server - before.server),
            client_cpu_micros: each(after.client - before.client),
            latency_millis_median: None,
            latency_millis_p99: None,
        }
    }

    pub(super) fn timed(mut self, latencies: &[Duration]) -> Self {
        let buckets = milliseconds(latencies);
        self.latency_millis_median = buckets.map(|b| b.perc50);
        self.latency_millis_p99 = buckets.map(|b| b.perc99);
        self
    }
}

impl fmt::Display for ApiReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<44} {:>8} {:>8} {:>10} {:>10} {:>10} {:>9} {:>8}",
            "", "count", "seconds", "per second", "server µs", "client µs", "median ms", "p99 ms"
        )?;
        for rate in &self.rates {
            let millis = |value: Option<f64>| value.map_or("-".to_owned(), |v| format!("{v:.2}"));
            writeln!(
                f,
                "{:<44} {:>8} {:>8.2} {:>10.0} {:>10.1} {:>10.1} {:>9} {:>8}",
                rate.what,
                rate.count,
                rate.seconds,
                rate.per_second,
                rate.server_cpu_micros,
                rate.client_cpu_micros,
                millis(rate.latency_millis_median),
                millis(rate.latency_millis_p99),
            )?;
        }
        writeln!(f)?;
        for amount in &self.memory {
            writeln!(f, "{:<66} {:>12} bytes", amount.what, amount.bytes)?;
        }
        Ok(())
    }
}
