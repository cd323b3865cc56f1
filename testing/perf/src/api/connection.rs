//! A connection to an API server with little overhead: HTTP/1.1 over TLS, one request at a time.

use super::ApiPerfError;
use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{HeaderValue, Method, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use serde_json::Value;
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

/// The address and the credentials of an API server.
#[derive(Clone)]
pub(super) struct ApiEndpoint {
    address: SocketAddr,
    connector: TlsConnector,
    authorization: HeaderValue,
}

/// An open connection.
pub(super) struct Connection {
    sender: SendRequest<Full<Bytes>>,
    endpoint: ApiEndpoint,
}

impl ApiEndpoint {
    /// Reads the kubeconfig that `berth apiserver` writes.
    ///
    /// # Errors
    /// When it has no cluster with an authority, no token, or an address that is not local.
    pub(super) fn of_kubeconfig(text: &str) -> Result<Self, ApiPerfError> {
        let config: Value = serde_saphyr::from_str(text).map_err(ApiPerfError::connection)?;
        let field = |pointer: &str| {
            let found = config.pointer(pointer).and_then(Value::as_str);
            found
                .ok_or_else(|| ApiPerfError::connection(format!("the kubeconfig has no {pointer}")))
        };
        let server = field("/clusters/0/cluster/server")?;
        let pem = base64::Engine::decode(
            &base64::engine::general_purpose::STANDARD,
            field("/clusters/0/cluster/certificate-authority-data")?,
        );
        let pem = pem.map_err(ApiPerfError::connection)?;
        let authority = CertificateDer::from_pem_slice(&pem).map_err(ApiPerfError::connection)?;
        let mut roots = RootCertStore::empty();
        roots.add(authority).map_err(ApiPerfError::connection)?;
        let client = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(ApiPerfError::connection)?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let token = field("/users/0/user/token")?;
        Ok(Self {
            address: server
                .trim_start_matches("https://")
                .parse()
                .map_err(|e| ApiPerfError::connection(format!("address {server:?}: {e}")))?,
            connector: TlsConnector::from(Arc::new(client)),
            authorization: HeaderValue::from_str(&format!("Bearer {token}"))
                .map_err(ApiPerfError::connection)?,
        })
    }
}

impl Connection {
    /// Opens a connection.
    ///
    /// # Errors
    /// When the server does not accept it.
    pub(super) async fn open(endpoint: &ApiEndpoint) -> Result<Self, ApiPerfError> {
        let stream = TcpStream::connect(endpoint.address)
            .await
            .map_err(ApiPerfError::connection)?;
        stream.set_nodelay(true).map_err(ApiPerfError::connection)?;
        let name = ServerName::IpAddress(endpoint.address.ip().into());
        let stream = endpoint.connector.connect(name, stream).await;
        let stream = TokioIo::new(stream.map_err(ApiPerfError::connection)?);
        let (sender, connection) = http1::handshake(stream)
            .await
            .map_err(ApiPerfError::connection)?;
        // If the connection breaks, the request reports it.
        tokio::spawn(connection);
        Ok(Self {
            sender,
            endpoint: endpoint.clone(),
        })
    }

    /// Sends a request; the caller reads the body of the answer as it arrives.
    ///
    /// # Errors
    /// When there is no answer, or the answer reports a failure.
    pub(super) async fn stream(
        &mut self,
        method: Method,
        path: &str,
        accept: HeaderValue,
        body: Vec<u8>,
    ) -> Result<Response<Incoming>, ApiPerfError> {
        let fail = |e: &dyn std::fmt::Display| ApiPerfError::connection(format!("{path}: {e}"));
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, self.endpoint.address.to_string())
            .header(AUTHORIZATION, &self.endpoint.authorization)
            .header(ACCEPT, accept)
            .header(CONTENT_TYPE, JSON)
            .body(Full::new(Bytes::from(body)))
            .map_err(|e| fail(&e))?;
        self.sender.ready().await.map_err(|e| fail(&e))?;
        let sent = self.sender.send_request(request).await;
        let response = sent.map_err(|e| fail(&e))?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let body = response.into_body().collect().await;
        let text = body.map(|b| String::from_utf8_lossy(&b.to_bytes()).into_owned());
        Err(ApiPerfError::Answer {
            path: path.to_owned(),
            code: status.as_u16(),
            text: text.unwrap_or_default(),
        })
    }

    /// Sends JSON and reads the answer.
    ///
    /// # Errors
    /// As [`Connection::stream`].
    pub(super) async fn post(&mut self, path: &str, body: Vec<u8>) -> Result<Bytes, ApiPerfError> {
        let response = self.stream(Method::POST, path, JSON, body).await?;
        read(response, path).await
    }

    /// Reads an answer.
    ///
    /// # Errors
    /// As [`Connection::stream`].
    pub(super) async fn get(
        &mut self,
        path: &str,
        accept: HeaderValue,
    ) -> Result<Bytes, ApiPerfError> {
        let response = self.stream(Method::GET, path, accept, Vec::new()).await?;
        read(response, path).await
    }
}

async fn read(response: Response<Incoming>, path: &str) -> Result<Bytes, ApiPerfError> {
    let body = response.into_body().collect().await;
    body.map(|b| b.to_bytes())
        .map_err(|e| ApiPerfError::connection(format!("{path}: {e}")))
}
