//! PreScore, Score and the choice.

use super::*;

/// C-24, C-27, edge case 198: there is nothing to choose, so that scores are not asked for.
#[test]
fn the_only_feasible_node_is_not_scored() {
    let plugins = [
        fake("A").filter(|_, _, node| {
            if node.name() == "n1" {
                Status::success()
            } else {
                Status::unschedulable("no")
            }
        }),
        fake("S").score(|_, _, _| Err(Status::error("asked for a score"))),
    ];
    let mut world = World::new(3, plugins);
    let Found::Placed(placement) = world.find(None) else {
        panic!("not placed")
    };
    assert_eq!(
        (
            placement.name.as_str(),
            placement.feasible,
            placement.evaluated
        ),
        ("n1", 1, 3)
    );
}

/// F-11, F-12, edge cases 206 and 207.
#[test]
fn scores_are_normalised_weighed_and_checked() {
    let error = |kind: &str| {
        let mut world = match kind {
            "score" => World::new(2, [fake("S").score(|_, _, _| Err(Status::error("oops")))]),
            "pre" => World::new(
                2,
                [fake("S")
                    .pre_score(|_, _, _| Status::error("oops"))
                    .score(|_, _, _| Ok(0))],
            ),
            "normalize" => World::new(
                2,
                [fake("S")
                    .score(|_, _, _| Ok(1))
                    .normalize(|_| Status::error("oops"))],
            ),
            "negative" => World::new(2, [fake("S").score(|_, _, _| Ok(-1))]),
            "normalised too high" => World::new(
                2,
                [fake("S").score(|_, _, _| Ok(1)).normalize(|scores| {
                    scores[1].1 = 101;
                    Status::success()
                })],
            ),
            "rejected" => World::new(
                2,
                [fake("S")
                    .pre_score(|_, _, _| Status::unschedulable("oops"))
                    .score(|_, _, _| Ok(0))],
            ),
            _ => World::new(2, [fake("S").score(|_, _, _| Ok(101))]),
        };
        world.outcome()
    };
    for (kind, text) in [
        (
            "score",
            "running Score plugins: plugin \"S\" failed with: oops",
        ),
        ("pre", "running PreScore plugin \"S\": oops"),
        ("rejected", "running PreScore plugin \"S\": oops"),
        (
            "normalised too high",
            "applying score defaultWeights on Score plugins: plugin \"S\" returns an invalid score 101, it should in the range of [0, 100] after normalizing",
        ),
        (
            "normalize",
            "running Normalize on Score plugins: plugin \"S\" failed with: oops",
        ),
        (
            "negative",
            "applying score defaultWeights on Score plugins: plugin \"S\" returns an invalid score -1, it should in the range of [0, 100] after normalizing",
        ),
        (
            "too much",
            "applying score defaultWeights on Score plugins: plugin \"S\" returns an invalid score 101, it should in the range of [0, 100] after normalizing",
        ),
    ] {
        assert_eq!(error(kind), text);
    }
}

/// C-25: totals are sums of weighted, normalized scores. Without Score plugins no node is preferred.
#[test]
fn totals_are_weighted_sums() {
    let high = |name: &'static str, score: i64| {
        fake(name).score(move |_, _, node| Ok(if node.name() == "n1" { score } else { 0 }))
    };
    let plugins = || {
        [
            high("A", 1000).normalize(|scores| {
                berth_framework::plugin::default_normalize(100, false, scores);
                Status::success()
            }),
            high("B", 3),
        ]
    };
    let mut world = World::new(2, plugins());
    world.profile = profile_with(plugins(), |spec| {
        spec.plugins.point_mut(berth_profile::Point::Score).enabled = vec![
            berth_profile::EnabledPlugin::weighted("A", 2),
            berth_profile::EnabledPlugin::weighted("B", 5),
        ];
    });
    let feasible = [Slot::from_index(0), Slot::from_index(1)];
    let scores = world.evaluator().score(&feasible).unwrap();
    assert_eq!(
        scores.nodes,
        [(feasible[0], 0), (feasible[1], 2 * 100 + 5 * 3)]
    );
    let mut world = World::new(2, [fake("F").filter(|_, _, _| Status::success())]);
    let scores = world.evaluator().score(&feasible).unwrap();
    assert_eq!(scores.nodes, [(feasible[0], 1), (feasible[1], 1)]);
}

/// F-12, case 207: where all return Skip, all nodes are equal, however many plugins only look at the nodes and
/// never score.
#[test]
fn nodes_are_equal_without_a_preference() {
    let skips = |name: &str| fake(name).pre_score(|_, _, _| Status::skip());
    let asked = |_: &CycleState, _: &PodInfo, _: NodeView<'_>| Err(Status::error("asked"));
    let mut world = World::new(3, [skips("A"), skips("B"), skips("C").score(asked)]);
    let feasible: Vec<Slot> = (0..3).map(Slot::from_index).collect();
    let scores = world.evaluator().score(&feasible).unwrap();
    assert!(scores.nodes.iter().all(|(_, total)| *total == 0));
    assert_eq!(scores.skipped, ["A", "B", "C"]);
    let mut chosen: Vec<String> = (0..60).map(|_| world.outcome()).collect();
    chosen.sort();
    chosen.dedup();
    assert_eq!(chosen, ["n0", "n1", "n2"], "C-26: each has a chance");
}

/// F-11, C-25.
#[test]
fn totals_and_contributions_can_be_listed() {
    let mut world = World::new(
        2,
        [
            fake("A")
                .score(|_, _, node| Ok(if node.name() == "n0" { 1 } else { 2 }))
                .normalize(|scores| {
                    berth_framework::plugin::default_normalize(100, false, scores);
                    Status::success()
                }),
            fake("B")
                .pre_score(|_, _, _| Status::skip())
                .score(|_, _, _| Err(Status::error("asked"))),
        ],
    );
    let feasible = [Slot::from_index(0), Slot::from_index(1)];
    let scores = world.evaluator().score(&feasible).unwrap();
    assert_eq!(scores.nodes, [(feasible[0], 50), (feasible[1], 100)]);
    assert_eq!(scores.skipped, ["B"]);
    assert_eq!(scores.plugins.len(), 1);
    assert_eq!(scores.plugins[0].weighted, [50, 100]);
    // Even a single node can be scored when a caller asks for it.
    assert_eq!(
        world.evaluator().score(&feasible[..1]).unwrap().nodes,
        [(feasible[0], 100)]
    );
}
