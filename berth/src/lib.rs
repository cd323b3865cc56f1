//! The berth command as a library: parses, wires, runs.
//!
//! A scheduler with plugins of one's own is a binary of a few lines: it takes [`Berth::new`], adds its plugins and
//! calls [`Berth::main`]. It then has every subcommand of berth, and its configuration can name the plugins.

// The command is the edge: it may ask the clock, open files and sockets, and start threads.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod campaign;
mod cli;
mod clusters;
mod conformance;
mod detach;
mod explain;
mod kubeconfig;
mod replay;
mod shadow_report;
mod simulate;
mod up;
mod upgrade;
mod version;
mod what_if;

use berth_edge::exit::CommandFailure;
use berth_edge::tasks::run;
use berth_edge::{logs, print, scheduler};
use berth_embedded::{apiserver, envtest};
use berth_framework::registry::{
    AlreadyRegistered, ArgsError, Extensions, FactoryContext, Registry,
};
use cli::Command;
use std::ffi::OsString;
use std::process::ExitCode;

/// A cluster within this process, for tests: control plane, simulated nodes and the scheduler, on their own threads.
///
/// The crate `berth-test` is the documented way to use it.
pub mod embedded {
    pub use berth_embedded::{ClusterError, ClusterOptions, EmbeddedCluster};
}

/// The API server allocates many small trees on one thread and frees them on another. jemalloc takes less CPU for that
/// than the allocators of glibc and musl, and unlike them returns the memory when it is unused
/// (docs/performance/log.md, *Embedded API server*). With the feature `heap-profile`, it samples the heap when Berth is
/// started with `_RJEM_MALLOC_CONF=prof:true`.
#[cfg(all(target_os = "linux", feature = "jemalloc"))]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// The command, with the plugins that a configuration may name.
#[derive(Debug, Clone)]
pub struct Berth {
    registry: Registry,
}

impl Default for Berth {
    fn default() -> Self {
        Self::new()
    }
}

impl Berth {
    /// The command with the in-tree plugins.
    pub fn new() -> Self {
        Self {
            registry: berth_plugins::in_tree(),
        }
    }

    /// Adds a plugin. `factory` makes it from its arguments.
    ///
    /// # Errors
    /// When there is a plugin of that name.
    pub fn with_plugin(
        mut self,
        name: &str,
        factory: impl Fn(&FactoryContext<'_>) -> Result<Extensions, ArgsError> + Send + Sync + 'static,
    ) -> Result<Self, AlreadyRegistered> {
        self.registry.register(name, factory)?;
        Ok(self)
    }

    /// Executes the command line and returns the exit code.
    pub fn main(self) -> ExitCode {
        let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
        let result = envtest::main(print::program(), &arguments, &self.registry)
            .unwrap_or_else(|| self.command());
        let code = match result {
            Ok(()) => ExitCode::SUCCESS,
            Err(failure) => print::failure(&failure),
        };
        logs::flush();
        code
    }

    fn command(self) -> Result<(), CommandFailure> {
        let cli = cli::parse(print::program());
        logs::init(cli.log_options());
        match cli.command {
            Command::Up(args) if args.placement.detach => detach::start(&args),
            Command::Up(args) => run(up::run(*args, self.registry)),
            Command::Down(args) => clusters::down(&args),
            Command::Get(args) => clusters::get(&args),
            Command::Version(args) => run(version::run(args)),
            Command::Completion(args) => version::completion(&args),
            Command::Man(args) => version::man(&args),
            Command::Scheduler(args) => scheduler::run(*args, self.registry),
            Command::WhatIf(args) => run(what_if::run(args, self.registry)),
            Command::Explain(args) => run(explain::run(args)),
            Command::Apiserver(args) => run(apiserver::run(args)),
            Command::Conformance(args) => conformance::run(&args),
            Command::Perf(args) => berth_perf::command::run(&args, &self.registry),
            Command::Campaign(args) => campaign::run(&args),
            Command::Simulate(args) => simulate::run(&args, &self.registry),
            Command::Replay(args) => replay::run(&args, &self.registry),
            Command::Shadow(args) => run(shadow_report::run(args)),
            Command::Envtest(args) => envtest::assets::run(&args),
        }
    }
}
