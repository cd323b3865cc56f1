//! The controllers of the embedded control plane, and the simulated kubelets, which run the pods.
//!
//! Each controller is a task on the small runtime in `runtime`, and reaches the objects through [`Access`] like any
//! client. Controllers do not know each other and communicate through objects, as in kube-controller-manager. A new
//! controller implements `runtime::Controller` and is started in [`spawn`].
//!
//! This crate knows no API server: [`Access`] is all that it needs of one.

// Controllers and kubelets are the edge: they ask the clock and have threads.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod cron_job;
mod daemon_set;
mod deployment;
mod disruption;
mod endpoint_mirror;
mod endpoints;
mod event_ttl;
mod failed_pods;
mod garbage;
mod group_protection;
mod job;
pub mod kubelet;
mod namespaces;
mod nodes;
mod ownership;
mod pod_gc;
mod policy_status;
mod replicaset;
mod resource_claim;
mod resource_quota;
mod revisions;
pub(crate) mod runtime;
mod selection;
mod served_kinds;
mod service_accounts;
mod stateful_set;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
mod volumes;
mod workload;

pub use self::runtime::{Activity, Handle, WallClock};
pub use self::selection::{Selection, UnknownController};
pub use self::volumes::SIMULATED as SIMULATED_PROVISIONER;

use berth_objects::access::Access;
use berth_objects::groups::GroupGates;
use berth_objects::object;
use std::sync::Arc;
use std::time::Duration;

/// The settings of the controllers. The defaults are kube-controller-manager's.
#[derive(Debug, Clone)]
pub struct ControllerOptions {
    /// The controllers that run.
    pub selection: Selection,
    /// The certificates that clients of this API trust, as PEM, for the config map `kube-root-ca.crt` of each
    /// namespace. Without them the config map is not made.
    pub root_ca: Option<String>,
    /// The time to live of events after their last occurrence.
    pub event_ttl: Duration,
    /// The time that a kubelet may be silent before its node is unreachable.
    pub node_grace: Duration,
    /// The number of ended pods that are kept.
    pub ended_pods_max: usize,
    /// The parts of group scheduling that the control plane has.
    pub groups: GroupGates,
    /// The time that is written into objects.
    pub clock: WallClock,
}

impl Default for ControllerOptions {
    fn default() -> Self {
        Self {
            selection: Selection::All,
            root_ca: None,
            event_ttl: Duration::from_secs(3600),
            node_grace: Duration::from_secs(50),
            ended_pods_max: 12_500,
            groups: GroupGates::default(),
            clock: WallClock::system(),
        }
    }
}

/// Starts the controllers. Must be called within an async runtime with time enabled.
pub fn spawn(api: Arc<dyn Access>, options: ControllerOptions) -> Handle {
    let clock = options.clock;
    let event_ttl = jiff::SignedDuration::try_from(options.event_ttl)
        .unwrap_or(jiff::SignedDuration::from_hours(1));
    let mut handle = Handle::new();
    macro_rules! start {
        ($name:ident, $controller:expr) => {
            if options.selection.has(selection::$name) {
                handle.start($controller, api.clone(), clock.clone());
            }
        };
    }
    start!(GARBAGE_COLLECTOR, garbage::Garbage::new(&*api));
    start!(NAMESPACE, namespaces::NamespaceController::new());
    start!(
        SERVICE_ACCOUNT,
        service_accounts::ServiceAccounts::new(options.root_ca)
    );
    start!(NODE_LIFECYCLE, nodes::Nodes::new(options.node_grace));
    start!(
        POD_GARBAGE_COLLECTOR,
        pod_gc::PodGc::new(options.ended_pods_max)
    );
    start!(EVENT_TTL, event_ttl::EventTtl::new(event_ttl));
    start!(
        REPLICASET,
        replicaset::ReplicaSets::new(object::REPLICA_SET)
    );
    start!(
        REPLICATION_CONTROLLER,
        replicaset::ReplicaSets::new(object::REPLICATION_CONTROLLER)
    );
    start!(STATEFUL_SET, stateful_set::StatefulSets::default());
    start!(DAEMON_SET, daemon_set::DaemonSets::default());
    start!(JOB, job::Jobs::new(options.groups.has("WorkloadWithJob")));
    start!(CRON_JOB, cron_job::CronJobs);
    start!(ENDPOINT_SLICE, endpoints::Slices);
    start!(ENDPOINTS, endpoints::Legacy);
    start!(ENDPOINT_SLICE_MIRRORING, endpoint_mirror::Mirror);
    start!(DEPLOYMENT, deployment::Deployments::default());
    start!(RESOURCE_QUOTA, resource_quota::ResourceQuotas::new(&*api));
    start!(DISRUPTION, disruption::Disruption);
    start!(PERSISTENT_VOLUME_BINDER, volumes::Volumes);
    start!(CLAIM_PROTECTION, volumes::protection::ClaimProtection);
    start!(VOLUME_PROTECTION, volumes::protection::VolumeProtection);
    start!(RESOURCE_CLAIM, resource_claim::ResourceClaims);
    start!(GROUP_PROTECTION, group_protection::GroupProtection);
    start!(GROUP_PROTECTION, group_protection::CompositeProtection);
    start!(POLICY_STATUS, policy_status::PolicyStatus);
    handle
}
