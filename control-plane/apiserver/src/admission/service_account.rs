//! The ServiceAccount admission plugin: the account of a pod, its pull secrets, and the volume with its token.
//!
//! A pod whose account does not exist is rejected. The account `default` may be missing: a controller creates it after
//! its namespace, and kube-apiserver waits for it.

use crate::registry::Api;
use berth_objects::catalog::{ServedResource, find};
use berth_objects::status::ApiError;
use berth_objects::view::{FieldView, items_mut};
use serde_json::{Value, json};

/// The place where containers expect the token.
const MOUNT_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// The prefix of the name of the volume.
const VOLUME: &str = "kube-api-access-";
/// The validity of a token, in seconds.
const TOKEN_SECONDS: i64 = 3_607;
/// The mode of the files.
const MODE: i64 = 0o644;
/// The annotation of pods that a kubelet has read from a file.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// The account of pods that name none.
const DEFAULT: &str = "default";

/// Applies the service account of a new pod.
///
/// # Errors
/// 403: the account does not exist.
pub(super) fn apply(
    api: &Api,
    pods: &ServedResource,
    namespace: &str,
    pod: &mut Value,
) -> Result<(), ApiError> {
    let annotations = pod.part("metadata").part("annotations");
    if annotations.field(MIRROR).is_some() {
        return Ok(());
    }
    let pod_name = super::given_name(pod).to_owned();
    let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) else {
        return Ok(());
    };
    let name = ["serviceAccountName", "serviceAccount"]
        .iter()
        .find_map(|f| {
            spec.get(*f)
                .and_then(Value::as_str)
                .filter(|n| !n.is_empty())
        })
        .unwrap_or(DEFAULT)
        .to_owned();
    for field in ["serviceAccountName", "serviceAccount"] {
        spec.insert(field.to_owned(), name.clone().into());
    }
    let account = find("", "serviceaccounts").and_then(|r| api.get(r, namespace, &name).ok());
    if account.is_none() && name != DEFAULT {
        let message = format!(
            "error looking up service account {namespace}/{name}: serviceaccount {name:?} not found"
        );
        return Err(ApiError::forbidden(pods.subject(&pod_name), &message));
    }
    let account = account.map(|version| version.object());
    let account = account.as_deref().unwrap_or(&Value::Null);
    let spec = &mut pod["spec"];
    let mounts = spec
        .maybe_flag("automountServiceAccountToken")
        .or_else(|| account.maybe_flag("automountServiceAccountToken"));
    if mounts.unwrap_or(true) {
        mount(api, spec);
    }
    let secrets = account.items("imagePullSecrets");
    if spec.items("imagePullSecrets").is_empty() && !secrets.is_empty() {
        spec["imagePullSecrets"] = secrets.into();
    }
    Ok(())
}

/// Mounts the token into containers with a free mount path.
fn mount(api: &Api, spec: &mut Value) {
    let mut known = spec.items("volumes").iter().map(|v| v.text("name"));
    let known = known
        .find(|name| name.starts_with(VOLUME))
        .map(str::to_owned);
    let name = known.clone().unwrap_or_else(|| api.new_name(VOLUME));
    let mut is_needed = false;
    for field in ["initContainers", "containers"] {
        for container in items_mut(spec, field) {
            let mounts = container.items("volumeMounts");
            if mounts.iter().any(|m| m.text("mountPath") == MOUNT_PATH) {
                continue;
            }
            let mount = json!({"name": name, "mountPath": MOUNT_PATH, "readOnly": true});
            match container
                .get_mut("volumeMounts")
                .and_then(Value::as_array_mut)
            {
                Some(mounts) => mounts.push(mount),
                None => container["volumeMounts"] = json!([mount]),
            }
            is_needed = true;
        }
    }
    if known.is_some() || !is_needed {
        return;
    }
    let volume = json!({
        "name": name,
        "projected": {
            "defaultMode": MODE,
            "sources": [
                {"serviceAccountToken": {"expirationSeconds": TOKEN_SECONDS, "path": "token"}},
                {"configMap": {
                    "name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}],
                }},
                {"downwardAPI": {"items": [{
                    "path": "namespace",
                    "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"},
                }]}},
            ],
        },
    });
    match spec.get_mut("volumes").and_then(Value::as_array_mut) {
        Some(volumes) => volumes.push(volume),
        None => spec["volumes"] = json!([volume]),
    }
}
