//! Feature gates, with upstream's names, stages and defaults.

use std::fmt;

/// How mature a feature is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stage {
    /// Off by default.
    Alpha,
    /// Usually on by default.
    Beta,
    /// Generally available.
    Stable,
}

impl Stage {
    /// The name as metrics write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Alpha => "ALPHA",
            Self::Beta => "BETA",
            Self::Stable => "",
        }
    }
}

/// How Berth stands to a gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Support {
    /// It can be switched.
    Switchable,
    /// It is on for good.
    Locked,
    /// Berth does not have it; switching it on is refused.
    Missing,
}

macro_rules! features {
    ($($name:ident: $stage:ident, $default:literal, $support:ident, $doc:literal;)*) => {
        /// A feature gate.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Feature {
            $(#[doc = $doc] $name,)*
        }

        impl Feature {
            /// Every gate.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The name on the command line.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)*
                }
            }

            /// How mature it is.
            pub fn stage(self) -> Stage {
                match self {
                    $(Self::$name => Stage::$stage,)*
                }
            }

            /// Whether it is on unless somebody says otherwise.
            pub fn default_on(self) -> bool {
                match self {
                    $(Self::$name => $default,)*
                }
            }

            fn support(self) -> Support {
                match self {
                    $(Self::$name => Support::$support,)*
                }
            }
        }
    };
}

features! {
    SchedulerQueueingHints: Stable, true, Locked, "Plugins say per event which pods it may help.";
    SchedulerPopFromBackoffQ: Beta, true, Switchable, "An idle scheduler takes pods whose backoff has not ended.";
    SchedulerAsyncAPICalls: Beta, true, Switchable, "API calls go through the dispatcher (KEP-5229); off upstream.";
    SchedulerAsyncPreemption: Beta, true, Switchable, "Victims are evicted without holding up scheduling.";
    SchedulerPreEnqueuePodStatus: Beta, true, Switchable, "PreEnqueue rejections are written to the pod (KEP-5501); not in 1.36.";
    SchedulerPreQueueingHints: Beta, true, Switchable, "An event names the pods it can help (KEP-6132); not in 1.36.";
    NominatedNodeNameForExpectation: Beta, true, Switchable, "The chosen node is announced before a binding that takes time.";
    ClearingNominatedNodeNameAfterBinding: Beta, true, Switchable, "Binding clears the nominated node.";
    OpportunisticBatching: Beta, true, Switchable, "Equal pods share one evaluation; here they do in any case.";
    PodSchedulingReadiness: Stable, true, Locked, "Scheduling gates.";
    GenericWorkload: Alpha, false, Missing, "Workload and PodGroup objects.";
    GangScheduling: Alpha, false, Missing, "All pods of a group or none.";
    WorkloadAwarePreemption: Alpha, false, Missing, "Preemption for whole groups.";
    TopologyAwareWorkloadScheduling: Alpha, false, Missing, "Placement of whole groups.";
    DynamicResourceAllocation: Stable, true, Locked, "Resource claims.";
    DRAAdminAccess: Stable, true, Locked, "Claims with administrative access.";
    DRAPrioritizedList: Stable, true, Locked, "Claims with alternatives.";
    DRAExtendedResource: Beta, true, Switchable, "Extended resources backed by devices.";
    DRAConsumableCapacity: Beta, true, Switchable, "Devices shared by capacity.";
    DRADeviceTaints: Beta, true, Switchable, "Taints on devices.";
    DRADeviceTaintRules: Beta, false, Missing, "Rules that taint devices.";
    DRADeviceBindingConditions: Beta, true, Switchable, "Devices that must be made ready before binding.";
    DRAPartitionableDevices: Beta, true, Switchable, "Devices cut into parts.";
    DRAResourceClaimDeviceStatus: Beta, true, Switchable, "Drivers report per device.";
    DRASchedulerFilterTimeout: Beta, true, Switchable, "The device search of one node is limited.";
    DRAListTypeAttributes: Alpha, false, Missing, "Device attributes that are lists.";
    DRANodeAllocatableResources: Alpha, false, Missing, "Devices that use node resources.";
    DRAWorkloadResourceClaims: Alpha, false, Missing, "Claims of whole groups.";
    NodeDeclaredFeatures: Beta, true, Switchable, "Nodes say what their kubelet can do.";
    MatchLabelKeysInPodTopologySpread: Beta, true, Switchable, "Spreading within a revision.";
    MatchLabelKeysInPodTopologySpreadSelectorMerge: Beta, true, Switchable, "The API server merges the keys into the selector.";
    MatchLabelKeysInPodAffinity: Stable, true, Locked, "Affinity within a revision.";
    NodeInclusionPolicyInPodTopologySpread: Stable, true, Locked, "Which nodes count for spreading.";
    SidecarContainers: Stable, true, Locked, "Init containers that keep running.";
    InPlacePodVerticalScaling: Stable, true, Locked, "Containers resized in place.";
    InPlacePodLevelResourcesVerticalScaling: Beta, true, Switchable, "Pods resized in place.";
    VolumeAttributesClass: Stable, true, Locked, "Volumes with changeable attributes.";
    PodObservedGenerationTracking: Stable, true, Locked, "Conditions say which generation they speak of.";
    PodLevelResources: Beta, true, Switchable, "Resources of the pod as a whole.";
    PodTopologyLabelsAdmission: Beta, true, Switchable, "Pods carry the topology labels of their node.";
    MutableCSINodeAllocatableCount: Stable, true, Locked, "The attach limit of a node may change.";
    TaintTolerationComparisonOperators: Alpha, false, Switchable, "Tolerations that compare numbers.";
    StorageCapacityScoring: Alpha, false, Missing, "Scores by free storage capacity.";
    VolumeLimitScaling: Alpha, false, Missing, "Attach limits for the autoscaler.";
    CoordinatedLeaderElection: Beta, false, Missing, "Leaders chosen by the control plane.";
    ComponentFlagz: Beta, true, Switchable, "Flags are served at /flagz.";
    ComponentStatusz: Beta, true, Switchable, "State is served at /statusz.";
}

impl Feature {
    /// The gate of that name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|f| f.name() == name)
    }

    /// The gates that must be on for this one to be on.
    pub fn needs(self) -> &'static [Self] {
        match self {
            Self::GangScheduling | Self::TopologyAwareWorkloadScheduling => {
                &[Self::GenericWorkload]
            }
            Self::WorkloadAwarePreemption => &[Self::GangScheduling],
            Self::SchedulerPreEnqueuePodStatus => &[Self::SchedulerAsyncAPICalls],
            _ => &[],
        }
    }
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Why a gate cannot be set as wanted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GateError {
    /// No such gate.
    #[error("unrecognized feature gate: {0}")]
    Unknown(String),
    /// The gate has only one position.
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

/// Which features are on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FeatureGates {
    on: u64,
}

impl Default for FeatureGates {
    fn default() -> Self {
        let mut gates = Self { on: 0 };
        for feature in Feature::ALL {
            gates.put(*feature, feature.default_on());
        }
        gates
    }
}

const _: () = assert!(Feature::ALL.len() <= 64);

impl FeatureGates {
    /// Whether a feature is on.
    pub fn enabled(&self, feature: Feature) -> bool {
        self.on & (1 << feature as u8) != 0
    }

    /// These gates with one more set, unchecked: for tests and for upstream's defaults.
    #[must_use]
    pub fn with(mut self, feature: Feature, on: bool) -> Self {
        self.put(feature, on);
        self
    }

    fn put(&mut self, feature: Feature, on: bool) {
        let bit = 1 << feature as u8;
        if on {
            self.on |= bit;
        } else {
            self.on &= !bit;
        }
    }

    /// Reads `A=true,B=false` on top of the defaults. `AllAlpha` and `AllBeta` set every switchable gate of a
    /// stage that is not named itself.
    ///
    /// # Errors
    /// One entry per gate that cannot be set as wanted.
    pub fn parse(text: &str) -> Result<Self, Vec<GateError>> {
        let mut gates = Self::default();
        let mut errors = Vec::new();
        let mut named = Vec::new();
        for entry in text.split(',').map(str::trim).filter(|e| !e.is_empty()) {
            let parsed = entry
                .split_once('=')
                .and_then(|(name, on)| Some((name.trim(), on.trim().parse::<bool>().ok()?)));
            match parsed {
                None => errors.push(GateError::Malformed(entry.to_owned())),
                Some(pair) => named.push(pair),
            }
        }
        for (name, on) in &named {
            let stage = match *name {
                "AllAlpha" => Stage::Alpha,
                "AllBeta" => Stage::Beta,
                _ => continue,
            };
            for feature in Feature::ALL {
                if feature.stage() == stage && feature.support() == Support::Switchable {
                    gates.put(*feature, *on);
                }
            }
        }
        for (name, on) in named {
            if matches!(name, "AllAlpha" | "AllBeta") {
                continue;
            }
            let Some(feature) = Feature::by_name(name) else {
                errors.push(GateError::Unknown(name.to_owned()));
                continue;
            };
            match feature.support() {
                Support::Locked if on != feature.default_on() => {
                    errors.push(GateError::Locked(feature, feature.default_on()));
                }
                Support::Missing if on => errors.push(GateError::Missing(feature)),
                _ => gates.put(feature, on),
            }
        }
        for feature in Feature::ALL {
            if gates.enabled(*feature) {
                for needed in feature.needs() {
                    if !gates.enabled(*needed) {
                        errors.push(GateError::Needs(*feature, *needed));
                    }
                }
            }
        }
        if errors.is_empty() {
            Ok(gates)
        } else {
            Err(errors)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Case 261; plugins 0.3; those of 6.1 and 6.7 are refused. Groups of pods (Q-28, Q-88, Q-89, C-3, C-59 to C-66, P-2,
    /// P-26 to P-28, cases 73, 232, 249 and 262) are refused with GenericWorkload, which every gate of theirs needs.
    #[test]
    fn gates_are_read_or_refused_with_a_reason() {
        for (text, refusal) in [
            ("", None),
            ("SchedulerPopFromBackoffQ=false", None),
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
                "SchedulerAsyncAPICalls=false",
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

    #[test]
    fn all_alpha_switches_what_can_be_switched() {
        let gates = FeatureGates::parse("AllAlpha=true").unwrap();
        assert!(gates.enabled(Feature::TaintTolerationComparisonOperators));
        assert!(!gates.enabled(Feature::GenericWorkload));
    }
}
