//! `--in-process`: scheduler and control plane in this process, without sockets.

use super::workloads::{Named, release_with};
use super::{CONTROLLERS, user_agent};
use crate::scratch::NO_LIMIT;
use crate::workload::{
    ClusterFuture, Process, RunError, RunningCluster, WorkloadSetup, WorkloadTarget,
};
use berth_apiserver::admission::Admission;
use berth_apiserver::{RunningServer, Server, ServerOptions};
use berth_client::Transport;
use berth_edge::args::CoreArgs;
use berth_edge::exit::CommandFailure;
use berth_edge::scheduler::{self, Scheduling};
use berth_embedded::{control_plane, gates};
use berth_framework::registry::Registry;
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// The time that the scheduler may take to list an empty cluster.
const READY_LIMIT: Duration = Duration::from_secs(60);
/// The pause between two checks for a completed list.
const LOOK_AGAIN: Duration = Duration::from_millis(10);
/// The time that stopping may take.
const STOP_LIMIT: Duration = Duration::from_secs(10);

/// The way.
pub(super) struct InProcess {
    registry: Registry,
}

impl InProcess {
    pub(super) fn new(registry: Registry) -> Self {
        Self { registry }
    }
}

impl Named for InProcess {
    fn name(&self) -> String {
        "in-process: one process, no sockets".to_owned()
    }
}

/// A control plane and a scheduler.
pub(super) struct Together {
    server: RunningServer,
    controllers: berth_controllers::Handle,
    scheduling: Scheduling,
    transport: Transport,
}

fn start_error(failure: CommandFailure) -> RunError {
    match failure {
        CommandFailure::Usage(text) | CommandFailure::Environment(text) => RunError::Start(text),
        other => RunError::Start(format!("{other:?}")),
    }
}

impl WorkloadTarget for InProcess {
    fn start<'a>(
        &'a self,
        setup: &'a WorkloadSetup,
    ) -> ClusterFuture<'a, Result<Box<dyn RunningCluster>, RunError>> {
        Box::pin(async { Ok(Box::new(self.started(setup).await?) as Box<dyn RunningCluster>) })
    }
}

impl InProcess {
    async fn started(&self, setup: &WorkloadSetup) -> Result<Together, RunError> {
        let feature_gates = setup.feature_gates_flag();
        let release = release_with(&feature_gates)?;
        let args = CoreArgs {
            config: setup.scheduler_config.clone(),
            feature_gates,
            ..CoreArgs::default()
        };
        let mut options = scheduler::options_of_up(&args, release, self.registry.clone())
            .await
            .map_err(start_error)?;
        options.config.client_connection.qps = NO_LIMIT;
        let api = gates::api(&options.config.features(), &args.feature_gates);
        let server = Server::start(ServerOptions {
            admission: Admission {
                priority: false,
                service_account: false,
                taint_nodes_by_condition: false,
                ..Admission::default()
            },
            api,
            groups: gates::groups(&args.feature_gates),
            ..ServerOptions::default()
        })
        .await
        .map_err(|e| RunError::Start(e.to_string()))?;
        let selection = CONTROLLERS
            .parse()
            .map_err(|e: berth_controllers::UnknownController| RunError::Start(e.to_string()))?;
        let controllers = berth_controllers::spawn(
            server.api("kube-controller-manager"),
            berth_controllers::ControllerOptions {
                selection,
                groups: server.groups(),
                ..berth_controllers::ControllerOptions::default()
            },
        );
        let transport = control_plane::transport(&server, user_agent());
        let scheduling = Scheduling::over(transport.clone(), &options)
            .await
            .map_err(start_error)?;
        let probe = scheduling.probe();
        let ready = async {
            while !probe.is_ready() {
                sleep(LOOK_AGAIN).await;
            }
        };
        timeout(READY_LIMIT, ready)
            .await
            .map_err(|_| RunError::Start("the scheduler is not ready in time".to_owned()))?;
        Ok(Together {
            server,
            controllers,
            scheduling,
            transport: super::runner_transport(transport)?,
        })
    }
}

impl RunningCluster for Together {
    fn transport(&self) -> &Transport {
        &self.transport
    }

    fn processes(&self) -> Vec<Process> {
        vec![Process {
            name: "berth".to_owned(),
            pid: std::process::id(),
        }]
    }

    fn is_shared(&self) -> bool {
        false
    }

    fn scheduler_metrics(&self) -> ClusterFuture<'_, Option<String>> {
        Box::pin(async move {
            let snapshot = self.scheduling.probe().metrics().await?;
            Some(snapshot.render())
        })
    }

    fn ended(&mut self) -> ClusterFuture<'_, String> {
        Box::pin(async move {
            match self.scheduling.failed().await {
                CommandFailure::Environment(text) | CommandFailure::Usage(text) => text,
                other => format!("the scheduler ended: {other:?}"),
            }
        })
    }

    fn stop(self: Box<Self>) -> ClusterFuture<'static, ()> {
        Box::pin(async move {
            let stop = async {
                self.scheduling.stop().await;
                self.controllers.stop().await;
                self.server.shutdown().await;
            };
            let _ = timeout(STOP_LIMIT, stop).await;
        })
    }
}
