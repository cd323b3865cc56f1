//! Fields that extenders alone check are left to them, and a time to answer that is none.

use super::*;
use berth_profile::ProfileSpec;

fn ignoring(names: &[&str]) -> Value {
    let resources = names
        .iter()
        .map(|name| json!({"name": name, "ignoredByScheduler": true}));
    json!({"urlPrefix": "http://e", "managedResources": resources.collect::<Value>()})
}

fn ignored(spec: &ProfileSpec) -> Value {
    let mut configs = spec.plugin_config.iter();
    let fit = configs.find(|config| config.name == "NodeResourcesFit");
    fit.map(|config| config.args["ignoredResources"].clone())
        .unwrap_or_default()
}

/// F-44: the resources are added in every profile to the ignored ones; only resources declared as ignored are added.
#[test]
fn every_profile_leaves_to_extenders_what_they_look_after_alone() {
    let config = config(&json!({
        "extenders": [
            ignoring(&["example.com/a"]),
            {"managedResources": [{"name": "example.com/counted"}]},
            ignoring(&["example.com/b", "example.com/own"]),
        ],
        "profiles": [
            {"schedulerName": "one"},
            {"schedulerName": "two", "pluginConfig": [
                {"name": "NodeResourcesFit", "args": {"ignoredResources": ["example.com/own"]}},
            ]},
        ],
    }));
    let specs = config.profile_specs();
    assert_eq!(
        ignored(&specs[0]),
        json!(["example.com/a", "example.com/b", "example.com/own"])
    );
    assert_eq!(
        ignored(&specs[1]),
        json!(["example.com/own", "example.com/a", "example.com/b"])
    );
    let plain =
        super::config(&json!({"extenders": [{"managedResources": [{"name": "example.com/a"}]}]}));
    assert_eq!(ignored(&plain.profile_specs()[0]), Value::Null);
}

/// F-44: a profile without NodeResourcesFit cannot leave it anything; with arguments of another kind neither.
#[test]
fn a_profile_that_cannot_leave_it_to_them_is_refused() {
    let with = |profile: Value| json!({"extenders": [ignoring(&["example.com/a"])], "profiles": [profile]});
    let without = json!({"plugins": {"multiPoint": {"disabled": [{"name": "NodeResourcesFit"}]}}});
    let problems_of = problems(&with(without.clone()));
    assert_eq!(problems_of.len(), 1, "{problems_of:?}");
    assert!(
        problems_of[0].starts_with(
            "profiles[0].pluginConfig: couldn't build extenders: can't find NodeResourcesFitArgs in plugin config"
        ),
        "{problems_of:?}"
    );
    let of_another_kind = json!({"pluginConfig": [
        {"name": "NodeResourcesFit", "args": {"kind": "NodeAffinityArgs"}},
    ]});
    let problems_of = problems(&with(of_another_kind));
    assert!(
        problems_of[0].starts_with("profiles[0].pluginConfig[0].args: has to match plugin args"),
        "{problems_of:?}"
    );
    // Nothing is wrong with such a profile otherwise.
    config(
        &json!({"profiles": [without], "extenders": [{"managedResources": [{"name": "example.com/a"}]}]}),
    );
}

/// F-37: five seconds without a value, or with one that allows no wait.
#[test]
fn the_timeout_of_a_request_is_five_seconds_by_default() {
    for (given, expected) in [
        (Value::Null, "5s"),
        (json!("0s"), "5s"),
        (json!("-1s"), "5s"),
        (json!("250ms"), "250ms"),
    ] {
        let config =
            config(&json!({"extenders": [{"urlPrefix": "http://e", "httpTimeout": given}]}));
        assert_eq!(
            config.extenders[0].http_timeout.to_string(),
            expected,
            "{given}"
        );
    }
}
