//! The measured API server: a process without controllers.

use super::connection::ApiEndpoint;
use super::report::Cpu;
use super::{ApiPerfError, ApiPerfOptions};
use crate::child::ChildProcess;
use crate::scratch::Scratch;
use crate::workload::Process;
use std::path::PathBuf;

/// A server with a data directory of its own.
pub(super) struct MeasuredServer {
    running: ChildProcess,
    pub(super) endpoint: ApiEndpoint,
    program: PathBuf,
    /// Removed last.
    scratch: Scratch,
}

impl MeasuredServer {
    /// Starts the build with an empty data directory.
    pub(super) async fn start(options: &ApiPerfOptions) -> Result<Self, ApiPerfError> {
        let program = match &options.server {
            Some(program) => program.clone(),
            None => std::env::current_exe().map_err(ApiPerfError::start)?,
        };
        let folder = options.data.clone().unwrap_or_else(std::env::temp_dir);
        let scratch = Scratch::within(&folder).map_err(ApiPerfError::start)?;
        Self::start_in(program, scratch).await
    }

    async fn start_in(program: PathBuf, scratch: Scratch) -> Result<Self, ApiPerfError> {
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
        let running = running.map_err(ApiPerfError::start)?;
        let text = std::fs::read_to_string(&kubeconfig).map_err(ApiPerfError::start)?;
        Ok(Self {
            running,
            endpoint: ApiEndpoint::of_kubeconfig(&text)?,
            program,
            scratch,
        })
    }

    /// Kills it, and starts it again with the same data directory.
    pub(super) async fn killed_and_restarted(self) -> Result<Self, ApiPerfError> {
        self.running.stop().await;
        Self::start_in(self.program, self.scratch).await
    }

    /// CPU time so far, of the server and of this process.
    pub(super) fn cpu(&self) -> Cpu {
        let usage = self.running.process().and_then(|p| p.usage());
        Cpu::of(usage, Process::runner().usage())
    }

    /// The resident memory, in bytes.
    pub(super) fn resident(&self) -> u64 {
        let usage = self.running.process().and_then(|p| p.usage());
        usage.map_or(0, |u| u.resident_bytes)
    }
}
