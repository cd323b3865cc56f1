//! A cluster within this process, for tests: control plane, simulated nodes and the scheduler, on their own threads.
//!
//! The crate `berth-test` is the documented way to use it.

use crate::apply::{self, Applied};
use crate::availability;
use crate::control_plane::{ControlPlane, ControlPlaneOptions};
use crate::manifest;
use berth_api::Release;
use berth_apiserver::admission::Admission;
use berth_apiserver::{Server, ServerOptions};
use berth_client::{Transport, request};
use berth_controllers::Selection;
use berth_controllers::kubelet;
use berth_edge::args::CoreArgs;
use berth_edge::discovery::scheduler_user_agent;
use berth_edge::exit::CommandFailure;
use berth_edge::scheduler::{self, Scheduling};
use berth_edge::tasks;
use berth_framework::registry::Registry;
use berth_objects::access::Access;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::oneshot;

/// The name of the test in the API.
const AGENT: &str = "berth-test";
/// The number of threads that a cluster has for its API server, controllers and kubelets.
const WORKERS: usize = 2;
/// The time after which a stop no longer waits for the remaining tasks.
const STOP_PATIENCE: Duration = Duration::from_secs(3);
/// The pause between two looks whether the scheduler has seen the cluster.
const LOOK_AGAIN: Duration = Duration::from_millis(2);
/// The time that the scheduler may take to see the cluster.
const READY_PATIENCE: Duration = Duration::from_secs(60);

/// The options of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterOptions {
    /// The number of nodes that are simulated.
    pub nodes: usize,
    /// The number of GPUs that each node has, for resource claims.
    pub gpus_per_node: u32,
    /// Whether controllers run: Deployments have pods, namespaces are deleted, dependants are garbage-collected.
    pub controllers: bool,
    /// Whether the scheduler runs.
    pub scheduler: bool,
}

impl Default for ClusterOptions {
    fn default() -> Self {
        Self {
            nodes: 1,
            gpus_per_node: 0,
            controllers: true,
            scheduler: true,
        }
    }
}

/// The reason why a cluster cannot start, or why an object cannot be applied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ClusterError(String);

impl From<CommandFailure> for ClusterError {
    fn from(failure: CommandFailure) -> Self {
        match failure {
            CommandFailure::Usage(text) | CommandFailure::Environment(text) => Self(text),
            other => Self(format!("{other:?}")),
        }
    }
}

/// The address of a cluster.
struct Contact {
    url: String,
    ca_pem: String,
    token: String,
    api: Arc<dyn Access>,
    transport: Transport,
}

/// A cluster that runs until it is dropped.
pub struct EmbeddedCluster {
    contact: Contact,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for EmbeddedCluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The token is a secret.
        f.debug_struct("Cluster")
            .field("url", &self.contact.url)
            .finish_non_exhaustive()
    }
}

impl EmbeddedCluster {
    /// Starts a cluster on a free port of loopback, with the in-tree plugins, and returns when it is ready.
    ///
    /// # Errors
    /// There is no free port, or no thread can be started.
    pub async fn start(options: ClusterOptions) -> Result<Self, ClusterError> {
        let (ready, started) = oneshot::channel();
        let (stop, stopping) = oneshot::channel();
        // The cluster has its own runtime: the runtime of a test may have a single thread, which the test blocks.
        let thread = std::thread::Builder::new()
            .name("berth-cluster".to_owned())
            .spawn(move || run(&options, ready, stopping))
            .map_err(|e| ClusterError(format!("failed to start a thread: {e}")))?;
        let contact = started
            .await
            .map_err(|_| ClusterError("the cluster has ended at its start".to_owned()))??;
        Ok(Self {
            contact,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// The URL of the API server.
    pub fn url(&self) -> &str {
        &self.contact.url
    }

    /// The certificate authority of the API server, in PEM.
    pub fn ca_pem(&self) -> &str {
        &self.contact.ca_pem
    }

    /// The token of the administrator.
    pub fn token(&self) -> &str {
        &self.contact.token
    }

    /// A kubeconfig of the administrator.
    pub fn kubeconfig(&self) -> String {
        let Contact {
            url, ca_pem, token, ..
        } = &self.contact;
        berth_apiserver::kubeconfig_text(url, ca_pem, token)
    }

    /// Writes the kubeconfig of the administrator, readable by this user alone.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write_kubeconfig(&self, path: &Path) -> std::io::Result<()> {
        berth_apiserver::replace_private_file(path, &self.kubeconfig())
    }

    /// Creates the objects of a manifest in YAML, or replaces them: several documents, definitions of custom resources
    /// before their objects.
    ///
    /// # Errors
    /// Names the object and its fault.
    pub async fn apply(&self, manifest: &str) -> Result<(), ClusterError> {
        self.applied(manifest).await.map(drop)
    }

    /// As [`EmbeddedCluster::apply`], and waits until the objects are available, as `berth up --wait` does.
    ///
    /// # Errors
    /// Names the objects that are not available when the time has passed.
    pub async fn apply_and_wait(
        &self,
        manifest: &str,
        limit: Duration,
    ) -> Result<(), ClusterError> {
        let applied = self.applied(manifest).await?;
        Ok(availability::wait(&*self.contact.api, &applied, limit).await?)
    }

    async fn applied(&self, manifest: &str) -> Result<Vec<Applied>, ClusterError> {
        let documents = manifest::read_text("the manifest", manifest)?;
        Ok(apply::apply(&*self.contact.api, &documents).await?)
    }

    /// The answer of the API to a GET request of the administrator.
    ///
    /// # Errors
    /// The message of the API server, for an answer other than success.
    pub async fn get(&self, path: &str) -> Result<Value, ClusterError> {
        let answer = self
            .contact
            .transport
            .request(&request::get_path(path))
            .await;
        answer.map_err(|e| ClusterError(format!("GET {path}: {e}")))
    }
}

impl Drop for EmbeddedCluster {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // Within STOP_PATIENCE. Afterwards the port is free.
            let _ = thread.join();
        }
    }
}

/// The thread of a cluster: starts it, and stops it when the other end of `stopping` is dropped.
fn run(
    options: &ClusterOptions,
    ready: oneshot::Sender<Result<Contact, ClusterError>>,
    stopping: oneshot::Receiver<()>,
) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .thread_name("berth-cluster")
        .enable_all()
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(e) => {
            let _ = ready.send(Err(ClusterError(format!("failed to start threads: {e}"))));
            return;
        }
    };
    tasks::block_on(&runtime, async {
        let (plane, mut scheduling) = match parts(options).await {
            Ok(parts) => parts,
            Err(failure) => {
                let _ = ready.send(Err(failure.into()));
                return;
            }
        };
        let server = plane.server();
        let contact = Contact {
            url: server.url(),
            ca_pem: server.ca_pem().to_owned(),
            token: server.admin_token().to_owned(),
            api: server.api(AGENT),
            transport: plane.transport(AGENT.to_owned()),
        };
        if ready.send(Ok(contact)).is_ok() {
            let failed = async {
                match &mut scheduling {
                    Some(scheduling) => scheduling.failed().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                _ = stopping => {}
                failure = failed => tracing::error!(?failure, "the scheduler of the cluster has ended"),
            }
        }
        let stop = async {
            if let Some(scheduling) = scheduling {
                scheduling.stop().await;
            }
            plane.stop().await;
        };
        let _ = tokio::time::timeout(STOP_PATIENCE, stop).await;
    });
    runtime.shutdown_background();
}

async fn parts(
    options: &ClusterOptions,
) -> Result<(ControlPlane, Option<Scheduling>), CommandFailure> {
    let server = Server::start(ServerOptions {
        admission: Admission {
            // Without controllers a namespace has no service account, and a node stays as it was created.
            service_account: options.controllers,
            ..Admission::default()
        },
        ..ServerOptions::default()
    })
    .await
    .map_err(CommandFailure::environment)?;
    let controllers = if options.controllers {
        Selection::All
    } else {
        Selection::Named(BTreeSet::new())
    };
    let nodes = kubelet::KubeletOptions {
        nodes: options.nodes,
        devices: options.gpus_per_node,
        ..kubelet::KubeletOptions::default()
    };
    let kubelets = options.nodes > 0;
    let parts = ControlPlaneOptions {
        controllers,
        nodes,
        kubelets,
    };
    let plane = ControlPlane::start(server, parts).await?;
    if !options.scheduler {
        return Ok((plane, None));
    }
    let registry: Registry = berth_plugins::in_tree();
    let options = scheduler::options_of_up(&CoreArgs::default(), Release::OLDEST, registry).await?;
    let transport = plane.transport(scheduler_user_agent());
    let scheduling = Scheduling::over(transport, &options).await?;
    let probe = scheduling.probe();
    let ready = async {
        while !probe.is_ready() {
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    };
    tokio::time::timeout(READY_PATIENCE, ready)
        .await
        .map_err(|_| CommandFailure::usage("the scheduler has not seen the cluster in time"))?;
    Ok((plane, Some(scheduling)))
}
