//! Plain HTTP on loopback: `/healthz`, `/livez`, `/readyz` and `/metrics` of the scheduler or the API server.

use crate::dashboard::{self, PageQuestion};
use crate::exit::CommandFailure;
use crate::loopback::is_loopback;
use crate::runner::explain::{self, Explained, Explainer};
use crate::tasks;
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::Value;
use std::convert::Infallible;
use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

/// The number of requests that are answered at the same time; more wait.
const CONNECTIONS_MAX: usize = 64;
/// Answers that are shorter are not compressed.
const COMPRESSED_FROM_BYTES: usize = 16 * 1024;

/// The pages that are served.
pub trait Probe: Send + Sync + 'static {
    /// Returns whether the scheduler has listed the whole cluster and makes progress, or the API server answers.
    fn ready(&self) -> bool;
    /// The metrics, in the Prometheus text format.
    fn metrics(&self) -> impl Future<Output = Option<String>> + Send;
    /// Returns whether there is a dashboard.
    fn has_dashboard(&self) -> bool {
        false
    }
    /// The answer of the dashboard.
    fn dashboard(&self, _question: PageQuestion) -> impl Future<Output = Option<Value>> + Send {
        async { None }
    }
    /// The answer of a path below `/explain`; `None` without explanations.
    fn explain(&self, _path: &str) -> impl Future<Output = Option<Explained>> + Send {
        std::future::ready(None)
    }
}

impl Probe for Explainer {
    fn ready(&self) -> bool {
        self.probe().is_ready()
    }

    async fn metrics(&self) -> Option<String> {
        let metrics = self.probe().metrics().await;
        metrics.map(|snapshot| snapshot.render())
    }

    async fn explain(&self, path: &str) -> Option<Explained> {
        Some(self.answer(path).await)
    }

    fn has_dashboard(&self) -> bool {
        true
    }

    async fn dashboard(&self, question: PageQuestion) -> Option<Value> {
        self.probe().dashboard(question).await
    }
}

/// Takes the address, which must be on loopback: every client that reaches it may read.
///
/// # Errors
/// When it is taken or may not be used; the error states the way out.
pub async fn bind(addr: SocketAddr) -> Result<TcpListener, CommandFailure> {
    if !addr.ip().is_loopback() {
        return Err(CommandFailure::Usage(format!(
            "--metrics {addr}: health and metrics are served without authentication and so only on loopback; \
             give 127.0.0.1:{}",
            addr.port()
        )));
    }
    TcpListener::bind(addr).await.map_err(|e| {
        CommandFailure::Environment(format!(
            "failed to serve metrics on {addr}: {e}; free the port or give another one with --metrics ADDR \
             (port 0 takes a free one)"
        ))
    })
}

/// The address of a listener.
///
/// # Errors
/// When the system does not return one.
pub fn address(listener: &TcpListener) -> Result<SocketAddr, CommandFailure> {
    listener
        .local_addr()
        .map_err(|e| CommandFailure::Environment(format!("failed to serve metrics: {e}")))
}

/// Serves until the process ends.
pub async fn serve(listener: TcpListener, probe: Arc<impl Probe>) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(place) = places.clone().acquire_owned().await else {
            return;
        };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            // An accept can fail when file descriptors are exhausted; during a pause, connections can end.
            Err(error) => {
                tracing::debug!(%error, "failed to accept a connection");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let probe = probe.clone();
        tasks::spawn(async move {
            let _place = place;
            let service = service_fn(move |request| {
                let probe = probe.clone();
                async move { Ok::<_, Infallible>(answer(&request, &*probe).await) }
            });
            let served = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(Duration::from_secs(5))
                .keep_alive(false)
                .serve_connection(TokioIo::new(stream), service);
            // A slow client must not occupy its connection forever.
            if let Ok(Err(error)) = tokio::time::timeout(Duration::from_secs(30), served).await {
                tracing::debug!(%error, "a connection to the metrics port broke");
            }
        });
    }
}

async fn answer(request: &Request<Incoming>, probe: &impl Probe) -> Response<Full<Bytes>> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return text(StatusCode::METHOD_NOT_ALLOWED, "method not allowed\n");
    }
    let path = request.uri().path();
    let names_pods = is_explained(path) || path.starts_with("/dashboard");
    if names_pods && !is_for_loopback(request) {
        return text(
            StatusCode::FORBIDDEN,
            "explanations and the dashboard are served only to requests for localhost or a loopback address: open \
             http://127.0.0.1:PORT\n",
        );
    }
    match path {
        "/healthz" | "/livez" => text(StatusCode::OK, "ok"),
        "/readyz" if probe.ready() => text(StatusCode::OK, "ok"),
        "/readyz" => text(
            StatusCode::INTERNAL_SERVER_ERROR,
            "the scheduler has not seen the whole cluster yet\n",
        ),
        "/metrics" => match probe.metrics().await {
            Some(metrics) => {
                let mut response = text(StatusCode::OK, metrics);
                response.headers_mut().insert(
                    header::CONTENT_TYPE,
                    header::HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8"),
                );
                response
            }
            None => text(
                StatusCode::SERVICE_UNAVAILABLE,
                "the scheduler is stopping\n",
            ),
        },
        "/dashboard" if probe.has_dashboard() => page(),
        path if probe.has_dashboard() && path.starts_with("/dashboard/") => {
            let query = request.uri().query().unwrap_or_default();
            match PageQuestion::of(path, query) {
                Some(question) => data(probe.dashboard(question).await, request.headers()),
                None => text(StatusCode::NOT_FOUND, "the dashboard has no such data\n"),
            }
        }
        path if is_explained(path) => explained(path, probe).await,
        _ if probe.has_dashboard() => text(
            StatusCode::NOT_FOUND,
            "not found; there are /dashboard, /explain, /healthz, /livez, /readyz and /metrics\n",
        ),
        _ => not_found(),
    }
}

/// Returns whether explanations answer a path.
pub(crate) fn is_explained(path: &str) -> bool {
    path.strip_prefix(explain::PREFIX)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn not_found() -> Response<Full<Bytes>> {
    text(
        StatusCode::NOT_FOUND,
        "not found; there are /healthz, /livez, /readyz and /metrics\n",
    )
}

/// Returns whether the request is for a loopback address. A page in a browser can reach this port under a name that it
/// controls (DNS rebinding), and must not read the names of pods.
fn is_for_loopback(request: &Request<Incoming>) -> bool {
    let host = request.headers().get(header::HOST);
    let host = host.and_then(|host| host.to_str().ok());
    host.is_some_and(is_loopback)
}

async fn explained(path: &str, probe: &impl Probe) -> Response<Full<Bytes>> {
    match probe.explain(path).await {
        Some((status, json)) => {
            let mut response = text(status, json);
            response.headers_mut().insert(
                header::CONTENT_TYPE,
                header::HeaderValue::from_static("application/json"),
            );
            response
        }
        None => not_found(),
    }
}

/// The page of the dashboard.
pub(crate) fn page() -> Response<Full<Bytes>> {
    let mut response = typed(StatusCode::OK, "text/html; charset=utf-8", dashboard::PAGE);
    for (name, value) in [
        (
            header::CONTENT_SECURITY_POLICY,
            dashboard::CONTENT_SECURITY_POLICY,
        ),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
    ] {
        let value = header::HeaderValue::from_static(value);
        response.headers_mut().insert(name, value);
    }
    response
}

/// An answer that is compressed when it is long and the client can read that.
pub(crate) fn compressible(
    content_type: &'static str,
    body: String,
    headers: &HeaderMap,
) -> Response<Full<Bytes>> {
    let accepted = headers.get(header::ACCEPT_ENCODING);
    let accepted = accepted.and_then(|value| value.to_str().ok());
    let takes_gzip = accepted.is_some_and(|accepted| accepted.contains("gzip"));
    if !takes_gzip || body.len() < COMPRESSED_FROM_BYTES {
        return typed(StatusCode::OK, content_type, body);
    }
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    let written = encoder
        .write_all(body.as_bytes())
        .and_then(|()| encoder.finish());
    match written {
        Ok(compressed) => {
            let mut response = typed(StatusCode::OK, content_type, compressed);
            let gzip = header::HeaderValue::from_static("gzip");
            response
                .headers_mut()
                .insert(header::CONTENT_ENCODING, gzip);
            response
        }
        Err(_) => typed(StatusCode::OK, content_type, body),
    }
}

/// Data of the dashboard.
pub(crate) fn data(answer: Option<Value>, headers: &HeaderMap) -> Response<Full<Bytes>> {
    match answer {
        Some(answer) => compressible("application/json", answer.to_string(), headers),
        None => text(
            StatusCode::SERVICE_UNAVAILABLE,
            "the scheduler does not answer\n",
        ),
    }
}

fn text(status: StatusCode, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    typed(status, "text/plain; charset=utf-8", body)
}

fn typed(
    status: StatusCode,
    content_type: &'static str,
    body: impl Into<Bytes>,
) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        header::HeaderValue::from_static(content_type),
    );
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_loopback_is_served() {
        for (addr, is_fine) in [
            ("127.0.0.1:0", true),
            ("127.0.0.2:0", true),
            ("0.0.0.0:0", false),
            ("[::]:0", false),
            ("192.0.2.1:0", false),
        ] {
            let bound = bind(addr.parse().expect("an address")).await;
            match bound {
                Ok(_) => assert!(is_fine, "{addr}"),
                Err(CommandFailure::Usage(text)) => {
                    assert!(!is_fine && text.contains("127.0.0.1:0"), "{addr}: {text}");
                }
                Err(other) => panic!("{addr}: {other:?}"),
            }
        }
    }
}
