//! The command line.

mod cluster;
mod recording;
mod simulate;
mod what_if;

pub(crate) use cluster::*;
pub(crate) use recording::{ExplainedAt, Moment};
pub(crate) use simulate::{SimulateArgs, SimulateOutput};
pub(crate) use what_if::WhatIfArgs;

use berth_api::Release;
use berth_edge::args::{CoreArgs, EvaluatorArg};
use berth_edge::discovery::KubeconfigArgs;
use berth_edge::flags::{self, Flags, Level};
use berth_edge::logs::LogOptions;
use berth_edge::print::{self, Output};
use berth_edge::release::supported;
use berth_embedded::args::{
    ApiserverArgs, ControlPlaneArgs, EnvtestArgs, LISTEN_DEFAULT, NodeArgs,
};
use berth_perf::command::PerfArgs;
use berth_simulator::Faults;
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::path::PathBuf;

/// The default address of the scheduler of `berth up`.
const METRICS_DEFAULT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 10251);

/// A Kubernetes scheduler with an embedded control plane.
#[derive(Debug, Parser)]
#[command(
    name = "berth",
    version,
    propagate_version = true,
    arg_required_else_help = true,
    after_help = "Exit codes: 0 success; 1 a check found problems; 2 invalid command line or input file; \
                  3 a failure of the environment (a busy port, an unwritable file, an unreachable cluster).\n\n\
                  Example: berth up --nodes 10"
)]
pub(crate) struct Cli {
    /// The command.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The command as this program has it.
pub(crate) fn command() -> clap::Command {
    named(Cli::command(), print::program())
}

/// Reads the command line of a program of this name. Ends the process when it is wrong, or asks for help.
pub(crate) fn parse(program: &'static str) -> Cli {
    let arguments = arguments(program, std::env::args_os().collect());
    let mut command = command();
    let matches = command.clone().get_matches_from(arguments);
    Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.format(&mut command).exit())
}

/// A program with one of these names is a scheduler, without a subcommand: a manifest of kube-scheduler needs only
/// another image.
const SCHEDULER_NAMES: [&str; 2] = ["kube-scheduler", "berth-scheduler"];

/// The arguments as they are read: under the name of a scheduler they are its flags, whose names may have underscores.
fn arguments(program: &str, mut arguments: Vec<OsString>) -> Vec<OsString> {
    if SCHEDULER_NAMES.contains(&program) && !arguments.is_empty() {
        arguments.insert(1, "scheduler".into());
    }
    if arguments
        .get(1)
        .is_some_and(|command| command == "scheduler")
    {
        for argument in &mut arguments[2..] {
            if let Some(text) = argument.to_str() {
                *argument = flags::normalized(text).into_owned().into();
            }
        }
    }
    if arguments.get(1).is_some_and(|command| command == "explain") {
        split_kind(&mut arguments);
    }
    arguments
}

/// `explain pod/NAME` is `explain pod NAME`: `kubectl get -o name` prints pods and nodes in this way.
fn split_kind(arguments: &mut Vec<OsString>) {
    const KINDS: [(&str, &str); 6] = [
        ("pod", "pod"),
        ("pods", "pod"),
        ("po", "pod"),
        ("node", "node"),
        ("nodes", "node"),
        ("no", "node"),
    ];
    let kind_of = |text: &str| KINDS.iter().find(|(name, _)| *name == text);
    for at in 2..arguments.len() {
        let text = arguments[at].to_str().unwrap_or_default();
        if kind_of(text).is_some() {
            return;
        }
        if let Some((kind, name)) = text.split_once('/')
            && let Some((_, kind)) = kind_of(kind)
        {
            let name = name.to_owned();
            arguments[at] = (*kind).into();
            arguments.insert(at + 1, name.into());
            return;
        }
    }
}

impl Cli {
    /// The way to log while the command runs.
    pub(crate) fn log_options(&self) -> LogOptions {
        match &self.command {
            Command::Scheduler(flags) => LogOptions::of_flags(flags),
            Command::Up(args) => LogOptions::console(args.v.map(Level)),
            Command::Apiserver(args) => LogOptions::console(args.v.map(Level)),
            _ => LogOptions::console(None),
        }
    }
}

/// The command as a program of this name has it: its examples can be copied.
fn named(mut command: clap::Command, program: &'static str) -> clap::Command {
    fn rename(mut command: clap::Command, program: &str) -> clap::Command {
        if let Some(help) = command.get_after_help() {
            let help = help.to_string().replace("berth ", &format!("{program} "));
            command = command.after_help(help);
        }
        command.mut_subcommands(|inner| rename(inner, program))
    }
    command = command.name(program);
    rename(command, program)
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Start a complete cluster: control plane, simulated nodes and the scheduler
    #[command(after_help = "Example: berth up --nodes 10 deployment.yaml\n\n\
        Then, in another terminal: export KUBECONFIG=berth.kubeconfig; kubectl get nodes\n\n\
        In the background, with a context in your kubeconfig: berth up -d --name dev --wait -f manifests/; \
        berth down --name dev stops it.")]
    Up(Box<UpArgs>),
    /// Stop a cluster with a name or in the background
    #[command(after_help = "Example: berth down --name dev")]
    Down(NamedArgs),
    /// List the clusters of this machine
    #[command(after_help = "Example: berth get clusters")]
    Get(GetArgs),
    /// Print the versions of this program and of the API server of the kubeconfig
    #[command(after_help = "Example: berth version --client")]
    Version(VersionArgs),
    /// Print shell completions
    #[command(
        after_help = "Example: berth completion bash > ~/.local/share/bash-completion/completions/berth"
    )]
    Completion(CompletionArgs),
    /// Write the manual pages of all commands into a directory
    #[command(after_help = "Example: berth man ~/.local/share/man/man1 && man berth-what-if")]
    Man(ManArgs),
    /// Start only the control plane, for any scheduler
    #[command(after_help = "Example: berth apiserver --listen 127.0.0.1:7443 --controllers off")]
    Apiserver(ApiserverArgs),
    /// Start only the scheduler, for any cluster
    #[command(
        after_help = "Example: berth scheduler --config scheduler.yaml -v=2\n         \
                      berth scheduler --config scheduler.yaml --check"
    )]
    Scheduler(Box<Flags>),
    /// Write a folder for KUBEBUILDER_ASSETS, with which envtest starts Berth instead of etcd and kube-apiserver
    #[command(after_help = "Example: berth envtest ~/.local/share/berth/envtest\n\n\
                      The command prints an export statement: eval \"$(berth envtest DIR)\"; go test ./...\n\n\
                      BERTH_CONTROLLERS=on, BERTH_NODES=10 and BERTH_SCHEDULER=on in the environment of the tests \
                      enable components that envtest does not have.")]
    Envtest(EnvtestArgs),
    /// Explain pending and bound pods, groups of pods, the free resources of a node, or the queue
    #[command(after_help = "Example: berth explain pod web-1\n         \
                      berth explain pod web-1 -n shop --output yaml\n         \
                      berth explain pod web-1 --when\n         \
                      berth explain node node-3\n         \
                      berth explain queue\n\n\
                      The kubeconfig of `up` contains the address of the scheduler. The default for other kubeconfigs is \
                      https://127.0.0.1:10259, a local or forwarded port.")]
    Explain(ExplainArgs),
    /// Run the scheduler over a changed copy of a cluster and report bindings, evictions and moves; writes nothing
    #[command(after_help = "Example: berth what-if -f changes.yaml\n         \
                      berth what-if --from dump.yaml --drain node-3,node-4\n         \
                      kubectl create deployment web --image=i --dry-run=client -o yaml | berth what-if -f -\n         \
                      berth what-if --fit web.yaml\n         \
                      berth what-if --add-nodes cpu=16,memory=64Gi\n         \
                      berth what-if --record /var/lib/berth/recordings --at 2026-01-31T12:00:00Z --drain node-3\n         \
                      berth what-if --consolidate -o json")]
    WhatIf(WhatIfArgs),
    /// Replay recorded answers of Kubernetes components
    #[command(
        after_help = "Example: berth conformance decisions testing/conformance/vectors/decisions.jsonl.gz"
    )]
    Conformance(ConformanceArgs),
    /// Simulate a cluster over days, in virtual time: pods that arrive and end, nodes that join and leave
    #[command(after_help = "Example: berth simulate trace.csv --nodes 10\n         \
                      berth simulate trace.yaml --config default --config most-allocated.yaml --seeds 10\n         \
                      berth simulate recordings --remove-nodes 2\n         \
                      kubectl get nodes,pods -A -o yaml | berth simulate - --durations 'exponential(2h)' -o csv")]
    Simulate(Box<SimulateArgs>),
    /// Run the core in seeded simulated clusters with faults and check its invariants
    #[command(
        after_help = "Example: berth campaign --seeds 2000 --steps 500\n         berth campaign --seed 42 --faults calls,failovers --trace"
    )]
    Campaign(CampaignArgs),
    /// Run the core over a recording of its inputs, and compare its decisions and calls with the recording
    #[command(
        after_help = "Example: berth scheduler --record /var/lib/berth/recordings\n         \
                      berth replay /var/lib/berth/recordings --break-at default/web-0"
    )]
    Replay(ReplayArgs),
    /// Print the agreement of Berth in shadow mode with the other scheduler
    #[command(after_help = "Example: berth shadow report --server https://127.0.0.1:10259")]
    Shadow(ShadowArgs),
    /// Run benchmarks
    #[command(
        after_help = "Example: berth perf --filter SchedulingBasic/500 performance-config.yaml\n         \
                      berth perf core --nodes 5000 --pods 10000"
    )]
    Perf(Box<PerfArgs>),
}

/// The output format of an explanation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum ExplainOutput {
    /// Readable text with tables.
    #[default]
    #[value(alias = "text")]
    Table,
    /// JSON.
    Json,
    /// YAML.
    Yaml,
}

/// `berth explain`.
#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// The object of the explanation.
    #[command(subcommand)]
    pub(crate) what: Explained,
    /// Namespace of the pod or group [default: the namespace of the kubeconfig's context]
    #[arg(short, long, global = true, value_name = "NAMESPACE")]
    pub(crate) namespace: Option<String>,
    /// Output format
    #[arg(short, long, global = true, value_enum, default_value_t = ExplainOutput::Table)]
    pub(crate) output: ExplainOutput,
    #[command(flatten)]
    pub(crate) port: SchedulerPortArgs,
}

/// The address of the port of a running scheduler.
#[derive(Debug, Args)]
pub(crate) struct SchedulerPortArgs {
    /// URL of the scheduler's port [default: from the kubeconfig]
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) server: Option<String>,
    #[command(flatten)]
    pub(crate) kubeconfig: KubeconfigArgs,
    /// Send credentials to a scheduler that is not on loopback, without verification of its certificate
    #[arg(long, global = true)]
    pub(crate) insecure_skip_tls_verify: bool,
}

/// The objects that can be explained.
#[derive(Debug, Subcommand)]
pub(crate) enum Explained {
    /// Explain why a pod is pending and which changes would free it, or why it is on its node
    #[command(alias = "pods", alias = "po")]
    Pod {
        /// The pod, as NAME or NAMESPACE/NAME
        name: String,
        /// Estimate when the pod starts, from the run times of earlier pods and from deadlines
        #[arg(long)]
        when: bool,
    },
    /// Explain why a group of pods has not started, the number of pods with room, and the changes with which it can
    /// start
    #[command(alias = "podgroups", alias = "pg")]
    Podgroup {
        /// The pod group, as NAME or NAMESPACE/NAME
        name: String,
    },
    /// Explain a composite pod group and its groups
    #[command(alias = "compositepodgroups", alias = "cpg")]
    Compositepodgroup {
        /// The composite pod group, as NAME or NAMESPACE/NAME
        name: String,
    },
    /// List the pods and free resources of a node, and the waiting pods that fit
    #[command(alias = "nodes", alias = "no")]
    Node {
        /// The node
        name: String,
    },
    /// List the waiting pods by reason and owner
    Queue,
    /// List the skew of workloads with topology spread constraints, now and without pods of former revisions
    Spread,
}

/// `berth up`.
#[derive(Debug, Args)]
pub(crate) struct UpArgs {
    /// Manifests to apply to the new cluster (YAML or JSON): files, directories, or - for standard input
    #[arg(value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Manifests to apply, as with kubectl apply
    #[arg(short, long, value_name = "FILE")]
    pub(crate) filename: Vec<PathBuf>,
    /// The place and the name of the process.
    #[command(flatten)]
    pub(crate) placement: PlacementArgs,
    /// Options of the control plane.
    #[command(flatten)]
    pub(crate) control_plane: ControlPlaneArgs,
    /// The shape of the nodes.
    #[command(flatten)]
    pub(crate) node: NodeArgs,
    /// Options of the scheduler.
    #[command(flatten)]
    pub(crate) core: CoreArgs,
    /// Address of the scheduler's /healthz and /metrics; port 0 selects a free port [default: 127.0.0.1:10251, with
    /// --name a free port]
    #[arg(long, value_name = "ADDR")]
    pub(crate) metrics: Option<SocketAddr>,
    /// Verbosity of the log [default: only warnings and errors]
    #[arg(short, long, value_name = "LEVEL")]
    pub(crate) v: Option<u8>,
}

impl UpArgs {
    /// All manifests.
    pub(crate) fn all_files(&self) -> Vec<PathBuf> {
        let files = self.filename.iter().chain(&self.files);
        files.cloned().collect()
    }

    /// Addresses of the API server and of the scheduler's port. Named clusters run in parallel, so they use free ports.
    pub(crate) fn addresses(&self) -> (SocketAddr, SocketAddr) {
        let default = |address: SocketAddr| match &self.placement.name {
            Some(name) if *name != ClusterName::default() => SocketAddr::new(address.ip(), 0),
            _ => address,
        };
        (
            self.control_plane.listen.unwrap_or(default(LISTEN_DEFAULT)),
            self.metrics.unwrap_or(default(METRICS_DEFAULT)),
        )
    }
}

/// The recorded answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Suite {
    /// One pod against one cluster.
    Decisions,
    /// Queueing hints of plugins.
    Hints,
    /// The scheduling queue.
    Queue,
    /// Creating and updating pods.
    Podapi,
    /// CEL expressions of device selectors.
    Cel,
    /// Allocations of devices to resource claims.
    Allocations,
    /// A transcript of an API server.
    Http,
}

/// `berth conformance`.
#[derive(Debug, Args)]
pub(crate) struct ConformanceArgs {
    /// The suite
    #[arg(value_enum)]
    pub(crate) suite: Suite,
    /// Files of JSON lines, gzip-compressed or plain
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Kubernetes version of the answers (1.36 to 1.38); changed answers are known for the recorded cases
    #[arg(long, value_name = "VERSION", default_value = "1.36", value_parser = supported)]
    pub(crate) emulated_version: Release,
    /// For decisions: replay only with this evaluator [default: both]
    #[arg(long, value_name = "KIND", value_enum)]
    pub(crate) evaluator: Option<EvaluatorArg>,
}

/// `berth campaign`.
#[derive(Debug, Args)]
pub(crate) struct CampaignArgs {
    /// Run this seed, for example to replay a failure; with --seeds, the first of several seeds
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// Number of seeds, starting at 0 or --seed [default: 100, or 1 with --seed]
    #[arg(long, value_name = "N")]
    pub(crate) seeds: Option<u64>,
    /// Start at a random seed, which is printed first
    #[arg(long, conflicts_with = "seed")]
    pub(crate) random: bool,
    /// Number of steps per run
    #[arg(long, value_name = "N", default_value_t = 500)]
    pub(crate) steps: usize,
    /// Faults: on, off, or a list of calls,watches,restarts,failovers
    #[arg(long, value_name = "FAULTS", default_value_t = Faults::ALL)]
    pub(crate) faults: Faults,
    /// Use only this evaluator [default: half of the seeds compare both, half use the plain evaluator]
    #[arg(long, value_name = "KIND", value_enum)]
    pub(crate) evaluator: Option<EvaluatorArg>,
    /// Number of seeds that run in parallel [default: the number of processors]
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<NonZeroUsize>,
    /// Print the events of the run of --seed on standard error: steps, watch events, decisions, calls
    #[arg(long, alias = "tell", requires = "seed", conflicts_with = "seeds")]
    pub(crate) trace: bool,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    pub(crate) output: Output,
}

/// `berth replay`.
#[derive(Debug, Args)]
pub(crate) struct ReplayArgs {
    /// The directory of the recording
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
    /// Run of the directory to replay [default: the last run]
    #[arg(long, value_name = "ID")]
    pub(crate) run: Option<u64>,
    /// Stop before the first input after this time: RFC 3339, or seconds since the beginning of the recording
    #[arg(long, value_name = "TIME")]
    pub(crate) until: Option<Moment>,
    /// Stop after the first decision about this pod (NAME or NAMESPACE/NAME), and print the decision
    #[arg(long, value_name = "POD")]
    pub(crate) break_at: Option<String>,
    /// Explain at the moment at which the replay stops: pod/NAME, pod/NAMESPACE/NAME, node/NAME or queue
    #[arg(long, value_name = "WHAT", conflicts_with = "config")]
    pub(crate) explain: Option<ExplainedAt>,
    /// Compare this configuration with the recorded configuration, in a model in which every call succeeds
    #[arg(long, value_name = "FILE", conflicts_with = "break_at")]
    pub(crate) config: Option<PathBuf>,
    /// Report, pod by pod, the different decisions of this Kubernetes version (1.36 to 1.38) and the responsible
    /// changes
    #[arg(long, value_name = "VERSION", conflicts_with_all = ["config", "break_at", "explain"])]
    pub(crate) emulated_version: Option<String>,
    /// Print all differences [default: the first 10]
    #[arg(long)]
    pub(crate) diff: bool,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    pub(crate) output: Output,
}

/// `berth shadow`.
#[derive(Debug, Args)]
pub(crate) struct ShadowArgs {
    /// The report to print.
    #[command(subcommand)]
    pub(crate) what: ShadowCommand,
}

/// The reports of shadow mode.
#[derive(Debug, Subcommand)]
pub(crate) enum ShadowCommand {
    /// Print the agreement since the start
    Report(ShadowReportArgs),
}

/// `berth shadow report`.
#[derive(Debug, Args)]
pub(crate) struct ShadowReportArgs {
    /// JSON of the path /shadow: a file, or - for standard input [default: request it from the running scheduler]
    #[arg(value_name = "FILE", conflicts_with_all = ["server", "kubeconfig"])]
    pub(crate) file: Option<PathBuf>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    pub(crate) output: Output,
    #[command(flatten)]
    pub(crate) port: SchedulerPortArgs,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_and_nodes_are_named_as_kubectl_prints_them() {
        for (given, read) in [
            ("explain pod/web-1", "explain pod web-1"),
            (
                "explain -n shop pods/web-1 -o json",
                "explain -n shop pod web-1 -o json",
            ),
            ("explain node/n1", "explain node n1"),
            ("explain pod shop/web-1", "explain pod shop/web-1"),
            ("explain pod pod/web-1", "explain pod pod/web-1"),
            ("explain queue", "explain queue"),
            ("explain deployment/web", "explain deployment/web"),
            ("what-if --drain node/n1", "what-if --drain node/n1"),
        ] {
            let split = |text: &str| -> Vec<OsString> {
                let words = std::iter::once("berth").chain(text.split(' '));
                words.map(OsString::from).collect()
            };
            assert_eq!(arguments("berth", split(given)), split(read), "{given}");
        }
    }
}
