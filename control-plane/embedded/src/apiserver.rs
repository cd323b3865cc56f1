//! `berth apiserver`: only the control plane.

use crate::args::{AdmissionPlugin, ApiserverArgs, Switch};
use crate::control_plane::{self, ControlPlane, ControlPlaneOptions};
use crate::gates;
use berth_apiserver::admission::Admission;
use berth_apiserver::{ServerMetrics, ServerOptions};
use berth_edge::exit::CommandFailure;
use berth_edge::print::{self, print_line};
use berth_edge::serve::{self, Probe};
use berth_edge::settings;
use berth_edge::signal::{self, StopSignals};
use berth_edge::tasks;
use berth_framework::features::Versions;
use std::net::SocketAddr;
use std::sync::Arc;

/// The answers of the plain endpoints for the API server: once it runs it is ready.
struct ServerProbe(ServerMetrics);

impl Probe for ServerProbe {
    fn ready(&self) -> bool {
        true
    }

    async fn metrics(&self) -> Option<String> {
        Some(self.0.text())
    }
}

/// The admission plugins that are on when these are off.
pub(crate) fn admission_without(disabled: &[AdmissionPlugin]) -> Admission {
    let on = |plugin| !disabled.contains(&plugin);
    Admission {
        namespace_lifecycle: on(AdmissionPlugin::NamespaceLifecycle),
        limit_ranger: on(AdmissionPlugin::LimitRanger),
        runtime_class: on(AdmissionPlugin::RuntimeClass),
        resource_quota: on(AdmissionPlugin::ResourceQuota),
        priority: on(AdmissionPlugin::Priority),
        default_toleration_seconds: on(AdmissionPlugin::DefaultTolerationSeconds),
        service_account: on(AdmissionPlugin::ServiceAccount),
        storage_object_in_use_protection: on(AdmissionPlugin::StorageObjectInUseProtection),
        pod_group_protection: on(AdmissionPlugin::PodGroupProtection),
        pod_topology_labels: on(AdmissionPlugin::PodTopologyLabels),
        taint_nodes_by_condition: on(AdmissionPlugin::TaintNodesByCondition),
        default_storage_class: on(AdmissionPlugin::DefaultStorageClass),
        mutating_admission_webhook: on(AdmissionPlugin::MutatingAdmissionWebhook),
        validating_admission_webhook: on(AdmissionPlugin::ValidatingAdmissionWebhook),
        mutating_admission_policy: on(AdmissionPlugin::MutatingAdmissionPolicy),
        validating_admission_policy: on(AdmissionPlugin::ValidatingAdmissionPolicy),
    }
}

/// Runs until asked to stop.
///
/// # Errors
/// When something cannot be had at the start.
pub async fn run(args: ApiserverArgs) -> Result<(), CommandFailure> {
    let client_ca = args.client_ca_file.as_ref().map(|path| {
        std::fs::read_to_string(path).map_err(|e| {
            CommandFailure::Usage(format!(
                "--client-ca-file: failed to read {}: {e}",
                path.display()
            ))
        })
    });
    // The flag switches a group of admission plugins off together.
    let mut admission = admission_without(&args.disable_admission_plugins);
    admission.service_account &= args.admission == Switch::On;
    admission.taint_nodes_by_condition &= args.admission == Switch::On;
    let versions = Versions::of(args.control_plane.emulated_version);
    let mut warnings = Vec::new();
    let features = settings::parse_gates(&args.feature_gates, versions, &mut warnings)?;
    for warning in warnings {
        tracing::warn!("{warning}");
    }
    // The port is taken before the API server starts: a conflict is reported at once.
    let listener = serve::bind(args.metrics).await?;
    let metrics = serve::address(&listener)?;
    let server = control_plane::serve(ServerOptions {
        listen: args.control_plane.address(),
        data_dir: args.control_plane.data_dir.clone(),
        api: gates::api(&features, &args.feature_gates),
        groups: gates::groups(&args.feature_gates),
        client_ca: client_ca.transpose()?,
        admission,
        ..ServerOptions::default()
    })
    .await?;
    control_plane::write_kubeconfig(&server, args.control_plane.own_kubeconfig(), None)?;
    let options = ControlPlaneOptions {
        controllers: args.controllers.clone(),
        nodes: args.control_plane.nodes(0),
        kubelets: args.control_plane.nodes.is_some_and(|nodes| nodes > 0),
    };
    let plane = ControlPlane::start(server, options).await?;
    let probe = ServerProbe(plane.server().metrics());
    tasks::spawn(serve::serve(listener, Arc::new(probe)));
    let outcome = until_stopped(&args, metrics, &plane).await;
    // The reason is printed before the stop, which may take a while.
    if let Ok(why) = &outcome {
        print::complain(format_args!("{why}, stopping"));
    }
    let _ = tokio::time::timeout(signal::STOP_PATIENCE, plane.stop()).await;
    outcome.map(drop)
}

/// Prints the running components, and waits; returns the reason of the stop.
///
/// # Errors
/// The reader has closed the output, or the data directory cannot be written.
async fn until_stopped(
    args: &ApiserverArgs,
    metrics: SocketAddr,
    plane: &ControlPlane,
) -> Result<&'static str, CommandFailure> {
    // A user, or a script, that has read the first line may stop the process.
    let signals = StopSignals::listen()?;
    print_line!("API server  {}", plane.server().url())?;
    let kubeconfig = args.control_plane.own_kubeconfig().display();
    print_line!("kubeconfig  {kubeconfig}")?;
    print_line!("metrics     http://{metrics}/metrics")?;
    print_line!(
        "storage     {}",
        control_plane::storage(&args.control_plane)
    )?;
    print_line!()?;
    print_line!("  export KUBECONFIG={kubeconfig}")?;
    print_line!()?;
    print_line!("Ctrl-C stops it.")?;
    tokio::select! {
        why = signals.stop_requested(signal::STOP_PATIENCE) => Ok(why),
        failure = plane.failed() => Err(failure),
    }
}
