//! The progress of pods and preemptions, for explanations.

use berth_api::{Str, Time};
use berth_framework::call::PodRef;
use berth_framework::stage::Wait;

/// The progress of a pod that is not in the queue and not bound.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// Its scheduling cycle runs, or is parked with this wait.
    Cycle {
        /// The wait of the cycle.
        wait: Option<Wait>,
    },
    /// Permit plugins hold it.
    Permit {
        /// The node that was chosen for it.
        node: Str,
        /// Since when it is held.
        since: Time,
        /// The plugins, each with the time until which it holds the pod at most.
        plugins: Vec<(Str, Time)>,
    },
    /// PreBind plugins prepare its node.
    PreBind {
        /// The node that was chosen for it.
        node: Str,
    },
    /// It is being bound.
    Bind {
        /// The node that was chosen for it.
        node: Str,
    },
}

/// A preemption that has not ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunningPreemption {
    /// The plugin that chose the victims.
    pub plugin: Str,
    /// The time at which it began.
    pub began: Time,
    /// The victims whose eviction is under way.
    pub evicting: Vec<PodRef>,
    /// The victim that is evicted after the others.
    pub last: Option<PodRef>,
    /// Whether an eviction has failed.
    pub has_failed: bool,
}
