//! The table.

use super::{Compared, WorkloadReport, WorkloadRun};
use crate::stats::median;
use crate::workload::run::{ProcessUsage, WorkloadMeasured};
use std::collections::BTreeMap;
use std::fmt::{self, Formatter};

/// Threads with less CPU time are not shown: Linux counts it in hundredths of a second.
const CPU_SECONDS_SHOWN_FROM: f64 = 0.02;

pub(super) fn write(report: &WorkloadReport, f: &mut Formatter<'_>) -> fmt::Result {
    for run in &report.runs {
        write_run(run, f)?;
    }
    write_medians(report, f)?;
    write!(
        f,
        "{} of {} runs succeeded",
        report.succeeded(),
        report.runs.len()
    )?;
    for (count, what) in [
        (report.failed(), "failed"),
        (report.unsupported(), "cannot run here"),
        (report.missed(), "not within their threshold or limits"),
    ] {
        if count > 0 {
            write!(f, ", {count} {what}")?;
        }
    }
    write!(f, " ({})", report.target)
}

fn write_run(run: &WorkloadRun, f: &mut Formatter<'_>) -> fmt::Result {
    write!(f, "{}", run.name)?;
    if run.repetition > 1 {
        write!(f, " (run {})", run.repetition)?;
    }
    let outcome = match &run.result {
        Err(error) => return writeln!(f, "\n  error: {error}\n"),
        Ok(outcome) => outcome,
    };
    writeln!(
        f,
        "\n  {} bindings verified, {:.1} s ({:.1} s with start and stop)",
        outcome.bindings_verified,
        outcome.took.as_secs_f64(),
        run.took.as_secs_f64()
    )?;
    for measured in &outcome.measured {
        write_measured(run, measured, f)?;
    }
    writeln!(f)
}

fn write_measured(
    run: &WorkloadRun,
    measured: &WorkloadMeasured,
    f: &mut Formatter<'_>,
) -> fmt::Result {
    let name = if measured.name.is_empty() {
        "measured"
    } else {
        &measured.name
    };
    write!(
        f,
        "  {name}: {} pods scheduled in {:.2} s",
        measured.scheduled,
        measured.duration.as_secs_f64()
    )?;
    if let Some(overall) = measured.overall() {
        write!(f, ", {overall:.1} pods/s from the first to the last")?;
    }
    writeln!(f)?;
    match &measured.throughput {
        Some(b) => writeln!(
            f,
            "    throughput  pods/s  Average {:.1}  Perc50 {:.1}  Perc90 {:.1}  Perc95 {:.1}  Perc99 {:.1}  ({} samples)",
            b.average, b.perc50, b.perc90, b.perc95, b.perc99, measured.samples
        )?,
        None => writeln!(
            f,
            "    throughput  not measured: it was over within two readings; use more pods"
        )?,
    }
    if let Some(b) = &measured.latency {
        writeln!(
            f,
            "    create to bound  ms  Average {:.1}  Perc50 {:.1}  Perc90 {:.1}  Perc95 {:.1}  Perc99 {:.1}",
            b.average, b.perc50, b.perc90, b.perc95, b.perc99
        )?;
    }
    for process in &measured.processes {
        writeln!(
            f,
            "    {}  CPU {:.2} s{}, peak memory {:.0} MiB",
            process.name,
            process.cpu_seconds,
            per_pod(process.cpu_seconds * 1e3, measured.scheduled, " ms"),
            process.peak_bytes as f64 / f64::from(1 << 20)
        )?;
        write_threads(process, measured.scheduled, f)?;
    }
    let calls = measured.api_calls.map_or_else(
        || "unknown".to_owned(),
        |calls| format!("{calls}{}", per_pod(calls as f64, measured.scheduled, "")),
    );
    let counted = |count: Option<u64>, each: Option<f64>| match (count, each) {
        (Some(count), Some(each)) => format!("{count} ({each:.2} per pod)"),
        (Some(count), None) => count.to_string(),
        (None, _) => "unknown".to_owned(),
    };
    let attempts = counted(measured.attempts, measured.attempts_per_pod());
    let hints = counted(measured.hint_calls, measured.hint_calls_per_pod());
    writeln!(
        f,
        "    API calls {calls}, in addition to {} writes of the workload; scheduling attempts {attempts}; hint calls {hints}",
        measured.own_writes
    )?;
    for limit in &run.limits {
        let (name, most) = (limit.count.name(), limit.most);
        match limit.compare(measured) {
            Compared::Met { value } => {
                writeln!(f, "    limit {name} {most} met by {value:.2}")?;
            }
            Compared::Missed { value } => {
                writeln!(f, "    limit {name} {most} MISSED by {value:.2}")?;
            }
            Compared::None | Compared::NotMeasured => {
                writeln!(f, "    limit {name} {most} MISSED: not measured")?;
            }
        }
    }
    let threshold = run.threshold.as_ref().map_or(0.0, |t| t.value);
    match run.compare(measured) {
        Compared::None => Ok(()),
        Compared::Met { value } => {
            let times = value / threshold.max(f64::MIN_POSITIVE);
            writeln!(
                f,
                "    threshold {threshold} met by {value:.1}, {times:.1} times it"
            )
        }
        Compared::Missed { value } => writeln!(f, "    threshold {threshold} MISSED by {value:.1}"),
        Compared::NotMeasured => writeln!(f, "    threshold {threshold}: not measured"),
    }
}

/// Writes the threads that used CPU time, if there are several.
fn write_threads(process: &ProcessUsage, pods: u64, f: &mut Formatter<'_>) -> fmt::Result {
    let threads: Vec<String> = process
        .threads
        .iter()
        .filter(|(_, seconds)| **seconds >= CPU_SECONDS_SHOWN_FROM)
        .map(|(name, seconds)| {
            let each = per_pod(seconds * 1e3, pods, " ms");
            format!("{name} {seconds:.2} s{each}")
        })
        .collect();
    if threads.len() < 2 {
        return Ok(());
    }
    writeln!(f, "      of it {}", threads.join(", "))
}

fn per_pod(amount: f64, pods: u64, unit: &str) -> String {
    if pods == 0 {
        return String::new();
    }
    format!(" ({:.2}{unit} per pod)", amount / pods as f64)
}

/// Writes the medians of several runs.
fn write_medians(report: &WorkloadReport, f: &mut Formatter<'_>) -> fmt::Result {
    let mut rates: BTreeMap<String, (Vec<f64>, Vec<f64>)> = BTreeMap::new();
    for run in &report.runs {
        for measured in run.result.iter().flat_map(|outcome| &outcome.measured) {
            let (averages, overall) = rates
                .entry(format!("{} {}", run.name, measured.name))
                .or_default();
            averages.extend(measured.throughput.as_ref().map(|buckets| buckets.average));
            overall.extend(measured.overall());
        }
    }
    rates.retain(|_, (averages, overall)| averages.len().max(overall.len()) > 1);
    for (name, (averages, overall)) in &rates {
        let parts: Vec<String> = [(averages, ""), (overall, " from the first to the last")]
            .into_iter()
            .filter_map(|(values, what)| {
                let median = median(values)?;
                let least = values.iter().copied().fold(f64::MAX, f64::min);
                let most = values.iter().copied().fold(f64::MIN, f64::max);
                Some(format!(
                    "median of {} runs {median:.1} pods/s{what}, from {least:.1} to {most:.1}",
                    values.len()
                ))
            })
            .collect();
        writeln!(f, "{name}: {}", parts.join("; "))?;
    }
    if rates.is_empty() {
        return Ok(());
    }
    writeln!(f)
}
