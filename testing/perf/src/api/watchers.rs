//! Many watches of all pods, each on a connection of its own.

use super::ApiPerfError;
use super::connection::{ApiEndpoint, Connection, JSON};
use super::objects::{PODS, revision};
use http::Method;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// A watcher without an event for this time has lost an event.
const PATIENCE: Duration = Duration::from_secs(60);

/// The events that a watcher has received.
#[derive(Debug)]
pub(super) struct Received {
    /// The revisions of the events, in their order.
    pub(super) revisions: Vec<u64>,
    pub(super) last: Instant,
}

/// Opens watches after `revision`. Each ends with its `expected`th event.
///
/// # Errors
/// When a watch cannot be opened.
pub(super) async fn open(
    endpoint: &ApiEndpoint,
    count: usize,
    after: u64,
    expected: usize,
) -> Result<Vec<JoinHandle<Result<Received, ApiPerfError>>>, ApiPerfError> {
    let path = format!("{PODS}?watch=1&resourceVersion={after}");
    let mut watchers = Vec::new();
    for _ in 0..count {
        let mut connection = Connection::open(endpoint).await?;
        let opened = connection.stream(Method::GET, &path, JSON, Vec::new());
        let body = opened.await?.into_body();
        watchers.push(tokio::spawn(async move {
            let _connection = connection;
            receive(body, expected).await
        }));
    }
    Ok(watchers)
}

/// Reads events, one in a line.
async fn receive(mut body: Incoming, expected: usize) -> Result<Received, ApiPerfError> {
    let mut revisions = Vec::with_capacity(expected);
    let mut line = Vec::new();
    while revisions.len() < expected {
        let frame = timeout(PATIENCE, body.frame()).await;
        let missing = || {
            ApiPerfError::Wrong(format!(
                "a watcher received {} of {expected} events",
                revisions.len()
            ))
        };
        let frame = frame.map_err(|_| missing())?.ok_or_else(missing)?;
        let frame = frame.map_err(ApiPerfError::connection)?;
        let mut rest = frame.data_ref().map_or(&[][..], |data| data);
        while let Some(end) = rest.iter().position(|b| *b == b'\n') {
            let (head, tail) = rest.split_at(end + 1);
            let event = if line.is_empty() {
                head
            } else {
                line.extend_from_slice(head);
                &line
            };
            let found = revision(event);
            revisions.push(found.ok_or_else(|| {
                let text = String::from_utf8_lossy(event).into_owned();
                ApiPerfError::Wrong(format!("a watcher received {text}"))
            })?);
            line.clear();
            rest = tail;
        }
        line.extend_from_slice(rest);
    }
    let last = Instant::now();
    Ok(Received { revisions, last })
}
