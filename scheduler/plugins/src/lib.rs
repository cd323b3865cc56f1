//! The in-tree scheduler plugins, one file each, and their registry.
//!
//! Each plugin answers as kube-scheduler v1.36's plugin of the same name: the same statuses with the same reasons, the
//! same integer scores, the same answers to cluster events. `docs/contribute/rules/plugins.md` lists the rules, and
//! `docs/use/reference/differences.md` the intended differences.
//!
//! **Architecture invariant:** a plugin depends only on `berth-framework` and `berth-api`, not on other plugins or the
//! scheduler. In-tree plugins have no privileges that out-of-tree plugins lack.

mod args;
mod change;
pub mod default_binder;
pub mod default_preemption;
pub mod deferred_pod_scheduling;
pub mod deferred_quota;
pub mod dynamic_resources;
mod extended_resources;
pub mod gang_scheduling;
pub mod image_locality;
pub mod inter_pod_affinity;
pub mod kubelet_rejections;
#[cfg(test)]
mod lack_tests;
pub mod node_affinity;
pub mod node_declared_features;
pub mod node_name;
pub mod node_ports;
pub mod node_resources;
pub mod node_unschedulable;
pub mod node_volume_limits;
pub mod pod_group_pods_count;
pub mod pod_topology_spread;
pub mod priority_sort;
pub mod registry;
mod required_node_affinity;
pub mod scheduling_gates;
pub mod taint_toleration;
#[cfg(test)]
mod testing;
pub mod topology_placement_generator;
pub mod volume_binding;
pub mod volume_restrictions;
pub mod volume_zone;
mod volumes;
#[cfg(test)]
mod wake_rules_tests;
#[cfg(test)]
mod wake_tests;

pub use registry::in_tree;
