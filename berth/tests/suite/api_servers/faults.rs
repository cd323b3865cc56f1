//! A proxy between a scheduler and an API server that delays, rejects and cuts requests, and keeps a log of them.
//!
//! It serves HTTPS with HTTP/2, as API servers do, and forwards all requests to the server. A request with a client
//! certificate is forwarded as the administrator, so that tests of certificates run on servers without the authority.

use crate::e2e::eventually;
use crate::e2e::https::unchecked;
use crate::e2e::server::Server;
use bytes::Bytes;
use futures_util::stream;
use http::{HeaderValue, Request, Response, StatusCode, Uri, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use serde_json::json;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

type Body = UnsyncBoxBody<Bytes, Box<dyn std::error::Error + Send + Sync>>;
type Upstream = Client<hyper_rustls::HttpsConnector<HttpConnector>, Full<Bytes>>;

/// A certificate authority of the test.
pub(crate) struct Authority {
    /// Its certificate.
    pub(crate) pem: String,
    issuer: Issuer<'static, KeyPair>,
    roots: RootCertStore,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).expect("a certificate");
        let mut roots = RootCertStore::empty();
        roots.add(certificate.der().clone()).expect("a root");
        Self {
            pem: certificate.pem(),
            issuer: Issuer::new(params, key),
            roots,
        }
    }

    fn issue(&self, common_name: &str) -> (rcgen::Certificate, KeyPair) {
        let key = KeyPair::generate().expect("a key");
        let names = ["127.0.0.1".to_owned()];
        let mut params = CertificateParams::new(names).expect("a name");
        params
            .distinguished_name
            .push(DnType::CommonName, common_name);
        let certificate = params.signed_by(&key, &self.issuer);
        (certificate.expect("a certificate"), key)
    }

    /// A client certificate and its key in PEM.
    pub(crate) fn client(&self, common_name: &str) -> (String, String) {
        let (certificate, key) = self.issue(common_name);
        (certificate.pem(), key.serialize_pem())
    }

    /// Serves with a certificate of this authority, and accepts client certificates of it.
    fn acceptor(&self) -> TlsAcceptor {
        let (certificate, key) = self.issue("proxy");
        let provider = Arc::new(ring::default_provider());
        let clients = WebPkiClientVerifier::builder_with_provider(
            Arc::new(self.roots.clone()),
            provider.clone(),
        )
        .allow_unauthenticated()
        .build()
        .expect("a verifier");
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_client_cert_verifier(clients)
            .with_single_cert(vec![certificate.der().clone()], key)
            .expect("a server");
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        TlsAcceptor::from(Arc::new(config))
    }
}

/// A request, and how it was answered.
#[derive(Debug, Clone)]
pub(crate) struct Exchange {
    pub(crate) method: String,
    /// Path and query.
    pub(crate) path: String,
    /// The common name of the client certificate.
    pub(crate) certificate: String,
    /// The code of the answer; zero when there was none.
    pub(crate) code: u16,
    pub(crate) began: Instant,
}

impl Exchange {
    /// Returns whether it is a watch.
    pub(crate) fn is_watch(&self) -> bool {
        self.path.contains("watch=1") || self.path.contains("watch=true")
    }

    /// Returns whether it is a binding of a pod.
    pub(crate) fn is_binding(&self) -> bool {
        self.method == "POST" && self.path.ends_with("/binding")
    }

    /// Group, resource with subresource, and verb, as roles name them.
    pub(crate) fn permission(&self) -> (String, String, String) {
        let path = self.path.split('?').next().unwrap_or_default();
        let mut parts = path.trim_start_matches('/').split('/');
        let group = match parts.next() {
            Some("apis") => parts.next().unwrap_or_default(),
            _ => "",
        };
        // The version.
        parts.next();
        let mut rest: Vec<&str> = parts.collect();
        if rest.first() == Some(&"namespaces") && rest.len() > 2 {
            rest.drain(..2);
        }
        let resource = match rest[..] {
            [plural, _, subresource] => format!("{plural}/{subresource}"),
            _ => rest.first().copied().unwrap_or_default().to_owned(),
        };
        let verb = match &*self.method {
            "GET" if self.is_watch() => "watch",
            "GET" if rest.len() > 1 => "get",
            "GET" => "list",
            "POST" => "create",
            "PUT" => "update",
            "PATCH" => "patch",
            _ => "delete",
        };
        (group.to_owned(), resource, verb.to_owned())
    }
}

/// An answer that replaces the server's.
#[derive(Debug, Clone)]
pub(crate) enum Refusal {
    /// With this code, and with Retry-After if it names seconds.
    Status(u16, Option<u32>),
    /// With 200 and a watch of one event, an error of this code.
    WatchError(u16),
}

/// Requests that are refused.
struct Rule {
    applies: Box<dyn Fn(&Exchange) -> bool + Send>,
    refusal: Refusal,
    /// The remaining requests.
    left: usize,
}

#[derive(Default)]
struct Faults {
    latency: Duration,
    rules: Vec<Rule>,
    log: Vec<Exchange>,
}

struct Shared {
    upstream: Upstream,
    url: String,
    admin: HeaderValue,
    faults: Mutex<Faults>,
    acceptor: Mutex<TlsAcceptor>,
    /// Counts cuts.
    cut: watch::Sender<usize>,
    /// Counts cuts of whole connections.
    disconnect: watch::Sender<usize>,
}

/// See the module.
pub(crate) struct Proxy {
    /// Its address, for kubeconfigs.
    pub(crate) url: String,
    shared: Arc<Shared>,
    _runtime: tokio::runtime::Runtime,
}

impl Proxy {
    /// A proxy in front of a server, with a certificate of this authority.
    pub(crate) fn start(server: &Server, authority: &Authority) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime starts");
        let connector = hyper_rustls::HttpsConnectorBuilder::new()
            .with_tls_config(unchecked())
            .https_or_http()
            .enable_http1()
            .build();
        let admin = HeaderValue::from_str(&format!("Bearer {}", server.token()));
        let shared = Arc::new(Shared {
            upstream: Client::builder(TokioExecutor::new()).build(connector),
            url: server.url(),
            admin: admin.expect("a token"),
            faults: Mutex::default(),
            acceptor: Mutex::new(authority.acceptor()),
            cut: watch::Sender::new(0),
            disconnect: watch::Sender::new(0),
        });
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"));
        let listener = listener.expect("a free port");
        let url = format!("https://{}", listener.local_addr().expect("an address"));
        runtime.spawn(accept(listener, Arc::clone(&shared)));
        Self {
            url,
            shared,
            _runtime: runtime,
        }
    }

    fn faults(&self) -> MutexGuard<'_, Faults> {
        self.shared.lock()
    }

    /// From now on each request takes longer by this time.
    pub(crate) fn delay(&self, latency: Duration) {
        self.faults().latency = latency;
    }

    /// Refuses the next `times` requests to which `applies` applies.
    pub(crate) fn refuse(
        &self,
        times: usize,
        refusal: Refusal,
        applies: impl Fn(&Exchange) -> bool + Send + 'static,
    ) {
        let applies = Box::new(applies);
        self.faults().rules.push(Rule {
            applies,
            refusal,
            left: times,
        });
    }

    /// The same; all other refusals end.
    pub(crate) fn refuse_only(
        &self,
        times: usize,
        refusal: Refusal,
        applies: impl Fn(&Exchange) -> bool + Send + 'static,
    ) {
        let applies = Box::new(applies);
        self.faults().rules = vec![Rule {
            applies,
            refusal,
            left: times,
        }];
    }

    /// Breaks every watch that is open.
    pub(crate) fn cut_watches(&self) {
        self.shared.cut.send_modify(|cuts| *cuts += 1);
    }

    /// Closes every connection.
    pub(crate) fn disconnect(&self) {
        self.shared.disconnect.send_modify(|cuts| *cuts += 1);
    }

    /// Serves new connections with a certificate of another authority. It has to issue client certificates, too.
    pub(crate) fn serve_with(&self, authority: &Authority) {
        *lock(&self.shared.acceptor) = authority.acceptor();
    }

    /// All requests, in the order of their answers.
    pub(crate) fn log(&self) -> Vec<Exchange> {
        self.faults().log.clone()
    }

    /// Waits until a number of requests satisfies a condition. The effect of a request can be seen before its answer is
    /// logged.
    pub(crate) fn wait_for(&self, requests: usize, which: impl Fn(&Exchange) -> bool) {
        eventually("the requests are answered", || {
            (self.count(&which) >= requests).then_some(())
        });
    }

    /// The number of requests of the log that satisfy a condition.
    pub(crate) fn count(&self, which: impl Fn(&Exchange) -> bool) -> usize {
        self.faults().log.iter().filter(|e| which(e)).count()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Faults> {
        lock(&self.faults)
    }

    /// The latency, and how the request is refused if it is.
    fn fault(&self, asked: &Exchange) -> (Duration, Option<Refusal>) {
        let mut faults = self.lock();
        let rule = faults
            .rules
            .iter_mut()
            .find(|rule| rule.left > 0 && (rule.applies)(asked));
        let refusal = rule.map(|rule| {
            rule.left -= 1;
            rule.refusal.clone()
        });
        (faults.latency, refusal)
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    while let Ok((stream, _)) = listener.accept().await {
        let shared = Arc::clone(&shared);
        tokio::spawn(async move {
            let mut disconnect = shared.disconnect.subscribe();
            tokio::select! {
                () = serve(stream, &shared) => {}
                _ = disconnect.changed() => {}
            }
        });
    }
}

async fn serve(stream: TcpStream, shared: &Arc<Shared>) {
    let acceptor = lock(&shared.acceptor).clone();
    let Ok(stream) = acceptor.accept(stream).await else {
        return;
    };
    let certificates = stream.get_ref().1.peer_certificates();
    let certificate = certificates
        .and_then(|chain| chain.first())
        .map_or_else(String::new, |der| common_name(der));
    let service = service_fn(|request| {
        let (shared, certificate) = (Arc::clone(shared), certificate.clone());
        async move { Ok::<_, Infallible>(exchange(request, &shared, certificate).await) }
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http2().timer(TokioTimer::new());
    let _ = builder
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

fn common_name(der: &[u8]) -> String {
    let parsed = x509_parser::parse_x509_certificate(der);
    let (_, certificate) = parsed.expect("a certificate");
    let mut names = certificate.subject().iter_common_name();
    let name = names.next().and_then(|name| name.as_str().ok());
    name.unwrap_or_default().to_owned()
}

async fn exchange(
    request: Request<Incoming>,
    shared: &Arc<Shared>,
    certificate: String,
) -> Response<Body> {
    let path = request.uri().path_and_query();
    let mut asked = Exchange {
        method: request.method().to_string(),
        path: path.map_or_else(String::new, ToString::to_string),
        certificate,
        code: 0,
        began: Instant::now(),
    };
    let (latency, refusal) = shared.fault(&asked);
    if !latency.is_zero() {
        tokio::time::sleep(latency).await;
    }
    let answer = match refusal {
        Some(refusal) => refused(&refusal),
        None => forward(request, shared, &asked).await,
    };
    asked.code = answer.status().as_u16();
    shared.lock().log.push(asked);
    answer
}

async fn forward(request: Request<Incoming>, shared: &Shared, asked: &Exchange) -> Response<Body> {
    let cut = asked.is_watch().then(|| shared.cut.subscribe());
    let (mut parts, body) = request.into_parts();
    let Ok(body) = body.collect().await else {
        return refused(&Refusal::Status(400, None));
    };
    let url = format!("{}{}", shared.url.trim_end_matches('/'), asked.path);
    parts.uri = url.parse::<Uri>().expect("an address");
    parts.version = http::Version::HTTP_11;
    parts.headers.remove(header::HOST);
    if !asked.certificate.is_empty() {
        parts
            .headers
            .insert(header::AUTHORIZATION, shared.admin.clone());
    }
    let request = Request::from_parts(parts, Full::new(body.to_bytes()));
    let Ok(answer) = shared.upstream.request(request).await else {
        return refused(&Refusal::Status(502, None));
    };
    let (mut parts, body) = answer.into_parts();
    parts.version = http::Version::HTTP_2;
    for name in [header::CONNECTION, header::TRANSFER_ENCODING] {
        parts.headers.remove(name);
    }
    let Some(cut) = cut else {
        return Response::from_parts(parts, body.map_err(Into::into).boxed_unsync());
    };
    let frames = stream::unfold(Some((body, cut)), |state| async {
        let (mut body, mut cut) = state?;
        tokio::select! {
            frame = body.frame() => match frame? {
                Ok(frame) => Some((Ok(frame), Some((body, cut)))),
                Err(error) => Some((Err(error.into()), None)),
            },
            _ = cut.changed() => Some((Err("the proxy has cut the answer".into()), None)),
        }
    });
    Response::from_parts(parts, StreamBody::new(frames).boxed_unsync())
}

fn refused(refusal: &Refusal) -> Response<Body> {
    let status = |code: u16| {
        let reason = match code {
            401 => "Unauthorized",
            410 => "Expired",
            429 => "TooManyRequests",
            _ => "ServiceUnavailable",
        };
        json!({
            "apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Failure", "code": code,
            "reason": reason, "message": format!("refused by the test with {code}"),
        })
    };
    let (code, body, after) = match refusal {
        Refusal::Status(code, after) => (*code, status(*code), *after),
        Refusal::WatchError(code) => (200, json!({"type": "ERROR", "object": status(*code)}), None),
    };
    let body = Full::new(Bytes::from(format!("{body}\n")));
    let mut response = Response::new(body.map_err(|never| match never {}).boxed_unsync());
    *response.status_mut() = StatusCode::from_u16(code).expect("a code");
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    if let Some(seconds) = after {
        headers.insert(header::RETRY_AFTER, seconds.into());
    }
    response
}
