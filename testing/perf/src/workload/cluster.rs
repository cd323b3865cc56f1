//! The clusters in which workloads run: a [`WorkloadTarget`] starts a [`RunningCluster`] for each of them.

use super::error::RunError;
use super::process::Process;
use berth_client::Transport;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::pin::Pin;

/// The requirements of a workload on its cluster.
#[derive(Debug, Clone, Default)]
pub struct WorkloadSetup {
    /// The feature gates that the workload sets.
    pub feature_gates: BTreeMap<String, bool>,
    /// The configuration of the scheduler; the default one without it.
    pub scheduler_config: Option<PathBuf>,
}

impl WorkloadSetup {
    /// The gates as a command line has them: `A=true,B=false`.
    pub fn feature_gates_flag(&self) -> String {
        let gates = self.feature_gates.iter();
        let gates: Vec<String> = gates.map(|(name, on)| format!("{name}={on}")).collect();
        gates.join(",")
    }
}

/// A future of a cluster, boxed so that the operations are compiled once for all kinds of clusters.
pub type ClusterFuture<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// A way to run workloads.
pub trait WorkloadTarget {
    /// Starts an API server, unless it is running already, and a scheduler, and waits until the scheduler has listed
    /// the cluster.
    ///
    /// # Errors
    /// [`RunError::Unsupported`] when the cluster lacks a feature that the workload needs, [`RunError::Start`]
    /// otherwise.
    fn start<'a>(
        &'a self,
        setup: &'a WorkloadSetup,
    ) -> ClusterFuture<'a, Result<Box<dyn RunningCluster>, RunError>>;
}

/// A cluster with a scheduler, for one run.
pub trait RunningCluster {
    /// A connection to the API server without a limit on requests.
    fn transport(&self) -> &Transport;

    /// The processes whose CPU time and memory are reported.
    fn processes(&self) -> Vec<Process>;

    /// Returns whether the cluster continues after the run, so that the created objects must be deleted.
    fn is_shared(&self) -> bool;

    /// The metrics of the scheduler in the text format of Prometheus, if they are readable.
    fn scheduler_metrics(&self) -> ClusterFuture<'_, Option<String>>;

    /// Resolves when a part of the cluster has exited.
    fn ended(&mut self) -> ClusterFuture<'_, String>;

    /// Stops the started servers.
    fn stop(self: Box<Self>) -> ClusterFuture<'static, ()>;
}
