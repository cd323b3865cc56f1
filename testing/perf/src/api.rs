//! An API server through HTTPS: writes, watches, lists and memory.
//!
//! Every write that the server has acknowledged is verified. After the writes it is killed with SIGKILL and started
//! again with the same data directory, and every acknowledged object must be there with its revision. Watchers must
//! receive the same events in the same order. Lists must be complete. A part that fails its verification gives no
//! figures.

mod connection;
mod load;
mod objects;
mod report;
mod watchers;

pub use connection::ApiEndpoint;
pub use report::{ApiReport, MemoryAmount, Rate};

use crate::workload::Process;
use berth_protobuf::envelope::Envelope;
use connection::{Connection, JSON, PROTOBUF};
use load::{Acknowledged, LoadJob, LoadedPods, name_of};
use objects::{EVENTS, Items, ListItem, PODS, node_of};
use report::Cpu;
use serde::Deserialize;
use std::fmt;
use std::str::FromStr;
use std::time::Instant;

/// Objects in a page of a list that is read to verify writes.
const PAGE: usize = 5_000;
/// Connections that write while watchers receive.
const WATCHED_WRITERS: usize = 8;
/// The number of repetitions of a list.
const LISTS: usize = 3;

/// A part of the measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApiPart {
    /// Pods are created.
    Creates,
    /// Pods are created and bound, and an event is written for each.
    Writes,
    /// Watchers receive creations.
    Watches,
    /// Pods take memory and are listed.
    Lists,
}

/// The measurement options.
#[derive(Debug, Clone)]
pub struct ApiPerfOptions {
    /// The parts.
    pub parts: Vec<ApiPart>,
    /// Connections that write at the same time.
    pub connections: usize,
    /// Pods that are created, and pods that are created, bound and have an event.
    pub pods: usize,
    /// Watchers.
    pub watchers: usize,
    /// Pods that are created while they watch.
    pub watched: usize,
    /// Pods that are listed.
    pub listed: usize,
}

/// The reason why there are no figures.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ApiPerfError {
    /// The server could not be started.
    #[error("failed to start the API server: {0}")]
    Start(String),
    /// A connection could not be opened, or broke.
    #[error("the connection failed: {0}")]
    Connection(String),
    /// A request was not answered as it must be.
    #[error("{path}: the API server answered {code}: {text}")]
    Answer {
        /// The path of the request.
        path: String,
        /// The code of the answer.
        code: u16,
        /// The answer.
        text: String,
    },
    /// The server has not what it must have.
    #[error("verification failed: {0}")]
    Wrong(String),
}

/// Starts API servers with an empty data directory.
pub trait Servers {
    /// A server.
    type MeasuredServer: Server;

    /// Starts one.
    ///
    /// # Errors
    /// [`ApiPerfError::Start`].
    fn start(&self) -> impl Future<Output = Result<Self::MeasuredServer, ApiPerfError>>;
}

/// An API server.
pub trait Server: Sized {
    /// The endpoint.
    fn endpoint(&self) -> &ApiEndpoint;

    /// Its process.
    fn process(&self) -> Option<Process>;

    /// Kills it, and starts it again with the same data directory.
    ///
    /// # Errors
    /// [`ApiPerfError::Start`].
    fn killed_and_restarted(self) -> impl Future<Output = Result<Self, ApiPerfError>>;
}

// === impl Part ===

impl ApiPart {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Creates, Self::Writes, Self::Watches, Self::Lists];

    fn name(self) -> &'static str {
        match self {
            Self::Creates => "creates",
            Self::Writes => "writes",
            Self::Watches => "watches",
            Self::Lists => "lists",
        }
    }
}

impl fmt::Display for ApiPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for ApiPart {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|part| part.name() == text);
        found.ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("unknown part {text:?}; the parts are {names}")
        })
    }
}

/// Measures; `progress` is called before each part.
///
/// # Errors
/// See [`ApiPerfError`].
pub async fn run(
    servers: &impl Servers,
    options: &ApiPerfOptions,
    progress: impl Fn(ApiPart),
) -> Result<ApiReport, ApiPerfError> {
    let mut report = ApiReport::default();
    for part in &options.parts {
        progress(*part);
        let server = servers.start().await?;
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

fn cpu(server: &impl Server) -> Cpu {
    let usage = server.process().and_then(|p| p.usage());
    Cpu::of(usage, Process::runner().usage())
}

fn resident(server: &impl Server) -> u64 {
    let usage = server.process().and_then(|p| p.usage());
    usage.map_or(0, |u| u.resident_bytes)
}

async fn writes<S: Server>(
    server: S,
    options: &ApiPerfOptions,
    job: LoadJob,
    report: &mut ApiReport,
) -> Result<(), ApiPerfError> {
    let pods = LoadedPods {
        prefix: "load",
        count: options.pods,
    };
    let before = cpu(&server);
    let done = load::write(server.endpoint(), options, job, pods).await?;
    let after = cpu(&server);
    let requests = done.latencies.len();
    let server = server.killed_and_restarted().await?;
    let mut connection = Connection::open(server.endpoint()).await?;
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
        _ => "create: pods",
    };
    let rate = Rate::new(what, requests, done.took, (before, after)).timed(done.latencies);
    report.rates.push(rate);
    Ok(())
}

/// Every acknowledged pod is stored as acknowledged, and no other.
fn verify(done: &Acknowledged, found: &[ListItem], bound: bool) -> Result<(), ApiPerfError> {
    let wrong = |what: String| Err(ApiPerfError::Wrong(what));
    if found.len() != done.pods.len() {
        let (found, written) = (found.len(), done.pods.len());
        return wrong(format!("{found} of {written} acknowledged pods are stored"));
    }
    for (index, (item, (name, revision))) in found.iter().zip(&done.pods).enumerate() {
        let stored: u64 = item.metadata.resource_version.parse().unwrap_or(0);
        // A binding makes a version that its answer does not name.
        let is_version = if bound {
            stored > *revision && item.spec.node_name == node_of(index)
        } else {
            stored == *revision
        };
        if item.metadata.name != *name || !is_version {
            return wrong(format!(
                "{name} was acknowledged with revision {revision}, stored is {item:?}"
            ));
        }
    }
    Ok(())
}

async fn list(connection: &mut Connection, path: &str) -> Result<Vec<ListItem>, ApiPerfError> {
    let mut all = Vec::new();
    let mut next = String::new();
    loop {
        let page = format!("{path}?limit={PAGE}&continue={next}");
        let page = connection.read(&page, JSON).await?;
        let mut page: Items =
            serde_json::from_slice(&page).map_err(|e| ApiPerfError::Wrong(e.to_string()))?;
        all.append(&mut page.items);
        next = page.metadata.next;
        if next.is_empty() {
            return Ok(all);
        }
    }
}

async fn watches(
    server: &impl Server,
    options: &ApiPerfOptions,
    report: &mut ApiReport,
) -> Result<(), ApiPerfError> {
    let mut connection = Connection::open(server.endpoint()).await?;
    let first = connection.read(&format!("{PODS}?limit=1"), JSON).await?;
    let after = objects::revision(&first)
        .ok_or_else(|| ApiPerfError::Wrong("a list has no resourceVersion".to_owned()))?;
    let watched = watchers::open(server.endpoint(), options.watchers, after, options.watched);
    let watched = watched.await?;
    let writers = ApiPerfOptions {
        connections: WATCHED_WRITERS,
        ..options.clone()
    };
    let pods = LoadedPods {
        prefix: "watched",
        count: options.watched,
    };
    let (before, begun) = (cpu(server), Instant::now());
    let done = load::write(server.endpoint(), &writers, LoadJob::Create, pods).await?;
    let mut expected: Vec<u64> = done.pods.into_values().collect();
    expected.sort_unstable();
    let mut last = begun;
    for watcher in watched {
        let received = watcher
            .await
            .map_err(|e| ApiPerfError::Connection(e.to_string()))??;
        if received.revisions != expected {
            return Err(ApiPerfError::Wrong(
                "a watcher did not receive each write once and in order".to_owned(),
            ));
        }
        last = last.max(received.last);
    }
    let what = format!("events to {} watchers", options.watchers);
    let count = options.watchers * options.watched;
    let cpus = (before, cpu(server));
    report
        .rates
        .push(Rate::new(what, count, last - begun, cpus));
    Ok(())
}

async fn lists(
    server: &impl Server,
    options: &ApiPerfOptions,
    report: &mut ApiReport,
) -> Result<(), ApiPerfError> {
    let pods = LoadedPods {
        prefix: "listed",
        count: options.listed,
    };
    let empty = resident(server);
    let done = load::write(server.endpoint(), options, LoadJob::Create, pods).await?;
    let full = resident(server);
    let mut connection = Connection::open(server.endpoint()).await?;
    let mut sizes = Vec::new();
    for (name, accept) in [("JSON", JSON), ("protobuf", PROTOBUF)] {
        for attempt in 1..=LISTS {
            let (before, begun) = (cpu(server), Instant::now());
            let bytes = connection.read(PODS, accept.clone()).await?;
            let took = begun.elapsed();
            let what = format!("list in {name}, number {attempt}: pods");
            let cpus = (before, cpu(server));
            report.rates.push(Rate::new(what, pods.count, took, cpus));
            let complete = match name {
                "JSON" => {
                    let list: Items = serde_json::from_slice(&bytes)
                        .map_err(|e| ApiPerfError::Wrong(e.to_string()))?;
                    verify(&done, &list.items, false).is_ok()
                }
                _ => names_match(&bytes, pods),
            };
            if !complete {
                return Err(ApiPerfError::Wrong(format!(
                    "the list in {name} is not complete"
                )));
            }
            if attempt == LISTS {
                sizes.push((name, bytes.len() as u64));
            }
        }
    }
    let each = |bytes: u64| bytes / pods.count.max(1) as u64;
    let mut amount = |what: String, bytes| report.memory.push(MemoryAmount { what, bytes });
    for (name, bytes) in sizes {
        amount(format!("one of {} pods in {name}", pods.count), each(bytes));
    }
    let what = "resident memory of the server for one of them";
    amount(what.to_owned(), each(full.saturating_sub(empty)));
    let listed = resident(server).saturating_sub(empty);
    amount(format!("{what}, after lists"), each(listed));
    Ok(())
}

fn names_match(bytes: &[u8], pods: LoadedPods) -> bool {
    let list = Envelope::open(bytes).and_then(|envelope| {
        let items: Result<Vec<ListItem>, _> = envelope.list()?.map(ListItem::deserialize).collect();
        items
    });
    let Ok(items) = list else {
        return false;
    };
    items.len() == pods.count
        && (items.iter().enumerate()).all(|(i, item)| item.metadata.name == name_of(pods.prefix, i))
}
