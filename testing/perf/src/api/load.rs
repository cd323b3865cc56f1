//! Many connections that write concurrently; each sends its next request as soon as the previous one is answered.

use super::ApiPerfError;
use super::connection::{ApiEndpoint, Connection};
use super::objects::{EVENTS, PODS, binding, event, node_of, pod, revision};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// The action of each connection for its pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LoadJob {
    Create,
    CreateBindEvent,
}

/// The acknowledged writes.
#[derive(Debug, Default)]
pub(super) struct Acknowledged {
    /// The pods with their last acknowledged revision, if the answer contains one.
    pub(super) pods: BTreeMap<String, u64>,
    /// The time of each request.
    pub(super) latencies: Vec<Duration>,
    pub(super) took: Duration,
}

pub(super) fn name_of(index: usize) -> String {
    format!("load-{index:06}")
}

/// Writes `pods` pods over `count` connections, which are opened before.
///
/// # Errors
/// The first write that is not acknowledged.
pub(super) async fn write(
    endpoint: &ApiEndpoint,
    count: usize,
    job: LoadJob,
    pods: usize,
) -> Result<Acknowledged, ApiPerfError> {
    let mut connections = Vec::new();
    for _ in 0..count {
        connections.push(Connection::open(endpoint).await?);
    }
    let next = Arc::new(AtomicUsize::new(0));
    let begun = Instant::now();
    let mut tasks = Vec::new();
    for connection in connections {
        let next = Arc::clone(&next);
        tasks.push(tokio::spawn(work(connection, next, job, pods)));
    }
    let mut all = Acknowledged::default();
    for task in tasks {
        let mut one = task.await.map_err(ApiPerfError::connection)??;
        all.pods.append(&mut one.pods);
        all.latencies.append(&mut one.latencies);
    }
    all.took = begun.elapsed();
    Ok(all)
}

async fn work(
    mut connection: Connection,
    next: Arc<AtomicUsize>,
    job: LoadJob,
    pods: usize,
) -> Result<Acknowledged, ApiPerfError> {
    let mut done = Acknowledged::default();
    loop {
        let index = next.fetch_add(1, Ordering::Relaxed);
        if index >= pods {
            return Ok(done);
        }
        let name = name_of(index);
        let node = node_of(index);
        let mut last = None;
        for (path, body) in requests(job, &name, &node) {
            let sent = Instant::now();
            let answer = connection
                .post(&path, body.to_string().into_bytes())
                .await?;
            done.latencies.push(sent.elapsed());
            if path == PODS {
                let found = revision(&answer).ok_or_else(|| {
                    ApiPerfError::wrong(format!("the answer about {name} has no resourceVersion"))
                })?;
                last = Some(found);
            }
        }
        done.pods.insert(name, last.unwrap_or(0));
    }
}

fn requests(job: LoadJob, name: &str, node: &str) -> Vec<(String, Value)> {
    let create = (PODS.to_owned(), pod(name));
    match job {
        LoadJob::Create => vec![create],
        LoadJob::CreateBindEvent => vec![
            create,
            (format!("{PODS}/{name}/binding"), binding(name, node)),
            (EVENTS.to_owned(), event(name, node)),
        ],
    }
}
