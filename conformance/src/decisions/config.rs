//! The profile that a recorded KubeSchedulerConfiguration asks for.

use berth_scheduler::profile::{EnabledPlugin, PluginConfig, PluginSet, Point, ProfileSpec};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Configuration {
    #[serde(default)]
    profiles: Vec<RecordedProfile>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RecordedProfile {
    scheduler_name: String,
    #[serde(default)]
    plugins: BTreeMap<String, RecordedSet>,
    #[serde(default)]
    plugin_config: Vec<RecordedArgs>,
}

#[derive(Debug, Deserialize)]
struct RecordedSet {
    #[serde(default)]
    enabled: Vec<RecordedPlugin>,
    #[serde(default)]
    disabled: Vec<RecordedPlugin>,
}

#[derive(Debug, Deserialize)]
struct RecordedPlugin {
    name: String,
    weight: Option<i64>,
}

#[derive(Debug, Deserialize)]
struct RecordedArgs {
    name: String,
    #[serde(default)]
    args: Value,
}

impl From<RecordedSet> for PluginSet {
    fn from(set: RecordedSet) -> Self {
        Self {
            enabled: set
                .enabled
                .into_iter()
                .map(|plugin| EnabledPlugin {
                    name: plugin.name,
                    weight: plugin.weight,
                })
                .collect(),
            disabled: set.disabled.into_iter().map(|plugin| plugin.name).collect(),
        }
    }
}

/// The profile of a scheduler name; the first one for a pod that names none.
pub(super) fn profile(config: &Value, scheduler_name: &str) -> Result<ProfileSpec, String> {
    let config: Configuration =
        Configuration::deserialize(config).map_err(|e| format!("config does not decode: {e}"))?;
    let recorded = config
        .profiles
        .into_iter()
        .find(|profile| scheduler_name.is_empty() || profile.scheduler_name == scheduler_name)
        .ok_or_else(|| format!("config has no profile {scheduler_name:?}"))?;
    let mut spec = ProfileSpec::named(&recorded.scheduler_name);
    for (field, set) in recorded.plugins {
        if field == "multiPoint" {
            spec.plugins.multi_point = set.into();
            continue;
        }
        let point = Point::ALL
            .into_iter()
            .find(|point| point.field() == field)
            .ok_or_else(|| format!("config names an unknown extension point {field:?}"))?;
        *spec.plugins.point_mut(point) = set.into();
    }
    spec.plugin_config = recorded
        .plugin_config
        .into_iter()
        .map(|config| PluginConfig {
            name: config.name,
            args: config.args,
        })
        .collect();
    Ok(spec)
}
