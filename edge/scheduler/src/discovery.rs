//! The cluster of a command: the kubeconfig and its context, found in the same way by every command.

use berth_client::ConnectOptions;
use berth_client::component::KubeconfigChoice;
use clap::Args;
use std::path::{Path, PathBuf};

/// The kubeconfig that `berth up` writes into its directory.
const KUBECONFIG_OF_UP: &str = "berth.kubeconfig";

/// The kubeconfig of a command that connects to a cluster.
#[derive(Debug, Clone, Default, Args)]
pub struct KubeconfigArgs {
    /// Kubeconfig of the cluster [default: KUBECONFIG, ./berth.kubeconfig or ~/.kube/config]
    #[arg(long, global = true, value_name = "PATH")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig [default: its current context]
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) context: Option<String>,
}

impl KubeconfigArgs {
    /// The kubeconfig that is used.
    pub fn choice(&self) -> KubeconfigChoice {
        let fallback = Path::new(KUBECONFIG_OF_UP);
        KubeconfigChoice::new(
            self.kubeconfig.as_deref(),
            self.context.as_deref(),
            fallback,
        )
    }

    /// Returns whether a file or a context is named, here or by `KUBECONFIG`, or `berth up` has written one.
    pub fn is_given(&self) -> bool {
        let variable = std::env::var_os("KUBECONFIG").is_some_and(|value| !value.is_empty());
        variable || self.choice() != KubeconfigChoice::default()
    }

    /// The options to connect to the API server for a command of this name.
    pub fn connect_options(&self, command: &str) -> ConnectOptions {
        self.choice().connect_options(user_agent(command))
    }
}

/// The name of the scheduler in the logs of the API server.
pub fn scheduler_user_agent() -> String {
    format!("berth-scheduler/{}", env!("CARGO_PKG_VERSION"))
}

/// The name of a command in the logs of servers.
pub fn user_agent(command: &str) -> String {
    format!("berth-{command}/{}", env!("CARGO_PKG_VERSION"))
}
