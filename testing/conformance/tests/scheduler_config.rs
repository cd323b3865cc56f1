//! KubeSchedulerConfiguration with the in-tree plugins: arguments validated by the plugins, errors with their path
//! (F-35, F-36), and equal defaults in the configuration and the plugins (F-33).

use berth_config::Config;
use berth_framework::registry::FactoryContext;
use berth_framework::{Feature, FeatureGates};
use berth_plugins::default_preemption::DefaultPreemptionArgs;
use berth_plugins::dynamic_resources::DynamicResourcesArgs;
use berth_plugins::inter_pod_affinity::InterPodAffinityArgs;
use berth_plugins::node_resources::{BalancedAllocationArgs, FitArgs};
use berth_plugins::pod_topology_spread::PodTopologySpreadArgs;
use berth_plugins::volume_binding::VolumeBindingArgs;
use berth_scheduler::profile::Profiles;
use serde_json::{Value, json};

fn document(fields: Value) -> String {
    let mut document = fields;
    document["apiVersion"] = json!(berth_config::API_VERSION);
    document["kind"] = json!(berth_config::KIND);
    document.to_string()
}

/// The problems of the plugin arguments of the second profile, one per line.
fn problems(plugin_config: &Value) -> Vec<String> {
    let text = document(json!({"profiles": [
        {"schedulerName": "first"},
        {"schedulerName": "second", "pluginConfig": plugin_config},
    ]}));
    let registry = berth_plugins::in_tree();
    match berth_config::load(&text, "F", FeatureGates::default(), &registry, |_| {}) {
        Ok(_) => Vec::new(),
        Err(errors) => errors.errors.iter().map(ToString::to_string).collect(),
    }
}

#[test]
fn the_default_configuration_builds_every_default_plugin() {
    let features = FeatureGates::default();
    let registry = berth_plugins::in_tree();
    let config = Config::new(features, &berth_plugins::in_tree());
    assert_eq!(config.check("F"), Ok(()));
    let profiles =
        Profiles::build(&config.profile_specs(), &registry, &features).expect("profiles");
    let profile = profiles
        .get("default-scheduler")
        .expect("the default profile");
    let made: Vec<&str> = profile.plugins.iter().map(|p| p.name.as_str()).collect();
    let defaults = berth_scheduler::profile::default_plugins(&registry, &features);
    let expected: Vec<&str> = defaults
        .multi_point
        .enabled
        .iter()
        .map(|p| p.name.as_str())
        .collect();
    assert_eq!(made, expected);
}

/// The default arguments in a configuration are equal to the defaults of the plugins without arguments.
#[test]
fn plugins_and_configuration_have_the_same_defaults() {
    let features = FeatureGates::default();
    let config = Config::new(features, &berth_plugins::in_tree());
    let args = |plugin: &str| -> &Value {
        let mut given = config.profiles[0].plugin_config.iter();
        given
            .find(|c| c.name == plugin)
            .map_or(&Value::Null, |c| &c.args)
    };
    macro_rules! same {
        ($plugin:literal, $args:ty $(, $features:expr)?) => {
            let written = args($plugin);
            assert!(written.is_object(), $plugin);
            assert_eq!(
                <$args>::decode(written $(, $features)?),
                <$args>::decode(&Value::Null $(, $features)?),
                $plugin
            );
        };
    }
    same!("DefaultPreemption", DefaultPreemptionArgs);
    same!("InterPodAffinity", InterPodAffinityArgs);
    same!("NodeResourcesBalancedAllocation", BalancedAllocationArgs);
    same!("NodeResourcesFit", FitArgs);
    same!("PodTopologySpread", PodTopologySpreadArgs);
    same!("VolumeBinding", VolumeBindingArgs, &features);
    let timeouts = |args: &Value| {
        let features = &features;
        DynamicResourcesArgs::decode(&FactoryContext { args, features })
    };
    assert_eq!(timeouts(args("DynamicResources")), timeouts(&Value::Null));
    // Partial arguments are completed alike.
    for given in [
        json!({"scoringStrategy": {"type": "MostAllocated"}}),
        json!({"scoringStrategy": {"type": "MostAllocated", "resources": [{"name": "a"}, {"name": "b", "weight": 0}]}}),
        json!({"ignoredResources": ["example.com/a"]}),
    ] {
        let text = document(json!({"profiles": [
            {"pluginConfig": [{"name": "NodeResourcesFit", "args": given}]},
        ]}));
        let config = berth_config::parse(&text, "F", features, &berth_plugins::in_tree())
            .unwrap_or_else(|e| panic!("{e}"));
        let completed = &config.profiles[0].plugin_config[0].args;
        assert_eq!(
            FitArgs::decode(completed),
            FitArgs::decode(&given),
            "{given}"
        );
    }
    // The plugins accept the default arguments with any gates.
    for (feature, on) in [
        (Feature::DRASchedulerFilterTimeout, false),
        (Feature::DRADeviceBindingConditions, false),
        (Feature::NodeDeclaredFeatures, false),
    ] {
        let features = features.with(feature, on);
        let config = Config::new(features, &berth_plugins::in_tree());
        for given in &config.profiles[0].plugin_config {
            let registry = berth_plugins::in_tree();
            let factory = registry.get(&given.name).expect("an in-tree plugin");
            let cx = FactoryContext {
                args: &given.args,
                features: &features,
            };
            assert!(factory.make(&cx).is_ok(), "{} {feature}", given.name);
        }
    }
}

/// F-35, F-36.
#[test]
fn plugins_judge_their_arguments() {
    const AT: &str = "profiles[1].pluginConfig[0].args";
    for (plugin, args, expected) in [
        (
            "DefaultPreemption",
            json!({"minCandidateNodesPercentage": 100}),
            &[][..],
        ),
        (
            "DefaultPreemption",
            json!({"minCandidateNodesPercentage": 101, "minCandidateNodesAbsolute": -1}),
            &[
                ".minCandidateNodesPercentage: Invalid value: 101: not in valid range [0, 100]",
                ".minCandidateNodesAbsolute: Invalid value: -1: not in valid range [0, inf)",
            ],
        ),
        (
            "DefaultPreemption",
            json!({"minCandidateNodesPercentage": 0, "minCandidateNodesAbsolute": 0}),
            &[
                ".minCandidateNodesPercentage: Invalid value: 0: cannot be zero at the same time as \
                 minCandidateNodesAbsolute",
                ".minCandidateNodesAbsolute: Invalid value: 0: cannot be zero at the same time as \
                 minCandidateNodesPercentage",
            ],
        ),
        (
            "InterPodAffinity",
            json!({"hardPodAffinityWeight": 101}),
            &[".hardPodAffinityWeight: Invalid value: 101: not in valid range [0, 100]"],
        ),
        (
            "NodeResourcesFit",
            json!({"scoringStrategy": {"type": "Least", "resources": [{"name": "cpu", "weight": 101}]}}),
            &[
                ".scoringStrategy.type: Unsupported value: \"Least\": supported values: \"LeastAllocated\", \
                 \"MostAllocated\", \"RequestedToCapacityRatio\"",
                ".scoringStrategy.resources[0].weight: Invalid value: 101: resource weight of cpu not in valid range \
                 (0, 100]",
            ],
        ),
        (
            "NodeResourcesFit",
            json!({"scoringStrategy": {"type": "RequestedToCapacityRatio"}}),
            &[
                ".scoringStrategy.requestedToCapacityRatio: Required value: must be specified when type is \
                 RequestedToCapacityRatio",
            ],
        ),
        (
            "NodeResourcesFit",
            json!({"scoringStrategy": {"type": "MostAllocated", "requestedToCapacityRatio": {"shape": []}}}),
            &[
                ".scoringStrategy.requestedToCapacityRatio: Forbidden: must be nil when type is not \
                 RequestedToCapacityRatio",
            ],
        ),
        (
            "NodeResourcesFit",
            json!({"scoringStrategy": {"type": "RequestedToCapacityRatio", "requestedToCapacityRatio": {
                "shape": [{"utilization": 50, "score": 11}, {"utilization": 50, "score": 0}],
            }}}),
            &[
                ".scoringStrategy.requestedToCapacityRatio.shape[0].score: Invalid value: 11: not in valid range \
                 [0, 10]",
                ".scoringStrategy.requestedToCapacityRatio.shape[1].utilization: Invalid value: 50: values must be \
                 sorted in increasing order",
            ],
        ),
        (
            "NodeResourcesFit",
            json!({"ignoredResourceGroups": ["a/b"]}),
            &[
                ".ignoredResourceGroups[0]: Invalid value: \"a/b\": resource group name can't contain '/'",
            ],
        ),
        (
            "NodeResourcesBalancedAllocation",
            json!({"resources": [{"name": "cpu", "weight": 2}, {"name": "cpu"}]}),
            &[
                ".resources[0].weight: Invalid value: 2: must be 1",
                ".resources[1].name: Duplicate value: \"cpu\"",
            ],
        ),
        (
            "PodTopologySpread",
            json!({"defaultingType": "Lists"}),
            &[
                ".defaultingType: Unsupported value: \"Lists\": supported values: \"List\", \"System\"",
            ],
        ),
        (
            "PodTopologySpread",
            json!({"defaultConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}]}),
            &[".defaultingType: Invalid value: \"System\": when .defaultConstraints are not empty"],
        ),
        (
            "PodTopologySpread",
            json!({"defaultingType": "List", "defaultConstraints": [
                {"maxSkew": 0, "topologyKey": "", "whenUnsatisfiable": "Never", "labelSelector": {}},
            ]}),
            &[
                ".defaultConstraints[0].maxSkew: Invalid value: 0: not in valid range (0, inf)",
                ".defaultConstraints[0].topologyKey: Required value: can not be empty",
                ".defaultConstraints[0].whenUnsatisfiable: Unsupported value: \"Never\": supported values: \
                 \"DoNotSchedule\", \"ScheduleAnyway\"",
                ".defaultConstraints[0].labelSelector: Forbidden: constraint must not define a selector, as they \
                 deduced for each pod",
            ],
        ),
        (
            "DynamicResources",
            json!({"filterTimeout": "-1s", "bindingTimeout": "1ms"}),
            &[
                ".filterTimeout: Invalid value: \"-1s\": must be zero or positive",
                ".bindingTimeout: Invalid value: \"1ms\": must be at least 1 second",
            ],
        ),
        (
            "VolumeBinding",
            json!({"bindTimeoutSeconds": -1}),
            &[
                ".bindTimeoutSeconds: Invalid value: -1: invalid BindTimeoutSeconds, should not be a negative value",
            ],
        ),
        (
            "NodeResourcesFit",
            json!({"kind": "FitArgs"}),
            &[
                ": has to match plugin args; the kind is \"FitArgs\"; NodeResourcesFit takes NodeResourcesFitArgs",
            ],
        ),
        (
            "ImageLocality",
            json!({"x": 1}),
            &[": plugin ImageLocality takes no arguments; leave them out"],
        ),
    ] {
        let expected: Vec<String> = expected.iter().map(|e| format!("{AT}{e}")).collect();
        assert_eq!(
            problems(&json!([{"name": plugin, "args": args}])),
            expected,
            "{plugin} {args}"
        );
    }
    for (plugin, args, place, part) in [
        (
            "NodeResourcesFit",
            json!({"ignoredResources": ["a b"]}),
            ".ignoredResources[0]: ",
            "name part must consist of",
        ),
        (
            "NodeResourcesFit",
            json!({"ignoredResource": []}),
            "",
            "unknown field `ignoredResource`",
        ),
        (
            "NodeAffinity",
            json!({"addedAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                {"matchExpressions": [{"key": "a", "operator": "Near"}]},
            ]}}}),
            ".addedAffinity.requiredDuringSchedulingIgnoredDuringExecution",
            "Unsupported value: \"Near\"",
        ),
    ] {
        let got = problems(&json!([{"name": plugin, "args": args}]));
        assert_eq!(got.len(), 1, "{got:?}");
        assert!(got[0].starts_with(&format!("{AT}{place}")), "{got:?}");
        assert!(got[0].contains(part), "{got:?}");
    }
}

#[test]
fn a_misspelt_plugin_is_recognised() {
    let text = document(json!({"profiles": [
        {"plugins": {"score": {"enabled": [{"name": "NodeResourceFit"}]}}},
    ]}));
    let registry = berth_plugins::in_tree();
    let errors = berth_config::load(
        &text,
        "config.yaml",
        FeatureGates::default(),
        &registry,
        |_| {},
    )
    .expect_err("no such plugin");
    assert_eq!(
        errors.to_string(),
        "config.yaml: profiles[0].plugins.score.enabled[0]: unknown plugin \"NodeResourceFit\"; did you mean \
         \"NodeResourcesFit\"?"
    );
}
