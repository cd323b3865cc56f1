//! Starts the embedded control plane: API server, controllers, simulated nodes.

use crate::args::ControlPlaneArgs;
use berth_apiserver::{RunningServer, Server, ServerOptions, StartError};
use berth_client::Transport;
use berth_controllers::kubelet;
use berth_edge::exit::CommandFailure;
use berth_edge::print::program;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Start-up that takes longer than this shows how far it is.
const PROGRESS_AFTER: Duration = Duration::from_secs(1);

/// The extension of a cluster in a kubeconfig that names the URL of its scheduler.
pub const SCHEDULER_EXTENSION: &str = "berth.dev/scheduler";

/// The default number of nodes.
pub const NODES_DEFAULT: usize = 3;
/// The components of the control plane other than the API server.
#[derive(Debug, Clone, Default)]
pub struct ControlPlaneOptions {
    /// The controllers that run.
    pub controllers: berth_controllers::Selection,
    /// Simulated nodes.
    pub nodes: kubelet::KubeletOptions,
    /// Whether kubelets run, for the nodes above and for nodes of users.
    pub kubelets: bool,
}

/// A control plane that runs.
pub struct ControlPlane {
    server: RunningServer,
    controllers: Option<berth_controllers::Handle>,
    kubelets: Option<berth_controllers::Handle>,
}

/// Starts the API server of a command line.
///
/// # Errors
/// Names the unavailable resource and the remedy.
pub async fn serve(options: ServerOptions) -> Result<RunningServer, CommandFailure> {
    Server::start(options).await.map_err(|error| match error {
        StartError::Listen { .. } => CommandFailure::Environment(format!(
            "{error}, with --listen ADDR (port 0 takes a free one)"
        )),
        StartError::DataDir(error) => {
            CommandFailure::Environment(format!("{error}, with --data-dir DIR"))
        }
        StartError::ClientAuthorities(_) => {
            CommandFailure::Usage(format!("--client-ca-file: {error}"))
        }
        other => CommandFailure::environment(other),
    })
}

/// Writes the kubeconfig of a command line. It names the URL of the scheduler of this process, for `berth explain`.
///
/// # Errors
/// When the file cannot be written.
pub fn write_kubeconfig(
    server: &RunningServer,
    path: &Path,
    scheduler: Option<SocketAddr>,
) -> Result<(), CommandFailure> {
    let scheduler = scheduler.map(|address| format!("http://{address}"));
    let extensions: Vec<(&str, String)> = scheduler
        .into_iter()
        .map(|url| (SCHEDULER_EXTENSION, url))
        .collect();
    server
        .write_kubeconfig(path, &extensions)
        .map_err(|e| CommandFailure::Environment(format!("{e}, with --kubeconfig PATH")))
}

impl ControlPlane {
    /// Starts the components other than the API server, in the order of their dependencies.
    ///
    /// # Errors
    /// Names the unavailable resource and the remedy.
    pub async fn start(
        server: RunningServer,
        options: ControlPlaneOptions,
    ) -> Result<Self, CommandFailure> {
        let nodes = options
            .nodes
            .nodes
            .saturating_add(options.nodes.given.len());
        // The limit protects the memory of the process from a typing error.
        if nodes > kubelet::NODES_MAX {
            return Err(CommandFailure::Usage(format!(
                "{nodes} nodes: at most {} nodes can be simulated",
                kubelet::NODES_MAX
            )));
        }
        // Controllers run before the nodes: new nodes are processed at once.
        let controllers = (!options.controllers.is_empty()).then(|| {
            server.note_controllers();
            berth_controllers::spawn(
                server.api("kube-controller-manager"),
                berth_controllers::ControllerOptions {
                    selection: options.controllers,
                    root_ca: Some(server.ca_pem().to_owned()),
                    groups: server.groups(),
                    ..berth_controllers::ControllerOptions::default()
                },
            )
        });
        let kubelets = if options.kubelets {
            Some(start_nodes(&server, options.nodes).await?)
        } else {
            None
        };
        Ok(Self {
            server,
            controllers,
            kubelets,
        })
    }

    /// A connection of a scheduler in this process.
    pub fn transport(&self, user_agent: String) -> Transport {
        transport(&self.server, user_agent)
    }

    /// The API server.
    pub fn server(&self) -> &RunningServer {
        &self.server
    }

    /// Waits until writing to the data directory fails. The cluster is of no use then.
    pub async fn failed(&self) -> CommandFailure {
        let why = self.server.storage_failed().await;
        CommandFailure::Environment(format!(
            "{why}; no acknowledged write is lost, start again when that is fixed"
        ))
    }

    /// Stops all components, in reverse order.
    pub async fn stop(self) {
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

/// A connection to an API server of this process, without sockets.
pub fn transport(server: &RunningServer, user_agent: String) -> Transport {
    let local = server.local();
    let answer = move |request| {
        let local = local.clone();
        async move { local.answer(request).await }
    };
    Transport::in_process(answer, server.url(), user_agent)
}

/// The place of the objects, for the lines that are printed at the start.
pub fn storage(args: &ControlPlaneArgs) -> String {
    match &args.data_dir {
        Some(dir) => format!("{}: the cluster continues after a restart", dir.display()),
        None => format!("in memory: everything is gone when {} stops", program()),
    }
}

/// Makes the simulated nodes; a bar shows how far it is when that takes longer than a moment.
async fn start_nodes(
    server: &RunningServer,
    nodes: kubelet::KubeletOptions,
) -> Result<berth_controllers::Handle, CommandFailure> {
    let bar = Arc::new(ProgressBar::hidden());
    bar.set_length(nodes.nodes.saturating_add(nodes.given.len()) as u64);
    if let Ok(style) = ProgressStyle::with_template("starting nodes {bar:30} {pos}/{len} {elapsed}")
    {
        bar.set_style(style);
    }
    let begun = Instant::now();
    let shown = Arc::clone(&bar);
    let progress = move |made: usize| {
        if shown.is_hidden() && begun.elapsed() > PROGRESS_AFTER {
            // Draws only on a terminal.
            shown.set_draw_target(ProgressDrawTarget::stderr());
        }
        shown.set_position(made as u64);
    };
    let handle = kubelet::spawn(
        server.api("kubelet"),
        kubelet::KubeletOptions {
            progress: Some(Arc::new(progress)),
            ..nodes
        },
    )
    .await
    .map_err(CommandFailure::environment)?;
    bar.finish_and_clear();
    Ok(handle)
}
