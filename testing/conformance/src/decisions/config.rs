//! The profile of a recorded KubeSchedulerConfiguration.

use berth_framework::FeatureGates;
use berth_framework::registry::Registry;
use berth_scheduler::profile::ProfileSpec;
use serde_json::Value;

/// The profile of a scheduler name; the first one for a pod without a scheduler name.
pub(super) fn profile(
    recorded: &Value,
    scheduler_name: &str,
    registry: &Registry,
    features: FeatureGates,
) -> Result<ProfileSpec, String> {
    let text = recorded.to_string();
    let (config, _) = berth_config::load(&text, "config", features, registry, |_| {})
        .map_err(|errors| format!("the configuration is refused: {errors}"))?;
    let mut spec = config
        .profile_specs()
        .into_iter()
        .find(|profile| scheduler_name.is_empty() || profile.scheduler_name == scheduler_name)
        .ok_or_else(|| format!("config has no profile {scheduler_name:?}"))?;
    spec.percentage_of_nodes_to_score = spec
        .percentage_of_nodes_to_score
        .or(config.percentage_of_nodes_to_score);
    Ok(spec)
}
