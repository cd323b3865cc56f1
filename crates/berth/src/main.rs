//! The berth command: parses, wires, runs.

// The binary is the edge: it may ask the clock, open files and sockets, and start threads.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod apiserver;
mod apply;
mod cli;
mod conformance;
mod control_plane;
mod exit;
mod manifest;
mod perf;
mod runner;
mod scheduler;
mod serve;
mod signal;
mod up;

use clap::Parser;
use cli::{Cli, Command};
use exit::Failure;
use std::process::ExitCode;
use tracing_subscriber::EnvFilter;

fn main() -> ExitCode {
    let cli = Cli::parse();
    tracing_subscriber::fmt()
        .with_env_filter(
            EnvFilter::try_from_env("BERTH_LOG").unwrap_or_else(|_| EnvFilter::new("warn")),
        )
        .with_writer(std::io::stderr)
        .init();
    let result = match cli.command {
        Command::Up(args) => run(up::run(args)),
        Command::Scheduler(args) => run(scheduler::run(args)),
        Command::Apiserver(args) => run(apiserver::run(args)),
        Command::Conformance(args) => conformance::run(&args),
        Command::Perf(args) => perf::run(&args),
        _ => Ok(()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

/// Runs the edge. What is left over when it ends is not waited for.
fn run(main: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|e| Failure::Environment(format!("failed to start threads: {e}")))?;
    let result = runtime.block_on(main);
    runtime.shutdown_background();
    result
}
