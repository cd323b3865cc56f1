//! Reads `--feature-gates`.

use super::{Feature, FeatureGates, FeatureStage, GateState, Support, Versions};
use berth_api::Release;
use std::collections::BTreeMap;
use std::fmt;

/// The only component whose gates a scheduler has, as in `kube:SchedulerAsyncAPICalls=false`.
const COMPONENT: &str = "kube";

/// Gates that kube-scheduler accepts and that concern other components or kube-scheduler's own libraries, one per line,
/// sorted; a gate that 1.36 does not have is followed by its first release. Clusters often give all components the same
/// `--feature-gates`, so these are accepted with a warning.
const ELSEWHERE: &str = include_str!("elsewhere.txt");

/// The reason why a gate cannot be set as requested.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GateError {
    /// No such gate in the release.
    #[error("unrecognized feature gate: {0}")]
    Unknown(String),
    /// No such component.
    #[error("component not registered: {0}; gates of a scheduler belong to component {COMPONENT}")]
    Component(String),
    /// The gate has only one setting.
    #[error("cannot set feature gate {0} to {wanted}, feature is locked to {1}", wanted = !.1)]
    Locked(Feature, bool),
    /// The release does not have the gate yet.
    #[error(
        "cannot set feature gate {name} to {wanted}, feature is PreAlpha at emulated version {emulated}, min \
         compatibility version 1.{min}",
        emulated = .versions.emulated,
        min = .versions.min_compatibility_minor
    )]
    PreAlpha {
        /// The gate.
        name: String,
        /// The setting.
        wanted: bool,
        /// The versions for which it is refused.
        versions: Versions,
    },
    /// Berth does not have the feature.
    #[error(
        "feature gate {0} cannot be enabled: Berth does not have this feature; leave the gate off"
    )]
    Missing(Feature),
    /// A whole stage is switched on, with features that Berth does not have.
    #[error(
        "feature gate {0}=true would enable features that Berth does not have; switch them off with {list}",
        list = switched_off(.1)
    )]
    MissingOfStage(&'static str, Vec<Feature>),
    /// Other gates are needed.
    #[error(
        "{0} is enabled, but depends on features that are disabled: [{list}]",
        list = names(.1, " ")
    )]
    Needs(Feature, Vec<Feature>),
    /// Not `name=true` or `name=false`.
    #[error("feature gate {0:?} is not written Name=true or Name=false")]
    Malformed(String),
}

fn names(features: &[Feature], separator: &str) -> String {
    let names: Vec<&str> = features.iter().map(|feature| feature.name()).collect();
    names.join(separator)
}

fn switched_off(features: &[Feature]) -> String {
    let settings: Vec<String> = features.iter().map(|f| format!("{f}=false")).collect();
    settings.join(",")
}

/// A gate that is accepted but has not the effect of its setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GateWarning {
    /// A gate is off because one that it needs was switched off.
    SwitchedOff(Feature, Feature),
    /// Berth always behaves as with the gate on.
    AlwaysOn(Feature),
    /// The gate has no effect in Berth.
    NoEffect(Feature),
    /// The gates concern other components.
    Elsewhere(Vec<&'static str>),
}

impl fmt::Display for GateWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SwitchedOff(feature, needed) => write!(
                f,
                "feature gate {feature} is switched off too: it needs {needed}, which is off"
            ),
            Self::AlwaysOn(feature) => write!(
                f,
                "feature gate {feature}=false is ignored: this feature cannot be switched off in Berth"
            ),
            Self::NoEffect(feature) => write!(
                f,
                "feature gate {feature} has no effect: {}",
                feature.no_effect_reason().unwrap_or_default()
            ),
            Self::Elsewhere(names) => write!(
                f,
                "feature gates without effect in the scheduler, they concern other components: {}",
                names.join(", ")
            ),
        }
    }
}

/// A gate of another component: its name and its first release.
fn elsewhere(name: &str) -> Option<(&'static str, Release)> {
    ELSEWHERE.lines().find_map(|line| {
        let (known, since) = line.split_once(' ').unwrap_or((line, ""));
        let since = Release::ALL.into_iter().find(|r| r.as_str() == since);
        (known == name).then(|| (known, since.unwrap_or(Release::OLDEST)))
    })
}

impl FeatureGates {
    /// Reads `A=true,B=false` on top of the defaults of a release. `AllAlpha` and `AllBeta` set every gate of a stage
    /// that is not named itself.
    ///
    /// # Errors
    /// One entry per gate that cannot be set as requested.
    pub fn parse(
        text: &str,
        versions: Versions,
    ) -> Result<(Self, Vec<GateWarning>), Vec<GateError>> {
        let mut reading = Reading {
            gates: Self::of_versions(versions),
            named: BTreeMap::new(),
            warnings: Vec::new(),
            errors: Vec::new(),
        };
        for entry in text.split(',').map(str::trim).filter(|e| !e.is_empty()) {
            match read(entry) {
                Ok((name, on)) => drop(reading.named.insert(name, on)),
                Err(error) => reading.errors.push(error),
            }
        }
        reading.set_stages();
        reading.set_named();
        reading.check_needs();
        if reading.errors.is_empty() {
            Ok((reading.gates, reading.warnings))
        } else {
            Err(reading.errors)
        }
    }
}

/// The gates while they are read.
struct Reading<'t> {
    gates: FeatureGates,
    named: BTreeMap<&'t str, bool>,
    warnings: Vec<GateWarning>,
    errors: Vec<GateError>,
}

impl Reading<'_> {
    /// Sets the gates of the stages that are named as a whole.
    fn set_stages(&mut self) {
        for (name, stage) in [
            ("AllAlpha", FeatureStage::Alpha),
            ("AllBeta", FeatureStage::Beta),
        ] {
            let Some(on) = self.named.get(name).copied() else {
                continue;
            };
            let versions = self.gates.versions();
            let mut missing = Vec::new();
            for feature in Feature::ALL.iter().copied() {
                let is_of_stage = feature
                    .state(versions)
                    .spec()
                    .is_some_and(|spec| spec.stage == stage && !spec.locked);
                // A gate that is named itself takes precedence over its stage.
                if !is_of_stage || self.named.contains_key(feature.name()) {
                    continue;
                }
                match feature.support() {
                    Support::Missing if on => missing.push(feature),
                    // The gate is off in any case.
                    Support::Missing => {}
                    Support::AlwaysOn if !on => self.warnings.push(GateWarning::AlwaysOn(feature)),
                    _ => self.gates.put(feature, on),
                }
            }
            if !missing.is_empty() {
                self.errors.push(GateError::MissingOfStage(name, missing));
            }
        }
    }

    /// Sets the gates that are named.
    fn set_named(&mut self) {
        let versions = self.gates.versions();
        let mut elsewhere_names = Vec::new();
        for (name, on) in self.named.clone() {
            if matches!(name, "AllAlpha" | "AllBeta") {
                continue;
            }
            let pre_alpha = || GateError::PreAlpha {
                name: name.to_owned(),
                wanted: on,
                versions,
            };
            let Some(feature) = Feature::by_name(name) else {
                // kube-scheduler knows the gates of all components, so these are accepted, with a warning.
                match elsewhere(name) {
                    None => self.errors.push(GateError::Unknown(name.to_owned())),
                    Some((_, since)) if since > versions.emulated => self.errors.push(pre_alpha()),
                    Some((name, _)) => elsewhere_names.push(name),
                }
                continue;
            };
            let spec = match feature.state(versions) {
                GateState::Known(spec) => spec,
                GateState::PreAlpha => {
                    self.errors.push(pre_alpha());
                    continue;
                }
                // As upstream, a removed gate is unknown.
                GateState::Removed => {
                    self.errors.push(GateError::Unknown(name.to_owned()));
                    continue;
                }
            };
            match feature.support() {
                // A locked gate can be set to its own value.
                _ if spec.locked && on != spec.on => {
                    self.errors.push(GateError::Locked(feature, spec.on));
                }
                Support::Missing if on => self.errors.push(GateError::Missing(feature)),
                Support::AlwaysOn if !on => self.warnings.push(GateWarning::AlwaysOn(feature)),
                Support::NoEffect => {
                    self.warnings.push(GateWarning::NoEffect(feature));
                    self.gates.put(feature, on);
                }
                _ => self.gates.put(feature, on),
            }
        }
        if !elsewhere_names.is_empty() {
            self.warnings.push(GateWarning::Elsewhere(elsewhere_names));
        }
    }

    /// Refuses gates that are on without a gate that they need. A gate of Berth's own that is on only by default is
    /// switched off instead, so that a gate of kube-scheduler can be switched off alone.
    fn check_needs(&mut self) {
        // Needs form chains; each pass settles one link.
        while let Some((feature, needed)) = self.unmet() {
            let is_named = self.named.contains_key(feature.name());
            if feature.support() == Support::OnInBerth && !is_named {
                self.warnings
                    .push(GateWarning::SwitchedOff(feature, needed[0]));
            } else {
                self.errors.push(GateError::Needs(feature, needed));
            }
            self.gates.put(feature, false);
        }
    }

    /// An enabled gate that needs disabled ones.
    fn unmet(&self) -> Option<(Feature, Vec<Feature>)> {
        let is_on = |feature: &Feature| self.gates.enabled(*feature);
        let on = Feature::ALL.iter().copied().filter(is_on);
        let mut unmet = on.map(|feature| {
            let needed = feature.needs().iter().copied();
            (feature, needed.filter(|needed| !is_on(needed)).collect())
        });
        unmet.find(|(_, needed): &(Feature, Vec<Feature>)| !needed.is_empty())
    }
}

/// Reads `Name=true` or `kube:Name=true`.
fn read(entry: &str) -> Result<(&str, bool), GateError> {
    let malformed = || GateError::Malformed(entry.to_owned());
    let (name, on) = entry.split_once('=').ok_or_else(malformed)?;
    let name = match name.trim().split_once(':') {
        Some((COMPONENT, name)) => name,
        Some((component, _)) => return Err(GateError::Component(component.to_owned())),
        None => name.trim(),
    };
    // The spellings that Go reads.
    let on = match on.trim() {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => true,
        "0" | "f" | "F" | "false" | "FALSE" | "False" => false,
        _ => return Err(malformed()),
    };
    Ok((name, on))
}

#[cfg(test)]
mod tests {
    use super::*;

    type Read = Result<(FeatureGates, Vec<GateWarning>), Vec<GateError>>;

    fn parse(text: &str) -> Read {
        parse_in(text, Release::V1_36)
    }

    fn parse_in(text: &str, release: Release) -> Read {
        FeatureGates::parse(text, Versions::of(release))
    }

    /// Cases 261 and 262, C-3, P-2: a gate is refused without the gates that it needs.
    #[test]
    fn gates_are_read_or_refused_with_a_reason() {
        for (text, refusal) in [
            ("", None),
            ("SchedulerPopFromBackoffQ=false", None),
            ("kube:SchedulerPopFromBackoffQ=F", None),
            ("SchedulerQueueingHints=true", None),
            ("GangScheduling=false", None),
            (
                "SchedulerQueueingHints=false",
                Some(
                    "cannot set feature gate SchedulerQueueingHints to false, feature is locked to true",
                ),
            ),
            (
                "NoSuchGate=true",
                Some("unrecognized feature gate: NoSuchGate"),
            ),
            (
                "etcd:PodLevelResources=true",
                Some(
                    "component not registered: etcd; gates of a scheduler belong to component kube",
                ),
            ),
            ("GenericWorkload=true", None),
            (
                "TopologyAwareWorkloadScheduling=true",
                Some(
                    "TopologyAwareWorkloadScheduling is enabled, but depends on features that are disabled: [GenericWorkload]",
                ),
            ),
            (
                "GangScheduling=true",
                Some(
                    "GangScheduling is enabled, but depends on features that are disabled: [GenericWorkload]",
                ),
            ),
            (
                "GenericWorkload=true,GangScheduling=true,WorkloadAwarePreemption=true",
                None,
            ),
            (
                "CoordinatedLeaderElection=true",
                Some(
                    "feature gate CoordinatedLeaderElection cannot be enabled: Berth does not have this feature; leave the gate off",
                ),
            ),
            (
                "PodSchedulingReadiness=true,DynamicResourceAllocation=false",
                Some(
                    "cannot set feature gate DynamicResourceAllocation to false, feature is locked to true",
                ),
            ),
            (
                "SchedulerAsyncAPICalls=false,SchedulerPreEnqueuePodStatus=true",
                Some(
                    //
                    "SchedulerPreEnqueuePodStatus is enabled, but depends on features that are disabled: [SchedulerAsyncAPICalls]",
                ),
            ),
            (
                "SchedulerAsyncAPICalls=false,SchedulerPreEnqueuePodStatus=false",
                None,
            ),
            (
                "Oops",
                Some("feature gate \"Oops\" is not written Name=true or Name=false"),
            ),
        ] {
            let got = parse(text).err().map(|e| e[0].to_string());
            assert_eq!(got.as_deref(), refusal, "{text}");
        }
    }

    /// A setting that is accepted and does not have its effect is named.
    #[test]
    fn settings_without_effect_give_a_warning() {
        for (text, expected) in [
            ("", None),
            (
                "SchedulerAsyncAPICalls=false,SchedulerPreEnqueuePodStatus=false",
                None,
            ),
            (
                "SchedulerAsyncAPICalls=false",
                Some(
                    "feature gate SchedulerPreEnqueuePodStatus is switched off too: it needs SchedulerAsyncAPICalls, which is off",
                ),
            ),
            ("PodLevelResources=true", None),
            (
                "PodLevelResources=false",
                Some(
                    "feature gate PodLevelResources=false is ignored: this feature cannot be switched off in Berth",
                ),
            ),
            (
                "OpportunisticBatching=true",
                Some(
                    "feature gate OpportunisticBatching has no effect: Berth evaluates every pod with answers that it keeps up to date, and has no batches",
                ),
            ),
            (
                "ImageVolume=true,CPUManagerPolicyOptions=false",
                Some(
                    "feature gates without effect in the scheduler, they concern other components: CPUManagerPolicyOptions, ImageVolume",
                ),
            ),
        ] {
            let (_, warnings) = parse(text).unwrap();
            let warning = warnings.first().map(ToString::to_string);
            assert_eq!(warning.as_deref(), expected, "{text}");
        }
    }

    /// KEP-5229's rollback: the gate alone is switched off.
    #[test]
    fn what_needs_a_gate_is_off_with_it() {
        let (gates, _) = parse("SchedulerAsyncAPICalls=false").unwrap();
        for (feature, on) in [
            (Feature::SchedulerAsyncAPICalls, false),
            (Feature::SchedulerPreEnqueuePodStatus, false),
            (Feature::SchedulerAsyncPreemption, true),
        ] {
            assert_eq!(gates.enabled(feature), on, "{feature}");
        }
    }

    /// F-49: a stage is switched on as a whole only without the features that Berth does not have.
    #[test]
    fn a_stage_is_not_switched_on_with_features_that_berth_does_not_have() {
        for release in Release::ALL {
            for (name, stage) in [
                ("AllAlpha", FeatureStage::Alpha),
                ("AllBeta", FeatureStage::Beta),
            ] {
                let versions = Versions::of(release);
                let of_stage =
                    |f: &Feature| f.state(versions).spec().is_some_and(|s| s.stage == stage);
                let missing = Feature::ALL.iter().copied().filter(of_stage);
                let missing: Vec<Feature> = missing
                    .filter(|f| f.support() == Support::Missing)
                    .collect();
                // Gates of one stage need one of the other.
                let set = format!("{name}=true,GenericWorkload=true");
                if missing.is_empty() {
                    assert!(parse_in(&set, release).is_ok(), "{name} in {release}");
                    continue;
                }
                let errors = parse_in(&set, release).unwrap_err();
                let text = errors[0].to_string();
                assert_eq!(
                    errors,
                    [GateError::MissingOfStage(name, missing.clone())],
                    "{text}"
                );
                let off = switched_off(&missing);
                assert!(text.ends_with(&off), "{text}");
                let (gates, _) = parse_in(&format!("{set},{off}"), release).unwrap();
                for feature in Feature::ALL.iter().copied().filter(of_stage) {
                    let expected = feature.support() != Support::Missing;
                    assert_eq!(gates.enabled(feature), expected, "{feature} in {release}");
                }
            }
        }
    }

    /// F-49: named gates take precedence over their stage.
    #[test]
    fn a_stage_is_switched_off_as_a_whole_except_for_named_gates() {
        let (gates, warnings) =
            parse("AllBeta=false,SchedulerPopFromBackoffQ=true,DRADeviceTaints=true").unwrap();
        for (feature, on) in [
            (Feature::SchedulerPopFromBackoffQ, true),
            (Feature::DRADeviceTaints, true),
            (Feature::SchedulerAsyncPreemption, false),
            (Feature::SchedulerAsyncAPICalls, false),
            (Feature::NodeDeclaredFeatures, false),
            (Feature::PodSchedulingReadiness, true),
            (Feature::PodLevelResources, true),
        ] {
            assert_eq!(gates.enabled(feature), on, "{feature}");
        }
        assert!(warnings.contains(&GateWarning::AlwaysOn(Feature::PodLevelResources)));
    }

    /// Case 261, F-48: unknown, removed and locked gates, and gates that a release does not have yet.
    #[test]
    fn a_gate_is_refused_in_releases_that_do_not_have_it() {
        let pre_alpha = |name: &str, on, versions: &str| {
            format!(
                "cannot set feature gate {name} to {on}, feature is PreAlpha at emulated version {versions}"
            )
        };
        let v36 = "1.36, min compatibility version 1.35";
        let unknown = |name: &str| format!("unrecognized feature gate: {name}");
        let locked = |name: &str| {
            format!("cannot set feature gate {name} to false, feature is locked to true")
        };
        let ok = String::new;
        for (text, expected) in [
            (
                "CompositePodGroup=false",
                [pre_alpha("CompositePodGroup", false, v36), ok(), ok()],
            ),
            (
                "InterPodAffinityHostnameFastPath=true",
                [pre_alpha("InterPodAffinityHostnameFastPath", true, v36), ok(), ok()],
            ),
            (
                "HPAGeneration=false",
                [pre_alpha("HPAGeneration", false, v36), ok(), ok()],
            ),
            (
                "DRAConsumableCapacity=false",
                [
                    ok(),
                    ok(),
                    "DRAFractionalCapacityRange is enabled, but depends on features that are disabled: [DRAConsumableCapacity]".to_owned(),
                ],
            ),
            (
                "SchedulerQueueingHints=true",
                [ok(), unknown("SchedulerQueueingHints"), unknown("SchedulerQueueingHints")],
            ),
            (
                "GangScheduling=false",
                [ok(), unknown("GangScheduling"), unknown("GangScheduling")],
            ),
            (
                "PodSchedulingReadiness=true",
                [ok(), ok(), unknown("PodSchedulingReadiness")],
            ),
            (
                "DRADeviceTaints=false,DRADeviceTaintRules=false",
                [ok(), ok(), locked("DRADeviceTaintRules")],
            ),
            (
                "NodeDeclaredFeatures=false",
                [ok(), locked("NodeDeclaredFeatures"), locked("NodeDeclaredFeatures")],
            ),
            (
                "DRADeviceTaints=false",
                [
                    ok(),
                    "DRADeviceTaintRules is enabled, but depends on features that are disabled: [DRADeviceTaints]".to_owned(),
                    locked("DRADeviceTaints"),
                ],
            ),
            (
                "DRAResourceClaimDeviceStatus=false",
                [
                    "DRADeviceBindingConditions is enabled, but depends on features that are disabled: [DRAResourceClaimDeviceStatus]".to_owned(),
                    locked("DRAResourceClaimDeviceStatus"),
                    locked("DRAResourceClaimDeviceStatus"),
                ],
            ),
        ] {
            for (release, expected) in Release::ALL.into_iter().zip(expected) {
                let error = parse_in(text, release).err().map(|e| e[0].to_string());
                assert_eq!(error.unwrap_or_default(), expected, "{text} in {release}");
            }
        }
    }

    #[test]
    fn gates_of_other_components_are_sorted_and_not_ours() {
        assert!(ELSEWHERE.lines().is_sorted());
        for line in ELSEWHERE.lines() {
            let (name, since) = line.split_once(' ').unwrap_or((line, "1.36"));
            assert_eq!(Feature::by_name(name), None, "{name}");
            let found = elsewhere(name).map(|(_, since)| since.as_str());
            assert_eq!(found, Some(since), "{line}");
        }
    }
}
