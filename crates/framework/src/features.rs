//! Feature gates, with upstream's names, stages and defaults.
//!
//! One table lists for each gate what it does and how far Berth supports it. The table feeds the parser, the metric
//! `kubernetes_feature_enabled` and the list in `docs/flags.md`. `crates/berth/tests/pretense.rs` fails when a gate
//! that can be switched has no reader.

mod parse;

pub use parse::{GateError, GateWarning, NO_EFFECT};

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

/// How far Berth supports a gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Support {
    /// Both settings have their documented effect.
    Switchable,
    /// The gate is locked to `true`, as in Kubernetes 1.36. `false` is refused.
    Locked,
    /// Berth always behaves as with the gate on. `false` is ignored with a warning.
    AlwaysOn,
    /// Berth does not have the feature. `true` is refused.
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

            /// How mature the feature is.
            pub fn stage(self) -> Stage {
                match self {
                    $(Self::$name => Stage::$stage,)*
                }
            }

            /// Whether the gate is on when it is not set.
            pub fn default_on(self) -> bool {
                match self {
                    $(Self::$name => $default,)*
                }
            }

            /// How far Berth supports the gate.
            pub fn support(self) -> Support {
                match self {
                    $(Self::$name => Support::$support,)*
                }
            }

            /// What the gate does, in one sentence.
            pub fn description(self) -> &'static str {
                match self {
                    $(Self::$name => $doc,)*
                }
            }
        }
    };
}

features! {
    SchedulerQueueingHints: Stable, true, Locked, "Plugins decide for each cluster event which unschedulable pods it may help.";
    SchedulerPopFromBackoffQ: Beta, true, Switchable, "When activeQ is empty, the scheduler takes pods from backoffQ before their backoff has ended.";
    SchedulerAsyncAPICalls: Beta, true, Switchable, "API calls of scheduling go through the dispatcher (KEP-5229). Off by default in kube-scheduler.";
    SchedulerAsyncPreemption: Beta, true, Switchable, "Preemption deletes its victims without blocking the scheduling loop.";
    SchedulerPreEnqueuePodStatus: Beta, true, Switchable, "A rejection by PreEnqueue is written to the pod's PodScheduled condition (KEP-5501). Not in kube-scheduler 1.36.";
    SchedulerPreQueueingHints: Beta, true, Switchable, "A cluster event is offered only to the pods it can help (KEP-6132). Not in kube-scheduler 1.36.";
    NominatedNodeNameForExpectation: Beta, true, Switchable, "The chosen node is written to nominatedNodeName before a binding that takes time.";
    PodSchedulingReadiness: Stable, true, Locked, "Pods with scheduling gates are not scheduled.";
    GenericWorkload: Alpha, false, Missing, "Workload and PodGroup objects.";
    GangScheduling: Alpha, false, Missing, "All pods of a group are scheduled, or none.";
    WorkloadAwarePreemption: Alpha, false, Missing, "Preemption for whole pod groups.";
    TopologyAwareWorkloadScheduling: Alpha, false, Missing, "Placement of whole pod groups.";
    DynamicResourceAllocation: Stable, true, Locked, "Resource claims.";
    DRAAdminAccess: Stable, true, Locked, "Resource claims with administrative access.";
    DRAPrioritizedList: Stable, true, Locked, "Resource claims with a list of alternatives.";
    DRAExtendedResource: Beta, true, Switchable, "Extended resources that are backed by devices.";
    DRAConsumableCapacity: Beta, true, Switchable, "Devices that several claims share by capacity.";
    DRADeviceTaints: Beta, true, Switchable, "Taints on devices.";
    DRADeviceTaintRules: Beta, false, Switchable, "DeviceTaintRules add taints to devices.";
    DRADeviceBindingConditions: Beta, true, Switchable, "Devices that must report readiness before the pod is bound.";
    DRAPartitionableDevices: Beta, true, Switchable, "Devices that are partitioned on demand.";
    DRAResourceClaimDeviceStatus: Beta, true, Switchable, "Drivers report the status of each allocated device.";
    DRASchedulerFilterTimeout: Beta, true, Switchable, "The search for devices on one node has a time limit.";
    DRAListTypeAttributes: Alpha, false, Missing, "Device attributes with several values.";
    DRANodeAllocatableResources: Alpha, false, Missing, "Devices that use node resources such as CPU.";
    DRAWorkloadResourceClaims: Alpha, false, Missing, "Resource claims of whole pod groups.";
    NodeDeclaredFeatures: Beta, true, Switchable, "Pods are placed on nodes whose kubelet declares the features they need.";
    MatchLabelKeysInPodTopologySpread: Beta, true, Switchable, "Topology spread constraints may use matchLabelKeys.";
    MatchLabelKeysInPodAffinity: Stable, true, Locked, "Pod affinity terms may use matchLabelKeys and mismatchLabelKeys.";
    NodeInclusionPolicyInPodTopologySpread: Stable, true, Locked, "Topology spread constraints may use nodeAffinityPolicy and nodeTaintsPolicy.";
    SidecarContainers: Stable, true, Locked, "Init containers with restartPolicy Always.";
    InPlacePodVerticalScaling: Stable, true, Locked, "Containers are resized in place.";
    InPlacePodLevelResourcesVerticalScaling: Beta, true, AlwaysOn, "Pod-level resources are resized in place.";
    VolumeAttributesClass: Stable, true, Locked, "Volumes with a VolumeAttributesClass.";
    PodObservedGenerationTracking: Stable, true, Locked, "Pod conditions carry the generation that they were written for.";
    PodLevelResources: Beta, true, AlwaysOn, "Resource requests of the pod as a whole count instead of the sum of its containers.";
    MutableCSINodeAllocatableCount: Stable, true, Locked, "The attach limit of a node may change.";
    TaintTolerationComparisonOperators: Alpha, false, Switchable, "Tolerations may compare numbers with Lt and Gt.";
    StorageCapacityScoring: Alpha, false, Missing, "VolumeBinding scores nodes by their free storage capacity.";
    VolumeLimitScaling: Alpha, false, Missing, "Attach limits for nodes that cluster-autoscaler adds.";
    CoordinatedLeaderElection: Beta, false, Missing, "The control plane chooses the leader.";
    ComponentFlagz: Beta, true, Switchable, "Command-line flags are served at /flagz.";
    ComponentStatusz: Beta, true, Switchable, "Version and state are served at /statusz.";
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
            Self::DRAWorkloadResourceClaims => &[Self::GenericWorkload],
            Self::DRADeviceTaintRules => &[Self::DRADeviceTaints],
            Self::DRADeviceBindingConditions => &[Self::DRAResourceClaimDeviceStatus],
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
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No gate is on by default that Berth does not have, or that needs a gate that is off.
    #[test]
    fn the_defaults_are_consistent() {
        let gates = FeatureGates::default();
        for feature in Feature::ALL {
            match feature.support() {
                Support::Missing => assert!(!gates.enabled(*feature), "{feature}"),
                Support::Locked | Support::AlwaysOn => {
                    assert!(gates.enabled(*feature), "{feature}");
                }
                Support::Switchable => {}
            }
            for needed in feature.needs() {
                assert!(
                    !gates.enabled(*feature) || gates.enabled(*needed),
                    "{feature} needs {needed}"
                );
            }
        }
    }
}
