//! Comparison of configurations, over several seeds.

use super::Run;
use super::stats::mean_and_deviation;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One configuration over its seeds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Comparison {
    /// The name of the configuration.
    pub config: String,
    /// The number of seeds.
    pub seeds: u64,
    /// Each metric by its name; see [`METRICS`]. Utilization and fragmentation of a resource have the names
    /// `utilization/RESOURCE` and `fragmentation/RESOURCE`, the share of the time in which all chunks of a capacity
    /// buffer had room `bufferRoom/NAMESPACE/NAME`.
    pub metrics: BTreeMap<String, Spread>,
}

/// A metric over the seeds.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Spread {
    /// The mean.
    pub mean: f64,
    /// The sample standard deviation; zero with one seed.
    pub sd: f64,
    /// The mean of the differences from the first configuration, seed by seed.
    pub difference: f64,
    /// The sample standard deviation of the differences.
    pub difference_sd: f64,
}

/// A metric for the comparison of configurations.
#[derive(Clone, Copy)]
pub struct Metric {
    /// The name in JSON.
    pub name: &'static str,
    /// Its value in a run.
    pub of: fn(&Run) -> f64,
}

impl std::fmt::Debug for Metric {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// The metrics of all runs, in the order of tables. Times are in seconds.
pub const METRICS: &[Metric] = &[
    Metric {
        name: "bound",
        of: |run| run.summary.bound as f64,
    },
    Metric {
        name: "finished",
        of: |run| run.summary.finished as f64,
    },
    Metric {
        name: "neverBound",
        of: |run| run.summary.never_bound as f64,
    },
    Metric {
        name: "waitMedian",
        of: |run| run.waiting.to_binding.median,
    },
    Metric {
        name: "waitMean",
        of: |run| run.waiting.to_binding.mean,
    },
    Metric {
        name: "waitP90",
        of: |run| run.waiting.to_binding.p90,
    },
    Metric {
        name: "waitP99",
        of: |run| run.waiting.to_binding.p99,
    },
    Metric {
        name: "waitMax",
        of: |run| run.waiting.to_binding.max,
    },
    Metric {
        name: "preempted",
        of: |run| run.summary.preempted as f64,
    },
    Metric {
        name: "disrupted",
        of: |run| run.summary.disrupted as f64,
    },
    Metric {
        name: "lostWorkSeconds",
        of: |run| run.summary.lost_work_seconds,
    },
    Metric {
        name: "attempts",
        of: |run| run.summary.attempts as f64,
    },
    Metric {
        name: "nodesMax",
        of: |run| run.summary.nodes_max as f64,
    },
    Metric {
        name: "nodesUsedMean",
        of: |run| run.summary.nodes_used_mean,
    },
    Metric {
        name: "nodesUsedMax",
        of: |run| run.summary.nodes_used_max as f64,
    },
    Metric {
        name: "cost",
        of: |run| run.summary.cost,
    },
    Metric {
        name: "seconds",
        of: |run| run.seconds,
    },
];

/// The values of a run by the name of the metric.
fn values(run: &Run) -> BTreeMap<String, f64> {
    let mut values: BTreeMap<String, f64> = METRICS
        .iter()
        .map(|metric| (metric.name.to_owned(), (metric.of)(run)))
        .collect();
    for (resource, used) in &run.summary.resources {
        values.insert(format!("utilization/{resource}"), used.utilization_mean);
        values.insert(format!("utilizationEnd/{resource}"), used.utilization_end);
        values.insert(format!("fragmentation/{resource}"), used.fragmentation_mean);
    }
    for buffer in &run.buffers {
        let name = format!("bufferRoom/{}/{}", buffer.namespace, buffer.name);
        values.insert(name, buffer.all_room_share);
    }
    if let Some(fairness) = run.summary.fairness {
        values.insert("fairness".to_owned(), fairness);
    }
    values
}

/// Each configuration over its seeds. The runs of a configuration are adjacent, and all configurations have the same
/// seeds in the same order.
pub(super) fn compare(runs: &[Run]) -> Vec<Comparison> {
    let all: Vec<(&str, Vec<BTreeMap<String, f64>>)> = runs
        .chunk_by(|a, b| a.config == b.config)
        .map(|of| (of[0].config.as_str(), of.iter().map(values).collect()))
        .collect();
    let Some((_, first)) = all.first() else {
        return Vec::new();
    };
    let compared = all.iter().map(|(config, of)| {
        let names = of.iter().flat_map(|values| values.keys());
        let names: std::collections::BTreeSet<&String> = names.collect();
        let spread = |name: &String| {
            let value = |values: &BTreeMap<String, f64>| values.get(name).copied().unwrap_or(0.0);
            let own: Vec<f64> = of.iter().map(value).collect();
            let pairs = of.iter().zip(first);
            let apart: Vec<f64> = pairs
                .map(|(own, first)| value(own) - value(first))
                .collect();
            let (mean, sd) = mean_and_deviation(&own);
            let (difference, difference_sd) = mean_and_deviation(&apart);
            Spread {
                mean,
                sd,
                difference,
                difference_sd,
            }
        };
        Comparison {
            config: (*config).to_owned(),
            seeds: of.len() as u64,
            metrics: names
                .iter()
                .map(|name| ((*name).clone(), spread(name)))
                .collect(),
        }
    });
    compared.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configurations_are_compared_seed_by_seed() {
        let run = |config: &str, seed: u64, bound: u64| Run {
            config: config.to_owned(),
            seed,
            summary: super::super::Summary {
                bound,
                ..Default::default()
            },
            ..Run::default()
        };
        let runs = [
            run("a", 0, 10),
            run("a", 1, 14),
            run("b", 0, 11),
            run("b", 1, 17),
        ];
        let compared = compare(&runs);
        let bound: Vec<Spread> = compared.iter().map(|c| c.metrics["bound"]).collect();
        // 10 and 14: mean 12, deviation √8. The differences are 1 and 3: mean 2, deviation √2.
        assert_eq!((bound[0].mean, bound[0].difference), (12.0, 0.0));
        assert!((bound[0].sd - 8.0_f64.sqrt()).abs() < 1e-12);
        assert_eq!((bound[1].mean, bound[1].difference), (14.0, 2.0));
        assert!((bound[1].difference_sd - 2.0_f64.sqrt()).abs() < 1e-12);
    }
}
