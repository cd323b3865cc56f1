//! Plays the experiment and prints the table.
//!
//! ```text
//! gpu-fragmentation cluster-trace-gpu-v2023/csv --workload default --seeds 10
//! ```

// The program is the edge: it reads files, reads the clock and starts threads.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use berth_simulation::Trace;
use berth_simulation::import::read_openb;
use clap::Parser;
use gpu_fragmentation::chart;
use gpu_fragmentation::experiment::{Contender, Experiment};
use gpu_fragmentation::results::{Results, Row};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Instant;

/// How much of the GPUs of a cluster can pods use? Plays the experiment of the paper "Beware of Fragmentation" with the
/// scheduling core of Berth.
#[derive(Debug, Parser)]
struct Args {
    /// The directory with `openb_node_list_gpu_node.csv` and `openb_pod_list_WORKLOAD.csv`, plain or compressed by gzip
    traces: PathBuf,
    /// The workloads to play, separated by commas
    #[arg(long, value_delimiter = ',', default_value = "default")]
    workload: Vec<String>,
    /// The policies to play, separated by commas
    #[arg(long, value_delimiter = ',', default_value = "random,best-fit,fgd")]
    policy: Vec<Contender>,
    /// The number of seeds; each draws another order of the pods
    #[arg(long, default_value_t = 10)]
    seeds: u64,
    /// Write the results of each seed as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write a chart of the allocated share over the demand as SVG
    #[arg(long, value_name = "FILE")]
    chart: Option<PathBuf>,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("gpu-fragmentation: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<(), String> {
    let nodes = read(&args.traces, "openb_node_list_gpu_node")?;
    let mut experiments = Vec::new();
    for workload in &args.workload {
        let pods = read(&args.traces, &format!("openb_pod_list_{workload}"))?;
        let registry = gpu_fragmentation::registry().map_err(|e| e.to_string())?;
        let experiment = Experiment::new(nodes.clone(), pods, registry);
        experiments.push((workload.as_str(), experiment.map_err(|e| e.to_string())?));
    }
    let begun = Instant::now();
    let results = play(args, &experiments)?;
    print!("{results}");
    println!(
        "{} runs in {:.1} s; {:.2} s for a run, {:.2} s at most",
        results.rows.len(),
        begun.elapsed().as_secs_f64(),
        results.seconds_mean(),
        results.seconds_max(),
    );
    if let Some(path) = &args.json {
        let json = serde_json::to_string_pretty(&results).map_err(|e| e.to_string())?;
        write(path, &json)?;
    }
    if let Some(path) = &args.chart {
        write(path, &chart::svg(&results))?;
    }
    Ok(())
}

/// Plays every run, on one thread per processor.
fn play(args: &Args, experiments: &[(&str, Experiment)]) -> Result<Results, String> {
    let mut tasks = Vec::new();
    for (workload, experiment) in experiments {
        for contender in &args.policy {
            tasks.extend((0..args.seeds).map(|seed| (*workload, experiment, *contender, seed)));
        }
    }
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let next = AtomicUsize::new(0);
    let (sender, receiver) = mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..threads.min(tasks.len()) {
            let (sender, next, tasks) = (sender.clone(), &next, &tasks);
            scope.spawn(move || {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some((workload, experiment, contender, seed)) = tasks.get(at) else {
                        return;
                    };
                    let begun = Instant::now();
                    let played = experiment.play(*contender, *seed);
                    let row = played.map(|allocation| Row {
                        workload: (*workload).to_owned(),
                        policy: *contender,
                        seed: *seed,
                        seconds: begun.elapsed().as_secs_f64(),
                        allocation,
                    });
                    if sender.send((at, row)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        let mut rows = Vec::new();
        for (at, row) in receiver {
            let row = row.map_err(|e| e.to_string())?;
            rows.push((at, row));
        }
        rows.sort_by_key(|(at, _)| *at);
        let rows = rows.into_iter().map(|(_, row)| row).collect();
        Ok(Results { rows })
    })
}

/// Reads `NAME.csv` or `NAME.csv.gz`.
fn read(directory: &Path, name: &str) -> Result<Trace, String> {
    let plain = directory.join(format!("{name}.csv"));
    let packed = directory.join(format!("{name}.csv.gz"));
    let mut text = String::new();
    let (path, result) = if packed.exists() && !plain.exists() {
        let file = std::fs::File::open(&packed);
        let read = |file| flate2::read::GzDecoder::new(file).read_to_string(&mut text);
        (packed, file.and_then(read))
    } else {
        let read = std::fs::read_to_string(&plain).map(|read| text = read);
        (plain, read.map(|()| 0))
    };
    result.map_err(|error| {
        format!(
            "failed to read {}: {error}; get the trace from \
             https://github.com/alibaba/clusterdata/tree/master/cluster-trace-gpu-v2023/csv",
            path.display()
        )
    })?;
    read_openb(&text).map_err(|error| format!("{}: {error}", path.display()))
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(|e| format!("failed to write {}: {e}", path.display()))
}
