//! Arguments of the commands that start, list and stop clusters on this machine.

use berth_edge::discovery::KubeconfigArgs;
use berth_edge::print::Output;
use clap::{Args, Subcommand};
use clap_complete::Shell;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// The name of a cluster that was given none.
pub(crate) const NAME_DEFAULT: &str = "berth";
/// The longest name of a cluster.
const NAME_LENGTH_MAX: usize = 50;
/// The time limit of `--wait` without a value.
const WAIT_DEFAULT: &str = "5m";

/// The name of a cluster on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ClusterName(String);

impl ClusterName {
    /// The name.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// The name of the context in a kubeconfig.
    pub(crate) fn context(&self) -> String {
        match self.0.as_str() {
            NAME_DEFAULT => NAME_DEFAULT.to_owned(),
            name => format!("berth-{name}"),
        }
    }
}

impl Default for ClusterName {
    fn default() -> Self {
        Self(NAME_DEFAULT.to_owned())
    }
}

impl FromStr for ClusterName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_fine =
            |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
        let is_edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
        if text.len() > NAME_LENGTH_MAX
            || !text.chars().all(is_fine)
            || !is_edge(text.chars().next())
            || !is_edge(text.chars().last())
        {
            return Err(format!(
                "a name has up to {NAME_LENGTH_MAX} lower-case letters, digits, - and ., and begins and ends with a \
                 letter or digit"
            ));
        }
        Ok(Self(text.to_owned()))
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    let parsed: Result<berth_api::GoDuration, _> = text.parse();
    parsed
        .map(berth_api::GoDuration::as_duration)
        .map_err(|e| format!("{e}; use a duration such as 90s or 5m"))
}

/// The cluster of this machine that a command is about.
#[derive(Debug, Clone, Args)]
pub(crate) struct NamedArgs {
    /// The name of the cluster
    #[arg(long, value_name = "NAME", default_value = NAME_DEFAULT)]
    pub(crate) name: ClusterName,
}

/// The placement and the name of `berth up`.
#[derive(Debug, Clone, Args)]
pub(crate) struct PlacementArgs {
    /// Name of the cluster: adds the context berth-NAME to the kubeconfig (KUBECONFIG or ~/.kube/config), for berth down
    /// and berth get clusters
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<ClusterName>,
    /// Run in the background, and return when the cluster is ready; stop with berth down
    #[arg(short, long)]
    pub(crate) detach: bool,
    /// Wait until the nodes are ready and the objects of the files are available, at most 5m or the given time
    #[arg(
        long,
        value_name = "DURATION",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = WAIT_DEFAULT,
        value_parser = duration
    )]
    pub(crate) wait: Option<Duration>,
}

/// `berth get`.
#[derive(Debug, Args)]
pub(crate) struct GetArgs {
    /// The object of the list.
    #[command(subcommand)]
    pub(crate) what: GetCommand,
}

/// The objects that can be listed.
#[derive(Debug, Subcommand)]
pub(crate) enum GetCommand {
    /// List the clusters of this machine with a name or in the background
    #[command(alias = "cluster")]
    Clusters {
        /// Output format
        #[arg(short, long, value_enum, default_value_t = Output::Text)]
        output: Output,
    },
}

/// `berth version`.
#[derive(Debug, Args)]
pub(crate) struct VersionArgs {
    /// Print only the version of this program
    #[arg(long)]
    pub(crate) client: bool,
    #[command(flatten)]
    pub(crate) kubeconfig: KubeconfigArgs,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    pub(crate) output: Output,
}

/// `berth completion`.
#[derive(Debug, Args)]
pub(crate) struct CompletionArgs {
    /// The shell
    #[arg(value_enum)]
    pub(crate) shell: Shell,
}

/// `berth man`.
#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// Directory for the pages, created if it does not exist
    pub(crate) directory: PathBuf,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_clusters_are_names_of_contexts() {
        for (name, context) in [
            ("berth", "berth"),
            ("dev", "berth-dev"),
            ("a.b-1", "berth-a.b-1"),
        ] {
            let name: ClusterName = name.parse().expect("a name");
            assert_eq!(name.context(), context);
        }
        for wrong in ["", "-a", "a-", "A", "a/b", "..", "a b", &"a".repeat(51)] {
            assert!(wrong.parse::<ClusterName>().is_err(), "{wrong}");
        }
    }
}
