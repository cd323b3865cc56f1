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
        Command::Up(args) => runtime().and_then(|rt| rt.block_on(up::run(args))),
        Command::Scheduler(args) => runtime().and_then(|rt| rt.block_on(scheduler::run(args))),
        Command::Apiserver(args) => runtime().and_then(|rt| rt.block_on(apiserver::run(args))),
        Command::Conformance(args) => conformance::run(&args),
        _ => Ok(()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

/// The runtime of the edge.
fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|e| Failure::Environment(format!("failed to start threads: {e}")))
}
