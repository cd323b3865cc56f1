//! `berth apiserver`: only the control plane.

use crate::cli::{AdmissionPlugin, ApiserverArgs, Switch};
use crate::control_plane::{self, ControlPlane, Options};
use crate::exit::Failure;
use crate::print::{self, say};
use crate::serve::{self, Probe};
use crate::signal::{self, StopSignals};
use berth_apiserver::ServerMetrics;
use berth_apiserver::admission::Admission;
use std::net::SocketAddr;
use std::sync::Arc;

/// What the plain endpoints tell of the API server: once it runs it is ready.
struct ServerProbe(ServerMetrics);

impl Probe for ServerProbe {
    fn ready(&self) -> bool {
        true
    }

    async fn metrics(&self) -> Option<String> {
        Some(self.0.text())
    }
}

/// The admission plugins that are on.
fn admission(args: &ApiserverArgs) -> Admission {
    let on = |plugin| !args.disable_admission_plugins.contains(&plugin);
    Admission {
        namespace_lifecycle: on(AdmissionPlugin::NamespaceLifecycle),
        limit_ranger: on(AdmissionPlugin::LimitRanger),
        runtime_class: on(AdmissionPlugin::RuntimeClass),
        resource_quota: on(AdmissionPlugin::ResourceQuota),
        priority: on(AdmissionPlugin::Priority),
        default_toleration_seconds: on(AdmissionPlugin::DefaultTolerationSeconds),
        service_account: on(AdmissionPlugin::ServiceAccount) && args.admission == Switch::On,
        storage_object_in_use_protection: on(AdmissionPlugin::StorageObjectInUseProtection),
        pod_topology_labels: on(AdmissionPlugin::PodTopologyLabels),
    }
}

/// Runs until asked to stop.
///
/// # Errors
/// When something cannot be had at the start.
pub(crate) async fn run(args: ApiserverArgs) -> Result<(), Failure> {
    let client_ca = args.client_ca_file.as_ref().map(|path| {
        std::fs::read_to_string(path).map_err(|e| {
            Failure::Usage(format!(
                "--client-ca-file: failed to read {}: {e}",
                path.display()
            ))
        })
    });
    let options = Options {
        scheduler: None,
        client_ca: client_ca.transpose()?,
        controllers: args.controllers.clone(),
        admission: admission(&args),
        nodes: args.control_plane.nodes.unwrap_or(0),
    };
    let listener = serve::bind(args.metrics).await?;
    let metrics = serve::address(&listener)?;
    let plane = ControlPlane::start(&args.control_plane, options).await?;
    let probe = ServerProbe(plane.server().metrics());
    tokio::spawn(serve::serve(listener, Arc::new(probe)));
    let outcome = until_stopped(&args, metrics, &plane).await;
    if let Ok(why) = &outcome {
        print::complain(format_args!("{why}, stopping"));
    }
    let _ = tokio::time::timeout(signal::STOP_PATIENCE, plane.stop()).await;
    outcome.map(drop)
}

/// Says what runs, and waits; the answer is why the process is to stop.
///
/// # Errors
/// When the output is not read any more, or the data directory cannot be written.
async fn until_stopped(
    args: &ApiserverArgs,
    metrics: SocketAddr,
    plane: &ControlPlane,
) -> Result<&'static str, Failure> {
    // A user, or a script, that has read the first line may stop the process.
    let signals = StopSignals::listen()?;
    say!("API server  {}", plane.server().url())?;
    say!("kubeconfig  {}", args.control_plane.kubeconfig.display())?;
    say!("metrics     http://{metrics}/metrics")?;
    say!(
        "storage     {}",
        control_plane::storage(&args.control_plane)
    )?;
    say!()?;
    say!(
        "  export KUBECONFIG={}",
        args.control_plane.kubeconfig.display()
    )?;
    say!()?;
    say!("Ctrl-C stops it.")?;
    tokio::select! {
        why = signals.stop_requested(signal::STOP_PATIENCE) => Ok(why),
        failure = plane.failed() => Err(failure),
    }
}
