//! The HTTP client: TLS, credentials and proxies as a kubeconfig describes them, over HTTP/2 where the server offers
//! it.
//!
//! `kube` reads the configuration. Its own client speaks HTTP/1.1 only, which takes one connection for each watch and
//! for each request in flight; with HTTP/2 they share one, see `http2`.

use crate::http2::Requests;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{HeaderValue, Request, Response, Uri};
use http_body_util::Full;
use hyper::rt::{Read, Write};
use hyper_rustls::{FixedServerNameResolver, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::proxy::{SocksV5, Tunnel};
use hyper_util::client::legacy::connect::{Connection, HttpConnector};
use kube::client::ConfigExt;
use kube::config::Config;
use percent_encoding::percent_decode_str;
use std::time::Duration;
use tower::util::BoxCloneSyncService;
use tower::{BoxError, Service, ServiceBuilder};

pub(crate) use crate::http2::Body;

/// What carries out requests.
pub(crate) type HttpService = BoxCloneSyncService<Request<Full<Bytes>>, Response<Body>, BoxError>;

/// The interval of TCP's own probes.
const TCP_KEEPALIVE: Duration = Duration::from_secs(30);

/// The client of a configuration. Nothing is sent yet.
///
/// # Errors
/// When the credentials, the certificates or the proxy cannot be used.
pub(crate) fn service(config: &Config) -> Result<HttpService, BoxError> {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_keepalive(Some(TCP_KEEPALIVE));
    tcp.set_connect_timeout(config.connect_timeout);
    let Some(proxy) = &config.proxy_url else {
        return through(config, tcp);
    };
    match proxy.scheme_str() {
        Some("socks5") => through(config, SocksV5::new(proxy.clone(), tcp)),
        Some("http") => through(config, tunnel(proxy, tcp)?),
        Some("https") => {
            let tls = config.rustls_https_connector_with_connector(tcp)?;
            through(config, tunnel(proxy, tls)?)
        }
        _ => Err(format!("proxy {proxy} is none of http, https and socks5").into()),
    }
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

/// The client over connections that `connector` makes.
fn through<C>(config: &Config, connector: C) -> Result<HttpService, BoxError>
where
    C: Service<Uri> + Clone + Send + Sync + 'static,
    C::Response: Connection + Read + Write + Send + Unpin + 'static,
    C::Future: Send + 'static,
    C::Error: Into<BoxError>,
{
    let mut tls = HttpsConnectorBuilder::new()
        .with_tls_config(config.rustls_client_config()?)
        .https_or_http();
    if let Some(name) = &config.tls_server_name {
        tls = tls.with_server_name_resolver(FixedServerNameResolver::new(name.clone().try_into()?));
    }
    let connector = tls.enable_all_versions().wrap_connector(connector);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .service(Requests::new(connector, config.cluster_url.clone()));
    Ok(BoxCloneSyncService::new(service))
}

#[cfg(test)]
mod tests;
