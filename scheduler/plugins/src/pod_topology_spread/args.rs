//! `PodTopologySpreadArgs`: constraints for pods that have none of their own.

use super::constraints::{DO_NOT_SCHEDULE, HOSTNAME, SCHEDULE_ANYWAY, ZONE};
use crate::args::{Problems, decode, set_default};
use berth_api::names::label_key;
use berth_api::pod::TopologySpreadConstraint;
use berth_framework::FeatureGates;
use berth_framework::registry::ArgsError;
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// The arguments, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodTopologySpreadArgs {
    /// The constraints of pods without any; their selector is deduced for each pod.
    pub default_constraints: Vec<TopologySpreadConstraint>,
    /// Whether these are the built-in defaults, which also include nodes without the labels.
    pub system_defaulted: bool,
}

fn system_default(topology_key: &str, max_skew: i32) -> TopologySpreadConstraint {
    TopologySpreadConstraint {
        topology_key: topology_key.into(),
        max_skew,
        when_unsatisfiable: SCHEDULE_ANYWAY.into(),
        ..TopologySpreadConstraint::default()
    }
}

impl Default for PodTopologySpreadArgs {
    fn default() -> Self {
        Self {
            default_constraints: vec![system_default(HOSTNAME, 3), system_default(ZONE, 5)],
            system_defaulted: true,
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct PodTopologySpreadWire {
    default_constraints: Option<Vec<TopologySpreadConstraint>>,
    defaulting_type: Option<String>,
}

impl PodTopologySpreadArgs {
    /// Reads the arguments.
    ///
    /// # Errors
    /// Every problem of the arguments.
    pub fn decode(args: &Value) -> Result<Self, ArgsError> {
        let wire: PodTopologySpreadWire = decode(args, "PodTopologySpreadArgs")?;
        let constraints = wire.default_constraints.unwrap_or_default();
        let mut problems = Problems::default();
        let kind = wire.defaulting_type.unwrap_or_default();
        let system_defaulted = match kind.as_str() {
            "" | "System" => true,
            "List" => false,
            other => {
                problems.unsupported("defaultingType", other, &["List", "System"]);
                false
            }
        };
        if system_defaulted && !constraints.is_empty() {
            let why = "when .defaultConstraints are not empty";
            problems.invalid("defaultingType", "\"System\"", why);
        }
        check(&constraints, &mut problems);
        problems.or(if system_defaulted {
            Self::default()
        } else {
            Self {
                default_constraints: constraints,
                system_defaulted,
            }
        })
    }
}

fn check(constraints: &[TopologySpreadConstraint], problems: &mut Problems) {
    for (i, constraint) in constraints.iter().enumerate() {
        let path = format!("defaultConstraints[{i}]");
        if constraint.max_skew <= 0 {
            let why = "not in valid range (0, inf)";
            problems.invalid(format!("{path}.maxSkew"), constraint.max_skew, why);
        }
        let key = &constraint.topology_key;
        if key.is_empty() {
            problems.required(format!("{path}.topologyKey"), "can not be empty");
        } else {
            for problem in label_key(key) {
                let value = format!("{:?}", key.as_str());
                problems.invalid(format!("{path}.topologyKey"), value, problem);
            }
        }
        let action = constraint.when_unsatisfiable.as_str();
        let place = format!("{path}.whenUnsatisfiable");
        if action.is_empty() {
            problems.required(place, "can not be empty");
        } else if ![DO_NOT_SCHEDULE, SCHEDULE_ANYWAY].contains(&action) {
            problems.unsupported(place, action, &[DO_NOT_SCHEDULE, SCHEDULE_ANYWAY]);
        }
        if constraint.label_selector.is_some() {
            let why = "constraint must not define a selector, as they deduced for each pod";
            problems.forbidden(format!("{path}.labelSelector"), why);
        }
        let same = |earlier: &TopologySpreadConstraint| {
            earlier.topology_key == *key && earlier.when_unsatisfiable == action
        };
        if constraints[..i].iter().any(same) {
            problems.duplicate(&path, format!("{{{key}, {action}}}"));
        }
    }
}

/// Fills in the defaults.
pub(super) fn complete(fields: &mut Map<String, Value>, _features: &FeatureGates) {
    if fields.get("defaultingType").is_some_and(|kind| kind == "") {
        fields.remove("defaultingType");
    }
    set_default(fields, "defaultingType", || json!("System"));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(constraints: Value) -> Value {
        json!({"defaultingType": "List", "defaultConstraints": constraints})
    }

    /// PL-95: the system defaults apply when the arguments are absent.
    #[test]
    fn the_system_spreads_over_hosts_and_zones() {
        let args = PodTopologySpreadArgs::decode(&json!(null)).expect("defaults");
        let kept: Vec<(&str, i32)> = args
            .default_constraints
            .iter()
            .map(|c| (c.topology_key.as_str(), c.max_skew))
            .collect();
        assert_eq!(
            kept,
            [
                ("kubernetes.io/hostname", 3),
                ("topology.kubernetes.io/zone", 5)
            ]
        );
        assert!(args.system_defaulted);
        let none = PodTopologySpreadArgs::decode(&list(json!([]))).expect("an empty list");
        assert!(none.default_constraints.is_empty() && !none.system_defaulted);
    }

    /// F-35, PL-109: every rule, by path.
    #[test]
    fn bad_constraints_are_refused() {
        let one = |field: &str, value: Value| {
            let mut constraint =
                json!({"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"});
            constraint[field] = value;
            list(json!([constraint]))
        };
        let good =
            json!({"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"});
        for (args, problem) in [
            (list(json!([good])), None),
            (
                one("maxSkew", json!(0)),
                Some(
                    "defaultConstraints[0].maxSkew: Invalid value: 0: not in valid range (0, inf)",
                ),
            ),
            (
                one("topologyKey", json!("")),
                Some("defaultConstraints[0].topologyKey: Required value: can not be empty"),
            ),
            (
                one("topologyKey", json!("a b")),
                Some(
                    "defaultConstraints[0].topologyKey: Invalid value: \"a b\": name part must consist",
                ),
            ),
            (
                one("whenUnsatisfiable", json!("")),
                Some("defaultConstraints[0].whenUnsatisfiable: Required value: can not be empty"),
            ),
            (
                one("whenUnsatisfiable", json!("Never")),
                Some(
                    "defaultConstraints[0].whenUnsatisfiable: Unsupported value: \"Never\": supported values: \"DoNotSchedule\", \"ScheduleAnyway\"",
                ),
            ),
            (
                one("labelSelector", json!({})),
                Some(
                    "defaultConstraints[0].labelSelector: Forbidden: constraint must not define a selector, as they deduced for each pod",
                ),
            ),
            (
                list(json!([good, good])),
                Some("defaultConstraints[1]: Duplicate value: {zone, DoNotSchedule}"),
            ),
            (
                json!({"defaultConstraints": [good]}),
                Some(
                    "defaultingType: Invalid value: \"System\": when .defaultConstraints are not empty",
                ),
            ),
            (
                json!({"defaultingType": "Mine"}),
                Some("defaultingType: Unsupported value: \"Mine\""),
            ),
        ] {
            let got = PodTopologySpreadArgs::decode(&args)
                .err()
                .map(|e| e.to_string());
            match problem {
                None => assert_eq!(got, None, "{args}"),
                Some(problem) => {
                    let got = got.unwrap_or_default();
                    assert!(
                        got.starts_with(problem),
                        "{args}\n got {got}\nwant {problem}"
                    );
                }
            }
        }
    }
}
