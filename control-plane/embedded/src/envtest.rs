//! Berth as a replacement for envtest's programs: under the name `kube-apiserver` it accepts the flags of
//! kube-apiserver, under the name `etcd` it answers health checks, and `berth envtest DIR` writes a folder with both
//! for KUBEBUILDER_ASSETS.
//!
//! envtest (controller-runtime's pkg/envtest) starts the two programs, waits for `/health` and `/healthz`, and stops
//! them with SIGTERM. By default this control plane is as bare as envtest's: no controllers, no nodes, no scheduler.

mod apiserver;
pub mod assets;
mod etcd;
mod flags;

use berth_edge::exit::CommandFailure;
use berth_edge::tasks;
use berth_framework::registry::Registry;
use std::ffi::OsString;

/// The names under which Berth is one of envtest's programs.
pub(crate) const KUBE_APISERVER: &str = "kube-apiserver";
pub(crate) const ETCD: &str = "etcd";

/// Runs the program of this name with the arguments that follow its name; `None` when it is none of envtest's.
pub fn main(
    program: &str,
    arguments: &[OsString],
    registry: &Registry,
) -> Option<Result<(), CommandFailure>> {
    match program {
        KUBE_APISERVER => Some(apiserver::main(arguments, registry)),
        ETCD => {
            let arguments = arguments.iter().map(|a| a.to_string_lossy().into_owned());
            Some(tasks::run(etcd::run(arguments.collect())))
        }
        _ => None,
    }
}
