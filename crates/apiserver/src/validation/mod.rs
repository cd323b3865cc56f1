//! The rules of the kinds: defaulting, preparation and validation.
//!
//! [`strategy`] gives the rules of a kind; [`metadata`] holds those that all kinds share. Errors come in
//! upstream's order with upstream's texts, because clients compare both. Objects are brought into the form that a
//! round trip through Kubernetes' Go types would give them before anything else looks at them.

mod amounts;
mod claims;
mod config;
mod errors;
mod job;
pub mod metadata;
pub(crate) mod names;
mod node;
mod normal;
pub mod pod;
mod selectors;
mod service;
mod service_rules;
mod sets;
mod small;
mod view;
mod volumes;
mod workloads;

use crate::access::GroupResource;
use crate::strategy::{Plain, Strategy};

/// The rules of a kind; kinds without rules of their own get those of [`Plain`].
pub fn strategy(kind: GroupResource) -> &'static dyn Strategy {
    match (kind.group, kind.resource) {
        ("", "configmaps") => &config::ConfigMapStrategy,
        ("", "events") | ("events.k8s.io", "events") => &small::EventStrategy,
        ("", "namespaces") => &small::NamespaceStrategy,
        ("", "nodes") => &node::NodeStrategy,
        ("", "persistentvolumeclaims") => &volumes::ClaimStrategy,
        ("", "persistentvolumes") => &volumes::VolumeStrategy,
        ("", "pods") => &pod::PodStrategy,
        ("", "replicationcontrollers") => &workloads::ReplicationControllerStrategy,
        ("", "secrets") => &config::SecretStrategy,
        ("", "serviceaccounts") => &config::ServiceAccountStrategy,
        ("", "services") => &service::ServiceStrategy,
        ("apps", "daemonsets") => &sets::DaemonSetStrategy,
        ("apps", "deployments") => &workloads::DeploymentStrategy,
        ("apps", "replicasets") => &workloads::ReplicaSetStrategy,
        ("apps", "statefulsets") => &sets::StatefulSetStrategy,
        ("batch", "jobs") => &job::JobStrategy,
        ("coordination.k8s.io", "leases") => &small::LeaseStrategy,
        ("policy", "poddisruptionbudgets") => &small::DisruptionBudgetStrategy,
        ("resource.k8s.io", "resourceclaims") => &claims::ResourceClaimStrategy,
        ("resource.k8s.io", "resourceclaimtemplates") => &claims::ResourceClaimTemplateStrategy,
        ("scheduling.k8s.io", "priorityclasses") => &small::PriorityClassStrategy,
        ("storage.k8s.io", "storageclasses") => &volumes::StorageClassStrategy,
        _ => &Plain,
    }
}
