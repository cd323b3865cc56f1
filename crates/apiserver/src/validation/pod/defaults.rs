//! Defaults of pods and of the pod templates inside workloads.

use super::requests;
use crate::validation::normal;
use crate::validation::view::{View, existing, items_mut, set, set_if_absent, set_if_zero};
use serde_json::{Map, Value, json};

/// Mode of files in volumes, `0644`.
const FILE_MODE: i64 = 0o644;
/// Life of a projected token, in seconds.
const TOKEN_SECONDS: i64 = 3600;
/// The lists of containers of a pod spec.
pub(crate) const CONTAINER_LISTS: [&str; 3] =
    ["initContainers", "containers", "ephemeralContainers"];

/// Brings a pod into its normal form and fills in its defaults.
pub(crate) fn default_pod(pod: &mut Value) {
    normal::normalize(pod, ("", "v1", "Pod"));
    let Some(spec) = existing(pod, "spec") else {
        return;
    };
    default_spec(spec);
    for list in ["containers", "initContainers"] {
        for container in items_mut(spec, list) {
            if let Some(resources) = existing(container, "resources") {
                requests_from_limits(resources);
            }
        }
    }
    requests::default_pod_level(spec);
    set_if_absent(spec, "enableServiceLinks", true);
    if spec.flag("hostNetwork") {
        for list in ["containers", "initContainers"] {
            for container in items_mut(spec, list) {
                for port in items_mut(container, "ports") {
                    let container_port = port.int("containerPort");
                    if container_port != 0 {
                        set_if_zero(port, "hostPort", container_port);
                    }
                }
            }
        }
    }
}

/// Fills in the defaults of a pod template in its normal form: those of pods that do not depend on the pod being
/// one.
pub(crate) fn default_template(template: &mut Value) {
    if let Some(spec) = existing(template, "spec") {
        default_spec(spec);
    }
}

fn default_spec(spec: &mut Value) {
    set_if_zero(spec, "dnsPolicy", "ClusterFirst");
    set_if_zero(spec, "restartPolicy", "Always");
    set_if_absent(spec, "securityContext", Map::new());
    set_if_absent(spec, "terminationGracePeriodSeconds", 30);
    set_if_zero(spec, "schedulerName", "default-scheduler");
    // The deprecated `serviceAccount` mirrors `serviceAccountName`.
    let account = match spec.text("serviceAccountName") {
        "" => spec.text("serviceAccount").to_owned(),
        name => name.to_owned(),
    };
    if !account.is_empty() {
        set(spec, "serviceAccountName", account.clone());
        set(spec, "serviceAccount", account);
    }
    for list in CONTAINER_LISTS {
        for container in items_mut(spec, list) {
            default_container(container);
        }
    }
    for volume in items_mut(spec, "volumes") {
        default_volume(volume);
    }
}

fn requests_from_limits(resources: &mut Value) {
    let limits = resources.map("limits").cloned().unwrap_or_default();
    if limits.is_empty() {
        return;
    }
    set_if_absent(resources, "requests", Map::new());
    if let Some(requests) = existing(resources, "requests") {
        for (name, amount) in limits {
            set_if_absent(requests, &name, amount);
        }
    }
}

fn default_container(container: &mut Value) {
    let policy = pull_policy(container.text("image"));
    set_if_zero(container, "imagePullPolicy", policy);
    set_if_zero(container, "terminationMessagePath", "/dev/termination-log");
    set_if_zero(container, "terminationMessagePolicy", "File");
    for port in items_mut(container, "ports") {
        set_if_zero(port, "protocol", "TCP");
    }
    for env in items_mut(container, "env") {
        if let Some(from) = existing(env, "valueFrom") {
            default_field_refs(from);
            if let Some(file) = existing(from, "fileKeyRef") {
                set_if_absent(file, "optional", false);
            }
        }
    }
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = existing(container, probe) {
            set_if_zero(probe, "timeoutSeconds", 1);
            set_if_zero(probe, "periodSeconds", 10);
            set_if_zero(probe, "successThreshold", 1);
            set_if_zero(probe, "failureThreshold", 3);
            default_handler(probe);
            if let Some(grpc) = existing(probe, "grpc") {
                set_if_absent(grpc, "service", "");
            }
        }
    }
    if let Some(lifecycle) = existing(container, "lifecycle") {
        for hook in ["postStart", "preStop"] {
            if let Some(hook) = existing(lifecycle, hook) {
                default_handler(hook);
            }
        }
    }
}

fn default_handler(handler: &mut Value) {
    if let Some(http) = existing(handler, "httpGet") {
        set_if_zero(http, "path", "/");
        set_if_zero(http, "scheme", "HTTP");
    }
}

fn default_field_refs(holder: &mut Value) {
    if let Some(field_ref) = existing(holder, "fieldRef") {
        set_if_zero(field_ref, "apiVersion", "v1");
    }
}

fn default_volume(volume: &mut Value) {
    let has_source = volume
        .as_object()
        .is_some_and(|v| v.keys().any(|name| name != "name"));
    if !has_source {
        set(volume, "emptyDir", Map::new());
    }
    for source in ["secret", "configMap", "downwardAPI", "projected"] {
        if let Some(source) = existing(volume, source) {
            set_if_absent(source, "defaultMode", FILE_MODE);
        }
    }
    if let Some(host_path) = existing(volume, "hostPath") {
        set_if_absent(host_path, "type", "");
    }
    if let Some(downward) = existing(volume, "downwardAPI") {
        for item in items_mut(downward, "items") {
            default_field_refs(item);
        }
    }
    if let Some(projected) = existing(volume, "projected") {
        for source in items_mut(projected, "sources") {
            if let Some(token) = existing(source, "serviceAccountToken") {
                set_if_absent(token, "expirationSeconds", TOKEN_SECONDS);
            }
            if let Some(downward) = existing(source, "downwardAPI") {
                for item in items_mut(downward, "items") {
                    default_field_refs(item);
                }
            }
        }
    }
    if let Some(spec) = existing(volume, "ephemeral")
        .and_then(|e| existing(e, "volumeClaimTemplate"))
        .and_then(|t| existing(t, "spec"))
    {
        set_if_absent(spec, "volumeMode", "Filesystem");
    }
    if let Some(image) = existing(volume, "image") {
        let policy = pull_policy(image.text("reference"));
        set_if_zero(image, "pullPolicy", policy);
    }
    default_network_volume(volume);
}

fn default_network_volume(volume: &mut Value) {
    let plain: [(&str, &[(&str, Value)]); 4] = [
        ("iscsi", &[("iscsiInterface", json!("default"))]),
        (
            "rbd",
            &[
                ("pool", json!("rbd")),
                ("user", json!("admin")),
                ("keyring", json!("/etc/ceph/keyring")),
            ],
        ),
        (
            "azureDisk",
            &[
                ("cachingMode", json!("ReadWrite")),
                ("kind", json!("Shared")),
                ("fsType", json!("ext4")),
            ],
        ),
        (
            "scaleIO",
            &[
                ("storageMode", json!("ThinProvisioned")),
                ("fsType", json!("xfs")),
            ],
        ),
    ];
    for (source, defaults) in plain {
        if let Some(source) = existing(volume, source) {
            for (name, value) in defaults {
                set_if_zero(source, name, value.clone());
            }
        }
    }
    if let Some(disk) = existing(volume, "azureDisk") {
        set_if_absent(disk, "readOnly", false);
    }
}

/// `Always` for an image whose tag is `latest`, said or implied; else `IfNotPresent`.
pub(crate) fn pull_policy(image: &str) -> &'static str {
    if image_tag(image) == Some("latest") {
        "Always"
    } else {
        "IfNotPresent"
    }
}

/// The tag of an image reference, `latest` where neither tag nor digest is given, `None` where the reference is
/// malformed or has only a digest.
fn image_tag(image: &str) -> Option<&str> {
    let (reference, digest) = match image.split_once('@') {
        Some((reference, digest)) => (reference, Some(digest)),
        None => (image, None),
    };
    let name_start = reference.rfind('/').map_or(0, |slash| slash + 1);
    let (name, tag) = match reference.get(name_start..)?.find(':') {
        Some(colon) => (
            reference.get(..name_start + colon)?,
            Some(reference.get(name_start + colon + 1..)?),
        ),
        None => (reference, None),
    };
    if !is_image_name(name) {
        return None;
    }
    match (tag, digest) {
        (Some(tag), _) => {
            let fits = !tag.is_empty()
                && tag.len() <= 128
                && !tag.starts_with(['.', '-'])
                && tag
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-'));
            fits.then_some(tag)
        }
        (None, Some(_)) => None,
        (None, None) => Some("latest"),
    }
}

/// Whether this is the name of an image: an optional registry host, then lower-case path components.
fn is_image_name(name: &str) -> bool {
    let is_host = |part: &str| {
        part.contains(['.', ':'])
            || part == "localhost"
            || part.bytes().any(|b| b.is_ascii_uppercase())
    };
    let path = match name.split_once('/') {
        Some((host, path)) if is_host(host) => {
            let fits = host.bytes().all(|b| {
                b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b':' | b'[' | b']')
            });
            if !fits {
                return false;
            }
            path
        }
        _ => name,
    };
    path.split('/').all(|part| {
        let edge = |b: Option<u8>| b.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
        edge(part.bytes().next())
            && edge(part.bytes().next_back())
            && part.bytes().all(|b| {
                b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'.' | b'_' | b'-')
            })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tag_decides_when_to_pull() {
        let cases = [
            ("a", "Always"),
            ("a:latest", "Always"),
            ("registry.example:5000/a", "Always"),
            ("registry.example/team/a:latest", "Always"),
            ("a:latest@sha256:0", "Always"),
            ("a:1", "IfNotPresent"),
            ("registry.example:5000/a:1", "IfNotPresent"),
            ("a@sha256:0", "IfNotPresent"),
            ("Bad Name", "IfNotPresent"),
            ("", "IfNotPresent"),
        ];
        for (image, policy) in cases {
            assert_eq!(pull_policy(image), policy, "{image}");
        }
    }

    #[test]
    fn a_pod_gets_every_default() {
        let mut pod = json!({"metadata": {"name": "p"}, "spec": {
            "hostNetwork": true,
            "serviceAccountName": "robot",
            "containers": [{
                "name": "c", "image": "a",
                "ports": [{"containerPort": 80}],
                "resources": {"limits": {"cpu": "1000m", "memory": "1Gi"}, "requests": {"cpu": "0.5"}},
                "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
                "livenessProbe": {"httpGet": {"port": 80}},
            }],
            "volumes": [{"name": "e"}, {"name": "s", "secret": {"secretName": "x"}},
                {"name": "h", "hostPath": {"path": "/"}},
                {"name": "t", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}],
        }});
        default_pod(&mut pod);
        assert_eq!(
            pod,
            json!({"metadata": {"name": "p"}, "status": {}, "spec": {
                "hostNetwork": true,
                "serviceAccountName": "robot", "serviceAccount": "robot",
                "restartPolicy": "Always", "dnsPolicy": "ClusterFirst", "securityContext": {},
                "terminationGracePeriodSeconds": 30, "schedulerName": "default-scheduler",
                "enableServiceLinks": true,
                "containers": [{
                    "name": "c", "image": "a", "imagePullPolicy": "Always",
                    "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
                    "ports": [{"containerPort": 80, "hostPort": 80, "protocol": "TCP"}],
                    "resources": {
                        "limits": {"cpu": "1", "memory": "1Gi"},
                        "requests": {"cpu": "500m", "memory": "1Gi"},
                    },
                    "env": [{"name": "A",
                        "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}}],
                    "livenessProbe": {"httpGet": {"port": 80, "path": "/", "scheme": "HTTP"},
                        "timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1,
                        "failureThreshold": 3},
                }],
                "volumes": [{"name": "e", "emptyDir": {}},
                    {"name": "s", "secret": {"secretName": "x", "defaultMode": 420}},
                    {"name": "h", "hostPath": {"path": "/", "type": ""}},
                    {"name": "t", "projected": {"defaultMode": 420,
                        "sources": [{"serviceAccountToken": {"path": "t", "expirationSeconds": 3600}}]}}],
            }})
        );
        let once = pod.clone();
        default_pod(&mut pod);
        assert_eq!(pod, once, "defaulting twice changes nothing");
    }

    #[test]
    fn a_template_does_not_get_what_only_pods_get() {
        let mut template = json!({"spec": {"hostNetwork": true, "containers": [
            {"name": "c", "image": "a:1", "ports": [{"containerPort": 80}],
             "resources": {"limits": {"cpu": "1"}}}]}});
        default_template(&mut template);
        let spec = &template["spec"];
        assert!(spec.field("enableServiceLinks").is_none());
        assert_eq!(
            spec["containers"][0]["resources"],
            json!({"limits": {"cpu": "1"}})
        );
        assert!(
            spec["containers"][0]["ports"][0]
                .field("hostPort")
                .is_none()
        );
        assert_eq!(spec["restartPolicy"], "Always");
    }
}
