//! The dispatcher of API calls alone: how many calls it takes a second, and whether bindings wait for status patches.
//!
//! - **Throughput**, by the clock: calls are handed in, and then sent and answered.
//! - **Waiting**, in virtual time: a server answers each call after a fixed time, and bindings are made one by one or
//!   many at once, with and without many status patches pending. Counted is how long each binding waits to be sent, and
//!   how many other calls are sent meanwhile; the clock tells what handing one in and sending it costs.

mod report;
mod waiting;

pub use report::{Report, ThroughputFigures, WaitingFigures};
pub use waiting::Arrivals;

use berth_api::Time;
use berth_framework::ApiCall;
use berth_framework::call::{ConditionPatch, PodRef};
use berth_scheduler::dispatcher::{Dispatcher, DispatcherOptions};
use std::time::Instant;

/// What to measure.
#[derive(Debug, Clone)]
pub struct Options {
    /// How many calls are handed in to see how many it takes a second.
    pub calls: usize,
    /// How many status patches are pending while bindings are made.
    pub patches: usize,
    /// How many bindings are made.
    pub bindings: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            calls: 100_000,
            patches: 100_000,
            bindings: 5_000,
        }
    }
}

impl Options {
    /// Whether the dispatcher takes that many.
    ///
    /// # Errors
    /// What to change.
    pub fn check(&self) -> Result<(), String> {
        let max = DispatcherOptions::default().tracked_max / 2;
        for (flag, value) in [("--calls", self.calls), ("--patches", self.patches)] {
            if value == 0 || value > max {
                return Err(format!(
                    "{flag} {value}: the dispatcher holds at most {max} status patches; give 1 to {max}"
                ));
            }
        }
        if self.bindings == 0 {
            return Err(
                "--bindings must be at least 1: there is nothing to measure otherwise".to_owned(),
            );
        }
        Ok(())
    }

    /// How many times `progress` will be called.
    pub fn steps(&self) -> usize {
        1 + Arrivals::ALL.len() * 2
    }
}

/// Measures; `progress` is called before each part.
pub fn run(options: &Options, mut progress: impl FnMut(String)) -> Report {
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
    Report {
        throughput,
        waiting,
    }
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
        condition: Some(ConditionPatch {
            kind: "PodScheduled".into(),
            status: "False".into(),
            reason: "Unschedulable".into(),
            message: message.into(),
            observed_generation: Some(1),
            status_changes: true,
        }),
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
        let options = Options {
            calls: 1_000,
            patches: 20_000,
            bindings: 2_000,
        };
        let mut heard = 0;
        let report = run(&options, |_| heard += 1);
        assert_eq!(heard, options.steps());
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
            let options = Options {
                calls,
                patches,
                bindings,
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
