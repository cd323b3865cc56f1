//! A small HTTP server for tests: it takes down what it is asked, and answers as it was told to.

use crate::Transport;
use crate::connect::over;
use kube::Config;
use serde_json::{Value, json};
use std::io;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

/// The longest head of a request, in bytes.
const HEAD_BYTES_MAX: usize = 64 << 10;

/// A request as it was sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The first line and the headers.
    pub head: String,
    /// What comes after them.
    pub body: Vec<u8>,
}

impl Request {
    /// Reads one. `None` when the other side goes away instead, or sends something else.
    pub async fn read(stream: &mut (impl AsyncRead + Unpin)) -> Option<Self> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") && head.len() < HEAD_BYTES_MAX {
            head.push(stream.read_u8().await.ok()?);
        }
        let head = String::from_utf8_lossy(&head).into_owned();
        let length = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            let is_length = name.eq_ignore_ascii_case("content-length");
            is_length.then(|| value.trim().parse().ok())?
        });
        let mut body = vec![0; length.unwrap_or(0)];
        stream.read_exact(&mut body).await.ok()?;
        Some(Self { head, body })
    }

    /// The method and the path, as in `GET /api/v1/pods`.
    pub fn line(&self) -> &str {
        let line = self.head.lines().next().unwrap_or_default();
        line.trim_end_matches(" HTTP/1.1")
    }

    /// The body; null when it is not JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

/// Answers a request with JSON; `goes_on` says whether there may be another one on the connection.
///
/// # Errors
/// When the other side has gone away.
pub async fn answer(
    stream: &mut (impl AsyncWrite + Unpin),
    code: u16,
    body: &str,
    goes_on: bool,
) -> io::Result<()> {
    let (length, connection) = (body.len(), if goes_on { "keep-alive" } else { "close" });
    let head = format!(
        "HTTP/1.1 {code} x\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\
         connection: {connection}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body.as_bytes()).await?;
    stream.flush().await
}

/// A code with what API servers say beside it.
pub fn status(code: u16, message: &str) -> (u16, Value) {
    let status = json!({"kind": "Status", "code": code, "message": message});
    (code, status)
}

/// An API server that knows its answers in advance. It ends with the test's runtime.
#[derive(Debug)]
pub struct Scripted {
    url: String,
    /// What it was asked. Ends after the last answer.
    pub asked: mpsc::Receiver<Request>,
}

impl Scripted {
    /// Gives these answers on a free port, one a connection, and then no more. A JSON list is sent as the lines of a
    /// watch.
    ///
    /// # Panics
    /// When there is no port.
    pub async fn start(answers: Vec<(u16, Value)>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let (seen, asked) = mpsc::channel(answers.len().max(1));
        tokio::spawn(async move {
            for (code, body) in answers {
                let (mut stream, _) = listener.accept().await.expect("a connection");
                let request = Request::read(&mut stream).await.expect("a request");
                // A test may not care what was asked, and a client not wait for the answer.
                let _ = seen.send(request).await;
                let text = match &body {
                    Value::Array(lines) => lines.iter().map(|line| format!("{line}\n")).collect(),
                    body => body.to_string(),
                };
                let _ = answer(&mut stream, code, &text, false).await;
            }
        });
        Self {
            url: format!("http://{address}"),
            asked,
        }
    }

    /// Its address.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// A connection to it.
    ///
    /// # Panics
    /// When there cannot be one.
    pub fn client(&self) -> Transport {
        let config = Config::new(self.url.parse().expect("an address"));
        over(config, "berth-test".to_owned()).expect("a client")
    }
}
