//! `cargo bench -p berth-perf --bench core -- --nodes 5000 --rows unconstrained,mixed`: the same as `berth perf core`,
//! without a build of the whole command.

use berth_perf::core::{self, CorePerfOptions};
use clap::Parser;
use std::process::ExitCode;

#[derive(Parser)]
struct BenchArgs {
    #[command(flatten)]
    options: CorePerfOptions,
    /// Cargo adds this one
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> ExitCode {
    match core::run(&BenchArgs::parse().options, drop) {
        Ok(report) => {
            print!("{report}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
