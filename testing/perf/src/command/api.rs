//! `berth perf api`: measures `berth apiserver` as a process of its own.

use super::args::PerfApiArgs;
use super::child::ChildProcess;
use super::print_as;
use super::scratch::Scratch;
use crate::api::{
    ApiEndpoint, ApiPart, ApiPerfError, ApiPerfOptions, Server, Servers, run as measure,
};
use crate::workload::Process;
use berth_edge::exit::CommandFailure;
use berth_edge::tasks;
use std::path::PathBuf;

/// Measures.
///
/// # Errors
/// When the server cannot be started, or a verification fails.
pub(crate) fn run(args: &PerfApiArgs) -> Result<(), CommandFailure> {
    let program = match &args.server {
        Some(program) => program.clone(),
        None => std::env::current_exe().map_err(|e| {
            CommandFailure::Environment(format!("failed to find this program: {e}"))
        })?,
    };
    let builds = Builds {
        program,
        folder: args.data.clone().unwrap_or_else(std::env::temp_dir),
    };
    let options = ApiPerfOptions {
        parts: if args.parts.is_empty() {
            ApiPart::ALL.to_vec()
        } else {
            args.parts.clone()
        },
        connections: args.connections.get(),
        pods: args.pods.get(),
        watchers: args.watchers.get(),
        watched: args.watched.get(),
        listed: args.listed.get(),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|e| CommandFailure::Environment(format!("failed to start threads: {e}")))?;
    let bar = super::step_bar(options.parts.len());
    let report = tasks::block_on(
        &runtime,
        measure(&builds, &options, |part| {
            bar.set_message(part.to_string());
            bar.inc(1);
        }),
    );
    bar.finish_and_clear();
    runtime.shutdown_background();
    print_as(args.output, &report.map_err(CommandFailure::environment)?)
}

/// A build of berth, and where its data directories are made.
struct Builds {
    program: PathBuf,
    folder: PathBuf,
}

/// An API server without controllers.
struct ApiServer {
    running: ChildProcess,
    endpoint: ApiEndpoint,
    program: PathBuf,
    /// Removed last.
    scratch: Scratch,
}

impl ApiServer {
    async fn start(program: PathBuf, scratch: Scratch) -> Result<Self, ApiPerfError> {
        let fail = |e: &dyn std::fmt::Display| ApiPerfError::Start(e.to_string());
        let kubeconfig = scratch.path("kubeconfig");
        let args = [
            "apiserver",
            "--listen=127.0.0.1:0",
            "--metrics=127.0.0.1:0",
            "--controllers=off",
            &format!("--kubeconfig={}", kubeconfig.display()),
            &format!("--data-dir={}", scratch.path("data").display()),
        ];
        let log = scratch.path("apiserver.log");
        let running = ChildProcess::berth("apiserver", &program, &args, log).await;
        let running = running.map_err(|e| fail(&e))?;
        let text = std::fs::read_to_string(&kubeconfig).map_err(|e| fail(&e))?;
        Ok(Self {
            running,
            endpoint: ApiEndpoint::of_kubeconfig(&text)?,
            program,
            scratch,
        })
    }
}

impl Servers for Builds {
    type MeasuredServer = ApiServer;

    async fn start(&self) -> Result<ApiServer, ApiPerfError> {
        let scratch = Scratch::within(&self.folder);
        let scratch = scratch.map_err(|e| ApiPerfError::Start(e.to_string()))?;
        ApiServer::start(self.program.clone(), scratch).await
    }
}

impl Server for ApiServer {
    fn endpoint(&self) -> &ApiEndpoint {
        &self.endpoint
    }

    fn process(&self) -> Option<Process> {
        self.running.process()
    }

    async fn killed_and_restarted(self) -> Result<Self, ApiPerfError> {
        self.running.stop().await;
        Self::start(self.program, self.scratch).await
    }
}
