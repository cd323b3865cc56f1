//! The arguments of the plugins that kube-scheduler has an args kind for: their envelope and their defaults.
//!
//! What the arguments mean and whether they are valid is for the plugin to say; see
//! [`Config::check`](super::Config::check). Here they are only made complete, as they are written out and handed to
//! the plugin.

use super::API_VERSION;
use super::error::Problems;
use berth_api::GoDuration;
use berth_framework::{Feature, FeatureGates};
use serde_json::{Map, Value, json};

type Fields = Map<String, Value>;

/// Puts the defaults (F-33) into the arguments of one plugin.
type Complete = fn(&mut Fields, &FeatureGates);

/// The plugins with an args kind (`<Name>Args`), sorted.
const KINDS: [(&str, Complete); 8] = [
    ("DefaultPreemption", |fields, _| {
        default(fields, "minCandidateNodesPercentage", || json!(10));
        default(fields, "minCandidateNodesAbsolute", || json!(100));
    }),
    ("DynamicResources", |fields, features| {
        let timeouts = [
            (
                "filterTimeout",
                GoDuration::from_secs(10),
                features.enabled(Feature::DRASchedulerFilterTimeout),
            ),
            (
                "bindingTimeout",
                GoDuration::from_secs(600),
                features.enabled(Feature::DRADeviceBindingConditions)
                    && features.enabled(Feature::DRAResourceClaimDeviceStatus),
            ),
        ];
        for (field, timeout, on) in timeouts {
            if on {
                default(fields, field, || json!(timeout.to_string()));
            }
            let given = fields.get(field).and_then(Value::as_str);
            if let Some(Ok(given)) = given.map(str::parse::<GoDuration>) {
                fields.insert(field.to_owned(), json!(given.to_string()));
            }
        }
    }),
    ("InterPodAffinity", |fields, _| {
        default(fields, "hardPodAffinityWeight", || json!(1));
        default(fields, "ignorePreferredTermsOfExistingPods", || {
            json!(false)
        });
    }),
    ("NodeAffinity", |_, _| {}),
    ("NodeResourcesBalancedAllocation", |fields, _| {
        default_resources(fields);
    }),
    ("NodeResourcesFit", |fields, _| {
        let least_allocated = || json!({"type": "LeastAllocated"});
        default(fields, "scoringStrategy", least_allocated);
        if let Some(Value::Object(strategy)) = fields.get_mut("scoringStrategy") {
            default_resources(strategy);
        }
    }),
    ("PodTopologySpread", |fields, _| {
        if fields.get("defaultingType").is_some_and(|kind| kind == "") {
            fields.remove("defaultingType");
        }
        default(fields, "defaultingType", || json!("System"));
    }),
    ("VolumeBinding", |fields, features| {
        default(fields, "bindTimeoutSeconds", || json!(600));
        if features.enabled(Feature::StorageCapacityScoring) {
            default(
                fields,
                "shape",
                || json!([{"utilization": 0, "score": 10}, {"utilization": 100, "score": 0}]),
            );
        }
    }),
];

fn default(fields: &mut Fields, field: &str, value: impl FnOnce() -> Value) {
    if !fields.contains_key(field) {
        fields.insert(field.to_owned(), value());
    }
}

/// CPU and memory where no resource is given, weight 1 where no weight is.
fn default_resources(fields: &mut Fields) {
    let none = match fields.get("resources") {
        None | Some(Value::Null) => true,
        Some(Value::Array(resources)) => resources.is_empty(),
        Some(_) => false,
    };
    if none {
        let both = json!([{"name": "cpu", "weight": 1}, {"name": "memory", "weight": 1}]);
        fields.insert("resources".to_owned(), both);
    } else if let Some(Value::Array(resources)) = fields.get_mut("resources") {
        for resource in resources.iter_mut().filter_map(Value::as_object_mut) {
            let weight = resource.get("weight").unwrap_or(&Value::Null);
            if weight.is_null() || weight.as_f64() == Some(0.0) {
                resource.insert("weight".to_owned(), json!(1));
            }
        }
    }
}

fn complete_of(plugin: &str) -> Option<Complete> {
    let (_, complete) = KINDS.iter().find(|(name, _)| *name == plugin)?;
    Some(*complete)
}

/// Whether there is an args kind for the plugin.
pub(super) fn has_kind(plugin: &str) -> bool {
    complete_of(plugin).is_some()
}

/// The arguments with their envelope and defaults. What is no object stays as it is, for the plugin to refuse;
/// the arguments of a plugin without an args kind are its own business.
pub(super) fn complete(plugin: &str, given: &Value, features: &FeatureGates) -> Value {
    let Some(complete) = complete_of(plugin) else {
        return given.clone();
    };
    let mut fields = match given {
        Value::Null => Map::new(),
        Value::Object(fields) => fields.clone(),
        other => return other.clone(),
    };
    fields.retain(|_, value| !value.is_null());
    fields.insert("apiVersion".to_owned(), json!(API_VERSION));
    fields.insert("kind".to_owned(), json!(format!("{plugin}Args")));
    complete(&mut fields, features);
    Value::Object(fields)
}

/// Complains of arguments that are those of something else (`path` is where they stand), or that nobody reads:
/// `in_tree` tells whether kube-scheduler has the plugin.
pub(super) fn check_envelope(
    plugin: &str,
    in_tree: bool,
    args: &Value,
    path: &str,
    problems: &mut Problems,
) {
    if !has_kind(plugin) {
        let empty = args.is_null() || args.as_object().is_some_and(Map::is_empty);
        if in_tree && !empty {
            let message = format!("plugin {plugin} takes no arguments");
            problems.add_with_hint(path, message, "leave them out");
        }
        return;
    }
    let text = |field: &str| args.get(field).filter(|value| !value.is_null());
    let kind = format!("{plugin}Args");
    if let Some(given) = text("kind").filter(|given| **given != kind) {
        let hint = format!("the kind is {given}; {plugin} takes {kind}");
        problems.add_with_hint(path, "has to match plugin args", hint);
    }
    if let Some(given) = text("apiVersion").filter(|given| **given != API_VERSION) {
        let message = format!("no kind {kind:?} is registered for version {given}");
        let hint = format!("leave it out or set it to {API_VERSION:?}");
        problems.add_with_hint(format!("{path}.apiVersion"), message, hint);
    }
}
