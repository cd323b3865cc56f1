//! The HTTP client of a connection, and its renewal.
//!
//! Client certificates, keys, certificate authorities and credentials are replaced on the disk while a process runs:
//! cert-manager writes new files, `kubeadm certs renew` writes a new kubeconfig. The configuration is read again once a
//! minute, and when the server rejects the credentials or a connection fails. If it differs, a new client is created:
//! requests in flight and watches end on their previous connection, new requests use a new one. If the new
//! configuration is unusable, the previous client stays.
//!
//! Tokens in files have their own rule, see `token`.

use crate::config::{ClientUser, Config};
use crate::error::{ConnectError, chain};
use crate::http_client::{self, HttpService};
use crate::source::ConfigSource;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;
use tokio_rustls::rustls::pki_types::CertificateDer;

/// The interval at which the configuration is read again.
const COMPARE_EVERY: Duration = Duration::from_secs(60);
/// The interval at which it is read again during rejections or failed connections.
const COMPARE_EVERY_FAILING: Duration = Duration::from_secs(1);
/// The minimum interval of calls of an exec plugin whose credentials the server rejects.
const EXEC_EVERY: Duration = Duration::from_secs(5);

/// See the module.
pub(crate) struct Connection {
    /// The source of the configuration; `None` when it cannot change.
    source: Option<ConfigSource>,
    state: Mutex<ConnectionState>,
    /// Held while the configuration is read again.
    renewing: tokio::sync::Mutex<()>,
}

/// The client could not be replaced.
#[derive(Debug, thiserror::Error)]
enum RenewError {
    #[error(transparent)]
    Config(#[from] ConnectError),
    /// An exec plugin has not ended.
    #[error(transparent)]
    Ended(#[from] tokio::task::JoinError),
    #[error("{0}")]
    Client(String),
}

struct ConnectionState {
    client: Client,
    in_use: Material,
    /// The time of the last read of the configuration.
    compared: Instant,
    /// The time of the last read because of a failure.
    compared_failing: Option<Instant>,
    /// The time of the last call of the exec plugin because of a rejection.
    executed: Option<Instant>,
    /// The last failure to renew, so that it is logged once.
    failure: String,
}

/// An HTTP client, and the number of its predecessors.
#[derive(Clone)]
pub(crate) struct Client {
    pub(crate) service: HttpService,
    generation: u64,
}

/// The reason why the configuration is read again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReloadReason {
    /// The server rejected the credentials (401).
    Rejected,
    /// A connection failed.
    Failed,
}

impl Connection {
    /// A connection that never changes.
    pub(crate) fn fixed(service: HttpService) -> Self {
        Self::new(service, None, Material::default())
    }

    /// The connection of a configuration that was read from `source`.
    pub(crate) fn renewable(service: HttpService, source: ConfigSource, config: &Config) -> Self {
        Self::new(service, Some(source), Material::of(config))
    }

    fn new(service: HttpService, source: Option<ConfigSource>, in_use: Material) -> Self {
        Self {
            source,
            state: Mutex::new(ConnectionState {
                client: Client {
                    service,
                    generation: 0,
                },
                in_use,
                compared: Instant::now(),
                compared_failing: None,
                executed: None,
                failure: String::new(),
            }),
            renewing: tokio::sync::Mutex::new(()),
        }
    }

    /// The client to use now.
    pub(crate) async fn client(&self) -> Client {
        let compared = self.lock().compared;
        if self.source.is_some() && compared.elapsed() >= COMPARE_EVERY {
            // While one request reads the configuration, the others use the previous client.
            if let Ok(_renewing) = self.renewing.try_lock() {
                self.compare(false).await;
            }
        }
        self.lock().client.clone()
    }

    /// The replacement of the client `used`, whose request failed for this reason; `None` if there is no other client.
    pub(crate) async fn replacement(&self, used: &Client, reason: ReloadReason) -> Option<Client> {
        self.source.as_ref()?;
        let _renewing = self.renewing.lock().await;
        let has_changed = |client: &Client| client.generation != used.generation;
        let current = self.lock().client.clone();
        if has_changed(&current) {
            return Some(current);
        }
        let (is_due, executes) = self.lock().is_due(reason, Instant::now());
        if is_due {
            self.compare(executes).await;
        }
        let current = self.lock().client.clone();
        has_changed(&current).then_some(current)
    }

    /// Reads the configuration, and replaces the client if it differs or `always`.
    async fn compare(&self, always: bool) {
        let Some(source) = &self.source else { return };
        self.lock().compared = Instant::now();
        let renewed = self.renewed(source, always).await;
        let mut state = self.lock();
        match renewed {
            Ok(None) => state.failure.clear(),
            Ok(Some((service, in_use))) => {
                state.client.generation += 1;
                state.client.service = service;
                state.in_use = in_use;
                state.failure.clear();
                tracing::info!(
                    "the credentials or certificates of the connection to the API server have changed; new connections use them"
                );
            }
            Err(error) if error.to_string() == state.failure => {}
            Err(error) => {
                let error = error.to_string();
                tracing::warn!(
                    error,
                    "failed to renew the credentials of the connection to the API server; using the previous ones"
                );
                state.failure = error;
            }
        }
    }

    async fn renewed(
        &self,
        source: &ConfigSource,
        always: bool,
    ) -> Result<Option<(HttpService, Material)>, RenewError> {
        let (config, _) = source.load()?;
        let material = Material::of(&config);
        if material == self.lock().in_use && !always {
            return Ok(None);
        }
        // An exec plugin is a program, which takes its time.
        let built = tokio::task::spawn_blocking(move || http_client::service(&config)).await;
        let service = built?.map_err(|e| RenewError::Client(chain(&*e)))?;
        Ok(Some((service, material)))
    }

    fn lock(&self) -> MutexGuard<'_, ConnectionState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ConnectionState {
    /// Returns whether the configuration is read again after a failure, and whether its exec plugin is called again.
    fn is_due(&mut self, reason: ReloadReason, now: Instant) -> (bool, bool) {
        let has_passed = |last: Option<Instant>, period| {
            last.is_none_or(|last| now.saturating_duration_since(last) >= period)
        };
        let executes = reason == ReloadReason::Rejected
            && self.in_use.user.exec.is_some()
            && has_passed(self.executed, EXEC_EVERY);
        let is_due = executes || has_passed(self.compared_failing, COMPARE_EVERY_FAILING);
        if executes {
            self.executed = Some(now);
        }
        if is_due {
            self.compared_failing = Some(now);
        }
        (is_due, executes)
    }
}

/// Everything in a configuration that authenticates one side to the other.
#[derive(PartialEq, Eq, Default)]
struct Material {
    user: ClientUser,
    authorities: Option<Vec<CertificateDer<'static>>>,
}

impl Material {
    fn of(config: &Config) -> Self {
        Self {
            user: config.user.clone(),
            authorities: config.root_cert.clone(),
        }
    }
}

#[cfg(test)]
mod tests;
