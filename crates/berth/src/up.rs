//! `berth up`: a whole cluster in one process. The scheduler talks to the control plane as to any other.

use crate::cli::UpArgs;
use crate::control_plane::{self, ControlPlane, NODES_DEFAULT, Options};
use crate::exit::Failure;
use crate::manifest::Document;
use crate::print::{self, program, say};
use crate::scheduler::{self, Scheduling};
use crate::signal::{self, StopSignals};
use crate::{apply, manifest, serve};
use berth_apiserver::admission::Admission;
use berth_apiserver::controllers::Selection;
use berth_client::observe::Unobserved;
use berth_framework::registry::Registry;
use std::net::SocketAddr;
use std::sync::Arc;

/// Runs until asked to stop.
///
/// # Errors
/// When a file is wrong, something cannot be had at the start, or the core has ended by itself.
pub(crate) async fn run(args: UpArgs, registry: Registry) -> Result<(), Failure> {
    // Everything that can be wrong with the input is found before anything is started.
    let documents = manifest::read_all(&args.files)?;
    let mut core = scheduler::options_of_up(&args.core, registry).await?;
    let listener = serve::bind(args.metrics).await?;
    let metrics = serve::address(&listener)?;
    let plane = ControlPlane::start(
        &args.control_plane,
        Options {
            client_ca: None,
            scheduler: Some(metrics),
            controllers: Selection::All,
            admission: Admission::default(),
            nodes: args.control_plane.nodes.unwrap_or(NODES_DEFAULT),
        },
    )
    .await?;
    let kubeconfig = &args.control_plane.kubeconfig;
    let connection = &mut core.config.client_connection;
    connection.kubeconfig = kubeconfig.display().to_string();
    let mut scheduling = Scheduling::start(&core, "", Arc::new(Unobserved)).await?;
    tokio::spawn(serve::serve(
        listener,
        Arc::new(scheduling.runner.explainer()),
    ));
    let outcome = until_stopped(&args, &documents, metrics, &plane, &mut scheduling).await;
    if let Ok(why) = &outcome {
        print::complain(format_args!("{why}, stopping"));
    }
    // The scheduler first, whatever the reason: to it an API server that stops earlier is an outage.
    let stop = async {
        scheduling.stop().await;
        plane.stop().await;
    };
    let _ = tokio::time::timeout(signal::STOP_PATIENCE, stop).await;
    outcome.map(drop)
}

/// Applies the files, says what runs, and waits; the answer is why the process is to stop.
///
/// # Errors
/// When a file is not accepted, the output is not read any more, or something cannot go on.
async fn until_stopped(
    args: &UpArgs,
    documents: &[Document],
    metrics: SocketAddr,
    plane: &ControlPlane,
    scheduling: &mut Scheduling,
) -> Result<&'static str, Failure> {
    let applied = apply::apply(&*plane.server().api("berth"), documents)?;
    plane
        .server()
        .settle()
        .await
        .map_err(Failure::Environment)?;
    // A user, or a script, that has read the first line may stop the process.
    let signals = StopSignals::listen()?;
    announce(args, metrics, plane, &applied)?;
    tokio::select! {
        why = signals.stop_requested(signal::STOP_PATIENCE) => Ok(why),
        failure = scheduling.failed() => Err(failure),
        failure = plane.failed() => Err(failure),
    }
}

/// Prints what runs, and what to do next.
///
/// # Errors
/// When the output is not read any more.
fn announce(
    args: &UpArgs,
    metrics: SocketAddr,
    plane: &ControlPlane,
    applied: &[String],
) -> Result<(), Failure> {
    let nodes = args.control_plane.nodes.unwrap_or(NODES_DEFAULT);
    say!("API server  {}", plane.server().url())?;
    match args.control_plane.gpus_per_node {
        0 => say!("nodes       {nodes}, simulated")?,
        gpus => say!("nodes       {nodes}, simulated, with {gpus} GPUs each")?,
    }
    say!("scheduler   metrics at http://{metrics}/metrics")?;
    say!("dashboard   http://{metrics}/dashboard")?;
    say!(
        "storage     {}",
        control_plane::storage(&args.control_plane)
    )?;
    for object in applied {
        say!("applied     {object}")?;
    }
    say!()?;
    say!("In another terminal:")?;
    say!()?;
    say!(
        "  export KUBECONFIG={}",
        absolute(&args.control_plane.kubeconfig)
    )?;
    say!("  kubectl get nodes")?;
    say!("  kubectl create deployment web --image=registry.example/web:1 --replicas=30")?;
    say!("  kubectl get pods -o wide")?;
    say!("  {} explain queue", program())?;
    say!()?;
    say!("Ctrl-C stops everything.")?;
    Ok(())
}

fn absolute(path: &std::path::Path) -> String {
    std::path::absolute(path)
        .unwrap_or_else(|_| path.to_owned())
        .display()
        .to_string()
}
