//! What is written out, and that it can be read again. Edge case 258.

use super::*;

/// What is at a path such as `profiles.0.schedulerName`.
fn at<'a>(value: &'a Value, path: &str) -> &'a Value {
    let pointer = format!("/{}", path.replace('.', "/"));
    value
        .pointer(&pointer)
        .unwrap_or_else(|| panic!("nothing at {path} in {value:#}"))
}

/// Every scalar of a value, with its path.
fn scalars(path: &str, value: &Value, into: &mut Vec<(String, Value)>) {
    let below = |name: &str| {
        if path.is_empty() {
            name.to_owned()
        } else {
            format!("{path}.{name}")
        }
    };
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            for (name, value) in fields {
                scalars(&below(name), value, into);
            }
        }
        Value::Array(list) if !list.is_empty() => {
            for (i, value) in list.iter().enumerate() {
                scalars(&below(&i.to_string()), value, into);
            }
        }
        other => into.push((path.to_owned(), other.clone())),
    }
}

/// F-30, F-33, case 258, and the default plugins: the configuration of somebody who says nothing, in full.
#[test]
fn the_default_configuration_is_kube_schedulers() {
    let mut expected: Vec<(String, Value)> = [
        ("apiVersion", json!("kubescheduler.config.k8s.io/v1")),
        ("kind", json!("KubeSchedulerConfiguration")),
        ("parallelism", json!(16)),
        ("percentageOfNodesToScore", json!(0)),
        ("podInitialBackoffSeconds", json!(1)),
        ("podMaxBackoffSeconds", json!(10)),
        ("enableProfiling", json!(true)),
        ("enableContentionProfiling", json!(true)),
        ("clientConnection.acceptContentTypes", json!("")),
        (
            "clientConnection.contentType",
            json!("application/vnd.kubernetes.protobuf"),
        ),
        ("clientConnection.kubeconfig", json!("")),
        ("clientConnection.qps", json!(50)),
        ("clientConnection.burst", json!(100)),
        ("leaderElection.leaderElect", json!(true)),
        ("leaderElection.leaseDuration", json!("15s")),
        ("leaderElection.renewDeadline", json!("10s")),
        ("leaderElection.retryPeriod", json!("2s")),
        ("leaderElection.resourceLock", json!("leases")),
        ("leaderElection.resourceName", json!("kube-scheduler")),
        ("leaderElection.resourceNamespace", json!("kube-system")),
        ("profiles.0.schedulerName", json!("default-scheduler")),
    ]
    .map(|(path, value)| (path.to_owned(), value))
    .to_vec();
    for point in [
        "preEnqueue",
        "queueSort",
        "preFilter",
        "filter",
        "postFilter",
        "preScore",
        "score",
        "reserve",
        "permit",
        "preBind",
        "bind",
        "postBind",
        "placementGenerate",
        "placementScore",
    ] {
        expected.push((format!("profiles.0.plugins.{point}"), json!({})));
    }
    for (i, (name, weight)) in [
        ("SchedulingGates", 0),
        ("PrioritySort", 0),
        ("NodeUnschedulable", 0),
        ("NodeName", 0),
        ("TaintToleration", 3),
        ("NodeAffinity", 2),
        ("NodePorts", 0),
        ("NodeResourcesFit", 1),
        ("VolumeRestrictions", 0),
        ("NodeVolumeLimits", 0),
        ("VolumeBinding", 0),
        ("VolumeZone", 0),
        ("PodTopologySpread", 2),
        ("InterPodAffinity", 2),
        ("DynamicResources", 2),
        ("DefaultPreemption", 0),
        ("NodeResourcesBalancedAllocation", 1),
        ("ImageLocality", 1),
        ("DefaultBinder", 0),
        ("NodeDeclaredFeatures", 0),
    ]
    .into_iter()
    .enumerate()
    {
        let path = format!("profiles.0.plugins.multiPoint.enabled.{i}");
        expected.push((format!("{path}.name"), json!(name)));
        expected.push((format!("{path}.weight"), json!(weight)));
    }
    let args: [(&str, &[(&str, Value)]); 8] = [
        (
            "DefaultPreemption",
            &[
                ("minCandidateNodesAbsolute", json!(100)),
                ("minCandidateNodesPercentage", json!(10)),
            ],
        ),
        (
            "DynamicResources",
            &[
                ("bindingTimeout", json!("10m0s")),
                ("filterTimeout", json!("10s")),
            ],
        ),
        (
            "InterPodAffinity",
            &[
                ("hardPodAffinityWeight", json!(1)),
                ("ignorePreferredTermsOfExistingPods", json!(false)),
            ],
        ),
        ("NodeAffinity", &[]),
        (
            "NodeResourcesBalancedAllocation",
            &[
                ("resources.0.name", json!("cpu")),
                ("resources.0.weight", json!(1)),
                ("resources.1.name", json!("memory")),
                ("resources.1.weight", json!(1)),
            ],
        ),
        (
            "NodeResourcesFit",
            &[
                ("scoringStrategy.type", json!("LeastAllocated")),
                ("scoringStrategy.resources.0.name", json!("cpu")),
                ("scoringStrategy.resources.0.weight", json!(1)),
                ("scoringStrategy.resources.1.name", json!("memory")),
                ("scoringStrategy.resources.1.weight", json!(1)),
            ],
        ),
        ("PodTopologySpread", &[("defaultingType", json!("System"))]),
        ("VolumeBinding", &[("bindTimeoutSeconds", json!(600))]),
    ];
    for (i, (name, fields)) in args.into_iter().enumerate() {
        let path = format!("profiles.0.pluginConfig.{i}");
        expected.push((format!("{path}.name"), json!(name)));
        expected.push((format!("{path}.args.kind"), json!(format!("{name}Args"))));
        expected.push((
            format!("{path}.args.apiVersion"),
            json!("kubescheduler.config.k8s.io/v1"),
        ));
        for (field, value) in fields {
            expected.push((format!("{path}.args.{field}"), value.clone()));
        }
    }
    expected.sort_by(|a, b| a.0.cmp(&b.0));

    let yaml = Config::new(FeatureGates::default()).to_yaml();
    let written: Value = serde_saphyr::from_str(&yaml).expect("YAML");
    let mut got = Vec::new();
    scalars("", &written, &mut got);
    got.sort_by(|a, b| a.0.cmp(&b.0));
    assert_eq!(got, expected, "{yaml}");
}

#[test]
fn the_written_text_reads_like_yaml() {
    let yaml = Config::new(FeatureGates::default()).to_yaml();
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
        let again = parse(&yaml, "again", FeatureGates::default())
            .unwrap_or_else(|e| panic!("{e}\n{yaml}"));
        assert_eq!(again.to_value(), first.to_value(), "{yaml}");
        assert_eq!(again.extenders, first.extenders);
        assert_eq!(again.leader_election, first.leader_election);
        assert_eq!(again.client_connection, first.client_connection);
    }
}
