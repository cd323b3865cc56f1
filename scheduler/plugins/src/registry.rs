//! The in-tree plugins, in the order of the default profile.

use crate::{
    default_binder, default_preemption, deferred_pod_scheduling, deferred_quota, dynamic_resources,
    gang_scheduling, image_locality, inter_pod_affinity, kubelet_rejections, node_affinity,
    node_declared_features, node_name, node_ports, node_resources, node_unschedulable,
    node_volume_limits, pod_group_pods_count, pod_topology_spread, priority_sort, scheduling_gates,
    taint_toleration, topology_placement_generator, volume_binding, volume_restrictions,
    volume_zone,
};
use berth_framework::registry::{Registration, Registry};

/// Every in-tree plugin. DynamicResources precedes DefaultPreemption, because freeing an unused claim costs less than
/// evicting pods.
const IN_TREE: [fn() -> Registration; 26] = [
    scheduling_gates::registration,
    priority_sort::registration,
    node_unschedulable::registration,
    node_name::registration,
    taint_toleration::registration,
    node_affinity::registration,
    node_ports::registration,
    node_resources::fit::registration,
    volume_restrictions::registration,
    node_volume_limits::registration,
    volume_binding::registration,
    volume_zone::registration,
    pod_topology_spread::registration,
    inter_pod_affinity::registration,
    dynamic_resources::registration,
    default_preemption::registration,
    node_resources::balanced_allocation::registration,
    image_locality::registration,
    default_binder::registration,
    node_declared_features::registration,
    deferred_pod_scheduling::registration,
    gang_scheduling::registration,
    topology_placement_generator::registration,
    pod_group_pods_count::registration,
    deferred_quota::registration,
    kubelet_rejections::registration,
];

/// A registry with every in-tree plugin.
pub fn in_tree() -> Registry {
    let mut registry = Registry::default();
    for registration in IN_TREE {
        let added = registry.add(registration());
        debug_assert!(added.is_ok(), "listed twice: {added:?}");
    }
    registry
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_framework::FeatureGates;
    use berth_framework::registry::FactoryContext;
    use serde_json::Value;

    #[test]
    fn every_plugin_is_listed_once_and_made_without_arguments() {
        let registry = in_tree();
        assert_eq!(registry.names().count(), IN_TREE.len());
        for name in registry.names() {
            let cx = FactoryContext {
                args: &Value::Null,
                features: &FeatureGates::default(),
            };
            let plugin = registry.get(name).expect("it is registered");
            let made = plugin.make(&cx);
            let made = made.unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(made.name, *name);
        }
    }

    /// Otherwise the fragments of all plugins are written for each pod.
    #[test]
    fn fragments_of_every_plugin_have_a_version() {
        let registry = in_tree();
        let features = FeatureGates::default();
        let args = &Value::Null;
        let cx = FactoryContext {
            args,
            features: &features,
        };
        for name in registry.names() {
            let plugin = registry.get(name).expect("it is registered");
            let made = plugin.make(&cx).expect("it needs no arguments");
            let has_fragments = made.keep.is_some() || made.domains.is_some();
            assert_eq!(made.fragment_version.is_some(), has_fragments, "{name}");
        }
    }

    /// `NodeName` as the name of its module.
    fn snake_case(name: &str) -> String {
        let mut snake = String::new();
        for letter in name.chars() {
            if letter.is_ascii_uppercase() && !snake.is_empty() {
                snake.push('_');
            }
            snake.push(letter.to_ascii_lowercase());
        }
        snake
    }

    #[test]
    fn files_and_plugins_agree() {
        let lib = include_str!("lib.rs");
        let modules: Vec<&str> = lib
            .lines()
            .filter_map(|line| line.strip_prefix("pub mod ")?.strip_suffix(';'))
            .filter(|module| *module != "registry")
            .collect();
        let registry = in_tree();
        let names: Vec<String> = registry.names().map(snake_case).collect();
        for name in &names {
            let has_file = modules.iter().any(|module| name.starts_with(module));
            assert!(has_file, "{name} has no file of its name");
        }
        for module in modules {
            let is_listed = names.iter().any(|name| name.starts_with(module));
            assert!(is_listed, "{module} is not in the registry");
        }
    }
}
