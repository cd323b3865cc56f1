//! The nodes that InterPodAffinity rejects, and the scores of the others.

use super::*;
use crate::testing::{Answer, World, full_pod, unresolvable, unschedulable};
use berth_api::Pod;
use berth_framework::plugin::{PreFilter, PreFilterResult, PreScore};
use berth_framework::{Code, CycleState, PodInfo};
use serde_json::{Value, json};

pub(super) fn near(terms: Value) -> Value {
    json!({"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}})
}

pub(super) fn far(terms: Value) -> Value {
    json!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}})
}

fn rather(kind: &str, terms: Value) -> Value {
    json!({"affinity": {kind: {"preferredDuringSchedulingIgnoredDuringExecution": terms}}})
}

pub(super) fn term(app: &str, key: &str) -> Value {
    json!({"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": key})
}

fn with(mut term: Value, field: &str, value: Value) -> Value {
    term[field] = value;
    term
}

fn weighted(weight: i64, term: Value) -> Value {
    json!({"weight": weight, "podAffinityTerm": term})
}

pub(super) fn labelled(name: &str, app: &str, spec: Value) -> Pod {
    full_pod(
        name,
        json!({"metadata": {"labels": {"app": app}}, "spec": spec}),
    )
}

fn in_namespace(namespace: &str, mut pod: Pod) -> Pod {
    pod.metadata.namespace = namespace.into();
    pod
}

fn info(pod: Pod) -> PodInfo {
    PodInfo::new(Arc::new(pod))
}

/// Nodes a1 and a2 in zone a, b1 in zone b, x in no zone; namespaces default, red (team red) and blue (team blue).
fn world() -> World {
    let zone =
        |zone: &str, host: &str| json!({"metadata": {"labels": {"zone": zone, "host": host}}});
    World::new()
        .namespace("default", json!({}))
        .namespace("red", json!({"team": "red"}))
        .namespace("blue", json!({"team": "blue"}))
        .node("a1", zone("a", "a1"))
        .node("a2", zone("a", "a2"))
        .node("b1", zone("b", "b1"))
        .node("x", json!({"metadata": {"labels": {"host": "x"}}}))
}

fn filtered(world: &World, pod: Pod) -> Result<Vec<Answer>, Answer> {
    world.filter(&InterPodAffinity::default(), &info(pod))
}

/// Letters for the answers on a1, a2, b1 and x: `.` fits, `A` affinity, `N` anti-affinity, `E` anti-affinity of others.
fn picture(answers: Result<Vec<Answer>, Answer>) -> String {
    let letter = |answer: &Answer| match answer {
        None => '.',
        some if *some == unresolvable(REASON_AFFINITY) => 'A',
        some if *some == unschedulable(REASON_ANTI_AFFINITY) => 'N',
        some if *some == unschedulable(REASON_EXISTING_ANTI_AFFINITY) => 'E',
        _ => '?',
    };
    answers
        .expect("no rejection by PreFilter")
        .iter()
        .map(letter)
        .collect()
}

/// PL-80: required affinity.
#[test]
fn what_must_be_near() {
    let cache_in_a = || world().bound_pod("a1", labelled("c", "cache", json!({})));
    let key_only_there = || world().bound_pod("x", labelled("c", "web", json!({})));
    let two_apart = || {
        world()
            .bound_pod("a1", labelled("one", "one", json!({})))
            .bound_pod(
                "a1",
                full_pod("two", json!({"metadata": {"labels": {"tier": "two"}}})),
            )
    };
    let tier_two =
        json!({"labelSelector": {"matchLabels": {"tier": "two"}}, "topologyKey": "zone"});
    for (name, world, pod, expected) in [
        (
            "same zone",
            cache_in_a(),
            labelled("p", "web", near(json!([term("cache", "zone")]))),
            "..AA",
        ),
        (
            "same host",
            cache_in_a(),
            labelled("p", "web", near(json!([term("cache", "host")]))),
            ".AAA",
        ),
        (
            "no pod matches, nor does the pod itself",
            world(),
            labelled("p", "web", near(json!([term("cache", "zone")]))),
            "AAAA",
        ),
        (
            "the first of a series, where the key is",
            world(),
            labelled("p", "web", near(json!([term("web", "zone")]))),
            "...A",
        ),
        (
            "a match on a node without the key does not count",
            key_only_there(),
            labelled("p", "web", near(json!([term("web", "zone")]))),
            "...A",
        ),
        (
            "a match somewhere ends the series' exception",
            cache_in_a(),
            labelled("p", "cache", near(json!([term("cache", "zone")]))),
            "..AA",
        ),
        (
            "one pod must match all terms",
            two_apart(),
            labelled("p", "web", near(json!([term("one", "zone"), tier_two]))),
            "AAAA",
        ),
        (
            "a pod that is going counts as any other",
            world().bound_pod("a1", {
                let mut going = labelled("c", "cache", json!({}));
                going.metadata.deletion_timestamp = Some(berth_api::Time::EPOCH);
                going
            }),
            labelled("p", "web", near(json!([term("cache", "zone")]))),
            "..AA",
        ),
        (
            "two keys",
            cache_in_a(),
            labelled(
                "p",
                "web",
                near(json!([term("cache", "zone"), term("cache", "host")])),
            ),
            ".AAA",
        ),
        (
            "no terms",
            cache_in_a(),
            labelled("p", "web", json!({"affinity": {"podAffinity": {}}})),
            "....",
        ),
    ] {
        assert_eq!(picture(filtered(&world, pod)), expected, "{name}");
    }
}

/// PL-81: in which namespaces a term looks.
#[test]
fn where_a_term_looks() {
    let world = || world().bound_pod("a1", in_namespace("red", labelled("c", "cache", json!({}))));
    let base = || term("cache", "zone");
    for (name, term, expected) in [
        ("its own namespace", base(), "AAAA"),
        (
            "by name",
            with(base(), "namespaces", json!(["red"])),
            "..AA",
        ),
        (
            "by another name",
            with(base(), "namespaces", json!(["blue"])),
            "AAAA",
        ),
        (
            "by label",
            with(
                base(),
                "namespaceSelector",
                json!({"matchLabels": {"team": "red"}}),
            ),
            "..AA",
        ),
        (
            "by another label",
            with(
                base(),
                "namespaceSelector",
                json!({"matchLabels": {"team": "blue"}}),
            ),
            "AAAA",
        ),
        ("all", with(base(), "namespaceSelector", json!({})), "..AA"),
        (
            "by name or label",
            with(
                with(base(), "namespaces", json!(["default"])),
                "namespaceSelector",
                json!({"matchLabels": {"team": "red"}}),
            ),
            "..AA",
        ),
        (
            "the namespaces that have a label",
            with(
                base(),
                "namespaceSelector",
                json!({"matchExpressions": [{"key": "team", "operator": "Exists"}]}),
            ),
            "..AA",
        ),
        // The quirk: satisfied by no labels at all, so it means every namespace, red included.
        (
            "the namespaces without a label",
            with(
                base(),
                "namespaceSelector",
                json!({"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["red"]}]}),
            ),
            "..AA",
        ),
        (
            "no selector",
            with(base(), "labelSelector", Value::Null),
            "AAAA",
        ),
    ] {
        let pod = labelled("p", "web", near(json!([term])));
        assert_eq!(picture(filtered(&world(), pod)), expected, "{name}");
    }
}

/// PL-82: own anti-affinity; each term counts by itself.
#[test]
fn what_must_be_far() {
    let world = || {
        world()
            .bound_pod("a1", labelled("w", "web", json!({})))
            .bound_pod("x", labelled("v", "web", json!({})))
    };
    for (name, terms, expected) in [
        (
            "by zone; without a zone is no zone",
            json!([term("web", "zone")]),
            "NN..",
        ),
        ("by host", json!([term("web", "host")]), "N..N"),
        (
            "either term",
            json!([term("other", "zone"), term("web", "host")]),
            "N..N",
        ),
        (
            "another namespace only",
            json!([with(
                term("web", "zone"),
                "namespaceSelector",
                json!({"matchLabels": {"team": "red"}})
            )]),
            "....",
        ),
    ] {
        let pod = labelled("p", "web", far(terms));
        assert_eq!(picture(filtered(&world(), pod)), expected, "{name}");
    }
}

/// PL-83: anti-affinity of pods that run already; their own
/// namespace counts, and of the pod's the labels.
#[test]
fn pods_that_do_not_want_this_one() {
    let guard = |node: &str, namespace: &str, term: Value| {
        world().bound_pod(
            node,
            in_namespace(namespace, labelled("g", "guard", far(json!([term])))),
        )
    };
    let selects = |team: &str| {
        with(
            term("web", "zone"),
            "namespaceSelector",
            json!({"matchLabels": {"team": team}}),
        )
    };
    for (name, world, namespace, expected) in [
        (
            "the whole zone",
            guard("a1", "default", term("web", "zone")),
            "default",
            "EE..",
        ),
        (
            "only the host",
            guard("a1", "default", term("web", "host")),
            "default",
            "E...",
        ),
        (
            "another namespace",
            guard("a1", "red", term("web", "zone")),
            "default",
            "....",
        ),
        (
            "its node lacks the key",
            guard("x", "default", term("web", "zone")),
            "default",
            "....",
        ),
        (
            "another app",
            guard("a1", "default", term("db", "zone")),
            "default",
            "....",
        ),
        (
            "selects the pod's namespace",
            guard("a1", "red", selects("blue")),
            "blue",
            "EE..",
        ),
        (
            "selects another namespace",
            guard("a1", "red", selects("blue")),
            "default",
            "....",
        ),
        (
            "selects by a label, of a namespace that does not exist",
            guard("a1", "red", selects("blue")),
            "unknown",
            "....",
        ),
        (
            "selects all, one that does not exist too",
            guard(
                "a1",
                "red",
                with(term("web", "zone"), "namespaceSelector", json!({})),
            ),
            "unknown",
            "EE..",
        ),
        (
            "names the pod's namespace",
            guard(
                "a1",
                "red",
                with(term("web", "zone"), "namespaces", json!(["blue"])),
            ),
            "blue",
            "EE..",
        ),
    ] {
        let pod = in_namespace(namespace, labelled("p", "web", json!({})));
        assert_eq!(picture(filtered(&world, pod)), expected, "{name}");
    }
}

/// PL-84: PreFilter skips a pod without terms if no other pod has anti-affinity to it; a selector that does not parse
/// is an error.
#[test]
fn what_pre_filter_states() {
    let outcome = |world: &World, pod: Pod| {
        let mut state = CycleState::default();
        InterPodAffinity::default().pre_filter(&world.context(), &mut state, &info(pod))
    };
    let plain = || labelled("p", "web", json!({}));
    let skip = outcome(&world(), plain());
    assert!(matches!(skip, PreFilterResult::Skip), "{skip:?}");
    let preferring = labelled(
        "p",
        "web",
        rather("podAffinity", json!([weighted(1, term("a", "zone"))])),
    );
    let skip = outcome(&world(), preferring);
    assert!(matches!(skip, PreFilterResult::Skip), "{skip:?}");
    let guarded = world().bound_pod(
        "a1",
        labelled("g", "guard", far(json!([term("web", "zone")]))),
    );
    let all = outcome(&guarded, plain());
    assert!(matches!(all, PreFilterResult::AllNodes), "{all:?}");

    let bad = json!({"labelSelector": {"matchExpressions": [{"key": "app", "operator": "Near"}]}, "topologyKey": "zone"});
    let mut both = near(json!([term("web", "zone"), bad]));
    let anti = far(json!([bad]))["affinity"]["podAntiAffinity"].clone();
    both["affinity"]["podAntiAffinity"] = anti;
    for (spec, group) in [
        (near(json!([bad])), "requiredAffinityTerms"),
        (far(json!([bad])), "requiredAntiAffinityTerms"),
        // Several messages are in brackets.
        (both, "[requiredAffinityTerms"),
    ] {
        let PreFilterResult::Reject(status) = outcome(&world(), labelled("p", "web", spec)) else {
            panic!("{group}: rejected");
        };
        assert_eq!(status.code(), Code::UnschedulableAndUnresolvable);
        let message = status.message();
        assert!(
            message.starts_with(&format!("parsing pod: {group}: ")),
            "{message}"
        );
        if group.starts_with('[') {
            let second = ", requiredAntiAffinityTerms: ";
            assert!(
                message.contains(second) && message.ends_with(']'),
                "{message}"
            );
        }
    }
}

/// PL-85: pods are added and removed, and an entry that reaches zero is removed (the first of a series again).
#[test]
fn pods_come_and_go() {
    let world = world().bound_pod("a1", labelled("w", "web", json!({})));
    let pod = info(labelled("p", "web", near(json!([term("web", "zone")]))));
    let plugin = InterPodAffinity::default();
    let mut state = CycleState::default();
    let _ = plugin.pre_filter(&world.context(), &mut state, &pod);
    let picture_now = |state: &CycleState| picture(Ok(world.filter_with(&plugin, state, &pod)));
    assert_eq!(picture_now(&state), "..AA");

    let node = |name: &str| world.cluster.nodes.node(name).expect("it exists");
    let web = info(labelled("w", "web", json!({})));
    let guard = info(labelled("g", "guard", far(json!([term("web", "host")]))));
    let cx = world.context();
    assert!(
        plugin
            .remove_pod(&cx, &mut state, &pod, &web, node("a1"))
            .is_success()
    );
    assert_eq!(
        picture_now(&state),
        "...A",
        "no pod is left, so the pod is the first"
    );
    assert!(
        plugin
            .add_pod(&cx, &mut state, &pod, &web, node("b1"))
            .is_success()
    );
    assert_eq!(picture_now(&state), "AA.A");
    assert!(
        plugin
            .add_pod(&cx, &mut state, &pod, &guard, node("b1"))
            .is_success()
    );
    assert_eq!(picture_now(&state), "AAEA");
    assert!(
        plugin
            .remove_pod(&cx, &mut state, &pod, &guard, node("b1"))
            .is_success()
    );
    assert_eq!(picture_now(&state), "AA.A");
}

fn scores(world: &World, args: Value, pod: Pod) -> Option<Vec<i64>> {
    let args = InterPodAffinityArgs::decode(&args).expect("arguments");
    world.scores(&InterPodAffinity::new(args), &info(pod))
}

/// PL-86: worked by hand; scores of a1, a2, b1 and x.
#[test]
fn preferences_add_up() {
    let webs = || {
        world()
            .bound_pod("a1", labelled("w1", "web", json!({})))
            .bound_pod("b1", labelled("w2", "web", json!({})))
            .bound_pod("b1", labelled("w3", "web", json!({})))
    };
    let likes = |kind: &str, weight: i64, key: &str| {
        world().bound_pod(
            "a1",
            labelled(
                "o",
                "other",
                rather(kind, json!([weighted(weight, term("web", key))])),
            ),
        )
    };
    let requires = || {
        world().bound_pod(
            "a1",
            labelled("o", "other", near(json!([term("web", "zone")]))),
        )
    };
    let plain = || labelled("p", "web", json!({}));
    let prefers = |kind: &str, terms: Value| labelled("p", "web", rather(kind, terms));
    let null = || json!(null);
    for (name, world, args, pod, expected) in [
        // Zone a 3, zone b 6, none 0.
        (
            "own affinity",
            webs(),
            null(),
            prefers("podAffinity", json!([weighted(3, term("web", "zone"))])),
            Some(vec![50, 50, 100, 0]),
        ),
        (
            "own anti-affinity",
            webs(),
            null(),
            prefers("podAntiAffinity", json!([weighted(3, term("web", "zone"))])),
            Some(vec![50, 50, 0, 100]),
        ),
        // Zone a 1, b 2; host a1 4, b1 8: 5, 1, 10, 0.
        (
            "two terms",
            webs(),
            null(),
            prefers(
                "podAffinity",
                json!([
                    weighted(1, term("web", "zone")),
                    weighted(4, term("web", "host"))
                ]),
            ),
            Some(vec![50, 10, 100, 0]),
        ),
        (
            "no pod matches",
            webs(),
            null(),
            prefers("podAffinity", json!([weighted(3, term("db", "zone"))])),
            None,
        ),
        (
            "a pod that likes this one",
            likes("podAffinity", 5, "zone"),
            null(),
            plain(),
            Some(vec![100, 100, 0, 0]),
        ),
        (
            "a pod that does not",
            likes("podAntiAffinity", 5, "host"),
            null(),
            plain(),
            Some(vec![0, 100, 100, 100]),
        ),
        (
            "its preference ignored",
            likes("podAffinity", 5, "zone"),
            json!({"ignorePreferredTermsOfExistingPods": true}),
            plain(),
            None,
        ),
        // Zone a 5 of the other's, host a1 1 of its own.
        (
            "not ignored where the pod has preferences too",
            likes("podAffinity", 5, "zone"),
            json!({"ignorePreferredTermsOfExistingPods": true}),
            prefers("podAffinity", json!([weighted(1, term("other", "host"))])),
            Some(vec![100, 83, 0, 0]),
        ),
        (
            "a pod that needs this one",
            requires(),
            null(),
            plain(),
            Some(vec![100, 100, 0, 0]),
        ),
        (
            "which counts for nothing",
            requires(),
            json!({"hardPodAffinityWeight": 0}),
            plain(),
            None,
        ),
        (
            "a sum of zero is no Skip",
            webs(),
            null(),
            prefers("podAffinity", json!([weighted(0, term("web", "zone"))])),
            Some(vec![0, 0, 0, 0]),
        ),
        (
            "another namespace",
            webs(),
            null(),
            prefers(
                "podAffinity",
                json!([weighted(
                    3,
                    with(term("web", "zone"), "namespaces", json!(["red"]))
                )]),
            ),
            None,
        ),
        ("no preferences anywhere", webs(), null(), plain(), None),
        // A node without the label has none of the points: all three hosts have 0 then, as no domain is known.
        (
            "a key that no node has",
            webs(),
            null(),
            prefers("podAffinity", json!([weighted(3, term("web", "rack"))])),
            None,
        ),
        (
            "a namespace by its labels",
            world().bound_pod("a1", in_namespace("red", labelled("w", "web", json!({})))),
            null(),
            prefers(
                "podAffinity",
                json!([weighted(
                    3,
                    with(
                        term("web", "zone"),
                        "namespaceSelector",
                        json!({"matchLabels": {"team": "red"}})
                    )
                )]),
            ),
            Some(vec![100, 100, 0, 0]),
        ),
        // Points for the pod's own namespace by its labels.
        (
            "a pod that likes a namespace",
            world().bound_pod(
                "b1",
                in_namespace(
                    "red",
                    labelled(
                        "o",
                        "other",
                        rather(
                            "podAffinity",
                            json!([weighted(
                                5,
                                with(
                                    term("web", "host"),
                                    "namespaceSelector",
                                    json!({"matchLabels": {"team": "blue"}})
                                )
                            )]),
                        ),
                    ),
                ),
            ),
            null(),
            in_namespace("blue", plain()),
            Some(vec![0, 0, 100, 0]),
        ),
        (
            "all alike",
            world()
                .bound_pod("a1", labelled("w1", "web", json!({})))
                .bound_pod("b1", labelled("w2", "web", json!({})))
                .bound_pod("x", labelled("w3", "web", json!({})))
                .bound_pod("a2", labelled("w4", "web", json!({}))),
            null(),
            prefers("podAffinity", json!([weighted(3, term("web", "host"))])),
            Some(vec![0, 0, 0, 0]),
        ),
        // The greatest weight that can be configured: 100 for zone a against the other's 1 for b.
        (
            "a pod that needs this one, weighing much",
            requires().bound_pod(
                "b1",
                labelled(
                    "l",
                    "other",
                    rather("podAffinity", json!([weighted(1, term("web", "zone"))])),
                ),
            ),
            json!({"hardPodAffinityWeight": 100}),
            plain(),
            Some(vec![100, 100, 1, 0]),
        ),
        (
            "what others need does not count either where they are ignored",
            requires(),
            json!({"ignorePreferredTermsOfExistingPods": true}),
            plain(),
            None,
        ),
    ] {
        assert_eq!(scores(&world, args, pod), expected, "{name}");
    }
}

/// PL-87: a preferred term that does not parse fails the cycle, and PreFilter has reported it before.
#[test]
fn a_preferred_term_that_does_not_parse_is_an_error() {
    let bad = json!({"labelSelector": {"matchExpressions": [{"key": "app", "operator": "Near"}]}, "topologyKey": "zone"});
    let pod = labelled("p", "web", rather("podAffinity", json!([weighted(1, bad)])));
    let mut state = CycleState::default();
    let world = world();
    let status =
        InterPodAffinity::default().pre_score(&world.context(), &mut state, &info(pod), &[]);
    assert_eq!(status.code(), Code::Error);
    assert!(
        status.message().starts_with("parsing pod: "),
        "{}",
        status.message()
    );
}

/// PL-88.
#[test]
fn the_weight_has_bounds() {
    for (args, problem) in [
        (json!({"hardPodAffinityWeight": 100}), None),
        (
            json!({"hardPodAffinityWeight": 101}),
            Some("hardPodAffinityWeight: Invalid value: 101: not in valid range [0, 100]"),
        ),
        (
            json!({"hardPodAffinityWeight": -1}),
            Some("hardPodAffinityWeight: Invalid value: -1: not in valid range [0, 100]"),
        ),
    ] {
        let got = InterPodAffinityArgs::decode(&args)
            .err()
            .map(|e| e.to_string());
        assert_eq!(got.as_deref(), problem, "{args}");
    }
}
