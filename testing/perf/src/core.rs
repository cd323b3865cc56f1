//! The core alone: no socket and no API server; every call is answered immediately and shown by a watch immediately.
//!
//! Each row is run with each requested evaluator in one run: machines are noisy, ratios are less so. The plain
//! evaluator examines each node and gets only a sample of the pods; its decisions must be the same.

mod changes;
mod crowd;
mod devices;
mod report;
mod row;
mod volumes;
mod world;

pub use crowd::ClusterScale;
pub use report::{CorePerfReport, Figures, MeasuredRow};
pub use row::Row;

use crate::error::PerfError;
use crate::options::at_least_one;
use berth_config::Config;
use berth_framework::FeatureGates;
use berth_scheduler::SchedulerOptions;
use berth_scheduler::evaluator::EvaluatorKind;
use clap::{Args, ValueEnum};
use world::{CoreRun, CoreWorld};

/// The approximate number of nodes that the plain evaluator examines over all pods, if no sample is requested.
const PLAIN_NODES_SEEN: usize = 5_000_000;
/// The cluster and the pods of the calibration: large enough for precision, small enough to be repeated for each row.
const CALIBRATION_NODES: usize = 1_000;
const CALIBRATION_PODS: usize = 300;
/// The smallest sample that is taken unasked.
const PLAIN_PODS_MIN: usize = 20;

/// The measurement options.
#[derive(Debug, Clone, Args)]
pub struct CorePerfOptions {
    /// Numbers of nodes, compared in one run
    #[arg(
        long,
        value_name = "N",
        value_delimiter = ',',
        default_value = "1000,5000",
        value_parser = at_least_one()
    )]
    pub nodes: Vec<usize>,
    /// Number of scheduled pods at each size
    #[arg(long, value_name = "N", default_value = "10000", value_parser = at_least_one())]
    pub pods: usize,
    /// Rows to measure [default: all]
    #[arg(long, value_name = "ROW", value_delimiter = ',')]
    pub rows: Vec<Row>,
    /// Number of pods for the slow plain evaluator [default: by the size of the cluster]
    #[arg(long, value_name = "N", value_parser = at_least_one())]
    pub plain_pods: Option<usize>,
    /// Number of running pods on the nodes before the measurement, in addition to the pods of the row
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub bound: usize,
    /// Number of waiting pods with scheduling gates
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub gated: usize,
    /// Number of waiting pods that no node accepts
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub unschedulable: usize,
    /// Evaluator
    #[arg(long, value_enum, default_value_t = Sides::Both)]
    pub evaluator: Sides,
    /// Seed of the generated cluster
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// The feature gates.
    #[arg(skip)]
    pub features: FeatureGates,
    /// The profiles and the other settings of the scheduler; the default ones when absent.
    #[arg(skip)]
    pub config: Option<Config>,
}

/// The measured evaluators.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Sides {
    /// The plain evaluator
    Plain,
    /// The incremental evaluator
    Incremental,
    /// Both, with their ratio
    Both,
}

impl Sides {
    fn has(self, kind: EvaluatorKind) -> bool {
        match self {
            Self::Plain => kind == EvaluatorKind::Plain,
            Self::Incremental => kind == EvaluatorKind::Incremental,
            Self::Both => true,
        }
    }
}

impl CorePerfOptions {
    /// The clusters to measure, in order. A row with a fixed size is listed once.
    fn clusters(&self) -> Vec<(Row, usize)> {
        let rows = match self.rows.as_slice() {
            [] => Row::value_variants(),
            rows => rows,
        };
        let mut clusters = Vec::new();
        for asked in &self.nodes {
            for row in rows {
                let cluster = (*row, row.nodes(*asked));
                if !clusters.contains(&cluster) {
                    clusters.push(cluster);
                }
            }
        }
        clusters
    }

    fn scale(&self, nodes: usize, pods: usize) -> ClusterScale {
        ClusterScale {
            nodes,
            pods,
            bound: self.bound,
            gated: self.gated,
            unschedulable: self.unschedulable,
        }
    }

    fn plain_pods(&self, nodes: usize) -> usize {
        let sample = self
            .plain_pods
            .unwrap_or((PLAIN_NODES_SEEN / nodes.max(1)).max(PLAIN_PODS_MIN));
        sample.min(self.pods)
    }
}

/// Measures each row at each size in turn; `progress` is called before each row.
///
/// # Errors
/// When the core does not schedule the pods, which is an internal error.
pub fn run(
    options: &CorePerfOptions,
    mut progress: impl FnMut(String),
) -> Result<CorePerfReport, PerfError> {
    let mut report = CorePerfReport {
        seed: options.seed,
        rows: Vec::new(),
    };
    for (row, nodes) in options.clusters() {
        progress(format!("{row}, {nodes} nodes"));
        let before = calibrate(options.seed)?;
        let side = |kind: EvaluatorKind, pods: usize| -> Result<Option<CoreRun>, PerfError> {
            if !options.evaluator.has(kind) {
                return Ok(None);
            }
            let scale = options.scale(nodes, pods);
            let mut scheduler = SchedulerOptions {
                evaluator: kind,
                seed: options.seed,
                features: options.features,
                ..SchedulerOptions::default()
            };
            if let Some(config) = &options.config {
                config.set_options(&mut scheduler);
            }
            measure(row, &scale, scheduler).map(Some)
        };
        let plain = side(EvaluatorKind::Plain, options.plain_pods(nodes))?;
        let incremental = side(EvaluatorKind::Incremental, options.pods)?;
        let calibration = f64::midpoint(before, calibrate(options.seed)?);
        let existing = crowd::existing(row, &options.scale(nodes, options.pods));
        let rows = &mut report.rows;
        rows.push(MeasuredRow {
            calibration,
            ..MeasuredRow::of(row, nodes, existing, plain, incremental)
        });
    }
    Ok(report)
}

/// The speed of the machine: decisions per second of the plain evaluator in a small cluster. To compare figures of
/// different machines or times, divide them by it.
fn calibrate(seed: u64) -> Result<f64, PerfError> {
    let scale = ClusterScale {
        nodes: CALIBRATION_NODES,
        pods: CALIBRATION_PODS,
        ..ClusterScale::default()
    };
    let plain = SchedulerOptions {
        evaluator: EvaluatorKind::Plain,
        seed,
        ..SchedulerOptions::default()
    };
    let run = measure(Row::Unconstrained, &scale, plain)?;
    Ok(run.micros.len() as f64 / run.seconds.max(f64::EPSILON))
}

fn measure(
    row: Row,
    scale: &ClusterScale,
    options: SchedulerOptions,
) -> Result<CoreRun, PerfError> {
    let world = CoreWorld::new(row, scale, options).map_err(PerfError::Setup)?;
    let run = world.run(row, scale);
    if run.left > 0 {
        return Err(PerfError::Stuck {
            row: row.to_string(),
            nodes: scale.nodes,
            pods: scale.pods,
            left: run.left,
        });
    }
    Ok(run)
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_framework::Feature;

    fn options(rows: &[Row], nodes: &[usize], pods: usize) -> CorePerfOptions {
        CorePerfOptions {
            rows: rows.to_vec(),
            nodes: nodes.to_vec(),
            pods,
            seed: 7,
            plain_pods: Some(pods),
            evaluator: Sides::Both,
            bound: 0,
            gated: 0,
            unschedulable: 0,
            features: FeatureGates::default(),
            config: None,
        }
    }

    #[test]
    fn every_pod_is_decided_and_full_clusters_are_reported() {
        let options = options(&[Row::Unconstrained], &[1, 20], 200);
        let report = run(&options, drop).expect("the core does its work");
        let scheduled = |at: usize| {
            let side = report.rows[at].incremental.as_ref();
            side.map_or(0, |figures| figures.scheduled)
        };
        // A node takes at most 110 pods, and fewer if its 4 CPU are used up earlier.
        assert!((1..=110).contains(&scheduled(0)), "{report}");
        assert_eq!(scheduled(1), 200);
    }

    /// Without NodeResourcesFit, one node takes all pods.
    #[test]
    fn the_profiles_of_a_configuration_are_measured() {
        let text = "{apiVersion: kubescheduler.config.k8s.io/v1, kind: KubeSchedulerConfiguration, \
                    profiles: [{plugins: {multiPoint: {disabled: [{name: NodeResourcesFit}]}}}]}";
        let (gates, plugins) = (FeatureGates::default(), berth_plugins::in_tree());
        let config = berth_config::parse(text, "test", gates, &plugins);
        let options = CorePerfOptions {
            evaluator: Sides::Incremental,
            config: Some(config.expect("it is valid")),
            ..options(&[Row::Unconstrained], &[1], 200)
        };
        let report = run(&options, drop).expect("the core does its work");
        let figures = report.rows[0].incremental.as_ref().expect("was asked for");
        assert_eq!(figures.scheduled, 200, "{report}");
    }

    #[test]
    fn each_row_places_its_pods_with_both_evaluators() {
        let report = run(&options(&[], &[60], 80), drop).expect("the core does its work");
        assert_eq!(report.rows.len(), Row::value_variants().len());
        for measured in &report.rows {
            let expected = if measured.row == Row::Unfit { 0 } else { 80 };
            // A pod that preempts is tried again.
            let tries = if measured.row == Row::Preemption {
                160
            } else {
                80
            };
            for side in [&measured.plain, &measured.incremental] {
                let figures = side.as_ref().expect("was asked for");
                let got = (figures.scheduled, figures.decisions);
                assert_eq!(got, (expected, tries), "{measured:?}");
            }
            assert_eq!(measured.differing, Some(0), "{measured:?}");
        }
    }

    #[test]
    fn crowds_wait_in_addition_to_the_measured_pods() {
        let options = CorePerfOptions {
            evaluator: Sides::Incremental,
            bound: 40,
            gated: 20,
            unschedulable: 10,
            ..options(&[Row::Unconstrained], &[20], 30)
        };
        let report = run(&options, drop).expect("the core does its work");
        let row = &report.rows[0];
        let figures = row.incremental.as_ref().expect("was asked for");
        // The crowd was attempted before the measurement.
        assert_eq!(
            (figures.decisions, row.existing, figures.scheduled),
            (30, 40, 30)
        );
        assert!(row.calibration > 0.0, "{report}");
    }

    /// Running pods stay on their nodes, regardless of the number of scheduled pods, so that the sample of the plain
    /// evaluator has the same cluster.
    #[test]
    fn running_pods_do_not_depend_on_the_pods_to_schedule() {
        let options = CorePerfOptions {
            plain_pods: Some(10),
            bound: 60,
            ..options(&[Row::Unconstrained, Row::Different], &[20], 60)
        };
        let report = run(&options, drop).expect("the core does its work");
        for row in &report.rows {
            assert_eq!(row.differing, Some(0), "{report}");
        }
    }

    /// Running pods of the crowd can be victims like others, so that the row completes.
    #[test]
    fn preemption_evicts_running_pods() {
        let options = CorePerfOptions {
            evaluator: Sides::Incremental,
            bound: 60,
            ..options(&[Row::Preemption], &[20], 20)
        };
        let report = run(&options, drop).expect("the core does its work");
        let figures = report.rows[0].incremental.as_ref().expect("was asked for");
        assert_eq!(figures.scheduled, 20, "{report}");
    }

    /// KEP-6132: if claims are created from a template while their pods wait, each pod costs the same number of calls
    /// of hints, for any number of waiting pods, and one attempt. Without the gate, each claim costs calls for all
    /// waiting pods.
    #[test]
    fn a_claim_from_a_template_calls_hints_for_its_pod_alone() {
        let calls = |on: bool, pods: usize| {
            let gate = Feature::SchedulerPreQueueingHints;
            let options = CorePerfOptions {
                evaluator: Sides::Incremental,
                features: FeatureGates::default().with(gate, on),
                ..options(&[Row::ClaimTemplates], &[20], pods)
            };
            let report = run(&options, drop).expect("the core does its work");
            let figures = report.rows[0].incremental.as_ref().expect("was asked for");
            assert_eq!((figures.decisions, figures.scheduled), (pods, pods));
            figures.hint_calls as usize
        };
        let each = calls(true, 20) / 20;
        assert!((1..=4).contains(&each), "{each} calls for a pod");
        assert_eq!(calls(true, 100), each * 100);
        assert!(calls(false, 100) > 10 * each * 100);
    }

    #[test]
    fn a_side_can_be_omitted() {
        for (sides, plain, incremental) in [
            (Sides::Plain, true, false),
            (Sides::Incremental, false, true),
            (Sides::Both, true, true),
        ] {
            let options = CorePerfOptions {
                evaluator: sides,
                ..options(&[Row::Mixed], &[5], 10)
            };
            let report = run(&options, drop).expect("the core does its work");
            let row = &report.rows[0];
            let got = (row.plain.is_some(), row.incremental.is_some());
            assert_eq!(got, (plain, incremental), "{sides:?}");
            assert_eq!(row.ratio.is_some(), sides == Sides::Both);
        }
    }
}
