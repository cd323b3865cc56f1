//! Numbers of samples.

use serde::{Deserialize, Serialize};

/// Quantiles of durations, in seconds. All are zero without samples.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Quantiles {
    /// The mean.
    pub mean: f64,
    /// The median.
    pub median: f64,
    /// The 90th percentile.
    pub p90: f64,
    /// The 99th percentile.
    pub p99: f64,
    /// The largest.
    pub max: f64,
}

/// The quantiles of samples in seconds, by nearest rank: the q-th percentile is the smallest sample that at least q
/// percent of the samples do not exceed.
pub fn quantiles(samples: &mut [f64]) -> Quantiles {
    if samples.is_empty() {
        return Quantiles::default();
    }
    samples.sort_unstable_by(f64::total_cmp);
    let at = |percent: usize| {
        let rank = (samples.len() * percent).div_ceil(100).max(1);
        samples[rank - 1]
    };
    Quantiles {
        mean: samples.iter().sum::<f64>() / samples.len() as f64,
        median: at(50),
        p90: at(90),
        p99: at(99),
        max: at(100),
    }
}

/// Jain's fairness index of values: (Σx)² / (n · Σx²) (Jain, Chiu and Hawe, 1984). `None` for fewer than two values.
pub fn jain(values: &[f64]) -> Option<f64> {
    if values.len() < 2 {
        return None;
    }
    let sum: f64 = values.iter().sum();
    let squares: f64 = values.iter().map(|x| x * x).sum();
    // Without any share, all received the same.
    Some(if squares == 0.0 {
        1.0
    } else {
        sum * sum / (values.len() as f64 * squares)
    })
}

/// The mean and the standard deviation of a sample; the deviation of fewer than two values is zero.
pub(super) fn mean_and_deviation(values: &[f64]) -> (f64, f64) {
    let count = values.len() as f64;
    if values.is_empty() {
        return (0.0, 0.0);
    }
    let mean = values.iter().sum::<f64>() / count;
    if values.len() < 2 {
        return (mean, 0.0);
    }
    let squares: f64 = values.iter().map(|x| (x - mean) * (x - mean)).sum();
    (mean, (squares / (count - 1.0)).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of 1 to 200: the median is the 100th, the 90th percentile the 180th, the 99th the 198th.
    #[test]
    fn quantiles_are_samples_by_rank() {
        let mut samples: Vec<f64> = (1..=200).rev().map(f64::from).collect();
        let of = quantiles(&mut samples);
        let got = (of.mean, of.median, of.p90, of.p99, of.max);
        assert_eq!(got, (100.5, 100.0, 180.0, 198.0, 200.0));
        assert_eq!(quantiles(&mut [7.0]).p90, 7.0);
        assert_eq!(quantiles(&mut []), Quantiles::default());
    }

    /// Two namespaces, and one of them received nothing: (1 + 0)² / (2 · 1) = ½. Shares of 1 and ½: 2.25 / 2.5 = 0.9.
    #[test]
    fn fairness_is_one_for_equal_shares() {
        assert_eq!(jain(&[0.4, 0.4, 0.4]).map(|x| (x * 1e9).round()), Some(1e9));
        assert_eq!(jain(&[1.0, 0.0]), Some(0.5));
        assert_eq!(jain(&[1.0, 0.5]), Some(0.9));
        assert_eq!(jain(&[1.0]), None);
    }

    /// 2, 4, 4, 4, 5, 5, 7, 9: mean 5, sum of squares 32, sample deviation √(32/7).
    #[test]
    fn the_deviation_is_that_of_a_sample() {
        let (mean, deviation) = mean_and_deviation(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]);
        assert_eq!(mean, 5.0);
        assert!((deviation - (32.0_f64 / 7.0).sqrt()).abs() < 1e-12);
    }
}
