//! The HTTP client: TLS, credentials and proxies as a kubeconfig describes them, over HTTP/2 where the server offers
//! it.
//!
//! With HTTP/2, watches and requests share one connection, see `http2`.

use crate::config::Config;
use crate::credentials::{Credentials, Headers};
use crate::http2::HttpRequests;
use crate::setting::redacted;
use crate::tls;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderValue, Request, Response, Uri};
use http_body_util::Full;
use hyper_rustls::{FixedServerNameResolver, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::proxy::{SocksV5, Tunnel};
use hyper_util::rt::TokioIo;
use percent_encoding::percent_decode_str;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio_rustls::rustls::ClientConfig;
use tower::util::BoxCloneSyncService;
use tower::{BoxError, Service, ServiceExt};

pub(crate) use crate::http2::{ConnectionId, HttpBody};

/// The service that sends requests.
pub(crate) type HttpService =
    BoxCloneSyncService<Request<Full<Bytes>>, Response<HttpBody>, BoxError>;

/// The interval of TCP's own probes.
const TCP_KEEPALIVE: Duration = Duration::from_secs(30);

/// The client of a configuration. No request is sent yet.
///
/// # Errors
/// When the credentials, the certificates or the proxy cannot be used.
pub(crate) fn service(config: &Config) -> Result<HttpService, BoxError> {
    let credentials = Credentials::of(config)?;
    let tls = tls::client_config(config, credentials.identity.as_ref())?;
    let client = Described {
        config,
        headers: credentials.headers,
        tls,
    };
    let mut tcp = HttpConnector::new();
    // The connector below also carries connections that are encrypted above it.
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_keepalive(Some(TCP_KEEPALIVE));
    tcp.set_connect_timeout(config.connect_timeout);
    let Some(proxy) = &config.proxy_url else {
        return client.through(carrier(tcp, MaybeHttpsStream::Http));
    };
    let carrier = match proxy.scheme_str() {
        Some("socks5") => carrier(SocksV5::new(proxy.clone(), tcp), MaybeHttpsStream::Http),
        Some("http") => carrier(tunnel(proxy, tcp)?, MaybeHttpsStream::Http),
        Some("https") => {
            let tls = HttpsConnectorBuilder::new()
                .with_tls_config(client.tls.clone())
                .https_or_http()
                .enable_http1()
                .wrap_connector(tcp);
            carrier(tunnel(proxy, tls)?, |stream| stream)
        }
        _ => {
            let proxy = redacted(&proxy.to_string());
            return Err(format!("proxy {proxy} is none of http, https and socks5").into());
        }
    };
    client.through(carrier)
}

/// The bytes between this process and the server, or the proxy, which may encrypt them itself.
type CarrierStream = MaybeHttpsStream<TokioIo<TcpStream>>;

/// Opens such streams, directly or through a proxy. It is one type, so that the client above it is compiled once.
type Carrier = BoxCloneSyncService<Uri, CarrierStream, BoxError>;

fn carrier<C>(connector: C, stream: fn(C::Response) -> CarrierStream) -> Carrier
where
    C: Service<Uri> + Clone + Send + Sync + 'static,
    C::Response: 'static,
    C::Future: Send + 'static,
    C::Error: Into<BoxError> + 'static,
{
    BoxCloneSyncService::new(connector.map_response(stream).map_err(C::Error::into))
}

/// A tunnel through an HTTP proxy, with the credentials of its URL.
fn tunnel<C>(proxy: &Uri, connector: C) -> Result<Tunnel<C>, BoxError> {
    let tunnel = Tunnel::new(proxy.clone(), connector);
    let user = proxy
        .authority()
        .and_then(|authority| Some(authority.as_str().rsplit_once('@')?.0));
    let Some(user) = user else {
        return Ok(tunnel);
    };
    let decoded: Vec<u8> = percent_decode_str(user).collect();
    let value = format!("Basic {}", STANDARD.encode(decoded));
    let mut value = HeaderValue::try_from(value)?;
    value.set_sensitive(true);
    Ok(tunnel.with_auth(value))
}

/// A client whose connections are still to be made.
struct Described<'a> {
    config: &'a Config,
    headers: Headers,
    tls: ClientConfig,
}

impl Described<'_> {
    /// The client over the streams that `carrier` opens.
    fn through(self, carrier: Carrier) -> Result<HttpService, BoxError> {
        let mut tls = HttpsConnectorBuilder::new()
            .with_tls_config(self.tls)
            .https_or_http();
        if let Some(name) = &self.config.tls_server_name {
            let name = name.clone().try_into()?;
            tls = tls.with_server_name_resolver(FixedServerNameResolver::new(name));
        }
        let connector = tls.enable_all_versions().wrap_connector(carrier);
        let server = self.config.cluster_url.clone();
        Ok(BoxCloneSyncService::new(Addressed {
            base: Base::of(&server)?,
            headers: self.headers,
            requests: HttpRequests::new(connector, server),
        }))
    }
}

/// Sends requests, which name a path, to one server with its credentials.
#[derive(Clone)]
struct Addressed<S> {
    base: Base,
    headers: Headers,
    requests: S,
}

impl<S> Service<Request<Full<Bytes>>> for Addressed<S>
where
    S: Service<Request<Full<Bytes>>, Response = Response<HttpBody>, Error = BoxError> + Clone,
    S: Send + 'static,
    S::Future: Send,
{
    type Response = Response<HttpBody>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<HttpBody>, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.requests.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<Full<Bytes>>) -> Self::Future {
        // The ready service is used, and its clone replaces it.
        let next = self.requests.clone();
        let mut requests = std::mem::replace(&mut self.requests, next);
        let (base, headers) = (self.base.clone(), self.headers.clone());
        Box::pin(async move {
            let uri = base.join(request.uri())?;
            *request.uri_mut() = uri;
            headers.add_to(request.headers_mut()).await?;
            requests.call(request).await
        })
    }
}

/// The address that is prepended to the path of each request.
#[derive(Clone)]
struct Base {
    scheme: Scheme,
    authority: Authority,
    /// Without a slash at the end.
    path: String,
}

impl Base {
    fn of(server: &Uri) -> Result<Self, BoxError> {
        let parts = server.clone().into_parts();
        let (Some(scheme), Some(authority)) = (parts.scheme, parts.authority) else {
            return Err(format!("{server} is not a URL with http:// or https://").into());
        };
        Ok(Self {
            scheme,
            authority,
            path: server.path().trim_end_matches('/').to_owned(),
        })
    }

    fn join(&self, request: &Uri) -> Result<Uri, BoxError> {
        let path = request.path_and_query().map_or("/", PathAndQuery::as_str);
        let path = if self.path.is_empty() {
            PathAndQuery::try_from(path)?
        } else {
            PathAndQuery::try_from(format!("{}{path}", self.path))?
        };
        let builder = Uri::builder().scheme(self.scheme.clone());
        let builder = builder.authority(self.authority.clone());
        Ok(builder.path_and_query(path).build()?)
    }
}

#[cfg(test)]
mod tests;
