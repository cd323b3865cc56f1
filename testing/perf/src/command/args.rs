//! The options of `berth perf`.

use crate::api::ApiPerfOptions;
use crate::core::CorePerfOptions;
use crate::dispatcher::DispatcherPerfOptions;
use crate::explain::ExplainPerfOptions;
use crate::memory::MemoryPerfOptions;
use crate::queue::QueuePerfOptions;
use berth_edge::print::Output;
use clap::{Args, Subcommand};
use regex::Regex;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;

/// `berth perf`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, arg_required_else_help = true)]
pub struct PerfArgs {
    /// The measurement.
    #[command(subcommand)]
    pub(crate) what: Option<PerfCommand>,
    /// Workload files.
    #[command(flatten)]
    pub(crate) workloads: PerfWorkloadArgs,
}

/// `berth perf FILE…`.
#[derive(Debug, Args)]
pub(crate) struct PerfWorkloadArgs {
    /// Workload files of scheduler_perf; each workload runs on a new cluster
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Run only workloads with a matching name (TESTCASE/WORKLOAD)
    #[arg(long, value_name = "REGEX")]
    pub(crate) filter: Option<Regex>,
    /// Run only workloads with each LABEL and without each -LABEL, separated by commas
    #[arg(
        long,
        value_name = "LABELS",
        value_delimiter = ',',
        allow_hyphen_values = true
    )]
    pub(crate) labels: Vec<String>,
    /// List the workloads without running them
    #[arg(long)]
    pub(crate) list: bool,
    /// Number of runs of each workload, interleaved
    #[arg(long, value_name = "N", default_value = "1")]
    pub(crate) repeat: NonZeroUsize,
    /// Write the results as JSON, with the data items of scheduler_perf
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) target: PerfTargetArgs,
    #[command(flatten)]
    pub(crate) gates: PerfGateArgs,
    /// Rate at which measured pods are created, in pods per second [default: as fast as the API server answers]
    #[arg(long, value_name = "N")]
    pub(crate) rate: Option<NonZeroU32>,
    /// Skip workloads with unsupported features instead of failing
    #[arg(long)]
    pub(crate) skip_unsupported: bool,
    /// Timeout of operations that wait for pods, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    pub(crate) wait_limit_seconds: u64,
    /// Seed of generated names
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
}

/// The feature gates of `berth perf FILE`.
#[derive(Debug, Args)]
pub(crate) struct PerfGateArgs {
    /// Feature gates of the scheduler in all workloads, as Name=true,Other=false
    #[arg(long, value_name = "GATES", value_delimiter = ',')]
    pub(crate) feature_gates: Vec<String>,
    /// Feature gates to compare, as Name=true,Other=false: each workload also runs with these gates, in turns
    #[arg(long, value_name = "GATES", value_delimiter = ',')]
    pub(crate) compare_gates: Vec<String>,
}

/// The target of a workload.
#[derive(Debug, Args)]
pub(crate) struct PerfTargetArgs {
    /// Run the scheduler and the control plane as separate processes, over HTTPS (the default)
    #[arg(long, conflicts_with_all = ["in_process", "kubeconfig"])]
    pub(crate) embedded: bool,
    /// Run the scheduler and the control plane in this process, without sockets
    #[arg(long, conflicts_with = "kubeconfig")]
    pub(crate) in_process: bool,
    /// Build of berth to compare: each workload also runs with this binary, in turns
    #[arg(long, value_name = "BINARY", conflicts_with_all = ["in_process", "kubeconfig"])]
    pub(crate) against: Option<PathBuf>,
    /// Run on the cluster of this kubeconfig; created objects are deleted at the end
    #[arg(long, value_name = "FILE", requires = "scheduler_command")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Command that starts the scheduler for each workload; {kubeconfig}, {config} and {feature-gates} are replaced
    #[arg(long, value_name = "CMD", requires = "kubeconfig")]
    pub(crate) scheduler_command: Option<String>,
    /// URL of the metrics of that scheduler, read with the credentials of the kubeconfig
    #[arg(long, value_name = "URL", requires = "scheduler_command")]
    pub(crate) scheduler_metrics: Option<String>,
    /// Additional process whose CPU time and memory are reported, for example the API server; may be repeated
    #[arg(long, value_name = "NAME=PID", requires = "scheduler_command")]
    pub(crate) pid: Vec<String>,
}

/// The measurements.
#[derive(Debug, Subcommand)]
pub(crate) enum PerfCommand {
    /// Measure the scheduling core alone, in generated clusters
    #[command(
        after_help = "Example: berth perf core --nodes 5000 --rows unconstrained,hard-spread"
    )]
    Core(Box<Measurement<PerfCoreArgs>>),
    /// Measure the scheduling queue: cost of events with many waiting pods
    #[command(after_help = "Example: berth perf queue --waiting 100,1000000")]
    Queue(Measurement<QueuePerfOptions>),
    /// Measure the cost of a slow API server for the scheduling loop, in virtual time
    #[command(after_help = "Example: berth perf dispatcher --latency-millis 20")]
    Dispatcher(Measurement<DispatcherPerfOptions>),
    /// Measure the memory of nodes and bound pods
    #[command(after_help = "Example: berth perf memory --nodes 100000 --pods 1000000")]
    Memory(Measurement<MemoryPerfOptions>),
    /// Measure explanations: latency, and the effect on the rate of decisions
    #[command(after_help = "Example: berth perf explain --nodes 5000 --pods 10000")]
    Explain(Measurement<ExplainPerfOptions>),
    /// Measure an API server with a data directory over HTTPS: writes, watches, lists and memory, with verification
    #[command(after_help = "Example: berth perf api --parts creates,writes --pods 20000")]
    Api(Measurement<ApiPerfOptions>),
}

/// A measurement with its options.
#[derive(Debug, Args)]
pub(crate) struct Measurement<T: Args> {
    #[command(flatten)]
    pub(crate) options: T,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    pub(crate) output: Output,
}

/// `berth perf core`.
#[derive(Debug, Args)]
pub(crate) struct PerfCoreArgs {
    #[command(flatten)]
    pub(crate) core: CorePerfOptions,
    /// Feature gates of the scheduler, as Name=true,Other=false
    #[arg(long, value_name = "GATES", default_value = "")]
    pub(crate) feature_gates: String,
    /// File with a KubeSchedulerConfiguration: measure its profiles. Its extenders are not called
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}
