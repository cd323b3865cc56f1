//! `DynamicResourcesArgs`: timeouts.

use crate::args::{Problems, decode, set_default};
use berth_api::GoDuration;
use berth_framework::registry::{ArgsError, FactoryContext};
use berth_framework::{Feature, FeatureGates};
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// The gates that `filterTimeout` needs.
const FILTER_TIMEOUT_GATES: &[Feature] = &[Feature::DRASchedulerFilterTimeout];
/// The gates that `bindingTimeout` needs.
const BINDING_TIMEOUT_GATES: &[Feature] = &[
    Feature::DRADeviceBindingConditions,
    Feature::DRAResourceClaimDeviceStatus,
];

/// The checked arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DynamicResourcesArgs {
    /// The time limit of the search for devices on one node; zero: none.
    pub filter_timeout: GoDuration,
    /// The time in which devices must be ready before a pod is bound.
    pub binding_timeout: GoDuration,
}

impl Default for DynamicResourcesArgs {
    fn default() -> Self {
        Self {
            filter_timeout: GoDuration::from_secs(10),
            binding_timeout: GoDuration::from_secs(600),
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct DynamicResourcesWire {
    filter_timeout: Option<String>,
    binding_timeout: Option<String>,
}

impl DynamicResourcesArgs {
    /// Reads the arguments.
    ///
    /// # Errors
    /// Everything that is wrong with them.
    pub fn decode(cx: &FactoryContext<'_>) -> Result<Self, ArgsError> {
        let wire: DynamicResourcesWire = decode(cx.args, "DynamicResourcesArgs")?;
        let mut checked = Self::default();
        let mut problems = Problems::default();
        if let Some(timeout) = read(
            "filterTimeout",
            wire.filter_timeout,
            FILTER_TIMEOUT_GATES,
            cx.features,
            &mut problems,
        ) {
            checked.filter_timeout = timeout;
            // Zero means no limit (PL-154).
            if timeout < GoDuration::from_secs(0) {
                let why = "must be zero or positive";
                problems.invalid("filterTimeout", quoted(timeout), why);
            }
        }
        if let Some(timeout) = read(
            "bindingTimeout",
            wire.binding_timeout,
            BINDING_TIMEOUT_GATES,
            cx.features,
            &mut problems,
        ) {
            checked.binding_timeout = timeout;
            if timeout < GoDuration::from_secs(1) {
                let why = "must be at least 1 second";
                problems.invalid("bindingTimeout", quoted(timeout), why);
            }
        }
        problems.or(checked)
    }
}

fn quoted(timeout: GoDuration) -> Value {
    timeout.to_string().into()
}

/// A timeout that needs feature gates.
fn read(
    field: &str,
    given: Option<String>,
    needs: &[Feature],
    features: &FeatureGates,
    problems: &mut Problems,
) -> Option<GoDuration> {
    let given = given?;
    for feature in needs {
        if !features.enabled(*feature) {
            let why = format!("remove it or turn on the feature gate {feature}");
            problems.forbidden(field, why);
        }
    }
    match given.parse() {
        Ok(timeout) => Some(timeout),
        Err(error) => {
            problems.invalid(field, Value::from(given), error);
            None
        }
    }
}

/// Fills in the defaults. A timeout that is given is written as Go prints it.
pub(super) fn complete(fields: &mut Map<String, Value>, features: &FeatureGates) {
    let defaults = DynamicResourcesArgs::default();
    for (field, timeout, needs) in [
        (
            "filterTimeout",
            defaults.filter_timeout,
            FILTER_TIMEOUT_GATES,
        ),
        (
            "bindingTimeout",
            defaults.binding_timeout,
            BINDING_TIMEOUT_GATES,
        ),
    ] {
        if needs.iter().all(|gate| features.enabled(*gate)) {
            set_default(fields, field, || json!(timeout.to_string()));
        }
        let given = fields.get(field).and_then(Value::as_str);
        if let Some(Ok(given)) = given.map(str::parse::<GoDuration>) {
            fields.insert(field.to_owned(), json!(given.to_string()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// F-35, PL-154.
    #[test]
    fn timeouts_are_read_and_checked() {
        let all = FeatureGates::default();
        let none = all
            .with(Feature::DRASchedulerFilterTimeout, false)
            .with(Feature::DRADeviceBindingConditions, false);
        for (features, args, outcome) in [
            (all, json!(null), Ok("10s 10m0s")),
            (none, json!(null), Ok("10s 10m0s")),
            (
                all,
                json!({"filterTimeout": "0s", "bindingTimeout": "1s"}),
                Ok("0s 1s"),
            ),
            (
                all,
                json!({"filterTimeout": "-1s", "bindingTimeout": "999ms"}),
                Err(
                    "filterTimeout: Invalid value: \"-1s\": must be zero or positive, bindingTimeout: Invalid value: \"999ms\": must be at least 1 second",
                ),
            ),
            (
                all,
                json!({"filterTimeout": "1"}),
                Err("filterTimeout: Invalid value: \"1\": time: missing unit in duration \"1\""),
            ),
            (
                none,
                json!({"filterTimeout": "1s", "bindingTimeout": "1s"}),
                Err(
                    "filterTimeout: Forbidden: remove it or turn on the feature gate DRASchedulerFilterTimeout, bindingTimeout: Forbidden: remove it or turn on the feature gate DRADeviceBindingConditions",
                ),
            ),
        ] {
            let cx = FactoryContext {
                args: &args,
                features: &features,
            };
            let got = DynamicResourcesArgs::decode(&cx)
                .map(|args| format!("{} {}", args.filter_timeout, args.binding_timeout))
                .map_err(|e| e.to_string());
            let outcome = outcome.map(str::to_owned).map_err(str::to_owned);
            assert_eq!(got, outcome, "{args}");
        }
    }
}
