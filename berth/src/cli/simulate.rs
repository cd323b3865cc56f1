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
    /// Remove nodes that exist at the start: their names, or a number of nodes, in descending order of their names
    #[arg(long, value_name = "N|NODES")]
    pub(crate) remove_nodes: Option<String>,
    /// Simulate with this KubeSchedulerConfiguration; several are compared. `default` is the recorded or else the
    /// default configuration
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Vec<PathBuf>,
    /// First seed of all random choices
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) seed: u64,
    /// Number of seeds; with several, means and standard deviations are reported
    #[arg(long, value_name = "N", default_value = "1")]
    pub(crate) seeds: NonZeroUsize,
    /// End of the simulation: a time since the start of the trace, such as 7d, or a date such as 2026-01-31T12:00:00Z
    /// [default: when nothing changes any more]
    #[arg(long, value_name = "TIME", value_parser = Moment::parse)]
    pub(crate) until: Option<Moment>,
    /// Run time of pods without a run time in the trace, such as 2h or lognormal(1h, 1) [default: unlimited]
    #[arg(long, value_name = "DISTRIBUTION", value_parser = Distribution::parse)]
    pub(crate) durations: Option<Distribution>,
    /// Latency of the scheduler's API calls [default: from the trace, or 20ms]
    #[arg(long, value_name = "DISTRIBUTION", value_parser = Distribution::parse)]
    pub(crate) api_latency: Option<Distribution>,
    /// Time from the binding of a pod to the start of its containers [default: from the trace, or 1s]
    #[arg(long, value_name = "DISTRIBUTION", value_parser = Distribution::parse)]
    pub(crate) start_latency: Option<Distribution>,
    /// Retry unschedulable pods every five minutes without an event, as in production; such attempts rarely change the
    /// result
    #[arg(long)]
    pub(crate) retry_without_events: bool,
    /// Feature gates, as Name=true,Other=false
    #[arg(long, value_name = "GATES", default_value = "")]
    pub(crate) feature_gates: String,
    /// Kubernetes version to schedule as (1.36 to 1.38) [default: from the recording, or 1.36]
    #[arg(long, value_name = "VERSION", value_parser = berth_edge::release::supported)]
    pub(crate) emulated_version: Option<Release>,
    /// Number of simulations that run in parallel [default: the number of processors]
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<NonZeroUsize>,
    /// Include each pod in the JSON report
    #[arg(long)]
    pub(crate) pods: bool,
    /// Also write the report as one HTML page with charts
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Format of the report
    #[arg(short, long, value_enum, default_value_t = SimulateOutput::Table)]
    pub(crate) output: SimulateOutput,
}

/// The format of a simulation's report.
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
