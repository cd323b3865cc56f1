//! The metrics of the process: requests to the API, leader election, the process itself. They are served together with
//! the metrics of the core; `--disabled-metrics` and `--allow-metric-labels` apply to all.

mod filter;
mod pods;
mod process;
mod spread;
#[cfg(test)]
mod tests;
mod waiting;

pub(crate) use filter::MetricFilter;
pub(crate) use pods::render as render_pods;
#[cfg(test)]
pub(crate) use spread::SpreadMetric;
pub(crate) use spread::snapshot as spread_snapshot;
#[cfg(test)]
pub(crate) use waiting::WaitingMetric;
pub(crate) use waiting::add as add_waiting;

use berth_api::Release;
use berth_client::election::{ElectionStatus, Leadership};
use berth_client::observe::{Exchange, Observer};
use berth_framework::features::Versions;
use berth_scheduler::families;
#[cfg(test)]
use berth_scheduler::metrics::Family;
use berth_scheduler::metrics::{Buckets, MetricKind, MetricsOf, Snapshot};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Upper bounds of durations of requests, in seconds.
const SECONDS: MetricKind = MetricKind::Histogram(Buckets::Listed(&[
    0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0,
]));
/// Upper bounds of sizes of requests and answers, in bytes.
const BYTES: MetricKind = MetricKind::Histogram(Buckets::Listed(&[
    64.0,
    256.0,
    512.0,
    1024.0,
    4096.0,
    16384.0,
    65536.0,
    262_144.0,
    1_048_576.0,
    4_194_304.0,
    16_777_216.0,
]));

use MetricKind::{Counter, Gauge};

families! {
    EdgeMetric:
    BuildInfo: Alpha Gauge, "kubernetes_build_info" ["major", "minor", "git_version", "git_commit", "git_tree_state", "build_date", "go_version", "compiler", "platform"]
        "A metric with a constant '1' value labeled by the emulated Kubernetes version and by the build.";
    VersionInfo: Alpha Gauge, "version_info" ["component", "binary", "emulation", "min_compat"]
        "A metric with a constant '1' value labeled by the newest supported Kubernetes version, the emulated version, and the oldest compatible version of other components.";
    LeaderElectionMaster: Alpha Gauge, "leader_election_master_status" ["name"]
        "Gauge of if the reporting system is master of the relevant lease, 0 indicates backup, 1 indicates master. 'name' is the name of the lease.";
    LeaderElectionLeaseHeld: Alpha Gauge, "berth_leader_election_lease_held" ["name"]
        "1 while any process holds the leader lease, as observed by this process; otherwise 0. 'name' is the name of the lease.";
    LeaderElectionSlowpath: Alpha Counter, "leader_election_slowpath_total" ["name"]
        "Number of renewals of the leader lease that required a read of the lease.";
    ConfigReloads: Alpha Counter, "berth_config_reload_total" ["result"]
        "Number of times that a changed file of --config was read, by result: applied, restart_required (applied except for fields that need a restart) or refused (the last valid configuration stays in effect).";
    ConfigLastReloadSuccessful: Alpha Gauge, "berth_config_last_reload_successful" []
        "1 if the file of --config as it was read last is in effect, at least in the fields that need no restart; 0 if it was refused.";
    ConfigHash: Alpha Gauge, "berth_config_hash" []
        "Hash of the configuration in effect, a number below 2^48: equal in processes with the same configuration.";
    UnreadableObjects: Alpha Gauge, "berth_unreadable_objects" ["kind"]
        "Number of objects with unreadable identity, by kind. They are ignored for scheduling; the node of such a pod gets no more pods.";
    RestClientRequests: Alpha Counter, "rest_client_requests_total" ["code", "method", "host"]
        "Number of HTTP requests to the API server, partitioned by status code, method, and host. The code of a request without a response is '<error>'.";
    RestClientRequestDuration: Alpha SECONDS, "rest_client_request_duration_seconds" ["verb", "host"]
        "Request latency in seconds. Broken down by verb, and host. Watches are not included.";
    RestClientRateLimiterDuration: Alpha SECONDS, "rest_client_rate_limiter_duration_seconds" ["verb", "host"]
        "Time that requests wait for the client's rate limit (clientConnection.qps), in seconds. Broken down by verb, and host.";
    RestClientRequestSize: Alpha BYTES, "rest_client_request_size_bytes" ["verb", "host"]
        "Request size in bytes. Broken down by verb and host.";
    RestClientResponseSize: Alpha BYTES, "rest_client_response_size_bytes" ["verb", "host"]
        "Response size in bytes. Broken down by verb and host. Watches are not included.";
    ProcessCpu: Alpha Counter, "process_cpu_seconds_total" []
        "Total user and system CPU time spent in seconds.";
    ProcessMaxFds: Alpha Gauge, "process_max_fds" []
        "Maximum number of open file descriptors.";
    ProcessNetworkReceive: Alpha Counter, "process_network_receive_bytes_total" []
        "Number of bytes received over the network by the machine or pod of the process.";
    ProcessNetworkTransmit: Alpha Counter, "process_network_transmit_bytes_total" []
        "Number of bytes sent over the network by the machine or pod of the process.";
    ProcessOpenFds: Alpha Gauge, "process_open_fds" []
        "Number of open file descriptors.";
    ProcessResidentMemory: Alpha Gauge, "process_resident_memory_bytes" []
        "Resident memory size in bytes.";
    ProcessStartTime: Alpha Gauge, "process_start_time_seconds" []
        "Start time of the process since unix epoch in seconds.";
    ProcessVirtualMemory: Alpha Gauge, "process_virtual_memory_bytes" []
        "Virtual memory size in bytes.";
    ProcessVirtualMemoryMax: Alpha Gauge, "process_virtual_memory_max_bytes" []
        "Maximum amount of virtual memory available in bytes.";
}

families! {
    HealthMetric:
    Healthcheck: Stable Gauge, "kubernetes_healthcheck" ["name", "type"]
        "This metric records the result of a single healthcheck.";
    Healthchecks: Stable Counter, "kubernetes_healthchecks_total" ["name", "status", "type"]
        "This metric records the results of all healthcheck.";
}

/// The metrics of the edge.
pub(crate) struct EdgeMetrics {
    metrics: Mutex<MetricsOf<EdgeMetric>>,
}

impl EdgeMetrics {
    /// No requests yet. `version` is the version that is reported, `versions` the release whose behaviour the process
    /// has.
    pub(crate) fn new(version: &str, versions: Versions) -> Self {
        let mut metrics = MetricsOf::default();
        let platform = format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH);
        let emulated = versions.emulated.as_str();
        let (major, minor) = emulated.split_once('.').unwrap_or_default();
        let labels = [major, minor, version, "", "", "", "", "rustc", &platform];
        metrics.set(EdgeMetric::BuildInfo, &labels, 1.0);
        let min_compat = format!("1.{}", versions.min_compatibility_minor);
        let labels = ["kube", Release::NEWEST.as_str(), emulated, &min_compat];
        metrics.set(EdgeMetric::VersionInfo, &labels, 1.0);
        Self {
            metrics: Mutex::new(metrics),
        }
    }

    /// All recorded values, and current values of the system.
    pub(crate) fn snapshot(
        &self,
        election: Option<(&str, &ElectionStatus)>,
        unreadable: &[(&str, usize)],
    ) -> Snapshot {
        let mut metrics = self.lock();
        for (kind, objects) in unreadable {
            metrics.set(EdgeMetric::UnreadableObjects, &[kind], *objects as f64);
        }
        for (metric, value) in process::read() {
            metrics.set(metric, &[], value);
        }
        if let Some((name, status)) = election {
            let leads = f64::from(u8::from(status.leadership == Leadership::Leading));
            metrics.set(EdgeMetric::LeaderElectionMaster, &[name], leads);
            let held = f64::from(u8::from(status.is_lease_held()));
            metrics.set(EdgeMetric::LeaderElectionLeaseHeld, &[name], held);
            let slow = status.slow_renewals as f64;
            metrics.set(EdgeMetric::LeaderElectionSlowpath, &[name], slow);
        }
        metrics.snapshot()
    }

    /// The configuration in effect has this hash, and the file that was read last is in effect or was refused.
    pub(crate) fn config_in_effect(&self, hash: u64, is_file_in_effect: bool) {
        let mut metrics = self.lock();
        metrics.set(EdgeMetric::ConfigHash, &[], hash as f64);
        let successful = f64::from(u8::from(is_file_in_effect));
        metrics.set(EdgeMetric::ConfigLastReloadSuccessful, &[], successful);
    }

    /// A changed file of `--config` was read.
    pub(crate) fn config_reloaded(&self, result: &str) {
        self.lock().count(EdgeMetric::ConfigReloads, &[result]);
    }

    /// Forgets the requests (M-3).
    pub(crate) fn reset(&self) {
        let mut metrics = self.lock();
        for metric in [
            EdgeMetric::RestClientRequests,
            EdgeMetric::RestClientRequestDuration,
            EdgeMetric::RestClientRateLimiterDuration,
            EdgeMetric::RestClientRequestSize,
            EdgeMetric::RestClientResponseSize,
        ] {
            metrics.forget(metric);
        }
    }

    fn lock(&self) -> MutexGuard<'_, MetricsOf<EdgeMetric>> {
        self.metrics.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Observer for EdgeMetrics {
    fn waited(&self, method: &str, host: &str, waited: Duration) {
        let metric = EdgeMetric::RestClientRateLimiterDuration;
        self.lock()
            .observe(metric, &[method, host], waited.as_secs_f64());
    }

    fn ended(&self, exchange: &Exchange<'_>) {
        let labels = [exchange.method, exchange.host];
        let code = exchange.code.map(|code| code.to_string());
        let code = code.as_deref().unwrap_or("<error>");
        let mut metrics = self.lock();
        let counted = [code, exchange.method, exchange.host];
        metrics.count(EdgeMetric::RestClientRequests, &counted);
        if !exchange.is_watch {
            let seconds = exchange.took.as_secs_f64();
            metrics.observe(EdgeMetric::RestClientRequestDuration, &labels, seconds);
        }
        if exchange.request_bytes > 0 {
            let bytes = exchange.request_bytes as f64;
            metrics.observe(EdgeMetric::RestClientRequestSize, &labels, bytes);
        }
        if let Some(bytes) = exchange.response_bytes {
            let metric = EdgeMetric::RestClientResponseSize;
            metrics.observe(metric, &labels, bytes as f64);
        }
    }
}
