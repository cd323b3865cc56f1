//! The table of feature gates: what each gate does, its state in each release, and how far Berth supports it.
//!
//! The states are those of kube-scheduler. The table feeds the parser, the metric `kubernetes_feature_enabled`,
//! `docs/use/reference/flags.md` and `docs/use/reference/versions.md`.

use super::{FeatureStage, GateState, Spec, Support};
use berth_api::Release;
use std::fmt;

/// Not known yet.
const PRE: GateState = GateState::PreAlpha;
/// Alpha, off.
const A: GateState = known(FeatureStage::Alpha, false, false);
/// Beta, off.
const B0: GateState = known(FeatureStage::Beta, false, false);
/// Beta, on.
const B1: GateState = known(FeatureStage::Beta, true, false);
/// Generally available, on, can be switched off.
const G: GateState = known(FeatureStage::Stable, true, false);
/// Generally available, locked to on.
const L: GateState = known(FeatureStage::Stable, true, true);
/// Removed: the feature is part of Kubernetes, and the gate is unknown.
const GONE: GateState = GateState::Removed;

const fn known(stage: FeatureStage, on: bool, locked: bool) -> GateState {
    GateState::Known(Spec { stage, on, locked })
}

macro_rules! features {
    ($($name:ident: [$v36:ident $v37:ident $v38:ident], $support:ident, $doc:literal;)*) => {
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

            /// Its state in kube-scheduler of a release.
            pub fn upstream(self, release: Release) -> GateState {
                let states = match self {
                    $(Self::$name => [$v36, $v37, $v38],)*
                };
                match release {
                    Release::V1_36 => states[0],
                    Release::V1_37 => states[1],
                    Release::V1_38 => states[2],
                }
            }

            /// The support of Berth for the gate.
            pub fn support(self) -> Support {
                match self {
                    $(Self::$name => Support::$support,)*
                }
            }

            /// The effect of the gate, in one sentence.
            pub fn description(self) -> &'static str {
                match self {
                    $(Self::$name => $doc,)*
                }
            }
        }
    };
}

features! {
    SchedulerQueueingHints: [L GONE GONE], AlwaysOn, "Plugins decide for each cluster event which unschedulable pods it can help.";
    SchedulerPopFromBackoffQ: [B1 B1 B1], Switchable, "When activeQ is empty, the scheduler takes pods from backoffQ before their backoff has ended.";
    SchedulerAsyncAPICalls: [B0 B0 B0], OnInBerth, "API calls of scheduling pass through the dispatcher (KEP-5229). Off by default in kube-scheduler.";
    SchedulerAsyncPreemption: [B1 B1 B1], Switchable, "Preemption deletes its victims without blocking the scheduling loop.";
    SchedulerPreEnqueuePodStatus: [PRE PRE PRE], OnInBerth, "A rejection by PreEnqueue is written to the pod's PodScheduled condition (KEP-5501). Not in kube-scheduler.";
    SchedulerPreQueueingHints: [PRE A A], OnInBerth, "A cluster event is evaluated only for the pods that it can help (KEP-6132). Off by default in kube-scheduler.";
    NominatedNodeNameForExpectation: [B1 B1 B1], Switchable, "The selected node is written to nominatedNodeName before a binding with a delay.";
    OpportunisticBatching: [B1 B1 B1], NoEffect, "Pods of equal shape are scheduled in batches.";
    PodSchedulingReadiness: [L L GONE], AlwaysOn, "Pods with scheduling gates are not scheduled.";
    GenericWorkload: [A B0 B0], Switchable, "The pods of a PodGroup are scheduled together, as in 1.38 with every version.";
    GangScheduling: [A GONE GONE], NoEffect, "All pods of a group are scheduled, or none. In Berth part of GenericWorkload.";
    WorkloadAwarePreemption: [A GONE GONE], NoEffect, "Preemption for whole pod groups. In Berth part of GenericWorkload.";
    TopologyAwareWorkloadScheduling: [A A A], Switchable, "The pods of a group are placed on nodes with the same value of a label.";
    CompositePodGroup: [PRE A A], Switchable, "Groups of pod groups are scheduled as one unit.";
    PodGroupPreemptionPolicy: [PRE A A], Switchable, "The preemption policy of a pod group decides whether pods are evicted for it.";
    DynamicResourceAllocation: [L L GONE], AlwaysOn, "Resource claims.";
    DRAAdminAccess: [L L L], AlwaysOn, "Resource claims with administrative access.";
    DRAPrioritizedList: [G L L], AlwaysOn, "Resource claims with a list of alternatives.";
    DRAExtendedResource: [B1 L L], Switchable, "Extended resources that are backed by devices.";
    DRAConsumableCapacity: [B1 B1 B1], Switchable, "Devices that several claims share by capacity.";
    DRAFractionalCapacityRange: [PRE B1 B1], Switchable, "Ranges of device capacity in thousandths. On by default only with a minimum compatibility version of 1.37 or newer.";
    DRADeviceTaints: [B1 G L], Switchable, "Taints on devices.";
    DRADeviceTaintRules: [B0 G L], Switchable, "DeviceTaintRules add taints to devices.";
    DRADeviceBindingConditions: [B1 B1 B1], Switchable, "Devices that must report readiness before the pod is bound.";
    DRAPartitionableDevices: [B1 B1 B1], Switchable, "Devices that are partitioned on demand.";
    DRADeviceCompatibilityGroups: [PRE A A], Switchable, "Devices of one counter set are allocated together only if their compatibility groups intersect.";
    DRAResourceClaimDeviceStatus: [B1 L L], Switchable, "Drivers report the status of each allocated device.";
    DRASchedulerFilterTimeout: [B1 B1 B1], Switchable, "The search for devices on one node has a time limit.";
    DRAListTypeAttributes: [A A A], Switchable, "Device attributes with several values.";
    DRADerivedAttributes: [PRE A A], Switchable, "Requests derive device attributes from other attributes with expressions.";
    DRAOptionalNodeOperations: [PRE A A], Switchable, "Devices that need no preparation on the node.";
    DRANodeAllocatableResources: [A A A], Switchable, "Devices that use node resources such as CPU.";
    DRAWorkloadResourceClaims: [A B0 B0], Switchable, "Resource claims of whole pod groups.";
    NodeDeclaredFeatures: [B1 L L], Switchable, "Pods are placed on nodes whose kubelet declares the features that the pods need.";
    InterPodAffinityHostnameFastPath: [PRE A A], NoEffect, "Inter-pod affinity by host name reads only the pods of the node.";
    MatchLabelKeysInPodTopologySpread: [B1 B1 B1], Switchable, "Topology spread constraints can use matchLabelKeys.";
    MatchLabelKeysInPodAffinity: [L L GONE], AlwaysOn, "Pod affinity terms can use matchLabelKeys and mismatchLabelKeys.";
    NodeInclusionPolicyInPodTopologySpread: [L L L], AlwaysOn, "Topology spread constraints can use nodeAffinityPolicy and nodeTaintsPolicy.";
    SidecarContainers: [L GONE GONE], AlwaysOn, "Init containers with restartPolicy Always.";
    InPlacePodVerticalScaling: [L L L], AlwaysOn, "Containers are resized in place.";
    InPlacePodVerticalScalingSchedulerPreemption: [PRE A A], Switchable, "Pods are preempted for a deferred in-place resize of another pod.";
    InPlacePodLevelResourcesVerticalScaling: [B1 B1 B1], AlwaysOn, "Pod-level resources are resized in place.";
    VolumeAttributesClass: [L L L], AlwaysOn, "Volumes with a VolumeAttributesClass.";
    PodObservedGenerationTracking: [L L L], AlwaysOn, "Pod conditions contain the generation of the pod.";
    PodLevelResources: [B1 B1 B1], AlwaysOn, "Resource requests of the pod replace the sum of its containers.";
    MutableCSINodeAllocatableCount: [L L L], AlwaysOn, "The attach limit of a node can change.";
    TaintTolerationComparisonOperators: [A A A], Switchable, "Tolerations can compare numbers with Lt and Gt.";
    StorageCapacityScoring: [A B1 B1], Switchable, "VolumeBinding scores nodes by their free storage capacity.";
    VolumeLimitScaling: [A B1 B1], Switchable, "Pods are not placed on nodes without their CSI driver, if the driver requires it.";
    CoordinatedLeaderElection: [B0 B0 B0], Missing, "The control plane selects the leader.";
    ComponentFlagz: [B1 B1 B1], Switchable, "Command-line flags are served at /flagz.";
    ComponentStatusz: [B1 B1 B1], Switchable, "Version and state are served at /statusz.";
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
            Self::CompositePodGroup => {
                &[Self::GenericWorkload, Self::TopologyAwareWorkloadScheduling]
            }
            Self::PodGroupPreemptionPolicy => &[Self::GenericWorkload],
            Self::DRAFractionalCapacityRange => &[Self::DRAConsumableCapacity],
            Self::DRAOptionalNodeOperations => &[Self::NodeDeclaredFeatures],
            Self::WorkloadAwarePreemption => &[Self::GangScheduling],
            Self::DRAWorkloadResourceClaims => &[Self::GenericWorkload],
            Self::DRADeviceTaintRules => &[Self::DRADeviceTaints],
            Self::DRADeviceBindingConditions => &[Self::DRAResourceClaimDeviceStatus],
            Self::DRADeviceCompatibilityGroups => &[Self::DRAPartitionableDevices],
            Self::InPlacePodVerticalScalingSchedulerPreemption => {
                &[Self::InPlacePodVerticalScaling]
            }
            Self::SchedulerPreEnqueuePodStatus => &[Self::SchedulerAsyncAPICalls],
            _ => &[],
        }
    }

    /// The minor version of the minimum compatibility version from which the gate is on by default; it is off by
    /// default with an older one.
    pub fn on_from_compatibility_minor(self) -> Option<u32> {
        match self {
            Self::DRAFractionalCapacityRange => Some(37),
            _ => None,
        }
    }

    /// The reason why a gate has no effect in Berth, if it has none.
    pub fn no_effect_reason(self) -> Option<&'static str> {
        match self {
            Self::OpportunisticBatching => Some(
                "Berth evaluates every pod with answers that it keeps up to date, and has no batches",
            ),
            Self::InterPodAffinityHostnameFastPath => Some(
                "Berth keeps counts per node, so affinity by host name never reads other nodes",
            ),
            Self::GangScheduling | Self::WorkloadAwarePreemption => {
                Some("GenericWorkload includes it, as in Kubernetes 1.37 and later")
            }
            _ => None,
        }
    }
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
