//! `cargo bench -p berth-perf --bench memory -- 100000 1000000`: the same as `berth perf memory`, without a build of
//! the whole command.

use berth_perf::memory::{self, MemoryPerfOptions};
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut numbers = std::env::args().filter_map(|arg| arg.parse().ok());
    let options = MemoryPerfOptions {
        nodes: numbers.next().unwrap_or(100_000),
        pods: numbers.next().unwrap_or(1_000_000),
    };
    match memory::run(&options) {
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
