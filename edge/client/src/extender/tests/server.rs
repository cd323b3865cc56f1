//! A small HTTP server with one answer to all requests.

use crate::testing::{self, Request};
use serde_json::Value;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;

/// The answer.
#[derive(Clone)]
pub(super) enum Reply {
    /// A code and a body.
    Body(u16, String),
    /// A body that never ends.
    Endless,
    /// No answer.
    Silence,
    /// The connection is closed.
    HangUp,
}

impl Reply {
    /// 200 with JSON.
    pub(super) fn json(value: &Value) -> Self {
        Self::Body(200, value.to_string())
    }
}

/// The server; it ends with the test.
pub(super) struct Server {
    pub(super) url: String,
    pub(super) port: u16,
    /// Head and body of each request.
    pub(super) requests: mpsc::Receiver<(String, Value)>,
}

impl Server {
    pub(super) async fn start(reply: Reply) -> Self {
        Self::with(reply, None).await
    }

    pub(super) async fn with(reply: Reply, tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let scheme = if tls.is_some() { "https" } else { "http" };
        let (seen, requests) = mpsc::channel(16);
        let tls = Arc::new(tls);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (seen, reply, tls) = (seen.clone(), reply.clone(), tls.clone());
                tokio::spawn(async move {
                    match tls.as_ref() {
                        None => answer(stream, &reply, &seen).await,
                        // A client that does not trust this server disconnects.
                        Some(tls) => match tls.accept(stream).await {
                            Ok(stream) => answer(stream, &reply, &seen).await,
                            Err(_) => None,
                        },
                    }
                });
            }
        });
        Self {
            url: format!("{scheme}://127.0.0.1:{port}"),
            port,
            requests,
        }
    }
}

async fn answer(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    reply: &Reply,
    seen: &mpsc::Sender<(String, Value)>,
) -> Option<()> {
    loop {
        let request = Request::read(&mut stream).await?;
        let question = serde_json::from_slice(&request.body).ok()?;
        let head = request.head.to_ascii_lowercase();
        seen.send((head, question)).await.ok()?;
        match reply {
            Reply::Body(code, body) => {
                testing::answer(&mut stream, *code, body, true).await.ok()?;
            }
            Reply::Endless => {
                let head = "HTTP/1.1 200 x\r\nconnection: close\r\n\r\n";
                stream.write_all(head.as_bytes()).await.ok()?;
                loop {
                    stream.write_all(&[b' '; 4096]).await.ok()?;
                }
            }
            Reply::Silence => std::future::pending().await,
            Reply::HangUp => return None,
        }
    }
}
