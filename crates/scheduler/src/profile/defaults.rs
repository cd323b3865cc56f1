//! The plugins of a profile that says nothing, in the order of kube-scheduler 1.36.

use super::spec::{EnabledPlugin, PluginSet, PluginSets};
use berth_framework::{Feature, FeatureGates};

/// Name, and weight where the plugin's scores count more than once.
const DEFAULT_PLUGINS: [(&str, Option<i64>); 19] = [
    ("SchedulingGates", None),
    ("PrioritySort", None),
    ("NodeUnschedulable", None),
    ("NodeName", None),
    ("TaintToleration", Some(3)),
    ("NodeAffinity", Some(2)),
    ("NodePorts", None),
    ("NodeResourcesFit", Some(1)),
    ("VolumeRestrictions", None),
    ("NodeVolumeLimits", None),
    ("VolumeBinding", None),
    ("VolumeZone", None),
    ("PodTopologySpread", Some(2)),
    ("InterPodAffinity", Some(2)),
    // Before DefaultPreemption: freeing an idle claim is cheaper than evicting pods.
    ("DynamicResources", Some(2)),
    ("DefaultPreemption", None),
    ("NodeResourcesBalancedAllocation", Some(1)),
    ("ImageLocality", Some(1)),
    ("DefaultBinder", None),
];

/// The default plugins. They take part in every point that they have.
pub fn default_plugins(features: &FeatureGates) -> PluginSets {
    let mut enabled: Vec<EnabledPlugin> = DEFAULT_PLUGINS
        .iter()
        .map(|(name, weight)| EnabledPlugin {
            name: (*name).to_owned(),
            weight: *weight,
        })
        .collect();
    for (feature, name, weight) in [
        (Feature::NodeDeclaredFeatures, "NodeDeclaredFeatures", None),
        (Feature::GangScheduling, "GangScheduling", None),
        (
            Feature::TopologyAwareWorkloadScheduling,
            "TopologyPlacementGenerator",
            None,
        ),
        (
            Feature::TopologyAwareWorkloadScheduling,
            "PodGroupPodsCount",
            Some(1),
        ),
    ] {
        if features.enabled(feature) {
            enabled.push(EnabledPlugin {
                name: name.to_owned(),
                weight,
            });
        }
    }
    PluginSets {
        multi_point: PluginSet {
            enabled,
            disabled: Vec::new(),
        },
        ..PluginSets::default()
    }
}
