//! The plugins of a profile that names none.

use super::spec::{EnabledPlugin, PluginSet, PluginSets};
use berth_framework::FeatureGates;
use berth_framework::registry::Registry;

/// The default plugins: the plugins that the registry assigns to the default profile, at all their extension points.
pub fn default_plugins(registry: &Registry, features: &FeatureGates) -> PluginSets {
    let enabled = registry
        .defaults(features)
        .map(|(plugin, place)| EnabledPlugin {
            name: plugin.name().to_owned(),
            weight: place.weight,
        })
        .collect();
    PluginSets {
        multi_point: PluginSet {
            enabled,
            disabled: Vec::new(),
        },
        ..PluginSets::default()
    }
}
