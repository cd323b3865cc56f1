//! Metrics in the text format of Prometheus: counters and histograms, as far as results need them.

use crate::stats::Buckets;
use std::collections::BTreeMap;

/// The samples of a scrape.
#[derive(Debug, Clone, Default)]
pub struct Scrape(Vec<Sample>);

#[derive(Debug, Clone, PartialEq)]
struct Sample {
    name: String,
    labels: BTreeMap<String, String>,
    value: f64,
}

/// The labels of a series: name to value.
pub type Labels = BTreeMap<String, String>;

impl Scrape {
    /// Parses the text; lines without a sample are skipped.
    pub fn parse(text: &str) -> Self {
        Self(text.lines().filter_map(parse_line).collect())
    }

    /// The sum of all series of a counter whose labels `counts` accepts.
    pub fn sum(&self, name: &str, counts: impl Fn(&Labels) -> bool) -> f64 {
        self.0
            .iter()
            .filter(|sample| sample.name == name && counts(&sample.labels))
            .map(|sample| sample.value)
            .sum()
    }

    /// The counts of a counter by the values of one label.
    pub fn by_label(&self, name: &str, label: &str) -> BTreeMap<String, f64> {
        let mut sums = BTreeMap::new();
        for sample in self.0.iter().filter(|sample| sample.name == name) {
            if let Some(value) = sample.labels.get(label) {
                *sums.entry(value.clone()).or_default() += sample.value;
            }
        }
        sums
    }

    /// The increase since `before` of a histogram, for each combination of the labels in `by`; other labels are
    /// summed up. Values are in milliseconds when the histogram counts seconds.
    pub fn histograms_since(
        &self,
        before: &Self,
        name: &str,
        by: &[&str],
    ) -> Vec<(Labels, Buckets)> {
        let mut series: BTreeMap<Labels, Histogram> = BTreeMap::new();
        for (scrape, sign) in [(self, 1.0), (before, -1.0)] {
            for sample in &scrape.0 {
                let Some(part) = sample.name.strip_prefix(name) else {
                    continue;
                };
                let key: Labels = sample
                    .labels
                    .iter()
                    .filter(|(label, _)| by.contains(&label.as_str()))
                    .map(|(label, value)| (label.clone(), value.clone()))
                    .collect();
                let value = sample.value * sign;
                let at = series.entry(key).or_default();
                match part {
                    "_sum" => at.sum += value,
                    "_count" => at.count += value,
                    "_bucket" => {
                        let bound = sample.labels.get("le").and_then(|le| le.parse().ok());
                        at.add(bound.unwrap_or(f64::INFINITY), value);
                    }
                    _ => {}
                }
            }
        }
        series
            .into_iter()
            .filter(|(_, histogram)| histogram.count > 0.0)
            .map(|(labels, histogram)| (labels, histogram.summary()))
            .collect()
    }
}

#[derive(Debug, Clone, Default)]
struct Histogram {
    sum: f64,
    count: f64,
    /// Upper bounds, each with the number of values up to it.
    cumulative: Vec<(f64, f64)>,
}

impl Histogram {
    fn add(&mut self, bound: f64, value: f64) {
        match self.cumulative.iter_mut().find(|(b, _)| *b == bound) {
            Some((_, sum)) => *sum += value,
            None => self.cumulative.push((bound, value)),
        }
    }

    fn summary(mut self) -> Buckets {
        self.cumulative.sort_by(|a, b| a.0.total_cmp(&b.0));
        let millis = 1e3;
        let at = |q: f64| self.quantile(q) * millis;
        Buckets {
            average: self.sum / self.count * millis,
            perc50: at(0.50),
            perc90: at(0.90),
            perc95: at(0.95),
            perc99: at(0.99),
        }
    }

    /// Like histogram_quantile in PromQL: linear within a bucket; beyond the last finite bucket, its bound.
    fn quantile(&self, q: f64) -> f64 {
        let rank = q * self.count;
        let (mut below, mut counted) = (0.0, 0.0);
        for (bound, cumulative) in &self.cumulative {
            if *cumulative >= rank {
                if bound.is_infinite() {
                    return below;
                }
                let inside = cumulative - counted;
                let share = if inside > 0.0 {
                    (rank - counted) / inside
                } else {
                    1.0
                };
                return below + (bound - below) * share;
            }
            (below, counted) = (*bound, *cumulative);
        }
        below
    }
}

fn parse_line(line: &str) -> Option<Sample> {
    if line.starts_with('#') {
        return None;
    }
    let (name, rest) = match line.find('{') {
        Some(at) => (&line[..at], &line[at + 1..]),
        None => {
            let (name, value) = line.split_once(' ')?;
            return Some(Sample {
                name: name.to_owned(),
                labels: Labels::new(),
                value: value.split_whitespace().next()?.parse().ok()?,
            });
        }
    };
    let mut labels = Labels::new();
    let mut rest = rest;
    while !rest.starts_with('}') {
        let (label, value) = rest.split_once("=\"")?;
        let mut unescaped = String::new();
        let mut chars = value.char_indices();
        let end = loop {
            match chars.next()? {
                (at, '"') => break at,
                (_, '\\') => match chars.next()?.1 {
                    'n' => unescaped.push('\n'),
                    c => unescaped.push(c),
                },
                (_, c) => unescaped.push(c),
            }
        };
        labels.insert(label.trim_start_matches(',').trim().to_owned(), unescaped);
        rest = value[end + 1..].trim_start_matches(',');
    }
    let value = rest[1..].split_whitespace().next()?.parse().ok()?;
    Some(Sample {
        name: name.to_owned(),
        labels,
        value,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_summed_over_the_labels_that_count() {
        let scrape = Scrape::parse(
            "# HELP a A.\n\
             a{result=\"scheduled\",profile=\"x\"} 3\n\
             a{result=\"error\",profile=\"a \\\"b\\\", {c}\"} 4 1700000000\n\
             ab 100\n\
             malformed{\n",
        );
        assert_eq!(scrape.sum("a", |_| true), 7.0);
        assert_eq!(scrape.sum("a", |l| l["result"] == "error"), 4.0);
        assert_eq!(scrape.sum("ab", |_| true), 100.0);
        let profiles = scrape.by_label("a", "profile");
        assert_eq!(profiles["a \"b\", {c}"], 4.0);
    }

    #[test]
    fn histograms_are_differences_of_two_readings() {
        let before = Scrape::parse(
            "h_bucket{p=\"a\",le=\"0.1\"} 1\nh_bucket{p=\"a\",le=\"0.2\"} 1\nh_bucket{p=\"a\",le=\"+Inf\"} 1\n\
             h_sum{p=\"a\"} 0.05\nh_count{p=\"a\"} 1\n",
        );
        let after = Scrape::parse(
            "h_bucket{p=\"a\",le=\"0.1\"} 6\nh_bucket{p=\"a\",le=\"0.2\"} 11\nh_bucket{p=\"a\",le=\"+Inf\"} 11\n\
             h_sum{p=\"a\"} 1.05\nh_count{p=\"a\"} 11\n",
        );
        let found = after.histograms_since(&before, "h", &["p"]);
        assert_eq!(found.len(), 1);
        let buckets = found[0].1;
        assert!((buckets.average - 100.0).abs() < 1e-9, "{buckets:?}");
        // Five of ten are within 0.1 s, so the median is its bound, and the 90th percentile at 4/5 of the next bucket.
        assert!((buckets.perc50 - 100.0).abs() < 1e-9, "{buckets:?}");
        assert!((buckets.perc90 - 180.0).abs() < 1e-9, "{buckets:?}");
        assert!(after.histograms_since(&after, "h", &["p"]).is_empty());
    }
}
