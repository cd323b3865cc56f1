//! `berth up`: a whole cluster in one process. The scheduler talks to the control plane as to any other.

use crate::cli::UpArgs;
use crate::control_plane::{self, ControlPlane, NODES_DEFAULT, Options};
use crate::exit::Failure;
use crate::print::{self, program, say};
use crate::scheduler::{self, Scheduling};
use crate::signal::{self, StopSignals};
use crate::{apply, manifest, serve};
use berth_apiserver::admission::Admission;
use berth_apiserver::controllers::Selection;
use berth_client::observe::Unobserved;
use berth_framework::registry::Registry;
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
    let nodes = args.control_plane.nodes.unwrap_or(NODES_DEFAULT);
    let metrics = serve::address(&listener)?;
    let plane = ControlPlane::start(
        &args.control_plane,
        Options {
            client_ca: None,
            scheduler: Some(metrics),
            controllers: Selection::All,
            admission: Admission::default(),
            nodes,
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
    let applied = apply::apply(&*plane.server().api("berth"), &documents)?;
    plane
        .server()
        .settle()
        .await
        .map_err(Failure::Environment)?;

    // A user, or a script, that has read the first line may stop the process.
    let signals = StopSignals::listen()?;
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
    for object in &applied {
        say!("applied     {object}")?;
    }
    say!()?;
    say!("In another terminal:")?;
    say!()?;
    say!("  export KUBECONFIG={}", absolute(kubeconfig))?;
    say!("  kubectl get nodes")?;
    say!("  kubectl create deployment web --image=registry.example/web:1 --replicas=30")?;
    say!("  kubectl get pods -o wide")?;
    say!("  {} explain queue", program())?;
    say!()?;
    say!("Ctrl-C stops everything.")?;

    let why = tokio::select! {
        why = signals.stop_requested(signal::STOP_PATIENCE) => why,
        failure = scheduling.failed() => return Err(failure),
        failure = plane.failed() => return Err(failure),
    };
    print::complain(format_args!("{why}, stopping"));
    let stop = async {
        scheduling.stop().await;
        plane.stop().await;
    };
    let _ = tokio::time::timeout(signal::STOP_PATIENCE, stop).await;
    Ok(())
}

fn absolute(path: &std::path::Path) -> String {
    std::path::absolute(path)
        .unwrap_or_else(|_| path.to_owned())
        .display()
        .to_string()
}
