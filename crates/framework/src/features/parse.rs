//! Reads `--feature-gates`.

use super::{Feature, FeatureGates, Stage, Support};
use std::collections::BTreeMap;
use std::fmt;

/// The only component whose gates a scheduler has, as in `kube:SchedulerAsyncAPICalls=false`.
const COMPONENT: &str = "kube";

/// Gates that kube-scheduler 1.36 accepts and that concern other components or kube-scheduler's own libraries, one per
/// line, sorted. Clusters often give all components the same `--feature-gates`, so these are accepted with a warning.
const ELSEWHERE: &str = include_str!("elsewhere.txt");

/// Gates of kube-scheduler that have no effect in Berth by design, each with the reason.
pub const NO_EFFECT: &[(&str, &str)] = &[(
    "OpportunisticBatching",
    "Berth evaluates every pod with answers that it keeps up to date, and has no batches",
)];

/// Why a gate cannot be set as requested.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GateError {
    /// No such gate.
    #[error("unrecognized feature gate: {0}")]
    Unknown(String),
    /// No such component.
    #[error("component not registered: {0}; gates of a scheduler belong to component {COMPONENT}")]
    Component(String),
    /// The gate has only one setting.
    #[error("cannot set feature gate {0} to {wanted}, feature is locked to {1}", wanted = !.1)]
    Locked(Feature, bool),
    /// Berth does not have the feature.
    #[error(
        "feature gate {0} cannot be enabled: Berth does not have this feature; leave the gate off"
    )]
    Missing(Feature),
    /// Another gate is needed.
    #[error("feature gate {0} needs {1}: enable {1} too, or set {0}=false")]
    Needs(Feature, Feature),
    /// Not `name=true` or `name=false`.
    #[error("feature gate {0:?} is not written Name=true or Name=false")]
    Malformed(String),
}

/// A gate that is accepted and does not do what its setting says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GateWarning {
    /// A gate is off because one that it needs was switched off.
    SwitchedOff(Feature, Feature),
    /// Berth always behaves as with the gate on.
    AlwaysOn(Feature),
    /// The gate has no effect in Berth.
    NoEffect(&'static str, &'static str),
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
            Self::NoEffect(name, reason) => {
                write!(f, "feature gate {name} has no effect: {reason}")
            }
            Self::Elsewhere(names) => write!(
                f,
                "feature gates without effect in the scheduler, they concern other components: {}",
                names.join(", ")
            ),
        }
    }
}

impl FeatureGates {
    /// Reads `A=true,B=false` on top of the defaults. `AllAlpha` and `AllBeta` set every switchable gate of a
    /// stage that is not named itself. A gate that is on by default and needs one that was switched off is switched
    /// off with it.
    ///
    /// # Errors
    /// One entry per gate that cannot be set as requested.
    pub fn parse(text: &str) -> Result<(Self, Vec<GateWarning>), Vec<GateError>> {
        let mut errors = Vec::new();
        let mut named = BTreeMap::new();
        for entry in text.split(',').map(str::trim).filter(|e| !e.is_empty()) {
            match read(entry) {
                Ok((name, on)) => drop(named.insert(name, on)),
                Err(error) => errors.push(error),
            }
        }
        let mut gates = Self::default();
        let mut warnings = Vec::new();
        gates.set_stages(&named);
        let mut elsewhere = Vec::new();
        for (name, on) in &named {
            let Some(feature) = Feature::by_name(name) else {
                let inert = NO_EFFECT.iter().find(|(inert, _)| inert == name);
                if let Some((name, reason)) = inert {
                    warnings.push(GateWarning::NoEffect(name, reason));
                } else if let Some(name) = ELSEWHERE.lines().find(|known| known == name) {
                    elsewhere.push(name);
                } else if !matches!(*name, "AllAlpha" | "AllBeta") {
                    errors.push(GateError::Unknown((*name).to_owned()));
                }
                continue;
            };
            match feature.support() {
                Support::Locked if *on != feature.default_on() => {
                    errors.push(GateError::Locked(feature, feature.default_on()));
                }
                Support::AlwaysOn if !on => warnings.push(GateWarning::AlwaysOn(feature)),
                Support::Missing if *on => errors.push(GateError::Missing(feature)),
                _ => gates.put(feature, *on),
            }
        }
        if !elsewhere.is_empty() {
            warnings.push(GateWarning::Elsewhere(elsewhere));
        }
        // Needs form chains; each pass settles one link.
        while let Some((feature, needed)) = gates.unmet() {
            if named.get(feature.name()) == Some(&true) {
                errors.push(GateError::Needs(feature, needed));
            } else {
                warnings.push(GateWarning::SwitchedOff(feature, needed));
            }
            gates.put(feature, false);
        }
        if errors.is_empty() {
            Ok((gates, warnings))
        } else {
            Err(errors)
        }
    }

    /// Sets the gates of the stages that are named as a whole.
    fn set_stages(&mut self, named: &BTreeMap<&str, bool>) {
        for (name, stage) in [("AllAlpha", Stage::Alpha), ("AllBeta", Stage::Beta)] {
            let Some(on) = named.get(name) else { continue };
            for feature in Feature::ALL {
                if feature.stage() == stage && feature.support() == Support::Switchable {
                    self.put(*feature, *on);
                }
            }
        }
    }

    /// A gate that is on although one that it needs is off.
    fn unmet(&self) -> Option<(Feature, Feature)> {
        let on = Feature::ALL
            .iter()
            .filter(|feature| self.enabled(**feature));
        on.flat_map(|feature| feature.needs().iter().map(|needed| (*feature, *needed)))
            .find(|(_, needed)| !self.enabled(*needed))
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

    /// Cases 261 and 262, C-3, P-2: pod groups are refused with GenericWorkload, which every gate of theirs needs.
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
            (
                "GenericWorkload=true",
                Some(
                    "feature gate GenericWorkload cannot be enabled: Berth does not have this feature; leave the gate off",
                ),
            ),
            (
                "GangScheduling=true",
                Some(
                    "feature gate GangScheduling cannot be enabled: Berth does not have this feature; leave the gate off",
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
                    "feature gate SchedulerPreEnqueuePodStatus needs SchedulerAsyncAPICalls: enable SchedulerAsyncAPICalls too, or set SchedulerPreEnqueuePodStatus=false",
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
            let got = FeatureGates::parse(text).err().map(|e| e[0].to_string());
            assert_eq!(got.as_deref(), refusal, "{text}");
        }
    }

    /// What is accepted and does not do what it says is named.
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
            let (_, warnings) = FeatureGates::parse(text).unwrap();
            let warning = warnings.first().map(ToString::to_string);
            assert_eq!(warning.as_deref(), expected, "{text}");
        }
    }

    /// KEP-5229's rollback: the gate alone is switched off.
    #[test]
    fn what_needs_a_gate_is_off_with_it() {
        let (gates, _) = FeatureGates::parse("SchedulerAsyncAPICalls=false").unwrap();
        for (feature, on) in [
            (Feature::SchedulerAsyncAPICalls, false),
            (Feature::SchedulerPreEnqueuePodStatus, false),
            (Feature::SchedulerAsyncPreemption, true),
        ] {
            assert_eq!(gates.enabled(feature), on, "{feature}");
        }
    }

    #[test]
    fn all_alpha_sets_the_gates_that_can_be_switched() {
        let (gates, _) = FeatureGates::parse("AllAlpha=true").unwrap();
        assert!(gates.enabled(Feature::TaintTolerationComparisonOperators));
        assert!(!gates.enabled(Feature::GenericWorkload));
        let text = "AllAlpha=true,TaintTolerationComparisonOperators=false";
        let (gates, _) = FeatureGates::parse(text).unwrap();
        assert!(!gates.enabled(Feature::TaintTolerationComparisonOperators));
    }

    #[test]
    fn gates_of_other_components_are_sorted_and_not_ours() {
        assert!(ELSEWHERE.lines().is_sorted());
        for name in ELSEWHERE.lines() {
            assert_eq!(Feature::by_name(name), None, "{name}");
        }
    }
}
