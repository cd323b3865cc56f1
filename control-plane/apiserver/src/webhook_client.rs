//! Calls of webhooks over HTTPS, for admission and for the conversion of custom resources: a thread with its own
//! runtime, idle connections, and limits of time and size. Aggregated API servers are found and connected to in the
//! same way.
//!
//! Messages equal kube-apiserver's, because users search for them.

pub(crate) mod targets;
mod tls;

use berth_objects::view::FieldView;
use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HOST, LOCATION, USER_AGENT};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Body;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use std::io;
use std::pin::Pin;
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;
use tls::{tls_config, trusting_config};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Handle, RuntimeFlavor};
use tokio::sync::mpsc;
use tokio::task::block_in_place;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{CertificateError, ClientConfig, Error as TlsError};

/// The maximum size of a response of a webhook.
const RESPONSE_BYTES_MAX: usize = 4 * 1024 * 1024;
/// The maximum number of calls that wait for the thread of the calls. Further calls fail.
const WAITING_MAX: usize = 1_024;
/// The maximum number of idle connections of a webhook.
const IDLE_MAX: usize = 8;
/// The maximum number of endpoints of a service that are tried.
const ENDPOINTS_TRIED_MAX: usize = 3;
/// The maximum number of redirects of a call.
const REDIRECTS_MAX: usize = 10;
/// The time after the timeout of the call for which the thread of a request waits for its result.
const GRACE: Duration = Duration::from_secs(5);

/// Finds the addresses behind a port of a service, by its namespace and name.
type FindEndpoints<'f> = &'f dyn Fn(&str, &str, i64) -> Result<Vec<(String, u16)>, String>;
type Sender = SendRequest<Full<Bytes>>;
type CallJob = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The address of a webhook.
#[derive(Debug)]
pub(crate) struct WebhookTarget {
    place: WebhookAddress,
    tls: Result<Arc<ClientConfig>, String>,
    idle: Arc<Idle>,
}

#[derive(Debug)]
enum WebhookAddress {
    Url(String),
    Service {
        namespace: String,
        name: String,
        path: String,
        port: i64,
    },
}

/// The authorities of the certificates that are accepted.
#[derive(Debug)]
pub(crate) enum Trust {
    /// The authorities in this PEM; the system's authorities if it is empty.
    Bundle(Vec<u8>),
    /// All.
    Any,
}

/// A server to connect to.
#[derive(Debug)]
pub(crate) struct ServerAddress {
    /// The name that the certificate must have.
    host: String,
    /// Host and port to connect to, in order of preference.
    addresses: Vec<(String, u16)>,
    tls: Arc<ClientConfig>,
}

/// Connections that can be used again.
#[derive(Default)]
struct Idle(Mutex<Vec<Sender>>);

/// The thread of the calls, which starts with the first call.
#[derive(Debug, Default)]
pub(crate) struct Caller {
    jobs: OnceLock<Option<mpsc::Sender<CallJob>>>,
}

/// A call that runs.
pub(crate) struct Pending {
    result: Receiver<Result<Value, String>>,
    patience: Duration,
}

/// The address and the options of a request.
struct RequestCall {
    /// As messages show it.
    url: String,
    endpoint: ServerAddress,
    path: String,
    body: Bytes,
    idle: Arc<Idle>,
}

impl std::fmt::Debug for Idle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Idle").finish_non_exhaustive()
    }
}

// === impl Idle ===

impl Idle {
    fn take(&self) -> Option<Sender> {
        let mut idle = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|sender| !sender.is_closed());
        idle.pop()
    }

    fn put(&self, sender: Sender) {
        let mut idle = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < IDLE_MAX && !sender.is_closed() {
            idle.push(sender);
        }
    }
}

// === impl Target ===

impl WebhookTarget {
    /// The target of a `clientConfig`. `bundle` is its authority in PEM; the roots of the system without one.
    pub(crate) fn new(config: &Value, bundle: Vec<u8>) -> Self {
        let service = config.part("service");
        let place = match config.maybe_text("url") {
            Some(url) => WebhookAddress::Url(url.to_owned()),
            None => WebhookAddress::Service {
                namespace: service.text("namespace").to_owned(),
                name: service.text("name").to_owned(),
                path: service.text("path").to_owned(),
                port: service.maybe_int("port").unwrap_or(443),
            },
        };
        Self {
            place,
            tls: tls_config(&bundle).map(Arc::new),
            idle: Arc::default(),
        }
    }

    /// A port of a service.
    pub(crate) fn of_service(service: &Value, trust: Trust) -> Self {
        Self {
            place: WebhookAddress::Service {
                namespace: service.text("namespace").to_owned(),
                name: service.text("name").to_owned(),
                path: String::new(),
                port: service.maybe_int("port").unwrap_or(443),
            },
            tls: match trust {
                Trust::Bundle(bundle) => tls_config(&bundle),
                Trust::Any => trusting_config(),
            }
            .map(Arc::new),
            idle: Arc::default(),
        }
    }

    /// The address of the server of a service now.
    ///
    /// # Errors
    /// Why it is not.
    pub(crate) fn endpoint(&self, find: FindEndpoints<'_>) -> Result<ServerAddress, String> {
        let WebhookAddress::Service {
            namespace,
            name,
            port,
            ..
        } = &self.place
        else {
            return Err("the target is no service".to_owned());
        };
        Ok(ServerAddress {
            host: format!("{name}.{namespace}.svc"),
            addresses: find(namespace, name, *port)?,
            tls: self.tls.clone()?,
        })
    }

    /// Prepares a call to the current address.
    fn call(
        &self,
        find: FindEndpoints<'_>,
        seconds: u64,
        body: Bytes,
    ) -> Result<RequestCall, String> {
        let (url, addresses) = match &self.place {
            WebhookAddress::Url(url) => (url.clone(), None),
            WebhookAddress::Service {
                namespace,
                name,
                path,
                port,
            } => {
                let path = path.trim_start_matches('/');
                let url = format!("https://{name}.{namespace}.svc:{port}/{path}");
                // The URL names the service, as does the certificate of the webhook; the connection is made to an
                // endpoint.
                (url, Some(find(namespace, name, *port)))
            }
        };
        let url = format!("{url}?timeout={seconds}s");
        let failed = |e: &dyn std::fmt::Display| format!("Post {url:?}: {e}");
        let uri: http::Uri = url.parse().map_err(|e| failed(&e))?;
        let host = uri.host().unwrap_or("");
        let host = host
            .trim_start_matches('[')
            .trim_end_matches(']')
            .to_owned();
        let addresses = match addresses {
            Some(found) => found.map_err(|e| failed(&e))?,
            None => vec![(host.clone(), uri.port_u16().unwrap_or(443))],
        };
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        let endpoint = ServerAddress {
            host,
            addresses,
            tls: self.tls.clone().map_err(|e| failed(&e))?,
        };
        Ok(RequestCall {
            endpoint,
            path: path.to_owned(),
            body,
            idle: Arc::clone(&self.idle),
            url,
        })
    }
}

// === impl Caller ===

impl Caller {
    /// Sends a review to a webhook, which responds within `limit`.
    ///
    /// # Errors
    /// Why that is not possible.
    pub(crate) fn post(
        &self,
        find: FindEndpoints<'_>,
        target: &WebhookTarget,
        limit: Duration,
        review: &Value,
    ) -> Result<Pending, String> {
        let body = Bytes::from(review.to_string());
        let seconds = limit.as_millis().div_ceil(1_000);
        let seconds = u64::try_from(seconds).unwrap_or(u64::MAX);
        let call = target.call(find, seconds, body)?;
        let (sender, result) = sync_channel(1);
        let job = Box::pin(async move {
            let answer = match timeout(limit, call.send()).await {
                Ok(answer) => answer,
                Err(_) => Err("context deadline exceeded".to_owned()),
            };
            let answer = answer.map_err(|e| match e.strip_prefix('=') {
                Some(whole) => whole.to_owned(),
                None => format!("Post {:?}: {e}", call.url),
            });
            let _ = sender.send(answer);
        });
        // One thread serves the calls of all requests: a request handler has no runtime.
        let jobs = self.jobs.get_or_init(start).as_ref();
        let jobs = jobs.ok_or("the thread for webhooks cannot be started")?;
        // The queue is bounded, so that a webhook that hangs cannot use up the memory.
        jobs.try_send(job)
            .map_err(|_| "too many calls of webhooks wait".to_owned())?;
        Ok(Pending {
            result,
            patience: limit.saturating_add(GRACE),
        })
    }
}

/// Starts the thread of the calls. It ends when the API is dropped.
fn start() -> Option<mpsc::Sender<CallJob>> {
    let (sender, mut jobs) = mpsc::channel::<CallJob>(WAITING_MAX);
    let runtime = Builder::new_current_thread().enable_all().build().ok()?;
    let serve = move || {
        runtime.block_on(async move {
            while let Some(job) = jobs.recv().await {
                tokio::spawn(job);
            }
        });
    };
    let thread = std::thread::Builder::new().name("webhooks".to_owned());
    thread.spawn(serve).ok().map(|_| sender)
}

// === impl Pending ===

impl Pending {
    /// The response.
    ///
    /// # Errors
    /// Why there is none.
    pub(crate) fn wait(self) -> Result<Value, String> {
        let wait = || {
            let result = self.result.recv_timeout(self.patience);
            result.unwrap_or_else(|_| Err("context deadline exceeded".to_owned()))
        };
        blocking(wait)
    }
}

/// Runs a slow function. In a runtime with several threads, other tasks of this thread are moved to them.
pub(crate) fn blocking<T>(run: impl FnOnce() -> T) -> T {
    match Handle::try_current().map(|handle| handle.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => block_in_place(run),
        _ => run(),
    }
}

// === impl Call ===

impl RequestCall {
    /// Sends the request. An error that begins with `=` is complete without the URL.
    async fn send(&self) -> Result<Value, String> {
        if let Some(idle) = self.idle.take()
            && let Ok(answer) = self.exchange(idle).await
        {
            return answer;
        }
        let sender = connect(&self.endpoint).await?;
        match self.exchange(sender).await {
            Ok(answer) => answer,
            Err(e) => Err(e.to_string()),
        }
    }

    /// One request on a connection, and its redirected requests. The outer error is an error of the connection.
    async fn exchange(&self, mut sender: Sender) -> hyper::Result<Result<Value, String>> {
        let mut path = self.path.clone();
        for _ in 0..=REDIRECTS_MAX {
            sender.ready().await?;
            let request = match self.request(&path) {
                Ok(request) => request,
                Err(e) => return Ok(Err(e.to_string())),
            };
            let response = sender.send_request(request).await?;
            let status = response.status();
            let redirect = redirect(&response, host_header(&self.url));
            let body = match Limited::new(response.into_body(), RESPONSE_BYTES_MAX)
                .collect()
                .await
            {
                Ok(body) => body.to_bytes(),
                Err(e) => return Ok(Err(format!("the response cannot be read: {e}"))),
            };
            match redirect {
                Some(next) => path = next,
                None => {
                    self.idle.put(sender);
                    return Ok(answer(status, &body));
                }
            }
        }
        Ok(Err(format!("stopped after {REDIRECTS_MAX} redirects")))
    }

    fn request(&self, path: &str) -> http::Result<Request<Full<Bytes>>> {
        Request::builder()
            .method(Method::POST)
            .uri(path)
            .header(HOST, host_header(&self.url))
            .header(USER_AGENT, "kube-apiserver-admission")
            .header(ACCEPT, "application/json, */*")
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(self.body.clone()))
    }
}

/// The path of a redirected POST on the same server. Servers written in Go redirect a path with an empty segment, such
/// as URLs of envtest.
fn redirect<B>(response: &Response<B>, authority: &str) -> Option<String> {
    let keeps_method = matches!(
        response.status(),
        StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT
    );
    let location = response.headers().get(LOCATION).filter(|_| keeps_method)?;
    let location = location.to_str().ok()?;
    let path = match location.strip_prefix("https://") {
        Some(rest) => rest.strip_prefix(authority)?,
        None => location,
    };
    (path.starts_with('/') && !path.starts_with("//")).then(|| path.to_owned())
}

/// The review in a response.
fn answer(status: StatusCode, body: &Bytes) -> Result<Value, String> {
    if !status.is_success() {
        return Err(format!("={}", status_error(status.as_u16(), body)));
    }
    if body.is_empty() {
        return Err(format!(
            "=0-length response with status code: {} and content type: application/json",
            status.as_u16()
        ));
    }
    let parsed = berth_objects::schema::parse_json(body);
    let shown = String::from_utf8_lossy(body.get(..64).unwrap_or(body));
    parsed
        .map(|parsed| parsed.value)
        .map_err(|e| format!("=couldn't get version/kind; {e} ({shown})"))
}

// === impl Endpoint ===

impl ServerAddress {
    /// Host and port of the preferred address.
    pub(crate) fn authority(&self) -> String {
        let first = self.addresses.first();
        first.map_or_else(String::new, |(host, port)| authority(host, *port))
    }
}

/// Connects to one of the addresses of a server.
///
/// # Errors
/// Why none of them can be used.
pub(crate) async fn connect<B>(endpoint: &ServerAddress) -> Result<SendRequest<B>, String>
where
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let mut failure = "no address".to_owned();
    // Few endpoints are tried, so that a request fails within its time.
    for (host, port) in endpoint.addresses.iter().take(ENDPOINTS_TRIED_MAX) {
        let stream = match TcpStream::connect((host.as_str(), *port)).await {
            Ok(stream) => stream,
            Err(e) => {
                failure = dial_error(host, *port, &e);
                continue;
            }
        };
        let _ = stream.set_nodelay(true);
        let name = ServerName::try_from(endpoint.host.clone()).map_err(|e| e.to_string())?;
        let connector = TlsConnector::from(Arc::clone(&endpoint.tls));
        let stream = connector
            .connect(name, stream)
            .await
            .map_err(|e| tls_error(&e))?;
        let handshake = http1::handshake(TokioIo::new(stream)).await;
        let (sender, connection) = handshake.map_err(|e| e.to_string())?;
        tokio::spawn(async move {
            let _ = connection.await;
        });
        return Ok(sender);
    }
    Err(failure)
}

fn authority(host: &str, port: u16) -> String {
    if host.contains(':') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    }
}

fn host_header(url: &str) -> &str {
    let rest = url.strip_prefix("https://").unwrap_or(url);
    rest.split(['/', '?']).next().unwrap_or(rest)
}

/// A failed connection as Go reports it.
fn dial_error(host: &str, port: u16, error: &io::Error) -> String {
    let address = authority(host, port);
    let what = match error.kind() {
        io::ErrorKind::ConnectionRefused => "connect: connection refused".to_owned(),
        io::ErrorKind::TimedOut => "i/o timeout".to_owned(),
        io::ErrorKind::NetworkUnreachable => "connect: network is unreachable".to_owned(),
        io::ErrorKind::HostUnreachable => "connect: no route to host".to_owned(),
        _ => error.to_string(),
    };
    format!("dial tcp {address}: {what}")
}

/// A failed handshake as Go reports it.
fn tls_error(error: &io::Error) -> String {
    let tls = error.get_ref().and_then(|e| e.downcast_ref::<TlsError>());
    match tls {
        Some(TlsError::InvalidCertificate(CertificateError::UnknownIssuer)) => {
            "tls: failed to verify certificate: x509: certificate signed by unknown authority"
                .into()
        }
        Some(TlsError::InvalidCertificate(e)) => {
            format!("tls: failed to verify certificate: x509: {e}")
        }
        Some(TlsError::InvalidMessage(_)) => {
            "tls: first record does not look like a TLS handshake".into()
        }
        Some(e) => format!("tls: {e}"),
        None => error.to_string(),
    }
}

/// A response without success, in the words of clients of Kubernetes.
fn status_error(code: u16, body: &[u8]) -> String {
    let parsed: Value = serde_json::from_slice(body).unwrap_or(Value::Null);
    if parsed.text("kind") == "Status" && !parsed.text("message").is_empty() {
        return parsed.text("message").to_owned();
    }
    match code {
        400 => "the server rejected our request for an unknown reason".to_owned(),
        401 => "the server has asked for the client to provide credentials".to_owned(),
        403 | 415 => "unknown".to_owned(),
        404 => "the server could not find the requested resource".to_owned(),
        405 => "the server does not allow this method on the requested resource".to_owned(),
        409 => "the server reported a conflict".to_owned(),
        422 => "the server rejected our request due to an error in our request".to_owned(),
        429 => "the server has received too many requests and has asked us to try again later".to_owned(),
        503 => "the server is currently unable to handle the request".to_owned(),
        504 => "the server was unable to return a response in the time allotted, but may still be processing the request".to_owned(),
        500.. => {
            "an error on the server (\"unknown\") has prevented the request from succeeding".to_owned()
        }
        code => format!("the server responded with the status code {code} but did not return more information"),
    }
}
