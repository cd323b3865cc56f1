//! The configuration of a scheduler: profiles, plugins, release and feature gates.

use crate::{ClusterObjects, InputError};
use berth_api::{Release, Time};
use berth_config::Config;
use berth_explain::what_if::{ClaimChanges, CopiedObjects, WhatIfWorld};
use berth_framework::features::{Feature, FeatureGates, Versions};
use berth_framework::registry::Registry;
use berth_scheduler::SchedulerOptions;
use std::fmt;
use std::sync::Arc;

/// The feature gates of groups of pods.
pub const GROUP_GATES: [Feature; 5] = [
    Feature::GenericWorkload,
    Feature::TopologyAwareWorkloadScheduling,
    Feature::CompositePodGroup,
    Feature::PodGroupPreemptionPolicy,
    Feature::DRAWorkloadResourceClaims,
];

type MakeOptions = dyn Fn(FeatureGates) -> Result<SchedulerOptions, InputError> + Send + Sync;

/// The configuration of a scheduler. The default is that of kube-scheduler with the in-tree plugins, in the release of
/// the newest kubelet of the cluster.
///
/// The parts are checked together when the configuration is first used with a cluster.
#[derive(Clone)]
pub struct Configuration {
    registry: Registry,
    seed: u64,
    release: Option<Release>,
    gates: String,
    features: Option<FeatureGates>,
    /// The name and the text of a KubeSchedulerConfiguration.
    file: Option<(String, String)>,
    options: Option<Arc<MakeOptions>>,
}

impl Default for Configuration {
    fn default() -> Self {
        Self::with_plugins(berth_plugins::registry::in_tree())
    }
}

impl fmt::Debug for Configuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Configuration")
            .field("seed", &self.seed)
            .field("release", &self.release)
            .field("gates", &self.gates)
            .field("file", &self.file)
            .finish_non_exhaustive()
    }
}

impl Configuration {
    /// The default configuration with these plugins: the plugins of [`in_tree`](crate::plugins::in_tree) and others.
    pub fn with_plugins(registry: Registry) -> Self {
        Self {
            registry,
            seed: 0,
            release: None,
            gates: String::new(),
            features: None,
            file: None,
            options: None,
        }
    }

    /// With the profiles and settings of a KubeSchedulerConfiguration in YAML or JSON. `name` is the name of the text
    /// in messages. Fields that have no effect on decisions are read and ignored, such as leader election.
    #[must_use]
    pub fn yaml(self, name: &str, text: &str) -> Self {
        Self {
            file: Some((name.to_owned(), text.to_owned())),
            ..self
        }
    }

    /// With the behaviour of this release of Kubernetes.
    #[must_use]
    pub fn release(self, release: Release) -> Self {
        Self {
            release: Some(release),
            ..self
        }
    }

    /// With feature gates in the format of `--feature-gates`, such as `A=true,B=false`. The gates of groups of pods
    /// that are not named are on if the cluster has PodGroups.
    #[must_use]
    pub fn feature_gates(self, gates: &str) -> Self {
        Self {
            gates: gates.to_owned(),
            ..self
        }
    }

    /// With exactly these feature gates, independent of the release and the cluster.
    #[must_use]
    pub fn features(self, features: FeatureGates) -> Self {
        Self {
            features: Some(features),
            ..self
        }
    }

    /// With this seed of all random choices, such as the choice between nodes of equal score. The default is 0. The
    /// same input and seed give the same result.
    #[must_use]
    pub fn seed(self, seed: u64) -> Self {
        Self { seed, ..self }
    }

    /// Uses the options that `make` returns for feature gates instead of the options of a KubeSchedulerConfiguration,
    /// for the options of a recorded scheduler.
    #[must_use]
    pub fn options(
        self,
        make: impl Fn(FeatureGates) -> Result<SchedulerOptions, InputError> + Send + Sync + 'static,
    ) -> Self {
        Self {
            options: Some(Arc::new(make)),
            ..self
        }
    }

    /// The feature gates for a cluster, and the warnings about them.
    ///
    /// # Errors
    /// Lists every gate that cannot be set as requested.
    pub fn gates_for(
        &self,
        cluster: &ClusterObjects,
    ) -> Result<(FeatureGates, Vec<String>), InputError> {
        self.gates(cluster.release(), cluster.has_groups())
    }

    pub(crate) fn gates(
        &self,
        usual: Release,
        has_groups: bool,
    ) -> Result<(FeatureGates, Vec<String>), InputError> {
        if let Some(features) = self.features {
            return Ok((features, Vec::new()));
        }
        let versions = Versions::of(self.release.unwrap_or(usual));
        let (features, warnings) =
            FeatureGates::parse(&self.gates, versions).map_err(|errors| {
                let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
                InputError::FeatureGates(errors.join("; "))
            })?;
        let features = if has_groups {
            with_groups(features, &self.gates)
        } else {
            features
        };
        let warnings = warnings.iter().map(ToString::to_string);
        Ok((features, warnings.collect()))
    }

    /// The configuration with these gates, checked.
    pub(crate) fn checked(&self, features: FeatureGates) -> Result<CheckedSetup<'_>, InputError> {
        let mut setup = CheckedSetup {
            configuration: self,
            features,
            config: None,
            warnings: Vec::new(),
        };
        if self.options.is_none() {
            let (config, warnings) = self.config(features)?;
            if !config.extenders.is_empty() {
                return Err(InputError::Extenders);
            }
            setup.config = Some(Box::new(config));
            setup.warnings = warnings;
        }
        setup.options()?;
        Ok(setup)
    }

    fn config(&self, features: FeatureGates) -> Result<(Config, Vec<String>), InputError> {
        let Some((name, text)) = &self.file else {
            return Ok((Config::new(features, &self.registry), Vec::new()));
        };
        let read = berth_config::load(text, name, features, &self.registry, |_| {});
        let (config, warnings) =
            read.map_err(|error| InputError::Configuration(error.to_string()))?;
        let warnings = warnings.iter().map(|text| format!("{name}: {text}"));
        Ok((config, warnings.collect()))
    }
}

/// A configuration checked with the gates of a cluster.
#[derive(Debug)]
pub(crate) struct CheckedSetup<'a> {
    configuration: &'a Configuration,
    features: FeatureGates,
    /// `None` if the caller provides the options.
    config: Option<Box<Config>>,
    pub(crate) warnings: Vec<String>,
}

impl CheckedSetup<'_> {
    fn options(&self) -> Result<SchedulerOptions, InputError> {
        let mut options = match (&self.configuration.options, &self.config) {
            (Some(make), _) => make(self.features)?,
            (None, config) => {
                let mut options = SchedulerOptions::default();
                if let Some(config) = config {
                    config.set_options(&mut options);
                }
                options
            }
        };
        options.seed = self.configuration.seed;
        Ok(options)
    }

    /// A world with these objects.
    pub(crate) fn world(
        &self,
        objects: CopiedObjects,
        claims: &ClaimChanges,
        now: Time,
    ) -> Result<WhatIfWorld, InputError> {
        let registry = &self.configuration.registry;
        let world = WhatIfWorld::with_claims(self.options()?, registry, objects, claims, now);
        world.map_err(|error| InputError::Configuration(error.to_string()))
    }
}

/// Returns whether a text in the format of `--feature-gates` names a gate.
pub fn is_named(gates: &str, feature: Feature) -> bool {
    let mut entries = gates.split(',').map(|entry| entry.trim());
    entries.any(|entry| {
        let name = entry.split('=').next().unwrap_or(entry);
        name.trim_start_matches("kube:").trim() == feature.name()
    })
}

/// The gates with the gates of groups of pods on, independent of the release, except the gates that `given` names.
pub fn with_groups(features: FeatureGates, given: &str) -> FeatureGates {
    let mut features = features;
    for feature in GROUP_GATES {
        let has_needs = feature
            .needs()
            .iter()
            .all(|needed| features.enabled(*needed));
        if has_needs && !is_named(given, feature) {
            features = features.with(feature, true);
        }
    }
    features
}
