//! Names, claims and labels of the pods of a StatefulSet. Pure.

use super::super::revisions::REVISION_LABEL;
use crate::workload::pod_from_template;
use berth_objects::object::{
    CLAIM, ControllerKey, STATEFUL_SET, controller_reference, items, labels, name, namespace, set,
};
use serde_json::{Value, json};

const POD_NAME_LABEL: &str = "statefulset.kubernetes.io/pod-name";
const POD_INDEX_LABEL: &str = "apps.kubernetes.io/pod-index";

/// The name of the pod with this ordinal.
pub(super) fn pod_name(stateful_set: &Value, at: i64) -> String {
    format!("{}-{at}", name(stateful_set))
}

/// The ordinal of a pod of a set; `None` if the set does not use its name.
pub(super) fn ordinal_of(stateful_set: &Value, pod: &Value) -> Option<i64> {
    let (parent, ordinal) = name(pod).rsplit_once('-')?;
    let ordinal = ordinal.parse().ok()?;
    (parent == name(stateful_set) && name(pod) == pod_name(stateful_set, ordinal))
        .then_some(ordinal)
}

fn claim_name(stateful_set: &Value, template: &Value, at: i64) -> String {
    format!("{}-{}", name(template), pod_name(stateful_set, at))
}

/// Returns whether the pods of a set have a claim of this name, now or before the set was scaled down.
pub(super) fn has_claim(stateful_set: &Value, claim: &str) -> bool {
    let Some((prefix, ordinal)) = claim.rsplit_once('-') else {
        return false;
    };
    let templates = items(&stateful_set["spec"]["volumeClaimTemplates"]);
    ordinal.parse::<u32>().is_ok()
        && templates.iter().any(|template| {
            let rest = prefix.strip_prefix(name(template));
            rest.and_then(|rest| rest.strip_prefix('-')) == Some(name(stateful_set))
        })
}

/// The keys of the claims of the pod with this ordinal.
pub(super) fn claim_keys(stateful_set: &Value, at: i64) -> impl Iterator<Item = ControllerKey> {
    let templates = items(&stateful_set["spec"]["volumeClaimTemplates"]).iter();
    templates.map(move |template| {
        let claim = claim_name(stateful_set, template, at);
        ControllerKey::new(namespace(stateful_set), &claim)
    })
}

/// The claims of the pod with this ordinal.
pub(super) fn claims(stateful_set: &Value, at: i64) -> Vec<Value> {
    let spec = &stateful_set["spec"];
    let is_deleted = spec["persistentVolumeClaimRetentionPolicy"]["whenDeleted"] == "Delete";
    items(&spec["volumeClaimTemplates"])
        .iter()
        .map(|template| {
            let mut claim = template.clone();
            if let Some(claim) = claim.as_object_mut() {
                claim.remove("status");
            }
            claim["apiVersion"] = CLAIM.api_version.into();
            claim["kind"] = CLAIM.kind.into();
            claim["metadata"]["name"] = claim_name(stateful_set, template, at).into();
            claim["metadata"]["namespace"] = namespace(stateful_set).into();
            let labels = spec["selector"]["matchLabels"].as_object();
            for (key, value) in labels.into_iter().flatten() {
                set(&mut claim, &["metadata", "labels", key], value.clone());
            }
            if is_deleted {
                let owner = controller_reference(STATEFUL_SET, stateful_set);
                claim["metadata"]["ownerReferences"] = json!([owner]);
            }
            claim
        })
        .collect()
}

/// A pod with the labels of its identity, if it lacks them.
pub(super) fn relabelled(pod: &Value, at: i64) -> Option<Value> {
    let own = [
        (POD_NAME_LABEL, name(pod).to_owned()),
        (POD_INDEX_LABEL, at.to_string()),
    ];
    let has = |label: &str| labels(pod).and_then(|l| l.get(label)?.as_str());
    if has(POD_NAME_LABEL) == Some(name(pod)) {
        return None;
    }
    let mut relabelled = pod.clone();
    for (label, value) in own {
        set(
            &mut relabelled,
            &["metadata", "labels", label],
            value.into(),
        );
    }
    Some(relabelled)
}

/// The pod with this ordinal, of a revision.
pub(super) fn pod(stateful_set: &Value, template: &Value, revision: &str, at: i64) -> Value {
    let mut pod = pod_from_template(template, STATEFUL_SET, stateful_set);
    let pod_name = pod_name(stateful_set, at);
    if let Some(metadata) = pod["metadata"].as_object_mut() {
        metadata.remove("generateName");
        metadata.insert("name".to_owned(), pod_name.clone().into());
    }
    for (label, value) in [
        (POD_NAME_LABEL, pod_name.clone()),
        (POD_INDEX_LABEL, at.to_string()),
        (REVISION_LABEL, revision.to_owned()),
    ] {
        set(&mut pod, &["metadata", "labels", label], value.into());
    }
    let spec = &mut pod["spec"];
    spec["hostname"] = pod_name.into();
    let service = &stateful_set["spec"]["serviceName"];
    if service.as_str().is_some_and(|s| !s.is_empty()) {
        spec["subdomain"] = service.clone();
    }
    let templates = items(&stateful_set["spec"]["volumeClaimTemplates"]);
    let mut volumes: Vec<Value> = templates
        .iter()
        .map(|template| {
            let claim = claim_name(stateful_set, template, at);
            json!({
                "name": name(template),
                "persistentVolumeClaim": {"claimName": claim, "readOnly": false},
            })
        })
        .collect();
    // A volume of the pod's template with the name of a claim is replaced.
    let own = items(&spec["volumes"]);
    volumes.extend(
        own.iter()
            .filter(|v| templates.iter().all(|t| v["name"] != name(t)))
            .cloned(),
    );
    if !volumes.is_empty() {
        spec["volumes"] = volumes.into();
    }
    pod
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_and_claims_are_named_by_set_and_ordinal() {
        let set = json!({
            "metadata": {"name": "web", "namespace": "n", "uid": "u"},
            "spec": {
                "serviceName": "svc",
                "selector": {"matchLabels": {"app": "web"}},
                "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Delete"},
                "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {"x": 1}}],
            },
        });
        let template = json!({
            "metadata": {"labels": {"app": "web"}},
            "spec": {"volumes": [{"name": "data", "emptyDir": {}}, {"name": "tmp", "emptyDir": {}}]},
        });
        let pod = pod(&set, &template, "web-abc", 3);
        assert_eq!(name(&pod), "web-3");
        assert_eq!(pod["metadata"]["generateName"], Value::Null);
        assert_eq!(
            pod["metadata"]["labels"],
            json!({
                "app": "web",
                POD_NAME_LABEL: "web-3",
                POD_INDEX_LABEL: "3",
                REVISION_LABEL: "web-abc",
            })
        );
        assert_eq!(pod["spec"]["hostname"], "web-3");
        assert_eq!(pod["spec"]["subdomain"], "svc");
        let volumes: Vec<_> = items(&pod["spec"]["volumes"])
            .iter()
            .map(|v| &v["name"])
            .collect();
        assert_eq!(volumes, ["data", "tmp"]);
        assert_eq!(
            pod["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"],
            "data-web-3"
        );
        let claims = claims(&set, 3);
        assert_eq!(name(&claims[0]), "data-web-3");
        assert_eq!(claims[0]["metadata"]["labels"], json!({"app": "web"}));
        assert_eq!(claims[0]["metadata"]["ownerReferences"][0]["uid"], "u");
        for (pod_name, ordinal) in [
            ("web-3", Some(3)),
            ("web-03", None),
            ("web-x", None),
            ("api-3", None),
        ] {
            let pod = json!({"metadata": {"name": pod_name}});
            assert_eq!(ordinal_of(&set, &pod), ordinal, "{pod_name}");
        }
    }
}
