//! `VolumeBindingArgs`.

use crate::args::{Problems, decode, set_default};
use crate::node_resources::shape::{ScoreShape, ShapePoint};
use berth_api::Duration;
use berth_framework::registry::ArgsError;
use berth_framework::{Feature, FeatureGates};
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// The arguments, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeBindingArgs {
    /// The time limit of the binding of volumes.
    pub bind_timeout: Duration,
    /// The score of a utilization of storage; none without the gate StorageCapacityScoring.
    pub shape: Option<ScoreShape>,
}

impl Default for VolumeBindingArgs {
    fn default() -> Self {
        Self {
            bind_timeout: Duration::from_secs(600),
            shape: None,
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct VolumeBindingWire {
    bind_timeout_seconds: Option<i64>,
    shape: Option<Vec<ShapePoint>>,
}

/// A point as kube-scheduler's errors show it.
fn shown(point: &ShapePoint) -> String {
    let ShapePoint { utilization, score } = point;
    format!("{{\"Utilization\":{utilization},\"Score\":{score}}}")
}

/// Prefers the node with the most free space, in proportion to its capacity.
fn default_shape() -> Value {
    json!([{"utilization": 0, "score": 10}, {"utilization": 100, "score": 0}])
}

impl VolumeBindingArgs {
    /// Reads the arguments.
    ///
    /// # Errors
    /// Every problem of the arguments.
    pub fn decode(args: &Value, features: &FeatureGates) -> Result<Self, ArgsError> {
        let mut args = match args {
            Value::Object(fields) => fields.clone(),
            Value::Null => Map::new(),
            other => {
                return decode::<VolumeBindingWire>(other, "VolumeBindingArgs")
                    .map(|_| Self::default());
            }
        };
        complete(&mut args, features);
        let wire: VolumeBindingWire = decode(&Value::Object(args), "VolumeBindingArgs")?;
        let mut problems = Problems::default();
        let mut checked = Self::default();
        match wire
            .bind_timeout_seconds
            .map(|given| (given, u64::try_from(given)))
        {
            None => {}
            Some((_, Ok(seconds))) => checked.bind_timeout = Duration::from_secs(seconds),
            Some((given, Err(_))) => {
                let why = "invalid BindTimeoutSeconds, should not be a negative value";
                problems.invalid("bindTimeoutSeconds", given, why);
            }
        }
        match wire.shape {
            Some(points) if features.enabled(Feature::StorageCapacityScoring) => {
                checked.shape = Some(ScoreShape::new(&points, "shape", &mut problems));
            }
            Some(points) => {
                let why = "unexpected field `shape`, remove it or turn on the feature gate StorageCapacityScoring";
                let points: Vec<String> = points.iter().map(shown).collect();
                problems.invalid("shape", format!("[{}]", points.join(",")), why);
            }
            None => {}
        }
        problems.or(checked)
    }
}

/// Fills in the defaults.
pub(super) fn complete(fields: &mut Map<String, Value>, features: &FeatureGates) {
    set_default(fields, "bindTimeoutSeconds", || json!(600));
    if features.enabled(Feature::StorageCapacityScoring)
        && fields
            .get("shape")
            .is_none_or(|shape| shape.is_null() || shape.as_array().is_some_and(Vec::is_empty))
    {
        fields.insert("shape".to_owned(), default_shape());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_api::Release;

    /// F-35, PL-147.
    #[test]
    fn the_timeout_is_not_negative_and_the_shape_needs_its_gate() {
        let decode = |args: &Value, release| {
            let decoded = VolumeBindingArgs::decode(args, &FeatureGates::of(release));
            let decoded = decoded.map_err(|error| error.to_string())?;
            let shape = decoded
                .shape
                .map(|shape| [0, 25, 100].map(|u| shape.score(u)));
            Ok((decoded.bind_timeout.as_secs(), shape))
        };
        let free = Some([100, 75, 0]);
        let packs =
            json!({"shape": [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}]});
        macro_rules! no_gate {
            ($points:literal) => {
                Err(concat!(
                    "shape: Invalid value: ",
                    $points,
                    ": unexpected field `shape`, remove it or turn on the feature gate StorageCapacityScoring"
                ))
            };
        }
        let unsorted =
            json!({"shape": [{"utilization": 50, "score": 0}, {"utilization": 50, "score": 11}]});
        for (args, before, since) in [
            (json!(null), Ok((600, None)), Ok((600, free))),
            (
                json!({"bindTimeoutSeconds": 0, "shape": null}),
                Ok((0, None)),
                Ok((0, free)),
            ),
            (json!({"shape": []}), no_gate!("[]"), Ok((600, free))),
            (
                packs,
                no_gate!(r#"[{"Utilization":0,"Score":0},{"Utilization":100,"Score":10}]"#),
                Ok((600, Some([0, 25, 100]))),
            ),
            (
                json!({"bindTimeoutSeconds": -1}),
                Err(
                    "bindTimeoutSeconds: Invalid value: -1: invalid BindTimeoutSeconds, should not be a negative value",
                ),
                Err(
                    "bindTimeoutSeconds: Invalid value: -1: invalid BindTimeoutSeconds, should not be a negative value",
                ),
            ),
            (
                unsorted,
                no_gate!(r#"[{"Utilization":50,"Score":0},{"Utilization":50,"Score":11}]"#),
                Err(
                    "shape[1].utilization: Invalid value: 50: values must be sorted in increasing order, shape[1].score: Invalid value: 11: not in valid range [0, 10]",
                ),
            ),
        ] {
            let expected = [before, since, since];
            for (release, expected) in Release::ALL.into_iter().zip(expected) {
                let got: Result<(u64, Option<[i64; 3]>), String> = decode(&args, release);
                assert_eq!(got, expected.map_err(str::to_owned), "{args} in {release}");
            }
        }
    }
}
