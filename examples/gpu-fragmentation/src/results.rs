//! The results of the experiment, and the published ones.

use crate::experiment::{Allocation, Contender, DEMAND_MAX};
use serde::Serialize;
use std::fmt;

/// One run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// The workload.
    pub workload: String,
    /// The policy.
    pub policy: Contender,
    /// The seed.
    pub seed: u64,
    /// The duration of the run, in seconds.
    pub seconds: f64,
    /// The result.
    pub allocation: Allocation,
}

/// All runs.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Results {
    /// In the order of workload, policy and seed.
    pub rows: Vec<Row>,
}

/// A mean and the standard deviation of the sample; zero for a single value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    /// The mean.
    pub mean: f64,
    /// The standard deviation.
    pub deviation: f64,
}

impl Spread {
    /// Of some values.
    pub fn of(values: &[f64]) -> Self {
        let count = values.len().max(1) as f64;
        let mean = values.iter().sum::<f64>() / count;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let deviation = (squares / (count - 1.0).max(1.0)).sqrt();
        Self { mean, deviation }
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2} ± {:.2}", self.mean, self.deviation)
    }
}

/// The means of the paper over ten seeds, when 100 % and 130 % of the GPUs are requested, as published in the
/// repository of its simulator (`experiments/analysis/expected_results/analysis_allo_discrete.csv`).
pub fn published(workload: &str, policy: Contender) -> Option<(Option<f64>, f64)> {
    Some(match (workload, policy) {
        ("default", Contender::Random) => (Some(86.30), 87.47),
        ("default", Contender::BestFit) => (Some(92.86), 93.08),
        ("default", Contender::Fgd) => (Some(95.23), 95.39),
        ("gpushare100", Contender::Random) => (None, 79.44),
        ("gpushare100", Contender::BestFit) => (None, 85.01),
        ("gpushare100", Contender::Fgd) => (None, 86.90),
        ("multigpu50", Contender::Random) => (None, 90.27),
        ("multigpu50", Contender::BestFit) => (None, 95.74),
        ("multigpu50", Contender::Fgd) => (None, 97.18),
        _ => return None,
    })
}

impl Results {
    /// Workloads and policies in their order, each with its runs.
    pub fn groups(&self) -> Vec<(&str, Contender, Vec<&Row>)> {
        let mut groups: Vec<(&str, Contender, Vec<&Row>)> = Vec::new();
        for row in &self.rows {
            match groups.last_mut() {
                Some((workload, policy, rows))
                    if *workload == row.workload && *policy == row.policy =>
                {
                    rows.push(row);
                }
                _ => groups.push((&row.workload, row.policy, vec![row])),
            }
        }
        groups
    }

    /// The mean time of a run in seconds.
    pub fn seconds_mean(&self) -> f64 {
        let sum: f64 = self.rows.iter().map(|row| row.seconds).sum();
        sum / self.rows.len().max(1) as f64
    }

    /// The longest time of a run in seconds.
    pub fn seconds_max(&self) -> f64 {
        self.rows.iter().map(|row| row.seconds).fold(0.0, f64::max)
    }
}

/// The allocated share of some runs at this requested share.
pub fn share(rows: &[&Row], demand: usize) -> Spread {
    let values: Vec<f64> = rows.iter().map(|row| row.allocation.at(demand)).collect();
    Spread::of(&values)
}

impl fmt::Display for Results {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<12} {:<14} {:>5}  {:>14} {:>8}  {:>14} {:>8}",
            "workload", "policy", "seeds", "at 100 %", "paper", "at 130 %", "paper"
        )?;
        for (workload, policy, rows) in self.groups() {
            let published = published(workload, policy);
            let show = |value: Option<f64>| value.map_or("-".to_owned(), |v| format!("{v:.2}"));
            writeln!(
                f,
                "{workload:<12} {:<14} {:>5}  {:>14} {:>8}  {:>14} {:>8}",
                policy.name(),
                rows.len(),
                share(&rows, 100).to_string(),
                show(published.and_then(|(at_100, _)| at_100)),
                share(&rows, DEMAND_MAX).to_string(),
                show(published.map(|(_, at_130)| at_130)),
            )?;
        }
        Ok(())
    }
}
