//! Connections: accepting, the TLS handshake, HTTP/1.1 or HTTP/2, and an orderly end.

use super::{ServerState, handle};
use crate::auth::x509::Presented;
use crate::stopping::stopped;
use http::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

/// A handshake takes no longer.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// The head of a request takes no longer. Idle connections are closed after the same time by HTTP/1.1.
const HEADER_TIMEOUT: Duration = Duration::from_secs(120);
/// The maximum size of the head of a request.
const HEADER_BYTES_MAX: usize = 64 * 1024;
/// The maximum number of concurrent requests of a connection (HTTP/2).
const STREAMS_MAX: u32 = 1_000;
/// A peer that does not answer for this long counts as disconnected (HTTP/2).
const KEEP_ALIVE: Duration = Duration::from_secs(30);
/// The pause after a failure to accept, for example because file descriptors are exhausted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Accepts connections until the server stops, then waits for the open connections.
pub(super) async fn accept(
    listener: TcpListener,
    acceptor: TlsAcceptor,
    state: Arc<ServerState>,
    connections_max: usize,
    mut stopping: watch::Receiver<bool>,
) {
    let permits = Arc::new(Semaphore::new(
        connections_max.clamp(1, Semaphore::MAX_PERMITS),
    ));
    let mut connections = JoinSet::new();
    loop {
        // Finished connections leave the set.
        while connections.try_join_next().is_some() {}
        let accepted = tokio::select! {
            biased;
            () = stopped(&mut stopping) => break,
            accepted = accept_one(&listener, &permits) => accepted,
        };
        let Some((stream, peer, permit)) = accepted else {
            sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let (acceptor, state) = (acceptor.clone(), Arc::clone(&state));
        let stopping = stopping.clone();
        connections.spawn(async move {
            serve(stream, peer, acceptor, state, stopping).await;
            drop(permit);
        });
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

async fn accept_one(
    listener: &TcpListener,
    permits: &Arc<Semaphore>,
) -> Option<(TcpStream, SocketAddr, tokio::sync::OwnedSemaphorePermit)> {
    let permit = Arc::clone(permits).acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((stream, peer)) => Some((stream, peer, permit)),
        Err(e) => {
            tracing::warn!(error = %e, "cannot accept a connection");
            None
        }
    }
}

async fn serve(
    stream: TcpStream,
    peer: SocketAddr,
    acceptor: TlsAcceptor,
    state: Arc<ServerState>,
    mut stopping: watch::Receiver<bool>,
) {
    let _ = stream.set_nodelay(true);
    let stream = match timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(e)) => {
            tracing::debug!(%peer, error = %e, "the TLS handshake failed");
            return;
        }
        Err(_) => {
            tracing::debug!(%peer, "the TLS handshake took too long");
            return;
        }
    };
    let chain = stream.get_ref().1.peer_certificates();
    let certificate = Presented::in_chain(&state.client_authorities, chain);
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(HEADER_BYTES_MAX);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(HEADER_BYTES_MAX as u32)
        .keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE);
    let service = service_fn(|mut request: Request<Incoming>| {
        if let Some(certificate) = &certificate {
            request.extensions_mut().insert(certificate.clone());
        }
        handle::handle(Arc::clone(&state), request.map(handle::RequestBody::Remote))
    });
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stopped(&mut stopping) => {
            connection.as_mut().graceful_shutdown();
            connection.as_mut().await
        }
    };
    if let Err(e) = ended {
        tracing::debug!(%peer, error = %e, "the connection ended with an error");
    }
}
