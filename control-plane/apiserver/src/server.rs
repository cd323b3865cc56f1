//! The server: HTTPS on one address, with its own certificate authority and an administrator's token.
//!
//! [`Server::start`] creates the server and returns when requests are answered; [`RunningServer::shutdown`] ends
//! watches and connections within two seconds. The futures are boxed, so that the server is compiled only in this
//! crate: the code of other futures is compiled again in each crate that awaits them.

mod aggregation;
mod connection;
mod handle;
mod indent;
mod kubeconfig;
mod limits;
pub(crate) mod negotiate;
mod nonresource;
mod resources;
mod route;
mod tls;

pub use handle::AnswerBody;
pub use kubeconfig::{KubeconfigError, kubeconfig_text, replace_private_file};

use crate::admission::Admission;
use crate::auth::tokens::ServerTokens;
use crate::auth::{Authenticator, Authorization, KeyError, StaticToken, TokenOptions};
use crate::registry::{
    Api, ApiClock, ApiOptions, InProcess, OpenError, Published, definitions, service_cidrs,
};
use crate::stopping::stopped;
use crate::storage::{DataDir, DataDirError, HistoryLimits};
use aggregation::Aggregation;
use berth_api::Release;
use berth_objects::access::Access;
use berth_objects::catalog;
use berth_objects::groups::GroupGates;
use berth_objects::releases::ApiRelease;
use berth_tls::Authorities;
use futures_util::future::BoxFuture;
use http_body_util::Full;
use limits::Limits;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

/// The wait of a shutdown for requests before it aborts them.
const SHUTDOWN_PATIENCE: Duration = Duration::from_millis(1_500);
/// The interval at which the Service `kubernetes` is reconciled. kube-apiserver: 10 s.
const PUBLISH_INTERVAL: Duration = Duration::from_secs(10);
/// The interval at which the history of changes is compacted.
const COMPACT_INTERVAL: Duration = Duration::from_secs(5);
/// The interval at which definitions are examined without a change, and while objects of a deleted definition remain.
const DEFINITIONS_INTERVAL: Duration = Duration::from_secs(10);
const DEFINITIONS_BUSY_INTERVAL: Duration = Duration::from_millis(200);
/// The maximum number of changes of definitions in one read.
const DEFINITIONS_READ_MAX: usize = 1_000;
/// The name under which a data directory keeps the authority and the token.
const SECRETS: &str = "secrets";

/// The options of a server.
#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// The listen address; port 0 selects a free port.
    pub listen: SocketAddr,
    /// The address of the endpoints of the Service `kubernetes`; the default is the address of `listen`.
    pub advertise: Option<IpAddr>,
    /// The release of Kubernetes whose API is served, with its feature gates.
    pub api: ApiRelease,
    /// Names and addresses of the certificate, in addition to loopback and `listen`.
    pub tls_names: Vec<String>,
    /// Authorities of accepted client certificates, in addition to the server's own, in PEM.
    pub client_ca: Option<String>,
    /// The certificate of the server and its key, in PEM; `None` makes one, signed by the server's own authority.
    pub serving: Option<ServingCertificate>,
    /// The administrator's token; `None` makes one.
    pub admin_token: Option<String>,
    /// Tokens of other users.
    pub static_tokens: Vec<StaticToken>,
    /// The keys that sign tokens of service accounts, and the keys whose tokens are accepted.
    pub tokens: TokenOptions,
    /// The component that decides about requests.
    pub authorization: Authorization,
    /// The directory that keeps the objects; `None` keeps them in memory.
    pub data_dir: Option<PathBuf>,
    /// The admission rules that apply.
    pub admission: Admission,
    /// The parts of group scheduling that the server has.
    pub groups: GroupGates,
    /// The first range of the addresses of Services, as an IPv4 prefix. A data directory keeps the range that it has.
    pub service_cidr: String,
    /// The amount of history that is kept for watches.
    pub history: HistoryLimits,
    /// The time to live of events after their last write.
    pub event_ttl: Duration,
    /// The interval of bookmarks for watchers that requested them.
    pub bookmark_interval: Duration,
    /// The number of requests, watches aside, that are handled at once; others get 429.
    pub max_in_flight: usize,
    /// The number of watches at once.
    pub max_watches: usize,
    /// The number of connections that are open at once; more wait to be accepted.
    pub max_connections: usize,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            listen: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0),
            advertise: None,
            api: ApiRelease::of(Release::default()),
            tls_names: Vec::new(),
            client_ca: None,
            serving: None,
            admin_token: None,
            static_tokens: Vec::new(),
            tokens: TokenOptions::default(),
            authorization: Authorization::default(),
            data_dir: None,
            admission: Admission::default(),
            groups: GroupGates::default(),
            service_cidr: service_cidrs::DEFAULT_CIDR.to_owned(),
            history: HistoryLimits::default(),
            event_ttl: Duration::from_secs(3_600),
            bookmark_interval: Duration::from_secs(60),
            max_in_flight: 1_000,
            max_watches: 20_000,
            max_connections: 10_000,
        }
    }
}

/// A serving certificate.
#[derive(Clone, PartialEq, Eq)]
pub struct ServingCertificate {
    /// The certificate, followed by its intermediate certificates, in PEM.
    pub certificate: String,
    /// Its private key, in PEM.
    pub key: String,
}

impl std::fmt::Debug for ServingCertificate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The key is a secret.
        f.debug_struct("ServingCertificate")
            .field("certificate", &self.certificate)
            .finish_non_exhaustive()
    }
}

/// The reason why a server could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The address is not to be had.
    #[error("cannot listen on {address}: {source}{hint}", hint = listen_hint(source))]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The error.
        source: io::Error,
    },
    /// No certificate could be made.
    #[error("cannot make the server's certificate: {0}")]
    Certificate(String),
    /// The authorities of clients cannot be used.
    #[error("cannot use the certificate authorities of clients: {0}")]
    ClientAuthorities(String),
    /// The keys of the tokens cannot be used.
    #[error("cannot use the keys of service account tokens: {0}")]
    TokenKeys(#[from] KeyError),
    /// The data directory cannot be used.
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    /// The objects that every cluster has could not be created.
    #[error("cannot create the first objects: {0}")]
    Bootstrap(String),
}

fn listen_hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            "; stop the process that uses the port, or choose another address"
        }
        io::ErrorKind::PermissionDenied => {
            "; ports below 1024 need privileges, choose a higher one"
        }
        io::ErrorKind::AddrNotAvailable => "; choose an address of this machine",
        _ => "",
    }
}

/// The API server.
#[derive(Debug, Clone, Copy)]
pub struct Server;

/// A server that answers requests.
#[derive(Debug)]
pub struct RunningServer {
    address: SocketAddr,
    ca_pem: String,
    authenticator: Authenticator,
    api: Arc<Api>,
    metrics: ServerMetrics,
    stop: watch::Sender<bool>,
    accepting: JoinHandle<()>,
}

/// The server's numbers, to be read while it runs. Cloning shares.
#[derive(Debug, Clone)]
pub struct ServerMetrics(Arc<ServerState>);

impl ServerMetrics {
    /// The numbers as they are now, in the text format of Prometheus.
    pub fn text(&self) -> String {
        nonresource::metrics_text(&self.0)
    }
}

/// Answers requests of this process. They take the same path as HTTP requests, without sockets and TLS. Clones share
/// the server.
#[derive(Clone)]
pub struct LocalRequests {
    state: Arc<ServerState>,
    authorization: String,
}

impl LocalRequests {
    /// Answers a request of the administrator.
    pub fn answer(
        &self,
        mut request: http::Request<Full<bytes::Bytes>>,
    ) -> BoxFuture<'static, http::Response<AnswerBody>> {
        if let Ok(value) = http::HeaderValue::from_str(&self.authorization) {
            let headers = request.headers_mut();
            headers.insert(http::header::AUTHORIZATION, value);
        }
        let request = request.map(handle::RequestBody::Local);
        let answer = handle::handle(Arc::clone(&self.state), request);
        Box::pin(async {
            match answer.await {
                Ok(answer) => answer,
                Err(never) => match never {},
            }
        })
    }
}

/// The state that every request needs.
#[derive(Debug)]
pub(crate) struct ServerState {
    pub(crate) api: Arc<Api>,
    pub(crate) authenticator: Authenticator,
    pub(crate) client_authorities: Authorities,
    pub(crate) limits: Limits,
    pub(crate) stopping: watch::Receiver<bool>,
    pub(crate) bookmark_interval: Duration,
    pub(crate) release: Release,
    aggregation: Aggregation,
    /// `host:port`, as clients reach the server.
    pub(crate) address: String,
}

impl Server {
    /// Starts a server within the current tokio runtime.
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn start(options: ServerOptions) -> BoxFuture<'static, Result<RunningServer, StartError>> {
        Self::start_with_clock(options, Arc::new(jiff::Timestamp::now))
    }

    /// As [`Server::start`], with a clock of the caller's.
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn start_with_clock(
        options: ServerOptions,
        clock: ApiClock,
    ) -> BoxFuture<'static, Result<RunningServer, StartError>> {
        Box::pin(Self::start_at(options, clock))
    }

    async fn start_at(
        options: ServerOptions,
        clock: ApiClock,
    ) -> Result<RunningServer, StartError> {
        let listener =
            TcpListener::bind(options.listen)
                .await
                .map_err(|source| StartError::Listen {
                    address: options.listen,
                    source,
                })?;
        let address = listener.local_addr().map_err(|source| StartError::Listen {
            address: options.listen,
            source,
        })?;
        let data = options.data_dir.as_deref().map(DataDir::open).transpose()?;
        let secrets = secrets(data.as_ref())?;
        let mut client_ca = secrets.ca_pem.clone();
        client_ca.push_str(options.client_ca.as_deref().unwrap_or_default());
        let client_authorities =
            Authorities::new([client_ca.as_bytes()]).map_err(StartError::ClientAuthorities)?;
        let clients = &client_authorities;
        let identity = match &options.serving {
            Some(serving) => tls::given_identity(&secrets, serving, clients)?,
            None => tls::make_identity(&secrets, address.ip(), &options.tls_names, clients)?,
        };
        let tokens = ServerTokens::new(&secrets.tokens_key, options.tokens)?;
        let admin_token = options.admin_token.unwrap_or(secrets.admin_token);
        let authenticator = Authenticator::new(admin_token, options.static_tokens, tokens);
        let api = ApiOptions {
            admission: options.admission.plugins(),
            authorization: options.authorization,
            groups: options.groups,
            service_cidr: options.service_cidr.clone(),
            history: options.history,
            api: options.api,
            clock,
            seed: tls::random_seed()?,
        };
        let api = Api::open(api, data).map_err(|e| match e {
            OpenError::DataDir(e) => StartError::DataDir(e),
            OpenError::Bootstrap(e) => StartError::Bootstrap(e.to_string()),
        })?;
        let api = Arc::new(api);
        let advertised = options.advertise.unwrap_or(address.ip());
        let published = Published {
            address: SocketAddr::new(advertised, address.port()),
            client_ca,
        };
        published
            .write(&api)
            .map_err(|e| StartError::Bootstrap(e.to_string()))?;
        let (stop, stopping) = watch::channel(false);
        let state = Arc::new(ServerState {
            api: Arc::clone(&api),
            authenticator: authenticator.clone(),
            client_authorities,
            limits: Limits::new(options.max_in_flight, options.max_watches),
            aggregation: Aggregation::default(),
            stopping: stopping.clone(),
            bookmark_interval: options.bookmark_interval,
            release: options.api.release(),
            address: reachable(address).to_string(),
        });
        tokio::spawn(expire_events(
            Arc::clone(&api),
            options.event_ttl,
            stopping.clone(),
        ));
        tokio::spawn(compact(Arc::clone(&api), stopping.clone()));
        tokio::spawn(serve_definitions(Arc::clone(&api), stopping.clone()));
        tokio::spawn(keep_service_cidrs(Arc::clone(&api), stopping.clone()));
        tokio::spawn(aggregation::check(Arc::clone(&state), stopping.clone()));
        tokio::spawn(publish(Arc::clone(&api), published, stopping.clone()));
        let metrics = ServerMetrics(Arc::clone(&state));
        let accepting = tokio::spawn(connection::accept(
            listener,
            identity.acceptor,
            state,
            options.max_connections,
            stopping,
        ));
        Ok(RunningServer {
            address,
            ca_pem: identity.ca_pem,
            authenticator,
            api,
            metrics,
            stop,
            accepting,
        })
    }
}

impl RunningServer {
    /// The listen address.
    pub fn addr(&self) -> SocketAddr {
        self.address
    }

    /// The URL for clients on this machine.
    pub fn url(&self) -> String {
        format!("https://{}", reachable(self.address))
    }

    /// The certificate of its authority, in PEM.
    pub fn ca_pem(&self) -> &str {
        &self.ca_pem
    }

    /// The token with all permissions.
    pub fn admin_token(&self) -> &str {
        self.authenticator.admin_token()
    }

    /// Writes a kubeconfig for the administrator: cluster, user and context `berth`, mode 0600, in one step.
    ///
    /// # Errors
    /// The file cannot be written; an existing file is unchanged.
    pub fn write_kubeconfig(
        &self,
        path: &Path,
        extensions: &[(&str, String)],
    ) -> Result<(), KubeconfigError> {
        let token = self.admin_token();
        kubeconfig::write(path, &self.url(), &self.ca_pem, token, extensions)
    }

    /// The objects, for a component of this process. `manager` is its name in `metadata.managedFields`. To be called
    /// within the tokio runtime.
    pub fn api(&self, manager: &str) -> Arc<dyn Access> {
        let (api, stopping) = (Arc::clone(&self.api), self.stop.subscribe());
        Arc::new(InProcess::new(api, manager, Handle::current(), stopping))
    }

    /// Notes that controllers run in this process, for ComponentStatuses.
    pub fn note_controllers(&self) {
        self.api.has_controllers.store(true, Ordering::Relaxed);
    }

    /// The parts of group scheduling that it has.
    pub fn groups(&self) -> GroupGates {
        self.api.groups
    }

    /// Answers requests of this process without a connection, as of the administrator.
    pub fn local(&self) -> LocalRequests {
        LocalRequests {
            state: Arc::clone(&self.metrics.0),
            authorization: format!("Bearer {}", self.admin_token()),
        }
    }

    /// The server's numbers.
    pub fn metrics(&self) -> ServerMetrics {
        self.metrics.clone()
    }

    /// The newest revision of the store.
    pub fn revision(&self) -> u64 {
        self.api.revision()
    }

    /// Waits until all writes are on the disk.
    ///
    /// # Errors
    /// Why it is not.
    pub async fn settle(&self) -> Result<(), String> {
        self.api.store().settle().await.map_err(|e| e.to_string())
    }

    /// Waits until writing to the data directory fails, and returns the reason; requests are then no longer served.
    /// Never ends without a data directory.
    pub async fn storage_failed(&self) -> String {
        self.api.store().failed().await.to_string()
    }

    /// Stops accepting, ends watches, lets running requests finish for a moment, and is done within two seconds;
    /// then closes the data directory.
    pub fn shutdown(mut self) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let _ = self.stop.send(true);
            if timeout(SHUTDOWN_PATIENCE, &mut self.accepting)
                .await
                .is_err()
            {
                self.accepting.abort();
                let _ = self.accepting.await;
            }
            let api = Arc::clone(&self.api);
            let _ = tokio::task::spawn_blocking(move || api.store().close()).await;
        })
    }
}

/// The authority and the token of the data directory, generated if it has none.
fn secrets(data: Option<&DataDir>) -> Result<tls::Secrets, StartError> {
    let Some(data) = data else {
        return tls::Secrets::new();
    };
    let mut secrets = match data.get(SECRETS)? {
        None => tls::Secrets::new()?,
        Some(bytes) => serde_json::from_slice::<tls::Secrets>(&bytes)
            .map_err(|e| StartError::Certificate(format!("the kept one cannot be read: {e}")))?,
    };
    if secrets.tokens_key.is_empty() {
        secrets.tokens_key = ServerTokens::new_key().ok_or_else(tls::no_random)?;
    }
    let bytes = serde_json::to_vec(&secrets)
        .map_err(|e| StartError::Certificate(format!("it cannot be kept: {e}")))?;
    data.set(SECRETS, &bytes)?;
    Ok(secrets)
}

/// Periodically reconciles the objects through which clients find and trust the server, until the server stops.
async fn publish(api: Arc<Api>, published: Published, mut stopping: watch::Receiver<bool>) {
    loop {
        tokio::select! {
            () = stopped(&mut stopping) => return,
            () = sleep(PUBLISH_INTERVAL) => {}
        }
        if let Err(error) = published.write(&api) {
            tracing::warn!(%error, "failed to write the objects that the API server publishes, retrying in 10 s");
        }
    }
}

/// Serves the resources of CustomResourceDefinitions, and deletes the objects of deleted definitions, until the server
/// stops.
async fn serve_definitions(api: Arc<Api>, mut stopping: watch::Receiver<bool>) {
    let store = catalog::find("apiextensions.k8s.io", "customresourcedefinitions");
    let Some(store) = store.and_then(|resource| resource.store) else {
        return;
    };
    loop {
        let Ok((_, _, mut cursor)) = api.store().watch_now(store, "") else {
            return;
        };
        let mut busy = DEFINITIONS_BUSY_INTERVAL;
        // A change after this read leads to another turn.
        while cursor.read(DEFINITIONS_READ_MAX).is_ok() {
            // Objects with their own finalizers are examined again at increasing intervals.
            let pause = if definitions::sync(&api) {
                busy
            } else {
                DEFINITIONS_INTERVAL
            };
            busy = (busy * 2).min(DEFINITIONS_INTERVAL);
            tokio::select! {
                () = stopped(&mut stopping) => return,
                () = cursor.changed() => busy = DEFINITIONS_BUSY_INTERVAL,
                () = sleep(pause) => {}
            }
        }
    }
}

/// Keeps the finalizers and the conditions of ServiceCIDRs up to date, until the server stops.
async fn keep_service_cidrs(api: Arc<Api>, mut stopping: watch::Receiver<bool>) {
    let store = catalog::find("networking.k8s.io", "servicecidrs");
    let Some(store) = store.and_then(|resource| resource.store) else {
        return;
    };
    loop {
        let Ok((_, _, mut cursor)) = api.store().watch_now(store, "") else {
            return;
        };
        while cursor.read(DEFINITIONS_READ_MAX).is_ok() {
            let is_busy = service_cidrs::sync(&api);
            tokio::select! {
                () = stopped(&mut stopping) => return,
                () = cursor.changed() => {}
                () = sleep(DEFINITIONS_BUSY_INTERVAL), if is_busy => {}
            }
        }
    }
}

/// Periodically drops old changes from the history, until the server stops.
async fn compact(api: Arc<Api>, mut stopping: watch::Receiver<bool>) {
    loop {
        tokio::select! {
            () = stopped(&mut stopping) => return,
            () = sleep(COMPACT_INTERVAL) => api.store().compact(),
        }
    }
}

/// Periodically deletes old events, until the server stops.
async fn expire_events(api: Arc<Api>, ttl: Duration, mut stopping: watch::Receiver<bool>) {
    // Often enough that no event outlives its time by more than a tenth.
    let pause = (ttl / 10).clamp(Duration::from_millis(100), Duration::from_secs(60));
    loop {
        tokio::select! {
            () = stopped(&mut stopping) => return,
            () = sleep(pause) => {}
        }
        let expired = api.expire_events(ttl);
        if expired > 0 {
            tracing::debug!(expired, "old events are gone");
        }
    }
}

/// An address that clients can connect to: loopback for one that means every address.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}
