//! `/healthz`, `/livez` and `/readyz`, with kube-scheduler's checks and answers.

use crate::metrics::HealthMetric;
use berth_client::election;
use berth_scheduler::metrics::{MetricsOf, Snapshot};
use http::StatusCode;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;

/// A leader that has not renewed its lease for this time after its expiry is broken and must be restarted.
const OVERDUE_TOLERANCE: Duration = Duration::from_secs(20);

/// The requested endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum HealthEndpoint {
    /// Deprecated upstream; kept for old probes.
    Healthz,
    /// Whether the process needs no restart.
    Livez,
    /// Whether the scheduler has listed the cluster and makes progress.
    Readyz,
}

impl HealthEndpoint {
    /// All of them.
    pub(super) const ALL: [Self; 3] = [Self::Healthz, Self::Livez, Self::Readyz];

    /// The path without the slash; also the type in metrics.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Healthz => "healthz",
            Self::Livez => "livez",
            Self::Readyz => "readyz",
        }
    }
}

/// A check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum HealthCheck {
    Ping,
    LeaderElection,
    Shutdown,
    HandlerSync,
}

impl HealthCheck {
    /// The name in paths and answers.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Ping => "ping",
            Self::LeaderElection => "leaderElection",
            Self::Shutdown => "shutdown",
            Self::HandlerSync => "sched-handler-sync",
        }
    }
}

/// The state that the checks read.
pub(crate) struct Health {
    /// The election, if there is one, and how long its lease lasts.
    election: Option<(watch::Receiver<election::ElectionStatus>, Duration)>,
    /// Whether the process is about to end.
    is_stopping: Arc<AtomicBool>,
    /// Whether the whole cluster has been listed.
    is_synced: Arc<AtomicBool>,
    /// The number of times that each check has run, by outcome.
    runs: Mutex<BTreeMap<(HealthEndpoint, HealthCheck), Runs>>,
}

/// The number of times that a check has run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Runs {
    pub(super) succeeded: u64,
    pub(super) failed: u64,
    /// The last result.
    pub(super) is_good: bool,
}

impl Health {
    /// Checks that have not run yet.
    pub(crate) fn new(
        election: Option<(watch::Receiver<election::ElectionStatus>, Duration)>,
        is_stopping: Arc<AtomicBool>,
        is_synced: Arc<AtomicBool>,
    ) -> Self {
        Self {
            election,
            is_stopping,
            is_synced,
            runs: Mutex::default(),
        }
    }

    /// The checks of an endpoint, in the order of its answer.
    pub(super) fn checks(&self, endpoint: HealthEndpoint) -> Vec<HealthCheck> {
        let election = self.election.as_ref().map(|_| HealthCheck::LeaderElection);
        match endpoint {
            HealthEndpoint::Livez => vec![HealthCheck::Ping],
            HealthEndpoint::Healthz => vec![election.unwrap_or(HealthCheck::Ping)],
            HealthEndpoint::Readyz => election
                .into_iter()
                .chain([HealthCheck::Shutdown, HealthCheck::HandlerSync])
                .collect(),
        }
    }

    /// The failure of a check, if any.
    fn failure(&self, check: HealthCheck) -> Option<&'static str> {
        let is_failing = match check {
            HealthCheck::Ping => false,
            HealthCheck::LeaderElection => self.election.as_ref().is_some_and(|(status, lease)| {
                election::is_overdue(&status.borrow(), *lease, OVERDUE_TOLERANCE)
            }),
            HealthCheck::Shutdown => self.is_stopping.load(Ordering::Relaxed),
            HealthCheck::HandlerSync => !self.is_synced.load(Ordering::Relaxed),
        };
        is_failing.then_some(match check {
            HealthCheck::Ping => "",
            HealthCheck::LeaderElection => "failed election to renew leadership",
            HealthCheck::Shutdown => "process is shutting down",
            HealthCheck::HandlerSync => "handlers are not fully synchronized",
        })
    }

    fn run(&self, endpoint: HealthEndpoint, check: HealthCheck) -> Result<(), &'static str> {
        let failure = self.failure(check);
        let mut runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        let run = runs.entry((endpoint, check)).or_default();
        run.is_good = failure.is_none();
        match failure {
            None => {
                run.succeeded += 1;
                Ok(())
            }
            Some(reason) => {
                run.failed += 1;
                Err(reason)
            }
        }
    }

    /// The results of all checks that have run, for `/metrics/slis`.
    pub(super) fn snapshot(&self) -> Snapshot {
        let mut metrics = MetricsOf::default();
        let runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        for ((endpoint, check), run) in runs.iter() {
            let (check, endpoint) = (check.name(), endpoint.name());
            let is_good = f64::from(u8::from(run.is_good));
            metrics.set(HealthMetric::Healthcheck, &[check, endpoint], is_good);
            for (status, count) in [("success", run.succeeded), ("error", run.failed)] {
                if count > 0 {
                    let labels = [check, status, endpoint];
                    metrics.set(HealthMetric::Healthchecks, &labels, count as f64);
                }
            }
        }
        metrics.snapshot()
    }

    /// The answer of one check; `None` when the endpoint has no such check.
    pub(super) fn answer_of(
        &self,
        endpoint: HealthEndpoint,
        name: &str,
    ) -> Option<(StatusCode, String)> {
        let check = self
            .checks(endpoint)
            .into_iter()
            .find(|c| c.name() == name)?;
        Some(match self.run(endpoint, check) {
            Ok(()) => (StatusCode::OK, "ok".to_owned()),
            Err(reason) => (
                StatusCode::INTERNAL_SERVER_ERROR,
                format!("internal server error: {reason}\n"),
            ),
        })
    }

    /// The answer of an endpoint. `query` may ask for the single checks (`verbose`), or leave some out
    /// (`exclude=NAME`).
    pub(super) fn answer(&self, endpoint: HealthEndpoint, query: &str) -> (StatusCode, String) {
        let parameters: Vec<(&str, &str)> = query
            .split('&')
            .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
            .collect();
        let is_verbose = parameters.iter().any(|(name, _)| *name == "verbose");
        let mut excluded: Vec<&str> = parameters
            .iter()
            .filter(|(name, _)| *name == "exclude")
            .map(|(_, value)| *value)
            .collect();
        let mut text = String::new();
        let mut failed = Vec::new();
        for check in self.checks(endpoint) {
            let name = check.name();
            if excluded.contains(&name) {
                excluded.retain(|other| *other != name);
                let _ = writeln!(text, "[+]{name} excluded: ok");
                continue;
            }
            match self.run(endpoint, check) {
                Ok(()) => drop(writeln!(text, "[+]{name} ok")),
                Err(reason) => {
                    failed.push(format!("{name}: {reason}"));
                    let _ = writeln!(text, "[-]{name} failed: reason withheld");
                }
            }
        }
        if !excluded.is_empty() {
            let names: Vec<String> = excluded.iter().map(|name| format!("{name:?}")).collect();
            let _ = writeln!(
                text,
                "warn: some health checks cannot be excluded: no matches for {}",
                names.join(", ")
            );
        }
        let name = endpoint.name();
        if !failed.is_empty() {
            tracing::debug!(v = 2, checks = failed.join(","), "{name} check failed");
            let _ = writeln!(text, "{name} check failed");
            return (StatusCode::INTERNAL_SERVER_ERROR, text);
        }
        if !is_verbose {
            return (StatusCode::OK, "ok".to_owned());
        }
        let _ = writeln!(text, "{name} check passed");
        (StatusCode::OK, text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn health(elects: bool, is_stopping: bool, is_synced: bool) -> Health {
        let status = election::ElectionStatus {
            leadership: election::Leadership::Standby,
            leader: String::new(),
            observed: tokio::time::Instant::now(),
            lease_duration: Duration::ZERO,
            slow_renewals: 0,
        };
        let (_, status) = watch::channel(status);
        Health::new(
            elects.then_some((status, Duration::from_secs(15))),
            Arc::new(is_stopping.into()),
            Arc::new(is_synced.into()),
        )
    }

    /// The bodies as kube-scheduler writes them.
    #[test]
    fn endpoints_answer_as_kube_schedulers() {
        for (elects, stopping, synced, endpoint, query, code, body) in [
            (false, false, false, HealthEndpoint::Healthz, "", 200, "ok"),
            (
                false,
                false,
                false,
                HealthEndpoint::Healthz,
                "verbose",
                200,
                "[+]ping ok\nhealthz check passed\n",
            ),
            (
                true,
                false,
                false,
                HealthEndpoint::Healthz,
                "verbose",
                200,
                "[+]leaderElection ok\nhealthz check passed\n",
            ),
            (
                false,
                true,
                false,
                HealthEndpoint::Livez,
                "verbose",
                200,
                "[+]ping ok\nlivez check passed\n",
            ),
            (
                false,
                false,
                false,
                HealthEndpoint::Readyz,
                "",
                500,
                "[+]shutdown ok\n[-]sched-handler-sync failed: reason withheld\nreadyz check failed\n",
            ),
            (
                true,
                false,
                true,
                HealthEndpoint::Readyz,
                "verbose",
                200,
                "[+]leaderElection ok\n[+]shutdown ok\n[+]sched-handler-sync ok\nreadyz check passed\n",
            ),
            (
                false,
                true,
                true,
                HealthEndpoint::Readyz,
                "exclude=sched-handler-sync",
                500,
                "[-]shutdown failed: reason withheld\n[+]sched-handler-sync excluded: ok\nreadyz check failed\n",
            ),
            (
                false,
                false,
                true,
                HealthEndpoint::Livez,
                "verbose&exclude=nosuch",
                200,
                "[+]ping ok\nwarn: some health checks cannot be excluded: no matches for \"nosuch\"\nlivez check passed\n",
            ),
        ] {
            let (got, text) = health(elects, stopping, synced).answer(endpoint, query);
            let what = format!("{endpoint:?}?{query}");
            assert_eq!((got.as_u16(), &*text), (code, body), "{what}");
        }
    }

    #[test]
    fn checks_are_asked_by_name() {
        let health = health(true, false, false);
        for (endpoint, name, expected) in [
            (HealthEndpoint::Livez, "ping", Some((200, "ok"))),
            (HealthEndpoint::Readyz, "leaderElection", Some((200, "ok"))),
            (
                HealthEndpoint::Readyz,
                "sched-handler-sync",
                Some((
                    500,
                    "internal server error: handlers are not fully synchronized\n",
                )),
            ),
            (HealthEndpoint::Readyz, "ping", None),
            (HealthEndpoint::Livez, "nosuch", None),
        ] {
            let got = health.answer_of(endpoint, name);
            let got = got.as_ref().map(|(code, text)| (code.as_u16(), &**text));
            assert_eq!(got, expected, "{endpoint:?}/{name}");
        }
        let runs = health.runs.lock().expect("no panic");
        let run = runs[&(HealthEndpoint::Readyz, HealthCheck::HandlerSync)];
        assert_eq!((run.succeeded, run.failed, run.is_good), (0, 1, false));
    }
}
