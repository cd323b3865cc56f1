//! The Helm chart: its version, its values and their schema, and, if helm is installed, the equality of the rendered
//! objects and the manifests.

use super::{VARIANTS, directory, read};
use crate::e2e::{Kubectl, Scratch};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

const CHART: &str = "helm/berth-scheduler";
/// The label that the manifests have, too.
const NAME_LABEL: &str = "app.kubernetes.io/name";

fn yaml(name: &str) -> Value {
    let text = read(&format!("{CHART}/{name}"));
    serde_saphyr::from_str(&text).unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// The templates with their names.
fn templates() -> Vec<(String, String)> {
    let folder = directory().join(CHART).join("templates");
    let entries = std::fs::read_dir(folder).expect("templates can be listed");
    let names = entries.map(|entry| entry.expect("an entry").file_name());
    names
        .map(|name| {
            let name = name.to_string_lossy().into_owned();
            let text = read(&format!("{CHART}/templates/{name}"));
            (name, text)
        })
        .collect()
}

/// The place of a path of values, such as `image.tag`; `None` when there is none.
fn at<'a>(values: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.')
        .try_fold(values, |value, key| value.get(key))
}

#[test]
fn the_chart_has_the_version_of_berth_and_of_the_image() {
    let chart = yaml("Chart.yaml");
    for field in ["version", "appVersion"] {
        assert_eq!(chart[field], env!("CARGO_PKG_VERSION"), "{field}");
    }
    for file in [
        "second-scheduler/kustomization.yaml",
        "replacement/kustomization.yaml",
        "packing/kustomization.yaml",
        "shadow/kustomization.yaml",
    ] {
        let kustomization: Value = serde_saphyr::from_str(&read(file)).expect("YAML");
        let tag = &kustomization["images"][0]["newTag"];
        assert_eq!(*tag, env!("CARGO_PKG_VERSION"), "{file}");
    }
}

/// Each value that a template reads has a default, and each default has a schema, which knows no other values.
#[test]
fn values_have_defaults_and_a_schema() {
    let (values, schema) = (yaml("values.yaml"), yaml("values.schema.json"));
    let mut used = BTreeSet::new();
    for (name, text) in templates() {
        for rest in text.split(".Values.").skip(1) {
            let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '.');
            let path = &rest[..end.unwrap_or(rest.len())];
            assert!(
                at(&values, path).is_some(),
                "{name}: values.yaml has no {path}"
            );
            used.insert(path.split('.').next().unwrap_or_default().to_owned());
        }
    }
    let keys = |value: &Value| -> BTreeSet<String> {
        value
            .as_object()
            .into_iter()
            .flatten()
            .map(|(k, _)| k.clone())
            .collect()
    };
    assert_eq!(used, keys(&values), "values that templates read");
    let mut described = keys(&schema["properties"]);
    assert!(described.remove("global"), "helm adds this one");
    assert_eq!(described, keys(&values), "values that the schema describes");
    assert_eq!(schema["additionalProperties"], false);
    let modes = schema["properties"]["mode"]["enum"]
        .as_array()
        .expect("modes");
    let variants: Vec<Value> = VARIANTS.iter().map(|(name, ..)| json!(name)).collect();
    assert_eq!(*modes, variants);
}

/// The chart does not repeat the rules of the role, the packing configuration, the alerts and the dashboard: it contains
/// links to them.
#[test]
fn the_chart_has_files_of_the_manifests() {
    for (link, file) in [
        ("rbac.yaml", "base/rbac.yaml"),
        ("packing.yaml", "packing/config.yaml"),
        ("policy.yaml", "packing/policy.yaml"),
        ("prometheusrule.yaml", "monitoring/prometheusrule.yaml"),
        ("dashboard.json", "monitoring/dashboard.json"),
    ] {
        let linked = directory().join(CHART).join("files").join(link);
        let target = std::fs::canonicalize(&linked).expect("the link leads to a file");
        let file = std::fs::canonicalize(directory().join(file)).expect("a file");
        assert_eq!(target, file, "{link}");
        let is_used = templates()
            .iter()
            .any(|(_, text)| text.contains(&format!("files/{link}")));
        assert!(is_used, "{link}");
    }
}

/// helm of the PATH, or of the variable `HELM`.
fn helm() -> Option<String> {
    let helm = std::env::var("HELM").unwrap_or_else(|_| "helm".to_owned());
    match Command::new(&helm).arg("version").output() {
        Ok(output) if output.status.success() => Some(helm),
        _ => {
            eprintln!("skipped: helm is not on the PATH and HELM is not set");
            None
        }
    }
}

fn run(command: &mut Command) -> String {
    let output = command.output().expect("it runs");
    assert!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Objects by kind and name, without fields that only a release of a chart has.
fn objects(text: &str) -> BTreeMap<(String, String), Value> {
    let documents = text
        .split("\n---")
        .map(|part| part.trim_start_matches("---"));
    let parsed = documents.map(|part| {
        serde_saphyr::from_str::<Value>(part).unwrap_or_else(|e| panic!("{e}:\n{part}"))
    });
    parsed
        .filter(Value::is_object)
        .map(|mut object| {
            if let Some(labels) = object["metadata"]["labels"].as_object_mut() {
                labels.retain(|name, _| name == NAME_LABEL);
            }
            if object["kind"] == "Deployment" {
                object["spec"]["template"]["metadata"]
                    .as_object_mut()
                    .expect("metadata")
                    .remove("annotations");
            }
            if let Some(config) = object["data"]["config.yaml"].as_str() {
                let config: Value = serde_saphyr::from_str(config).expect("YAML");
                object["data"]["config.yaml"] = config;
            }
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let key = (text(&object["kind"]), text(&object["metadata"]["name"]));
            (key, object)
        })
        .collect()
}

/// `helm template` with a name, for the oldest Kubernetes version that Berth supports: helm assumes its own otherwise.
fn template(helm: &str, name: &str) -> Command {
    let mut command = Command::new(helm);
    command
        .args(["template", name, "--kube-version", "1.36.0"])
        .arg(directory().join(CHART));
    command
}

#[test]
fn helm_renders_the_manifests() {
    let (Some(helm), Some(kubectl)) = (helm(), Kubectl::program()) else {
        return;
    };
    for (variant, values) in [
        ("second-scheduler", "mode=second-scheduler"),
        ("replacement", "mode=replacement"),
        ("packing", "packing=true"),
    ] {
        let mut chart = template(&helm, "berth-scheduler");
        chart.args(["--namespace", "kube-system", "--set", values]);
        let rendered = objects(&run(&mut chart));
        let mut kustomize = Command::new(&kubectl);
        kustomize.arg("kustomize").arg(directory().join(variant));
        let plain = objects(&run(&mut kustomize));
        assert_eq!(rendered, plain, "{variant}");
    }
    // Under another name, the Lease, the profile and the label of the namespaces follow.
    let mut renamed = template(&helm, "fill");
    renamed.args(["--set", "packing=true,name=fill"]);
    let renamed = objects(&run(&mut renamed));
    let object = |kind: &str, name: &str| &renamed[&(kind.to_owned(), name.to_owned())];
    let config = &object("ConfigMap", "fill-config")["data"]["config.yaml"];
    assert_eq!(config["leaderElection"]["resourceName"], "fill");
    assert_eq!(config["profiles"][0]["schedulerName"], "fill");
    let policy = &object("MutatingAdmissionPolicy", "fill")["spec"];
    let labels = &policy["matchConstraints"]["namespaceSelector"]["matchLabels"];
    assert_eq!(labels["scheduling.berth.dev/scheduler"], "fill");
    // The parts that are off by default.
    let scratch = Scratch::new("deploy-chart");
    let values = json!({
        "name": "other", "config": {"clientConnection": {"qps": 5}}, "extraArgs": ["--v=4"],
        "serviceMonitor": {"enabled": true}, "prometheusRule": {"enabled": true}, "dashboard": {"enabled": true},
    });
    let values = scratch.file("values.yaml", &values.to_string());
    let mut optional = template(&helm, "release");
    optional.arg("--values").arg(values);
    let rendered = objects(&run(&mut optional));
    for kind in ["ServiceMonitor", "PrometheusRule"] {
        let key = (kind.to_owned(), "other".to_owned());
        assert!(rendered.contains_key(&key), "{kind}");
    }
    let config = &rendered[&("ConfigMap".to_owned(), "other-config".to_owned())];
    let config = &config["data"]["config.yaml"];
    assert_eq!(config["clientConnection"]["qps"], 5);
    assert_eq!(config["profiles"][0]["schedulerName"], "other");
    // The schema rejects unknown values.
    let mut wrong = template(&helm, "release");
    wrong.args(["--set", "mode=third"]);
    let output = wrong.output().expect("it runs");
    assert!(!output.status.success());
}
