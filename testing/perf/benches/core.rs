//! `cargo bench -p berth-perf --bench core -- --nodes 5000 --rows unconstrained,mixed`: what `berth perf core` does,
//! without building the whole command.

use berth_framework::FeatureGates;
use berth_perf::core::{self, CorePerfOptions, Row, Sides};
use std::process::ExitCode;

fn main() -> ExitCode {
    match options(std::env::args().skip(1)) {
        Ok(options) => match core::run(&options, |_, _| {}) {
            Ok(report) => {
                print!("{report}");
                ExitCode::SUCCESS
            }
            Err(error) => fail(&error.to_string()),
        },
        Err(error) => fail(&error),
    }
}

fn fail(error: &str) -> ExitCode {
    eprintln!("{error}");
    ExitCode::FAILURE
}

fn options(mut args: impl Iterator<Item = String>) -> Result<CorePerfOptions, String> {
    let mut options = CorePerfOptions {
        rows: Row::ALL.to_vec(),
        nodes: vec![5_000],
        pods: 10_000,
        seed: 1,
        plain_pods: None,
        sides: Sides::Both,
        bound: 0,
        gated: 0,
        unschedulable: 0,
        features: FeatureGates::default(),
        config: None,
    };
    while let Some(flag) = args.next() {
        // Cargo adds this one.
        if flag == "--bench" {
            continue;
        }
        let value = args.next().ok_or_else(|| format!("{flag} needs a value"))?;
        let number = |text: &str| {
            text.parse::<usize>()
                .map_err(|e| format!("{flag} {text}: {e}"))
        };
        match flag.as_str() {
            "--nodes" => options.nodes = value.split(',').map(number).collect::<Result<_, _>>()?,
            "--pods" => options.pods = number(&value)?,
            "--bound" => options.bound = number(&value)?,
            "--plain-pods" => options.plain_pods = Some(number(&value)?),
            "--evaluator" => {
                options.sides = match value.as_str() {
                    "plain" => Sides::Plain,
                    "incremental" => Sides::Incremental,
                    "both" => Sides::Both,
                    _ => return Err(format!("{flag} is plain, incremental or both")),
                };
            }
            "--rows" => {
                let rows = value.split(',').map(str::parse);
                options.rows = rows.collect::<Result<_, _>>().map_err(|e| format!("{e}"))?;
            }
            _ => {
                return Err(format!(
                    "{flag} is not known; there are --nodes, --pods, --bound, --plain-pods, --evaluator and --rows"
                ));
            }
        }
    }
    Ok(options)
}
