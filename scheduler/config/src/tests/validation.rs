//! F-34: the rules that do not depend on plugins, with their messages.

use super::*;

/// The same table contains valid input, without an expected problem.
fn check(cases: &[(Value, &[&str])]) {
    for (fields, expected) in cases {
        assert_eq!(problems(fields), *expected, "{fields}");
    }
}

/// F-34.
#[test]
fn numbers_are_in_their_ranges() {
    check(&[
        (json!({"parallelism": 1}), &[]),
        (
            json!({"parallelism": 0}),
            &["parallelism: Invalid value: 0: should be an integer value greater than zero"],
        ),
        (json!({"clientConnection": {"burst": 1, "qps": -1}}), &[]),
        (
            json!({"clientConnection": {"burst": -1}}),
            &["clientConnection.burst: Invalid value: -1: must be non-negative"],
        ),
        (json!({"percentageOfNodesToScore": 100}), &[]),
        (
            json!({"percentageOfNodesToScore": 101}),
            &["percentageOfNodesToScore: Invalid value: 101: not in valid range [0-100]"],
        ),
        (
            json!({"percentageOfNodesToScore": -1}),
            &["percentageOfNodesToScore: Invalid value: -1: not in valid range [0-100]"],
        ),
        (
            json!({"profiles": [{"percentageOfNodesToScore": 101}]}),
            &[
                "profiles[0].percentageOfNodesToScore: Invalid value: 101: not in valid range [0-100]",
            ],
        ),
        (json!({"podInitialBackoffSeconds": 10}), &[]),
        (
            json!({"podInitialBackoffSeconds": 0}),
            &["podInitialBackoffSeconds: Invalid value: 0: must be greater than 0"],
        ),
        (
            json!({"podInitialBackoffSeconds": 11}),
            &[
                "podMaxBackoffSeconds: Invalid value: 10: must be greater than or equal to PodInitialBackoffSeconds",
            ],
        ),
    ]);
}

#[test]
fn content_types_are_those_that_berth_speaks() {
    let connection = |content_type: &str, accept: &str| json!({"clientConnection": {"contentType": content_type, "acceptContentTypes": accept}});
    check(&[
        (connection("", ""), &[]),
        (
            connection(
                "application/json",
                "application/vnd.kubernetes.protobuf, application/json;q=0.9",
            ),
            &[],
        ),
        (
            connection(
                "application/vnd.kubernetes.protobuf",
                "application/yaml,*/*",
            ),
            &[],
        ),
        (
            connection("application/cbor", "application/yaml, text/html"),
            &[
                "clientConnection.contentType: Invalid value: \"application/cbor\": must be one of the supported types: \
                 application/vnd.kubernetes.protobuf and application/json",
                "clientConnection.acceptContentTypes: Invalid value: \"application/yaml, text/html\": must contain one of \
                 the supported types: application/vnd.kubernetes.protobuf and application/json",
            ],
        ),
    ]);
}

/// F-34.
#[test]
fn leader_election_can_work() {
    let election = |fields: Value| json!({"leaderElection": fields});
    check(&[
        (election(json!({"leaseDuration": "16s"})), &[]),
        // Zero and empty are the defaults.
        (
            election(json!({"leaseDuration": "0s", "resourceName": ""})),
            &[],
        ),
        // Without leader election its fields are not validated.
        (
            election(json!({"leaderElect": false, "leaseDuration": "-1s", "resourceLock": "x"})),
            &[],
        ),
        (
            election(json!({"leaseDuration": "10s"})),
            &[
                "leaderElection.leaseDuration: Invalid value: \"10s\": must be greater than `RenewDeadline`",
            ],
        ),
        (
            election(json!({"renewDeadline": "-1s"})),
            &[
                "leaderElection.renewDeadline: Invalid value: \"-1s\": must be greater than zero",
                "leaderElection.renewDeadline: Invalid value: \"-1s\": renewDeadline must be greater than \
                 retryPeriod*JitterFactor (1.2)",
            ],
        ),
        (
            election(json!({"leaseDuration": "-1s"})),
            &[
                "leaderElection.leaseDuration: Invalid value: \"-1s\": must be greater than zero",
                "leaderElection.leaseDuration: Invalid value: \"-1s\": must be greater than `RenewDeadline`",
            ],
        ),
        (
            election(json!({"leaseDuration": "5s", "renewDeadline": "6s"})),
            &[
                "leaderElection.leaseDuration: Invalid value: \"5s\": must be greater than `RenewDeadline`",
            ],
        ),
        (
            election(json!({"retryPeriod": "-1s"})),
            &["leaderElection.retryPeriod: Invalid value: \"-1s\": must be greater than zero"],
        ),
        (
            election(json!({"renewDeadline": "2400ms"})),
            &[
                "leaderElection.renewDeadline: Invalid value: \"2.4s\": renewDeadline must be greater than \
                 retryPeriod*JitterFactor (1.2)",
            ],
        ),
        (election(json!({"renewDeadline": "2401ms"})), &[]),
        (
            election(json!({"resourceLock": "endpoints"})),
            &[
                "leaderElection.resourceLock: Invalid value: \"endpoints\": resourceLock value must be \"leases\"",
            ],
        ),
    ]);
}

/// F-34, case 256: flags take precedence over the file, and are validated with it.
#[test]
fn flags_go_before_the_file() {
    let registry = Registry::default();
    let load = |fields: &Value, adjust: fn(&mut Config)| {
        let loaded = load(
            &text(fields),
            "F",
            FeatureGates::default(),
            &registry,
            adjust,
        );
        loaded.map_err(|e| e.to_string())
    };
    let message = load(&json!({}), |config| {
        config.leader_election.resource_lock.clear();
        config.leader_election.resource_namespace.clear();
        config.leader_election.resource_name.clear();
        config.profiles.clear();
    })
    .expect_err("a name is needed");
    assert_eq!(
        message,
        "F: leaderElection.resourceLock: Required value\nF: leaderElection.resourceNamespace: Required value\n\
         F: leaderElection.resourceName: Required value\nF: leaderElection.resourceLock: Invalid value: \"\": \
         resourceLock value must be \"leases\"\nF: profiles: Required value"
    );
    let message = load(
        &json!({"leaderElection": {"leaseDuration": "1s"}}),
        |config| {
            config.leader_election.leader_elect = false;
            config.profiles.truncate(1);
            config.parallelism = -1;
        },
    )
    .expect_err("the flag is bad");
    assert!(
        message.contains("parallelism: Invalid value: -1"),
        "{message}"
    );
    assert!(!message.contains("leaderElection"), "{message}");
}

/// F-34.
#[test]
fn profiles_have_different_names() {
    check(&[
        (
            json!({"profiles": [{"schedulerName": "a"}, {"schedulerName": "b"}]}),
            &[],
        ),
        (
            json!({"profiles": [{"schedulerName": "a"}, {"schedulerName": "b"}, {"schedulerName": "a"}]}),
            &["profiles[2].schedulerName: Duplicate value: \"a\""],
        ),
    ]);
}

/// F-34, case 253.
#[test]
fn profiles_share_the_order_of_the_queue() {
    let profiles = |first: Value, second: Value| {
        json!({"profiles": [
            {"schedulerName": "a", "plugins": first["plugins"], "pluginConfig": first["args"]},
            {"schedulerName": "b", "plugins": second["plugins"], "pluginConfig": second["args"]},
        ]})
    };
    let sort = |names: &[&str]| {
        let enabled: Vec<Value> = names.iter().map(|name| json!({"name": name})).collect();
        json!({"plugins": {"queueSort": {"enabled": enabled, "disabled": [{"name": "*"}]}}})
    };
    let with_args = |name: &str, args: Value| {
        let mut profile = sort(&[name]);
        profile["args"] = json!([{"name": name, "args": args}]);
        profile
    };
    check(&[
        (profiles(sort(&["A"]), sort(&["A"])), &[]),
        (
            profiles(sort(&["A"]), sort(&["B"])),
            &[
                "profiles[1].plugins.queueSort: Invalid value: {\"disabled\":[\"*\"],\"enabled\":[\"B\"]}: must be \
                 the same for all profiles",
            ],
        ),
        (
            profiles(sort(&["A"]), json!({})),
            &[
                "profiles[1].plugins.queueSort: Invalid value: {\"disabled\":[],\"enabled\":[]}: must be the same \
                 for all profiles",
            ],
        ),
        (
            profiles(sort(&["A", "B"]), sort(&["A", "B"])),
            &[
                "profiles[0].plugins.queueSort.enabled: Invalid value: 2: only one queue sort plugin can be enabled",
            ],
        ),
        (
            profiles(
                with_args("A", json!({"x": 1})),
                with_args("A", json!({"x": 1})),
            ),
            &[],
        ),
        (
            profiles(
                with_args("A", json!({"x": 1})),
                with_args("A", json!({"x": 2})),
            ),
            &[
                "profiles[1].pluginConfig[0].args: Invalid value: {\"x\":2}: queueSort must be the same for all \
                 profiles",
            ],
        ),
    ]);
}

/// F-34, case 254.
#[test]
fn plugins_of_earlier_versions_are_refused() {
    const GONE: &str = "was invalid in version \"kubescheduler.config.k8s.io/v1\" (KubeSchedulerConfiguration is \
                        version \"kubescheduler.config.k8s.io/v1\")";
    let profile = |plugins: Value, config: Value| json!({"profiles": [{"plugins": plugins, "pluginConfig": config}]});
    for name in [
        "AzureDiskLimits",
        "CinderLimits",
        "EBSLimits",
        "GCEPDLimits",
    ] {
        let enabled = json!({"enabled": [{"name": "Other"}, {"name": name}]});
        assert_eq!(
            problems(&profile(
                json!({"filter": enabled}),
                json!([{"name": name}])
            )),
            [
                format!("profiles[0].plugins.filter.enabled[1]: Invalid value: \"{name}\": {GONE}"),
                format!("profiles[0].pluginConfig[0]: Invalid value: \"{name}\": {GONE}"),
            ]
        );
        // multiPoint is not checked here; the missing plugin is reported when the profile is built.
        assert_eq!(
            problems(&profile(json!({"multiPoint": enabled}), json!([]))),
            [""; 0]
        );
        let disabled = json!({"filter": {"disabled": [{"name": name}]}});
        assert_eq!(problems(&profile(disabled, json!([]))), [""; 0]);
    }
}

/// F-31, F-34, case 254.
#[test]
fn arguments_are_those_of_their_plugin() {
    let config = |config: Value| json!({"profiles": [{"pluginConfig": config}]});
    check(&[
        (
            config(json!([
                {"name": "NodeAffinity", "args": {"kind": "NodeAffinityArgs", "apiVersion": API_VERSION}},
                {"name": "Custom", "args": {"kind": "WhateverArgs", "apiVersion": "example.com/v7", "depth": [1]}},
                {"name": "NodeName"},
            ])),
            &[],
        ),
        (
            config(json!([{"name": "InterPodAffinity"}, {"name": "InterPodAffinity", "args": {}}])),
            &["profiles[0].pluginConfig[1]: Duplicate value: \"InterPodAffinity\""],
        ),
        (
            config(json!([{"name": "NodeResourcesFit", "args": {"kind": "InterPodAffinityArgs"}}])),
            &[
                "profiles[0].pluginConfig[0].args: has to match plugin args; the kind is \"InterPodAffinityArgs\"; \
                 NodeResourcesFit takes NodeResourcesFitArgs",
            ],
        ),
        (
            config(json!([{"name": "NodeAffinity", "args": {"apiVersion": "v1"}}])),
            &[
                "profiles[0].pluginConfig[0].args.apiVersion: no kind \"NodeAffinityArgs\" is registered for version \
                 \"v1\"; leave it out or set it to \"kubescheduler.config.k8s.io/v1\"",
            ],
        ),
        (
            config(json!([{"name": "NodeName", "args": {"x": 1}}])),
            &[
                "profiles[0].pluginConfig[0].args: plugin NodeName takes no arguments; leave them out",
            ],
        ),
    ]);
}

/// F-26.
#[test]
fn placement_plugins_are_configured_like_others() {
    let with = |field: &str, set: Value| json!({"profiles": [{"plugins": {field: set}}]});
    let count = json!({"enabled": [{"name": "PodGroupPodsCount", "weight": 2}]});
    let generator = json!({"enabled": [{"name": "TopologyPlacementGenerator"}]});
    check(&[
        (with("placementScore", count), &[]),
        (with("placementGenerate", generator), &[]),
        (
            with("placementGenerate", json!({"disabled": [{"name": "*"}]})),
            &[],
        ),
        (
            with(
                "podGroupPostFilter",
                json!({"disabled": [{"name": "DefaultPreemption"}]}),
            ),
            &[],
        ),
    ]);
}

/// F-34, case 255.
#[test]
fn extenders_get_along() {
    let extenders = |extenders: Value| json!({"extenders": extenders});
    let managing = |names: &[&str]| {
        let resources: Vec<Value> = names.iter().map(|name| json!({"name": name})).collect();
        json!({"urlPrefix": "http://e", "managedResources": resources})
    };
    check(&[
        (
            extenders(json!([{"prioritizeVerb": "p", "weight": 1}, {"filterVerb": "f"}])),
            &[],
        ),
        (
            extenders(json!([{"prioritizeVerb": "p", "weight": -1}, {"prioritizeVerb": "p"}])),
            &[
                "extenders[0].weight: Invalid value: -1: must have a positive weight applied to it",
                "extenders[1].weight: Invalid value: 0: must have a positive weight applied to it",
            ],
        ),
        (
            extenders(json!([{"bindVerb": "b"}, {"bindVerb": "b"}])),
            &[
                "extenders: Invalid value: \"found 2 extenders implementing bind\": only one extender can implement \
                 bind",
            ],
        ),
        (
            extenders(json!([
                managing(&["example.com/a"]),
                managing(&["example.com/b", "example.com/a"])
            ])),
            &[
                "extenders[1].managedResources[1].name: Invalid value: \"example.com/a\": duplicate extender managed \
                 resource name",
            ],
        ),
        (
            extenders(json!([managing(&["kubernetes.io/foo"])])),
            &[
                "extenders[0].managedResources[0].name: Invalid value: \"kubernetes.io/foo\": is an invalid extended \
                 resource name",
            ],
        ),
    ]);
    let unqualified = problems(&extenders(json!([managing(&["example.com/"])])));
    assert!(
        unqualified[0].starts_with(
            "extenders[0].managedResources[0].name: Invalid value: \"example.com/\": name"
        ),
        "{unqualified:?}"
    );
}

/// F-37.
#[test]
fn an_extender_has_five_seconds() {
    let config = config(&json!({"extenders": [{"urlPrefix": "http://e"}, {"httpTimeout": "0s"}]}));
    let timeouts: Vec<String> = config
        .extenders
        .iter()
        .map(|e| e.http_timeout.to_string())
        .collect();
    assert_eq!(timeouts, ["5s", "5s"]);
}
