//! The scheduling queue alone: what an event costs when many pods wait for other things, and how fast pods come and go.
//!
//! The queue has the in-tree plugins of the default profile. An event is raised again and again; each time it helps a
//! few pods, which are then tried and rejected once more. Beside them wait as many pods as requested, rejected for
//! reasons that the event does not touch, or blocked by scheduling gates. The benchmark counts the pods that the queue
//! examines: the count must not depend on the number of waiting pods.

mod bench;
mod crowd;
mod report;
mod scene;

pub use report::{EventFigures, PairFigures, Report};

use crate::core::PerfError;
use bench::Bench;
use crowd::Crowd;
use scene::Scene;

/// What to measure.
#[derive(Debug, Clone)]
pub struct Options {
    /// How many pods wait; every event is raised with each number.
    pub waiting: Vec<usize>,
    /// How often each event is raised.
    pub events: usize,
    /// How many pods are in the active queue while pods come and go.
    pub active: usize,
    /// How many pods come and go.
    pub pairs: usize,
    /// Where all that is random comes from.
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            waiting: vec![100, 10_000, 1_000_000],
            events: 400,
            active: 1_000_000,
            pairs: 500_000,
            seed: 1,
        }
    }
}

impl Options {
    /// How many times `progress` will be called.
    pub fn steps(&self) -> usize {
        self.waiting.len() * Crowd::ALL.len() + 1
    }
}

/// Measures; `progress` is called before each crowd is created.
///
/// # Errors
/// When the default profile cannot be built: a bug.
pub fn run(options: &Options, mut progress: impl FnMut(String)) -> Result<Report, PerfError> {
    let mut report = Report {
        seed: options.seed,
        events: Vec::new(),
        pairs: None,
    };
    for waiting in &options.waiting {
        for crowd in Crowd::ALL {
            progress(format!("{waiting} pods {}", crowd.name()));
            let mut bench = Bench::new()?;
            bench.gather(crowd, *waiting);
            for scene in Scene::all().iter().filter(|scene| scene.suits(crowd)) {
                let figures = bench.play(scene, options.events);
                report.events.push(figures.of(scene, crowd, *waiting));
            }
        }
    }
    progress(format!("{} active pods", options.active));
    report.pairs = Some(Bench::new()?.come_and_go(options));
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
        let options = Options {
            waiting: vec![100, 20_000],
            events: 3,
            active: 1_000,
            pairs: 1_000,
            seed: 7,
        };
        let mut heard = 0;
        let report = run(&options, |_| heard += 1).expect("the profile is built");
        assert_eq!(heard, options.steps());
        let mut looked_at: BTreeMap<(&str, &str), Vec<(usize, f64)>> = BTreeMap::new();
        for row in &report.events {
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
        let pairs = report.pairs.expect("measured");
        assert_eq!((pairs.active, pairs.pairs), (1_000, 1_000));
    }
}
