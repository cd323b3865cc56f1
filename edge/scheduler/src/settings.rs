//! Flags and the configuration file become the settings of a scheduler.
//!
//! The file takes precedence over the deprecated flags, and the flags of leader election over the file, as in
//! kube-scheduler.

use crate::exit::CommandFailure;
use crate::flags::{DeprecatedFlags, FeatureFlags, FlagEffect, Flags, LeaderElectionFlags};
use berth_api::Release;
use berth_config::Config;
use berth_framework::FeatureGates;
use berth_framework::features::Versions;
use berth_framework::registry::Registry;
use std::path::Path;
use std::time::Duration;

/// The settings of a scheduler.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// The configuration, complete and checked.
    pub(crate) config: Config,
    /// The text of the file of `--config`, if there is one.
    pub(crate) file: Option<String>,
    /// The time after which an unschedulable pod is tried again without an event.
    pub(crate) pod_max_in_unschedulable_pods_duration: Duration,
    /// The warnings for operators about the settings.
    pub(crate) warnings: Vec<String>,
}

impl Settings {
    /// The settings of a command line. `usual` is the release unless `--emulated-version` names one.
    ///
    /// # Errors
    /// Lists all its faults and the faults of the configuration file.
    pub(crate) fn resolve(
        flags: &Flags,
        registry: &Registry,
        usual: Release,
    ) -> Result<Self, CommandFailure> {
        let mut warnings: Vec<String> = flags
            .shown()
            .into_iter()
            .filter(|(_, _, is_set)| *is_set)
            .filter_map(|(flag, _, _)| flag.warning())
            .collect();
        let features = gates(&flags.features, usual, &mut warnings)?;
        check_hidden_metrics_version(
            &flags.metrics.show_hidden_metrics_for_version.value,
            features.release(),
        )?;
        // With a file, its fields count; only some flags still apply, as in kube-scheduler.
        if let Some(path) = &flags.misc.config.value {
            let text = read_text(path)?;
            let (config, more) = config_of_file(flags, path, &text, features, registry)?;
            warnings.extend(more);
            let settings = Self::new(config, flags, warnings);
            let file = Some(text);
            return Ok(Self { file, ..settings });
        }
        let mut config = Config::new(features, registry);
        apply_deprecated(&flags.deprecated, &mut config);
        override_election(&flags.leader_election, &mut config);
        config
            .check("the command line")
            .map_err(CommandFailure::usage)?;
        Ok(Self::new(config, flags, warnings))
    }

    fn new(config: Config, flags: &Flags, warnings: Vec<String>) -> Self {
        let flushed = flags
            .deprecated
            .pod_max_in_unschedulable_pods_duration
            .value;
        Self {
            config,
            file: None,
            pod_max_in_unschedulable_pods_duration: flushed.as_duration(),
            warnings,
        }
    }
}

/// Reads the versions and their gates.
fn gates(
    flags: &FeatureFlags,
    usual: Release,
    warnings: &mut Vec<String>,
) -> Result<FeatureGates, CommandFailure> {
    let (emulated, min) = (
        &flags.emulated_version.value,
        &flags.min_compatibility_version.value,
    );
    let versions = Versions::read(emulated, min, usual).map_err(CommandFailure::usage)?;
    parse_gates(&flags.feature_gates.value.0, versions, warnings)
}

/// Reads `A=true,B=false`.
///
/// # Errors
/// Lists every gate that cannot be set as requested.
pub fn parse_gates(
    text: &str,
    versions: Versions,
    warnings: &mut Vec<String>,
) -> Result<FeatureGates, CommandFailure> {
    let (gates, more) = FeatureGates::parse(text, versions).map_err(|errors| {
        let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
        CommandFailure::Usage(format!("--feature-gates: {}", errors.join("; ")))
    })?;
    warnings.extend(more.iter().map(ToString::to_string));
    Ok(gates)
}

/// The kubeconfig of a command line or its configuration file. Faults of the file are reported when it is read
/// completely.
pub(crate) fn kubeconfig(flags: &Flags) -> Option<String> {
    let of_flag = || {
        let path = flags.deprecated.kubeconfig.value.as_ref();
        path.map(|path| path.display().to_string())
    };
    let Some(path) = &flags.misc.config.value else {
        return of_flag();
    };
    let text = std::fs::read_to_string(path).ok()?;
    let file: serde_json::Value = serde_saphyr::from_str(&text).ok()?;
    let named = file["clientConnection"]["kubeconfig"].as_str();
    let named = named.filter(|path| !path.is_empty());
    named.map(str::to_owned).or_else(of_flag)
}

/// The configuration in the text of the file of `--config` with the flags that override it, and the warnings about
/// both.
///
/// # Errors
/// Lists all faults, each with its path.
pub(crate) fn config_of_file(
    flags: &Flags,
    path: &Path,
    text: &str,
    features: FeatureGates,
    registry: &Registry,
) -> Result<(Config, Vec<String>), CommandFailure> {
    let mut uses_flag = false;
    let (config, more) = config_of_text(path, text, features, registry, |config| {
        override_election(&flags.leader_election, config);
        uses_flag = use_kubeconfig_flag(&flags.deprecated, config);
    })?;
    let mut warnings = ignored(flags, uses_flag);
    warnings.extend(more);
    Ok((config, warnings))
}

/// The text of a configuration file.
///
/// # Errors
/// When it cannot be read.
pub fn read_text(path: &Path) -> Result<String, CommandFailure> {
    std::fs::read_to_string(path).map_err(|e| {
        CommandFailure::Usage(format!(
            "failed to read configuration {}: {e}; give another file with --config FILE",
            path.display()
        ))
    })
}

/// Reads a configuration file and checks all of it, the plugins' arguments too. Returns the warnings about it.
///
/// # Errors
/// Lists all faults, each with its path.
pub fn read_config(
    path: &Path,
    features: FeatureGates,
    registry: &Registry,
    adjust: impl FnOnce(&mut Config),
) -> Result<(Config, Vec<String>), CommandFailure> {
    let text = read_text(path)?;
    config_of_text(path, &text, features, registry, adjust)
}

/// Checks the text of a configuration file, the plugins' arguments too. Returns the warnings about it.
///
/// # Errors
/// Lists all its faults.
pub(crate) fn config_of_text(
    path: &Path,
    text: &str,
    features: FeatureGates,
    registry: &Registry,
    adjust: impl FnOnce(&mut Config),
) -> Result<(Config, Vec<String>), CommandFailure> {
    let shown = path.display().to_string();
    let (config, warnings) = berth_config::load(text, &shown, features, registry, adjust)
        .map_err(CommandFailure::usage)?;
    let warnings = warnings.iter().map(|text| format!("{shown}: {text}"));
    Ok((config, warnings.collect()))
}

/// Takes the kubeconfig of the command line where the file names none: kube-scheduler would ignore it. Returns whether
/// it was taken.
fn use_kubeconfig_flag(flags: &DeprecatedFlags, config: &mut Config) -> bool {
    let named = &mut config.client_connection.kubeconfig;
    match &flags.kubeconfig.value {
        Some(path) if named.is_empty() => {
            *named = path.display().to_string();
            true
        }
        _ => false,
    }
}

/// The deprecated flags that were given and are ignored because there is a configuration file.
fn ignored(flags: &Flags, uses_kubeconfig: bool) -> Vec<String> {
    flags
        .shown()
        .into_iter()
        .filter(|(flag, _, is_set)| {
            let is_ignored =
                matches!(flag.effect, FlagEffect::Deprecated(field) if !field.is_empty());
            *is_set && is_ignored && !(uses_kubeconfig && flag.name() == "kubeconfig")
        })
        .map(|(flag, _, _)| {
            format!(
                "flag --{} is ignored because --config is given",
                flag.name()
            )
        })
        .collect()
}

fn apply_deprecated(flags: &DeprecatedFlags, config: &mut Config) {
    let connection = &mut config.client_connection;
    if let Some(path) = &flags.kubeconfig.value {
        connection.kubeconfig = path.display().to_string();
    }
    connection.qps = flags.kube_api_qps.value;
    connection.burst = flags.kube_api_burst.value;
    connection
        .content_type
        .clone_from(&flags.kube_api_content_type.value);
    config.enable_profiling = flags.profiling.value;
    config.enable_contention_profiling = flags.contention_profiling.value;
}

/// Applies the flags of leader election that were given.
fn override_election(flags: &LeaderElectionFlags, config: &mut Config) {
    let election = &mut config.leader_election;
    // A flag that was not given leaves the field of the file.
    if flags.leader_elect.is_set {
        election.leader_elect = flags.leader_elect.value;
    }
    for (flag, field) in [
        (
            &flags.leader_elect_lease_duration,
            &mut election.lease_duration,
        ),
        (
            &flags.leader_elect_renew_deadline,
            &mut election.renew_deadline,
        ),
        (&flags.leader_elect_retry_period, &mut election.retry_period),
    ] {
        if flag.is_set {
            *field = flag.value;
        }
    }
    for (flag, field) in [
        (
            &flags.leader_elect_resource_lock,
            &mut election.resource_lock,
        ),
        (
            &flags.leader_elect_resource_name,
            &mut election.resource_name,
        ),
        (
            &flags.leader_elect_resource_namespace,
            &mut election.resource_namespace,
        ),
    ] {
        if flag.is_set {
            field.clone_from(&flag.value);
        }
    }
}

/// Checks the version of `--show-hidden-metrics-for-version`.
///
/// # Errors
/// It is not the previous version.
fn check_hidden_metrics_version(version: &str, release: Release) -> Result<(), CommandFailure> {
    let previous = format!("1.{}", release.minor() - 1);
    if version.is_empty() || version == previous {
        return Ok(());
    }
    Err(CommandFailure::Usage(format!(
        "invalid argument {version:?} for --show-hidden-metrics-for-version: only the previous minor version is \
         meaningful, {previous}"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags;
    use clap::Command;

    fn resolve(arguments: &[&str]) -> Result<Settings, String> {
        let command = flags::add_to(Command::new("scheduler").no_binary_name(true));
        let matches = command
            .try_get_matches_from(arguments)
            .map_err(|e| e.to_string())?;
        let flags = Flags::read(&matches).map_err(|e| e.to_string())?;
        Settings::resolve(&flags, &berth_plugins::in_tree(), Release::OLDEST).map_err(|failure| {
            match failure {
                CommandFailure::Usage(text) | CommandFailure::Environment(text) => text,
                other => format!("{other:?}"),
            }
        })
    }

    /// Case 256.
    #[test]
    fn deprecated_flags_count_without_a_file() {
        let settings = resolve(&[
            "--kubeconfig=/k",
            "--kube-api-qps=7",
            "--kube-api-burst",
            "9",
            "--profiling=false",
            "--pod-max-in-unschedulable-pods-duration=1m",
        ])
        .expect("settings");
        let connection = &settings.config.client_connection;
        assert_eq!(connection.kubeconfig, "/k");
        assert_eq!((connection.qps, connection.burst), (7.0, 9));
        assert!(!settings.config.enable_profiling);
        assert_eq!(
            settings.pod_max_in_unschedulable_pods_duration,
            Duration::from_secs(60)
        );
        assert_eq!(
            settings.warnings,
            [
                "flag --kube-api-burst is deprecated; use clientConnection.burst in the file of --config",
                "flag --kube-api-qps is deprecated; use clientConnection.qps in the file of --config",
                "flag --kubeconfig is deprecated; use clientConnection.kubeconfig in the file of --config",
                "flag --pod-max-in-unschedulable-pods-duration is deprecated",
                "flag --profiling is deprecated; use enableProfiling in the file of --config",
            ]
        );
    }

    /// Case 256: the file takes precedence over deprecated flags, and flags of leader election over the file.
    #[test]
    fn the_file_and_the_flags_of_leader_election_count() {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        let text = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n\
                    clientConnection: {qps: 5}\nleaderElection: {leaseDuration: 30s, resourceName: mine}\n";
        std::fs::write(&file, text).expect("a temporary file");
        let path = file.path().display().to_string();
        let settings = resolve(&[
            "--config",
            &path,
            "--kube-api-qps=7",
            "--kubeconfig=/k",
            "--leader-elect-lease-duration=40s",
            "--leader-elect=false",
        ]);
        let broken = resolve(&["--config", &path, "--leader-elect-renew-deadline=60s"]);
        let settings = settings.expect("settings");
        let election = &settings.config.leader_election;
        assert_eq!(settings.config.client_connection.qps, 5.0);
        assert_eq!(election.lease_duration.to_string(), "40s");
        assert_eq!(election.resource_name, "mine");
        assert!(!election.leader_elect);
        let ignored = "flag --kube-api-qps is ignored because --config is given";
        assert!(settings.warnings.iter().any(|w| w == ignored));
        assert_eq!(settings.config.client_connection.kubeconfig, "/k");
        let error = broken.expect_err("the deadline is too long");
        assert!(error.contains("leaderElection.leaseDuration"), "{error}");
    }

    #[test]
    fn what_cannot_be_is_refused_with_the_way_out() {
        for (arguments, message) in [
            (
                &["--secure-port=x"][..],
                "invalid argument \"x\" for --secure-port: invalid digit found in string",
            ),
            (
                &["--feature-gates=Nope=true"],
                "--feature-gates: unrecognized feature gate: Nope",
            ),
            (
                &["--emulated-version=1.35"],
                "emulation version 1.35 is not between [1.36, 1.38.0]",
            ),
            (
                &["--min-compatibility-version=kube=1.30"],
                "minCompatibilityVersion version 1.30 is not between [1.33, 1.36]",
            ),
            (
                &[
                    "--emulated-version=1.37",
                    "--feature-gates=GangScheduling=false",
                ],
                "--feature-gates: unrecognized feature gate: GangScheduling",
            ),
            (
                &[
                    "--emulated-version=1.38",
                    "--show-hidden-metrics-for-version=1.36",
                ],
                "invalid argument \"1.36\" for --show-hidden-metrics-for-version: only the previous minor version is meaningful, 1.37",
            ),
            (
                &["--leader-elect-resource-lock=endpoints"],
                "the command line: leaderElection.resourceLock: Invalid value: \"endpoints\": resourceLock value must be \"leases\"",
            ),
            (
                &["--config=/nowhere.yaml"],
                "failed to read configuration /nowhere.yaml: No such file or directory (os error 2); give another file with --config FILE",
            ),
        ] {
            let error = resolve(arguments).expect_err("a refusal");
            assert_eq!(error, message, "{arguments:?}");
        }
        let error = resolve(&["pod.yaml"]).expect_err("no arguments are taken");
        assert!(error.contains("unexpected argument 'pod.yaml'"), "{error}");
    }
}
