//! A small HTTP server for tests: it records requests and returns configured answers.

use crate::Transport;
use crate::config::Config;
use crate::connect::over;
use crate::content::{Format, JSON};
use berth_protobuf::Types;
use berth_protobuf::envelope::{self, MEDIA_TYPE, WatchEvent};
use berth_protobuf::wire::Writer;
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
    /// The bytes after the headers.
    pub body: Vec<u8>,
}

impl Request {
    /// Reads one. `None` if the other side disconnects or sends something else.
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

    /// The value of a header; empty when there is none.
    pub fn header(&self, name: &str) -> &str {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        let found = lines.find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map_or("", |(_, value)| value)
    }

    /// The body; null when it is not JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

/// Answers a request with JSON; `goes_on` states whether another request may follow on the connection.
///
/// # Errors
/// When the client has closed the connection.
pub async fn answer(
    stream: &mut (impl AsyncWrite + Unpin),
    code: u16,
    body: &str,
    goes_on: bool,
) -> io::Result<()> {
    answer_in(stream, code, JSON, body.as_bytes(), goes_on).await
}

async fn answer_in(
    stream: &mut (impl AsyncWrite + Unpin),
    code: u16,
    content_type: &str,
    body: &[u8],
    goes_on: bool,
) -> io::Result<()> {
    let (length, connection) = (body.len(), if goes_on { "keep-alive" } else { "close" });
    let head = format!(
        "HTTP/1.1 {code} x\r\ncontent-type: {content_type}\r\ncontent-length: {length}\r\n\
         connection: {connection}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body).await?;
    stream.flush().await
}

/// The content type and the body of an answer. A JSON list is a watch.
fn written(format: Format, answer: &Value) -> (String, Vec<u8>) {
    match (format, answer) {
        (Format::Json, Value::Array(events)) => {
            let lines = events.iter().map(|event| format!("{event}\n"));
            (JSON.to_owned(), lines.collect::<String>().into_bytes())
        }
        (Format::Json, object) => (JSON.to_owned(), object.to_string().into_bytes()),
        (Format::Protobuf, Value::Array(events)) => {
            let frames = events.iter().flat_map(|event| {
                let kind = event["type"].as_str().expect("a type");
                let object = &protobuf(&event["object"]);
                let frame = WatchEvent { kind, object }.write();
                let length = u32::try_from(frame.len()).expect("a small event");
                [length.to_be_bytes().to_vec(), frame].concat()
            });
            (format!("{MEDIA_TYPE};stream=watch"), frames.collect())
        }
        (Format::Protobuf, object) => (MEDIA_TYPE.to_owned(), protobuf(object)),
    }
}

/// An object or a list of objects in protobuf.
fn protobuf(object: &Value) -> Vec<u8> {
    let text = |field: &str| object[field].as_str().expect("apiVersion and kind");
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    let Some(items) = object["items"].as_array() else {
        return berth_protobuf::encode_body(object).expect("a known kind");
    };
    let types = Types::get();
    let mut list = Writer::default();
    for (number, api_version, kind, objects) in [
        (
            1,
            "v1",
            "ListMeta",
            std::slice::from_ref(&object["metadata"]),
        ),
        (2, api_version, kind.trim_end_matches("List"), items),
    ] {
        let message = types.of_kind(api_version, kind).expect("a known kind");
        for object in objects {
            list.bytes(number, &berth_protobuf::encode(message, object));
        }
    }
    envelope::seal(api_version, kind, &list.into_bytes())
}

/// A code with the text of API servers.
pub fn status(code: u16, message: &str) -> (u16, Value) {
    let status = json!({"apiVersion": "v1", "kind": "Status", "code": code, "message": message});
    (code, status)
}

/// An API server that knows its answers in advance. It ends with the test's runtime.
#[derive(Debug)]
pub struct Scripted {
    url: String,
    /// The received requests. Ends after the last answer.
    pub asked: mpsc::Receiver<Request>,
}

impl Scripted {
    /// Gives these answers on a free port, one a connection, and then no more. A JSON list is sent as the lines of a
    /// watch.
    ///
    /// # Panics
    /// No port is free.
    pub async fn start(answers: Vec<(u16, Value)>) -> Self {
        Self::speaking(Format::Json, answers).await
    }

    /// The same in this format, independently of the request. In protobuf, objects must name their kind.
    ///
    /// # Panics
    /// No port is free.
    pub async fn speaking(format: Format, answers: Vec<(u16, Value)>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let (seen, asked) = mpsc::channel(answers.len().max(1));
        tokio::spawn(async move {
            for (code, body) in answers {
                let (mut stream, _) = listener.accept().await.expect("a connection");
                let request = Request::read(&mut stream).await.expect("a request");
                // The test may not read the requests, and the client may not wait for the answer.
                let _ = seen.send(request).await;
                let (content_type, body) = written(format, &body);
                let _ = answer_in(&mut stream, code, &content_type, &body, false).await;
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
