//! `berth perf`: measures, and prints what was measured.

mod api;
mod args;
mod child;
mod embedded;
mod explain;
mod external;
mod in_process;
mod scratch;
mod workloads;

pub use args::PerfArgs;

use crate::core::{self, Row, Sides};
use crate::workload::RunError;
use crate::{dispatcher, memory, queue};
use args::{
    PerfCommand, PerfCoreArgs, PerfDispatcherArgs, PerfMemoryArgs, PerfQueueArgs, PerfSides,
};
use berth_api::Release;
use berth_client::Transport;
use berth_client::content::{ContentTypes, JSON};
use berth_client::request::ApiRequest;
use berth_edge::exit::CommandFailure;
use berth_edge::print::{self, Output, print_line};
use berth_edge::settings::{self, parse_gates};
use berth_framework::features::Versions;
use berth_framework::registry::Registry;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use std::fmt;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// The controllers that run beside workloads: those that upstream's harness runs, except its fake volume controller,
/// whose volumes are bound when they are created.
const CONTROLLERS: &str =
    "garbage-collector-controller,namespace-controller,resourceclaim-controller";
/// The admission plugins that upstream's harness disables.
const DISABLED_ADMISSION: &str = "Priority,ServiceAccount,TaintNodesByCondition";
/// The media types that the runner accepts.
const ACCEPTED: &str = "application/vnd.kubernetes.protobuf, application/json";
/// The time that a scheduler may take to list an empty cluster.
const READY_LIMIT: Duration = Duration::from_secs(60);
/// The pause between two looks whether it has.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// Measures.
///
/// # Errors
/// When the core does not do its work, or a workload gives no result.
pub fn run(args: &PerfArgs, registry: &Registry) -> Result<(), CommandFailure> {
    match &args.what {
        None => workloads::workloads(&args.workloads, registry),
        Some(PerfCommand::Core(args)) => run_core(args),
        Some(PerfCommand::Queue(args)) => run_queue(args),
        Some(PerfCommand::Dispatcher(args)) => run_dispatcher(args),
        Some(PerfCommand::Memory(args)) => run_memory(args),
        Some(PerfCommand::Explain(args)) => print_as(args.output, &explain::run(args, registry)?),
        Some(PerfCommand::Api(args)) => api::run(args),
    }
}

/// The name of the runner in the logs of the API server.
fn user_agent() -> String {
    format!("berth-perf/{}", env!("CARGO_PKG_VERSION"))
}

/// The connection of the runner. It sends JSON, and takes protobuf where the server has it: the server then encodes
/// each version of an object once, for the runner and for the scheduler.
fn runner_transport(transport: Transport) -> Result<Transport, RunError> {
    let content = ContentTypes::new(JSON, ACCEPTED).map_err(|e| RunError::Start(e.to_string()))?;
    Ok(transport.speaking(content))
}

fn read(path: &str) -> ApiRequest {
    berth_client::request::get_path(path)
}

/// The metrics that a component serves.
async fn scrape(port: &Transport) -> Option<String> {
    let answer = port.answer(&read("/metrics")).await.ok()?;
    Some(String::from_utf8_lossy(&answer.bytes).into_owned())
}

/// Waits until a scheduler has listed the cluster.
async fn until_ready(port: &Transport) -> Result<(), RunError> {
    let deadline = Instant::now() + READY_LIMIT;
    loop {
        match port.execute(&read("/readyz")).await {
            Ok(()) => return Ok(()),
            Err(error) if Instant::now() >= deadline => {
                return Err(RunError::Start(format!(
                    "the scheduler is not ready after {} s: {error}",
                    READY_LIMIT.as_secs()
                )));
            }
            Err(_) => sleep(LOOK_AGAIN).await,
        }
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

fn run_core(args: &PerfCoreArgs) -> Result<(), CommandFailure> {
    if args.nodes.contains(&0) || args.pods == 0 || args.plain_pods == Some(0) {
        return Err(CommandFailure::Usage(
            "--nodes, --pods and --plain-pods must be at least 1: there is nothing to measure"
                .to_owned(),
        ));
    }
    let mut warnings = Vec::new();
    let versions = Versions::of(Release::OLDEST);
    let features = parse_gates(&args.feature_gates, versions, &mut warnings)?;
    for warning in warnings {
        print::remark(format_args!("{warning}"));
    }
    let config = match &args.config {
        Some(file) => {
            let (config, warnings) =
                settings::read_config(file, features, &berth_plugins::in_tree(), |_| {})?;
            for warning in warnings {
                print::remark(format_args!("{warning}"));
            }
            Some(config)
        }
        None => None,
    };
    let options = core::CorePerfOptions {
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
        bound: args.bound,
        gated: args.gated,
        unschedulable: args.unschedulable,
        features,
        config,
    };
    let bar = ProgressBar::new(options.decisions() as u64);
    // A template that does not parse leaves the bar in its default style.
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
    .map_err(CommandFailure::environment)?;
    bar.finish_and_clear();
    print_as(args.output, &report)
}

fn run_queue(args: &PerfQueueArgs) -> Result<(), CommandFailure> {
    if args.waiting.is_empty() || args.events == 0 {
        return Err(CommandFailure::Usage(
            "--waiting needs a number, and --events must be at least 1: there is nothing to measure"
                .to_owned(),
        ));
    }
    let options = queue::QueuePerfOptions {
        waiting: args.waiting.clone(),
        events: args.events,
    };
    let bar = step_bar(options.steps());
    let report = queue::run(&options, |step| {
        bar.set_message(step);
        bar.inc(1);
    })
    .map_err(CommandFailure::environment)?;
    bar.finish_and_clear();
    print_as(args.output, &report)
}

fn run_dispatcher(args: &PerfDispatcherArgs) -> Result<(), CommandFailure> {
    let options = dispatcher::DispatcherPerfOptions {
        latency_millis: args.latency_millis,
        pods: args.pods,
        rejected: args.rejected,
    };
    options.check().map_err(CommandFailure::Usage)?;
    let bar = step_bar(options.steps());
    let report = dispatcher::run(&options, |step| {
        bar.set_message(step);
        bar.inc(1);
    })
    .map_err(CommandFailure::environment)?;
    bar.finish_and_clear();
    print_as(args.output, &report)
}

fn run_memory(args: &PerfMemoryArgs) -> Result<(), CommandFailure> {
    let options = memory::MemoryPerfOptions {
        nodes: args.nodes,
        pods: args.pods,
    };
    let bar = step_bar(options.objects());
    let report = memory::run(&options, || bar.inc(1)).map_err(CommandFailure::environment)?;
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

fn print_as(
    output: Output,
    report: &(impl Serialize + fmt::Display),
) -> Result<(), CommandFailure> {
    match output {
        Output::Json => {
            let json = serde_json::to_string_pretty(report).map_err(CommandFailure::environment)?;
            print_line!("{json}")
        }
        Output::Text => print::text(report),
    }
}
