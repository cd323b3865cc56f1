//! The victims on a node: as few and as unimportant pods as possible, budgets, and the resources that they release.

use super::*;

/// P-11, P-12, edge cases 233 and 236: the victims on one node. The new pod has priority 10.
#[test]
fn as_few_and_as_unimportant_pods_as_possible_go() {
    for (name, pods, cpu, expected) in [
        (
            "the one of lower priority",
            vec![plain("low", 1, 2), plain("high", 20, 2)],
            2,
            "n: low",
        ),
        (
            "the less important",
            vec![plain("a", 1, 2), plain("b", 5, 2)],
            2,
            "n: a",
        ),
        (
            "the younger of two equals",
            vec![started_at("old", 1, 2, 1), started_at("young", 1, 2, 2)],
            2,
            "n: young",
        ),
        (
            "one that has not started is the youngest",
            vec![started_at("old", 1, 2, 1), plain("new", 1, 2)],
            2,
            "n: new",
        ),
        (
            "all of them",
            vec![plain("a", 1, 2), plain("b", 5, 2)],
            4,
            "n: a b",
        ),
        // b is added back first and leaves no room for a and c.
        (
            "small ones stay only if there is room",
            vec![plain("a", 1, 1), plain("b", 5, 2), plain("c", 2, 1)],
            2,
            "n: a c",
        ),
        (
            "a small one stays where there is room for it",
            vec![plain("big", 1, 3), plain("small", 1, 1)],
            3,
            "n: big",
        ),
        (
            "a pod without priority counts as zero",
            vec![pod("none", 0, 4, json!({})), plain("low", -1, 0)],
            2,
            "n: none",
        ),
        (
            "equal priority",
            vec![plain("a", 10, 4)],
            2,
            "preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod.",
        ),
        (
            "equal priority beside a lower one",
            vec![plain("a", 10, 2), plain("b", 1, 2)],
            4,
            "preemption: 0/1 nodes are available: 1 Insufficient cpu.",
        ),
        (
            "not enough",
            vec![plain("low", 1, 1), plain("high", 20, 3)],
            2,
            "preemption: 0/1 nodes are available: 1 Insufficient cpu.",
        ),
        (
            "nothing helps",
            vec![plain("a", 1, 4)],
            8,
            "preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling.",
        ),
        ("negative priorities", vec![plain("a", -5, 4)], 1, "n: a"),
    ] {
        let got = default(world(vec![("n", pods)]), plain("p", 10, cpu));
        assert_eq!(got, expected, "{name}");
    }
}

/// P-7, P-13, edge case 237: budgets. Pods a and b have a budget each where
/// named.
#[test]
fn budgets_are_spared_where_possible() {
    let pair = || {
        world(vec![(
            "n",
            vec![labelled("a", 5, 2, "web"), labelled("b", 1, 2, "db")],
        )])
    };
    for (name, world, expected) in [
        ("no budget", pair(), "n: b"),
        (
            "b may not go",
            with_budget(pair(), budget("x", "db", 0, &[])),
            "n: a",
        ),
        (
            "b may go",
            with_budget(pair(), budget("x", "db", 1, &[])),
            "n: b",
        ),
        (
            "neither may go",
            with_budget(
                with_budget(pair(), budget("x", "db", 0, &[])),
                budget("y", "web", 0, &[]),
            ),
            "n: b",
        ),
        // Of two pods of one budget, the more important one uses it up.
        (
            "one of two may go",
            with_budget(
                world(vec![(
                    "n",
                    vec![labelled("a", 5, 2, "web"), labelled("b", 1, 2, "web")],
                )]),
                budget("x", "web", 1, &[]),
            ),
            "n: a",
        ),
        (
            "two budgets for one pod, one is used up",
            with_budget(
                with_budget(pair(), budget("x", "db", 5, &[])),
                budget("y", "db", 0, &[]),
            ),
            "n: a",
        ),
        (
            "a budget of another namespace",
            with_budget(pair(), {
                let mut elsewhere = budget("x", "db", 0, &[]);
                elsewhere.metadata.namespace = "other".into();
                elsewhere
            }),
            "n: b",
        ),
        (
            "a budget with an empty selector covers no pod",
            with_budget(pair(), {
                let mut all = budget("x", "db", 0, &[]);
                all.spec.selector = serde_json::from_value(json!({})).expect("a selector");
                all
            }),
            "n: b",
        ),
        (
            "a budget without a selector",
            with_budget(pair(), {
                let mut none = budget("x", "db", 0, &[]);
                none.spec.selector = None;
                none
            }),
            "n: b",
        ),
        (
            "a budget that does not parse",
            with_budget(pair(), {
                let mut bad = budget("x", "db", 0, &[]);
                let like = json!({"matchExpressions": [{"key": "app", "operator": "Like"}]});
                bad.spec.selector = serde_json::from_value(like).expect("a selector");
                bad
            }),
            "n: b",
        ),
        (
            "pods without labels have no budget",
            with_budget(
                world(vec![(
                    "n",
                    vec![labelled("a", 5, 2, "web"), plain("b", 1, 2)],
                )]),
                {
                    let mut absent = budget("x", "db", 0, &[]);
                    let lacks =
                        json!({"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]});
                    absent.spec.selector = serde_json::from_value(lacks).expect("a selector");
                    absent
                },
            ),
            "n: b",
        ),
        // Its eviction is counted already.
        (
            "b is on its way",
            with_budget(pair(), budget("x", "db", 0, &["b"])),
            "n: b",
        ),
    ] {
        assert_eq!(default(world, plain("p", 10, 2)), expected, "{name}");
    }
}

/// P-12: victims are listed by importance, whatever their budgets allow.
#[test]
fn victims_go_in_the_order_of_their_importance() {
    let young = |mut pod: Pod| {
        pod.status.start_time = "2026-01-01T00:30:00Z".parse().ok();
        pod
    };
    let old = |mut pod: Pod| {
        pod.status.start_time = "2026-01-01T00:10:00Z".parse().ok();
        pod
    };
    for (guarded, pods, expected) in [
        (
            "web",
            vec![labelled("low", 1, 2, "web"), labelled("high", 5, 2, "db")],
            ["high", "low"],
        ),
        (
            "db",
            vec![labelled("low", 1, 2, "web"), labelled("high", 5, 2, "db")],
            ["high", "low"],
        ),
        (
            "web",
            vec![
                young(labelled("young", 1, 2, "web")),
                old(labelled("old", 1, 2, "db")),
            ],
            ["old", "young"],
        ),
    ] {
        let world = with_budget(world(vec![("n", pods)]), budget("x", guarded, 0, &[]));
        let victims = attempt(world, plain("p", 10, 4)).run().victims();
        assert_eq!(victims, expected, "{guarded} is guarded");
    }
}

/// P-13: a pod is counted in each of its budgets, even if one of them is violated already. Pod a violates its own
/// budget and uses up the budget that it shares with b. The eviction of b violates the shared budget, so the other node
/// is cheaper.
#[test]
fn every_budget_of_a_pod_is_used_up() {
    for (own, both, expected) in [(0, 1, "m: costly"), (5, 1, "n: a"), (0, 2, "n: b")] {
        let mut shared = budget("both", "", both, &[]);
        let either = json!({"matchExpressions": [{"key": "app", "operator": "In", "values": ["web", "db"]}]});
        shared.spec.selector = serde_json::from_value(either).expect("a selector");
        let there = vec![labelled("a", 5, 2, "web"), labelled("b", 1, 2, "db")];
        let nodes = vec![("n", there), ("m", vec![plain("costly", 9, 4)])];
        let world = with_budget(world(nodes), budget("own", "web", own, &[]));
        let got = default(with_budget(world, shared), plain("p", 10, 2));
        assert_eq!(got, expected, "{own} of its own, {both} of both");
    }
}

/// P-12: ports and anti-affinity are freed too, through AddPod and RemovePod.
#[test]
fn more_than_resources_is_freed() {
    let port = |name: &str, priority: i32| {
        let mut pod = plain(name, priority, 1);
        pod.spec.containers[0].ports =
            serde_json::from_value(json!([{"hostPort": 80}])).expect("ports");
        pod
    };
    assert_eq!(
        default(
            world(vec![("n", vec![port("web", 1), plain("other", 1, 1)])]),
            port("p", 10)
        ),
        "n: web"
    );

    let terms = json!([{"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "host"}]);
    let affinity = |kind: &str| json!({"spec": {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}});
    let hosts = || {
        let labels = json!({"labels": {"host": "n"}});
        let status = json!({"allocatable": {"cpu": "4", "pods": 10}});
        World::new()
            .node("n", json!({"metadata": labels, "status": status}))
            .bound_pod("n", labelled("web", 1, 1, "web"))
            .bound_pod("n", plain("other", 1, 3))
    };
    assert_eq!(
        default(hosts(), pod("p", 10, 0, affinity("podAntiAffinity"))),
        "n: web"
    );
    // A pod that it must be near cannot be a victim: without it the filter fails.
    let needs = default(hosts(), pod("p", 10, 1, affinity("podAffinity")));
    assert_eq!(
        needs,
        "preemption: 0/1 nodes are available: 1 node(s) didn't match pod affinity rules."
    );
}

/// P-13: an empty selector covers all pods of the namespace since 1.38, also pods without labels, and none before. Pod
/// a runs on node n, in the namespace of the budget; pod b runs on node m, in another namespace, and is more important.
#[test]
fn an_empty_selector_protects_all_pods_since_1_38() {
    let bare = || plain("a", 1, 4);
    let web = || labelled("a", 1, 4, "web");
    let selecting = |selector: Value| {
        serde_json::from_value(json!({
            "metadata": {"name": "x", "namespace": "default"},
            "spec": {"selector": selector},
            "status": {"disruptionsAllowed": 0},
        }))
        .expect("a budget")
    };
    let not_db =
        json!({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["db"]}]});
    let (spared, not) = ("m: b", "n: a");
    for (name, victim, selector, expected) in [
        ("empty, with labels", web(), json!({}), [not, not, spared]),
        (
            "empty, without labels",
            bare(),
            json!({}),
            [not, not, spared],
        ),
        (
            "empty lists",
            web(),
            json!({"matchLabels": {}}),
            [not, not, spared],
        ),
        ("none", web(), Value::Null, [not, not, not]),
        (
            "that of a",
            web(),
            json!({"matchLabels": {"app": "web"}}),
            [spared, spared, spared],
        ),
        (
            "another one",
            web(),
            json!({"matchLabels": {"app": "db"}}),
            [not, not, not],
        ),
        (
            "one that matches pods without labels",
            bare(),
            not_db,
            [not, not, spared],
        ),
    ] {
        for (release, expected) in berth_api::Release::ALL.into_iter().zip(expected) {
            let mut other = labelled("b", 5, 4, "web");
            other.metadata.namespace = "other".into();
            let nodes = world(vec![("n", vec![victim.clone()]), ("m", vec![other])]);
            let mut nodes = with_budget(nodes, selecting(selector.clone()));
            nodes.features = FeatureGates::of(release);
            let got = default(nodes, plain("p", 10, 2));
            assert_eq!(got, expected, "{name} in {release}");
        }
    }
}
