//! `KubeletRejectionsArgs`: the conditions for the exclusion of a node, and the lifetime of rejections.

use crate::args::{Problems, decode, set_default};
use berth_api::GoDuration;
use berth_framework::FeatureGates;
use berth_framework::cluster::RejectionPolicy;
use berth_framework::registry::{ArgsError, FactoryContext};
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// The greatest configurable number of rejections before a node is excluded. At most this number is remembered.
const EXCLUDE_AFTER_MAX: i64 = 100;
/// The shortest and the longest span.
const SPANS: [GoDuration; 2] = [GoDuration::from_secs(1), GoDuration::from_secs(24 * 3600)];

/// The arguments, checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct KubeletRejectionsArgs {
    /// The number of rejections within the window that exclude a node.
    exclude_after: i64,
    /// The time within which rejections are counted.
    window: GoDuration,
    /// The time for which a node is excluded.
    exclude_for: GoDuration,
    /// The time after which a rejection counts half as much in scores.
    half_life: GoDuration,
}

impl Default for KubeletRejectionsArgs {
    fn default() -> Self {
        Self {
            exclude_after: 3,
            window: GoDuration::from_secs(600),
            exclude_for: GoDuration::from_secs(300),
            half_life: GoDuration::from_secs(300),
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct KubeletRejectionsWire {
    exclude_after: Option<i64>,
    window: Option<String>,
    exclude_for: Option<String>,
    half_life: Option<String>,
}

impl KubeletRejectionsArgs {
    /// Reads the arguments.
    ///
    /// # Errors
    /// Everything that is wrong with them.
    pub(super) fn decode(cx: &FactoryContext<'_>) -> Result<Self, ArgsError> {
        let wire: KubeletRejectionsWire = decode(cx.args, "KubeletRejectionsArgs")?;
        let defaults = Self::default();
        let mut problems = Problems::default();
        let exclude_after = wire.exclude_after.unwrap_or(defaults.exclude_after);
        if !(1..=EXCLUDE_AFTER_MAX).contains(&exclude_after) {
            let why = format!("must be between 1 and {EXCLUDE_AFTER_MAX}");
            problems.invalid("excludeAfter", exclude_after, why);
        }
        let mut span = |field: &str, given: Option<String>, default: GoDuration| {
            let Some(given) = given else {
                return default;
            };
            match given.parse::<GoDuration>() {
                Ok(span) if (SPANS[0]..=SPANS[1]).contains(&span) => return span,
                Ok(span) => {
                    let why = format!("must be between {} and {}", SPANS[0], SPANS[1]);
                    problems.invalid(field, json!(span.to_string()), why);
                }
                Err(error) => problems.invalid(field, Value::from(given), error),
            }
            default
        };
        let checked = Self {
            exclude_after,
            window: span("window", wire.window, defaults.window),
            exclude_for: span("excludeFor", wire.exclude_for, defaults.exclude_for),
            half_life: span("halfLife", wire.half_life, defaults.half_life),
        };
        problems.or(checked)
    }

    /// The same for the memory of rejections.
    pub(super) fn policy(&self) -> RejectionPolicy {
        RejectionPolicy {
            exclude_after: usize::try_from(self.exclude_after).unwrap_or(1).max(1),
            window: self.window.as_duration(),
            exclude_for: self.exclude_for.as_duration(),
            half_life: self.half_life.as_duration(),
        }
    }
}

/// Fills in the defaults. A span that is given is written as Go prints it.
pub(super) fn complete(fields: &mut Map<String, Value>, _features: &FeatureGates) {
    let defaults = KubeletRejectionsArgs::default();
    set_default(fields, "excludeAfter", || json!(defaults.exclude_after));
    for (field, span) in [
        ("window", defaults.window),
        ("excludeFor", defaults.exclude_for),
        ("halfLife", defaults.half_life),
    ] {
        set_default(fields, field, || json!(span.to_string()));
        let given = fields.get(field).and_then(Value::as_str);
        if let Some(Ok(given)) = given.map(str::parse::<GoDuration>) {
            fields.insert(field.to_owned(), json!(given.to_string()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// PL-361: the arguments with their defaults and limits.
    #[test]
    fn arguments_are_read_and_checked() {
        let features = FeatureGates::default();
        for (args, outcome) in [
            (json!(null), Ok("3 10m0s 5m0s 5m0s")),
            (
                json!({"excludeAfter": 1, "window": "1m", "excludeFor": "24h", "halfLife": "1s"}),
                Ok("1 1m0s 24h0m0s 1s"),
            ),
            (
                json!({"excludeAfter": 0, "window": "999ms", "excludeFor": "25h", "halfLife": "1"}),
                Err(
                    "excludeAfter: Invalid value: 0: must be between 1 and 100, \
                     window: Invalid value: \"999ms\": must be between 1s and 24h0m0s, \
                     excludeFor: Invalid value: \"25h0m0s\": must be between 1s and 24h0m0s, \
                     halfLife: Invalid value: \"1\": time: missing unit in duration \"1\"",
                ),
            ),
            (
                json!({"excludeAfter": 101}),
                Err("excludeAfter: Invalid value: 101: must be between 1 and 100"),
            ),
            (json!({"after": 3}), Err("")),
        ] {
            let cx = FactoryContext {
                args: &args,
                features: &features,
            };
            let got = KubeletRejectionsArgs::decode(&cx)
                .map(|args| {
                    let KubeletRejectionsArgs {
                        exclude_after,
                        window,
                        exclude_for,
                        half_life,
                    } = args;
                    format!("{exclude_after} {window} {exclude_for} {half_life}")
                })
                .map_err(|e| e.to_string());
            match outcome {
                Ok(expected) => assert_eq!(got.as_deref(), Ok(expected), "{args}"),
                Err("") => assert!(got.is_err_and(|e| e.contains("unknown field `after`"))),
                Err(expected) => assert_eq!(got, Err(expected.to_owned()), "{args}"),
            }
        }
    }

    #[test]
    fn defaults_are_written_out() {
        let mut fields = Map::new();
        fields.insert("window".to_owned(), json!("90s"));
        complete(&mut fields, &FeatureGates::default());
        let expected =
            json!({"excludeAfter": 3, "window": "1m30s", "excludeFor": "5m0s", "halfLife": "5m0s"});
        assert_eq!(Value::Object(fields), expected);
    }
}
