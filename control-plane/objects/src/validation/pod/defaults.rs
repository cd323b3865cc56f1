//! Defaults of pods and of the pod templates inside workloads.

use super::requests;
use crate::view::{FieldView, existing, items_mut, set, set_if_absent, set_if_zero};
use serde_json::{Map, Value};

/// The lists of containers of a pod spec.
pub(crate) const CONTAINER_LISTS: [&str; 3] =
    ["initContainers", "containers", "ephemeralContainers"];

/// The defaults that pods get and templates do not.
pub(crate) fn pod(pod: &mut Value) {
    let Some(spec) = existing(pod, "spec") else {
        return;
    };
    let host_network = spec.flag("hostNetwork");
    for list in ["containers", "initContainers"] {
        for container in items_mut(spec, list) {
            if let Some(resources) = existing(container, "resources") {
                requests_from_limits(resources);
            }
            for port in items_mut(container, "ports")
                .iter_mut()
                .filter(|_| host_network)
            {
                let container_port = port.int("containerPort");
                if container_port != 0 {
                    set_if_zero(port, "hostPort", container_port);
                }
            }
        }
    }
    requests::default_pod_level(spec);
    set_if_absent(spec, "enableServiceLinks", true);
}

/// The deprecated `serviceAccount` mirrors `serviceAccountName`.
pub(crate) fn spec(spec: &mut Value) {
    let account = match spec.text("serviceAccountName") {
        "" => spec.text("serviceAccount").to_owned(),
        name => name.to_owned(),
    };
    if spec.int("terminationGracePeriodSeconds") < 0 {
        set(spec, "terminationGracePeriodSeconds", 1);
    }
    if !account.is_empty() {
        set(spec, "serviceAccountName", account.clone());
        set(spec, "serviceAccount", account);
    }
}

/// The default of `imagePullPolicy` of a container.
pub(crate) fn container(container: &mut Value) {
    let policy = pull_policy(container.text("image"));
    set_if_zero(container, "imagePullPolicy", policy);
}

/// The default of `pullPolicy` of an image volume.
pub(crate) fn image_volume(image: &mut Value) {
    let policy = pull_policy(image.text("reference"));
    set_if_zero(image, "pullPolicy", policy);
}

/// A volume without a source is an empty directory.
pub(crate) fn volume(volume: &mut Value) {
    let has_source = volume
        .as_object()
        .is_some_and(|v| v.keys().any(|name| name != "name"));
    if !has_source {
        set(volume, "emptyDir", Map::new());
    }
    if let Some(spec) = existing(volume, "ephemeral")
        .and_then(|e| existing(e, "volumeClaimTemplate"))
        .and_then(|t| existing(t, "spec"))
    {
        set_if_absent(spec, "volumeMode", "Filesystem");
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

/// `Always` for an image whose tag is `latest`, stated or implied; else `IfNotPresent`.
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
    // A colon before the last slash belongs to the port of the registry.
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

/// Returns whether this is the name of an image: an optional registry host, then lower-case path components.
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
    use crate::access::gr;
    use crate::kinds::strategy;
    use serde_json::json;

    /// The pod template of a deployment after defaulting.
    fn template(spec: Value) -> Value {
        let mut object = json!({"spec": {"template": {"spec": spec}}});
        strategy(gr("apps", "deployments")).default(&mut object);
        object["spec"]["template"].take()
    }

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
        strategy(gr("", "pods")).default(&mut pod);
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
        strategy(gr("", "pods")).default(&mut pod);
        assert_eq!(pod, once, "defaulting twice changes nothing");
    }

    #[test]
    fn a_template_does_not_get_what_only_pods_get() {
        let template = template(json!({"hostNetwork": true, "containers": [
            {"name": "c", "image": "a:1", "ports": [{"containerPort": 80}],
             "resources": {"limits": {"cpu": "1"}}}]}));
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
