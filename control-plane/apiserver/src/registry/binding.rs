//! `pods/binding`: the assignment of a pod to a node. Rules API-17 to API-19.

use super::api::Api;
use super::write::{action, check_namespace};
use crate::registry::request::{WriteOptions, WriteResult, precondition_conflict, uid_conflict};
use crate::storage::ObjectVersion;
use berth_objects::body::WriteBody;
use berth_objects::catalog::ServedResource;
use berth_objects::field::{ErrorType, FieldError};
use berth_objects::object::{is_deleting, set, update_condition};
use berth_objects::schema::GroupVersionKind;
use berth_objects::status::{ApiError, StatusSubject};
use berth_objects::view::{FieldView, at_path, child_mut, meta};
use berth_objects::{catalog, decode};
use serde_json::{Map, Value, json};

/// Labels of a node that its pods get.
const TOPOLOGY_LABELS: [&str; 2] = [
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
];

impl Api {
    /// Binds a pod to the node that the body names. `name` is the pod of the URL, empty for `POST bindings`.
    ///
    /// # Errors
    /// 400, 404; 409 when the pod is being deleted, assigned or gated, or a precondition does not hold.
    pub fn bind(
        &self,
        pods: &ServedResource,
        namespace: &str,
        name: &str,
        body: WriteBody<'_>,
        options: &WriteOptions,
    ) -> Result<WriteResult, ApiError> {
        let kind = GroupVersionKind::new("", "v1", "Binding");
        let (binding, warnings) = decode::of_kind(kind, body, options.validation)?;
        let given = meta(&binding, "name");
        let name = match (name, given) {
            ("", "") => {
                return Err(ApiError::bad_request("Name parameter required."));
            }
            ("", given) => given,
            (name, given) if name == given => name,
            _ => {
                return Err(ApiError::bad_request(
                    "name in URL does not match name in Binding object",
                ));
            }
        };
        check_namespace(namespace, &binding)?;
        let action = action(pods, "binding", namespace, name, options);
        let binding = (self.admission).admit_action(self, &action, binding.clone())?;
        let errors = validate(&binding);
        if !errors.is_empty() {
            // As in kube-apiserver, this is an internal error without a reason.
            let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
            let message = match texts.as_slice() {
                [one] => one.clone(),
                several => format!("[{}]", several.join(", ")),
            };
            return Err(ApiError::internal_plain(message));
        }
        let version = self.bind_pod(pods, namespace, name, &binding, options.dry_run)?;
        Ok(WriteResult { version, warnings })
    }

    fn bind_pod(
        &self,
        pods: &ServedResource,
        namespace: &str,
        name: &str,
        binding: &Value,
        dry_run: bool,
    ) -> Result<std::sync::Arc<ObjectVersion>, ApiError> {
        let store = pods.store.ok_or_else(ApiError::method_not_allowed)?;
        let key = pods.key(namespace, name);
        let topology = self.topology_labels(target(binding));
        self.revise(pods, namespace, name, |current| {
            let mut pod = Value::clone(&current.object());
            check(pods, &key, name, binding, &pod)?;
            assign(&mut pod, binding, &topology, &self.now_text());
            if dry_run {
                return Ok(Ok(ObjectVersion::unstored(pod)));
            }
            Ok(self.store.replace(store, &key, current.revision(), pod))
        })
    }

    fn topology_labels(&self, node: &str) -> Map<String, Value> {
        if !self.admission.labels_bound_pods() {
            return Map::new();
        }
        let node = catalog::find("", "nodes").and_then(|nodes| self.get(nodes, "", node).ok());
        let node = node.map(|n| n.object());
        let labels = node.as_ref().and_then(|n| at_path(n, "/metadata/labels"));
        TOPOLOGY_LABELS
            .into_iter()
            .filter_map(|key| Some((key.to_owned(), labels?.get(key)?.clone())))
            .collect()
    }
}

fn target(binding: &Value) -> &str {
    binding.part("target").text("name")
}

fn validate(binding: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let kind = binding.part("target").maybe_text("kind");
    if let Some(kind) = kind
        && !matches!(kind, "" | "Node")
    {
        errors.push(FieldError {
            kind: ErrorType::NotSupported,
            field: "target.kind".to_owned(),
            value: Some(format!("{kind:?}")),
            detail: "supported values: \"Node\", \"<empty>\"".to_owned(),
        });
    }
    if target(binding).is_empty() {
        errors.push(FieldError {
            kind: ErrorType::Required,
            field: "target.name".to_owned(),
            value: None,
            detail: String::new(),
        });
    }
    errors
}

/// API-18, then API-17.
fn check(
    pods: &ServedResource,
    key: &str,
    name: &str,
    binding: &Value,
    pod: &Value,
) -> Result<(), ApiError> {
    // The UID is compared first: a new pod of the same name is another pod in any version.
    let (uid, live) = (meta(binding, "uid"), meta(pod, "uid"));
    if !uid.is_empty() && uid != live {
        return Err(uid_conflict(pods, key, name, uid, live));
    }
    let version = meta(binding, "resourceVersion");
    let live = meta(pod, "resourceVersion");
    if !version.is_empty() && version != live {
        let what = "ResourceVersion";
        return Err(precondition_conflict(pods, key, name, what, version, live));
    }
    let subject = StatusSubject {
        group: "",
        resource: "pods/binding",
        name,
    };
    let node = pod.part("spec").text("nodeName");
    let fault = if is_deleting(pod) {
        format!("pod {name} is being deleted, cannot be assigned to a host")
    } else if !node.is_empty() {
        format!("pod {name} is already assigned to node {node:?}")
    } else if !pod.part("spec").items("schedulingGates").is_empty() {
        format!("pod {name} has non-empty .spec.schedulingGates")
    } else {
        return Ok(());
    };
    Err(ApiError::conflict(subject, &fault))
}

/// API-19.
fn assign(pod: &mut Value, binding: &Value, topology: &Map<String, Value>, now: &str) {
    child_mut(pod, "spec").insert("nodeName".to_owned(), target(binding).into());
    for field in ["annotations", "labels"] {
        let given = binding.part("metadata").map(field);
        merge(pod, field, given.into_iter().flatten());
    }
    merge(pod, "labels", topology);
    child_mut(pod, "status").remove("nominatedNodeName");
    let condition = json!({
        "type": "PodScheduled",
        "status": "True",
        "lastProbeTime": null,
        "lastTransitionTime": now,
    });
    update_condition(&mut pod["status"], condition);
}

fn merge<'a>(
    pod: &mut Value,
    field: &str,
    entries: impl IntoIterator<Item = (&'a String, &'a Value)>,
) {
    for (key, value) in entries {
        set(pod, &["metadata", field, key], value.clone());
    }
}
