//! The rules of a configuration, whatever plugins there are (F-34).

use super::error::{Problems, show};
use super::profile::ProfileConfig;
use super::{API_VERSION, ClientConnection, Config, LeaderElection, extender};
use berth_api::GoDuration;
use berth_profile::{PluginConfig, PluginSet, Point};
use serde_json::{Value, json};

/// Plugins of earlier versions.
const REMOVED_PLUGINS: [&str; 4] = [
    "AzureDiskLimits",
    "CinderLimits",
    "EBSLimits",
    "GCEPDLimits",
];

/// The formats in which Berth can talk to an API server.
const CONTENT_TYPES: [&str; 2] = ["application/vnd.kubernetes.protobuf", "application/json"];

/// Checks that requests can be encoded, and that some answer can be decoded.
fn content_types(connection: &ClientConnection, problems: &Problems) {
    let supported = CONTENT_TYPES.join(" and ");
    let content_type = connection.content_type.as_str();
    if !CONTENT_TYPES.contains(&content_type) {
        let why = format!("must be one of the supported types: {supported}");
        problems.invalid("clientConnection.contentType", content_type, &why);
    }
    let accept = connection.accept_content_types.as_str();
    let mut types = accept.split(',').map(|clause| {
        let media_type = clause.split(';').next().unwrap_or_default();
        media_type.trim()
    });
    let is_supported =
        |name: &str| CONTENT_TYPES.contains(&name) || matches!(name, "*/*" | "application/*");
    if !accept.is_empty() && !types.any(is_supported) {
        let why = format!("must contain one of the supported types: {supported}");
        problems.invalid("clientConnection.acceptContentTypes", accept, &why);
    }
}

/// Checks everything that does not depend on plugins.
pub(super) fn validate(config: &Config, problems: &Problems) {
    if config.client_connection.burst < 0 {
        let burst = config.client_connection.burst;
        problems.invalid("clientConnection.burst", burst, "must be non-negative");
    }
    content_types(&config.client_connection, problems);
    if config.leader_election.leader_elect {
        leader_election(&config.leader_election, problems);
    }
    if config.parallelism <= 0 {
        problems.invalid(
            "parallelism",
            config.parallelism,
            "should be an integer value greater than zero",
        );
    }
    percentage(config.percentage_of_nodes_to_score, "", problems);
    let (initial, max) = (
        config.pod_initial_backoff_seconds,
        config.pod_max_backoff_seconds,
    );
    if initial <= 0 {
        problems.invalid(
            "podInitialBackoffSeconds",
            initial,
            "must be greater than 0",
        );
    }
    if max < initial {
        problems.invalid(
            "podMaxBackoffSeconds",
            max,
            "must be greater than or equal to PodInitialBackoffSeconds",
        );
    }
    if config.profiles.is_empty() {
        problems.required("profiles");
    }
    for (i, profile) in config.profiles.iter().enumerate() {
        let path = format!("profiles[{i}]");
        let name = &profile.scheduler_name;
        let place = format!("{path}.schedulerName");
        if name.is_empty() {
            if !problems.has(&place, false) {
                problems.required(place);
            }
        } else if config.profiles[..i]
            .iter()
            .any(|p| p.scheduler_name == *name)
        {
            problems.duplicate(place, name);
        }
        percentage(
            profile.percentage_of_nodes_to_score,
            &format!("{path}."),
            problems,
        );
        plugins(profile, &path, problems);
    }
    queue_sort(&config.profiles, problems);
    extender::validate(&config.extenders, problems);
    extender::validate_profiles(
        &config.extenders,
        &config.known.registry,
        &config.profiles,
        problems,
    );
}

fn leader_election(election: &LeaderElection, problems: &Problems) {
    let (lease, renew, retry) = (
        election.lease_duration,
        election.renew_deadline,
        election.retry_period,
    );
    let at = |field: &str| format!("leaderElection.{field}");
    for (field, duration) in [
        ("leaseDuration", lease),
        ("renewDeadline", renew),
        ("retryPeriod", retry),
    ] {
        if duration <= GoDuration::default() {
            let why = "must be greater than zero";
            problems.invalid(at(field), duration.to_string(), why);
        }
    }
    if lease <= renew {
        let why = "must be greater than `RenewDeadline`";
        problems.invalid(at("leaseDuration"), lease.to_string(), why);
    }
    // Upstream detects this when it creates the elector. The jitter factor is 1.2.
    let jittered = i128::from(retry.as_nanos()) * 6;
    if retry > GoDuration::default() && i128::from(renew.as_nanos()) * 5 <= jittered {
        let why = "renewDeadline must be greater than retryPeriod*JitterFactor (1.2)";
        problems.invalid(at("renewDeadline"), renew.to_string(), why);
    }
    for (field, text) in [
        ("resourceLock", &election.resource_lock),
        ("resourceNamespace", &election.resource_namespace),
        ("resourceName", &election.resource_name),
    ] {
        if text.is_empty() {
            problems.required(at(field));
        }
    }
    if election.resource_lock != "leases" {
        let why = "resourceLock value must be \"leases\"";
        problems.invalid(at("resourceLock"), election.resource_lock.as_str(), why);
    }
}

fn percentage(given: Option<i32>, prefix: &str, problems: &Problems) {
    if let Some(given) = given.filter(|given| !(0..=100).contains(given)) {
        problems.invalid(
            format!("{prefix}percentageOfNodesToScore"),
            given,
            "not in valid range [0-100]",
        );
    }
}

fn plugins(profile: &ProfileConfig, path: &str, problems: &Problems) {
    let removed = |path: String, name: &str, problems: &Problems| {
        if REMOVED_PLUGINS.contains(&name) {
            let why = format!(
                "was invalid in version {API_VERSION:?} (KubeSchedulerConfiguration is version {API_VERSION:?})"
            );
            problems.invalid(path, name, why);
        }
    };
    for (point, set) in &profile.plugins.points {
        for (i, plugin) in set.enabled.iter().enumerate() {
            let path = format!("{path}.plugins.{}.enabled[{i}]", point.field());
            removed(path, &plugin.name, problems);
        }
    }
    let given = &profile.plugin_config[..profile.given_args.min(profile.plugin_config.len())];
    for (i, config) in given.iter().enumerate() {
        let path = format!("{path}.pluginConfig[{i}]");
        removed(path.clone(), &config.name, problems);
        let same = |earlier: &PluginConfig| earlier.name == config.name;
        if !config.name.is_empty() && given[..i].iter().any(same) {
            problems.duplicate(path, &config.name);
        }
    }
}

/// All profiles share one queue, so they must order it alike.
fn queue_sort(profiles: &[ProfileConfig], problems: &Problems) {
    let Some((first, others)) = profiles.split_first() else {
        return;
    };
    let set = |profile: &ProfileConfig| -> PluginSet {
        let set = profile.plugins.point(Point::QueueSort);
        set.cloned().unwrap_or_default()
    };
    let canonical = set(first);
    if canonical.enabled.len() > 1 {
        problems.invalid(
            "profiles[0].plugins.queueSort.enabled",
            canonical.enabled.len(),
            "only one queue sort plugin can be enabled",
        );
    }
    let args = |profile: &ProfileConfig, name: &str| -> Option<(usize, Value)> {
        let at = profile.plugin_config.iter().position(|c| c.name == name)?;
        Some((at, profile.plugin_config.get(at)?.args.clone()))
    };
    let name = canonical.enabled.first().map(|plugin| plugin.name.as_str());
    let first_args = name.and_then(|name| args(first, name));
    for (i, profile) in others.iter().enumerate() {
        let path = format!("profiles[{}]", i + 1);
        let this = set(profile);
        if this != canonical {
            let names: Vec<&str> = this.enabled.iter().map(|p| p.name.as_str()).collect();
            let shown = json!({"enabled": names, "disabled": this.disabled});
            let path = format!("{path}.plugins.queueSort");
            problems.invalid(path, shown, "must be the same for all profiles");
        }
        // The same plugin with other arguments orders the queue differently.
        let these = name.and_then(|name| args(profile, name));
        if let Some((at, these)) = these
            && first_args.as_ref().map(|(_, args)| args) != Some(&these)
        {
            let path = format!("{path}.pluginConfig[{at}].args");
            let why = "queueSort must be the same for all profiles";
            problems.add(path, format!("Invalid value: {}: {why}", show(&these)));
        }
    }
}
