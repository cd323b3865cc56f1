//! The scheduling core: cache, cycles, bindings and statuses of pods, with the queue and the API dispatcher, as one
//! state machine without I/O.
//!
//! [`Scheduler`] is the entry point. Time is an argument, randomness is derived from one seed, and external actions are
//! returned as values: calls to the API, jobs, events and log lines.
//!
//! **Architecture invariants:** no socket, no async runtime, no clock, no lock, no global randomness. The core uses
//! plugins only through their traits.

mod attempt;
mod binding;
mod broken_groups;
pub mod cache;
mod call_results;
mod clock;
mod core;
mod cycle;
mod extenders;
mod failure;
mod group_checks;
mod group_status;
mod nominations;
mod placement;
mod pod_status;
mod preemptions;
mod quota_waits;
mod rejections;
mod scheduler;
#[cfg(any(test, feature = "test-driver"))]
pub mod testing;
mod trace;

pub use crate::core::{
    ApiEvent, DECISIONS_MAX, EarlierAttempt, Explanation, GateRemovals, GroupEvent, Outputs,
    PodDecision, Progress, RejectionReason, RunTimes, RunningPreemption,
};
pub use attempt::CycleResult;
pub use berth_dispatcher as dispatcher;
pub use berth_evaluator as evaluator;
pub use berth_profile as profile;
pub use berth_queue as queue;
pub use berth_telemetry::{LogLevel, LogLine, LogValue, NoStopwatch, Stopwatch, families, metrics};
pub use scheduler::{
    ClusterChange, NotReconfigured, ObservedInput, Observer, PodVerdict, Reconfiguration,
    Reconfigured, ScheduleOutcome, Scheduler, SchedulerOptions,
};
pub use trace::{AttemptTrace, TracedPoint};
