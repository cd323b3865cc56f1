//! A connection to an API server that costs little: HTTP/1.1 over TLS, one request at a time.

use super::ApiPerfError;
use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{HeaderValue, Method, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

pub(super) const JSON: HeaderValue = HeaderValue::from_static("application/json");
pub(super) const PROTOBUF: HeaderValue =
    HeaderValue::from_static("application/vnd.kubernetes.protobuf");

/// The way in which an API server is reached.
#[derive(Clone)]
pub struct ApiEndpoint {
    address: SocketAddr,
    connector: TlsConnector,
    authorization: HeaderValue,
    host: HeaderValue,
}

/// The parts of a kubeconfig that `berth apiserver` writes.
#[derive(Deserialize)]
struct Kubeconfig {
    clusters: Vec<NamedCluster>,
    users: Vec<NamedUser>,
}

#[derive(Deserialize)]
struct NamedCluster {
    cluster: ConnectionEntry,
}

#[derive(Deserialize)]
struct ConnectionEntry {
    server: String,
    #[serde(rename = "certificate-authority-data")]
    authority: String,
}

#[derive(Deserialize)]
struct NamedUser {
    user: PerfUserEntry,
}

#[derive(Deserialize)]
struct PerfUserEntry {
    token: String,
}

/// An open connection.
pub(super) struct Connection {
    sender: SendRequest<Full<Bytes>>,
    endpoint: ApiEndpoint,
}

impl std::fmt::Debug for ApiEndpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Endpoint")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

impl ApiEndpoint {
    /// Reads the kubeconfig that `berth apiserver` writes.
    ///
    /// # Errors
    /// When it has no cluster with an authority, no token, or another address than one of this machine.
    pub fn of_kubeconfig(text: &str) -> Result<Self, ApiPerfError> {
        let fail = |e: String| ApiPerfError::Connection(format!("the kubeconfig: {e}"));
        let config: Kubeconfig = serde_saphyr::from_str(text).map_err(|e| fail(e.to_string()))?;
        let (Some(cluster), Some(user)) = (config.clusters.first(), config.users.first()) else {
            return Err(fail("no cluster or no user".to_owned()));
        };
        let host = cluster.cluster.server.trim_start_matches("https://");
        let pem = base64::Engine::decode(
            &base64::engine::general_purpose::STANDARD,
            &cluster.cluster.authority,
        );
        let pem = pem.map_err(|e| fail(e.to_string()))?;
        let authority = CertificateDer::from_pem_slice(&pem).map_err(|e| fail(e.to_string()))?;
        let mut roots = RootCertStore::empty();
        roots.add(authority).map_err(|e| fail(e.to_string()))?;
        let client = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|e| fail(e.to_string()))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let header = |text: &str| HeaderValue::from_str(text).map_err(|e| fail(e.to_string()));
        Ok(Self {
            address: host
                .parse()
                .map_err(|_| fail(format!("address {host:?}")))?,
            connector: TlsConnector::from(Arc::new(client)),
            authorization: header(&format!("Bearer {}", user.user.token))?,
            host: header(host)?,
        })
    }
}

impl Connection {
    /// Opens a connection.
    ///
    /// # Errors
    /// When the server does not accept it.
    pub(super) async fn open(endpoint: &ApiEndpoint) -> Result<Self, ApiPerfError> {
        let fail = |e: &dyn std::fmt::Display| ApiPerfError::Connection(e.to_string());
        let stream = TcpStream::connect(endpoint.address)
            .await
            .map_err(|e| fail(&e))?;
        stream.set_nodelay(true).map_err(|e| fail(&e))?;
        let name = ServerName::IpAddress(endpoint.address.ip().into());
        let stream = endpoint.connector.connect(name, stream).await;
        let stream = TokioIo::new(stream.map_err(|e| fail(&e))?);
        let (sender, connection) = http1::handshake(stream).await.map_err(|e| fail(&e))?;
        // A request reports by itself that its connection broke.
        tokio::spawn(connection);
        Ok(Self {
            sender,
            endpoint: endpoint.clone(),
        })
    }

    /// Sends a request and leaves the body of the answer to be read as it arrives.
    ///
    /// # Errors
    /// When there is no answer, or one of another code than the expected one.
    pub(super) async fn stream(
        &mut self,
        (method, path): (Method, &str),
        (accept, content_type): (HeaderValue, HeaderValue),
        body: Vec<u8>,
        expected: u16,
    ) -> Result<Response<Incoming>, ApiPerfError> {
        let fail = |e: &dyn std::fmt::Display| ApiPerfError::Connection(format!("{path}: {e}"));
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, &self.endpoint.host)
            .header(AUTHORIZATION, &self.endpoint.authorization)
            .header(ACCEPT, accept)
            .header(CONTENT_TYPE, content_type)
            .body(Full::new(Bytes::from(body)))
            .map_err(|e| fail(&e))?;
        self.sender.ready().await.map_err(|e| fail(&e))?;
        let sent = self.sender.send_request(request).await;
        let response = sent.map_err(|e| fail(&e))?;
        let code = response.status().as_u16();
        if code == expected {
            return Ok(response);
        }
        let body = response.into_body().collect().await;
        let text = body.map(|b| String::from_utf8_lossy(&b.to_bytes()).into_owned());
        Err(ApiPerfError::Answer {
            path: path.to_owned(),
            code,
            text: text.unwrap_or_default(),
        })
    }

    /// Sends JSON and reads the answer.
    ///
    /// # Errors
    /// As [`Connection::stream`].
    pub(super) async fn send(
        &mut self,
        method: Method,
        path: &str,
        body: Vec<u8>,
        expected: u16,
    ) -> Result<Bytes, ApiPerfError> {
        let formats = (JSON, JSON);
        let response = self.stream((method, path), formats, body, expected).await?;
        let body = response.into_body().collect().await;
        body.map(|b| b.to_bytes())
            .map_err(|e| ApiPerfError::Connection(format!("{path}: {e}")))
    }

    /// Reads a large answer.
    ///
    /// # Errors
    /// As [`Connection::stream`].
    pub(super) async fn read(
        &mut self,
        path: &str,
        accept: HeaderValue,
    ) -> Result<Vec<u8>, ApiPerfError> {
        let request = self.stream((Method::GET, path), (accept, JSON), Vec::new(), 200);
        let mut body = request.await?.into_body();
        let mut bytes = Vec::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|e| ApiPerfError::Connection(format!("{path}: {e}")))?;
            bytes.extend_from_slice(frame.data_ref().map_or(&[], |data| data));
        }
        Ok(bytes)
    }
}
