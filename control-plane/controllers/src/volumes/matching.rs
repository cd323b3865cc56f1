//! The choice of a volume for a claim.

use super::text;
use berth_api::Quantity;
use berth_objects::access::StoredObject;
use berth_objects::object::{annotation, is_deleting, items, labels, name, namespace, uid};
use berth_objects::selectors::workload::ControllerSelector;
use berth_objects::view::FieldView;
use serde_json::Value;

/// The annotation that names the class; it takes precedence over the field.
const BETA_CLASS: &str = "volume.beta.kubernetes.io/storage-class";

/// The class of a volume or claim; empty for none.
pub(super) fn class(object: &Value) -> &str {
    annotation(object, BETA_CLASS).unwrap_or_else(|| text(object, "/spec/storageClassName"))
}

/// Returns whether the volume is reserved for the claim.
pub(super) fn is_meant_for(volume: &Value, claim: &Value) -> bool {
    let given = text(volume, "/spec/claimRef/uid");
    text(volume, "/spec/claimRef/name") == name(claim)
        && text(volume, "/spec/claimRef/namespace") == namespace(claim)
        && (given.is_empty() || given == uid(claim))
}

fn size(object: &Value, pointer: &str) -> Quantity {
    text(object, pointer).parse().unwrap_or_default()
}

/// The capacity of a volume.
fn capacity(volume: &Value) -> Quantity {
    size(volume, "/spec/capacity/storage")
}

fn mode(object: &Value) -> &str {
    let mode = object.part("spec").maybe_text("volumeMode");
    mode.unwrap_or("Filesystem")
}

/// Returns whether a free volume will do for a claim.
fn will_do(volume: &Value, claim: &Value) -> bool {
    let offered = items(&volume["spec"]["accessModes"]);
    let wanted = items(&claim["spec"]["accessModes"]);
    let selector = &claim["spec"]["selector"];
    !is_deleting(volume)
        && volume["spec"]["claimRef"].is_null()
        && text(volume, "/status/phase") == "Available"
        && class(volume) == class(claim)
        && mode(volume) == mode(claim)
        && text(volume, "/spec/volumeAttributesClassName")
            == text(claim, "/spec/volumeAttributesClassName")
        && wanted.iter().all(|mode| offered.contains(mode))
        && capacity(volume) >= size(claim, "/spec/resources/requests/storage")
        && (selector.is_null() || ControllerSelector::parse(selector).matches(labels(volume)))
}

/// The smallest free volume that will do; of the same size, the first by name.
pub(super) fn smallest<'a>(
    volumes: impl Iterator<Item = &'a StoredObject>,
    claim: &Value,
) -> Option<&'a StoredObject> {
    volumes
        .filter(|volume| will_do(volume, claim))
        .min_by(|a, b| {
            capacity(a)
                .cmp(&capacity(b))
                .then_with(|| name(a).cmp(name(b)))
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::sync::Arc;

    fn volume(name: &str, size: &str, more: Value) -> StoredObject {
        let mut volume = json!({
            "metadata": {"name": name, "labels": {"tier": "slow"}},
            "spec": {
                "capacity": {"storage": size},
                "accessModes": ["ReadWriteOnce", "ReadOnlyMany"],
                "storageClassName": "c",
            },
            "status": {"phase": "Available"},
        });
        for (field, value) in more.as_object().expect("fields") {
            volume["spec"][field] = value.clone();
        }
        Arc::new(volume)
    }

    fn claim(more: Value) -> Value {
        let mut claim = json!({
            "metadata": {"name": "c", "namespace": "n", "uid": "u"},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "2Gi"}},
                "storageClassName": "c",
            },
        });
        for (field, value) in more.as_object().expect("fields") {
            claim["spec"][field] = value.clone();
        }
        claim
    }

    #[test]
    fn the_smallest_volume_that_will_do_is_taken() {
        let all = [
            volume("huge", "9Gi", json!({})),
            volume("b", "3Gi", json!({})),
            volume("a", "3Gi", json!({})),
            volume("tiny", "1Gi", json!({})),
            volume(
                "taken",
                "2Gi",
                json!({"claimRef": {"name": "x", "namespace": "n"}}),
            ),
            volume("block", "2Gi", json!({"volumeMode": "Block"})),
            volume("other", "2Gi", json!({"storageClassName": "d"})),
            volume("read", "2Gi", json!({"accessModes": ["ReadOnlyMany"]})),
        ];
        for (situation, more, expected) in [
            ("anything", json!({}), Some("a")),
            (
                "a larger one",
                json!({"resources": {"requests": {"storage": "4Gi"}}}),
                Some("huge"),
            ),
            (
                "a block device",
                json!({"volumeMode": "Block"}),
                Some("block"),
            ),
            (
                "another class",
                json!({"storageClassName": "d"}),
                Some("other"),
            ),
            (
                "only to read",
                json!({"accessModes": ["ReadOnlyMany"]}),
                Some("read"),
            ),
            (
                "more modes",
                json!({"accessModes": ["ReadWriteMany"]}),
                None,
            ),
            (
                "with a label",
                json!({"selector": {"matchLabels": {"tier": "fast"}}}),
                None,
            ),
        ] {
            let claim = claim(more);
            let found = smallest(all.iter(), &claim).map(|volume| name(volume));
            assert_eq!(found, expected, "{situation}");
        }
    }

    #[test]
    fn a_volume_is_meant_for_the_claim_that_it_names() {
        let claim = claim(json!({}));
        for (claim_ref, meant) in [
            (json!({"name": "c", "namespace": "n"}), true),
            (json!({"name": "c", "namespace": "n", "uid": "u"}), true),
            (json!({"name": "c", "namespace": "n", "uid": "w"}), false),
            (json!({"name": "c", "namespace": "m"}), false),
            (Value::Null, false),
        ] {
            let volume = volume("v", "1Gi", json!({"claimRef": claim_ref}));
            assert_eq!(is_meant_for(&volume, &claim), meant, "{claim_ref}");
        }
    }
}
