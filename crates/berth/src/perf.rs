//! `berth perf`: measures, and prints what was measured.

use crate::cli::{
    Output, PerfArgs, PerfCommand, PerfCoreArgs, PerfDispatcherArgs, PerfMemoryArgs, PerfQueueArgs,
    PerfSides,
};
use crate::exit::Failure;
use crate::print::{self, say};
use berth_perf::core::{self, Row, Sides};
use berth_perf::{dispatcher, memory, queue};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use std::fmt;

/// Measures.
///
/// # Errors
/// When the core does not do its work.
pub(crate) fn run(args: &PerfArgs) -> Result<(), Failure> {
    match &args.what {
        PerfCommand::Core(args) => run_core(args),
        PerfCommand::Queue(args) => run_queue(args),
        PerfCommand::Dispatcher(args) => run_dispatcher(args),
        PerfCommand::Memory(args) => run_memory(args),
    }
}

impl From<PerfSides> for Sides {
    fn from(sides: PerfSides) -> Self {
        match sides {
            PerfSides::Plain => Self::Plain,
            PerfSides::Incremental => Self::Incremental,
            PerfSides::Both => Self::Both,
        }
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
        sides: args.evaluator.into(),
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
    print_as(args.output, &report)
}

fn run_queue(args: &PerfQueueArgs) -> Result<(), Failure> {
    let counts = [args.events, args.active, args.pairs];
    if args.waiting.is_empty() || counts.contains(&0) {
        return Err(Failure::Usage(
            "--waiting needs a number, and --events, --active and --pairs must be at least 1: there is nothing to \
             measure"
                .to_owned(),
        ));
    }
    let options = queue::Options {
        waiting: args.waiting.clone(),
        events: args.events,
        active: args.active,
        pairs: args.pairs,
        seed: args.seed,
    };
    let bar = step_bar(options.steps());
    let report = queue::run(&options, |step| {
        bar.set_message(step);
        bar.inc(1);
    })
    .map_err(Failure::environment)?;
    bar.finish_and_clear();
    print_as(args.output, &report)
}

fn run_dispatcher(args: &PerfDispatcherArgs) -> Result<(), Failure> {
    let options = dispatcher::Options {
        calls: args.calls,
        patches: args.patches,
        bindings: args.bindings,
    };
    options.check().map_err(Failure::Usage)?;
    let bar = step_bar(options.steps());
    let report = dispatcher::run(&options, |step| {
        bar.set_message(step);
        bar.inc(1);
    });
    bar.finish_and_clear();
    print_as(args.output, &report)
}

fn run_memory(args: &PerfMemoryArgs) -> Result<(), Failure> {
    let options = memory::Options {
        nodes: args.nodes,
        pods: args.pods,
    };
    let bar = step_bar(options.objects());
    let report = memory::run(&options, || bar.inc(1)).map_err(Failure::environment)?;
    bar.finish_and_clear();
    print_as(args.output, &report)
}

fn step_bar(steps: usize) -> ProgressBar {
    let bar = ProgressBar::new(steps as u64);
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} {elapsed} {msg}") {
        bar.set_style(style);
    }
    bar
}

fn print_as(output: Output, report: &(impl Serialize + fmt::Display)) -> Result<(), Failure> {
    match output {
        Output::Json => {
            let json = serde_json::to_string_pretty(report).map_err(Failure::environment)?;
            say!("{json}")
        }
        Output::Text => print::text(report),
    }
}
