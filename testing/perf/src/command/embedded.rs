//! `--embedded`: the control plane and the scheduler as processes of their own, over HTTPS.

use super::workloads::{Named, release_with};
use super::{CONTROLLERS, DISABLED_ADMISSION, user_agent};
use crate::child::ChildProcess;
use crate::scratch::Scratch;
use crate::workload::{
    ClusterFuture, Process, RunError, RunningCluster, WorkloadSetup, WorkloadTarget,
};
use berth_client::{ConnectOptions, Transport, connect, connect_to_component};
use berth_edge::exit::CommandFailure;
use std::path::{Path, PathBuf};

/// The way, with one build of berth.
pub(super) struct Embedded {
    program: PathBuf,
}

impl Embedded {
    /// With this program itself.
    ///
    /// # Errors
    /// When its file cannot be found.
    pub(super) fn this() -> Result<Self, CommandFailure> {
        let program = std::env::current_exe().map_err(|e| {
            CommandFailure::Environment(format!("failed to find this program: {e}"))
        })?;
        Ok(Self { program })
    }

    /// With another build.
    pub(super) fn of(program: &Path) -> Self {
        let program = program.to_owned();
        Self { program }
    }
}

impl Named for Embedded {
    fn name(&self) -> String {
        "embedded: separate processes over HTTPS".to_owned()
    }

    fn build(&self) -> String {
        self.program.display().to_string()
    }
}

/// A control plane and a scheduler.
pub(super) struct Processes {
    apiserver: ChildProcess,
    scheduler: ChildProcess,
    transport: Transport,
    scheduler_port: Transport,
    /// Removed last.
    _scratch: Scratch,
}

impl WorkloadTarget for Embedded {
    fn start<'a>(
        &'a self,
        setup: &'a WorkloadSetup,
    ) -> ClusterFuture<'a, Result<Box<dyn RunningCluster>, RunError>> {
        Box::pin(async { Ok(Box::new(self.started(setup).await?) as Box<dyn RunningCluster>) })
    }
}

impl Embedded {
    async fn started(&self, setup: &WorkloadSetup) -> Result<Processes, RunError> {
        let gates = setup.feature_gates_flag();
        let release = release_with(&gates)?;
        let scratch = Scratch::new()?;
        let kubeconfig = scratch.path("kubeconfig");
        let shown = kubeconfig.display().to_string();
        let args = [
            "apiserver",
            "--listen=127.0.0.1:0",
            "--metrics=127.0.0.1:0",
            &format!("--kubeconfig={shown}"),
            &format!("--controllers={CONTROLLERS}"),
            &format!("--disable-admission-plugins={DISABLED_ADMISSION}"),
            &format!("--emulated-version={release}"),
            &format!("--feature-gates={gates}"),
        ];
        let log = scratch.path("apiserver.log");
        let apiserver = ChildProcess::berth("apiserver", &self.program, &args, log).await?;
        let transport = connect(&ConnectOptions {
            kubeconfig: Some(kubeconfig.clone()),
            context: None,
            server: None,
            user_agent: user_agent(),
        })
        .await
        .map_err(|e| RunError::Start(e.to_string()))?;
        let transport = super::runner_transport(transport)?;
        let config = scratch.scheduler_config(setup.scheduler_config.as_deref(), &kubeconfig)?;
        let port = free_port()?;
        let args = [
            "scheduler",
            "--bind-address=127.0.0.1",
            &format!("--secure-port={port}"),
            &format!("--authentication-kubeconfig={shown}"),
            "--authorization-always-allow-paths=/*",
            &format!("--config={}", config.display()),
            &format!("--feature-gates={gates}"),
        ];
        let log = scratch.path("scheduler.log");
        let scheduler = ChildProcess::berth("scheduler", &self.program, &args, log).await?;
        let url = scheduler.greeted("serving ")?;
        let scheduler_port = connect_to_component(&kubeconfig, &url, &user_agent())
            .await
            .map_err(|e| RunError::Start(e.to_string()))?;
        super::until_ready(&scheduler_port).await?;
        Ok(Processes {
            apiserver,
            scheduler,
            transport,
            scheduler_port,
            _scratch: scratch,
        })
    }
}

/// A port that was free just before, because the scheduler does not accept port 0.
fn free_port() -> Result<u16, RunError> {
    std::net::TcpListener::bind("127.0.0.1:0")
        .and_then(|listener| listener.local_addr())
        .map(|address| address.port())
        .map_err(|e| RunError::Start(format!("failed to find a free port: {e}")))
}

impl RunningCluster for Processes {
    fn transport(&self) -> &Transport {
        &self.transport
    }

    fn processes(&self) -> Vec<Process> {
        let children = [self.apiserver.process(), self.scheduler.process()];
        children
            .into_iter()
            .flatten()
            .chain([Process::runner()])
            .collect()
    }

    fn is_shared(&self) -> bool {
        false
    }

    fn scheduler_metrics(&self) -> ClusterFuture<'_, Option<String>> {
        Box::pin(async move { super::scrape(&self.scheduler_port).await })
    }

    fn ended(&mut self) -> ClusterFuture<'_, String> {
        Box::pin(async move {
            tokio::select! {
                why = self.apiserver.ended() => why,
                why = self.scheduler.ended() => why,
            }
        })
    }

    fn stop(self: Box<Self>) -> ClusterFuture<'static, ()> {
        Box::pin(async move {
            self.scheduler.stop().await;
            self.apiserver.stop().await;
        })
    }
}
