//! The in-tree plugins by name.

use crate::default_binder::{self, DefaultBinder};
use crate::default_preemption::{self, DefaultPreemption, DefaultPreemptionArgs};
use crate::dynamic_resources::{self, DynamicResources, DynamicResourcesArgs};
use crate::image_locality::{self, ImageLocality};
use crate::inter_pod_affinity::{self, InterPodAffinity, InterPodAffinityArgs};
use crate::node_affinity::{self, NodeAffinity, NodeAffinityArgs};
use crate::node_declared_features::{self, NodeDeclaredFeatures};
use crate::node_name::{self, NodeName};
use crate::node_ports::{self, NodePorts};
use crate::node_resources::{
    BalancedAllocationArgs, FitArgs, NodeResourcesBalancedAllocation, NodeResourcesFit,
    balanced_allocation, fit,
};
use crate::node_unschedulable::{self, NodeUnschedulable};
use crate::node_volume_limits::{self, NodeVolumeLimits};
use crate::pod_topology_spread::{self, PodTopologySpread, PodTopologySpreadArgs};
use crate::priority_sort::{self, PrioritySort};
use crate::scheduling_gates::{self, SchedulingGates};
use crate::taint_toleration::{self, TaintToleration};
use crate::volume_binding::{self, VolumeBinding, VolumeBindingArgs};
use crate::volume_restrictions::{self, VolumeRestrictions};
use crate::volume_zone::{self, VolumeZone};
use berth_framework::registry::{ArgsError, Extensions, FactoryContext, Registry};

type Make = fn(&FactoryContext<'_>) -> Result<Extensions, ArgsError>;

/// Every in-tree plugin: its name, and how it is made from its arguments.
const IN_TREE: &[(&str, Make)] = &[
    (scheduling_gates::NAME, |_| {
        Ok(Extensions::of(SchedulingGates)
            .pre_enqueue()
            .events()
            .build())
    }),
    (priority_sort::NAME, |_| {
        Ok(Extensions::of(PrioritySort).queue_sort().build())
    }),
    (node_unschedulable::NAME, |_| {
        Ok(Extensions::of(NodeUnschedulable::default())
            .filter()
            .events()
            .keep()
            .build())
    }),
    (node_name::NAME, |_| {
        Ok(Extensions::of(NodeName).filter().events().keep().build())
    }),
    (taint_toleration::NAME, |_| {
        Ok(Extensions::of(TaintToleration)
            .filter()
            .pre_score()
            .score()
            .events()
            .keep()
            .build())
    }),
    (node_affinity::NAME, |cx| {
        let args = NodeAffinityArgs::decode(cx.args)?;
        Ok(Extensions::of(NodeAffinity::new(args))
            .pre_filter()
            .filter()
            .pre_score()
            .score()
            .events()
            .keep()
            .build())
    }),
    (node_ports::NAME, |_| {
        Ok(Extensions::of(NodePorts)
            .pre_filter()
            .filter()
            .events()
            .keep()
            .build())
    }),
    (fit::NAME, |cx| {
        let args = FitArgs::decode(cx.args)?;
        Ok(Extensions::of(NodeResourcesFit::new(args))
            .pre_filter()
            .filter()
            .pre_score()
            .score()
            .events()
            .keep()
            .build())
    }),
    (volume_restrictions::NAME, |_| {
        Ok(Extensions::of(VolumeRestrictions)
            .pre_filter()
            .filter()
            .events()
            .keep()
            .build())
    }),
    (node_volume_limits::NAME, |_| {
        Ok(Extensions::of(NodeVolumeLimits)
            .pre_filter()
            .filter()
            .events()
            .keep()
            .build())
    }),
    (volume_binding::NAME, |cx| {
        let args = VolumeBindingArgs::decode(cx.args)?;
        Ok(Extensions::of(VolumeBinding::new(args))
            .pre_filter()
            .filter()
            .pre_score()
            .reserve()
            .pre_bind()
            .events()
            .keep()
            .calls(volume_binding::CALLS)
            .build())
    }),
    (volume_zone::NAME, |_| {
        Ok(Extensions::of(VolumeZone)
            .pre_filter()
            .filter()
            .events()
            .keep()
            .build())
    }),
    (pod_topology_spread::NAME, |cx| {
        let args = PodTopologySpreadArgs::decode(cx.args)?;
        Ok(Extensions::of(PodTopologySpread::new(args))
            .pre_filter()
            .filter()
            .pre_score()
            .score()
            .events()
            .domains()
            .build())
    }),
    (inter_pod_affinity::NAME, |cx| {
        let args = InterPodAffinityArgs::decode(cx.args)?;
        Ok(Extensions::of(InterPodAffinity::new(args))
            .pre_filter()
            .filter()
            .pre_score()
            .score()
            .events()
            .domains()
            .build())
    }),
    (dynamic_resources::NAME, |cx| {
        DynamicResourcesArgs::decode(cx)?;
        Ok(Extensions::of(DynamicResources)
            .pre_enqueue()
            .pre_filter()
            .filter()
            .post_filter()
            .score()
            .events()
            .keep()
            .build())
    }),
    (default_preemption::NAME, |cx| {
        let args = DefaultPreemptionArgs::decode(cx.args)?;
        Ok(Extensions::of(DefaultPreemption::new(args))
            .pre_enqueue()
            .post_filter()
            .events()
            .build())
    }),
    (balanced_allocation::NAME, |cx| {
        let args = BalancedAllocationArgs::decode(cx.args)?;
        Ok(Extensions::of(NodeResourcesBalancedAllocation::new(args))
            .pre_score()
            .score()
            .keep()
            .build())
    }),
    (image_locality::NAME, |_| {
        Ok(Extensions::of(ImageLocality).score().keep().build())
    }),
    (default_binder::NAME, |_| {
        Ok(Extensions::of(DefaultBinder).bind().build())
    }),
    (node_declared_features::NAME, |_| {
        Ok(Extensions::of(NodeDeclaredFeatures)
            .pre_filter()
            .filter()
            .events()
            .keep()
            .build())
    }),
];

/// A registry with every in-tree plugin.
pub fn in_tree() -> Registry {
    let mut registry = Registry::default();
    for (name, make) in IN_TREE {
        let added = registry.register(name, make);
        debug_assert!(added.is_ok(), "{name} is listed twice");
    }
    registry
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_framework::FeatureGates;
    use serde_json::Value;

    #[test]
    fn every_plugin_is_listed_once_and_made_without_arguments() {
        let registry = in_tree();
        assert_eq!(registry.names().count(), IN_TREE.len());
        for (name, _) in IN_TREE {
            let cx = FactoryContext {
                args: &Value::Null,
                features: &FeatureGates::default(),
            };
            let factory = registry.get(name).expect("it is registered");
            let made = factory(&cx).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(made.name, *name);
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
        let names: Vec<String> = IN_TREE.iter().map(|(name, _)| snake_case(name)).collect();
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
