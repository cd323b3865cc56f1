//! Averages and percentiles, as in upstream's data items.

use std::collections::BTreeMap;
use std::time::Duration;

/// Average and percentiles.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Buckets {
    /// The mean.
    pub average: f64,
    /// The median.
    pub perc50: f64,
    /// The 90th percentile.
    pub perc90: f64,
    /// The 95th percentile.
    pub perc95: f64,
    /// The 99th percentile.
    pub perc99: f64,
}

impl Buckets {
    /// The values by the names of upstream's buckets.
    pub fn data(&self) -> BTreeMap<String, f64> {
        [
            ("Average", self.average),
            ("Perc50", self.perc50),
            ("Perc90", self.perc90),
            ("Perc95", self.perc95),
            ("Perc99", self.perc99),
        ]
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
    }
}

/// The buckets of some values: percentile `p` of `n` sorted values is the value at `ceil(n·p/100)`. None without
/// values.
pub fn buckets(values: &[f64]) -> Option<Buckets> {
    if values.is_empty() {
        return None;
    }
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = |percent: usize| sorted[(sorted.len() * percent).div_ceil(100).max(1) - 1];
    Some(Buckets {
        average: sorted.iter().sum::<f64>() / sorted.len() as f64,
        perc50: at(50),
        perc90: at(90),
        perc95: at(95),
        perc99: at(99),
    })
}

/// The buckets of some durations, in milliseconds.
pub fn milliseconds(values: &[Duration]) -> Option<Buckets> {
    let values: Vec<f64> = values.iter().map(|d| d.as_secs_f64() * 1e3).collect();
    buckets(&values)
}

/// The median of some values; the mean of the middle two for an even number.
pub fn median(values: &[f64]) -> Option<f64> {
    if values.is_empty() {
        return None;
    }
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    Some(if sorted.len() % 2 == 1 {
        sorted[middle]
    } else {
        (sorted[middle - 1] + sorted[middle]) / 2.0
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_equal_those_of_scheduler_perf() {
        let hundred: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        for (values, expect) in [
            (vec![7.0], (7.0, 7.0, 7.0)),
            (vec![1.0, 3.0], (2.0, 1.0, 3.0)),
            (vec![3.0, 1.0, 2.0], (2.0, 2.0, 3.0)),
            (hundred, (50.5, 50.0, 99.0)),
        ] {
            let found = buckets(&values).map(|b| (b.average, b.perc50, b.perc99));
            assert_eq!(found, Some(expect), "{values:?}");
        }
        assert_eq!(buckets(&[]), None);
    }

    #[test]
    fn the_median_of_an_even_number_is_between_the_middle_two() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0]), Some(2.5));
    }
}
