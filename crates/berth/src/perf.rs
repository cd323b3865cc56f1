//! `berth perf`: measures, and prints what was measured.

use crate::cli::{Output, PerfArgs, PerfCommand, PerfCoreArgs};
use crate::exit::Failure;
use berth_perf::core::{self, Row};
use indicatif::{ProgressBar, ProgressStyle};

/// Measures.
///
/// # Errors
/// When the core does not do its work.
pub(crate) fn run(args: &PerfArgs) -> Result<(), Failure> {
    match &args.what {
        PerfCommand::Core(args) => run_core(args),
    }
}

fn run_core(args: &PerfCoreArgs) -> Result<(), Failure> {
    if args.nodes.contains(&0) || args.pods == 0 {
        return Err(Failure::Usage(
            "--nodes and --pods must be at least 1: there is nothing to measure".to_owned(),
        ));
    }
    let bar = ProgressBar::new((args.nodes.len() * args.pods) as u64);
    if let Ok(style) = ProgressStyle::with_template("{msg} {bar:30} {pos}/{len} {elapsed}") {
        bar.set_style(style);
    }
    let options = core::Options {
        nodes: args.nodes.clone(),
        pods: args.pods,
        seed: args.seed,
    };
    let rows = core::run(&options, |nodes, decisions| {
        if decisions % 256 == 0 {
            bar.set_message(format!("{nodes} nodes"));
            bar.inc(256);
        }
    })
    .map_err(Failure::environment)?;
    bar.finish_and_clear();
    match args.output {
        Output::Json => {
            let json = serde_json::to_string_pretty(&rows).map_err(Failure::environment)?;
            println!("{json}");
        }
        Output::Text => print_rows(&rows, args.seed),
    }
    Ok(())
}

fn print_rows(rows: &[Row], seed: u64) {
    println!("unconstrained pods, every node scored, calls answered at once, seed {seed}");
    println!(
        "{:>8} {:>8} {:>10} {:>9} {:>12} {:>11} {:>11}",
        "nodes", "pods", "scheduled", "seconds", "decisions/s", "median µs", "p99 µs"
    );
    for row in rows {
        println!(
            "{:>8} {:>8} {:>10} {:>9.2} {:>12.0} {:>11.1} {:>11.1}",
            row.nodes,
            row.pods,
            row.scheduled,
            row.seconds,
            row.decisions_per_second,
            row.decision_micros_median,
            row.decision_micros_p99
        );
    }
}
