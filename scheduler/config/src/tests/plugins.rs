//! Configurations with plugins: merging, arguments, and the errors of plugins. F-24 to F-28, F-32, F-33, F-36.

use super::*;
use berth_framework::plugin::{Bind, Context, Filter, QueueSort, QueuedPod, Score};
use berth_framework::registry::{ArgsError, Extensions, Registration};
use berth_framework::stage::{StageContext, Step, Wake};
use berth_framework::{CycleState, Feature, NodeView, PodInfo, Status};
use berth_profile::Profiles;

struct Fake;

impl QueueSort for Fake {
    fn less(&self, a: QueuedPod<'_>, b: QueuedPod<'_>) -> bool {
        a.timestamp < b.timestamp
    }
}

impl Filter for Fake {
    fn filter(&self, _: &Context<'_>, _: &CycleState, _: &PodInfo, _: NodeView<'_>) -> Status {
        Status::success()
    }
}

impl Score for Fake {
    fn score(
        &self,
        _: &Context<'_>,
        _: &CycleState,
        _: &PodInfo,
        _: NodeView<'_>,
    ) -> Result<i64, Status> {
        Ok(0)
    }
}

impl Bind for Fake {
    fn bind(
        &self,
        _: &mut StageContext<'_>,
        _: &mut CycleState,
        _: &PodInfo,
        _: &berth_api::Str,
        _: Option<Wake<'_>>,
    ) -> Step {
        Step::success()
    }
}

/// Some plugins by their names in kube-scheduler. The scoring ones refuse `bad` arguments.
fn registry() -> Registry {
    let mut registry = Registry::default();
    for name in ["PrioritySort", "OtherSort"] {
        let sort = Registration::new(name, move |_| Ok(Extensions::of(Fake).queue_sort().build()));
        registry.add(by_default(sort)).expect("a new name");
    }
    for name in ["TaintToleration", "NodeResourcesFit", "Extra", "Another"] {
        let scores = Registration::new(name, move |cx| {
            let problems: Vec<(String, String)> = ["bad", "worse"]
                .into_iter()
                .filter(|field| cx.args.get(field).is_some())
                .map(|field| (field.to_owned(), "is refused".to_owned()))
                .collect();
            if problems.is_empty() {
                Ok(Extensions::of(Fake).filter().score().build())
            } else {
                Err(ArgsError { problems })
            }
        });
        registry.add(by_default(scores)).expect("a new name");
    }
    let binder = Registration::new("DefaultBinder", |_| Ok(Extensions::of(Fake).bind().build()));
    registry.add(by_default(binder)).expect("a new name");
    registry
}

/// A plugin with its arguments and its place in kube-scheduler's default profile.
fn by_default(plugin: Registration) -> Registration {
    let in_tree = in_tree();
    let Some(known) = in_tree.get(plugin.name()) else {
        return plugin;
    };
    let place = known.default_place(&FeatureGates::default());
    let plugin = plugin.args(known.args_kind());
    match place {
        Some(place) => plugin.by_default(place.weight),
        None => plugin,
    }
}

fn load_fields(fields: &Value) -> Result<Config, ConfigErrors> {
    load(
        &text(fields),
        "F",
        FeatureGates::default(),
        &registry(),
        |_| {},
    )
    .map(|(config, _)| config)
}

/// The weights of the Score plugins of the first profile, in order.
fn scores(fields: &Value) -> Vec<(String, i64)> {
    let config = load_fields(fields).unwrap_or_else(|e| panic!("{fields}: {e}"));
    let profiles = Profiles::build(
        &config.profile_specs(),
        &registry(),
        &FeatureGates::default(),
    )
    .unwrap_or_else(|e| panic!("{fields}: {e}"));
    let first = profiles.iter().next().expect("a profile");
    first
        .score
        .iter()
        .map(|s| (s.member.name.to_string(), s.weight))
        .collect()
}

fn plugins(plugins: Value) -> Value {
    json!({"profiles": [{"plugins": plugins}]})
}

/// F-25, F-27, F-32, cases 250 and 251.
#[test]
fn plugins_are_enabled_disabled_reordered_and_weighed() {
    for (situation, sets, expected) in [
        (
            "nothing stated",
            json!({}),
            &[("TaintToleration", 3), ("NodeResourcesFit", 1)][..],
        ),
        (
            "a custom plugin goes last",
            json!({"multiPoint": {"enabled": [{"name": "Extra", "weight": 4}]}}),
            &[
                ("TaintToleration", 3),
                ("NodeResourcesFit", 1),
                ("Extra", 4),
            ],
        ),
        (
            "a weight in place",
            json!({"multiPoint": {"enabled": [{"name": "TaintToleration", "weight": 9}]}}),
            &[("TaintToleration", 9), ("NodeResourcesFit", 1)],
        ),
        (
            "disabled everywhere",
            json!({"multiPoint": {"disabled": [{"name": "TaintToleration"}]}}),
            &[("NodeResourcesFit", 1)],
        ),
        (
            "disabled at one point",
            json!({"score": {"disabled": [{"name": "TaintToleration"}]}}),
            &[("NodeResourcesFit", 1)],
        ),
        (
            "all disabled at one point, then one enabled",
            json!({"score": {"disabled": [{"name": "*"}], "enabled": [{"name": "Extra"}]}}),
            &[("Extra", 1)],
        ),
        (
            "reordered at the point",
            json!({"score": {"enabled": [{"name": "NodeResourcesFit", "weight": 0}]}}),
            &[("NodeResourcesFit", 1), ("TaintToleration", 3)],
        ),
    ] {
        let expected: Vec<(String, i64)> = expected
            .iter()
            .map(|(name, weight)| ((*name).to_owned(), *weight))
            .collect();
        assert_eq!(scores(&plugins(sets)), expected, "{situation}");
    }
}

fn args_of<'a>(config: &'a Config, plugin: &str) -> Option<&'a Value> {
    let mut given = config.profiles[0].plugin_config.iter();
    given.find(|c| c.name == plugin).map(|c| &c.args)
}

/// F-33.
#[test]
fn arguments_are_completed() {
    let both = json!([{"name": "cpu", "weight": 1}, {"name": "memory", "weight": 1}]);
    for (plugin, given, completed) in [
        (
            "DefaultPreemption",
            json!({"minCandidateNodesAbsolute": 0}),
            json!({"minCandidateNodesPercentage": 10, "minCandidateNodesAbsolute": 0}),
        ),
        (
            "InterPodAffinity",
            json!({"hardPodAffinityWeight": 0, "ignorePreferredTermsOfExistingPods": null}),
            json!({"hardPodAffinityWeight": 0, "ignorePreferredTermsOfExistingPods": false}),
        ),
        (
            "NodeResourcesFit",
            json!({"ignoredResources": ["example.com/a"]}),
            json!({
                "ignoredResources": ["example.com/a"],
                "scoringStrategy": {"type": "LeastAllocated", "resources": both},
            }),
        ),
        (
            "NodeResourcesFit",
            json!({"scoringStrategy": {"type": "MostAllocated", "resources": [{"name": "a"}, {"name": "b", "weight": 7}]}}),
            json!({"scoringStrategy": {"type": "MostAllocated", "resources": [
                {"name": "a", "weight": 1}, {"name": "b", "weight": 7},
            ]}}),
        ),
        (
            "NodeResourcesFit",
            json!({"scoringStrategy": {"resources": []}}),
            json!({"scoringStrategy": {"resources": both}}),
        ),
        (
            "NodeResourcesBalancedAllocation",
            json!({"resources": [{"name": "a", "weight": 0}]}),
            json!({"resources": [{"name": "a", "weight": 1}]}),
        ),
        (
            "PodTopologySpread",
            json!({"defaultingType": "", "defaultConstraints": []}),
            json!({"defaultingType": "System", "defaultConstraints": []}),
        ),
        (
            "PodTopologySpread",
            json!({"defaultingType": "List"}),
            json!({"defaultingType": "List"}),
        ),
        (
            "VolumeBinding",
            json!({"bindTimeoutSeconds": 0}),
            json!({"bindTimeoutSeconds": 0}),
        ),
        (
            "DynamicResources",
            json!({"filterTimeout": "90s"}),
            json!({"filterTimeout": "1m30s", "bindingTimeout": "10m0s"}),
        ),
        ("NodeAffinity", json!(null), json!({})),
    ] {
        let fields = json!({"profiles": [{"pluginConfig": [{"name": plugin, "args": given}]}]});
        let mut completed = completed;
        completed["apiVersion"] = json!(API_VERSION);
        completed["kind"] = json!(format!("{plugin}Args"));
        assert_eq!(
            args_of(&config(&fields), plugin),
            Some(&completed),
            "{plugin} {given}"
        );
    }
}

/// F-33.
#[test]
fn defaults_follow_the_feature_gates_and_the_enabled_plugins() {
    let parse = |fields: &Value, features: FeatureGates| {
        parse(&text(fields), "F", features, &in_tree()).unwrap_or_else(|e| panic!("{fields}: {e}"))
    };
    let gates = FeatureGates::default();
    let off = gates
        .with(Feature::DRASchedulerFilterTimeout, false)
        .with(Feature::DRAResourceClaimDeviceStatus, false);
    let config = parse(&json!({}), off);
    let dra = args_of(&config, "DynamicResources").expect("it is enabled");
    assert_eq!(dra.get("filterTimeout"), None);
    assert_eq!(dra.get("bindingTimeout"), None);
    let without = plugins(json!({"multiPoint": {"disabled": [{"name": "VolumeBinding"}]}}));
    assert_eq!(args_of(&parse(&without, gates), "VolumeBinding"), None);
}

/// F-31.
#[test]
fn arguments_of_a_custom_plugin_stay_as_they_are() {
    let args = json!({"kind": "X", "list": [1, null], "nothing": null});
    let fields = json!({"profiles": [{"pluginConfig": [{"name": "Extra", "args": args}]}]});
    assert_eq!(args_of(&config(&fields), "Extra"), Some(&args));
}

/// Everything at once, each problem where it was written; F-35 and F-36 among them.
#[test]
fn all_problems_of_all_profiles_are_listed() {
    let errors = load_fields(&json!({
        "parallelism": 0,
        "profiles": [
            {"schedulerName": "a", "plugins": {
                "score": {"enabled": [{"name": "Extra"}, {"name": "NodeResourceFit"}]},
            }},
            {"schedulerName": "b",
             "plugins": {
                "multiPoint": {"enabled": [{"name": "Extra", "weight": -1}, {"name": "EBSLimits"}]},
                "filter": {"enabled": [{"name": "CinderLimits"}]},
             },
             "pluginConfig": [
                {"name": "Another", "args": {"worse": 1, "bad": 1}},
                {"name": "NodeResourcesFit", "args": {"bad": 1}},
                {"name": "NoSuchThing", "args": {}},
                {"name": "TaintToleration", "args": {"bad": 1}},
             ]},
        ],
    }))
    .expect_err("much is wrong");
    let lines: Vec<String> = errors.errors.iter().map(ToString::to_string).collect();
    assert_eq!(
        lines,
        [
            "profiles[1].pluginConfig[3].args: plugin TaintToleration takes no arguments; leave them out",
            "parallelism: Invalid value: 0: should be an integer value greater than zero",
            "profiles[1].plugins.filter.enabled[0]: Invalid value: \"CinderLimits\": was invalid in version \
             \"kubescheduler.config.k8s.io/v1\" (KubeSchedulerConfiguration is version \
             \"kubescheduler.config.k8s.io/v1\")",
            "profiles[1].pluginConfig[0].args.bad: is refused",
            "profiles[1].pluginConfig[0].args.worse: is refused",
            "profiles[1].pluginConfig[1].args.bad: is refused",
            "profiles[0].plugins.score.enabled[1]: unknown plugin \"NodeResourceFit\"; did you mean \
             \"NodeResourcesFit\"?",
            "profiles[1].plugins.multiPoint.enabled[0].weight: the weight of plugin \"Extra\" is -1; it must not be \
             negative",
            "profiles[1].plugins.multiPoint.enabled[1]: unknown plugin \"EBSLimits\"",
            "profiles[1].pluginConfig[2]: unknown plugin \"NoSuchThing\"",
        ]
    );
}

/// F-25, F-26, F-28, cases 250, 251 and 253.
#[test]
fn profiles_that_cannot_be_built_are_refused() {
    let named = |name: &str| json!({"enabled": [{"name": name}]});
    for (situation, fields, expected) in [
        (
            "a plugin where it has no part",
            plugins(json!({"bind": named("Extra")})),
            "profiles[0].plugins.bind.enabled[0]: plugin \"Extra\" does not extend BindPlugin plugin",
        ),
        (
            "a custom plugin twice, counted as the user does",
            plugins(json!({"multiPoint": {"enabled": [{"name": "Extra"}, {"name": "Extra"}]}})),
            "profiles[0].plugins.multiPoint.enabled[1]: plugin \"Extra\" already registered as \"FilterPlugin\"; \
             name it once",
        ),
        (
            "no plugin binds",
            plugins(json!({"bind": {"disabled": [{"name": "*"}]}})),
            "profiles[0].plugins.bind: at least one bind plugin is needed for profile with scheduler name \
             \"default-scheduler\"",
        ),
        (
            "no plugin orders the queue",
            plugins(json!({"queueSort": {"disabled": [{"name": "*"}]}})),
            "profiles[0].plugins.queueSort: only one queue sort plugin required for profile with scheduler name \
             \"default-scheduler\", but got 0",
        ),
        (
            "two order the queue",
            plugins(json!({"multiPoint": named("OtherSort")})),
            "profiles[0].plugins.queueSort: only one queue sort plugin required for profile with scheduler name \
             \"default-scheduler\", but got 2",
        ),
        (
            "different orders",
            json!({"profiles": [
                {"schedulerName": "a"},
                {"schedulerName": "b", "plugins": {"multiPoint": {
                    "enabled": [{"name": "OtherSort"}], "disabled": [{"name": "PrioritySort"}],
                }}},
            ]}),
            "profiles[1].plugins.queueSort: different queue sort plugins for profile \"b\": \"OtherSort\", first: \
             \"PrioritySort\"",
        ),
    ] {
        let errors = load_fields(&fields).expect_err(situation);
        assert_eq!(
            errors.errors[0].to_string(),
            expected,
            "{situation}: {errors}"
        );
    }
}

/// The problems of the structure and of the profiles are not reported twice.
#[test]
fn a_problem_is_stated_once() {
    let sort = |name: &str| json!({"queueSort": {"enabled": [{"name": name}], "disabled": [{"name": "*"}]}});
    for fields in [
        json!({"profiles": [{"schedulerName": "a"}, {"schedulerName": "a"}]}),
        json!({"profiles": [{"schedulerName": "a"}, {}]}),
        json!({"profiles": [
            {"schedulerName": "a", "plugins": sort("PrioritySort")},
            {"schedulerName": "b", "plugins": sort("OtherSort")},
        ]}),
        json!({"profiles": [{"pluginConfig": [{"name": "Extra"}, {"name": "Extra"}]}]}),
        json!({"profiles": [{"pluginConfig": [{"name": "NodeResourcesFit", "args": {"kind": "X", "bad": 1}}]}]}),
    ] {
        let errors = load_fields(&fields).expect_err("a problem");
        assert_eq!(errors.errors.len(), 1, "{errors}");
    }
}

#[test]
fn a_configuration_made_by_hand_is_checked_too() {
    let mut config = Config::new(FeatureGates::default(), &registry());
    assert_eq!(config.check("flags"), Ok(()));
    config.leader_election.resource_lock = "configmaps".to_owned();
    let errors = config.check("flags").expect_err("no such lock");
    assert_eq!(
        errors.to_string(),
        "flags: leaderElection.resourceLock: Invalid value: \"configmaps\": resourceLock value must be \"leases\""
    );
}
