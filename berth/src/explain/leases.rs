//! Whether the component that removes a gate still runs: a controller with leader election renews a Lease.

use super::EVENTS_READ_MAX;
use berth_client::election::LEASES;
use berth_client::{Transport, request};
use berth_explain::answer::{ExpiredLease, Gate};
use berth_objects::object::time;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

/// Kubelets renew a Lease for each node there. They remove no gates.
const NOT_OF_NODES: &str = "metadata.namespace!=kube-node-lease";

/// The Leases other than of nodes; none without the permission to list them.
pub(super) async fn list(transport: &Transport) -> Value {
    let question = request::list(LEASES, NOT_OF_NODES, EVENTS_READ_MAX, "");
    transport.request(&question).await.unwrap_or_default()
}

/// A gate is orphaned if the Leases of the component that removes it are expired: the field manager that removed the
/// gate from other pods or, if none was seen, a component that reports events about the gate.
pub(super) fn add_expired(gate: &mut Gate, leases: &Value, now: Timestamp) {
    let reporters = gate.events.iter().map(|event| &event.component);
    let removers: Vec<&String> = match &gate.removed_by {
        Some(manager) => vec![manager],
        None => reporters.collect(),
    };
    let found = removers.iter().find_map(|name| expired(leases, name, now));
    gate.is_orphaned |= found.is_some();
    gate.expired_lease = found;
}

/// The last expired Lease of a component, if all its Leases are expired. A Lease belongs to a component if the
/// component wrote it or has its name.
fn expired(leases: &Value, component: &str, now: Timestamp) -> Option<ExpiredLease> {
    let items = leases["items"].as_array()?.iter();
    let ends = items
        .filter(|lease| is_of(lease, component))
        .filter_map(|lease| Some((end(lease)?, lease)));
    let (end, lease) = ends.max_by_key(|(end, _)| *end)?;
    let late = now.duration_since(end);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (namespace, name) = (
        text(&lease["metadata"]["namespace"]),
        text(&lease["metadata"]["name"]),
    );
    late.is_positive().then(|| ExpiredLease {
        name: format!("{namespace}/{name}"),
        holder: text(&lease["spec"]["holderIdentity"]),
        renewed_at: text(&lease["spec"]["renewTime"]),
        expired_seconds: late.as_secs_f64(),
    })
}

fn is_of(lease: &Value, component: &str) -> bool {
    let metadata = &lease["metadata"];
    let mut entries = metadata["managedFields"].as_array().into_iter().flatten();
    metadata["name"] == component || entries.any(|entry| entry["manager"] == component)
}

/// The expiry of a Lease; `None` if it was never held.
fn end(lease: &Value) -> Option<Timestamp> {
    let spec = &lease["spec"];
    let renewed = time(&spec["renewTime"])?;
    let seconds = spec["leaseDurationSeconds"].as_i64()?;
    renewed.checked_add(SignedDuration::from_secs(seconds)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_explain::answer::GateEvent;
    use serde_json::json;

    fn lease(name: &str, manager: &str, renewed: &str) -> Value {
        json!({
            "metadata": {"namespace": "quota", "name": name, "managedFields": [{"manager": manager}]},
            "spec": {"holderIdentity": "pod-1", "leaseDurationSeconds": 15, "renewTime": renewed},
        })
    }

    fn account(removed_by: Option<&str>, reporter: Option<&str>, leases: &[Value]) -> Gate {
        let reporter = reporter.map(|component| GateEvent {
            component: component.to_owned(),
            ..GateEvent::default()
        });
        let mut gate = Gate {
            removed_by: removed_by.map(str::to_owned),
            events: reporter.into_iter().collect(),
            ..Gate::default()
        };
        let now = "2026-01-01T00:01:00Z".parse().expect("a time");
        add_expired(&mut gate, &json!({"items": leases}), now);
        gate
    }

    #[test]
    fn a_gate_is_orphaned_when_the_lease_of_its_remover_is_expired() {
        let old = lease(
            "a1b2.example.com",
            "quota-controller",
            "2026-01-01T00:00:00.000000Z",
        );
        let fresh = lease("quota-controller", "manager", "2026-01-01T00:00:50.000000Z");
        let other = lease("other", "other", "2025-12-31T00:00:00.000000Z");
        let gate = account(
            Some("quota-controller"),
            None,
            &[old.clone(), other.clone()],
        );
        assert!(gate.is_orphaned);
        let expired = gate.expired_lease.expect("a lease");
        assert_eq!(expired.name, "quota/a1b2.example.com");
        assert_eq!(
            (expired.holder.as_str(), expired.expired_seconds),
            ("pod-1", 45.0)
        );

        let reported = account(None, Some("quota-controller"), std::slice::from_ref(&old));
        assert!(reported.is_orphaned, "the component reports about the gate");

        for (removed_by, leases) in [
            (Some("quota-controller"), vec![old.clone(), fresh.clone()]),
            (Some("quota-controller"), vec![other.clone()]),
            (Some("quota-controller"), vec![]),
            (
                Some("quota-controller"),
                vec![json!({"metadata": {"name": "quota-controller"}, "spec": {}})],
            ),
            (None, vec![old.clone()]),
        ] {
            let gate = account(removed_by, None, &leases);
            assert!(
                !gate.is_orphaned && gate.expired_lease.is_none(),
                "{leases:?}"
            );
        }
    }

    #[test]
    fn a_gate_that_is_orphaned_by_its_age_stays_so() {
        let mut gate = Gate {
            is_orphaned: true,
            ..Gate::default()
        };
        add_expired(&mut gate, &Value::Null, Timestamp::UNIX_EPOCH);
        assert!(gate.is_orphaned);
    }
}
