//! Workloads beyond their allowed skew, as metrics.

use berth_explain::spread::WorkloadSpread;
use berth_scheduler::families;
use berth_scheduler::metrics::{MetricKind, MetricsOf, Snapshot};

use MetricKind::Gauge;

/// The number of series that are reported.
const SERIES_MAX: usize = 100;

families! {
    SpreadMetric:
    ExcessSkew: Alpha Gauge, "berth_workload_excess_skew" ["namespace", "owner", "topology_key"]
        "Skew of a workload without pods of former revisions minus the allowed skew, for workloads beyond it, by kind and name of the owner. Computed at most once a minute. The 100 workloads with the fewest pods to delete are reported.";
}

/// The metrics of the workloads beyond their allowed skew.
pub(crate) fn snapshot(spreads: &[WorkloadSpread]) -> Snapshot {
    let mut metrics = MetricsOf::default();
    let exceeded = spreads.iter().filter(|spread| spread.is_exceeded());
    for spread in exceeded.take(SERIES_MAX) {
        let (kind, name) = spread.workload.split_once(' ').unwrap_or_default();
        let (namespace, name) = name.split_once('/').unwrap_or_default();
        let owner = format!("{kind}/{name}");
        let labels = [namespace, owner.as_str(), spread.topology_key.as_str()];
        let excess = spread.skew_after.saturating_sub(spread.max_skew);
        metrics.set(SpreadMetric::ExcessSkew, &labels, excess as f64);
    }
    metrics.snapshot()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_workloads_beyond_their_allowed_skew_are_reported() {
        let spread = |workload: &str, skew_after: usize| WorkloadSpread {
            workload: workload.to_owned(),
            topology_key: "zone".to_owned(),
            max_skew: 1,
            skew_after,
            ..WorkloadSpread::default()
        };
        let spreads = [
            spread("Deployment shop/web", 4),
            spread("StatefulSet shop/db", 1),
        ];
        let text = snapshot(&spreads).render();
        let rows = text.lines().filter(|line| !line.starts_with('#'));
        let rows: Vec<&str> = rows.collect();
        let expected = "berth_workload_excess_skew{namespace=\"shop\",owner=\"Deployment/web\",topology_key=\"zone\"} 3";
        assert_eq!(rows, [expected]);
    }
}
