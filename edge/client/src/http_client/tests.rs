//! Connections to a server over TLS.

use super::*;
use crate::Transport;
use crate::connect::over;
use crate::request::{self, PODS};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

/// The requests that a server has received.
#[derive(Default)]
struct Seen {
    connections: AtomicUsize,
    http2_requests: AtomicUsize,
    /// Makes the server end a connection when its requests are answered.
    ending: Notify,
}

/// A server over TLS that offers these protocols. A watch is answered with 4 MiB and continues; all other requests with
/// `{}`.
async fn server(protocols: &[&str]) -> (Transport, Arc<Seen>) {
    let certified =
        rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a certificate");
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(
        certified.signing_key.serialize_der(),
    ));
    let mut tls = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![certified.cert.der().clone()], key)
        .expect("a certificate of its key");
    tls.alpn_protocols = protocols
        .iter()
        .map(|name| name.as_bytes().to_vec())
        .collect();
    let acceptor = TlsAcceptor::from(Arc::new(tls));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("an address");
    let seen = Arc::<Seen>::default();
    let noted = Arc::clone(&seen);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            noted.connections.fetch_add(1, Ordering::Relaxed);
            let (acceptor, noted) = (acceptor.clone(), Arc::clone(&noted));
            tokio::spawn(async move {
                let stream = acceptor.accept(stream).await.expect("TLS");
                let answer = service_fn(|request| answer(request, Arc::clone(&noted)));
                let server = auto::Builder::new(TokioExecutor::new());
                let connection = server.serve_connection(TokioIo::new(stream), answer);
                tokio::pin!(connection);
                tokio::select! {
                    // The client closes the connection with the test.
                    _ = connection.as_mut() => {}
                    () = noted.ending.notified() => {
                        connection.as_mut().graceful_shutdown();
                        let _ = connection.await;
                    }
                }
            });
        }
    });
    let mut config = Config::new(format!("https://{address}").parse().expect("an address"));
    config.accept_invalid_certs = true;
    (
        over(config, "berth-test".to_owned()).expect("a client"),
        seen,
    )
}

async fn answer(
    request: Request<Incoming>,
    seen: Arc<Seen>,
) -> Result<Response<HttpBody>, Infallible> {
    if request.version() == http::Version::HTTP_2 {
        seen.http2_requests.fetch_add(1, Ordering::Relaxed);
    }
    let is_watch = request
        .uri()
        .query()
        .is_some_and(|query| query.contains("watch=true"));
    let body = if is_watch {
        let line = [vec![b'x'; 64 << 10], b"\n".to_vec()].concat();
        let lines = (0..64).map(move |_| Ok(Frame::data(Bytes::from(line.clone()))));
        let lines = futures_util::stream::iter(lines);
        let open = futures_util::stream::pending();
        let body = StreamBody::new(futures_util::StreamExt::chain(lines, open));
        HttpBody::Boxed(body.boxed_unsync())
    } else {
        HttpBody::Boxed(Full::from("{}").map_err(BoxError::from).boxed_unsync())
    };
    Ok(Response::new(body))
}

const WATCHES: usize = 30;

/// Watches and requests share one connection. A watch that is not read, though the server has more to send than it may
/// send ahead, stops neither requests nor other watches.
#[tokio::test]
async fn watches_and_requests_share_a_connection() {
    let (client, seen) = server(&["h2", "http/1.1"]).await;
    let watch = request::watch(PODS, "", "1", 300);
    let mut open = Vec::new();
    for _ in 0..WATCHES {
        open.push(client.stream(&watch).await.expect("a watch"));
    }
    for _ in 0..10 {
        client
            .execute(&request::get(PODS, "ns", "p"))
            .await
            .expect("an answer");
    }
    let last = open.last_mut().expect("a watch");
    for _ in 0..64 {
        last.next().await.expect("a line").expect("a line");
    }
    assert_eq!(seen.connections.load(Ordering::Relaxed), 1);
    assert_eq!(seen.http2_requests.load(Ordering::Relaxed), WATCHES + 10);
}

/// A server, or a proxy before it, that has no HTTP/2 is spoken to over HTTP/1.1.
#[tokio::test]
async fn a_server_without_http2_is_understood() {
    for protocols in [&["http/1.1"][..], &[]] {
        let (client, seen) = server(protocols).await;
        let watch = request::watch(PODS, "", "1", 300);
        let mut open = client.stream(&watch).await.expect("a watch");
        client
            .execute(&request::get(PODS, "ns", "p"))
            .await
            .expect("an answer");
        open.next().await.expect("a line").expect("a line");
        assert_eq!(seen.connections.load(Ordering::Relaxed), 2, "{protocols:?}");
        assert_eq!(
            seen.http2_requests.load(Ordering::Relaxed),
            0,
            "{protocols:?}"
        );
    }
}

/// When a server ends a connection, as kube-apiserver does from time to time to distribute its clients, the next
/// request uses another connection. Watches on the first one continue.
#[tokio::test]
async fn a_connection_that_the_server_ends_is_replaced() {
    let (client, seen) = server(&["h2"]).await;
    let mut watch = client
        .stream(&request::watch(PODS, "", "1", 300))
        .await
        .expect("a watch");
    let get = request::get(PODS, "ns", "p");
    let (_, first) = client.answer_over(&get).await.expect("an answer");
    assert_eq!(watch.connection(), first);
    seen.ending.notify_one();
    while seen.connections.load(Ordering::Relaxed) == 1 {
        let answer = client.execute(&request::get(PODS, "ns", "p")).await;
        answer.expect("an answer");
    }
    for _ in 0..64 {
        watch.next().await.expect("a line").expect("a line");
    }
    assert_eq!(seen.connections.load(Ordering::Relaxed), 2);
    let (_, second) = client.answer_over(&get).await.expect("an answer");
    assert!(first.is_some() && second.is_some() && first != second);
}

/// Requests that begin together wait for one connection.
#[tokio::test]
async fn requests_that_begin_together_share_a_connection() {
    let (client, seen) = server(&["h2", "http/1.1"]).await;
    let get = request::get(PODS, "ns", "p");
    let requests = (0..200).map(|_| client.execute(&get));
    let answers = futures_util::future::join_all(requests).await;
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    assert_eq!(seen.connections.load(Ordering::Relaxed), 1);
}
