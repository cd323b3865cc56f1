//! Profiles as users see them: their parts, and the errors of invalid ones.

use super::*;
use berth_framework::plugin::{Context, QueuedPod, Score};
use berth_framework::registry::{ArgsError, Registration};
use berth_framework::stage::{StageContext, Step, Wake};
use berth_framework::{CycleState, NodeView, PodInfo, Status};

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
        _: &Str,
        _: Option<Wake<'_>>,
    ) -> Step {
        Step::success()
    }
}

fn registry() -> Registry {
    let mut registry = Registry::default();
    for name in ["PrioritySort", "OtherSort"] {
        let sort = Registration::new(name, move |_| Ok(Extensions::of(Fake).queue_sort().build()));
        let is_default = name == "PrioritySort";
        let sort = if is_default {
            sort.by_default(None)
        } else {
            sort
        };
        registry.add(sort).unwrap();
    }
    for (name, weight) in [
        ("TaintToleration", Some(3)),
        ("NodeAffinity", Some(2)),
        ("Extra", None),
    ] {
        let scores = Registration::new(name, move |cx| {
            if cx.args.get("bad").is_some() {
                return Err(ArgsError::at("bad", "is not a field"));
            }
            Ok(Extensions::of(Fake).filter().score().build())
        });
        let is_default = weight.is_some();
        let scores = if is_default {
            scores.by_default(weight)
        } else {
            scores
        };
        registry.add(scores).unwrap();
    }
    let binder = Registration::new("DefaultBinder", |_| Ok(Extensions::of(Fake).bind().build()));
    registry.add(binder.by_default(None)).unwrap();
    registry
}

fn build(specs: &[ProfileSpec]) -> Result<Profiles, String> {
    Profiles::build(specs, &registry(), &FeatureGates::default()).map_err(|e| e.to_string())
}

fn scores(profile: &Profile) -> Vec<(String, i64)> {
    let scores = profile.score.iter();
    scores
        .map(|s| (s.member.name.to_string(), s.weight))
        .collect()
}

/// F-24: a plugin is created once for all its points, and only if some point needs it; it receives its own arguments,
/// or none.
#[test]
fn only_needed_plugins_are_made_and_each_once() {
    let (send, made) = std::sync::mpsc::sync_channel(20);
    let mut registry = Registry::default();
    for name in ["Sort", "Binder", "Both", "Everywhere", "Idle", "Nowhere"] {
        let send = send.clone();
        registry
            .register(name, move |cx| {
                let _ = send.try_send(format!("{name} {}", cx.args));
                let all = Extensions::of(Fake);
                Ok(match name {
                    "Sort" => all.queue_sort().build(),
                    "Binder" => all.bind().build(),
                    _ => all.filter().score().build(),
                })
            })
            .unwrap();
    }
    let mut spec = ProfileSpec::of_plugins("s", ["Sort", "Binder", "Everywhere", "Idle"]);
    for point in [Point::Filter, Point::Score] {
        let set = spec.plugins.point_mut(point);
        set.enabled = vec![EnabledPlugin::new("Both"), EnabledPlugin::new("Everywhere")];
        set.disabled = vec!["Idle".to_owned()];
    }
    let args = |name: &str, value: i32| PluginConfig {
        name: name.to_owned(),
        args: serde_json::json!({"depth": value}),
    };
    spec.plugin_config = vec![args("Both", 1), args("Nowhere", 2)];
    let profiles = Profiles::build(&[spec], &registry, &FeatureGates::default()).unwrap();
    let mut made: Vec<String> = made.try_iter().collect();
    made.sort();
    assert_eq!(
        made,
        [
            "Binder null",
            "Both {\"depth\":1}",
            "Everywhere null",
            "Idle null",
            "Sort null"
        ]
    );
    let profile = profiles.get("s").unwrap();
    let filters: Vec<&str> = profile.filter.iter().map(|m| m.name.as_str()).collect();
    assert_eq!(
        filters,
        ["Everywhere", "Both"],
        "F-25: what multiPoint enables goes first"
    );
}

/// F-27: the greatest sum of weights that cannot overflow is allowed, and one more is not.
#[test]
fn weights_may_be_as_great_as_their_sum_allows() {
    let with = |weights: [i64; 2]| {
        let mut spec = ProfileSpec::default();
        let score = spec.plugins.point_mut(Point::Score);
        score.disabled = vec!["*".to_owned()];
        score.enabled = vec![
            EnabledPlugin::weighted("Extra", weights[0]),
            EnabledPlugin::weighted("NodeAffinity", weights[1]),
        ];
        build(&[spec]).map(|_| ())
    };
    const MOST: i64 = i64::MAX / 100;
    assert_eq!(with([MOST - 1, 1]), Ok(()));
    let refused = "profiles[0].plugins.score: total score of Score plugins could overflow; lower their weights";
    assert_eq!(with([MOST, 1]), Err(refused.to_owned()));
    assert_eq!(with([MOST + 1, 1]), Err(refused.to_owned()));
}

/// F-24, F-27.
#[test]
fn the_default_profile_takes_the_default_plugins_that_are_there() {
    let profiles = build(&[ProfileSpec::default()]).unwrap();
    let profile = profiles.get("default-scheduler").unwrap();
    assert_eq!(
        scores(profile),
        [
            ("TaintToleration".to_owned(), 3),
            ("NodeAffinity".to_owned(), 2)
        ]
    );
    assert_eq!(profile.queue_sort.name, "PrioritySort");
    assert_eq!(profile.bind.len(), 1);
    assert_eq!(profile.plugins.len(), 4);
}

/// F-27: the weight at the point, otherwise the weight in multiPoint, otherwise one.
#[test]
fn weights_come_from_the_point_then_from_multi_point() {
    let mut spec = ProfileSpec::default();
    spec.plugins.multi_point.enabled = vec![EnabledPlugin::new("Extra")];
    let score = spec.plugins.point_mut(Point::Score);
    score.enabled = vec![
        EnabledPlugin::new("NodeAffinity"),
        EnabledPlugin::weighted("TaintToleration", 9),
    ];
    let profiles = build(&[spec]).unwrap();
    assert_eq!(
        scores(profiles.get("default-scheduler").unwrap()),
        [
            ("NodeAffinity".to_owned(), 2),
            ("TaintToleration".to_owned(), 9),
            ("Extra".to_owned(), 1)
        ]
    );
}

/// F-26 to F-28, case 253.
#[test]
fn what_cannot_be_is_refused_with_the_place_and_the_way_out() {
    let with = |change: &dyn Fn(&mut ProfileSpec)| {
        let mut spec = ProfileSpec::default();
        change(&mut spec);
        spec
    };
    let other = |change: &dyn Fn(&mut ProfileSpec)| {
        let mut spec = ProfileSpec::named("other");
        change(&mut spec);
        spec
    };
    let args = |bad: serde_json::Value| {
        with(&|s| {
            s.plugin_config = vec![PluginConfig {
                name: "Extra".to_owned(),
                args: bad.clone(),
            }];
            s.plugins.multi_point.enabled = vec![EnabledPlugin::new("Extra")];
        })
    };
    let cases: Vec<(Vec<ProfileSpec>, &str)> = vec![
        (vec![], "profiles: at least one profile is required"),
        (
            vec![with(&|s| {
                s.plugins.point_mut(Point::Score).enabled = vec![EnabledPlugin::new("NodeAffinty")]
            })],
            "profiles[0].plugins.score.enabled[0]: unknown plugin \"NodeAffinty\"; did you mean \"NodeAffinity\"?",
        ),
        (
            vec![with(&|s| {
                s.plugins.point_mut(Point::Bind).enabled = vec![EnabledPlugin::new("Extra")]
            })],
            "profiles[0].plugins.bind.enabled[0]: plugin \"Extra\" does not extend BindPlugin plugin",
        ),
        (
            vec![with(&|s| {
                s.plugins.point_mut(Point::Bind).disabled = vec!["*".to_owned()]
            })],
            "profiles[0].plugins.bind: at least one bind plugin is needed for profile with scheduler name \"default-scheduler\"",
        ),
        (
            vec![with(&|s| {
                s.plugins.multi_point.enabled = vec![EnabledPlugin::new("OtherSort")]
            })],
            "profiles[0].plugins.queueSort: only one queue sort plugin required for profile with scheduler name \"default-scheduler\", but got 2",
        ),
        (
            vec![with(&|s| {
                s.plugins.multi_point.enabled =
                    vec![EnabledPlugin::weighted("Extra", i64::MAX / 100)]
            })],
            "profiles[0].plugins.score: total score of Score plugins could overflow; lower their weights",
        ),
        (
            vec![args(serde_json::json!({"bad": 1}))],
            "profiles[0].pluginConfig[0].args: initializing plugin \"Extra\": bad: is not a field",
        ),
        (
            vec![ProfileSpec::default(), ProfileSpec::default()],
            "profiles[1].schedulerName: duplicate profile with scheduler name \"default-scheduler\"",
        ),
        (
            vec![
                ProfileSpec::default(),
                other(&|s| {
                    s.plugins.multi_point = PluginSet {
                        enabled: vec![EnabledPlugin::new("OtherSort")],
                        disabled: vec!["PrioritySort".to_owned()],
                    };
                }),
            ],
            "profiles[1].plugins.queueSort: different queue sort plugins for profile \"other\": \"OtherSort\", first: \"PrioritySort\"",
        ),
        (
            vec![
                ProfileSpec::default(),
                other(&|s| {
                    s.plugin_config = vec![PluginConfig {
                        name: "PrioritySort".to_owned(),
                        args: serde_json::json!({"x": 1}),
                    }];
                }),
            ],
            "profiles[1].pluginConfig: different queue sort plugin args for profile \"other\"",
        ),
        (
            vec![with(&|s| {
                let config = PluginConfig {
                    name: "NodeAffinity".to_owned(),
                    args: serde_json::json!({}),
                };
                s.plugin_config = vec![config.clone(), config];
            })],
            "profiles[0].pluginConfig[1]: repeated config for plugin NodeAffinity; keep one of them",
        ),
        (
            vec![with(&|s| {
                s.plugins.point_mut(Point::QueueSort).disabled = vec!["*".to_owned()]
            })],
            "profiles[0].plugins.queueSort: only one queue sort plugin required for profile with scheduler name \"default-scheduler\", but got 0",
        ),
        (
            vec![ProfileSpec::named("")],
            "profiles[0].schedulerName: scheduler name is needed",
        ),
    ];
    for (specs, expected) in cases {
        assert_eq!(build(&specs).map(|_| ()).unwrap_err(), expected);
    }
    assert!(build(&[ProfileSpec::default(), ProfileSpec::named("other")]).is_ok());
}
