//! Rules that taint devices.

use crate::devices::{claim, using, world_with};
use berth_api::Kind;
use berth_framework::{Feature, FeatureGates};
use serde_json::{Value, json};

/// PL-175: a DeviceTaintRule makes the devices that it selects unavailable to claims that do not tolerate its taint; a
/// change of the rule wakes the pods that wait for devices.
#[test]
fn rules_taint_devices() {
    let rule = |effect: &str, pool: &str| {
        json!({
            "metadata": {"name": "drain"},
            "spec": {
                "deviceSelector": {"driver": "gpu.example.com", "pool": pool},
                "taint": {"key": "example.com/drain", "effect": effect},
            },
        })
    };
    let tolerating = || {
        let mut claim = claim("mine");
        claim["spec"]["devices"]["requests"][0]["exactly"]["tolerations"] =
            json!([{"key": "example.com/drain", "operator": "Exists"}]);
        claim
    };
    for (situation, rule_before, claim, change, placed) in [
        (
            "tolerated",
            rule("NoSchedule", "n1"),
            tolerating(),
            None,
            true,
        ),
        (
            "of another pool",
            rule("NoSchedule", "n2"),
            claim("mine"),
            None,
            true,
        ),
        (
            "it only informs",
            rule("None", "n1"),
            claim("mine"),
            None,
            true,
        ),
        (
            "not tolerated",
            rule("NoExecute", "n1"),
            claim("mine"),
            None,
            false,
        ),
        (
            "changed",
            rule("NoSchedule", "n1"),
            claim("mine"),
            Some(Some(rule("NoSchedule", "n2"))),
            true,
        ),
        (
            "deleted",
            rule("NoSchedule", "n1"),
            claim("mine"),
            Some(None),
            true,
        ),
    ] {
        let features = FeatureGates::default().with(Feature::DRADeviceTaintRules, true);
        let mut w = world_with(features, &["n1"]);
        w.object(Kind::DeviceTaintRule, rule_before.clone());
        w.object(Kind::ResourceClaim, claim);
        w.pod(using("p", &["mine"]));
        let mut tried = w.attempt_named();
        if let Some(change) = change {
            assert!(tried.contains("cannot allocate"), "{situation}: {tried}");
            w.answer_all();
            match change {
                Some(rule) => {
                    w.object(Kind::DeviceTaintRule, rule);
                }
                None => w.object_gone(Kind::DeviceTaintRule, &rule_before),
            }
            w.wait(10);
            tried = w.attempt_named();
        }
        assert_eq!(tried == "p on n1", placed, "{situation}: {tried}");
    }
}

/// PL-175: a rule without a selector applies to all devices until 1.37, and to none since 1.38. An empty selector
/// selects all devices.
#[test]
fn a_taint_rule_without_a_selector_applies_to_no_device_since_1_38() {
    let rule = |selector: Option<Value>| {
        let mut spec = json!({"taint": {"key": "broken", "effect": "NoSchedule"}});
        if let Some(selector) = selector {
            spec["deviceSelector"] = selector;
        }
        json!({"metadata": {"name": "rule"}, "spec": spec})
    };
    for (situation, before, after, placed) in [
        ("no selector", rule(None), None, [false, false, true]),
        ("an empty one", rule(Some(json!({}))), None, [false; 3]),
        (
            "another pool",
            rule(Some(json!({"pool": "n2"}))),
            None,
            [true; 3],
        ),
        (
            "the selector is removed",
            rule(Some(json!({}))),
            Some(rule(None)),
            [false, false, true],
        ),
    ] {
        for (release, placed) in berth_api::Release::ALL.into_iter().zip(placed) {
            let features = FeatureGates::of(release).with(Feature::DRADeviceTaintRules, true);
            let mut w = world_with(features, &["n1"]);
            w.object(Kind::DeviceTaintRule, before.clone());
            w.object(Kind::ResourceClaim, claim("mine"));
            w.pod(using("p", &["mine"]));
            let mut tried = w.attempt_named();
            if let Some(after) = &after {
                w.answer_all();
                w.object(Kind::DeviceTaintRule, after.clone());
                w.wait(10);
                if placed {
                    tried = w.attempt_named();
                }
            }
            assert_eq!(
                tried == "p on n1",
                placed,
                "{situation} in {release}: {tried}"
            );
        }
    }
}
