//! The options of a scheduler that runs together with a control plane.

use berth_scheduler::evaluator::EvaluatorKind;
use clap::{Args, ValueEnum};
use std::path::PathBuf;

impl Default for CoreArgs {
    fn default() -> Self {
        Self {
            config: None,
            feature_gates: String::new(),
            seed: None,
            evaluator: EvaluatorArg::Incremental,
            record: None,
            record_pseudonyms: false,
            record_kept_names: Vec::new(),
        }
    }
}

/// Options of the scheduling core.
#[derive(Debug, Clone, Args)]
pub struct CoreArgs {
    /// KubeSchedulerConfiguration file (kubescheduler.config.k8s.io/v1)
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Feature gates, as Name=true,Other=false
    #[arg(long, value_name = "GATES", default_value = "")]
    pub feature_gates: String,
    /// Seed of all random choices [default: a new seed at each start]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Evaluator: node by node (plain), or the same decisions from kept answers (incremental)
    #[arg(long, value_name = "KIND", value_enum, default_value_t = EvaluatorArg::Incremental)]
    pub evaluator: EvaluatorArg,
    /// Directory for a recording of the scheduler's inputs, at most 1 GiB, for berth replay
    #[arg(long, value_name = "DIR")]
    pub record: Option<PathBuf>,
    /// Replace names and labels in the recording by pseudonyms
    #[arg(long, requires = "record")]
    pub record_pseudonyms: bool,
    /// Names that are kept, and domains whose label keys are kept, for plugins that compare them
    #[arg(
        long,
        value_name = "NAME",
        value_delimiter = ',',
        requires = "record_pseudonyms"
    )]
    pub record_kept_names: Vec<String>,
}

/// The evaluator that decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum EvaluatorArg {
    /// Node by node, in kube-scheduler's order.
    Plain,
    /// The same decisions from kept answers.
    Incremental,
}

impl From<EvaluatorArg> for EvaluatorKind {
    fn from(arg: EvaluatorArg) -> Self {
        match arg {
            EvaluatorArg::Plain => Self::Plain,
            EvaluatorArg::Incremental => Self::Incremental,
        }
    }
}
