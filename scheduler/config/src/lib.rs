//! `KubeSchedulerConfiguration` (`kubescheduler.config.k8s.io/v1`): text in, a checked configuration or every
//! problem out.
//!
//! ```text
//! text ──parse_text──▶ value ──decode──▶ Config ──validate──▶ ──check (plugins)──▶ Config
//!            │                  │                    │                  │
//!            └──────────────────┴──── ConfigErrors ──┴──────────────────┘
//! ```
//!
//! - [`load`] performs all steps, [`parse`] all except the checks by plugins. Without a file, use [`Config::new`],
//!   followed by [`Config::check`].
//! - [`Config::set_options`] passes it to the core, [`Config::profile_specs`] only the profiles.
//! - [`Config::to_yaml`] prints it with all defaults filled in.
//!
//! Parsing continues after a problem, so that all problems are listed, each with its path. Plugins check their own
//! arguments: their factories are called, also with the arguments of disabled plugins.
//!
//! Differences from kube-scheduler: every node is scored unless `percentageOfNodesToScore` is given (0 is
//! kube-scheduler's adaptive percentage), and all arguments are checked at the start, including the arguments of
//! NodeResourcesFit.
//!
//! **Architecture invariants:** no I/O, no environment; files that the configuration names are not opened here.

mod args;
mod check;
mod decode;
mod document;
mod error;
mod extender;
mod fields;
mod profile;
#[cfg(test)]
mod tests;
mod validate;
mod value;
mod write;

pub use error::{ConfigError, ConfigErrors};
pub use extender::{Extender, ExtenderTls, ManagedResource};
pub use fields::{ConfigField, FIELDS};
pub use profile::ProfileConfig;

use berth_api::{Duration, GoDuration};
use berth_dispatcher::DispatcherOptions;
use berth_framework::FeatureGates;
use berth_framework::extender::Extenders;
use berth_framework::registry::Registry;
use berth_profile::{EnabledPlugin, PluginSets, ProfileSpec, default_plugins};
use berth_scheduler::{Reconfiguration, SchedulerOptions};
use error::Problems;
use serde::{Serialize, Serializer};
use std::sync::Arc;

/// The group of the configuration.
const API_GROUP: &str = "kubescheduler.config.k8s.io/";
/// The version of the configuration.
pub const API_VERSION: &str = "kubescheduler.config.k8s.io/v1";
/// The kind of the configuration.
pub const KIND: &str = "KubeSchedulerConfiguration";

/// A configuration with all defaults filled in.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The number of threads that a pass over the nodes may use.
    pub parallelism: i32,
    /// The election of the active scheduler.
    pub leader_election: LeaderElection,
    /// The connection to the API server.
    pub client_connection: ClientConnection,
    /// Whether profiles of the process are served.
    pub enable_profiling: bool,
    /// Whether profiles of locks are served.
    pub enable_contention_profiling: bool,
    /// For the profiles without a value of their own; see [`ProfileSpec::percentage_of_nodes_to_score`].
    pub percentage_of_nodes_to_score: Option<i32>,
    /// The backoff after the first failure.
    pub pod_initial_backoff_seconds: i64,
    /// The longest backoff.
    pub pod_max_backoff_seconds: i64,
    /// The profiles; at least one.
    pub profiles: Vec<ProfileConfig>,
    /// Webhooks that take part in scheduling.
    pub extenders: Vec<Extender>,
    /// Whether watches start only when this scheduler becomes active.
    pub delay_cache_until_active: bool,
    known: KnownPlugins,
}

/// The facts about plugins that the configuration reads.
#[derive(Debug, Clone)]
struct KnownPlugins {
    registry: Registry,
    features: FeatureGates,
}

impl KnownPlugins {
    fn new(features: FeatureGates, registry: &Registry) -> Self {
        Self {
            registry: registry.clone(),
            features,
        }
    }

    fn default_plugins(&self) -> PluginSets {
        default_plugins(&self.registry, &self.features)
    }
}

impl PartialEq for KnownPlugins {
    /// Plugins are known by their names.
    fn eq(&self, other: &Self) -> bool {
        self.features == other.features && self.registry.names().eq(other.registry.names())
    }
}

/// The election of the active scheduler.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LeaderElection {
    /// Whether leader election is enabled.
    pub leader_elect: bool,
    /// The time for which the other replicas wait after the leader's last renewal.
    pub lease_duration: GoDuration,
    /// The time for which the leader tries to renew its lease before it stops leading.
    pub renew_deadline: GoDuration,
    /// The time that every candidate waits between two attempts.
    pub retry_period: GoDuration,
    /// The kind of object for the election; `leases`.
    pub resource_lock: String,
    /// Its namespace.
    pub resource_namespace: String,
    /// Its name.
    pub resource_name: String,
}

impl Default for LeaderElection {
    fn default() -> Self {
        Self {
            leader_elect: true,
            lease_duration: GoDuration::from_secs(15),
            renew_deadline: GoDuration::from_secs(10),
            retry_period: GoDuration::from_secs(2),
            resource_lock: "leases".to_owned(),
            resource_namespace: "kube-system".to_owned(),
            resource_name: "kube-scheduler".to_owned(),
        }
    }
}

/// The connection to the API server.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClientConnection {
    /// The kubeconfig file; empty if none is named.
    pub kubeconfig: String,
    /// The accepted content type; empty: the content type of requests.
    pub accept_content_types: String,
    /// The content type of requests.
    pub content_type: String,
    /// The number of requests per second over time; negative: no limit.
    #[serde(serialize_with = "in_few_digits")]
    pub qps: f32,
    /// The number of requests at once.
    pub burst: i32,
}

/// Writes a number of 32 bits in as few digits as it takes: 50 and 0.1, not 50.0 and 0.10000000149.
fn in_few_digits<S: Serializer>(number: &f32, serializer: S) -> Result<S::Ok, S::Error> {
    let number = number.to_string().parse::<serde_json::Number>();
    number.ok().serialize(serializer)
}

impl Default for ClientConnection {
    fn default() -> Self {
        Self {
            kubeconfig: String::new(),
            accept_content_types: String::new(),
            content_type: "application/vnd.kubernetes.protobuf".to_owned(),
            qps: 50.0,
            burst: 100,
        }
    }
}

/// Reads and validates a configuration without asking the plugins. `source_name` is where the text is from, such as
/// the name of its file.
///
/// # Errors
/// Everything that is wrong with it.
pub fn parse(
    text: &str,
    source_name: &str,
    features: FeatureGates,
    registry: &Registry,
) -> Result<Config, ConfigErrors> {
    let known = KnownPlugins::new(features, registry);
    read(text, source_name, known, false, |_| {}).map(|(config, _)| config)
}

/// Reads a configuration and checks all of it, the plugins and their arguments too. `adjust` may change it before
/// it is validated: flags that override the file. Returns a warning for each field that has no effect.
///
/// # Errors
/// Everything that is wrong with it.
pub fn load(
    text: &str,
    source_name: &str,
    features: FeatureGates,
    registry: &Registry,
    adjust: impl FnOnce(&mut Config),
) -> Result<(Config, Vec<String>), ConfigErrors> {
    let known = KnownPlugins::new(features, registry);
    read(text, source_name, known, true, adjust)
}

fn read(
    text: &str,
    source_name: &str,
    known: KnownPlugins,
    checks_plugins: bool,
    adjust: impl FnOnce(&mut Config),
) -> Result<(Config, Vec<String>), ConfigErrors> {
    let document = document::parse_text(text).map_err(|error| ConfigErrors {
        source_name: source_name.to_owned(),
        errors: vec![error],
        left_out: 0,
    })?;
    let problems = Problems::default();
    // Without a configuration there is a problem.
    let mut config = match decode::decode(&document, known.clone(), &problems) {
        Some(config) => config,
        None => return problems.or(source_name, (Config::of(known), Vec::new())),
    };
    adjust(&mut config);
    config.find_problems(checks_plugins, &problems);
    problems.or(source_name, (config, fields::warnings(&document)))
}

impl Config {
    /// The configuration without a file and flags.
    pub fn new(features: FeatureGates, registry: &Registry) -> Self {
        Self::of(KnownPlugins::new(features, registry))
    }

    fn of(known: KnownPlugins) -> Self {
        Self {
            parallelism: 16,
            leader_election: LeaderElection::default(),
            client_connection: ClientConnection::default(),
            enable_profiling: true,
            enable_contention_profiling: true,
            percentage_of_nodes_to_score: None,
            pod_initial_backoff_seconds: 1,
            pod_max_backoff_seconds: 10,
            profiles: vec![ProfileConfig::new(&known)],
            extenders: Vec::new(),
            delay_cache_until_active: false,
            known,
        }
    }

    /// Enables a plugin in every profile, in addition to the default plugins, with its default arguments.
    pub fn enable(&mut self, plugin: &EnabledPlugin) {
        for profile in &mut self.profiles {
            profile.enable(plugin.clone(), &self.known);
        }
    }

    /// Checks a configuration that was made or changed by hand. `source_name` is where it is from, such as
    /// `the command line`.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn check(&self, source_name: &str) -> Result<(), ConfigErrors> {
        let problems = Problems::default();
        self.find_problems(true, &problems);
        problems.or(source_name, ())
    }

    fn find_problems(&self, checks_plugins: bool, problems: &Problems) {
        validate::validate(self, problems);
        if checks_plugins {
            let KnownPlugins { registry, features } = &self.known;
            check::check(&self.profiles, registry, features, problems);
        }
    }

    /// The feature gates.
    pub fn features(&self) -> FeatureGates {
        self.known.features
    }

    /// The profiles as the core takes them, with the arguments of their plugins complete.
    pub fn profile_specs(&self) -> Vec<ProfileSpec> {
        let mut specs: Vec<_> = self.profiles.iter().map(ProfileConfig::spec).collect();
        extender::leave_to_extenders(&self.extenders, &self.known.registry, &mut specs);
        specs
    }

    /// The backoff after the first failure, and the longest one.
    fn backoffs(&self) -> (Duration, Duration) {
        let seconds = |seconds: i64| Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
        (
            seconds(self.pod_initial_backoff_seconds),
            seconds(self.pod_max_backoff_seconds),
        )
    }

    /// The part of the configuration that a running core can apply. `extenders` are the callable extenders of the
    /// configuration; `source` is the configuration for a recording.
    pub fn reconfiguration(&self, extenders: Extenders, source: Arc<str>) -> Reconfiguration {
        let (pod_initial_backoff, pod_max_backoff) = self.backoffs();
        Reconfiguration {
            profiles: self.profile_specs(),
            percentage_of_nodes_to_score: self.percentage_of_nodes_to_score,
            pod_initial_backoff,
            pod_max_backoff,
            extenders,
            source,
        }
    }

    /// The fields that differ from `running` and that a running scheduler cannot apply, by their names in the
    /// configuration.
    pub fn needs_restart(&self, running: &Self) -> Vec<&'static str> {
        let differences = [
            ("parallelism", self.parallelism != running.parallelism),
            (
                "leaderElection",
                self.leader_election != running.leader_election,
            ),
            (
                "clientConnection",
                self.client_connection != running.client_connection,
            ),
            (
                "enableProfiling",
                self.enable_profiling != running.enable_profiling,
            ),
            (
                "enableContentionProfiling",
                self.enable_contention_profiling != running.enable_contention_profiling,
            ),
            (
                "delayCacheUntilActive",
                self.delay_cache_until_active != running.delay_cache_until_active,
            ),
        ];
        let differing = differences.into_iter().filter(|(_, differs)| *differs);
        differing.map(|(field, _)| field).collect()
    }

    /// The effective configuration after a scheduler that runs with `running` has applied this one: the fields of
    /// [`Self::needs_restart`] are unchanged.
    #[must_use]
    pub fn in_effect_after(&self, running: &Self) -> Self {
        Self {
            parallelism: running.parallelism,
            leader_election: running.leader_election.clone(),
            client_connection: running.client_connection.clone(),
            enable_profiling: running.enable_profiling,
            enable_contention_profiling: running.enable_contention_profiling,
            delay_cache_until_active: running.delay_cache_until_active,
            ..self.clone()
        }
    }

    /// Sets the options of the core from the configuration: profiles, share of nodes, backoffs, calls at once, feature
    /// gates.
    pub fn set_options(&self, options: &mut SchedulerOptions) {
        options.features = self.known.features;
        options.profiles = self.profile_specs();
        options.percentage_of_nodes_to_score = self.percentage_of_nodes_to_score;
        (options.pod_initial_backoff, options.pod_max_backoff) = self.backoffs();
        let parallelism = usize::try_from(self.parallelism).unwrap_or(1);
        let sized = DispatcherOptions::for_parallelism(parallelism);
        options.dispatcher.in_flight_max = sized.in_flight_max;
        options.dispatcher.lanes = sized.lanes;
    }
}
