//! The pause of a set whose pods fail immediately after their creation. Pure.
//!
//! The ReplicaSet controller of kube-controller-manager does not wait. In a cluster whose scheduler and kubelets are as
//! fast as Berth's, a set of one replica would fill the store with failed pods.

use berth_objects::access::StoredObject;
use berth_objects::object::{count, created_at, is_deleting};
use berth_objects::pod;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

/// Pods that were created earlier than this before the newest that failed do not count.
const WINDOW: SignedDuration = SignedDuration::from_mins(10);
/// The longest pause.
const SECONDS_MAX: i64 = 60;

/// The pause in seconds after `failed` failed pods: none up to the number of replicas, then 1, 2, 4, … for each further
/// round in which all failed.
fn seconds(failed: usize, replicas: usize) -> i64 {
    let rounds = failed.saturating_sub(1) / replicas.max(1);
    match u32::try_from(rounds) {
        Ok(0) => 0,
        Ok(rounds) => (1_i64 << (rounds - 1).min(10)).min(SECONDS_MAX),
        Err(_) => SECONDS_MAX,
    }
}

/// The earliest time at which the set may create pods; `None` if it need not wait.
pub(super) fn ends(set: &Value, pods: &[StoredObject]) -> Option<Timestamp> {
    let failed = pods
        .iter()
        .filter(|p| pod::phase(p) == "Failed" && !is_deleting(p));
    let created: Vec<Timestamp> = failed.map(|p| created_at(p)).collect();
    let newest = *created.iter().max()?;
    let recent = created
        .iter()
        .filter(|at| newest.duration_since(**at) <= WINDOW)
        .count();
    let replicas = usize::try_from(count(&set["spec"]["replicas"], 1)).unwrap_or_default();
    let pause = seconds(recent, replicas);
    (pause > 0)
        .then(|| newest.checked_add(SignedDuration::from_secs(pause)).ok())
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pause_doubles_with_each_round_of_failures() {
        let one: Vec<i64> = (0..10).map(|failed| seconds(failed, 1)).collect();
        assert_eq!(one, [0, 0, 1, 2, 4, 8, 16, 32, 60, 60]);
        let three: Vec<i64> = (0..10).map(|failed| seconds(failed, 3)).collect();
        assert_eq!(three, [0, 0, 0, 0, 1, 1, 1, 2, 2, 2]);
        assert_eq!(seconds(usize::MAX, 1), 60);
        assert_eq!(seconds(5, 0), 8);
    }
}
