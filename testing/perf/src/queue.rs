//! The scheduling queue alone: the cost of an event while many unrelated pods wait.
//!
//! The queue has the in-tree plugins of the default profile. An event is raised repeatedly; each time it helps a few
//! pods, which are then attempted and rejected again. The requested number of other pods waits at the same time,
//! rejected for reasons unrelated to the event, or blocked by scheduling gates. The benchmark counts the pods that the
//! queue examines and the hints that it calls: the counts must not depend on the number of waiting pods. Up to
//! [`GATE_OFF_MAX`] waiting pods, each event is also raised with SchedulerPreQueueingHints off, as before KEP-6132.

mod bench;
mod crowd;
mod report;
mod scene;

pub use report::{EventFigures, QueueReport};

use crate::error::PerfError;
use crate::options::at_least_one;
use bench::Bench;
use clap::Args;
use crowd::Crowd;
use scene::Scene;

/// The maximum number of waiting pods for measurements with the gate off, where each event examines all of them.
pub const GATE_OFF_MAX: usize = 10_000;

/// The measurement options.
#[derive(Debug, Clone, Args)]
pub struct QueuePerfOptions {
    /// Numbers of other waiting pods, compared in one run
    #[arg(
        long,
        value_name = "N",
        value_delimiter = ',',
        default_value = "100,10000,1000000"
    )]
    pub waiting: Vec<usize>,
    /// Number of repetitions of each event
    #[arg(long, value_name = "N", default_value = "400", value_parser = at_least_one())]
    pub events: usize,
}

/// The settings of the gate that are measured with a number of waiting pods.
fn gates(waiting: usize) -> &'static [bool] {
    if waiting <= GATE_OFF_MAX {
        &[true, false]
    } else {
        &[true]
    }
}

/// Measures; `progress` is called before each crowd is created.
///
/// # Errors
/// When the default profile cannot be built: a bug.
pub fn run(
    options: &QueuePerfOptions,
    mut progress: impl FnMut(String),
) -> Result<QueueReport, PerfError> {
    let mut report = QueueReport { events: Vec::new() };
    for waiting in &options.waiting {
        for crowd in Crowd::ALL {
            for gate in gates(*waiting) {
                let state = if *gate { "on" } else { "off" };
                progress(format!("{waiting} pods {}, gate {state}", crowd.name()));
                let mut bench = Bench::new(*gate)?;
                bench.gather(crowd, *waiting);
                for scene in Scene::all().iter().filter(|scene| scene.suits(crowd)) {
                    let played = bench.play(scene, options.events);
                    report.events.push(EventFigures {
                        gate: state,
                        ..played.of(scene, crowd, *waiting)
                    });
                }
            }
        }
    }
    report.sort();
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// An event examines the same number of pods with few waiting pods as with many, gated or rejected.
    #[test]
    fn the_work_of_an_event_does_not_depend_on_other_waiting_pods() {
        let options = QueuePerfOptions {
            waiting: vec![100, 20_000],
            events: 3,
        };
        let report = run(&options, drop).expect("the profile is built");
        let mut looked_at: BTreeMap<(&str, &str), Vec<(usize, f64)>> = BTreeMap::new();
        for row in report.events.iter().filter(|row| row.gate == "on") {
            assert_eq!(row.moved_per_event, bench::HELPED as f64, "{row:?}");
            let rows = looked_at.entry((row.event, row.crowd)).or_default();
            rows.push((row.waiting, row.looked_at_per_event));
        }
        assert!(looked_at.len() >= 2 * Scene::all().len(), "{report}");
        for (case, rows) in looked_at {
            assert_eq!(
                rows,
                [100, 20_000].map(|n| (n, bench::HELPED as f64)),
                "{case:?}"
            );
        }
    }

    /// KEP-6132: with the gate, an event about a claim calls the hint for the pods that use the claim. Without it, the
    /// hint is called for every pod that waits for devices. The same pods are moved.
    #[test]
    fn the_gate_saves_nearly_all_calls_of_hints() {
        let options = QueuePerfOptions {
            waiting: vec![100, 2_000],
            events: 2,
        };
        let report = run(&options, drop).expect("the profile is built");
        let of = |gate: &str, waiting: usize| {
            let mut rows = report.events.iter();
            let row = rows.find(|row| {
                row.event == "resource claim changed"
                    && row.crowd == Crowd::ForDevices.name()
                    && (row.gate, row.waiting) == (gate, waiting)
            });
            let row = row.expect("it was measured");
            assert_eq!(row.moved_per_event, bench::HELPED as f64, "{row:?}");
            (row.looked_at_per_event, row.hints_per_event)
        };
        let helped = bench::HELPED as f64;
        for waiting in options.waiting.clone() {
            let all = waiting as f64 + helped;
            assert_eq!(of("on", waiting), (helped, helped), "{report}");
            assert_eq!(of("off", waiting), (all, all), "{report}");
        }
        // No event needs more calls with the gate than without it.
        for row in report.events.iter().filter(|row| row.gate == "on") {
            let mut others = report.events.iter();
            let off = others.find(|other| {
                (other.event, other.crowd, other.waiting) == (row.event, row.crowd, row.waiting)
                    && other.gate == "off"
            });
            let off = off.expect("both are measured");
            assert!(
                row.hints_per_event <= off.hints_per_event,
                "{row:?}, {off:?}"
            );
        }
    }
}
