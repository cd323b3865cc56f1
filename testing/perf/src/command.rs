//! `berth perf`: measures, and prints the results.

mod args;
mod embedded;
mod external;
mod in_process;
mod workloads;

pub use args::PerfArgs;

use crate::core::{self, CorePerfOptions};
use crate::workload::RunError;
use crate::{api, dispatcher, explain, memory, queue};
use args::{Measurement, PerfCommand, PerfCoreArgs};
use berth_api::Release;
use berth_client::Transport;
use berth_client::content::{ContentTypes, JSON};
use berth_client::request::ApiRequest;
use berth_edge::exit::CommandFailure;
use berth_edge::print::{self, Output, print_line};
use berth_edge::settings::{self, parse_gates};
use berth_framework::features::Versions;
use berth_framework::registry::Registry;
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use std::fmt;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// The controllers that run during workloads: the controllers of upstream's harness except its fake volume controller,
/// because volumes are bound when they are created.
const CONTROLLERS: &str =
    "garbage-collector-controller,namespace-controller,resourceclaim-controller";
/// The admission plugins that upstream's harness disables.
const DISABLED_ADMISSION: &str = "Priority,ServiceAccount,TaintNodesByCondition";
/// The media types that the runner accepts.
const ACCEPTED: &str = "application/vnd.kubernetes.protobuf, application/json";
/// The time that a scheduler may take to list an empty cluster.
const READY_LIMIT: Duration = Duration::from_secs(60);
/// The pause between two checks for a completed list.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// The interval at which the spinner turns.
const SPINNER_INTERVAL: Duration = Duration::from_millis(200);

/// Runs the requested measurements.
///
/// # Errors
/// When the core does not schedule the pods, or a workload has no result.
pub fn run(args: &PerfArgs, registry: &Registry) -> Result<(), CommandFailure> {
    let Some(command) = &args.what else {
        return workloads::workloads(&args.workloads, registry);
    };
    match command {
        PerfCommand::Core(core) => run_core(core),
        PerfCommand::Queue(queue) => queue.run(|options, progress| queue::run(options, progress)),
        PerfCommand::Dispatcher(dispatcher) => {
            dispatcher.run(|options, progress| dispatcher::run(options, progress))
        }
        PerfCommand::Memory(memory) => memory.run(|options, _| memory::run(options)),
        PerfCommand::Explain(explain) => explain.run(|options, _| explain::run(options, registry)),
        PerfCommand::Api(api) => api.run(|options, progress| api::run(options, progress)),
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

/// Measures the core with the feature gates and the configuration of the command line.
fn run_core(measurement: &Measurement<PerfCoreArgs>) -> Result<(), CommandFailure> {
    let args = &measurement.options;
    let mut warnings = Vec::new();
    let versions = Versions::of(Release::OLDEST);
    let features = parse_gates(&args.feature_gates, versions, &mut warnings)?;
    let config = match &args.config {
        Some(file) => {
            let (config, more) =
                settings::read_config(file, features, &berth_plugins::in_tree(), |_| {})?;
            warnings.extend(more);
            Some(config)
        }
        None => None,
    };
    for warning in warnings {
        print::remark(format_args!("{warning}"));
    }
    measurement.run(|args, progress| {
        let options = CorePerfOptions {
            features,
            config,
            ..args.core.clone()
        };
        core::run(&options, progress)
    })
}

impl<T: Args> Measurement<T> {
    /// Measures and prints the report.
    fn run<R: Serialize + fmt::Display, E: fmt::Display>(
        &self,
        measure: impl FnOnce(&T, &mut dyn FnMut(String)) -> Result<R, E>,
    ) -> Result<(), CommandFailure> {
        let bar = spinner("");
        let report = measure(&self.options, &mut |step| bar.set_message(step));
        bar.finish_and_clear();
        let report = report.map_err(CommandFailure::environment)?;
        match self.output {
            Output::Json => {
                let json =
                    serde_json::to_string_pretty(&report).map_err(CommandFailure::environment)?;
                print_line!("{json}")
            }
            Output::Text => print::text(report),
        }
    }
}

fn spinner(name: &str) -> ProgressBar {
    let bar = ProgressBar::new_spinner();
    // A template that does not parse leaves the default style.
    if let Ok(style) = ProgressStyle::with_template("{spinner} {prefix}  {elapsed}  {msg}") {
        bar.set_style(style);
    }
    bar.set_prefix(name.to_owned());
    bar.enable_steady_tick(SPINNER_INTERVAL);
    bar
}
