//! Starts the embedded control plane: API server, controllers, simulated nodes.

use crate::cli::ControlPlaneArgs;
use crate::exit::Failure;
use crate::print::program;
use berth_apiserver::admission::Admission;
use berth_apiserver::{RunningServer, Server, ServerOptions, StartError, controllers, kubelet};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Start-up that takes longer than this shows how far it is.
const PROGRESS_AFTER: Duration = Duration::from_secs(1);

/// The extension of a cluster in a kubeconfig that names the URL of its scheduler.
pub(crate) const SCHEDULER_EXTENSION: &str = "berth.dev/scheduler";

/// The default number of nodes.
pub(crate) const NODES_DEFAULT: usize = 3;
/// More simulated nodes than anybody has asked for.
const NODES_MAX: usize = 1_000_000;

/// What runs beside the API server.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    /// The controllers that run.
    pub(crate) controllers: controllers::Selection,
    /// The admission plugins that are on.
    pub(crate) admission: Admission,
    /// Authorities of client certificates besides that of the server, in PEM.
    pub(crate) client_ca: Option<String>,
    /// Simulated nodes.
    pub(crate) nodes: usize,
    /// Where the scheduler of this process serves explanations. The kubeconfig names it, for `berth explain`.
    pub(crate) scheduler: Option<SocketAddr>,
}

/// A control plane that runs.
pub(crate) struct ControlPlane {
    server: RunningServer,
    controllers: Option<controllers::Handle>,
    kubelets: Option<controllers::Handle>,
}

impl ControlPlane {
    /// Starts everything, in the order in which it depends on each other.
    ///
    /// # Errors
    /// Names what could not be had, and the way out.
    pub(crate) async fn start(args: &ControlPlaneArgs, options: Options) -> Result<Self, Failure> {
        if options.nodes > NODES_MAX {
            return Err(Failure::Usage(format!(
                "--nodes {}: at most {NODES_MAX} nodes can be simulated",
                options.nodes
            )));
        }
        let server = Server::start(ServerOptions {
            listen: args.listen,
            data_dir: args.data_dir.clone(),
            admission: options.admission,
            client_ca: options.client_ca,
            ..ServerOptions::default()
        })
        .await
        .map_err(|error| match error {
            StartError::Listen { .. } => Failure::Environment(format!(
                "{error}, with --listen ADDR (port 0 takes a free one)"
            )),
            StartError::DataDir(error) => {
                Failure::Environment(format!("{error}, with --data-dir DIR"))
            }
            StartError::ClientAuthorities(_) => {
                Failure::Usage(format!("--client-ca-file: {error}"))
            }
            other => Failure::environment(other),
        })?;
        let scheduler = options.scheduler.map(|address| format!("http://{address}"));
        let extensions: Vec<(&str, String)> = scheduler
            .into_iter()
            .map(|url| (SCHEDULER_EXTENSION, url))
            .collect();
        server
            .write_kubeconfig(&args.kubeconfig, &extensions)
            .map_err(|e| Failure::Environment(format!("{e}, with --kubeconfig PATH")))?;
        let controllers = (!options.controllers.is_empty()).then(|| {
            controllers::spawn(
                server.api("kube-controller-manager"),
                controllers::Options {
                    selection: options.controllers,
                    root_ca: Some(server.ca_pem().to_owned()),
                    ..controllers::Options::default()
                },
            )
        });
        let kubelets = if options.nodes > 0 {
            Some(start_nodes(&server, options.nodes, args.gpus_per_node).await?)
        } else {
            None
        };
        Ok(Self {
            server,
            controllers,
            kubelets,
        })
    }

    /// The API server.
    pub(crate) fn server(&self) -> &RunningServer {
        &self.server
    }

    /// Waits until writing to the data directory fails. The cluster is of no use then.
    pub(crate) async fn failed(&self) -> Failure {
        let why = self.server.storage_failed().await;
        Failure::Environment(format!(
            "{why}; no acknowledged write is lost, start again when that is fixed"
        ))
    }

    /// Stops everything, in the opposite order.
    pub(crate) async fn stop(self) {
        let begun = Instant::now();
        if let Some(kubelets) = self.kubelets {
            kubelets.stop().await;
        }
        tracing::debug!(elapsed = ?begun.elapsed(), "kubelets have stopped");
        if let Some(controllers) = self.controllers {
            controllers.stop().await;
        }
        tracing::debug!(elapsed = ?begun.elapsed(), "controllers have stopped");
        self.server.shutdown().await;
        tracing::debug!(elapsed = ?begun.elapsed(), "the API server has stopped");
    }
}

/// Where the objects are kept, for the lines that are printed at the start.
pub(crate) fn storage(args: &ControlPlaneArgs) -> String {
    match &args.data_dir {
        Some(dir) => format!("{}: the cluster continues after a restart", dir.display()),
        None => format!("in memory: everything is gone when {} stops", program()),
    }
}

/// Makes the simulated nodes; a bar shows how far it is when that takes longer than a moment.
async fn start_nodes(
    server: &RunningServer,
    nodes: usize,
    devices: u32,
) -> Result<controllers::Handle, Failure> {
    let bar = Arc::new(ProgressBar::hidden());
    bar.set_length(nodes as u64);
    if let Ok(style) = ProgressStyle::with_template("starting nodes {bar:30} {pos}/{len} {elapsed}")
    {
        bar.set_style(style);
    }
    let begun = Instant::now();
    let shown = Arc::clone(&bar);
    let progress = move |made: usize| {
        if shown.is_hidden() && begun.elapsed() > PROGRESS_AFTER {
            // Draws nothing where the output is no terminal.
            shown.set_draw_target(ProgressDrawTarget::stderr());
        }
        shown.set_position(made as u64);
    };
    let handle = kubelet::spawn(
        server.api("kubelet"),
        kubelet::Options {
            nodes,
            devices,
            progress: Some(Arc::new(progress)),
            ..kubelet::Options::default()
        },
    )
    .await
    .map_err(Failure::environment)?;
    bar.finish_and_clear();
    Ok(handle)
}
