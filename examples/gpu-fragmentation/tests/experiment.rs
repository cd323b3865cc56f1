//! The experiment with a separate small trace: the scheduling core decides, with these plugins.

// The tests are the edge: they read files.
#![allow(clippy::disallowed_methods)]

use berth_simulation::Trace;
use berth_simulation::import::read_openb;
use gpu_fragmentation::devices::requested_milli;
use gpu_fragmentation::experiment::{Contender, DEMAND_MAX, Experiment, ExperimentError};
use gpu_fragmentation::{chart, registry, results};

const NODES: &str = include_str!("trace/openb_node_list_gpu_node.csv");
const PODS: &str = include_str!("trace/openb_pod_list_small.csv");
/// The GPUs of the nodes, in milli.
const GPU_MILLI: u64 = 22_000;

fn experiment() -> Experiment {
    let nodes = read_openb(NODES).expect("nodes");
    let pods = read_openb(PODS).expect("pods");
    Experiment::new(nodes, pods, registry().expect("new names")).expect("GPUs")
}

#[test]
fn pods_arrive_until_130_percent_are_requested() {
    let experiment = experiment();
    let pods = experiment.arrivals(1);
    let sum: u64 = pods.iter().map(|pod| requested_milli(&pod.pod)).sum();
    let most = GPU_MILLI * DEMAND_MAX as u64 / 100;
    // The largest pod requests four GPUs.
    assert!(sum <= most && sum > most - 4_000, "{sum} of {most}");
    let order = |seed| -> Vec<u64> {
        experiment
            .arrivals(seed)
            .iter()
            .map(|pod| requested_milli(&pod.pod))
            .collect()
    };
    assert_eq!(order(1), order(1));
    assert_ne!(order(1), order(2));
}

#[test]
fn each_policy_places_pods_until_the_gpus_are_used() {
    let experiment = experiment();
    for contender in Contender::ALL {
        let allocation = experiment
            .play(contender, 3)
            .unwrap_or_else(|e| panic!("{contender}: {e}"));
        assert_eq!(
            allocation,
            experiment.play(contender, 3).expect("the same"),
            "{contender}"
        );
        assert!(allocation.0.is_sorted(), "{contender}: {allocation:?}");
        assert_eq!(allocation.0.len(), DEMAND_MAX + 1);
        // At first, every pod finds its GPUs; in the end, a part of the last GPUs stays free.
        assert!(
            (15.0..=35.0).contains(&allocation.at(25)),
            "{contender}: {allocation:?}"
        );
        assert!(
            (75.0..=100.0).contains(&allocation.at(DEMAND_MAX)),
            "{contender}: {allocation:?}"
        );
    }
}

#[test]
fn less_fragmentation_is_more_allocation() {
    let experiment = experiment();
    let mean = |contender| {
        let seeds = (0..6).map(|seed| {
            experiment
                .play(contender, seed)
                .expect("a run")
                .at(DEMAND_MAX)
        });
        seeds.sum::<f64>() / 6.0
    };
    let [random, best_fit, fgd] = [Contender::Random, Contender::BestFit, Contender::Fgd].map(mean);
    assert!(
        random < best_fit && random < fgd,
        "{random} {best_fit} {fgd}"
    );
}

#[test]
fn results_are_shown_as_a_table_and_a_chart() {
    let experiment = experiment();
    let rows = [Contender::Random, Contender::Fgd].map(|policy| results::Row {
        workload: "default".to_owned(),
        policy,
        seed: 0,
        seconds: 0.5,
        allocation: experiment.play(policy, 0).expect("a run"),
    });
    let results = results::Results { rows: rows.into() };
    let table = results.to_string();
    assert!(
        table.contains("random") && table.contains("95.39"),
        "{table}"
    );
    let svg = chart::svg(&results);
    assert_eq!(svg.matches("<polyline").count(), 2);
    assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n"));
}

#[test]
fn a_trace_without_gpus_is_refused() {
    let registry = registry().expect("new names");
    let pods = read_openb(PODS).expect("pods");
    let refused = Experiment::new(Trace::default(), pods, registry);
    assert!(matches!(refused, Err(ExperimentError::NoGpus)));
}
