//! Many connections that write at the same time, each as fast as it is answered.

use super::connection::{ApiEndpoint, Connection};
use super::objects::{EVENTS, NAMESPACE, PODS, binding, event, node_of, pod, revision};
use super::{ApiPerfError, ApiPerfOptions};
use http::Method;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// The action of each connection for the pods that it takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LoadJob {
    Create,
    CreateBindEvent,
}

/// The pods that are written.
#[derive(Debug, Clone, Copy)]
pub(super) struct LoadedPods {
    pub(super) prefix: &'static str,
    pub(super) count: usize,
}

/// The acknowledged writes.
#[derive(Debug, Default)]
pub(super) struct Acknowledged {
    /// The pods with their last acknowledged revision, where the answer has one.
    pub(super) pods: BTreeMap<String, u64>,
    /// The time of each request.
    pub(super) latencies: Vec<Duration>,
    pub(super) took: Duration,
}

pub(super) fn name_of(prefix: &str, index: usize) -> String {
    format!("{prefix}-{index:06}")
}

/// Writes the pods over `options.connections` connections, which are opened before.
///
/// # Errors
/// The first write that is not acknowledged.
pub(super) async fn write(
    endpoint: &ApiEndpoint,
    options: &ApiPerfOptions,
    job: LoadJob,
    pods: LoadedPods,
) -> Result<Acknowledged, ApiPerfError> {
    let mut connections = Vec::new();
    for _ in 0..options.connections {
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
        let mut one = task
            .await
            .map_err(|e| ApiPerfError::Connection(e.to_string()))??;
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
    pods: LoadedPods,
) -> Result<Acknowledged, ApiPerfError> {
    let mut done = Acknowledged::default();
    loop {
        let index = next.fetch_add(1, Ordering::Relaxed);
        if index >= pods.count {
            return Ok(done);
        }
        let name = name_of(pods.prefix, index);
        let node = node_of(index);
        let mut last = None;
        for (method, path, body, code) in requests(job, &name, &node) {
            let sent = Instant::now();
            let answer = connection.send(method, &path, body, code).await?;
            done.latencies.push(sent.elapsed());
            if path == PODS {
                let found = revision(&answer).ok_or_else(|| {
                    ApiPerfError::Wrong(format!("the answer about {name} has no resourceVersion"))
                })?;
                last = Some(found);
            }
        }
        done.pods.insert(name, last.unwrap_or(0));
    }
}

fn requests(job: LoadJob, name: &str, node: &str) -> Vec<(Method, String, Vec<u8>, u16)> {
    let create = || {
        let body = pod(name).to_string().into_bytes();
        (Method::POST, PODS.to_owned(), body, 201)
    };
    match job {
        LoadJob::Create => vec![create()],
        LoadJob::CreateBindEvent => vec![
            create(),
            (
                Method::POST,
                format!("/api/v1/namespaces/{NAMESPACE}/pods/{name}/binding"),
                binding(name, node).to_string().into_bytes(),
                201,
            ),
            (
                Method::POST,
                EVENTS.to_owned(),
                event(name, node).to_string().into_bytes(),
                201,
            ),
        ],
    }
}
