//! The warnings about a valid object: fields of pods and pod templates that probably do not have the intended effect.

mod objects;

use super::amounts;
use super::errors::quote;
use super::metadata::PLAIN_FINALIZERS;
use super::names;
use crate::view::FieldView;
use berth_api::quantity::Quantity;
use rustc_hash::{FxHashMap, FxHashSet};
use serde_json::Value;
use std::sync::LazyLock;

/// The fields without an effect.
const DEPRECATED: &str = include_str!("../../facts/deprecated.txt");
/// The use of the name of an object that makes pods.
const PODS_AND_HOSTS: &str = "Pod names and hostnames";
/// A response has no more warnings, so that more pairs of ports are not looked for.
const WARNINGS_MAX: usize = 50;
const NO_SELECTOR: &str = "a null labelSelector results in matching no pod";

/// The warnings about an object of one of Kubernetes' own kinds; `old` is the object before a change.
pub(crate) fn of(kind: &str, object: &Value, old: Option<&Value>) -> Vec<String> {
    match old {
        Some(old) => of_update(kind, object, old),
        None => of_new(kind, object),
    }
}

/// The warnings about the finalizers that a custom resource gets.
pub(crate) fn of_finalizers(new: &Value, old: Option<&Value>) -> Vec<String> {
    let had = old.map_or_else(Vec::new, |old| old.part("metadata").strings("finalizers"));
    let mut added = new.part("metadata").strings("finalizers");
    added.retain(|finalizer| !had.contains(finalizer));
    added.sort_unstable();
    added.dedup();
    let mut warnings = Vec::new();
    for finalizer in added {
        let mut faults = names::qualified_name(finalizer);
        if !finalizer.contains('/') && !PLAIN_FINALIZERS.contains(&finalizer) {
            let path = if finalizer.contains('.') {
                " including a path (/)"
            } else {
                ""
            };
            faults.push(format!(
                "prefer a domain-qualified finalizer name{path} to avoid accidental conflicts with other finalizer writers"
            ));
        }
        let shown = quote(finalizer);
        let faults = faults.iter();
        warnings.extend(faults.map(|fault| format!("metadata.finalizers: {shown}: {fault}")));
    }
    warnings
}

/// The warnings about a new object.
fn of_new(kind: &str, object: &Value) -> Vec<String> {
    let mut warnings = Vec::new();
    match kind {
        "Pod" => {
            objects::of_name(object, "the Pod's hostname", &mut warnings);
            of_pod(object, "", &mut warnings);
        }
        "PodTemplate" => of_pod(object.part("template"), "template.", &mut warnings),
        "CronJob" => {
            objects::of_name(object, PODS_AND_HOSTS, &mut warnings);
            let job = object.part("spec").part("jobTemplate").part("spec");
            of_pod(
                job.part("template"),
                "spec.jobTemplate.spec.template.",
                &mut warnings,
            );
        }
        "DaemonSet"
        | "Deployment"
        | "Job"
        | "ReplicaSet"
        | "ReplicationController"
        | "StatefulSet" => {
            if !matches!(kind, "DaemonSet" | "StatefulSet") {
                objects::of_name(object, PODS_AND_HOSTS, &mut warnings);
            }
            let template = object.part("spec").part("template");
            of_pod(template, "spec.template.", &mut warnings);
        }
        "ResourceQuota" => {
            let hard = amounts::list(object.part("spec"), "hard");
            for name in ["cpu", "memory", "storage", "ephemeral-storage"] {
                let (request, limit) = (format!("requests.{name}"), format!("limits.{name}"));
                let plain = || {
                    hard.get_key_value(name)
                        .filter(|_| matches!(name, "cpu" | "memory"))
                };
                let request = hard.get_key_value(&request).or_else(plain);
                if let (Some((request, requested)), Some(limited)) = (request, hard.get(&limit))
                    && requested > limited
                {
                    warnings.push(format!(
                        "ResourceQuota {request} ({requested}) should be less than {limit} ({limited})"
                    ));
                }
            }
        }
        "Node" => {
            let spec = object.part("spec");
            if !spec.part("configSource").is_null() {
                warnings.push("spec.configSource: the feature is no longer supported".to_owned());
            }
            if !spec.text("externalID").is_empty() {
                let fault = "this field is deprecated, and is unused by Kubernetes";
                warnings.push(format!("spec.externalID: {fault}"));
            }
        }
        kind => objects::of(kind, object, &mut warnings),
    }
    warnings
}

/// The warnings about an update. As in kube-apiserver, there are none about pods, and about templates only if the
/// generation changes.
fn of_update(kind: &str, new: &Value, old: &Value) -> Vec<String> {
    let generation = |object: &Value| object.part("metadata").int("generation");
    match kind {
        "Pod" => Vec::new(),
        "Node" => of_new(kind, new),
        kind if objects::warns_always(kind) => of_new(kind, new),
        _ if generation(new) != generation(old) => of_new(kind, new),
        _ => Vec::new(),
    }
}

/// The deprecated names of a kind (`label`, `annotation` or `volume`), each with its warning.
fn deprecated_names(kind: &str) -> impl Iterator<Item = (&'static str, &'static str)> {
    /// Each line: a kind, a name and its warning.
    static NAMES: LazyLock<Vec<[&str; 3]>> = LazyLock::new(|| {
        let words = |line: &'static str| {
            let (kind, rest) = line.split_once(' ')?;
            let (name, message) = rest.split_once(' ')?;
            Some([kind, name, message])
        };
        DEPRECATED.lines().filter_map(words).collect()
    });
    let of_kind = NAMES.iter().filter(move |[of, ..]| *of == kind);
    of_kind.map(|[_, name, message]| (*name, *message))
}

fn deprecated(label: &str) -> Option<&'static str> {
    let mut known = deprecated_names("label");
    known
        .find(|(name, _)| *name == label)
        .map(|(_, message)| message)
}

/// Warnings about a pod or a template; `at` is the path to it, which ends with a point unless it is empty.
fn of_pod(pod: &Value, at: &str, warnings: &mut Vec<String>) {
    let spec = pod.part("spec");
    of_placement(spec, at, warnings);
    let annotations = pod.part("metadata").part("annotations");
    for (name, message) in deprecated_names("annotation") {
        if annotations.field(name).is_some() {
            warnings.push(format!("{at}metadata.annotations[{name}]: {message}"));
        }
    }
    for (i, volume) in spec.items("volumes").iter().enumerate() {
        for (source, message) in deprecated_names("volume") {
            if volume.field(source).is_some() {
                warnings.push(format!("{at}spec.volumes[{i}].{source}: {message}"));
            }
        }
    }
    if spec.int("terminationGracePeriodSeconds") < 0 {
        warnings.push(format!(
            "{at}spec.terminationGracePeriodSeconds: must be >= 0; negative values are invalid and will be treated as 1"
        ));
    }
    duplicates(spec, "hostAliases", "ip", at, warnings);
    duplicates(spec, "imagePullSecrets", "name", at, warnings);
    for (i, secret) in spec.items("imagePullSecrets").iter().enumerate() {
        if secret.text("name").is_empty() {
            warnings.push(format!(
                "{at}spec.imagePullSecrets[{i}].name: invalid empty name \"\""
            ));
        }
    }
    fractions(
        spec.part("overhead"),
        &format!("{at}spec.overhead"),
        warnings,
    );
    let containers: Vec<(String, &Value)> = ["initContainers", "containers", "ephemeralContainers"]
        .into_iter()
        .flat_map(|list| {
            let containers = spec.items(list).iter().enumerate();
            containers.map(move |(i, c)| (format!("{at}spec.{list}[{i}]"), c))
        })
        .collect();
    for (path, container) in &containers {
        let resources = container.part("resources");
        for part in ["limits", "requests"] {
            fractions(
                resources.part(part),
                &format!("{path}.resources.{part}"),
                warnings,
            );
        }
        of_env(container, path, warnings);
    }
    of_ports(&containers, warnings);
    for kind in ["podAffinity", "podAntiAffinity"] {
        let affinity = spec.part("affinity").part(kind);
        for (list, inner) in [
            ("requiredDuringSchedulingIgnoredDuringExecution", ""),
            (
                "preferredDuringSchedulingIgnoredDuringExecution",
                "podAffinityTerm",
            ),
        ] {
            for (i, term) in affinity.items(list).iter().enumerate() {
                let (term, dot) = match inner {
                    "" => (term, ""),
                    inner => (term.part(inner), "."),
                };
                if term.field("labelSelector").is_none() {
                    warnings.push(format!(
                        "{at}spec.affinity.{kind}.{list}[{i}]{dot}{inner}.labelSelector: {NO_SELECTOR}"
                    ));
                }
            }
        }
    }
}

/// Labels of nodes that are no longer set, and spread constraints that count no pod.
fn of_placement(spec: &Value, at: &str, warnings: &mut Vec<String>) {
    for (label, _) in spec.labels("nodeSelector") {
        if let Some(message) = deprecated(label) {
            warnings.push(format!("{at}spec.nodeSelector[{label}]: {message}"));
        }
    }
    let affinity = spec.part("affinity").part("nodeAffinity");
    let required = "requiredDuringSchedulingIgnoredDuringExecution";
    let preferred = "preferredDuringSchedulingIgnoredDuringExecution";
    let terms = affinity
        .part(required)
        .items("nodeSelectorTerms")
        .iter()
        .enumerate();
    let terms = terms.map(|(i, term)| (format!("{required}.nodeSelectorTerms[{i}]"), term));
    let weighted = affinity.items(preferred).iter().enumerate();
    let weighted = weighted.map(|(i, term)| {
        (
            format!("{preferred}[{i}].preference"),
            term.part("preference"),
        )
    });
    // Required and preferred terms are reported at their own places.
    for (path, term) in terms.chain(weighted) {
        for (i, expression) in term.items("matchExpressions").iter().enumerate() {
            let key = expression.text("key");
            if let Some(message) = deprecated(key) {
                warnings.push(format!(
                    "{at}spec.affinity.nodeAffinity.{path}.matchExpressions[{i}].key: {key} is {message}"
                ));
            }
        }
    }
    for (i, constraint) in spec.items("topologySpreadConstraints").iter().enumerate() {
        let path = format!("{at}spec.topologySpreadConstraints[{i}]");
        let key = constraint.text("topologyKey");
        if let Some(message) = deprecated(key) {
            warnings.push(format!("{path}.topologyKey: {key} is {message}"));
        }
        if constraint.field("labelSelector").is_none() {
            warnings.push(format!("{path}.labelSelector: {NO_SELECTOR}"));
        }
    }
}

fn duplicates(spec: &Value, list: &str, field: &str, at: &str, warnings: &mut Vec<String>) {
    let mut seen = FxHashSet::default();
    for (i, entry) in spec.items(list).iter().enumerate() {
        let value = entry.text(field);
        if !seen.insert(value) {
            warnings.push(format!(
                "{at}spec.{list}[{i}].{field}: duplicate {field} {value:?}"
            ));
        }
    }
}

/// Bytes are whole numbers.
fn fractions(amounts: &Value, path: &str, warnings: &mut Vec<String>) {
    for resource in ["memory", "ephemeral-storage"] {
        let text = amounts.text(resource);
        let is_fraction = text
            .parse::<Quantity>()
            .is_ok_and(|amount| amount.milli_value() % 1_000 != 0);
        if is_fraction {
            warnings.push(format!(
                "{path}[{resource}]: fractional byte value {text:?} is invalid, must be an integer"
            ));
        }
    }
}

fn of_env(container: &Value, path: &str, warnings: &mut Vec<String>) {
    let mut seen = FxHashSet::default();
    for (i, variable) in container.items("env").iter().enumerate() {
        let (name, value) = (variable.text("name"), variable.text("value"));
        if seen.insert(name) {
            continue;
        }
        let reference = format!("$({name})");
        let extends = variable.field("valueFrom").is_none()
            && value != reference
            && value.contains(&reference);
        if !extends {
            warnings.push(format!(
                "{path}.env[{i}]: hides previous definition of {name:?}, which may be dropped when using apply"
            ));
        }
    }
}

fn of_ports(containers: &[(String, &Value)], warnings: &mut Vec<String>) {
    let ports = containers.iter().flat_map(|(path, container)| {
        let ports = container.items("ports").iter().enumerate();
        ports.map(move |(i, port)| (format!("{path}.ports[{i}]"), port))
    });
    let mut seen: FxHashMap<(i64, &str), EarlierPorts> = FxHashMap::default();
    let mut named: FxHashMap<&str, String> = FxHashMap::default();
    let mut about_names = Vec::new();
    for (path, port) in ports {
        let others = seen
            .entry((port.int("containerPort"), port.text("protocol")))
            .or_default();
        let (ip, host) = (port.text("hostIP"), port.int("hostPort"));
        // Ports are compared with all earlier ones: each pair is reported once.
        for (other_ip, other_host, other) in others.about(ip, host) {
            if warnings.len() > WARNINGS_MAX {
                break;
            }
            let word = if ip == *other_ip && host == *other_host {
                "duplicate"
            } else if host == 0 || *other_host == 0 {
                "overlapping"
            } else {
                "dangerously ambiguous"
            };
            warnings.push(format!("{path}: {word} port definition with {other}"));
        }
        let name = port.text("name");
        match named.get(name) {
            _ if name.is_empty() => {}
            Some(other) => about_names.push(format!(
                "{path}: duplicate port name {name:?} with {other}, services and probes that select ports by name will use {other}"
            )),
            None => {
                named.insert(name, path.clone());
            }
        }
        others.add(ip, host, path);
    }
    warnings.append(&mut about_names);
}

/// The ports of containers that have one number and one protocol.
#[derive(Default)]
struct EarlierPorts<'a> {
    /// Address and port of the host, and the path.
    all: Vec<(&'a str, i64, String)>,
    /// The indexes of ports with each host port.
    by_host: FxHashMap<i64, Vec<usize>>,
    /// The indexes of ports with each host port and host address.
    by_address: FxHashMap<(i64, &'a str), Vec<usize>>,
}

impl<'a> EarlierPorts<'a> {
    /// The ports that conflict with this host address and host port, in their order.
    fn about(&self, ip: &'a str, host: i64) -> impl Iterator<Item = &(&'a str, i64, String)> {
        let list = |found: Option<&Vec<usize>>| found.cloned().unwrap_or_default();
        let mut indexes = if host == 0 {
            (0..self.all.len().min(WARNINGS_MAX + 1)).collect()
        } else if ip.is_empty() {
            list(self.by_host.get(&host))
        } else {
            let mut same = list(self.by_address.get(&(host, ip)));
            same.extend(list(self.by_address.get(&(host, ""))));
            same
        };
        if host != 0 {
            indexes.extend(list(self.by_host.get(&0)));
        }
        indexes.sort_unstable();
        indexes.into_iter().filter_map(|i| self.all.get(i))
    }

    fn add(&mut self, ip: &'a str, host: i64, path: String) {
        let at = self.all.len();
        self.all.push((ip, host, path));
        // More are never reported.
        for list in [
            self.by_host.entry(host).or_default(),
            self.by_address.entry((host, ip)).or_default(),
        ] {
            if list.len() <= WARNINGS_MAX {
                list.push(at);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn pods_that_are_valid_and_hardly_meant() {
        let container = |fields: Value| {
            let mut container = json!({"name": "c", "image": "i"});
            if let (Some(all), Value::Object(fields)) = (container.as_object_mut(), fields) {
                all.extend(fields);
            }
            json!({"containers": [container]})
        };
        let port = json!({"containerPort": 80, "protocol": "TCP"});
        // As kube-apiserver 1.36 warns.
        let cases = [
            (json!({"nodeSelector": {"kubernetes.io/os": "linux"}}), ""),
            (
                json!({"nodeSelector": {"beta.kubernetes.io/os": "linux"}}),
                "spec.nodeSelector[beta.kubernetes.io/os]: deprecated since v1.14; use \"kubernetes.io/os\" instead",
            ),
            (
                container(
                    json!({"env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]}),
                ),
                "spec.containers[0].env[1]: hides previous definition of \"A\", which may be dropped when using apply",
            ),
            (
                container(
                    json!({"env": [{"name": "A", "value": "1"}, {"name": "A", "value": "$(A)2"}]}),
                ),
                "",
            ),
            (
                container(json!({"resources": {"requests": {"memory": "100m", "cpu": "100m"}}})),
                "spec.containers[0].resources.requests[memory]: fractional byte value \"100m\" is invalid, must be an integer",
            ),
            (
                container(json!({"ports": [port, port]})),
                "spec.containers[0].ports[1]: duplicate port definition with spec.containers[0].ports[0]",
            ),
            (
                json!({"topologySpreadConstraints": [{"topologyKey": "zone"}]}),
                "spec.topologySpreadConstraints[0].labelSelector: a null labelSelector results in matching no pod",
            ),
            (
                json!({"affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution":
                    [{"weight": 1, "podAffinityTerm": {"topologyKey": "zone"}}]}}}),
                "spec.affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].podAffinityTerm.labelSelector: a null labelSelector results in matching no pod",
            ),
            (
                json!({"volumes": [{"name": "v", "gitRepo": {"repository": "r"}}]}),
                "spec.volumes[0].gitRepo: deprecated in v1.11, and disabled by default in v1.33+",
            ),
            (
                json!({"imagePullSecrets": [{}]}),
                "spec.imagePullSecrets[0].name: invalid empty name \"\"",
            ),
        ];
        for (spec, expect) in cases {
            let expect: Vec<&str> = [expect].into_iter().filter(|w| !w.is_empty()).collect();
            let pod = json!({"metadata": {"name": "p"}, "spec": spec});
            assert_eq!(of_new("Pod", &pod), expect, "{spec}");
            let deployment = json!({"spec": {"template": {"spec": spec}}});
            let expect: Vec<String> = expect
                .iter()
                .map(|w| w.replace("spec.", "spec.template.spec."))
                .collect();
            let found = of_new("Deployment", &deployment);
            assert_eq!(found.len(), expect.len(), "{spec}: {found:?}");
            let begins = found.iter().all(|w| w.starts_with("spec.template.spec."));
            assert!(begins, "{spec}: {found:?}");
        }
        let dotted = json!({"metadata": {"name": "a.b"}, "spec": {}});
        assert_eq!(
            of_new("Pod", &dotted),
            [
                "metadata.name: this is used in the Pod's hostname, which can result in surprising behavior; a DNS label is recommended: [must not contain dots]"
            ]
        );
    }
}
