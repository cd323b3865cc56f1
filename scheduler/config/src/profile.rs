//! Profiles: their fields, and the specs from which the core builds them.

use super::KnownPlugins;
use super::args::{check_envelope, complete, defaults};
use super::value::ConfigObject;
use berth_profile::{
    EnabledPlugin, PluginConfig, PluginSet, PluginSets, Point, ProfileSpec, merge,
};
use serde_json::Value;
use std::collections::BTreeSet;

/// One profile.
#[derive(Debug, Clone, PartialEq)]
pub struct ProfileConfig {
    /// The name by which pods select their scheduler.
    pub scheduler_name: String,
    /// The percentage of nodes to find, if it differs from the whole configuration.
    pub percentage_of_nodes_to_score: Option<i32>,
    /// The plugins that are enabled in addition to, or instead of, the default plugins, as written.
    pub plugins: PluginSets,
    /// The arguments of plugins: first the given ones, in their order, with all defaults filled in; then the defaults
    /// of every other enabled plugin with arguments.
    pub plugin_config: Vec<PluginConfig>,
    /// The number of given arguments in it.
    pub(super) given_args: usize,
}

impl ProfileConfig {
    /// The default profile.
    pub(super) fn new(known: &KnownPlugins) -> Self {
        let mut profile = Self {
            scheduler_name: ProfileSpec::DEFAULT_SCHEDULER_NAME.to_owned(),
            percentage_of_nodes_to_score: None,
            plugins: PluginSets::default(),
            plugin_config: Vec::new(),
            given_args: 0,
        };
        profile.add_default_args(known);
        profile
    }

    /// Enables a plugin at all its extension points, in addition to the default plugins, with its default arguments.
    pub(super) fn enable(&mut self, plugin: EnabledPlugin, known: &KnownPlugins) {
        self.plugins.multi_point.enabled.push(plugin);
        self.add_default_args(known);
    }

    /// Reads one. A name that is not given stays empty.
    pub(super) fn decode(mut at: ConfigObject<'_>, known: &KnownPlugins) -> Self {
        let mut profile = Self {
            scheduler_name: at.or_default("schedulerName"),
            percentage_of_nodes_to_score: at.read("percentageOfNodesToScore"),
            plugins: PluginSets::default(),
            plugin_config: Vec::new(),
            given_args: 0,
        };
        if let Some(plugins) = at.object("plugins") {
            profile.decode_plugins(plugins);
        }
        for mut at in at.objects("pluginConfig") {
            let name: String = at.or_default("name");
            if name.is_empty() {
                at.problems.required(at.path("name"));
            }
            let given = at.get("args").unwrap_or(&Value::Null);
            // The arguments of an unknown plugin are kept; the profile reports the name.
            let args = match known.registry.get(&name) {
                Some(plugin) => {
                    check_envelope(plugin, given, &at.path("args"), at.problems);
                    complete(plugin, given, &known.features)
                }
                None => given.clone(),
            };
            at.close();
            profile.plugin_config.push(PluginConfig { name, args });
        }
        at.close();
        // Arguments that were given take precedence over the defaults that follow.
        profile.given_args = profile.plugin_config.len();
        profile.add_default_args(known);
        profile
    }

    fn decode_plugins(&mut self, mut at: ConfigObject<'_>) {
        let set = |at: &mut ConfigObject<'_>, field| Some(decode_set(at.object(field)?));
        for point in Point::ALL {
            if let Some(set) = set(&mut at, point.field()) {
                self.plugins.points.insert(point, set);
            }
        }
        if let Some(set) = set(&mut at, "multiPoint") {
            self.plugins.multi_point = set;
        }
        at.close();
    }

    /// Appends the default arguments of every plugin that is enabled and was given none, by name (F-33).
    fn add_default_args(&mut self, known: &KnownPlugins) {
        let sets = self.merged(&known.default_plugins());
        let enabled: BTreeSet<&str> = sets
            .points
            .values()
            .chain([&sets.multi_point])
            .flat_map(|set| &set.enabled)
            .map(|plugin| plugin.name.as_str())
            .collect();
        for name in enabled {
            let plugin = known.registry.get(name);
            if let Some(args) = plugin.and_then(|plugin| defaults(plugin, &known.features))
                && !self.plugin_config.iter().any(|c| c.name == name)
            {
                let name = name.to_owned();
                self.plugin_config.push(PluginConfig { name, args });
            }
        }
    }

    /// The plugins with the default ones merged in (F-32).
    pub(super) fn merged(&self, defaults: &PluginSets) -> PluginSets {
        merge(defaults, &self.plugins)
    }

    /// The same for the core, which merges in the default plugins itself.
    pub(super) fn spec(&self) -> ProfileSpec {
        ProfileSpec {
            scheduler_name: self.scheduler_name.clone(),
            percentage_of_nodes_to_score: self.percentage_of_nodes_to_score,
            plugins: self.plugins.clone(),
            plugin_config: self.plugin_config.clone(),
        }
    }
}

fn decode_set(mut at: ConfigObject<'_>) -> PluginSet {
    let mut plugins = |field| at.objects(field).into_iter().map(decode_plugin);
    let enabled = plugins("enabled").collect();
    let disabled = plugins("disabled").map(|plugin| plugin.name).collect();
    at.close();
    PluginSet { enabled, disabled }
}

fn decode_plugin(mut at: ConfigObject<'_>) -> EnabledPlugin {
    let plugin = EnabledPlugin {
        name: at.or_default("name"),
        weight: at.read::<i32>("weight").map(i64::from),
    };
    let path = at.path("name");
    if plugin.name.is_empty() && !at.problems.has(&path, false) {
        at.problems.required(path);
    }
    at.close();
    plugin
}
