//! The listener of the HTTPS port: accepts connections, does the handshake, serves HTTP/1.1 and HTTP/2.

use super::pages::Pages;
use crate::exit::CommandFailure;
use crate::flags::ServingFlags;
use crate::tasks;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use std::convert::Infallible;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{Semaphore, oneshot};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;

/// The number of connections that may be open at the same time; more wait to be accepted.
const CONNECTIONS_MAX: usize = 256;
/// The number of connections that may wait to be accepted.
const BACKLOG: u32 = 1024;
/// The time that a handshake may take.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// The time that a client may take to send the head of a request.
const HEADER_TIMEOUT: Duration = Duration::from_secs(32);
/// Streams of an HTTP/2 connection when the flag does not state them.
const STREAMS_DEFAULT: u32 = 250;
/// The wait for requests when the server stops.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// Binds the port.
///
/// # Errors
/// When it is taken or may not be used; the error names the way out.
pub(super) fn bind(flags: &ServingFlags) -> Result<TcpListener, CommandFailure> {
    let (ip, port) = (flags.bind_address.value, flags.secure_port.value);
    // All interfaces of both families, where the machine has both.
    let addresses = if ip.is_unspecified() {
        vec![IpAddr::from(Ipv6Addr::UNSPECIFIED), ip]
    } else {
        vec![ip]
    };
    let mut failed = None;
    for ip in addresses {
        let address = SocketAddr::from((ip, port));
        match listen(address, flags) {
            Ok(listener) => return Ok(listener),
            Err(error) => failed = Some((address, error)),
        }
    }
    let (address, error) = failed.unwrap_or((
        SocketAddr::from((ip, port)),
        std::io::Error::other("no address"),
    ));
    Err(CommandFailure::Environment(format!(
        "failed to listen on {address}: {error}; free the port, or give another one with --secure-port"
    )))
}

fn listen(address: SocketAddr, flags: &ServingFlags) -> std::io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    #[cfg(unix)]
    {
        // As every server on Unix does; otherwise a restart would have to wait for old connections.
        socket.set_reuseaddr(true)?;
        if flags.permit_port_sharing.value {
            socket.set_reuseport(true)?;
        }
    }
    #[cfg(not(unix))]
    if flags.permit_address_sharing.value {
        socket.set_reuseaddr(true)?;
    }
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// The state of a listener.
pub(super) struct Listening {
    pub(super) listener: TcpListener,
    pub(super) config: Arc<ServerConfig>,
    pub(super) http2_streams_max: u32,
    pub(super) pages: Arc<Pages>,
}

/// Serves until it is stopped; then requests that are being answered have a moment to end.
pub(super) async fn serve(listening: Listening, mut stop: oneshot::Receiver<()>) {
    let Listening {
        listener,
        config,
        http2_streams_max,
        pages,
    } = listening;
    let acceptor = TlsAcceptor::from(config);
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let graceful = GracefulShutdown::new();
    let mut http = auto::Builder::new(TokioExecutor::new());
    http.http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT);
    http.http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(match http2_streams_max {
            0 => STREAMS_DEFAULT,
            given => given,
        });
    loop {
        let place = tokio::select! {
            place = Arc::clone(&places).acquire_owned() => place,
            _ = &mut stop => break,
        };
        let Ok(place) = place else { break };
        let stream = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::debug!(%error, "failed to accept a connection");
                    sleep(Duration::from_millis(50)).await;
                    continue;
                }
            },
            _ = &mut stop => break,
        };
        let (acceptor, pages, http) = (acceptor.clone(), Arc::clone(&pages), http.clone());
        let watcher = graceful.watcher();
        tasks::spawn(async move {
            let _place = place;
            let Some((stream, chain)) = handshake(&acceptor, stream).await else {
                return;
            };
            let chain: Arc<[_]> = chain.into();
            let service = service_fn(move |request| {
                let (pages, chain) = (Arc::clone(&pages), Arc::clone(&chain));
                async move { Ok::<_, Infallible>(pages.answer(request, &chain).await) }
            });
            let connection = http
                .serve_connection(TokioIo::new(stream), service)
                .into_owned();
            if let Err(error) = watcher.watch(connection).await {
                tracing::debug!(
                    error = error.to_string(),
                    "a connection to the HTTPS port broke"
                );
            }
        });
    }
    drop(listener);
    let _ = timeout(SHUTDOWN_TIMEOUT, graceful.shutdown()).await;
}

type TlsStream = tokio_rustls::server::TlsStream<TcpStream>;
type Chain = Vec<tokio_rustls::rustls::pki_types::CertificateDer<'static>>;

/// The encrypted connection, and the certificates of the client if it has sent some.
async fn handshake(acceptor: &TlsAcceptor, stream: TcpStream) -> Option<(TlsStream, Chain)> {
    match timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => {
            let (_, session) = stream.get_ref();
            let chain = session.peer_certificates();
            let chain = chain.unwrap_or_default().iter();
            let chain = chain
                .map(|certificate| certificate.clone().into_owned())
                .collect();
            Some((stream, chain))
        }
        Ok(Err(error)) => {
            tracing::debug!(%error, "TLS handshake failed");
            None
        }
        Err(_) => {
            tracing::debug!("TLS handshake took too long");
            None
        }
    }
}
