//! The dispatcher of API calls: how many calls it takes a second, whether bindings wait for status patches, and what a
//! slow API server costs the scheduling loop.
//!
//! - **Throughput**, by the clock: calls are handed in, and then sent and answered.
//! - **Waiting**, in virtual time: a server answers each call after a fixed time, and bindings are made one by one or
//!   many at once, with and without many status patches pending. Counted is how long each binding waits to be sent, and
//!   how many other calls are sent meanwhile; the clock measures what handing one in and sending it costs.
//! - **Loops** (KEP-5229), in virtual time: pods that fit and pods that do not, with a scheduling loop that waits for
//!   each write of a status, with the gate off, and with the gate on.
//! - **Reports** (KEP-5501), in virtual time: many pods that a PreEnqueue plugin rejects, and ordinary pods beside
//!   them.

mod report;
mod slow;
mod waiting;

pub use report::{DispatcherReport, LoopFigures, ReportFigures, ThroughputFigures, WaitingFigures};
pub use waiting::Arrivals;

use crate::core::PerfError;
use berth_api::{Duration, Time};
use berth_framework::ApiCall;
use berth_framework::call::{ConditionPatch, PodRef};
use berth_scheduler::dispatcher::{Dispatcher, DispatcherOptions};
use slow::Loop;
use std::time::Instant;

/// The measurement options.
#[derive(Debug, Clone)]
pub struct DispatcherPerfOptions {
    /// The number of calls that measure the calls per second.
    pub calls: usize,
    /// The number of status patches that are pending while bindings are made.
    pub patches: usize,
    /// The number of bindings that are made.
    pub bindings: usize,
    /// Latency of a call to the slow API server, in milliseconds.
    pub latency_millis: u64,
    /// The number of pods that are bound beside the writes of status: of those in loops, and of those beside reports.
    pub pods: usize,
    /// The number of pods that a PreEnqueue plugin rejects.
    pub rejected: usize,
}

impl Default for DispatcherPerfOptions {
    fn default() -> Self {
        Self {
            calls: 100_000,
            patches: 100_000,
            bindings: 5_000,
            latency_millis: 20,
            pods: 2_000,
            rejected: 10_000,
        }
    }
}

impl DispatcherPerfOptions {
    /// Returns whether the dispatcher takes that many.
    ///
    /// # Errors
    /// The option to change.
    pub fn check(&self) -> Result<(), String> {
        let max = DispatcherOptions::default().tracked_max / 2;
        for (flag, value) in [("--calls", self.calls), ("--patches", self.patches)] {
            if value == 0 || value > max {
                return Err(format!(
                    "{flag} {value}: the dispatcher holds at most {max} status patches; give 1 to {max}"
                ));
            }
        }
        if self.pods == 0 || self.pods > slow::PODS_MAX {
            return Err(format!(
                "--pods {}: the nodes have room for {}; give 1 to {1}",
                self.pods,
                slow::PODS_MAX
            ));
        }
        if self.bindings == 0 {
            return Err(
                "--bindings must be at least 1: there is nothing to measure otherwise".to_owned(),
            );
        }
        Ok(())
    }

    /// The number of times that `progress` will be called.
    pub fn steps(&self) -> usize {
        1 + Arrivals::ALL.len() * 2 + Loop::ALL.len() + REPORTS.len()
    }
}

/// The runs with reports: whether pods are rejected, and whether that is reported.
const REPORTS: [(bool, bool); 3] = [(false, true), (true, true), (true, false)];

/// Measures; `progress` is called before each part.
///
/// # Errors
/// When the default profile cannot be built: a bug.
pub fn run(
    options: &DispatcherPerfOptions,
    mut progress: impl FnMut(String),
) -> Result<DispatcherReport, PerfError> {
    progress(format!("{} calls", options.calls));
    let throughput = throughput(options.calls);
    let mut waiting = Vec::new();
    for arrivals in Arrivals::ALL {
        for patches in [0, options.patches] {
            progress(format!(
                "bindings {} among {patches} patches",
                arrivals.name()
            ));
            waiting.push(waiting::measure(arrivals, options.bindings, patches));
        }
    }
    let latency = Duration::from_millis(options.latency_millis);
    let mut loops = Vec::new();
    for kind in Loop::ALL {
        progress(format!("{} pods, {}", options.pods, kind.name()));
        loops.push(slow::loops(kind, latency, options.pods)?);
    }
    let mut reports = Vec::new();
    for (is_rejected, is_reported) in REPORTS {
        let rejected = if is_rejected { options.rejected } else { 0 };
        progress(format!(
            "{} pods beside {rejected} rejected ones",
            options.pods
        ));
        reports.push(slow::reports(rejected, is_reported, latency, options.pods)?);
    }
    Ok(DispatcherReport {
        throughput,
        waiting,
        loops,
        reports,
    })
}

/// Hands in calls of several kinds about as many pods, all new to the dispatcher, then about pods that have a call
/// waiting.
fn throughput(calls: usize) -> Vec<ThroughputFigures> {
    let now = Time::from_secs(1_000);
    let pods: Vec<PodRef> = (0..calls).map(pod).collect();
    let mut rows = Vec::new();
    let mut measure = |what, made: Vec<ApiCall>, dispatcher: &mut Dispatcher| {
        let began = Instant::now();
        for call in made {
            dispatcher.enqueue(call, now);
        }
        rows.push(ThroughputFigures::of(what, calls, began.elapsed()));
    };
    let patches = |message: &str| pods.iter().map(|pod| patch(pod, message)).collect();
    let bindings = || pods.iter().map(bind).collect();
    let mut dispatcher = Dispatcher::default();
    measure("status patches", patches("a"), &mut dispatcher);
    measure("patches merged with those", patches("b"), &mut dispatcher);
    measure("bindings in their place", bindings(), &mut dispatcher);
    let mut fresh = Dispatcher::default();
    measure("bindings", bindings(), &mut fresh);
    let began = Instant::now();
    let mut answered = 0;
    loop {
        let sent = fresh.next_calls(now);
        if sent.is_empty() {
            break;
        }
        for (id, _) in sent {
            fresh.complete(id, Ok(()), now);
            answered += 1;
        }
    }
    debug_assert_eq!(answered, calls);
    rows.push(ThroughputFigures::of(
        "sent and answered",
        calls,
        began.elapsed(),
    ));
    rows
}

fn pod(index: usize) -> PodRef {
    PodRef {
        namespace: "default".into(),
        name: format!("pod-{index}").into(),
        uid: format!("{index:08x}-4b1d-4c5e-9f00-0000{index:08x}").into(),
    }
}

fn patch(pod: &PodRef, message: &str) -> ApiCall {
    ApiCall::PatchPodStatus {
        pod: pod.clone(),
        conditions: vec![ConditionPatch {
            kind: "PodScheduled".into(),
            status: "False".into(),
            reason: "Unschedulable".into(),
            message: message.into(),
            observed_generation: Some(1),
            status_changes: true,
        }],
        nominated_node: None,
    }
}

fn bind(pod: &PodRef) -> ApiCall {
    ApiCall::BindPod {
        pod: pod.clone(),
        node: "node-0".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bindings wait as long, and let as many bindings go first, whether many status patches are pending or none; and
    /// the patches go on meanwhile.
    #[test]
    fn bindings_wait_no_longer_among_status_patches() {
        let options = DispatcherPerfOptions {
            calls: 1_000,
            patches: 20_000,
            bindings: 2_000,
            pods: 10,
            rejected: 10,
            ..DispatcherPerfOptions::default()
        };
        let mut received = 0;
        let report = run(&options, |_| received += 1).expect("the profile is built");
        assert_eq!(received, options.steps());
        assert!(report.throughput.iter().all(|row| row.calls == 1_000));
        for alone_and_among in report.waiting.chunks(2) {
            let [alone, among] = alone_and_among else {
                panic!("both are measured: {report}");
            };
            assert_eq!((alone.patches, among.patches), (0, 20_000));
            assert_eq!(alone.bindings, 2_000);
            assert_eq!(
                alone.wait_millis_median, among.wait_millis_median,
                "{report}"
            );
            // Those that come last of more than may be on their way let the reserved share of patches go first.
            let last = if alone.wait_millis_p99 > 0.0 {
                5.0
            } else {
                0.0
            };
            let later = among.wait_millis_p99 - alone.wait_millis_p99;
            assert!(later <= last, "{report}");
            assert!(among.patches_sent > 0, "{report}");
            assert!(
                among.patches_left > 0,
                "patches were pending all the time: {report}"
            );
        }
    }

    #[test]
    fn more_than_the_dispatcher_holds_is_refused_beforehand() {
        for (calls, patches, bindings, problem) in [
            (100_000, 100_000, 1, None),
            (0, 1, 1, Some("--calls 0")),
            (1, 131_073, 1, Some("--patches 131073")),
            (1, 1, 0, Some("--bindings")),
        ] {
            let options = DispatcherPerfOptions {
                calls,
                patches,
                bindings,
                ..DispatcherPerfOptions::default()
            };
            let checked = options.check();
            let found = checked.as_ref().err().map(String::as_str);
            assert_eq!(found.is_some(), problem.is_some(), "{checked:?}");
            if let Some((found, problem)) = found.zip(problem) {
                assert!(found.contains(problem), "{found}");
            }
        }
    }
}
