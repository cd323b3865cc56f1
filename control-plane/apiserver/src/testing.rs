//! A small HTTPS client for a server of this process, for tests and replays alone (feature `test-client`).
//!
//! It opens one connection for each request.

use crate::RunningServer;
use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::Value;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// No answer takes longer, a watch's neither.
const PATIENCE: Duration = Duration::from_secs(60);

/// The reason why a request got no answer.
#[derive(Debug, thiserror::Error)]
pub enum LoopbackError {
    /// The connection or the handshake failed, or broke.
    #[error("the connection failed: {0}")]
    Connection(String),
    /// The server sent nothing for too long.
    #[error("no answer within {} s", PATIENCE.as_secs())]
    Silence,
}

/// A client of one server.
#[derive(Clone)]
pub struct Loopback {
    address: SocketAddr,
    connector: TlsConnector,
    token: String,
    http2: bool,
}

/// A request.
#[derive(Debug, Clone, Default)]
pub struct Ask {
    /// The method, `GET` when it is empty.
    pub method: String,
    /// Path and query.
    pub path: String,
    /// `Content-Type`; none when it is empty.
    pub content_type: String,
    /// `Accept`; none when it is empty.
    pub accept: String,
    /// The body.
    pub body: Vec<u8>,
    /// A token other than the administrator's; the empty token sends none.
    pub token: Option<String>,
    /// Further headers.
    pub headers: Vec<(String, String)>,
}

/// An answer.
#[derive(Debug, Clone)]
pub struct Reply {
    /// The code.
    pub status: u16,
    /// The headers.
    pub headers: HeaderMap,
    /// The whole body.
    pub body: Bytes,
}

impl std::fmt::Debug for Loopback {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Loopback")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

impl Reply {
    /// The body as JSON, null when it is none.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// A header, empty when it is not there.
    pub fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .and_then(|v| v.to_str().ok())
            .unwrap_or("")
    }

    /// The events of a watch, one a line.
    pub fn events(&self) -> Vec<Value> {
        self.text()
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect()
    }
}

impl Loopback {
    /// A client of this server, as its administrator.
    ///
    /// # Errors
    /// When the server's certificate cannot be read.
    pub fn new(server: &RunningServer) -> Result<Self, LoopbackError> {
        Self::connect(server, None)
    }

    /// A client with this certificate chain and key, both in PEM, and no token.
    ///
    /// # Errors
    /// When the certificates or the key cannot be read.
    pub fn with_certificate(
        server: &RunningServer,
        chain: &str,
        key: &str,
    ) -> Result<Self, LoopbackError> {
        let fail = |e: pem::Error| LoopbackError::Connection(e.to_string());
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(chain.as_bytes()).collect();
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(fail)?;
        Ok(Self {
            token: String::new(),
            ..Self::connect(server, Some((chain.map_err(fail)?, key)))?
        })
    }

    fn connect(
        server: &RunningServer,
        certificate: Option<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)>,
    ) -> Result<Self, LoopbackError> {
        let fail = |e: String| LoopbackError::Connection(e);
        let ca = CertificateDer::from_pem_slice(server.ca_pem().as_bytes())
            .map_err(|e| fail(e.to_string()))?;
        let mut roots = RootCertStore::empty();
        roots.add(ca).map_err(|e| fail(e.to_string()))?;
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|e| fail(e.to_string()))?
            .with_root_certificates(roots);
        let config = match certificate {
            None => config.with_no_client_auth(),
            Some((chain, key)) => config
                .with_client_auth_cert(chain, key)
                .map_err(|e| fail(e.to_string()))?,
        };
        Ok(Self {
            address: server.addr(),
            connector: TlsConnector::from(Arc::new(config)),
            token: server.admin_token().to_owned(),
            http2: false,
        })
    }

    /// The same client speaking HTTP/2, as kubectl does, instead of HTTP/1.1.
    #[must_use]
    pub fn over_http2(self) -> Self {
        Self {
            http2: true,
            ..self
        }
    }

    /// Sends a request and reads the whole answer.
    ///
    /// # Errors
    /// When there is none.
    pub async fn ask(&self, ask: &Ask) -> Result<Reply, LoopbackError> {
        match timeout(PATIENCE, self.exchange(ask)).await {
            Ok(result) => result,
            Err(_) => Err(LoopbackError::Silence),
        }
    }

    async fn exchange(&self, ask: &Ask) -> Result<Reply, LoopbackError> {
        let (status, headers, body) = self.send(ask).await?;
        let body = body
            .collect()
            .await
            .map_err(|e| LoopbackError::Connection(e.to_string()))?;
        Ok(Reply {
            status: status.as_u16(),
            headers,
            body: body.to_bytes(),
        })
    }

    /// Sends a request, and returns the body of the answer as a stream.
    ///
    /// # Errors
    /// The connection failed, or the server did not answer in time.
    pub async fn send(
        &self,
        ask: &Ask,
    ) -> Result<(StatusCode, HeaderMap, Incoming), LoopbackError> {
        let fail = |e: String| LoopbackError::Connection(e);
        let stream = TcpStream::connect(self.address)
            .await
            .map_err(|e| fail(e.to_string()))?;
        let name = ServerName::IpAddress(self.address.ip().into());
        let stream = self
            .connector
            .connect(name, stream)
            .await
            .map_err(|e| fail(e.to_string()))?;
        let method = match ask.method.as_str() {
            "" => Method::GET,
            method => Method::from_bytes(method.as_bytes()).map_err(|e| fail(e.to_string()))?,
        };
        let mut request = Request::builder().method(method);
        request = if self.http2 {
            request.uri(format!("https://{}{}", self.address, ask.path))
        } else {
            request
                .uri(ask.path.as_str())
                .header("host", self.address.to_string())
        };
        let token = ask.token.as_deref().unwrap_or(&self.token);
        if !token.is_empty() {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        for (name, value) in [("content-type", &ask.content_type), ("accept", &ask.accept)] {
            if !value.is_empty() {
                request = request.header(name, value);
            }
        }
        for (name, value) in &ask.headers {
            request = request.header(name, value);
        }
        let request = request
            .body(Full::new(Bytes::from(ask.body.clone())))
            .map_err(|e| fail(e.to_string()))?;
        let io = TokioIo::new(stream);
        // The connections run in the background; a request fails by itself when its connection breaks.
        let response = if self.http2 {
            let (mut sender, connection) = http2::handshake(TokioExecutor::new(), io)
                .await
                .map_err(|e| fail(e.to_string()))?;
            tokio::spawn(connection);
            sender.send_request(request).await
        } else {
            let (mut sender, connection) = http1::handshake(io)
                .await
                .map_err(|e| fail(e.to_string()))?;
            tokio::spawn(connection);
            sender.send_request(request).await
        };
        let (parts, body) = response.map_err(|e| fail(e.to_string()))?.into_parts();
        Ok((parts.status, parts.headers, body))
    }
}
