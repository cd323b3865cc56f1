//! `VolumeBindingArgs`.

use crate::args::{Problems, decode, set_default};
use berth_api::Duration;
use berth_framework::FeatureGates;
use berth_framework::registry::ArgsError;
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// The arguments, checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VolumeBindingArgs {
    /// How long the binding of volumes may take.
    pub bind_timeout: Duration,
}

impl Default for VolumeBindingArgs {
    fn default() -> Self {
        Self {
            bind_timeout: Duration::from_secs(600),
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Wire {
    bind_timeout_seconds: Option<i64>,
    shape: Option<Value>,
}

impl VolumeBindingArgs {
    /// Reads the arguments.
    ///
    /// # Errors
    /// Every problem of the arguments.
    pub fn decode(args: &Value) -> Result<Self, ArgsError> {
        let wire: Wire = decode(args, "VolumeBindingArgs")?;
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
        if wire.shape.is_some_and(|shape| !shape.is_null()) {
            let why = "needs the feature gate StorageCapacityScoring, which Berth does not have";
            problems.forbidden("shape", why);
        }
        problems.or(checked)
    }
}

/// Fills in the defaults.
pub(super) fn complete(fields: &mut Map<String, Value>, _features: &FeatureGates) {
    set_default(fields, "bindTimeoutSeconds", || {
        json!(VolumeBindingArgs::default().bind_timeout.as_secs())
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    /// F-35, PL-147.
    #[test]
    fn the_timeout_is_not_negative_and_there_is_no_shape() {
        for (args, expected) in [
            (json!(null), Ok(600)),
            (json!({"bindTimeoutSeconds": 0, "shape": null}), Ok(0)),
            (
                json!({"bindTimeoutSeconds": -1}),
                Err(
                    "bindTimeoutSeconds: Invalid value: -1: invalid BindTimeoutSeconds, should not be a negative value",
                ),
            ),
            (
                json!({"shape": []}),
                Err(
                    "shape: Forbidden: needs the feature gate StorageCapacityScoring, which Berth does not have",
                ),
            ),
        ] {
            let got = VolumeBindingArgs::decode(&args).map(|args| args.bind_timeout.as_secs());
            assert_eq!(
                got.map_err(|e| e.to_string()),
                expected.map_err(str::to_owned),
                "{args}"
            );
        }
    }
}
