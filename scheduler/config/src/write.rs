//! A configuration written out in full, as `--write-config-to` does.

use super::profile::ProfileConfig;
use super::{API_VERSION, Config, KIND};
use berth_framework::cluster::QUOTA_GATE_PLUGIN;
use berth_profile::{PluginConfig, PluginSet, PluginSets, Point};
use serde_json::{Map, Value, json};

impl Config {
    /// The configuration with everything that was left out filled in, as YAML.
    pub fn to_yaml(&self) -> String {
        let value = self.to_value();
        // JSON is YAML too, should the writer ever refuse a value.
        serde_saphyr::to_string(&value).unwrap_or_else(|_| format!("{value:#}\n"))
    }

    /// The same as a value, such as `/configz` shows.
    ///
    /// `percentageOfNodesToScore` is written as 0 when it was not given, as kube-scheduler does.
    pub fn to_value(&self) -> Value {
        let defaults = self.known.default_plugins();
        let profiles: Vec<Value> = self
            .profiles
            .iter()
            .map(|profile| profile.to_value(&defaults))
            .collect();
        let mut value = json!({
            "apiVersion": API_VERSION,
            "kind": KIND,
            "parallelism": self.parallelism,
            "leaderElection": self.leader_election,
            "clientConnection": self.client_connection,
            "enableProfiling": self.enable_profiling,
            "enableContentionProfiling": self.enable_contention_profiling,
            "percentageOfNodesToScore": self.percentage_of_nodes_to_score.unwrap_or(0),
            "podInitialBackoffSeconds": self.pod_initial_backoff_seconds,
            "podMaxBackoffSeconds": self.pod_max_backoff_seconds,
            "profiles": profiles,
        });
        if !self.extenders.is_empty() {
            value["extenders"] = json!(self.extenders);
        }
        if self.delay_cache_until_active {
            value["delayCacheUntilActive"] = json!(true);
        }
        value
    }
}

impl ProfileConfig {
    fn to_value(&self, defaults: &PluginSets) -> Value {
        let sets = self.merged(defaults);
        let mut plugins = Map::new();
        let nothing = PluginSet::default();
        for point in Point::ALL {
            let set = sets.point(point).unwrap_or(&nothing);
            // Kubernetes 1.36 does not read them.
            let is_new = matches!(point, Point::PlacementFeasible | Point::PodGroupPostFilter);
            if is_new && *set == nothing {
                continue;
            }
            plugins.insert(point.field().to_owned(), set_value(set));
        }
        // kube-scheduler does not have this plugin and would refuse the file. Reading the file enables it again.
        let mut multi_point = sets.multi_point.clone();
        multi_point
            .enabled
            .retain(|plugin| plugin.name != QUOTA_GATE_PLUGIN);
        plugins.insert("multiPoint".to_owned(), set_value(&multi_point));
        let config: Vec<Value> = self.plugin_config.iter().map(config_value).collect();
        let mut value = json!({
            "schedulerName": self.scheduler_name,
            "plugins": plugins,
            "pluginConfig": config,
        });
        if let Some(percentage) = self.percentage_of_nodes_to_score {
            value["percentageOfNodesToScore"] = json!(percentage);
        }
        value
    }
}

fn config_value(config: &PluginConfig) -> Value {
    let mut value = json!({"name": config.name});
    if !config.args.is_null() {
        value["args"] = config.args.clone();
    }
    value
}

fn set_value(set: &PluginSet) -> Value {
    let plugin = |name: &str, weight: i64| json!({"name": name, "weight": weight});
    let enabled = set.enabled.iter();
    let enabled: Vec<Value> = enabled
        .map(|e| plugin(&e.name, e.weight.unwrap_or(0)))
        .collect();
    let disabled: Vec<Value> = set.disabled.iter().map(|name| plugin(name, 0)).collect();
    let mut value = json!({});
    for (field, plugins) in [("enabled", enabled), ("disabled", disabled)] {
        if !plugins.is_empty() {
            value[field] = Value::Array(plugins);
        }
    }
    value
}
