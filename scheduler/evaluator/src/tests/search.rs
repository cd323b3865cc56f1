//! Filter: what nodes answer, and which of them are asked.

use super::*;

/// F-9, C-12, C-23, edge cases 197, 203.
#[test]
fn filters_answer_in_order_and_errors_end_the_cycle() {
    let no = || fake("B").filter(|_, _, _| Status::unschedulable("b"));
    for (situation, nodes, plugins, outcome) in [
        (
            "no nodes",
            0,
            vec![no()],
            "no nodes available to schedule pods",
        ),
        (
            "the first no decides",
            1,
            vec![fake("A").filter(|_, _, _| Status::unresolvable("a")), no()],
            "0/1 nodes are available: 1 a.",
        ),
        (
            "an error",
            2,
            vec![
                fake("A").filter(|_, _, node| {
                    if node.name() == "n1" {
                        Status::error("bad")
                    } else {
                        Status::success()
                    }
                }),
                fake("S").score(|_, _, _| Ok(0)),
            ],
            "running \"A\" filter plugin: bad",
        ),
        (
            "a code that filters must not use",
            1,
            vec![fake("A").filter(|_, _, _| Status::skip())],
            "running \"A\" filter plugin: ",
        ),
        (
            "another one",
            1,
            vec![fake("A").filter(|_, _, _| Status::new(Code::Wait, ["later".into()]))],
            "running \"A\" filter plugin: later",
        ),
    ] {
        assert_eq!(World::new(nodes, plugins).outcome(), outcome, "{situation}");
    }
}

/// F-4, F-9, C-23: the status of each node is kept with its plugin, and every rejecting plugin is recorded by the kind
/// of its status.
#[test]
fn every_rejection_is_kept() {
    let statement = |name: &'static str, node: &'static str, status: Status| {
        fake(name).filter(move |_, _, view| {
            if view.name() == node {
                status.clone()
            } else {
                Status::success()
            }
        })
    };
    let plugins = || {
        [
            statement("B", "n1", Status::unschedulable("b")),
            statement("A", "n0", Status::unresolvable("a")),
            statement("C", "n2", Status::pending("c")),
            statement("D", "n2", Status::unschedulable("not asked")),
        ]
    };
    let mut world = World::new(3, plugins());
    let Found::Unfit(error) = world.find(None) else {
        panic!("nothing fits");
    };
    for (index, plugin, code) in [
        (0, "A", Code::UnschedulableAndUnresolvable),
        (1, "B", Code::Unschedulable),
        (2, "C", Code::Pending),
    ] {
        let status = error.diagnosis.statuses.get(Slot::from_index(index));
        let by = status.plugin().map(Str::as_str);
        assert_eq!((by, status.code()), (Some(plugin), code));
    }
    let (turned_down, wait) = World::new(3, plugins()).rejectors();
    assert_eq!(
        (turned_down, wait),
        (vec!["A".into(), "B".into()], vec!["C".into()])
    );
}

/// C-23, case 203: an error ends the search where it happens, whatever the answers of other nodes are.
#[test]
fn an_error_fails_the_cycle_though_other_nodes_fit() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let plugins = [
        fake("A").filter(move |_, _, node| {
            count.fetch_add(1, Ordering::Relaxed);
            match node.name().as_str() {
                "n1" => Status::error("bad"),
                _ => Status::success(),
            }
        }),
        fake("S").score(|_, _, _| Ok(0)),
    ];
    let mut world = World::new(5, plugins);
    let Found::Failed(status) = world.find(None) else {
        panic!("it fails");
    };
    assert_eq!(status.message(), "running \"A\" filter plugin: bad");
    assert_eq!(
        asked.load(Ordering::Relaxed),
        2,
        "no plugin after it is asked"
    );
    // C-22: the next search begins where this one broke off.
    assert_eq!(world.start, 1);
}

/// An error where kube-scheduler would have stopped before: 100 nodes are enough for it among 240.
#[test]
fn an_error_beyond_upstreams_search_only_excludes_its_node() {
    let plugins = || {
        [
            fake("A").filter(|_, _, node| {
                if node.name() == "n200" {
                    Status::error("bad")
                } else {
                    Status::success()
                }
            }),
            fake("S").score(|_, _, node| Ok(i64::from(node.name() == "n239"))),
        ]
    };
    let mut world = World::new(240, plugins());
    let Found::Placed(placement) = world.find(None) else {
        panic!("not placed")
    };
    assert_eq!(placement.name, "n239");
    assert_eq!(
        (
            placement.feasible,
            placement.evaluated,
            placement.excluded.len()
        ),
        (239, 240, 1)
    );
}

/// C-19, C-21, C-22, C-27, edge case 200.
#[test]
fn with_a_percentage_the_search_goes_round() {
    let plugins = [fake("S").score(|_, _, _| Ok(0))];
    let mut world = World::new(300, plugins);
    let mut starts = Vec::new();
    for _ in 0..4 {
        let Found::Placed(placement) = world.find(Some(40)) else {
            panic!("not placed")
        };
        assert_eq!((placement.feasible, placement.evaluated), (120, 120));
        let scores = placement.scores.map(|s| s.nodes).unwrap_or_default();
        let visited: Vec<usize> = scores.iter().map(|(node, _)| node.index()).collect();
        let begun = starts.last().copied().unwrap_or(0);
        let round: Vec<usize> = (begun..begun + 120).map(|at| at % 300).collect();
        assert_eq!(visited, round, "C-21, C-23: in the order of the visit");
        starts.push(world.start);
    }
    assert_eq!(starts, [120, 240, 60, 180]);
}

/// C-17, C-22: with fewer possible nodes the search goes round among these, and the start moves on among all; the try
/// of a nominated node moves nothing.
#[test]
fn the_start_counts_among_the_possible_nodes() {
    let possible = fake("A").pre_filter(|_, _, _| names(&["n1", "n3", "n4"]));
    let mut world = World::new(5, [possible, fake("F").filter(|_, _, _| Status::success())]);
    let mut outcomes = Vec::new();
    for _ in 0..5 {
        outcomes.push((world.start, world.outcome()));
    }
    // One feasible node is enough, because no plugin scores: the start index advances by one.
    let expected = [(0, "n1"), (1, "n3"), (2, "n4"), (3, "n1"), (4, "n3")];
    let outcomes: Vec<_> = outcomes.iter().map(|(at, o)| (*at, o.as_str())).collect();
    assert_eq!(outcomes, expected);
    assert_eq!(world.start, 0);
    world.pod = pod("p").nominated("n4").info();
    assert_eq!((world.outcome(), world.start), ("n4".to_owned(), 0));
}

/// Case 200: over several cycles each node is asked equally often.
#[test]
fn no_node_is_neglected() {
    let asked: Arc<[AtomicUsize]> = (0..300).map(|_| AtomicUsize::new(0)).collect();
    let count = asked.clone();
    let plugins = [
        fake("A").filter(move |_, _, node| {
            count[node.slot().index()].fetch_add(1, Ordering::Relaxed);
            Status::success()
        }),
        fake("S").score(|_, _, _| Ok(0)),
    ];
    let mut world = World::new(300, plugins);
    for _ in 0..15 {
        world.find(Some(40));
    }
    assert!(asked.iter().all(|n| n.load(Ordering::Relaxed) == 6));
}

/// C-20.
#[test]
fn without_scores_one_feasible_node_is_enough() {
    let calls = Arc::new(AtomicUsize::new(0));
    let seen = calls.clone();
    let plugin = fake("A").filter(move |_, _, _| {
        seen.fetch_add(1, Ordering::Relaxed);
        Status::success()
    });
    let mut world = World::new(10, [plugin]);
    assert_eq!(world.outcome(), "n0");
    assert_eq!(world.outcome(), "n1");
    assert_eq!(calls.load(Ordering::Relaxed), 2);
}
