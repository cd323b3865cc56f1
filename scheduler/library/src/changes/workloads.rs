//! Workloads among the changes: the pods that their controllers would create and delete.
//!
//! Existing pods that match the template are kept; others are replaced. Pods without a node are deleted first.

use super::strict::{self, hint};
use super::{Added, DELETE, name_of, namespace_of};
use crate::InputError;
use crate::json::{ClusterJson, ObjectKey};
use berth_api::Kind;
use berth_objects::offline;
use serde_json::{Value, json};

/// The kinds whose pods are created: API version, kind, and the field of the number of pods.
const KINDS: [(&str, &str, &str); 5] = [
    ("apps/v1", "Deployment", "replicas"),
    ("apps/v1", "ReplicaSet", "replicas"),
    ("apps/v1", "StatefulSet", "replicas"),
    ("v1", "ReplicationController", "replicas"),
    ("batch/v1", "Job", "parallelism"),
];
/// The most pods of a workload.
const PODS_MAX: u64 = 100_000;

/// The facts of the kind of a workload; `None` if the object is not a workload.
fn kind_of(object: &Value) -> Option<&'static (&'static str, &'static str, &'static str)> {
    let is_it =
        |known: &&(&str, &str, &str)| object["apiVersion"] == known.0 && object["kind"] == known.1;
    KINDS.iter().find(is_it)
}

/// Returns whether an object is a workload whose pods are created.
pub(crate) fn is_one(object: &Value) -> bool {
    kind_of(object).is_some()
}

/// Applies a workload to the pods, and returns the effect in words; `None` if the object is not a workload.
///
/// # Errors
/// When the workload does not define its pods.
pub(crate) fn apply(
    raw: &mut ClusterJson,
    place: &str,
    object: &Value,
    added: &mut Added,
) -> Result<Option<String>, InputError> {
    let Some((version, kind, count)) = kind_of(object) else {
        return Ok(None);
    };
    let wrong = |what: String| InputError::object(place, format!("{kind}: {what}"));
    let name = name_of(object).ok_or_else(|| wrong("metadata.name is missing".to_owned()))?;
    let namespace = namespace_of(object);
    let mut present = pods_of(raw, kind, &namespace, &name);
    let is_deleted = object["metadata"]["annotations"][DELETE] == "delete";
    let template = &object["spec"]["template"];
    let model = match (template.is_object(), present.first()) {
        (true, _) => template.clone(),
        (false, Some(pod)) => json!({
            "metadata": {"labels": raw[pod]["metadata"]["labels"]},
            "spec": raw[pod]["spec"],
        }),
        (false, None) if is_deleted && is_known(raw, kind, &namespace, &name) => Value::Null,
        (false, None) => {
            let owners = owners_of(raw, kind, &namespace);
            let hint = hint(&name, owners.iter().map(String::as_str));
            return Err(wrong(if is_deleted {
                format!("{namespace}/{name} has no pods to delete{hint}")
            } else {
                format!("{namespace}/{name} has no pods, so spec.template is needed{hint}")
            }));
        }
    };
    let wanted = match &object["spec"][count] {
        _ if is_deleted => 0,
        Value::Null => present.len().max(1) as u64,
        number => number
            .as_u64()
            .filter(|number| *number <= PODS_MAX)
            .ok_or_else(|| {
                wrong(format!(
                    "spec.{count} must be a number from 0 to {PODS_MAX}"
                ))
            })?,
    };
    // The kept pods are first, and among them the pods with a node.
    present.sort_by_key(|key| {
        let spec = &raw[key]["spec"];
        let is_other = template.is_object() && !contains(spec, &template["spec"]);
        (
            is_other,
            spec["nodeName"].as_str().is_none_or(str::is_empty),
        )
    });
    let stay = present
        .iter()
        .take_while(|key| !template.is_object() || contains(&raw[*key]["spec"], &template["spec"]));
    let stay = stay
        .count()
        .min(usize::try_from(wanted).unwrap_or(usize::MAX));
    let removed = present.len() - stay;
    for key in present.drain(stay..) {
        remove(raw, &key, added);
    }
    let mut number = 0;
    let created = wanted.saturating_sub(stay as u64);
    for _ in stay as u64..wanted {
        let key = loop {
            number += 1;
            let key = (
                Kind::Pod,
                namespace.clone(),
                format!("{name}-what-if-{number}"),
            );
            if !raw.contains_key(&key) {
                break key;
            }
        };
        let pod = new_pod(&key, &model, version, kind, &name);
        if number == 1 && template.is_object() {
            strict::check_new(raw, place, &key, &pod)?;
        }
        raw.insert(key.clone(), pod);
        added.pods.push(key);
    }
    Ok(Some(format!(
        "{created} pods created, {removed} deleted, {stay} stay"
    )))
}

/// Returns whether the scheduler reads a workload, with or without pods.
fn is_known(raw: &ClusterJson, kind: &str, namespace: &str, name: &str) -> bool {
    raw.keys()
        .any(|key| key.0.name() == kind && key.1 == namespace && key.2 == name)
}

/// The names of the workloads of a kind that have pods in a namespace.
fn owners_of(raw: &ClusterJson, kind: &str, namespace: &str) -> Vec<String> {
    let pods = raw
        .iter()
        .filter(|(key, _)| key.0 == Kind::Pod && key.1 == namespace);
    let owners = pods.filter_map(|(_, pod)| {
        let owner = controller(pod)?;
        let name = owner["name"].as_str()?;
        let hash = pod["metadata"]["labels"]["pod-template-hash"].as_str();
        match (kind, owner["kind"].as_str()?) {
            ("Deployment", "ReplicaSet") => {
                let name = name.strip_suffix(hash?)?.strip_suffix('-')?;
                Some(name.to_owned())
            }
            (wanted, of) => (wanted == of).then(|| name.to_owned()),
        }
    });
    let mut owners: Vec<String> = owners.collect();
    owners.sort();
    owners.dedup();
    owners
}

fn controller(pod: &Value) -> Option<&Value> {
    let owners = pod["metadata"]["ownerReferences"].as_array()?;
    owners.iter().find(|owner| owner["controller"] == true)
}

/// Deletes a pod.
pub(crate) fn remove(raw: &mut ClusterJson, key: &ObjectKey, added: &mut Added) {
    raw.remove(key);
    added.pods.retain(|other| other != key);
}

/// A pod that a controller creates from a template.
pub(crate) fn new_pod(
    key: &ObjectKey,
    model: &Value,
    version: &str,
    kind: &str,
    owner: &str,
) -> Value {
    let (_, namespace, name) = key;
    let mut spec = model["spec"].clone();
    if let Some(fields) = spec.as_object_mut() {
        // The template may be copied from a bound pod.
        fields.remove("nodeName");
    }
    let mut pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": format!("what-if-{namespace}-{name}"),
            "labels": model["metadata"]["labels"],
            "ownerReferences": [{
                "apiVersion": version,
                "kind": kind,
                "name": owner,
                "uid": format!("what-if-{kind}-{owner}"),
                "controller": true,
            }],
        },
        "spec": spec,
        "status": {"phase": "Pending"},
    });
    // The API server sets the defaults when the pod is created.
    offline::set_defaults("v1", "Pod", &mut pod);
    pod
}

/// The pods of a workload that have not ended.
pub(crate) fn pods_of(
    raw: &ClusterJson,
    kind: &str,
    namespace: &str,
    name: &str,
) -> Vec<ObjectKey> {
    let is_of = |pod: &Value| {
        let Some(owner) = controller(pod) else {
            return false;
        };
        let owner_name = owner["name"].as_str().unwrap_or_default();
        // A Deployment controls its pods through a ReplicaSet that is named after the hash of the template.
        let hash = pod["metadata"]["labels"]["pod-template-hash"].as_str();
        let is_of_deployment = kind == "Deployment"
            && owner["kind"] == "ReplicaSet"
            && hash.is_some_and(|hash| *owner_name == format!("{name}-{hash}"));
        is_of_deployment || owner["kind"] == kind && owner_name == name
    };
    let has_ended = |pod: &Value| {
        let phase = pod["status"]["phase"].as_str();
        matches!(phase, Some("Succeeded" | "Failed"))
    };
    let pods = raw.iter().filter(|((of, in_namespace, _), pod)| {
        *of == Kind::Pod && in_namespace == namespace && is_of(pod) && !has_ended(pod)
    });
    pods.map(|(key, _)| key.clone()).collect()
}

/// Returns whether a value contains everything in a template. The API server adds fields, and appends to lists.
pub(crate) fn contains(value: &Value, template: &Value) -> bool {
    match (value, template) {
        (Value::Object(value), Value::Object(template)) => template.iter().all(|(name, field)| {
            let present = value.get(name).unwrap_or(&Value::Null);
            contains(present, field)
        }),
        (Value::Array(value), Value::Array(template)) => {
            let mut pairs = value.iter().zip(template);
            value.len() >= template.len() && pairs.all(|(value, of)| contains(value, of))
        }
        (value, template) => value == template,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deployment(spec: Value) -> Value {
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec})
    }

    fn template(cpu: &str) -> Value {
        json!({"metadata": {"labels": {"app": "web"}},
               "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}})
    }

    /// A pod of the Deployment as its controller creates it.
    fn pod(name: &str, cpu: &str, node: &str) -> (ObjectKey, Value) {
        let key = (Kind::Pod, "default".to_owned(), name.to_owned());
        let pod = json!({
            "metadata": {"name": name, "namespace": "default",
                "labels": {"app": "web", "pod-template-hash": "h1"},
                "ownerReferences": [{"kind": "ReplicaSet", "name": "web-h1", "controller": true}]},
            "spec": {"nodeName": node, "schedulerName": "other", "tolerations": [{"key": "added"}],
                "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}]},
        });
        (key, pod)
    }

    fn names(raw: &ClusterJson) -> Vec<&str> {
        raw.keys().map(|(_, _, name)| name.as_str()).collect()
    }

    #[test]
    fn a_workload_is_its_pods() {
        let present = [pod("a", "1", "n1"), pod("b", "1", ""), pod("c", "1", "n2")];
        for (what, spec, expected) in [
            (
                "one more",
                json!({"replicas": 4}),
                &["a", "b", "c", "web-what-if-1"][..],
            ),
            (
                "one more, with the template",
                json!({"replicas": 4, "template": template("1")}),
                &["a", "b", "c", "web-what-if-1"],
            ),
            (
                "fewer: those without a node first",
                json!({"replicas": 2}),
                &["a", "c"],
            ),
            (
                "another template replaces all",
                json!({"template": template("2")}),
                &["web-what-if-1", "web-what-if-2", "web-what-if-3"],
            ),
            ("none", json!({"replicas": 0}), &[]),
        ] {
            let mut raw = ClusterJson::from(present.clone());
            let effect = apply(&mut raw, "f", &deployment(spec), &mut Added::default());
            assert!(effect.expect("applied").is_some(), "{what}");
            assert_eq!(names(&raw), expected, "{what}");
        }
    }

    #[test]
    fn a_new_workload_needs_a_template() {
        let mut raw = ClusterJson::new();
        let refused = apply(
            &mut raw,
            "f",
            &deployment(json!({"replicas": 2})),
            &mut Added::default(),
        );
        let refused = refused.err().map(|failure| format!("{failure:?}"));
        assert!(refused.is_some_and(|text| text.contains("spec.template is needed")));
        let spec = json!({"replicas": 2, "template": template("1")});
        apply(&mut raw, "f", &deployment(spec), &mut Added::default()).expect("applied");
        let pods: Vec<&Value> = raw.values().collect();
        assert_eq!(pods.len(), 2);
        assert_eq!(pods[0]["spec"]["schedulerName"], "default-scheduler");
        assert_eq!(pods[0]["metadata"]["labels"]["app"], "web");
        let refused = apply(
            &mut raw,
            "f",
            &deployment(json!({"replicas": -1})),
            &mut Added::default(),
        );
        assert!(refused.is_err());
        let config = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}});
        let effect = apply(&mut raw, "f", &config, &mut Added::default());
        assert_eq!(effect.expect("no workload"), None);
    }
}
