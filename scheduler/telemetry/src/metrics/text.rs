//! Prometheus' text format, version 0.0.4.

use super::{FamilySnapshot, HistogramValue, MetricKind, SeriesValue, Snapshot};
use std::fmt::Write;

impl Snapshot {
    /// Writes all metrics that have a series. A metric without labels that was not counted yet is zero, as in
    /// kube-scheduler.
    pub fn render(&self) -> String {
        let mut text = String::new();
        for family in &self.families {
            family.render(&mut text);
        }
        text
    }
}

impl FamilySnapshot {
    fn render(&self, text: &mut String) {
        let family = self.family;
        if self.series.is_empty() && !family.labels.is_empty() {
            return;
        }
        let kind = match family.kind {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram(_) => "histogram",
        };
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "# HELP {} [{}] {}",
            family.name,
            family.stability.as_str(),
            escape(family.help, false)
        );
        let _ = writeln!(text, "# TYPE {} {kind}", family.name);
        for (values, value) in &self.series {
            let labels: Vec<(&str, &str)> = family
                .labels
                .iter()
                .copied()
                .zip(values.iter().map(berth_api::Str::as_str))
                .collect();
            self.render_value(text, &labels, value);
        }
        if self.series.is_empty() {
            let zero = match family.kind {
                MetricKind::Histogram(buckets) => {
                    SeriesValue::Histogram(HistogramValue::new(buckets))
                }
                _ => SeriesValue::Number(0.0),
            };
            self.render_value(text, &[], &zero);
        }
    }

    fn render_value(&self, text: &mut String, labels: &[(&str, &str)], value: &SeriesValue) {
        let name = self.family.name;
        match (value, self.family.kind) {
            (SeriesValue::Histogram(histogram), MetricKind::Histogram(buckets)) => {
                let mut sum = 0;
                let bounds = buckets.bounds().map(go_number).chain(["+Inf".to_owned()]);
                for (bound, count) in bounds.zip(&histogram.counts) {
                    sum += count;
                    let labels: Vec<_> = labels.iter().copied().chain([("le", &*bound)]).collect();
                    line(text, name, "_bucket", &labels, &sum.to_string());
                }
                line(text, name, "_sum", labels, &go_number(histogram.sum));
                line(text, name, "_count", labels, &sum.to_string());
            }
            (SeriesValue::Number(value), _) => line(text, name, "", labels, &go_number(*value)),
            (SeriesValue::Histogram(_), _) => {}
        }
    }
}

fn line(text: &mut String, name: &str, suffix: &str, labels: &[(&str, &str)], value: &str) {
    text.push_str(name);
    text.push_str(suffix);
    if !labels.is_empty() {
        // Sorted by label name, as Prometheus' own clients write them; `le` is put last.
        let mut labels = labels.to_vec();
        labels.sort_by_key(|(name, _)| (*name == "le", *name));
        text.push('{');
        for (i, (label, value)) in labels.iter().enumerate() {
            if i > 0 {
                text.push(',');
            }
            let _ = write!(text, "{label}=\"{}\"", escape(value, true));
        }
        text.push('}');
    }
    let _ = writeln!(text, " {value}");
}

/// Backslashes and line feeds are escaped, in label values quotes too.
fn escape(text: &str, quotes: bool) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' => escaped.push_str("\\\\"),
            '\n' => escaped.push_str("\\n"),
            '"' if quotes => escaped.push_str("\\\""),
            c => escaped.push(c),
        }
    }
    escaped
}

/// A number as Prometheus' Go library writes it: with an exponent from 10⁻⁵ down and from 10⁶ up.
pub fn go_number(value: f64) -> String {
    let size = value.abs();
    if size != 0.0 && !(1e-4..1e6).contains(&size) && size.is_finite() {
        let text = format!("{value:e}");
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let (sign, exponent) = match exponent.strip_prefix('-') {
            Some(exponent) => ('-', exponent),
            None => ('+', exponent),
        };
        return format!("{digits}e{sign}{exponent:0>2}");
    }
    format!("{value}")
}

#[cfg(test)]
mod tests {
    use super::super::{Metric, Metrics};
    use super::*;

    #[test]
    fn numbers_are_written_as_go_writes_them() {
        for (value, text) in [
            (0.0, "0"),
            (1.0, "1"),
            (0.1024, "0.1024"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (0.000015000000000000002, "1.5000000000000002e-05"),
            (5242.88, "5242.88"),
            (999_999.5, "999999.5"),
            (1_048_576.0, "1.048576e+06"),
            (1e21, "1e+21"),
        ] {
            assert_eq!(go_number(value), text);
        }
    }

    #[test]
    fn series_are_sorted_and_values_escaped() {
        let mut metrics = Metrics::default();
        metrics.count(Metric::ScheduleAttempts, &["scheduled", "b\"\\\n"]);
        metrics.count(Metric::ScheduleAttempts, &["error", "a"]);
        metrics.count(Metric::ScheduleAttempts, &["scheduled", "b\"\\\n"]);
        let text = metrics.snapshot().render();
        let lines: Vec<&str> = text
            .lines()
            .filter(|l| l.contains("schedule_attempts_total"))
            .collect();
        assert_eq!(lines.len(), 4, "{text}");
        assert!(lines[0].starts_with(
            "# HELP scheduler_schedule_attempts_total [STABLE] Number of attempts to schedule pods, by the result."
        ));
        assert_eq!(lines[1], "# TYPE scheduler_schedule_attempts_total counter");
        assert_eq!(
            lines[2],
            "scheduler_schedule_attempts_total{profile=\"a\",result=\"error\"} 1"
        );
        assert_eq!(
            lines[3],
            "scheduler_schedule_attempts_total{profile=\"b\\\"\\\\\\n\",result=\"scheduled\"} 2"
        );
    }

    #[test]
    fn histograms_add_up() {
        let mut metrics = Metrics::default();
        for observed in [1.0, 2.0, 3.0, 100.0] {
            metrics.observe(Metric::PodSchedulingAttempts, &[], observed);
        }
        let text = metrics.snapshot().render();
        let lines: Vec<&str> = text
            .lines()
            .filter(|l| l.starts_with("scheduler_pod_scheduling_attempts"))
            .collect();
        assert_eq!(
            lines,
            [
                "scheduler_pod_scheduling_attempts_bucket{le=\"1\"} 1",
                "scheduler_pod_scheduling_attempts_bucket{le=\"2\"} 2",
                "scheduler_pod_scheduling_attempts_bucket{le=\"4\"} 3",
                "scheduler_pod_scheduling_attempts_bucket{le=\"8\"} 3",
                "scheduler_pod_scheduling_attempts_bucket{le=\"16\"} 3",
                "scheduler_pod_scheduling_attempts_bucket{le=\"+Inf\"} 4",
                "scheduler_pod_scheduling_attempts_sum 106",
                "scheduler_pod_scheduling_attempts_count 4",
            ]
        );
    }

    #[test]
    fn untouched_metrics_without_labels_are_zero() {
        let text = Metrics::default().snapshot().render();
        assert!(
            text.contains("\nscheduler_preemption_attempts_total 0\n"),
            "{text}"
        );
        assert!(
            !text.contains("scheduler_schedule_attempts_total"),
            "no series, no family"
        );
    }
}
