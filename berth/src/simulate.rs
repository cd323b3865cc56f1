//! `berth simulate`: simulates a cluster over days, in virtual time.

mod cluster;
mod input;
mod priorities;
mod recording;
mod text;

use crate::cli::{SimulateArgs, SimulateOutput};
use berth_api::{Duration, Release, Time};
use berth_config::Config;
use berth_core::{PriorityClasses, with_groups};
use berth_edge::exit::CommandFailure;
use berth_edge::print;
use berth_edge::record::{options_with, recorded_gates, versions_of};
use berth_edge::settings;
use berth_framework::FeatureGates;
use berth_framework::features::Versions;
use berth_framework::registry::Registry;
use berth_recording::Start;
use berth_scheduler::SchedulerOptions;
use berth_simulation::report::{page, pods_csv, series_csv};
use berth_simulation::{Progress, Report, Run, SimulationOptions, Trace, simulate};
use indicatif::{ProgressBar, ProgressStyle};
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// The steps of the progress bar for each simulation.
const BAR_STEPS: u64 = 1_000;
/// Extenders cannot be asked about a cluster that does not exist.
const NO_EXTENDERS: &str = "the configuration has extenders, which simulations do not call; give one without extenders with --config";
/// The name of the configuration without a file.
const DEFAULT: &str = "default";

/// A trace with the options of the scheduler that it was recorded with, if it is a recording.
pub(crate) struct Input {
    pub(crate) trace: Trace,
    pub(crate) recorded: Option<Box<Start>>,
    /// The parts that the trace lacks.
    pub(crate) notes: Vec<String>,
    /// The PriorityClasses of all files.
    pub(crate) priority_classes: PriorityClasses,
    /// The end of the simulations as an offset from the start of the trace, if they do not end before.
    pub(crate) until: Option<Duration>,
}

/// Reads, simulates and prints.
///
/// # Errors
/// When a file cannot be read or is wrong.
pub(crate) fn run(args: &SimulateArgs, registry: &Registry) -> Result<(), CommandFailure> {
    let input = input::read(args)?;
    let configs: Vec<&Path> = match &args.config[..] {
        [] => vec![Path::new(DEFAULT)],
        some => some.iter().map(AsRef::as_ref).collect(),
    };
    let gates = gates(args, &input)?;
    for (at, config) in configs.iter().enumerate() {
        if configs[..at].contains(config) {
            return Err(CommandFailure::Usage(format!(
                "--config {} is given twice; give each configuration once, and --seeds N for more runs",
                config.display()
            )));
        }
    }
    // Every configuration is checked before the first simulation begins.
    for config in &configs {
        options(config, gates, &input, registry)?;
    }
    let last = args.seed.saturating_add(args.seeds.get() as u64 - 1);
    let jobs: Vec<(&Path, u64)> = configs
        .iter()
        .flat_map(|config| (args.seed..=last).map(|seed| (*config, seed)))
        .collect();
    let began = Instant::now();
    let runs = all_runs(
        args,
        &input,
        &jobs,
        |config| options(config, gates, &input, registry),
        registry,
    )?;
    let took = began.elapsed();
    let report = Report::new(runs);
    if let Some(file) = &args.html {
        write_page(file, &report)?;
    }
    match args.output {
        SimulateOutput::Table => {
            print::text(text::report(&report))?;
            for note in &input.notes {
                print::remark(format_args!("note: {note}"));
            }
            let attempts = report.runs.iter().map(|run| run.summary.attempts).sum();
            print::remark(text::speed(&report, attempts, took));
            Ok(())
        }
        SimulateOutput::Json => {
            let json = serde_json::to_string_pretty(&report);
            print::text(json.map_err(CommandFailure::environment)? + "\n")
        }
        SimulateOutput::Csv => print::text(series_csv(&report)),
        SimulateOutput::PodsCsv => print::text(pods_csv(&report)),
    }
}

/// Writes the report as a page.
fn write_page(file: &Path, report: &Report) -> Result<(), CommandFailure> {
    let page = page(report).map_err(CommandFailure::environment)?;
    std::fs::write(file, page).map_err(|e| {
        CommandFailure::Environment(format!("failed to write {}: {e}", file.display()))
    })
}

/// The gates of the command line or of the recording. Groups of pods are scheduled as such if there are some, unless the
/// command line names the gates.
fn gates(args: &SimulateArgs, input: &Input) -> Result<FeatureGates, CommandFailure> {
    if let Some(start) = &input.recorded
        && args.feature_gates.is_empty()
    {
        let versions = match args.emulated_version {
            Some(release) => Versions::of(release),
            None => versions_of(start)?,
        };
        return recorded_gates(start, versions);
    }
    let mut warnings = Vec::new();
    let versions = Versions::of(args.emulated_version.unwrap_or(Release::OLDEST));
    let features = settings::parse_gates(&args.feature_gates, versions, &mut warnings)?;
    for warning in warnings {
        tracing::warn!("{warning}");
    }
    Ok(if input.trace.groups.is_empty() {
        features
    } else {
        with_groups(features, &args.feature_gates)
    })
}

/// The options of the scheduler with a configuration.
fn options(
    config: &Path,
    gates: FeatureGates,
    input: &Input,
    registry: &Registry,
) -> Result<SchedulerOptions, CommandFailure> {
    let is_default = config == Path::new(DEFAULT);
    if let Some(start) = &input.recorded {
        let file = (!is_default).then_some(config);
        let options = options_with(start, gates, file, registry)?;
        if !options.extenders.is_empty() {
            return Err(CommandFailure::usage(NO_EXTENDERS));
        }
        return Ok(options);
    }
    let config = if is_default {
        Config::new(gates, registry)
    } else {
        let (config, warnings) = settings::read_config(config, gates, registry, |_| {})?;
        for warning in warnings {
            tracing::warn!("{warning}");
        }
        config
    };
    if !config.extenders.is_empty() {
        return Err(CommandFailure::usage(NO_EXTENDERS));
    }
    let mut options = SchedulerOptions::default();
    config.set_options(&mut options);
    Ok(options)
}

/// Runs all simulations, several at a time, and returns them in order.
fn all_runs(
    args: &SimulateArgs,
    input: &Input,
    jobs: &[(&Path, u64)],
    options: impl Fn(&Path) -> Result<SchedulerOptions, CommandFailure> + Sync,
    registry: &Registry,
) -> Result<Vec<Run>, CommandFailure> {
    let bar = progress_bar(jobs.len());
    bar.set_message(shown_date(input.trace.start()));
    let next = AtomicUsize::new(0);
    let worker = || {
        let mut done = Vec::new();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some((config, seed)) = jobs.get(at) else {
                return done;
            };
            done.push((
                at,
                one_run(args, input, config, *seed, &options, registry, &bar),
            ));
        }
    };
    let processors = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let threads = args.threads.unwrap_or(processors).get().min(jobs.len());
    let mut done: Vec<(usize, Result<Run, CommandFailure>)> = std::thread::scope(|scope| {
        let workers: Vec<_> = (1..threads).map(|_| scope.spawn(worker)).collect();
        let mut done = worker();
        for handle in workers {
            match handle.join() {
                Ok(more) => done.extend(more),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        done
    });
    bar.finish_and_clear();
    done.sort_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, run)| run).collect()
}

fn one_run(
    args: &SimulateArgs,
    input: &Input,
    config: &Path,
    seed: u64,
    options: &impl Fn(&Path) -> Result<SchedulerOptions, CommandFailure>,
    registry: &Registry,
    bar: &ProgressBar,
) -> Result<Run, CommandFailure> {
    let options = SimulationOptions {
        scheduler: options(config)?,
        config: config.display().to_string(),
        seed,
        until: input.until,
        pods: args.pods || args.output == SimulateOutput::PodsCsv,
        retry_without_events: args.retry_without_events,
    };
    let mut shown = 0;
    let mut show = |progress: Progress| {
        let pods = progress.pods.max(1) as u64;
        let steps = progress.arrived as u64 * BAR_STEPS / pods;
        bar.inc(steps.saturating_sub(shown));
        shown = steps;
        bar.set_message(shown_date(progress.now));
    };
    let run = simulate(&input.trace, options, registry, &mut show);
    let mut run = run.map_err(CommandFailure::usage)?;
    run.notes.clone_from(&input.notes);
    Ok(run)
}

/// A time for people, to the minute.
fn shown_date(time: Time) -> String {
    let date = time.rfc3339();
    date.get(..16).unwrap_or_default().replace('T', " ")
}

/// A bar with the simulated date, on standard error if it is a terminal.
fn progress_bar(simulations: usize) -> ProgressBar {
    let bar = ProgressBar::new(simulations as u64 * BAR_STEPS);
    let style = ProgressStyle::with_template("{msg} {bar:40} {percent} % {elapsed}");
    if let Ok(style) = style {
        bar.set_style(style);
    }
    bar
}
