//! The observation of the core: every input, and its outputs.
//!
//! The mutating methods of [`Scheduler`](super::Scheduler) are the only boundary of the core. An observer receives each
//! of their calls with its arguments, before the core processes it. Two schedulers with the same options that receive
//! the same inputs make the same decisions and calls.

use crate::attempt::CycleResult;
use crate::cache::Cache;
use crate::core::Outputs;
use crate::scheduler::{ClusterChange, Reconfiguration};
use berth_api::Time;
use berth_framework::call::{CallId, CallResult, PodRef};
use berth_framework::job::{JobId, JobResult};

/// An input of the core: one call of a method of [`Scheduler`](super::Scheduler).
#[derive(Debug, Clone, Copy)]
pub enum ObservedInput<'a> {
    /// [`apply`](super::Scheduler::apply).
    Apply(&'a ClusterChange),
    /// [`complete`](super::Scheduler::complete).
    Complete(CallId, &'a CallResult),
    /// [`job_done`](super::Scheduler::job_done).
    JobDone(JobId, &'a JobResult),
    /// [`tick`](super::Scheduler::tick).
    Tick,
    /// [`schedule_one`](super::Scheduler::schedule_one).
    ScheduleOne,
    /// [`take_outputs`](super::Scheduler::take_outputs).
    TakeOutputs,
    /// [`reconfigure`](super::Scheduler::reconfigure), which is only observed if the configuration is applied.
    Reconfigure(&'a Reconfiguration),
    /// [`close`](super::Scheduler::close).
    Close,
}

/// Observes a core. It runs on the thread of the core: it must not block, and it cannot change anything.
pub trait Observer: Send {
    /// The core is about to receive an input. `cache` is the cluster before it.
    fn input(&mut self, now: Time, input: ObservedInput<'_>, cache: &Cache);

    /// A scheduling cycle has ended.
    fn decided(&mut self, pod: &PodRef, result: &CycleResult);

    /// The core passes these outputs to the edge.
    fn outputs(&mut self, outputs: &Outputs);
}
