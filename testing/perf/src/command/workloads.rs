//! `berth perf FILE…`: runs workload files of scheduler_perf and prints the results.

use super::args::PerfWorkloadArgs;
use super::embedded::Embedded;
use super::external::External;
use super::in_process::InProcess;
use super::spinner;
use crate::workload::report::{WorkloadReport, WorkloadRun, data_items};
use crate::workload::{
    RunError, RunOptions, Selection, Workload, WorkloadProgress, WorkloadTarget, read_file, run,
};
use berth_api::Release;
use berth_edge::exit::CommandFailure;
use berth_edge::print::{self, print_line};
use berth_edge::signal::{STOP_PATIENCE, StopSignals};
use berth_edge::tasks;
use berth_framework::features::Versions;
use berth_framework::registry::Registry;
use std::num::NonZeroU32;
use std::pin::pin;
use std::time::{Duration, Instant};

/// Runs the workloads.
///
/// # Errors
/// When a file is invalid, no workload is selected, or a run has no result or misses its threshold.
pub(crate) fn workloads(
    args: &PerfWorkloadArgs,
    registry: &Registry,
) -> Result<(), CommandFailure> {
    let mut workloads = Vec::new();
    for file in &args.files {
        workloads.extend(read_file(file).map_err(CommandFailure::usage)?);
    }
    let selection = Selection {
        filter: args.filter.clone(),
        labels: args.labels.clone(),
    };
    workloads.retain(|workload| selection.takes(workload));
    if workloads.is_empty() {
        return Err(CommandFailure::Usage(
            "no workload is selected; see the workloads with --list, and change --filter or --labels"
                .to_owned(),
        ));
    }
    if args.list {
        return list(&workloads);
    }
    let gates = parse_gates("--feature-gates", &args.gates.feature_gates)?;
    for workload in &mut workloads {
        workload.feature_gates.extend(gates.clone());
    }
    let compared = parse_gates("--compare-gates", &args.gates.compare_gates)?;
    if !compared.is_empty() {
        workloads = workloads
            .into_iter()
            .flat_map(|workload| {
                let other = with_gates(&workload, &compared);
                [workload, other]
            })
            .collect();
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|e| CommandFailure::Environment(format!("failed to start threads: {e}")))?;
    let (report, interruption) = tasks::block_on(&runtime, async {
        if let Some(kubeconfig) = &args.target.kubeconfig {
            run_all(&[&External::new(args, kubeconfig)?], args, &workloads).await
        } else if args.target.in_process {
            run_all(&[&InProcess::new(registry.clone())], args, &workloads).await
        } else {
            let other = args.target.against.as_deref().map(Embedded::of);
            let builds: Vec<Embedded> = [Embedded::this()?].into_iter().chain(other).collect();
            let builds: Vec<&dyn Named> = builds.iter().map(|build| build as _).collect();
            run_all(&builds, args, &workloads).await
        }
    })?;
    runtime.shutdown_background();
    print_line!("{report}")?;
    if let Some(path) = &args.out {
        let json = serde_json::to_string_pretty(&data_items(&report))
            .map_err(CommandFailure::environment)?;
        std::fs::write(path, json).map_err(|e| {
            CommandFailure::Environment(format!(
                "failed to write results to {}: {e}",
                path.display()
            ))
        })?;
    }
    if let Some(why) = interruption {
        return Err(CommandFailure::Environment(format!(
            "berth perf was {why}: the runs above had ended, the others are missing"
        )));
    }
    let unsupported = if args.skip_unsupported {
        0
    } else {
        report.unsupported()
    };
    if report.failed() + report.missed() + unsupported > 0 {
        return Err(CommandFailure::Check);
    }
    Ok(())
}

fn list(workloads: &[Workload]) -> Result<(), CommandFailure> {
    for workload in workloads {
        let labels = workload.labels.join(",");
        print_line!("{}  [{labels}]", workload.full_name())?;
    }
    Ok(())
}

/// Runs the workloads on each target. Targets and repetitions alternate, so that other load of the machine affects all
/// workloads alike. If the process receives a signal to stop, the current run is dropped with its processes. Returns
/// the completed runs, and the reason for the missing ones.
async fn run_all(
    targets: &[&dyn Named],
    args: &PerfWorkloadArgs,
    workloads: &[Workload],
) -> Result<(WorkloadReport, Option<&'static str>), CommandFailure> {
    let mut stop = pin!(StopSignals::listen()?.stop_requested(STOP_PATIENCE));
    let mut report = WorkloadReport {
        target: targets
            .first()
            .map_or_else(String::new, |target| target.name())
            + &at_rate(args.rate),
        runs: Vec::new(),
    };
    for repetition in 1..=args.repeat.get() {
        for (workload, target) in workloads
            .iter()
            .flat_map(|w| targets.iter().map(move |t| (w, t)))
        {
            let mut name = workload.full_name();
            if targets.len() > 1 {
                name += &format!(" with {}", target.build());
            }
            let bar = spinner(&format!("{name} ({repetition})"));
            let begun = Instant::now();
            let options = RunOptions {
                wait_limit: Duration::from_secs(args.wait_limit_seconds),
                seed: args.seed.wrapping_add(repetition as u64),
                pods_per_second: args.rate,
                ..RunOptions::default()
            };
            let shown = bar.clone();
            let progress = move |at: WorkloadProgress| {
                shown.set_message(format!(
                    "op {}/{} {}, {} of {} pods bound",
                    at.op + 1,
                    at.ops,
                    at.opcode,
                    at.bound,
                    at.pods
                ));
            };
            let result = tokio::select! {
                result = run(*target, workload, &options, &progress) => result,
                why = &mut stop => {
                    bar.finish_and_clear();
                    return Ok((report, Some(why)));
                }
            };
            bar.finish_and_clear();
            remark(&name, repetition, &result);
            let took = begun.elapsed();
            report.runs.push(WorkloadRun {
                name,
                ..WorkloadRun::new(workload, repetition, result, took)
            });
        }
    }
    Ok((report, None))
}

/// The description of the rate of creation for reports.
fn at_rate(rate: Option<NonZeroU32>) -> String {
    rate.map_or_else(String::new, |rate| {
        format!("; measured pods are created at {rate}/s")
    })
}

/// Writes one line for a completed run, as progress of a long command.
fn remark<T>(name: &str, repetition: usize, result: &Result<T, RunError>) {
    match result {
        Ok(_) => print::remark(format_args!("ok    {name} ({repetition})")),
        Err(error) => print::remark(format_args!("error {name} ({repetition}): {error}")),
    }
}

/// A target with a name for reports.
pub(super) trait Named: WorkloadTarget {
    /// The name.
    fn name(&self) -> String;

    /// The build of berth; empty if there is only one.
    fn build(&self) -> String {
        String::new()
    }
}

/// Reads gates of the command line.
fn parse_gates(flag: &str, gates: &[String]) -> Result<Vec<(String, bool)>, CommandFailure> {
    gates
        .iter()
        .map(|gate| {
            let parsed = gate
                .split_once('=')
                .and_then(|(name, on)| Some((name.to_owned(), on.parse().ok()?)));
            parsed.ok_or_else(|| {
                CommandFailure::Usage(format!(
                    "{flag}: invalid gate {gate:?}; write Name=true or Name=false"
                ))
            })
        })
        .collect()
}

/// The same workload with other gates, which are added to its name.
fn with_gates(workload: &Workload, gates: &[(String, bool)]) -> Workload {
    let mut other = workload.clone();
    other.feature_gates.extend(gates.iter().cloned());
    let shown: Vec<String> = gates
        .iter()
        .map(|(name, on)| format!("{name}={on}"))
        .collect();
    other.name += &format!(" with {}", shown.join(","));
    other
}

/// The oldest release that has the gates of a workload. The workload runs on it.
///
/// # Errors
/// When no release of Berth has them.
pub(super) fn release_with(gates: &str) -> Result<Release, RunError> {
    // Warnings concern gates that are always on in Berth.
    let has = |release: Release| {
        berth_edge::settings::parse_gates(gates, Versions::of(release), &mut Vec::new())
            .map(|_| release)
    };
    let tried = Release::ALL.into_iter().map(has);
    let answer = tried.reduce(|older, newer| older.or(newer));
    answer
        .unwrap_or(Ok(Release::OLDEST))
        .map_err(|failure| match failure {
            CommandFailure::Usage(text) => RunError::Unsupported(text),
            other => RunError::Unsupported(format!("{other:?}")),
        })
}
