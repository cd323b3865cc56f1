//! The HTTPS port of a scheduler: health, metrics, configuration, flags, state and profiles, with authentication and
//! authorization delegated to the cluster, as kube-scheduler serves them.
//!
//! | file | what |
//! |---|---|
//! | `listen` | binds the port, accepts connections, HTTP/1.1 and HTTP/2 |
//! | `tls`, `certificate` | TLS versions and ciphers; certificates from files, reloaded when they change, or self-signed |
//! | `authn`, `authorities` | client certificates, front proxies, TokenReviews |
//! | `authz` | paths that are always allowed, SubjectAccessReviews |
//! | `pages`, `health`, `zpages`, `profile`, `status` | the answers |

mod authn;
mod authorities;
mod authz;
mod cache;
mod cbor;
mod certificate;
mod health;
mod listen;
mod pages;
mod profile;
mod status;
#[cfg(test)]
mod tests;
mod tls;
mod zpages;

pub use certificate::pair_in;
pub(crate) use health::Health;
pub(crate) use pages::Shown;

use crate::exit::CommandFailure;
use crate::flags::Flags;
use crate::metrics::{EdgeMetrics, MetricFilter};
use crate::runner::Explainer;
use crate::tasks;
use authn::Authenticator;
use authz::Authorizer;
use berth_client::{ConnectOptions, Transport, connect, connect_in_cluster};
use listen::Listening;
use pages::Pages;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::interval;
use tokio_rustls::rustls::ServerConfig;

/// The interval at which certificate files are read, so that changes are served soon.
const RELOAD_EVERY: Duration = Duration::from_secs(5);
/// The authorities of the cluster are looked up at every N-th read of the files.
const LOOKUP_EVERY: u32 = 12;

/// The port, bound and configured, before the pages exist.
pub(crate) struct SecurePort {
    listener: TcpListener,
    config: ServerConfig,
    certificates: Arc<certificate::Certificates>,
    authenticator: Authenticator,
    authorizer: Authorizer,
    http2_streams_max: u32,
}

impl SecurePort {
    /// Binds the port and reads all files of the flags; `None` if serving is disabled.
    ///
    /// # Errors
    /// When the port is taken, or a file or kubeconfig cannot be used.
    pub(crate) async fn bind(
        flags: &Flags,
        user_agent: &str,
    ) -> Result<Option<Self>, CommandFailure> {
        let serving = &flags.serving;
        if serving.secure_port.value == 0 {
            return Ok(None);
        }
        let mut warnings = Vec::new();
        let (config, certificates) = tls::configure(serving, &mut warnings)?;
        for warning in warnings {
            tracing::warn!("{warning}");
        }
        let listener = listen::bind(serving)?;
        // A review is a write request, and shadow mode sends none.
        let delegates = !flags.berth.shadow.value;
        let kubeconfig = &flags.authentication.authentication_kubeconfig.value;
        let client = delegate(kubeconfig.clone(), user_agent, delegates).await?;
        if client.is_none() {
            tracing::warn!(
                "no authentication-kubeconfig is given and this is not a pod: bearer tokens are not accepted, and client \
                 certificates only with --client-ca-file"
            );
        }
        let authenticator = Authenticator::new(&flags.authentication, client).await?;
        let kubeconfig = &flags.authorization.authorization_kubeconfig.value;
        let client = delegate(kubeconfig.clone(), user_agent, delegates).await?;
        if client.is_none() {
            tracing::warn!(
                "no authorization-kubeconfig is given and this is not a pod: only the paths of \
                 --authorization-always-allow-paths and the group system:masters are allowed"
            );
        }
        Ok(Some(Self {
            listener,
            config,
            certificates,
            authenticator,
            authorizer: Authorizer::new(&flags.authorization, client),
            http2_streams_max: serving.http2_max_streams_per_connection.value,
        }))
    }

    /// The address that is listened on.
    ///
    /// # Errors
    /// When the system does not return one.
    pub(crate) fn address(&self) -> Result<SocketAddr, CommandFailure> {
        self.listener
            .local_addr()
            .map_err(|e| CommandFailure::Environment(format!("failed to serve HTTPS: {e}")))
    }

    /// Begins to serve, within the current runtime.
    pub(crate) fn serve(
        self,
        health: Health,
        shown: Shown,
        explainer: Explainer,
        metrics: Arc<EdgeMetrics>,
        filter: MetricFilter,
    ) -> Serving {
        let authorities = Arc::clone(self.authenticator.authorities());
        let certificates = Arc::clone(&self.certificates);
        let reloading = tasks::spawn(async move {
            let mut ticks = interval(RELOAD_EVERY);
            for round in 0u32.. {
                ticks.tick().await;
                certificates.reload();
                // The authorities of the cluster change rarely, so they are looked up less often.
                if round % LOOKUP_EVERY == LOOKUP_EVERY - 1 {
                    authorities.reload().await;
                }
            }
        });
        let listening = Listening {
            listener: self.listener,
            config: Arc::new(self.config),
            http2_streams_max: self.http2_streams_max,
            pages: Arc::new(Pages {
                authenticator: self.authenticator,
                authorizer: self.authorizer,
                health,
                shown,
                explainer,
                metrics,
                filter,
            }),
        };
        let (stop, stopped) = oneshot::channel();
        Serving {
            task: tasks::spawn(listen::serve(listening, stopped)),
            reloading,
            stop,
        }
    }
}

/// A port that is served.
pub(crate) struct Serving {
    task: JoinHandle<()>,
    reloading: JoinHandle<()>,
    stop: oneshot::Sender<()>,
}

impl Serving {
    /// Stops listening. Requests that are being answered have a moment to end.
    pub(crate) async fn stop(self) {
        self.reloading.abort();
        let _ = self.stop.send(());
        let _ = self.task.await;
    }
}

/// A connection for reviews: with a kubeconfig, or the service account of this pod; `None` when there is neither.
async fn delegate(
    kubeconfig: Option<PathBuf>,
    user_agent: &str,
    delegates: bool,
) -> Result<Option<Transport>, CommandFailure> {
    if !delegates {
        return Ok(None);
    }
    if kubeconfig.is_none() {
        return connect_in_cluster(user_agent)
            .await
            .map_err(CommandFailure::environment);
    }
    let options = ConnectOptions {
        kubeconfig,
        context: None,
        server: None,
        user_agent: user_agent.to_owned(),
    };
    connect(&options)
        .await
        .map(Some)
        .map_err(CommandFailure::environment)
}
