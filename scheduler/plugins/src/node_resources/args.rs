//! `NodeResourcesFitArgs` and `NodeResourcesBalancedAllocationArgs`: defaults and validation.

use super::shape::{ScoreShape, ShapePoint};
use super::strategy::ScoringStrategy;
use crate::args::{Problems, decode, set_default};
use berth_api::Str;
use berth_api::names::label_key;
use berth_api::resources::{CPU, MEMORY};
use berth_framework::FeatureGates;
use berth_framework::registry::ArgsError;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// A resource that counts when nodes are scored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScoredResource {
    /// Its name.
    pub name: Str,
    /// Its weight, 1 to 100.
    pub weight: i64,
}

/// The arguments of `NodeResourcesFit`, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FitArgs {
    /// Extended resources that the filter ignores.
    pub ignored_resources: BTreeSet<Str>,
    /// The same for all extended resources of these domains.
    pub ignored_resource_groups: BTreeSet<Str>,
    /// The scoring strategy.
    pub strategy: ScoringStrategy,
    /// By which resources.
    pub resources: Vec<ScoredResource>,
}

impl Default for FitArgs {
    fn default() -> Self {
        Self {
            ignored_resources: BTreeSet::new(),
            ignored_resource_groups: BTreeSet::new(),
            strategy: ScoringStrategy::default(),
            resources: default_resources(),
        }
    }
}

/// The arguments of `NodeResourcesBalancedAllocation`, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BalancedAllocationArgs {
    /// The resources that are to be used evenly; each weighs 1.
    pub resources: Vec<ScoredResource>,
}

impl Default for BalancedAllocationArgs {
    fn default() -> Self {
        Self {
            resources: default_resources(),
        }
    }
}

fn default_resources() -> Vec<ScoredResource> {
    [CPU, MEMORY]
        .map(|name| ScoredResource {
            name: Str::new(name),
            weight: 1,
        })
        .to_vec()
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct WireFit {
    ignored_resources: Option<Vec<Str>>,
    ignored_resource_groups: Option<Vec<Str>>,
    scoring_strategy: Option<WireStrategy>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct WireStrategy {
    #[serde(rename = "type", default)]
    kind: String,
    resources: Option<Vec<WireResource>>,
    requested_to_capacity_ratio: Option<WireRatio>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct WireRatio {
    shape: Option<Vec<ShapePoint>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct WireResource {
    name: Str,
    weight: Option<i64>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct WireBalanced {
    resources: Option<Vec<WireResource>>,
}

/// The resources with their defaults: CPU and memory when there is none, weight 1 where none is given.
fn with_defaults(resources: Option<Vec<WireResource>>) -> Vec<ScoredResource> {
    match resources {
        Some(resources) if !resources.is_empty() => resources
            .into_iter()
            .map(|resource| ScoredResource {
                name: resource.name,
                weight: match resource.weight {
                    None | Some(0) => 1,
                    Some(weight) => weight,
                },
            })
            .collect(),
        _ => default_resources(),
    }
}

fn check_label_name(name: &Str, path: &str, problems: &mut Problems) {
    for problem in label_key(name) {
        problems.invalid(path, format!("{:?}", name.as_str()), problem);
    }
}

impl FitArgs {
    /// Reads the arguments.
    ///
    /// # Errors
    /// Everything that is wrong with them.
    pub fn decode(args: &Value) -> Result<Self, ArgsError> {
        let wire: WireFit = decode(args, "NodeResourcesFitArgs")?;
        let mut problems = Problems::default();
        let ignored = wire.ignored_resources.unwrap_or_default();
        for (i, name) in ignored.iter().enumerate() {
            check_label_name(name, &format!("ignoredResources[{i}]"), &mut problems);
        }
        let groups = wire.ignored_resource_groups.unwrap_or_default();
        for (i, group) in groups.iter().enumerate() {
            let path = format!("ignoredResourceGroups[{i}]");
            if group.contains('/') {
                let why = "resource group name can't contain '/'";
                problems.invalid(&path, format!("{:?}", group.as_str()), why);
            }
            check_label_name(group, &path, &mut problems);
        }
        let mut checked = Self {
            ignored_resources: ignored.into_iter().collect(),
            ignored_resource_groups: groups.into_iter().collect(),
            ..Self::default()
        };
        // Without a strategy, the defaults of PL-73 remain.
        if let Some(strategy) = wire.scoring_strategy {
            checked.strategy = strategy_of(
                &strategy.kind,
                strategy.requested_to_capacity_ratio,
                &mut problems,
            );
            checked.resources = with_defaults(strategy.resources);
            for (i, resource) in checked.resources.iter().enumerate() {
                if !(1..=100).contains(&resource.weight) {
                    problems.invalid(
                        format!("scoringStrategy.resources[{i}].weight"),
                        resource.weight,
                        format!(
                            "resource weight of {} not in valid range (0, 100]",
                            resource.name
                        ),
                    );
                }
            }
        }
        problems.or(checked)
    }
}

fn strategy_of(kind: &str, ratio: Option<WireRatio>, problems: &mut Problems) -> ScoringStrategy {
    const PATH: &str = "scoringStrategy.requestedToCapacityRatio";
    const KINDS: [&str; 3] = [
        "LeastAllocated",
        "MostAllocated",
        "RequestedToCapacityRatio",
    ];
    if kind == "RequestedToCapacityRatio" {
        let Some(ratio) = ratio else {
            problems.required(
                PATH,
                "must be specified when type is RequestedToCapacityRatio",
            );
            return ScoringStrategy::default();
        };
        let points = ratio.shape.unwrap_or_default();
        let shape = ScoreShape::new(&points, &format!("{PATH}.shape"), problems);
        return ScoringStrategy::RequestedToCapacityRatio(shape);
    }
    if ratio.is_some() {
        problems.forbidden(
            PATH,
            "must be nil when type is not RequestedToCapacityRatio",
        );
    }
    match kind {
        "LeastAllocated" => ScoringStrategy::LeastAllocated,
        "MostAllocated" => ScoringStrategy::MostAllocated,
        other => {
            problems.unsupported("scoringStrategy.type", other, &KINDS);
            ScoringStrategy::default()
        }
    }
}

impl BalancedAllocationArgs {
    /// Reads the arguments.
    ///
    /// # Errors
    /// Everything that is wrong with them.
    pub fn decode(args: &Value) -> Result<Self, ArgsError> {
        let wire: WireBalanced = decode(args, "NodeResourcesBalancedAllocationArgs")?;
        let mut problems = Problems::default();
        let resources = with_defaults(wire.resources);
        for (i, resource) in resources.iter().enumerate() {
            if resource.weight != 1 {
                let path = format!("resources[{i}].weight");
                problems.invalid(path, resource.weight, "must be 1");
            }
            if resources[..i]
                .iter()
                .any(|earlier| earlier.name == resource.name)
            {
                let name = format!("{:?}", resource.name.as_str());
                problems.duplicate(format!("resources[{i}].name"), name);
            }
        }
        problems.or(Self { resources })
    }
}

/// Fills in the defaults of `NodeResourcesFitArgs`.
pub(super) fn complete_fit(fields: &mut Map<String, Value>, _features: &FeatureGates) {
    set_default(
        fields,
        "scoringStrategy",
        || json!({"type": "LeastAllocated"}),
    );
    if let Some(Value::Object(strategy)) = fields.get_mut("scoringStrategy") {
        complete_resources(strategy);
    }
}

/// CPU and memory where no resource is given, weight 1 where no weight is.
pub(super) fn complete_resources(fields: &mut Map<String, Value>) {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn resource(name: &str, weight: i64) -> ScoredResource {
        ScoredResource {
            name: name.into(),
            weight,
        }
    }

    /// F-33, PL-73: the defaults of absent fields.
    #[test]
    fn what_is_absent_has_a_default() {
        let two = vec![resource("cpu", 1), resource("memory", 1)];
        for (args, strategy, resources) in [
            (json!(null), ScoringStrategy::LeastAllocated, two.clone()),
            (
                json!({"scoringStrategy": null, "ignoredResources": null}),
                ScoringStrategy::LeastAllocated,
                two.clone(),
            ),
            (
                json!({"scoringStrategy": {"type": "MostAllocated"}}),
                ScoringStrategy::MostAllocated,
                two.clone(),
            ),
            (
                json!({"scoringStrategy": {"type": "LeastAllocated", "resources": []}}),
                ScoringStrategy::LeastAllocated,
                two,
            ),
            (
                json!({"scoringStrategy": {"type": "MostAllocated", "resources": [{"name": "cpu", "weight": 0}, {"name": "example.com/gpu"}, {"name": "memory", "weight": 7}]}}),
                ScoringStrategy::MostAllocated,
                vec![
                    resource("cpu", 1),
                    resource("example.com/gpu", 1),
                    resource("memory", 7),
                ],
            ),
        ] {
            let got = FitArgs::decode(&args).unwrap_or_else(|error| panic!("{args}: {error}"));
            assert_eq!(
                (got.strategy, got.resources),
                (strategy, resources),
                "{args}"
            );
        }
        assert_eq!(
            BalancedAllocationArgs::decode(&json!({"resources": [{"name": "cpu", "weight": 0}]})),
            Ok(BalancedAllocationArgs {
                resources: vec![resource("cpu", 1)]
            })
        );
    }

    /// F-35, F-36, PL-74: each problem is named, all of them at once.
    #[test]
    fn bad_fit_arguments_are_refused() {
        let strategy = |fields: Value| json!({"scoringStrategy": fields});
        let weight = |weight: i64| {
            strategy(
                json!({"type": "LeastAllocated", "resources": [{"name": "cpu", "weight": weight}]}),
            )
        };
        for (args, problems) in [
            (
                weight(-1),
                vec![
                    "scoringStrategy.resources[0].weight: Invalid value: -1: resource weight of cpu not in valid range (0, 100]",
                ],
            ),
            (
                weight(101),
                vec![
                    "scoringStrategy.resources[0].weight: Invalid value: 101: resource weight of cpu not in valid range (0, 100]",
                ],
            ),
            (
                strategy(json!({"type": "Best"})),
                vec![
                    "scoringStrategy.type: Unsupported value: \"Best\": supported values: \"LeastAllocated\", \"MostAllocated\", \"RequestedToCapacityRatio\"",
                ],
            ),
            (
                strategy(json!({})),
                vec![
                    "scoringStrategy.type: Unsupported value: \"\": supported values: \"LeastAllocated\", \"MostAllocated\", \"RequestedToCapacityRatio\"",
                ],
            ),
            (
                strategy(json!({"type": "RequestedToCapacityRatio"})),
                vec![
                    "scoringStrategy.requestedToCapacityRatio: Required value: must be specified when type is RequestedToCapacityRatio",
                ],
            ),
            (
                strategy(
                    json!({"type": "RequestedToCapacityRatio", "requestedToCapacityRatio": {"shape": []}}),
                ),
                vec![
                    "scoringStrategy.requestedToCapacityRatio.shape: Required value: at least one point must be specified",
                ],
            ),
            (
                strategy(
                    json!({"type": "MostAllocated", "requestedToCapacityRatio": {"shape": [{"utilization": 0, "score": 0}]}}),
                ),
                vec![
                    "scoringStrategy.requestedToCapacityRatio: Forbidden: must be nil when type is not RequestedToCapacityRatio",
                ],
            ),
            (
                json!({"ignoredResources": ["a b"], "ignoredResourceGroups": ["example.com/gpu", ""]}),
                vec![
                    "ignoredResources[0]: Invalid value: \"a b\": name part must consist",
                    "ignoredResourceGroups[0]: Invalid value: \"example.com/gpu\": resource group name can't contain '/'",
                    "ignoredResourceGroups[1]: Invalid value: \"\": name part must be non-empty",
                ],
            ),
        ] {
            let error = FitArgs::decode(&args).expect_err("a problem").to_string();
            for problem in problems {
                assert!(
                    error.contains(problem),
                    "{args}\n got {error}\nwant {problem}"
                );
            }
        }
    }

    /// F-35, PL-79: every weight is 1 and no name is duplicated.
    #[test]
    fn bad_balanced_allocation_arguments_are_refused() {
        for (resources, problem) in [
            (
                json!([{"name": "cpu", "weight": 2}]),
                "resources[0].weight: Invalid value: 2: must be 1",
            ),
            (
                json!([{"name": "cpu", "weight": 1}, {"name": "cpu", "weight": 1}]),
                "resources[1].name: Duplicate value: \"cpu\"",
            ),
        ] {
            let error = BalancedAllocationArgs::decode(&json!({"resources": resources}));
            assert_eq!(error.expect_err("a problem").to_string(), problem);
        }
    }
}
