//! The annotations that deployments and their replica sets carry: revisions and the sizes last asked for.

use super::rolling::Bounds;
use berth_objects::object::{annotation, annotation_number, set_annotation};
use serde_json::Value;

const REVISION: &str = "deployment.kubernetes.io/revision";
const HISTORY: &str = "deployment.kubernetes.io/revision-history";
const DESIRED: &str = "deployment.kubernetes.io/desired-replicas";
const MAX: &str = "deployment.kubernetes.io/max-replicas";
/// No longer history is kept, in characters.
const HISTORY_MAX: usize = 2000;

/// Annotations of a deployment that its replica sets do not get.
const NOT_COPIED: [&str; 6] = [
    "kubectl.kubernetes.io/last-applied-configuration",
    "deprecated.deployment.rollback.to",
    REVISION,
    HISTORY,
    DESIRED,
    MAX,
];

/// The revision of a replica set; 0 when it has none.
pub(super) fn revision(set: &Value) -> i64 {
    annotation_number(set, REVISION).unwrap_or_default()
}

/// The desired number of replicas of the deployment when the replica set was last scaled.
pub(super) fn desired(set: &Value) -> Option<i32> {
    annotation_number(set, DESIRED)
}

/// The number of pods that its deployment could have when the replica set was last scaled; 0 when unknown.
pub(super) fn pods_max(set: &Value) -> i32 {
    annotation_number(set, MAX).unwrap_or_default()
}

/// Notes the sizes asked for; `true` when that changed something.
pub(super) fn note_sizes(set: &mut Value, bounds: Bounds) -> bool {
    let desired = set_annotation(set, DESIRED, &bounds.replicas.to_string());
    let max = set_annotation(set, MAX, &bounds.pods_max().to_string());
    desired || max
}

/// Copies the annotations of the deployment to the new replica set, and sets the revision if it is higher; the previous
/// revision is added to the history. Returns whether the set changed.
pub(super) fn annotate_new(set: &mut Value, deployment: &Value, revision: i64) -> bool {
    let mut changed = false;
    if let Some(annotations) = deployment["metadata"]["annotations"].as_object() {
        for (key, value) in annotations {
            if let Some(value) = value.as_str()
                && !NOT_COPIED.contains(&key.as_str())
            {
                changed |= set_annotation(set, key, value);
            }
        }
    }
    let before = annotation(set, REVISION).map(str::to_owned);
    let number = before.as_deref().and_then(|r| r.parse().ok()).unwrap_or(0);
    // The revision of a set never decreases: a rollback gets a new number.
    if number >= revision {
        return changed;
    }
    set_annotation(set, REVISION, &revision.to_string());
    if let Some(before) = before.filter(|b| !b.is_empty()) {
        let mut history: Vec<String> = annotation(set, HISTORY)
            .into_iter()
            .flat_map(|h| h.split(','))
            .filter(|r| !r.is_empty())
            .map(str::to_owned)
            .collect();
        history.push(before);
        // The annotation has a limit of size; the oldest revisions are dropped first.
        while history.len() > 1 && history.join(",").len() > HISTORY_MAX {
            history.remove(0);
        }
        set_annotation(set, HISTORY, &history.join(","));
    }
    true
}

/// Gives the deployment the revision of its new replica set; `true` when that changed something.
pub(super) fn note_revision(deployment: &mut Value, set: &Value) -> bool {
    match annotation(set, REVISION) {
        Some(revision) => set_annotation(deployment, REVISION, revision),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_replica_set_that_is_rolled_back_to_keeps_its_history() {
        let deployment = json!({"metadata": {"annotations": {
            "kubernetes.io/change-cause": "why", REVISION: "4",
            "kubectl.kubernetes.io/last-applied-configuration": "{}"}}});
        let mut set = json!({"metadata": {}});
        assert!(annotate_new(&mut set, &deployment, 1));
        assert!(!annotate_new(&mut set, &deployment, 1));
        assert_eq!(
            set["metadata"]["annotations"],
            json!({"kubernetes.io/change-cause": "why", REVISION: "1"})
        );
        assert!(annotate_new(&mut set, &deployment, 3));
        assert!(annotate_new(&mut set, &deployment, 7));
        assert_eq!(revision(&set), 7);
        assert_eq!(annotation(&set, HISTORY), Some("1,3"));
        for revision in 8..2000 {
            annotate_new(&mut set, &deployment, revision);
        }
        let history = annotation(&set, HISTORY).unwrap();
        assert!(history.len() <= HISTORY_MAX && history.ends_with(",1998"));
    }
}
