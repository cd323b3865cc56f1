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
    if args.nodes.contains(&0) || args.pods == 0 || args.plain_pods == Some(0) {
        return Err(Failure::Usage(
            "--nodes, --pods and --plain-pods must be at least 1: there is nothing to measure"
                .to_owned(),
        ));
    }
    let options = core::Options {
        rows: if args.rows.is_empty() {
            Row::ALL.to_vec()
        } else {
            args.rows.clone()
        },
        nodes: args.nodes.clone(),
        pods: args.pods,
        seed: args.seed,
        plain_pods: args.plain_pods,
    };
    let bar = ProgressBar::new(options.decisions() as u64);
    if let Ok(style) = ProgressStyle::with_template("{msg} {bar:30} {pos}/{len} {elapsed}") {
        bar.set_style(style);
    }
    let mut running = None;
    let report = core::run(&options, |row, nodes| {
        if running != Some((row, nodes)) {
            running = Some((row, nodes));
            bar.set_message(format!("{row}, {nodes} nodes"));
        }
        bar.inc(1);
    })
    .map_err(Failure::environment)?;
    bar.finish_and_clear();
    match args.output {
        Output::Json => {
            let json = serde_json::to_string_pretty(&report).map_err(Failure::environment)?;
            println!("{json}");
        }
        Output::Text => print!("{report}"),
    }
    Ok(())
}
