//! `--kubeconfig` and `--scheduler-command`: any scheduler on any API server.

use super::args::PerfWorkloadArgs;
use super::user_agent;
use super::workloads::Named;
use crate::child::ChildProcess;
use crate::scratch::Scratch;
use crate::workload::{
    ClusterFuture, Process, RunError, RunningCluster, WorkloadSetup, WorkloadTarget,
};
use berth_client::request::{self, PODS};
use berth_client::{ConnectOptions, Transport, connect, connect_to_component};
use berth_edge::exit::CommandFailure;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// The time that the scheduler may take until it attempts its first pod.
const READY_LIMIT: Duration = Duration::from_secs(60);
/// The pause between two checks of that pod.
const LOOK_AGAIN: Duration = Duration::from_millis(200);
/// The namespace of that pod.
const PROBE_NAMESPACE: &str = "default";

/// The way.
pub(super) struct External {
    kubeconfig: PathBuf,
    command: String,
    metrics_url: Option<String>,
    processes: Vec<Process>,
}

impl External {
    /// The way that the command line describes.
    pub(super) fn new(args: &PerfWorkloadArgs, kubeconfig: &Path) -> Result<Self, CommandFailure> {
        let command = args.target.scheduler_command.clone().unwrap_or_default();
        for placeholder in ["{kubeconfig}", "{config}"] {
            if !command.contains(placeholder) && !command.contains("{config}") {
                return Err(CommandFailure::Usage(format!(
                    "--scheduler-command {command:?} does not use {placeholder}; the scheduler would not know the cluster"
                )));
            }
        }
        let processes = args
            .target
            .pid
            .iter()
            .map(|named| {
                let parsed = named.split_once('=').and_then(|(name, pid)| {
                    Some(Process {
                        name: name.to_owned(),
                        pid: pid.parse().ok()?,
                    })
                });
                parsed.ok_or_else(|| {
                    CommandFailure::Usage(format!(
                        "--pid: invalid process {named:?}; write NAME=PID"
                    ))
                })
            })
            .collect::<Result<_, _>>()?;
        Ok(Self {
            kubeconfig: kubeconfig.to_owned(),
            command,
            metrics_url: args.target.scheduler_metrics.clone(),
            processes,
        })
    }
}

impl Named for External {
    fn name(&self) -> String {
        format!("external: {}", self.command)
    }
}

/// A scheduler on an existing cluster.
pub(super) struct Attached {
    scheduler: ChildProcess,
    transport: Transport,
    scheduler_port: Option<Transport>,
    processes: Vec<Process>,
    _scratch: Scratch,
}

impl WorkloadTarget for External {
    fn start<'a>(
        &'a self,
        setup: &'a WorkloadSetup,
    ) -> ClusterFuture<'a, Result<Box<dyn RunningCluster>, RunError>> {
        Box::pin(async { Ok(Box::new(self.started(setup).await?) as Box<dyn RunningCluster>) })
    }
}

impl External {
    async fn started(&self, setup: &WorkloadSetup) -> Result<Attached, RunError> {
        let start = |e: berth_client::ConnectError| RunError::Start(e.to_string());
        let transport = connect(&ConnectOptions {
            kubeconfig: Some(self.kubeconfig.clone()),
            context: None,
            server: None,
            user_agent: user_agent(),
        })
        .await
        .map_err(start)?;
        let gates = setup.feature_gates_flag();
        if !gates.is_empty() && !self.command.contains("{feature-gates}") {
            return Err(RunError::Unsupported(format!(
                "the workload sets feature gates ({gates}); add --feature-gates={{feature-gates}} to --scheduler-command"
            )));
        }
        let scratch = Scratch::new()?;
        let kubeconfig = std::path::absolute(&self.kubeconfig)
            .map_err(|e| RunError::Start(format!("failed to find the kubeconfig: {e}")))?;
        let config = scratch.scheduler_config(setup.scheduler_config.as_deref(), &kubeconfig)?;
        let line = self
            .command
            .replace("{kubeconfig}", &quoted(&kubeconfig.display().to_string()))
            .replace("{config}", &quoted(&config.display().to_string()))
            .replace("{feature-gates}", &quoted(&gates));
        let mut scheduler = ChildProcess::shell("scheduler", &line, scratch.path("scheduler.log"))?;
        let scheduler_port = match &self.metrics_url {
            None => None,
            Some(url) => {
                let url = url.trim_end_matches("/metrics");
                let port = connect_to_component(&kubeconfig, url, &user_agent()).await;
                Some(port.map_err(start)?)
            }
        };
        tokio::select! {
            ready = until_attempting(&transport) => ready?,
            why = scheduler.ended() => return Err(RunError::Start(why)),
        }
        Ok(Attached {
            scheduler,
            transport: super::runner_transport(transport)?,
            scheduler_port,
            processes: self.processes.clone(),
            _scratch: scratch,
        })
    }
}

/// A word of the shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// Waits until the scheduler attempts pods: until a pod that fits on no node has a PodScheduled condition.
async fn until_attempting(transport: &Transport) -> Result<(), RunError> {
    let fail = |e: berth_client::ApiError| RunError::Start(e.to_string());
    let pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"generateName": "berth-perf-"},
        "spec": {
            "containers": [{"name": "pause", "image": "registry.k8s.io/pause:3.10.1"}],
            "nodeSelector": {"berth.io/no-such-node": "true"},
            "automountServiceAccountToken": false,
        },
    });
    let create = request::create(PODS, PROBE_NAMESPACE, &pod);
    let created: Value = transport.request(&create).await.map_err(fail)?;
    let name = created["metadata"]["name"].as_str().unwrap_or_default();
    let deadline = Instant::now() + READY_LIMIT;
    let ready = loop {
        let read = request::get(PODS, PROBE_NAMESPACE, name);
        let pod: Value = transport.request(&read).await.map_err(fail)?;
        let conditions = pod["status"]["conditions"].as_array();
        if conditions.is_some_and(|all| all.iter().any(|c| c["type"] == "PodScheduled")) {
            break Ok(());
        }
        if Instant::now() >= deadline {
            break Err(RunError::Start(format!(
                "the scheduler attempted no pod within {} s",
                READY_LIMIT.as_secs()
            )));
        }
        sleep(LOOK_AGAIN).await;
    };
    let uid = json!({"uid": created["metadata"]["uid"]});
    let delete = request::delete(PODS, PROBE_NAMESPACE, name, &uid);
    transport.execute(&delete).await.map_err(fail)?;
    ready
}

impl RunningCluster for Attached {
    fn transport(&self) -> &Transport {
        &self.transport
    }

    fn processes(&self) -> Vec<Process> {
        let mut processes = self.processes.clone();
        processes.extend(self.scheduler.process());
        processes.push(Process::runner());
        processes
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn scheduler_metrics(&self) -> ClusterFuture<'_, Option<String>> {
        Box::pin(async move { super::scrape(self.scheduler_port.as_ref()?).await })
    }

    fn ended(&mut self) -> ClusterFuture<'_, String> {
        Box::pin(async move { self.scheduler.ended().await })
    }

    fn stop(self: Box<Self>) -> ClusterFuture<'static, ()> {
        Box::pin(async move {
            self.scheduler.stop().await;
        })
    }
}
