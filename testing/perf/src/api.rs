//! An API server through HTTPS: writes, watches, lists and memory.
//!
//! Every acknowledged write is verified. After the writes the server is killed with SIGKILL and started again with the
//! same data directory, and must return every acknowledged object with its revision. Watchers must receive the same
//! events in the same order. Lists must be complete. A part that fails its verification reports no figures.

mod connection;
mod load;
mod objects;
mod report;
mod server;
mod watchers;

pub use report::{ApiReport, MemoryAmount, Rate};

use crate::options::at_least_one;
use berth_edge::tasks;
use berth_protobuf::envelope::Envelope;
use bytes::Bytes;
use clap::{Args, ValueEnum};
use connection::{Connection, JSON, PROTOBUF};
use load::{Acknowledged, LoadJob, name_of};
use objects::{EVENTS, Items, ListItem, PODS, node_of};
use serde::Deserialize;
use server::MeasuredServer;
use std::fmt;
use std::path::PathBuf;
use std::time::Instant;

/// Objects in a page of a list that is read to verify writes.
const PAGE: usize = 5_000;
/// Connections that write while watchers receive.
const WATCHED_WRITERS: usize = 8;
/// The number of repetitions of a list.
const LISTS: usize = 3;

/// A part of the measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ApiPart {
    /// Pods are created
    Creates,
    /// Pods are created and bound, and an event is written for each
    Writes,
    /// Watchers receive creations
    Watches,
    /// Pods take memory and are listed
    Lists,
}

/// The measurement options.
#[derive(Debug, Clone, Args)]
pub struct ApiPerfOptions {
    /// Operations, each on a separate server [default: all]
    #[arg(long, value_name = "PART", value_delimiter = ',')]
    pub parts: Vec<ApiPart>,
    /// Number of concurrent connections that write
    #[arg(long, value_name = "N", default_value = "64", value_parser = at_least_one())]
    pub connections: usize,
    /// Number of created pods, and of pods that are created and bound with an event
    #[arg(long, value_name = "N", default_value = "40000", value_parser = at_least_one())]
    pub pods: usize,
    /// Number of watchers, each with its own connection
    #[arg(long, value_name = "N", default_value = "1000", value_parser = at_least_one())]
    pub watchers: usize,
    /// Number of pods that are created for the watchers
    #[arg(long, value_name = "N", default_value = "1000", value_parser = at_least_one())]
    pub watched: usize,
    /// Number of listed pods
    #[arg(long, value_name = "N", default_value = "100000", value_parser = at_least_one())]
    pub listed: usize,
    /// Build of berth to measure [default: this program]
    #[arg(long, value_name = "BINARY")]
    pub server: Option<PathBuf>,
    /// Parent directory of the data directories, which selects the disk [default: the temporary directory]
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
}

/// The reason for missing figures.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ApiPerfError {
    /// The server could not be started.
    #[error("failed to start the API server: {0}")]
    Start(String),
    /// A connection could not be opened, or broke.
    #[error("the connection failed: {0}")]
    Connection(String),
    /// A request got an unexpected answer.
    #[error("{path}: the API server answered {code}: {text}")]
    Answer {
        /// The path of the request.
        path: String,
        /// The code of the answer.
        code: u16,
        /// The answer.
        text: String,
    },
    /// The state of the server is wrong.
    #[error("verification failed: {0}")]
    Wrong(String),
}

impl ApiPerfError {
    fn start(error: impl fmt::Display) -> Self {
        Self::Start(error.to_string())
    }

    fn connection(error: impl fmt::Display) -> Self {
        Self::Connection(error.to_string())
    }

    fn wrong(error: impl fmt::Display) -> Self {
        Self::Wrong(error.to_string())
    }
}

/// Measures; `progress` is called before each part.
///
/// # Errors
/// See [`ApiPerfError`].
pub fn run(
    options: &ApiPerfOptions,
    progress: impl FnMut(String),
) -> Result<ApiReport, ApiPerfError> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(ApiPerfError::start)?;
    let report = tasks::block_on(&runtime, measure(options, progress));
    runtime.shutdown_background();
    report
}

async fn measure(
    options: &ApiPerfOptions,
    mut progress: impl FnMut(String),
) -> Result<ApiReport, ApiPerfError> {
    let parts = match options.parts.as_slice() {
        [] => ApiPart::value_variants(),
        parts => parts,
    };
    let mut report = ApiReport::default();
    for part in parts {
        progress(format!("{part:?}"));
        let server = MeasuredServer::start(options).await?;
        match part {
            ApiPart::Creates => writes(server, options, LoadJob::Create, &mut report).await?,
            ApiPart::Writes => {
                writes(server, options, LoadJob::CreateBindEvent, &mut report).await?
            }
            ApiPart::Watches => watches(&server, options, &mut report).await?,
            ApiPart::Lists => lists(&server, options, &mut report).await?,
        }
    }
    Ok(report)
}

async fn writes(
    server: MeasuredServer,
    options: &ApiPerfOptions,
    job: LoadJob,
    report: &mut ApiReport,
) -> Result<(), ApiPerfError> {
    let before = server.cpu();
    let done = load::write(&server.endpoint, options.connections, job, options.pods).await?;
    let after = server.cpu();
    let requests = done.latencies.len();
    let server = server.killed_and_restarted().await?;
    let mut connection = Connection::open(&server.endpoint).await?;
    let found = list(&mut connection, PODS).await?;
    verify(&done, &found, job == LoadJob::CreateBindEvent)?;
    let what = match job {
        LoadJob::CreateBindEvent => {
            let events = list(&mut connection, EVENTS).await?.len();
            if events != done.pods.len() {
                let expected = done.pods.len();
                return Err(ApiPerfError::Wrong(format!(
                    "{events} of {expected} acknowledged events are stored"
                )));
            }
            "create, bind, event: writes"
        }
        LoadJob::Create => "create: pods",
    };
    let rate = Rate::new(what, requests, done.took, before, after).timed(&done.latencies);
    report.rates.push(rate);
    Ok(())
}

/// Checks that every acknowledged pod is stored as acknowledged, and no other pod.
fn verify(done: &Acknowledged, found: &[ListItem], bound: bool) -> Result<(), ApiPerfError> {
    if found.len() != done.pods.len() {
        let (found, written) = (found.len(), done.pods.len());
        return Err(ApiPerfError::Wrong(format!(
            "{found} of {written} acknowledged pods are stored"
        )));
    }
    for (index, (item, (name, revision))) in found.iter().zip(&done.pods).enumerate() {
        let stored: u64 = item.metadata.resource_version.parse().unwrap_or(0);
        // A binding creates a version that is not in its answer.
        let is_version = if bound {
            stored > *revision && item.spec.node_name == node_of(index)
        } else {
            stored == *revision
        };
        if item.metadata.name != *name || !is_version {
            return Err(ApiPerfError::Wrong(format!(
                "{name} was acknowledged with revision {revision}, stored is {item:?}"
            )));
        }
    }
    Ok(())
}

async fn list(connection: &mut Connection, path: &str) -> Result<Vec<ListItem>, ApiPerfError> {
    let mut all = Vec::new();
    let mut next = String::new();
    loop {
        let page = format!("{path}?limit={PAGE}&continue={next}");
        let page = connection.get(&page, JSON).await?;
        let mut page: Items = serde_json::from_slice(&page).map_err(ApiPerfError::wrong)?;
        all.append(&mut page.items);
        next = page.metadata.next;
        if next.is_empty() {
            return Ok(all);
        }
    }
}

async fn watches(
    server: &MeasuredServer,
    options: &ApiPerfOptions,
    report: &mut ApiReport,
) -> Result<(), ApiPerfError> {
    let mut connection = Connection::open(&server.endpoint).await?;
    let first = connection.get(&format!("{PODS}?limit=1"), JSON).await?;
    let after = objects::revision(&first)
        .ok_or_else(|| ApiPerfError::wrong("a list has no resourceVersion"))?;
    let watched = watchers::open(&server.endpoint, options.watchers, after, options.watched);
    let watched = watched.await?;
    let (before, begun) = (server.cpu(), Instant::now());
    let written = load::write(
        &server.endpoint,
        WATCHED_WRITERS,
        LoadJob::Create,
        options.watched,
    );
    let mut expected: Vec<u64> = written.await?.pods.into_values().collect();
    expected.sort_unstable();
    let mut last = begun;
    for watcher in watched {
        let received = watcher.await.map_err(ApiPerfError::connection)??;
        if received.revisions != expected {
            return Err(ApiPerfError::wrong(
                "a watcher did not receive each write once and in order",
            ));
        }
        last = last.max(received.last);
    }
    let what = format!("events to {} watchers", options.watchers);
    let count = options.watchers * options.watched;
    let took = last - begun;
    report
        .rates
        .push(Rate::new(what, count, took, before, server.cpu()));
    Ok(())
}

async fn lists(
    server: &MeasuredServer,
    options: &ApiPerfOptions,
    report: &mut ApiReport,
) -> Result<(), ApiPerfError> {
    let pods = options.listed;
    let empty = server.resident();
    let done = load::write(&server.endpoint, options.connections, LoadJob::Create, pods);
    let done = done.await?;
    let full = server.resident();
    let mut connection = Connection::open(&server.endpoint).await?;
    let mut sizes = Vec::new();
    for (name, accept) in [("JSON", JSON), ("protobuf", PROTOBUF)] {
        for attempt in 1..=LISTS {
            let (before, begun) = (server.cpu(), Instant::now());
            let bytes = connection.get(PODS, accept.clone()).await?;
            let took = begun.elapsed();
            let what = format!("list in {name}, number {attempt}: pods");
            report
                .rates
                .push(Rate::new(what, pods, took, before, server.cpu()));
            if !is_complete(&bytes, name, &done) {
                return Err(ApiPerfError::Wrong(format!(
                    "the list in {name} is not complete"
                )));
            }
            if attempt == LISTS {
                sizes.push((name, bytes.len() as u64));
            }
        }
    }
    let each = |bytes: u64| bytes / pods.max(1) as u64;
    let mut amount = |what: String, bytes| report.memory.push(MemoryAmount { what, bytes });
    for (name, bytes) in sizes {
        amount(format!("one of {pods} pods in {name}"), each(bytes));
    }
    let what = "resident memory of the server for one of them";
    amount(what.to_owned(), each(full.saturating_sub(empty)));
    let listed = server.resident().saturating_sub(empty);
    amount(format!("{what}, after lists"), each(listed));
    Ok(())
}

fn is_complete(list: &Bytes, format: &str, done: &Acknowledged) -> bool {
    if format == "JSON" {
        let list = serde_json::from_slice::<Items>(list);
        return list.is_ok_and(|list| verify(done, &list.items, false).is_ok());
    }
    let items = Envelope::open(list).and_then(|envelope| {
        let items = envelope.list()?.map(ListItem::deserialize);
        items.collect::<Result<Vec<ListItem>, _>>()
    });
    items.is_ok_and(|items| {
        let names = items.iter().map(|item| &item.metadata.name);
        names.eq((0..done.pods.len()).map(name_of).collect::<Vec<_>>().iter())
    })
}
