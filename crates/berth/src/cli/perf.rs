//! The options of `berth perf`.

use super::Output;
use berth_perf::api::ApiPart;
use berth_perf::core::Row;
use clap::{Args, Subcommand, ValueEnum};
use regex::Regex;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;

/// `berth perf`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, arg_required_else_help = true)]
pub(crate) struct PerfArgs {
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
    /// Workload files of scheduler_perf; each workload runs on a cluster of its own
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Run the workloads whose name (TESTCASE/WORKLOAD) matches
    #[arg(long, value_name = "REGEX")]
    pub(crate) filter: Option<Regex>,
    /// Run the workloads with these labels (LABEL) and without those (-LABEL), separated by commas
    #[arg(
        long,
        value_name = "LABELS",
        value_delimiter = ',',
        allow_hyphen_values = true
    )]
    pub(crate) labels: Vec<String>,
    /// List the workloads and run none
    #[arg(long)]
    pub(crate) list: bool,
    /// Run every workload so often; the runs are interleaved
    #[arg(long, value_name = "N", default_value = "1")]
    pub(crate) repeat: NonZeroUsize,
    /// Write the results as JSON, with the data items of scheduler_perf
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) target: PerfTargetArgs,
    #[command(flatten)]
    pub(crate) gates: PerfGateArgs,
    /// Create the measured pods at this rate, in pods per second, instead of as fast as the API server answers
    #[arg(long, value_name = "N")]
    pub(crate) rate: Option<NonZeroU32>,
    /// Skip workloads that need what the scheduler does not have, instead of failing
    #[arg(long)]
    pub(crate) skip_unsupported: bool,
    /// The time for which an operation waits for pods, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    pub(crate) wait_limit_seconds: u64,
    /// Seed of generated names
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
}

/// The feature gates of `berth perf FILE`.
#[derive(Debug, Args)]
pub(crate) struct PerfGateArgs {
    /// Set feature gates of the scheduler in all workloads, as Name=true,Other=false
    #[arg(long, value_name = "GATES", value_delimiter = ',')]
    pub(crate) feature_gates: Vec<String>,
    /// Run every workload with these feature gates too, in turns, to compare: Name=true,Other=false
    #[arg(long, value_name = "GATES", value_delimiter = ',')]
    pub(crate) compare_gates: Vec<String>,
}

/// The target of a workload.
#[derive(Debug, Args)]
pub(crate) struct PerfTargetArgs {
    /// Run the scheduler and the control plane as processes of their own, over HTTPS (the default)
    #[arg(long, conflicts_with_all = ["in_process", "kubeconfig"])]
    pub(crate) embedded: bool,
    /// Run the scheduler and the control plane in this process, without sockets
    #[arg(long, conflicts_with = "kubeconfig")]
    pub(crate) in_process: bool,
    /// Run every workload with this build of berth too, in turns, to compare the two
    #[arg(long, value_name = "BINARY", conflicts_with_all = ["in_process", "kubeconfig"])]
    pub(crate) against: Option<PathBuf>,
    /// Run on the cluster of this kubeconfig; what is created there is deleted afterwards
    #[arg(long, value_name = "FILE", requires = "scheduler_command")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Start this scheduler for each workload; {kubeconfig}, {config} and {feature-gates} are replaced
    #[arg(long, value_name = "CMD", requires = "kubeconfig")]
    pub(crate) scheduler_command: Option<String>,
    /// Read the metrics of that scheduler here, with the credentials of the kubeconfig
    #[arg(long, value_name = "URL", requires = "scheduler_command")]
    pub(crate) scheduler_metrics: Option<String>,
    /// Report CPU time and memory of this process too, for example of the API server; may be repeated
    #[arg(long, value_name = "NAME=PID", requires = "scheduler_command")]
    pub(crate) pid: Vec<String>,
}

/// The measurements.
#[derive(Debug, Subcommand)]
pub(crate) enum PerfCommand {
    /// The scheduling core alone, in generated clusters
    #[command(
        after_help = "Example: berth perf core --nodes 5000 --rows unconstrained,hard-spread"
    )]
    Core(PerfCoreArgs),
    /// The scheduling queue: what events cost while many pods wait, and how fast pods come and go
    #[command(after_help = "Example: berth perf queue --waiting 100,1000000")]
    Queue(PerfQueueArgs),
    /// Groups of pods: attempts of gangs, searches over racks, evictions, and what waiting gangs cost other pods
    #[command(after_help = "Example: berth perf groups --repeats 5")]
    Groups(PerfGroupsArgs),
    /// The dispatcher of API calls: how many it takes, whether bindings wait for status patches, and what a slow API
    /// server costs
    #[command(after_help = "Example: berth perf dispatcher --patches 100000")]
    Dispatcher(PerfDispatcherArgs),
    /// The memory that nodes and bound pods take
    #[command(after_help = "Example: berth perf memory --nodes 100000 --pods 1000000")]
    Memory(PerfMemoryArgs),
    /// The dashboard: what an open page costs the scheduler, and how many bytes it receives
    #[command(after_help = "Example: berth perf dashboard --nodes 5000 --pods 50000")]
    Dashboard(PerfDashboardArgs),
    /// Explanations: how long they take, and what they cost the pods that are scheduled meanwhile
    #[command(after_help = "Example: berth perf explain --nodes 5000 --pods 10000")]
    Explain(PerfExplainArgs),
    /// Plot results as SVG: throughput of the core over nodes, and CPU time per pod by part
    #[command(
        after_help = "Example: berth perf plot core.json workloads.json --directory docs/images"
    )]
    Plot(PerfPlotArgs),
    /// An API server with a data directory, through HTTPS: writes, watches, lists and memory, each verified
    #[command(after_help = "Example: berth perf api --parts creates,writes --pods 20000")]
    Api(PerfApiArgs),
}

/// `berth perf api`.
#[derive(Debug, Args)]
pub(crate) struct PerfApiArgs {
    /// The measured operations, each on a server of its own: creates, writes, watches, lists, recovery; all when absent
    #[arg(long, value_name = "PART", value_delimiter = ',')]
    pub(crate) parts: Vec<ApiPart>,
    /// Connections that write at the same time
    #[arg(long, value_name = "N", default_value = "64")]
    pub(crate) connections: NonZeroUsize,
    /// Pods that are created, and pods that are created and bound with an event
    #[arg(long, value_name = "N", default_value = "40000")]
    pub(crate) pods: NonZeroUsize,
    /// Watchers, each with a connection of its own
    #[arg(long, value_name = "N", default_value = "1000")]
    pub(crate) watchers: NonZeroUsize,
    /// Pods that are created while they watch
    #[arg(long, value_name = "N", default_value = "1000")]
    pub(crate) watched: NonZeroUsize,
    /// Pods that are listed
    #[arg(long, value_name = "N", default_value = "100000")]
    pub(crate) listed: NonZeroUsize,
    /// Start this build of berth instead of this one
    #[arg(long, value_name = "BINARY")]
    pub(crate) server: Option<PathBuf>,
    /// The directory for data directories, which decides what disk is measured; the temporary directory when absent
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// The format of the figures
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    pub(crate) output: Output,
}

/// `berth perf memory`.
#[derive(Debug, Args)]
pub(crate) struct PerfMemoryArgs {
    /// Nodes
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    pub(crate) nodes: usize,
    /// Pods that are bound to them
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    pub(crate) pods: usize,
    /// The format of the figures
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    pub(crate) output: Output,
}

/// `berth perf dashboard`.
#[derive(Debug, Args)]
pub(crate) struct PerfDashboardArgs {
    /// Nodes
    #[arg(long, value_name = "N", default_value_t = 5_000)]
    pub(crate) nodes: usize,
    /// Pods that fit on no node or are gated
    #[arg(long, value_name = "N", default_value_t = 50_000)]
    pub(crate) pods: usize,
    /// Pods that are bound
    #[arg(long, value_name = "N", default_value_t = 50_000)]
    pub(crate) bound: usize,
    /// The number of times that each question is answered
    #[arg(long, value_name = "N", default_value_t = 30)]
    pub(crate) rounds: usize,
    /// The format of the figures
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    pub(crate) output: Output,
}

/// `berth perf explain`.
#[derive(Debug, Args)]
pub(crate) struct PerfExplainArgs {
    /// Nodes
    #[arg(long, value_name = "N", default_value_t = 5_000)]
    pub(crate) nodes: usize,
    /// Pods that wait
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    pub(crate) pods: usize,
    /// Number of pods that are explained while no pod is scheduled
    #[arg(long, value_name = "N", default_value_t = 200)]
    pub(crate) rounds: usize,
    /// Number of turns with questions, and of turns without, that are compared
    #[arg(long, value_name = "N", default_value_t = 24)]
    pub(crate) turns: usize,
    /// The time that a turn takes, in milliseconds
    #[arg(long, value_name = "N", default_value_t = 500)]
    pub(crate) turn_milliseconds: u64,
    /// The format of the figures
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    pub(crate) output: Output,
}

/// `berth perf plot`.
#[derive(Debug, Args)]
pub(crate) struct PerfPlotArgs {
    /// Results of `berth perf core --output json` and of `berth perf --out`
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// The directory of the plots
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) directory: PathBuf,
}

/// The evaluators that are measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum PerfSides {
    /// The plain one
    Plain,
    /// The incremental one
    Incremental,
    /// Both, and how they compare
    Both,
}

/// `berth perf queue`.
#[derive(Debug, Args)]
pub(crate) struct PerfQueueArgs {
    /// Pods that wait for something else, one or more numbers to compare in one run
    #[arg(
        long,
        value_name = "N",
        value_delimiter = ',',
        default_value = "100,10000,1000000"
    )]
    pub(crate) waiting: Vec<usize>,
    /// The number of times that each event is raised
    #[arg(long, value_name = "N", default_value_t = 400)]
    pub(crate) events: usize,
    /// Active pods while pods come and go
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    pub(crate) active: usize,
    /// Pods that come and go
    #[arg(long, value_name = "N", default_value_t = 500_000)]
    pub(crate) pairs: usize,
    /// Seed of the pods' priorities
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// The format of the figures
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    pub(crate) output: Output,
}

/// `berth perf groups`.
#[derive(Debug, Args)]
pub(crate) struct PerfGroupsArgs {
    /// Measurements of each row; rows of small groups are measured 40 times as often
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub(crate) repeats: usize,
    /// Divide the sizes of clusters and groups by this number, for a quick look
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) divide: usize,
    /// Seed of the scheduler
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// How to print the figures
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    pub(crate) output: Output,
}

/// `berth perf dispatcher`.
#[derive(Debug, Args)]
pub(crate) struct PerfDispatcherArgs {
    /// Calls handed in to see how many it takes a second; it holds at most 131072 status patches
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    pub(crate) calls: usize,
    /// Status patches that are pending while bindings are made
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    pub(crate) patches: usize,
    /// Bindings that are made
    #[arg(long, value_name = "N", default_value_t = 5_000)]
    pub(crate) bindings: usize,
    /// Latency of a call to the slow API server, in milliseconds of virtual time
    #[arg(long, value_name = "MS", default_value_t = 20)]
    pub(crate) latency_millis: u64,
    /// Pods that are bound beside writes of pod status
    #[arg(long, value_name = "N", default_value_t = 2_000)]
    pub(crate) pods: usize,
    /// Pods that a PreEnqueue plugin rejects
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    pub(crate) rejected: usize,
    /// The format of the figures
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    pub(crate) output: Output,
}

/// `berth perf core`.
#[derive(Debug, Args)]
pub(crate) struct PerfCoreArgs {
    /// Nodes, one or more sizes to compare in one run
    #[arg(
        long,
        value_name = "N",
        value_delimiter = ',',
        default_value = "1000,5000"
    )]
    pub(crate) nodes: Vec<usize>,
    /// Pods to schedule at each size
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    pub(crate) pods: usize,
    /// The rows to measure; all rows when absent
    #[arg(long, value_name = "ROW", value_delimiter = ',')]
    pub(crate) rows: Vec<Row>,
    /// Number of pods that the plain evaluator decides, which is slow; by the size of the cluster when absent
    #[arg(long, value_name = "N")]
    pub(crate) plain_pods: Option<usize>,
    /// Running pods on the nodes before anything is measured, beside those of the row
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) bound: usize,
    /// Pods with scheduling gates that wait meanwhile
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) gated: usize,
    /// Pods that no node accepts that wait meanwhile
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) unschedulable: usize,
    /// Measure what events cost, and the decision after each, when the pods are scheduled
    #[arg(long)]
    pub(crate) events: bool,
    /// The evaluator that decides
    #[arg(long, value_enum, default_value_t = PerfSides::Both)]
    pub(crate) evaluator: PerfSides,
    /// Switch features of the scheduler on or off, as Name=true,Other=false
    #[arg(long, value_name = "GATES", default_value = "")]
    pub(crate) feature_gates: String,
    /// Seed of the generated cluster
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// The format of the figures
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    pub(crate) output: Output,
}
