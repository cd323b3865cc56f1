//! HorizontalPodAutoscalers of autoscaling/v1, which are stored as autoscaling/v2. Version 1 has fields for the CPU
//! utilization alone; annotations have the rest, in the names of version 1.

use crate::view::{FieldView, child_mut, meta_mut};
use serde_json::{Value, json};

const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const CURRENT_METRICS: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";

/// The target of an autoscaler that names none, in percent.
const CPU_PERCENT_DEFAULT: u32 = 80;

/// The sources of metrics: their fields in version 2, as pointers, and in version 1. `target` of a specification is
/// `current` in a status.
const SOURCES: [(&str, &[(&str, &str)]); 5] = [
    ("resource", RESOURCE),
    ("containerResource", RESOURCE),
    (
        "pods",
        &[
            ("/metric/name", "metricName"),
            ("/metric/selector", "selector"),
            ("/target/averageValue", "targetAverageValue"),
        ],
    ),
    (
        "object",
        &[
            ("/describedObject", "target"),
            ("/metric/name", "metricName"),
            ("/metric/selector", "selector"),
            ("/target/value", "targetValue"),
            ("/target/averageValue", "averageValue"),
        ],
    ),
    (
        "external",
        &[
            ("/metric/name", "metricName"),
            ("/metric/selector", "metricSelector"),
            ("/target/value", "targetValue"),
            ("/target/averageValue", "targetAverageValue"),
        ],
    ),
];
const RESOURCE: &[(&str, &str)] = &[
    ("/name", "name"),
    ("/container", "container"),
    ("/target/averageUtilization", "targetAverageUtilization"),
    ("/target/averageValue", "targetAverageValue"),
];

/// The kind of a list of metrics.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MetricsPart {
    Spec,
    Status,
}

impl MetricsPart {
    /// A field of version 2 and its name in version 1.
    fn names(self, pointer: &str, name: &str) -> (String, String) {
        match self {
            Self::Spec => (pointer.to_owned(), name.to_owned()),
            Self::Status => (
                pointer.replace("/target/", "/current/"),
                // The object that is described is a target in both.
                match name.strip_prefix("target") {
                    Some("") | None => name.to_owned(),
                    Some(rest) => format!("current{rest}"),
                },
            ),
        }
    }
}

fn set(object: &mut Value, pointer: &str, value: Value) {
    let mut slot = object;
    for name in pointer.split('/').skip(1) {
        slot = &mut slot[name];
    }
    *slot = value;
}

/// A metric of version 2 in version 1, or back.
fn convert(metric: &Value, part: MetricsPart, to_v1: bool) -> Value {
    let mut out = json!({"type": metric["type"]});
    for (source, fields) in SOURCES {
        let Some(from) = metric.get(source) else {
            continue;
        };
        let mut to = json!({});
        for (pointer, name) in fields {
            let (pointer, name) = part.names(pointer, name);
            let name = format!("/{name}");
            let (read, written) = if to_v1 {
                (pointer, name)
            } else {
                (name, pointer)
            };
            if let Some(value) = from.pointer(&read) {
                set(&mut to, &written, value.clone());
            }
        }
        if !to_v1 {
            complete(&mut to, part);
        }
        out[source] = to;
    }
    out
}

/// The fields of version 2 that version 1 does not have.
fn complete(source: &mut Value, part: MetricsPart) {
    if part == MetricsPart::Spec {
        let target = &source["target"];
        let kind = if !target["averageUtilization"].is_null() {
            "Utilization"
        } else if !target["averageValue"].is_null() {
            "AverageValue"
        } else {
            "Value"
        };
        source["target"]["type"] = kind.into();
    } else if source["current"].is_null() {
        source["current"] = json!({});
    }
}

fn convert_all(metrics: &[Value], part: MetricsPart, to_v1: bool) -> Vec<Value> {
    let converted = metrics.iter().map(|metric| convert(metric, part, to_v1));
    converted.collect()
}

fn cpu_target(percent: &Value) -> Value {
    json!({
        "type": "Resource",
        "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": percent}},
    })
}

/// The CPU utilization that a metric is about, if it is.
fn cpu_utilization<'a>(metric: &'a Value, field: &str) -> Option<&'a Value> {
    let resource = &metric["resource"];
    let percent = &resource[field]["averageUtilization"];
    (metric["type"] == "Resource" && resource["name"] == "cpu" && !percent.is_null())
        .then_some(percent)
}

/// An autoscaler of version 2 in version 1.
pub(super) fn to_v1(object: &Value) -> Value {
    let mut out = object.clone();
    out["apiVersion"] = "autoscaling/v1".into();
    drop_annotations(&mut out);
    // Version 1 has one metric, the CPU utilisation; all others are kept in annotations.
    let (cpu, others): (Vec<Value>, Vec<Value>) = object
        .part("spec")
        .items("metrics")
        .iter()
        .cloned()
        .partition(|metric| cpu_utilization(metric, "target").is_some());
    let spec = child_mut(&mut out, "spec");
    spec.remove("metrics");
    let behavior = spec.remove("behavior");
    if let Some(percent) = cpu.first().and_then(|m| cpu_utilization(m, "target")) {
        spec.insert("targetCPUUtilizationPercentage".to_owned(), percent.clone());
    }
    let current = object.part("status").items("currentMetrics");
    let conditions = object.part("status").part("conditions").clone();
    if object.get("status").is_some() {
        let status = child_mut(&mut out, "status");
        // Go always writes it.
        status.entry("currentReplicas").or_insert(0.into());
        status.remove("currentMetrics");
        status.remove("conditions");
        // The last entry counts.
        let mut latest = current.iter().rev();
        if let Some(percent) = latest.find_map(|m| cpu_utilization(m, "current")) {
            let name = "currentCPUUtilizationPercentage".to_owned();
            status.insert(name, percent.clone());
        }
    }
    let others = convert_all(&others, MetricsPart::Spec, true);
    let current = convert_all(current, MetricsPart::Status, true);
    let annotations = [
        (METRICS, Value::from(others)),
        (CURRENT_METRICS, current.into()),
        (CONDITIONS, conditions),
    ];
    let texts = annotations
        .into_iter()
        .filter(|(_, list)| list.as_array().is_some_and(|list| !list.is_empty()))
        .map(|(name, list)| (name, list.to_string()));
    let behavior = behavior.map(|behavior| (BEHAVIOR, behavior_text(&behavior)));
    for (name, text) in texts.chain(behavior) {
        let all = meta_mut(&mut out);
        let all = all.entry("annotations").or_insert_with(|| json!({}));
        all[name] = text.into();
    }
    out
}

/// A behavior as kube-apiserver writes it into the annotation: its internal type, whose fields have the names of Go.
fn behavior_text(behavior: &Value) -> String {
    let policy = |policy: &Value| {
        format!(
            r#"{{"Type":{},"Value":{},"PeriodSeconds":{}}}"#,
            policy.part("type"),
            policy.part("value"),
            policy.part("periodSeconds")
        )
    };
    let rules = |rules: &Value| {
        if rules.is_null() {
            return "null".to_owned();
        }
        let policies = match rules.field("policies") {
            Some(_) => {
                let list: Vec<String> = rules.items("policies").iter().map(policy).collect();
                format!("[{}]", list.join(","))
            }
            None => "null".to_owned(),
        };
        format!(
            r#"{{"StabilizationWindowSeconds":{},"SelectPolicy":{},"Policies":{policies},"Tolerance":{}}}"#,
            rules.part("stabilizationWindowSeconds"),
            rules.part("selectPolicy"),
            rules.part("tolerance")
        )
    };
    let (up, down) = (behavior.part("scaleUp"), behavior.part("scaleDown"));
    format!(r#"{{"ScaleUp":{},"ScaleDown":{}}}"#, rules(up), rules(down))
}

/// A value of an internal type with the names of the served versions, which begin with a lowercase letter. Go reads both.
fn with_served_names(value: Value) -> Value {
    let served = |name: String| {
        let mut letters = name.chars();
        let first = letters.next().map(|c| c.to_ascii_lowercase());
        first.into_iter().chain(letters).collect::<String>()
    };
    match value {
        Value::Array(list) => list.into_iter().map(with_served_names).collect(),
        Value::Object(map) => map
            .into_iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(name, value)| (served(name), with_served_names(value)))
            .collect(),
        other => other,
    }
}

/// An autoscaler of version 1 in version 2.
pub(super) fn from_v1(object: Value) -> Value {
    let mut out = object;
    out["apiVersion"] = "autoscaling/v2".into();
    let kept = |name: &str| -> Option<Value> {
        let text = out["metadata"]["annotations"][name].as_str()?;
        serde_json::from_str(text).ok()
    };
    // An annotation that cannot be read is ignored, as if it were absent.
    let kept_list = |name: &str| -> Option<Vec<Value>> {
        match kept(name) {
            Some(Value::Array(list)) => Some(list),
            _ => None,
        }
    };
    let (metrics, current) = (kept_list(METRICS), kept_list(CURRENT_METRICS));
    let conditions = kept_list(CONDITIONS);
    let behavior = kept(BEHAVIOR).map(with_served_names);
    let behavior = behavior.filter(|b| b.as_object().is_some_and(|b| !b.is_empty()));
    drop_annotations(&mut out);
    let spec = child_mut(&mut out, "spec");
    let cpu = spec.remove("targetCPUUtilizationPercentage");
    // The CPU target follows the metrics of the annotations.
    let mut metrics = convert_all(&metrics.unwrap_or_default(), MetricsPart::Spec, false);
    metrics.extend(cpu.as_ref().map(cpu_target));
    if !metrics.is_empty() {
        spec.insert("metrics".to_owned(), metrics.into());
    }
    spec.extend(behavior.map(|behavior| ("behavior".to_owned(), behavior)));
    let cpu = child_mut(&mut out, "status").remove("currentCPUUtilizationPercentage");
    let current: Vec<Value> = match (current, cpu) {
        (Some(kept), _) => convert_all(&kept, MetricsPart::Status, false),
        (None, Some(percent)) => vec![json!({
            "type": "Resource",
            "resource": {"name": "cpu", "current": {"averageUtilization": percent}},
        })],
        (None, None) => Vec::new(),
    };
    let status = child_mut(&mut out, "status");
    for (name, list) in [
        ("currentMetrics", current),
        ("conditions", conditions.unwrap_or_default()),
    ] {
        if !list.is_empty() {
            status.insert(name.to_owned(), list.into());
        }
    }
    out
}

fn drop_annotations(object: &mut Value) {
    let metadata = meta_mut(object);
    let Some(annotations) = metadata
        .get_mut("annotations")
        .and_then(Value::as_object_mut)
    else {
        return;
    };
    for name in [METRICS, CURRENT_METRICS, CONDITIONS, BEHAVIOR] {
        annotations.remove(name);
    }
    if annotations.is_empty() {
        metadata.remove("annotations");
    }
}

/// Fills in the metric of an autoscaler that has none, and the rest of rules that are given in part.
pub(crate) fn default_autoscaler(object: &mut Value) {
    let spec = child_mut(object, "spec");
    let metrics = spec.get("metrics").and_then(Value::as_array);
    if metrics.is_none_or(Vec::is_empty) {
        let metric = cpu_target(&CPU_PERCENT_DEFAULT.into());
        spec.insert("metrics".to_owned(), json!([metric]));
    }
    let Some(behavior) = spec.get_mut("behavior").filter(|b| b.is_object()) else {
        return;
    };
    let percent = json!({"type": "Percent", "value": 100, "periodSeconds": 15});
    let pods = json!({"type": "Pods", "value": 4, "periodSeconds": 15});
    let up = json!({
        "stabilizationWindowSeconds": 0, "selectPolicy": "Max", "policies": [pods, percent],
    });
    let down = json!({"selectPolicy": "Max", "policies": [percent]});
    for (name, defaults) in [("scaleUp", up), ("scaleDown", down)] {
        for (field, value) in defaults.as_object().into_iter().flatten() {
            if behavior[name][field].is_null() {
                behavior[name][field] = value.clone();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_survives_the_way_through_version_1() {
        let selector = json!({"matchLabels": {"a": "b"}});
        let object = json!({
            "apiVersion": "autoscaling/v2",
            "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": "h", "annotations": {"mine": "x"}},
            "spec": {
                "scaleTargetRef": {"kind": "Deployment", "name": "d"},
                "minReplicas": 1,
                "maxReplicas": 3,
                "metrics": [
                    {"type": "Resource", "resource": {"name": "memory", "target": {"type": "AverageValue", "averageValue": "1Gi"}}},
                    {"type": "ContainerResource", "containerResource": {"name": "cpu", "container": "c", "target": {"type": "Utilization", "averageUtilization": 40}}},
                    {"type": "Pods", "pods": {"metric": {"name": "m", "selector": selector}, "target": {"type": "AverageValue", "averageValue": "2"}}},
                    {"type": "Object", "object": {"describedObject": {"kind": "Service", "name": "s"}, "metric": {"name": "m"}, "target": {"type": "Value", "value": "7"}}},
                    {"type": "External", "external": {"metric": {"name": "m", "selector": selector}, "target": {"type": "AverageValue", "averageValue": "9"}}},
                    {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 70}}},
                ],
                "behavior": {"scaleDown": {"selectPolicy": "Disabled"}},
            },
            "status": {
                "currentReplicas": 1,
                "desiredReplicas": 2,
                "currentMetrics": [
                    {"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 90, "averageValue": "3"}}},
                    {"type": "Object", "object": {"describedObject": {"kind": "Service", "name": "s"}, "metric": {"name": "m"}, "current": {"value": "7"}}},
                ],
                "conditions": [{"type": "AbleToScale", "status": "True", "lastTransitionTime": null}],
            },
        });
        let v1 = to_v1(&object);
        assert_eq!(v1["spec"]["targetCPUUtilizationPercentage"], 70);
        assert_eq!(v1["status"]["currentCPUUtilizationPercentage"], 90);
        assert_eq!(v1["spec"].get("metrics"), None);
        let kept = v1["metadata"]["annotations"][METRICS].as_str();
        let kept: Value = serde_json::from_str(kept.unwrap_or("")).unwrap_or_default();
        assert_eq!(
            kept[3]["object"],
            json!({"target": {"kind": "Service", "name": "s"}, "metricName": "m", "targetValue": "7"})
        );
        assert_eq!(from_v1(v1), object);
    }

    #[test]
    fn an_autoscaler_without_a_metric_aims_at_the_cpu() {
        let mut object =
            json!({"spec": {"maxReplicas": 2, "behavior": {"scaleUp": {"selectPolicy": "Min"}}}});
        default_autoscaler(&mut object);
        let spec = &object["spec"];
        assert_eq!(spec["metrics"], json!([cpu_target(&json!(80))]));
        assert_eq!(
            spec["behavior"]["scaleUp"],
            json!({
                "selectPolicy": "Min",
                "stabilizationWindowSeconds": 0,
                "policies": [
                    {"type": "Pods", "value": 4, "periodSeconds": 15},
                    {"type": "Percent", "value": 100, "periodSeconds": 15},
                ],
            })
        );
        assert_eq!(
            spec["behavior"]["scaleDown"]["policies"][0]["type"],
            "Percent"
        );
    }
}
