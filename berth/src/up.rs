//! `berth up`: a whole cluster in one process. The scheduler uses the control plane like any other.

use crate::cli::{NAME_DEFAULT, UpArgs};
use crate::clusters::{ClusterRecord, Folder, RunningName};
use crate::kubeconfig::{self, KubeconfigEntry};
use berth_apiserver::{RunningServer, ServerOptions};
use berth_client::observe::Unobserved;
use berth_controllers::{SIMULATED_PROVISIONER, Selection};
use berth_edge::exit::CommandFailure;
use berth_edge::print::{self, program};
use berth_edge::scheduler::{self, Scheduling};
use berth_edge::serve;
use berth_edge::signal::{self, StopSignals};
use berth_edge::tasks;
use berth_embedded::apply::Applied;
use berth_embedded::control_plane::{self, ControlPlane, ControlPlaneOptions, NODES_DEFAULT};
use berth_embedded::manifest::ManifestDocument;
use berth_embedded::{apply, availability, gates, manifest, nodes};
use berth_framework::cluster::DEFERRED_QUOTA;
use berth_framework::registry::Registry;
use berth_objects::access::{Access, gr};
use berth_objects::object::NODE;
use berth_plugins::kubelet_rejections;
use berth_scheduler::profile::EnabledPlugin;
use serde_json::json;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The definition of DeferredQuota.
const QUOTA_DEFINITION: &str = include_str!("../../deploy/deferred-quota/crd.yaml");

/// The name of the default StorageClass, as of kind's.
const STORAGE_CLASS: &str = "standard";
const IS_DEFAULT: &str = "storageclass.kubernetes.io/is-default-class";

/// The weight of the scores of KubeletRejections: equal to TaintToleration's.
const REJECTIONS_WEIGHT: i64 = 3;

/// The kubeconfig of a cluster, and its name on this machine.
struct ClusterPlace {
    /// The file that has the context.
    kubeconfig: PathBuf,
    /// The file that the scheduler of this process uses.
    own: PathBuf,
    context: String,
    /// The name that this process has, if it has one.
    running: Option<RunningName>,
}

impl ClusterPlace {
    /// Takes the name of the command line, if it has one.
    ///
    /// # Errors
    /// When another cluster has it.
    fn take(args: &UpArgs) -> Result<Self, CommandFailure> {
        let given = args.control_plane.kubeconfig.clone();
        let Some(name) = &args.placement.name else {
            let own = args.control_plane.own_kubeconfig().to_owned();
            return Ok(Self {
                kubeconfig: own.clone(),
                own,
                context: NAME_DEFAULT.to_owned(),
                running: None,
            });
        };
        let running = Folder::of(name)?.acquire()?;
        Ok(Self {
            kubeconfig: match given {
                Some(path) => path,
                None => kubeconfig::default_path()?,
            },
            own: running.kubeconfig(),
            context: name.context(),
            running: Some(running),
        })
    }

    /// Writes the kubeconfigs.
    ///
    /// # Errors
    /// When a file cannot be read or written.
    fn write(&self, server: &RunningServer, scheduler: SocketAddr) -> Result<(), CommandFailure> {
        control_plane::write_kubeconfig(server, &self.own, Some(scheduler))?;
        if self.running.is_none() {
            return Ok(());
        }
        let url = format!("http://{scheduler}");
        let entry = KubeconfigEntry::of(server, self.context.clone(), Some(&url));
        kubeconfig::add(&self.kubeconfig, &entry)
    }
}

/// Runs until asked to stop.
///
/// # Errors
/// A file is invalid, a resource is unavailable at the start, or the core has ended unexpectedly.
pub(crate) async fn run(args: UpArgs, registry: Registry) -> Result<(), CommandFailure> {
    // All faults of the input are reported before any component starts.
    let documents = manifest::read_all(&args.all_files())?;
    let nodes_of_file = if args.node.node_file.is_empty() {
        NODES_DEFAULT
    } else {
        0
    };
    let mut nodes = nodes::options(&args.node, args.control_plane.nodes(nodes_of_file))?;
    let release = args.control_plane.emulated_version;
    let knows_rejections = registry.get(kubelet_rejections::NAME).is_some();
    let mut core = scheduler::options_of_up(&args.core, release, registry).await?;
    scheduler::elect(&mut core);
    // A configuration file states all plugins in addition to the default ones.
    if args.core.config.is_none() && knows_rejections {
        let plugin = EnabledPlugin::weighted(kubelet_rejections::NAME, REJECTIONS_WEIGHT);
        core.config.enable(&plugin);
    }
    let place = ClusterPlace::take(&args)?;
    let (listen, metrics) = args.addresses();
    let listener = serve::bind(metrics).await?;
    let metrics = serve::address(&listener)?;
    let server = control_plane::serve(ServerOptions {
        listen,
        data_dir: args.control_plane.data_dir.clone(),
        api: gates::api(&core.config.features(), &args.core.feature_gates),
        groups: gates::groups(&args.core.feature_gates),
        ..ServerOptions::default()
    })
    .await?;
    place.write(&server, metrics)?;
    let is_kept = !server.api("berth").list(NODE.resource, None).is_empty();
    // A kept cluster has its nodes: the default number is for a new cluster.
    if args.control_plane.nodes.is_none() && is_kept {
        nodes.nodes = 0;
    }
    let options = ControlPlaneOptions {
        controllers: Selection::All,
        nodes,
        kubelets: true,
    };
    let plane = ControlPlane::start(server, options).await?;
    serve_quotas(&*plane.server().api("berth")).await?;
    let count = plane.server().api("berth").list(NODE.resource, None).len();
    let connection = &mut core.config.client_connection;
    connection.kubeconfig = place.own.display().to_string();
    let mut scheduling = Scheduling::start(&core, "", Arc::new(Unobserved)).await?;
    scheduling.follow_config(&core);
    tasks::spawn(serve::serve(listener, Arc::new(scheduling.explainer())));
    // A user, or a script, that has read the first line may stop the process.
    let signals = StopSignals::listen()?;
    let start = async {
        let started = start(&args, &documents, &plane, &place, metrics, count).await;
        match started {
            Err(failure) => failure,
            Ok(()) => std::future::pending().await,
        }
    };
    let outcome = tokio::select! {
        why = signals.stop_requested(signal::STOP_PATIENCE) => Ok(why),
        failure = start => Err(failure),
        failure = scheduling.failed() => Err(failure),
        failure = plane.failed() => Err(failure),
    };
    if let Ok(why) = &outcome {
        print::complain(format_args!("{why}, stopping"));
    }
    // The scheduler stops first, for any reason: an API server that stops earlier is an outage for it.
    let stop = async {
        scheduling.stop().await;
        plane.stop().await;
    };
    let _ = tokio::time::timeout(signal::STOP_PATIENCE, stop).await;
    outcome.map(drop)
}

/// Applies the files, waits for their objects if requested, and prints the running components.
///
/// # Errors
/// A file is not accepted, an object is not available in time, or the reader has closed the output.
async fn start(
    args: &UpArgs,
    documents: &[ManifestDocument],
    plane: &ControlPlane,
    place: &ClusterPlace,
    metrics: SocketAddr,
    nodes: usize,
) -> Result<(), CommandFailure> {
    let server = plane.server();
    let api = server.api("berth");
    create_storage_class(&*api)?;
    let applied = apply::apply(&*api, documents).await?;
    if let Some(limit) = args.placement.wait {
        availability::wait(&*api, &applied, limit).await?;
    }
    server.settle().await.map_err(CommandFailure::Environment)?;
    let greeting = greeting(args, metrics, server, place, nodes, &applied);
    if let Some(running) = &place.running {
        running.publish(&ClusterRecord {
            pid: std::process::id(),
            server: server.url(),
            kubeconfig: absolute(&place.kubeconfig),
            context: place.context.clone(),
            greeting: greeting.clone(),
        })?;
    }
    print::text(greeting)
}

/// Serves deferred quotas before the scheduler starts: a scheduler that does not find them asks again only at long
/// intervals.
async fn serve_quotas(api: &dyn Access) -> Result<(), CommandFailure> {
    let documents = manifest::of_text("the definition of DeferredQuota", QUOTA_DEFINITION)?;
    apply::apply(api, &documents).await?;
    let kind = DEFERRED_QUOTA.plural;
    apply::wait_until_served(api, kind).await
}

/// Creates the default StorageClass of a new cluster, so that claims without a class get a volume.
fn create_storage_class(api: &dyn Access) -> Result<(), CommandFailure> {
    let classes = gr("storage.k8s.io", "storageclasses");
    if !api.list(classes, None).is_empty() {
        return Ok(());
    }
    let class = json!({
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": STORAGE_CLASS, "annotations": {IS_DEFAULT: "true"}},
        "provisioner": SIMULATED_PROVISIONER,
    });
    api.create(classes, class).map(drop).map_err(|e| {
        CommandFailure::Environment(format!("failed to create the default StorageClass: {e}"))
    })
}

/// The parts that run, and the next commands.
fn greeting(
    args: &UpArgs,
    metrics: SocketAddr,
    server: &RunningServer,
    place: &ClusterPlace,
    nodes: usize,
    applied: &[Applied],
) -> String {
    let mut text = String::new();
    let mut print_line = |line: std::fmt::Arguments<'_>| {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{line}");
    };
    print_line(format_args!("API server  {}", server.url()));
    match args.control_plane.gpus_per_node {
        0 => print_line(format_args!("nodes       {nodes}, simulated")),
        gpus => print_line(format_args!(
            "nodes       {nodes}, simulated, with {gpus} GPUs each"
        )),
    }
    print_line(format_args!(
        "scheduler   metrics at http://{metrics}/metrics"
    ));
    print_line(format_args!("dashboard   http://{metrics}/dashboard"));
    let storage = control_plane::storage(&args.control_plane);
    print_line(format_args!("storage     {storage}"));
    for object in applied {
        print_line(format_args!("applied     {object}"));
    }
    let kubeconfig = absolute(&place.kubeconfig);
    let kubeconfig = kubeconfig.display();
    match &args.placement.name {
        None => {
            print_line(format_args!("\nIn another terminal:\n"));
            print_line(format_args!("  export KUBECONFIG={kubeconfig}"));
        }
        Some(_) => {
            let context = &place.context;
            print_line(format_args!("context     {context}, in {kubeconfig}\n"));
        }
    }
    print_line(format_args!("  kubectl get nodes"));
    print_line(format_args!(
        "  kubectl create deployment web --image=registry.example/web:1 --replicas=30"
    ));
    print_line(format_args!("  kubectl get pods -o wide"));
    let program = program();
    print_line(format_args!("  {program} explain queue\n"));
    match &args.placement.name {
        None => print_line(format_args!("Ctrl-C stops everything.")),
        Some(name) => {
            let name = name.as_str();
            print_line(format_args!(
                "Ctrl-C, or {program} down --name {name}, stops everything."
            ));
        }
    }
    text
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}
