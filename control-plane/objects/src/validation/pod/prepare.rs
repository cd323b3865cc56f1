//! The fields that the server sets when a pod is created or its status is written.

use super::requests::qos_class;
use crate::view::{FieldView, child, copy_field, existing, is_zero, items_mut, remove, set};
use rustc_hash::FxHashMap;
use serde_json::{Map, Value, json};
use std::collections::VecDeque;

/// The message of the condition of a pod that is created with gates; clients show it.
const GATED: &str = "Scheduling is blocked due to non-empty scheduling gates";

/// Resets the status of a new pod, marks it when it is gated, and merges `matchLabelKeys` into selectors.
pub(crate) fn for_create(pod: &mut Value, now: &str) {
    let empty = Value::Null;
    let spec = pod.field("spec").unwrap_or(&empty);
    // A quality of service from the client is kept, as upstream does.
    let qos = match pod.at(&["status", "qosClass"]).and_then(Value::as_str) {
        Some(given) if !given.is_empty() => given.to_owned(),
        _ => qos_class(spec).to_owned(),
    };
    let mut status = json!({"phase": "Pending", "qosClass": qos});
    if !spec.items("schedulingGates").is_empty() {
        set(
            &mut status,
            "conditions",
            json!([{
                "type": "PodScheduled",
                "status": "False",
                "lastProbeTime": null,
                "lastTransitionTime": now,
                "reason": "SchedulingGated",
                "message": GATED,
            }]),
        );
    }
    set(pod, "status", status);
    merge_label_keys(pod);
}

/// `matchLabelKeys` and `mismatchLabelKeys` become requirements on the values that this pod's labels have.
fn merge_label_keys(pod: &mut Value) {
    let labels = pod
        .field("metadata")
        .and_then(|m| m.map("labels"))
        .cloned()
        .unwrap_or_default();
    let Some(spec) = existing(pod, "spec") else {
        return;
    };
    if let Some(affinity) = existing(spec, "affinity") {
        for kind in ["podAffinity", "podAntiAffinity"] {
            let Some(kind) = existing(affinity, kind) else {
                continue;
            };
            for weighted in items_mut(kind, "preferredDuringSchedulingIgnoredDuringExecution") {
                if let Some(term) = existing(weighted, "podAffinityTerm") {
                    merge_into(term, &labels);
                }
            }
            for term in items_mut(kind, "requiredDuringSchedulingIgnoredDuringExecution") {
                merge_into(term, &labels);
            }
        }
    }
    for constraint in items_mut(spec, "topologySpreadConstraints") {
        merge_into(constraint, &labels);
    }
}

fn merge_into(holder: &mut Value, labels: &Map<String, Value>) {
    let mut added = Vec::new();
    for (field, operator) in [("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")] {
        for key in holder.strings(field) {
            if let Some(value) = labels.get(key) {
                added.push(json!({"key": key, "operator": operator, "values": [value]}));
            }
        }
    }
    if added.is_empty() {
        return;
    }
    if let Some(selector) = existing(holder, "labelSelector") {
        let mut all = selector.items("matchExpressions").to_vec();
        all.extend(added);
        set(selector, "matchExpressions", all);
    }
}

/// A write of the object keeps the status.
pub(crate) fn for_update(new: &mut Value, old: &Value) {
    copy_field(new, old, "status");
}

/// The parts of a pod's status that the scheduler and the controllers of claims write. A write of the status without
/// them, such as by an older component, keeps them; an empty value removes them.
const CLAIM_STATUSES: [&str; 3] = [
    "resourceClaimStatuses",
    "extendedResourceClaimStatus",
    "nodeAllocatableResourceClaimStatuses",
];

/// A write of the status keeps the spec, the owners, and the fields that only the server sets.
pub(crate) fn for_status_update(new: &mut Value, old: &Value) {
    copy_field(new, old, "spec");
    let empty = Value::Null;
    let old_metadata = old.field("metadata").unwrap_or(&empty);
    if let Some(metadata) = child(new, "metadata") {
        for name in ["ownerReferences", "deletionTimestamp"] {
            copy_field(metadata, old_metadata, name);
        }
    }
    let old_status = old.field("status").unwrap_or(&empty);
    let Some(status) = child(new, "status") else {
        return;
    };
    // A client that does not know these fields must not delete them.
    for name in ["qosClass", "observedGeneration"] {
        if is_zero(status.field(name)) {
            copy_field(status, old_status, name);
        }
    }
    for name in CLAIM_STATUSES {
        // The scheduler and the controllers write these lists; a kubelet that leaves them out keeps them.
        match status.field(name) {
            None | Some(Value::Null) => copy_field(status, old_status, name),
            Some(given) if is_zero(Some(given)) => remove(status, name),
            Some(_) => {}
        }
    }
    // Of several conditions of one type, each is compared with one of before, in their order.
    let mut known: FxHashMap<&str, VecDeque<i64>> = FxHashMap::default();
    for condition in old_status.items("conditions") {
        let generation = condition.int("observedGeneration");
        let of_type = known.entry(condition.text("type")).or_default();
        of_type.push_back(generation);
    }
    for condition in items_mut(status, "conditions") {
        let of_type = known.get_mut(condition.text("type"));
        let Some(generation) = of_type.and_then(VecDeque::pop_front) else {
            continue;
        };
        match (condition.int("observedGeneration"), generation) {
            (0, 0) => remove(condition, "observedGeneration"),
            (0, generation) => set(condition, "observedGeneration", generation),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_pod_starts_pending_and_gated() {
        let mut pod = json!({
            "metadata": {"labels": {"app": "a"}},
            "spec": {
                "schedulingGates": [{"name": "g"}],
                "containers": [{"resources": {"requests": {"cpu": "1"}}}],
                "topologySpreadConstraints": [
                    {"labelSelector": {"matchLabels": {"x": "y"}}, "matchLabelKeys": ["app", "absent"]},
                    {"matchLabelKeys": ["app"]},
                ],
                "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
                    {"labelSelector": {}, "mismatchLabelKeys": ["app"]}]}},
            },
            "status": {"phase": "Running", "conditions": [{"type": "PodScheduled", "status": "True"}]},
        });
        for_create(&mut pod, "2026-01-01T00:00:00Z");
        assert_eq!(
            pod["status"],
            json!({"phase": "Pending", "qosClass": "Burstable", "conditions": [{
                "type": "PodScheduled", "status": "False", "lastProbeTime": null,
                "lastTransitionTime": "2026-01-01T00:00:00Z", "reason": "SchedulingGated",
                "message": GATED}]})
        );
        let spread = &pod["spec"]["topologySpreadConstraints"];
        assert_eq!(
            spread[0]["labelSelector"]["matchExpressions"],
            json!([{"key": "app", "operator": "In", "values": ["a"]}])
        );
        assert!(
            spread[1].field("labelSelector").is_none(),
            "no selector matches nothing"
        );
        assert_eq!(
            pod["spec"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
                [0]["labelSelector"]["matchExpressions"][0]["operator"],
            "NotIn"
        );
    }

    /// API-62: worked by hand.
    #[test]
    fn a_status_write_that_leaves_out_claims_keeps_them() {
        let claims = json!([{"name": "a", "resourceClaimName": "c"}]);
        let extended = json!({"resourceClaimName": "x", "requestMappings": []});
        let old = json!({"spec": {}, "status": {"phase": "Pending",
            "resourceClaimStatuses": claims, "extendedResourceClaimStatus": extended}});
        for (situation, given, expected) in [
            (
                "left out",
                json!({"phase": "Running"}),
                json!({"phase": "Running", "resourceClaimStatuses": claims,
                    "extendedResourceClaimStatus": extended}),
            ),
            (
                "null",
                json!({"resourceClaimStatuses": null}),
                json!({"resourceClaimStatuses": claims, "extendedResourceClaimStatus": extended}),
            ),
            (
                "an empty list",
                json!({"resourceClaimStatuses": []}),
                json!({"extendedResourceClaimStatus": extended}),
            ),
            (
                "another value",
                json!({"resourceClaimStatuses": [{"name": "b"}]}),
                json!({"resourceClaimStatuses": [{"name": "b"}],
                    "extendedResourceClaimStatus": extended}),
            ),
        ] {
            let mut new = json!({"spec": {}, "status": given});
            for_status_update(&mut new, &old);
            assert_eq!(new["status"], expected, "{situation}");
        }
    }

    #[test]
    fn a_status_write_changes_only_the_status() {
        let old = json!({
            "metadata": {"name": "p", "ownerReferences": [{"uid": "1"}]},
            "spec": {"nodeName": "n"},
            "status": {"qosClass": "Burstable", "conditions": [{"type": "Ready", "observedGeneration": 3}]},
        });
        let mut new = json!({
            "metadata": {"name": "p", "labels": {"a": "b"}},
            "spec": {"nodeName": "other"},
            "status": {"phase": "Running", "conditions": [{"type": "Ready"}]},
        });
        for_status_update(&mut new, &old);
        assert_eq!(
            new,
            json!({
                "metadata": {"name": "p", "labels": {"a": "b"}, "ownerReferences": [{"uid": "1"}]},
                "spec": {"nodeName": "n"},
                "status": {"phase": "Running", "qosClass": "Burstable",
                    "conditions": [{"type": "Ready", "observedGeneration": 3}]},
            })
        );
    }
}
