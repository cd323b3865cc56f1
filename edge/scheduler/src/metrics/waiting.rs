//! The pods that wait, by reason and owner, as metrics.

use berth_api::Time;
use berth_explain::{gate_accounts, waiting_pods};
use berth_scheduler::Scheduler;
use berth_scheduler::families;
use berth_scheduler::metrics::{MetricKind, MetricsOf, Snapshot};

use MetricKind::{Counter, Gauge};

families! {
    WaitingMetric:
    Pods: Alpha Gauge, "berth_waiting_pods" ["code", "resource", "namespace", "owner"]
        "Number of pods that plugins have rejected, by code of the reason, insufficient resource, namespace, and kind and name of the pod group or controller (for pods of ReplicaSets, the Deployment). A pod with several reasons counts for each. The 200 largest series are reported; the others are added up by code with the owner 'Other'.";
    OldestSeconds: Alpha Gauge, "berth_waiting_oldest_seconds" ["code", "resource", "namespace", "owner"]
        "Time since the first rejection of the longest waiting pod, in seconds, with the labels of berth_waiting_pods.";
    GatePods: Alpha Gauge, "berth_gate_pods" ["gate"]
        "Number of waiting pods with the scheduling gate. The 100 gates with the most pods are reported.";
    GateAge: Alpha Gauge, "berth_gate_age_seconds" ["gate"]
        "Age of the oldest pod with the scheduling gate, in seconds. The 100 gates with the most pods are reported.";
    GateOrphans: Alpha Gauge, "berth_gate_orphans" ["gate"]
        "Number of pods whose scheduling gate is older than ten times the 99th percentile of the ages at its removals and than one minute, without an observed removal for the same time.";
    GateRemovals: Alpha Counter, "berth_gate_removals_total" ["gate"]
        "Number of observed removals of the scheduling gate. The last 128 gates are reported.";
    GateRemovalAge: Alpha Gauge, "berth_gate_removal_age_seconds" ["gate", "quantile"]
        "Age of pods at the removal of the scheduling gate, in seconds: median (0.5) and 99th percentile (0.99) of the last 512 removals.";
}

/// Adds the waiting pods to the metrics of a scheduler.
pub(crate) fn add(snapshot: &mut Snapshot, scheduler: &Scheduler, now: Time) {
    let mut metrics = MetricsOf::default();
    for row in waiting_pods(scheduler, now) {
        let labels = [row.code.as_str(), &row.resource, &row.namespace, &row.owner];
        metrics.set(WaitingMetric::Pods, &labels, row.pods as f64);
        metrics.set(WaitingMetric::OldestSeconds, &labels, row.oldest_seconds);
    }
    for gate in gate_accounts(scheduler, now) {
        let labels = [gate.gate.as_str()];
        metrics.set(WaitingMetric::GatePods, &labels, gate.pods as f64);
        metrics.set(WaitingMetric::GateAge, &labels, gate.oldest_seconds);
        metrics.set(WaitingMetric::GateOrphans, &labels, gate.orphans as f64);
    }
    for (gate, removals) in scheduler.removed_gates() {
        let labels = [gate.as_str()];
        metrics.set(WaitingMetric::GateRemovals, &labels, removals.count as f64);
        if let Some((median, p99)) = removals.usual_ages() {
            for (quantile, age) in [("0.5", median), ("0.99", p99)] {
                let labels = [gate.as_str(), quantile];
                metrics.set(WaitingMetric::GateRemovalAge, &labels, age.as_secs_f64());
            }
        }
    }
    snapshot.families.extend(metrics.snapshot().families);
}
