//! Arguments of `berth what-if`.

use super::{ExplainOutput, Moment};
use berth_edge::discovery::KubeconfigArgs;
use clap::Args;
use std::path::PathBuf;

/// `berth what-if`.
#[derive(Debug, Args)]
pub(crate) struct WhatIfArgs {
    /// Changes: objects to add, fields of objects to change, objects to delete (annotation berth.dev/what-if: delete),
    /// a KubeSchedulerConfiguration. - is standard input; for a directory, all its files are read
    #[arg(short, long, value_name = "FILE")]
    pub(crate) file: Vec<PathBuf>,
    /// Read the cluster from files in the format of kubectl get -o yaml instead of from its API; - is standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["kubeconfig", "context"])]
    pub(crate) from: Vec<PathBuf>,
    /// Read the cluster from a recording (berth scheduler --record DIR), with the recorded configuration
    #[arg(long, value_name = "DIR", conflicts_with_all = ["kubeconfig", "context", "from"])]
    pub(crate) record: Option<PathBuf>,
    /// Time of the recording: RFC 3339, or seconds since its beginning [default: its end]
    #[arg(long, value_name = "TIME", requires = "record")]
    pub(crate) at: Option<Moment>,
    /// Run of the recording, if its directory has several [default: the last run]
    #[arg(long, value_name = "ID", requires = "record")]
    pub(crate) run: Option<u64>,
    #[command(flatten)]
    pub(crate) kubeconfig: KubeconfigArgs,
    /// Drain these nodes, in this order
    #[arg(long, value_name = "NODE", num_args = 1.., value_delimiter = ',', conflicts_with = "consolidate")]
    pub(crate) drain: Vec<String>,
    /// Report which nodes are not needed, in the order in which they can be drained
    #[arg(long)]
    pub(crate) consolidate: bool,
    /// Report the spread of each workload with topology spread constraints as it will be without pods of former revisions,
    /// and the fewest pods whose deletion restores the allowed skew
    #[arg(long, conflicts_with_all = ["consolidate", "drain", "fit", "add_nodes", "emulated_version"])]
    pub(crate) rebalance: bool,
    /// Report the number of further pods of this template that fit, their nodes, and what the next pod lacks: a file
    /// with a Pod, a PodTemplate or a workload; - is standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["consolidate", "emulated_version"])]
    pub(crate) fit: Option<PathBuf>,
    /// Report the number of nodes of this shape that the waiting pods need: the name of a node, a file with a Node, or
    /// resources such as cpu=8,memory=32Gi
    #[arg(long, value_name = "SHAPE", conflicts_with_all = ["consolidate", "emulated_version"])]
    pub(crate) add_nodes: Option<String>,
    /// Current KubeSchedulerConfiguration
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Feature gates, as Name=true,Other=false
    #[arg(long, value_name = "GATES", default_value = "")]
    pub(crate) feature_gates: String,
    /// Decide as this Kubernetes version (1.36 to 1.38), and report, pod by pod, the different decisions and the
    /// responsible changes [default: the version of the cluster]
    #[arg(long, value_name = "VERSION", conflicts_with = "consolidate")]
    pub(crate) emulated_version: Option<String>,
    /// Seed of all random choices
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) seed: u64,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = ExplainOutput::Table)]
    pub(crate) output: ExplainOutput,
}
