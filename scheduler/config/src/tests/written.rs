//! The written configuration, and that it can be read again. Edge case 258.

use super::*;

/// The value at a path such as `profiles.0.schedulerName`.
fn at<'a>(value: &'a Value, path: &str) -> &'a Value {
    let pointer = format!("/{}", path.replace('.', "/"));
    value
        .pointer(&pointer)
        .unwrap_or_else(|| panic!("nothing at {path} in {value:#}"))
}

/// The configuration that kube-scheduler 1.36.2 writes when it is run with `--leader-elect=false --kubeconfig
/// kubeconfig`.
const REFERENCE: &str = include_str!("kube-scheduler-1.36-default.yaml");

/// F-30, F-33, case 258, and the default plugins: the complete default configuration.
#[test]
fn the_default_configuration_is_kube_schedulers() {
    let mut expected: Value = serde_saphyr::from_str(REFERENCE).expect("YAML");
    // The values from the flags of that run.
    expected["clientConnection"]["kubeconfig"] = json!("");
    expected["leaderElection"]["leaderElect"] = json!(true);
    let yaml = Config::new(FeatureGates::default(), &in_tree()).to_yaml();
    let written: Value = serde_saphyr::from_str(&yaml).expect("YAML");
    assert_eq!(written, expected, "{yaml}");
}

#[test]
fn the_written_text_reads_like_yaml() {
    let yaml = Config::new(FeatureGates::default(), &in_tree()).to_yaml();
    for line in [
        "apiVersion: kubescheduler.config.k8s.io/v1",
        "  contentType: application/vnd.kubernetes.protobuf",
        "  qps: 50",
        "  leaseDuration: 15s",
    ] {
        assert!(yaml.lines().any(|l| l == line), "{line:?} in\n{yaml}");
    }
}

/// F-32, case 258.
#[test]
fn plugins_are_written_merged() {
    let config = config(
        &json!({"profiles": [{"percentageOfNodesToScore": 5, "plugins": {
        "multiPoint": {"enabled": [{"name": "Extra", "weight": 7}], "disabled": [{"name": "NodeName"}]},
        "score": {"disabled": [{"name": "*"}]},
        "placementScore": {"disabled": [{"name": "P"}]},
    }, "pluginConfig": [{"name": "Extra", "args": {"x": 1}}, {"name": "Bare"}]}]}),
    );
    let value = config.to_value();
    let multi_point = at(&value, "profiles.0.plugins.multiPoint");
    let enabled = multi_point["enabled"].as_array().expect("a list");
    assert_eq!(enabled.len(), 20);
    assert_eq!(
        enabled[2],
        json!({"name": "NodeUnschedulable", "weight": 0})
    );
    assert_eq!(enabled[3], json!({"name": "TaintToleration", "weight": 3}));
    assert_eq!(enabled[19], json!({"name": "Extra", "weight": 7}));
    assert_eq!(
        multi_point["disabled"],
        json!([{"name": "NodeName", "weight": 0}])
    );
    assert_eq!(
        at(&value, "profiles.0.plugins.score"),
        &json!({"disabled": [{"name": "*", "weight": 0}]})
    );
    assert_eq!(
        at(&value, "profiles.0.plugins.placementScore"),
        &json!({"disabled": [{"name": "P", "weight": 0}]})
    );
    assert_eq!(at(&value, "profiles.0.percentageOfNodesToScore"), &json!(5));
    let args = at(&value, "profiles.0.pluginConfig")
        .as_array()
        .expect("a list");
    assert_eq!(args[0], json!({"name": "Extra", "args": {"x": 1}}));
    assert_eq!(args[1], json!({"name": "Bare"}));
    assert_eq!(args[2]["name"], "DefaultPreemption");
}

/// Case 258.
#[test]
fn what_was_written_means_the_same_when_it_is_read() {
    for fields in [
        json!({"percentageOfNodesToScore": 0}),
        json!({
            "percentageOfNodesToScore": 30, "parallelism": 2, "delayCacheUntilActive": true, "enableProfiling": false,
            "clientConnection": {"qps": 0.1, "burst": 3, "kubeconfig": "a: b # \"c\""},
            "leaderElection": {"leaderElect": false, "leaseDuration": "1.5h"},
            "profiles": [
                {"schedulerName": "a", "percentageOfNodesToScore": 1},
                {"schedulerName": "b", "plugins": {
                    "multiPoint": {"enabled": [{"name": "X"}, {"name": "NodeName", "weight": 2}],
                                   "disabled": [{"name": "NodePorts"}]},
                    "filter": {"disabled": [{"name": "*"}], "enabled": [{"name": "NodePorts"}]},
                    "placementGenerate": {"disabled": [{"name": "*"}]},
                }, "pluginConfig": [
                    {"name": "X", "args": {"deep": [{"a": null}]}},
                    {"name": "NodeResourcesFit", "args": {"scoringStrategy": {"type": "MostAllocated"}}},
                ]},
            ],
            "extenders": [
                {"urlPrefix": "http://e"},
                {"urlPrefix": "", "prioritizeVerb": "p", "weight": 2, "httpTimeout": "1ms", "ignorable": true,
                 "managedResources": [{"name": "example.com/a", "ignoredByScheduler": true}],
                 "tlsConfig": {"insecure": true, "caData": "AAEC"}},
            ],
        }),
    ] {
        let first = config(&fields);
        let yaml = first.to_yaml();
        let again = parse_text(&yaml).unwrap_or_else(|e| panic!("{e}\n{yaml}"));
        assert_eq!(again.to_value(), first.to_value(), "{yaml}");
        assert_eq!(again.extenders, first.extenders);
        assert_eq!(again.leader_election, first.leader_election);
        assert_eq!(again.client_connection, first.client_connection);
    }
}
