//! The changes of Kubernetes between releases without a feature gate: fixes, texts and formulas.
//!
//! Code that differs between releases asks [`FeatureGates::has`](super::FeatureGates::has) for the behaviour and never
//! compares versions. The table feeds `docs/use/reference/versions.md` and the preview of an upgrade. A fix that only
//! prevents a hang, a panic, a leak or a lost pod is no behaviour: it applies in every release.

use berth_api::Release;
use std::fmt;

macro_rules! behaviours {
    ($($name:ident: $since:ident, $rule:literal, $title:literal;)*) => {
        /// A behaviour that a release of Kubernetes introduced.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Behaviour {
            $(#[doc = $title] $name,)*
        }

        impl Behaviour {
            /// Every behaviour.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The name.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)*
                }
            }

            /// The first release with the behaviour.
            pub fn since(self) -> Release {
                match self {
                    $(Self::$name => Release::$since,)*
                }
            }

            /// The rule of `docs/contribute/rules` that states the behaviour.
            pub fn rule(self) -> &'static str {
                match self {
                    $(Self::$name => $rule,)*
                }
            }

            /// The behaviour in one sentence.
            pub fn title(self) -> &'static str {
                match self {
                    $(Self::$name => $title,)*
                }
            }
        }
    };
}

behaviours! {
    ImageVolumesRaiseImageThreshold: V1_37, "PL-54", "ImageLocality counts image volumes in the upper threshold of its score.";
    NodeAddDoesNotImplyTaints: V1_37, "Q-48", "A plugin that registers for added nodes is not called for changed node taints unless it registers for them.";
    ExactDeviceCounters: V1_37, "PL-315", "Counters of rejected or released devices of a search are available again, and a shared device consumes its counters once.";
    ExactDeviceShares: V1_37, "PL-314", "A request for all devices fails if a device has insufficient capacity, constraints on distinct values compare every share, and an invalid amount of capacity fails the claim.";
    ListAttributesInSelectors: V1_37, "PL-313", "Selectors of devices can read attributes with several values, with any value of the gate DRAListTypeAttributes.";
    ResizeFootprintOfPod: V1_37, "PL-320", "A pod that is resized in place counts for the largest of three sums of the pod, not for the sum of the largest of each container.";
    QualifiedDeviceCapacity: V1_38, "PL-312", "Names of device capacities with and without the domain of their driver are equal, and a device with shares is never allocated as a whole.";
    IncompletePoolsRejectTheirNode: V1_38, "PL-166", "A request for all devices of an incomplete or invalid pool rejects the nodes of the pool, instead of failing the attempt.";
    PodEventsNameTheTarget: V1_37, "Q-44", "Events of pods without a node are named TargetPod for the waiting pod itself and UnscheduledPod for other pods, instead of UnschedulablePod.";
    GatedPodsAreNominated: V1_37, "Q-34", "The initial nomination of a gated pod reserves resources while the pod is gated.";
    EachAntiAffinityTermWakes: V1_37, "PL-89", "A pod that matched one of several required anti-affinity terms wakes the pod that it blocked; before, only a pod that matched all terms.";
    BindMountOptionsNeedTheirFeature: V1_37, "PL-57", "A pod that mounts volumes with bindMountOptions is placed on nodes that declare VolumeBindMountOptions.";
    PreemptionReportsItsNode: V1_37, "P-16", "The message of a pod for which other pods are preempted names the node and the number of victims.";
    EmptyBudgetSelectorProtectsAllPods: V1_38, "P-13", "A PodDisruptionBudget with an empty selector covers all pods of its namespace, also pods without labels.";
    ExtendersReceiveNodesWithoutVictims: V1_38, "P-14", "Extenders with a preempt verb receive nodes without victims, and can return them.";
    TaintRuleWithoutSelectorMatchesNothing: V1_38, "PL-175", "A DeviceTaintRule without deviceSelector applies to no device instead of all.";
    EmptySpreadSelectorCountsAllPods: V1_38, "PL-97", "A topology spread constraint with an empty label selector counts all pods of the namespace.";
}

impl fmt::Display for Behaviour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
