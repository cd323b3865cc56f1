//! The options of the commands that start a control plane.

use berth_api::Release;
use berth_controllers::{Selection, kubelet};
use berth_edge::release::supported;
use clap::{Args, ValueEnum};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

/// The default address of the API server.
pub const LISTEN_DEFAULT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7443);

/// An admission plugin of the control plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "PascalCase")]
pub(crate) enum AdmissionPlugin {
    /// Objects are created only in existing namespaces.
    NamespaceLifecycle,
    /// Containers get default resources and are bounded by limit ranges.
    LimitRanger,
    /// Pods get the overhead of their runtime class.
    RuntimeClass,
    /// Objects are created only within the quotas of their namespace.
    ResourceQuota,
    /// Volumes and claims in use are not deleted.
    StorageObjectInUseProtection,
    /// Groups in use are not deleted.
    PodGroupProtection,
    /// Priority classes become priorities.
    Priority,
    /// Pods tolerate nodes that are not ready for five minutes.
    DefaultTolerationSeconds,
    /// Pods get the default service account.
    ServiceAccount,
    /// Bound pods get the zone and region labels of their node.
    PodTopologyLabels,
    /// New nodes have the not-ready taint until their kubelet reports them as ready.
    TaintNodesByCondition,
    /// Claims without a class get the default class.
    DefaultStorageClass,
    /// Mutating webhooks are called.
    MutatingAdmissionWebhook,
    /// Validating webhooks are called.
    ValidatingAdmissionWebhook,
    /// Mutating admission policies are evaluated.
    MutatingAdmissionPolicy,
    /// Validating admission policies are evaluated.
    ValidatingAdmissionPolicy,
}

/// `on` or `off`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Switch {
    /// Enabled.
    On,
    /// Disabled.
    Off,
}

/// Options of the control plane.
#[derive(Debug, Clone, Args)]
pub struct ControlPlaneArgs {
    /// Address of the API server; port 0 selects a free port [default: 127.0.0.1:7443, with --name a free port]
    #[arg(long, value_name = "ADDR")]
    pub listen: Option<SocketAddr>,
    /// Directory for persistent storage, created if it does not exist; without it, all objects are in memory
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// File for the kubeconfig, readable only by you; with --name, the kubeconfig to which the context is added
    /// [default: berth.kubeconfig, with --name KUBECONFIG or ~/.kube/config]
    #[arg(long, value_name = "PATH")]
    pub kubeconfig: Option<PathBuf>,
    /// Kubernetes version of the API (1.36 to 1.38); a scheduler without --emulated-version uses the same version
    #[arg(long, value_name = "VERSION", default_value = "1.36", value_parser = supported)]
    pub emulated_version: Release,
    /// Number of simulated nodes [default: 3; 0 for apiserver, with --node-file, and for a kept cluster]
    #[arg(long, value_name = "N")]
    pub nodes: Option<usize>,
    /// Number of GPUs of each simulated node, published by the driver gpu.example.com for resource claims
    #[arg(long, value_name = "N", default_value_t = 0,
        value_parser = clap::value_parser!(u32).range(0..=i64::from(kubelet::DEVICES_MAX)))]
    pub gpus_per_node: u32,
}

impl ControlPlaneArgs {
    /// Address to serve on.
    pub(crate) fn address(&self) -> SocketAddr {
        self.listen.unwrap_or(LISTEN_DEFAULT)
    }

    /// The path of the kubeconfig of a cluster without a name.
    pub fn own_kubeconfig(&self) -> &Path {
        self.kubeconfig
            .as_deref()
            .unwrap_or(Path::new("berth.kubeconfig"))
    }

    /// The simulated nodes, `default` of them unless the number is given.
    pub fn nodes(&self, default: usize) -> kubelet::KubeletOptions {
        kubelet::KubeletOptions {
            nodes: self.nodes.unwrap_or(default),
            devices: self.gpus_per_node,
            ..kubelet::KubeletOptions::default()
        }
    }
}

/// `berth apiserver`.
#[derive(Debug, Args)]
pub struct ApiserverArgs {
    /// Options of the control plane.
    #[command(flatten)]
    pub(crate) control_plane: ControlPlaneArgs,
    /// Controllers to run: on, off, or names of kube-controller-manager's controllers, separated by commas
    #[arg(long, value_name = "on|off|NAMES", default_value = "on")]
    pub(crate) controllers: Selection,
    /// Admission plugins to disable, by kube-apiserver's names, separated by commas
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_enum)]
    pub(crate) disable_admission_plugins: Vec<AdmissionPlugin>,
    /// Enable the admission plugins that require controllers and kubelets (ServiceAccount, TaintNodesByCondition)
    #[arg(long, value_enum, default_value_t = Switch::On)]
    pub(crate) admission: Switch,
    /// Feature gates, as Name=true,Other=false: fields of a disabled gate are dropped from objects
    #[arg(long, value_name = "GATES", default_value = "")]
    pub(crate) feature_gates: String,
    /// PEM file with additional certificate authorities for client certificates: the common name is the user, the
    /// organizations are the groups
    #[arg(long, value_name = "FILE")]
    pub(crate) client_ca_file: Option<PathBuf>,
    /// Address of /healthz and /metrics over plain HTTP, on loopback; port 0 selects a free port
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:10252")]
    pub(crate) metrics: SocketAddr,
    /// Verbosity of the log [default: only warnings and errors]
    #[arg(short, long, value_name = "LEVEL")]
    pub v: Option<u8>,
}

/// The shape of the simulated nodes of `berth up`.
#[derive(Debug, Clone, Args)]
pub struct NodeArgs {
    /// File with further nodes (Node objects, also of kwok; the annotation berth.dev/count multiplies a node)
    #[arg(long, value_name = "FILE")]
    pub node_file: Vec<PathBuf>,
    /// CPUs of each simulated node, as a quantity [default: 4]
    #[arg(long, value_name = "QUANTITY", value_parser = quantity)]
    pub(crate) node_cpu: Option<String>,
    /// Memory of each simulated node, as a quantity [default: 32Gi]
    #[arg(long, value_name = "QUANTITY", value_parser = quantity)]
    pub(crate) node_memory: Option<String>,
    /// Run time of pods of Jobs in seconds, unless the annotation berth.dev/run-seconds or the command specifies it
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = seconds)]
    pub(crate) job_seconds: f64,
}

fn quantity(text: &str) -> Result<String, String> {
    let parsed: Result<berth_api::Quantity, _> = text.parse();
    match parsed {
        Ok(quantity) if quantity.as_f64() > 0.0 => Ok(text.to_owned()),
        Ok(_) => Err("must be greater than 0".to_owned()),
        Err(e) => Err(e.to_string()),
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if seconds.is_finite() && seconds >= 0.0 => Ok(seconds),
        _ => Err("must be a number of seconds, 0 or more".to_owned()),
    }
}

/// `berth envtest`.
#[derive(Debug, Args)]
pub struct EnvtestArgs {
    /// The directory to write, created if it does not exist
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
    /// Copy the programs instead of linking to them
    #[arg(long)]
    pub(crate) copy: bool,
    /// Replace programs that are not links to Berth
    #[arg(long)]
    pub(crate) force: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_and_seconds_are_checked() {
        assert_eq!(quantity("1500m").as_deref(), Ok("1500m"));
        for wrong in ["", "0", "-1", "lots"] {
            assert!(quantity(wrong).is_err(), "{wrong}");
        }
        assert_eq!(seconds("0.5"), Ok(0.5));
        for wrong in ["", "-1", "inf", "NaN", "1s"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }
}
