//! The controllers of the embedded control plane: what makes manifests come true.
//!
//! Each is a task of its own on the small runtime in `runtime`, and reaches the objects through
//! [`Access`] like any client. None knows another; they meet in the objects, as in
//! kube-controller-manager. A new one implements `runtime::Controller` and is started in [`spawn`].

mod deployment;
pub(crate) mod disruption;
#[cfg(test)]
mod end_to_end;
mod event_ttl;
mod garbage;
mod namespaces;
mod nodes;
pub(crate) mod object;
pub(crate) mod pod;
mod pod_gc;
mod replicaset;
mod resource_claim;
pub(crate) mod runtime;
pub(crate) mod selector;
mod service_accounts;
#[cfg(test)]
pub(crate) mod testing;
mod volumes;

pub use self::runtime::{Clock, Handle};

use crate::access::Access;
use std::sync::Arc;
use std::time::Duration;

/// How the controllers behave. The defaults are kube-controller-manager's.
#[derive(Debug, Clone)]
pub struct Options {
    /// The certificates that clients of this API trust, as PEM, for the config map `kube-root-ca.crt` of each
    /// namespace. Without them the config map is not made.
    pub root_ca: Option<String>,
    /// How long events are kept after they last happened.
    pub event_ttl: Duration,
    /// How long a kubelet may be silent before its node is unreachable.
    pub node_grace: Duration,
    /// How many ended pods are kept.
    pub ended_pods_max: usize,
    /// The time that is written into objects.
    pub clock: Clock,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            root_ca: None,
            event_ttl: Duration::from_secs(3600),
            node_grace: Duration::from_secs(50),
            ended_pods_max: 12_500,
            clock: Clock::system(),
        }
    }
}

/// Starts all controllers. Must be called within an async runtime with time enabled.
pub fn spawn(api: Arc<dyn Access>, options: Options) -> Handle {
    let clock = options.clock;
    let event_ttl = jiff::SignedDuration::try_from(options.event_ttl)
        .unwrap_or(jiff::SignedDuration::from_hours(1));
    let mut handle = Handle::new();
    handle.start(garbage::Garbage::new(&*api), api.clone(), clock.clone());
    handle.start(
        namespaces::Namespaces::new(&*api),
        api.clone(),
        clock.clone(),
    );
    let service_accounts = service_accounts::ServiceAccounts::new(options.root_ca);
    handle.start(service_accounts, api.clone(), clock.clone());
    handle.start(
        nodes::Nodes::new(options.node_grace),
        api.clone(),
        clock.clone(),
    );
    handle.start(
        pod_gc::PodGc::new(options.ended_pods_max),
        api.clone(),
        clock.clone(),
    );
    handle.start(
        event_ttl::EventTtl::new(event_ttl),
        api.clone(),
        clock.clone(),
    );
    handle.start(
        replicaset::ReplicaSets::default(),
        api.clone(),
        clock.clone(),
    );
    handle.start(deployment::Deployments, api.clone(), clock.clone());
    handle.start(disruption::Disruption, api.clone(), clock.clone());
    handle.start(volumes::Volumes, api.clone(), clock.clone());
    handle.start(resource_claim::ResourceClaims, api.clone(), clock.clone());
    handle
}
