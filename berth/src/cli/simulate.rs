//! Arguments of `berth simulate`.

use berth_api::Release;
use berth_simulation::Distribution;
use berth_simulation::span::Moment;
use clap::{Args, ValueEnum};
use std::num::NonZeroUsize;
use std::path::PathBuf;

/// `berth simulate`.
#[derive(Debug, Args)]
pub(crate) struct SimulateArgs {
    /// Pods that arrive and end, and nodes: a trace as CSV or YAML (CSV also with gzip), the objects of a cluster as
    /// kubectl get -A -o yaml prints them, the directory of a recording, a file of the openb trace of Alibaba (CSV), or a
    /// trace of SimKube (.sktrace); - is standard input
    #[arg(value_name = "TRACE", required = true)]
    pub(crate) trace: Vec<PathBuf>,
    /// Nodes: a file with nodes (CSV, a trace as YAML, Node objects), a number of nodes of 4 CPU and 32Gi, or
    /// NUMBER:RESOURCES such as 10:cpu=16,memory=64Gi,nvidia.com/gpu=8. They are added to the nodes of the trace
    #[arg(long, value_name = "FILE|N")]
    pub(crate) nodes: Vec<String>,
    /// Remove nodes: their names, or a number, of nodes that exist at the start, from the last name on
    #[arg(long, value_name = "N|NODES")]
    pub(crate) remove_nodes: Option<String>,
    /// Simulate with this KubeSchedulerConfiguration; several are compared. `default` is the default configuration, or
    /// that of the recording
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Vec<PathBuf>,
    /// The first seed of everything random
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) seed: u64,
    /// Simulate with this many seeds, and report means and standard deviations
    #[arg(long, value_name = "N", default_value = "1")]
    pub(crate) seeds: NonZeroUsize,
    /// End the simulation at this time: since the start of the trace, such as 7d, or a date such as
    /// 2026-01-31T12:00:00Z; otherwise it ends when nothing happens any more
    #[arg(long, value_name = "TIME", value_parser = Moment::parse)]
    pub(crate) until: Option<Moment>,
    /// The run time of pods for which the trace has none, such as 2h or lognormal(1h, 1); otherwise they do not end
    #[arg(long, value_name = "DISTRIBUTION", value_parser = Distribution::parse)]
    pub(crate) durations: Option<Distribution>,
    /// The time that calls of the scheduler take [default: of the trace, or 20ms]
    #[arg(long, value_name = "DISTRIBUTION", value_parser = Distribution::parse)]
    pub(crate) api_latency: Option<Distribution>,
    /// The time from the binding of a pod to the start of its containers [default: of the trace, or 1s]
    #[arg(long, value_name = "DISTRIBUTION", value_parser = Distribution::parse)]
    pub(crate) start_latency: Option<Distribution>,
    /// Try pods that no node accepts again every five minutes, as in production; such attempts rarely change anything
    #[arg(long)]
    pub(crate) retry_without_events: bool,
    /// Switch features on or off, as Name=true,Other=false
    #[arg(long, value_name = "GATES", default_value = "")]
    pub(crate) feature_gates: String,
    /// Schedule as this release of Kubernetes (1.36 to 1.38) [default: 1.36, or that of the recording]
    #[arg(long, value_name = "VERSION", value_parser = berth_edge::release::supported)]
    pub(crate) emulated_version: Option<Release>,
    /// Simulations to run at a time [default: one for each processor]
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<NonZeroUsize>,
    /// The JSON has each pod, too
    #[arg(long)]
    pub(crate) pods: bool,
    /// Also write the report as one HTML page with charts
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// The format of the report
    #[arg(short, long, value_enum, default_value_t = SimulateOutput::Table)]
    pub(crate) output: SimulateOutput,
}

/// The way in which the report of a simulation is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum SimulateOutput {
    /// For people.
    #[default]
    #[value(alias = "text")]
    Table,
    /// Everything, for programs.
    Json,
    /// The course of the simulation: a row for each interval.
    Csv,
    /// A row for each pod, as CSV.
    PodsCsv,
}
