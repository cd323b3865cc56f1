//! Calls of webhooks over HTTPS: a thread with its own runtime, idle connections, and limits of time and size.
//!
//! Messages are those of kube-apiserver, which users search for.

use super::hook::Hook;
use crate::controllers::selector::Selector;
use crate::registry::{Api, ListRequest, find};
use crate::validation::view::View;
use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HOST, USER_AGENT};
use http::{Method, Request};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use std::io;
use std::pin::Pin;
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Handle, RuntimeFlavor};
use tokio::sync::mpsc;
use tokio::task::block_in_place;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::client::WebPkiServerVerifier;
use tokio_rustls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use tokio_rustls::rustls::client::verify_server_name;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::server::ParsedCertificate;
use tokio_rustls::rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error as TlsError, RootCertStore,
    SignatureScheme,
};

/// A response of a webhook is no larger.
const RESPONSE_BYTES_MAX: usize = 4 * 1024 * 1024;
/// So many calls wait for the thread of the calls; more fail.
const WAITING_MAX: usize = 1_024;
/// A webhook keeps so many idle connections.
const IDLE_MAX: usize = 8;
/// So many endpoints of a service are tried.
const ENDPOINTS_TRIED_MAX: usize = 3;
/// How much longer than the call the thread of a request waits for its result.
const GRACE: Duration = Duration::from_secs(5);

type Sender = SendRequest<Full<Bytes>>;
type Job = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Where a webhook is called.
#[derive(Debug)]
pub(super) struct Target {
    place: Place,
    tls: Result<Arc<ClientConfig>, String>,
    idle: Arc<Idle>,
}

#[derive(Debug)]
enum Place {
    Url(String),
    Service {
        namespace: String,
        name: String,
        path: String,
        port: i64,
    },
}

/// Connections that can be used again.
#[derive(Default)]
struct Idle(Mutex<Vec<Sender>>);

/// The thread of the calls, which starts with the first one.
#[derive(Debug, Default)]
pub(super) struct Caller {
    jobs: OnceLock<Option<mpsc::Sender<Job>>>,
}

/// A call that runs.
pub(super) struct Pending {
    result: Receiver<Result<Value, String>>,
    patience: Duration,
}

/// Where and how a request is sent.
struct Call {
    /// As messages show it.
    url: String,
    /// The name that the certificate must have.
    host: String,
    /// Host and port to connect to, in order of preference.
    addresses: Vec<(String, u16)>,
    path: String,
    body: Bytes,
    tls: Arc<ClientConfig>,
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

impl Target {
    /// Where a `clientConfig` leads to. `bundle` is its authority in PEM; the roots of the system without one.
    pub(super) fn new(config: &Value, bundle: Vec<u8>) -> Self {
        let service = config.part("service");
        let place = match config.maybe_text("url") {
            Some(url) => Place::Url(url.to_owned()),
            None => Place::Service {
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

    /// How a call is made now.
    fn call(&self, api: &Api, seconds: u64, body: Bytes) -> Result<Call, String> {
        let (url, addresses) = match &self.place {
            Place::Url(url) => (url.clone(), None),
            Place::Service {
                namespace,
                name,
                path,
                port,
            } => {
                let path = path.trim_start_matches('/');
                let url = format!("https://{name}.{namespace}.svc:{port}/{path}");
                (url, Some(endpoints(api, namespace, name, *port)))
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
        Ok(Call {
            host,
            addresses,
            path: path.to_owned(),
            body,
            tls: self.tls.clone().map_err(|e| failed(&e))?,
            idle: Arc::clone(&self.idle),
            url,
        })
    }
}

/// The addresses behind a port of a service: its external name, or the ready endpoints of its EndpointSlices.
fn endpoints(
    api: &Api,
    namespace: &str,
    name: &str,
    port: i64,
) -> Result<Vec<(String, u16)>, String> {
    let missing = || format!("service {name:?} not found");
    let services = find("", "services").ok_or_else(missing)?;
    let service = api.get(services, namespace, name).map_err(|_| missing())?;
    let service = service.object();
    let spec = service.part("spec");
    if spec.text("type") == "ExternalName" {
        let port = u16::try_from(port).map_err(|e| e.to_string())?;
        return Ok(vec![(spec.text("externalName").to_owned(), port)]);
    }
    let mut ports = spec.items("ports").iter();
    let Some(port) = ports.find(|p| p.int("port") == port) else {
        return Err(format!("no service port {port} found for service {name:?}"));
    };
    let slices = find("discovery.k8s.io", "endpointslices").ok_or_else(missing)?;
    let of_service = serde_json::json!({"kubernetes.io/service-name": name});
    let of_service = Selector::of_labels(&of_service);
    let request = ListRequest {
        namespace: Some(namespace),
        ..ListRequest::default()
    };
    let listed = api.list(slices, &request).map_err(|e| e.to_string())?;
    let mut found = Vec::new();
    for slice in &listed.items {
        let slice = slice.object();
        if !of_service.matches(slice.part("metadata").map("labels")) {
            continue;
        }
        let named = slice
            .items("ports")
            .iter()
            .find(|p| p.text("name") == port.text("name"));
        let number = named.and_then(|p| u16::try_from(p.int("port")).ok());
        for endpoint in slice.items("endpoints") {
            let is_ready = endpoint
                .part("conditions")
                .maybe_flag("ready")
                .unwrap_or(true);
            let address = endpoint.strings("addresses").first().copied();
            if let (true, Some(address), Some(number)) = (is_ready, address, number) {
                found.push((address.to_owned(), number));
            }
        }
    }
    if found.is_empty() {
        return Err(format!("no endpoints available for service {name:?}"));
    }
    Ok(found)
}

// === impl Caller ===

impl Caller {
    /// Sends a review to a webhook.
    ///
    /// # Errors
    /// Why that is not possible.
    pub(super) fn post(&self, api: &Api, hook: &Hook, review: &Value) -> Result<Pending, String> {
        let body = Bytes::from(review.to_string());
        let call = hook.target.call(api, hook.timeout.as_secs(), body)?;
        let (sender, result) = sync_channel(1);
        let limit = hook.timeout;
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
        let jobs = self.jobs.get_or_init(start).as_ref();
        let jobs = jobs.ok_or("the thread for webhooks cannot be started")?;
        jobs.try_send(job)
            .map_err(|_| "too many calls of webhooks wait".to_owned())?;
        Ok(Pending {
            result,
            patience: limit.saturating_add(GRACE),
        })
    }
}

/// Starts the thread of the calls. It ends when the API is dropped.
fn start() -> Option<mpsc::Sender<Job>> {
    let (sender, mut jobs) = mpsc::channel::<Job>(WAITING_MAX);
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
    pub(super) fn wait(self) -> Result<Value, String> {
        let wait = || {
            let result = self.result.recv_timeout(self.patience);
            result.unwrap_or_else(|_| Err("context deadline exceeded".to_owned()))
        };
        // Other tasks of this thread run elsewhere meanwhile, where the runtime has other threads.
        match Handle::try_current().map(|handle| handle.runtime_flavor()) {
            Ok(RuntimeFlavor::MultiThread) => block_in_place(wait),
            _ => wait(),
        }
    }
}

// === impl Call ===

impl Call {
    /// Sends the request. An error that begins with `=` is complete without the URL.
    async fn send(&self) -> Result<Value, String> {
        if let Some(idle) = self.idle.take()
            && let Ok(answer) = self.exchange(idle).await
        {
            return answer;
        }
        let sender = self.connect().await?;
        match self.exchange(sender).await {
            Ok(answer) => answer,
            Err(e) => Err(e.to_string()),
        }
    }

    async fn connect(&self) -> Result<Sender, String> {
        let mut failure = "no address".to_owned();
        for (host, port) in self.addresses.iter().take(ENDPOINTS_TRIED_MAX) {
            let stream = match TcpStream::connect((host.as_str(), *port)).await {
                Ok(stream) => stream,
                Err(e) => {
                    failure = dial_error(host, *port, &e);
                    continue;
                }
            };
            let _ = stream.set_nodelay(true);
            let name = ServerName::try_from(self.host.clone()).map_err(|e| e.to_string())?;
            let connector = TlsConnector::from(Arc::clone(&self.tls));
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

    /// One request on a connection. The outer error is one of the connection.
    async fn exchange(&self, mut sender: Sender) -> hyper::Result<Result<Value, String>> {
        sender.ready().await?;
        let request = Request::builder()
            .method(Method::POST)
            .uri(&self.path)
            .header(HOST, host_header(&self.url))
            .header(USER_AGENT, "kube-apiserver-admission")
            .header(ACCEPT, "application/json, */*")
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(self.body.clone()));
        let request = match request {
            Ok(request) => request,
            Err(e) => return Ok(Err(e.to_string())),
        };
        let response = sender.send_request(request).await?;
        let status = response.status();
        let body = match Limited::new(response.into_body(), RESPONSE_BYTES_MAX)
            .collect()
            .await
        {
            Ok(body) => body.to_bytes(),
            Err(e) => return Ok(Err(format!("the response cannot be read: {e}"))),
        };
        self.idle.put(sender);
        if !status.is_success() {
            return Ok(Err(format!("={}", status_error(status.as_u16(), &body))));
        }
        if body.is_empty() {
            return Ok(Err(format!(
                "=0-length response with status code: {} and content type: application/json",
                status.as_u16()
            )));
        }
        let parsed = crate::schema::parse_json(&body);
        let shown = String::from_utf8_lossy(body.get(..64).unwrap_or(&body));
        Ok(parsed
            .map(|parsed| parsed.value)
            .map_err(|e| format!("=couldn't get version/kind; {e} ({shown})")))
    }
}

fn host_header(url: &str) -> &str {
    let rest = url.strip_prefix("https://").unwrap_or(url);
    rest.split(['/', '?']).next().unwrap_or(rest)
}

/// A failed connection as Go reports it.
fn dial_error(host: &str, port: u16, error: &io::Error) -> String {
    let address = match host.contains(':') {
        true => format!("[{host}]:{port}"),
        false => format!("{host}:{port}"),
    };
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

fn tls_config(bundle: &[u8]) -> Result<ClientConfig, String> {
    let (mut roots, mut given) = (RootCertStore::empty(), Vec::new());
    if bundle.is_empty() {
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    } else {
        for certificate in CertificateDer::pem_slice_iter(bundle) {
            let certificate =
                certificate.map_err(|e| format!("unable to load root certificates: {e}"))?;
            roots
                .add(certificate.clone())
                .map_err(|e| format!("unable to load root certificates: {e}"))?;
            given.push(certificate);
        }
    }
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|e| e.to_string())?;
    if roots.is_empty() {
        return Ok(builder.with_root_certificates(roots).with_no_client_auth());
    }
    let inner = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build();
    let verifier = Verifier {
        inner: inner.map_err(|e| e.to_string())?,
        given,
    };
    Ok(builder
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth())
}

/// Verifies servers by their authority. As in Go, a certificate of the bundle itself is accepted for a server, too,
/// which is how self-signed certificates are used.
#[derive(Debug)]
struct Verifier {
    inner: Arc<WebPkiServerVerifier>,
    given: Vec<CertificateDer<'static>>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, TlsError> {
        let verified = self
            .inner
            .verify_server_cert(certificate, intermediates, name, ocsp, now);
        if verified.is_err() && self.given.contains(certificate) && is_current(certificate, now) {
            let parsed = ParsedCertificate::try_from(certificate)?;
            verify_server_name(&parsed, name)?;
            return Ok(ServerCertVerified::assertion());
        }
        verified
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        self.inner
            .verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        self.inner
            .verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}

/// Whether a certificate is valid at this time.
fn is_current(certificate: &CertificateDer<'_>, now: UnixTime) -> bool {
    let Ok((_, parsed)) = x509_parser::parse_x509_certificate(certificate) else {
        return false;
    };
    let (validity, now) = (
        parsed.validity(),
        i64::try_from(now.as_secs()).unwrap_or(i64::MAX),
    );
    (validity.not_before.timestamp()..=validity.not_after.timestamp()).contains(&now)
}
